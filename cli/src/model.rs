//! The model that a command works with, and the text of a prompt.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use moss_reference::files::{Checkpoint, ModelSource};
use moss_reference::model::config::{PipelineConfig, TextConfig, VaeConfig};
use moss_reference::model::tokenizer::{Encoded, Tokenizer};
use moss_reference::model::{self, Model};

use crate::embedded;
use crate::error::{CliError, Result};
use crate::files::input;
use crate::options::{PromptArgs, check};

/// Official limit of a prompt in tokens.
pub(crate) const MAX_SEQ: usize = 4096;

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

    /// What the model's folder says about requests.
    ///
    /// # Errors
    /// As [`Self::named`].
    pub(crate) fn pipeline(&self) -> Result<PipelineConfig> {
        self.named(PipelineConfig::open(&self.source))
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

/// Token ids of a prompt, with warnings for what its author should know.
///
/// # Errors
/// A usage error for a bad `--max-seq`, a failure when the template cannot be applied.
pub(crate) fn encode_prompt(
    tokenizer: &Tokenizer,
    what: &str,
    text: &str,
    max_seq: Option<usize>,
    warn: impl Fn(&str),
) -> Result<Encoded> {
    let max_seq = check::max_seq(max_seq.unwrap_or(MAX_SEQ))?;
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
