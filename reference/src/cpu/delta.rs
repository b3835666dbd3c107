//! The gated delta rule with value columns in SIMD lanes.
//!
//! Columns do not depend on each other, so a group of them runs through all tokens of a segment while its part of
//! the state, `[K][W]`, stays in the first cache. Per token the state is read twice: once for `k^ S`, once to
//! update it and for `q^ S`; the decay is applied, with the same rounding, each time.

use half::bf16;
use rayon::prelude::*;

use super::lanes::{from_heads, load_bf16, narrow, store, sum_of_squares, widen};
use super::{CpuBackend, CpuTensor};
use crate::backend::DeltaHeads;
use crate::backend::shapes;
use crate::simd::math::scalar::{exp, sigmoid, softplus};
use crate::simd::{Simd, simd_kernel};

/// Vectors of columns in a group.
const VECTORS: usize = 2;

/// The operands of a call.
#[derive(Clone, Copy)]
struct Delta<'a> {
    /// `[T, 2 * key_heads * K + value_heads * V]`.
    qkv: &'a [bf16],
    /// `[T, 2 * value_heads]`.
    ba: &'a [bf16],
    /// `[value_heads]`.
    a_log: &'a [f32],
    dt_bias: &'a [f32],
    heads: DeltaHeads,
}

/// [`Backend::gated_delta_rule`](crate::backend::Backend::gated_delta_rule).
pub fn gated_delta_rule(
    backend: &CpuBackend,
    qkv: &CpuTensor,
    ba: &CpuTensor,
    a_log: &CpuTensor,
    dt_bias: &CpuTensor,
    heads: DeltaHeads,
    segments: &[usize],
) -> CpuTensor {
    let tokens = shapes::gated_delta_rule(qkv, ba, a_log, dt_bias, heads, segments);
    let (qkv, ba, a_log, dt_bias) = (qkv.bf16(), ba.bf16(), a_log.f32(), dt_bias.f32());
    let call = Delta { qkv, ba, a_log, dt_bias, heads };
    let DeltaHeads { value_heads, value_dim, .. } = heads;
    // [head][T][V], each task's part in one piece.
    let mut by_head = vec![0f32; value_heads * tokens * value_dim];
    let mut tasks = Vec::new();
    let mut rest = &mut by_head[..];
    for head in 0..value_heads {
        let mut start = 0;
        for &len in segments {
            let (mine, others) = rest.split_at_mut(len * value_dim);
            rest = others;
            tasks.push((head, start, mine));
            start += len;
        }
    }
    backend.run(|| {
        tasks.into_par_iter().for_each(|(head, start, out)| run_head(backend.isa(), call, head, start, out));
    });
    let narrow = |from: &[f32], to: &mut [bf16]| narrow(backend.isa(), from, to);
    let out = backend.run(|| from_heads(&by_head, value_heads, value_dim, narrow));
    CpuTensor::from_bf16(out, &[tokens, value_heads * value_dim])
}

/// What one token brings to one head.
struct Gates {
    beta: f32,
    decay: f32,
}

/// `x * (1 / sqrt(tree256(x * x) + 1e-6))`, in place.
#[inline(always)]
fn l2_normalise<S: Simd>(s: S, x: &mut [f32]) {
    let r = 1.0 / (sum_of_squares(s, x) + 1e-6).sqrt();
    x.iter_mut().for_each(|x| *x *= r);
}

simd_kernel! {
    /// One segment, from token `start`, of one value head; `out` `[tokens][V]`.
    fn run_head<S>(s: S, call: Delta<'_>, head: usize, start: usize, out: &mut [f32]) {
        let DeltaHeads { key_heads, value_heads, key_dim, value_dim } = call.heads;
        let width = 2 * key_heads * key_dim + value_heads * value_dim;
        let tokens = out.len() / value_dim;
        let key_head = head / (value_heads / key_heads);
        let c = (1.0 / (key_dim as f64).sqrt()) as f32;
        let (mut q, mut k) = (vec![0f32; tokens * key_dim], vec![0f32; tokens * key_dim]);
        let mut gates = Vec::with_capacity(tokens);
        for t in 0..tokens {
            let row = &call.qkv[(start + t) * width..][..width];
            let (q, k) = (&mut q[t * key_dim..][..key_dim], &mut k[t * key_dim..][..key_dim]);
            widen(s, &row[key_head * key_dim..][..key_dim], q);
            widen(s, &row[(key_heads + key_head) * key_dim..][..key_dim], k);
            l2_normalise(s, q);
            q.iter_mut().for_each(|q| *q *= c);
            l2_normalise(s, k);
            let ba = &call.ba[(start + t) * 2 * value_heads..][..2 * value_heads];
            let (b, a) = (ba[head].to_f32(), ba[value_heads + head].to_f32());
            let g = -exp(call.a_log[head]) * softplus(a + call.dt_bias[head]);
            gates.push(Gates { beta: bf16::from_f32(sigmoid(b)).to_f32(), decay: exp(g) });
        }
        let mut state = vec![0f32; key_dim * VECTORS * S::LANES];
        for first in (0..value_dim).step_by(VECTORS * S::LANES) {
            state.fill(0.0);
            let columns = (VECTORS * S::LANES).min(value_dim - first);
            for (t, gates) in gates.iter().enumerate() {
                let v = (start + t) * width + 2 * key_heads * key_dim + head * value_dim + first;
                let v = &call.qkv[v..][..columns];
                let (q, k) = (&q[t * key_dim..][..key_dim], &k[t * key_dim..][..key_dim]);
                let o = &mut out[t * value_dim + first..][..columns];
                step(s, q, k, v, gates, &mut state, o);
            }
        }
    }
}

/// The part of a vector that a slice of columns has.
#[inline(always)]
fn part(columns: usize, first: usize, lanes: usize) -> std::ops::Range<usize> {
    first.min(columns)..(first + lanes).min(columns)
}

/// One token for a group of columns; absent columns have `v` = 0 and stay zero.
#[inline(always)]
fn step<S: Simd>(s: S, q: &[f32], k: &[f32], v: &[bf16], gates: &Gates, state: &mut [f32], o: &mut [f32]) {
    let w = VECTORS * S::LANES;
    let quarter = k.len() / 4;
    let decay = s.splat(gates.decay);
    let mut acc = [[s.splat(0.0); VECTORS]; 4];
    for i in 0..quarter {
        for chain in 0..4 {
            let at = chain * quarter + i;
            let (k, row) = (s.splat(k[at]), &state[at * w..][..w]);
            for n in 0..VECTORS {
                let decayed = s.mul(s.load(&row[n * S::LANES..]), decay);
                acc[chain][n] = s.fma(k, decayed, acc[chain][n]);
            }
        }
    }
    let mut delta = [s.splat(0.0); VECTORS];
    for n in 0..VECTORS {
        let v = load_bf16(s, &v[part(v.len(), n * S::LANES, S::LANES)]);
        let dot = s.add(s.add(acc[0][n], acc[1][n]), s.add(acc[2][n], acc[3][n]));
        delta[n] = s.mul(s.sub(v, dot), s.splat(gates.beta));
    }
    let mut acc = [[s.splat(0.0); VECTORS]; 4];
    for i in 0..quarter {
        for chain in 0..4 {
            let at = chain * quarter + i;
            let (k, q, row) = (s.splat(k[at]), s.splat(q[at]), &mut state[at * w..][..w]);
            for n in 0..VECTORS {
                let decayed = s.mul(s.load(&row[n * S::LANES..]), decay);
                let updated = s.fma(k, delta[n], decayed);
                s.store(updated, &mut row[n * S::LANES..]);
                acc[chain][n] = s.fma(q, updated, acc[chain][n]);
            }
        }
    }
    for n in 0..VECTORS {
        let dot = s.add(s.add(acc[0][n], acc[1][n]), s.add(acc[2][n], acc[3][n]));
        let range = part(o.len(), n * S::LANES, S::LANES);
        store(s, s.round_bf16(dot), &mut o[range]);
    }
}
