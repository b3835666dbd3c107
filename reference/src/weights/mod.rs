//! Reading checkpoints.

/// The weights of one model part.
pub struct Checkpoint;
