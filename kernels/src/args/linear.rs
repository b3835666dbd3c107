//! Matrix products of bf16 activations and packed weights.

use super::launch::{Check, Launch, LaunchError, ceil, params};
use super::{MAX_MATRIX_FMA, epilogue, glu};

/// Rows (tokens) and columns of a workgroup's tile.
const TILE: i32 = 64;
/// Threads of a workgroup.
const THREADS: u32 = 128;

params! {
    /// `linear`: `x W^T + b`, then an epilogue.
    Linear {
        /// `[tokens, k]` bf16.
        x: u64,
        /// `[n, k]` bf16, packed by [`crate::pack::Panels::matrix`].
        w: u64,
        /// `[n]` bf16, or 0.
        bias: u64,
        /// `[tokens, n]` bf16 for the epilogues with a residual, else 0; may be `out`.
        residual: u64,
        /// `[n]` bf16 for [`epilogue::GATED_RESIDUAL`], else 0.
        gate: u64,
        /// `[tokens, n]` bf16.
        out: u64,
        /// Rows of `x`.
        tokens: i32,
        /// Columns of `x`, a multiple of 16.
        k: i32,
        /// Rows of `w`, any number.
        n: i32,
        /// One of [`epilogue`].
        epilogue: i32,
    }
}

impl Linear {
    /// The launches: several ranges of tokens when one would run for long.
    ///
    /// # Errors
    /// [`LaunchError`] for sizes and addresses outside the fields' descriptions.
    pub fn launches(&self) -> Result<Vec<Launch>, LaunchError> {
        let check = Check("linear");
        check.positive("tokens", self.tokens)?;
        check.multiple("k", self.k, 16, "a multiple of 16")?;
        check.positive("n", self.n)?;
        check.code("epilogue", self.epilogue, &epilogue::ALL)?;
        check.operands(&[("x", self.x), ("w", self.w), ("out", self.out)])?;
        check.optional(&[("bias", self.bias)])?;
        if self.epilogue >= epilogue::RESIDUAL {
            check.operands(&[("residual", self.residual)])?;
        }
        if self.epilogue == epilogue::GATED_RESIDUAL {
            check.operands(&[("gate", self.gate)])?;
        }
        token_ranges(self.tokens, self.k, self.n)
            .map(|(first, tokens)| {
                let (from, to) = (bytes(first, self.k), bytes(first, self.n));
                let residual = if self.residual == 0 { 0 } else { self.residual + to };
                let part = Self { x: self.x + from, residual, out: self.out + to, tokens, ..*self };
                check.launch([ceil(self.n, TILE), ceil(tokens, TILE), 1], THREADS, part.bytes())
            })
            .collect()
    }
}

params! {
    /// `linear_glu`: up and gate products, then the gated unit.
    LinearGlu {
        /// `[tokens, k]` bf16.
        x: u64,
        /// `[2f, k]` bf16, packed by [`crate::pack::Panels::up_gate`].
        w: u64,
        /// `[2f]` bf16, up then gate, or 0.
        bias: u64,
        /// `[tokens, f]` bf16.
        out: u64,
        /// Rows of `x`.
        tokens: i32,
        /// Columns of `x`, a multiple of 16.
        k: i32,
        /// Outputs, a multiple of 16.
        f: i32,
        /// One of [`glu`].
        glu: i32,
    }
}

impl LinearGlu {
    /// The launches: several ranges of tokens when one would run for long.
    ///
    /// # Errors
    /// [`LaunchError`] for sizes and addresses outside the fields' descriptions.
    pub fn launches(&self) -> Result<Vec<Launch>, LaunchError> {
        let check = Check("linear_glu");
        check.positive("tokens", self.tokens)?;
        check.multiple("k", self.k, 16, "a multiple of 16")?;
        check.multiple("f", self.f, 16, "a multiple of 16")?;
        check.size(self.f <= i32::MAX / 2, "f", self.f, "less than 2^30")?;
        check.code("glu", self.glu, &glu::ALL)?;
        check.operands(&[("x", self.x), ("w", self.w), ("out", self.out)])?;
        check.optional(&[("bias", self.bias)])?;
        token_ranges(self.tokens, self.k, 2 * self.f)
            .map(|(first, tokens)| {
                let (x, out) = (self.x + bytes(first, self.k), self.out + bytes(first, self.f));
                let part = Self { x, out, tokens, ..*self };
                check.launch([ceil(2 * self.f, TILE), ceil(tokens, TILE), 1], THREADS, part.bytes())
            })
            .collect()
    }
}

/// Bytes of `rows` rows of bf16.
fn bytes(rows: i32, width: i32) -> u64 {
    rows as u64 * width as u64 * 2
}

/// First token and number of tokens of each launch. Ranges start at multiples of 8 tiles: whatever `n` is, each starts at a
/// multiple of 16 bytes.
fn token_ranges(tokens: i32, k: i32, n: i32) -> impl Iterator<Item = (i32, i32)> {
    let rows = MAX_MATRIX_FMA / (i64::from(k) * i64::from(n));
    let step = (rows / 512 * 512).clamp(512, 65535 * i64::from(TILE) / 512 * 512) as i32;
    (0..tokens).step_by(step as usize).map(move |first| (first, step.min(tokens - first)))
}
