//! AVX-512F.

use std::arch::x86_64::*;
use std::array::from_fn;

use half::bf16;

use super::{MAX_LANES, Simd};

/// 16 lanes; a value exists only where the CPU has AVX-512F (and AVX2 and FMA).
#[derive(Clone, Copy, Debug)]
pub struct Avx512(());

impl Avx512 {
    /// `None` where the CPU or the system does not support it.
    pub fn new() -> Option<Self> {
        (is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma"))
        .then_some(Self(()))
    }
}

/// The bf16 bits of each lane, in the upper half of its 32 bits.
///
/// # Safety
/// The CPU has AVX-512F.
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn bf16_bits(v: __m512) -> __m512i {
    // SAFETY: the caller vouches for the CPU.
    unsafe {
        let bits = _mm512_castps_si512(v);
        let odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
        let rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
        let nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
        let either = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x0040_0000));
        _mm512_and_si512(either, _mm512_set1_epi32(0xffff_0000_u32 as i32))
    }
}

/// The transpose of 16 rows of 16 elements of 32 bits.
///
/// # Safety
/// The CPU has AVX-512F.
#[inline(always)]
#[allow(unsafe_code)]
pub(super) unsafe fn transpose_pairs(r: [__m512i; 16]) -> [__m512i; 16] {
    // SAFETY: the caller vouches for the CPU.
    unsafe {
        // Two rounds of interleaving give, in vector 4 g + j, elements j, j + 4, j + 8, j + 12 of rows 4 g to 4 g + 3, one
        // element a quarter; two rounds of moving quarters gather the four groups of rows.
        let mut t = [_mm512_setzero_si512(); 16];
        for i in 0..8 {
            t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
            t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
        }
        let mut u = [_mm512_setzero_si512(); 16];
        for g in 0..4 {
            for j in 0..2 {
                u[4 * g + 2 * j] = _mm512_unpacklo_epi64(t[4 * g + j], t[4 * g + j + 2]);
                u[4 * g + 2 * j + 1] = _mm512_unpackhi_epi64(t[4 * g + j], t[4 * g + j + 2]);
            }
        }
        let mut columns = [_mm512_setzero_si512(); 16];
        for j in 0..4 {
            let a = _mm512_shuffle_i32x4(u[j], u[j + 4], 0b10_00_10_00);
            let b = _mm512_shuffle_i32x4(u[j], u[j + 4], 0b11_01_11_01);
            let c = _mm512_shuffle_i32x4(u[j + 8], u[j + 12], 0b10_00_10_00);
            let d = _mm512_shuffle_i32x4(u[j + 8], u[j + 12], 0b11_01_11_01);
            columns[j] = _mm512_shuffle_i32x4(a, c, 0b10_00_10_00);
            columns[j + 4] = _mm512_shuffle_i32x4(b, d, 0b10_00_10_00);
            columns[j + 8] = _mm512_shuffle_i32x4(a, c, 0b11_01_11_01);
            columns[j + 12] = _mm512_shuffle_i32x4(b, d, 0b11_01_11_01);
        }
        columns
    }
}

// SAFETY of every block below: `self` exists only where the CPU has the instructions; the pointers are the
// caller's promise.
#[allow(unsafe_code)]
#[allow(clippy::undocumented_unsafe_blocks)]
impl Simd for Avx512 {
    const LANES: usize = 16;
    type F = __m512;
    type M = __mmask16;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load_at(self, x: *const f32) -> Self::F {
        unsafe { _mm512_loadu_ps(x) }
    }
    #[inline(always)]
    unsafe fn store_at(self, v: Self::F, to: *mut f32) {
        unsafe { _mm512_storeu_ps(to, v) }
    }
    #[inline(always)]
    unsafe fn load_bf16_at(self, x: *const bf16) -> Self::F {
        unsafe {
            _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(x.cast())), 16))
        }
    }
    #[inline(always)]
    unsafe fn store_bf16_at(self, v: Self::F, to: *mut bf16) {
        unsafe { _mm256_storeu_si256(to.cast(), _mm512_cvtepi32_epi16(_mm512_srli_epi32(bf16_bits(v), 16))) }
    }
    #[inline(always)]
    unsafe fn transpose_bf16(self, rows: &[*const bf16; MAX_LANES], to: *mut f32, stride: usize) {
        unsafe {
            let pairs = transpose_pairs(from_fn(|i| _mm512_loadu_si512(rows[i].cast())));
            for (pair, v) in pairs.into_iter().enumerate() {
                let even = _mm512_slli_epi32(v, 16);
                let odd = _mm512_and_si512(v, _mm512_set1_epi32(0xffff_0000_u32 as i32));
                _mm512_storeu_ps(to.add(2 * pair * stride), _mm512_castsi512_ps(even));
                _mm512_storeu_ps(to.add((2 * pair + 1) * stride), _mm512_castsi512_ps(odd));
            }
        }
    }
    #[inline(always)]
    fn prefetch(self, x: *const bf16) {
        unsafe { _mm_prefetch(x.cast(), _MM_HINT_T1) }
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm512_div_ps(a, b) }
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm512_max_ps(a, b) }
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm512_min_ps(a, b) }
    }
    #[inline(always)]
    fn sqrt(self, a: Self::F) -> Self::F {
        unsafe { _mm512_sqrt_ps(a) }
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn round(self, a: Self::F) -> Self::F {
        unsafe { _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC) }
    }
    #[inline(always)]
    fn ldexp(self, a: Self::F, n: Self::F) -> Self::F {
        unsafe { _mm512_scalef_ps(a, n) }
    }
    #[inline(always)]
    fn exponent(self, a: Self::F) -> Self::F {
        unsafe {
            let above = _mm512_sub_epi32(_mm512_castps_si512(a), _mm512_set1_epi32(0x3f40_0000));
            _mm512_cvtepi32_ps(_mm512_srai_epi32(above, 23))
        }
    }
    #[inline(always)]
    fn abs(self, a: Self::F) -> Self::F {
        unsafe { _mm512_abs_ps(a) }
    }
    #[inline(always)]
    fn neg(self, a: Self::F) -> Self::F {
        unsafe { _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(a), _mm512_set1_epi32(i32::MIN))) }
    }
    #[inline(always)]
    fn copysign(self, a: Self::F, sign: Self::F) -> Self::F {
        unsafe {
            let sign = _mm512_and_si512(_mm512_castps_si512(sign), _mm512_set1_epi32(i32::MIN));
            _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(a), sign))
        }
    }
    #[inline(always)]
    fn round_bf16(self, a: Self::F) -> Self::F {
        unsafe { _mm512_castsi512_ps(bf16_bits(a)) }
    }
    #[inline(always)]
    fn less(self, a: Self::F, b: Self::F) -> Self::M {
        unsafe { _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ) }
    }
    #[inline(always)]
    fn select(self, mask: Self::M, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm512_mask_blend_ps(mask, b, a) }
    }
}
