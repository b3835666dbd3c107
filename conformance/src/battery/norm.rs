//! Cases of `norm`, `head_norm_rope` and `gated_norm`.

use moss_reference::backend::{self, Backend, BackendError, Heads, HostData, Modulation, NormKind, Role};
use moss_reference::model::config::ModelConfig;

use super::Case;
#[cfg(feature = "drawn")]
use super::drawn::Draw;
use super::inputs::{Fill, Host, Rng};
use crate::bounded::Bounded;

/// `1 / sqrt(sum(x * x) / D + eps)`.
fn rms_factor(x: &[Bounded], eps: f32) -> Bounded {
    let sum = Bounded::dot(x.iter().map(|&x| (x, x)));
    Bounded::from(1.0) / (sum / Bounded::from(x.len() as f32) + eps.into()).sqrt()
}

fn norm_row(x: &[Bounded], weight: &[Bounded], eps: f32, kind: NormKind) -> Vec<Bounded> {
    let r = rms_factor(x, eps);
    let scaled = |(&x, &w): (&Bounded, &Bounded)| match kind {
        NormKind::Plain => ((x * r).bf16() * w).bf16(),
        NormKind::ZeroCentred => (x * r * (Bounded::from(1.0) + w)).bf16(),
    };
    x.iter().zip(weight).map(scaled).collect()
}

const KINDS: [NormKind; 2] = [NormKind::Plain, NormKind::ZeroCentred];

pub(super) struct Norm {
    x: Host,
    weight: Host,
    modulation: Option<(Host, Host)>,
    eps: f32,
    kind: NormKind,
    fill: Fill,
}

pub(super) fn norm_cases() -> Vec<Norm> {
    let mut rng = Rng::new(1);
    let mut cases = Vec::new();
    let widths = [1, 15, 16, 17, 31, 33, 63, 64, 65, 255, 256, 257, 513, 768];
    for (i, width) in widths.into_iter().enumerate() {
        for kind in KINDS {
            for modulated in [false, true] {
                for fill in [Fill::Normal(1.0), Fill::Extreme(1e15), Fill::OneHot(3e4)] {
                    let mut row = || rng.bf16(&[1, width], Fill::Normal(0.5));
                    let modulation = modulated.then(|| (row(), row()));
                    cases.push(Norm {
                        x: rng.bf16(&[[1, 2, 3, 65][i % 4], width], fill),
                        weight: rng.bf16(&[width], Fill::Normal(1.0)),
                        modulation,
                        eps: 1e-6,
                        kind,
                        fill,
                    });
                }
            }
        }
    }
    cases
}

/// The norms over a model's widths.
pub(super) fn norm_model_cases(config: &ModelConfig) -> Vec<Norm> {
    let mut rng = Rng::new(101);
    let sizes = [
        (config.dit.dim, NormKind::Plain, true),
        (config.dit.text_dim, NormKind::Plain, false),
        (config.text.hidden_size, NormKind::ZeroCentred, false),
    ];
    let case = |(width, kind, modulated): (usize, NormKind, bool)| {
        let mut row = || rng.bf16(&[1, width], Fill::Normal(0.5));
        let modulation = modulated.then(|| (row(), row()));
        Norm {
            x: rng.bf16(&[17, width], Fill::Normal(1.0)),
            weight: rng.bf16(&[width], Fill::Normal(1.0)),
            modulation,
            eps: 1e-6,
            kind,
            fill: Fill::Normal(1.0),
        }
    };
    sizes.into_iter().map(case).collect()
}

/// A drawn case.
#[cfg(feature = "drawn")]
pub(super) fn norm_drawn(draw: &Draw) -> Norm {
    let &Draw { tokens, inputs: width, options, .. } = draw;
    let mut rng = draw.rng();
    let fill = draw.fill([Fill::Normal(1.0), Fill::Extreme(1e15), Fill::OneHot(3e4)]);
    let mut row = || rng.bf16(&[1, width], Fill::Normal(0.5));
    let modulation = options[0].then(|| (row(), row()));
    Norm {
        x: rng.bf16(&[tokens, width], fill),
        weight: rng.bf16(&[width], Fill::Normal(1.0)),
        modulation,
        eps: 1e-6,
        kind: KINDS[usize::from(options[1])],
        fill,
    }
}

impl Case for Norm {
    fn name(&self) -> String {
        let modulated = self.modulation.is_some();
        format!("norm {:?}, {:?}, modulated {modulated}, {:?}", self.x.shape, self.kind, self.fill)
    }

    fn weights(&self) -> Vec<(Role, &Host)> {
        vec![(Role::Vector, &self.weight)]
    }

    fn run<B: Backend>(&self, b: &B, weights: &[B::Tensor]) -> Result<B::Tensor, BackendError> {
        let x = self.x.upload(b)?;
        let Some((scale, shift)) = &self.modulation else {
            return b.norm(&x, backend::Norm { weight: &weights[0], eps: self.eps, kind: self.kind }, None);
        };
        let (scale, shift) = (scale.upload(b)?, shift.upload(b)?);
        b.norm(
            &x,
            backend::Norm { weight: &weights[0], eps: self.eps, kind: self.kind },
            Some(Modulation { scale: &scale, shift: &shift }),
        )
    }

    fn expected(&self) -> Vec<Bounded> {
        let (x, weight) = (self.x.exact(), self.weight.exact());
        let mut y: Vec<Bounded> =
            x.chunks(weight.len()).flat_map(|x| norm_row(x, &weight, self.eps, self.kind)).collect();
        if let Some((scale, shift)) = &self.modulation {
            let (scale, shift) = (scale.exact(), shift.exact());
            for (i, y) in y.iter_mut().enumerate() {
                let c = i % weight.len();
                let factor = (Bounded::from(1.0) + scale[c]).bf16();
                *y = ((*y * factor).bf16() + shift[c]).bf16();
            }
        }
        y
    }
}

pub(super) struct HeadNormRope {
    x: Host,
    heads: Heads,
    weight: Host,
    cos: Host,
    sin: Host,
    eps: f32,
    kind: NormKind,
    fill: Fill,
}

pub(super) fn head_norm_rope_cases() -> Vec<HeadNormRope> {
    let mut rng = Rng::new(2);
    let mut cases = Vec::new();
    let sizes = [(2, 1), (15, 7), (16, 8), (17, 3), (64, 32), (66, 33), (128, 64), (256, 32), (300, 17)];
    for (i, (dim, rotary)) in sizes.into_iter().enumerate() {
        for kind in KINDS {
            for fill in [Fill::Normal(1.0), Fill::Extreme(1e4), Fill::OneHot(7.0)] {
                for (first, gap, count) in [(0, 0, 3), (5, 3, 2), (dim, dim, 1)] {
                    let heads = Heads { first, step: dim + gap, count, dim };
                    let tokens = [1, 2, 17, 65][i % 4];
                    let (cos, sin) = tables(&mut rng, tokens, rotary);
                    cases.push(HeadNormRope {
                        // Rows end behind the last head, or one column later.
                        x: rng.bf16(&[tokens, first + count * (dim + gap) + first % 2], fill),
                        heads,
                        weight: rng.bf16(&[dim], Fill::Normal(1.0)),
                        cos,
                        sin,
                        eps: 1e-6,
                        kind,
                        fill,
                    });
                }
            }
        }
    }
    cases
}

/// Cosines and sines of some angles, bf16 `[tokens, rotary]`.
fn tables(rng: &mut Rng, tokens: usize, rotary: usize) -> (Host, Host) {
    let angles = rng.f32(&[tokens, rotary], Fill::Normal(3.0)).data.to_f32();
    let table = |f: fn(f32) -> f32| Host {
        shape: vec![tokens, rotary],
        data: HostData::Bf16(angles.iter().map(|&a| half::bf16::from_f32(f(a))).collect()),
    };
    (table(f32::cos), table(f32::sin))
}

/// A drawn case.
#[cfg(feature = "drawn")]
pub(super) fn head_norm_rope_drawn(draw: &Draw) -> HeadNormRope {
    let &Draw { tokens, heads: count, gap, options, .. } = draw;
    let dim = 2 * draw.inputs;
    let rotary = if options[0] { draw.inputs } else { draw.inputs.div_ceil(2) };
    let mut rng = draw.rng();
    let fill = draw.fill([Fill::Normal(1.0), Fill::Extreme(1e4), Fill::OneHot(7.0)]);
    let (cos, sin) = tables(&mut rng, tokens, rotary);
    HeadNormRope {
        x: rng.bf16(&[tokens, gap + count * (dim + gap)], fill),
        heads: Heads { first: gap, step: dim + gap, count, dim },
        weight: rng.bf16(&[dim], Fill::Normal(1.0)),
        cos,
        sin,
        eps: 1e-6,
        kind: KINDS[usize::from(options[1])],
        fill,
    }
}

impl Case for HeadNormRope {
    fn name(&self) -> String {
        let rope = &self.cos.shape;
        format!(
            "head_norm_rope {:?}, {:?}, rope {rope:?}, {:?}, {:?}",
            self.x.shape, self.heads, self.kind, self.fill
        )
    }

    fn weights(&self) -> Vec<(Role, &Host)> {
        vec![(Role::Vector, &self.weight)]
    }

    fn run<B: Backend>(&self, b: &B, weights: &[B::Tensor]) -> Result<B::Tensor, BackendError> {
        let (x, cos, sin) = (self.x.upload(b)?, self.cos.upload(b)?, self.sin.upload(b)?);
        b.head_norm_rope(
            &x,
            self.heads,
            backend::Norm { weight: &weights[0], eps: self.eps, kind: self.kind },
            (&cos, &sin),
        )
    }

    fn expected(&self) -> Vec<Bounded> {
        let (x, weight) = (self.x.exact(), self.weight.exact());
        let (cos, sin) = (self.cos.exact(), self.sin.exact());
        let (width, rotary) = (self.x.shape[1], self.cos.shape[1]);
        let mut out = Vec::new();
        for (t, row) in x.chunks(width).enumerate() {
            for i in 0..self.heads.count {
                let head = &row[self.heads.first + i * self.heads.step..][..self.heads.dim];
                let mut y = norm_row(head, &weight, self.eps, self.kind);
                for j in 0..rotary {
                    let (a, b) = (y[j], y[j + rotary]);
                    let (cos, sin) = (cos[t * rotary + j], sin[t * rotary + j]);
                    y[j] = ((a * cos).bf16() - (b * sin).bf16()).bf16();
                    y[j + rotary] = ((b * cos).bf16() + (a * sin).bf16()).bf16();
                }
                out.extend(y);
            }
        }
        out
    }
}

pub(super) struct GatedNorm {
    x: Host,
    z: Host,
    weight: Host,
    eps: f32,
    fill: Fill,
}

pub(super) fn gated_norm_cases() -> Vec<GatedNorm> {
    let mut rng = Rng::new(3);
    let mut cases = Vec::new();
    for (i, dim) in [1, 15, 16, 17, 64, 65, 128, 256, 300].into_iter().enumerate() {
        for fill in [Fill::Normal(1.0), Fill::Extreme(60.0), Fill::OneHot(200.0)] {
            let shape = [[1, 3, 17, 65][i % 4], dim * (1 + i % 3)];
            cases.push(GatedNorm {
                x: rng.bf16(&shape, fill),
                z: rng.bf16(&shape, fill),
                weight: rng.bf16(&[dim], Fill::Normal(1.0)),
                eps: 1e-6,
                fill,
            });
        }
    }
    cases
}

/// A drawn case.
#[cfg(feature = "drawn")]
pub(super) fn gated_norm_drawn(draw: &Draw) -> GatedNorm {
    let mut rng = draw.rng();
    let fill = draw.fill([Fill::Normal(1.0), Fill::Extreme(60.0), Fill::OneHot(200.0)]);
    let shape = [draw.tokens, draw.inputs * draw.heads];
    GatedNorm {
        x: rng.bf16(&shape, fill),
        z: rng.bf16(&shape, fill),
        weight: rng.bf16(&[draw.inputs], Fill::Normal(1.0)),
        eps: 1e-6,
        fill,
    }
}

impl Case for GatedNorm {
    fn name(&self) -> String {
        format!("gated_norm {:?}, head {:?}, {:?}", self.x.shape, self.weight.shape, self.fill)
    }

    fn weights(&self) -> Vec<(Role, &Host)> {
        vec![(Role::Vector, &self.weight)]
    }

    fn run<B: Backend>(&self, b: &B, weights: &[B::Tensor]) -> Result<B::Tensor, BackendError> {
        b.gated_norm(&self.x.upload(b)?, &self.z.upload(b)?, &weights[0], self.eps)
    }

    fn expected(&self) -> Vec<Bounded> {
        let (x, z, weight) = (self.x.exact(), self.z.exact(), self.weight.exact());
        let dim = weight.len();
        let mut out = Vec::new();
        for (x, z) in x.chunks(dim).zip(z.chunks(dim)) {
            let r = rms_factor(x, self.eps);
            out.extend((0..dim).map(|j| ((weight[j] * (x[j] * r).bf16()).bf16() * z[j].silu()).bf16()));
        }
        out
    }
}
