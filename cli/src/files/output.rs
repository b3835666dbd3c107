//! Files that are written whole or not at all, and streams that are written as they are.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::error::{CliError, Result};
use crate::interrupt;

/// Symbolic links that are followed, as many as Linux follows.
const MAX_LINKS: usize = 40;

/// What a path leads to.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    /// A file in its real folder, there or not; never a link.
    File(PathBuf),
    /// What this process has open under a number (`/dev/stdout`, `/dev/fd/3`), whatever that is.
    Descriptor(u32),
    /// A device, a named pipe or another process's descriptor.
    Stream(PathBuf),
}

/// A place that was found writable before any work began.
#[derive(Debug)]
pub(crate) struct Destination {
    option: &'static str,
    path: PathBuf,
    target: Target,
}

impl Destination {
    /// Checks that a file can be made where `path`, which `option` named, leads, and leaves nothing behind.
    ///
    /// # Errors
    /// A failure that names the option, the path and the reason.
    pub(crate) fn check(option: &'static str, path: &Path) -> Result<Self> {
        let failed = |error: io::Error| failure(option, path, error);
        let destination = Self { option, path: path.into(), target: resolve(path).map_err(failed)? };
        match &destination.target {
            Target::File(target) => interrupt::temporary_file(folder(target)).map(drop).map_err(failed)?,
            stream => fs::metadata(stream.path()).map(drop).map_err(failed)?,
        }
        Ok(destination)
    }

    /// The path as given.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file that will be written; `None` for a stream.
    pub(crate) fn file(&self) -> Option<&Path> {
        match &self.target {
            Target::File(path) => Some(path),
            _ => None,
        }
    }

    /// Writes the file through `fill`: beside its place first, then renamed; a stream is written directly.
    ///
    /// # Errors
    /// A failure that names the option, the path and the reason; the temporary file is gone then.
    pub(crate) fn write(&self, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
        self.put(fill, true)
    }

    /// The same, but a file that is there already is left alone and the failure.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub(crate) fn write_new(&self, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
        self.put(fill, false)
    }

    fn put(&self, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>, replace: bool) -> Result<()> {
        let filled = |file: &File| {
            let mut writer = BufWriter::new(file);
            fill(&mut writer)?;
            writer.flush()
        };
        let written = match &self.target {
            Target::File(target) => interrupt::temporary_file(folder(target)).and_then(|temporary| {
                filled(temporary.as_file())?;
                temporary.as_file().sync_all()?;
                let kept =
                    if replace { temporary.persist(target) } else { temporary.persist_noclobber(target) };
                kept.map(drop).map_err(|error| error.error)
            }),
            stream => stream.open().and_then(|file| filled(&file)),
        };
        written.map_err(|error| failure(self.option, &self.path, error))
    }

    /// Whether writing both would leave one of them.
    fn is_same(&self, other: &Self) -> bool {
        let (here, there) = (self.target.path(), other.target.path());
        let is_device = fs::metadata(&here).is_ok_and(|meta| meta.file_type().is_char_device());
        !is_device && (self.target == other.target || is_same_file(&here, &there))
    }
}

impl Target {
    /// A path that opens it.
    fn path(&self) -> PathBuf {
        match self {
            Target::File(path) | Target::Stream(path) => path.clone(),
            Target::Descriptor(number) => format!("/proc/self/fd/{number}").into(),
        }
    }

    /// Opens a stream. Standard output and error are used as they are, for a socket cannot be opened by its path; a file behind
    /// another descriptor goes on at its end.
    fn open(&self) -> io::Result<File> {
        match self {
            Target::Descriptor(1) => io::stdout().as_fd().try_clone_to_owned().map(File::from),
            Target::Descriptor(2) => io::stderr().as_fd().try_clone_to_owned().map(File::from),
            Target::Descriptor(_) => File::options().append(true).open(self.path()),
            _ => File::options().write(true).open(self.path()),
        }
    }
}

fn failure(option: &str, path: &Path, reason: impl std::fmt::Display) -> CliError {
    CliError::failed(format!("{option} {}", path.display()), reason)
}

/// The folder of a resolved file.
fn folder(file: &Path) -> &Path {
    file.parent().expect("a resolved file is in a folder")
}

/// Follows the links of a path to what a write to it would reach.
fn resolve(path: &Path) -> io::Result<Target> {
    if path.as_os_str().as_bytes().ends_with(b"/") {
        return Err(io::Error::other("a folder's name, a file's expected"));
    }
    let mut path = path.to_path_buf();
    for _ in 0..=MAX_LINKS {
        let is_folder = || io::Error::other("is a folder");
        let name = path.file_name().ok_or_else(is_folder)?;
        let parent = path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
        let folder = parent.canonicalize()?;
        let place = folder.join(name);
        if let Some(target) = descriptor(&place) {
            return Ok(target);
        }
        match fs::symlink_metadata(&place) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Target::File(place)),
            Err(error) => return Err(error),
            Ok(meta) if meta.is_symlink() => path = folder.join(fs::read_link(&place)?),
            Ok(meta) if meta.is_dir() => return Err(is_folder()),
            Ok(meta) if meta.is_file() => return Ok(Target::File(place)),
            Ok(_) => return Ok(Target::Stream(place)),
        }
    }
    Err(io::Error::other("a loop of symbolic links"))
}

/// The descriptor at a place in a real folder, if it is one. `/dev/fd` and `/proc/self` are links, so they do not come here.
fn descriptor(place: &Path) -> Option<Target> {
    match place.to_str() {
        Some("/dev/stdout") => return Some(Target::Descriptor(1)),
        Some("/dev/stderr") => return Some(Target::Descriptor(2)),
        _ => {}
    }
    let folder = place.parent().filter(|folder| folder.file_name().is_some_and(|name| name == "fd"))?;
    let process = folder.strip_prefix("/proc").ok()?.iter().next()?;
    let own = process.to_str() == Some(std::process::id().to_string().as_str());
    let number = place.file_name()?.to_str()?.parse();
    Some(match number {
        Ok(number) if own => Target::Descriptor(number),
        _ => Target::Stream(place.to_path_buf()),
    })
}

/// Whether two paths are one file that is there; devices do not count.
fn is_same_file(a: &Path, b: &Path) -> bool {
    let identity = |path: &Path| {
        let meta = fs::metadata(path).ok().filter(|meta| !meta.file_type().is_char_device())?;
        Some((meta.dev(), meta.ino()))
    };
    identity(a).is_some_and(|a| identity(b) == Some(a))
}

/// Refuses outputs that would overwrite each other, one of the `inputs` that options named, or a file of the model's folder.
///
/// # Errors
/// A usage error that names both options.
pub(crate) fn refuse_shared(
    outputs: &[&Destination],
    inputs: &[(&str, &Path)],
    model: Option<&Path>,
) -> Result<()> {
    let refused = |output: &Destination, what: String| {
        Err(CliError::Usage(format!("{} {}: {what}", output.option, output.path.display())))
    };
    for (i, output) in outputs.iter().enumerate() {
        if let Some(other) = outputs[..i].iter().find(|other| other.is_same(output)) {
            return refused(output, format!("the same file as {} {}", other.option, other.path.display()));
        }
        let target = output.target.path();
        if let Some((option, path)) = inputs.iter().find(|(_, path)| is_same_file(&target, path)) {
            return refused(output, format!("the same file as {option} {}", path.display()));
        }
        if let Some(model) = model
            && let (Some(file), Ok(folder)) = (output.file(), model.canonicalize())
            && file.starts_with(folder)
        {
            return refused(output, format!("is in the folder of --model {}", model.display()));
        }
    }
    Ok(())
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
            Err(io::Error::from(io::ErrorKind::StorageFull))
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

    #[test]
    fn links_lead_to_files_and_descriptors() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().canonicalize().unwrap();
        fs::create_dir(at.join("real")).unwrap();
        symlink("real", at.join("folder")).unwrap();
        symlink("../two", at.join("real/one")).unwrap();
        symlink(at.join("three"), at.join("two")).unwrap();
        assert_eq!(resolve(&at.join("folder/one")).unwrap(), Target::File(at.join("three")));
        symlink("/dev/fd/2", at.join("error")).unwrap();
        symlink("/dev/null", at.join("null")).unwrap();
        let other = PathBuf::from(format!("/proc/{}/fd/1", std::os::unix::process::parent_id()));
        for (path, target) in [
            (Path::new("/dev/stdout"), Target::Descriptor(1)),
            (Path::new("/dev/stderr"), Target::Descriptor(2)),
            (Path::new("/proc/self/fd/7"), Target::Descriptor(7)),
            (Path::new("/proc/thread-self/fd/1"), Target::Descriptor(1)),
            (&other, Target::Stream(other.clone())),
            (&at.join("error"), Target::Descriptor(2)),
            (&at.join("null"), Target::Stream("/dev/null".into())),
        ] {
            assert_eq!(resolve(path).unwrap(), target, "{}", path.display());
        }
        symlink("b", at.join("a")).unwrap();
        symlink("a", at.join("b")).unwrap();
        assert!(resolve(&at.join("a")).unwrap_err().to_string().contains("loop"));
        assert!(resolve(&at.join("new/")).unwrap_err().to_string().contains("folder"));
    }

    #[test]
    fn a_new_file_replaces_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bin");
        let destination = Destination::check("-o", &path).unwrap();
        fs::write(&path, b"old").unwrap();
        message(destination.write_new(|w| w.write_all(b"new")));
        assert_eq!((fs::read(&path).unwrap(), names(folder.path()).len()), (b"old".to_vec(), 1));
    }
}
