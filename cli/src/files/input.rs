//! Reading what the user names: whole files, of a size that makes sense.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Most bytes of a prompt: far beyond what a model reads, and soon encoded.
pub(crate) const PROMPT: u64 = 16 << 20;
/// Most bytes of a picture: the largest of ours with the longest prompts.
pub(crate) const PICTURE: u64 = 128 << 20;
/// Most bytes of an array: text states of 32768 tokens, f64.
pub(crate) const ARRAY: u64 = 1 << 30;

/// Whether standard input was read: it gives its bytes once.
static STANDARD_INPUT: AtomicBool = AtomicBool::new(false);

/// A regular file's bytes, or those of standard input for `-`; with `streams` also those of a pipe or a device.
///
/// # Errors
/// What is wrong with it, without its name.
pub(crate) fn read(path: &Path, limit: u64, streams: bool) -> Result<Vec<u8>, String> {
    if path == Path::new("-") {
        return match STANDARD_INPUT.swap(true, Ordering::Relaxed) {
            true => Err("standard input can be read for one option only".into()),
            false => read_stream(std::io::stdin().lock(), limit),
        };
    }
    let meta = fs::metadata(path).map_err(|error| error.to_string())?;
    if meta.is_dir() {
        return Err("is a folder, a file expected".into());
    }
    // Looked at before it is opened: to open a pipe waits for who writes it.
    if !meta.is_file() && !streams {
        return Err("is a pipe or a device, a file expected".into());
    }
    if meta.len() > limit {
        return Err(format!("has {} bytes, at most {limit} expected", meta.len()));
    }
    read_stream(File::open(path).map_err(|error| error.to_string())?, limit)
}

/// A stream to its end.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn read_stream(stream: impl Read, limit: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    stream.take(limit + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > limit {
        return Err(format!("has more than {limit} bytes, the most that is read"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_of_sane_size_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, b"12345").unwrap();
        assert_eq!(read(&path, 5, false).unwrap(), b"12345");
        assert_eq!(read(&path, 4, true).unwrap_err(), "has 5 bytes, at most 4 expected");
        assert!(read(folder.path(), 4, true).unwrap_err().contains("is a folder"));
        assert_eq!(
            read_stream(&b"12345"[..], 4).unwrap_err(),
            "has more than 4 bytes, the most that is read"
        );
    }

    #[cfg(unix)]
    #[test]
    fn a_device_is_read_to_the_limit_or_not_at_all() {
        let zero = Path::new("/dev/zero");
        assert!(read(zero, 100, false).unwrap_err().contains("a device"));
        assert!(read(zero, 100, true).unwrap_err().contains("more than 100 bytes"));
    }
}
