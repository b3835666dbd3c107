//! Number formats and the float operations whose edge cases the ISA documents define.

use half::f16;

/// f32 value of an IEEE half; a signalling NaN stays one.
pub(crate) fn h2f(h: u16) -> f32 {
    if h & 0x7fff > 0x7c00 {
        return f32::from_bits(u32::from(h & 0x8000) << 16 | 0x7f80_0000 | u32::from(h & 0x3ff) << 13);
    }
    f16::from_bits(h).to_f32()
}

/// f32 value of a bfloat16.
pub(crate) fn b2f(b: u16) -> f32 {
    f32::from_bits(u32::from(b) << 16)
}

/// bfloat16 nearest to an f32, ties to even; NaN stays a quiet NaN.
pub(crate) fn f2b(x: f32) -> u16 {
    let u = x.to_bits();
    if x.is_nan() {
        return (u >> 16) as u16 | 0x40;
    }
    ((u + 0x7fff + (u >> 16 & 1)) >> 16) as u16
}

/// Half nearest to an f32, ties to even.
pub(crate) fn f2h(x: f32) -> u16 {
    d2h(f64::from(x))
}

/// Half nearest to an f64, ties to even, in one rounding.
pub(crate) fn d2h(x: f64) -> u16 {
    round_half(x, true)
}

/// Half below an f32 in magnitude.
pub(crate) fn f2h_rtz(x: f32) -> u16 {
    round_half(f64::from(x), false)
}

/// One rounding from f64 to the half grid: nearest even, or toward zero.
fn round_half(x: f64, nearest: bool) -> u16 {
    let sign = ((x.to_bits() >> 48) & 0x8000) as u16;
    if x.is_nan() {
        // The quiet bit and the payload's top bits.
        return sign | 0x7e00 | ((x.to_bits() >> 42) & 0x1ff) as u16;
    }
    let a = x.abs();
    if a.is_infinite() {
        return sign | 0x7c00;
    }
    // Spacing of halves around a: 2^(e - 10), and 2^-24 among the subnormals.
    let e = (((a.to_bits() >> 52) as i32) - 1023).max(-14);
    let scaled = a * exp2i(10 - e);
    let units = if nearest { scaled.round_ties_even() } else { scaled.trunc() };
    let v = units * exp2i(e - 10);
    if v >= 65536.0 {
        return sign | if nearest { 0x7c00 } else { 0x7bff };
    }
    sign | f16::from_f32(v as f32).to_bits()
}

/// 2^e for -1022 <= e <= 1023.
pub(crate) fn exp2i(e: i32) -> f64 {
    f64::from_bits(((e + 1023) as u64) << 52)
}

/// x * 2^e, rounded once.
pub(crate) fn ldexp(x: f32, e: i32) -> f32 {
    // Beyond +-400 every finite f32 has overflowed or vanished, and f64 holds the product exactly.
    (f64::from(x) * exp2i(e.clamp(-400, 400))) as f32
}

/// x * 2^e in f64, rounded once.
pub(crate) fn ldexp64(x: f64, e: i32) -> f64 {
    let e = e.clamp(-2200, 2200);
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    // Scale in normal range first, so that only the last product rounds.
    let (m, k) = frexp64(x);
    let t = k + e;
    if t > 1024 {
        return f64::INFINITY.copysign(x);
    }
    if t >= -1021 {
        return m * 2.0 * exp2i(t - 1);
    }
    if t < -1100 {
        return 0.0f64.copysign(x);
    }
    m * exp2i(t + 200) * exp2i(-200)
}

/// Mantissa in [0.5, 1) and exponent of a finite nonzero f64.
pub(crate) fn frexp64(x: f64) -> (f64, i32) {
    let (y, bias) = if x.abs() < f64::MIN_POSITIVE { (x * exp2i(200), -200) } else { (x, 0) };
    let e = ((y.to_bits() >> 52 & 0x7ff) as i32) - 1022;
    (f64::from_bits(y.to_bits() & !(0x7ff << 52) | 1022 << 52), e + bias)
}

/// Less or greater: false with a NaN.
pub(crate) fn differ<T: PartialOrd>(a: T, b: T) -> bool {
    a.partial_cmp(&b).is_some_and(std::cmp::Ordering::is_ne)
}

/// Zero of x's sign in place of a subnormal.
pub(crate) fn flush(x: f32) -> f32 {
    if x.is_subnormal() { 0.0f32.copysign(x) } else { x }
}

/// Zero of x's sign in place of what is subnormal as a half.
pub(crate) fn flush16(x: f32) -> f32 {
    if x.abs() < 6.103_515_6e-5 { 0.0f32.copysign(x) } else { x }
}

/// [`flush`] of f64.
pub(crate) fn flush64(x: f64) -> f64 {
    if x.is_subnormal() { 0.0f64.copysign(x) } else { x }
}

/// A quiet NaN with x's payload.
pub(crate) fn quiet(x: f32) -> f32 {
    f32::from_bits(x.to_bits() | 0x40_0000)
}

/// x, or a quiet NaN in place of a signalling one: what conversions give.
pub(crate) fn quieted(x: f32) -> f32 {
    if x.is_nan() { quiet(x) } else { x }
}

fn signalling(x: f32) -> bool {
    x.is_nan() && x.to_bits() & 0x40_0000 == 0
}

fn signalling64(x: f64) -> bool {
    x.is_nan() && x.to_bits() >> 51 & 1 == 0
}

fn quiet64(x: f64) -> f64 {
    f64::from_bits(x.to_bits() | 1 << 51)
}

/// V_MIN of gfx11: in IEEE mode a signalling NaN becomes quiet and wins; any other NaN loses.
pub(crate) fn min_mode(ieee: bool) -> impl Fn(f32, f32) -> f32 {
    move |a, b| mode32(ieee, a, b).unwrap_or_else(|| min_num(a, b))
}

/// V_MAX of gfx11, as [`min_mode`].
pub(crate) fn max_mode(ieee: bool) -> impl Fn(f32, f32) -> f32 {
    move |a, b| mode32(ieee, a, b).unwrap_or_else(|| max_num(a, b))
}

fn mode32(ieee: bool, a: f32, b: f32) -> Option<f32> {
    match (ieee, signalling(a), signalling(b)) {
        (true, true, _) => Some(quiet(a)),
        (true, false, true) => Some(quiet(b)),
        _ if b.is_nan() => Some(a),
        _ => None,
    }
}

/// [`min_mode`] of f64.
pub(crate) fn min_mode64(ieee: bool) -> impl Fn(f64, f64) -> f64 {
    move |a, b| mode64(ieee, a, b).unwrap_or_else(|| min_num64(a, b))
}

/// [`max_mode`] of f64.
pub(crate) fn max_mode64(ieee: bool) -> impl Fn(f64, f64) -> f64 {
    move |a, b| mode64(ieee, a, b).unwrap_or_else(|| max_num64(a, b))
}

fn mode64(ieee: bool, a: f64, b: f64) -> Option<f64> {
    match (ieee, signalling64(a), signalling64(b)) {
        (true, true, _) => Some(quiet64(a)),
        (true, false, true) => Some(quiet64(b)),
        _ if b.is_nan() => Some(a),
        _ => None,
    }
}

/// The smaller number; a NaN loses, -0 < +0.
pub(crate) fn min_num(a: f32, b: f32) -> f32 {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => quiet(a),
        (true, false) => b,
        (false, true) => a,
        _ if a < b || (a == 0.0 && b == 0.0 && a.is_sign_negative()) => a,
        _ => b,
    }
}

/// The larger number; a NaN loses, +0 > -0.
pub(crate) fn max_num(a: f32, b: f32) -> f32 {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => quiet(a),
        (true, false) => b,
        (false, true) => a,
        _ if a > b || (a == 0.0 && b == 0.0 && a.is_sign_positive()) => a,
        _ => b,
    }
}

/// [`min_num`] of f64.
pub(crate) fn min_num64(a: f64, b: f64) -> f64 {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => quiet64(a),
        (true, false) => b,
        (false, true) => a,
        _ if a < b || (a == 0.0 && b == 0.0 && a.is_sign_negative()) => a,
        _ => b,
    }
}

/// [`max_num`] of f64.
pub(crate) fn max_num64(a: f64, b: f64) -> f64 {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => quiet64(a),
        (true, false) => b,
        (false, true) => a,
        _ if a > b || (a == 0.0 && b == 0.0 && a.is_sign_positive()) => a,
        _ => b,
    }
}

/// IEEE minimum: a NaN wins.
pub(crate) fn minimum(a: f32, b: f32) -> f32 {
    if a.is_nan() && !signalling(b) || signalling(a) {
        quiet(a)
    } else if b.is_nan() {
        quiet(b)
    } else {
        min_num(a, b)
    }
}

/// IEEE maximum: a NaN wins.
pub(crate) fn maximum(a: f32, b: f32) -> f32 {
    if a.is_nan() && !signalling(b) || signalling(a) {
        quiet(a)
    } else if b.is_nan() {
        quiet(b)
    } else {
        max_num(a, b)
    }
}

/// The middle of three; with a NaN among them, the smallest by `min`.
pub(crate) fn med3(min: impl Fn(f32, f32) -> f32, a: f32, b: f32, c: f32) -> f32 {
    if a.is_nan() || b.is_nan() || c.is_nan() {
        return min(min(a, b), c);
    }
    let top = max_num(max_num(a, b), c);
    if top == a {
        max_num(b, c)
    } else if top == b {
        max_num(a, c)
    } else {
        max_num(a, b)
    }
}

/// a + b rounded to odd, so that a later rounding to fewer bits rounds only once.
pub(crate) fn add_odd(a: f64, b: f64) -> f64 {
    let s = a + b;
    if !s.is_finite() || s == 0.0 {
        return s;
    }
    let bb = s - a;
    let err = (a - (s - bb)) + (b - bb);
    if err == 0.0 || s.to_bits() & 1 == 1 {
        return s;
    }
    // The exact sum lies between s and its neighbour in err's direction.
    let away = (err > 0.0) == (s > 0.0);
    f64::from_bits(if away { s.to_bits() + 1 } else { s.to_bits() - 1 })
}

/// Exponent field of an f32.
pub(crate) fn exponent(x: f32) -> i32 {
    (x.to_bits() >> 23 & 0xff) as i32
}

/// V_DIV_SCALE_F32: s0 scaled for the division s2 / s1, and whether V_DIV_FMAS must rescale.
///
/// Where both 1 / s1 and s2 / s1 are subnormal the documents scale the denominator up, which would overflow
/// it; down is what makes the sequence of instructions an IEEE division.
pub(crate) fn div_scale(s0: f32, s1: f32, s2: f32) -> (f32, bool) {
    let reciprocal_small = {
        let r = 1.0 / f64::from(s1);
        r != 0.0 && r.abs() < f64::from(f32::MIN_POSITIVE)
    };
    let quotient_small = (f64::from(s2) / f64::from(s1)).abs() < f64::from(f32::MIN_POSITIVE);
    let pick = |scale: bool, up: i32| if scale { ldexp(s0, up) } else { s0 };
    let same = |x: f32| s0.to_bits() == x.to_bits();
    if s2 == 0.0 || s1 == 0.0 {
        (f32::NAN, false)
    } else if exponent(s2) - exponent(s1) >= 96 {
        (pick(same(s1), 64), true)
    } else if s1.is_subnormal() {
        (ldexp(s0, 64), false)
    } else if reciprocal_small && quotient_small {
        (pick(same(s1), -64), true)
    } else if reciprocal_small {
        (ldexp(s0, -64), false)
    } else if quotient_small {
        (pick(same(s2), 64), true)
    } else if exponent(s2) <= 23 {
        (ldexp(s0, 64), false)
    } else {
        (s0, false)
    }
}

/// V_DIV_FIXUP_F32: the special cases of s2 / s1 around the quotient s0.
pub(crate) fn div_fixup(s0: f32, s1: f32, s2: f32) -> f32 {
    let sign = if s1.is_sign_negative() != s2.is_sign_negative() { -1.0f32 } else { 1.0 };
    if s2.is_nan() {
        quiet(s2)
    } else if s1.is_nan() {
        quiet(s1)
    } else if (s1 == 0.0 && s2 == 0.0) || (s1.is_infinite() && s2.is_infinite()) {
        f32::from_bits(0xffc0_0000)
    } else if s1 == 0.0 || s2.is_infinite() || exponent(s2) - exponent(s1) > 128 {
        // The last is a quotient of 2^128 and more, whose estimate overflowed on the way.
        f32::INFINITY.copysign(sign)
    } else if s1.is_infinite() || s2 == 0.0 || exponent(s2) - exponent(s1) < -150 {
        0.0f32.copysign(sign)
    } else {
        s0.abs().copysign(sign)
    }
}

/// Class bit of V_CMP_CLASS: 0 sNaN, 1 qNaN, 2 -inf, 3 -normal, 4 -subnormal, 5 -0, 6.. the positives.
pub(crate) fn class(x: f64, subnormal: bool, signalling: bool) -> u32 {
    let negative = x.is_sign_negative();
    let n = if x.is_nan() {
        return if signalling { 0 } else { 1 };
    } else if x.is_infinite() {
        2
    } else if x == 0.0 {
        5
    } else if subnormal {
        4
    } else {
        3
    };
    if negative { n } else { 11 - n }
}

/// sin(2 pi x) and cos(2 pi x), the range reduced exactly.
pub(crate) fn turn(x: f32) -> f64 {
    let x = f64::from(x);
    (x - x.floor()) * std::f64::consts::TAU
}

/// f32 value of an OCP fp8 (e4m3, no infinities).
pub(crate) fn fp8(b: u8) -> f32 {
    let (e, m) = (i32::from(b >> 3 & 15), f64::from(b & 7));
    let v = match (e, b & 7) {
        (15, 7) => f64::NAN,
        (0, _) => m * exp2i(-9),
        _ => (1.0 + m / 8.0) * exp2i(e - 7),
    };
    if b & 0x80 != 0 { -v as f32 } else { v as f32 }
}

/// f32 value of an OCP bf8 (e5m2).
pub(crate) fn bf8(b: u8) -> f32 {
    quieted(h2f(u16::from(b) << 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_round_trips_and_its_midpoints_go_to_even() {
        for h in 0..0x7c00u16 {
            let (x, next) = (f64::from(h2f(h)), f64::from(if h == 0x7bff { 65536.0 } else { h2f(h + 1) }));
            assert_eq!(d2h(x), h);
            let even = if h % 2 == 0 { h } else { h + 1 };
            assert_eq!(d2h((x + next) / 2.0), even, "{h:#x}");
            assert_eq!(f2h_rtz(((x + next) / 2.0) as f32), h);
            assert_eq!(d2h(-x), h | 0x8000);
        }
        assert_eq!(f2h_rtz(1e9), 0x7bff);
        assert_eq!(f2h(1e9), 0x7c00);
        assert!(h2f(f2h(f32::NAN)).is_nan());
    }

    #[test]
    fn bf16_rounds_to_even() {
        assert_eq!(f2b(f32::from_bits(0x3f80_8000)), 0x3f80);
        assert_eq!(f2b(f32::from_bits(0x3f81_8000)), 0x3f82);
        assert_eq!(f2b(f32::from_bits(0x3f80_8001)), 0x3f81);
        assert_eq!(f2b(f32::MAX), 0x7f80);
        assert!(b2f(f2b(f32::from_bits(0x7f80_0001))).is_nan());
    }

    #[test]
    fn sums_rounded_to_odd_round_once_later() {
        // 1 + 2^-11 is a midpoint of halves; a far smaller addend decides.
        let middle = 1.0 + 2f64.powi(-11);
        assert_eq!(d2h(middle), 0x3c00);
        assert_eq!(d2h(add_odd(middle, 2f64.powi(-80))), 0x3c01);
        assert_eq!(d2h(add_odd(middle, -2f64.powi(-80))), 0x3c00);
        assert_eq!(d2h(add_odd(-middle, -2f64.powi(-80))), 0xbc01);
    }

    #[test]
    fn ldexp_rounds_once_into_subnormals() {
        assert_eq!(ldexp(1.5, -149), 2f32.powi(-148));
        assert_eq!(ldexp(1.0, -150), 0.0);
        assert_eq!(ldexp(1.0, 300), f32::INFINITY);
        assert_eq!(ldexp64(3.0, -1074), f64::from_bits(3));
        assert_eq!(ldexp64(1.0, 1023), 2f64.powi(1023));
        assert_eq!(ldexp64(f64::from_bits(1), 1074), 1.0);
    }

    #[test]
    fn signed_zeros_and_nans_of_min_and_max() {
        assert!(min_num(0.0, -0.0).is_sign_negative() && max_num(-0.0, 0.0).is_sign_positive());
        assert_eq!(min_num(f32::NAN, 2.0), 2.0);
        assert!(minimum(f32::NAN, 2.0).is_nan() && maximum(2.0, f32::NAN).is_nan());
        assert_eq!(med3(min_num, 3.0, 1.0, 2.0), 2.0);
        assert_eq!(med3(min_num, f32::NAN, 5.0, 2.0), 2.0);
    }

    #[test]
    fn fp8_values() {
        assert_eq!([fp8(0x38), fp8(0x7e), fp8(0x01), fp8(0xb8)], [1.0, 448.0, 2f32.powi(-9), -1.0]);
        assert!(fp8(0x7f).is_nan());
        assert_eq!([bf8(0x3c), bf8(0x7b)], [1.0, 57344.0]);
    }
}
