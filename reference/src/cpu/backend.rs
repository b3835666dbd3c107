//! [`Backend`] for [`CpuBackend`]: each operation by its own module.

use std::ops::Range;
use std::path::Path;

use super::{
    CpuBackend, CpuStage, CpuTensor, attention, conv, data, delta, elementwise, gemm, group_norm, memory,
    norm,
};
use crate::backend::{
    Attention, Backend, BackendError, Conv2d, DeltaHeads, Epilogue, Glu, GroupNorm, Heads, HostData,
    Modulation, Norm, Result, StageSpec,
};

impl Backend for CpuBackend {
    type Tensor = CpuTensor;
    type Stage = CpuStage;

    fn describe(&self) -> String {
        let threads = self.threads();
        format!("CPU, {}, {threads} thread{}", self.isa().name(), if threads == 1 { "" } else { "s" })
    }

    fn admit(&self, kept: &StageSpec, stages: &[&StageSpec]) -> Result<()> {
        let available = crate::memory::available(Path::new("/"));
        memory::admit(kept, stages, self.threads(), available).map_err(BackendError::new)
    }

    fn load(&self, spec: StageSpec) -> Result<CpuStage> {
        data::load(spec)
    }

    /// Loaded weights are in the files: they take no room.
    fn has_room(&self, _bytes: u64) -> bool {
        true
    }

    fn fixed(&self, stage: &CpuStage) -> Vec<CpuTensor> {
        data::fixed(stage)
    }

    fn block(&self, stage: &CpuStage, index: usize) -> Result<Vec<CpuTensor>> {
        data::block(stage, index)
    }

    fn upload(&self, data: HostData, shape: &[usize]) -> Result<CpuTensor> {
        Ok(data::upload(data, shape))
    }

    fn download(&self, x: &CpuTensor) -> Result<HostData> {
        Ok(x.to_host())
    }

    fn rows(&self, x: &CpuTensor, rows: Range<usize>) -> CpuTensor {
        data::rows(x, rows)
    }

    fn reshape(&self, x: &CpuTensor, shape: &[usize]) -> CpuTensor {
        data::reshape(x, shape)
    }

    fn concat(&self, parts: &[&CpuTensor]) -> Result<CpuTensor> {
        Ok(data::concat(parts))
    }

    fn to_bf16(&self, x: &CpuTensor) -> Result<CpuTensor> {
        Ok(data::to_bf16(self, x))
    }

    fn norm(
        &self,
        x: &CpuTensor,
        norm: Norm<'_, CpuTensor>,
        modulation: Option<Modulation<'_, CpuTensor>>,
    ) -> Result<CpuTensor> {
        Ok(norm::norm(self, x, norm, modulation))
    }

    fn head_norm_rope(
        &self,
        x: &CpuTensor,
        heads: Heads,
        norm: Norm<'_, CpuTensor>,
        rope: (&CpuTensor, &CpuTensor),
    ) -> Result<CpuTensor> {
        Ok(norm::head_norm_rope(self, x, heads, norm, rope))
    }

    fn attention(&self, a: Attention<'_, CpuTensor>) -> Result<CpuTensor> {
        Ok(attention::attention(self, a))
    }

    fn sigmoid_gate(&self, x: &CpuTensor, gate: &CpuTensor, heads: Heads) -> Result<CpuTensor> {
        Ok(elementwise::sigmoid_gate(self, x, gate, heads))
    }

    fn linear(
        &self,
        x: &CpuTensor,
        w: &CpuTensor,
        bias: Option<&CpuTensor>,
        epilogue: Epilogue<'_, CpuTensor>,
    ) -> Result<CpuTensor> {
        Ok(gemm::linear(self, x, w, bias, epilogue))
    }

    fn linear_glu(
        &self,
        x: &CpuTensor,
        w: &CpuTensor,
        bias: Option<&CpuTensor>,
        glu: Glu,
    ) -> Result<CpuTensor> {
        Ok(gemm::linear_glu(self, x, w, bias, glu))
    }

    fn causal_conv_silu(&self, x: &CpuTensor, w: &CpuTensor, segments: &[usize]) -> Result<CpuTensor> {
        Ok(elementwise::causal_conv_silu(self, x, w, segments))
    }

    fn gated_delta_rule(
        &self,
        qkv: &CpuTensor,
        ba: &CpuTensor,
        a_log: &CpuTensor,
        dt_bias: &CpuTensor,
        heads: DeltaHeads,
        segments: &[usize],
    ) -> Result<CpuTensor> {
        Ok(delta::gated_delta_rule(self, qkv, ba, a_log, dt_bias, heads, segments))
    }

    fn gated_norm(&self, x: &CpuTensor, z: &CpuTensor, weight: &CpuTensor, eps: f32) -> Result<CpuTensor> {
        Ok(norm::gated_norm(self, x, z, weight, eps))
    }

    fn euler_step(
        &self,
        x: &CpuTensor,
        v_cond: &CpuTensor,
        v_uncond: Option<&CpuTensor>,
        cfg: f32,
        dt: f32,
    ) -> Result<CpuTensor> {
        Ok(elementwise::euler_step(x, v_cond, v_uncond, cfg, dt))
    }

    fn unpack_latents(
        &self,
        x: &CpuTensor,
        mean: &CpuTensor,
        var: &CpuTensor,
        eps: f32,
        width: usize,
    ) -> Result<CpuTensor> {
        Ok(elementwise::unpack_latents(x, mean, var, eps, width))
    }

    fn conv2d(&self, x: &CpuTensor, conv: Conv2d<'_, CpuTensor>) -> Result<CpuTensor> {
        Ok(conv::conv2d(self, x, conv))
    }

    fn group_norm(&self, x: &CpuTensor, norm: GroupNorm<'_, CpuTensor>) -> Result<CpuTensor> {
        Ok(group_norm::group_norm(self, x, norm))
    }
}
