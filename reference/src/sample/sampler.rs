//! The denoising loop.

use crate::backend::{Backend, HostData};
use crate::model::dit::{Context, Dit};
use crate::model::observe::{Event, Observer, RunError, announce, check_values};
use crate::sample::Guidance;

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

/// `[rows, columns]` to `[columns, rows]`.
pub fn transpose(x: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    (0..columns).flat_map(|c| (0..rows).map(move |r| x[r * columns + c])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transposing_twice_gives_the_same() {
        let x: Vec<f32> = (0..15).map(|i| i as f32).collect();
        assert_eq!(transpose(&x, 3, 5)[1], 5.0);
        assert_eq!(transpose(&transpose(&x, 3, 5), 5, 3), x);
    }
}
