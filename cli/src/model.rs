//! The model that a command works with, and the text of a prompt.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use moss_reference::files::{Checkpoint, ModelSource};
use moss_reference::model::config::{DitConfig, PipelineConfig, TextConfig, VaeConfig};
use moss_reference::model::tokenizer::{Encoded, Tokenizer};
use moss_reference::model::{self, Model};

use crate::embedded;
use crate::error::{CliError, Result};
use crate::files::input;
use crate::options::PromptArgs;

/// A model folder, or the demo model in the program.
pub(crate) struct Source {
    /// Where to read.
    pub source: ModelSource,
    /// `demo` or the folder's name, for messages.
    pub name: String,
}

impl Source {
    /// The folder that `--model` named, or the demo model.
    pub(crate) fn new(model: Option<&Path>) -> Self {
        match model {
            Some(folder) => {
                Self { source: ModelSource::Folder(folder.to_path_buf()), name: folder_name(folder) }
            }
            None => Self { source: ModelSource::Embedded(embedded::DEMO), name: "demo".into() },
        }
    }

    /// Whether this is the demo model.
    pub(crate) fn is_demo(&self) -> bool {
        matches!(self.source, ModelSource::Embedded(_))
    }

    /// Opens and checks all parts.
    ///
    /// # Errors
    /// As [`Self::named`].
    pub(crate) fn open(&self) -> Result<Model> {
        self.named(Model::open(&self.source))
    }

    /// What the model's folder says about requests, and the sizes of its DiT.
    ///
    /// # Errors
    /// As [`Self::named`].
    pub(crate) fn requests(&self) -> Result<(PipelineConfig, DitConfig)> {
        let pipeline = self.named(PipelineConfig::open(&self.source))?;
        Ok((pipeline, self.named(DitConfig::open(&self.source))?))
    }

    /// Opens the text encoder alone.
    ///
    /// # Errors
    /// As [`Self::named`].
    pub(crate) fn text_encoder(&self) -> Result<(TextConfig, Arc<Checkpoint>)> {
        self.named(model::open_text_encoder(&self.source))
    }

    /// Opens the VAE alone.
    ///
    /// # Errors
    /// As [`Self::named`].
    pub(crate) fn vae(&self) -> Result<(VaeConfig, Arc<Checkpoint>)> {
        self.named(model::open_vae(&self.source))
    }

    /// Opens the tokenizer alone.
    ///
    /// # Errors
    /// As [`Self::named`].
    pub(crate) fn tokenizer(&self) -> Result<Tokenizer> {
        self.named(Tokenizer::open(&self.source))
    }

    /// The result, or a failure that names the option with its folder, and the file within it.
    pub(crate) fn named<T>(&self, result: std::result::Result<T, impl Display>) -> Result<T> {
        result.map_err(|error| {
            let ModelSource::Folder(folder) = &self.source else {
                return CliError::Failed(error.to_string());
            };
            let folder = folder.display().to_string();
            let folder = folder.trim_end_matches('/');
            let text = error.to_string().replace(&format!("{folder}/"), "");
            let reason = text.strip_prefix(&format!("{folder}: ")).unwrap_or(&text);
            CliError::failed(format!("--model {folder}"), reason)
        })
    }
}

/// The last part of a folder's path, or the path itself.
fn folder_name(folder: &Path) -> String {
    let name = folder.canonicalize().ok().and_then(|path| path.file_name().map(PathBuf::from));
    name.unwrap_or_else(|| folder.to_path_buf()).display().to_string()
}

/// The prompt from `--prompt`, `--prompt-file` or standard input.
///
/// # Errors
/// As [`text`] and [`text_file`].
pub(crate) fn prompt(args: &PromptArgs) -> Result<Option<String>> {
    match (&args.prompt, &args.prompt_file) {
        (Some(given), _) => text("--prompt", given).map(Some),
        (None, Some(path)) => text_file("--prompt-file", path).map(Some),
        (None, None) => Ok(None),
    }
}

/// The text of an option's value, `-` for standard input.
///
/// # Errors
/// A usage error when it is not UTF-8; as [`text_file`].
pub(crate) fn text(option: &str, given: &std::ffi::OsStr) -> Result<String> {
    match given.to_str() {
        Some("-") => text_file(option, Path::new("-")),
        Some(text) => Ok(text.to_string()),
        None => Err(CliError::Usage(format!("{option}: the text is not UTF-8"))),
    }
}

/// The text of a file or, for `-`, of standard input. Editors and shells put a byte order mark before a text and a newline
/// behind it: one of each is dropped, nothing else is touched.
///
/// # Errors
/// A usage error when it is not UTF-8, a failure when the file cannot be read or is too long.
fn text_file(option: &str, path: &Path) -> Result<String> {
    let named = format!("{option} {}", path.display());
    let bytes = input::read(path, input::PROMPT, true).map_err(|reason| CliError::failed(&named, reason))?;
    let text = String::from_utf8(bytes)
        .map_err(|error| CliError::Usage(format!("{named}: the text is not UTF-8: {error}")))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let line = text.strip_suffix('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
    Ok(line.unwrap_or(text).to_string())
}

/// The words of a text that the demo model does not know, each once, in order. Its vocabulary was trained on its captions to
/// the end, so that each of their words is one token, with the blank before it or as the first of a text.
pub(crate) fn unknown_words(tokenizer: &Tokenizer, text: &str) -> Vec<String> {
    let is_one = |text: &str| tokenizer.encode(text).is_ok_and(|ids| ids.len() == 1);
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let mut unknown: Vec<String> = Vec::new();
    for (i, word) in words.enumerate() {
        let known = is_one(&format!(" {word}")) || (i == 0 && is_one(word));
        if !known && !unknown.iter().any(|other| other == word) {
            unknown.push(word.into());
        }
    }
    unknown
}

/// Most unknown words that a warning names.
const MAX_NAMED: usize = 8;

/// The warning for the unknown words of a text; `None` when there are none.
pub(crate) fn warning_of_unknown(what: &str, unknown: &[String]) -> Option<String> {
    let named: Vec<String> = unknown.iter().take(MAX_NAMED).map(|word| format!("\"{word}\"")).collect();
    let more = match unknown.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!unknown.is_empty()).then(|| {
        format!(
            "the {what} has words that the demo model does not know: {}{more}; it knows some English ones, in lower case",
            named.join(", ")
        )
    })
}

/// Token ids of a prompt, with warnings for what its author should know.
///
/// # Errors
/// A failure when the template cannot be applied.
pub(crate) fn encode_prompt(
    tokenizer: &Tokenizer,
    what: &str,
    text: &str,
    max_seq: usize,
    warn: impl Fn(&str),
) -> Result<Encoded> {
    let encoded = tokenizer
        .encode_prompt(text, max_seq)
        .map_err(|error| CliError::failed(format!("the {what}"), error))?;
    if encoded.total > encoded.ids.len() {
        warn(&format!(
            "the {what} has {} tokens, the last {} are cut off (--max-seq {max_seq})",
            encoded.total,
            encoded.total - encoded.ids.len()
        ));
    }
    for token in tokenizer.added_tokens_in(text) {
        warn(&format!(
            "the {what} contains the special token {token}, which the model reads as a control sign"
        ));
    }
    Ok(encoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_model_knows_the_words_of_its_captions_and_no_others() {
        let tokenizer = Source::new(None).tokenizer().unwrap();
        for caption in [
            "a red apple on a wooden table",
            "A tiny violet star to the left of a big turquoise house, against a grey background.",
            "There is a little heart in the top left corner on green grass.",
            "On a pink background, an orange moon above a small tree",
            "an image of a huge black square inside of a white circle in a meadow",
            "",
        ] {
            assert!(unknown_words(&tokenizer, caption).is_empty(), "{caption}");
        }
        for (text, unknown) in [
            ("a RED apple, a RED Apple", &["RED", "Apple"][..]),
            ("une pomme rouge", &["une", "pomme", "rouge"]),
            ("桌上的苹果", &["桌上的苹果"]),
            ("a red dragon-fly on 3 tables", &["dragon", "fly", "3", "tables"]),
        ] {
            assert_eq!(unknown_words(&tokenizer, text), unknown, "{text}");
        }
        let many: Vec<String> = (0..10).map(|i| i.to_string()).collect();
        assert!(warning_of_unknown("prompt", &many).unwrap().contains("\"7\" and 2 more; "));
        assert_eq!(warning_of_unknown("prompt", &[]), None);
    }
}
