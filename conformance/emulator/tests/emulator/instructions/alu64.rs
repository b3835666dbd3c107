//! 64-bit vector instructions.

use super::{Result_::*, case, case2, check};

#[test]
fn integers_of_64_bits() {
    let cases = [
        case("v_lshlrev_b64 %0, %1, %5", U64, |i| i.b << (i.a & 63)),
        case("v_lshrrev_b64 %0, %1, %5", U64, |i| i.b >> (i.a & 63)),
        case("v_ashrrev_i64 %0, %1, %5", U64, |i| (i.b as i64 >> (i.a & 63)) as u64),
        case2("v_mad_u64_u32 %0, vcc_lo, %1, %2, %6", "v_mad_co_u64_u32 %0, vcc_lo, %1, %2, %6", U64, |i| {
            (u64::from(i.u()[0]) * u64::from(i.u()[1])).wrapping_add(i.c)
        }),
        case2("v_mad_i64_i32 %0, vcc_lo, %1, %2, %6", "v_mad_co_i64_i32 %0, vcc_lo, %1, %2, %6", U64, |i| {
            (i64::from(i.i()[0]) * i64::from(i.i()[1])).wrapping_add(i.c as i64) as u64
        }),
    ];
    check("alu64", &cases, |_| true);
}

#[test]
fn floats_of_64_bits() {
    let cases = [
        case("v_add_f64 %0, %4, %5", F64, |i| (i.f64s()[0] + i.f64s()[1]).to_bits()),
        case("v_mul_f64 %0, %4, %5", F64, |i| (i.f64s()[0] * i.f64s()[1]).to_bits()),
        case("v_fma_f64 %0, %4, %5, %6", F64, |i| i.f64s()[0].mul_add(i.f64s()[1], i.f64s()[2]).to_bits()),
        case("v_floor_f64 %0, %4", F64, |i| i.f64s()[0].floor().to_bits()),
        case("v_rndne_f64 %0, %4", F64, |i| i.f64s()[0].round_ties_even().to_bits()),
        case("v_cvt_f64_f32 %0, %1", F64, |i| f64::from(i.f()[0]).to_bits()),
        case("v_cvt_f64_i32 %0, %1", F64, |i| f64::from(i.i()[0]).to_bits()),
        case("v_cvt_f64_u32 %0, %1", F64, |i| f64::from(i.u()[0]).to_bits()),
        case("v_sqrt_f64 %0, %4", F64, |i| i.f64s()[0].sqrt().to_bits()),
    ];
    check("float64", &cases, |_| true);
    let down = [
        case("v_cvt_f32_f64 %0, %4", F32, |i| (i.f64s()[0] as f32).to_bits().into()),
        case("v_cvt_i32_f64 %0, %4", U32, |i| i.f64s()[0] as i32 as u64),
        case("v_cvt_u32_f64 %0, %4", U32, |i| i.f64s()[0] as u32 as u64),
    ];
    check("from64", &down, |_| true);
}
