//! RMS norms.

use super::launch::{Check, Launch, LaunchError, params};
use super::norm_kind;

params! {
    /// `norm`: RMS norm of each row, with optional modulation.
    Norm {
        /// `[tokens, width]` bf16.
        x: u64,
        /// `[width]` bf16.
        weight: u64,
        /// `[width]` bf16, or 0; with `shift`.
        scale: u64,
        /// `[width]` bf16, or 0; with `scale`.
        shift: u64,
        /// `[tokens, width]` bf16.
        out: u64,
        /// Rows.
        tokens: i32,
        /// Columns, a multiple of 16.
        width: i32,
        /// Added to the mean square.
        eps: f32,
        /// One of [`norm_kind`].
        kind: i32,
    }
}

impl Norm {
    /// The launch.
    ///
    /// # Errors
    /// [`LaunchError`] for sizes and addresses outside the fields' descriptions.
    pub fn launch(&self) -> Result<Launch, LaunchError> {
        let check = Check("norm");
        check.positive("tokens", self.tokens)?;
        check.multiple("width", self.width, 16, "a multiple of 16")?;
        check.code("kind", self.kind, &norm_kind::ALL)?;
        check.operands(&[("x", self.x), ("weight", self.weight), ("out", self.out)])?;
        if self.scale != 0 || self.shift != 0 {
            check.operands(&[("scale", self.scale), ("shift", self.shift)])?;
        }
        check.waves(self.tokens, 1, self.bytes())
    }
}

params! {
    /// `head_norm_rope`: norm of each head, then rotary embedding.
    HeadNormRope {
        /// `[tokens, stride]` bf16, heads at columns `first + i * step`, multiples of 8.
        x: u64,
        /// `[dim]` bf16.
        weight: u64,
        /// `[tokens, rotary]` bf16.
        cos: u64,
        /// `[tokens, rotary]` bf16.
        sin: u64,
        /// `[tokens, heads * dim]` bf16.
        out: u64,
        /// Rows.
        tokens: i32,
        /// Elements of a row of `x`.
        stride: i32,
        /// Column of head 0.
        first: i32,
        /// Columns from one head to the next.
        step: i32,
        /// Heads.
        heads: i32,
        /// Width of a head, a multiple of 16, at most 256.
        dim: i32,
        /// Half of the rotated width, a multiple of 8, at most `dim / 2`.
        rotary: i32,
        /// Added to the mean square.
        eps: f32,
        /// One of [`norm_kind`].
        kind: i32,
    }
}

impl HeadNormRope {
    /// The launch.
    ///
    /// # Errors
    /// [`LaunchError`] for sizes and addresses outside the fields' descriptions.
    pub fn launch(&self) -> Result<Launch, LaunchError> {
        let check = Check("head_norm_rope");
        check.positive("tokens", self.tokens)?;
        check.sixteens("dim", self.dim, 256, "a multiple of 16, at most 256")?;
        let rotary = self.rotary % 8 == 0 && self.rotary >= 0 && self.rotary <= self.dim / 2;
        check.size(rotary, "rotary", self.rotary, "a multiple of 8, at most dim / 2")?;
        check.code("kind", self.kind, &norm_kind::ALL)?;
        heads(&check, self.stride, self.first, self.step, self.heads, self.dim)?;
        check.operands(&[("x", self.x), ("weight", self.weight), ("out", self.out)])?;
        check.operands(&[("cos", self.cos), ("sin", self.sin)])?;
        check.waves(self.tokens, self.heads, self.bytes())
    }
}

/// Heads of bf16 in the columns of wider rows, read 16 bytes at a time.
pub(super) fn heads(
    check: &Check,
    stride: i32,
    first: i32,
    step: i32,
    heads: i32,
    dim: i32,
) -> Result<(), LaunchError> {
    check.positive("heads", heads)?;
    check.size(first >= 0 && first % 8 == 0, "first", first, "a multiple of 8")?;
    check.size(step >= dim && step % 8 == 0, "step", step, "a multiple of 8, at least dim")?;
    let last = i64::from(first) + i64::from(step) * i64::from(heads - 1) + i64::from(dim);
    check.size(
        stride % 8 == 0 && last <= i64::from(stride),
        "stride",
        stride,
        "a multiple of 8 that holds all heads",
    )
}
