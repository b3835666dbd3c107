//! MOSS-Image, written once: tokenizer, text encoder, DiT, VAE and sampler over a small [`backend::Backend`]
//! trait, and the CPU backend that defines every operation.

pub mod backend;
pub mod cpu;
pub mod files;
pub mod memory;
pub mod model;
pub mod oracle;
pub mod run;
pub mod sample;
pub mod simd;
