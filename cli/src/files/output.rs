//! Files that are written whole or not at all, and streams that are written as they are.

use std::cell::OnceCell;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use crate::error::{CliError, Result};
use crate::files::naming;
use crate::files::place::{Target, is_same_file, resolve};
use crate::interrupt;
use crate::options::OverwriteArgs;

/// What an output is, and what a file must be to be replaced by it unasked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A PNG.
    Picture,
    /// An npy array.
    Array,
    /// A report of `moss conformance`.
    Report,
}

impl Kind {
    /// For people.
    fn name(self) -> &'static str {
        match self {
            Kind::Picture => "PNG picture",
            Kind::Array => "npy array",
            Kind::Report => "report of moss",
        }
    }

    /// The only extension that fits; a report's is its format's.
    fn extension(self) -> Option<&'static str> {
        match self {
            Kind::Picture => Some("png"),
            Kind::Array => Some("npy"),
            Kind::Report => None,
        }
    }

    /// Whether a file that begins like this is one; an empty file may become anything.
    fn begins(self, start: &[u8]) -> bool {
        let has = |text: &str| start.windows(text.len()).any(|window| window == text.as_bytes());
        start.is_empty()
            || match self {
                Kind::Picture => start.starts_with(b"\x89PNG\r\n\x1a\n"),
                Kind::Array => start.starts_with(b"\x93NUMPY"),
                Kind::Report => has("Conformance report") || has("\"program\": \"moss "),
            }
    }
}

/// Which file that is there may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Existing {
    /// One of the same kind that may be written, which keeps its mode and owner.
    SameKind,
    /// Any.
    Any,
    /// None.
    Never,
}

impl OverwriteArgs {
    /// What the options say.
    pub(crate) fn existing(self) -> Existing {
        match self {
            Self { force: true, .. } => Existing::Any,
            Self { no_clobber: true, .. } => Existing::Never,
            _ => Existing::SameKind,
        }
    }
}

/// A place that was found writable before any work began.
#[derive(Debug)]
pub(crate) struct Destination {
    option: &'static str,
    path: PathBuf,
    target: Target,
    kind: Kind,
    existing: Existing,
    /// The name that a template got.
    chosen: OnceCell<PathBuf>,
}

impl Destination {
    /// Checks that a file of this kind can be made where `path`, which `option` named, leads, and leaves nothing behind; `-` is
    /// standard output.
    ///
    /// # Errors
    /// A usage error for a name of another format and for a terminal; a failure that names the option, the path and why it
    /// cannot be written or may not be replaced.
    pub(crate) fn check(option: &'static str, path: &Path, kind: Kind, existing: Existing) -> Result<Self> {
        let failed = |error: io::Error| failure(option, path, error);
        let dash = path == Path::new("-");
        let target = if dash { Target::Descriptor(1) } else { resolve(path).map_err(failed)? };
        let usage = |reason: String| Err(CliError::option(&format!("{option} {}", path.display()), reason));
        if dash && kind != Kind::Report && io::stdout().is_terminal() {
            return usage("standard output is a terminal; send it to a file or a program".into());
        }
        let extension = path.extension().map(|found| found.to_string_lossy().to_lowercase());
        if let (Target::File(_), Some(found), Some(right)) = (&target, extension, kind.extension())
            && found != right
        {
            return usage(format!("a {} is written, and .{found} is not its extension", kind.name()));
        }
        let chosen = OnceCell::new();
        let destination = Self { option, path: path.into(), target, kind, existing, chosen };
        match &destination.target {
            Target::File(target) => {
                let old = destination.replaced(target)?;
                let probe = interrupt::temporary_file(folder(target)).map_err(failed)?;
                destination.keep(probe.as_file(), old.as_ref())?;
            }
            stream => fs::metadata(stream.path()).map(drop).map_err(failed)?,
        }
        Ok(destination)
    }

    /// As [`Self::check`] for a picture, whose path may also be a folder or have fields in its name, which [`Self::named`] fills.
    ///
    /// # Errors
    /// As [`Self::check`], and a usage error for a field that is not known.
    pub(crate) fn picture(option: &'static str, path: &Path, existing: Existing) -> Result<Self> {
        let wrong = |reason| CliError::option(&format!("{option} {}", path.display()), reason);
        let Some(template) = naming::template(path).map_err(wrong)? else {
            return Self::check(option, path, Kind::Picture, existing);
        };
        // Looked at under a name that is free.
        let place = Self::check(option, &template, Kind::Picture, Existing::Any)?;
        let target = match place.target {
            Target::File(file) => Target::Template(file),
            other => other,
        };
        Ok(Self { path: template, target, existing, ..place })
    }

    /// The same, with the prompt and the seed in its name. With `--force` and no index the name is that of one file.
    pub(crate) fn named(self, prompt: &str, seed: Option<u64>) -> Self {
        let Target::Template(place) = &self.target else { return self };
        let name = naming::filled(&name_of(place), prompt, seed);
        let file = place.with_file_name(&name);
        let target = match self.existing {
            Existing::Any if !naming::has_index(&name) => Target::File(file),
            _ => Target::Template(file),
        };
        Self { path: self.path.with_file_name(&name), target, ..self }
    }

    /// The path as given, or as chosen.
    pub(crate) fn path(&self) -> &Path {
        self.chosen.get().unwrap_or(&self.path)
    }

    /// The file that will be written, or of a template the first; `None` for a stream.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        match &self.target {
            Target::File(path) => Some(path.clone()),
            Target::Template(path) => {
                naming::names(&name_of(path)).next().map(|name| path.with_file_name(name))
            }
            _ => None,
        }
    }

    /// Writes the file through `fill`: beside its place first, then renamed; a stream is written directly.
    ///
    /// # Errors
    /// A failure that names the option, the path and the reason; the temporary file is gone then.
    pub(crate) fn write(&self, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
        let failed = |error: io::Error| failure(self.option, &self.path, error);
        let filled = |file: &File| {
            let mut writer = BufWriter::new(file);
            fill(&mut writer)?;
            writer.flush()
        };
        let (Target::File(place) | Target::Template(place)) = &self.target else {
            return self.target.open().and_then(|file| filled(&file)).map_err(failed);
        };
        let mut temporary = interrupt::temporary_file(folder(place)).map_err(failed)?;
        filled(temporary.as_file()).map_err(failed)?;
        temporary.as_file().sync_all().map_err(failed)?;
        if matches!(self.target, Target::File(_)) {
            // Looked at again: hours may have passed.
            self.keep(temporary.as_file(), self.replaced(place)?.as_ref())?;
            let kept = match self.existing {
                Existing::Never => temporary.persist_noclobber(place),
                _ => temporary.persist(place),
            };
            return kept.map(drop).map_err(|error| failed(error.error));
        }
        for name in naming::names(&name_of(place)) {
            match temporary.persist_noclobber(place.with_file_name(&name)) {
                Ok(_) => {
                    let _ = self.chosen.set(self.path.with_file_name(&name));
                    break;
                }
                Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => temporary = error.file,
                Err(error) => return Err(failed(error.error)),
            }
        }
        Ok(())
    }

    /// The file that will be replaced, if there is one.
    ///
    /// # Errors
    /// A failure when it may not be.
    fn replaced(&self, file: &Path) -> Result<Option<Metadata>> {
        let refused = |reason: String| Err(failure(self.option, &self.path, reason));
        let old = match fs::symlink_metadata(file) {
            Ok(old) => old,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return refused(error.to_string()),
        };
        match self.existing {
            Existing::Any => {}
            Existing::Never => return refused("is there already, and --no-clobber replaces nothing".into()),
            Existing::SameKind => {
                if !begins_as(file, self.kind).unwrap_or(false) {
                    return refused(format!("is there and no {}; --force replaces it", self.kind.name()));
                }
                if old.permissions().readonly() || File::options().append(true).open(file).is_err() {
                    return refused("is read-only; --force replaces it".into());
                }
            }
        }
        Ok(Some(old))
    }

    /// Gives a new file the owner and the mode of the one that it replaces.
    ///
    /// # Errors
    /// A failure when the owner cannot be kept and the file was not to be replaced at any price.
    fn keep(&self, new: &File, old: Option<&Metadata>) -> Result<()> {
        let Some(old) = old else { return Ok(()) };
        let chown = || {
            let meta = new.metadata()?;
            match (meta.uid(), meta.gid()) == (old.uid(), old.gid()) {
                true => Ok(()),
                false => fchown(new, Some(old.uid()), Some(old.gid())),
            }
        };
        let owned: io::Result<()> = chown();
        if owned.is_err() && self.existing != Existing::Any {
            let reason = "belongs to another user; --force replaces it by one of yours";
            return Err(failure(self.option, &self.path, reason));
        }
        let mode = Permissions::from_mode(old.mode() & 0o7777);
        new.set_permissions(mode).map_err(|error| failure(self.option, &self.path, error))
    }

    /// Whether writing both would leave one of them.
    fn is_same(&self, other: &Self) -> bool {
        let (here, there) = (self.target.path(), other.target.path());
        let is_device = fs::metadata(&here).is_ok_and(|meta| meta.file_type().is_char_device());
        !is_device && (self.target == other.target || is_same_file(&here, &there))
    }
}

/// Whether a file begins as one of this kind.
fn begins_as(file: &Path, kind: Kind) -> io::Result<bool> {
    let mut start = Vec::new();
    File::open(file)?.take(512).read_to_end(&mut start)?;
    Ok(kind.begins(&start))
}

fn failure(option: &str, path: &Path, reason: impl std::fmt::Display) -> CliError {
    CliError::failed(format!("{option} {}", path.display()), reason)
}

/// The folder of a resolved file.
fn folder(file: &Path) -> &Path {
    file.parent().expect("a resolved file is in a folder")
}

/// The name of a template, which is text.
fn name_of(template: &Path) -> String {
    template.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Refuses outputs that would overwrite each other, one of the `inputs` that options named, or a file of the model.
///
/// # Errors
/// A usage error that names both options.
pub(crate) fn refuse_shared(
    outputs: &[&Destination],
    inputs: &[(&str, &Path)],
    model: Option<&Path>,
) -> Result<()> {
    for (i, output) in outputs.iter().enumerate() {
        let option = format!("{} {}", output.option, output.path.display());
        let refused = |what: String| Err(CliError::option(&option, what));
        if let Some(other) = outputs[..i].iter().find(|other| other.is_same(output)) {
            return refused(format!("the same file as {} {}", other.option, other.path.display()));
        }
        let target = output.target.path();
        if let Some((option, path)) = inputs.iter().find(|(_, path)| is_same_file(&target, path)) {
            return refused(format!("the same file as {option} {}", path.display()));
        }
        if let (Some(model), Target::File(_)) = (model, &output.target)
            && !begins_as(&target, output.kind).unwrap_or(true)
            && files_below(model, MODEL_DEPTH).iter().any(|file| is_same_file(&target, file))
        {
            return refused(format!("a file of --model {}", model.display()));
        }
    }
    Ok(())
}

/// Folders within folders of a model.
const MODEL_DEPTH: usize = 3;

/// The files of a folder and of those in it, links as they are.
fn files_below(folder: &Path, depth: usize) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files = Vec::new();
    for path in entries.map(|entry| entry.path()) {
        match path.is_dir() {
            true if depth > 1 => files.extend(files_below(&path, depth - 1)),
            true => {}
            false => files.push(path),
        }
    }
    files
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

    fn check(path: &Path) -> Result<Destination> {
        Destination::check("-o", path, Kind::Array, Existing::SameKind)
    }

    fn names(folder: &Path) -> Vec<std::ffi::OsString> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn a_file_appears_whole_and_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        let destination = check(&path).unwrap();
        assert!(names(folder.path()).is_empty(), "the probe leaves nothing");
        destination.write(|w| w.write_all(b"whole")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert_eq!(names(folder.path()), ["a.npy"]);
    }

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        fs::write(&path, b"\x93NUMPY old").unwrap();
        let destination = check(&path).unwrap();
        let error = message(destination.write(|w| {
            w.write_all(b"half")?;
            Err(io::Error::from(io::ErrorKind::StorageFull))
        }));
        assert!(error.starts_with("-o ") && error.contains("a.npy"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"\x93NUMPY old");
        assert_eq!(names(folder.path()), ["a.npy"]);
    }

    #[test]
    fn a_full_device_is_named() {
        let destination = check(Path::new("/dev/full")).unwrap();
        let error = message(destination.write(|w| w.write_all(&[0; 1 << 16])));
        assert!(error.contains("/dev/full"), "{error}");
    }

    #[test]
    fn an_unwritable_place_is_found_before_work_begins() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing").join("a.png");
        assert!(message(check(&missing)).contains("missing"));
        assert!(message(check(folder.path())).contains("folder"));
    }

    #[test]
    fn with_no_clobber_no_file_is_replaced_even_if_it_came_late() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        let destination = Destination::check("-o", &path, Kind::Array, Existing::Never).unwrap();
        fs::write(&path, b"\x93NUMPY").unwrap();
        message(destination.write(|w| w.write_all(b"new")));
        assert_eq!((fs::read(&path).unwrap(), names(folder.path()).len()), (b"\x93NUMPY".to_vec(), 1));
    }

    #[test]
    fn a_file_of_another_kind_that_came_late_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.png");
        let destination = Destination::check("-o", &path, Kind::Picture, Existing::SameKind).unwrap();
        fs::write(&path, b"mine").unwrap();
        assert!(message(destination.write(|w| w.write_all(b"new"))).contains("--force"));
        assert_eq!((fs::read(&path).unwrap(), names(folder.path()).len()), (b"mine".to_vec(), 1));
    }

    #[test]
    fn a_template_takes_the_next_name_when_one_was_taken_late() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a-{seed}.png");
        let destination = Destination::picture("-o", &path, Existing::SameKind).unwrap().named("x", Some(7));
        assert_eq!(destination.file().unwrap().file_name().unwrap(), "a-7.png");
        fs::write(folder.path().join("a-7.png"), b"\x89PNG\r\n\x1a\n").unwrap();
        destination.write(|w| w.write_all(b"new")).unwrap();
        assert_eq!(destination.path(), folder.path().join("a-7-2.png"));
        assert_eq!(fs::read(destination.path()).unwrap(), b"new");
        let forced = Destination::picture("-o", &path, Existing::Any).unwrap().named("x", Some(7));
        forced.write(|w| w.write_all(b"forced")).unwrap();
        assert_eq!(fs::read(folder.path().join("a-7.png")).unwrap(), b"forced");
    }
}
