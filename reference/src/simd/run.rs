//! Where the operands of a register tile lie.

/// One run over `k`: where the operands lie.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    /// Steps of `k`.
    pub(crate) len: usize,
    /// Row values of the first step.
    pub(crate) a: *const f32,
    /// From one step's row values to the next one's.
    pub(crate) a_step: usize,
    /// Weights of the first step; steps are `vectors * LANES` apart.
    pub(crate) b: *const f32,
}
