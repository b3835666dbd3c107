//! What a stage says that its activations need is what the model holds: a backend that counts the bytes of living tensors.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use moss_golden::synth::{self, Preset, Sizes};
use moss_reference::backend::{
    Attention, Backend, Conv2d, DType, DeltaHeads, Epilogue, Glu, GroupNorm, Heads, HostData, Modulation,
    Norm, Result, StageSpec, Tensor,
};
use moss_reference::cpu::{CpuBackend, CpuStage, CpuTensor};
use moss_reference::files::ModelSource;
use moss_reference::model;
use moss_reference::model::observe::Silent;
use moss_reference::model::vae::{self, Vae};

/// Bytes of living tensors, and the most there were.
#[derive(Default)]
struct Count {
    live: Cell<usize>,
    peak: Cell<usize>,
}

/// The bytes of one tensor while it or a view of it lives.
struct Lease(usize, Rc<Count>);

impl Drop for Lease {
    fn drop(&mut self) {
        self.1.live.set(self.1.live.get() - self.0);
    }
}

#[derive(Clone)]
struct Counted(CpuTensor, Option<Rc<Lease>>);

impl Tensor for Counted {
    fn shape(&self) -> &[usize] {
        self.0.shape()
    }

    fn dtype(&self) -> DType {
        self.0.dtype()
    }
}

struct Counting {
    cpu: CpuBackend,
    count: Rc<Count>,
}

impl Counting {
    fn keep(&self, x: CpuTensor) -> Counted {
        let bytes = x.shape().iter().product::<usize>() * x.dtype().size();
        self.count.live.set(self.count.live.get() + bytes);
        self.count.peak.set(self.count.peak.get().max(self.count.live.get()));
        Counted(x, Some(Rc::new(Lease(bytes, self.count.clone()))))
    }
}

type T = Counted;

impl Backend for Counting {
    type Tensor = Counted;
    type Stage = CpuStage;

    fn describe(&self) -> String {
        "counting".into()
    }

    fn admit(&self, kept: &StageSpec, stages: &[&StageSpec]) -> Result<()> {
        self.cpu.admit(kept, stages)
    }

    fn load(&self, spec: StageSpec) -> Result<CpuStage> {
        self.cpu.load(spec)
    }

    // Weights are no activations.
    fn fixed(&self, stage: &CpuStage) -> Vec<T> {
        self.cpu.fixed(stage).into_iter().map(|x| Counted(x, None)).collect()
    }

    fn block(&self, stage: &CpuStage, index: usize) -> Result<Vec<T>> {
        Ok(self.cpu.block(stage, index)?.into_iter().map(|x| Counted(x, None)).collect())
    }

    fn upload(&self, data: HostData, shape: &[usize]) -> Result<T> {
        Ok(self.keep(self.cpu.upload(data, shape)?))
    }

    fn download(&self, x: &T) -> Result<HostData> {
        self.cpu.download(&x.0)
    }

    fn rows(&self, x: &T, rows: Range<usize>) -> T {
        Counted(self.cpu.rows(&x.0, rows), x.1.clone())
    }

    fn reshape(&self, x: &T, shape: &[usize]) -> T {
        Counted(self.cpu.reshape(&x.0, shape), x.1.clone())
    }

    fn concat(&self, parts: &[&T]) -> Result<T> {
        Ok(self.keep(self.cpu.concat(&parts.iter().map(|x| &x.0).collect::<Vec<_>>())?))
    }

    fn to_bf16(&self, x: &T) -> Result<T> {
        Ok(self.keep(self.cpu.to_bf16(&x.0)?))
    }

    fn norm(&self, x: &T, norm: Norm<'_, T>, modulation: Option<Modulation<'_, T>>) -> Result<T> {
        let norm = Norm { weight: &norm.weight.0, eps: norm.eps, kind: norm.kind };
        let modulation = modulation.map(|m| Modulation { scale: &m.scale.0, shift: &m.shift.0 });
        Ok(self.keep(self.cpu.norm(&x.0, norm, modulation)?))
    }

    fn head_norm_rope(&self, x: &T, heads: Heads, norm: Norm<'_, T>, rope: (&T, &T)) -> Result<T> {
        let norm = Norm { weight: &norm.weight.0, eps: norm.eps, kind: norm.kind };
        Ok(self.keep(self.cpu.head_norm_rope(&x.0, heads, norm, (&rope.0.0, &rope.1.0))?))
    }

    fn attention(&self, a: Attention<'_, T>) -> Result<T> {
        let Attention { q, k, v, v_heads, scale, causal, segments } = a;
        let a = Attention { q: &q.0, k: &k.0, v: &v.0, v_heads, scale, causal, segments };
        Ok(self.keep(self.cpu.attention(a)?))
    }

    fn sigmoid_gate(&self, x: &T, gate: &T, heads: Heads) -> Result<T> {
        Ok(self.keep(self.cpu.sigmoid_gate(&x.0, &gate.0, heads)?))
    }

    fn linear(&self, x: &T, w: &T, bias: Option<&T>, epilogue: Epilogue<'_, T>) -> Result<T> {
        let epilogue = match epilogue {
            Epilogue::None => Epilogue::None,
            Epilogue::Silu => Epilogue::Silu,
            Epilogue::Residual(residual) => Epilogue::Residual(&residual.0),
            Epilogue::GatedResidual { residual, gate } => {
                Epilogue::GatedResidual { residual: &residual.0, gate: &gate.0 }
            }
        };
        Ok(self.keep(self.cpu.linear(&x.0, &w.0, bias.map(|b| &b.0), epilogue)?))
    }

    fn linear_glu(&self, x: &T, w: &T, bias: Option<&T>, glu: Glu) -> Result<T> {
        Ok(self.keep(self.cpu.linear_glu(&x.0, &w.0, bias.map(|b| &b.0), glu)?))
    }

    fn causal_conv_silu(&self, x: &T, w: &T, segments: &[usize]) -> Result<T> {
        Ok(self.keep(self.cpu.causal_conv_silu(&x.0, &w.0, segments)?))
    }

    fn gated_delta_rule(
        &self,
        qkv: &T,
        ba: &T,
        a_log: &T,
        dt_bias: &T,
        heads: DeltaHeads,
        segments: &[usize],
    ) -> Result<T> {
        Ok(self.keep(self.cpu.gated_delta_rule(&qkv.0, &ba.0, &a_log.0, &dt_bias.0, heads, segments)?))
    }

    fn gated_norm(&self, x: &T, z: &T, weight: &T, eps: f32) -> Result<T> {
        Ok(self.keep(self.cpu.gated_norm(&x.0, &z.0, &weight.0, eps)?))
    }

    fn euler_step(&self, x: &T, v_cond: &T, v_uncond: Option<&T>, cfg: f32, dt: f32) -> Result<T> {
        Ok(self.keep(self.cpu.euler_step(&x.0, &v_cond.0, v_uncond.map(|v| &v.0), cfg, dt)?))
    }

    fn unpack_latents(&self, x: &T, mean: &T, var: &T, eps: f32, width: usize) -> Result<T> {
        Ok(self.keep(self.cpu.unpack_latents(&x.0, &mean.0, &var.0, eps, width)?))
    }

    fn conv2d(&self, x: &T, conv: Conv2d<'_, T>) -> Result<T> {
        let conv = Conv2d {
            weight: &conv.weight.0,
            bias: &conv.bias.0,
            norm: conv.norm.map(|(ab, silu)| (&ab.0, silu)),
            upsample: conv.upsample,
            residual: conv.residual.map(|x| &x.0),
        };
        Ok(self.keep(self.cpu.conv2d(&x.0, conv)?))
    }

    fn group_norm(&self, x: &T, norm: GroupNorm<'_, T>) -> Result<T> {
        let GroupNorm { groups, weight, bias, eps } = norm;
        let norm = GroupNorm { groups, weight: &weight.0, bias: &bias.0, eps };
        Ok(self.keep(self.cpu.group_norm(&x.0, norm)?))
    }
}

/// The official decoder's last resolution is its widest moment, and its shortcut lies there.
#[test]
fn a_decode_holds_no_more_than_its_stage_says() {
    let folder = tempfile::tempdir().unwrap();
    let sizes = Sizes { vae: Preset::Block.sizes().vae, ..Preset::Tiny.sizes() };
    let folder = folder.path().join("model");
    synth::write(&sizes, 1, &folder).unwrap();
    let (config, checkpoint) = model::open_vae(&ModelSource::Folder(folder)).unwrap();
    let (h, w) = (3, 5);
    let backend = Counting { cpu: CpuBackend::new().unwrap(), count: Rc::default() };
    let spec = vae::stage_spec(&config, checkpoint, h, w);
    let planned = spec.activation_bytes as usize;
    let vae = Vae::load(&backend, &config, spec).unwrap();
    let latents: Vec<f32> =
        (0..h * w * 4 * config.latent_channels).map(|i| (i % 17) as f32 / 8.0 - 1.0).collect();
    let latents = backend.upload(HostData::F32(latents), &[h * w, 4 * config.latent_channels]).unwrap();
    vae.decode(&backend, &latents, w, &mut Silent).unwrap();
    let peak = backend.count.peak.get();
    // Beside the pictures there are the latents and each norm's coefficients.
    let small = (h * w * 4 * config.latent_channels + 4 * 512) * 4;
    assert!(peak <= planned + small, "{peak} bytes at the peak, {planned} planned");
    assert!(
        peak + small >= planned,
        "{peak} bytes at the peak, {planned} planned: the plan asks for too much"
    );
}
