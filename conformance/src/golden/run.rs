//! Runs a golden case on a backend and judges every stage.
//!
//! The yardstick is torch's own rounding noise: `d(a, b)` is the relative L2 distance, `n = d(torch bf16, torch fp32)`. A
//! backend that rounds where torch rounds is within `n` of torch's bf16 run and, since errors of independent roundings
//! add as squares, no further from the fp32 run than torch's bf16 run is, give or take a tenth.
//!
//! That holds while most roundings are the same. A rounding turns a difference `e` far below one unit in the last place `u`
//! into one of about `sqrt(e u)`, so after a handful of roundings in a row two exact orders of the same sums have nothing
//! left in common but the size of their errors. Where a case is that long (many layers, many guided steps) it says how far
//! torch itself moves when only its kernels change, and nobody is asked to be closer to torch than torch is.

use std::sync::Arc;

use moss_reference::backend::{Backend, BackendError};
use moss_reference::model::Model;
use moss_reference::model::observe::{Observer, RunError};
use moss_reference::model::tokenizer::Tokenizer;
use moss_reference::model::vae;
use moss_reference::run::{Session, TextStates, Texts};
use moss_reference::sample::noise::randn;
use moss_reference::sample::{Start, transpose};

use super::{Case, CaseError, Swaps};
use crate::compare::{Comparison, compare};
use crate::row::{Row, Rule, Word};

/// How much further than torch's bf16 run from the fp32 run a result may be.
const FP32_SLACK: f64 = 1.1;
/// Cosine of the first velocity that the closest peer reports.
const VELOCITY_COSINE: f64 = 0.99998;
/// Distance of the text states, in units of torch's own kernel-swap noise, that the closest peer reports.
const TEXT_SWAPS: f64 = 2.5;
/// Cosine of the final latent from golden text states that the closest peer reports.
const DIT_COSINE: f64 = 0.987;
/// Cosine of the final latent end to end that the closest peer reports.
const LATENT_COSINE: f64 = 0.957;
/// Error of the fp32 decoder, of its full scale of 2: sums of up to 3456 f32 products through 30 convolutions.
const VAE_ERROR: f64 = 2.0 * 1e-5;

/// Why a case could not be run.
#[derive(Debug, thiserror::Error)]
pub enum RunCaseError {
    /// The case's files.
    #[error(transparent)]
    Case(#[from] CaseError),
    /// The model.
    #[error("{case}: {error}")]
    Run {
        /// The case.
        case: String,
        /// What went wrong.
        error: RunError,
    },
    /// The tokenizer.
    #[error("{case}: {error}")]
    Tokenizer {
        /// The case.
        case: String,
        /// What went wrong.
        error: moss_reference::model::tokenizer::Error,
    },
}

/// What a case gave.
pub struct Outcome {
    /// The judged figures.
    pub rows: Vec<Row>,
    /// The picture, 8-bit `[H, W, 3]`.
    pub picture: Vec<u8>,
    /// The official pipeline's bf16 picture.
    pub official: Vec<u8>,
    /// Every result that was held against torch's, by name.
    pub results: Vec<(String, Vec<f32>)>,
}

/// Keeps the first velocities and the blocks' outputs of the first step.
#[derive(Default)]
struct Taps {
    tensors: Vec<(String, Vec<f32>)>,
}

impl<B: Backend> Observer<B> for Taps {
    fn tap(&mut self, name: &str, backend: &B, x: &B::Tensor) -> Result<(), BackendError> {
        if self.tensors.iter().all(|(known, _)| known != name) {
            self.tensors.push((name.into(), backend.download(x)?.to_f32()));
        }
        Ok(())
    }
}

/// Collects rows of one case.
struct Judge<'a> {
    case: &'a Case,
    word: Word,
    rows: Vec<Row>,
    results: Vec<(String, Vec<f32>)>,
}

impl Judge<'_> {
    fn row(&mut self, name: &str, figure: f64, rule: Rule, limit: f64, reason: &str, detail: String) {
        let (group, name, reason, word) = (self.case.name.clone(), name.into(), reason.into(), self.word);
        self.rows.push(Row { group, name, figure, limit, rule, reason, detail, word });
    }

    /// The number of elements that are not equal must be 0.
    fn exact(&mut self, name: &str, actual: &[f64], expected: &[f64]) {
        let different = actual.iter().zip(expected).filter(|(a, e)| a != e).count()
            + actual.len().abs_diff(expected.len());
        let first = actual.iter().zip(expected).position(|(a, e)| a != e);
        let detail = match first {
            Some(i) => format!("first at {i}: {:e} for {:e}", actual[i], expected[i]),
            None => format!("{} elements for {}", actual.len(), expected.len()),
        };
        self.row(name, different as f64, Rule::AtMost, 0.0, "exact", detail);
    }

    /// Both distances against torch's own noise; returns the comparison with torch's bf16 run.
    fn distances(&mut self, name: &str, actual: &[f32], array: &str) -> Result<Comparison, CaseError> {
        let bf16 = self.case.array(&format!("{array}_bf16"))?;
        let fp32 = self.case.array(&format!("{array}_fp32"))?;
        let as_f32: Vec<f32> = bf16.iter().map(|&x| x as f32).collect();
        let noise = free(name, &as_f32, fp32).relative_l2;
        self.results.push((name.into(), actual.to_vec()));
        let to_bf16 = free(name, actual, bf16);
        let to_fp32 = free(name, actual, fp32);
        // The norm of n independent errors scatters by 1 / sqrt(2n); a picture has the latents' freedom.
        let freedom = actual.len().min(self.case.array("noise")?.len()).max(1);
        let slack = FP32_SLACK * (1.0 + 3.0 / (2.0 * freedom as f64).sqrt());
        let limits = limits(noise, slack, self.case.kernel_swaps.get(array));
        for (run, to, (limit, reason)) in [("bf16", &to_bf16, limits[0]), ("fp32", &to_fp32, limits[1])] {
            let name = format!("{name}: distance to torch {run}");
            self.row(&name, to.relative_l2, Rule::AtMost, limit, reason, to.to_string());
        }
        Ok(to_bf16)
    }

    fn cosine(&mut self, name: &str, comparison: &Comparison, limit: f64) {
        let detail = comparison.to_string();
        self.row(name, comparison.cosine, Rule::AtLeast, limit, "the closest peer's own figure", detail);
    }
}

/// How far a result may be from torch's bf16 and fp32 runs, which are `noise` apart, and why.
fn limits(noise: f64, slack: f64, swaps: Option<&Swaps>) -> [(f64, &'static str); 2] {
    match swaps {
        None => [
            (noise, "torch's own bf16 noise"),
            (slack * noise, "1.1 of torch's own bf16 noise, and three deviations of a norm's scatter"),
        ],
        Some(swaps) => [
            (FP32_SLACK * swaps.bf16, "1.1 of the most that torch moves when only its kernels change"),
            (
                FP32_SLACK * swaps.fp32.max(noise),
                "1.1 of the most that torch's bf16 runs are away, with any of its kernels",
            ),
        ],
    }
}

/// A comparison without a budget of its own: lengths that differ or values that are not finite count as infinitely far.
fn free(name: &str, actual: &[f32], expected: &[f64]) -> Comparison {
    compare(name, actual, expected, |_| f64::INFINITY).unwrap_or_else(|error| Comparison {
        len: actual.len(),
        max_abs: f64::INFINITY,
        max_rel: f64::INFINITY,
        relative_l2: f64::INFINITY,
        cosine: f64::NAN,
        worst: match error {
            crate::compare::CompareError::NotFinite { index, actual, expected, .. } => {
                crate::compare::Worst { index, actual, expected, budget_used: f64::INFINITY }
            }
            _ => crate::compare::Worst {
                index: 0,
                actual: f64::NAN,
                expected: f64::NAN,
                budget_used: f64::INFINITY,
            },
        },
    })
}

/// Runs a case end to end, and the DiT and the VAE alone from golden inputs.
///
/// # Errors
/// [`RunCaseError`] when something cannot run at all; a result that is off is a row that fails.
pub fn run_case<B: Backend>(
    backend: &B,
    word: Word,
    case: &Case,
    model: &Model,
    tokenizer: &Tokenizer,
) -> Result<Outcome, RunCaseError> {
    let run = |error| RunCaseError::Run { case: case.name.clone(), error };
    let mut judge = Judge { case, word, rows: Vec::new(), results: Vec::new() };
    let request = &case.request;
    let (h, w) = (request.h(), request.w());
    let guidance = request.guidance();

    let mut ids = Vec::new();
    for (name, text) in ["ids", "ids_negative"].into_iter().zip(request.texts()) {
        let encoded = tokenizer
            .encode_prompt(text, request.max_seq)
            .map_err(|error| RunCaseError::Tokenizer { case: case.name.clone(), error })?;
        let as_f64: Vec<f64> = encoded.ids.iter().map(|&id| f64::from(id)).collect();
        judge.exact(&format!("tokens ({name})"), &as_f64, case.array(name)?);
        // What follows is judged on the official ids, so that each row speaks of its own stage.
        ids.push(case.array(name)?.iter().map(|&id| id as u32).collect::<Vec<u32>>());
    }
    let sigmas = request.sigmas().map_err(RunError::from).map_err(run)?;
    judge.exact("sigmas", &widen(&sigmas), case.array("sigmas")?);
    let noise = randn(request.seed.unwrap_or_default(), case.array("noise")?.len());
    judge.exact("noise", &widen(&noise), case.array("noise")?);

    let mut session = Session::new(backend, model);
    let mut stages = session.admit(h, w, Texts::Ids(&ids)).map_err(run)?;
    let mut taps = Taps::default();
    let states = stages.encode(&mut taps).map_err(run)?;
    for (name, states) in ["text", "text_negative"].iter().zip(&states) {
        let values: Vec<f32> = states.data.iter().map(|x| x.to_f32()).collect();
        let comparison = judge.distances(name, &values, name)?;
        let swaps = case.text_kernel_swaps.values().fold(0.0, |most: f64, &swap| most.max(swap));
        if *name == "text" && swaps > 0.0 {
            judge.row(
                "text: distance in units of torch's kernel-swap noise",
                comparison.relative_l2 / swaps,
                Rule::AtMost,
                TEXT_SWAPS,
                "the closest peer's own figure",
                comparison.to_string(),
            );
        }
    }

    let start = Start { noise: &noise, h, w, sigmas: &sigmas, guidance: &guidance };
    let mut taps = Taps::default();
    let latents = stages.denoise(&states, &start, &mut taps).map_err(run)?;
    for (name, values) in &taps.tensors {
        if let Some(row) = name.strip_prefix("velocity_") {
            let channels_first = transpose(values, h * w, values.len() / (h * w));
            let comparison = judge.distances(&format!("first velocity ({row})"), &channels_first, name)?;
            judge.cosine(&format!("first velocity ({row}): cosine"), &comparison, VELOCITY_COSINE);
        }
    }
    for tap in case.taps() {
        let expected = case.array(&format!("{tap}_bf16"))?.len();
        match taps.tensors.iter().find(|(name, _)| name == tap) {
            // The cond row comes first; the official run taps it alone.
            Some((_, values)) => judge.distances(tap, &values[..expected.min(values.len())], tap)?,
            None => judge.distances(tap, &[], tap)?,
        };
    }
    let comparison = judge.distances("final latents", &latents, "latent")?;
    judge.cosine("final latents: cosine", &comparison, LATENT_COSINE);

    let golden_states = [Some("text_bf16"), guidance.has_uncond().then_some("text_negative_bf16")]
        .into_iter()
        .flatten()
        .zip(&states)
        .map(|(name, states)| {
            let data = case.array(name)?.iter().map(|&x| half::bf16::from_f64(x)).collect();
            Ok(Arc::new(TextStates { data, length: states.length }))
        })
        .collect::<Result<Vec<_>, CaseError>>()?;
    let alone = stages.denoise(&golden_states, &start, &mut Taps::default()).map_err(run)?;
    let comparison = free("dit alone", &alone, case.array("latent_bf16")?);
    judge.cosine("final latents of the DiT alone, from golden text states: cosine", &comparison, DIT_COSINE);

    let golden_latents = case.array_f32("latent_fp32")?;
    let picture = stages.decode(&golden_latents, &mut Taps::default()).map_err(run)?;
    judge_vae(&mut judge, &picture)?;
    let picture = stages.decode(&latents, &mut Taps::default()).map_err(run)?;
    let clamped: Vec<f32> = picture.iter().map(|x| x.clamp(-1.0, 1.0)).collect();
    judge.distances("picture", &clamped, "picture")?;
    let official = case.array("image_bf16")?.iter().map(|&x| x as u8).collect();
    let Judge { rows, results, .. } = judge;
    Ok(Outcome { rows, picture: vae::to_rgb8(&picture), official, results })
}

/// The decoder from golden latents: floats within their bound, levels within one.
fn judge_vae(judge: &mut Judge<'_>, picture: &[f32]) -> Result<(), CaseError> {
    let clamped: Vec<f32> = picture.iter().map(|x| x.clamp(-1.0, 1.0)).collect();
    let comparison = free("vae", &clamped, judge.case.array("picture_fp32")?);
    judge.row(
        "VAE alone, from golden latents: largest error",
        comparison.max_abs,
        Rule::AtMost,
        VAE_ERROR,
        "1e-5 of full scale: f32 sums of up to 3456 products",
        comparison.to_string(),
    );
    let levels: Vec<f32> = vae::to_rgb8(picture).into_iter().map(f32::from).collect();
    let comparison = free("vae levels", &levels, judge.case.array("image_fp32")?);
    judge.row(
        "VAE alone: levels apart",
        comparison.max_abs,
        Rule::AtMost,
        1.0,
        "a value at the edge of two levels",
        comparison.to_string(),
    );
    Ok(())
}

fn widen(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&x| f64::from(x)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_come_from_torch_alone() {
        let plain = limits(0.5, 2.0, None).map(|(limit, _)| limit);
        assert_eq!(plain, [0.5, 1.0]);
        // The fp32 run is as far as the furthest of torch's bf16 runs, the plain one among them.
        for (fp32, furthest) in [(0.25, 0.5), (0.75, 0.75)] {
            let swapped = limits(0.5, 2.0, Some(&Swaps { bf16: 0.625, fp32 })).map(|(limit, _)| limit);
            assert_eq!(swapped, [FP32_SLACK * 0.625, FP32_SLACK * furthest]);
        }
    }
}
