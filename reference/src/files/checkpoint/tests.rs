//! Each way a part's files can be wrong, on small folders.

use std::fs;

use serde_json::{Value, json};

use super::*;

/// A file with `(name, dtype, shape)` tensors whose bytes count up.
fn safetensors(tensors: &[(&str, &str, &[usize])]) -> Vec<u8> {
    let mut next = 0..;
    let mut bytes = |dtype: &str, shape: &[usize]| -> Vec<u8> {
        let count = shape.iter().product::<usize>() * if dtype == "F32" { 4 } else { 2 };
        next.by_ref().take(count).map(|i: u32| (i % 64) as u8).collect()
    };
    let tensors: Vec<_> =
        tensors.iter().map(|(name, dtype, shape)| (*name, *dtype, *shape, bytes(dtype, shape))).collect();
    file_of(&tensors)
}

/// A file with `(name, dtype, shape, bytes)` tensors.
pub(in crate::files) fn file_of(tensors: &[(&str, &str, &[usize], Vec<u8>)]) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    let mut end = 0;
    for (name, dtype, shape, bytes) in tensors {
        let begin = end;
        end += bytes.len();
        header.insert((*name).into(), json!({"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}));
    }
    let mut header = Value::Object(header).to_string();
    header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(tensors.iter().flat_map(|(.., bytes)| bytes));
    file
}

pub(in crate::files) fn specs(list: &[(&str, &[usize])]) -> Vec<TensorSpec> {
    list.iter().map(|(name, shape)| TensorSpec { name: (*name).into(), shape: shape.to_vec() }).collect()
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new(files: &[(&str, Vec<u8>)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (path, bytes) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        Self(folder)
    }

    fn open(&self, part: Part, expected: &[(&str, &[usize])]) -> Result<Checkpoint, WeightsError> {
        Checkpoint::open(&ModelSource::Folder(self.0.path().into()), part, &specs(expected))
    }

    fn error(&self, part: Part, expected: &[(&str, &[usize])]) -> WeightsError {
        self.open(part, expected).err().expect("an error")
    }
}

const DIT: Part = Part::Transformer;

#[test]
fn tensors_come_from_any_shard_with_or_without_an_index() {
    let a = safetensors(&[("a", "BF16", &[2, 2]), ("rope.bands", "F32", &[4])]);
    let b = safetensors(&[("b", "F32", &[3])]);
    let index = json!({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}).to_string();
    let plain = [("transformer/1.safetensors", a.clone()), ("transformer/2.safetensors", b.clone())];
    let mut indexed = plain.to_vec();
    indexed.push(("transformer/x.safetensors.index.json", index.into_bytes()));
    let expected: &[(&str, &[usize])] = &[("a", &[2, 2]), ("b", &[3])];
    let (one, two) = (Folder::new(&plain), Folder::new(&indexed));
    let (one, two) = (one.open(DIT, expected).unwrap(), two.open(DIT, expected).unwrap());
    let elements = |checkpoint: &Checkpoint| checkpoint.rows(&specs(&expected[..1])).to_vec::<f32>().unwrap();
    assert_eq!(elements(&one), elements(&two));
    assert_eq!(one.sha256(), two.sha256());
    assert_eq!(one.get("b").dtype(), FileDType::F32);
    let single = safetensors(&[("b", "F32", &[3]), ("a", "BF16", &[2, 2])]);
    let embedded: &'static [u8] = single.leak();
    let files: &'static [(&'static str, &'static [u8])] =
        vec![("transformer/m.safetensors", embedded)].leak();
    let embedded = Checkpoint::open(&ModelSource::Embedded(files), DIT, &specs(expected)).unwrap();
    assert!(!embedded.rows(&specs(expected)[..1]).in_file() && one.rows(&specs(expected)[..1]).in_file());
    assert_eq!(embedded.get("b").count(), 3);
}

#[test]
fn prefixes_and_unused_tensors_of_the_text_encoder() {
    for prefix in ["", "model.", "language_model.", "model.language_model."] {
        let name = format!("{prefix}norm.weight");
        let file = safetensors(&[
            (&name, "BF16", &[4]),
            ("lm_head.weight", "BF16", &[2]),
            ("model.visual.x", "BF16", &[2]),
            ("mtp.y", "BF16", &[2]),
        ]);
        let folder = Folder::new(&[("text_encoder/m.safetensors", file)]);
        let checkpoint = folder.open(Part::TextEncoder, &[("norm.weight", &[4])]).unwrap();
        assert_eq!(checkpoint.get("norm.weight").count(), 4);
    }
}

#[test]
fn missing_shards_are_all_named() {
    let map = json!({"weight_map": {"a": "1.safetensors", "b": "2.safetensors", "c": "3.safetensors"}});
    let folder = Folder::new(&[
        ("transformer/m.safetensors.index.json", map.to_string().into_bytes()),
        ("transformer/2.safetensors", safetensors(&[("b", "BF16", &[1])])),
    ]);
    let error = folder.error(DIT, &[("a", &[1])]);
    assert!(matches!(&error, WeightsError::MissingShards { missing, count: 3, .. } if missing.len() == 2));
    assert!(error.to_string().contains("1.safetensors, 3.safetensors"), "{error}");
}

#[test]
fn bad_indexes_are_named() {
    for bad in [
        "[",
        "{}",
        r#"{"weight_map": {"a": 1}}"#,
        r#"{"weight_map": {}}"#,
        r#"{"weight_map": {"a": "../b"}}"#,
    ] {
        let folder = Folder::new(&[("transformer/m.safetensors.index.json", bad.into())]);
        let error = folder.error(DIT, &[]);
        assert!(matches!(error, WeightsError::Index { .. }), "{bad}: {error}");
    }
    let map = json!({"weight_map": {"z": "1.safetensors"}}).to_string();
    let folder = Folder::new(&[
        ("transformer/m.safetensors.index.json", map.into_bytes()),
        ("transformer/1.safetensors", safetensors(&[("a", "BF16", &[1])])),
    ]);
    let error = folder.error(DIT, &[("a", &[1])]);
    assert!(matches!(&error, WeightsError::IndexMismatch { tensor, .. } if tensor == "z"), "{error}");
}

#[test]
fn wrong_tensors_are_named_with_shapes() {
    let file = safetensors(&[("a", "BF16", &[2, 2]), ("q", "I8", &[2])]);
    let file = String::from_utf8(file).map_or_else(|e| e.into_bytes(), String::into_bytes);
    let folder = Folder::new(&[("transformer/1.safetensors", safetensors(&[("a", "BF16", &[2, 2])]))]);
    let error = folder.error(DIT, &[("a", &[4, 1])]).to_string();
    assert!(error.contains("tensor a is [2, 2], the configuration asks for [4, 1]"), "{error}");
    let error = folder.error(DIT, &[("a", &[2, 2]), ("b", &[7])]);
    assert!(
        matches!(&error, WeightsError::MissingTensors { count: 1, first, .. } if first == "b"),
        "{error}"
    );
    assert!(error.to_string().contains("[7]"), "{error}");
    let error = folder.error(DIT, &[]);
    assert!(
        matches!(&error, WeightsError::UnexpectedTensors { count: 1, first, .. } if first == "a"),
        "{error}"
    );
    let error = Folder::new(&[("transformer/1.safetensors", file)]).error(DIT, &[("a", &[2, 2])]);
    assert!(matches!(error, WeightsError::Entry { .. }), "an I8 tensor has one byte an element: {error}");
    let int = safetensors(&[("a", "I16", &[2])]);
    let error = Folder::new(&[("transformer/1.safetensors", int)]).error(DIT, &[("a", &[2])]);
    assert!(matches!(&error, WeightsError::DType { found, .. } if found == "I16"), "{error}");
}

#[test]
fn duplicates_name_both_files() {
    let folder = Folder::new(&[
        ("transformer/1.safetensors", safetensors(&[("a", "BF16", &[1])])),
        ("transformer/2.safetensors", safetensors(&[("a", "BF16", &[1])])),
    ]);
    let error = folder.error(DIT, &[("a", &[1])]).to_string();
    assert!(error.contains("1.safetensors") && error.contains("2.safetensors"), "{error}");
}

#[test]
fn truncated_and_disguised_shards_are_named() {
    let mut short = safetensors(&[("a", "BF16", &[8])]);
    short.truncate(short.len() - 1);
    let error = Folder::new(&[("transformer/1.safetensors", short)]).error(DIT, &[("a", &[8])]);
    assert!(matches!(error, WeightsError::Truncated { .. }), "{error}");
    for disguise in ["", "version https://git-lfs.github.com/spec/v1\n", "<html>no</html>"] {
        let error = Folder::new(&[("transformer/1.safetensors", disguise.into())]).error(DIT, &[]);
        assert!(matches!(error, WeightsError::NotSafetensors { .. }), "{error}");
    }
    let mut long = safetensors(&[("a", "BF16", &[8])]);
    long.push(0);
    let error = Folder::new(&[("transformer/1.safetensors", long)]).error(DIT, &[("a", &[8])]);
    assert!(matches!(error, WeightsError::Trailing { .. }), "{error}");
}

#[test]
fn folders_that_are_no_models_are_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for (path, found) in [
        (file.path().to_path_buf(), "a file"),
        (file.path().with_extension("gone"), "nothing there"),
        (tempfile::tempdir().unwrap().keep(), "an empty folder"),
    ] {
        let error = Checkpoint::open(&ModelSource::Folder(path), DIT, &[]).err().unwrap();
        assert!(matches!(error, WeightsError::NotAModel { found: f, .. } if f == found), "{error}");
    }
    let folder = Folder::new(&[("vae/1.safetensors", safetensors(&[]))]);
    let error = folder.error(DIT, &[]);
    assert!(
        matches!(&error, WeightsError::MissingPart { path, .. } if path.contains("transformer")),
        "{error}"
    );
    let error = ModelSource::Folder(folder.0.path().into()).read("vae/config.json").unwrap_err();
    assert!(matches!(error, WeightsError::MissingPart { .. }), "{error}");
    let gone = ModelSource::Folder(folder.0.path().into());
    let io = gone.open("vae/2.safetensors").err().unwrap();
    assert!(matches!(io, WeightsError::Io { .. }), "{io}");
}

#[test]
fn look_alikes_are_recognised() {
    let expected: &[(&str, &[usize])] = &[("layers.0.linear_attn.in_proj_qkv.weight", &[8, 4])];
    let qwen3 = safetensors(&[
        ("model.layers.0.self_attn.q_proj.weight", "BF16", &[4, 4]),
        ("model.layers.0.mlp.gate_proj.weight", "BF16", &[4, 4]),
    ]);
    let folder = Folder::new(&[("text_encoder/1.safetensors", qwen3)]);
    let error = folder.error(Part::TextEncoder, expected).to_string();
    assert!(error.contains("Qwen3-8B"), "{error}");
    let dit = safetensors(&[("shared_block_modulation.weight", "BF16", &[4, 4])]);
    let error =
        Folder::new(&[("text_encoder/1.safetensors", dit)]).error(Part::TextEncoder, expected).to_string();
    assert!(error.contains("MOSS-Image transformer"), "{error}");
    let vae = safetensors(&[("decoder.conv_in.weight", "F32", &[512, 32, 3, 3])]);
    let error = Folder::new(&[("vae/1.safetensors", vae)])
        .error(Part::Vae, &[("decoder.conv_in.weight", &[384, 32, 3, 3])])
        .to_string();
    assert!(error.contains("full FLUX.2 decoder"), "{error}");
}
