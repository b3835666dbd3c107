//! Checks of options' values, each in the words of the option.

use moss_reference::sample::schedule::MAX_STEPS;

use super::GenerateArgs;
use crate::error::{CliError, Result};

/// Longest side of a picture.
pub(crate) const MAX_SIDE: u32 = 4096;
/// Most pixels of a picture.
pub(crate) const MAX_PIXELS: u64 = 4_200_000;

/// Checks one side: a positive multiple of 16 up to [`MAX_SIDE`].
///
/// # Errors
/// A usage error that names `option` and the nearest legal sides.
pub(crate) fn check_side(option: &str, side: u32) -> Result<()> {
    let usage = |message: String| Err(CliError::Usage(format!("{option}: {message}")));
    if side > MAX_SIDE {
        return usage(format!("{side} is over {MAX_SIDE}, the longest side"));
    }
    if side == 0 || !side.is_multiple_of(16) {
        let below = side / 16 * 16;
        let above = below + 16;
        return match (below, above) {
            (0, _) => usage(format!("{side} is no multiple of 16; the nearest is 16")),
            (_, above) if above > MAX_SIDE => {
                usage(format!("{side} is no multiple of 16; the nearest is {below}"))
            }
            _ => usage(format!("{side} is no multiple of 16; the nearest are {below} and {above}")),
        };
    }
    Ok(())
}

/// Checks a picture's number of pixels.
///
/// # Errors
/// A usage error above [`MAX_PIXELS`].
pub(crate) fn check_pixels(option: &str, width: u32, height: u32) -> Result<()> {
    let pixels = u64::from(width) * u64::from(height);
    if pixels <= MAX_PIXELS {
        return Ok(());
    }
    Err(CliError::Usage(format!(
        "{option}: {width}x{height} is {:.2} megapixels, at most {:.1} are possible",
        pixels as f64 / 1e6,
        MAX_PIXELS as f64 / 1e6
    )))
}

/// The picture's size from `--size`, or `--width` and `--height`, or what holds without them.
///
/// # Errors
/// A usage error that names the option and, for a side that is no multiple of 16, the nearest legal ones.
pub(crate) fn picture_size(args: &GenerateArgs, default: (u32, u32)) -> Result<(u32, u32)> {
    let (width, height) = match &args.size {
        Some(text) => {
            let parsed =
                text.split_once(['x', 'X']).and_then(|(w, h)| Some((w.parse().ok()?, h.parse().ok()?)));
            parsed.ok_or_else(|| {
                CliError::Usage(format!("--size: \"{text}\" is not WIDTHxHEIGHT, as in 1024x768"))
            })?
        }
        None => (args.width.unwrap_or(default.0), args.height.unwrap_or(default.1)),
    };
    let (w_option, h_option) =
        if args.size.is_some() { ("--size (width)", "--size (height)") } else { ("--width", "--height") };
    check_side(w_option, width)?;
    check_side(h_option, height)?;
    let option = if args.size.is_some() { "--size" } else { "--width and --height" };
    check_pixels(option, width, height)?;
    Ok((width, height))
}

/// `--steps` as a count.
///
/// # Errors
/// A usage error below 1 and above [`MAX_STEPS`].
pub(crate) fn steps(value: i64) -> Result<usize> {
    match usize::try_from(value) {
        Ok(steps @ 1..=MAX_STEPS) => Ok(steps),
        _ => Err(CliError::Usage(format!("--steps: {value}, 1 to {MAX_STEPS} expected"))),
    }
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

/// `--cfg`, finite and not negative.
///
/// # Errors
/// A usage error that shows the value.
pub(crate) fn cfg(value: f32) -> Result<f32> {
    if value.is_finite() && value >= 0.0 {
        Ok(value)
    } else {
        Err(CliError::Usage(format!("--cfg: {value}, a finite number from 0 expected")))
    }
}

/// `--shift`, finite and positive.
///
/// # Errors
/// A usage error that shows the value.
pub(crate) fn shift(value: f64) -> Result<f64> {
    if value.is_finite() && value > 0.0 {
        Ok(value)
    } else {
        Err(CliError::Usage(format!("--shift: {value}, a finite number above 0 expected")))
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

/// `--skip-layers`: numbers below `blocks`, separated by commas or blanks; empty for none.
///
/// # Errors
/// A usage error that shows the number or text that is wrong.
pub(crate) fn skip_layers(text: &str, blocks: usize) -> Result<Vec<usize>> {
    let mut layers = Vec::new();
    for part in text.split([',', ' ']).filter(|part| !part.is_empty()) {
        match part.parse::<usize>() {
            Ok(layer) if layer < blocks => layers.push(layer),
            Ok(layer) => {
                return Err(CliError::Usage(format!(
                    "--skip-layers: {layer}, this model has blocks 0 to {}",
                    blocks - 1
                )));
            }
            Err(_) => {
                return Err(CliError::Usage(format!("--skip-layers: \"{part}\" is not a block's number")));
            }
        }
    }
    layers.sort_unstable();
    layers.dedup();
    Ok(layers)
}

/// `--skip-start` or `--skip-stop`.
///
/// # Errors
/// A usage error outside 0 to 1.
pub(crate) fn progress(option: &str, value: f64) -> Result<f64> {
    if (0.0..=1.0).contains(&value) {
        Ok(value)
    } else {
        Err(CliError::Usage(format!("{option}: {value}, 0 to 1 expected")))
    }
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

/// `--max-seq`.
///
/// # Errors
/// A usage error for 0.
pub(crate) fn max_seq(value: usize) -> Result<usize> {
    if value == 0 {
        return Err(CliError::Usage("--max-seq: 0, at least 1 expected".into()));
    }
    Ok(value)
}
