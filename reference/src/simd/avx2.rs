//! AVX2 and FMA.

use std::arch::x86_64::*;
use std::array::from_fn;

use half::bf16;

use super::{MAX_LANES, Simd};

/// 8 lanes; a value exists only where the CPU has AVX2 and FMA.
#[derive(Clone, Copy, Debug)]
pub struct Avx2(());

impl Avx2 {
    /// `None` where the CPU or the system does not support it.
    pub fn new() -> Option<Self> {
        (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")).then_some(Self(()))
    }
}

/// The bf16 bits of each lane, in the upper half of its 32 bits.
///
/// # Safety
/// The CPU has AVX2.
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn bf16_bits(v: __m256) -> __m256i {
    // SAFETY: the caller vouches for the CPU.
    unsafe {
        let bits = _mm256_castps_si256(v);
        let odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
        let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
        let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x0040_0000));
        let nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
        let either = _mm256_blendv_epi8(rounded, quiet, nan);
        _mm256_and_si256(either, _mm256_set1_epi32(0xffff_0000_u32 as i32))
    }
}

/// `2^e` for `e` in `-126..=127`.
#[inline(always)]
#[allow(unsafe_code)]
fn power_of_two(e: __m256i) -> __m256 {
    // SAFETY: only called from methods of `Avx2`, which exists only where the CPU has AVX2.
    unsafe { _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(e, _mm256_set1_epi32(127)), 23)) }
}

// SAFETY of every block below: `self` exists only where the CPU has the instructions; the pointers are the
// caller's promise.
#[allow(unsafe_code)]
#[allow(clippy::undocumented_unsafe_blocks)]
impl Simd for Avx2 {
    const LANES: usize = 8;
    type F = __m256;
    type M = __m256;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        unsafe { _mm256_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load_at(self, x: *const f32) -> Self::F {
        unsafe { _mm256_loadu_ps(x) }
    }
    #[inline(always)]
    unsafe fn store_at(self, v: Self::F, to: *mut f32) {
        unsafe { _mm256_storeu_ps(to, v) }
    }
    #[inline(always)]
    unsafe fn load_bf16_at(self, x: *const bf16) -> Self::F {
        unsafe {
            _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(x.cast())), 16))
        }
    }
    #[inline(always)]
    unsafe fn store_bf16_at(self, v: Self::F, to: *mut bf16) {
        unsafe {
            let bits = _mm256_srli_epi32(bf16_bits(v), 16);
            let packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(bits, bits), 0b1000);
            _mm_storeu_si128(to.cast(), _mm256_castsi256_si128(packed))
        }
    }
    #[inline(always)]
    unsafe fn transpose_bf16(self, rows: &[*const bf16; MAX_LANES], to: *mut f32, stride: usize) {
        unsafe {
            // A 32-bit element is a pair (k, k + 1). Two rounds of interleaving give, in vector 4 g + j, pair j of
            // rows 4 g to 4 g + 3 (lower half) and pair j + 4 of the same (upper half).
            let r: [__m256i; 8] = from_fn(|i| _mm256_loadu_si256(rows[i].cast()));
            let mut t = [_mm256_setzero_si256(); 8];
            for i in 0..4 {
                t[2 * i] = _mm256_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
                t[2 * i + 1] = _mm256_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
            }
            let mut u = [_mm256_setzero_si256(); 8];
            for g in 0..2 {
                for j in 0..2 {
                    u[4 * g + 2 * j] = _mm256_unpacklo_epi64(t[4 * g + j], t[4 * g + j + 2]);
                    u[4 * g + 2 * j + 1] = _mm256_unpackhi_epi64(t[4 * g + j], t[4 * g + j + 2]);
                }
            }
            for j in 0..4 {
                let lower = _mm256_permute2x128_si256(u[j], u[j + 4], 0x20);
                let upper = _mm256_permute2x128_si256(u[j], u[j + 4], 0x31);
                for (pair, v) in [(j, lower), (j + 4, upper)] {
                    let even = _mm256_slli_epi32(v, 16);
                    let odd = _mm256_and_si256(v, _mm256_set1_epi32(0xffff_0000_u32 as i32));
                    _mm256_storeu_ps(to.add(2 * pair * stride), _mm256_castsi256_ps(even));
                    _mm256_storeu_ps(to.add((2 * pair + 1) * stride), _mm256_castsi256_ps(odd));
                }
            }
        }
    }
    #[inline(always)]
    fn prefetch(self, x: *const bf16) {
        unsafe { _mm_prefetch(x.cast(), _MM_HINT_T1) }
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm256_add_ps(a, b) }
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm256_sub_ps(a, b) }
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm256_mul_ps(a, b) }
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm256_div_ps(a, b) }
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm256_max_ps(a, b) }
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm256_min_ps(a, b) }
    }
    #[inline(always)]
    fn sqrt(self, a: Self::F) -> Self::F {
        unsafe { _mm256_sqrt_ps(a) }
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn round(self, a: Self::F) -> Self::F {
        unsafe { _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC) }
    }
    #[inline(always)]
    fn ldexp(self, a: Self::F, n: Self::F) -> Self::F {
        unsafe {
            // Two exact powers of two; only the last product rounds (see the portable twin).
            let n = _mm256_cvtps_epi32(n);
            let half = _mm256_srai_epi32(n, 1);
            let first = _mm256_mul_ps(a, power_of_two(half));
            _mm256_mul_ps(first, power_of_two(_mm256_sub_epi32(n, half)))
        }
    }
    #[inline(always)]
    fn exponent(self, a: Self::F) -> Self::F {
        unsafe {
            let above = _mm256_sub_epi32(_mm256_castps_si256(a), _mm256_set1_epi32(0x3f40_0000));
            _mm256_cvtepi32_ps(_mm256_srai_epi32(above, 23))
        }
    }
    #[inline(always)]
    fn abs(self, a: Self::F) -> Self::F {
        unsafe { _mm256_andnot_ps(_mm256_set1_ps(-0.0), a) }
    }
    #[inline(always)]
    fn neg(self, a: Self::F) -> Self::F {
        unsafe { _mm256_xor_ps(_mm256_set1_ps(-0.0), a) }
    }
    #[inline(always)]
    fn copysign(self, a: Self::F, sign: Self::F) -> Self::F {
        unsafe { _mm256_or_ps(a, _mm256_and_ps(_mm256_set1_ps(-0.0), sign)) }
    }
    #[inline(always)]
    fn round_bf16(self, a: Self::F) -> Self::F {
        unsafe { _mm256_castsi256_ps(bf16_bits(a)) }
    }
    #[inline(always)]
    fn less(self, a: Self::F, b: Self::F) -> Self::M {
        unsafe { _mm256_cmp_ps(a, b, _CMP_LT_OQ) }
    }
    #[inline(always)]
    fn select(self, mask: Self::M, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm256_blendv_ps(b, a, mask) }
    }
}
