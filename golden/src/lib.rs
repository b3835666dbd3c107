//! Synthetic checkpoints and golden cases.
