//! Bit equality with the definition written as plain loops: borders, blocks that fit nothing, bands, every option, on
//! every isa, with one and two threads.

use super::*;
use crate::backend::HostData;
use crate::cpu::data::upload;
use crate::simd::math::scalar;

fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    (0..count).map(|_| next() as f32 / 8_388_608.0 - 1.0).collect()
}

struct Case {
    h: usize,
    w: usize,
    ci: usize,
    co: usize,
    kernel: usize,
    upsample: bool,
    norm: Option<bool>,
    residual: bool,
}

impl Case {
    fn check(&self, isas: &[Isa]) {
        let Case { h, w, ci, co, kernel, upsample, norm, residual } = *self;
        let scale = if upsample { 2 } else { 1 };
        let (height, width) = (scale * h, scale * w);
        let x = numbers(h * w * ci, 1);
        let ab = numbers(2 * ci, 2);
        let weights = numbers(co * ci * kernel * kernel, 3);
        let bias = numbers(co, 4);
        let rest = numbers(height * width * co, 5);
        let element = |y: usize, x_: usize, c: usize| {
            let value = x[((y / scale) * w + x_ / scale) * ci + c];
            match norm {
                None => value,
                Some(silu) => {
                    let value = value.mul_add(ab[c], ab[ci + c]);
                    if silu { scalar::silu(value) } else { value }
                }
            }
        };
        let mut expected = Vec::with_capacity(height * width * co);
        for y in 0..height {
            for x_ in 0..width {
                for o in 0..co {
                    let mut acc = 0.0f32;
                    for ky in 0..kernel {
                        for kx in 0..kernel {
                            let (iy, ix) = (y + ky, x_ + kx);
                            let reach = kernel / 2;
                            if iy < reach || iy - reach >= height || ix < reach || ix - reach >= width {
                                continue;
                            }
                            for c in 0..ci {
                                let weight = weights[((o * ci + c) * kernel + ky) * kernel + kx];
                                acc = element(iy - reach, ix - reach, c).mul_add(weight, acc);
                            }
                        }
                    }
                    let sum = acc + bias[o];
                    expected.push(if residual { sum + rest[expected.len()] } else { sum });
                }
            }
        }
        let up = |v: &[f32], shape: &[usize]| upload(HostData::F32(v.to_vec()), shape);
        let tx = up(&x, &[h, w, ci]);
        let tab = up(&ab, &[2, ci]);
        let tw = if kernel == 1 { up(&weights, &[co, ci]) } else { up(&weights, &[co, ci, kernel, kernel]) };
        let (tbias, trest) = (up(&bias, &[co]), up(&rest, &[height, width, co]));
        for &isa in isas {
            for threads in [1, 2] {
                let backend = CpuBackend::with_isa(isa, threads).expect("threads start");
                let norm = norm.map(|silu| (&tab, silu));
                let residual = residual.then_some(&trest);
                let conv = Conv2d { weight: &tw, bias: &tbias, norm, upsample, residual };
                let found = conv2d(&backend, &tx, conv);
                for (i, (f, e)) in found.f32().iter().zip(&expected).enumerate() {
                    assert_eq!(
                        f.to_bits(),
                        e.to_bits(),
                        "[{h}, {w}, {ci}] to {co}, {kernel}x{kernel} on {}: element {i} is {f}, {e} expected",
                        isa.name()
                    );
                }
            }
        }
    }
}

#[test]
fn conv2d_equals_the_definition() {
    let isas = Isa::available();
    let mut case = 0;
    for kernel in [1, 3] {
        for (h, w) in [(1, 1), (1, 2), (2, 1), (2, 6), (3, 7), (2, 8), (3, 9), (4, 13), (2, 16), (3, 17)] {
            for (ci, co) in [(1, 1), (3, 16), (17, 33), (32, 31), (65, 3), (2, 49), (5, 97)] {
                let (upsample, residual) = (case % 3 == 0, case % 2 == 0);
                let norm = [None, Some(false), Some(true)][case / 3 % 3];
                Case { h, w, ci, co, kernel, upsample, norm, residual }.check(&isas);
                case += 1;
            }
        }
    }
}

#[test]
fn slices_of_channels_and_tasks_keep_the_order() {
    let isas = Isa::available();
    let case = Case {
        h: 9,
        w: 20,
        ci: 2 * SLICE + 5,
        co: 56,
        kernel: 3,
        upsample: false,
        norm: None,
        residual: false,
    };
    case.check(&isas[isas.len() - 1..]);
}

#[test]
fn bands_join_without_a_seam() {
    // A row of 512 channels and 300 pixels is so wide that a band holds only a few.
    let isas = Isa::available();
    let best = &isas[isas.len() - 1..];
    let case =
        Case { h: 60, w: 300, ci: 512, co: 2, kernel: 1, upsample: false, norm: Some(true), residual: true };
    let (shape, lanes) =
        (ConvShape { height: 60, width: 300, inputs: 512, outputs: 2, kernel: 1 }, best[0].lanes());
    assert!(60 * blocks(&shape, lanes) * block_len(&shape, lanes) * 4 > BAND_BYTES, "more than one band");
    case.check(best);
    Case { h: 62, w: 300, ci: 512, co: 1, kernel: 3, upsample: false, norm: None, residual: false }
        .check(best);
}
