//! 16-bit, packed, mixed and dot product instructions.

use half::f16;

use super::{Case, In, Result_::*, case, case2, check};

fn h(x: u16) -> f64 {
    f16::from_bits(x).to_f64()
}

/// The half nearest to x, ties to even, found by search: no conversion routine is trusted.
fn nearest(x: f64) -> u16 {
    if x.is_nan() {
        return 0x7e00;
    }
    let sign = u16::from(x.is_sign_negative()) << 15;
    let m = x.abs();
    let value = |b: u16| if b >= 0x7c00 { 65536.0 } else { h(b) };
    let (mut low, mut high) = (0u16, 0x7c00u16);
    if m >= value(high) {
        return sign | high;
    }
    while high - low > 1 {
        let middle = (low + high) / 2;
        if value(middle) <= m { low = middle } else { high = middle }
    }
    let (down, up) = (m - value(low), value(high) - m);
    let take_low = down < up || down == up && low % 2 == 0;
    sign | if take_low { low } else { high }
}

/// The low half of the result; the high half of the destination stays.
fn low(i: In, x: u16) -> u64 {
    (i.d & 0xffff_0000) | u64::from(x)
}

fn high(i: In, x: u16) -> u64 {
    (i.d & 0xffff) | u64::from(x) << 16
}

fn hs(i: In) -> [f64; 4] {
    i.h().map(h)
}

/// Both halves of each operand, lower first.
fn pairs(i: In) -> [[u16; 2]; 3] {
    [i.a, i.b, i.c].map(|x| [x as u16, (x >> 16) as u16])
}

fn packed(i: In, f: impl Fn(u16, u16, u16) -> u16) -> u64 {
    let [a, b, c] = pairs(i);
    u64::from(f(a[0], b[0], c[0])) | u64::from(f(a[1], b[1], c[1])) << 16
}

fn halves() -> Vec<Case> {
    vec![
        case("v_add_f16 %0, %1, %2", F16x2, |i| low(i, nearest(hs(i)[0] + hs(i)[1]))),
        case("v_sub_f16 %0, %1, %2", F16x2, |i| low(i, nearest(hs(i)[0] - hs(i)[1]))),
        case("v_mul_f16 %0, %1, %2", F16x2, |i| low(i, nearest(hs(i)[0] * hs(i)[1]))),
        case("v_cvt_f16_f32 %0, %1", F16x2, |i| low(i, nearest(i.f()[0].into()))),
        case("v_cvt_f32_f16 %0, %1", F32, |i| (hs(i)[0] as f32).to_bits().into()),
        case("v_add_f16 %0, 1.0, %1", F16x2, |i| low(i, nearest(1.0 + hs(i)[0]))),
        case("v_floor_f16 %0, %1", F16x2, |i| low(i, nearest(hs(i)[0].floor()))),
        case("v_sqrt_f16 %0, %1", F16x2, |i| low(i, nearest(hs(i)[0].sqrt()))),
        case("v_cvt_f16_u16 %0, %1", F16x2, |i| low(i, nearest(i.h()[0].into()))),
        case("v_cvt_i16_f16 %0, %1", U32, |i| low(i, hs(i)[0] as i16 as u16)),
    ]
}

fn integers() -> Vec<Case> {
    vec![
        case("v_add_nc_u16 %0, %1, %2", U32, |i| low(i, i.h()[0].wrapping_add(i.h()[1]))),
        case("v_add_nc_u16 %0, %1, %2 op_sel:[1,0,1]", U32, |i| {
            high(i, ((i.a >> 16) as u16).wrapping_add(i.h()[1]))
        }),
        case("v_sub_nc_u16 %0, %1, %2", U32, |i| low(i, i.h()[0].wrapping_sub(i.h()[1]))),
        case("v_mul_lo_u16 %0, %1, %2", U32, |i| low(i, i.h()[0].wrapping_mul(i.h()[1]))),
        case("v_max_i16 %0, %1, %2", U32, |i| low(i, (i.h()[0] as i16).max(i.h()[1] as i16) as u16)),
        case("v_min_u16 %0, %1, %2", U32, |i| low(i, i.h()[0].min(i.h()[1]))),
        case("v_lshlrev_b16 %0, %1, %2", U32, |i| low(i, i.h()[1] << (i.h()[0] & 15))),
        case("v_lshrrev_b16 %0, %1, %2", U32, |i| low(i, i.h()[1] >> (i.h()[0] & 15))),
        case("v_ashrrev_i16 %0, %1, %2", U32, |i| low(i, ((i.h()[1] as i16) >> (i.h()[0] & 15)) as u16)),
        case("v_mad_u16 %0, %1, %2, %3", U32, |i| {
            low(i, i.h()[0].wrapping_mul(i.h()[1]).wrapping_add(i.h()[2]))
        }),
        case("v_pack_b32_f16 %0, %1, %2", U32, |i| u64::from(i.h()[0]) | u64::from(i.h()[1]) << 16),
        case("v_pack_b32_f16 %0, %1, %2 op_sel:[1,1,0]", U32, |i| i.a >> 16 & 0xffff | i.b & 0xffff_0000),
        case("v_sat_pk_u8_i16 %0, %1", U32, |i| {
            let [a, ..] = pairs(i);
            let sat = |x: u16| (x as i16).clamp(0, 255) as u16;
            low(i, sat(a[0]) | sat(a[1]) << 8)
        }),
        case("v_pk_add_u16 %0, %1, %2", U32, |i| packed(i, |a, b, _| a.wrapping_add(b))),
        case("v_pk_sub_i16 %0, %1, %2", U32, |i| packed(i, |a, b, _| a.wrapping_sub(b))),
        case("v_pk_mul_lo_u16 %0, %1, %2", U32, |i| packed(i, |a, b, _| a.wrapping_mul(b))),
        case("v_pk_mad_u16 %0, %1, %2, %3", U32, |i| packed(i, |a, b, c| a.wrapping_mul(b).wrapping_add(c))),
        case("v_pk_max_i16 %0, %1, %2", U32, |i| packed(i, |a, b, _| (a as i16).max(b as i16) as u16)),
        case("v_pk_min_u16 %0, %1, %2", U32, |i| packed(i, |a, b, _| a.min(b))),
        case("v_pk_lshlrev_b16 %0, %1, %2", U32, |i| packed(i, |a, b, _| b << (a & 15))),
        case("v_pk_ashrrev_i16 %0, %1, %2", U32, |i| packed(i, |a, b, _| ((b as i16) >> (a & 15)) as u16)),
        // The high half of S0 for the low result, the low half of S1 for the high one.
        case("v_pk_add_u16 %0, %1, %2 op_sel:[1,0] op_sel_hi:[1,0]", U32, |i| {
            let [a, b, _] = pairs(i);
            u64::from(a[1].wrapping_add(b[0])) * 0x1_0001
        }),
    ]
}

fn packed_floats() -> Vec<Case> {
    vec![
        case("v_pk_add_f16 %0, %1, %2", F16x2, |i| packed(i, |a, b, _| nearest(h(a) + h(b)))),
        case("v_pk_mul_f16 %0, %1, %2", F16x2, |i| packed(i, |a, b, _| nearest(h(a) * h(b)))),
        case("v_pk_fma_f16 %0, %1, %2, 1.0 op_sel_hi:[1,1,0]", F16x2, |i| {
            packed(i, |a, b, _| nearest(h(a) * h(b) + 1.0))
        }),
        case("v_pk_add_f16 %0, %1, %2 neg_lo:[1,0] neg_hi:[0,1]", F16x2, |i| {
            let [a, b, _] = pairs(i);
            u64::from(nearest(-h(a[0]) + h(b[0]))) | u64::from(nearest(h(a[1]) - h(b[1]))) << 16
        }),
        case("v_fma_mix_f32 %0, %1, %2, %3", F32, |i| i.f()[0].mul_add(i.f()[1], i.f()[2]).to_bits().into()),
        case("v_fma_mix_f32 %0, %1, %2, %3 op_sel:[1,0,0] op_sel_hi:[1,1,0]", F32, |i| {
            let [a, b, _] = pairs(i);
            (h(a[1]) as f32).mul_add(h(b[0]) as f32, i.f()[2]).to_bits().into()
        }),
        case("v_fma_mix_f32 %0, -%1, |%2|, %3 op_sel_hi:[1,0,0]", F32, |i| {
            (-(hs(i)[0] as f32)).mul_add(i.f()[1].abs(), i.f()[2]).to_bits().into()
        }),
    ]
}

#[test]
fn halves_of_registers() {
    let cases: Vec<Case> = halves().into_iter().chain(integers()).collect();
    check("half", &cases, |_| true);
    check("packed", &packed_floats(), |_| true);
    let sign = |x: f64, neg: bool| if neg { -x } else { x };
    let min = [case2("v_pk_max_f16 %0, %1, %2", "v_pk_max_num_f16 %0, %1, %2", F16x2, move |i| {
        packed(i, |a, b, _| {
            let (x, y) = (h(a), h(b));
            nearest(if x.is_nan() {
                y
            } else if y.is_nan() {
                x
            } else if x.total_cmp(&y).is_gt() {
                sign(x, false)
            } else {
                y
            })
        })
    })];
    check("packed_max", &min, |i| !i.signalling());
}

#[test]
fn integer_dot_products() {
    fn dot(a: u32, b: u32, width: u32, signed: [bool; 2]) -> i64 {
        let part = |x: u32, n: u32, s: bool| {
            let v = i64::from(x >> (n * width)) & ((1 << width) - 1);
            if s && v >> (width - 1) & 1 == 1 { v - (1 << width) } else { v }
        };
        (0..32 / width).map(|n| part(a, n, signed[0]) * part(b, n, signed[1])).sum()
    }
    let cases = [
        case("v_dot4_i32_iu8 %0, %1, %2, %3 neg_lo:[1,1,0]", U32, |i| {
            (dot(i.u()[0], i.u()[1], 8, [true, true]) + i64::from(i.i()[2])) as u64
        }),
        case("v_dot4_i32_iu8 %0, %1, %2, %3 neg_lo:[1,0,0]", U32, |i| {
            (dot(i.u()[0], i.u()[1], 8, [true, false]) + i64::from(i.i()[2])) as u64
        }),
        case("v_dot4_i32_iu8 %0, %1, %2, %3 neg_lo:[0,1,0] clamp", U32, |i| {
            (dot(i.u()[0], i.u()[1], 8, [false, true]) + i64::from(i.i()[2])).clamp(-0x8000_0000, 0x7fff_ffff)
                as u64
        }),
        case("v_dot4_u32_u8 %0, %1, %2, %3", U32, |i| {
            (dot(i.u()[0], i.u()[1], 8, [false, false]) + i64::from(i.u()[2])) as u64
        }),
        case("v_dot8_i32_iu4 %0, %1, %2, %3 neg_lo:[1,1,0]", U32, |i| {
            (dot(i.u()[0], i.u()[1], 4, [true, true]) + i64::from(i.i()[2])) as u64
        }),
        case("v_dot8_u32_u4 %0, %1, %2, %3", U32, |i| {
            (dot(i.u()[0], i.u()[1], 4, [false, false]) + i64::from(i.u()[2])) as u64
        }),
    ];
    check("dot_int", &cases, |_| true);
}

/// The fma chain: the addend first, then the low product, then the high one.
#[test]
fn float_dot_products() {
    let b = |x: u16| f32::from_bits(u32::from(x) << 16);
    let chain = |x: [f32; 2], y: [f32; 2], c: f32| x[1].mul_add(y[1], x[0].mul_add(y[0], c));
    let cases = [
        case("v_dot2_f32_bf16 %0, %1, %2, %3", F32, move |i| {
            let [x, y, _] = pairs(i);
            chain(x.map(b), y.map(b), i.f()[2]).to_bits().into()
        }),
        case("v_dot2_f32_f16 %0, %1, %2, %3", F32, move |i| {
            let [x, y, _] = pairs(i);
            chain(x.map(|v| h(v) as f32), y.map(|v| h(v) as f32), i.f()[2]).to_bits().into()
        }),
        // An inline constant addend is an f32.
        case("v_dot2_f32_f16 %0, %1, %2, 1.0", F32, move |i| {
            let [x, y, _] = pairs(i);
            chain(x.map(|v| h(v) as f32), y.map(|v| h(v) as f32), 1.0).to_bits().into()
        }),
        case2("v_dot2acc_f32_f16 %0, %1, %2", "", F32, move |i| {
            let [x, y, _] = pairs(i);
            chain(x.map(|v| h(v) as f32), y.map(|v| h(v) as f32), i.f()[3]).to_bits().into()
        }),
    ];
    check("dot_float", &cases, |_| true);
}
