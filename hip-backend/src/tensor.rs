//! Tensors in device memory.

use std::sync::Arc;

use moss_reference::backend::{DType, Tensor};

use crate::device::Buffer;
use crate::pool::Pooled;
use crate::stream::HostBytes;
use crate::trail::Owner;

/// The memory behind a tensor.
#[derive(Clone)]
pub(crate) enum Storage {
    /// An activation.
    Pool(Arc<Pooled>),
    /// Weights on the device.
    Weights(Arc<Buffer>, Owner),
    /// Weights in pinned host memory, read in place.
    Host(Arc<HostBytes>, Owner),
}

/// Elements in device memory, row-major; weights that are matrices or kernels lie in the kernels' own order.
#[derive(Clone)]
pub struct HipTensor {
    storage: Storage,
    /// Byte of the first element.
    offset: u64,
    shape: Vec<usize>,
    dtype: DType,
}

impl Tensor for HipTensor {
    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn dtype(&self) -> DType {
        self.dtype
    }
}

impl HipTensor {
    pub(crate) fn new(storage: Storage, offset: u64, shape: Vec<usize>, dtype: DType) -> Self {
        Self { storage, offset, shape, dtype }
    }

    /// Device address of the first element.
    pub(crate) fn address(&self) -> u64 {
        match &self.storage {
            Storage::Pool(buffer) => buffer.address(self.offset),
            Storage::Weights(buffer, _) => buffer.address(self.offset),
            // HIP's addresses are unified: memory of hipHostMalloc is mapped for the device at the address that the host has
            // (it is made without flags, and hipHostMallocMapped is what those mean there).
            Storage::Host(bytes, _) => bytes.as_slice()[self.offset as usize..].as_ptr() as u64,
        }
    }

    /// Whose weights these are.
    pub(crate) fn owner(&self) -> Option<Owner> {
        match &self.storage {
            Storage::Pool(_) => None,
            Storage::Weights(_, owner) | Storage::Host(_, owner) => Some(*owner),
        }
    }

    /// Number of elements.
    pub(crate) fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Bytes of the elements.
    pub(crate) fn bytes(&self) -> u64 {
        self.elements() as u64 * self.dtype.size() as u64
    }

    /// Part of the same memory from byte `skip` on, in another shape.
    pub(crate) fn view(&self, skip: u64, shape: Vec<usize>) -> Self {
        Self { storage: self.storage.clone(), offset: self.offset + skip, shape, dtype: self.dtype }
    }
}
