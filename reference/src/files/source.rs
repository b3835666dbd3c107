//! Where a model's files are, and their bytes.

use std::fs::{self, File};
use std::ops::{Deref, Range};
use std::path::PathBuf;
use std::sync::Arc;

use memmap2::Mmap;

use super::WeightsError;

/// What a complete model folder holds.
const LAYOUT: &str = "tokenizer/, text_encoder/, transformer/ and vae/";

/// A model folder, or the files of a model that is part of the program (paths relative to its folder).
#[derive(Clone, Debug)]
pub enum ModelSource {
    /// A folder.
    Folder(PathBuf),
    /// Files in the program.
    Embedded(&'static [(&'static str, &'static [u8])]),
}

enum Owner {
    Mapped(Mmap),
    Static(&'static [u8]),
}

/// Part of a mapped or embedded file; clones share it.
#[derive(Clone)]
pub struct Bytes {
    owner: Arc<Owner>,
    range: Range<usize>,
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &*self.owner {
            Owner::Mapped(map) => &map[self.range.clone()],
            Owner::Static(bytes) => &bytes[self.range.clone()],
        }
    }
}

impl Bytes {
    /// Asks the system to read a mapped file's part into its cache; waits until the disk has taken the requests, and cannot fail.
    pub fn read_ahead(&self) {
        #[cfg(unix)]
        if let Owner::Mapped(map) = &*self.owner {
            // It is a hint: without it the same bytes are read later.
            let _ = map.advise_range(memmap2::Advice::WillNeed, self.range.start, self.range.len());
        }
    }

    /// A part of these bytes.
    pub(super) fn slice(&self, range: Range<usize>) -> Self {
        let start = self.range.start;
        assert!(start + range.end <= self.range.end, "bytes: {range:?} is outside {:?}", self.range);
        Self { owner: self.owner.clone(), range: start + range.start..start + range.end }
    }

    fn whole(owner: Owner) -> Self {
        let length = match &owner {
            Owner::Mapped(map) => map.len(),
            Owner::Static(bytes) => bytes.len(),
        };
        Self { owner: Arc::new(owner), range: 0..length }
    }
}

/// A file that stays open, so that what is read later is of the file that was checked.
pub(super) struct OpenFile {
    pub(super) path: PathBuf,
    pub(super) handle: File,
}

/// A file of a model: its bytes and, unless it is embedded, the file itself.
pub(super) struct SourceFile {
    pub(super) bytes: Bytes,
    pub(super) file: Option<Arc<OpenFile>>,
}

impl ModelSource {
    /// The path of a file, for messages.
    pub fn display(&self, path: &str) -> String {
        match self {
            ModelSource::Folder(folder) => folder.join(path).display().to_string(),
            ModelSource::Embedded(_) => format!("demo model: {path}"),
        }
    }

    /// Whether the file is there.
    pub fn has(&self, path: &str) -> bool {
        match self {
            ModelSource::Folder(folder) => folder.join(path).is_file(),
            ModelSource::Embedded(files) => files.iter().any(|(name, _)| *name == path),
        }
    }

    /// Reads a small file whole.
    ///
    /// # Errors
    /// [`WeightsError::NotAModel`] or [`WeightsError::MissingPart`] when the folder or the file is not there,
    /// [`WeightsError::Io`] when it cannot be read.
    pub fn read(&self, path: &str) -> Result<Vec<u8>, WeightsError> {
        self.check_folder()?;
        match self {
            ModelSource::Folder(folder) => match fs::read(folder.join(path)) {
                Ok(bytes) => Ok(bytes),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(self.missing(path)),
                Err(error) => Err(WeightsError::Io { file: self.display(path), error }),
            },
            ModelSource::Embedded(files) => match files.iter().find(|(name, _)| *name == path) {
                Some((_, bytes)) => Ok(bytes.to_vec()),
                None => Err(self.missing(path)),
            },
        }
    }

    /// Names of the files in a folder of the model, in order; none when the folder is not there.
    pub(super) fn list(&self, folder: &str) -> Result<Vec<String>, WeightsError> {
        self.check_folder()?;
        let mut names: Vec<String> = match self {
            ModelSource::Folder(root) => match fs::read_dir(root.join(folder)) {
                Ok(entries) => entries
                    .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
                    .collect::<Result<_, _>>()
                    .map_err(|error| WeightsError::Io { file: self.display(folder), error })?,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
                Err(error) => return Err(WeightsError::Io { file: self.display(folder), error }),
            },
            ModelSource::Embedded(files) => {
                let inside = |path: &'static str| path.strip_prefix(folder)?.strip_prefix('/');
                files.iter().filter_map(|(path, _)| inside(path)).map(String::from).collect()
            }
        };
        names.sort();
        Ok(names)
    }

    /// Maps a file.
    pub(super) fn open(&self, path: &str) -> Result<SourceFile, WeightsError> {
        match self {
            ModelSource::Folder(folder) => {
                let path = folder.join(path);
                let io = |error| WeightsError::Io { file: path.display().to_string(), error };
                // Looked at before it is opened: to open a pipe waits for who writes it.
                let meta = fs::metadata(&path).map_err(io)?;
                if !meta.is_file() {
                    let found = if meta.is_dir() { "a folder" } else { "a pipe or a device" };
                    let file = path.display().to_string();
                    return Err(WeightsError::NotSafetensors { file, found: found.into() });
                }
                let handle = File::open(&path).map_err(io)?;
                let bytes = if meta.len() == 0 {
                    // An empty file cannot be mapped.
                    Bytes::whole(Owner::Static(&[]))
                } else {
                    // SAFETY: the map is read-only. Changing a checkpoint's files while a picture is made is outside of what
                    // the program can guard against; it reads wrong weights then, or ends with a bus error.
                    #[allow(unsafe_code)]
                    let map = unsafe { Mmap::map(&handle) }.map_err(io)?;
                    Bytes::whole(Owner::Mapped(map))
                };
                Ok(SourceFile { bytes, file: Some(Arc::new(OpenFile { path, handle })) })
            }
            ModelSource::Embedded(files) => match files.iter().find(|(name, _)| *name == path) {
                Some((_, bytes)) => Ok(SourceFile { bytes: Bytes::whole(Owner::Static(bytes)), file: None }),
                None => Err(self.missing(path)),
            },
        }
    }

    pub(super) fn missing(&self, path: &str) -> WeightsError {
        WeightsError::MissingPart { path: self.display(path), expected: LAYOUT }
    }

    /// Fails when the model's path is no folder or an empty one.
    ///
    /// # Errors
    /// [`WeightsError::NotAModel`].
    pub fn check_folder(&self) -> Result<(), WeightsError> {
        let ModelSource::Folder(folder) = self else { return Ok(()) };
        let found = if folder.is_file() {
            "a file"
        } else if !folder.exists() {
            "nothing there"
        } else if fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none()) {
            "an empty folder"
        } else {
            return Ok(());
        };
        Err(WeightsError::NotAModel { path: folder.display().to_string(), found })
    }
}
