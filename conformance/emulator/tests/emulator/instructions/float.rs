//! f32 vector instructions and conversions.

use super::{Case, Result_::*, case, case2, check};

fn bits(x: f32) -> u64 {
    x.to_bits().into()
}

/// IEEE minimumNumber with -0 < +0.
fn min(a: f32, b: f32) -> f32 {
    match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ => {
            if a.total_cmp(&b).is_lt() {
                a
            } else {
                b
            }
        }
    }
}

fn max(a: f32, b: f32) -> f32 {
    match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ => {
            if a.total_cmp(&b).is_gt() {
                a
            } else {
                b
            }
        }
    }
}

fn minimum(a: f32, b: f32) -> f32 {
    if a.is_nan() || b.is_nan() { f32::NAN } else { min(a, b) }
}

fn maximum(a: f32, b: f32) -> f32 {
    if a.is_nan() || b.is_nan() { f32::NAN } else { max(a, b) }
}

/// Subnormals become zeros of their sign, as transcendentals see them.
fn flush(x: f32) -> f32 {
    if x.is_subnormal() { 0.0f32.copysign(x) } else { x }
}

fn trans(name: &str, f: fn(f64) -> f64) -> Case {
    case(&format!("{name} %0, %1"), F32, move |i| bits(flush(f(flush(i.f()[0]).into()) as f32)))
}

fn clamp(x: f32) -> f32 {
    if x > 0.0 { x.min(1.0) } else { 0.0 }
}

fn one() -> Vec<Case> {
    vec![
        case("v_floor_f32 %0, %1", F32, |i| bits(i.f()[0].floor())),
        case("v_ceil_f32 %0, %1", F32, |i| bits(i.f()[0].ceil())),
        case("v_trunc_f32 %0, %1", F32, |i| bits(i.f()[0].trunc())),
        case("v_rndne_f32 %0, %1", F32, |i| bits(i.f()[0].round_ties_even())),
        case("v_fract_f32 %0, %1", F32, |i| {
            let x = i.f()[0];
            bits(if (x - x.floor()) >= 1.0 { f32::from_bits(0x3f7f_ffff) } else { x - x.floor() })
        }),
        case("v_cvt_f32_i32 %0, %1", F32, |i| bits(i.i()[0] as f32)),
        case("v_cvt_f32_u32 %0, %1", F32, |i| bits(i.u()[0] as f32)),
        case("v_cvt_f32_ubyte0 %0, %1", F32, |i| bits((i.a & 255) as f32)),
        case("v_cvt_f32_ubyte1 %0, %1", F32, |i| bits((i.a >> 8 & 255) as f32)),
        case("v_cvt_f32_ubyte2 %0, %1", F32, |i| bits((i.a >> 16 & 255) as f32)),
        case("v_cvt_f32_ubyte3 %0, %1", F32, |i| bits((i.a >> 24 & 255) as f32)),
        case("v_cvt_off_f32_i4 %0, %1", F32, |i| {
            let table =
                [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, -8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0];
            bits(table[(i.a & 15) as usize] / 16.0)
        }),
        // Saturating, NaN to 0.
        case("v_cvt_i32_f32 %0, %1", U32, |i| {
            let x = f64::from(i.f()[0]).trunc();
            if x.is_nan() { 0 } else { x.clamp(-2147483648.0, 2147483647.0) as i64 as u64 }
        }),
        case("v_cvt_u32_f32 %0, %1", U32, |i| {
            let x = f64::from(i.f()[0]).trunc();
            if x.is_nan() { 0 } else { x.clamp(0.0, 4294967295.0) as u64 }
        }),
        case("v_cvt_floor_i32_f32 %0, %1", U32, |i| {
            let x = f64::from(i.f()[0]).floor();
            if x.is_nan() { 0 } else { x.clamp(-2147483648.0, 2147483647.0) as i64 as u64 }
        }),
        case("v_cvt_pk_u8_f32 %0, %1, %2, %3", U32, |i| {
            let x = f64::from(i.f()[0]).round_ties_even();
            let byte = if x.is_nan() { 0 } else { x.clamp(0.0, 255.0) as u64 };
            let s = 8 * (i.b & 3);
            (i.c & !(0xff << s)) | byte << s
        }),
        case("v_frexp_mant_f32 %0, %1", F32, |i| {
            let x = f64::from(i.f()[0]);
            bits(if x == 0.0 || !x.is_finite() { x } else { x / 2f64.powi(exponent(x)) } as f32)
        }),
        case("v_frexp_exp_i32_f32 %0, %1", U32, |i| {
            let x = f64::from(i.f()[0]);
            if x == 0.0 || !x.is_finite() { 0 } else { exponent(x) as u64 }
        }),
        trans("v_exp_f32", f64::exp2),
        trans("v_log_f32", f64::log2),
        trans("v_rcp_f32", |x| 1.0 / x),
        trans("v_sqrt_f32", f64::sqrt),
        trans("v_rsq_f32", |x| 1.0 / x.sqrt()),
    ]
}

/// e with x / 2^e in [0.5, 1).
fn exponent(x: f64) -> i32 {
    ((x.to_bits() >> 52 & 0x7ff) as i32) - 1022
}

fn more() -> Vec<Case> {
    vec![
        case("v_add_f32 %0, %1, %2", F32, |i| bits(i.f()[0] + i.f()[1])),
        case("v_sub_f32 %0, %1, %2", F32, |i| bits(i.f()[0] - i.f()[1])),
        case("v_subrev_f32 %0, %1, %2", F32, |i| bits(i.f()[1] - i.f()[0])),
        case("v_mul_f32 %0, %1, %2", F32, |i| bits(i.f()[0] * i.f()[1])),
        case("v_mul_dx9_zero_f32 %0, %1, %2", F32, |i| {
            bits(if i.f()[0] == 0.0 || i.f()[1] == 0.0 { 0.0 } else { i.f()[0] * i.f()[1] })
        }),
        case2("v_min_f32 %0, %1, %2", "v_min_num_f32 %0, %1, %2", F32, |i| bits(min(i.f()[0], i.f()[1]))),
        case2("v_max_f32 %0, %1, %2", "v_max_num_f32 %0, %1, %2", F32, |i| bits(max(i.f()[0], i.f()[1]))),
        case2("", "v_minimum_f32 %0, %1, %2", F32, |i| bits(minimum(i.f()[0], i.f()[1]))),
        case2("", "v_maximum_f32 %0, %1, %2", F32, |i| bits(maximum(i.f()[0], i.f()[1]))),
        case("v_fma_f32 %0, %1, %2, %3", F32, |i| bits(i.f()[0].mul_add(i.f()[1], i.f()[2]))),
        case("v_fmac_f32 %0, %1, %2", F32, |i| bits(i.f()[0].mul_add(i.f()[1], i.f()[3]))),
        case("v_fmaak_f32 %0, %1, %2, 0x40490fdb", F32, |i| {
            bits(i.f()[0].mul_add(i.f()[1], f32::from_bits(0x4049_0fdb)))
        }),
        case("v_fmamk_f32 %0, %1, 0x40490fdb, %2", F32, |i| {
            bits(i.f()[0].mul_add(f32::from_bits(0x4049_0fdb), i.f()[1]))
        }),
        case2("v_min3_f32 %0, %1, %2, %3", "v_min3_num_f32 %0, %1, %2, %3", F32, |i| {
            bits(min(min(i.f()[0], i.f()[1]), i.f()[2]))
        }),
        case2("v_max3_f32 %0, %1, %2, %3", "v_max3_num_f32 %0, %1, %2, %3", F32, |i| {
            bits(max(max(i.f()[0], i.f()[1]), i.f()[2]))
        }),
        case2("v_maxmin_f32 %0, %1, %2, %3", "v_maxmin_num_f32 %0, %1, %2, %3", F32, |i| {
            bits(min(max(i.f()[0], i.f()[1]), i.f()[2]))
        }),
        case2("v_minmax_f32 %0, %1, %2, %3", "v_minmax_num_f32 %0, %1, %2, %3", F32, |i| {
            bits(max(min(i.f()[0], i.f()[1]), i.f()[2]))
        }),
        case("v_ldexp_f32 %0, %1, %2", F32, |i| {
            bits((f64::from(i.f()[0]) * 2f64.powi(i.i()[1].clamp(-600, 600))) as f32)
        }),
        case("v_cvt_pk_rtz_f16_f32 %0, %1, %2", F16x2, |i| rtz(i.f()[0]) | rtz(i.f()[1]) << 16),
    ]
}

/// The largest half whose magnitude is not above x's.
fn rtz(x: f32) -> u64 {
    let sign = u64::from(x.is_sign_negative()) << 15;
    if x.is_nan() {
        return 0x7e00;
    }
    if x.is_infinite() {
        return sign | 0x7c00;
    }
    let value = |h: u16| f64::from(half::f16::from_bits(h).to_f32());
    let magnitude = f64::from(x.abs());
    let (mut low, mut high) = (0u16, 0x7c00u16);
    while high - low > 1 {
        let middle = (low + high) / 2;
        if value(middle) <= magnitude { low = middle } else { high = middle }
    }
    sign | u64::from(low)
}

fn modifiers() -> Vec<Case> {
    vec![
        case("v_add_f32_e64 %0, -%1, |%2|", F32, |i| bits(-i.f()[0] + i.f()[1].abs())),
        case("v_mul_f32_e64 %0, -|%1|, %2", F32, |i| bits(-i.f()[0].abs() * i.f()[1])),
        case("v_fma_f32 %0, %1, %2, -|%3|", F32, |i| bits(i.f()[0].mul_add(i.f()[1], -i.f()[2].abs()))),
        case("v_add_f32_e64 %0, %1, %2 clamp", F32, |i| bits(clamp(i.f()[0] + i.f()[1]))),
        case("s_mov_b32 s20, 0\nv_cndmask_b32_e64 %0, -%1, |%2|, s20", U32, |i| i.a ^ 0x8000_0000),
        case("s_mov_b32 s20, -1\nv_cndmask_b32_e64 %0, -%1, |%2|, s20", U32, |i| i.b & 0x7fff_ffff),
    ]
}

#[test]
fn floats_of_32_bits() {
    let cases: Vec<Case> = one().into_iter().chain(more()).collect();
    check("float", &cases, |i| !i.signalling());
    check("modifiers", &modifiers(), |_| true);
}

#[test]
fn the_middle_of_three() {
    let cases = [case2("v_med3_f32 %0, %1, %2, %3", "v_med3_num_f32 %0, %1, %2, %3", F32, |i| {
        let mut v = [i.f()[0], i.f()[1], i.f()[2]];
        v.sort_by(f32::total_cmp);
        bits(v[1])
    })];
    check("med3", &cases, |i| i.f()[..3].iter().all(|x| !x.is_nan()));
}

#[test]
fn sine_and_cosine_of_turns() {
    let cases = [
        case("v_sin_f32 %0, %1", F32, |i| {
            let x = f64::from(flush(i.f()[0]));
            bits(((x - x.floor()) * std::f64::consts::TAU).sin() as f32)
        }),
        case("v_cos_f32 %0, %1", F32, |i| {
            let x = f64::from(flush(i.f()[0]));
            bits(((x - x.floor()) * std::f64::consts::TAU).cos() as f32)
        }),
    ];
    check("sine", &cases, |i| i.f()[0].is_finite());
}

/// Pairs read all sources before either half writes.
#[test]
fn dual_issue() {
    let start = "v_mov_b32 v100, %1\nv_mov_b32 v101, %2\n";
    let pair = |text: &str| format!("{start}{text}\nv_mov_b32 %0, v100\nv_xor_b32 %0, %0, v101");
    let cases = [
        case(
            &format!("{start}v_dual_mov_b32 v100, v101 :: v_dual_mov_b32 v101, v100\nv_mov_b32 %0, v101"),
            U32,
            |i| i.a,
        ),
        case(
            &format!("{start}v_dual_mov_b32 v100, v101 :: v_dual_mov_b32 v101, v100\nv_mov_b32 %0, v100"),
            U32,
            |i| i.b,
        ),
    ];
    check("dual", &cases, |_| true);
    let y_only = [
        case(&pair("v_dual_mov_b32 v100, v100 :: v_dual_add_nc_u32 v101, 3, v101"), U32, |i| {
            i.a ^ i.b.wrapping_add(3)
        }),
        case(&pair("v_dual_mov_b32 v100, v100 :: v_dual_lshlrev_b32 v101, 5, v101"), U32, |i| i.a ^ i.b << 5),
        case(&pair("v_dual_mov_b32 v100, 0x12345 :: v_dual_and_b32 v101, 0x12345, v101"), U32, |i| {
            0x12345 ^ (i.b & 0x12345)
        }),
    ];
    check("dual_y", &y_only, |_| true);
    let floats = [
        case(
            &format!(
                "{start}v_dual_mul_f32 v102, v100, v101 :: v_dual_add_f32 v103, v101, v100\nv_mov_b32 %0, v102"
            ),
            F32,
            |i| bits(i.f()[0] * i.f()[1]),
        ),
        case(
            &format!(
                "{start}v_dual_mul_f32 v102, v100, v101 :: v_dual_add_f32 v103, v101, v100\nv_mov_b32 %0, v103"
            ),
            F32,
            |i| bits(i.f()[1] + i.f()[0]),
        ),
        case(
            &format!(
                "{start}v_dual_fmac_f32 v100, 2.0, v101 :: v_dual_sub_f32 v103, v101, v100\nv_mov_b32 %0, v100"
            ),
            F32,
            |i| bits(2f32.mul_add(i.f()[1], i.f()[0])),
        ),
        case(
            &format!(
                "{start}v_dual_fmaak_f32 v102, v100, v101, 0x3fc00000 :: v_dual_mov_b32 v103, v101\nv_mov_b32 %0, v102"
            ),
            F32,
            |i| bits(i.f()[0].mul_add(i.f()[1], 1.5)),
        ),
        case(
            &format!(
                "{start}v_cmp_lt_u32 vcc_lo, v100, v101\nv_dual_cndmask_b32 v102, v100, v101 :: v_dual_mov_b32 v103, v101\nv_mov_b32 %0, v102"
            ),
            U32,
            |i| {
                if i.u()[0] < i.u()[1] { i.b } else { i.a }
            },
        ),
    ];
    check("dual_f", &floats, |_| true);
}
