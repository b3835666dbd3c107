//! The operations of the text encoder's linear attention.

use super::launch::{Check, Launch, LaunchError, params};

params! {
    /// `causal_conv_silu`: depthwise convolution over the tokens of one segment, then silu.
    CausalConvSilu {
        /// `[T, channels]` bf16.
        x: u64,
        /// `[channels, width]` bf16.
        w: u64,
        /// `[T, channels]` bf16.
        out: u64,
        /// First token of the segment.
        first: i32,
        /// Tokens of the segment.
        length: i32,
        /// Columns, a multiple of 8.
        channels: i32,
        /// Taps.
        width: i32,
    }
}

impl CausalConvSilu {
    /// The launch.
    ///
    /// # Errors
    /// [`LaunchError`] for sizes and addresses outside the fields' descriptions.
    pub fn launch(&self) -> Result<Launch, LaunchError> {
        let check = Check("causal_conv_silu");
        check.segment(self.first, self.length)?;
        check.multiple("channels", self.channels, 8, "a multiple of 8")?;
        check.positive("width", self.width)?;
        check.operands(&[("x", self.x), ("w", self.w), ("out", self.out)])?;
        check.threads(i64::from(self.length) * i64::from(self.channels / 8), self.bytes())
    }
}

params! {
    /// `gated_delta_rule`: the recurrence over the tokens of one segment.
    GatedDeltaRule {
        /// `[T, 2 * key_heads * key_dim + value_heads * value_dim]` bf16: all q, all k, all v.
        qkv: u64,
        /// `[T, 2 * value_heads]` bf16: b, then a.
        ba: u64,
        /// `[value_heads]` f32.
        a_log: u64,
        /// `[value_heads]` f32.
        dt_bias: u64,
        /// `[T, value_heads * value_dim]` bf16.
        out: u64,
        /// First token of the segment.
        first: i32,
        /// Tokens of the segment.
        length: i32,
        /// Heads of q and k; divides `value_heads`.
        key_heads: i32,
        /// Heads of v.
        value_heads: i32,
        /// Width of a head of q and k: 128.
        key_dim: i32,
        /// Width of a head of v, a multiple of 32.
        value_dim: i32,
        /// `1 / sqrt(key_dim)`, computed in f64 and rounded.
        scale: f32,
    }
}

impl GatedDeltaRule {
    /// The launch.
    ///
    /// # Errors
    /// [`LaunchError`] for sizes and addresses outside the fields' descriptions.
    pub fn launch(&self) -> Result<Launch, LaunchError> {
        let check = Check("gated_delta_rule");
        check.segment(self.first, self.length)?;
        check.positive("key_heads", self.key_heads)?;
        check.multiple("value_heads", self.value_heads, self.key_heads, "a multiple of key_heads")?;
        check.size(self.key_dim == 128, "key_dim", self.key_dim, "128")?;
        check.multiple("value_dim", self.value_dim, 32, "a multiple of 32")?;
        check.operands(&[("qkv", self.qkv), ("ba", self.ba), ("out", self.out)])?;
        check.operands(&[("a_log", self.a_log), ("dt_bias", self.dt_bias)])?;
        let columns = i64::from(self.value_dim / 32);
        check.launch([columns, i64::from(self.value_heads), 1], 128, self.bytes())
    }
}

params! {
    /// `gated_norm`: RMS norm of each head, times silu of the gate.
    GatedNorm {
        /// `[tokens, heads * dim]` bf16.
        x: u64,
        /// `[tokens, heads * dim]` bf16.
        z: u64,
        /// `[dim]` bf16.
        weight: u64,
        /// `[tokens, heads * dim]` bf16.
        out: u64,
        /// Rows.
        tokens: i32,
        /// Heads.
        heads: i32,
        /// Width of a head, a multiple of 16, at most 256.
        dim: i32,
        /// Added to the mean square.
        eps: f32,
    }
}

impl GatedNorm {
    /// The launch.
    ///
    /// # Errors
    /// [`LaunchError`] for sizes and addresses outside the fields' descriptions.
    pub fn launch(&self) -> Result<Launch, LaunchError> {
        let check = Check("gated_norm");
        check.positive("tokens", self.tokens)?;
        check.positive("heads", self.heads)?;
        check.sixteens("dim", self.dim, 256, "a multiple of 16, at most 256")?;
        check.operands(&[("x", self.x), ("z", self.z), ("weight", self.weight), ("out", self.out)])?;
        check.waves(self.tokens, self.heads, self.bytes())
    }
}
