//! MOSS-Image, written once: tokenizer, text encoder, DiT, VAE and sampler over a small Backend trait, and the CPU backend that defines every operation.
