//! Synthetic checkpoints: complete model folders in the official layout, of any size, from a seed.
//!
//! Every element is a function of the seed, the part, the tensor's name and its place, so a folder is the same for any number
//! of threads, and only two buffers of it are in memory at a time. Values are scaled as in a trained network, so that
//! activations keep their size through all layers. A picture made with such weights is texture.

mod presets;
mod tokenizer;
mod values;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use moss_reference::files::{ModelSource, Part, TensorSpec};
use moss_reference::model::config::{ConfigError, ModelConfig};
use moss_reference::model::{dit, text_encoder, vae};
use serde_json::{Map, Value, json};

pub use presets::{Preset, Sizes};

use values::{Kind, fill};

/// Elements generated and written at once.
const CHUNK: usize = 8 << 20;

/// Why a folder cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SynthError {
    /// A file or folder cannot be written.
    #[error("{path}: {error}")]
    Io {
        /// The path.
        path: String,
        /// What the system says.
        error: std::io::Error,
    },
    /// The folder is there already.
    #[error("{0} is there already")]
    Exists(String),
    /// The sizes are not those of a model.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A `--config` file is not as it should be.
    #[error("{file}: {reason}")]
    Sizes {
        /// The file.
        file: String,
        /// What is wrong.
        reason: String,
    },
}

fn io(path: &Path) -> impl Fn(std::io::Error) -> SynthError + '_ {
    move |error| SynthError::Io { path: path.display().to_string(), error }
}

/// A tensor to be written.
struct Planned {
    name: String,
    shape: Vec<usize>,
    kind: Kind,
}

impl Planned {
    fn count(&self) -> usize {
        self.shape.iter().product()
    }

    fn bytes(&self) -> usize {
        self.count() * self.kind.dtype_size()
    }
}

/// Writes a complete model folder; it appears under its name only when all of it is written.
///
/// # Errors
/// [`SynthError`]; a folder that was begun is removed.
pub fn write(sizes: &Sizes, seed: u64, out: &Path) -> Result<(), SynthError> {
    if out.exists() {
        return Err(SynthError::Exists(out.display().to_string()));
    }
    let name = out.file_name().unwrap_or_default().to_string_lossy();
    let begun = out.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
    let written = write_all(sizes, seed, &begun).and_then(|()| fs::rename(&begun, out).map_err(io(out)));
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_dir_all(&begun);
    }
    written
}

fn write_all(sizes: &Sizes, seed: u64, folder: &Path) -> Result<(), SynthError> {
    write_json(&folder.join("model_index.json"), &presets::model_index())?;
    write_json(&folder.join("scheduler/scheduler_config.json"), &presets::scheduler())?;
    write_json(&folder.join("text_encoder/config.json"), &sizes.text_encoder)?;
    write_json(&folder.join("transformer/config.json"), &sizes.transformer)?;
    write_json(&folder.join("vae/config.json"), &sizes.vae)?;
    write_json(&folder.join("tokenizer/tokenizer.json"), &tokenizer::tokenizer())?;
    write_json(&folder.join("tokenizer/tokenizer_config.json"), &tokenizer::tokenizer_config())?;
    let config = ModelConfig::open(&ModelSource::Folder(folder.to_path_buf()))?;
    if config.text.vocab_size < tokenizer::vocabulary_size() {
        return Err(SynthError::Sizes {
            file: "text_encoder".into(),
            reason: format!(
                "vocab_size {}, at least {} expected for the tokenizer",
                config.text.vocab_size,
                tokenizer::vocabulary_size()
            ),
        });
    }
    let planned = [
        (Part::TextEncoder, "model", text_encoder::tensors(&config.text), config.text.num_hidden_layers),
        (Part::Transformer, "diffusion_pytorch_model", dit::tensors(&config.dit), config.dit.num_layers),
        (Part::Vae, "diffusion_pytorch_model", vae::tensors(&config.vae), 1),
    ];
    for (part, stem, specs, layers) in planned {
        let shard_bytes = (part != Part::Vae).then_some(sizes.shard_bytes);
        let mut tensors: Vec<Planned> = specs.into_iter().map(|spec| plan(part, spec, layers)).collect();
        tensors.extend(unused(part, &config));
        write_part(&folder.join(part.folder()), part, stem, &tensors, shard_bytes, seed)?;
    }
    Ok(())
}

fn plan(part: Part, spec: TensorSpec, layers: usize) -> Planned {
    let kind = Kind::of(part, &spec.name, &spec.shape, layers);
    let name = match part {
        Part::TextEncoder => format!("model.language_model.{}", spec.name),
        Part::Transformer | Part::Vae => spec.name,
    };
    Planned { name, shape: spec.shape, kind }
}

/// Tensors that the official files hold and the pipeline skips.
fn unused(part: Part, config: &ModelConfig) -> Vec<Planned> {
    let one =
        |name: &str, shape: &[usize], kind| vec![Planned { name: name.into(), shape: shape.to_vec(), kind }];
    match part {
        Part::TextEncoder => one("mtp.norm.weight", &[config.text.hidden_size], Kind::noise(0.1)),
        Part::Transformer => {
            let bands = config.dit.dim / config.dit.num_heads / 8;
            one("rope.bands", &[bands], Kind::noise(0.1))
        }
        Part::Vae => one("bn.num_batches_tracked", &[], Kind::count()),
    }
}

/// Splits a part into shards and writes them, with an index when there is more than one.
fn write_part(
    folder: &Path,
    part: Part,
    stem: &str,
    tensors: &[Planned],
    shard_bytes: Option<u64>,
    seed: u64,
) -> Result<(), SynthError> {
    fs::create_dir_all(folder).map_err(io(folder))?;
    let limit = shard_bytes.unwrap_or(u64::MAX);
    let mut shards: Vec<Vec<&Planned>> = vec![Vec::new()];
    let mut size = 0;
    for tensor in tensors {
        if size > 0 && size + tensor.bytes() as u64 > limit {
            shards.push(Vec::new());
            size = 0;
        }
        size += tensor.bytes() as u64;
        shards.last_mut().expect("there is always one").push(tensor);
    }
    if let [only] = &shards[..] {
        return write_shard(&folder.join(format!("{stem}.safetensors")), part, only, seed);
    }
    let mut map = Map::new();
    for (i, shard) in shards.iter().enumerate() {
        let name = format!("{stem}-{:05}-of-{:05}.safetensors", i + 1, shards.len());
        write_shard(&folder.join(&name), part, shard, seed)?;
        map.extend(shard.iter().map(|tensor| (tensor.name.clone(), Value::from(name.clone()))));
    }
    let total: u64 = tensors.iter().map(|tensor| tensor.bytes() as u64).sum();
    let index = json!({"metadata": {"total_size": total}, "weight_map": map});
    write_json(&folder.join(format!("{stem}.safetensors.index.json")), &index)
}

fn write_shard(path: &Path, part: Part, tensors: &[&Planned], seed: u64) -> Result<(), SynthError> {
    let mut header = Map::new();
    header.insert("__metadata__".into(), json!({"format": "pt"}));
    let mut end = 0;
    for tensor in tensors {
        let begin = end;
        end += tensor.bytes();
        let entry =
            json!({"dtype": tensor.kind.dtype_name(), "shape": tensor.shape, "data_offsets": [begin, end]});
        header.insert(tensor.name.clone(), entry);
    }
    let mut header = Value::Object(header).to_string();
    // The format asks for data that begin at a multiple of 8.
    header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));
    let chunks = tensors.iter().flat_map(|tensor| {
        let stream = values::stream(seed, part.folder(), &tensor.name);
        let count = tensor.count();
        (0..count).step_by(CHUNK).map(move |start| (tensor, stream, start, CHUNK.min(count - start)))
    });
    let write = || -> std::io::Result<()> {
        let mut file = File::create(path)?;
        let mut ready = (header.len() as u64).to_le_bytes().to_vec();
        ready.extend(header.as_bytes());
        let mut next = Vec::new();
        for (tensor, stream, start, count) in chunks {
            // The disk takes one chunk while the next is made.
            let make = || fill(&tensor.kind, stream, start, count, &mut next);
            rayon::join(|| file.write_all(&ready), make).0?;
            std::mem::swap(&mut ready, &mut next);
        }
        file.write_all(&ready)
    };
    write().map_err(io(path))
}

fn write_json(path: &Path, value: &Value) -> Result<(), SynthError> {
    let folder = path.parent().map(PathBuf::from).unwrap_or_default();
    fs::create_dir_all(&folder).map_err(io(&folder))?;
    let text = format!("{value:#}\n");
    fs::write(path, text).map_err(io(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use moss_reference::model::Model;

    fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
        let mut all = Vec::new();
        let mut open = vec![folder.to_path_buf()];
        while let Some(next) = open.pop() {
            for entry in fs::read_dir(next).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    open.push(path);
                } else {
                    all.push((path.strip_prefix(folder).unwrap().to_path_buf(), fs::read(&path).unwrap()));
                }
            }
        }
        all.sort();
        all
    }

    #[test]
    fn a_seed_gives_the_same_bytes_for_any_number_of_threads() {
        let folder = tempfile::tempdir().unwrap();
        let sizes = Preset::Tiny.sizes();
        let make = |name: &str, seed: u64, threads: usize| {
            let out = folder.path().join(name);
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| write(&sizes, seed, &out)).unwrap();
            files(&out)
        };
        let (one, two, other) = (make("a", 1, 1), make("b", 1, 3), make("c", 2, 2));
        assert!(one == two, "the same for 1 and 3 threads");
        assert!(one != other, "another for another seed");
        assert!(one.iter().any(|(path, _)| path.ends_with("model.safetensors.index.json")), "sharded");
        assert!(Model::open(&ModelSource::Folder(folder.path().join("a"))).is_ok());
    }

    #[test]
    fn a_folder_is_never_overwritten_and_never_half_there() {
        let folder = tempfile::tempdir().unwrap();
        let sizes = Preset::Tiny.sizes();
        let error = write(&sizes, 1, folder.path()).unwrap_err();
        assert!(matches!(error, SynthError::Exists(_)));
        let mut bad = Preset::Tiny.sizes();
        bad.transformer["dim"] = json!(100);
        let error = write(&bad, 1, &folder.path().join("x")).unwrap_err();
        assert!(matches!(error, SynthError::Config(_)), "{error}");
        bad = Preset::Tiny.sizes();
        bad.text_encoder["text_config"]["vocab_size"] = json!(100);
        let error = write(&bad, 1, &folder.path().join("x")).unwrap_err();
        assert!(matches!(error, SynthError::Sizes { .. }), "{error}");
        let error = write(&sizes, 1, Path::new("/proc/none/x")).unwrap_err();
        assert!(matches!(error, SynthError::Io { .. }), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_demo_sizes_fit_into_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("demo");
        write(&Preset::Demo.sizes(), 1, &out).unwrap();
        let bytes: usize = files(&out).iter().map(|(_, bytes)| bytes.len()).sum();
        assert!(bytes <= 16 << 20, "{bytes} bytes");
        assert!(Model::open(&ModelSource::Folder(out)).is_ok());
    }

    #[test]
    fn full_has_the_official_number_of_bytes() {
        let config = config(&Preset::Full.sizes());
        let bytes = |size: usize, specs: Vec<TensorSpec>| -> f64 {
            specs.iter().map(|spec| (size * spec.shape.iter().product::<usize>()) as f64).sum()
        };
        let (text, dit, vae) = (
            bytes(2, text_encoder::tensors(&config.text)),
            bytes(2, dit::tensors(&config.dit)),
            bytes(4, vae::tensors(&config.vae)),
        );
        // The official files have 9.5 and 0.1 GiB. The text encoder's 15.6 GiB hold a vision tower too, so it is judged by
        // the 26 GB of all that the pipeline reads.
        let rounded = |bytes: f64, unit: f64| (bytes / unit).round();
        let tenth = f64::from(1 << 30) / 10.0;
        assert_eq!((rounded(dit, tenth), rounded(vae, tenth)), (95.0, 1.0));
        assert_eq!(rounded(text + dit + vae, 1e9), 26.0);
    }

    /// Names and shapes of all parts, as counts and as a hash of the sorted lines; written down apart from the declarations.
    #[test]
    fn parts_have_the_tensors_of_the_official_layout() {
        for (preset, expected) in [
            (
                Preset::Tiny,
                [(27, 0xed86_6ec8_a456_c6cb), (72, 0x7856_31be_fa93_2627), (142, 0x2611_c0a6_040e_ae4c)],
            ),
            (
                Preset::Demo,
                [(55, 0xadd5_dbea_25c4_34d7), (112, 0xb8d8_34f1_f059_4de2), (140, 0x53a4_63e8_f801_4868)],
            ),
            (
                Preset::Block,
                [(27, 0xbe45_5908_5f19_a67f), (52, 0xf973_9b07_fefa_dfbb), (142, 0x90c8_c4f3_e43f_2193)],
            ),
            (
                Preset::Full,
                [(426, 0xecfb_181c_b25b_41c0), (462, 0xa399_3c1a_f3b0_0b2a), (142, 0x90c8_c4f3_e43f_2193)],
            ),
        ] {
            let config = config(&preset.sizes());
            let found = [
                fingerprint(text_encoder::tensors(&config.text)),
                fingerprint(dit::tensors(&config.dit)),
                fingerprint(vae::tensors(&config.vae)),
            ];
            assert_eq!(found, expected, "{preset:?}: {found:#x?}");
        }
    }

    fn config(sizes: &Sizes) -> ModelConfig {
        let folder = tempfile::tempdir().unwrap();
        for (part, config) in
            [("text_encoder", &sizes.text_encoder), ("transformer", &sizes.transformer), ("vae", &sizes.vae)]
        {
            write_json(&folder.path().join(part).join("config.json"), config).unwrap();
        }
        ModelConfig::open(&ModelSource::Folder(folder.path().into())).unwrap()
    }

    /// Number of tensors, and 64-bit FNV-1a of the sorted lines `name [shape]`.
    fn fingerprint(specs: Vec<TensorSpec>) -> (usize, u64) {
        let mut lines: Vec<String> =
            specs.iter().map(|spec| format!("{} {:?}\n", spec.name, spec.shape)).collect();
        lines.sort();
        let hash = lines.concat().bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        (lines.len(), hash)
    }
}
