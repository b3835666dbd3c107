//! Checks of options' values, each in the words of the option.

use moss_reference::run::{SettingError, Settings};
use moss_reference::sample::schedule::MAX_STEPS;

use super::GenerateArgs;
use crate::error::{CliError, Result};

/// A setting that its option gave a value out of its limits, as a usage error in the words of the option.
pub(crate) fn refused(args: &GenerateArgs, error: &SettingError) -> CliError {
    let option = match (error.field(), args.size.is_some()) {
        ("size", true) => "--size".into(),
        ("size", false) => "--width and --height".into(),
        (field @ ("width" | "height"), true) => format!("--size ({field})"),
        (field, _) => option(field),
    };
    CliError::Usage(match error {
        SettingError::Above { found, bound, limit, .. } => {
            format!("{option}: {found} is above {} {limit}", self::option(bound))
        }
        _ => option + &error.reason(),
    })
}

/// The option of a setting.
fn option(field: &str) -> String {
    format!("--{}", field.replace('_', "-"))
}

/// The picture's size from `--size`, or `--width` and `--height`, or what holds without them; [`Settings::check`] looks at it.
///
/// # Errors
/// A usage error when `--size` is no size.
pub(crate) fn picture_size(args: &GenerateArgs, default: (u32, u32)) -> Result<(u32, u32)> {
    match &args.size {
        Some(text) => {
            let parsed =
                text.split_once(['x', 'X']).and_then(|(w, h)| Some((w.parse().ok()?, h.parse().ok()?)));
            parsed.ok_or_else(|| {
                CliError::Usage(format!("--size: \"{text}\" is not WIDTHxHEIGHT, as in 1024x768"))
            })
        }
        None => Ok((args.width.unwrap_or(default.0), args.height.unwrap_or(default.1))),
    }
}

/// `--steps` as a count; [`Settings::check`] looks at it.
///
/// # Errors
/// A usage error for a negative number.
pub(crate) fn steps(value: i64) -> Result<usize> {
    usize::try_from(value)
        .map_err(|_| CliError::Usage(format!("--steps: {value}, 1 to {MAX_STEPS} expected")))
}

/// `--threads`: a start of thousands takes longer than what they could save.
///
/// # Errors
/// A usage error for 0 and above 1024.
pub(crate) fn threads(value: usize) -> Result<usize> {
    match value {
        1..=1024 => Ok(value),
        _ => Err(CliError::Usage(format!("--threads: {value}, 1 to 1024 expected"))),
    }
}

/// `--seed`: 0 to 2^64 - 1, or -1 for a random one below 2^32 (torch's generator uses 32 bits).
///
/// # Errors
/// A usage error for any other number.
pub(crate) fn seed(value: i128) -> Result<u64> {
    use std::hash::{BuildHasher, Hasher};
    if value == -1 {
        let random = std::collections::hash_map::RandomState::new().build_hasher().finish();
        return Ok(random & 0xffff_ffff);
    }
    u64::try_from(value)
        .map_err(|_| CliError::Usage(format!("--seed: {value}, 0 to {} or -1 expected", u64::MAX)))
}

/// `--skip-layers`: numbers separated by commas or blanks; empty for none. [`Settings::check_blocks`] looks at them.
///
/// # Errors
/// A usage error that shows the text that is no number.
pub(crate) fn skip_layers(text: &str) -> Result<Vec<usize>> {
    let parts = text.split([',', ' ']).filter(|part| !part.is_empty());
    let number = |part: &str| {
        let wrong = || CliError::Usage(format!("--skip-layers: \"{part}\" is not a block's number"));
        part.parse().map_err(|_| wrong())
    };
    parts.map(number).collect()
}

/// Bytes of a size: a number of GiB, or one with a unit (TiB, GiB, MiB, KiB; TB, GB, MB, kB of powers of ten).
///
/// # Errors
/// What was expected.
pub(crate) fn bytes(text: &str) -> std::result::Result<u64, String> {
    let text = text.trim();
    let (number, unit) = text.split_at(text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len()));
    let unit = match unit.to_ascii_lowercase().as_str() {
        "" | "g" | "gib" => f64::from(1 << 30),
        "kib" => f64::from(1 << 10),
        "m" | "mib" => f64::from(1 << 20),
        "tib" => f64::from(1 << 20) * f64::from(1 << 20),
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        _ => return Err("a size as 8GiB, 6000MiB or 6.5 (in GiB) expected".into()),
    };
    let number: f64 = number
        .trim_end()
        .parse()
        .map_err(|_| "a size as 8GiB, 6000MiB or 6.5 (in GiB) expected".to_string())?;
    match (number * unit) as u64 {
        0 => Err("more than 0 bytes expected".into()),
        bytes => Ok(bytes),
    }
}

/// `--max-seq`, or the default.
///
/// # Errors
/// A usage error for 0.
pub(crate) fn max_seq(value: Option<usize>) -> Result<usize> {
    let official = Settings::default();
    let settings = Settings { max_seq: value.unwrap_or(official.max_seq), ..official };
    match settings.check() {
        Ok(()) => Ok(settings.max_seq),
        Err(error) => Err(CliError::Usage(option(error.field()) + &error.reason())),
    }
}
