//! MOSS-Image, written once: tokenizer, text encoder, DiT, VAE and sampler over a small [`backend::Backend`]
//! trait, and the CPU backend that defines every operation.

pub mod backend;
pub mod math;
pub mod noise;
pub mod sampler;
pub mod shapes;
pub mod weights;
