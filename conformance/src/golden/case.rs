//! Golden cases on disk: `case.json` and `tensors.npz`, made by `golden/make_cases.py`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use moss_reference::run::Settings;
use npyz::npz::array_name_from_file_name;
use npyz::{NpyFile, Order, TypeChar};
use serde::Deserialize;
use zip::ZipArchive;

/// The format that this code reads.
const FORMAT: u32 = 1;

/// Why a case cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// A file cannot be read.
    #[error("{file}: {reason}")]
    File {
        /// The file.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// The case is of another format.
    #[error("{file}: format {found}, {FORMAT} expected; make it again: {command}")]
    Format {
        /// The file.
        file: String,
        /// The format found.
        found: u32,
        /// The command that made it.
        command: String,
    },
    /// An array is missing.
    #[error("{file}: no array {name}")]
    Missing {
        /// The file.
        file: String,
        /// The array.
        name: String,
    },
    /// The checkpoint cannot be made or opened.
    #[error("{folder}: {reason}")]
    Checkpoint {
        /// Its folder.
        folder: String,
        /// What is wrong.
        reason: String,
    },
    /// The checkpoint is not the one that the case was made with.
    #[error("{case}: made with weights {expected}, these are {found}; make the checkpoint again: {command}")]
    Weights {
        /// The case.
        case: String,
        /// SHA-256 in the case.
        expected: String,
        /// SHA-256 of the checkpoint.
        found: String,
        /// The command that makes the checkpoint.
        command: String,
    },
}

/// The weights of a case.
#[derive(Clone, Debug, Deserialize)]
pub struct CheckpointName {
    /// A preset of `moss-golden synth`, or `demo`.
    pub config: String,
    /// Seed of a synthetic checkpoint.
    #[serde(default)]
    pub seed: u64,
    /// SHA-256 of the weights.
    pub sha256: String,
    /// Bytes of the weight files; `None` when the case does not say.
    pub bytes: Option<u64>,
}

impl CheckpointName {
    /// The command that makes the checkpoint in `folder`.
    pub fn command(&self, folder: &Path) -> String {
        match &*self.config {
            "demo" => "git checkout golden/demo/model".into(),
            config => format!(
                "cargo run --release -p moss-golden -- synth --config {config} --seed {} --out {}",
                self.seed,
                folder.display()
            ),
        }
    }
}

/// Where a case comes from.
#[derive(Clone, Debug, Deserialize)]
pub struct Provenance {
    /// Versions of the public packages.
    pub packages: BTreeMap<String, String>,
    /// The command that made the case.
    pub command: String,
}

/// How far torch's own bf16 run moves when only its kernels change, as relative L2 distances; the most of several changes.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Swaps {
    /// From torch's bf16 run.
    pub bf16: f64,
    /// From torch's fp32 run.
    pub fp32: f64,
}

#[derive(Debug, Deserialize)]
struct Description {
    format: u32,
    request: Settings,
    checkpoint: CheckpointName,
    #[serde(default)]
    text_kernel_swaps: BTreeMap<String, f64>,
    #[serde(default)]
    kernel_swaps: BTreeMap<String, Swaps>,
    provenance: Provenance,
}

/// A golden case with all its arrays.
#[derive(Debug)]
pub struct Case {
    /// The folder's name.
    pub name: String,
    /// What was asked.
    pub request: Settings,
    /// With which weights.
    pub checkpoint: CheckpointName,
    /// How far torch's own bf16 text states move when only its kernels change, by kind of change.
    pub text_kernel_swaps: BTreeMap<String, f64>,
    /// The same of the array that is named, for runs so long that another order of sums shares no rounding with torch's.
    pub kernel_swaps: BTreeMap<String, Swaps>,
    /// Where it comes from.
    pub provenance: Provenance,
    file: PathBuf,
    arrays: BTreeMap<String, Vec<f64>>,
}

impl Case {
    /// Reads a case's folder.
    ///
    /// # Errors
    /// [`CaseError`], naming the file.
    pub fn open(folder: &Path) -> Result<Self, CaseError> {
        let json = folder.join("case.json");
        let bad = |reason: String| CaseError::File { file: json.display().to_string(), reason };
        let text = std::fs::read_to_string(&json).map_err(|error| bad(error.to_string()))?;
        if !text.trim_start().starts_with('{') {
            return Err(bad("not a JSON object".into()));
        }
        let description: Description = serde_json::from_str(&text).map_err(|error| bad(error.to_string()))?;
        if description.format != FORMAT {
            return Err(CaseError::Format {
                file: json.display().to_string(),
                found: description.format,
                command: description.provenance.command,
            });
        }
        let file = folder.join("tensors.npz");
        let arrays = read_npz(&file).map_err(|error| CaseError::File {
            file: file.display().to_string(),
            reason: match error.kind() {
                std::io::ErrorKind::UnexpectedEof => "the file is cut short".into(),
                _ => error.to_string(),
            },
        })?;
        Ok(Self {
            name: folder.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            request: description.request,
            checkpoint: description.checkpoint,
            text_kernel_swaps: description.text_kernel_swaps,
            kernel_swaps: description.kernel_swaps,
            provenance: description.provenance,
            file,
            arrays,
        })
    }

    /// All cases in a folder of cases, in order of their names.
    ///
    /// # Errors
    /// [`CaseError`] of the first that cannot be read.
    pub fn open_all(folder: &Path) -> Result<Vec<Self>, CaseError> {
        let bad = |error: std::io::Error| CaseError::File {
            file: folder.display().to_string(),
            reason: error.to_string(),
        };
        let mut folders = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(bad)? {
            let path = entry.map_err(bad)?.path();
            if path.join("case.json").is_file() {
                folders.push(path);
            }
        }
        folders.sort();
        folders.iter().map(|folder| Self::open(folder)).collect()
    }

    /// Checks that the checkpoint in `folder` is the one that the case was made with.
    ///
    /// # Errors
    /// [`CaseError::Weights`], with the command that makes the right one.
    pub fn check_weights(&self, sha256: &str, folder: &Path) -> Result<(), CaseError> {
        if sha256 == self.checkpoint.sha256 {
            return Ok(());
        }
        Err(CaseError::Weights {
            case: self.name.clone(),
            expected: self.checkpoint.sha256.clone(),
            found: sha256.into(),
            command: self.checkpoint.command(folder),
        })
    }

    /// Whether the case has this array.
    pub fn has(&self, name: &str) -> bool {
        self.arrays.contains_key(name)
    }

    /// An array's elements in f64 (exact), row-major.
    ///
    /// # Errors
    /// [`CaseError::Missing`].
    pub fn array(&self, name: &str) -> Result<&[f64], CaseError> {
        self.arrays
            .get(name)
            .map(Vec::as_slice)
            .ok_or_else(|| CaseError::Missing { file: self.file.display().to_string(), name: name.into() })
    }

    /// An array's elements in f32 (exact for everything but tokens beyond 2^24, which there are none of).
    ///
    /// # Errors
    /// [`CaseError::Missing`].
    pub fn array_f32(&self, name: &str) -> Result<Vec<f32>, CaseError> {
        Ok(self.array(name)?.iter().map(|&x| x as f32).collect())
    }

    /// Names of the taps, as in `block_00` for `block_00_bf16`.
    pub fn taps(&self) -> impl Iterator<Item = &str> {
        self.arrays
            .keys()
            .filter_map(|name| name.strip_suffix("_bf16"))
            .filter(|name| name.starts_with("block_"))
    }
}

fn read_npz(file: &Path) -> std::io::Result<BTreeMap<String, Vec<f64>>> {
    let mut archive = ZipArchive::new(BufReader::new(File::open(file)?))?;
    let mut arrays = BTreeMap::new();
    for index in 0..archive.len() {
        let packed = archive.by_index(index)?;
        let Some(name) = array_name_from_file_name(&packed.name()?).map(String::from) else { continue };
        let bad = |reason: &str| std::io::Error::other(format!("array {name}: {reason}"));
        let npy = NpyFile::new(packed)?;
        if npy.order() != Order::C {
            return Err(bad("Fortran order"));
        }
        let dtype = npy.dtype();
        let npyz::DType::Plain(plain) = &dtype else { return Err(bad("not a plain array")) };
        let other = || bad(&format!("elements are {}", dtype.descr()));
        let values: std::io::Result<Vec<f64>> = match (plain.type_char(), plain.size_field()) {
            (TypeChar::Float, 4) => {
                npy.data::<f32>().map_err(|_| other())?.map(|x| x.map(f64::from)).collect()
            }
            (TypeChar::Float, 8) => npy.data::<f64>().map_err(|_| other())?.collect(),
            (TypeChar::Int, 8) => {
                npy.data::<i64>().map_err(|_| other())?.map(|x| x.map(|x| x as f64)).collect()
            }
            (TypeChar::Uint, 1) => npy.data::<u8>().map_err(|_| other())?.map(|x| x.map(f64::from)).collect(),
            _ => return Err(other()),
        };
        arrays.insert(name.clone(), values?);
    }
    Ok(arrays)
}
