//! Added tokens: texts that are found before anything else and become one token each.

use std::borrow::Cow;

use aho_corasick::{AhoCorasick, AhoCorasickBuilder, MatchKind};
use unicode_normalization_alignments::UnicodeNormalization;

/// A part of a text.
pub(super) enum Part<'a> {
    /// An added token.
    Token(u32),
    /// Normalised text without added tokens; not empty.
    Text(Cow<'a, str>),
}

impl Part<'_> {
    fn into_owned<'b>(self) -> Part<'b> {
        match self {
            Part::Token(id) => Part::Token(id),
            Part::Text(text) => Part::Text(Cow::Owned(text.into_owned())),
        }
    }
}

/// Canonical composition (NFC) by the tables of Unicode 9, those of the tokenizer that the model was trained
/// with: marks that later versions assigned keep their place.
pub(super) fn nfc(text: &str) -> Cow<'_, str> {
    // Nothing below U+0300 combines, decomposes with NFC or changes places.
    if text.chars().all(|c| c < '\u{300}') {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(text.nfc().map(|(c, _)| c).collect())
    }
}

/// Added tokens that are looked for together: the leftmost match wins, the longest of those at one place.
struct Finder {
    automaton: AhoCorasick,
    /// The id of each pattern.
    ids: Vec<u32>,
}

impl Finder {
    fn new(tokens: &[(String, u32)]) -> Option<Self> {
        if tokens.is_empty() {
            return None;
        }
        let automaton = AhoCorasickBuilder::new()
            .match_kind(MatchKind::LeftmostLongest)
            .build(tokens.iter().map(|(content, _)| content))
            .expect("far fewer than 2^31 pattern bytes");
        Some(Self { automaton, ids: tokens.iter().map(|&(_, id)| id).collect() })
    }
}

/// `text` as the tokens of `finder` and the texts around them, in order.
fn split<'a>(finder: Option<&Finder>, text: &'a str) -> Vec<Part<'a>> {
    let mut parts = Vec::new();
    let mut done = 0;
    for found in finder.iter().flat_map(|finder| finder.automaton.find_iter(text)) {
        if done < found.start() {
            parts.push(Part::Text(Cow::Borrowed(&text[done..found.start()])));
        }
        parts.push(Part::Token(finder.expect("it found something").ids[found.pattern().as_usize()]));
        done = found.end();
    }
    if done < text.len() {
        parts.push(Part::Text(Cow::Borrowed(&text[done..])));
    }
    parts
}

/// The added tokens of a `tokenizer.json`.
pub(super) struct AddedTokens {
    /// Whether text is normalised to NFC.
    nfc: bool,
    /// Those looked for in the text as it is typed.
    raw: Option<Finder>,
    /// Those with `normalized`, looked for afterwards, in the normalised text.
    normalized: Option<Finder>,
}

impl AddedTokens {
    /// `raw` and `normalized` are (text, id); `nfc` says whether texts, and so the latter, are normalised.
    pub(super) fn new(nfc_: bool, raw: &[(String, u32)], normalized: &[(String, u32)]) -> Self {
        let normalized: Vec<(String, u32)> = normalized
            .iter()
            .map(|(content, id)| (if nfc_ { nfc(content).into_owned() } else { content.clone() }, *id))
            .collect();
        Self { nfc: nfc_, raw: Finder::new(raw), normalized: Finder::new(&normalized) }
    }

    /// `text` as added tokens and the normalised texts around them, in order.
    pub(super) fn split<'a>(&self, text: &'a str) -> Vec<Part<'a>> {
        let mut parts = Vec::new();
        for part in split(self.raw.as_ref(), text) {
            match part {
                Part::Text(Cow::Borrowed(text)) if self.nfc => match nfc(text) {
                    Cow::Borrowed(text) => parts.extend(split(self.normalized.as_ref(), text)),
                    Cow::Owned(text) => {
                        parts
                            .extend(split(self.normalized.as_ref(), &text).into_iter().map(Part::into_owned));
                    }
                },
                Part::Text(Cow::Borrowed(text)) => parts.extend(split(self.normalized.as_ref(), text)),
                part => parts.push(part),
            }
        }
        parts
    }
}
