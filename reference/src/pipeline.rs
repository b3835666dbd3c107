//! From a prompt's ids to a picture, stage by stage, on any backend.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::backend::{Backend, HostData, StageSpec};
use crate::config::{ConfigError, ModelConfig, TextConfig, VaeConfig};
use crate::dit::{self, Context, Dit};
use crate::model::{Event, Observer, RunError, announce, check_values};
use crate::text_encoder::{self, TextEncoder};
use crate::tokenizer;
use crate::vae::{self, Vae};
use crate::weights::{
    Checkpoint, ModelSource, Part, TensorSpec, WeightsError, dit_tensors, text_encoder_tensors, vae_tensors,
};

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
    let weights = open(source, Part::TextEncoder, text_encoder_tensors(&config))?;
    Ok((config, weights))
}

/// Opens the VAE alone; the folder needs no other part.
///
/// # Errors
/// [`ConfigError`] or [`WeightsError`], naming the file.
pub fn open_vae(source: &ModelSource) -> Result<(VaeConfig, Arc<Checkpoint>), OpenError> {
    let config = VaeConfig::open(source)?;
    let weights = open(source, Part::Vae, vae_tensors(&config))?;
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

/// How the uncond row is used.
#[derive(Clone, Debug, PartialEq)]
pub struct Guidance {
    /// Scale of classifier-free guidance; at 1 there is no uncond row.
    pub cfg: f32,
    /// DiT blocks that the uncond row leaves out.
    pub skip_layers: Vec<usize>,
    /// They are left out at step `i` of `n` (from 0) when `skip_start <= i / n < skip_stop`.
    pub skip_start: f64,
    /// See `skip_start`.
    pub skip_stop: f64,
}

impl Guidance {
    /// Whether a run has an uncond row.
    pub fn has_uncond(&self) -> bool {
        self.cfg != 1.0
    }

    /// The blocks that the uncond row leaves out at step `step` (from 0) of `steps`.
    fn skipped(&self, step: usize, steps: usize) -> &[usize] {
        let progress = step as f64 / steps as f64;
        if (self.skip_start..self.skip_stop).contains(&progress) { &self.skip_layers } else { &[] }
    }
}

/// The stages of one run, ready to be admitted and loaded.
pub struct Stages {
    /// The VAE: loaded first, kept to the end.
    pub vae: StageSpec,
    /// The text encoder: freed before the DiT comes; gone once it was taken to be run.
    text_encoder: Option<StageSpec>,
    /// The DiT: freed before the decode.
    pub dit: StageSpec,
}

impl Stages {
    /// Asks the backend whether the run can be held; see [`Backend::admit`].
    ///
    /// # Errors
    /// The backend's refusal.
    pub fn admit<B: Backend>(&self, backend: &B) -> Result<(), RunError> {
        let stages: Vec<&StageSpec> = self.text_encoder.iter().chain([&self.dit]).collect();
        Ok(backend.admit(&self.vae, &stages)?)
    }

    /// Every stage that is left, the VAE first.
    pub fn specs(&self) -> impl Iterator<Item = &StageSpec> {
        std::iter::once(&self.vae).chain(&self.text_encoder).chain([&self.dit])
    }

    /// The text encoder's stage.
    ///
    /// # Panics
    /// The second time.
    pub fn take_text_encoder(&mut self) -> StageSpec {
        self.text_encoder.take().expect("the text encoder's stage is taken once")
    }
}

impl Model {
    /// Reads the configuration and opens all weights.
    ///
    /// # Errors
    /// [`ConfigError`] or [`WeightsError`], naming the file.
    pub fn open(source: &ModelSource) -> Result<Self, OpenError> {
        let config = ModelConfig::open(source)?;
        let text_encoder = open(source, Part::TextEncoder, text_encoder_tensors(&config.text))?;
        let transformer = open(source, Part::Transformer, dit_tensors(&config.dit))?;
        let vae = open(source, Part::Vae, vae_tensors(&config.vae))?;
        Ok(Self { config, text_encoder, transformer, vae })
    }

    /// A cheap name for everything in the folder that decides a picture, 16 hexadecimal digits: the bytes of the parts'
    /// configurations and of the tokenizer's files, and [`Checkpoint::identity`] of the weights. The scheduler's
    /// file is not in it: nothing follows it.
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

    /// The stages of a run over `h * w` latents with prompts of these lengths (cond, then uncond if any).
    pub fn stages(&self, h: usize, w: usize, prompt_lengths: &[usize]) -> Stages {
        let text_tokens: usize = prompt_lengths.iter().sum();
        let tokens = text_tokens + prompt_lengths.len() * h * w;
        Stages {
            vae: vae::stage_spec(&self.config.vae, self.vae.clone(), h, w),
            text_encoder: Some(text_encoder::stage_spec(
                &self.config.text,
                self.text_encoder.clone(),
                text_tokens,
            )),
            dit: dit::stage_spec(&self.config.dit, self.transformer.clone(), tokens, usize::MAX),
        }
    }
}

/// Text states of each prompt, `[L, hidden]`, on the backend; the encoder's weights are gone when this returns.
///
/// # Errors
/// See [`TextEncoder::encode`].
pub fn encode<B: Backend>(
    backend: &B,
    model: &Model,
    spec: StageSpec,
    prompts: &[&[u32]],
    observer: &mut dyn Observer<B>,
) -> Result<Vec<B::Tensor>, RunError> {
    TextEncoder::load(backend, &model.config.text, spec)?.encode(backend, prompts, observer)
}

/// What a denoising run starts from.
pub struct Start<'a> {
    /// Noise `[128, h, w]`.
    pub noise: &'a [f32],
    /// Latent rows.
    pub h: usize,
    /// Latent columns.
    pub w: usize,
    /// Sigmas, high to low, ending in 0.
    pub sigmas: &'a [f32],
    /// How the uncond row is used.
    pub guidance: &'a Guidance,
}

/// The final latents `[128, h, w]` of a run.
///
/// `cond` and `uncond` are text states `[L, text_dim]` bf16; without `uncond` the guidance must be 1.
/// The observer is shown `velocity_cond` and `velocity_uncond` of every step.
///
/// # Errors
/// What the backend fails with, [`RunError::NotFinite`], [`RunError::Flat`], [`RunError::Cancelled`].
pub fn denoise<B: Backend>(
    backend: &B,
    dit: &Dit<B>,
    cond: &B::Tensor,
    uncond: Option<&B::Tensor>,
    start: &Start<'_>,
    observer: &mut dyn Observer<B>,
) -> Result<Vec<f32>, RunError> {
    let Start { noise, h, w, sigmas, guidance } = *start;
    assert_eq!(uncond.is_some(), guidance.has_uncond(), "denoise: an uncond row exactly when cfg is not 1");
    let n = h * w;
    let channels = noise.len() / n;
    check_values("noise", noise)?;

    let contexts: Vec<Context<B::Tensor>> = [Some(cond), uncond]
        .into_iter()
        .flatten()
        .map(|states| dit.context(backend, states, h, w))
        .collect::<Result<_, _>>()?;
    let mut x = backend.upload(HostData::F32(transpose(noise, channels, n)), &[n, channels])?;
    let steps = sigmas.len() - 1;
    let mut latents = noise.to_vec();
    for step in 0..steps {
        let skipped = [&[][..], guidance.skipped(step, steps)];
        let rows: Vec<_> = contexts.iter().zip(skipped).collect();
        let velocities = dit.velocity(backend, &x, sigmas[step], &rows, observer)?;
        for (name, velocity) in ["velocity_cond", "velocity_uncond"].iter().zip(&velocities) {
            observer.tap(name, backend, velocity)?;
        }
        let dt = sigmas[step + 1] - sigmas[step];
        x = backend.euler_step(&x, &velocities[0], velocities.get(1), guidance.cfg, dt)?;
        latents = backend.download(&x)?.to_f32();
        check_values(&format!("latents after step {} of {steps}", step + 1), &latents)?;
        latents = transpose(&latents, n, channels);
        announce(observer, Event::Step { step: step + 1, steps })?;
    }
    Ok(latents)
}

/// Latents `[128, h, w]` to a picture `[16h, 16w, 3]` of 8-bit levels.
///
/// # Errors
/// See [`Vae::decode`]; latents that are not finite or have no variance.
pub fn decode<B: Backend>(
    backend: &B,
    vae: &Vae<B>,
    latents: &[f32],
    h: usize,
    w: usize,
    observer: &mut dyn Observer<B>,
) -> Result<Vec<f32>, RunError> {
    check_values("latents", latents)?;
    let (n, channels) = (h * w, latents.len() / (h * w));
    let x = backend.upload(HostData::F32(transpose(latents, channels, n)), &[n, channels])?;
    vae.decode(backend, &x, w, observer)
}

/// `[rows, columns]` to `[columns, rows]`.
fn transpose(x: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    (0..columns).flat_map(|c| (0..rows).map(move |r| x[r * columns + c])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_skip_window_is_half_open() {
        let guidance = Guidance { cfg: 3.0, skip_layers: vec![2], skip_start: 0.25, skip_stop: 0.75 };
        let skips: Vec<bool> = (0..4).map(|step| !guidance.skipped(step, 4).is_empty()).collect();
        assert_eq!(skips, [false, true, true, false]);
    }

    #[test]
    fn transposing_twice_gives_the_same() {
        let x: Vec<f32> = (0..15).map(|i| i as f32).collect();
        assert_eq!(transpose(&x, 3, 5)[1], 5.0);
        assert_eq!(transpose(&transpose(&x, 3, 5), 5, 3), x);
    }
}
