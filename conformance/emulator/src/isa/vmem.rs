//! FLAT, GLOBAL, SCRATCH and BUFFER, which share their loads, stores and atomics.

use super::{r, refused};
use crate::{
    exec::{
        atomic::{atomic, dec, float, inc, max_f32, max_num_f32, min_f32, min_num_f32, packed},
        mem::{Width, load, store},
        nop,
    },
    inst::{NO, Row},
    numeric::{b2f, f2b, f2h, h2f},
};

macro_rules! moves {
    ($p:literal, [$($more:expr),*]) => {
        &[
            r(concat!($p, "load_u8"), 16, 16, |w, i, g| load(w, i, g, Width::U8)),
            r(concat!($p, "load_i8"), 17, 17, |w, i, g| load(w, i, g, Width::I8)),
            r(concat!($p, "load_u16"), 18, 18, |w, i, g| load(w, i, g, Width::U16)),
            r(concat!($p, "load_i16"), 19, 19, |w, i, g| load(w, i, g, Width::I16)),
            r(concat!($p, "load_b32"), 20, 20, |w, i, g| load(w, i, g, Width::B(1))),
            r(concat!($p, "load_b64"), 21, 21, |w, i, g| load(w, i, g, Width::B(2))),
            r(concat!($p, "load_b96"), 22, 22, |w, i, g| load(w, i, g, Width::B(3))),
            r(concat!($p, "load_b128"), 23, 23, |w, i, g| load(w, i, g, Width::B(4))),
            r(concat!($p, "store_b8"), 24, 24, |w, i, g| store(w, i, g, Width::U8)),
            r(concat!($p, "store_b16"), 25, 25, |w, i, g| store(w, i, g, Width::U16)),
            r(concat!($p, "store_b32"), 26, 26, |w, i, g| store(w, i, g, Width::B(1))),
            r(concat!($p, "store_b64"), 27, 27, |w, i, g| store(w, i, g, Width::B(2))),
            r(concat!($p, "store_b96"), 28, 28, |w, i, g| store(w, i, g, Width::B(3))),
            r(concat!($p, "store_b128"), 29, 29, |w, i, g| store(w, i, g, Width::B(4))),
            r(concat!($p, "load_d16_u8"), 30, 30, |w, i, g| load(w, i, g, Width::D16U8(false))),
            r(concat!($p, "load_d16_i8"), 31, 31, |w, i, g| load(w, i, g, Width::D16I8(false))),
            r(concat!($p, "load_d16_b16"), 32, 32, |w, i, g| load(w, i, g, Width::D16B16(false))),
            r(concat!($p, "load_d16_hi_u8"), 33, 33, |w, i, g| load(w, i, g, Width::D16U8(true))),
            r(concat!($p, "load_d16_hi_i8"), 34, 34, |w, i, g| load(w, i, g, Width::D16I8(true))),
            r(concat!($p, "load_d16_hi_b16"), 35, 35, |w, i, g| load(w, i, g, Width::D16B16(true))),
            r(concat!($p, "store_d16_hi_b8"), 36, 36, |w, i, g| store(w, i, g, Width::D16U8(true))),
            r(concat!($p, "store_d16_hi_b16"), 37, 37, |w, i, g| store(w, i, g, Width::D16B16(true))),
            $($more,)*
        ]
    };
}

fn low(f: fn(u32, u32) -> u32) -> impl Fn(u64, u64, u64) -> u64 {
    move |a, b, _| f(a as u32, b as u32).into()
}

fn wide(f: fn(u64, u64) -> u64) -> impl Fn(u64, u64, u64) -> u64 {
    move |a, b, _| f(a, b)
}

fn smin(a: u32, b: u32) -> u32 {
    (a as i32).min(b as i32) as u32
}

fn smax(a: u32, b: u32) -> u32 {
    (a as i32).max(b as i32) as u32
}

fn and(a: u32, b: u32) -> u32 {
    a & b
}

fn or(a: u32, b: u32) -> u32 {
    a | b
}

fn xor(a: u32, b: u32) -> u32 {
    a ^ b
}

fn cond_sub(a: u32, b: u32) -> u32 {
    if a >= b { a - b } else { a }
}

fn swap(_: u64, b: u64, _: u64) -> u64 {
    b
}

fn compare(a: u64, new: u64, expected: u64) -> u64 {
    if a == expected { new } else { a }
}

macro_rules! with_atomics {
    ($p:literal) => {
        moves!(
            $p,
            [
                r(concat!($p, "atomic_swap_b32"), 51, 51, |w, i, g| atomic(w, i, g, false, 1, swap)),
                r(concat!($p, "atomic_cmpswap_b32"), 52, 52, |w, i, g| atomic(w, i, g, false, 2, compare)),
                r(concat!($p, "atomic_add_u32"), 53, 53, |w, i, g| atomic(
                    w,
                    i,
                    g,
                    false,
                    1,
                    low(u32::wrapping_add)
                )),
                r(concat!($p, "atomic_sub_u32"), 54, 54, |w, i, g| atomic(
                    w,
                    i,
                    g,
                    false,
                    1,
                    low(u32::wrapping_sub)
                )),
                r(concat!($p, "atomic_csub_u32"), 55, NO, |w, i, g| atomic(
                    w,
                    i,
                    g,
                    false,
                    1,
                    low(u32::saturating_sub)
                )),
                r(concat!($p, "atomic_sub_clamp_u32"), NO, 55, |w, i, g| {
                    atomic(w, i, g, false, 1, low(u32::saturating_sub))
                }),
                r(concat!($p, "atomic_min_i32"), 56, 56, |w, i, g| atomic(w, i, g, false, 1, low(smin))),
                r(concat!($p, "atomic_min_u32"), 57, 57, |w, i, g| atomic(w, i, g, false, 1, low(u32::min))),
                r(concat!($p, "atomic_max_i32"), 58, 58, |w, i, g| atomic(w, i, g, false, 1, low(smax))),
                r(concat!($p, "atomic_max_u32"), 59, 59, |w, i, g| atomic(w, i, g, false, 1, low(u32::max))),
                r(concat!($p, "atomic_and_b32"), 60, 60, |w, i, g| atomic(w, i, g, false, 1, low(and))),
                r(concat!($p, "atomic_or_b32"), 61, 61, |w, i, g| atomic(w, i, g, false, 1, low(or))),
                r(concat!($p, "atomic_xor_b32"), 62, 62, |w, i, g| atomic(w, i, g, false, 1, low(xor))),
                r(concat!($p, "atomic_inc_u32"), 63, 63, |w, i, g| atomic(w, i, g, false, 1, inc)),
                r(concat!($p, "atomic_dec_u32"), 64, 64, |w, i, g| atomic(w, i, g, false, 1, dec)),
                r(concat!($p, "atomic_swap_b64"), 65, 65, |w, i, g| atomic(w, i, g, true, 1, swap)),
                r(concat!($p, "atomic_cmpswap_b64"), 66, 66, |w, i, g| atomic(w, i, g, true, 2, compare)),
                r(concat!($p, "atomic_add_u64"), 67, 67, |w, i, g| atomic(
                    w,
                    i,
                    g,
                    true,
                    1,
                    wide(u64::wrapping_add)
                )),
                r(concat!($p, "atomic_sub_u64"), 68, 68, |w, i, g| atomic(
                    w,
                    i,
                    g,
                    true,
                    1,
                    wide(u64::wrapping_sub)
                )),
                r(concat!($p, "atomic_min_u64"), 70, 70, |w, i, g| atomic(w, i, g, true, 1, wide(u64::min))),
                r(concat!($p, "atomic_max_u64"), 72, 72, |w, i, g| atomic(w, i, g, true, 1, wide(u64::max))),
                r(concat!($p, "atomic_and_b64"), 73, 73, |w, i, g| atomic(
                    w,
                    i,
                    g,
                    true,
                    1,
                    wide(|a, b| a & b)
                )),
                r(concat!($p, "atomic_or_b64"), 74, 74, |w, i, g| atomic(
                    w,
                    i,
                    g,
                    true,
                    1,
                    wide(|a, b| a | b)
                )),
                r(concat!($p, "atomic_xor_b64"), 75, 75, |w, i, g| atomic(
                    w,
                    i,
                    g,
                    true,
                    1,
                    wide(|a, b| a ^ b)
                )),
                r(concat!($p, "atomic_cond_sub_u32"), NO, 80, |w, i, g| atomic(
                    w,
                    i,
                    g,
                    false,
                    1,
                    low(cond_sub)
                )),
                r(concat!($p, "atomic_min_f32"), 81, NO, |w, i, g| atomic(w, i, g, false, 1, float(min_f32))),
                r(concat!($p, "atomic_max_f32"), 82, NO, |w, i, g| atomic(w, i, g, false, 1, float(max_f32))),
                r(concat!($p, "atomic_min_num_f32"), NO, 81, |w, i, g| atomic(
                    w,
                    i,
                    g,
                    false,
                    1,
                    float(min_num_f32)
                )),
                r(concat!($p, "atomic_max_num_f32"), NO, 82, |w, i, g| atomic(
                    w,
                    i,
                    g,
                    false,
                    1,
                    float(max_num_f32)
                )),
                r(concat!($p, "atomic_add_f32"), 86, 86, |w, i, g| atomic(
                    w,
                    i,
                    g,
                    false,
                    1,
                    float(|a, b| a + b)
                )),
                r(concat!($p, "atomic_pk_add_f16"), NO, 89, |w, i, g| atomic(
                    w,
                    i,
                    g,
                    false,
                    1,
                    packed(h2f, f2h)
                )),
                r(concat!($p, "atomic_pk_add_bf16"), NO, 90, |w, i, g| atomic(
                    w,
                    i,
                    g,
                    false,
                    1,
                    packed(b2f, f2b)
                ))
            ]
        )
    };
}

pub(super) static FLAT: &[Row] = with_atomics!("flat_");
pub(super) static GLOBAL: &[Row] = with_atomics!("global_");
pub(super) static BUFFER: &[Row] = with_atomics!("buffer_");
pub(super) static SCRATCH: &[Row] = moves!("scratch_", []);

pub(super) static GLOBAL_ONLY: &[Row] = &[
    refused("global_load_addtid_b32", 40, 40),
    refused("global_store_addtid_b32", 41, 41),
    r("global_inv", NO, 43, nop),
    r("global_wb", NO, 44, nop),
    r("global_wbinv", NO, 79, nop),
    refused("global_load_block", NO, 83),
    refused("global_store_block", NO, 84),
    refused("global_load_tr_b128", NO, 87),
    refused("global_load_tr_b64", NO, 88),
];

pub(super) static BUFFER_ONLY: &[Row] = &[
    refused("buffer_load_format_x", 0, 0),
    refused("buffer_load_format_xyzw", 3, 3),
    refused("buffer_store_format_x", 4, 4),
    refused("buffer_store_format_xyzw", 7, 7),
    r("buffer_gl0_inv", 43, NO, nop),
    r("buffer_gl1_inv", 44, NO, nop),
];
