//! 64-bit operands and results.

use super::{
    operand::T,
    trial::{Form, X, check, f32_bits},
};

use T::{F32, F64, I64, U32, U64};

fn d1(name: &str, f: fn(f64) -> f64) -> Form {
    Form::new(name, &[F64], F64, move |x| f(x.f64s()[0]).to_bits())
}

fn d2(name: &str, f: fn(f64, f64) -> f64) -> Form {
    Form::new(name, &[F64; 2], F64, move |x| f(x.f64s()[0], x.f64s()[1]).to_bits())
}

fn signalling(x: f64) -> bool {
    x.is_nan() && x.to_bits() >> 51 & 1 == 0
}

/// V_MIN (`sign` 1) and V_MAX (-1).
fn least(x: &X, sign: f64) -> f64 {
    let [a, b, _] = x.f64s();
    if x.gfx11 && x.ieee && (signalling(a) || signalling(b)) {
        return f64::NAN;
    }
    if a.is_nan() || b.is_nan() {
        return if a.is_nan() { b } else { a };
    }
    let (p, q) = (a * sign, b * sign);
    if p < q || p == q && p == 0.0 && p.is_sign_negative() { a } else { b }
}

/// e with |x| / 2^e in [0.5, 1), by counting from a normal number.
fn exponent(x: f64) -> i32 {
    let (y, by) = if x.is_subnormal() { (x * 2f64.powi(100), 100) } else { (x, 0) };
    (y.to_bits() >> 52 & 0x7ff) as i32 - 1022 - by
}

/// x 2^e: exact steps first, the one that may round last.
fn scaled(x: f64, e: i32) -> f64 {
    let e = e.clamp(-2200, 2200);
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    let shift = exponent(x);
    let m = if x.is_subnormal() {
        x * 2f64.powi(100) / 2f64.powi(shift + 100)
    } else {
        x / 2f64.powi(shift - 1) / 2.0
    };
    let to = shift + e;
    if to > 1100 {
        return f64::INFINITY.copysign(x);
    }
    if to < -1200 {
        return 0.0f64.copysign(x);
    }
    if to > 0 {
        m * 2f64.powi(to / 2) * 2f64.powi(to - to / 2)
    } else {
        m * 2f64.powi(to.max(-900)) * 2f64.powi(to - to.max(-900))
    }
}

fn floats() -> Vec<Form> {
    let mut out = vec![
        d1("v_trunc_f64", f64::trunc),
        d1("v_ceil_f64", f64::ceil),
        d1("v_floor_f64", f64::floor),
        d1("v_rndne_f64", f64::round_ties_even),
        d1("v_fract_f64", |x| {
            let below = f64::from_bits(1f64.to_bits() - 1);
            if x - x.floor() > below { below } else { x - x.floor() }
        }),
        d1("v_sqrt_f64", f64::sqrt),
        d1("v_rcp_f64", |x| 1.0 / x),
        d1("v_rsq_f64", |x| 1.0 / x.sqrt()),
        d1("v_frexp_mant_f64", |x| if x == 0.0 || !x.is_finite() { x } else { scaled(x, -exponent(x)) }),
        d2("v_add_f64", |a, b| a + b),
        d2("v_mul_f64", |a, b| a * b),
        Form::new("v_fma_f64", &[F64; 3], F64, |x| {
            let [a, b, c] = x.f64s();
            a.mul_add(b, c).to_bits()
        }),
        Form::new("v_ldexp_f64", &[F64, U32], F64, |x| scaled(x.f64s()[0], x.i()[1]).to_bits()),
        Form::new("v_cvt_f64_i32", &[U32], F64, |x| f64::from(x.i()[0]).to_bits()),
        Form::new("v_cvt_f64_u32", &[U32], F64, |x| f64::from(x.u()[0]).to_bits()),
        Form::new("v_cvt_f64_f32", &[F32], F64, |x| f64::from(x.f()[0]).to_bits()),
        Form::new("v_cvt_f32_f64", &[F64], F32, |x| f32_bits(x.f64s()[0] as f32)),
        Form::new("v_cvt_i32_f64", &[F64], U32, |x| {
            let v = x.f64s()[0].trunc();
            if v.is_nan() { 0 } else { v.clamp(-2147483648.0, 2147483647.0) as i64 as u64 }
        }),
        Form::new("v_cvt_u32_f64", &[F64], U32, |x| {
            let v = x.f64s()[0].trunc();
            if v.is_nan() { 0 } else { v.clamp(0.0, 4294967295.0) as u64 }
        }),
        Form::new("v_frexp_exp_i32_f64", &[F64], U32, |x| {
            let v = x.f64s()[0];
            if v == 0.0 || !v.is_finite() { 0 } else { exponent(v) as u64 }
        }),
    ];
    for s in ["", "_num"] {
        out.push(Form::new(&format!("v_min{s}_f64"), &[F64; 2], F64, |x| least(x, 1.0).to_bits()));
        out.push(Form::new(&format!("v_max{s}_f64"), &[F64; 2], F64, |x| least(x, -1.0).to_bits()));
    }
    out
}

fn integers() -> Vec<Form> {
    let mut out = vec![
        Form::new("v_lshlrev_b64", &[U32, U64], U64, |x| x.s[1] << (x.s[0] % 64)),
        Form::new("v_lshrrev_b64", &[U32, U64], U64, |x| x.s[1] >> (x.s[0] % 64)),
        Form::new("v_ashrrev_i64", &[U32, I64], U64, |x| (x.s[1] as i64 >> (x.s[0] % 64)) as u64),
    ];
    let unsigned = |x: &X| u128::from(x.u()[0]) * u128::from(x.u()[1]) + u128::from(x.s[2]);
    let signed = |x: &X| i128::from(x.i()[0]) * i128::from(x.i()[1]) + i128::from(x.s[2] as i64);
    for c in ["", "co_"] {
        out.push(
            Form::new(&format!("v_mad_{c}u64_u32"), &[U32, U32, U64], U64, move |x| unsigned(x) as u64)
                .carry(move |x| unsigned(x) >> 64 != 0),
        );
        out.push(
            Form::new(&format!("v_mad_{c}i64_i32"), &[U32, U32, I64], U64, move |x| signed(x) as u64)
                .carry(move |x| i64::try_from(signed(x)).is_err()),
        );
    }
    out
}

pub(super) fn forms() -> Vec<Form> {
    floats().into_iter().chain(integers()).collect()
}

#[test]
fn wide_forms() {
    check(&forms());
}

#[test]
fn the_formula_of_ldexp_scales() {
    assert_eq!(scaled(1.0, 1023), 2f64.powi(1023));
    assert_eq!(scaled(f64::from_bits(1), 1074), 1.0);
    assert_eq!(scaled(3.0, -1074), f64::from_bits(3));
    assert_eq!(scaled(f64::MAX, 1), f64::INFINITY);
}
