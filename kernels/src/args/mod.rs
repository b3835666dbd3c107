//! One struct a kernel: its parameters, in order, and the checked launch.
//!
//! Addresses are device addresses; `0` means that an optional operand is absent. Operands are row-major and start at
//! multiples of 16 bytes; every width is a multiple of 16 unless a field says otherwise, so rows start there too.
//! Kernels whose work grows with the square of the picture come apart into several launches ([`MAX_MATRIX_FMA`],
//! [`MAX_F32_FMA`]); the others return one.

mod attention;
mod codes;
mod delta;
mod elementwise;
mod launch;
mod linear;
mod norm;
#[cfg(test)]
mod tests;
mod vae;

pub use attention::Attention;
pub use codes::{combine_stage, epilogue, glu, norm_kind};
pub use delta::{CausalConvSilu, GatedDeltaRule, GatedNorm};
pub use elementwise::{EulerStep, SigmoidGate, ToBf16, UnpackLatents};
pub use launch::{Kind, Launch, LaunchError, Param};
pub use linear::{Linear, LinearGlu};
pub use norm::{HeadNormRope, Norm};
pub use vae::{Conv2d, GroupNorm, GroupNormCombine, GroupNormSlices};

/// Most multiply-adds of matrix instructions in one launch: 50 ms on 12 compute units of RDNA3 at 2.5 GHz (12 x 256 x 2.5e9 a
/// second) if a quarter of the rate is reached, halved.
pub const MAX_MATRIX_FMA: i64 = 48_000_000_000;

/// Most multiply-adds of ordinary f32 instructions in one launch: the same with 64 a clock and compute unit.
pub const MAX_F32_FMA: i64 = 12_000_000_000;

/// Parameters of every kernel, in the order of their sources: what the code objects are checked against.
pub fn all_params() -> Vec<(&'static str, Vec<Param>)> {
    let attention = Attention::params();
    vec![
        ("attention_128", attention.clone()),
        ("attention_256", attention.clone()),
        ("attention_f32", attention),
        ("causal_conv_silu", CausalConvSilu::params()),
        ("conv2d", Conv2d::params()),
        ("euler_step", EulerStep::params()),
        ("gated_delta_rule", GatedDeltaRule::params()),
        ("gated_norm", GatedNorm::params()),
        ("group_norm_combine", GroupNormCombine::params()),
        ("group_norm_slices", GroupNormSlices::params()),
        ("head_norm_rope", HeadNormRope::params()),
        ("linear", Linear::params()),
        ("linear_glu", LinearGlu::params()),
        ("norm", Norm::params()),
        ("sigmoid_gate", SigmoidGate::params()),
        ("to_bf16", ToBf16::params()),
        ("unpack_latents", UnpackLatents::params()),
    ]
}
