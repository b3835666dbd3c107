//! From noise to latents: schedule, noise, guidance, sampler.

mod guidance;
pub mod noise;
mod sampler;
pub mod schedule;

pub use guidance::Guidance;
pub(crate) use sampler::transpose;
pub use sampler::{Start, denoise};
