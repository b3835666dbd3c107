//! Group norm: two passes over slices of the picture.

use rayon::prelude::*;

use super::lanes::add_pairs;
use super::{CpuBackend, CpuTensor};
use crate::backend::shapes;
use crate::backend::{GROUP_NORM_SLICE, GroupNorm};
use crate::simd::{Isa, simd_kernel};

/// Pixels that are gathered at a time: any number of channels then fills whole rows of 256 partial sums.
const PIXELS: usize = 256;

/// [`Backend::group_norm`](crate::backend::Backend::group_norm).
pub fn group_norm(backend: &CpuBackend, x: &CpuTensor, norm: GroupNorm<'_, CpuTensor>) -> CpuTensor {
    let (pixels, channels) = shapes::group_norm(x, &norm);
    let GroupNorm { groups, weight, bias, eps } = norm;
    let width = channels / groups;
    let n = (pixels * width) as f32;
    let sums = |means: Option<&[f32]>| backend.run(|| sums(backend.isa(), x.f32(), channels, groups, means));
    let means: Vec<f32> = sums(None).iter().map(|sum| sum / n).collect();
    let squares = sums(Some(&means));
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for (c, (weight, bias)) in weight.f32().iter().zip(bias.f32()).enumerate() {
        let r = 1.0 / (squares[c / width] / n + eps).sqrt();
        a.push(weight * r);
        b.push((-means[c / width]).mul_add(a[c], *bias));
    }
    CpuTensor::from_f32([a, b].concat(), &[2, channels])
}

/// The sum over each group of its elements or, with `means`, of `(x - mean) * (x - mean)`.
fn sums(isa: Isa, x: &[f32], channels: usize, groups: usize, means: Option<&[f32]>) -> Vec<f32> {
    let slices: Vec<Vec<f32>> = x
        .par_chunks(GROUP_NORM_SLICE * channels)
        .map(|slice| slice_sums(isa, slice, channels, groups, means))
        .collect();
    let over_slices = |group: usize| {
        let mut partial = [0f32; 256];
        for (i, slice) in slices.iter().enumerate() {
            partial[i % 256] += slice[group];
        }
        add_pairs(&mut partial, slices.len())
    };
    (0..groups).map(over_slices).collect()
}

simd_kernel! {
    /// [`sums`] of one slice.
    fn slice_sums<S>(s: S, x: &[f32], channels: usize, groups: usize, means: Option<&[f32]>) -> Vec<f32> {
        let width = channels / groups;
        let mut partial = vec![[0f32; 256]; groups];
        let mut gathered = vec![0f32; PIXELS * width];
        for x in x.chunks(PIXELS * channels) {
            let len = x.len() / groups;
            for (group, partial) in partial.iter_mut().enumerate() {
                let first = group * width;
                match width {
                    // The small decoder's widths, then the full decoder's.
                    3 => gather::<3>(x, channels, first, &mut gathered),
                    6 => gather::<6>(x, channels, first, &mut gathered),
                    12 => gather::<12>(x, channels, first, &mut gathered),
                    4 => gather::<4>(x, channels, first, &mut gathered),
                    8 => gather::<8>(x, channels, first, &mut gathered),
                    16 => gather::<16>(x, channels, first, &mut gathered),
                    _ => gather_any(x, channels, first, width, &mut gathered),
                }
                let mean = means.map_or(0.0, |means| means[group]);
                // Past the end are means, and so terms of +0: no sum is -0, and adding those changes nothing.
                gathered[len..].fill(mean);
                let mean = s.splat(mean);
                for first in (0..len.min(256)).step_by(S::LANES) {
                    let mut acc = s.load(&partial[first..]);
                    for at in (first..len).step_by(256) {
                        let x = s.load(&gathered[at..]);
                        acc = if means.is_some() {
                            let centred = s.sub(x, mean);
                            s.fma(centred, centred, acc)
                        } else {
                            s.add(acc, x)
                        };
                    }
                    s.store(acc, &mut partial[first..]);
                }
            }
        }
        partial.iter_mut().map(|partial| add_pairs(partial, 256)).collect()
    }
}

/// Channels `first..first + W` of each pixel, side by side.
#[inline(always)]
fn gather<const W: usize>(x: &[f32], channels: usize, first: usize, to: &mut [f32]) {
    for (pixel, to) in x.chunks_exact(channels).zip(to.chunks_exact_mut(W)) {
        let from: &[f32; W] = pixel[first..first + W].try_into().expect("W channels");
        to.copy_from_slice(from);
    }
}

/// [`gather`] of any width.
#[inline(always)]
fn gather_any(x: &[f32], channels: usize, first: usize, width: usize, to: &mut [f32]) {
    for (pixel, to) in x.chunks_exact(channels).zip(to.chunks_exact_mut(width)) {
        to.copy_from_slice(&pixel[first..first + width]);
    }
}
