//! Softmax attention.

use super::launch::{Check, Launch, LaunchError, ceil, params};
use super::{MAX_F32_FMA, MAX_MATRIX_FMA};

params! {
    /// `attention_128`, `attention_256` (bf16) and `attention_f32`: attention within one segment, for a range of its queries.
    Attention {
        /// `[T, q_heads * dim]`.
        q: u64,
        /// `[T, kv_heads * dim]`.
        k: u64,
        /// `[T, v_stride]`, heads at columns `v_first + i * v_step`, multiples of 8.
        v: u64,
        /// `[T, q_heads * dim]`.
        out: u64,
        /// First token of the segment.
        first: i32,
        /// Tokens of the segment.
        length: i32,
        /// First query, counted in the segment, a multiple of 64.
        query_first: i32,
        /// Queries.
        query_count: i32,
        /// Query heads.
        q_heads: i32,
        /// Key and value heads; divides `q_heads`.
        kv_heads: i32,
        /// Width of a head: 128 or 256 for bf16; a multiple of 16, at most 512, for f32.
        dim: i32,
        /// Elements of a row of `v`.
        v_stride: i32,
        /// Column of value head 0.
        v_first: i32,
        /// Columns from one value head to the next.
        v_step: i32,
        /// 1: a query sees the keys up to its own.
        causal: i32,
        /// `scale * log2(e)`, computed in f64 and rounded.
        scale: f32,
    }
}

impl Attention {
    /// The launches for bf16 operands; `query_first` and `query_count` are set here.
    ///
    /// # Errors
    /// [`LaunchError`] for sizes and addresses outside the fields' descriptions.
    pub fn launches_bf16(&self) -> Result<Vec<Launch>, LaunchError> {
        let kernel = if self.dim == 128 { "attention_128" } else { "attention_256" };
        let check = Check(kernel);
        check.size(matches!(self.dim, 128 | 256), "dim", self.dim, "128 or 256")?;
        self.ranges(&check, 8, MAX_MATRIX_FMA, (64, 128))
    }

    /// The launches for f32 operands; `query_first` and `query_count` are set here.
    ///
    /// # Errors
    /// [`LaunchError`] for sizes and addresses outside the fields' descriptions.
    pub fn launches_f32(&self) -> Result<Vec<Launch>, LaunchError> {
        let check = Check("attention_f32");
        check.sixteens("dim", self.dim, 512, "a multiple of 16, at most 512")?;
        self.ranges(&check, 4, MAX_F32_FMA, (32, 256))
    }

    /// Launches of at most `limit` multiply-adds; a tile has `rows` queries and `threads` threads.
    fn ranges(
        &self,
        check: &Check,
        align: i32,
        limit: i64,
        (rows, threads): (i32, u32),
    ) -> Result<Vec<Launch>, LaunchError> {
        check.operands(&[("q", self.q), ("k", self.k), ("v", self.v), ("out", self.out)])?;
        check.segment(self.first, self.length)?;
        check.positive("kv_heads", self.kv_heads)?;
        check.multiple("q_heads", self.q_heads, self.kv_heads, "a multiple of kv_heads")?;
        let aligned = |x: i32| x >= 0 && x % align == 0;
        check.size(aligned(self.v_first), "v_first", self.v_first, "a multiple of 16 bytes")?;
        check.size(aligned(self.v_step), "v_step", self.v_step, "a multiple of 16 bytes")?;
        let last = i64::from(self.v_first) + i64::from(self.v_step) * i64::from(self.kv_heads - 1);
        let fits = aligned(self.v_stride) && last + i64::from(self.dim) <= i64::from(self.v_stride);
        check.size(fits, "v_stride", self.v_stride, "a multiple of 16 bytes that holds all heads")?;

        let fma = 2 * i64::from(self.length) * i64::from(self.dim) * i64::from(self.q_heads);
        let step = (limit / fma / 64 * 64).clamp(64, 1 << 20) as i32;
        (0..self.length)
            .step_by(step as usize)
            .map(|query_first| {
                let query_count = step.min(self.length - query_first);
                let part = Self { query_first, query_count, ..*self };
                check.launch([ceil(query_count, rows), i64::from(self.q_heads), 1], threads, part.bytes())
            })
            .collect()
    }
}
