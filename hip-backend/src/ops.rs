//! The model's operations: each is the launch, or the few launches, of its kernel. What an operation computes is written at
//! [`Backend`]; what a kernel needs is checked by its struct in [`moss_kernels::args`].

use std::ops::Range;

use moss_kernels::args::{self, epilogue, glu, norm_kind};
use moss_kernels::{Launch, LaunchError};
use moss_reference::backend::shapes;
use moss_reference::backend::{
    Attention, Backend, BackendError, Conv2d, DType, DeltaHeads, Epilogue, Glu, GroupNorm, Heads, HostData,
    Modulation, Norm, NormKind, Result, StageSpec, Tensor as _,
};

use crate::backend::HipBackend;
use crate::error::Error;
use crate::stage::HipStage;
use crate::tensor::HipTensor;

/// A size as the kernels take it.
fn int(n: usize) -> i32 {
    i32::try_from(n).unwrap_or_else(|_| panic!("a size of {n}: the kernels take less than 2^31"))
}

fn address(x: Option<&HipTensor>) -> u64 {
    x.map_or(0, HipTensor::address)
}

fn kind(kind: NormKind) -> i32 {
    match kind {
        NormKind::Plain => norm_kind::PLAIN,
        NormKind::ZeroCentred => norm_kind::ZERO_CENTRED,
    }
}

/// First token and length of each segment.
fn ranges(segments: &[usize]) -> impl Iterator<Item = (i32, i32)> + '_ {
    let mut first = 0;
    segments.iter().map(move |&length| {
        first += length;
        (int(first - length), int(length))
    })
}

impl From<Error> for BackendError {
    fn from(error: Error) -> Self {
        Self::new(error)
    }
}

impl HipBackend {
    /// The operation that comes now reads these weights, if they are a stage's.
    fn reads(&self, weights: &HipTensor) {
        if let Some(owner) = weights.owner() {
            self.enter(owner);
        }
    }

    /// Makes the launch of a kernel that needs one.
    fn one(&self, launch: Result<Launch, LaunchError>) -> Result<(), Error> {
        self.launch(&launch?)
    }

    /// Makes the launches of a kernel that may need several.
    fn all(&self, launches: Result<impl IntoIterator<Item = Launch>, LaunchError>) -> Result<(), Error> {
        launches?.into_iter().try_for_each(|launch| self.launch(&launch))
    }
}

impl Backend for HipBackend {
    type Tensor = HipTensor;
    type Stage = HipStage;

    fn describe(&self) -> String {
        self.description()
    }

    fn admit(&self, kept: &StageSpec, stages: &[&StageSpec]) -> Result<()> {
        self.plan(kept, stages)?;
        Ok(())
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.has_room_for(bytes)
    }

    fn load(&self, spec: StageSpec) -> Result<HipStage> {
        Ok(self.load_stage(&spec)?)
    }

    fn fixed(&self, stage: &HipStage) -> Vec<HipTensor> {
        stage.0.fixed()
    }

    fn block(&self, stage: &HipStage, index: usize) -> Result<Vec<HipTensor>> {
        self.enter(stage.0.owner(Some(index)));
        Ok(stage.0.block(index)?)
    }

    fn upload(&self, data: HostData, shape: &[usize]) -> Result<HipTensor> {
        Ok(self.upload_data(&data, shape)?)
    }

    fn download(&self, x: &HipTensor) -> Result<HostData> {
        Ok(self.download_data(x)?)
    }

    fn rows(&self, x: &HipTensor, rows: Range<usize>) -> HipTensor {
        self.view_rows(x, rows)
    }

    fn reshape(&self, x: &HipTensor, shape: &[usize]) -> HipTensor {
        shapes::reshape(x, shape);
        x.view(0, shape.to_vec())
    }

    fn concat(&self, parts: &[&HipTensor]) -> Result<HipTensor> {
        Ok(self.concat_parts(parts)?)
    }

    fn to_bf16(&self, x: &HipTensor) -> Result<HipTensor> {
        shapes::to_bf16(x);
        let out = self.allocate(x.shape(), DType::Bf16, "to_bf16")?;
        let (x, count) = (x.address(), int(x.elements()));
        self.one(args::ToBf16 { x, out: out.address(), count }.launch())?;
        Ok(out)
    }

    fn norm(
        &self,
        x: &HipTensor,
        norm: Norm<'_, HipTensor>,
        modulation: Option<Modulation<'_, HipTensor>>,
    ) -> Result<HipTensor> {
        let (tokens, width) = shapes::norm(x, &norm, modulation.as_ref());
        self.reads(norm.weight);
        let out = self.allocate(x.shape(), DType::Bf16, "norm")?;
        let launch = args::Norm {
            x: x.address(),
            weight: norm.weight.address(),
            scale: address(modulation.as_ref().map(|m| m.scale)),
            shift: address(modulation.as_ref().map(|m| m.shift)),
            out: out.address(),
            tokens: int(tokens),
            width: int(width),
            eps: norm.eps,
            kind: kind(norm.kind),
        };
        self.one(launch.launch())?;
        Ok(out)
    }

    fn head_norm_rope(
        &self,
        x: &HipTensor,
        heads: Heads,
        norm: Norm<'_, HipTensor>,
        rope: (&HipTensor, &HipTensor),
    ) -> Result<HipTensor> {
        let (tokens, rotary) = shapes::head_norm_rope(x, heads, &norm, rope);
        self.reads(norm.weight);
        let out = self.allocate(&[tokens, heads.count * heads.dim], DType::Bf16, "head_norm_rope")?;
        let launch = args::HeadNormRope {
            x: x.address(),
            weight: norm.weight.address(),
            cos: rope.0.address(),
            sin: rope.1.address(),
            out: out.address(),
            tokens: int(tokens),
            stride: int(x.shape()[1]),
            first: int(heads.first),
            step: int(heads.step),
            heads: int(heads.count),
            dim: int(heads.dim),
            rotary: int(rotary),
            eps: norm.eps,
            kind: kind(norm.kind),
        };
        self.one(launch.launch())?;
        Ok(out)
    }

    fn attention(&self, a: Attention<'_, HipTensor>) -> Result<HipTensor> {
        let shape = shapes::attention(&a);
        let Attention { q, k, v, v_heads, scale, causal, segments } = a;
        let out = self.allocate(q.shape(), q.dtype(), "attention")?;
        for (first, length) in ranges(segments) {
            let launch = args::Attention {
                q: q.address(),
                k: k.address(),
                v: v.address(),
                out: out.address(),
                first,
                length,
                query_first: 0,
                query_count: length,
                q_heads: int(shape.q_heads),
                kv_heads: int(shape.kv_heads),
                dim: int(shape.dim),
                v_stride: int(v.shape()[1]),
                v_first: int(v_heads.first),
                v_step: int(v_heads.step),
                causal: i32::from(causal),
                scale: (scale * std::f64::consts::LOG2_E) as f32,
            };
            self.all(match q.dtype() {
                DType::Bf16 => launch.launches_bf16(),
                DType::F32 => launch.launches_f32(),
            })?;
        }
        Ok(out)
    }

    fn sigmoid_gate(&self, x: &HipTensor, gate: &HipTensor, heads: Heads) -> Result<HipTensor> {
        let tokens = shapes::sigmoid_gate(x, gate, heads);
        let out = self.allocate(x.shape(), DType::Bf16, "sigmoid_gate")?;
        let launch = args::SigmoidGate {
            x: x.address(),
            gate: gate.address(),
            out: out.address(),
            tokens: int(tokens),
            stride: int(gate.shape()[1]),
            first: int(heads.first),
            step: int(heads.step),
            heads: int(heads.count),
            dim: int(heads.dim),
        };
        self.one(launch.launch())?;
        Ok(out)
    }

    fn linear(
        &self,
        x: &HipTensor,
        w: &HipTensor,
        bias: Option<&HipTensor>,
        after: Epilogue<'_, HipTensor>,
    ) -> Result<HipTensor> {
        let (tokens, k, n) = shapes::linear(x, w, bias, &after);
        self.reads(w);
        let out = self.allocate(&[tokens, n], DType::Bf16, "linear")?;
        let (epilogue, residual, gate) = match after {
            Epilogue::None => (epilogue::NONE, None, None),
            Epilogue::Silu => (epilogue::SILU, None, None),
            Epilogue::Residual(residual) => (epilogue::RESIDUAL, Some(residual), None),
            Epilogue::GatedResidual { residual, gate } => {
                (epilogue::GATED_RESIDUAL, Some(residual), Some(gate))
            }
        };
        let launch = args::Linear {
            x: x.address(),
            w: w.address(),
            bias: address(bias),
            residual: address(residual),
            gate: address(gate),
            out: out.address(),
            tokens: int(tokens),
            k: int(k),
            n: int(n),
            epilogue,
        };
        self.all(launch.launches())?;
        Ok(out)
    }

    fn linear_glu(
        &self,
        x: &HipTensor,
        w: &HipTensor,
        bias: Option<&HipTensor>,
        unit: Glu,
    ) -> Result<HipTensor> {
        let (tokens, k, f) = shapes::linear_glu(x, w, bias);
        self.reads(w);
        let out = self.allocate(&[tokens, f], DType::Bf16, "linear_glu")?;
        let launch = args::LinearGlu {
            x: x.address(),
            w: w.address(),
            bias: address(bias),
            out: out.address(),
            tokens: int(tokens),
            k: int(k),
            f: int(f),
            glu: match unit {
                Glu::Silu => glu::SILU,
                Glu::Situ => glu::SITU,
            },
        };
        self.all(launch.launches())?;
        Ok(out)
    }

    fn causal_conv_silu(&self, x: &HipTensor, w: &HipTensor, segments: &[usize]) -> Result<HipTensor> {
        let (_, channels, width) = shapes::causal_conv_silu(x, w, segments);
        self.reads(w);
        let out = self.allocate(x.shape(), DType::Bf16, "causal_conv_silu")?;
        for (first, length) in ranges(segments) {
            let launch = args::CausalConvSilu {
                x: x.address(),
                w: w.address(),
                out: out.address(),
                first,
                length,
                channels: int(channels),
                width: int(width),
            };
            self.one(launch.launch())?;
        }
        Ok(out)
    }

    fn gated_delta_rule(
        &self,
        qkv: &HipTensor,
        ba: &HipTensor,
        a_log: &HipTensor,
        dt_bias: &HipTensor,
        heads: DeltaHeads,
        segments: &[usize],
    ) -> Result<HipTensor> {
        let tokens = shapes::gated_delta_rule(qkv, ba, a_log, dt_bias, heads, segments);
        self.reads(a_log);
        let shape = [tokens, heads.value_heads * heads.value_dim];
        let out = self.allocate(&shape, DType::Bf16, "gated_delta_rule")?;
        for (first, length) in ranges(segments) {
            let launch = args::GatedDeltaRule {
                qkv: qkv.address(),
                ba: ba.address(),
                a_log: a_log.address(),
                dt_bias: dt_bias.address(),
                out: out.address(),
                first,
                length,
                key_heads: int(heads.key_heads),
                value_heads: int(heads.value_heads),
                key_dim: int(heads.key_dim),
                value_dim: int(heads.value_dim),
                scale: (1.0 / (heads.key_dim as f64).sqrt()) as f32,
            };
            self.one(launch.launch())?;
        }
        Ok(out)
    }

    fn gated_norm(&self, x: &HipTensor, z: &HipTensor, weight: &HipTensor, eps: f32) -> Result<HipTensor> {
        let (tokens, heads, dim) = shapes::gated_norm(x, z, weight);
        self.reads(weight);
        let out = self.allocate(x.shape(), DType::Bf16, "gated_norm")?;
        let launch = args::GatedNorm {
            x: x.address(),
            z: z.address(),
            weight: weight.address(),
            out: out.address(),
            tokens: int(tokens),
            heads: int(heads),
            dim: int(dim),
            eps,
        };
        self.one(launch.launch())?;
        Ok(out)
    }

    fn euler_step(
        &self,
        x: &HipTensor,
        v_cond: &HipTensor,
        v_uncond: Option<&HipTensor>,
        cfg: f32,
        dt: f32,
    ) -> Result<HipTensor> {
        shapes::euler_step(x, v_cond, v_uncond);
        let out = self.allocate(x.shape(), DType::F32, "euler_step")?;
        let launch = args::EulerStep {
            x: x.address(),
            v_cond: v_cond.address(),
            v_uncond: address(v_uncond),
            out: out.address(),
            count: int(x.elements()),
            cfg,
            dt,
        };
        self.one(launch.launch())?;
        self.engine.device.place().step_ends();
        Ok(out)
    }

    fn unpack_latents(
        &self,
        x: &HipTensor,
        mean: &HipTensor,
        var: &HipTensor,
        eps: f32,
        width: usize,
    ) -> Result<HipTensor> {
        let (height, channels) = shapes::unpack_latents(x, mean, var, width);
        self.reads(mean);
        let out = self.allocate(&[2 * height, 2 * width, channels], DType::F32, "unpack_latents")?;
        let launch = args::UnpackLatents {
            x: x.address(),
            mean: mean.address(),
            var: var.address(),
            out: out.address(),
            height: int(height),
            width: int(width),
            channels: int(channels),
            eps,
        };
        self.one(launch.launch())?;
        Ok(out)
    }

    fn conv2d(&self, x: &HipTensor, conv: Conv2d<'_, HipTensor>) -> Result<HipTensor> {
        let shape = shapes::conv2d(x, &conv);
        let Conv2d { weight, bias, norm, upsample, residual } = conv;
        self.reads(weight);
        let out = self.allocate(&[shape.height, shape.width, shape.outputs], DType::F32, "conv2d")?;
        let launch = args::Conv2d {
            x: x.address(),
            norm: address(norm.map(|(ab, _)| ab)),
            w: weight.address(),
            bias: bias.address(),
            residual: address(residual),
            out: out.address(),
            height: int(shape.height),
            width: int(shape.width),
            inputs: int(shape.inputs),
            outputs: int(shape.outputs),
            side: int(shape.kernel),
            upsample: i32::from(upsample),
            silu: i32::from(norm.is_some_and(|(_, silu)| silu)),
            row_first: 0,
            row_count: int(shape.height),
        };
        self.all(launch.launches())?;
        Ok(out)
    }

    fn group_norm(&self, x: &HipTensor, norm: GroupNorm<'_, HipTensor>) -> Result<HipTensor> {
        let (pixels, channels) = shapes::group_norm(x, &norm);
        let GroupNorm { groups, weight, bias, eps } = norm;
        self.reads(weight);
        let ab = self.allocate(&[2, channels], DType::F32, "group_norm")?;
        let words = args::GroupNorm::workspace(pixels, groups).div_ceil(4);
        // Free again as soon as the launches are issued: its next user comes later in the same stream.
        let workspace = self.allocate(&[words], DType::F32, "the sums of group_norm")?;
        let launch = args::GroupNorm {
            x: x.address(),
            weight: weight.address(),
            bias: bias.address(),
            workspace: workspace.address(),
            ab: ab.address(),
            pixels: int(pixels),
            channels: int(channels),
            groups: int(groups),
            eps,
        };
        self.all(launch.launches())?;
        Ok(ab)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_follow_one_another() {
        assert_eq!(ranges(&[3, 1, 60]).collect::<Vec<_>>(), [(0, 3), (3, 1), (4, 60)]);
    }
}
