//! VOP3P: packed halves, dot products, mixed fma and matrix instructions.

use super::{
    r, refused,
    vop3::{add_sat16, sub_sat16},
};
use crate::{
    exec::{
        dot::{dot_int, dot2_f32},
        valu16::{Mix, fma_mix, fma16},
        wmma::{Acc, Elem, wmma, wmma_int},
    },
    inst::{NO, Row},
    numeric::{max_mode, max_num, maximum, min_mode, min_num, minimum},
};

pub(super) static VOP3P: &[Row] = &[
    r("v_pk_mad_i16", 0, 0, |w, i, _| w.pk3(i, |a, b, c| a.wrapping_mul(b).wrapping_add(c))),
    r("v_pk_mul_lo_u16", 1, 1, |w, i, _| w.pk2(i, u16::wrapping_mul)),
    r("v_pk_add_i16", 2, 2, |w, i, _| w.pk2sat(i, u16::wrapping_add, add_sat16)),
    r("v_pk_sub_i16", 3, 3, |w, i, _| w.pk2sat(i, u16::wrapping_sub, sub_sat16)),
    r("v_pk_lshlrev_b16", 4, 4, |w, i, _| w.pk2(i, |a, b| b << (a & 15))),
    r("v_pk_lshrrev_b16", 5, 5, |w, i, _| w.pk2(i, |a, b| b >> (a & 15))),
    r("v_pk_ashrrev_i16", 6, 6, |w, i, _| w.pk2(i, |a, b| (b as i16 >> (a & 15)) as u16)),
    r("v_pk_max_i16", 7, 7, |w, i, _| w.pk2(i, |a, b| (a as i16).max(b as i16) as u16)),
    r("v_pk_min_i16", 8, 8, |w, i, _| w.pk2(i, |a, b| (a as i16).min(b as i16) as u16)),
    r("v_pk_mad_u16", 9, 9, |w, i, _| w.pk3(i, |a, b, c| a.wrapping_mul(b).wrapping_add(c))),
    r("v_pk_add_u16", 10, 10, |w, i, _| w.pk2sat(i, u16::wrapping_add, u16::saturating_add)),
    r("v_pk_sub_u16", 11, 11, |w, i, _| w.pk2sat(i, u16::wrapping_sub, u16::saturating_sub)),
    r("v_pk_max_u16", 12, 12, |w, i, _| w.pk2(i, u16::max)),
    r("v_pk_min_u16", 13, 13, |w, i, _| w.pk2(i, u16::min)),
    r("v_pk_fma_f16", 14, 14, |w, i, _| w.pkh(i, 3, fma16)),
    r("v_pk_add_f16", 15, 15, |w, i, _| w.pkh(i, 2, |a, b, _| a + b)),
    r("v_pk_mul_f16", 16, 16, |w, i, _| w.pkh(i, 2, |a, b, _| a * b)),
    r("v_pk_min_f16", 17, NO, |w, i, _| {
        let min = min_mode(w.ieee());
        w.pkh(i, 2, |a, b, _| min(a, b))
    }),
    r("v_pk_max_f16", 18, NO, |w, i, _| {
        let max = max_mode(w.ieee());
        w.pkh(i, 2, |a, b, _| max(a, b))
    }),
    r("v_pk_min_num_f16", NO, 27, |w, i, _| w.pkh(i, 2, |a, b, _| min_num(a, b))),
    r("v_pk_max_num_f16", NO, 28, |w, i, _| w.pkh(i, 2, |a, b, _| max_num(a, b))),
    r("v_pk_minimum_f16", NO, 29, |w, i, _| w.pkh(i, 2, |a, b, _| minimum(a, b))),
    r("v_pk_maximum_f16", NO, 30, |w, i, _| w.pkh(i, 2, |a, b, _| maximum(a, b))),
    r("v_dot2_f32_f16", 19, 19, |w, i, g| dot2_f32(w, i, g, false)),
    r("v_dot4_i32_iu8", 22, 22, |w, i, _| dot_int(w, i, 4, false)),
    r("v_dot4_u32_u8", 23, 23, |w, i, _| dot_int(w, i, 4, true)),
    r("v_dot8_i32_iu4", 24, 24, |w, i, _| dot_int(w, i, 8, false)),
    r("v_dot8_u32_u4", 25, 25, |w, i, _| dot_int(w, i, 8, true)),
    r("v_dot2_f32_bf16", 26, 26, |w, i, g| dot2_f32(w, i, g, true)),
    r("v_fma_mix_f32", 32, 32, |w, i, g| fma_mix(w, i, g, Mix::F32)),
    r("v_fma_mixlo_f16", 33, 33, |w, i, g| fma_mix(w, i, g, Mix::Low)),
    r("v_fma_mixhi_f16", 34, 34, |w, i, g| fma_mix(w, i, g, Mix::High)),
    refused("v_dot4_f32_fp8_bf8", NO, 36),
    refused("v_dot4_f32_bf8_fp8", NO, 37),
    refused("v_dot4_f32_fp8_fp8", NO, 38),
    refused("v_dot4_f32_bf8_bf8", NO, 39),
    r("v_wmma_f32_16x16x16_f16", 64, 64, |w, i, g| wmma(w, i, g, Elem::F16, Elem::F16, Acc::F32)),
    r("v_wmma_f32_16x16x16_bf16", 65, 65, |w, i, g| wmma(w, i, g, Elem::Bf16, Elem::Bf16, Acc::F32)),
    r("v_wmma_f16_16x16x16_f16", 66, 66, |w, i, g| wmma(w, i, g, Elem::F16, Elem::F16, Acc::F16)),
    r("v_wmma_bf16_16x16x16_bf16", 67, 67, |w, i, g| wmma(w, i, g, Elem::Bf16, Elem::Bf16, Acc::Bf16)),
    r("v_wmma_i32_16x16x16_iu8", 68, 68, |w, i, g| wmma_int(w, i, g, 8, 16)),
    r("v_wmma_i32_16x16x16_iu4", 69, 69, |w, i, g| wmma_int(w, i, g, 4, 16)),
    r("v_wmma_f32_16x16x16_fp8_fp8", NO, 70, |w, i, g| wmma(w, i, g, Elem::Fp8, Elem::Fp8, Acc::F32)),
    r("v_wmma_f32_16x16x16_fp8_bf8", NO, 71, |w, i, g| wmma(w, i, g, Elem::Fp8, Elem::Bf8, Acc::F32)),
    r("v_wmma_f32_16x16x16_bf8_fp8", NO, 72, |w, i, g| wmma(w, i, g, Elem::Bf8, Elem::Fp8, Acc::F32)),
    r("v_wmma_f32_16x16x16_bf8_bf8", NO, 73, |w, i, g| wmma(w, i, g, Elem::Bf8, Elem::Bf8, Acc::F32)),
    r("v_wmma_i32_16x16x32_iu4", NO, 74, |w, i, g| wmma_int(w, i, g, 4, 32)),
    refused("v_swmmac_f32_16x16x32_f16", NO, 80),
    refused("v_swmmac_f32_16x16x32_bf16", NO, 81),
    refused("v_swmmac_f16_16x16x32_f16", NO, 82),
    refused("v_swmmac_bf16_16x16x32_bf16", NO, 83),
    refused("v_swmmac_i32_16x16x32_iu8", NO, 84),
    refused("v_swmmac_i32_16x16x32_iu4", NO, 85),
    refused("v_swmmac_i32_16x16x64_iu4", NO, 86),
    refused("v_swmmac_f32_16x16x32_fp8_fp8", NO, 87),
    refused("v_swmmac_f32_16x16x32_fp8_bf8", NO, 88),
    refused("v_swmmac_f32_16x16x32_bf8_fp8", NO, 89),
    refused("v_swmmac_f32_16x16x32_bf8_bf8", NO, 90),
];
