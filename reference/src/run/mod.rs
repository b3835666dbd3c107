//! From a request to a picture: its settings, and the stages of the run on any backend.

mod session;
mod settings;

pub use session::{Run, Session, TextStates, Texts};
pub use settings::{MAX_PIXELS, MAX_SEQ, MAX_SIDE, NOISE_LAYOUT, SAMPLER, SCHEDULE, SettingError, Settings};

use crate::backend::{Backend, HostData, StageSpec};
use crate::model::config::TextConfig;
use crate::model::observe::{Observer, RunError, check_values};
use crate::model::text_encoder::{self, TextEncoder};
use crate::model::vae::{self, Vae};
use crate::model::{Model, dit};
use crate::sample::transpose;

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
    config: &TextConfig,
    spec: StageSpec,
    prompts: &[&[u32]],
    observer: &mut dyn Observer<B>,
) -> Result<Vec<B::Tensor>, RunError> {
    TextEncoder::load(backend, config, spec)?.encode(backend, prompts, observer)
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
