//! The FLUX.2 VAE.

mod decoder;

pub use decoder::*;
