//! `tokenizer.json` and `tokenizer_config.json`: their layout, and the checks that nothing in them is ignored
//! that would change the tokens.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

use super::{
    Error,
    added::AddedTokens,
    bpe::{Bpe, Merge, Merges, Table, pair},
    bytes::Alphabet,
    split::{GPT2_PATTERN, PreTokenizer, Splitter},
};
use crate::files::disguise;

/// `tokenizer.json`. An unknown key is refused: it might change the tokens.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenizerJson<'a> {
    version: String,
    /// Replaced by the caller's own truncation, as `padding` is.
    #[serde(rename = "truncation")]
    _truncation: Option<Value>,
    #[serde(rename = "padding")]
    _padding: Option<Value>,
    added_tokens: Vec<AddedToken>,
    normalizer: Option<Value>,
    pre_tokenizer: Option<Value>,
    post_processor: Option<Value>,
    decoder: Option<Value>,
    #[serde(borrow)]
    model: Model<'a>,
}

/// An entry of `added_tokens`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AddedToken {
    id: u32,
    content: String,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
    normalized: bool,
    /// Changes decoding only.
    #[serde(rename = "special")]
    _special: bool,
}

/// The `model` of `tokenizer.json`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Model<'a> {
    r#type: String,
    dropout: Option<f64>,
    /// Never used, as are `fuse_unk` and `byte_fallback`: every byte has a token, so no text is unknown.
    #[serde(rename = "unk_token")]
    _unk_token: Option<String>,
    #[serde(default, rename = "fuse_unk")]
    _fuse_unk: bool,
    #[serde(default, rename = "byte_fallback")]
    _byte_fallback: bool,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    ignore_merges: bool,
    #[serde(borrow)]
    vocab: Vocabulary<'a>,
    #[serde(borrow)]
    merges: Vec<MergePair<'a>>,
}

/// A token as the file spells it; borrowed from the file unless it has escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The `vocab` of the model, in file order.
struct Vocabulary<'a>(Vec<(Text<'a>, u32)>);

impl<'de: 'a, 'a> Deserialize<'de> for Vocabulary<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Vocabulary<'de>;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object from token to id")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vocabulary<'de>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Vocabulary(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// An entry of `merges`: `"left right"`, or in newer files `["left", "right"]`.
struct MergePair<'a>(Cow<'a, str>, Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for MergePair<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pair;
        impl<'de> Visitor<'de> for Pair {
            type Value = MergePair<'de>;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a merge, \"left right\" or [\"left\", \"right\"]")
            }

            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<MergePair<'de>, E> {
                match text.split_once(' ') {
                    Some((left, right)) if !right.contains(' ') => Ok(MergePair(left.into(), right.into())),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<MergePair<'de>, E> {
                // A text with escapes cannot be borrowed from the file; a token of such a merge is a copy.
                let mut parts = text.split(' ').map(|part| Cow::Owned(part.to_owned()));
                match (parts.next(), parts.next(), parts.next()) {
                    (Some(left), Some(right), None) => Ok(MergePair(left, right)),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<MergePair<'de>, A::Error> {
                let mut part = |i| match seq.next_element()? {
                    Some(Text(part)) => Ok(part),
                    None => Err(de::Error::invalid_length(i, &self)),
                };
                let pair = MergePair(part(0)?, part(1)?);
                match seq.next_element::<de::IgnoredAny>()? {
                    Some(_) => Err(de::Error::invalid_length(3, &self)),
                    None => Ok(pair),
                }
            }
        }
        deserializer.deserialize_any(Pair)
    }
}

/// What `tokenizer.json` says, checked and ready for use.
pub(super) struct Parts {
    pub(super) added: AddedTokens,
    pub(super) pre_tokenizer: PreTokenizer,
    pub(super) bpe: Bpe,
    /// The bytes of each token, by id; added tokens included.
    pub(super) tokens: Vec<Vec<u8>>,
    /// The texts of the added tokens.
    pub(super) added_texts: Vec<String>,
}

/// Refuses what does not even begin as a JSON object, by what it looks like.
fn check_object(json: &[u8], file: &str) -> Result<(), Error> {
    if json.trim_ascii_start().starts_with(b"{") {
        return Ok(());
    }
    Err(Error::NotJson { file: file.to_owned(), found: disguise(json).unwrap_or("something else") })
}

/// Reads `json`, the content of the file that messages call `file`.
pub(super) fn parse(json: &[u8], file: &str) -> Result<Parts, Error> {
    check_object(json, file)?;
    let document: TokenizerJson =
        serde_json::from_slice(json).map_err(|source| Error::Json { file: file.to_owned(), source })?;
    let check = Check { file };
    check.that(document.version == "1.0", "version", &document.version, "1.0")?;
    let nfc = check.normalizer(document.normalizer.as_ref())?;
    let pre_tokenizer = check.pre_tokenizer(document.pre_tokenizer.as_ref())?;
    check.byte_level_or_none(document.post_processor.as_ref(), "post_processor")?;
    check.byte_level_or_none(document.decoder.as_ref(), "decoder")?;

    let model = document.model;
    check.that(model.r#type == "BPE", "model.type", &model.r#type, "BPE")?;
    check.that(model.dropout.unwrap_or(0.0) == 0.0, "model.dropout", &model.dropout, "null")?;
    for (key, affix) in [
        ("model.continuing_subword_prefix", &model.continuing_subword_prefix),
        ("model.end_of_word_suffix", &model.end_of_word_suffix),
    ] {
        check.that(affix.as_deref().unwrap_or("").is_empty(), key, affix, "null or empty")?;
    }

    let ids: Table<&str, u32> = model.vocab.0.iter().map(|(Text(token), id)| (&**token, *id)).collect();
    let alphabet = Alphabet::new();
    let mut tokens = check.tokens(&model.vocab.0, &ids, &alphabet)?;
    let bpe = Bpe {
        byte_ids: check.byte_ids(&ids, &alphabet)?,
        merges: check.merges(&model.merges, &model.vocab.0, &ids)?,
        whole_pieces: model
            .ignore_merges
            .then(|| ids.iter().filter_map(|(t, &id)| Some((alphabet.bytes_of(t)?, id))).collect()),
    };
    let added = check.added_tokens(&document.added_tokens, &ids, nfc, &mut tokens)?;
    let added_texts = document.added_tokens.into_iter().map(|token| token.content).collect();
    Ok(Parts { added, pre_tokenizer, bpe, tokens, added_texts })
}

/// The checks of one file.
struct Check<'a> {
    file: &'a str,
}

impl Check<'_> {
    fn unsupported(
        &self,
        component: impl Into<String>,
        found: &impl serde::Serialize,
        supported: &'static str,
    ) -> Error {
        let found = serde_json::to_string(found).expect("a JSON value");
        Error::Unsupported { file: self.file.to_owned(), component: component.into(), found, supported }
    }

    /// [`Error::Unsupported`] unless `ok`.
    fn that(
        &self,
        ok: bool,
        component: impl Into<String>,
        found: &impl serde::Serialize,
        supported: &'static str,
    ) -> Result<(), Error> {
        if ok { Ok(()) } else { Err(self.unsupported(component, found, supported)) }
    }

    /// Whether the normaliser is NFC; otherwise there is none.
    fn normalizer(&self, value: Option<&Value>) -> Result<bool, Error> {
        let Some(value) = value else { return Ok(false) };
        let nfc = *value == serde_json::json!({ "type": "NFC" });
        self.that(nfc, "normalizer", value, "NFC or null")?;
        Ok(nfc)
    }

    fn pre_tokenizer(&self, value: Option<&Value>) -> Result<PreTokenizer, Error> {
        let key = "pre_tokenizer";
        let supported =
            "Split with a Regex or String, Isolated and not inverted, steps before one ByteLevel step";
        let value = value.unwrap_or(&Value::Null);
        let steps = match (&value["type"], value["pretokenizers"].as_array()) {
            (kind, Some(steps)) if kind == "Sequence" => steps.as_slice(),
            _ => std::slice::from_ref(value),
        };
        let Some((last, splits)) = steps.split_last() else {
            return Err(self.unsupported(key, value, supported));
        };
        let byte_level = ["type", "add_prefix_space", "trim_offsets", "use_regex"];
        self.that(last["type"] == "ByteLevel" && only(last, &byte_level), key, last, supported)?;
        // The defaults are those of the format: a missing `use_regex` means true.
        let flag = |name: &str, default| match &last[name] {
            Value::Null => Ok(default),
            Value::Bool(flag) => Ok(*flag),
            other => Err(self.unsupported(format!("{key}.{name}"), other, "true or false")),
        };
        let gpt2 = flag("use_regex", true)?.then(|| Splitter::new(GPT2_PATTERN, self.file)).transpose()?;
        let prefix_space = flag("add_prefix_space", true)?;
        let splits = splits.iter().map(|step| {
            let plain = step["type"] == "Split"
                && step["behavior"] == "Isolated"
                && step["invert"] == false
                && only(step, &["type", "pattern", "behavior", "invert"]);
            self.that(plain, key, step, supported)?;
            let escaped;
            let pattern = match (step["pattern"]["Regex"].as_str(), step["pattern"]["String"].as_str()) {
                (Some(regex), None) => regex,
                (None, Some(text)) => {
                    escaped = fancy_regex::escape(text);
                    &escaped
                }
                _ => return Err(self.unsupported(key, step, supported)),
            };
            Splitter::new(pattern, self.file)
        });
        Ok(PreTokenizer { splits: splits.collect::<Result<_, _>>()?, prefix_space, gpt2 })
    }

    /// A byte-level post-processor adds no tokens; [`super::Tokenizer::decode`] is a byte-level decoder.
    fn byte_level_or_none(&self, value: Option<&Value>, key: &str) -> Result<(), Error> {
        let value = value.unwrap_or(&Value::Null);
        self.that(value.is_null() || value["type"] == "ByteLevel", key, value, "ByteLevel or null")
    }

    /// The bytes of each token by id. Tokens outside the alphabet (added ones) stand for their own text.
    fn tokens(
        &self,
        vocabulary: &[(Text, u32)],
        ids: &Table<&str, u32>,
        alphabet: &Alphabet,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let size = vocabulary.len();
        let mut twice = vocabulary.iter().filter(|(Text(token), id)| ids[&**token] != *id);
        if let Some((Text(token), _)) = (ids.len() < size).then(|| twice.next()).flatten() {
            return Err(Error::TokenTwice { file: self.file.to_owned(), token: token.to_string() });
        }
        let mut tokens = vec![None; size];
        for (Text(token), id) in vocabulary {
            if let Some(slot) = tokens.get_mut(*id as usize) {
                *slot = Some(alphabet.bytes_of(token).unwrap_or_else(|| token.as_bytes().to_vec()));
            }
        }
        // As many tokens as ids: an id that is too large or used twice leaves another one without a token.
        match tokens.iter().position(Option::is_none) {
            Some(id) => Err(Error::VocabularyIds { file: self.file.to_owned(), size, id }),
            None => Ok(tokens.into_iter().flatten().collect()),
        }
    }

    fn byte_ids(&self, ids: &Table<&str, u32>, alphabet: &Alphabet) -> Result<[u32; 256], Error> {
        let mut byte_ids = [0; 256];
        for (byte, &character) in (0u8..=255).zip(&alphabet.characters) {
            byte_ids[byte as usize] = *ids
                .get(character.encode_utf8(&mut [0; 4]) as &str)
                .ok_or_else(|| Error::MissingByte { file: self.file.to_owned(), byte, character })?;
        }
        Ok(byte_ids)
    }

    fn merges(
        &self,
        pairs: &[MergePair],
        vocabulary: &[(Text, u32)],
        ids: &Table<&str, u32>,
    ) -> Result<Merges, Error> {
        let mut merges = Merges::with_capacity_and_hasher(pairs.len(), Default::default());
        let mut joined = String::new();
        // A trained vocabulary lists what merges make in their order, so the entry after the last one is tried
        // before the table: its lookups, far apart in memory, would be half the time of loading.
        let mut entries = vocabulary.iter();
        for (index, MergePair(left, right)) in pairs.iter().enumerate() {
            joined.clear();
            joined.push_str(left);
            joined.push_str(right);
            let id_of = |token: &str| {
                ids.get(token).copied().ok_or_else(|| Error::Merge {
                    file: self.file.to_owned(),
                    index,
                    left: left.to_string(),
                    right: right.to_string(),
                    missing: token.to_owned(),
                })
            };
            let key = pair(id_of(left)?, id_of(right)?);
            let id = match entries.next() {
                Some((Text(token), id)) if *token == joined => *id,
                _ => {
                    let id = id_of(&joined)?;
                    let at = vocabulary.partition_point(|entry| entry.1 <= id);
                    entries = vocabulary[at..].iter();
                    id
                }
            };
            // A pair listed twice has the rank of its last line.
            merges.insert(key, Merge { rank: index as u32, id });
        }
        Ok(merges)
    }

    /// Checks the added tokens and appends those that the vocabulary lacks to `tokens`.
    fn added_tokens(
        &self,
        added: &[AddedToken],
        ids: &Table<&str, u32>,
        nfc: bool,
        tokens: &mut Vec<Vec<u8>>,
    ) -> Result<AddedTokens, Error> {
        let (mut raw, mut normalized) = (Vec::new(), Vec::new());
        for (i, token) in added.iter().enumerate() {
            let content = &token.content;
            for (flag, on) in
                [("single_word", token.single_word), ("lstrip", token.lstrip), ("rstrip", token.rstrip)]
            {
                self.that(!on, format!("{flag} of the added token {content:?}"), &on, "false")?;
            }
            // Ids are those of the vocabulary, or go on after it in the order of the list.
            let expected_id = ids.get(content.as_str()).map_or(tokens.len(), |&id| id as usize);
            let problem = if content.is_empty() {
                Some("a text was expected".to_owned())
            } else if added[..i].iter().any(|other| other.content == *content) {
                Some("it is listed twice".to_owned())
            } else if token.id as usize != expected_id {
                Some(format!("id {expected_id} was expected"))
            } else {
                None
            };
            if let Some(expected) = problem {
                let (file, content) = (self.file.to_owned(), content.clone());
                return Err(Error::AddedToken { file, content, id: token.id, expected });
            }
            let bytes = content.as_bytes().to_vec();
            match tokens.get_mut(expected_id) {
                Some(token) => *token = bytes,
                None => tokens.push(bytes),
            }
            let list = if token.normalized { &mut normalized } else { &mut raw };
            list.push((content.clone(), token.id));
        }
        Ok(AddedTokens::new(nfc, &raw, &normalized))
    }
}

/// Whether `object` has no other keys than `keys`.
fn only(object: &Value, keys: &[&str]) -> bool {
    object.as_object().is_some_and(|map| map.keys().all(|key| keys.contains(&key.as_str())))
}

/// What a chat template may use of `tokenizer_config.json`.
pub(super) struct Config {
    /// The template, if it is in this file.
    pub(super) template: Option<String>,
    /// `bos_token`, `eos_token` and so on: name and text.
    pub(super) special_tokens: Vec<(String, String)>,
}

/// Reads `json`, the content of the file that messages call `file`; `added` are the added tokens of
/// `tokenizer.json`.
pub(super) fn parse_config(json: &[u8], file: &str, added: &[String]) -> Result<Config, Error> {
    check_object(json, file)?;
    let map: Map<String, Value> =
        serde_json::from_slice(json).map_err(|source| Error::Json { file: file.to_owned(), source })?;
    let get = |key: &str| map.get(key).unwrap_or(&Value::Null);
    let check = Check { file };
    for key in ["add_bos_token", "add_eos_token", "add_prefix_space", "split_special_tokens"] {
        let value = get(key);
        check.that(value.is_null() || *value == false, key, value, "false or null")?;
    }
    let side = get("truncation_side");
    check.that(side.is_null() || side == "right", "truncation_side", side, "right")?;

    // Every token named here would be matched before the split, so it must be in the other list too.
    let known = |key: &str, value: &Value| match text_of(value) {
        Some(content) if !added.iter().any(|token| token == content) => Err(Error::ConfigToken {
            file: file.to_owned(),
            key: key.to_owned(),
            content: content.to_owned(),
        }),
        _ => Ok(()),
    };
    for key in ["added_tokens_decoder", "additional_special_tokens", "extra_special_tokens"] {
        match get(key) {
            Value::Array(values) => values.iter().try_for_each(|value| known(key, value))?,
            Value::Object(values) => values.values().try_for_each(|value| known(key, value))?,
            _ => {}
        }
    }
    let mut special_tokens = Vec::new();
    for name in ["bos", "eos", "unk", "sep", "pad", "cls", "mask"] {
        let key = format!("{name}_token");
        known(&key, get(&key))?;
        if let Some(content) = text_of(get(&key)) {
            special_tokens.push((key, content.to_owned()));
        }
    }

    // Either the template itself, or a list of named ones, of which a plain prompt takes "default".
    let template = match get("chat_template") {
        Value::Null => None,
        Value::String(template) => Some(template.clone()),
        value => {
            let named = value.as_array().into_iter().flatten().find(|entry| entry["name"] == "default");
            let template = named.and_then(|entry| entry["template"].as_str());
            let supported = "a text, or a list of {name, template} with a \"default\"";
            check.that(template.is_some(), "chat_template", value, supported)?;
            template.map(str::to_owned)
        }
    };
    Ok(Config { template, special_tokens })
}

/// The text of a token that is given as a string or as an object with `content`.
fn text_of(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value["content"].as_str())
}
