//! RMS norms, each a row at a time.

use half::bf16;
use rayon::prelude::*;

use super::lanes::{load, load_bf16, rows_per_task, store, store_bf16, sum_of_squares, widen};
use super::{CpuBackend, CpuTensor};
use crate::backend::shapes;
use crate::backend::{Heads, Modulation, Norm, NormKind, Tensor};
use crate::simd::math::silu;
use crate::simd::{Simd, simd_kernel};

/// `1 / sqrt(sum / n + eps)`.
fn rms_factor(sum: f32, n: usize, eps: f32) -> f32 {
    1.0 / (sum / n as f32 + eps).sqrt()
}

/// One vector of a norm's output.
#[inline(always)]
fn weighted<S: Simd>(s: S, x: S::F, r: S::F, w: S::F, kind: NormKind) -> S::F {
    s.round_bf16(match kind {
        NormKind::Plain => s.mul(s.round_bf16(s.mul(x, r)), w),
        NormKind::ZeroCentred => s.mul(s.mul(x, r), s.add(s.splat(1.0), w)),
    })
}

/// [`Backend::norm`](crate::backend::Backend::norm).
pub fn norm(
    backend: &CpuBackend,
    x: &CpuTensor,
    norm: Norm<'_, CpuTensor>,
    modulation: Option<Modulation<'_, CpuTensor>>,
) -> CpuTensor {
    let (tokens, width) = shapes::norm(x, &norm, modulation.as_ref());
    let Norm { weight, eps, kind } = norm;
    let modulation = modulation.map(|m| (m.scale.bf16(), m.shift.bf16()));
    let task = rows_per_task(width) * width;
    let mut out = vec![bf16::ZERO; tokens * width];
    backend.run(|| {
        out.par_chunks_mut(task).zip(x.bf16().par_chunks(task)).for_each(|(out, x)| {
            norm_rows(backend.isa(), x, weight.bf16(), eps, kind, modulation, out);
        });
    });
    CpuTensor::from_bf16(out, x.shape())
}

simd_kernel! {
    fn norm_rows<S>(
        s: S,
        x: &[bf16],
        weight: &[bf16],
        eps: f32,
        kind: NormKind,
        modulation: Option<(&[bf16], &[bf16])>,
        out: &mut [bf16],
    ) {
        let width = weight.len();
        let mut row = vec![0f32; width];
        for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
            widen(s, x, &mut row);
            let r = s.splat(rms_factor(sum_of_squares(s, &row), width, eps));
            for i in (0..width).step_by(S::LANES) {
                let mut y = weighted(s, load(s, &row[i..]), r, load_bf16(s, &weight[i..]), kind);
                if let Some((scale, shift)) = modulation {
                    let factor = s.round_bf16(s.add(s.splat(1.0), load_bf16(s, &scale[i..])));
                    y = s.add(s.round_bf16(s.mul(y, factor)), load_bf16(s, &shift[i..]));
                }
                store_bf16(s, y, &mut out[i..]);
            }
        }
    }
}

/// What [`head_norm_rope`] needs beside `x`.
#[derive(Clone, Copy)]
struct HeadNormRope<'a> {
    /// Columns of `x`.
    width: usize,
    heads: Heads,
    /// `[h]`.
    weight: &'a [bf16],
    eps: f32,
    kind: NormKind,
    /// `[T, R]`.
    cos: &'a [bf16],
    sin: &'a [bf16],
    rotary: usize,
}

/// [`Backend::head_norm_rope`](crate::backend::Backend::head_norm_rope).
pub fn head_norm_rope(
    backend: &CpuBackend,
    x: &CpuTensor,
    heads: Heads,
    norm: Norm<'_, CpuTensor>,
    rope: (&CpuTensor, &CpuTensor),
) -> CpuTensor {
    let (tokens, rotary) = shapes::head_norm_rope(x, heads, &norm, rope);
    let Norm { weight, eps, kind } = norm;
    let (weight, cos, sin) = (weight.bf16(), rope.0.bf16(), rope.1.bf16());
    let call = HeadNormRope { width: x.shape()[1], heads, weight, eps, kind, cos, sin, rotary };
    let packed = heads.count * heads.dim;
    let rows = rows_per_task(packed);
    let mut out = vec![bf16::ZERO; tokens * packed];
    backend.run(|| {
        out.par_chunks_mut(rows * packed).enumerate().for_each(|(task, out)| {
            head_norm_rope_rows(backend.isa(), x.bf16(), call, task * rows, out);
        });
    });
    CpuTensor::from_bf16(out, &[tokens, packed])
}

simd_kernel! {
    fn head_norm_rope_rows<S>(s: S, x: &[bf16], call: HeadNormRope<'_>, first_token: usize, out: &mut [bf16]) {
        let Heads { first, step, count, dim } = call.heads;
        let rotary = call.rotary;
        let mut y = vec![0f32; dim];
        for (t, out) in (first_token..).zip(out.chunks_exact_mut(count * dim)) {
            let (cos, sin) = (&call.cos[t * rotary..][..rotary], &call.sin[t * rotary..][..rotary]);
            for (i, out) in out.chunks_exact_mut(dim).enumerate() {
                widen(s, &x[t * call.width + first + i * step..][..dim], &mut y);
                let r = s.splat(rms_factor(sum_of_squares(s, &y), dim, call.eps));
                for j in (0..dim).step_by(S::LANES) {
                    let w = load_bf16(s, &call.weight[j..]);
                    let normed = weighted(s, load(s, &y[j..]), r, w, call.kind);
                    store(s, normed, &mut y[j..]);
                }
                let (low, high) = y.split_at_mut(rotary);
                for j in (0..rotary).step_by(S::LANES) {
                    let end = rotary.min(j + S::LANES);
                    let (a, b) = (load(s, &low[j..end]), load(s, &high[j..end]));
                    let (cos, sin) = (load_bf16(s, &cos[j..]), load_bf16(s, &sin[j..]));
                    let product = |x, y| s.round_bf16(s.mul(x, y));
                    let turned_a = s.add(product(a, cos), product(s.neg(b), sin));
                    let turned_b = s.add(product(b, cos), product(a, sin));
                    store(s, s.round_bf16(turned_a), &mut low[j..end]);
                    store(s, s.round_bf16(turned_b), &mut high[j..end]);
                }
                for j in (0..dim).step_by(S::LANES) {
                    store_bf16(s, load(s, &y[j..]), &mut out[j..]);
                }
            }
        }
    }
}

/// [`Backend::gated_norm`](crate::backend::Backend::gated_norm).
pub fn gated_norm(
    backend: &CpuBackend,
    x: &CpuTensor,
    z: &CpuTensor,
    weight: &CpuTensor,
    eps: f32,
) -> CpuTensor {
    let (.., dim) = shapes::gated_norm(x, z, weight);
    let task = rows_per_task(dim) * dim;
    let mut out = vec![bf16::ZERO; x.bf16().len()];
    backend.run(|| {
        let inputs = x.bf16().par_chunks(task).zip(z.bf16().par_chunks(task));
        out.par_chunks_mut(task).zip(inputs).for_each(|(out, (x, z))| {
            gated_norm_heads(backend.isa(), x, z, weight.bf16(), eps, out);
        });
    });
    CpuTensor::from_bf16(out, x.shape())
}

simd_kernel! {
    fn gated_norm_heads<S>(s: S, x: &[bf16], z: &[bf16], weight: &[bf16], eps: f32, out: &mut [bf16]) {
        let dim = weight.len();
        let mut row = vec![0f32; dim];
        let heads = x.chunks_exact(dim).zip(z.chunks_exact(dim));
        for ((x, z), out) in heads.zip(out.chunks_exact_mut(dim)) {
            widen(s, x, &mut row);
            let r = s.splat(rms_factor(sum_of_squares(s, &row), dim, eps));
            for i in (0..dim).step_by(S::LANES) {
                let y = s.round_bf16(s.mul(load(s, &row[i..]), r));
                let y = s.round_bf16(s.mul(load_bf16(s, &weight[i..]), y));
                store_bf16(s, s.mul(y, silu(s, load_bf16(s, &z[i..]))), &mut out[i..]);
            }
        }
    }
}
