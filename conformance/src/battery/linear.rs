//! Cases of `linear` and `linear_glu`.

use moss_reference::backend::{Backend, BackendError, Epilogue, Glu, Role};
use moss_reference::model::config::ModelConfig;

use super::Case;
#[cfg(feature = "drawn")]
use super::drawn::Draw;
use super::inputs::{Fill, Host, Rng};
use crate::bounded::Bounded;

/// Tokens, inputs, outputs: each side of the tiles of 8, 16, 32, 64 and 128.
const SIZES: [(usize, usize, usize); 14] = [
    (1, 1, 1),
    (1, 64, 130),
    (2, 16, 15),
    (3, 31, 16),
    (15, 33, 17),
    (16, 64, 31),
    (17, 65, 33),
    (31, 128, 63),
    (33, 96, 64),
    (63, 32, 65),
    (64, 256, 128),
    (130, 129, 96),
    (65, 80, 48),
    (129, 48, 80),
];

/// Tokens of the cases at a model's sizes: few, for the naive oracle takes its time over them.
const MODEL_TOKENS: usize = 3;

const FILLS: [Fill; 3] = [Fill::Normal(1.0), Fill::Extreme(100.0), Fill::OneHot(5.0)];

/// Row `t`, output `i` of the product, rounded to bf16.
fn product(x: &[Bounded], w: &[Bounded], bias: Option<Bounded>) -> Bounded {
    let acc = Bounded::dot(x.iter().copied().zip(w.iter().copied()));
    bias.map_or(acc, |bias| acc + bias).bf16()
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    None,
    Silu,
    Residual,
    GatedResidual,
}

pub(super) struct Linear {
    x: Host,
    w: Host,
    bias: Option<Host>,
    residual: Host,
    gate: Host,
    kind: Kind,
    fill: Fill,
}

pub(super) fn linear_cases() -> Vec<Linear> {
    let mut rng = Rng::new(4);
    let mut cases = Vec::new();
    for (i, (tokens, k, n)) in SIZES.into_iter().enumerate() {
        for (j, kind) in [Kind::None, Kind::Silu, Kind::Residual, Kind::GatedResidual].into_iter().enumerate()
        {
            let fill = FILLS[(i + j) % 3];
            cases.push(Linear {
                x: rng.bf16(&[tokens, k], fill),
                w: rng.bf16(&[n, k], Fill::Normal(1.0 / (k as f32).sqrt())),
                bias: (j % 2 == i % 2).then(|| rng.bf16(&[n], Fill::Normal(1.0))),
                residual: rng.bf16(&[tokens, n], Fill::Normal(1.0)),
                gate: rng.bf16(&[1, n], Fill::Normal(1.0)),
                kind,
                fill,
            });
        }
    }
    cases
}

/// A drawn case.
#[cfg(feature = "drawn")]
pub(super) fn linear_drawn(draw: &Draw) -> Linear {
    let &Draw { tokens, inputs: k, outputs: n, options, .. } = draw;
    let (mut rng, fill) = (draw.rng(), draw.fill(FILLS));
    Linear {
        x: rng.bf16(&[tokens, k], fill),
        w: rng.bf16(&[n, k], Fill::Normal(1.0 / (k as f32).sqrt())),
        bias: options[0].then(|| rng.bf16(&[n], Fill::Normal(1.0))),
        residual: rng.bf16(&[tokens, n], Fill::Normal(1.0)),
        gate: rng.bf16(&[1, n], Fill::Normal(1.0)),
        kind: match (options[1], options[2]) {
            (false, false) => Kind::None,
            (false, true) => Kind::Silu,
            (true, false) => Kind::Residual,
            (true, true) => Kind::GatedResidual,
        },
        fill,
    }
}

/// The matrix products of a model's blocks and layers, for few tokens.
pub(super) fn linear_model_cases(config: &ModelConfig) -> Vec<Linear> {
    let (dit, text) = (&config.dit, &config.text);
    let heads = text.num_attention_heads * text.head_dim;
    // Inputs, outputs.
    let sizes = [
        (dit.dim, dit.dim, Kind::GatedResidual),
        (dit.ffn_dim, dit.dim, Kind::GatedResidual),
        (dit.text_dim, dit.dim, Kind::None),
        (text.hidden_size, 2 * heads, Kind::None),
        (heads, text.hidden_size, Kind::Residual),
        (text.intermediate_size, text.hidden_size, Kind::Residual),
    ];
    let mut rng = Rng::new(104);
    let case = |(k, n, kind): (usize, usize, Kind)| Linear {
        x: rng.bf16(&[MODEL_TOKENS, k], Fill::Normal(1.0)),
        w: rng.bf16(&[n, k], Fill::Normal(1.0 / (k as f32).sqrt())),
        bias: None,
        residual: rng.bf16(&[MODEL_TOKENS, n], Fill::Normal(1.0)),
        gate: rng.bf16(&[1, n], Fill::Normal(1.0)),
        kind,
        fill: Fill::Normal(1.0),
    };
    sizes.into_iter().map(case).collect()
}

impl Case for Linear {
    fn name(&self) -> String {
        let (x, w, bias) = (&self.x.shape, &self.w.shape, self.bias.is_some());
        format!("linear {x:?} x {w:?}, bias {bias}, {:?}, {:?}", self.kind, self.fill)
    }

    fn weights(&self) -> Vec<(Role, &Host)> {
        let bias = self.bias.iter().map(|bias| (Role::Vector, bias));
        std::iter::once((Role::Matrix, &self.w)).chain(bias).collect()
    }

    fn run<B: Backend>(&self, b: &B, weights: &[B::Tensor]) -> Result<B::Tensor, BackendError> {
        let (x, residual, gate) = (self.x.upload(b)?, self.residual.upload(b)?, self.gate.upload(b)?);
        let epilogue = match self.kind {
            Kind::None => Epilogue::None,
            Kind::Silu => Epilogue::Silu,
            Kind::Residual => Epilogue::Residual(&residual),
            Kind::GatedResidual => Epilogue::GatedResidual { residual: &residual, gate: &gate },
        };
        b.linear(&x, &weights[0], weights.get(1), epilogue)
    }

    fn expected(&self) -> Vec<Bounded> {
        let (k, n) = (self.x.shape[1], self.w.shape[0]);
        let (x, w, bias) = (self.x.exact(), self.w.exact(), self.bias.as_ref().map(Host::exact));
        let (residual, gate) = (self.residual.exact(), self.gate.exact());
        let element = |index: usize| {
            let (t, i) = (index / n, index % n);
            let y = product(&x[t * k..][..k], &w[i * k..][..k], bias.as_ref().map(|b| b[i]));
            match self.kind {
                Kind::None => y,
                Kind::Silu => y.silu().bf16(),
                Kind::Residual => (residual[index] + y).bf16(),
                Kind::GatedResidual => (residual[index] + (y * gate[i]).bf16()).bf16(),
            }
        };
        (0..self.x.shape[0] * n).map(element).collect()
    }
}

pub(super) struct LinearGlu {
    x: Host,
    w: Host,
    bias: Option<Host>,
    glu: Glu,
    fill: Fill,
}

pub(super) fn glu_cases() -> Vec<LinearGlu> {
    let mut rng = Rng::new(5);
    let mut cases = Vec::new();
    for (i, (tokens, k, f)) in SIZES.into_iter().enumerate() {
        for (j, glu) in [Glu::Silu, Glu::Situ].into_iter().enumerate() {
            let fill = FILLS[(i + j) % 3];
            cases.push(LinearGlu {
                x: rng.bf16(&[tokens, k], fill),
                w: rng.bf16(&[2 * f, k], Fill::Normal(3.0 / (k as f32).sqrt())),
                bias: (j == i % 2).then(|| rng.bf16(&[2 * f], Fill::Normal(1.0))),
                glu,
                fill,
            });
        }
    }
    cases
}

/// A drawn case.
#[cfg(feature = "drawn")]
pub(super) fn glu_drawn(draw: &Draw) -> LinearGlu {
    let &Draw { tokens, inputs: k, outputs: f, options, .. } = draw;
    let (mut rng, fill) = (draw.rng(), draw.fill(FILLS));
    LinearGlu {
        x: rng.bf16(&[tokens, k], fill),
        w: rng.bf16(&[2 * f, k], Fill::Normal(3.0 / (k as f32).sqrt())),
        bias: options[0].then(|| rng.bf16(&[2 * f], Fill::Normal(1.0))),
        glu: if options[1] { Glu::Situ } else { Glu::Silu },
        fill,
    }
}

/// The gated units of a model, for few tokens.
pub(super) fn glu_model_cases(config: &ModelConfig) -> Vec<LinearGlu> {
    let (dit, text) = (&config.dit, &config.text);
    let sizes = [(dit.dim, dit.ffn_dim, Glu::Situ), (text.hidden_size, text.intermediate_size, Glu::Silu)];
    let mut rng = Rng::new(105);
    let case = |(k, f, glu): (usize, usize, Glu)| LinearGlu {
        x: rng.bf16(&[MODEL_TOKENS, k], Fill::Normal(1.0)),
        w: rng.bf16(&[2 * f, k], Fill::Normal(3.0 / (k as f32).sqrt())),
        bias: None,
        glu,
        fill: Fill::Normal(1.0),
    };
    sizes.into_iter().map(case).collect()
}

impl Case for LinearGlu {
    fn name(&self) -> String {
        let (x, w, bias) = (&self.x.shape, &self.w.shape, self.bias.is_some());
        format!("linear_glu {x:?} x {w:?}, bias {bias}, {:?}, {:?}", self.glu, self.fill)
    }

    fn weights(&self) -> Vec<(Role, &Host)> {
        let bias = self.bias.iter().map(|bias| (Role::Vector, bias));
        std::iter::once((Role::UpGate, &self.w)).chain(bias).collect()
    }

    fn run<B: Backend>(&self, b: &B, weights: &[B::Tensor]) -> Result<B::Tensor, BackendError> {
        b.linear_glu(&self.x.upload(b)?, &weights[0], weights.get(1), self.glu)
    }

    fn expected(&self) -> Vec<Bounded> {
        let (k, f) = (self.x.shape[1], self.w.shape[0] / 2);
        let (x, w, bias) = (self.x.exact(), self.w.exact(), self.bias.as_ref().map(Host::exact));
        let output =
            |t: usize, i: usize| product(&x[t * k..][..k], &w[i * k..][..k], bias.as_ref().map(|b| b[i]));
        let element = |index: usize| {
            let (t, i) = (index / f, index % f);
            let (u, g) = (output(t, i), output(t, f + i));
            match self.glu {
                Glu::Silu => (g.silu().bf16() * u).bf16(),
                Glu::Situ => {
                    let (four, twenty_five) = (Bounded::from(4.0), Bounded::from(25.0));
                    let a = (four * (g / four).bf16().tanh().bf16()).bf16();
                    let p = (a * g.sigmoid().bf16()).bf16();
                    let t = (twenty_five * (u / twenty_five).bf16().tanh().bf16()).bf16();
                    (p * t).bf16()
                }
            }
        };
        (0..self.x.shape[0] * f).map(element).collect()
    }
}
