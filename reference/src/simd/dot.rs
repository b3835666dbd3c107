//! AVX-512 BF16: sums of products of bf16 numbers, twice as many at a time as fused multiply-adds take, with their bits.
//!
//! `VDPBF16PS` adds to each lane's f32 sum the product of two upper halves, then the product of the two lower halves, and
//! rounds after each. Products of bf16 numbers are exact in f32, so these are two fused multiply-adds in the order of `k`
//! when the element of the lower `k` lies in the upper half: a *pair*. The instruction differs in one point: a subnormal
//! operand counts as zero, and a subnormal sum becomes zero. [`Floor`] tells where that can happen; there two real fused
//! multiply-adds take its place. [`Bf16Dot::new`] tries the order on the CPU itself before anything relies on it.

use std::arch::x86_64::*;

use half::bf16;

use super::avx512::transpose_pairs;
use super::{Floor, MAX_LANES, pair};
use crate::simd::Run;

/// Lanes of a vector.
const LANES: usize = 16;

/// A value exists only where the CPU has AVX-512 F, BW and BF16, and adds a pair in the order that this module needs.
#[derive(Clone, Copy, Debug)]
pub struct Bf16Dot(());

impl Bf16Dot {
    /// `None` where the CPU or the system does not support it.
    pub fn new() -> Option<Self> {
        let found = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512bf16");
        // SAFETY: the features are there.
        #[allow(unsafe_code)]
        (found && unsafe { in_order() }).then_some(Self(()))
    }

    /// Packs 16 rows of weights, pairs of `k` outermost: `packed[i * stride + r]` is the pair of elements `2 i` and `2 i + 1`
    /// of row `r`, the last one with `-0` when the length is odd. Returns the floor of all.
    ///
    /// # Panics
    /// When rows differ in length or `packed` is too short.
    pub(crate) fn pack(self, rows: &[&[bf16]; MAX_LANES], packed: &mut [f32], stride: usize) -> Floor {
        let len = rows[0].len();
        assert!(rows.iter().all(|row| row.len() == len));
        assert!(stride >= LANES && (len == 0 || packed.len() >= (len.div_ceil(2) - 1) * stride + LANES));
        let whole = len / 32 * 32;
        // SAFETY: the features are there; the rows have `whole` elements, and each of the `whole / 2` steps its 16 places.
        #[allow(unsafe_code)]
        let mut floor = unsafe { pack(rows, whole, packed.as_mut_ptr(), stride) };
        for i in (whole..len).step_by(2) {
            for (r, row) in rows.iter().enumerate() {
                let numbers = &row[i..len.min(i + 2)];
                floor = floor.min(Floor::of(numbers));
                packed[i / 2 * stride + r] = pair(numbers, bf16::NEG_ZERO);
            }
        }
        floor
    }

    /// Makes pairs of rows of weights `p'`, in place: `p[i * width + c]` becomes the pair of rows `2 i` and `2 i + 1` of `rows`,
    /// the last one with `+0` when their number is odd. The numbers are bf16 as f32, not negative. Returns the floor of all.
    ///
    /// # Panics
    /// When `width` is no multiple of 16 or `p` is too short.
    pub(crate) fn pair_rows(self, p: &mut [f32], width: usize, rows: usize) -> Floor {
        assert!(width.is_multiple_of(LANES) && p.len() >= rows * width);
        // SAFETY: the features are there, and `rows` rows of `width` numbers.
        #[allow(unsafe_code)]
        unsafe {
            pair_rows(p.as_mut_ptr(), width, rows)
        }
    }

    /// `sums[r * factors.len() + c] *= factors[c]`; returns whether all results are zero or so large that adding multiples of
    /// the least normal number to them never gives a subnormal one.
    ///
    /// # Panics
    /// When the lengths are no multiples of 16 or of one another.
    pub(crate) fn scale(self, sums: &mut [f32], factors: &[f32]) -> bool {
        assert!(factors.len().is_multiple_of(LANES) && sums.len().is_multiple_of(factors.len()));
        // SAFETY: the features are there, and so are the lengths.
        #[allow(unsafe_code)]
        unsafe {
            scale(sums, factors)
        }
    }

    /// The CPU backend's `rows_at_least` where each step is a pair of `k`. With `tame`, the floors of both
    /// operands, and of the sums so far, vouch for the instruction.
    ///
    /// # Safety
    /// As for that function.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn rows_at_least<const NV: usize>(
        self,
        rows: usize,
        tame: bool,
        run: Run,
        c: *mut f32,
    ) {
        // SAFETY: the features are there; the caller vouches for the rest.
        unsafe {
            match (rows, tame) {
                (1, true) => tile::<1, NV, true>(run, c),
                (2, true) => tile::<2, NV, true>(run, c),
                (3..=4, true) => tile::<4, NV, true>(run, c),
                (_, true) => tile::<8, NV, true>(run, c),
                (1, false) => tile::<1, NV, false>(run, c),
                (2, false) => tile::<2, NV, false>(run, c),
                (3..=4, false) => tile::<4, NV, false>(run, c),
                (_, false) => tile::<8, NV, false>(run, c),
            }
        }
    }
}

/// `c` plus the products of a pair, by the instruction.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
fn dot(c: __m512, x: __m512, w: __m512) -> __m512 {
    // SAFETY: the types have the same size, and every pattern of bits is a value of either.
    #[allow(unsafe_code)]
    unsafe {
        _mm512_dpbf16_ps(
            c,
            std::mem::transmute::<__m512, __m512bh>(x),
            std::mem::transmute::<__m512, __m512bh>(w),
        )
    }
}

/// The upper halves as f32.
#[inline]
#[target_feature(enable = "avx512f")]
fn upper(x: __m512) -> __m512 {
    _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0xffff_0000_u32 as i32)))
}

/// The lower halves as f32.
#[inline]
#[target_feature(enable = "avx512f")]
fn lower(x: __m512) -> __m512 {
    _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(x), 16))
}

/// Whether the instruction adds the upper product first and rounds after each: 2^25 + 1 - 2^25 is 0 then, either other order
/// or a single rounding gives 1; and 2^24 + 1 + 1 is 2^24, where a single rounding gives 2^24 + 2.
#[target_feature(enable = "avx512f,avx512bf16")]
fn in_order() -> bool {
    let large = 33_554_432.0;
    let ones = pair(&[bf16::ONE; 2], bf16::ZERO);
    let trial = |sum: f32, numbers: [f32; 2]| {
        let numbers = pair(&numbers.map(bf16::from_f32), bf16::ZERO);
        let sums = dot(_mm512_set1_ps(sum), _mm512_set1_ps(numbers), _mm512_set1_ps(ones));
        let mut lanes = [0f32; LANES];
        // SAFETY: there is room for 16 numbers.
        #[allow(unsafe_code)]
        unsafe {
            _mm512_storeu_ps(lanes.as_mut_ptr(), sums);
        }
        lanes
    };
    trial(large, [1.0, -large]) == [0.0; LANES]
        && trial(large, [-large, 1.0]) == [1.0; LANES]
        && trial(large / 2.0, [1.0, 1.0]) == [large / 2.0; LANES]
}

/// # Safety
/// The CPU has AVX-512 BW; `whole`, a multiple of 32, elements can be read in each row; 16 numbers written at each of
/// `whole / 2` strides.
#[target_feature(enable = "avx512f,avx512bw")]
#[allow(unsafe_code)]
unsafe fn pack(rows: &[&[bf16]; MAX_LANES], whole: usize, packed: *mut f32, stride: usize) -> Floor {
    let magnitude = _mm512_set1_epi16(0x7fff);
    // A zero becomes the largest: it is no number's floor.
    let (mut least, mut most) = (_mm512_set1_epi16(-1), _mm512_setzero_si512());
    for i in (0..whole).step_by(32) {
        let mut r = [_mm512_setzero_si512(); MAX_LANES];
        for (r, row) in r.iter_mut().zip(rows) {
            // SAFETY: the caller vouches for the rows.
            *r = unsafe { _mm512_loadu_si512(row.as_ptr().add(i).cast()) };
            let bits = _mm512_and_si512(*r, magnitude);
            most = _mm512_max_epu16(most, bits);
            least = _mm512_min_epu16(least, _mm512_sub_epi16(bits, _mm512_set1_epi16(1)));
        }
        // SAFETY: the caller vouches for the CPU.
        let columns = unsafe { transpose_pairs(r) };
        for (j, v) in columns.into_iter().enumerate() {
            let v = _mm512_castsi512_ps(_mm512_rol_epi32(v, 16));
            // SAFETY: the caller vouches for the places.
            unsafe { _mm512_storeu_ps(packed.add((i / 2 + j) * stride), v) };
        }
    }
    let (mut low, mut high) = ([0u16; 32], [0u16; 32]);
    // SAFETY: there is room for 32 numbers each.
    unsafe {
        _mm512_storeu_si512(low.as_mut_ptr().cast(), least);
        _mm512_storeu_si512(high.as_mut_ptr().cast(), most);
    }
    let least = low.into_iter().fold(u16::MAX, u16::min);
    let most = high.into_iter().fold(0, u16::max);
    Floor::of_magnitudes(least, most)
}

/// # Safety
/// `rows` rows of `width` numbers, a multiple of 16, can be read and written at `p`.
#[target_feature(enable = "avx512f")]
#[allow(unsafe_code)]
unsafe fn pair_rows(p: *mut f32, width: usize, rows: usize) -> Floor {
    let (mut least, mut most) = (_mm512_set1_epi32(-1), _mm512_setzero_si512());
    for i in (0..rows).step_by(2) {
        for c in (0..width).step_by(LANES) {
            // SAFETY: the caller vouches for the rows; a pair is written where rows are already read.
            unsafe {
                let first = _mm512_loadu_si512(p.add(i * width + c).cast());
                let second = match i + 1 < rows {
                    true => _mm512_loadu_si512(p.add((i + 1) * width + c).cast()),
                    false => _mm512_setzero_si512(),
                };
                for bits in [first, second] {
                    most = _mm512_max_epu32(most, bits);
                    least = _mm512_min_epu32(least, _mm512_sub_epi32(bits, _mm512_set1_epi32(1)));
                }
                let pair = _mm512_or_si512(first, _mm512_srli_epi32(second, 16));
                _mm512_storeu_si512(p.add(i / 2 * width + c).cast(), pair);
            }
        }
    }
    // A number's lower half is zero: less one, the upper half is less one too.
    let upper = |bits: u32| (bits >> 16) as u16;
    Floor::of_magnitudes(upper(_mm512_reduce_min_epu32(least)), upper(_mm512_reduce_max_epu32(most)))
}

/// Sums of multiples of `2^-126` and of a number that is at least `2^-103`, and so is one too, are zero or normal.
const LARGE_ENOUGH: u32 = (127 - 103) << 23;

/// # Safety
/// The lengths are multiples of 16, and of one another.
#[target_feature(enable = "avx512f")]
#[allow(unsafe_code)]
unsafe fn scale(sums: &mut [f32], factors: &[f32]) -> bool {
    let mut least = _mm512_set1_epi32(-1);
    for row in sums.chunks_exact_mut(factors.len()) {
        for (x, factor) in row.chunks_exact_mut(LANES).zip(factors.chunks_exact(LANES)) {
            // SAFETY: both have 16 numbers.
            let y = unsafe {
                let y = _mm512_mul_ps(_mm512_loadu_ps(x.as_ptr()), _mm512_loadu_ps(factor.as_ptr()));
                _mm512_storeu_ps(x.as_mut_ptr(), y);
                y
            };
            let bits = _mm512_castps_si512(_mm512_abs_ps(y));
            least = _mm512_min_epu32(least, _mm512_sub_epi32(bits, _mm512_set1_epi32(1)));
        }
    }
    _mm512_reduce_min_epu32(least) >= LARGE_ENOUGH - 1
}

/// `c[r][v]` plus the products of `run.len` pairs, in order.
///
/// # Safety
/// As for a tile of `micro`, with `MR` rows and `NV` vectors.
#[target_feature(enable = "avx512f,avx512bf16")]
#[allow(unsafe_code)]
unsafe fn tile<const MR: usize, const NV: usize, const TAME: bool>(run: Run, c: *mut f32) {
    let Run { len, mut a, a_step, mut b } = run;
    let mut acc = [[_mm512_setzero_ps(); NV]; MR];
    // SAFETY: the caller vouches for every place that is read or written.
    unsafe {
        for r in 0..MR {
            for v in 0..NV {
                acc[r][v] = _mm512_loadu_ps(c.add((r * NV + v) * LANES));
            }
        }
        for _ in 0..len {
            let mut w = [_mm512_setzero_ps(); NV];
            for v in 0..NV {
                w[v] = _mm512_loadu_ps(b.add(v * LANES));
            }
            for r in 0..MR {
                let x = _mm512_set1_ps(*a.add(r));
                for v in 0..NV {
                    acc[r][v] = if TAME {
                        dot(acc[r][v], x, w[v])
                    } else {
                        let sum = _mm512_fmadd_ps(upper(x), upper(w[v]), acc[r][v]);
                        _mm512_fmadd_ps(lower(x), lower(w[v]), sum)
                    };
                }
            }
            a = a.add(a_step);
            b = b.add(NV * LANES);
        }
        for r in 0..MR {
            for v in 0..NV {
                _mm512_storeu_ps(c.add((r * NV + v) * LANES), acc[r][v]);
            }
        }
    }
}
