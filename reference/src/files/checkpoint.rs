//! One part's weights, opened and checked as a whole.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::header::{self, Entry};
use super::source::OpenFile;
use super::{Bytes, FileDType, ModelSource, Part, Rows, TensorSpec, WeightsError};

/// Bytes of each tensor's start and end that go into [`Checkpoint::identity`].
const SAMPLE: usize = 1024;

/// A tensor in a file.
#[derive(Clone)]
pub struct TensorView {
    name: String,
    dtype: FileDType,
    shape: Vec<usize>,
    bytes: Bytes,
    /// None when embedded.
    pub(super) place: Option<Place>,
}

/// Where a tensor's bytes can be read.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) file: Arc<OpenFile>,
    pub(super) offset: u64,
}

impl TensorView {
    /// Name without prefix.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Element type in the file.
    pub fn dtype(&self) -> FileDType {
        self.dtype
    }

    /// Shape.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of elements.
    pub fn count(&self) -> usize {
        self.bytes.len() / self.dtype.size()
    }

    /// The elements' bytes, little-endian, in the mapped or embedded file.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

/// The weights of one part: every tensor that the model needs is there, with its shape and inside its file.
pub struct Checkpoint {
    tensors: BTreeMap<String, TensorView>,
}

/// A mapped shard with its checked header.
struct Shard {
    display: String,
    bytes: Bytes,
    file: Option<Arc<OpenFile>>,
    tensors: BTreeMap<String, Entry>,
}

impl Checkpoint {
    /// Opens a part's files and checks all of them against `expected` before anything is handed out.
    ///
    /// # Errors
    /// [`WeightsError`]: each way in which a file can be wrong has its own variant.
    pub fn open(source: &ModelSource, part: Part, expected: &[TensorSpec]) -> Result<Self, WeightsError> {
        let (names, index) = shard_names(source, part)?;
        let mut shards = Vec::new();
        for name in names {
            let path = format!("{}/{name}", part.folder());
            let file = source.open(&path)?;
            let display = source.display(&path);
            let tensors = header::parse(&display, &file.bytes)?;
            shards.push(Shard { display, bytes: file.bytes, file: file.file, tensors });
        }
        if let Some(map) = index {
            check_index(source, part, &map, &shards)?;
        }
        Ok(Self { tensors: collect(source, part, &shards, expected)? })
    }

    /// A tensor by its name without prefix.
    ///
    /// # Panics
    /// If `name` was not among the expected tensors: that is a programming error.
    pub fn get(&self, name: &str) -> &TensorView {
        self.tensors.get(name).unwrap_or_else(|| panic!("checkpoint: no tensor {name} was asked for"))
    }

    /// A weight: tensors stacked along their first axis.
    ///
    /// # Panics
    /// If the tensors were not among the expected ones, or have rows of different shapes: that is a programming error.
    pub fn rows(&self, parts: &[TensorSpec]) -> Rows {
        let part = |spec: &TensorSpec| {
            let view = self.get(&spec.name);
            assert_eq!(
                view.shape, spec.shape,
                "checkpoint: tensor {} was asked for in another shape",
                spec.name
            );
            view.clone()
        };
        Rows::new(parts.iter().map(part).collect())
    }

    /// All tensors in order of their names.
    pub fn tensors(&self) -> impl Iterator<Item = &TensorView> {
        self.tensors.values()
    }

    /// SHA-256 over the tensors in order of their names: name, dtype, shape and bytes. It does not depend on sharding.
    pub fn sha256(&self) -> [u8; 32] {
        self.digest(|hasher, bytes| hasher.update(bytes))
    }

    /// Like [`Checkpoint::sha256`], with only the first and last KiB of each tensor: cheap at any size.
    pub fn identity(&self) -> [u8; 32] {
        self.digest(|hasher, bytes| {
            hasher.update(&bytes[..bytes.len().min(SAMPLE)]);
            hasher.update(&bytes[bytes.len().saturating_sub(SAMPLE)..]);
        })
    }

    fn digest(&self, add: impl Fn(&mut Sha256, &[u8])) -> [u8; 32] {
        let mut hasher = Sha256::new();
        for view in self.tensors.values() {
            hasher.update(format!("{} {} {:?}\n", view.name, view.dtype.name(), view.shape));
            add(&mut hasher, &view.bytes);
        }
        hasher.finalize().into()
    }
}

/// File names of a part's shards, and the index's map when there is one.
#[allow(clippy::type_complexity)]
fn shard_names(
    source: &ModelSource,
    part: Part,
) -> Result<(Vec<String>, Option<BTreeMap<String, String>>), WeightsError> {
    let folder = part.folder();
    let files = source.list(folder)?;
    let Some(index) = files.iter().find(|name| name.ends_with(".safetensors.index.json")) else {
        let names: Vec<String> = files.into_iter().filter(|name| name.ends_with(".safetensors")).collect();
        if names.is_empty() {
            return Err(source.missing(&format!("{folder}/*.safetensors")));
        }
        return Ok((names, None));
    };
    let path = format!("{folder}/{index}");
    let bad = |reason: &str| WeightsError::Index { file: source.display(&path), reason: reason.into() };
    let bytes = source.read(&path)?;
    let not_json =
        |error| bad(&format!("not JSON: {}", header::disguise(&bytes).map_or(error, String::from)));
    let json: serde_json::Value =
        serde_json::from_slice(&bytes).map_err(|error| not_json(error.to_string()))?;
    let map = json.get("weight_map").and_then(|map| map.as_object()).ok_or_else(|| bad("no weight_map"))?;
    let map: BTreeMap<String, String> = map
        .iter()
        .map(|(tensor, file)| Some((tensor.clone(), file.as_str()?.to_string())))
        .collect::<Option<_>>()
        .ok_or_else(|| bad("weight_map holds something else than file names"))?;
    let names: BTreeSet<String> = map.values().cloned().collect();
    if names.is_empty() {
        return Err(bad("weight_map is empty"));
    }
    if let Some(name) = names.iter().find(|name| name.contains(['/', '\\'])) {
        return Err(bad(&format!("weight_map names {name}, a file beside the index expected")));
    }
    let missing: Vec<String> = names.iter().filter(|name| !files.contains(name)).cloned().collect();
    if !missing.is_empty() {
        let (index, count) = (source.display(&path), names.len());
        return Err(WeightsError::MissingShards { index, missing, count });
    }
    Ok((names.into_iter().collect(), Some(map)))
}

/// Every tensor must be in the shard that the index names.
fn check_index(
    source: &ModelSource,
    part: Part,
    map: &BTreeMap<String, String>,
    shards: &[Shard],
) -> Result<(), WeightsError> {
    let by_name: BTreeMap<String, &Shard> =
        shards.iter().map(|shard| (shard.display.clone(), shard)).collect();
    for (tensor, file) in map {
        let file = source.display(&format!("{}/{file}", part.folder()));
        if !by_name[&file].tensors.contains_key(tensor) {
            return Err(WeightsError::IndexMismatch { file, tensor: tensor.clone() });
        }
    }
    Ok(())
}

/// The expected tensors, each found once and with its shape; everything else must be known to be unused.
fn collect(
    source: &ModelSource,
    part: Part,
    shards: &[Shard],
    expected: &[TensorSpec],
) -> Result<BTreeMap<String, TensorView>, WeightsError> {
    let mut found: BTreeMap<&str, (&Shard, &String, &Entry)> = BTreeMap::new();
    for shard in shards {
        for (name, entry) in shard.tensors.iter().filter(|(name, _)| !part.ignores(name)) {
            let short = part.prefixes().iter().find_map(|p| name.strip_prefix(p)).unwrap_or(name);
            if let Some((first, ..)) = found.insert(short, (shard, name, entry)) {
                let (first, second) = (first.display.clone(), shard.display.clone());
                return Err(WeightsError::Duplicate { tensor: name.clone(), first, second });
            }
        }
    }
    let missing: Vec<&TensorSpec> = expected.iter().filter(|spec| !found.contains_key(&*spec.name)).collect();
    if let Some(first) = missing.first() {
        return Err(WeightsError::MissingTensors {
            folder: source.display(part.folder()),
            found: identify(&found.iter().map(|(name, (.., entry))| (*name, &entry.shape[..])).collect()),
            part: part.title(),
            count: missing.len(),
            first: first.name.clone(),
            shape: first.shape.clone(),
        });
    }
    let known: BTreeSet<&str> = expected.iter().map(|spec| &*spec.name).collect();
    let unexpected: Vec<_> = found.iter().filter(|(name, _)| !known.contains(**name)).collect();
    if let Some((_, (shard, name, entry))) = unexpected.first() {
        return Err(WeightsError::UnexpectedTensors {
            file: shard.display.clone(),
            part: part.title(),
            count: unexpected.len(),
            first: name.to_string(),
            shape: entry.shape.clone(),
        });
    }
    expected
        .iter()
        .map(|spec| {
            let (shard, name, entry) = found[&*spec.name];
            view(part, spec, shard, name, entry).map(|view| (spec.name.clone(), view))
        })
        .collect()
}

fn view(
    part: Part,
    spec: &TensorSpec,
    shard: &Shard,
    name: &str,
    entry: &Entry,
) -> Result<TensorView, WeightsError> {
    let (file, tensor) = (shard.display.clone(), name.to_string());
    let dtype = match &*entry.dtype {
        "BF16" => FileDType::Bf16,
        "F16" => FileDType::F16,
        "F32" => FileDType::F32,
        found => return Err(WeightsError::DType { file, tensor, found: found.into() }),
    };
    // A 1x1 convolution may be stored as a matrix and the other way round.
    let squeeze = |shape: &[usize]| {
        let mut shape = shape.to_vec();
        while shape.len() > 2 && shape.last() == Some(&1) {
            shape.pop();
        }
        shape
    };
    if squeeze(&entry.shape) != squeeze(&spec.shape) {
        let hint = shape_hint(part, &spec.name, &entry.shape);
        let (found, expected) = (entry.shape.clone(), spec.shape.clone());
        return Err(WeightsError::Shape { file, tensor, found, expected, hint });
    }
    Ok(TensorView {
        name: spec.name.clone(),
        dtype,
        shape: spec.shape.clone(),
        bytes: shard.bytes.slice(entry.range.clone()),
        place: shard.file.clone().map(|file| Place { file, offset: entry.range.start as u64 }),
    })
}

/// Says which of the two public decoders a VAE of another width is.
fn shape_hint(part: Part, name: &str, found: &[usize]) -> String {
    if part != Part::Vae || name != "decoder.conv_in.weight" {
        return String::new();
    }
    match found.first() {
        Some(512) => " (this is the full FLUX.2 decoder: its config.json has block_out_channels [128, 256, 512, 512] and no \
                       decoder_block_out_channels)"
            .into(),
        Some(384) => " (this is the small FLUX.2 decoder: its config.json has decoder_block_out_channels [96, 192, 384, 384])"
            .into(),
        _ => String::new(),
    }
}

/// Names what a set of tensors looks like.
fn identify(tensors: &BTreeMap<&str, &[usize]>) -> String {
    let has = |part: &str| tensors.keys().any(|name| name.contains(part));
    let known = if has("linear_attn.in_proj_qkv") {
        "this looks like a Qwen3.5 text encoder"
    } else if has("self_attn.q_proj") && has("mlp.gate_proj") {
        "this looks like another language model, without linear attention (Qwen3-8B?)"
    } else if has("shared_block_modulation") || has("text_embedder.blocks") {
        "this looks like a MOSS-Image transformer"
    } else if has("double_blocks") || has("single_transformer_blocks") {
        "this looks like a FLUX transformer"
    } else if has("lora_A") || has("lora_down") || has("lora_up") {
        "this looks like a LoRA"
    } else if has("decoder.up_blocks") || has("decoder.up.") {
        "this looks like a VAE"
    } else {
        return match tensors.iter().next() {
            Some((name, shape)) => format!("found {} tensors such as {name} {shape:?}", tensors.len()),
            None => "found no tensors".into(),
        };
    };
    known.into()
}

#[cfg(test)]
pub(super) mod tests;
