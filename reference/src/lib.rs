//! MOSS-Image, written once: tokenizer, text encoder, DiT, VAE and sampler over a small [`backend::Backend`]
//! trait, and the CPU backend that defines every operation.

pub mod backend;
pub mod config;
pub mod cpu;
pub mod dit;
pub mod math;
pub mod model;
pub mod noise;
pub mod oracle;
pub mod pipeline;
pub mod sampler;
pub mod shapes;
pub mod text_encoder;
pub mod tokenizer;
pub mod vae;
pub mod weights;
