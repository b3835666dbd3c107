//! The tokenizer: from a prompt to the ids that the text encoder reads.
//!
//! It implements what byte-level BPE files in Hugging Face's `tokenizer.json` format use, and refuses by name
//! what it does not understand. A text goes through these steps:
//!
//! 1. added tokens are cut out as they are typed, also those inside a user's prompt;
//! 2. the rest is normalised (NFC), then cut by the file's own patterns;
//! 3. each piece, as UTF-8 bytes, is merged pair by pair in the file's order.

mod added;
mod bpe;
mod bytes;
mod error;
mod file;
mod split;
mod template;
#[cfg(test)]
mod tests;

use std::path::Path;

pub use error::Error;

use added::Part;
use bpe::Scratch;
use template::ChatTemplate;

use crate::files::ModelSource;

/// A tokenizer with its chat template. See the [module](self) for what it does.
pub struct Tokenizer {
    added: added::AddedTokens,
    pre_tokenizer: split::PreTokenizer,
    bpe: bpe::Bpe,
    /// The bytes of each token, by id.
    tokens: Vec<Vec<u8>>,
    template: ChatTemplate,
}

/// The ids of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// The ids that the text encoder reads, at most `max_seq`.
    pub ids: Vec<u32>,
    /// Number of ids before the cut: the prompt was cut when this is above `ids.len()`.
    pub total: usize,
}

/// The files of a tokenizer's folder; the last is optional.
pub const FILES: [&str; 3] = ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"];

/// The names that messages have for the files of a tokenizer that is not a folder.
const EMBEDDED: [&str; 3] =
    ["the embedded tokenizer.json", "the embedded tokenizer_config.json", "the embedded chat template"];

impl Tokenizer {
    /// Reads a folder with `tokenizer.json`, `tokenizer_config.json` and perhaps `chat_template.jinja`, which
    /// goes before a template in `tokenizer_config.json`.
    ///
    /// # Errors
    /// Any [`Error`] but [`Error::Split`], naming the file.
    pub fn from_folder(folder: impl AsRef<Path>) -> Result<Self, Error> {
        let paths = FILES.map(|name| folder.as_ref().join(name));
        let read =
            |path: &Path| std::fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source });
        let template = match std::fs::read_to_string(&paths[2]) {
            Ok(template) => Some(template),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(source) => return Err(Error::Read { path: paths[2].clone(), source }),
        };
        let names = paths.each_ref().map(|path| path.display().to_string());
        let names = names.each_ref().map(String::as_str);
        Self::new(&read(&paths[0])?, &read(&paths[1])?, template.as_deref(), names)
    }

    /// Reads the `tokenizer/` of a model.
    ///
    /// # Errors
    /// Any [`Error`] but [`Error::Read`] and [`Error::Split`], naming the file.
    pub fn open(source: &ModelSource) -> Result<Self, Error> {
        let paths = FILES.map(|name| format!("tokenizer/{name}"));
        let names = paths.each_ref().map(|path| source.display(path));
        let template = match source.has(&paths[2]) {
            true => Some(String::from_utf8(source.read(&paths[2])?).map_err(|_| Error::Template {
                file: names[2].clone(),
                reason: "the file is not UTF-8".into(),
            })?),
            false => None,
        };
        let names = names.each_ref().map(String::as_str);
        Self::new(&source.read(&paths[0])?, &source.read(&paths[1])?, template.as_deref(), names)
    }

    /// Reads the contents of `tokenizer.json`, `tokenizer_config.json` and perhaps `chat_template.jinja`.
    ///
    /// # Errors
    /// Any [`Error`] but [`Error::Read`] and [`Error::Split`].
    pub fn from_bytes(
        tokenizer_json: &[u8],
        tokenizer_config: &[u8],
        template: Option<&str>,
    ) -> Result<Self, Error> {
        Self::new(tokenizer_json, tokenizer_config, template, EMBEDDED)
    }

    /// `names` are those of the three files, for messages.
    fn new(
        tokenizer_json: &[u8],
        tokenizer_config: &[u8],
        template: Option<&str>,
        names: [&str; 3],
    ) -> Result<Self, Error> {
        let parts = file::parse(tokenizer_json, names[0])?;
        let config = file::parse_config(tokenizer_config, names[1], &parts.added_texts)?;
        let template = match template {
            Some(template) => Some((names[2].to_owned(), template.to_owned())),
            None => config.template.map(|template| (names[1].to_owned(), template)),
        };
        Ok(Self {
            added: parts.added,
            pre_tokenizer: parts.pre_tokenizer,
            bpe: parts.bpe,
            tokens: parts.tokens,
            template: ChatTemplate::new(template, config.special_tokens)?,
        })
    }

    /// Number of tokens, added ones included: every id is below it.
    pub fn vocabulary_size(&self) -> usize {
        self.tokens.len()
    }

    /// The ids of `text` as it stands, without a template.
    ///
    /// # Errors
    /// [`Error::Split`] when the split pattern gives up, which takes over a million blanks in a row.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, Error> {
        let mut ids = Vec::new();
        let mut scratch = Scratch::default();
        for part in self.added.split(text) {
            match part {
                Part::Token(id) => ids.push(id),
                Part::Text(text) => self
                    .pre_tokenizer
                    .pieces(&text, &mut |piece| self.bpe.encode(piece, &mut scratch, &mut ids))?,
            }
        }
        Ok(ids)
    }

    /// The ids of `prompt` as one user message in the chat template, cut to the first `max_seq`.
    ///
    /// # Errors
    /// [`Error::Template`] when the template fails, [`Error::Split`] as [`Tokenizer::encode`].
    ///
    /// # Panics
    /// When `max_seq` is 0.
    pub fn encode_prompt(&self, prompt: &str, max_seq: usize) -> Result<Encoded, Error> {
        assert!(max_seq > 0, "encode_prompt: max_seq is 0");
        let mut ids = self.encode(&self.template.render(prompt)?)?;
        let total = ids.len();
        ids.truncate(max_seq);
        Ok(Encoded { ids, total })
    }

    /// The added tokens (`<|im_end|>` and so on) that `text` holds as typed text, each once, in order. A user
    /// who types one in a prompt gets the token, as in the official pipeline, and may want to know.
    pub fn added_tokens_in(&self, text: &str) -> Vec<&str> {
        let mut found = Vec::new();
        for part in self.added.split(text) {
            if let Part::Token(id) = part {
                let token = std::str::from_utf8(&self.tokens[id as usize]).expect("an added token is a text");
                if !found.contains(&token) {
                    found.push(token);
                }
            }
        }
        found
    }

    /// The bytes that the token `id` stands for, or `None` when there is no such token. They may end or begin
    /// within a character.
    pub fn decode(&self, id: u32) -> Option<&[u8]> {
        self.tokens.get(id as usize).map(Vec::as_slice)
    }
}
