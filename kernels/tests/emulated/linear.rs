use moss_kernels::args::{Linear, LinearGlu, epilogue, glu};
use moss_kernels::pack::Panels;
use moss_reference::backend::{Backend, Epilogue, Glu};
use moss_reference::oracle::OracleBackend;

use crate::gpu::{Rng, bf16s, each, oracle};

#[test]
fn linear_equals_the_oracle() {
    // Tokens, k, n: below, at and above a tile; an odd number of fragments; rows that are no multiple of 8.
    let sizes = [(1, 16, 1), (65, 48, 130), (64, 32, 64), (7, 96, 72), (130, 64, 24)];
    each(|gpu| {
        let mut rng = Rng::new(1);
        for (tokens, k, n) in sizes {
            let (x, w) = rng.cancelling(tokens, k, n);
            let (bias, residual, gate) = (rng.bf16(n, 1.0), rng.bf16(tokens * n, 1.0), rng.bf16(n, 1.0));
            let packed = Panels::matrix(n, k).expect("sizes fit").pack_all(bf16s(&w));
            for (mode, with_bias) in [
                (epilogue::NONE, false),
                (epilogue::SILU, true),
                (epilogue::RESIDUAL, true),
                (epilogue::GATED_RESIDUAL, false),
            ] {
                let out = gpu.room(tokens * n * 2);
                let launch = Linear {
                    x: gpu.put(&x),
                    w: gpu.bytes(&packed),
                    bias: if with_bias { gpu.put(&bias) } else { 0 },
                    residual: if mode >= epilogue::RESIDUAL { gpu.put(&residual) } else { 0 },
                    gate: if mode == epilogue::GATED_RESIDUAL { gpu.put(&gate) } else { 0 },
                    out,
                    tokens: tokens as i32,
                    k: k as i32,
                    n: n as i32,
                    epilogue: mode,
                };
                gpu.run(launch.launches());
                let residual = &oracle(&residual, &[tokens, n]);
                let gate = &oracle(&gate, &[1, n]);
                let after = match mode {
                    epilogue::NONE => Epilogue::None,
                    epilogue::SILU => Epilogue::Silu,
                    epilogue::RESIDUAL => Epilogue::Residual(residual),
                    _ => Epilogue::GatedResidual { residual, gate },
                };
                let bias = oracle(&bias, &[n]);
                let expected = OracleBackend
                    .linear(
                        &oracle(&x, &[tokens, k]),
                        &oracle(&w, &[n, k]),
                        with_bias.then_some(&bias),
                        after,
                    )
                    .expect("the oracle");
                gpu.check(&format!("{tokens}x{k}x{n}, epilogue {mode}"), out, &expected);
            }
        }
    });
}

#[test]
fn linear_glu_equals_the_oracle() {
    each(|gpu| {
        let mut rng = Rng::new(2);
        for (tokens, k, f) in [(1, 16, 16), (65, 48, 48), (63, 64, 80)] {
            let ((x, w), bias) = (rng.cancelling(tokens, k, 2 * f), rng.bf16(2 * f, 1.0));
            let packed = Panels::up_gate(2 * f, k).expect("sizes fit").pack_all(bf16s(&w));
            for (mode, unit, with_bias) in [(glu::SILU, Glu::Silu, false), (glu::SITU, Glu::Situ, true)] {
                let out = gpu.room(tokens * f * 2);
                let launch = LinearGlu {
                    x: gpu.put(&x),
                    w: gpu.bytes(&packed),
                    bias: if with_bias { gpu.put(&bias) } else { 0 },
                    out,
                    tokens: tokens as i32,
                    k: k as i32,
                    f: f as i32,
                    glu: mode,
                };
                gpu.run(launch.launches());
                let bias = oracle(&bias, &[2 * f]);
                let (x, w) = (oracle(&x, &[tokens, k]), oracle(&w, &[2 * f, k]));
                let expected = OracleBackend.linear_glu(&x, &w, with_bias.then_some(&bias), unit);
                gpu.check(&format!("{tokens}x{k}x{f}, {unit:?}"), out, &expected.expect("the oracle"));
            }
        }
    });
}
