//! MOSS-Image as the paper has it: configuration, tokenizer, text encoder, DiT and VAE, and the folder that holds a model.

pub mod config;
pub mod dit;
pub mod observe;
pub mod text_encoder;
pub mod tokenizer;
mod tokens;
pub mod vae;
mod weight_set;

use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::files::{Checkpoint, ModelSource, Part, TensorSpec, WeightsError};
use config::{ConfigError, ModelConfig, TextConfig, VaeConfig};

/// Side in pixels of the square that one latent token stands for.
pub const TOKEN_SIDE: usize = 16;

/// Why a model cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A configuration file is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A weight file is wrong.
    #[error(transparent)]
    Weights(#[from] WeightsError),
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn open(
    source: &ModelSource,
    part: Part,
    expected: Vec<TensorSpec>,
) -> Result<Arc<Checkpoint>, WeightsError> {
    Checkpoint::open(source, part, &expected).map(Arc::new)
}

/// Opens the text encoder alone; the folder needs no other part.
///
/// # Errors
/// [`ConfigError`] or [`WeightsError`], naming the file.
pub fn open_text_encoder(source: &ModelSource) -> Result<(TextConfig, Arc<Checkpoint>), OpenError> {
    let config = TextConfig::open(source)?;
    let weights = open(source, Part::TextEncoder, text_encoder::tensors(&config))?;
    Ok((config, weights))
}

/// Opens the VAE alone; the folder needs no other part.
///
/// # Errors
/// [`ConfigError`] or [`WeightsError`], naming the file.
pub fn open_vae(source: &ModelSource) -> Result<(VaeConfig, Arc<Checkpoint>), OpenError> {
    let config = VaeConfig::open(source)?;
    let weights = open(source, Part::Vae, vae::tensors(&config))?;
    Ok((config, weights))
}

/// A model's configuration and checked, opened weights.
pub struct Model {
    /// Sizes of all parts.
    pub config: ModelConfig,
    /// Weights of the text encoder.
    pub text_encoder: Arc<Checkpoint>,
    /// Weights of the DiT.
    pub transformer: Arc<Checkpoint>,
    /// Weights of the VAE.
    pub vae: Arc<Checkpoint>,
}

impl Model {
    /// Reads the configuration and opens all weights.
    ///
    /// # Errors
    /// [`ConfigError`] or [`WeightsError`], naming the file.
    pub fn open(source: &ModelSource) -> Result<Self, OpenError> {
        let config = ModelConfig::open(source)?;
        let text_encoder = open(source, Part::TextEncoder, text_encoder::tensors(&config.text))?;
        let transformer = open(source, Part::Transformer, dit::tensors(&config.dit))?;
        let vae = open(source, Part::Vae, vae::tensors(&config.vae))?;
        Ok(Self { config, text_encoder, transformer, vae })
    }

    /// A cheap name for everything in the folder that decides a picture, 16 hexadecimal digits: the bytes of the parts'
    /// configurations and of the tokenizer's files, and [`Checkpoint::identity`] of the weights. The scheduler's
    /// file is not in it: its shift is a setting, stated with the others.
    ///
    /// # Errors
    /// [`WeightsError`] when a file cannot be read.
    pub fn identity(&self, source: &ModelSource) -> Result<String, WeightsError> {
        let mut hasher = Sha256::new();
        let tokenizer = tokenizer::FILES.map(|name| format!("tokenizer/{name}"));
        let configs = ["text_encoder/config.json", "transformer/config.json", "vae/config.json"];
        for file in configs.into_iter().chain(tokenizer.iter().map(String::as_str)) {
            // Text states may come from a file, and then nothing needs a tokenizer.
            if source.has(file) {
                let bytes = source.read(file)?;
                hasher.update(format!("{file} {}\n", bytes.len()));
                hasher.update(bytes);
            }
        }
        for part in [&self.text_encoder, &self.transformer, &self.vae] {
            hasher.update(part.identity());
        }
        Ok(hex(&hasher.finalize()[..8]))
    }

    /// SHA-256 of all weights, in hexadecimal; see [`Checkpoint::sha256`]. Reads everything.
    pub fn sha256(&self) -> String {
        let mut hasher = Sha256::new();
        for part in [&self.text_encoder, &self.transformer, &self.vae] {
            hasher.update(part.sha256());
        }
        hex(&hasher.finalize())
    }
}
