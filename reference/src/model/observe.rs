//! What a run tells while the model works, and why it can end without a result.

use std::ops::ControlFlow;

use crate::backend::{Backend, BackendError};
use crate::files::ReadError;
use crate::sample::schedule::ScheduleError;

/// The parts of a run, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The decoder's weights are loaded.
    LoadVae,
    /// The text encoder is loaded, runs and is freed.
    Encode,
    /// The transformer's weights are loaded.
    LoadDit,
    /// So many steps of denoising.
    Denoise {
        /// Steps in all.
        steps: usize,
    },
    /// The latents become a picture.
    Decode,
}

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A part of the run begins.
    Begin(Part),
    /// A part of the run has ended well.
    End(Part),
    /// A text encoder layer is about to run.
    TextLayer {
        /// Layer, from 0.
        layer: usize,
        /// Layers in all.
        layers: usize,
    },
    /// A DiT block is about to run.
    Block {
        /// Block, from 0.
        block: usize,
        /// Blocks in all.
        blocks: usize,
    },
    /// A denoising step has ended.
    Step {
        /// Step, from 1.
        step: usize,
        /// Steps in all.
        steps: usize,
    },
    /// A block of the VAE decoder is about to run.
    VaeBlock {
        /// Block, from 0.
        block: usize,
        /// Blocks in all.
        blocks: usize,
    },
}

/// Follows a run and may stop it.
pub trait Observer<B: Backend> {
    /// Told before and after each part of a run, before each block and after each step; `Break` ends the run with [`RunError::Cancelled`].
    fn event(&mut self, _event: Event) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// Shown inner results by name, for conformance: `block_NN` after DiT block `NN`, `layer_NN` after a text layer.
    fn tap(&mut self, _name: &str, _backend: &B, _x: &B::Tensor) -> Result<(), BackendError> {
        Ok(())
    }
}

/// Watches nothing and never stops a run.
pub struct Silent;

impl<B: Backend> Observer<B> for Silent {}

/// Why a run ended without a result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The backend failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A weight that the host reads cannot be read.
    #[error(transparent)]
    Weights(#[from] ReadError),
    /// The request has no schedule.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The observer asked to stop.
    #[error("cancelled")]
    Cancelled,
    /// A result has a NaN or an infinity.
    #[error("{stage}: element {index} of {count} is {value}, a finite number expected")]
    NotFinite {
        /// What was computed.
        stage: String,
        /// First bad element.
        index: usize,
        /// Elements in all.
        count: usize,
        /// The bad value.
        value: f32,
    },
    /// All elements of a result are equal.
    #[error("{stage}: all {count} elements are {value}, a picture has variance")]
    Flat {
        /// What was computed.
        stage: String,
        /// Elements in all.
        count: usize,
        /// The value that all have.
        value: f32,
    },
    /// A token is outside the vocabulary.
    #[error("token {id} at place {place}, the embedding has {vocab} rows")]
    Token {
        /// The token.
        id: u32,
        /// Its place in the prompt.
        place: usize,
        /// Rows of the embedding.
        vocab: usize,
    },
}

/// Tells the observer, or ends the run.
pub(crate) fn announce<B: Backend>(observer: &mut dyn Observer<B>, event: Event) -> Result<(), RunError> {
    match observer.event(event) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(RunError::Cancelled),
    }
}

/// Fails when a value is NaN or infinite, or when all are equal.
///
/// # Errors
/// [`RunError::NotFinite`] or [`RunError::Flat`], with `stage` as the name.
pub fn check_values(stage: &str, values: &[f32]) -> Result<(), RunError> {
    let count = values.len();
    if let Some(index) = values.iter().position(|v| !v.is_finite()) {
        return Err(RunError::NotFinite { stage: stage.into(), index, count, value: values[index] });
    }
    match values {
        [first, rest @ ..] if rest.iter().all(|v| v == first) => {
            Err(RunError::Flat { stage: stage.into(), count, value: *first })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_values_are_named() {
        assert!(check_values("latent", &[0.0, 1.0]).is_ok());
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let error = check_values("latent", &[0.0, bad, 1.0]).unwrap_err();
            assert!(matches!(error, RunError::NotFinite { index: 1, count: 3, .. }), "{error}");
        }
        let error = check_values("picture", &[2.0; 4]).unwrap_err();
        assert_eq!(error.to_string(), "picture: all 4 elements are 2, a picture has variance");
    }
}
