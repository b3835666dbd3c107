//! Everything that the program says: lines for people on stderr, results on stdout. No failing print ends it by a panic.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, Write as _};
use std::sync::{Mutex, PoisonError};

use indicatif::ProgressBar;
use serde::Serialize;

use crate::error::{CliError, Result};

/// The bar that lines go above, while there is one.
static BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Says one line on stderr. A run does not end because nobody can read it.
pub(crate) fn line(text: &str) {
    let text = safe(text) + "\n";
    let write = || {
        let _ = io::stderr().lock().write_all(text.as_bytes());
    };
    match &*BAR.lock().unwrap_or_else(PoisonError::into_inner) {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// From now on lines go above this bar; the one before is taken away.
pub(crate) fn above(bar: Option<ProgressBar>) {
    let before = std::mem::replace(&mut *BAR.lock().unwrap_or_else(PoisonError::into_inner), bar);
    if let Some(before) = before {
        before.finish_and_clear();
    }
}

/// Writes a result to stdout.
///
/// # Errors
/// As [`printed`].
pub(crate) fn out(text: &str) -> Result<()> {
    printed(io::stdout().lock().write_all(text.as_bytes()))
}

/// Writes a result as one JSON document to stdout.
///
/// # Errors
/// As [`printed`].
pub(crate) fn json(value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value).map_err(|error| CliError::failed("JSON", error))?;
    out(&(text + "\n"))
}

/// What follows from a write to stdout.
///
/// # Errors
/// [`CliError::NoReader`] when nobody reads on, else a failure.
pub(crate) fn printed(written: io::Result<()>) -> Result<()> {
    written.and_then(|()| io::stdout().lock().flush()).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => CliError::NoReader,
        _ => CliError::failed("standard output", error),
    })
}

/// The text with its control characters, and those that turn the direction of text, as escapes: one line that says what it
/// looks like. What is between the quotes of JSON stays JSON.
pub(crate) fn safe(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => safe += "\\n",
            '\r' => safe += "\\r",
            '\t' => safe += "\\t",
            '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                let _ = write!(safe, "\\u{:04x}", u32::from(c));
            }
            c if c.is_control() => {
                let _ = write!(safe, "\\u{:04x}", u32::from(c));
            }
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_letters_are_not() {
        assert_eq!(
            safe("a\nb\r\t\u{1b}[2J\u{7f}\u{9b}\u{202e}"),
            "a\\nb\\r\\t\\u001b[2J\\u007f\\u009b\\u202e"
        );
        assert_eq!(safe("café 桌上的苹果 🍎 \\n"), "café 桌上的苹果 🍎 \\n");
        let json: String = serde_json::from_str(&safe("\"\u{7f}\u{9b}\"")).unwrap();
        assert_eq!(json, "\u{7f}\u{9b}");
    }
}
