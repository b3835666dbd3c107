//! From noise to latents: schedule, noise, guidance, sampler.

mod guidance;
pub mod noise;
mod sampler;
pub mod schedule;

pub use guidance::Guidance;
pub use sampler::{Start, denoise, transpose};
