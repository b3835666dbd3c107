//! Rows that need no golden data: the same model on the same inputs must have the same bits every time, wherever its weights
//! are.

use std::sync::Arc;

use half::bf16;
use moss_reference::backend::Backend;
use moss_reference::model::Model;
use moss_reference::model::observe::{RunError, Silent};
use moss_reference::run::{Session, Stages, TextStates, Texts};
use moss_reference::sample::noise::randn;
use moss_reference::sample::{Guidance, Start};

use crate::row::{Row, Rule, Word};

/// The bits of the text states of each prompt, `[L * width]`, bf16 widened to f32; the prompts run together.
///
/// # Errors
/// What the backend fails with.
pub fn text_states<B: Backend>(
    backend: &B,
    model: &Model,
    prompts: &[&[u32]],
) -> Result<Vec<Vec<u32>>, RunError> {
    let rows: Vec<Vec<u32>> = prompts.iter().map(|ids| ids.to_vec()).collect();
    let states = Session::new(backend, model).admit(1, 1, Texts::Ids(&rows))?.encode(&mut Silent)?;
    let widened = states.iter().map(|states| states.data.iter().map(|x| x.to_f32()).collect::<Vec<f32>>());
    Ok(widened.map(|states| bits(&states)).collect())
}

/// A short run of the DiT: two steps with guidance over few latents, from the same noise and text states every time.
pub struct DitRun<'a> {
    model: &'a Model,
    guidance: Guidance,
}

impl<'a> DitRun<'a> {
    /// Rows and columns of latents.
    const SIZE: (usize, usize) = (1, 2);
    /// Tokens of the cond and the uncond row.
    const TOKENS: [usize; 2] = [5, 2];

    /// The run of a model, with its own blocks left out in the uncond row.
    pub fn new(model: &'a Model) -> Self {
        let skip_layers = model.config.dit.uncond_skip_layers.clone();
        Self { model, guidance: Guidance { cfg: 3.0, skip_layers, skip_start: 0.0, skip_stop: 1.0 } }
    }

    /// What the run asks the backend for: the VAE and the DiT.
    pub fn stages(&self) -> Stages {
        let mut stages = self.model.stages(Self::SIZE.0, Self::SIZE.1, &Self::TOKENS);
        drop(stages.take_text_encoder());
        stages
    }

    /// Runs as a picture's run does, and calls `look` with the weights of the DiT that ran; the bits of the latents.
    ///
    /// # Errors
    /// What the backend fails with.
    pub fn latents<B: Backend>(
        &self,
        backend: &B,
        look: impl FnOnce(&B::Stage),
    ) -> Result<Vec<u32>, RunError> {
        let (h, w) = Self::SIZE;
        let width = self.model.config.dit.text_dim;
        let states = |length: usize, seed: u64| {
            let data = randn(seed, length * width).into_iter().map(bf16::from_f32).collect();
            Arc::new(TextStates { data, length })
        };
        let states = [states(Self::TOKENS[0], 1), states(Self::TOKENS[1], 2)];
        let mut session = Session::new(backend, self.model);
        let mut run = session.admit(h, w, Texts::States(&states))?;
        let noise = randn(3, 128 * h * w);
        let start = Start { noise: &noise, h, w, sigmas: &[1.0, 0.75, 0.0], guidance: &self.guidance };
        let latents = run.denoise(&states, &start, &mut Silent)?;
        look(run.dit_stage().expect("the DiT is freed before the decode only"));
        Ok(bits(&latents))
    }
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// The row of a run's bits held against those of the first run; `name` says what differs between the two. A run that ended
/// with an error does not pass.
pub fn row(name: &str, found: Result<Vec<u32>, RunError>, first: &[u32], word: Word) -> Row {
    let (figure, detail) = match found {
        Err(error) => (f64::NAN, error.to_string()),
        Ok(bits) => {
            let pairs = || bits.iter().zip(first);
            let apart = pairs().filter(|(a, b)| a != b).count() + bits.len().abs_diff(first.len());
            let detail = match pairs().position(|(a, b)| a != b) {
                Some(i) => {
                    format!("first at {i}: {:e} for {:e}", f32::from_bits(bits[i]), f32::from_bits(first[i]))
                }
                None => format!("{} elements for {}", bits.len(), first.len()),
            };
            (apart as f64, detail)
        }
    };
    Row {
        group: "equal bits".into(),
        name: name.into(),
        figure,
        limit: 0.0,
        rule: Rule::AtMost,
        reason: "no result depends on the run, the threads, the instructions or where the weights are".into(),
        detail,
        word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_bits_other_lengths_and_errors_fail() {
        let zero = 0.0f32.to_bits();
        let minus = (-0.0f32).to_bits();
        let row = |found: &[u32], first: &[u32]| row("again", Ok(found.to_vec()), first, Word::Measured);
        assert!(row(&[zero, minus], &[zero, minus]).passes());
        let apart = row(&[zero, minus], &[zero, zero]);
        assert!(!apart.passes() && apart.detail.starts_with("first at 1"), "{apart}");
        assert!(!row(&[zero], &[zero, zero]).passes());
        let failed = super::row("again", Err(RunError::Cancelled), &[zero], Word::Measured);
        assert!(!failed.passes() && failed.detail == RunError::Cancelled.to_string(), "{failed}");
    }
}
