//! Operations without a reduction.

use super::launch::{Check, Launch, LaunchError, params};

params! {
    /// `to_bf16`: one rounding.
    ToBf16 {
        /// `[count]` f32.
        x: u64,
        /// `[count]` bf16.
        out: u64,
        /// Elements.
        count: i32,
    }
}

impl ToBf16 {
    /// The launch.
    ///
    /// # Errors
    /// [`LaunchError`] for sizes and addresses outside the fields' descriptions.
    pub fn launch(&self) -> Result<Launch, LaunchError> {
        let check = Check("to_bf16");
        check.positive("count", self.count)?;
        check.operands(&[("x", self.x), ("out", self.out)])?;
        check.threads(self.count.into(), self.bytes())
    }
}

params! {
    /// `euler_step`: guidance and one Euler step.
    EulerStep {
        /// `[count]` f32.
        x: u64,
        /// `[count]` bf16.
        v_cond: u64,
        /// `[count]` bf16, or 0.
        v_uncond: u64,
        /// `[count]` f32; may be `x`.
        out: u64,
        /// Elements.
        count: i32,
        /// Guidance.
        cfg: f32,
        /// Step.
        dt: f32,
    }
}

impl EulerStep {
    /// The launch.
    ///
    /// # Errors
    /// [`LaunchError`] for sizes and addresses outside the fields' descriptions.
    pub fn launch(&self) -> Result<Launch, LaunchError> {
        let check = Check("euler_step");
        check.positive("count", self.count)?;
        check.operands(&[("x", self.x), ("v_cond", self.v_cond), ("out", self.out)])?;
        check.optional(&[("v_uncond", self.v_uncond)])?;
        check.threads(self.count.into(), self.bytes())
    }
}

params! {
    /// `sigmoid_gate`: `bf16(x * bf16(sigmoid(gate)))`.
    SigmoidGate {
        /// `[tokens, heads * dim]` bf16.
        x: u64,
        /// `[tokens, stride]` bf16, heads at columns `first + i * step`, multiples of 8.
        gate: u64,
        /// `[tokens, heads * dim]` bf16.
        out: u64,
        /// Rows.
        tokens: i32,
        /// Elements of a row of `gate`.
        stride: i32,
        /// Column of head 0.
        first: i32,
        /// Columns from one head to the next.
        step: i32,
        /// Heads.
        heads: i32,
        /// Width of a head, a multiple of 8.
        dim: i32,
    }
}

impl SigmoidGate {
    /// The launch.
    ///
    /// # Errors
    /// [`LaunchError`] for sizes and addresses outside the fields' descriptions.
    pub fn launch(&self) -> Result<Launch, LaunchError> {
        let check = Check("sigmoid_gate");
        check.positive("tokens", self.tokens)?;
        check.multiple("dim", self.dim, 8, "a multiple of 8")?;
        super::norm::heads(&check, self.stride, self.first, self.step, self.heads, self.dim)?;
        check.operands(&[("x", self.x), ("gate", self.gate), ("out", self.out)])?;
        let width = i64::from(self.heads) * i64::from(self.dim);
        check.size(width <= i64::from(i32::MAX), "heads * dim", width, "less than 2^31")?;
        check.threads(i64::from(self.tokens) * (width / 8), self.bytes())
    }
}

params! {
    /// `unpack_latents`: latents to the VAE's input.
    UnpackLatents {
        /// `[height * width, 4 * channels]` f32.
        x: u64,
        /// `[4 * channels]` f32.
        mean: u64,
        /// `[4 * channels]` f32.
        var: u64,
        /// `[2 * height, 2 * width, channels]` f32.
        out: u64,
        /// Rows of tokens.
        height: i32,
        /// Tokens of a row.
        width: i32,
        /// Channels of the result.
        channels: i32,
        /// Added to the variance.
        eps: f32,
    }
}

impl UnpackLatents {
    /// The launch.
    ///
    /// # Errors
    /// [`LaunchError`] for sizes and addresses outside the fields' descriptions.
    pub fn launch(&self) -> Result<Launch, LaunchError> {
        let check = Check("unpack_latents");
        check.positive("height", self.height)?;
        check.positive("width", self.width)?;
        check.positive("channels", self.channels)?;
        check.operands(&[("x", self.x), ("mean", self.mean), ("var", self.var), ("out", self.out)])?;
        let pixels = i64::from(self.height) * i64::from(self.width);
        check.size(pixels <= 1 << 28, "height * width", pixels, "at most 2^28")?;
        check.threads(pixels * 4 * i64::from(self.channels), self.bytes())
    }
}
