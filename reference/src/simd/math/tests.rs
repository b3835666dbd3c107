//! Every function against f64 over all exponents and all bf16 numbers, and every isa against scalar code.

use super::*;
use crate::simd::{Isa, simd_kernel};

macro_rules! map_kernel {
    ($($name:ident)*) => {
        mod map {
            use super::*;
            $(simd_kernel! {
                pub(super) fn $name<S>(s: S, x: &[f32], to: &mut [f32]) {
                    for (x, to) in x.chunks_exact(S::LANES).zip(to.chunks_exact_mut(S::LANES)) {
                        s.store(crate::simd::math::$name(s, s.load(x)), to);
                    }
                }
            })*
        }
    };
}
map_kernel!(exp2 exp tanh sigmoid silu log1p softplus);

struct Function {
    name: &'static str,
    map: fn(Isa, &[f32], &mut [f32]),
    scalar: fn(f32) -> f32,
    exact: fn(f64) -> f64,
    /// Where it is defined at all.
    defined: fn(f32) -> bool,
    /// Where the bound of 2 ulp holds.
    domain: fn(f32) -> bool,
}

const FUNCTIONS: [Function; 7] = [
    Function {
        name: "exp2",
        map: map::exp2,
        scalar: scalar::exp2,
        exact: f64::exp2,
        defined: |_| true,
        domain: |_| true,
    },
    Function {
        name: "exp",
        map: map::exp,
        scalar: scalar::exp,
        exact: f64::exp,
        defined: |_| true,
        domain: |_| true,
    },
    Function {
        name: "tanh",
        map: map::tanh,
        scalar: scalar::tanh,
        exact: f64::tanh,
        defined: |_| true,
        domain: |_| true,
    },
    Function {
        name: "sigmoid",
        map: map::sigmoid,
        scalar: scalar::sigmoid,
        exact: |x| 1.0 / (1.0 + (-x).exp()),
        defined: |_| true,
        domain: |x| x >= -88.0,
    },
    Function {
        name: "silu",
        map: map::silu,
        scalar: scalar::silu,
        exact: |x| x / (1.0 + (-x).exp()),
        defined: |_| true,
        domain: |x| x >= -88.0,
    },
    Function {
        name: "log1p",
        map: map::log1p,
        scalar: scalar::log1p,
        exact: f64::ln_1p,
        defined: |x| x > -1.0 || x.is_nan(),
        domain: |x| x > -1.0,
    },
    Function {
        name: "softplus",
        map: map::softplus,
        scalar: scalar::softplus,
        exact: |x| if x > 40.0 { x } else { x.exp().ln_1p() },
        defined: |_| true,
        domain: |_| true,
    },
];

/// `|found - exact|` in units of the last place of an f32 near `exact`; infinity counts as 2^128.
fn ulps(found: f32, exact: f64) -> f64 {
    if found.is_nan() || exact.is_nan() {
        return if found.is_nan() && exact.is_nan() { 0.0 } else { f64::INFINITY };
    }
    let limit = 2f64.powi(128);
    let found = f64::from(found).clamp(-limit, limit);
    let exact = exact.clamp(-limit, limit);
    let exponent = ((exact.abs().to_bits() >> 52) as i32 - 1023).clamp(-126, 127);
    (found - exact).abs() / 2f64.powi(exponent - 23)
}

/// Bit patterns from 0 to 2^32 in steps of `step`, in chunks.
fn patterns(step: u64, mut f: impl FnMut(&[f32])) {
    let mut chunk = Vec::with_capacity(4096);
    let mut bits = 0;
    while bits < 1 << 32 {
        chunk.push(f32::from_bits(bits as u32));
        bits += step;
        if chunk.len() == 4096 || bits >= 1 << 32 {
            chunk.resize(4096, 1.0);
            f(&chunk);
            chunk.clear();
        }
    }
}

/// Exhaustive with `MOSS_MATH_STEP=1` (minutes in a release build); by default every exponent and sign
/// with 8,216 mantissas spread evenly.
fn step() -> u64 {
    std::env::var("MOSS_MATH_STEP").ok().and_then(|v| v.parse().ok()).unwrap_or(1021)
}

#[test]
fn errors_are_within_two_ulp() {
    for function in &FUNCTIONS {
        let mut worst = (0.0, 0.0f32);
        let mut found = [0.0; 4096];
        let mut check = |x: &[f32]| {
            (function.map)(Isa::best(), x, &mut found);
            for (&x, &y) in x.iter().zip(&found) {
                if (function.domain)(x) || x.is_nan() {
                    let error = ulps(y, (function.exact)(f64::from(x)));
                    if error > worst.0 {
                        worst = (error, x);
                    }
                }
            }
        };
        patterns(step(), &mut check);
        patterns(1 << 16, &mut check); // every bf16
        eprintln!("{:8} {:.3} ulp at {:e}", function.name, worst.0, worst.1);
        assert!(worst.0 <= 2.0, "{}: {} ulp at {:e}", function.name, worst.0, worst.1);
    }
}

#[test]
fn every_path_gives_the_scalar_bits() {
    for function in &FUNCTIONS {
        for isa in Isa::available() {
            let mut found = [0.0; 4096];
            let mut check = |x: &[f32]| {
                (function.map)(isa, x, &mut found);
                for (&x, &y) in x.iter().zip(&found).filter(|(x, _)| (function.defined)(**x)) {
                    let one = (function.scalar)(x);
                    assert!(
                        one.to_bits() == y.to_bits() || one.is_nan() && y.is_nan(),
                        "{} of {x:e}: {y:e} on {}, {one:e} alone",
                        function.name,
                        isa.name()
                    );
                }
            };
            patterns(16381, &mut check);
            patterns(1 << 16, &mut check);
        }
    }
}

#[test]
fn special_values() {
    use scalar::*;
    let inf = f32::INFINITY;
    assert_eq!([exp2(-inf), exp2(-150.0), exp2(-149.0), exp2(0.0)], [0.0, 0.0, f32::from_bits(1), 1.0]);
    assert_eq!([exp2(127.0), exp2(128.0), exp2(inf)], [2f32.powi(127), inf, inf]);
    for n in -149..128 {
        assert_eq!(exp2(n as f32), 2f64.powi(n) as f32);
    }
    assert_eq!(
        [exp(-inf), exp(-104.0), exp(0.0), exp(-0.0), exp(89.0), exp(inf)],
        [0.0, 0.0, 1.0, 1.0, inf, inf]
    );
    assert_eq!([tanh(-inf), tanh(inf), tanh(12.0)], [-1.0, 1.0, 1.0]);
    assert_eq!(tanh(-0.0).to_bits(), (-0.0f32).to_bits());
    assert_eq!(tanh(-1e-40), -1e-40);
    assert_eq!([sigmoid(-inf), sigmoid(-90.0), sigmoid(0.0), sigmoid(inf)], [0.0, 0.0, 0.5, 1.0]);
    assert_eq!([silu(0.0), silu(inf), silu(-90.0)], [0.0, inf, 0.0]);
    assert!(silu(-inf).is_nan());
    assert_eq!([log1p(0.0), log1p(inf), log1p(1e-40)], [0.0, inf, 1e-40]);
    assert_eq!([softplus(-inf), softplus(21.0), softplus(inf)], [0.0, 21.0, inf]);
    for f in [exp2, exp, tanh, sigmoid, silu, log1p, softplus] {
        assert!(f(f32::NAN).is_nan() && f(-f32::NAN).is_nan());
    }
}
