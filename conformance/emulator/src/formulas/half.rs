//! 16-bit floats and integers in register halves.

use super::{
    float32::{e4m3, e5m2, norm, turn},
    operand::{T, half_bits},
    trial::{Form, X, check, f16_bits},
};
use crate::inst::mods::{CLAMP, SEL, signs};

use T::{B16, F16, Mask, U16, U32, U64};

fn h1(name: &str, f: fn(f64) -> f64) -> Form {
    Form::new(name, &[F16], F16, move |x| f16_bits(f(x.h()[0])))
}

fn h2(name: &str, f: fn(f64, f64) -> f64) -> Form {
    Form::new(name, &[F16, F16], F16, move |x| f16_bits(f(x.h()[0], x.h()[1])))
}

fn w2(name: &str, f: fn(u16, u16) -> u16) -> Form {
    Form::new(name, &[U16, U16], U16, move |x| f(x.w()[0], x.w()[1]).into())
}

fn w3(name: &str, f: fn(u16, u16, u16) -> u16) -> Form {
    Form::new(name, &[U16, U16, U16], U16, move |x| {
        let [a, b, c] = x.w();
        f(a, b, c).into()
    })
}

/// a b + c of halves, rounded once: every finite term is an integer of 2^-48.
pub(super) fn fma(a: f64, b: f64, c: f64) -> u64 {
    let unit = 2f64.powi(-48);
    let plain = a * b + c;
    if !plain.is_finite() {
        return f16_bits(plain);
    }
    let exact = (a * b / unit) as i128 + (c / unit) as i128;
    if exact == 0 {
        return f16_bits(plain);
    }
    // What the half's last place cannot hold only says to which side the sum lies.
    let magnitude = exact.unsigned_abs();
    let drop = (128 - magnitude.leading_zeros()).saturating_sub(40);
    let sticky = u128::from(magnitude & ((1 << drop) - 1) != 0);
    let short = (magnitude >> drop | sticky) as f64 * 2f64.powi(drop as i32) * unit;
    f16_bits(if exact < 0 { -short } else { short })
}

/// V_MIN (`sign` 1) and V_MAX (-1).
pub(super) fn least(x: &X, sign: f64, a: u64, b: u64) -> u64 {
    let signalling = |h: u64| h & 0x7e00 == 0x7c00 && h & 0x1ff != 0;
    let nan = |h: u64| h & 0x7fff > 0x7c00;
    if x.gfx11 && x.ieee && (signalling(a) || signalling(b)) {
        return 0x7e00;
    }
    if nan(a) || nan(b) {
        return if nan(a) { b } else { a };
    }
    let v = |h: u64| half::f16::from_bits(h as u16).to_f64() * sign;
    if v(a) < v(b) || v(a) == v(b) && v(a) == 0.0 && v(a).is_sign_negative() { a } else { b }
}

pub(super) fn strict(sign: f64, a: u64, b: u64) -> u64 {
    let nan = |h: u64| h & 0x7fff > 0x7c00;
    if nan(a) || nan(b) {
        return 0x7e00;
    }
    let v = |h: u64| half::f16::from_bits(h as u16).to_f64() * sign;
    if v(a) < v(b) || v(a) == v(b) && v(a) == 0.0 && v(a).is_sign_negative() { a } else { b }
}

fn middle(x: &X, [a, b, c]: [u64; 3]) -> u64 {
    let v = |h: u64| half::f16::from_bits(h as u16).to_f64();
    if [a, b, c].into_iter().any(|h| v(h).is_nan()) {
        return least(x, 1.0, least(x, 1.0, a, b), c);
    }
    let max = |a, b| least(x, -1.0, a, b);
    let top = v(max(max(a, b), c));
    match () {
        () if top == v(a) => max(b, c),
        () if top == v(b) => max(a, c),
        () => max(a, b),
    }
}

fn extremes() -> Vec<Form> {
    let mut out = Vec::new();
    let mut add = |name: &str, n: usize, f: fn(&X, [u64; 3]) -> u64| {
        out.push(Form::new(name, &[F16; 3][..n], F16, move |x| f(x, x.s)));
    };
    for s in ["", "_num"] {
        add(&format!("v_min{s}_f16"), 2, |x, [a, b, _]| least(x, 1.0, a, b));
        add(&format!("v_max{s}_f16"), 2, |x, [a, b, _]| least(x, -1.0, a, b));
        add(&format!("v_min3{s}_f16"), 3, |x, [a, b, c]| least(x, 1.0, least(x, 1.0, a, b), c));
        add(&format!("v_max3{s}_f16"), 3, |x, [a, b, c]| least(x, -1.0, least(x, -1.0, a, b), c));
        add(&format!("v_maxmin{s}_f16"), 3, |x, [a, b, c]| least(x, 1.0, least(x, -1.0, a, b), c));
        add(&format!("v_minmax{s}_f16"), 3, |x, [a, b, c]| least(x, -1.0, least(x, 1.0, a, b), c));
        add(&format!("v_med3{s}_f16"), 3, middle);
    }
    add("v_minimum_f16", 2, |_, [a, b, _]| strict(1.0, a, b));
    add("v_maximum_f16", 2, |_, [a, b, _]| strict(-1.0, a, b));
    add("v_minimum3_f16", 3, |_, [a, b, c]| strict(1.0, strict(1.0, a, b), c));
    add("v_maximum3_f16", 3, |_, [a, b, c]| strict(-1.0, strict(-1.0, a, b), c));
    add("v_minimummaximum_f16", 3, |_, [a, b, c]| strict(-1.0, strict(1.0, a, b), c));
    add("v_maximumminimum_f16", 3, |_, [a, b, c]| strict(1.0, strict(-1.0, a, b), c));
    out
}

/// e with |x| / 2^e in [0.5, 1).
fn exponent(x: f64) -> i32 {
    (x.to_bits() >> 52 & 0x7ff) as i32 - 1022
}

fn floats() -> Vec<Form> {
    let pair = |a: u64, b: u64| a & 0xffff | b << 16;
    vec![
        h2("v_add_f16", |a, b| a + b),
        h2("v_sub_f16", |a, b| a - b),
        h2("v_subrev_f16", |a, b| b - a),
        h2("v_mul_f16", |a, b| a * b),
        Form::new("v_fma_f16", &[F16; 3], F16, |x| {
            let [a, b, c] = x.h();
            fma(a, b, c)
        }),
        Form::new("v_fmac_f16", &[F16; 2], F16, |x| {
            fma(x.h()[0], x.h()[1], half::f16::from_bits(x.d as u16).to_f64())
        }),
        Form::new("v_ldexp_f16", &[F16, U16], F16, |x| {
            f16_bits(x.h()[0] * 2f64.powi((x.w()[1] as i16).clamp(-100, 100).into()))
        }),
        h1("v_rcp_f16", |x| 1.0 / x),
        h1("v_sqrt_f16", f64::sqrt),
        h1("v_rsq_f16", |x| 1.0 / x.sqrt()),
        h1("v_log_f16", f64::log2),
        h1("v_exp_f16", f64::exp2),
        h1("v_floor_f16", f64::floor),
        h1("v_ceil_f16", f64::ceil),
        h1("v_trunc_f16", f64::trunc),
        h1("v_rndne_f16", f64::round_ties_even),
        h1("v_fract_f16", |x| {
            // The largest half below 1.
            let below = 2047.0 / 2048.0;
            if x - x.floor() > below { below } else { x - x.floor() }
        }),
        // Through f32, as the hardware's tables are.
        h1("v_sin_f16", |x| f64::from(turn(x).sin() as f32)),
        h1("v_cos_f16", |x| f64::from(turn(x).cos() as f32)),
        h1("v_frexp_mant_f16", |x| if x == 0.0 || !x.is_finite() { x } else { x / 2f64.powi(exponent(x)) }),
        Form::new("v_frexp_exp_i16_f16", &[F16], U16, |x| {
            let v = x.h()[0];
            if v == 0.0 || !v.is_finite() { 0 } else { exponent(v) as u16 as u64 }
        }),
        Form::new("v_cvt_f16_u16", &[U16], F16, |x| f16_bits(x.w()[0].into())),
        Form::new("v_cvt_f16_i16", &[U16], F16, |x| f16_bits((x.w()[0] as i16).into())),
        Form::new("v_cvt_u16_f16", &[F16], U16, |x| {
            let v = x.h()[0].trunc();
            if v.is_nan() { 0 } else { v.clamp(0.0, 65535.0) as u64 }
        }),
        Form::new("v_cvt_i16_f16", &[F16], U16, |x| {
            let v = x.h()[0].trunc();
            if v.is_nan() { 0 } else { v.clamp(-32768.0, 32767.0) as i64 as u64 & 0xffff }
        }),
        Form::new("v_cvt_norm_i16_f16", &[F16], U16, |x| norm(x.h()[0], -1.0, 32767.0).into()),
        Form::new("v_cvt_norm_u16_f16", &[F16], U16, |x| norm(x.h()[0], 0.0, 65535.0).into()),
        Form::new("v_cvt_pk_norm_i16_f16", &[F16; 2], U32, move |x| {
            let [a, b, _] = x.h().map(|v| u64::from(norm(v, -1.0, 32767.0)));
            pair(a, b)
        }),
        Form::new("v_cvt_pk_norm_u16_f16", &[F16; 2], U32, move |x| {
            let [a, b, _] = x.h().map(|v| u64::from(norm(v, 0.0, 65535.0)));
            pair(a, b)
        }),
        // Signs of the bits as they are: no subnormal is lost.
        Form::new("v_pack_b32_f16", &[B16; 2], U32, move |x| pair(x.s[0], x.s[1])).with(signs(2)),
        Form::new("v_cndmask_b16", &[B16, B16, Mask], U16, |x| if x.bit(2) { x.s[1] } else { x.s[0] })
            .with(signs(2)),
        Form::new("v_mov_b16", &[B16], U16, |x| x.s[0]),
    ]
}

fn integers() -> Vec<Form> {
    let i = |x: u16| x as i16;
    fn s(x: u16) -> i16 {
        x as i16
    }
    let saturating = |name: &str, wrap: fn(u16, u16) -> u16, hold: fn(u16, u16) -> u16| {
        Form::new(name, &[U16, U16], U16, move |x| {
            u64::from(if x.clamp { hold(x.w()[0], x.w()[1]) } else { wrap(x.w()[0], x.w()[1]) })
        })
        .with(CLAMP)
    };
    vec![
        saturating("v_add_nc_u16", u16::wrapping_add, u16::saturating_add),
        saturating("v_sub_nc_u16", u16::wrapping_sub, u16::saturating_sub),
        saturating("v_add_nc_i16", u16::wrapping_add, |a, b| s(a).saturating_add(s(b)) as u16),
        saturating("v_sub_nc_i16", u16::wrapping_sub, |a, b| s(a).saturating_sub(s(b)) as u16),
        w2("v_mul_lo_u16", u16::wrapping_mul),
        w2("v_max_u16", |a, b| if a >= b { a } else { b }),
        w2("v_min_u16", |a, b| if a < b { a } else { b }),
        w2("v_max_i16", |a, b| if s(a) >= s(b) { a } else { b }),
        w2("v_min_i16", |a, b| if s(a) < s(b) { a } else { b }),
        w2("v_lshlrev_b16", |a, b| ((u32::from(b) << (a % 16)) & 0xffff) as u16),
        w2("v_lshrrev_b16", |a, b| b >> (a % 16)),
        w2("v_ashrrev_i16", |a, b| (i32::from(s(b)) >> (a % 16)) as u16),
        w2("v_and_b16", |a, b| a & b),
        w2("v_or_b16", |a, b| a | b),
        w2("v_xor_b16", |a, b| a ^ b),
        w3("v_mad_u16", |a, b, c| (u64::from(a) * u64::from(b) + u64::from(c)) as u16),
        w3("v_mad_i16", |a, b, c| (i64::from(s(a)) * i64::from(s(b)) + i64::from(s(c))) as u16),
        w3("v_min3_u16", |a, b, c| a.min(b).min(c)),
        w3("v_max3_u16", |a, b, c| a.max(b).max(c)),
        w3("v_min3_i16", |a, b, c| s(a).min(s(b)).min(s(c)) as u16),
        w3("v_max3_i16", |a, b, c| s(a).max(s(b)).max(s(c)) as u16),
        w3("v_med3_u16", |a, b, c| {
            let mut v = [a, b, c];
            v.sort_unstable();
            v[1]
        }),
        w3("v_med3_i16", |a, b, c| {
            let mut v = [s(a), s(b), s(c)];
            v.sort_unstable();
            v[1] as u16
        }),
        Form::new("v_mad_u32_u16", &[U16, U16, U32], U32, |x| {
            u64::from(x.w()[0]) * u64::from(x.w()[1]) + x.s[2]
        }),
        Form::new("v_mad_i32_i16", &[U16, U16, U32], U32, move |x| {
            (i64::from(i(x.w()[0])) * i64::from(i(x.w()[1])) + x.s[2] as i64) as u64
        }),
        Form::new("v_not_b16", &[U16], U16, |x| !x.s[0] & 0xffff),
        Form::new("v_cvt_i32_i16", &[U16], U32, |x| x.w()[0] as i16 as u32 as u64),
        Form::new("v_cvt_u32_u16", &[U16], U32, |x| x.s[0]),
        Form::new("v_sat_pk_u8_i16", &[U32], U16, |x| {
            let hold = |v: u16| u64::from((v as i16).clamp(0, 255) as u16);
            hold(x.u()[0] as u16) | hold((x.u()[0] >> 16) as u16) << 8
        }),
    ]
}

fn bytes() -> Vec<Form> {
    [("v_cvt_pk_f32_fp8", e4m3 as fn(u32) -> f64), ("v_cvt_pk_f32_bf8", e5m2)]
        .into_iter()
        .map(|(name, f)| {
            Form::new(name, &[U32], U64, move |x| {
                let half = if x.sel & 1 == 1 { x.u()[0] >> 16 } else { x.u()[0] };
                let one = |b: u32| u64::from((f(b & 255) as f32).to_bits());
                one(half) | one(half >> 8) << 32
            })
            .with(SEL)
            .vectors()
        })
        .collect()
}

pub(super) fn forms() -> Vec<Form> {
    [floats(), extremes(), integers(), bytes()].into_iter().flatten().collect()
}

#[test]
fn half_forms() {
    check(&forms());
}

#[test]
fn the_formula_of_a_half_fma_rounds_once() {
    // 1 + 2^-11 is a midpoint; a far smaller addend decides.
    let middle = 1.0 + 2f64.powi(-10);
    assert_eq!(fma(middle, 1.0 - 2f64.powi(-11), 0.0), half_bits(middle * (1.0 - 2f64.powi(-11))).into());
    assert_eq!(fma(1.0, 1.0, 2f64.powi(-11)), 0x3c00);
    assert_eq!(fma(2f64.powi(-14), 2f64.powi(-14), 1.0), 0x3c00);
    assert_eq!(fma(3.0, 2f64.powi(-12), -1.0), half_bits(3.0 * 2f64.powi(-12) - 1.0).into());
}
