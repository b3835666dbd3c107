//! Weights and data movement.

use std::ops::Range;

use half::bf16;
use rayon::prelude::*;

use super::{CpuBackend, CpuStage, CpuTensor};
use crate::backend::shapes;
use crate::backend::{DType, HostData, Result, StageSpec, Tensor, WeightSpec};
use crate::files::Rows;
use crate::simd::simd_kernel;

/// Elements that one task converts.
const CHUNK: usize = 1 << 16;

simd_kernel! {
    /// `to[i] = bf16(x[i])`; the slices have one length.
    pub fn round_to_bf16<S>(s: S, x: &[f32], to: &mut [bf16]) {
        assert_eq!(x.len(), to.len(), "round_to_bf16");
        for (x, to) in x.chunks(S::LANES).zip(to.chunks_mut(S::LANES)) {
            if x.len() == S::LANES {
                s.store_bf16(s.load(x), to);
            } else {
                s.store_bf16_part(s.load_part(x), to);
            }
        }
    }
}

/// [`crate::backend::Backend::load`]: fixed weights are looked up (converted when they are not bf16), blocks stay in the file.
pub fn load(spec: StageSpec) -> Result<CpuStage> {
    read_ahead(&spec, 0);
    let fixed = weights(&spec, &spec.fixed)?;
    Ok(CpuStage { spec, fixed })
}

/// [`crate::backend::Backend::fixed`].
pub fn fixed(stage: &CpuStage) -> Vec<CpuTensor> {
    stage.fixed.clone()
}

/// Lets the disk read a block while what comes before it is computed.
fn read_ahead(spec: &StageSpec, index: usize) {
    let weights = spec.blocks.get(index).into_iter().flatten();
    let rows: Vec<Rows> = weights.map(|weight| spec.checkpoint.rows(&weight.parts)).collect();
    if rows.iter().any(Rows::in_file) {
        // Without the thread the block is read when it is needed.
        let _ = std::thread::Builder::new().spawn(move || rows.iter().for_each(Rows::read_ahead));
    }
}

/// [`crate::backend::Backend::block`].
pub fn block(stage: &CpuStage, index: usize) -> Result<Vec<CpuTensor>> {
    read_ahead(&stage.spec, index + 1);
    weights(&stage.spec, &stage.spec.blocks[index])
}

fn weights(spec: &StageSpec, weights: &[WeightSpec]) -> Result<Vec<CpuTensor>> {
    weights.iter().map(|weight| CpuTensor::weight(&spec.checkpoint, weight)).collect()
}

/// [`crate::backend::Backend::upload`].
pub fn upload(data: HostData, shape: &[usize]) -> CpuTensor {
    shapes::upload(data.len(), shape);
    CpuTensor::new(data, shape)
}

/// [`crate::backend::Backend::rows`].
pub fn rows(x: &CpuTensor, rows: Range<usize>) -> CpuTensor {
    let (shape, width) = shapes::rows(x, &rows);
    x.share(rows.start * width..rows.end * width, &shape)
}

/// [`crate::backend::Backend::reshape`].
pub fn reshape(x: &CpuTensor, shape: &[usize]) -> CpuTensor {
    shapes::reshape(x, shape);
    x.share(0..shape.iter().product(), shape)
}

/// [`crate::backend::Backend::concat`].
pub fn concat(parts: &[&CpuTensor]) -> CpuTensor {
    let shape = shapes::concat(parts);
    match parts[0].dtype() {
        DType::F32 => CpuTensor::from_f32(parts.iter().map(|x| x.f32()).collect::<Vec<_>>().concat(), &shape),
        DType::Bf16 => {
            CpuTensor::from_bf16(parts.iter().flat_map(|x| x.parts()).collect::<Vec<_>>().concat(), &shape)
        }
    }
}

/// [`crate::backend::Backend::to_bf16`].
pub fn to_bf16(backend: &CpuBackend, x: &CpuTensor) -> CpuTensor {
    shapes::to_bf16(x);
    let mut out = vec![bf16::ZERO; x.f32().len()];
    backend.run(|| {
        let chunks = out.par_chunks_mut(CHUNK).zip(x.f32().par_chunks(CHUNK));
        chunks.for_each(|(to, x)| round_to_bf16(backend.isa(), x, to));
    });
    CpuTensor::from_bf16(out, x.shape())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bf16s(n: usize) -> Vec<bf16> {
        (0..n).map(|i| bf16::from_f32(i as f32)).collect()
    }

    #[test]
    fn rows_and_reshapes_share_and_concat_copies() {
        let x = upload(HostData::Bf16(bf16s(24)), &[6, 4]);
        let middle = rows(&x, 2..5);
        assert_eq!(middle.shape(), [3, 4]);
        assert_eq!(middle.bf16(), &x.bf16()[8..20]);
        assert!(std::ptr::eq(middle.bf16().as_ptr(), &x.bf16()[8]), "shares memory");
        let flat = reshape(&rows(&middle, 1..3), &[8]);
        assert_eq!(flat.bf16(), &x.bf16()[12..20]);
        let joined = concat(&[&middle, &rows(&x, 0..1)]);
        assert_eq!(joined.shape(), [4, 4]);
        assert_eq!(joined.bf16(), [&x.bf16()[8..20], &x.bf16()[..4]].concat());
        assert_eq!(joined.to_host(), HostData::Bf16(joined.bf16().to_vec()));
    }

    #[test]
    fn to_bf16_rounds_every_element() -> Result<(), crate::backend::BackendError> {
        let n = 2 * CHUNK + 3;
        let x = upload(HostData::F32((0..n).map(|i| i as f32 * 1.001).collect()), &[n]);
        let expected: Vec<bf16> = x.f32().iter().map(|&v| bf16::from_f32(v)).collect();
        for threads in [1, 2] {
            let backend = CpuBackend::with_isa(crate::simd::Isa::best(), threads)?;
            assert_eq!(to_bf16(&backend, &x).bf16(), expected);
        }
        Ok(())
    }
}
