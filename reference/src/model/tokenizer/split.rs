//! Cutting a text into the pieces that are merged apart from each other.

use std::borrow::Cow;

use fancy_regex::{Regex, RegexBuilder};

use super::Error;

/// GPT-2's pattern, which a `ByteLevel` step with `use_regex` applies.
pub(super) const GPT2_PATTERN: &str =
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// One pattern: matches are pieces, and so is what lies between two matches (`Isolated`).
pub(super) struct Splitter(Regex);

impl Splitter {
    pub(super) fn new(pattern: &str, file: &str) -> Result<Self, Error> {
        // The engine's limit on its steps would refuse long prompts; its limit on memory stays.
        RegexBuilder::new(pattern).backtrack_limit(usize::MAX).build().map(Self).map_err(|source| {
            Error::Pattern { file: file.to_owned(), pattern: pattern.to_owned(), reason: source.to_string() }
        })
    }

    /// Calls `piece` with the pieces of `text`, in order.
    fn split(&self, text: &str, piece: &mut dyn FnMut(&str) -> Result<(), Error>) -> Result<(), Error> {
        let mut done = 0;
        for found in self.0.find_iter(text) {
            let found = found.map_err(|source| Error::Split {
                pattern: self.0.as_str().to_owned(),
                at: done,
                len: text.len(),
                reason: source.to_string(),
            })?;
            for range in [done..found.start(), found.range()] {
                if !range.is_empty() {
                    piece(&text[range])?;
                }
            }
            done = found.end();
        }
        if done < text.len() { piece(&text[done..]) } else { Ok(()) }
    }
}

/// The pre-tokenizer of a `tokenizer.json`: `Split` steps, then one `ByteLevel` step.
pub(super) struct PreTokenizer {
    /// The patterns, each applied to the pieces of the one before.
    pub(super) splits: Vec<Splitter>,
    /// `add_prefix_space`: every piece of `splits` that does not start with a space gets one.
    pub(super) prefix_space: bool,
    /// `use_regex`: GPT-2's pattern, applied after the prefix.
    pub(super) gpt2: Option<Splitter>,
}

impl PreTokenizer {
    /// Calls `piece` with the bytes of the pieces of `text`, in order.
    ///
    /// # Errors
    /// [`Error::Split`] when a pattern gives up.
    pub(super) fn pieces(&self, text: &str, piece: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        self.step(&self.splits, text, piece)
    }

    fn step(&self, splits: &[Splitter], text: &str, piece: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        if let [first, rest @ ..] = splits {
            return first.split(text, &mut |part| self.step(rest, part, piece));
        }
        let text = if self.prefix_space && !text.starts_with(' ') {
            Cow::Owned(format!(" {text}"))
        } else {
            Cow::Borrowed(text)
        };
        match &self.gpt2 {
            Some(splitter) => splitter.split(&text, &mut |part| {
                piece(part.as_bytes());
                Ok(())
            }),
            None => {
                piece(text.as_bytes());
                Ok(())
            }
        }
    }
}
