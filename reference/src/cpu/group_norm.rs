//! Group norm: two passes over slices of the picture.

use rayon::prelude::*;

use super::lanes::{add_pairs, load};
use super::simd::{Path, simd_kernel};
use super::{CpuBackend, CpuTensor};
use crate::backend::GROUP_NORM_SLICE;
use crate::shapes;

/// Pixels that are gathered at a time: any number of channels then fills whole rows of 256 partial sums.
const PIXELS: usize = 256;

/// [`Backend::group_norm`](crate::backend::Backend::group_norm).
pub fn group_norm(
    backend: &CpuBackend,
    x: &CpuTensor,
    groups: usize,
    weight: &CpuTensor,
    bias: &CpuTensor,
    eps: f32,
) -> CpuTensor {
    let (pixels, channels) = shapes::group_norm(x, groups, weight, bias);
    let width = channels / groups;
    let n = (pixels * width) as f32;
    let sums = |means: Option<&[f32]>| backend.run(|| sums(backend.path(), x.f32(), channels, groups, means));
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
fn sums(path: Path, x: &[f32], channels: usize, groups: usize, means: Option<&[f32]>) -> Vec<f32> {
    let slices: Vec<Vec<f32>> = x
        .par_chunks(GROUP_NORM_SLICE * channels)
        .map(|slice| slice_sums(path, slice, channels, groups, means))
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
                for (pixel, to) in x.chunks_exact(channels).zip(gathered.chunks_exact_mut(width)) {
                    to.copy_from_slice(&pixel[group * width..][..width]);
                }
                let gathered = &mut gathered[..len];
                if let Some(means) = means {
                    gathered.iter_mut().for_each(|x| *x -= means[group]);
                }
                for first in (0..len.min(256)).step_by(S::LANES) {
                    let mut acc = s.load(&partial[first..]);
                    for at in (first..len).step_by(256) {
                        // Past the end are zeros; no sum is -0, so adding them changes nothing.
                        let x = load(s, &gathered[at..]);
                        acc = if means.is_some() { s.fma(x, x, acc) } else { s.add(acc, x) };
                    }
                    s.store(acc, &mut partial[first..]);
                }
            }
        }
        partial.iter_mut().map(|partial| add_pairs(partial, 256)).collect()
    }
}
