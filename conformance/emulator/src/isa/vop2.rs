//! VOP2: two sources. Opcodes are those of the long encoding, 0x100 + n.

use super::{h, r, refused};
use crate::{
    exec::{dot::dot2acc, wave::Wide},
    inst::{
        D16, NO, Row,
        mods::{DPP, OUT, SEL_D, signs},
    },
    numeric::{f2h_rtz, max_mode, max_num, max_num64, min_mode, min_num, min_num64},
};

/// Low 24 bits with sign.
fn i24(x: u32) -> i64 {
    i64::from((x << 8) as i32 >> 8)
}

/// Low 24 bits.
fn u24(x: u32) -> u64 {
    u64::from(x & 0xff_ffff)
}

/// 0 times anything is 0.
fn mul_dx9(a: f32, b: f32) -> f32 {
    if a == 0.0 || b == 0.0 { 0.0 } else { a * b }
}

fn add_ci(a: u32, b: u32, c: bool) -> (u32, bool) {
    let s = u64::from(a) + u64::from(b) + u64::from(c);
    (s as u32, s >> 32 != 0)
}

fn sub_ci(a: u32, b: u32, c: bool) -> (u32, bool) {
    let s = i64::from(a) - i64::from(b) - i64::from(c);
    (s as u32, s < 0)
}

macro_rules! vop {
    ($n:literal, $a:expr, $b:expr, $f:expr) => {
        r($n, if $a == NO { NO } else { 0x100 + $a }, if $b == NO { NO } else { 0x100 + $b }, $f)
    };
}

const ALL: u8 = 3 | D16;

macro_rules! half {
    ($n:literal, $a:expr, $b:expr, $h:expr, $f:expr) => {
        h($n, if $a == NO { NO } else { 0x100 + $a }, if $b == NO { NO } else { 0x100 + $b }, $h, $f)
    };
}

pub(super) static VOP2: &[Row] = &[
    vop!("v_cndmask_b32", 1, 1, |w, i, _| w.cndmask(i)),
    vop!("v_dot2acc_f32_f16", 2, NO, |w, i, g| dot2acc(w, i, g, false)),
    r("v_dot2acc_f32_bf16", NO, NO, |w, i, g| dot2acc(w, i, g, true)),
    vop!("v_add_f32", 3, 3, |w, i, _| w.f2(i, |a, b| a + b)),
    vop!("v_sub_f32", 4, 4, |w, i, _| w.f2(i, |a, b| a - b)),
    vop!("v_subrev_f32", 5, 5, |w, i, _| w.f2(i, |a, b| b - a)),
    refused("v_fmac_dx9_zero_f32", 0x100 + 6, NO),
    vop!("v_mul_dx9_zero_f32", 7, 7, |w, i, _| w.f2(i, mul_dx9)),
    vop!("v_mul_f32", 8, 8, |w, i, _| w.f2(i, |a, b| a * b)),
    vop!("v_mul_i32_i24", 9, 9, |w, i, _| w.u2(i, |a, b| (i24(a) * i24(b)) as u32)),
    vop!("v_mul_hi_i32_i24", 10, 10, |w, i, _| w.u2(i, |a, b| ((i24(a) * i24(b)) >> 32) as u32)),
    vop!("v_mul_u32_u24", 11, 11, |w, i, _| w.u2(i, |a, b| (u24(a) * u24(b)) as u32)),
    vop!("v_mul_hi_u32_u24", 12, 12, |w, i, _| w.u2(i, |a, b| ((u24(a) * u24(b)) >> 32) as u32)),
    vop!("v_min_f32", 15, NO, |w, i, _| {
        let f = min_mode(w.ieee());
        w.f2(i, f)
    }),
    vop!("v_max_f32", 16, NO, |w, i, _| {
        let f = max_mode(w.ieee());
        w.f2(i, f)
    }),
    vop!("v_min_num_f32", NO, 21, |w, i, _| w.f2(i, min_num)),
    vop!("v_max_num_f32", NO, 22, |w, i, _| w.f2(i, max_num)),
    vop!("v_min_i32", 17, 17, |w, i, _| w.u2(i, |a, b| (a as i32).min(b as i32) as u32)),
    vop!("v_max_i32", 18, 18, |w, i, _| w.u2(i, |a, b| (a as i32).max(b as i32) as u32)),
    vop!("v_min_u32", 19, 19, |w, i, _| w.u2(i, u32::min)),
    vop!("v_max_u32", 20, 20, |w, i, _| w.u2(i, u32::max)),
    vop!("v_lshlrev_b32", 24, 24, |w, i, _| w.u2(i, |a, b| b << (a & 31))),
    vop!("v_lshrrev_b32", 25, 25, |w, i, _| w.u2(i, |a, b| b >> (a & 31))),
    vop!("v_ashrrev_i32", 26, 26, |w, i, _| w.u2(i, |a, b| (b as i32 >> (a & 31)) as u32)),
    vop!("v_and_b32", 27, 27, |w, i, _| w.u2(i, |a, b| a & b)),
    vop!("v_or_b32", 28, 28, |w, i, _| w.u2(i, |a, b| a | b)),
    vop!("v_xor_b32", 29, 29, |w, i, _| w.u2(i, |a, b| a ^ b)),
    vop!("v_xnor_b32", 30, 30, |w, i, _| w.u2(i, |a, b| !(a ^ b))),
    vop!("v_add_co_ci_u32", 32, 32, |w, i, _| w.carry(i, true, add_ci)),
    vop!("v_sub_co_ci_u32", 33, 33, |w, i, _| w.carry(i, true, sub_ci)),
    vop!("v_subrev_co_ci_u32", 34, 34, |w, i, _| w.carry(i, true, |a, b, c| sub_ci(b, a, c))),
    vop!("v_add_nc_u32", 37, 37, |w, i, _| w.u2sat(i, u32::wrapping_add, u32::saturating_add)),
    vop!("v_sub_nc_u32", 38, 38, |w, i, _| w.u2sat(i, u32::wrapping_sub, u32::saturating_sub)),
    vop!("v_subrev_nc_u32", 39, 39, |w, i, _| {
        w.u2sat(i, |a, b| b.wrapping_sub(a), |a, b| b.saturating_sub(a))
    }),
    vop!("v_fmac_f32", 43, 43, |w, i, _| w.fmac(i)),
    vop!("v_fmamk_f32", 44, 44, |w, i, _| w.fma(i)),
    vop!("v_fmaak_f32", 45, 45, |w, i, _| w.fma(i)),
    vop!("v_cvt_pk_rtz_f16_f32", 47, 47, |w, i, _| {
        w.f2u(i, |a, b| u32::from(f2h_rtz(a)) | u32::from(f2h_rtz(b)) << 16)
    }),
    half!("v_add_f16", 50, 50, ALL, |w, i, _| w.h2(i, |a, b| a + b)),
    half!("v_sub_f16", 51, 51, ALL, |w, i, _| w.h2(i, |a, b| a - b)),
    half!("v_subrev_f16", 52, 52, ALL, |w, i, _| w.h2(i, |a, b| b - a)),
    half!("v_mul_f16", 53, 53, ALL, |w, i, _| w.h2(i, |a, b| a * b)),
    half!("v_fmac_f16", 54, 54, ALL, |w, i, _| w.hfma(i, true)),
    half!("v_fmamk_f16", 55, 55, ALL, |w, i, _| w.hfma(i, false)),
    half!("v_fmaak_f16", 56, 56, ALL, |w, i, _| w.hfma(i, false)),
    half!("v_max_f16", 57, NO, ALL, |w, i, _| {
        let f = max_mode(w.ieee());
        w.h2(i, f)
    }),
    half!("v_min_f16", 58, NO, ALL, |w, i, _| {
        let f = min_mode(w.ieee());
        w.h2(i, f)
    }),
    half!("v_min_num_f16", NO, 48, ALL, |w, i, _| w.h2(i, min_num)),
    half!("v_max_num_f16", NO, 49, ALL, |w, i, _| w.h2(i, max_num)),
    half!("v_ldexp_f16", 59, 59, ALL, |w, i, _| {
        i.only16(2, true, signs(1) | SEL_D | OUT | DPP)?;
        let (x, e) = (w.hs(i, 0), w.half(i, 1, false));
        let r = std::array::from_fn(|l| crate::numeric::ldexp(x[l], (e[l] as i16).into()));
        w.put_f16(i, w.defined_all(i, 2), r);
        Ok(())
    }),
    refused("v_pk_fmac_f16", 0x100 + 60, 0x100 + 60),
    vop!("v_add_f64", NO, 2, |w, i, _| w.d(i, 2, |[a, b, _]| a + b)),
    vop!("v_mul_f64", NO, 6, |w, i, _| w.d(i, 2, |[a, b, _]| a * b)),
    vop!("v_min_num_f64", NO, 13, |w, i, _| w.d(i, 2, |[a, b, _]| min_num64(a, b))),
    vop!("v_max_num_f64", NO, 14, |w, i, _| w.d(i, 2, |[a, b, _]| max_num64(a, b))),
    vop!("v_lshlrev_b64", NO, 31, |w, i, _| w.shift64(i, Wide::Bits, |a, b| b << (a & 63))),
];
