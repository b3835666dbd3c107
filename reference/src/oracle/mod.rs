//! The scalar oracle: every operation of [`Backend`] as the plainest loops that follow its definition.
//!
//! Nothing here is fast, and nothing is clever: no tiles, no vectors, no threads. It is what every other
//! backend is compared with bit for bit, so it must be right at a glance.

mod attention;
mod delta;
mod image;
mod weights;

use std::ops::Range;
use std::sync::Arc;

use half::bf16 as Bf16;

use crate::backend::shapes;
use crate::backend::{
    Attention, Backend, Conv2d, DType, DeltaHeads, Epilogue, Glu, GroupNorm, Heads, HostData, Modulation,
    Norm, NormKind, Result, StageSpec, Tensor,
};
use crate::simd::math::scalar::{sigmoid, silu, tanh};

pub use weights::OracleStage;

/// The oracle. It has no state.
#[derive(Clone, Copy, Debug, Default)]
pub struct OracleBackend;

/// Elements as f32 whatever the dtype; those of a bf16 tensor are bf16 values.
#[derive(Clone, Debug)]
pub struct OracleTensor {
    shape: Vec<usize>,
    dtype: DType,
    data: Arc<[f32]>,
}

impl Tensor for OracleTensor {
    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn dtype(&self) -> DType {
        self.dtype
    }
}

impl OracleTensor {
    fn new(dtype: DType, shape: &[usize], data: Vec<f32>) -> Self {
        assert_eq!(
            data.len(),
            shape.iter().product::<usize>(),
            "{} elements for shape {shape:?}",
            data.len()
        );
        let fits = |x: &f32| dtype == DType::F32 || x.to_bits() & 0xffff == 0;
        assert!(data.iter().all(fits), "an element of a bf16 tensor was not rounded");
        Self { shape: shape.to_vec(), dtype, data: data.into() }
    }

    fn bf16(shape: &[usize], data: Vec<f32>) -> Self {
        Self::new(DType::Bf16, shape, data)
    }

    fn f32(shape: &[usize], data: Vec<f32>) -> Self {
        Self::new(DType::F32, shape, data)
    }

    /// Row `i` of the first axis.
    fn row(&self, i: usize) -> &[f32] {
        let width: usize = self.shape[1..].iter().product();
        &self.data[i * width..][..width]
    }

    /// The columns of head `i` in row `t`.
    fn head(&self, t: usize, heads: Heads, i: usize) -> &[f32] {
        &self.row(t)[heads.first + i * heads.step..][..heads.dim]
    }
}

/// One rounding to bf16, to nearest, ties to even.
fn bf16(x: f32) -> f32 {
    Bf16::from_f32(x).to_f32()
}

/// One rounding to the dtype of a result.
fn round_to(dtype: DType, x: f32) -> f32 {
    match dtype {
        DType::Bf16 => bf16(x),
        DType::F32 => x,
    }
}

/// `acc = fma(a[i], b[i], acc)` from `+0`, `i` ascending.
fn chain(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).fold(0.0, |acc, (&a, &b)| a.mul_add(b, acc))
}

/// 256 chains over `i ≡ j (mod 256)`, then adjacent pairs added eight times.
fn tree256(a: &[f32], b: &[f32]) -> f32 {
    let mut p = vec![0f32; 256];
    for i in 0..a.len() {
        p[i % 256] = a[i].mul_add(b[i], p[i % 256]);
    }
    for _ in 0..8 {
        p = p.chunks(2).map(|pair| pair[0] + pair[1]).collect();
    }
    p[0]
}

/// `1 / sqrt(tree256(x * x) / D + eps)`.
fn rms_factor(x: &[f32], eps: f32) -> f32 {
    1.0 / (tree256(x, x) / x.len() as f32 + eps).sqrt()
}

fn norm_row(x: &[f32], norm: &Norm<'_, OracleTensor>) -> Vec<f32> {
    let r = rms_factor(x, norm.eps);
    let scaled = |(&x, &w): (&f32, &f32)| match norm.kind {
        NormKind::Plain => bf16(bf16(x * r) * w),
        NormKind::ZeroCentred => bf16(x * r * (1.0 + w)),
    };
    x.iter().zip(&*norm.weight.data).map(scaled).collect()
}

fn situ(u: f32, g: f32) -> f32 {
    let a = bf16(4.0 * bf16(tanh(bf16(g / 4.0))));
    let s = bf16(sigmoid(g));
    let p = bf16(a * s);
    let t = bf16(25.0 * bf16(tanh(bf16(u / 25.0))));
    bf16(p * t)
}

/// The bf16 output of a product, before any epilogue.
fn product(x: &[f32], w: &[f32], bias: Option<f32>) -> f32 {
    let acc = chain(x, w);
    bf16(bias.map_or(acc, |bias| acc + bias))
}

impl Backend for OracleBackend {
    type Tensor = OracleTensor;
    type Stage = OracleStage;

    fn describe(&self) -> String {
        "scalar oracle".into()
    }

    fn admit(&self, _kept: &StageSpec, _stages: &[&StageSpec]) -> Result<()> {
        Ok(())
    }

    fn load(&self, spec: StageSpec) -> Result<OracleStage> {
        weights::load(&spec)
    }

    fn fixed(&self, stage: &OracleStage) -> Vec<OracleTensor> {
        stage.fixed.clone()
    }

    fn block(&self, stage: &OracleStage, index: usize) -> Result<Vec<OracleTensor>> {
        Ok(stage.blocks[index].clone())
    }

    fn upload(&self, data: HostData, shape: &[usize]) -> Result<OracleTensor> {
        shapes::upload(data.len(), shape);
        Ok(OracleTensor::new(data.dtype(), shape, data.to_f32()))
    }

    fn download(&self, x: &OracleTensor) -> Result<HostData> {
        Ok(match x.dtype {
            DType::Bf16 => HostData::Bf16(x.data.iter().map(|&x| Bf16::from_f32(x)).collect()),
            DType::F32 => HostData::F32(x.data.to_vec()),
        })
    }

    fn rows(&self, x: &OracleTensor, rows: Range<usize>) -> OracleTensor {
        let (shape, width) = shapes::rows(x, &rows);
        OracleTensor::new(x.dtype, &shape, x.data[rows.start * width..rows.end * width].to_vec())
    }

    fn reshape(&self, x: &OracleTensor, shape: &[usize]) -> OracleTensor {
        shapes::reshape(x, shape);
        OracleTensor { shape: shape.to_vec(), ..x.clone() }
    }

    fn concat(&self, parts: &[&OracleTensor]) -> Result<OracleTensor> {
        let shape = shapes::concat(parts);
        let data = parts.iter().flat_map(|x| x.data.iter().copied()).collect();
        Ok(OracleTensor::new(parts[0].dtype, &shape, data))
    }

    fn to_bf16(&self, x: &OracleTensor) -> Result<OracleTensor> {
        shapes::to_bf16(x);
        Ok(OracleTensor::bf16(&x.shape, x.data.iter().map(|&x| bf16(x)).collect()))
    }

    fn norm(
        &self,
        x: &OracleTensor,
        norm: Norm<'_, OracleTensor>,
        modulation: Option<Modulation<'_, OracleTensor>>,
    ) -> Result<OracleTensor> {
        let (tokens, _) = shapes::norm(x, &norm, modulation.as_ref());
        let mut out = Vec::new();
        for t in 0..tokens {
            let mut y = norm_row(x.row(t), &norm);
            if let Some(Modulation { scale, shift }) = &modulation {
                for (i, y) in y.iter_mut().enumerate() {
                    *y = bf16(bf16(*y * bf16(1.0 + scale.data[i])) + shift.data[i]);
                }
            }
            out.extend(y);
        }
        Ok(OracleTensor::bf16(&x.shape, out))
    }

    fn head_norm_rope(
        &self,
        x: &OracleTensor,
        heads: Heads,
        norm: Norm<'_, OracleTensor>,
        rope: (&OracleTensor, &OracleTensor),
    ) -> Result<OracleTensor> {
        let (tokens, rotary) = shapes::head_norm_rope(x, heads, &norm, rope);
        let mut out = Vec::new();
        for t in 0..tokens {
            let (cos, sin) = (rope.0.row(t), rope.1.row(t));
            for i in 0..heads.count {
                let mut y = norm_row(x.head(t, heads, i), &norm);
                for j in 0..rotary {
                    let (a, b) = (y[j], y[j + rotary]);
                    y[j] = bf16(bf16(a * cos[j]) + bf16(-b * sin[j]));
                    y[j + rotary] = bf16(bf16(b * cos[j]) + bf16(a * sin[j]));
                }
                out.extend(y);
            }
        }
        Ok(OracleTensor::bf16(&[tokens, heads.count * heads.dim], out))
    }

    fn attention(&self, a: Attention<'_, OracleTensor>) -> Result<OracleTensor> {
        Ok(attention::attention(a))
    }

    fn sigmoid_gate(&self, x: &OracleTensor, gate: &OracleTensor, heads: Heads) -> Result<OracleTensor> {
        let tokens = shapes::sigmoid_gate(x, gate, heads);
        let mut out = Vec::new();
        for t in 0..tokens {
            let gates = (0..heads.count).flat_map(|i| gate.head(t, heads, i));
            out.extend(x.row(t).iter().zip(gates).map(|(&x, &g)| bf16(x * bf16(sigmoid(g)))));
        }
        Ok(OracleTensor::bf16(&x.shape, out))
    }

    fn linear(
        &self,
        x: &OracleTensor,
        w: &OracleTensor,
        bias: Option<&OracleTensor>,
        epilogue: Epilogue<'_, OracleTensor>,
    ) -> Result<OracleTensor> {
        let (tokens, _, n) = shapes::linear(x, w, bias, &epilogue);
        let mut out = Vec::new();
        for t in 0..tokens {
            for i in 0..n {
                let y = product(x.row(t), w.row(i), bias.map(|b| b.data[i]));
                out.push(match epilogue {
                    Epilogue::None => y,
                    Epilogue::Silu => bf16(silu(y)),
                    Epilogue::Residual(residual) => bf16(residual.row(t)[i] + y),
                    Epilogue::GatedResidual { residual, gate } => {
                        bf16(residual.row(t)[i] + bf16(y * gate.data[i]))
                    }
                });
            }
        }
        Ok(OracleTensor::bf16(&[tokens, n], out))
    }

    fn linear_glu(
        &self,
        x: &OracleTensor,
        w: &OracleTensor,
        bias: Option<&OracleTensor>,
        glu: Glu,
    ) -> Result<OracleTensor> {
        let (tokens, _, f) = shapes::linear_glu(x, w, bias);
        let mut out = Vec::new();
        for t in 0..tokens {
            for i in 0..f {
                let u = product(x.row(t), w.row(i), bias.map(|b| b.data[i]));
                let g = product(x.row(t), w.row(f + i), bias.map(|b| b.data[f + i]));
                out.push(match glu {
                    Glu::Silu => bf16(bf16(silu(g)) * u),
                    Glu::Situ => situ(u, g),
                });
            }
        }
        Ok(OracleTensor::bf16(&[tokens, f], out))
    }

    fn causal_conv_silu(
        &self,
        x: &OracleTensor,
        w: &OracleTensor,
        segments: &[usize],
    ) -> Result<OracleTensor> {
        let (_, channels, width) = shapes::causal_conv_silu(x, w, segments);
        let mut out = Vec::new();
        let mut start = 0;
        for &len in segments {
            for t in start..start + len {
                for c in 0..channels {
                    let mut acc = 0f32;
                    for j in 0..width {
                        // Token t - (width - 1) + j, when the segment has it.
                        if t + j >= start + width - 1 {
                            acc = w.row(c)[j].mul_add(x.row(t + j - (width - 1))[c], acc);
                        }
                    }
                    out.push(bf16(silu(bf16(acc))));
                }
            }
            start += len;
        }
        Ok(OracleTensor::bf16(&x.shape, out))
    }

    fn gated_delta_rule(
        &self,
        qkv: &OracleTensor,
        ba: &OracleTensor,
        a_log: &OracleTensor,
        dt_bias: &OracleTensor,
        heads: DeltaHeads,
        segments: &[usize],
    ) -> Result<OracleTensor> {
        Ok(delta::gated_delta_rule(qkv, ba, a_log, dt_bias, heads, segments))
    }

    fn gated_norm(
        &self,
        x: &OracleTensor,
        z: &OracleTensor,
        weight: &OracleTensor,
        eps: f32,
    ) -> Result<OracleTensor> {
        let (tokens, count, dim) = shapes::gated_norm(x, z, weight);
        let heads = Heads::packed(0, count, dim);
        let mut out = Vec::new();
        for t in 0..tokens {
            for i in 0..count {
                let (x, z) = (x.head(t, heads, i), z.head(t, heads, i));
                let r = rms_factor(x, eps);
                out.extend((0..dim).map(|j| bf16(bf16(weight.data[j] * bf16(x[j] * r)) * silu(z[j]))));
            }
        }
        Ok(OracleTensor::bf16(&x.shape, out))
    }

    fn euler_step(
        &self,
        x: &OracleTensor,
        v_cond: &OracleTensor,
        v_uncond: Option<&OracleTensor>,
        cfg: f32,
        dt: f32,
    ) -> Result<OracleTensor> {
        shapes::euler_step(x, v_cond, v_uncond);
        let step = |i: usize| {
            let c = v_cond.data[i];
            let v = v_uncond.map_or(c, |u| u.data[i] + cfg * (c - u.data[i]));
            x.data[i] + dt * v
        };
        Ok(OracleTensor::f32(&x.shape, (0..x.data.len()).map(step).collect()))
    }

    fn unpack_latents(
        &self,
        x: &OracleTensor,
        mean: &OracleTensor,
        var: &OracleTensor,
        eps: f32,
        width: usize,
    ) -> Result<OracleTensor> {
        Ok(image::unpack_latents(x, mean, var, eps, width))
    }

    fn conv2d(&self, x: &OracleTensor, conv: Conv2d<'_, OracleTensor>) -> Result<OracleTensor> {
        Ok(image::conv2d(x, conv))
    }

    fn group_norm(&self, x: &OracleTensor, norm: GroupNorm<'_, OracleTensor>) -> Result<OracleTensor> {
        Ok(image::group_norm(x, norm))
    }
}
