//! Where a path leads: a file, there or not, or a stream.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Symbolic links that are followed, as many as Linux follows.
const MAX_LINKS: usize = 40;

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A file in its real folder, there or not; never a link.
    File(PathBuf),
    /// What this process has open under a number (`/dev/stdout`, `/dev/fd/3`), whatever that is.
    Descriptor(u32),
    /// A device, a named pipe or another process's descriptor.
    Stream(PathBuf),
    /// A file in a real folder whose name is chosen when it is written; see [`naming`](super::naming).
    Template(PathBuf),
}

impl Target {
    /// A path that opens it.
    pub(crate) fn path(&self) -> PathBuf {
        match self {
            Target::File(path) | Target::Stream(path) | Target::Template(path) => path.clone(),
            Target::Descriptor(number) => format!("/proc/self/fd/{number}").into(),
        }
    }

    /// Opens a stream. Standard output and error are used as they are, for a socket cannot be opened by its path; a file behind
    /// another descriptor goes on at its end.
    pub(crate) fn open(&self) -> io::Result<File> {
        match self {
            Target::Descriptor(1) => io::stdout().as_fd().try_clone_to_owned().map(File::from),
            Target::Descriptor(2) => io::stderr().as_fd().try_clone_to_owned().map(File::from),
            Target::Descriptor(_) => File::options().append(true).open(self.path()),
            _ => File::options().write(true).open(self.path()),
        }
    }
}

/// Follows the links of a path to what a write to it would reach.
pub(crate) fn resolve(path: &Path) -> io::Result<Target> {
    if path.as_os_str().as_bytes().ends_with(b"/") {
        return Err(io::Error::other("there is no such folder"));
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
pub(crate) fn is_same_file(a: &Path, b: &Path) -> bool {
    let identity = |path: &Path| {
        let meta = fs::metadata(path).ok().filter(|meta| !meta.file_type().is_char_device())?;
        Some((meta.dev(), meta.ino()))
    };
    identity(a).is_some_and(|a| identity(b) == Some(a))
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
