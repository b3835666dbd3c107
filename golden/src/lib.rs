//! Synthetic checkpoints and golden cases.

pub mod synth;
