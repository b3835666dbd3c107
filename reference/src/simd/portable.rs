//! Plain Rust: an array of lanes.

use std::array::from_fn;

use half::bf16;

use super::{MAX_LANES, Simd};

/// `N` lanes of plain Rust, at most [`super::MAX_LANES`]. `fma` is exact everywhere: an instruction where the
/// build has one, else the C library's function.
#[derive(Clone, Copy, Debug)]
pub struct Portable<const N: usize>;

/// Multiplying twice by a power of two rounds once: `a` is near 1 and `|n / 2| <= 126`, so the first product is
/// a normal number and exact.
#[inline(always)]
fn ldexp(a: f32, n: f32) -> f32 {
    let n = n as i32;
    let half = n >> 1;
    let power = |e: i32| f32::from_bits(((e + 127) as u32) << 23);
    a * power(half) * power(n - half)
}

#[allow(unsafe_code)]
impl<const N: usize> Simd for Portable<N> {
    const LANES: usize = N;
    type F = [f32; N];
    type M = [bool; N];

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        [x; N]
    }
    #[inline(always)]
    unsafe fn load_at(self, x: *const f32) -> Self::F {
        // SAFETY: the caller vouches for N elements; arrays of f32 have no stricter alignment than f32.
        unsafe { x.cast::<[f32; N]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store_at(self, v: Self::F, to: *mut f32) {
        // SAFETY: the caller vouches for N elements.
        unsafe { to.cast::<[f32; N]>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn load_bf16_at(self, x: *const bf16) -> Self::F {
        // SAFETY: the caller vouches for N elements.
        let x = unsafe { x.cast::<[bf16; N]>().read_unaligned() };
        from_fn(|i| x[i].to_f32())
    }
    #[inline(always)]
    unsafe fn store_bf16_at(self, v: Self::F, to: *mut bf16) {
        let v: [bf16; N] = from_fn(|i| bf16::from_f32(v[i]));
        // SAFETY: the caller vouches for N elements.
        unsafe { to.cast::<[bf16; N]>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn transpose_bf16(self, rows: &[*const bf16; MAX_LANES], to: *mut f32, stride: usize) {
        for (r, row) in rows[..N].iter().enumerate() {
            for k in 0..2 * N {
                // SAFETY: the caller vouches for 2N elements of each row, and for N at each k of `to`.
                unsafe {
                    *to.add(k * stride + r) = (*row.add(k)).to_f32();
                }
            }
        }
    }
    #[inline(always)]
    fn prefetch(self, _: *const bf16) {}
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| a[i] - b[i])
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| a[i] / b[i])
    }
    #[inline(always)]
    fn sqrt(self, a: Self::F) -> Self::F {
        from_fn(|i| a[i].sqrt())
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        from_fn(|i| a[i].mul_add(b[i], c[i]))
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn round(self, a: Self::F) -> Self::F {
        from_fn(|i| a[i].round_ties_even())
    }
    #[inline(always)]
    fn ldexp(self, a: Self::F, n: Self::F) -> Self::F {
        from_fn(|i| ldexp(a[i], n[i]))
    }
    #[inline(always)]
    fn exponent(self, a: Self::F) -> Self::F {
        from_fn(|i| ((a[i].to_bits() as i32).wrapping_sub(0x3f40_0000) >> 23) as f32)
    }
    #[inline(always)]
    fn abs(self, a: Self::F) -> Self::F {
        from_fn(|i| a[i].abs())
    }
    #[inline(always)]
    fn neg(self, a: Self::F) -> Self::F {
        from_fn(|i| -a[i])
    }
    #[inline(always)]
    fn copysign(self, a: Self::F, sign: Self::F) -> Self::F {
        from_fn(|i| f32::from_bits(a[i].to_bits() | sign[i].to_bits() & 0x8000_0000))
    }
    #[inline(always)]
    fn round_bf16(self, a: Self::F) -> Self::F {
        from_fn(|i| bf16::from_f32(a[i]).to_f32())
    }
    #[inline(always)]
    fn less(self, a: Self::F, b: Self::F) -> Self::M {
        from_fn(|i| a[i] < b[i])
    }
    #[inline(always)]
    fn select(self, mask: Self::M, a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| if mask[i] { a[i] } else { b[i] })
    }
}
