//! CPUs without an instruction for products of bf16 numbers.

use half::bf16;

use super::{Floor, MAX_LANES};
use crate::simd::Run;

/// The instruction that this CPU does not have.
#[derive(Clone, Copy, Debug)]
pub enum Bf16Dot {}

impl Bf16Dot {
    /// `None`.
    pub fn new() -> Option<Self> {
        None
    }

    pub(crate) fn pack(self, _: &[&[bf16]; MAX_LANES], _: &mut [f32], _: usize) -> Floor {
        match self {}
    }

    pub(crate) fn pair_rows(self, _: &mut [f32], _: usize, _: usize) -> Floor {
        match self {}
    }

    pub(crate) fn scale(self, _: &mut [f32], _: &[f32]) -> bool {
        match self {}
    }

    /// # Safety
    /// Cannot be called.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn rows_at_least<const NV: usize>(self, _: usize, _: bool, _: Run, _: *mut f32) {
        match self {}
    }
}
