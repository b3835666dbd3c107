//! Cases of `attention`.

use std::f64::consts::{LN_2, LOG2_E};

use moss_reference::backend::{self, ATTENTION_BLOCK, Backend, BackendError, DType, Heads};
use moss_reference::model::config::ModelConfig;

use super::Case;
#[cfg(feature = "drawn")]
use super::drawn::Draw;
use super::inputs::{Fill, Host, Rng};
use crate::bounded::Bounded;
use crate::compare::F32_ROUNDOFF;

pub(super) struct Attention {
    q: Host,
    k: Host,
    v: Host,
    v_heads: Heads,
    scale: f64,
    causal: bool,
    segments: Vec<usize>,
    fill: Fill,
}

pub(super) fn cases() -> Vec<Attention> {
    let mut rng = Rng::new(6);
    let mut cases = Vec::new();
    let segments: [&[usize]; 6] = [&[1], &[63, 65], &[64, 1, 17], &[130], &[15, 16, 33], &[31]];
    // Head width, query heads, key/value heads, extra columns of v before and between its heads.
    let heads =
        [(128, 2, 2, 0, 0), (64, 4, 2, 5, 3), (16, 4, 1, 16, 16), (33, 2, 1, 0, 7), (256, 2, 1, 0, 0)];
    let fills = [Fill::Normal(1.0), Fill::Extreme(20.0), Fill::OneHot(30.0), Fill::Normal(3.0)];
    for (i, segments) in segments.into_iter().enumerate() {
        let tokens = segments.iter().sum();
        for (j, (dim, q_heads, kv_heads, first, gap)) in heads.into_iter().enumerate() {
            for dtype in [DType::Bf16, DType::F32] {
                for causal in [false, true] {
                    let fill = fills[(i + 2 * j + usize::from(causal)) % fills.len()];
                    let mut tensor = |width| match dtype {
                        DType::Bf16 => rng.bf16(&[tokens, width], fill),
                        DType::F32 => rng.f32(&[tokens, width], fill),
                    };
                    cases.push(Attention {
                        q: tensor(q_heads * dim),
                        k: tensor(kv_heads * dim),
                        v: tensor(first + kv_heads * (dim + gap)),
                        v_heads: Heads { first, step: dim + gap, count: kv_heads, dim },
                        scale: 1.0 / (dim as f64).sqrt(),
                        causal,
                        segments: segments.to_vec(),
                        fill,
                    });
                }
            }
        }
    }
    // More queries than a task of the CPU backend takes (12 vectors of 16 lanes), cut in two unequal segments.
    for dtype in [DType::Bf16, DType::F32] {
        for causal in [false, true] {
            let fill = Fill::Normal(1.5);
            let mut tensor = |width| match dtype {
                DType::Bf16 => rng.bf16(&[330, width], fill),
                DType::F32 => rng.f32(&[330, width], fill),
            };
            cases.push(Attention {
                q: tensor(16),
                k: tensor(8),
                v: tensor(8),
                v_heads: Heads::packed(0, 1, 8),
                scale: 0.35,
                causal,
                segments: vec![261, 69],
                fill,
            });
        }
    }
    cases
}

/// The attentions of a model, with its heads: DiT, text encoder (values between other columns) and VAE.
pub(super) fn model_cases(config: &ModelConfig) -> Vec<Attention> {
    let (dit, text) = (&config.dit, &config.text);
    let width = config.vae.decoder_widths()[config.vae.decoder_widths().len() - 1];
    // Query heads, key/value heads, width of a head, causal.
    let kinds = [
        (DType::Bf16, dit.num_heads, dit.num_heads, dit.dim / dit.num_heads, false),
        (DType::Bf16, text.num_attention_heads, text.num_key_value_heads, text.head_dim, true),
        (DType::F32, 1, 1, width, false),
    ];
    let mut rng = Rng::new(106);
    let (fill, segments) = (Fill::Normal(1.0), [65, 2]);
    let case = |(dtype, q_heads, kv_heads, dim, causal): (DType, usize, usize, usize, bool)| {
        let mut tensor = |width| match dtype {
            DType::Bf16 => rng.bf16(&[segments.iter().sum(), width], fill),
            DType::F32 => rng.f32(&[segments.iter().sum(), width], fill),
        };
        Attention {
            q: tensor(q_heads * dim),
            k: tensor(kv_heads * dim),
            v: tensor(2 * kv_heads * dim),
            v_heads: Heads { first: kv_heads * dim, step: dim, count: kv_heads, dim },
            scale: 1.0 / (dim as f64).sqrt(),
            causal,
            segments: segments.to_vec(),
            fill,
        }
    };
    kinds.into_iter().map(case).collect()
}

/// A drawn case; where widths are multiples of 16, bf16 heads have an official width.
#[cfg(feature = "drawn")]
pub(super) fn drawn(draw: &Draw) -> Attention {
    let (segments, kv_heads) = (draw.segments(), draw.heads.min(2));
    let dtype = if draw.options[0] { DType::F32 } else { DType::Bf16 };
    let dim = match dtype {
        DType::Bf16 if draw.grain > 1 => 128 << usize::from(draw.options[2]),
        _ => draw.inputs,
    };
    let mut rng = draw.rng();
    let fill = draw.fill([Fill::Normal(1.0), Fill::Extreme(20.0), Fill::OneHot(30.0)]);
    let mut tensor = |width| match dtype {
        DType::Bf16 => rng.bf16(&[draw.tokens, width], fill),
        DType::F32 => rng.f32(&[draw.tokens, width], fill),
    };
    Attention {
        q: tensor(draw.ratio * kv_heads * dim),
        k: tensor(kv_heads * dim),
        v: tensor(draw.gap + kv_heads * (dim + draw.gap)),
        v_heads: Heads { first: draw.gap, step: dim + draw.gap, count: kv_heads, dim },
        scale: 1.0 / (dim as f64).sqrt(),
        causal: draw.options[1],
        segments,
        fill,
    }
}

impl Case for Attention {
    fn name(&self) -> String {
        let Self { q, v_heads, causal, segments, fill, .. } = self;
        let dtype = q.data.dtype();
        format!("attention {dtype:?}, q {:?}, {v_heads:?}, causal {causal}, {segments:?}, {fill:?}", q.shape)
    }

    fn run<B: Backend>(&self, b: &B, _: &[B::Tensor]) -> Result<B::Tensor, BackendError> {
        let (q, k, v) = (self.q.upload(b)?, self.k.upload(b)?, self.v.upload(b)?);
        b.attention(backend::Attention {
            q: &q,
            k: &k,
            v: &v,
            v_heads: self.v_heads,
            scale: self.scale,
            causal: self.causal,
            segments: &self.segments,
        })
    }

    fn expected(&self) -> Vec<Bounded> {
        let (q, k, v) = (self.q.exact(), self.k.exact(), self.v.exact());
        let Heads { first, step, count, dim } = self.v_heads;
        let (q_width, k_width, v_width) = (self.q.shape[1], self.k.shape[1], self.v.shape[1]);
        let q_heads = q_width / dim;
        let mut out = Vec::new();
        let mut start = 0;
        for &len in &self.segments {
            for t in start..start + len {
                let seen = start..if self.causal { t + 1 } else { start + len };
                for head in 0..q_heads {
                    let kv_head = head / (q_heads / count);
                    let query = &q[t * q_width + head * dim..][..dim];
                    let keys = seen.clone().map(|t| &k[t * k_width + kv_head * dim..][..dim]);
                    let values: Vec<&[Bounded]> =
                        seen.clone().map(|t| &v[t * v_width + first + kv_head * step..][..dim]).collect();
                    out.extend(self.one_query(query, keys, &values));
                }
            }
            start += len;
        }
        out
    }
}

impl Attention {
    /// Softmax of one query by the plain formula.
    ///
    /// The block algorithm's maximum cancels in `o / l` but for roundings: each block rescales by
    /// `c = exp2(m - m')`, so that every weight takes, a block, the relative error of that exp2 (2 ulp), of its
    /// argument (half an ulp of the range of `s`) and of one product.
    fn one_query<'a>(
        &self,
        query: &[Bounded],
        keys: impl Iterator<Item = &'a [Bounded]>,
        values: &[&[Bounded]],
    ) -> Vec<Bounded> {
        let factor = Bounded::from((self.scale * LOG2_E) as f32);
        let s: Vec<Bounded> =
            keys.map(|k| Bounded::dot(k.iter().copied().zip(query.iter().copied())) * factor).collect();
        let highest = s.iter().fold(f64::NEG_INFINITY, |m, s| m.max(s.value));
        let range = s.iter().fold(0f64, |r, s| r.max(highest - s.value + 2.0 * s.error));
        let blocks = s.len().div_ceil(ATTENTION_BLOCK) as f64;
        let roundings = (blocks + 1.0) * F32_ROUNDOFF * (6.0 + LN_2 * range);
        let p: Vec<Bounded> = s
            .iter()
            .map(|s| {
                let value = (s.value - highest).exp2();
                let relative = (LN_2 * s.error + roundings).exp_m1();
                // Below the least normal f32 every step may lose what is left.
                Bounded::new(value, value * relative + (blocks + 1.0) * f64::from(f32::MIN_POSITIVE))
            })
            .collect();
        let l = Bounded::sum(p.iter().copied());
        let rounded = |x: Bounded| match self.q.data.dtype() {
            DType::Bf16 => x.bf16(),
            DType::F32 => x,
        };
        (0..query.len())
            .map(|d| {
                let o = Bounded::dot(p.iter().zip(values).map(|(&p, v)| (rounded(p), v[d])));
                rounded(o / l)
            })
            .collect()
    }
}
