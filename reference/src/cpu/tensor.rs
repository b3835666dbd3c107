//! Tensors of the CPU backend: shared memory, or weights where they lie in the mapped file.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use half::bf16;
use memmap2::MmapMut;

use crate::backend::{BackendError, DType, HostData, Result, Role, Tensor, WeightSpec};
use crate::files::{Bf16Rows, Checkpoint};

/// A tensor in the computer's memory; clones share it.
#[derive(Clone)]
pub struct CpuTensor {
    shape: Vec<usize>,
    data: Data,
}

#[derive(Clone)]
enum Data {
    F32(Arc<Buffer>, Range<usize>),
    Bf16(Arc<Vec<bf16>>, Range<usize>),
    /// A weight matrix: whole rows, one part after another.
    Parts(Arc<[Bf16Rows]>),
}

/// Memory of f32 elements. A picture's hundreds of MB take a second of page faults when they come in small pages, so
/// large memory is mapped on its own and huge pages are asked for.
pub(super) enum Buffer {
    /// From the allocator.
    Heap(Vec<f32>),
    /// Pages of its own.
    Pages(MmapMut),
}

/// Bytes from which on memory is mapped on its own.
const LARGE: usize = 32 << 20;

impl Buffer {
    /// `len` zeros.
    pub(super) fn zeros(len: usize) -> Self {
        let bytes = len * size_of::<f32>();
        if bytes < LARGE {
            return Self::Heap(vec![0.0; len]);
        }
        match MmapMut::map_anon(bytes) {
            Ok(pages) => {
                // Where there are no huge pages, small ones do.
                #[cfg(target_os = "linux")]
                let _ = pages.advise(memmap2::Advice::HugePage);
                Self::Pages(pages)
            }
            Err(_) => Self::Heap(vec![0.0; len]),
        }
    }
}

impl Deref for Buffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match self {
            Buffer::Heap(data) => data,
            Buffer::Pages(pages) => bytemuck::cast_slice(pages),
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        match self {
            Buffer::Heap(data) => data,
            Buffer::Pages(pages) => bytemuck::cast_slice_mut(pages),
        }
    }
}

impl Tensor for CpuTensor {
    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn dtype(&self) -> DType {
        match self.data {
            Data::F32(..) => DType::F32,
            Data::Bf16(..) | Data::Parts(_) => DType::Bf16,
        }
    }
}

impl fmt::Debug for CpuTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.dtype(), self.shape)
    }
}

impl CpuTensor {
    /// A tensor of `data`, whose length is the product of `shape`.
    pub fn new(data: HostData, shape: &[usize]) -> Self {
        match data {
            HostData::F32(data) => Self::from_f32(data, shape),
            HostData::Bf16(data) => Self::from_bf16(data, shape),
        }
    }

    /// An f32 tensor.
    pub fn from_f32(data: Vec<f32>, shape: &[usize]) -> Self {
        Self::from_buffer(Buffer::Heap(data), shape)
    }

    /// An f32 tensor in memory that an operation has filled.
    pub(super) fn from_buffer(data: Buffer, shape: &[usize]) -> Self {
        debug_assert_eq!(data.len(), shape.iter().product::<usize>());
        let range = 0..data.len();
        Self { shape: shape.to_vec(), data: Data::F32(Arc::new(data), range) }
    }

    /// A bf16 tensor.
    pub fn from_bf16(data: Vec<bf16>, shape: &[usize]) -> Self {
        debug_assert_eq!(data.len(), shape.iter().product::<usize>());
        let range = 0..data.len();
        Self { shape: shape.to_vec(), data: Data::Bf16(Arc::new(data), range) }
    }

    /// One weight of a checkpoint: matrices stay in the file when they are bf16 there.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn weight(checkpoint: &Checkpoint, spec: &WeightSpec) -> Result<Self> {
        let rows = checkpoint.rows(&spec.parts);
        let shape = rows.shape();
        Ok(match spec.role {
            Role::Matrix | Role::UpGate => {
                let parts = rows.to_bf16_parts().map_err(BackendError::new)?;
                Self { shape: shape.to_vec(), data: Data::Parts(parts.into()) }
            }
            Role::Vector | Role::Depthwise => {
                Self::from_bf16(rows.to_vec().map_err(BackendError::new)?, shape)
            }
            Role::VectorF32 | Role::Conv2d => {
                Self::from_f32(rows.to_vec().map_err(BackendError::new)?, shape)
            }
        })
    }

    /// The elements of an f32 tensor.
    ///
    /// # Panics
    /// If it is not f32.
    pub fn f32(&self) -> &[f32] {
        match &self.data {
            Data::F32(data, range) => &data[range.clone()],
            _ => panic!("f32 tensor expected, found {self:?}"),
        }
    }

    /// The elements of a bf16 tensor.
    ///
    /// # Panics
    /// If it is not bf16, or is a weight of several parts.
    pub fn bf16(&self) -> &[bf16] {
        match self.parts()[..] {
            [elements] => elements,
            _ => panic!("bf16 tensor in one piece expected, found {self:?}"),
        }
    }

    /// The elements of a bf16 tensor piece by piece; a piece holds whole rows of the first axis.
    ///
    /// # Panics
    /// If it is not bf16.
    pub fn parts(&self) -> Vec<&[bf16]> {
        match &self.data {
            Data::Bf16(data, range) => vec![&data[range.clone()]],
            Data::Parts(parts) => parts.iter().map(|part| &**part).collect(),
            Data::F32(..) => panic!("bf16 tensor expected, found {self:?}"),
        }
    }

    /// A copy of the elements.
    pub fn to_host(&self) -> HostData {
        match &self.data {
            Data::F32(..) => HostData::F32(self.f32().to_vec()),
            _ => HostData::Bf16(self.parts().concat()),
        }
    }

    /// Elements `range` in another shape, sharing memory.
    pub fn share(&self, range: Range<usize>, shape: &[usize]) -> Self {
        debug_assert_eq!(range.len(), shape.iter().product::<usize>());
        let inside = |of: &Range<usize>| of.start + range.start..of.start + range.end;
        let data = match &self.data {
            Data::F32(data, of) => Data::F32(data.clone(), inside(of)),
            Data::Bf16(data, of) => Data::Bf16(data.clone(), inside(of)),
            Data::Parts(parts) => {
                let whole: usize = self.shape.iter().product();
                assert_eq!(range.len(), whole, "rows of a weight: {self:?}");
                Data::Parts(parts.clone())
            }
        };
        Self { shape: shape.to_vec(), data }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_either_kind_are_zeros_that_can_be_written() {
        for len in [1, LARGE / 4 - 1, LARGE / 4, LARGE / 4 + 3] {
            let mut buffer = Buffer::zeros(len);
            assert_eq!(matches!(buffer, Buffer::Pages(_)), len * 4 >= LARGE);
            assert!(buffer.len() == len && buffer.iter().all(|&x| x == 0.0));
            buffer[len - 1] = 2.0;
            let x = CpuTensor::from_buffer(buffer, &[len]);
            assert_eq!(x.share(len - 1..len, &[1]).f32(), [2.0]);
        }
    }
}
