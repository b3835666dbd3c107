//! Operations that take each element, or few neighbours, by itself.

use half::bf16;
use rayon::prelude::*;

use super::lanes::{load, load_bf16, rows_per_task, store_bf16};
use super::{CpuBackend, CpuTensor};
use crate::backend::shapes;
use crate::backend::{Heads, Tensor};
use crate::simd::math::{sigmoid, silu};
use crate::simd::simd_kernel;

/// [`Backend::sigmoid_gate`](crate::backend::Backend::sigmoid_gate).
pub fn sigmoid_gate(backend: &CpuBackend, x: &CpuTensor, gate: &CpuTensor, heads: Heads) -> CpuTensor {
    let tokens = shapes::sigmoid_gate(x, gate, heads);
    let (packed, width) = (heads.count * heads.dim, gate.shape()[1]);
    let rows = rows_per_task(packed);
    let mut out = vec![bf16::ZERO; tokens * packed];
    backend.run(|| {
        let inputs = x.bf16().par_chunks(rows * packed).zip(gate.bf16().par_chunks(rows * width));
        out.par_chunks_mut(rows * packed).zip(inputs).for_each(|(out, (x, gate))| {
            sigmoid_gate_rows(backend.isa(), x, gate, width, heads, out);
        });
    });
    CpuTensor::from_bf16(out, x.shape())
}

simd_kernel! {
    fn sigmoid_gate_rows<S>(s: S, x: &[bf16], gate: &[bf16], width: usize, heads: Heads, out: &mut [bf16]) {
        let Heads { first, step, count, dim } = heads;
        for (head, (x, out)) in x.chunks_exact(dim).zip(out.chunks_exact_mut(dim)).enumerate() {
            let gate = &gate[head / count * width + first + head % count * step..][..dim];
            for i in (0..dim).step_by(S::LANES) {
                let g = s.round_bf16(sigmoid(s, load_bf16(s, &gate[i..])));
                store_bf16(s, s.mul(load_bf16(s, &x[i..]), g), &mut out[i..]);
            }
        }
    }
}

/// [`Backend::causal_conv_silu`](crate::backend::Backend::causal_conv_silu).
pub fn causal_conv_silu(backend: &CpuBackend, x: &CpuTensor, w: &CpuTensor, segments: &[usize]) -> CpuTensor {
    let (tokens, channels, width) = shapes::causal_conv_silu(x, w, segments);
    // Tap by tap, so that channels lie in lanes.
    let w = w.bf16();
    let taps: Vec<f32> =
        (0..width * channels).map(|i| w[i % channels * width + i / channels].to_f32()).collect();
    let mut starts = Vec::with_capacity(tokens);
    for &len in segments {
        starts.extend(std::iter::repeat_n(starts.len(), len));
    }
    let rows = rows_per_task(channels);
    let mut out = vec![bf16::ZERO; tokens * channels];
    backend.run(|| {
        out.par_chunks_mut(rows * channels).enumerate().for_each(|(task, out)| {
            causal_conv_rows(backend.isa(), x.bf16(), &taps, channels, &starts, task * rows, out);
        });
    });
    CpuTensor::from_bf16(out, x.shape())
}

simd_kernel! {
    /// `starts` `[T]`: the first token of each token's segment.
    fn causal_conv_rows<S>(
        s: S,
        x: &[bf16],
        taps: &[f32],
        channels: usize,
        starts: &[usize],
        first_token: usize,
        out: &mut [bf16],
    ) {
        let width = taps.len() / channels;
        for (t, out) in (first_token..).zip(out.chunks_exact_mut(channels)) {
            // Taps that reach before the segment are left out.
            let first = (width - 1).saturating_sub(t - starts[t]);
            for c in (0..channels).step_by(S::LANES) {
                let mut acc = s.splat(0.0);
                for j in first..width {
                    let x = &x[(t + j + 1 - width) * channels..][..channels];
                    acc = s.fma(load(s, &taps[j * channels..][c..channels]), load_bf16(s, &x[c..]), acc);
                }
                store_bf16(s, silu(s, s.round_bf16(acc)), &mut out[c..]);
            }
        }
    }
}

/// [`Backend::euler_step`](crate::backend::Backend::euler_step). Latents are small: one thread is enough.
pub fn euler_step(
    x: &CpuTensor,
    v_cond: &CpuTensor,
    v_uncond: Option<&CpuTensor>,
    cfg: f32,
    dt: f32,
) -> CpuTensor {
    shapes::euler_step(x, v_cond, v_uncond);
    let (v_cond, v_uncond) = (v_cond.bf16(), v_uncond.map(CpuTensor::bf16));
    let velocity = |i: usize| {
        let c = v_cond[i].to_f32();
        v_uncond.map_or(c, |u| {
            let u = u[i].to_f32();
            u + cfg * (c - u)
        })
    };
    let out = x.f32().iter().enumerate().map(|(i, x)| x + dt * velocity(i)).collect();
    CpuTensor::from_f32(out, x.shape())
}

/// [`Backend::unpack_latents`](crate::backend::Backend::unpack_latents), on one thread alike.
pub fn unpack_latents(x: &CpuTensor, mean: &CpuTensor, var: &CpuTensor, eps: f32, width: usize) -> CpuTensor {
    let (height, channels) = shapes::unpack_latents(x, mean, var, width);
    let (x, mean) = (x.f32(), mean.f32());
    let std: Vec<f32> = var.f32().iter().map(|var| (var + eps).sqrt()).collect();
    let mut out = vec![0f32; x.len()];
    for (pixel, out) in out.chunks_exact_mut(channels).enumerate() {
        let (y, px) = (pixel / (2 * width), pixel % (2 * width));
        let token = &x[(y / 2 * width + px / 2) * 4 * channels..][..4 * channels];
        for (c, out) in out.iter_mut().enumerate() {
            let packed = c * 4 + y % 2 * 2 + px % 2;
            *out = token[packed] * std[packed] + mean[packed];
        }
    }
    CpuTensor::from_f32(out, &[2 * height, 2 * width, channels])
}
