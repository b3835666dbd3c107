//! Cases of `gated_delta_rule`.

use moss_reference::backend::{Backend, BackendError, DeltaHeads, Role};
use moss_reference::model::config::ModelConfig;

use super::Case;
#[cfg(feature = "drawn")]
use super::drawn::Draw;
use super::inputs::{Fill, Host, Rng};
use crate::bounded::Bounded;
use crate::compare::{BF16_ROUNDOFF, F32_ROUNDOFF};

pub(super) struct Delta {
    qkv: Host,
    ba: Host,
    a_log: Host,
    dt_bias: Host,
    heads: DeltaHeads,
    segments: Vec<usize>,
    fill: Fill,
}

pub(super) fn cases() -> Vec<Delta> {
    let mut rng = Rng::new(7);
    let mut cases = Vec::new();
    let segments: [&[usize]; 4] = [&[1], &[63, 65], &[64, 1, 17], &[2, 3]];
    // Key heads, value heads, key width, value width.
    let heads =
        [(1, 1, 4, 1), (2, 2, 16, 17), (1, 4, 128, 128), (2, 4, 36, 33), (1, 2, 300, 15), (2, 6, 128, 96)];
    let fills = [Fill::Normal(1.0), Fill::Extreme(50.0), Fill::OneHot(3.0)];
    for (i, segments) in segments.into_iter().enumerate() {
        let tokens = segments.iter().sum();
        for (j, (key_heads, value_heads, key_dim, value_dim)) in heads.into_iter().enumerate() {
            let fill = fills[(i + j) % fills.len()];
            cases.push(Delta {
                qkv: rng.bf16(&[tokens, 2 * key_heads * key_dim + value_heads * value_dim], fill),
                ba: rng.bf16(&[tokens, 2 * value_heads], Fill::Normal(2.0)),
                a_log: rng.f32(&[value_heads], Fill::Normal(1.0)),
                dt_bias: rng.f32(&[value_heads], Fill::Normal(1.0)),
                heads: DeltaHeads { key_heads, value_heads, key_dim, value_dim },
                segments: segments.to_vec(),
                fill,
            });
        }
    }
    cases
}

/// The delta rule with a model's heads.
pub(super) fn model_cases(config: &ModelConfig) -> Vec<Delta> {
    let text = &config.text;
    let heads = DeltaHeads {
        key_heads: text.linear_num_key_heads,
        value_heads: text.linear_num_value_heads,
        key_dim: text.linear_key_head_dim,
        value_dim: text.linear_value_head_dim,
    };
    let mut rng = Rng::new(107);
    let fill = Fill::Normal(1.0);
    let width = 2 * heads.key_heads * heads.key_dim + heads.value_heads * heads.value_dim;
    vec![Delta {
        qkv: rng.bf16(&[7, width], fill),
        ba: rng.bf16(&[7, 2 * heads.value_heads], Fill::Normal(2.0)),
        a_log: rng.f32(&[heads.value_heads], Fill::Normal(1.0)),
        dt_bias: rng.f32(&[heads.value_heads], Fill::Normal(1.0)),
        heads,
        segments: vec![5, 2],
        fill,
    }]
}

/// `x` scaled to length 1 in f64, and how far, relatively, an f32 computation of each element can be.
fn normalised(x: &[Bounded], scale: f64) -> (Vec<f64>, f64) {
    let sum = Bounded::dot(x.iter().map(|&x| (x, x)));
    let r = Bounded::from(1.0) / (sum + Bounded::from(1e-6)).sqrt();
    let scaled = x.iter().map(|x| x.value * r.value * scale).collect();
    // The product with r, the scale's own rounding and the product with it.
    (scaled, r.error / r.value + 3.0 * F32_ROUNDOFF)
}

fn length(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// The state of one value column in f64, and a bound on the Euclidean error of its f32 computation.
///
/// A step maps `S` to `decay * (I - beta k k^T) S + beta v k`; with `|k| <= 1` and `0 <= beta <= 1` that does not make
/// an old error longer, so only each step's own errors add up.
struct Column {
    s: Vec<f64>,
    error: f64,
}

impl Column {
    fn step(&mut self, k: &(Vec<f64>, f64), v: f64, beta: Bounded, decay: Bounded) {
        let (k, k_error) = (&k.0, k.1);
        let n = k.len() as f64;
        let s_length = length(&self.s) * decay.value;
        self.s.iter_mut().for_each(|s| *s *= decay.value);
        // The bounded k and beta may leave the unit ball by their own errors; old errors grow by as much.
        let growth = decay.magnitude() * (1.0 + 4.0 * k_error + beta.error);
        let decay_error = s_length * (decay.error / decay.value.max(f64::MIN_POSITIVE) + F32_ROUNDOFF);
        let dot: f64 = k.iter().zip(&self.s).map(|(k, s)| k * s).sum();
        let k_length = length(k);
        let dot_error = k_length * s_length * (k_error + (n / 4.0 + 3.0) * F32_ROUNDOFF);
        let delta = (v - dot) * beta.value;
        let delta_error = (v - dot).abs() * (beta.error + 2.0 * F32_ROUNDOFF) + dot_error * beta.magnitude();
        for (s, k) in self.s.iter_mut().zip(k) {
            *s += k * delta;
        }
        let own = decay_error * 2.0
            + k_length * (delta_error + delta.abs() * k_error)
            + F32_ROUNDOFF * (length(&self.s) + self.error);
        // Second-order terms: a hundredth more than the first-order bound.
        self.error = growth * self.error + 1.01 * own + n * f64::from(f32::MIN_POSITIVE);
    }

    fn read(&self, q: &(Vec<f64>, f64)) -> Bounded {
        let (q, q_error) = (&q.0, q.1);
        let value = q.iter().zip(&self.s).map(|(q, s)| q * s).sum();
        let relative = q_error + (q.len() as f64 / 4.0 + 3.0) * F32_ROUNDOFF;
        let error = length(q) * (self.error * (1.0 + relative) + length(&self.s) * relative * 1.01);
        Bounded::new(value, error + f64::from(f32::MIN_POSITIVE)).bf16()
    }
}

/// A drawn case; where widths are multiples of 16, keys have the official width and values a multiple of 32.
#[cfg(feature = "drawn")]
pub(super) fn drawn(draw: &Draw) -> Delta {
    let (key_heads, value_heads) = (draw.heads.min(2), draw.heads.min(2) * draw.ratio);
    let (key_dim, value_dim) = match draw.grain {
        1 => (4 * draw.inputs.div_ceil(4), draw.outputs),
        _ => (128, 2 * draw.outputs),
    };
    let mut rng = draw.rng();
    let fill = draw.fill([Fill::Normal(1.0), Fill::Extreme(50.0), Fill::OneHot(3.0)]);
    Delta {
        qkv: rng.bf16(&[draw.tokens, 2 * key_heads * key_dim + value_heads * value_dim], fill),
        ba: rng.bf16(&[draw.tokens, 2 * value_heads], Fill::Normal(2.0)),
        a_log: rng.f32(&[value_heads], Fill::Normal(1.0)),
        dt_bias: rng.f32(&[value_heads], Fill::Normal(1.0)),
        heads: DeltaHeads { key_heads, value_heads, key_dim, value_dim },
        segments: draw.segments(),
        fill,
    }
}

impl Case for Delta {
    fn name(&self) -> String {
        format!("gated_delta_rule {:?}, {:?}, {:?}", self.heads, self.segments, self.fill)
    }

    fn weights(&self) -> Vec<(Role, &Host)> {
        vec![(Role::VectorF32, &self.a_log), (Role::VectorF32, &self.dt_bias)]
    }

    fn run<B: Backend>(&self, b: &B, weights: &[B::Tensor]) -> Result<B::Tensor, BackendError> {
        let (qkv, ba) = (self.qkv.upload(b)?, self.ba.upload(b)?);
        b.gated_delta_rule(&qkv, &ba, &weights[0], &weights[1], self.heads, &self.segments)
    }

    fn expected(&self) -> Vec<Bounded> {
        let DeltaHeads { key_heads, value_heads, key_dim, value_dim } = self.heads;
        let (qkv, ba) = (self.qkv.exact(), self.ba.exact());
        let (a_log, dt_bias) = (self.a_log.exact(), self.dt_bias.exact());
        let (width, tokens) = (self.qkv.shape[1], self.qkv.shape[0]);
        let mut out = vec![Bounded::from(0.0); tokens * value_heads * value_dim];
        for head in 0..value_heads {
            let key_head = head / (value_heads / key_heads);
            let mut start = 0;
            for &len in &self.segments {
                let zero = || Column { s: vec![0.0; key_dim], error: 0.0 };
                let mut state: Vec<Column> = (0..value_dim).map(|_| zero()).collect();
                for t in start..start + len {
                    let row = &qkv[t * width..][..width];
                    let q = &row[key_head * key_dim..][..key_dim];
                    let k = &row[(key_heads + key_head) * key_dim..][..key_dim];
                    let v = &row[2 * key_heads * key_dim + head * value_dim..][..value_dim];
                    let q = normalised(q, 1.0 / (key_dim as f64).sqrt());
                    let k = normalised(k, 1.0);
                    let (b, a) = (ba[t * 2 * value_heads + head], ba[(t * 2 + 1) * value_heads + head]);
                    let beta = b.sigmoid().bf16();
                    debug_assert!(beta.error < 2.0 * BF16_ROUNDOFF);
                    let g = -a_log[head].exp() * (a + dt_bias[head]).softplus();
                    let decay = g.exp();
                    for (column, state) in state.iter_mut().enumerate() {
                        state.step(&k, v[column].value, beta, decay);
                        out[(t * value_heads + head) * value_dim + column] = state.read(&q);
                    }
                }
                start += len;
            }
        }
        out
    }
}
