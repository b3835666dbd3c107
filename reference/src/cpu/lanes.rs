//! What the kernels over rows share: vectors at the end of a slice, and the tree256 sum.

use half::bf16;
use rayon::prelude::*;

use crate::simd::{Simd, simd_kernel};

/// The next vector of `x`; past its end, zeros.
#[inline(always)]
pub(super) fn load<S: Simd>(s: S, x: &[f32]) -> S::F {
    if x.len() >= S::LANES { s.load(x) } else { s.load_part(x) }
}

/// The next vector of `x`, widened; past its end, zeros.
#[inline(always)]
pub(super) fn load_bf16<S: Simd>(s: S, x: &[bf16]) -> S::F {
    if x.len() >= S::LANES { s.load_bf16(x) } else { s.load_bf16_part(x) }
}

/// Writes a vector, or as much of it as there is room for.
#[inline(always)]
pub(super) fn store<S: Simd>(s: S, v: S::F, to: &mut [f32]) {
    if to.len() >= S::LANES { s.store(v, to) } else { s.store_part(v, to) }
}

/// Writes a vector rounded to bf16, or as much of it as there is room for.
#[inline(always)]
pub(super) fn store_bf16<S: Simd>(s: S, v: S::F, to: &mut [bf16]) {
    if to.len() >= S::LANES { s.store_bf16(v, to) } else { s.store_bf16_part(v, to) }
}

/// bf16 to f32.
#[inline(always)]
pub(super) fn widen<S: Simd>(s: S, x: &[bf16], to: &mut [f32]) {
    assert_eq!(x.len(), to.len());
    for (x, to) in x.chunks(S::LANES).zip(to.chunks_mut(S::LANES)) {
        store(s, load_bf16(s, x), to);
    }
}

simd_kernel! {
    /// f32 to bf16.
    pub(super) fn narrow<S>(s: S, from: &[f32], to: &mut [bf16]) {
        for (from, to) in from.chunks(S::LANES).zip(to.chunks_mut(S::LANES)) {
            store_bf16(s, load(s, from), to);
        }
    }
}

/// Tree256 of `x * x`.
#[inline(always)]
pub(super) fn sum_of_squares<S: Simd>(s: S, x: &[f32]) -> f32 {
    let mut partial = [0f32; 256];
    for first in (0..x.len().min(256)).step_by(S::LANES) {
        let mut acc = s.splat(0.0);
        for at in (first..x.len()).step_by(256) {
            // Zeros past the end add +0 to sums that are not negative.
            let x = load(s, &x[at..]);
            acc = s.fma(x, x, acc);
        }
        s.store(acc, &mut partial[first..]);
    }
    add_pairs(&mut partial, x.len())
}

/// The sum of 256 partial sums of which only the first `n` can differ from `+0`, adjacent pairs first.
#[inline(always)]
pub(super) fn add_pairs(partial: &mut [f32; 256], n: usize) -> f32 {
    // Partial sums start at +0, so none is -0, and adding the +0 of absent ones changes nothing.
    let mut len = n.next_power_of_two().min(256);
    while len > 1 {
        len /= 2;
        for j in 0..len {
            partial[j] = partial[2 * j] + partial[2 * j + 1];
        }
    }
    partial[0]
}

/// Rows of `width` elements that are worth a task of their own.
pub(super) fn rows_per_task(width: usize) -> usize {
    (16_384 / width).max(1)
}

/// `[head][T][dim]` to `[T, heads * dim]`, each run of a head through `convert`.
pub(super) fn from_heads<T: Copy + Default + Send>(
    by_head: &[f32],
    heads: usize,
    dim: usize,
    convert: impl Fn(&[f32], &mut [T]) + Sync,
) -> Vec<T> {
    let tokens = by_head.len() / (heads * dim);
    let mut out = vec![T::default(); by_head.len()];
    out.par_chunks_mut(heads * dim).enumerate().with_min_len(16).for_each(|(t, row)| {
        for (head, to) in row.chunks_exact_mut(dim).enumerate() {
            convert(&by_head[(head * tokens + t) * dim..][..dim], to);
        }
    });
    out
}
