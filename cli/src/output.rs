//! Files that are written whole or not at all.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::{CliError, Result};

/// A place that was found writable before any work began.
#[derive(Debug)]
pub(crate) struct Destination {
    option: &'static str,
    path: PathBuf,
}

impl Destination {
    /// Checks that a file can be made at `path`, which `option` named, and leaves nothing behind.
    ///
    /// # Errors
    /// A failure that names the option, the path and the reason.
    pub(crate) fn check(option: &'static str, path: &Path) -> Result<Self> {
        let destination = Self { option, path: path.to_path_buf() };
        if path.is_dir() {
            return Err(destination.error("is a folder"));
        }
        if destination.is_stream() {
            return Ok(destination);
        }
        let probe = destination.temporary();
        File::create(&probe).map_err(|error| destination.error(error))?;
        fs::remove_file(&probe).map_err(|error| destination.error(error))?;
        Ok(destination)
    }

    /// The path as given.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the file through `fill`: beside its place first, then renamed; a device or a pipe is written directly.
    ///
    /// # Errors
    /// A failure that names the option, the path and the reason; the temporary file is gone then.
    pub(crate) fn write(&self, fill: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<()> {
        let stream = self.is_stream();
        let target = if stream { self.path.clone() } else { self.temporary() };
        let written = File::options()
            .write(true)
            .create(!stream)
            .truncate(!stream)
            .open(&target)
            .and_then(|file| {
                let mut writer = BufWriter::new(file);
                fill(&mut writer)?;
                let file = writer.into_inner().map_err(|error| error.into_error())?;
                if stream { Ok(()) } else { file.sync_all() }
            })
            .and_then(|()| if stream { Ok(()) } else { fs::rename(&target, &self.path) });
        written.map_err(|error| {
            if !stream {
                // The reason to report is the first one; a leftover that cannot be removed adds nothing to it.
                let _ = fs::remove_file(&target);
            }
            self.error(error)
        })
    }

    /// Whether the path is there and neither a file nor a folder (`/dev/stdout`, a named pipe).
    fn is_stream(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir())
    }

    fn temporary(&self) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        self.path.with_file_name(format!(".{name}.{}.tmp", std::process::id()))
    }

    fn error(&self, reason: impl std::fmt::Display) -> CliError {
        CliError::failed(format!("{} {}", self.option, self.path.display()), reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message<T: std::fmt::Debug>(result: Result<T>) -> String {
        match result {
            Err(CliError::Failed(message)) => message,
            other => panic!("a failure expected, {other:?} found"),
        }
    }

    fn names(folder: &Path) -> Vec<std::ffi::OsString> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn a_file_appears_whole_and_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bin");
        let destination = Destination::check("-o", &path).unwrap();
        assert!(names(folder.path()).is_empty(), "the probe leaves nothing");
        destination.write(|w| w.write_all(b"whole")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert_eq!(names(folder.path()), ["a.bin"]);
    }

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bin");
        fs::write(&path, b"old").unwrap();
        let destination = Destination::check("-o", &path).unwrap();
        let error = message(destination.write(|w| {
            w.write_all(b"half")?;
            Err(std::io::Error::from(std::io::ErrorKind::StorageFull))
        }));
        assert!(error.starts_with("-o ") && error.contains("a.bin"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(folder.path()), ["a.bin"]);
    }

    #[test]
    fn a_full_device_is_named() {
        let destination = Destination::check("-o", Path::new("/dev/full")).unwrap();
        let error = message(destination.write(|w| w.write_all(&[0; 1 << 16])));
        assert!(error.contains("/dev/full"), "{error}");
    }

    #[test]
    fn an_unwritable_place_is_found_before_work_begins() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing").join("a.png");
        assert!(message(Destination::check("-o", &missing)).contains("missing"));
        assert!(message(Destination::check("-o", folder.path())).contains("folder"));
    }
}
