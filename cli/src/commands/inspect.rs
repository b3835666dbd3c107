//! `moss inspect`: what a picture says about itself.

use serde::Serialize;
use serde_json::Value;

use crate::error::{CliError, Result};
use crate::files::record::{self, RECORD_KEYWORD, read_texts};
use crate::options::InspectArgs;
use crate::say;

/// The answer to `moss inspect --json`.
#[derive(Serialize)]
struct Inspected {
    /// The record of moss, if there is one that is JSON.
    record: Option<Value>,
    /// Every text chunk in its order.
    texts: Vec<Text>,
}

/// A text chunk.
#[derive(Serialize)]
struct Text {
    keyword: String,
    text: String,
}

/// Prints the text chunks of a picture.
///
/// # Errors
/// A failure that names the file.
pub(crate) fn run(args: &InspectArgs) -> Result<()> {
    let failed = |reason: String| CliError::failed(args.file.display(), reason);
    let texts = read_texts(&args.file).map_err(failed)?;
    if texts.is_empty() {
        return Err(failed("no text in this picture".into()));
    }
    if args.json {
        let json = texts.iter().find(|(keyword, _)| keyword == RECORD_KEYWORD);
        let record = json.and_then(|(_, text)| serde_json::from_str(text).ok());
        let texts = texts.into_iter().map(|(keyword, text)| Text { keyword, text }).collect();
        return say::json(&Inspected { record, texts });
    }
    let mut all = String::new();
    for (keyword, text) in texts {
        let text = if keyword == RECORD_KEYWORD { record::indented(&text) } else { text };
        // Who sent the picture wrote the text, and whoever reads this may obey control characters.
        for line in format!("{keyword}: {text}").split('\n') {
            all += &(say::safe(line) + "\n");
        }
    }
    say::out(&all)
}
