//! Values with a bound on their error: how the battery derives its budgets.
//!
//! A [`Bounded`] is a quantity computed in f64, and how far from it an f32 computation of the same formula can
//! be: each operation carries its operands' errors on and adds the half ulp of its own f32 rounding; sums take
//! the bound that holds for every order, `n` roundings of the sum of magnitudes. Nothing is ever measured. The
//! f64 arithmetic's own error is 2^-29 of an f32 rounding and is covered by the second-order terms kept here.

use std::ops::{Add, Div, Mul, Neg, Sub};

use crate::compare::{BF16_ROUNDOFF, F32_ROUNDOFF};

/// Half the smallest f32: the error of a rounding among the subnormals.
const F32_TINY: f64 = 7.006_492_321_624_085e-46;

/// Half the smallest bf16.
const BF16_TINY: f64 = 4.591_774_807_899_561e-41;

/// The functions of `moss_reference::simd::math` err by up to this many ulps, as their own tests prove.
const FUNCTION_ULPS: f64 = 2.0;

/// A value and a bound on the error of computing it in f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounded {
    /// The value in f64.
    pub value: f64,
    /// Largest distance of an f32 computation from it.
    pub error: f64,
}

impl From<f32> for Bounded {
    /// An exact value.
    fn from(x: f32) -> Self {
        Self { value: f64::from(x), error: 0.0 }
    }
}

impl Bounded {
    /// A value with an error of its own.
    pub fn new(value: f64, error: f64) -> Self {
        Self { value, error }
    }

    /// Largest magnitude that the computed value may have.
    pub fn magnitude(self) -> f64 {
        self.value.abs() + self.error
    }

    /// One rounding to bf16.
    pub fn bf16(self) -> Self {
        Self { error: self.error + BF16_ROUNDOFF * self.magnitude() + BF16_TINY, ..self }
    }

    /// One rounding to f32.
    fn f32(self) -> Self {
        Self { error: self.error + F32_ROUNDOFF * self.magnitude() + F32_TINY, ..self }
    }

    /// The square root of something not negative.
    pub fn sqrt(self) -> Self {
        let value = self.value.sqrt();
        // |sqrt(b) - sqrt(a)| = |b - a| / (sqrt(a) + sqrt(b)), and never above sqrt(|b - a|).
        let error = (self.error / value).min(self.error.sqrt());
        Self { value, error: if self.error == 0.0 { 0.0 } else { error } }.f32()
    }

    /// A monotone function of `moss_reference::simd::math`.
    pub fn monotone(self, f: impl Fn(f64) -> f64) -> Self {
        let value = f(self.value);
        let spread = |x: f64| (f(x) - value).abs();
        let carried = spread(self.value + self.error).max(spread(self.value - self.error));
        let own = FUNCTION_ULPS * 2.0 * F32_ROUNDOFF * (value.abs() + carried) + f64::from(f32::MIN_POSITIVE);
        Self { value, error: carried + own }
    }

    /// `exp`.
    pub fn exp(self) -> Self {
        self.monotone(f64::exp)
    }

    /// `tanh`.
    pub fn tanh(self) -> Self {
        self.monotone(f64::tanh)
    }

    /// `1 / (1 + exp(-x))`.
    pub fn sigmoid(self) -> Self {
        self.monotone(|x| 1.0 / (1.0 + (-x).exp()))
    }

    /// `x * sigmoid(x)`: it has its own function error beside the product's.
    pub fn silu(self) -> Self {
        self * self.sigmoid()
    }

    /// `log(1 + exp(x))`.
    pub fn softplus(self) -> Self {
        self.monotone(|x| if x > 40.0 { x } else { x.exp().ln_1p() })
    }

    /// A sum of products in any order, every step rounded (or fused).
    pub fn dot(terms: impl IntoIterator<Item = (Self, Self)>) -> Self {
        let (mut n, mut value, mut carried, mut magnitude) = (0f64, 0f64, 0f64, 0f64);
        for (a, b) in terms {
            n += 1.0;
            value += a.value * b.value;
            carried += product_error(a, b);
            magnitude += a.magnitude() * b.magnitude();
        }
        // n products and n additions at most, each one rounding of at most the sum of magnitudes.
        let roundings = 2.0 * n * F32_ROUNDOFF;
        let own = roundings / (1.0 - roundings) * magnitude + 2.0 * n * F32_TINY;
        Self { value, error: carried + own }
    }

    /// A sum of plain terms in any order.
    pub fn sum(terms: impl IntoIterator<Item = Self>) -> Self {
        Self::dot(terms.into_iter().map(|x| (x, 1f32.into())))
    }

    /// `a * b + c` in one rounding.
    pub fn fma(a: Self, b: Self, c: Self) -> Self {
        let error = product_error(a, b) + c.error;
        Self { value: a.value * b.value + c.value, error }.f32()
    }
}

fn product_error(a: Bounded, b: Bounded) -> f64 {
    a.value.abs() * b.error + b.value.abs() * a.error + a.error * b.error
}

impl Add for Bounded {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { value: self.value + other.value, error: self.error + other.error }.f32()
    }
}

impl Sub for Bounded {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self + -other
    }
}

impl Neg for Bounded {
    type Output = Self;

    fn neg(self) -> Self {
        Self { value: -self.value, ..self }
    }
}

impl Mul for Bounded {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        Self { value: self.value * other.value, error: product_error(self, other) }.f32()
    }
}

impl Div for Bounded {
    type Output = Self;

    /// The divisor's interval must not hold zero; else the bound is infinite.
    fn div(self, other: Self) -> Self {
        let value = self.value / other.value;
        let nearest = other.value.abs() - other.error;
        let error = (self.error + value.abs() * other.error) / nearest;
        Self { value, error: if nearest > 0.0 { error } else { f64::INFINITY } }.f32()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;
    use proptest::prelude::*;

    fn holds(bounded: Bounded, computed: f32) -> bool {
        (f64::from(computed) - bounded.value).abs() <= bounded.error
    }

    proptest! {
        #[test]
        fn bounds_hold_for_f32_arithmetic(a in -1e3f32..1e3, b in -1e3f32..1e3, c in 1e-3f32..1e3) {
            let (x, y, z) = (Bounded::from(a), Bounded::from(b), Bounded::from(c));
            prop_assert!(holds((x + y) * z - x / z, (a + b) * c - a / c));
            prop_assert!(holds((z * z + z).sqrt(), (c * c + c).sqrt()));
            prop_assert!(holds(Bounded::fma(x, y, -z), a.mul_add(b, -c)));
            prop_assert!(holds((x * y).bf16(), bf16::from_f32(a * b).to_f32()));
        }

        #[test]
        fn bounds_hold_for_any_order(x in prop::collection::vec(-1e3f32..1e3, 1..200)) {
            let bounded = Bounded::sum(x.iter().map(|&x| x.into()));
            prop_assert!(holds(bounded, x.iter().sum()));
            prop_assert!(holds(bounded, x.iter().rev().sum()));
        }
    }

    #[test]
    fn bounds_are_not_loose() {
        // The worst value of all, halfway between 1 and the next bf16, needs all but a 256th of its bound.
        let tie = Bounded::from(1.0 + 1.0 / 256.0).bf16();
        let used = 1.0 / 256.0 / tie.error;
        assert!((0.99..=1.0).contains(&used), "{used}");
        let tie = Bounded::new(1.0 + 0.5f64.powi(24), 0.0).f32();
        let used = 0.5f64.powi(24) / tie.error;
        assert!((0.99..=1.0).contains(&used), "{used}");
        assert_eq!((F32_TINY, BF16_TINY), (0.5f64.powi(150), 0.5f64.powi(134)));
        let dot = Bounded::dot((0..100).map(|_| (1f32.into(), 1f32.into())));
        assert!(dot.error < 100.0 * 201.0 * F32_ROUNDOFF);
        assert!((Bounded::from(1.0) / Bounded::new(0.1, 0.2)).error.is_infinite());
        assert_eq!(Bounded::from(0.0).sqrt().value, 0.0);
        assert!(Bounded::from(0.0).sqrt().error < 1e-40);
    }
}
