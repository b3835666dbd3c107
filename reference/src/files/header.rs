//! The header of a safetensors file, checked against the file's length before anything is used.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::Value;

use super::WeightsError;

/// Element type in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileDType {
    /// 16-bit brain float.
    Bf16,
    /// IEEE half.
    F16,
    /// IEEE single.
    F32,
}

impl FileDType {
    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            FileDType::Bf16 | FileDType::F16 => 2,
            FileDType::F32 => 4,
        }
    }

    /// Name in a header.
    pub fn name(self) -> &'static str {
        match self {
            FileDType::Bf16 => "BF16",
            FileDType::F16 => "F16",
            FileDType::F32 => "F32",
        }
    }
}

/// One tensor's entry. `dtype` is the header's word, since a tensor that is not used may be of any type.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) dtype: String,
    pub(super) shape: Vec<usize>,
    /// Bytes in the file.
    pub(super) range: Range<usize>,
}

/// Bytes of an element of any type that the format knows.
fn element_size(dtype: &str) -> Option<usize> {
    match dtype {
        "BOOL" | "U8" | "I8" | "F8_E4M3" | "F8_E5M2" | "F8_E8M0" => Some(1),
        "BF16" | "F16" | "U16" | "I16" => Some(2),
        "F32" | "U32" | "I32" => Some(4),
        "F64" | "U64" | "I64" => Some(8),
        _ => None,
    }
}

/// What a file that is not what its name says looks like, if that can be told from its start.
pub fn disguise(bytes: &[u8]) -> Option<&'static str> {
    let start = &bytes[..bytes.len().min(256)];
    let text = String::from_utf8_lossy(start).trim_start().to_ascii_lowercase();
    if start.is_empty() {
        Some("an empty file")
    } else if text.starts_with("version https://git-lfs") {
        Some("a Git LFS pointer (fetch the real file with git lfs pull)")
    } else if text.starts_with("<!doctype") || text.starts_with("<html") {
        Some("an HTML page (the download was refused or redirected)")
    } else if start.starts_with(b"GGUF") {
        Some("a GGUF file")
    } else if start.starts_with(b"PK\x03\x04") {
        Some("a zip archive (a PyTorch checkpoint?)")
    } else {
        None
    }
}

/// Reads and checks a header: the tensors cover the file without holes, to its last byte.
pub(super) fn parse(file: &str, bytes: &[u8]) -> Result<BTreeMap<String, Entry>, WeightsError> {
    let not = |found: &str| WeightsError::NotSafetensors { file: file.into(), found: found.into() };
    if let Some(found) = disguise(bytes) {
        return Err(not(found));
    }
    let Some(length) = bytes.first_chunk::<8>() else {
        return Err(not(&format!("{} bytes", bytes.len())));
    };
    let length = u64::from_le_bytes(*length);
    if bytes.get(8) != Some(&b'{') || length > 100 << 20 {
        return Err(not("something else"));
    }
    let start = 8 + length as usize;
    if start > bytes.len() {
        let (found, expected) = (bytes.len() as u64, start as u64);
        return Err(WeightsError::Truncated { file: file.into(), found, expected });
    }
    let json: serde_json::Map<String, Value> = serde_json::from_slice(&bytes[8..start])
        .map_err(|error| not(&format!("a header that is no JSON ({error})")))?;
    let mut tensors = BTreeMap::new();
    for (name, value) in json {
        if name != "__metadata__" {
            let entry = entry(&value, start).map_err(|reason| WeightsError::Entry {
                file: file.into(),
                tensor: name.clone(),
                reason,
            })?;
            tensors.insert(name, entry);
        }
    }
    let end = check_cover(file, &tensors, start)?;
    if end > bytes.len() {
        let (found, expected) = (bytes.len() as u64, end as u64);
        return Err(WeightsError::Truncated { file: file.into(), found, expected });
    }
    if end < bytes.len() {
        let (found, expected) = (bytes.len() as u64, end as u64);
        return Err(WeightsError::Trailing { file: file.into(), found, expected });
    }
    Ok(tensors)
}

/// One entry; its bytes must be as many as shape and type need.
fn entry(value: &Value, start: usize) -> Result<Entry, String> {
    let dtype = value.get("dtype").and_then(Value::as_str).ok_or("no dtype")?;
    let whole = |v: &Value| v.as_u64().and_then(|n| usize::try_from(n).ok());
    let list =
        |field: &str| -> Option<Vec<usize>> { value.get(field)?.as_array()?.iter().map(whole).collect() };
    let shape = list("shape").ok_or("no shape")?;
    let offsets = list("data_offsets").ok_or("no data_offsets")?;
    let [begin, end] = offsets[..] else {
        return Err(format!("data_offsets {offsets:?}, two numbers expected"));
    };
    let size = element_size(dtype).ok_or_else(|| format!("unknown dtype {dtype}"))?;
    let needed = shape.iter().try_fold(size, |n, &d| n.checked_mul(d)).ok_or("its size overflows")?;
    if end.checked_sub(begin) != Some(needed) {
        return Err(format!("data_offsets {begin}..{end}, {needed} bytes expected for {dtype} {shape:?}"));
    }
    let range = begin.checked_add(start).zip(end.checked_add(start)).ok_or("its offsets overflow")?;
    Ok(Entry { dtype: dtype.into(), shape, range: range.0..range.1 })
}

/// The tensors must follow one another without a hole or an overlap; returns where the last one ends.
fn check_cover(file: &str, tensors: &BTreeMap<String, Entry>, start: usize) -> Result<usize, WeightsError> {
    let mut order: Vec<(&String, &Entry)> = tensors.iter().collect();
    order.sort_by_key(|(_, entry)| (entry.range.start, entry.range.end));
    let mut end = start;
    for (name, entry) in order {
        if entry.range.start != end {
            let kind = if entry.range.start > end { "a hole before it" } else { "it overlaps another" };
            let reason = format!("{kind}: begins at byte {}, {end} expected", entry.range.start);
            return Err(WeightsError::Entry { file: file.into(), tensor: name.clone(), reason });
        }
        end = entry.range.end;
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: usize) -> Vec<u8> {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.extend(vec![0; data]);
        bytes
    }

    fn message(bytes: &[u8]) -> String {
        let error = parse("x.safetensors", bytes).unwrap_err().to_string();
        assert!(error.starts_with("x.safetensors"), "{error}");
        error
    }

    const GOOD: &str = r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},"b":{"dtype":"F32","shape":[],"data_offsets":[12,16]}}"#;

    #[test]
    fn good_files_are_read() {
        let tensors = parse("x", &file(GOOD, 16)).unwrap();
        assert_eq!(tensors["a"].shape, [2, 3]);
        assert_eq!(tensors["b"].range.len(), 4);
    }

    #[test]
    fn disguises_are_named() {
        assert!(message(b"").contains("an empty file"));
        assert!(message(b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n").contains("Git LFS"));
        assert!(message(b"<!DOCTYPE html><html>").contains("HTML"));
        assert!(message(b"GGUF\x03\0\0\0\0\0\0\0").contains("GGUF"));
        assert!(message(b"PK\x03\x04aaaaaaaa").contains("zip"));
        assert!(message(b"abc").contains("3 bytes"));
        assert!(message(&[7; 40]).contains("something else"));
        assert!(message(&file("{]", 0)).contains("no JSON"));
    }

    #[test]
    fn another_length_gives_both() {
        let whole = file(GOOD, 16);
        let error = message(&file(GOOD, 20));
        assert!(error.contains(&format!("has {} bytes", whole.len() + 4)), "{error}");
        assert!(error.contains(&format!("{} expected", whole.len())), "{error}");
        let error = message(&whole[..whole.len() - 5]);
        assert!(error.contains(&format!("has {} bytes", whole.len() - 5)), "{error}");
        assert!(error.contains(&format!("needs {}", whole.len())), "{error}");
        assert!(message(&whole[..40]).contains("download is incomplete"));
    }

    #[test]
    fn bad_entries_name_the_tensor() {
        for (entry, reason) in [
            (r#"{"shape":[1],"data_offsets":[0,2]}"#, "no dtype"),
            (r#"{"dtype":"BF16","data_offsets":[0,2]}"#, "no shape"),
            (r#"{"dtype":"BF16","shape":[-1],"data_offsets":[0,2]}"#, "no shape"),
            (r#"{"dtype":"BF16","shape":[1]}"#, "no data_offsets"),
            (r#"{"dtype":"BF16","shape":[1],"data_offsets":[0]}"#, "two numbers"),
            (r#"{"dtype":"Q4","shape":[1],"data_offsets":[0,2]}"#, "unknown dtype Q4"),
            (r#"{"dtype":"BF16","shape":[3],"data_offsets":[0,4]}"#, "6 bytes expected"),
            (r#"{"dtype":"BF16","shape":[1],"data_offsets":[4,2]}"#, "2 bytes expected"),
            (r#"{"dtype":"BF16","shape":[1],"data_offsets":[2,4]}"#, "a hole before it"),
            (r#"{"dtype":"BF16","shape":[4611686018427387904,4],"data_offsets":[0,2]}"#, "overflows"),
        ] {
            let error = message(&file(&format!(r#"{{"t":{entry}}}"#), 8));
            assert!(error.contains("tensor t") && error.contains(reason), "{entry}: {error}");
        }
        let overlap = r#"{"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"u":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}}"#;
        assert!(message(&file(overlap, 8)).contains("tensor u: it overlaps"));
    }
}
