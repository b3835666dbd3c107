//! [`Backend::attention`](crate::backend::Backend::attention).

use super::{OracleTensor, chain, round_to};
use crate::backend::shapes;
use crate::backend::{ATTENTION_BLOCK, Attention, Heads};
use crate::simd::math::scalar::exp2;

pub(super) fn attention(a: Attention<'_, OracleTensor>) -> OracleTensor {
    let size = shapes::attention(&a);
    let Attention { q, k, v, v_heads, scale, causal, segments } = a;
    let q_heads = Heads::packed(0, size.q_heads, size.dim);
    let k_heads = Heads::packed(0, size.kv_heads, size.dim);
    let factor = (scale * std::f64::consts::LOG2_E) as f32;
    let mut out = Vec::new();
    let mut start = 0;
    for &len in segments {
        for t in start..start + len {
            for head in 0..size.q_heads {
                let kv_head = head / (size.q_heads / size.kv_heads);
                let query = q.head(t, q_heads, head);
                let seen = if causal { start..t + 1 } else { start..start + len };
                let keys: Vec<&[f32]> = seen.clone().map(|t| k.head(t, k_heads, kv_head)).collect();
                let values: Vec<&[f32]> = seen.map(|t| v.head(t, v_heads, kv_head)).collect();
                let o = one_query(query, &keys, &values, factor, |p| round_to(q.dtype, p));
                out.extend(o.iter().map(|&o| round_to(q.dtype, o)));
            }
        }
        start += len;
    }
    OracleTensor::new(q.dtype, &q.shape, out)
}

/// One query of one head over the keys that it sees.
fn one_query(
    query: &[f32],
    keys: &[&[f32]],
    values: &[&[f32]],
    factor: f32,
    round: impl Fn(f32) -> f32,
) -> Vec<f32> {
    let mut m = f32::NEG_INFINITY;
    let mut l = [0f32; 2];
    let mut o = vec![0f32; query.len()];
    for (keys, values) in keys.chunks(ATTENTION_BLOCK).zip(values.chunks(ATTENTION_BLOCK)) {
        let s: Vec<f32> = keys.iter().map(|k| chain(k, query) * factor).collect();
        let new_m = s.iter().copied().fold(m, f32::max);
        let c = exp2(m - new_m);
        m = new_m;
        let p: Vec<f32> = s.iter().map(|s| exp2(s - m)).collect();
        l = l.map(|l| l * c);
        for (j, p) in p.iter().enumerate() {
            l[(j / 8) % 2] += p;
        }
        for d in 0..o.len() {
            o[d] *= c;
            for j in 0..p.len() {
                o[d] = round(p[j]).mul_add(values[j][d], o[d]);
            }
        }
    }
    // Adding +0 turns a -0 that an underflow left into +0; nothing else changes.
    o.iter().map(|o| (o + 0.0) / (l[0] + l[1])).collect()
}
