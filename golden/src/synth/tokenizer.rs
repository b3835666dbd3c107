//! A small byte-level BPE tokenizer with the official pattern and control tokens.

use serde_json::{Map, Value, json};

/// Qwen3.5's split: letters run with marks, digits stand alone, punctuation excludes marks.
const PATTERN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Pairs joined, in order of rank; `Ġ` is a blank.
const MERGES: [(&str, &str); 24] = [
    ("t", "h"),
    ("th", "e"),
    ("i", "n"),
    ("e", "r"),
    ("a", "n"),
    ("o", "n"),
    ("Ġ", "the"),
    ("Ġ", "a"),
    ("r", "e"),
    ("e", "d"),
    ("l", "e"),
    ("p", "p"),
    ("pp", "le"),
    ("Ġa", "pple"),
    ("u", "s"),
    ("us", "er"),
    ("s", "t"),
    ("a", "s"),
    ("as", "s"),
    ("is", "t"),
    ("an", "t"),
    ("i", "s"),
    ("Ġ", "on"),
    ("in", "g"),
];

const CONTROL: [&str; 5] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"];

/// Entries with the control tokens.
pub(super) fn vocabulary_size() -> usize {
    256 + MERGES.len() + CONTROL.len()
}

/// The printable character that stands for a byte (GPT-2's table).
fn byte_char(byte: u8) -> char {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if printable(byte) {
        return char::from(byte);
    }
    let rank = (0..byte).filter(|&b| !printable(b)).count() as u32;
    char::from_u32(256 + rank).expect("below 512")
}

/// `tokenizer.json`.
pub(super) fn tokenizer() -> Value {
    let bytes = (0..=255u8).map(|byte| byte_char(byte).to_string());
    let merged = MERGES.iter().map(|(a, b)| format!("{a}{b}"));
    let vocab: Map<String, Value> =
        bytes.chain(merged).zip(0..).map(|(token, id)| (token, json!(id))).collect();
    let added: Vec<Value> = CONTROL
        .iter()
        .zip(256 + MERGES.len()..)
        .map(|(content, id)| {
            json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": !content.contains("think")})
        })
        .collect();
    let merges: Vec<Value> = MERGES.iter().map(|(a, b)| json!([a, b])).collect();
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}
        ]},
        "post_processor": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "",
            "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocab, "merges": merges}
    })
}

/// `tokenizer_config.json`.
pub(super) fn tokenizer_config() -> Value {
    json!({"tokenizer_class": "Qwen2Tokenizer", "model_max_length": 262_144, "pad_token": "<|endoftext|>"})
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_byte_has_its_own_sign_and_every_merge_its_parts() {
        let signs: BTreeSet<char> = (0..=255).map(byte_char).collect();
        assert_eq!(signs.len(), 256);
        assert_eq!((byte_char(b' '), byte_char(b'\n'), byte_char(b'A')), ('Ġ', 'Ċ', 'A'));
        let json = tokenizer();
        let vocab = json["model"]["vocab"].as_object().unwrap();
        assert_eq!(vocab.len() + CONTROL.len(), vocabulary_size());
        for (a, b) in MERGES {
            for part in [a.into(), b.into(), format!("{a}{b}")] {
                assert!(vocab.contains_key(&part), "{part}");
            }
        }
    }
}
