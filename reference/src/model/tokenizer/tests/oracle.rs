//! Random texts against byte-pair merging as it is defined, one scan over all pairs a merge.

use std::collections::HashMap;

use proptest::{prelude::*, test_runner::Config};

use super::*;

/// The small vocabulary, read without any of the code under test.
struct Oracle {
    pattern: fancy_regex::Regex,
    ids: HashMap<String, u32>,
    ranks: HashMap<(String, String), usize>,
    added: Vec<(String, u32)>,
}

impl Oracle {
    fn new() -> Self {
        let json = std::fs::read(golden().join("small/tokenizer.json")).unwrap();
        let json: Value = serde_json::from_slice(&json).unwrap();
        let model = &json["model"];
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let id = |value: &Value| value.as_u64().unwrap() as u32;
        let pattern = &json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"];
        Self {
            pattern: fancy_regex::Regex::new(pattern.as_str().unwrap()).unwrap(),
            ids: model["vocab"].as_object().unwrap().iter().map(|(t, i)| (t.clone(), id(i))).collect(),
            ranks: (model["merges"].as_array().unwrap().iter().enumerate())
                .map(|(rank, merge)| ((text(&merge[0]), text(&merge[1])), rank))
                .collect(),
            added: (json["added_tokens"].as_array().unwrap().iter())
                .map(|token| (text(&token["content"]), id(&token["id"])))
                .collect(),
        }
    }

    fn encode(&self, text: &str) -> Vec<u32> {
        // No added token begins another one, so the first that is found leftmost is the longest.
        let first = self.added.iter().filter_map(|(t, id)| Some((text.find(t)?, t, *id))).min();
        let Some((at, token, id)) = first else { return self.encode_text(text) };
        let mut ids = self.encode_text(&text[..at]);
        ids.push(id);
        ids.extend(self.encode(&text[at + token.len()..]));
        ids
    }

    fn encode_text(&self, text: &str) -> Vec<u32> {
        let alphabet = bytes::Alphabet::new();
        let text = added::nfc(text);
        let mut ids = Vec::new();
        let mut length = 0;
        for piece in self.pattern.find_iter(&text) {
            let piece = piece.unwrap().as_str();
            length += piece.len();
            let mut parts: Vec<String> =
                piece.bytes().map(|byte| alphabet.characters[byte as usize].to_string()).collect();
            let rank = |parts: &[String], i: usize| {
                self.ranks.get(&(parts[i].clone(), parts[i + 1].clone())).copied().unwrap_or(usize::MAX)
            };
            while let Some(i) = (0..parts.len() - 1).min_by_key(|&i| rank(&parts, i))
                && rank(&parts, i) != usize::MAX
            {
                let right = parts.remove(i + 1);
                parts[i] += &right;
            }
            ids.extend(parts.iter().map(|part| self.ids[part]));
        }
        assert_eq!(length, text.len(), "the pattern covers every text");
        ids
    }
}

/// Texts of random characters, words of the golden lines, cut anywhere, and added tokens.
fn texts() -> impl Strategy<Value = String> {
    let lines: Vec<String> = json_lines("lines.jsonl")
        .iter()
        .map(|line| line.as_str().unwrap().chars().take(400).collect())
        .collect();
    let cut = (prop::sample::select(lines), any::<prop::sample::Index>(), any::<prop::sample::Index>())
        .prop_map(|(line, a, b)| {
            let chars: Vec<char> = line.chars().collect();
            let (a, b) = (a.index(chars.len() + 1), b.index(chars.len() + 1));
            chars[a.min(b)..a.max(b)].iter().collect::<String>()
        });
    let marks =
        prop::sample::select(vec!["\u{301}", "\u{323}", "\u{93c}", "\u{200d}", "'", "\n", "  ", "<think>"]);
    let part =
        prop_oneof![cut, any::<String>(), any::<char>().prop_map(String::from), marks.prop_map(String::from)];
    prop::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

#[test]
fn random_texts() {
    let (tokenizer, oracle) = (small(), Oracle::new());
    let config = Config { cases: 2000, failure_persistence: None, ..Config::default() };
    proptest!(config, |(text in texts())| {
        let ids = tokenizer.encode(&text).unwrap();
        prop_assert_eq!(&ids, &oracle.encode(&text));
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| tokenizer.decode(id).unwrap()).copied().collect();
        // Added tokens are not composed with what follows them, so each part is normalised by itself.
        let parts = tokenizer.added.split(&text).into_iter().map(|part| match part {
            Part::Token(id) => String::from_utf8(tokenizer.decode(id).unwrap().to_vec()).unwrap(),
            Part::Text(text) => text.into_owned(),
        });
        prop_assert_eq!(String::from_utf8(bytes).unwrap(), parts.collect::<String>());
    });
}
