//! Tests of the whole tokenizer, against Hugging Face's results and against a naive oracle.

mod errors;
mod golden;
mod oracle;

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::*;

/// The folder of golden files.
fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden/tokenizer")
}

/// The small vocabulary.
fn small() -> Tokenizer {
    Tokenizer::from_folder(golden().join("small")).unwrap()
}

/// The JSON values of a file of `golden()`, one a line.
fn json_lines(name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(golden().join(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A vocabulary of the 256 bytes and a few merges, to be spoiled or extended; its ids are the bytes
/// themselves, then 256 `ab`, 257 `abc`, 258 `<x>` (an added token).
fn tiny() -> Value {
    let alphabet = bytes::Alphabet::new();
    let mut vocab: serde_json::Map<String, Value> =
        (0..256).map(|i| (alphabet.characters[i].to_string(), i.into())).collect();
    vocab.insert("ab".into(), 256.into());
    vocab.insert("abc".into(), 257.into());
    serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": { "type": "NFC" },
        "added_tokens": [{ "id": 258, "content": "<x>", "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true }],
        "pre_tokenizer": { "type": "Sequence", "pretokenizers": [
            { "type": "Split", "pattern": { "Regex": r"\w+" }, "behavior": "Isolated", "invert": false },
            { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false }] },
        "post_processor": null, "decoder": { "type": "ByteLevel" },
        "model": { "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocab, "merges": ["a b", "ab c"] },
    })
}

/// The tokenizer of `json` with nothing in its tokenizer_config.json.
fn load(json: &Value) -> Result<Tokenizer, Error> {
    Tokenizer::from_bytes(json.to_string().as_bytes(), b"{}", None)
}

/// `json` with the value at `pointer` set.
fn with(mut json: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match json.pointer_mut(parent).unwrap() {
        Value::Object(map) => drop(map.insert(key.into(), value)),
        Value::Array(list) => list[key.parse::<usize>().unwrap()] = value,
        other => panic!("{parent} is {other}"),
    }
    json
}

#[test]
fn merges_in_both_notations() {
    let pairs = with(tiny(), "/model/merges", serde_json::json!([["a", "b"], ["ab", "c"]]));
    let escaped =
        tiny().to_string().replace(r#""a b""#, r#""\u0061 b""#).replace(r#""abc""#, r#""ab\u0063""#);
    for json in [tiny().to_string(), pairs.to_string(), escaped] {
        let tokenizer = Tokenizer::from_bytes(json.as_bytes(), b"{}", None).unwrap();
        assert_eq!(tokenizer.encode("abcab cab").unwrap(), [257, 256, 32, 99, 256]);
        assert_eq!(tokenizer.vocabulary_size(), 259);
    }
}

/// Without the merge of `abc` the token is reached only when whole pieces are looked up first.
#[test]
fn ignore_merges_takes_whole_pieces() {
    let json = with(tiny(), "/model/merges", serde_json::json!(["a b"]));
    assert_eq!(load(&json).unwrap().encode("abc abcc").unwrap(), [256, 99, 32, 256, 99, 99]);
    let json = with(json, "/model/ignore_merges", true.into());
    assert_eq!(load(&json).unwrap().encode("abc abcc").unwrap(), [257, 32, 256, 99, 99]);
}

/// GPT-2's byte-level step: a space before every piece that has none, then its own pattern.
#[test]
fn byte_level_settings() {
    let step = serde_json::json!({ "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true });
    let mut json = with(tiny(), "/pre_tokenizer", step.clone());
    let merges = serde_json::json!(["a b", "ab c", "1 a", "a Ġ"]);
    let vocab = json["model"]["vocab"].as_object_mut().unwrap();
    vocab.extend([("1a".into(), 258.into()), ("aĠ".into(), 259.into())]);
    json = with(with(json, "/model/merges", merges), "/added_tokens/0/id", 260.into());
    // Letters, digits and blanks do not meet in a piece, so the last two merges never happen.
    assert_eq!(load(&json).unwrap().encode("ab1a a").unwrap(), [32, 256, 49, 97, 32, 97]);
    // Pieces of a split before it each get their space.
    let split = serde_json::json!({ "type": "Split", "pattern": { "String": "1a" }, "behavior": "Isolated",
        "invert": false });
    let steps = serde_json::json!({ "type": "Sequence", "pretokenizers": [split, step] });
    json = with(json, "/pre_tokenizer", steps);
    assert_eq!(load(&json).unwrap().encode("ab1a a").unwrap(), [32, 256, 32, 49, 97, 32, 97]);
}

/// The longest added token wins; `normalized` ones are found in the normalised text, the others as typed.
#[test]
fn added_tokens() {
    let token = |id: u32, content: &str, normalized: bool| {
        serde_json::json!({ "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": normalized, "special": false })
    };
    let list = [
        token(258, "<x>", false),
        token(259, "<x>y", false),
        token(260, "ṩ", true),
        token(261, "s\u{307}\u{323}!", false),
        token(97, "a", false),
    ];
    let tokenizer = load(&with(tiny(), "/added_tokens", list.into())).unwrap();
    assert_eq!(tokenizer.encode("<x><x>yb<x").unwrap(), [258, 259, 98, 60, 120]);
    assert_eq!(
        tokenizer.encode("s\u{307}\u{323}ṩ s\u{307}\u{323}!ṩ!").unwrap(),
        [260, 260, 32, 261, 260, 33]
    );
    assert_eq!(tokenizer.encode("abc").unwrap(), [97, 98, 99]);
    assert_eq!(tokenizer.added_tokens_in("<x>s\u{307}\u{323} <x>yṩ<x>"), ["<x>", "ṩ", "<x>y"]);
    assert_eq!(tokenizer.added_tokens_in("< x>"), [""; 0]);
    assert_eq!(tokenizer.decode(260), Some("ṩ".as_bytes()));
    assert_eq!(tokenizer.decode(262), None);
}

/// A file without a normaliser keeps what NFC would compose.
#[test]
fn no_normalizer() {
    assert_eq!(load(&tiny()).unwrap().encode("e\u{301}").unwrap(), [0xc3, 0xa9]);
    let json = with(tiny(), "/normalizer", Value::Null);
    assert_eq!(load(&json).unwrap().encode("e\u{301}").unwrap(), [0x65, 0xcc, 0x81]);
}

#[test]
#[should_panic(expected = "max_seq is 0")]
fn max_seq_0() {
    let _ = small().encode_prompt("a", 0);
}
