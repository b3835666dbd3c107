//! The checkpoints that cases ask for.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::ValueEnum;
use moss_golden::synth::{self, Preset};
use moss_reference::files::ModelSource;
use moss_reference::model::Model;
use moss_reference::model::tokenizer::Tokenizer;
use tempfile::TempDir;

use super::{Case, CaseError};

/// An opened model with its tokenizer.
pub struct Loaded {
    /// The model.
    pub model: Model,
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
    /// Where it is, for messages.
    pub folder: PathBuf,
}

impl Loaded {
    /// Opens a model folder.
    ///
    /// # Errors
    /// [`CaseError::Checkpoint`].
    pub fn open(folder: &Path) -> Result<Rc<Self>, CaseError> {
        let bad = |reason: String| CaseError::Checkpoint { folder: folder.display().to_string(), reason };
        let source = ModelSource::Folder(folder.to_path_buf());
        let model = Model::open(&source).map_err(|error| bad(error.to_string()))?;
        let tokenizer = Tokenizer::open(&source).map_err(|error| bad(error.to_string()))?;
        Ok(Rc::new(Self { model, tokenizer, folder: folder.to_path_buf() }))
    }
}

/// The checkpoints of cases, by SHA-256: a model that is there already, and synthetic ones, each made once.
pub struct Checkpoints {
    known: BTreeMap<String, Rc<Loaded>>,
    /// Where synthetic ones are made; `None` when cases must be for the model that is there.
    work: Option<TempDir>,
    own: Rc<Loaded>,
}

impl Checkpoints {
    /// Starts from the model that is there; reads all its weights.
    pub fn new(own: Rc<Loaded>, work: Option<TempDir>) -> Self {
        Self { known: BTreeMap::from([(own.model.sha256(), own.clone())]), work, own }
    }

    /// Whether the checkpoint of `case` is there without making it.
    pub fn has(&self, case: &Case) -> bool {
        self.known.contains_key(&case.checkpoint.sha256)
    }

    /// The checkpoint of `case`.
    ///
    /// # Errors
    /// [`CaseError::Weights`] when it is not the one that the case was made with, [`CaseError::Checkpoint`] when it cannot be
    /// made or opened.
    pub fn of(&mut self, case: &Case) -> Result<Rc<Loaded>, CaseError> {
        let wanted = &case.checkpoint;
        if let Some(loaded) = self.known.get(&wanted.sha256) {
            return Ok(loaded.clone());
        }
        let preset = Preset::from_str(&wanted.config, true).ok().filter(|_| wanted.config != "demo");
        let loaded = match (&self.work, preset) {
            (Some(work), Some(preset)) => {
                let folder = work.path().join(format!("{}-{}", wanted.config, wanted.seed));
                synth::write(&preset.sizes(), wanted.seed, &folder).map_err(|error| {
                    CaseError::Checkpoint { folder: folder.display().to_string(), reason: error.to_string() }
                })?;
                Loaded::open(&folder)?
            }
            _ => self.own.clone(),
        };
        let sha256 = loaded.model.sha256();
        case.check_weights(&sha256, &loaded.folder)?;
        self.known.insert(sha256, loaded.clone());
        Ok(loaded)
    }
}
