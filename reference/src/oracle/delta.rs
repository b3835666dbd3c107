//! [`Backend::gated_delta_rule`](crate::backend::Backend::gated_delta_rule).

use super::{OracleTensor, bf16, chain, tree256};
use crate::backend::DeltaHeads;
use crate::backend::shapes;
use crate::simd::math::scalar::{exp, sigmoid, softplus};

/// Four chains, one for each quarter, summed `(p0 + p1) + (p2 + p3)`.
fn dot4(a: &[f32], b: &[f32]) -> f32 {
    let n = a.len() / 4;
    let quarter = |i: usize| chain(&a[i * n..][..n], &b[i * n..][..n]);
    (quarter(0) + quarter(1)) + (quarter(2) + quarter(3))
}

/// `x * (1 / sqrt(tree256(x * x) + 1e-6))`.
fn l2_normalised(x: &[f32]) -> Vec<f32> {
    let r = 1.0 / (tree256(x, x) + 1e-6).sqrt();
    x.iter().map(|x| x * r).collect()
}

pub(super) fn gated_delta_rule(
    qkv: &OracleTensor,
    ba: &OracleTensor,
    a_log: &OracleTensor,
    dt_bias: &OracleTensor,
    heads: DeltaHeads,
    segments: &[usize],
) -> OracleTensor {
    let tokens = shapes::gated_delta_rule(qkv, ba, a_log, dt_bias, heads, segments);
    let DeltaHeads { key_heads, value_heads, key_dim, value_dim } = heads;
    let c = (1.0 / (key_dim as f64).sqrt()) as f32;
    let mut out = vec![0f32; tokens * value_heads * value_dim];
    for head in 0..value_heads {
        let key_head = head / (value_heads / key_heads);
        let mut start = 0;
        for &len in segments {
            // state[v][i]: value column v, key element i.
            let mut state = vec![vec![0f32; key_dim]; value_dim];
            for t in start..start + len {
                let (q, rest) = qkv.row(t).split_at(key_heads * key_dim);
                let (k, v) = rest.split_at(key_heads * key_dim);
                let q: Vec<f32> =
                    l2_normalised(&q[key_head * key_dim..][..key_dim]).iter().map(|q| q * c).collect();
                let k = l2_normalised(&k[key_head * key_dim..][..key_dim]);
                let v = &v[head * value_dim..][..value_dim];
                let (b, a) = (ba.row(t)[head], ba.row(t)[value_heads + head]);
                let beta = bf16(sigmoid(b));
                let g = -exp(a_log.data[head]) * softplus(a + dt_bias.data[head]);
                let decay = exp(g);
                for (column, s) in state.iter_mut().enumerate() {
                    s.iter_mut().for_each(|s| *s *= decay);
                    let delta = (v[column] - dot4(&k, s)) * beta;
                    for i in 0..key_dim {
                        s[i] = k[i].mul_add(delta, s[i]);
                    }
                    out[(t * value_heads + head) * value_dim + column] = bf16(dot4(&q, s));
                }
            }
            start += len;
        }
    }
    OracleTensor::bf16(&[tokens, value_heads * value_dim], out)
}
