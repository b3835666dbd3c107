//! What can be wrong with a tokenizer.

use std::{io, path::PathBuf};

use crate::files::WeightsError;

/// Why a tokenizer cannot be read or used. Every message names the file and what was found in it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the folder cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file of a model is missing or cannot be read.
    #[error(transparent)]
    Model(#[from] WeightsError),
    /// A file is no JSON object at all.
    #[error("{file}: {found}, a JSON object expected")]
    NotJson {
        /// The file.
        file: String,
        /// What it looks like.
        found: &'static str,
    },
    /// A file is not JSON, or not of the expected layout.
    #[error("{file}: {source}")]
    Json {
        /// The file.
        file: String,
        /// What was found, with its line and column.
        source: serde_json::Error,
    },
    /// A component or setting that would change the tokens and that this tokenizer does not implement.
    #[error("{file}: {component} is {found}, which is not supported (supported: {supported})")]
    Unsupported {
        /// The file.
        file: String,
        /// The component, as a path of keys.
        component: String,
        /// Its value.
        found: String,
        /// The values that are understood.
        supported: &'static str,
    },
    /// A split pattern that is no regular expression.
    #[error("{file}: the split pattern {pattern:?} cannot be compiled: {reason}")]
    Pattern {
        /// The file.
        file: String,
        /// The pattern.
        pattern: String,
        /// What the regular-expression compiler said.
        reason: String,
    },
    /// The vocabulary's ids are not 0, 1, 2, ... each used once.
    #[error("{file}: the vocabulary of {size} tokens has no token with id {id}; ids must be 0 to {}", size - 1)]
    VocabularyIds {
        /// The file.
        file: String,
        /// Number of tokens.
        size: usize,
        /// The lowest id that no token has.
        id: usize,
    },
    /// A token that the vocabulary lists with two ids.
    #[error("{file}: the vocabulary lists the token {token:?} twice")]
    TokenTwice {
        /// The file.
        file: String,
        /// The token as the file spells it.
        token: String,
    },
    /// A byte that the vocabulary has no token for, so that some texts could not be encoded.
    #[error("{file}: the vocabulary has no token for byte 0x{byte:02x} ({character:?})")]
    MissingByte {
        /// The file.
        file: String,
        /// The byte.
        byte: u8,
        /// The character that spells the byte in the file.
        character: char,
    },
    /// A merge whose parts or result are no tokens of the vocabulary.
    #[error("{file}: merge {index} ({left:?} + {right:?}): {missing:?} is not in the vocabulary")]
    Merge {
        /// The file.
        file: String,
        /// Index of the merge.
        index: usize,
        /// Its left token.
        left: String,
        /// Its right token.
        right: String,
        /// The one that is no token.
        missing: String,
    },
    /// An added token whose id is not the one it must have, or which is empty or listed twice.
    #[error("{file}: added token {content:?} with id {id}: {expected}")]
    AddedToken {
        /// The file.
        file: String,
        /// The token's text.
        content: String,
        /// Its id in the file.
        id: u32,
        /// What was expected.
        expected: String,
    },
    /// `tokenizer_config.json` names a special token that is not among the added tokens of `tokenizer.json`.
    #[error("{file}: {key} names {content:?}, which is no added token of tokenizer.json")]
    ConfigToken {
        /// The file.
        file: String,
        /// The key that names it.
        key: String,
        /// The token's text.
        content: String,
    },
    /// The chat template cannot be compiled, or fails on the prompt.
    #[error("{file}: the chat template fails: {reason}")]
    Template {
        /// The file.
        file: String,
        /// What the template engine said, with the line.
        reason: String,
    },
    /// The split pattern gave up on a text (over a million blanks in a row, for the known patterns).
    #[error("the split pattern {pattern:?} gave up at byte {at} of {len}: {reason}")]
    Split {
        /// The pattern.
        pattern: String,
        /// Where its search began, in bytes.
        at: usize,
        /// Length of the text, in bytes.
        len: usize,
        /// What the regular-expression engine said.
        reason: String,
    },
}
