//! f32 arithmetic, conversions and estimates.

use super::{
    operand::T,
    trial::{Form, X, check, f32_bits},
};
use crate::inst::mods::sel;

use T::{F16, F32, Mask, U32};

fn f1(name: &str, f: fn(f32) -> f32) -> Form {
    Form::new(name, &[F32], F32, move |x| f32_bits(f(x.f()[0])))
}

fn f2(name: &str, f: fn(f32, f32) -> f32) -> Form {
    Form::new(name, &[F32, F32], F32, move |x| f32_bits(f(x.f()[0], x.f()[1])))
}

fn f3(name: &str, f: fn(f32, f32, f32) -> f32) -> Form {
    Form::new(name, &[F32, F32, F32], F32, move |x| {
        let [a, b, c] = x.f();
        f32_bits(f(a, b, c))
    })
}

fn to_u(name: &str, f: fn(f32) -> u32) -> Form {
    Form::new(name, &[F32], U32, move |x| f(x.f()[0]).into())
}

fn to_u2(name: &str, f: fn(f32, f32) -> u32) -> Form {
    Form::new(name, &[F32, F32], U32, move |x| f(x.f()[0], x.f()[1]).into())
}

fn from_u(name: &str, f: fn(u32) -> f32) -> Form {
    Form::new(name, &[U32], F32, move |x| f32_bits(f(x.u()[0])))
}

/// Estimates see and give no subnormals in any mode; here they are correctly rounded.
fn estimate(name: &str, f: fn(f64) -> f64) -> Form {
    fn tiny(x: f32) -> f32 {
        if x.is_subnormal() { 0.0f32.copysign(x) } else { x }
    }
    Form::new(name, &[F32], F32, move |x| f32_bits(tiny(f(tiny(x.f()[0]).into()) as f32)))
}

pub(super) fn signalling(x: f32) -> bool {
    x.is_nan() && x.to_bits() & 0x40_0000 == 0
}

/// V_MIN (`sign` 1) and V_MAX (-1) by the documents' text.
pub(super) fn least(x: &X, sign: f64, a: f32, b: f32) -> f32 {
    if x.gfx11 && x.ieee && (signalling(a) || signalling(b)) {
        return f32::NAN;
    }
    if a.is_nan() {
        return b;
    }
    if b.is_nan() {
        return a;
    }
    let (x, y) = (f64::from(a) * sign, f64::from(b) * sign);
    if x < y || x == y && x == 0.0 && x.is_sign_negative() { a } else { b }
}

/// A NaN wins.
pub(super) fn strict(sign: f64, a: f32, b: f32) -> f32 {
    if a.is_nan() || b.is_nan() {
        return f32::NAN;
    }
    let (x, y) = (f64::from(a) * sign, f64::from(b) * sign);
    if x < y || x == y && x == 0.0 && x.is_sign_negative() { a } else { b }
}

/// The largest is taken out, by the documents' text: which zero stays follows from it.
fn middle(x: &X, [a, b, c]: [f32; 3]) -> f32 {
    if a.is_nan() || b.is_nan() || c.is_nan() {
        return least(x, 1.0, least(x, 1.0, a, b), c);
    }
    let max = |a, b| least(x, -1.0, a, b);
    let top = max(max(a, b), c);
    match () {
        () if top == a => max(b, c),
        () if top == b => max(a, c),
        () => max(a, b),
    }
}

fn extremes() -> Vec<Form> {
    let mut out = Vec::new();
    let mut add = |name: &str, n: usize, f: fn(&X, [f32; 3]) -> f32| {
        out.push(Form::new(name, &[F32; 3][..n], F32, move |x| f32_bits(f(x, x.f()))));
    };
    for s in ["", "_num"] {
        add(&format!("v_min{s}_f32"), 2, |x, [a, b, _]| least(x, 1.0, a, b));
        add(&format!("v_max{s}_f32"), 2, |x, [a, b, _]| least(x, -1.0, a, b));
        add(&format!("v_min3{s}_f32"), 3, |x, [a, b, c]| least(x, 1.0, least(x, 1.0, a, b), c));
        add(&format!("v_max3{s}_f32"), 3, |x, [a, b, c]| least(x, -1.0, least(x, -1.0, a, b), c));
        add(&format!("v_maxmin{s}_f32"), 3, |x, [a, b, c]| least(x, 1.0, least(x, -1.0, a, b), c));
        add(&format!("v_minmax{s}_f32"), 3, |x, [a, b, c]| least(x, -1.0, least(x, 1.0, a, b), c));
        add(&format!("v_med3{s}_f32"), 3, middle);
    }
    add("v_minimum_f32", 2, |_, [a, b, _]| strict(1.0, a, b));
    add("v_maximum_f32", 2, |_, [a, b, _]| strict(-1.0, a, b));
    add("v_minimum3_f32", 3, |_, [a, b, c]| strict(1.0, strict(1.0, a, b), c));
    add("v_maximum3_f32", 3, |_, [a, b, c]| strict(-1.0, strict(-1.0, a, b), c));
    add("v_minimummaximum_f32", 3, |_, [a, b, c]| strict(-1.0, strict(1.0, a, b), c));
    add("v_maximumminimum_f32", 3, |_, [a, b, c]| strict(1.0, strict(-1.0, a, b), c));
    out
}

/// Truncated and held within bounds; a NaN gives 0.
pub(super) fn integer(x: f64, low: f64, high: f64) -> u32 {
    if x.is_nan() { 0 } else { x.trunc().clamp(low, high) as i64 as u32 }
}

pub(super) const I32: [f64; 2] = [-2147483648.0, 2147483647.0];
pub(super) const U32_MAX: f64 = 4294967295.0;

fn i32_of(x: f32) -> u32 {
    integer(x.into(), I32[0], I32[1])
}

/// The nearest half's bits below x in magnitude.
pub(super) fn toward_zero(x: f32) -> u32 {
    let sign = u32::from(x.is_sign_negative()) << 15;
    if x.is_nan() {
        // Quiet, with the payload's upper bits.
        return sign | 0x7e00 | x.to_bits() >> 13 & 0x1ff;
    }
    if x.is_infinite() {
        return sign | 0x7c00;
    }
    let number = |b: u32| half::f16::from_bits(b as u16).to_f64();
    let (mut low, mut high) = (0, 0x7c00);
    while high - low > 1 {
        let m = (low + high) / 2;
        if number(m) <= f64::from(x.abs()) { low = m } else { high = m }
    }
    sign | low
}

/// Scaled, rounded to even: a normalised integer of 16 bits.
pub(super) fn norm(x: f64, low: f64, scale: f64) -> u32 {
    if x.is_nan() { 0 } else { ((x.clamp(low, 1.0) * scale).round_ties_even() as i32) as u32 & 0xffff }
}

fn ordinary() -> Vec<Form> {
    vec![
        f2("v_add_f32", |a, b| a + b),
        f2("v_sub_f32", |a, b| a - b),
        f2("v_subrev_f32", |a, b| b - a),
        f2("v_mul_f32", |a, b| a * b),
        f2("v_mul_dx9_zero_f32", |a, b| if a == 0.0 || b == 0.0 { 0.0 } else { a * b }),
        f3("v_fma_f32", f32::mul_add),
        f3("v_fma_dx9_zero_f32", |a, b, c| if a == 0.0 || b == 0.0 { c } else { a.mul_add(b, c) }),
        Form::new("v_fmac_f32", &[F32, F32], F32, |x| {
            f32_bits(x.f()[0].mul_add(x.f()[1], f32::from_bits(x.d as u32)))
        }),
        f1("v_fract_f32", |x| {
            let below = f32::from_bits(0x3f7f_ffff);
            if x - x.floor() > below { below } else { x - x.floor() }
        }),
        f1("v_trunc_f32", f32::trunc),
        f1("v_ceil_f32", f32::ceil),
        f1("v_floor_f32", f32::floor),
        f1("v_rndne_f32", f32::round_ties_even),
        estimate("v_exp_f32", f64::exp2),
        estimate("v_log_f32", f64::log2),
        estimate("v_rcp_f32", |x| 1.0 / x),
        estimate("v_rcp_iflag_f32", |x| 1.0 / x),
        estimate("v_rsq_f32", |x| 1.0 / x.sqrt()),
        estimate("v_sqrt_f32", f64::sqrt),
        estimate("v_sin_f32", |x| turn(x).sin()),
        estimate("v_cos_f32", |x| turn(x).cos()),
        f1("v_frexp_mant_f32", |x| {
            if x == 0.0 || !x.is_finite() { x } else { (f64::from(x) / 2f64.powi(exponent(x))) as f32 }
        }),
        to_u("v_frexp_exp_i32_f32", |x| if x == 0.0 || !x.is_finite() { 0 } else { exponent(x) as u32 }),
        Form::new("v_ldexp_f32", &[F32, U32], F32, |x| {
            f32_bits((f64::from(x.f()[0]) * 2f64.powi(x.i()[1].clamp(-500, 500))) as f32)
        }),
        Form::new("v_cndmask_b32", &[U32, U32, Mask], U32, |x| if x.bit(2) { x.s[1] } else { x.s[0] })
            .with(crate::inst::mods::signs(2)),
    ]
}

/// The fraction of a turn as an angle; infinity is none.
pub(super) fn turn(x: f64) -> f64 {
    if x.is_finite() { (x - x.floor()) * std::f64::consts::TAU } else { f64::NAN }
}

/// e with |x| / 2^e in [0.5, 1).
fn exponent(x: f32) -> i32 {
    (f64::from(x).to_bits() >> 52 & 0x7ff) as i32 - 1022
}

fn conversions() -> Vec<Form> {
    let byte = |n: u32| move |x: &X| f32_bits((x.u()[0] >> (8 * n) & 255) as f32);
    let pair = |low: u32, high: u32| low & 0xffff | high << 16;
    let mut out = vec![
        from_u("v_cvt_f32_i32", |x| x as i32 as f32),
        from_u("v_cvt_f32_u32", |x| x as f32),
        from_u("v_cvt_off_f32_i4", |x| {
            [0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1][(x & 15) as usize] as f32 / 16.0
        }),
        to_u("v_cvt_i32_f32", i32_of),
        to_u("v_cvt_u32_f32", |x| integer(x.into(), 0.0, U32_MAX)),
        to_u("v_cvt_nearest_i32_f32", |x| i32_of((x + 0.5).floor())),
        to_u("v_cvt_floor_i32_f32", |x| i32_of(x.floor())),
        to_u2("v_cvt_pk_rtz_f16_f32", |a, b| toward_zero(a) | toward_zero(b) << 16),
        Form::new("v_cvt_pk_i16_f32", &[F32, F32], U32, move |x| {
            let [a, b, _] = x.f().map(|v| integer(v.into(), -32768.0, 32767.0));
            pair(a, b).into()
        }),
        Form::new("v_cvt_pk_u16_f32", &[F32, F32], U32, move |x| {
            let [a, b, _] = x.f().map(|v| integer(v.into(), 0.0, 65535.0));
            pair(a, b).into()
        }),
        Form::new("v_cvt_pk_norm_i16_f32", &[F32, F32], U32, move |x| {
            let [a, b, _] = x.f().map(|v| norm(v.into(), -1.0, 32767.0));
            pair(a, b).into()
        }),
        Form::new("v_cvt_pk_norm_u16_f32", &[F32, F32], U32, move |x| {
            let [a, b, _] = x.f().map(|v| norm(v.into(), 0.0, 65535.0));
            pair(a, b).into()
        }),
        Form::new("v_cvt_pk_u8_f32", &[F32, U32, U32], U32, |x| {
            let v = f64::from(x.f()[0]).round_ties_even();
            let byte = if v.is_nan() { 0 } else { v.clamp(0.0, 255.0) as u64 };
            let shift = 8 * (x.s[1] & 3);
            x.s[2] & !(255 << shift) & 0xffff_ffff | byte << shift
        }),
        Form::new("v_cvt_f16_f32", &[F32], F16, |x| super::trial::f16_bits(x.f()[0].into())),
        Form::new("v_cvt_f32_f16", &[F16], F32, |x| f32_bits(x.h()[0] as f32)),
    ];
    for n in 0..4 {
        out.push(Form::new(&format!("v_cvt_f32_ubyte{n}"), &[U32], F32, byte(n)));
    }
    // OP_SEL's bits name a byte, in reverse.
    let select = |x: &X| x.u()[0] >> [0, 16, 8, 24][(x.sel & 3) as usize] & 255;
    for (name, f) in [("v_cvt_f32_fp8", e4m3 as fn(u32) -> f64), ("v_cvt_f32_bf8", e5m2)] {
        out.push(Form::new(name, &[U32], F32, move |x| f32_bits(f(select(x)) as f32)).with(sel(2)).vectors());
    }
    out
}

/// Four bits of exponent, three of mantissa, no infinity.
pub(super) fn e4m3(x: u32) -> f64 {
    let (e, m) = ((x >> 3 & 15) as i32, f64::from(x & 7));
    let v = if e == 15 && x & 7 == 7 {
        f64::NAN
    } else if e == 0 {
        m * 2f64.powi(-9)
    } else {
        (8.0 + m) * 2f64.powi(e - 10)
    };
    if x & 128 != 0 { -v } else { v }
}

/// Five bits of exponent, two of mantissa: the upper byte of a half.
pub(super) fn e5m2(x: u32) -> f64 {
    half::f16::from_bits((x << 8) as u16).to_f64()
}

/// IEEE division's steps, by the documents' text where that gives a division, and where their constants do
/// not by what makes the steps one.
fn division() -> Vec<Form> {
    vec![Form::new("v_div_fixup_f32", &[F32, F32, F32], F32, |x| {
        let [q, b, a] = x.f();
        let sign = b.is_sign_negative() != a.is_sign_negative();
        let with = |v: f32| f32_bits(if sign { -v } else { v });
        let e = |v: f32| (v.to_bits() >> 23 & 255) as i32;
        if a.is_nan() || b.is_nan() || a == 0.0 && b == 0.0 || a.is_infinite() && b.is_infinite() {
            f32_bits(f32::NAN)
        } else if b == 0.0 || a.is_infinite() || e(a) - e(b) > 128 {
            with(f32::INFINITY)
        } else if b.is_infinite() || a == 0.0 || e(a) - e(b) < -150 {
            with(0.0)
        } else {
            with(q.abs())
        }
    })]
}

pub(super) fn forms() -> Vec<Form> {
    [ordinary(), extremes(), conversions(), division()].into_iter().flatten().collect()
}

#[test]
fn f32_forms() {
    check(&forms());
}
