//! The f32 operations of the VAE.

use super::{OracleTensor, tree256};
use crate::backend::shapes;
use crate::backend::{Conv2d, GROUP_NORM_SLICE, GroupNorm};
use crate::simd::math::scalar::silu;

pub(super) fn unpack_latents(
    x: &OracleTensor,
    mean: &OracleTensor,
    var: &OracleTensor,
    eps: f32,
    width: usize,
) -> OracleTensor {
    let (height, channels) = shapes::unpack_latents(x, mean, var, width);
    let mut out = Vec::new();
    for y in 0..2 * height {
        for px in 0..2 * width {
            let (token, i, j) = (y / 2 * width + px / 2, y % 2, px % 2);
            for c in 0..channels {
                let packed = c * 4 + i * 2 + j;
                let std = (var.data[packed] + eps).sqrt();
                out.push(x.row(token)[packed] * std + mean.data[packed]);
            }
        }
    }
    OracleTensor::f32(&[2 * height, 2 * width, channels], out)
}

pub(super) fn conv2d(x: &OracleTensor, conv: Conv2d<'_, OracleTensor>) -> OracleTensor {
    let size = shapes::conv2d(x, &conv);
    let Conv2d { weight: w, bias, norm, upsample, residual } = conv;
    let scale = if upsample { 2 } else { 1 };
    let input = |y: usize, px: usize, c: usize| {
        let x = x.row(y / scale)[(px / scale) * size.inputs + c];
        match norm {
            None => x,
            Some((ab, false)) => x.mul_add(ab.row(0)[c], ab.row(1)[c]),
            Some((ab, true)) => silu(x.mul_add(ab.row(0)[c], ab.row(1)[c])),
        }
    };
    let pad = size.kernel / 2;
    let mut out = Vec::new();
    for y in 0..size.height {
        for px in 0..size.width {
            for co in 0..size.outputs {
                let mut acc = 0f32;
                for ky in 0..size.kernel {
                    for kx in 0..size.kernel {
                        // Pixel (y + ky - pad, px + kx - pad), when the picture has it.
                        let (iy, ix) = ((y + ky).wrapping_sub(pad), (px + kx).wrapping_sub(pad));
                        if iy >= size.height || ix >= size.width {
                            continue;
                        }
                        for ci in 0..size.inputs {
                            let w = w.row(co)[(ci * size.kernel + ky) * size.kernel + kx];
                            acc = input(iy, ix, ci).mul_add(w, acc);
                        }
                    }
                }
                let value = acc + bias.data[co];
                out.push(residual.map_or(value, |r| value + r.row(y)[px * size.outputs + co]));
            }
        }
    }
    OracleTensor::f32(&[size.height, size.width, size.outputs], out)
}

/// The sum of a group's `a * b`: tree256 over slices of the slice's own tree256.
fn sliced_sum(a: &[f32], b: &[f32], slice: usize) -> f32 {
    let sums: Vec<f32> = a.chunks(slice).zip(b.chunks(slice)).map(|(a, b)| tree256(a, b)).collect();
    tree256(&sums, &vec![1.0; sums.len()])
}

pub(super) fn group_norm(x: &OracleTensor, norm: GroupNorm<'_, OracleTensor>) -> OracleTensor {
    let (pixels, channels) = shapes::group_norm(x, &norm);
    let GroupNorm { groups, weight, bias, eps } = norm;
    let width = channels / groups;
    let slice = GROUP_NORM_SLICE * width;
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for group in 0..groups {
        let first = group * width;
        let elements: Vec<f32> =
            (0..pixels).flat_map(|p| x.data[p * channels + first..][..width].iter().copied()).collect();
        let n = elements.len() as f32;
        let mean = sliced_sum(&elements, &vec![1.0; elements.len()], slice) / n;
        let centred: Vec<f32> = elements.iter().map(|x| x - mean).collect();
        let var = sliced_sum(&centred, &centred, slice) / n;
        let r = 1.0 / (var + eps).sqrt();
        for c in first..first + width {
            a.push(weight.data[c] * r);
            b.push((-mean).mul_add(a[c], bias.data[c]));
        }
    }
    OracleTensor::f32(&[2, channels], [a, b].concat())
}
