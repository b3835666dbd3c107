//! Cases of `unpack_latents`, `conv2d` and `group_norm`.

use moss_reference::backend::{self, Backend, BackendError, Conv2d, Role};
use moss_reference::model::config::ModelConfig;

use super::Case;
#[cfg(feature = "drawn")]
use super::drawn::Draw;
use super::inputs::{Fill, Host, Rng};
use crate::bounded::Bounded;

/// A per-channel variance or other positive vector.
fn positive(rng: &mut Rng, n: usize) -> Host {
    let mut host = rng.f32(&[n], Fill::Normal(1.0));
    if let backend::HostData::F32(values) = &mut host.data {
        values.iter_mut().for_each(|x| *x = x.abs() + 0.01);
    }
    host
}

pub(super) struct Unpack {
    x: Host,
    mean: Host,
    var: Host,
    width: usize,
}

pub(super) fn unpack_cases() -> Vec<Unpack> {
    let mut rng = Rng::new(13);
    [(1, 1, 1), (3, 5, 2), (2, 17, 32), (16, 1, 15), (5, 8, 17)]
        .into_iter()
        .enumerate()
        .map(|(i, (height, width, channels))| Unpack {
            x: rng.f32(
                &[height * width, 4 * channels],
                if i % 2 == 0 { Fill::Normal(1.0) } else { Fill::Extreme(1e4) },
            ),
            mean: rng.f32(&[4 * channels], Fill::Normal(1.0)),
            var: positive(&mut rng, 4 * channels),
            width,
        })
        .collect()
}

/// A drawn case.
#[cfg(feature = "drawn")]
pub(super) fn unpack_drawn(draw: &Draw) -> Unpack {
    let mut rng = draw.rng();
    let fill = draw.fill([Fill::Normal(1.0), Fill::Extreme(1e4), Fill::OneHot(2.0)]);
    Unpack {
        x: rng.f32(&[draw.heads * draw.tokens, 4 * draw.inputs], fill),
        mean: rng.f32(&[4 * draw.inputs], Fill::Normal(1.0)),
        var: positive(&mut rng, 4 * draw.inputs),
        width: draw.tokens,
    }
}

impl Case for Unpack {
    fn name(&self) -> String {
        format!("unpack_latents {:?}, width {}", self.x.shape, self.width)
    }

    fn weights(&self) -> Vec<(Role, &Host)> {
        vec![(Role::VectorF32, &self.mean), (Role::VectorF32, &self.var)]
    }

    fn run<B: Backend>(&self, b: &B, weights: &[B::Tensor]) -> Result<B::Tensor, BackendError> {
        b.unpack_latents(&self.x.upload(b)?, &weights[0], &weights[1], 1e-4, self.width)
    }

    fn expected(&self) -> Vec<Bounded> {
        let (x, mean, var) = (self.x.exact(), self.mean.exact(), self.var.exact());
        let channels = mean.len() / 4;
        let mut out = vec![Bounded::from(0.0); x.len()];
        for (index, &x) in x.iter().enumerate() {
            let (token, packed) = (index / (4 * channels), index % (4 * channels));
            let (c, i, j) = (packed / 4, packed / 2 % 2, packed % 2);
            let (y, px) = (token / self.width * 2 + i, token % self.width * 2 + j);
            let std = (var[packed] + Bounded::from(1e-4)).sqrt();
            out[(y * 2 * self.width + px) * channels + c] = x * std + mean[packed];
        }
        out
    }
}

pub(super) struct Conv {
    x: Host,
    norm: Option<(Host, bool)>,
    w: Host,
    bias: Host,
    upsample: bool,
    residual: Option<Host>,
    fill: Fill,
}

pub(super) fn conv_cases() -> Vec<Conv> {
    let mut rng = Rng::new(14);
    let mut cases = Vec::new();
    // Rows, columns, inputs, outputs.
    let sizes =
        [(1, 1, 1, 1), (2, 3, 15, 17), (5, 17, 16, 16), (3, 33, 31, 33), (9, 8, 32, 3), (4, 31, 65, 64)];
    for (i, (height, width, inputs, outputs)) in sizes.into_iter().enumerate() {
        for kernel in [1, 3] {
            for upsample in [false, true] {
                for variant in 0..3 {
                    let fill = [Fill::Normal(1.0), Fill::Extreme(50.0), Fill::OneHot(9.0)][(i + variant) % 3];
                    let scale = if upsample { 2 } else { 1 };
                    let w_shape: &[usize] =
                        if kernel == 1 { &[outputs, inputs] } else { &[outputs, inputs, 3, 3] };
                    let std = 1.0 / ((inputs * kernel * kernel) as f32).sqrt();
                    let out_shape = [height * scale, width * scale, outputs];
                    cases.push(Conv {
                        x: rng.f32(&[height, width, inputs], fill),
                        norm: (variant > 0).then(|| (rng.f32(&[2, inputs], Fill::Normal(1.0)), variant == 2)),
                        w: rng.f32(w_shape, Fill::Normal(std)),
                        bias: rng.f32(&[outputs], Fill::Normal(1.0)),
                        upsample,
                        residual: (i % 2 == variant % 2).then(|| rng.f32(&out_shape, Fill::Normal(1.0))),
                        fill,
                    });
                }
            }
        }
    }
    cases
}

/// The convolutions between a decoder's widths, on a few pixels.
pub(super) fn conv_model_cases(config: &ModelConfig) -> Vec<Conv> {
    let widths = config.vae.decoder_widths();
    let mut rng = Rng::new(114);
    let mut cases = Vec::new();
    let (first, last) = (widths[0], widths[widths.len() - 1]);
    let pairs = widths.windows(2).map(|pair| (pair[1], pair[0]));
    for (inputs, outputs) in
        [(config.vae.latent_channels, last), (last, last)].into_iter().chain(pairs).chain([(first, 3)])
    {
        let normed = inputs != config.vae.latent_channels;
        let residual = inputs == outputs;
        cases.push(Conv {
            x: rng.f32(&[3, 9, inputs], Fill::Normal(1.0)),
            norm: normed.then(|| (rng.f32(&[2, inputs], Fill::Normal(1.0)), true)),
            w: rng.f32(&[outputs, inputs, 3, 3], Fill::Normal(1.0 / (9.0 * inputs as f32).sqrt())),
            bias: rng.f32(&[outputs], Fill::Normal(1.0)),
            upsample: false,
            residual: residual.then(|| rng.f32(&[3, 9, outputs], Fill::Normal(1.0))),
            fill: Fill::Normal(1.0),
        });
    }
    cases
}

/// A drawn case.
#[cfg(feature = "drawn")]
pub(super) fn conv_drawn(draw: &Draw) -> Conv {
    let &Draw { inputs, outputs, heads: height, options: [wide, upsample, residual], .. } = draw;
    // A few columns: the formula takes its time over 9 products of each.
    let (width, scale) = (draw.tokens.div_ceil(4), if upsample { 2 } else { 1 });
    let mut rng = draw.rng();
    let fill = draw.fill([Fill::Normal(1.0), Fill::Extreme(50.0), Fill::OneHot(9.0)]);
    let w_shape: &[usize] = if wide { &[outputs, inputs, 3, 3] } else { &[outputs, inputs] };
    let taps: usize = w_shape[1..].iter().product();
    Conv {
        x: rng.f32(&[height, width, inputs], fill),
        norm: (draw.ratio > 1).then(|| (rng.f32(&[2, inputs], Fill::Normal(1.0)), draw.ratio == 3)),
        w: rng.f32(w_shape, Fill::Normal(1.0 / (taps as f32).sqrt())),
        bias: rng.f32(&[outputs], Fill::Normal(1.0)),
        upsample,
        residual: residual.then(|| rng.f32(&[height * scale, width * scale, outputs], Fill::Normal(1.0))),
        fill,
    }
}

impl Case for Conv {
    fn name(&self) -> String {
        let (x, w, norm) = (&self.x.shape, &self.w.shape, self.norm.as_ref().map(|(_, silu)| silu));
        let (upsample, residual) = (self.upsample, self.residual.is_some());
        let options = format!("norm with silu {norm:?}, upsample {upsample}, residual {residual}");
        format!("conv2d {x:?}, w {w:?}, {options}, {:?}", self.fill)
    }

    fn weights(&self) -> Vec<(Role, &Host)> {
        vec![(Role::Conv2d, &self.w), (Role::VectorF32, &self.bias)]
    }

    fn run<B: Backend>(&self, b: &B, weights: &[B::Tensor]) -> Result<B::Tensor, BackendError> {
        let x = self.x.upload(b)?;
        let ab = self.norm.as_ref().map(|(ab, _)| ab.upload(b)).transpose()?;
        let norm = ab.as_ref().zip(self.norm.as_ref()).map(|(ab, (_, silu))| (ab, *silu));
        let residual = self.residual.as_ref().map(|r| r.upload(b)).transpose()?;
        b.conv2d(
            &x,
            Conv2d {
                weight: &weights[0],
                bias: &weights[1],
                norm,
                upsample: self.upsample,
                residual: residual.as_ref(),
            },
        )
    }

    fn expected(&self) -> Vec<Bounded> {
        let [height, width, inputs] = self.x.shape[..] else { unreachable!("x is [H, W, C]") };
        let (mut x, w, bias) = (self.x.exact(), self.w.exact(), self.bias.exact());
        if let Some((ab, silu)) = &self.norm {
            let ab = ab.exact();
            for (i, x) in x.iter_mut().enumerate() {
                *x = Bounded::fma(*x, ab[i % inputs], ab[inputs + i % inputs]);
                if *silu {
                    *x = x.silu();
                }
            }
        }
        let residual = self.residual.as_ref().map(Host::exact);
        let (scale, side) = (if self.upsample { 2 } else { 1 }, if self.w.shape.len() == 2 { 1 } else { 3 });
        let mut out = Vec::new();
        for y in 0..height * scale {
            for px in 0..width * scale {
                for (co, &bias) in bias.iter().enumerate() {
                    let mut terms = Vec::new();
                    for (ky, kx) in (0..side * side).map(|i| (i / side, i % side)) {
                        let (iy, ix) = (y + ky, px + kx);
                        let inside = |i: usize, n: usize| (side / 2..n * scale + side / 2).contains(&i);
                        if inside(iy, height) && inside(ix, width) {
                            let (iy, ix) = ((iy - side / 2) / scale, (ix - side / 2) / scale);
                            terms.extend((0..inputs).map(|ci| {
                                let tap = ((co * inputs + ci) * side + ky) * side + kx;
                                (x[(iy * width + ix) * inputs + ci], w[tap])
                            }));
                        }
                    }
                    let value = Bounded::dot(terms) + bias;
                    let index = out.len();
                    out.push(residual.as_ref().map_or(value, |r| value + r[index]));
                }
            }
        }
        out
    }
}

pub(super) struct GroupNorm {
    x: Host,
    groups: usize,
    weight: Host,
    bias: Host,
    fill: Fill,
}

pub(super) fn group_norm_cases() -> Vec<GroupNorm> {
    let mut rng = Rng::new(15);
    // Rows, columns, channels, groups: under, at and over the slice of 4096 pixels.
    let sizes = [
        (1, 1, 1, 1),
        (1, 2, 32, 32),
        (3, 5, 12, 4),
        (16, 16, 6, 2),
        (31, 33, 34, 2),
        (64, 64, 6, 2),
        (65, 64, 9, 3),
        (100, 83, 4, 4),
        // Groups of 4, 6, 8, 12 and 16 channels.
        (3, 7, 16, 4),
        (4, 11, 48, 8),
        (5, 9, 16, 2),
        (2, 33, 48, 4),
        (17, 16, 32, 2),
    ];
    let mut cases = Vec::new();
    for (height, width, channels, groups) in sizes {
        for fill in [Fill::Normal(1.0), Fill::Extreme(1e3), Fill::OneHot(40.0)] {
            cases.push(GroupNorm {
                x: rng.f32(&[height, width, channels], fill),
                groups,
                weight: rng.f32(&[channels], Fill::Normal(1.0)),
                bias: rng.f32(&[channels], Fill::Normal(1.0)),
                fill,
            });
        }
    }
    cases
}

/// A drawn case.
#[cfg(feature = "drawn")]
pub(super) fn group_norm_drawn(draw: &Draw) -> GroupNorm {
    let channels = draw.ratio * draw.inputs;
    let mut rng = draw.rng();
    let fill = draw.fill([Fill::Normal(1.0), Fill::Extreme(1e3), Fill::OneHot(40.0)]);
    GroupNorm {
        x: rng.f32(&[draw.heads, draw.tokens, channels], fill),
        groups: if draw.options[0] { draw.inputs } else { draw.ratio },
        weight: rng.f32(&[channels], Fill::Normal(1.0)),
        bias: rng.f32(&[channels], Fill::Normal(1.0)),
        fill,
    }
}

impl Case for GroupNorm {
    fn name(&self) -> String {
        format!("group_norm {:?}, {} groups, {:?}", self.x.shape, self.groups, self.fill)
    }

    fn weights(&self) -> Vec<(Role, &Host)> {
        vec![(Role::VectorF32, &self.weight), (Role::VectorF32, &self.bias)]
    }

    fn run<B: Backend>(&self, b: &B, weights: &[B::Tensor]) -> Result<B::Tensor, BackendError> {
        b.group_norm(
            &self.x.upload(b)?,
            backend::GroupNorm { groups: self.groups, weight: &weights[0], bias: &weights[1], eps: 1e-6 },
        )
    }

    fn expected(&self) -> Vec<Bounded> {
        let (x, weight, bias) = (self.x.exact(), self.weight.exact(), self.bias.exact());
        let channels = weight.len();
        let width = channels / self.groups;
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for group in 0..self.groups {
            let elements: Vec<Bounded> =
                (0..x.len()).filter(|i| i % channels / width == group).map(|i| x[i]).collect();
            let n = Bounded::from(elements.len() as f32);
            let mean = Bounded::sum(elements.iter().copied()) / n;
            let var = Bounded::dot(elements.iter().map(|&x| (x - mean, x - mean))) / n;
            let r = Bounded::from(1.0) / (var + Bounded::from(1e-6)).sqrt();
            for c in group * width..(group + 1) * width {
                a.push(weight[c] * r);
                b.push(Bounded::fma(-mean, a[c], bias[c]));
            }
        }
        [a, b].concat()
    }
}
