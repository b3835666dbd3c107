//! Elementary functions as short polynomials of fused multiply-adds, the same on every backend.
//!
//! Each function is written once over [`Simd`], so scalar code and every vector width give the same bits, and
//! is spelled out line by line so that a GPU kernel can repeat it: `fma` rounds once, `rint` rounds to the
//! nearest integer (ties to even), `ldexp` rounds once (into subnormal numbers too), division is IEEE, and
//! `max(a, b)` is `a > b ? a : b`, `min(a, b)` is `a < b ? a : b`, which keep a NaN that stands second.
//! No step may be contracted or reassociated beyond what is written; subnormal numbers are kept.
//!
//! Polynomials are evaluated by Horner's rule, the highest coefficient first. They are minimax fits of the
//! relative error, rounded to f32 coefficient by coefficient from the lowest power up and fitted again after
//! each. Errors are stated in ulp of the f32 nearest to the true value; NaN gives NaN.

use crate::simd::{Portable, Scalar, Simd};

/// The constants, bit for bit.
pub mod constants {
    /// `2^f` for `|f| <= 1/2`, powers 6 to 0; relative error 7.8e-9.
    pub const EXP2: [f32; 7] = from_bits([
        0x391e_9fb1,
        0x3aaf_2981,
        0x3c1d_9955,
        0x3d63_58ab,
        0x3e75_fdec,
        0x3f31_7217,
        0x3f80_0000,
    ]);
    /// `(e^f - 1 - f) / f^2` for `|f| <= ln(2)/2`, powers 4 to 0; error of `e^f` 4.4e-9, relative.
    pub const EXP: [f32; 5] = from_bits([0x3ab7_f5f2, 0x3c09_2be7, 0x3d2a_a980, 0x3e2a_aa33, 0x3f00_0000]);
    /// `(log(1 + f) - f) / f^2` for `-1/4 <= f <= 1/2`, powers 8 to 0; error of `log(1 + f)` 5.4e-9, relative.
    pub const LOG1P: [f32; 9] = from_bits([
        0xbd3b_fd3d,
        0x3dd8_ba48,
        0xbe07_4a24,
        0x3e14_3f83,
        0xbe2a_6afd,
        0x3e4c_b331,
        0xbe80_0042,
        0x3eaa_aad7,
        0xbf00_0000,
    ]);
    /// `(tanh(y) / y - 1) / z` with `z = y^2`, for `|y| <= 0.55`, powers 4 to 0 of `z`; error of `tanh(y)` 1.2e-9, relative.
    pub const TANH: [f32; 5] = from_bits([0xbbcc_90d1, 0x3cac_728c, 0xbd5c_8f3f, 0x3e08_8677, 0xbeaa_aaa5]);
    /// log2(e).
    pub const LOG2_E: f32 = f32::from_bits(0x3fb8_aa3b);
    /// The upper 16 significant bits of ln(2): its product with an integer below 256 is exact.
    pub const LN2_HI: f32 = f32::from_bits(0x3f31_7200);
    /// ln(2) - [`LN2_HI`].
    pub const LN2_LO: f32 = f32::from_bits(0x35bf_be8e);

    const fn from_bits<const N: usize>(bits: [u32; N]) -> [f32; N] {
        let mut values = [0.0; N];
        let mut i = 0;
        while i < N {
            values[i] = f32::from_bits(bits[i]);
            i += 1;
        }
        values
    }
}
use constants::{EXP, EXP2, LN2_HI, LN2_LO, LOG1P, LOG2_E, TANH};

/// `((c[0] x + c[1]) x + c[2]) ...`, each step one fma.
#[inline(always)]
fn horner<S: Simd>(s: S, x: S::F, coefficients: &[f32]) -> S::F {
    let mut p = s.splat(coefficients[0]);
    for &c in &coefficients[1..] {
        p = s.fma(p, x, s.splat(c));
    }
    p
}

/// `2^x`. `x <= -150` gives 0, `x >= 128` infinity; integers are exact.
///
/// `x = max(-150, x)`, `x = min(128, x)`; `n = rint(x)`; `f = x - n` (exact); `p = horner(EXP2, f)`; `ldexp(p, n)`.
#[inline(always)]
pub fn exp2<S: Simd>(s: S, x: S::F) -> S::F {
    let x = s.min(s.splat(128.0), s.max(s.splat(-150.0), x));
    let n = s.round(x);
    let f = s.sub(x, n);
    s.ldexp(horner(s, f, &EXP2), n)
}

/// `e^x`. `x <= -104` gives 0, `x >= 89` infinity.
///
/// `x = max(-104, x)`, `x = min(89, x)`; `n = rint(x * LOG2_E)`; `f = fma(n, -LN2_HI, x)` (exact);
/// `f = fma(n, -LN2_LO, f)`; `p = horner(EXP, f)`; `p = fma(p, f, 1)`; `p = fma(p, f, 1)`; `ldexp(p, n)`.
#[inline(always)]
pub fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    let x = s.min(s.splat(89.0), s.max(s.splat(-104.0), x));
    let n = s.round(s.mul(x, s.splat(LOG2_E)));
    let f = s.fma(n, s.splat(-LN2_HI), x);
    let f = s.fma(n, s.splat(-LN2_LO), f);
    let one = s.splat(1.0);
    let p = horner(s, f, &EXP);
    let p = s.fma(p, f, one);
    let p = s.fma(p, f, one);
    s.ldexp(p, n)
}

/// Hyperbolic tangent; odd, `-0` gives `-0`, `|x| >= 10` gives 1.
///
/// `y = |x|`; `y = min(10, y)`; below 0.55: `z = y * y`, `r = fma(y, z * horner(TANH, z), y)`, else
/// `r = 1 - 2 / (exp(y + y) + 1)`; `r` with the sign of `x`.
#[inline(always)]
pub fn tanh<S: Simd>(s: S, x: S::F) -> S::F {
    let (one, two) = (s.splat(1.0), s.splat(2.0));
    let y = s.min(s.splat(10.0), s.abs(x));
    let z = s.mul(y, y);
    let small = s.fma(y, s.mul(z, horner(s, z, &TANH)), y);
    let large = s.sub(one, s.div(two, s.add(exp(s, s.add(y, y)), one)));
    s.copysign(s.select(s.less(y, s.splat(0.55)), small, large), x)
}

/// `1 + e^-x`, rounded about once; infinity from `x < -88` down.
///
/// `y = -x`; `c = max(-30, y)`, `c = min(88, c)`; `n = rint(c * LOG2_E)`; `f = fma(n, -LN2_HI, c)` (exact);
/// `f = fma(n, -LN2_LO, f)`; `p = horner(EXP, f)`; `p = fma(p, f, 1)`; `t = ldexp(1, n)`;
/// `d = fma(t * f, p, min(t, 1)) + max(t, 1)` (the smaller term first, so that it is not lost); result `88 < y ? infinity : d`.
#[inline(always)]
fn one_plus_exp_neg<S: Simd>(s: S, x: S::F) -> S::F {
    let (one, high) = (s.splat(1.0), s.splat(88.0));
    let y = s.neg(x);
    let c = s.min(high, s.max(s.splat(-30.0), y));
    let n = s.round(s.mul(c, s.splat(LOG2_E)));
    let f = s.fma(n, s.splat(-LN2_HI), c);
    let f = s.fma(n, s.splat(-LN2_LO), f);
    let p = s.fma(horner(s, f, &EXP), f, one);
    let t = s.ldexp(one, n);
    let d = s.add(s.fma(s.mul(t, f), p, s.min(t, one)), s.max(t, one));
    s.select(s.less(high, y), s.splat(f32::INFINITY), d)
}

/// Logistic function `1 / (1 + e^-x)`: 1 divided by `one_plus_exp_neg(x)`; 0 from `x < -88` down, where the true
/// value is below 6.1e-39.
#[inline(always)]
pub fn sigmoid<S: Simd>(s: S, x: S::F) -> S::F {
    s.div(s.splat(1.0), one_plus_exp_neg(s, x))
}

/// `x / (1 + e^-x)`: `x` divided by `one_plus_exp_neg(x)`; `-0` from `x < -88` down, where the true value is above
/// -5.4e-37, and NaN at minus infinity.
#[inline(always)]
pub fn silu<S: Simd>(s: S, x: S::F) -> S::F {
    s.div(x, one_plus_exp_neg(s, x))
}

/// `log(1 + x)` for `x > -1`; what lies outside gives nothing useful.
///
/// `u = 1 + x`; `e = (bits(u) - 0x3f400000) >> 23` (arithmetic shift), so `u 2^-e` is in `[0.75, 1.5)`;
/// `t = ldexp(1, -e)`; `f = fma(x, t, t - 1)`; `p = horner(LOG1P, f)`; `r = fma(f * f, p, f)`;
/// `r = fma(e, LN2_LO, r)`; `r = fma(e, LN2_HI, r)`; result `x < infinity ? r : x`.
#[inline(always)]
pub fn log1p<S: Simd>(s: S, x: S::F) -> S::F {
    let one = s.splat(1.0);
    let e = s.exponent(s.add(one, x));
    let t = s.ldexp(one, s.neg(e));
    let f = s.fma(x, t, s.sub(t, one));
    let r = s.fma(s.mul(f, f), horner(s, f, &LOG1P), f);
    let r = s.fma(e, s.splat(LN2_LO), r);
    let r = s.fma(e, s.splat(LN2_HI), r);
    s.select(s.less(x, s.splat(f32::INFINITY)), r, x)
}

/// `log(1 + e^x)`: `20 < x ? x : log1p(exp(x))`.
#[inline(always)]
pub fn softplus<S: Simd>(s: S, x: S::F) -> S::F {
    s.select(s.less(s.splat(20.0), x), x, log1p(s, exp(s, x)))
}

/// The same functions of single numbers.
pub mod scalar {
    use super::{Portable, Scalar};

    macro_rules! scalar {
        ($($name:ident)*) => {$(
            #[doc = concat!("[`super::", stringify!($name), "`] of one number.")]
            pub fn $name(x: f32) -> f32 {
                let one_lane: Scalar = Portable;
                super::$name(one_lane, [x])[0]
            }
        )*};
    }
    scalar!(exp2 exp tanh sigmoid silu log1p softplus);
}

#[cfg(test)]
mod tests;
