//! One vector abstraction for every instruction set: kernels are written once over [`Simd`] and give the same
//! bits on each instruction set.
//!
//! A value of a type that implements [`Simd`] is a proof that the CPU has the instructions: the x86 ones
//! can only be made by asking the CPU. [`Isa`] holds one of them; the macro `simd_kernel!` turns a
//! function generic over [`Simd`] into one that takes a [`Isa`] and runs the matching instance.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod dot;
#[cfg(not(target_arch = "x86_64"))]
#[path = "no_dot.rs"]
mod dot;
pub mod math;
mod pair;
mod portable;
mod run;

use std::fmt;

use half::bf16;

#[cfg(target_arch = "x86_64")]
pub use self::{avx2::Avx2, avx512::Avx512};
pub use dot::Bf16Dot;
pub(crate) use pair::{Floor, pair};
pub use portable::Portable;
pub(crate) use run::Run;

/// One lane: the instance for single numbers.
pub type Scalar = Portable<1>;

/// A set of vector instructions over `LANES` f32 numbers.
///
/// Every operation is the IEEE one, lane by lane, rounded to nearest even, subnormal numbers kept; so all
/// implementations agree in every bit but the payload and sign of a NaN.
pub trait Simd: Copy + Send + Sync + fmt::Debug + 'static {
    /// Numbers in a vector.
    const LANES: usize;
    /// A vector.
    type F: Copy;
    /// The result of a comparison.
    type M: Copy;

    /// `x` in every lane.
    fn splat(self, x: f32) -> Self::F;
    /// The vector at `x`.
    ///
    /// # Safety
    /// `LANES` numbers can be read at `x` (no alignment needed).
    #[allow(unsafe_code)]
    unsafe fn load_at(self, x: *const f32) -> Self::F;
    /// Writes the vector to `to`.
    ///
    /// # Safety
    /// `LANES` numbers can be written at `to` (no alignment needed).
    #[allow(unsafe_code)]
    unsafe fn store_at(self, v: Self::F, to: *mut f32);
    /// The vector at `x`, widened (exact).
    ///
    /// # Safety
    /// `LANES` numbers can be read at `x` (no alignment needed).
    #[allow(unsafe_code)]
    unsafe fn load_bf16_at(self, x: *const bf16) -> Self::F;
    /// Writes the vector rounded to bf16, to nearest even; a NaN stays a NaN (its upper half, made quiet).
    ///
    /// # Safety
    /// `LANES` numbers can be written at `to` (no alignment needed).
    #[allow(unsafe_code)]
    unsafe fn store_bf16_at(self, v: Self::F, to: *mut bf16);

    /// Transposes and widens `LANES` rows of `2 * LANES` numbers: element `k` of row `r` goes to `to[k * stride + r]`.
    ///
    /// # Safety
    /// `2 * LANES` numbers can be read at each of the first `LANES` of `rows`, and `LANES` numbers be written at
    /// `to + k * stride` for each `k` below `2 * LANES`.
    #[allow(unsafe_code)]
    unsafe fn transpose_bf16(self, rows: &[*const bf16; MAX_LANES], to: *mut f32, stride: usize);
    /// Asks for the cache line at `x`, to the second level; `x` need not be readable.
    fn prefetch(self, x: *const bf16);

    /// `a + b`.
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a - b`.
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b`.
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a / b`, correctly rounded.
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// Square root, correctly rounded.
    fn sqrt(self, a: Self::F) -> Self::F;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `a > b ? a : b`; so `b` when either is a NaN, and when they are zeros.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a < b ? a : b`; so `b` when either is a NaN, and when they are zeros.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// The nearest integer, ties to even.
    fn round(self, a: Self::F) -> Self::F;
    /// `a * 2^n`, rounded once, for `a` in `[0.5, 2)` or a NaN and an integer `n` in `-252..=252`.
    fn ldexp(self, a: Self::F, n: Self::F) -> Self::F;
    /// For a positive normal `a`, the integer `e` with `a * 2^-e` in `[0.75, 1.5)`.
    fn exponent(self, a: Self::F) -> Self::F;
    /// `a` without its sign.
    fn abs(self, a: Self::F) -> Self::F;
    /// `-a`: the other sign bit.
    fn neg(self, a: Self::F) -> Self::F;
    /// `a` with the sign of `sign`; `a` has none of its own.
    fn copysign(self, a: Self::F, sign: Self::F) -> Self::F;
    /// `a` rounded to bf16 as in [`Simd::store_bf16_at`], as an f32.
    fn round_bf16(self, a: Self::F) -> Self::F;
    /// `a < b`; false with a NaN.
    fn less(self, a: Self::F, b: Self::F) -> Self::M;
    /// `mask ? a : b`.
    fn select(self, mask: Self::M, a: Self::F, b: Self::F) -> Self::F;

    /// The first `LANES` numbers of `x`; panics when there are fewer.
    #[inline(always)]
    fn load(self, x: &[f32]) -> Self::F {
        let x = &x[..Self::LANES];
        // SAFETY: the slice has LANES elements.
        #[allow(unsafe_code)]
        unsafe {
            self.load_at(x.as_ptr())
        }
    }

    /// The first `LANES` numbers of `x`, widened; panics when there are fewer.
    #[inline(always)]
    fn load_bf16(self, x: &[bf16]) -> Self::F {
        let x = &x[..Self::LANES];
        // SAFETY: the slice has LANES elements.
        #[allow(unsafe_code)]
        unsafe {
            self.load_bf16_at(x.as_ptr())
        }
    }

    /// Writes to the first `LANES` numbers of `to`; panics when there are fewer.
    #[inline(always)]
    fn store(self, v: Self::F, to: &mut [f32]) {
        let to = &mut to[..Self::LANES];
        // SAFETY: the slice has LANES elements.
        #[allow(unsafe_code)]
        unsafe {
            self.store_at(v, to.as_mut_ptr());
        }
    }

    /// Writes, rounded, to the first `LANES` numbers of `to`; panics when there are fewer.
    #[inline(always)]
    fn store_bf16(self, v: Self::F, to: &mut [bf16]) {
        let to = &mut to[..Self::LANES];
        // SAFETY: the slice has LANES elements.
        #[allow(unsafe_code)]
        unsafe {
            self.store_bf16_at(v, to.as_mut_ptr());
        }
    }

    /// The numbers of `x`, at most `LANES`, then zeros.
    #[inline(always)]
    fn load_part(self, x: &[f32]) -> Self::F {
        let mut lanes = [0.0; MAX_LANES];
        lanes[..x.len()].copy_from_slice(x);
        self.load(&lanes)
    }

    /// The numbers of `x`, at most `LANES`, widened, then zeros.
    #[inline(always)]
    fn load_bf16_part(self, x: &[bf16]) -> Self::F {
        let mut lanes = [bf16::ZERO; MAX_LANES];
        lanes[..x.len()].copy_from_slice(x);
        self.load_bf16(&lanes)
    }

    /// Writes as many numbers as `to` has room for, at most `LANES`.
    #[inline(always)]
    fn store_part(self, v: Self::F, to: &mut [f32]) {
        let mut lanes = [0.0; MAX_LANES];
        self.store(v, &mut lanes);
        to.copy_from_slice(&lanes[..to.len()]);
    }

    /// Writes, rounded, as many numbers as `to` has room for, at most `LANES`.
    #[inline(always)]
    fn store_bf16_part(self, v: Self::F, to: &mut [bf16]) {
        let mut lanes = [bf16::ZERO; MAX_LANES];
        self.store_bf16(v, &mut lanes);
        to.copy_from_slice(&lanes[..to.len()]);
    }
}

/// The most lanes that any set has.
pub const MAX_LANES: usize = 16;

/// Which instructions the CPU backend uses.
#[derive(Clone, Copy, Debug)]
pub enum Isa {
    /// Plain Rust.
    Portable,
    /// 8 lanes, AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// 16 lanes, AVX-512F.
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    /// The same, and AVX-512 BF16 for products of bf16 numbers.
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16(Avx512, Bf16Dot),
}

impl Isa {
    /// Every instruction set that this CPU can run, the slowest first.
    pub fn available() -> Vec<Self> {
        #[allow(unused_mut)]
        let mut isas = vec![Isa::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            isas.extend(Avx2::new().map(Isa::Avx2));
            isas.extend(Avx512::new().map(Isa::Avx512));
            isas.extend(Avx512::new().zip(Bf16Dot::new()).map(|(simd, dot)| Isa::Avx512Bf16(simd, dot)));
        }
        isas
    }

    /// The fastest instruction set that this CPU can run.
    pub fn best() -> Self {
        Self::available().pop().unwrap_or(Isa::Portable)
    }

    /// Numbers in a vector.
    pub fn lanes(self) -> usize {
        match self {
            Isa::Portable => 8,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(_) => Avx2::LANES,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(_) | Isa::Avx512Bf16(..) => Avx512::LANES,
        }
    }

    /// The instruction for products of bf16 numbers, where the set has one.
    pub fn dot(self) -> Option<Bf16Dot> {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Bf16(_, dot) => Some(dot),
            _ => None,
        }
    }

    /// Name for people.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(_) => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(_) => "AVX-512",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Bf16(..) => "AVX-512 BF16",
        }
    }
}

/// `fn name<S>(s: S, args...) -> R { body }`, generic over [`Simd`], becomes `fn name(isa: Isa, args...) -> R`,
/// which runs the body compiled for that set. Whatever the body calls with `s` must be `#[inline(always)]`,
/// or it is compiled without its instructions.
macro_rules! simd_kernel {
    ($(#[$meta:meta])* $vis:vis fn $name:ident<$S:ident>($s:ident: $S2:ident $(, $arg:ident: $ty:ty)* $(,)?)
        $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        $vis fn $name(isa: $crate::simd::Isa $(, $arg: $ty)*) $(-> $ret)? {
            #[inline(always)]
            fn generic<$S: $crate::simd::Simd>($s: $S2 $(, $arg: $ty)*) $(-> $ret)? $body
            match isa {
                $crate::simd::Isa::Portable => {
                    generic($crate::simd::Portable::<8> $(, $arg)*)
                }
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Isa::Avx2(token) => {
                    #[target_feature(enable = "avx2,fma")]
                    fn avx2($s: $crate::simd::Avx2 $(, $arg: $ty)*) $(-> $ret)? {
                        generic($s $(, $arg)*)
                    }
                    // SAFETY: the token exists only where the CPU has AVX2 and FMA.
                    #[allow(unsafe_code)]
                    unsafe {
                        avx2(token $(, $arg)*)
                    }
                }
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Isa::Avx512(token) | $crate::simd::Isa::Avx512Bf16(token, _) => {
                    #[target_feature(enable = "avx512f,avx2,fma")]
                    fn avx512($s: $crate::simd::Avx512 $(, $arg: $ty)*) $(-> $ret)? {
                        generic($s $(, $arg)*)
                    }
                    // SAFETY: the token exists only where the CPU has AVX-512F, AVX2 and FMA.
                    #[allow(unsafe_code)]
                    unsafe {
                        avx512(token $(, $arg)*)
                    }
                }
            }
        }
    };
}
pub(crate) use simd_kernel;

#[cfg(test)]
mod tests;
