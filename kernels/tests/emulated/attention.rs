use std::f64::consts::LOG2_E;

use moss_kernels::args;
use moss_reference::backend::{Attention, Backend, Heads};
use moss_reference::oracle::OracleBackend;

use crate::gpu::{Rng, each, oracle};

/// Segments, head width, query heads, key and value heads, causal.
type Case<'a> = (&'a [usize], usize, usize, usize, bool);

fn check(cases: &[Case<'_>], bf16: bool, spread: f32) {
    each(|gpu| {
        let mut rng = Rng::new(9);
        for &(segments, dim, q_heads, kv_heads, causal) in cases {
            let tokens: usize = segments.iter().sum();
            let v_heads = Heads { first: 16, step: dim + 16, count: kv_heads, dim };
            let stride = 16 + kv_heads * (dim + 16);
            let mut make = |len, scale| if bf16 { rng.bf16(len, scale) } else { rng.f32(len, scale) };
            let q = make(tokens * q_heads * dim, spread);
            let k = make(tokens * kv_heads * dim, 1.0);
            let v = make(tokens * stride, 1.0);
            let scale = 1.0 / (dim as f64).sqrt();
            let out = gpu.room(tokens * q_heads * dim * 4);
            let mut first = 0;
            for &length in segments {
                let launch = args::Attention {
                    q: gpu.put(&q),
                    k: gpu.put(&k),
                    v: gpu.put(&v),
                    out,
                    first,
                    length: length as i32,
                    query_first: 0,
                    query_count: 0,
                    q_heads: q_heads as i32,
                    kv_heads: kv_heads as i32,
                    dim: dim as i32,
                    v_stride: stride as i32,
                    v_first: 16,
                    v_step: v_heads.step as i32,
                    causal: i32::from(causal),
                    scale: (scale * LOG2_E) as f32,
                };
                gpu.run(if bf16 { launch.launches_bf16() } else { launch.launches_f32() });
                first += length as i32;
            }
            let (q, k) = (oracle(&q, &[tokens, q_heads * dim]), oracle(&k, &[tokens, kv_heads * dim]));
            let v = oracle(&v, &[tokens, stride]);
            let expected =
                OracleBackend.attention(Attention { q: &q, k: &k, v: &v, v_heads, scale, causal, segments });
            let case = format!("attention {segments:?}, {q_heads}/{kv_heads} x {dim}, causal {causal}");
            gpu.check(&case, out, &expected.expect("the oracle"));
        }
    });
}

#[test]
fn heads_of_128_equal_the_oracle() {
    check(&[(&[1], 128, 2, 2, false), (&[63, 65], 128, 2, 1, false), (&[130], 128, 1, 1, true)], true, 3.0);
}

#[test]
fn heads_of_256_equal_the_oracle() {
    check(&[(&[17], 256, 2, 1, true), (&[64, 70], 256, 2, 2, true), (&[81], 256, 1, 1, false)], true, 3.0);
}

#[test]
fn large_and_vanishing_scores_equal_the_oracle() {
    check(&[(&[100], 128, 1, 1, false)], true, 60.0);
    check(&[(&[70], 128, 1, 1, true), (&[20], 256, 1, 1, false)], true, 1e-30);
}

#[test]
fn f32_heads_equal_the_oracle() {
    check(&[(&[1], 16, 1, 1, false), (&[100], 80, 2, 1, false), (&[33, 66], 48, 2, 2, true)], false, 3.0);
    check(&[(&[70], 384, 1, 1, false)], false, 3.0);
}
