//! Cases of `concat`, `to_bf16`, `sigmoid_gate`, `causal_conv_silu` and `euler_step`.

use moss_reference::backend::{Backend, BackendError, Heads, Role};
use moss_reference::model::config::ModelConfig;

use super::Case;
#[cfg(feature = "drawn")]
use super::drawn::Draw;
use super::inputs::{Fill, Host, Rng};
use crate::bounded::Bounded;

/// Joins parts, takes rows that straddle them and gives them another shape.
pub(super) struct Concat {
    parts: Vec<Host>,
    rows: std::ops::Range<usize>,
}

pub(super) fn concat_cases() -> Vec<Concat> {
    let mut rng = Rng::new(8);
    let fill = Fill::Extreme(1e30);
    let bf16 = [1, 15, 64].map(|rows| rng.bf16(&[rows, 17], fill)).to_vec();
    let f32 = [3, 2].map(|rows| rng.f32(&[rows, 5, 2], fill)).to_vec();
    vec![
        Concat { parts: bf16.clone(), rows: 0..80 },
        Concat { parts: bf16, rows: 13..19 },
        Concat { parts: f32.clone(), rows: 2..4 },
        Concat { parts: f32[..1].to_vec(), rows: 1..2 },
    ]
}

/// A drawn case.
#[cfg(feature = "drawn")]
pub(super) fn concat_drawn(draw: &Draw) -> Concat {
    let (mut rng, fill) = (draw.rng(), Fill::Extreme(1e30));
    let rows = draw.tokens + draw.heads;
    let parts = [draw.tokens, draw.heads].map(|rows| match draw.options[0] {
        true => rng.f32(&[rows, draw.inputs], fill),
        false => rng.bf16(&[rows, draw.inputs], fill),
    });
    Concat { parts: parts.to_vec(), rows: draw.cut % rows..rows }
}

impl Case for Concat {
    fn name(&self) -> String {
        let shapes: Vec<_> = self.parts.iter().map(|part| &part.shape).collect();
        format!("concat {shapes:?}, rows {:?}", self.rows)
    }

    fn run<B: Backend>(&self, b: &B, _: &[B::Tensor]) -> Result<B::Tensor, BackendError> {
        let parts = self.parts.iter().map(|part| part.upload(b)).collect::<Result<Vec<_>, _>>()?;
        let all = b.concat(&parts.iter().collect::<Vec<_>>())?;
        let rows = b.rows(&all, self.rows.clone());
        let width: usize = self.parts[0].shape[1..].iter().product();
        // A copy of the view, so that an offset that is forgotten shows.
        b.concat(&[&b.reshape(&rows, &[self.rows.len() * width, 1])])
    }

    fn expected(&self) -> Vec<Bounded> {
        let width: usize = self.parts[0].shape[1..].iter().product();
        let all: Vec<Bounded> = self.parts.iter().flat_map(Host::exact).collect();
        all[self.rows.start * width..self.rows.end * width].to_vec()
    }
}

pub(super) struct ToBf16 {
    x: Host,
}

pub(super) fn to_bf16_cases() -> Vec<ToBf16> {
    let mut rng = Rng::new(9);
    let mut cases: Vec<ToBf16> = [1, 15, 16, 17, 31, 33, 63, 64, 65, 1000]
        .into_iter()
        .map(|n| ToBf16 { x: rng.f32(&[n], Fill::Extreme(1e38)) })
        .collect();
    // Every tie and its two neighbours, at both signs, for a few exponents.
    let ties: Vec<f32> = (0..256u32)
        .flat_map(|m| [0x7fff, 0x8000, 0x8001].map(|low| (m << 16) | low))
        .flat_map(|m| [0x0000_0000, 0x3f80_0000, 0x8000_0000, 0xc200_0000].map(|e| f32::from_bits(e + m)))
        .collect();
    let shape = vec![ties.len() / 4, 4];
    cases.push(ToBf16 { x: Host { shape, data: moss_reference::backend::HostData::F32(ties) } });
    cases
}

/// A drawn case.
#[cfg(feature = "drawn")]
pub(super) fn to_bf16_drawn(draw: &Draw) -> ToBf16 {
    ToBf16 { x: draw.rng().f32(&[draw.tokens, draw.inputs], Fill::Extreme(1e38)) }
}

impl Case for ToBf16 {
    fn name(&self) -> String {
        format!("to_bf16 {:?}", self.x.shape)
    }

    fn run<B: Backend>(&self, b: &B, _: &[B::Tensor]) -> Result<B::Tensor, BackendError> {
        b.to_bf16(&self.x.upload(b)?)
    }

    fn expected(&self) -> Vec<Bounded> {
        self.x.exact().into_iter().map(Bounded::bf16).collect()
    }
}

pub(super) struct SigmoidGate {
    x: Host,
    gate: Host,
    heads: Heads,
    fill: Fill,
}

pub(super) fn sigmoid_gate_cases() -> Vec<SigmoidGate> {
    let mut rng = Rng::new(10);
    let mut cases = Vec::new();
    for (i, dim) in [1, 15, 16, 17, 31, 33, 64, 65, 256, 48, 128].into_iter().enumerate() {
        for fill in [Fill::Normal(2.0), Fill::Extreme(100.0), Fill::OneHot(-90.0)] {
            let (tokens, count, gap) = ([1, 3, 17, 130][i % 4], 1 + i % 3, [0, dim, 3][i % 3]);
            let heads = Heads { first: gap, step: dim + gap, count, dim };
            cases.push(SigmoidGate {
                x: rng.bf16(&[tokens, count * dim], fill),
                gate: rng.bf16(&[tokens, gap + count * (dim + gap)], fill),
                heads,
                fill,
            });
        }
    }
    cases
}

/// A drawn case.
#[cfg(feature = "drawn")]
pub(super) fn sigmoid_gate_drawn(draw: &Draw) -> SigmoidGate {
    let &Draw { tokens, inputs: dim, heads: count, gap, .. } = draw;
    let mut rng = draw.rng();
    let fill = draw.fill([Fill::Normal(2.0), Fill::Extreme(100.0), Fill::OneHot(-90.0)]);
    SigmoidGate {
        x: rng.bf16(&[tokens, count * dim], fill),
        gate: rng.bf16(&[tokens, gap + count * (dim + gap)], fill),
        heads: Heads { first: gap, step: dim + gap, count, dim },
        fill,
    }
}

impl Case for SigmoidGate {
    fn name(&self) -> String {
        format!("sigmoid_gate {:?}, {:?}, {:?}", self.x.shape, self.heads, self.fill)
    }

    fn run<B: Backend>(&self, b: &B, _: &[B::Tensor]) -> Result<B::Tensor, BackendError> {
        b.sigmoid_gate(&self.x.upload(b)?, &self.gate.upload(b)?, self.heads)
    }

    fn expected(&self) -> Vec<Bounded> {
        let (x, gate) = (self.x.exact(), self.gate.exact());
        let Heads { first, step, count, dim } = self.heads;
        let width = count * dim;
        let element = |(index, &x): (usize, &Bounded)| {
            let (t, c) = (index / width, index % width);
            let g = gate[t * self.gate.shape[1] + first + c / dim * step + c % dim];
            (x * g.sigmoid().bf16()).bf16()
        };
        x.iter().enumerate().map(element).collect()
    }
}

pub(super) struct CausalConv {
    x: Host,
    w: Host,
    segments: Vec<usize>,
    fill: Fill,
}

pub(super) fn causal_conv_cases() -> Vec<CausalConv> {
    let mut rng = Rng::new(11);
    let mut cases = Vec::new();
    let segments: [&[usize]; 5] = [&[1], &[1, 2, 3, 4, 5], &[63, 65], &[64, 1, 17], &[16]];
    for (i, segments) in segments.into_iter().enumerate() {
        for (j, channels) in [1, 15, 16, 17, 33, 64, 65, 130].into_iter().enumerate() {
            let width = [4, 1, 2, 3, 4, 5][(i + j) % 6];
            let shape: &[usize] = if j % 2 == 0 { &[channels, 1, width] } else { &[channels, width] };
            let fill = [Fill::Normal(1.0), Fill::Extreme(100.0), Fill::OneHot(5.0)][(i + j) % 3];
            cases.push(CausalConv {
                x: rng.bf16(&[segments.iter().sum(), channels], fill),
                w: rng.bf16(shape, Fill::Normal(1.0)),
                segments: segments.to_vec(),
                fill,
            });
        }
    }
    cases
}

/// A drawn case.
#[cfg(feature = "drawn")]
pub(super) fn causal_conv_drawn(draw: &Draw) -> CausalConv {
    let mut rng = draw.rng();
    let fill = draw.fill([Fill::Normal(1.0), Fill::Extreme(100.0), Fill::OneHot(5.0)]);
    CausalConv {
        x: rng.bf16(&[draw.tokens, draw.inputs], fill),
        w: rng.bf16(&[draw.inputs, draw.heads + usize::from(draw.options[0])], Fill::Normal(1.0)),
        segments: draw.segments(),
        fill,
    }
}

/// The causal convolution over a model's channels.
pub(super) fn causal_conv_model_cases(config: &ModelConfig) -> Vec<CausalConv> {
    let text = &config.text;
    let channels = 2 * text.linear_num_key_heads * text.linear_key_head_dim
        + text.linear_num_value_heads * text.linear_value_head_dim;
    let mut rng = Rng::new(111);
    let fill = Fill::Normal(1.0);
    vec![CausalConv {
        x: rng.bf16(&[19, channels], fill),
        w: rng.bf16(&[channels, 1, text.linear_conv_kernel_dim], fill),
        segments: vec![17, 2],
        fill,
    }]
}

impl Case for CausalConv {
    fn name(&self) -> String {
        let (x, w) = (&self.x.shape, &self.w.shape);
        format!("causal_conv_silu {x:?}, w {w:?}, {:?}, {:?}", self.segments, self.fill)
    }

    fn weights(&self) -> Vec<(Role, &Host)> {
        vec![(Role::Depthwise, &self.w)]
    }

    fn run<B: Backend>(&self, b: &B, weights: &[B::Tensor]) -> Result<B::Tensor, BackendError> {
        b.causal_conv_silu(&self.x.upload(b)?, &weights[0], &self.segments)
    }

    fn expected(&self) -> Vec<Bounded> {
        let (x, w) = (self.x.exact(), self.w.exact());
        let (channels, width) = (self.x.shape[1], *self.w.shape.last().unwrap());
        let mut out = Vec::new();
        let mut start = 0;
        for &len in &self.segments {
            for t in start..start + len {
                for c in 0..channels {
                    let first = (width - 1).saturating_sub(t - start);
                    let terms =
                        (first..width).map(|j| (w[c * width + j], x[(t + j + 1 - width) * channels + c]));
                    out.push(Bounded::dot(terms).bf16().silu().bf16());
                }
            }
            start += len;
        }
        out
    }
}

pub(super) struct Euler {
    x: Host,
    v_cond: Host,
    v_uncond: Option<Host>,
    cfg: f32,
    dt: f32,
    fill: Fill,
}

pub(super) fn euler_cases() -> Vec<Euler> {
    let mut rng = Rng::new(12);
    let mut cases = Vec::new();
    for (i, tokens) in [1, 15, 16, 17, 64].into_iter().enumerate() {
        for guided in [false, true] {
            let fill = if i % 2 == 0 { Fill::Normal(1.0) } else { Fill::Extreme(1e6) };
            let shape = [tokens, [128, 3][i % 2]];
            cases.push(Euler {
                x: rng.f32(&shape, fill),
                v_cond: rng.bf16(&shape, fill),
                v_uncond: guided.then(|| rng.bf16(&shape, fill)),
                cfg: 4.1,
                dt: -0.037,
                fill,
            });
        }
    }
    cases
}

/// A drawn case.
#[cfg(feature = "drawn")]
pub(super) fn euler_drawn(draw: &Draw) -> Euler {
    let mut rng = draw.rng();
    let fill = draw.fill([Fill::Normal(1.0), Fill::Extreme(1e6), Fill::OneHot(3.0)]);
    let shape = [draw.tokens, draw.inputs];
    Euler {
        x: rng.f32(&shape, fill),
        v_cond: rng.bf16(&shape, fill),
        v_uncond: draw.options[0].then(|| rng.bf16(&shape, fill)),
        cfg: 8.0 * rng.uniform(),
        dt: -rng.uniform(),
        fill,
    }
}

impl Case for Euler {
    fn name(&self) -> String {
        format!("euler_step {:?}, guided {}, {:?}", self.x.shape, self.v_uncond.is_some(), self.fill)
    }

    fn run<B: Backend>(&self, b: &B, _: &[B::Tensor]) -> Result<B::Tensor, BackendError> {
        let (x, v_cond) = (self.x.upload(b)?, self.v_cond.upload(b)?);
        let v_uncond = self.v_uncond.as_ref().map(|v| v.upload(b)).transpose()?;
        b.euler_step(&x, &v_cond, v_uncond.as_ref(), self.cfg, self.dt)
    }

    fn expected(&self) -> Vec<Bounded> {
        let (x, v_cond) = (self.x.exact(), self.v_cond.exact());
        let v_uncond = self.v_uncond.as_ref().map(Host::exact);
        let step = |i: usize| {
            let c = v_cond[i];
            let v = v_uncond.as_ref().map_or(c, |u| u[i] + Bounded::from(self.cfg) * (c - u[i]));
            x[i] + Bounded::from(self.dt) * v
        };
        (0..x.len()).map(step).collect()
    }
}
