use half::bf16;
use moss_kernels::args::{EulerStep, GatedNorm, HeadNormRope, Norm, SigmoidGate, ToBf16, UnpackLatents};
use moss_reference::backend::{self, Backend, Heads, HostData, Modulation, NormKind};
use moss_reference::oracle::OracleBackend;

use crate::gpu::{Rng, each, oracle};

const KINDS: [(i32, NormKind); 2] = [(0, NormKind::Plain), (1, NormKind::ZeroCentred)];

#[test]
fn norm_equals_the_oracle() {
    each(|gpu| {
        let mut rng = Rng::new(3);
        // The spreads: ordinary, squares that are subnormal, squares that overflow.
        for (tokens, width, spread) in
            [(1, 16, 3.0), (9, 256, 3.0), (3, 272, 1e-22), (2, 1040, 3.0), (2, 48, 1e19), (1, 32, 1e-39)]
        {
            for (i, (kind, named)) in KINDS.into_iter().enumerate() {
                let (x, weight) = (rng.bf16(tokens * width, spread), rng.bf16(width, 1.0));
                let (scale, shift) = (rng.bf16(width, 0.5), rng.bf16(width, 0.5));
                let modulated = (i + tokens) % 2 == 0;
                let out = gpu.room(tokens * width * 2);
                let launch = Norm {
                    x: gpu.put(&x),
                    weight: gpu.put(&weight),
                    scale: if modulated { gpu.put(&scale) } else { 0 },
                    shift: if modulated { gpu.put(&shift) } else { 0 },
                    out,
                    tokens: tokens as i32,
                    width: width as i32,
                    eps: 1e-6,
                    kind,
                };
                gpu.run(launch.launch().map(Some));
                let (scale, shift) = (oracle(&scale, &[1, width]), oracle(&shift, &[1, width]));
                let (x, weight) = (oracle(&x, &[tokens, width]), oracle(&weight, &[width]));
                let expected = {
                    let norm = backend::Norm { weight: &weight, eps: 1e-6, kind: named };
                    OracleBackend.norm(
                        &x,
                        norm,
                        modulated.then_some(Modulation { scale: &scale, shift: &shift }),
                    )
                };
                let case =
                    format!("norm {tokens}x{width}, spread {spread}, {named:?}, modulated {modulated}");
                gpu.check(&case, out, &expected.expect("the oracle"));
            }
        }
    });
}

#[test]
fn head_norm_rope_equals_the_oracle() {
    each(|gpu| {
        let mut rng = Rng::new(4);
        // Head width, half of the rotated width, heads.
        for (dim, rotary, count) in [(128, 64, 3), (256, 32, 2), (16, 8, 5), (48, 16, 1)] {
            for (kind, named) in KINDS {
                let tokens = 5;
                let heads = Heads { first: 8, step: dim + 8, count, dim };
                let stride = 8 + count * (dim + 8);
                let (x, weight) = (rng.bf16(tokens * stride, 2.0), rng.bf16(dim, 1.0));
                let (cos, sin) = (rng.bf16(tokens * rotary, 0.7), rng.bf16(tokens * rotary, 0.7));
                let out = gpu.room(tokens * count * dim * 2);
                let launch = HeadNormRope {
                    x: gpu.put(&x),
                    weight: gpu.put(&weight),
                    cos: gpu.put(&cos),
                    sin: gpu.put(&sin),
                    out,
                    tokens: tokens as i32,
                    stride: stride as i32,
                    first: 8,
                    step: heads.step as i32,
                    heads: count as i32,
                    dim: dim as i32,
                    rotary: rotary as i32,
                    eps: 1e-6,
                    kind,
                };
                gpu.run(launch.launch().map(Some));
                let rope = (oracle(&cos, &[tokens, rotary]), oracle(&sin, &[tokens, rotary]));
                let (x, weight) = (oracle(&x, &[tokens, stride]), oracle(&weight, &[dim]));
                let expected = OracleBackend.head_norm_rope(
                    &x,
                    heads,
                    backend::Norm { weight: &weight, eps: 1e-6, kind: named },
                    (&rope.0, &rope.1),
                );
                gpu.check(&format!("{heads:?}, {rotary}, {named:?}"), out, &expected.expect("the oracle"));
            }
        }
    });
}

#[test]
fn gated_norm_equals_the_oracle() {
    each(|gpu| {
        let mut rng = Rng::new(5);
        for (tokens, heads, dim) in [(3, 3, 128), (1, 1, 16), (2, 5, 256)] {
            let width = heads * dim;
            let (x, z) = (rng.bf16(tokens * width, 2.0), rng.bf16(tokens * width, 40.0));
            let weight = rng.bf16(dim, 1.0);
            let out = gpu.room(tokens * width * 2);
            let launch = GatedNorm {
                x: gpu.put(&x),
                z: gpu.put(&z),
                weight: gpu.put(&weight),
                out,
                tokens: tokens as i32,
                heads: heads as i32,
                dim: dim as i32,
                eps: 1e-6,
            };
            gpu.run(launch.launch().map(Some));
            let shape = [tokens, width];
            let expected = OracleBackend.gated_norm(
                &oracle(&x, &shape),
                &oracle(&z, &shape),
                &oracle(&weight, &[dim]),
                1e-6,
            );
            gpu.check(&format!("{tokens}x{heads}x{dim}"), out, &expected.expect("the oracle"));
        }
    });
}

#[test]
fn sigmoid_gate_equals_the_oracle() {
    each(|gpu| {
        let mut rng = Rng::new(6);
        let (tokens, count, dim) = (7, 3, 48);
        let heads = Heads { first: 16, step: 96, count, dim };
        let stride = 16 + 3 * 96;
        // A ramp over all of the sigmoid: saturated, subnormal and ordinary results.
        let ramp = (0..tokens * stride).map(|i| bf16::from_f32(i as f32 * 0.11 - 110.0)).collect();
        let (x, gate) = (rng.bf16(tokens * count * dim, 1.0), HostData::Bf16(ramp));
        let out = gpu.room(tokens * count * dim * 2);
        let launch = SigmoidGate {
            x: gpu.put(&x),
            gate: gpu.put(&gate),
            out,
            tokens: tokens as i32,
            stride: stride as i32,
            first: 16,
            step: 96,
            heads: count as i32,
            dim: dim as i32,
        };
        gpu.run(launch.launch().map(Some));
        let (x, gate) = (oracle(&x, &[tokens, count * dim]), oracle(&gate, &[tokens, stride]));
        gpu.check("sigmoid_gate", out, &OracleBackend.sigmoid_gate(&x, &gate, heads).expect("the oracle"));
    });
}

#[test]
fn euler_step_and_to_bf16_equal_the_oracle() {
    each(|gpu| {
        let mut rng = Rng::new(7);
        let len = 300;
        let (mut x, cond, uncond) = (rng.f32(len, 1.0), rng.bf16(len, 1.0), rng.bf16(len, 1.0));
        if let HostData::F32(x) = &mut x {
            // Ties, the largest, subnormal numbers, signed zeros, infinities and a NaN whose mantissa is all in the lower half.
            let bits = [
                0x3f80_8000,
                0x3f81_8000,
                0x7f7f_ffff,
                0x0000_8000,
                0x0000_8001,
                0x8000_0000,
                0xff80_0000,
                0x7f80_0001,
            ];
            for (x, bits) in x.iter_mut().zip(bits) {
                *x = f32::from_bits(bits);
            }
        }
        let at = gpu.put(&x);
        let out = gpu.room(len * 2);
        gpu.run(ToBf16 { x: at, out, count: len as i32 }.launch().map(Some));
        let shape = [len];
        gpu.check("to_bf16", out, &OracleBackend.to_bf16(&oracle(&x, &shape)).expect("the oracle"));

        for guided in [false, true] {
            let out = gpu.room(len * 4);
            let launch = EulerStep {
                x: at,
                v_cond: gpu.put(&cond),
                v_uncond: if guided { gpu.put(&uncond) } else { 0 },
                out,
                count: len as i32,
                cfg: 3.3,
                dt: -0.0217,
            };
            gpu.run(launch.launch().map(Some));
            let uncond = oracle(&uncond, &shape);
            let (x, cond) = (oracle(&x, &shape), oracle(&cond, &shape));
            let expected = OracleBackend.euler_step(&x, &cond, guided.then_some(&uncond), 3.3, -0.0217);
            gpu.check(&format!("euler_step, guided {guided}"), out, &expected.expect("the oracle"));
        }
    });
}

#[test]
fn unpack_latents_equals_the_oracle() {
    each(|gpu| {
        let mut rng = Rng::new(8);
        let (height, width, channels) = (3, 5, 6);
        let x = rng.f32(height * width * 4 * channels, 1.0);
        let mean = rng.f32(4 * channels, 1.0);
        let var = HostData::F32((0..4 * channels).map(|i| 0.1 + i as f32).collect());
        let out = gpu.room(height * width * 4 * channels * 4);
        let launch = UnpackLatents {
            x: gpu.put(&x),
            mean: gpu.put(&mean),
            var: gpu.put(&var),
            out,
            height: height as i32,
            width: width as i32,
            channels: channels as i32,
            eps: 1e-5,
        };
        gpu.run(launch.launch().map(Some));
        let (mean, var) = (oracle(&mean, &[4 * channels]), oracle(&var, &[4 * channels]));
        let x = oracle(&x, &[height * width, 4 * channels]);
        let expected = OracleBackend.unpack_latents(&x, &mean, &var, 1e-5, width);
        gpu.check("unpack_latents", out, &expected.expect("the oracle"));
    });
}
