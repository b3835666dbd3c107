//! Instructions that only the long vector encoding has.

use super::{h, r, refused};
use crate::{
    exec::{
        Flow,
        group::Group,
        lane::{permlane16, permlane16_var, readlane, writelane},
        valu::{div_fmas, div_scale},
        wave::{Wave, Wide},
    },
    inst::{
        D16, Inst, NO, Row,
        mods::{DPP, OUT, SEL_D, signs},
    },
    numeric::{
        d2h, div_fixup, flush, h2f, ldexp, ldexp64, max_mode, max_mode64, max_num, maximum, med3, min_mode,
        min_mode64, min_num, minimum,
    },
};

fn i24(x: u32) -> i32 {
    (x << 8) as i32 >> 8
}

fn u24(x: u32) -> u32 {
    x & 0xff_ffff
}

fn bfe_u(a: u32, b: u32, c: u32) -> u32 {
    a >> (b & 31) & ((1 << (c & 31)) - 1)
}

/// The field is cut out of the value shifted arithmetically, so one beyond bit 31 repeats the sign.
fn bfe_i(a: u32, b: u32, c: u32) -> u32 {
    let width = c & 31;
    let shifted = a as i32 >> (b & 31);
    if width == 0 { 0 } else { (shifted << (32 - width) >> (32 - width)) as u32 }
}

/// Byte `sel` of {S0, S1}, a sign, 0 or 0xff.
fn perm_byte(data: u64, sel: u32) -> u32 {
    let sign = |byte: u32| if data >> (8 * byte + 7) & 1 == 1 { 0xff } else { 0 };
    match sel & 0xff {
        0..=7 => (data >> (8 * (sel & 7))) as u32 & 0xff,
        8 => sign(1),
        9 => sign(3),
        10 => sign(5),
        11 => sign(7),
        12 => 0,
        _ => 0xff,
    }
}

fn perm(a: u32, b: u32, sel: u32) -> u32 {
    let data = u64::from(a) << 32 | u64::from(b);
    (0..4).fold(0, |m, n| m | perm_byte(data, sel >> (8 * n)) << (8 * n))
}

fn both(a: u32, b: u32) -> u64 {
    u64::from(a) << 32 | u64::from(b)
}

fn med3_i(a: i32, b: i32, c: i32) -> i32 {
    a.max(b).min(a.min(b).max(c))
}

fn med3_u(a: u32, b: u32, c: u32) -> u32 {
    a.max(b).min(a.min(b).max(c))
}

fn sad_u8(a: u32, b: u32) -> u32 {
    (0..4).map(|n| (a >> (8 * n) & 255).abs_diff(b >> (8 * n) & 255)).sum()
}

fn msad_u8(a: u32, b: u32) -> u32 {
    let byte = |x: u32, n: u32| x >> (8 * n) & 255;
    (0..4).filter(|&n| byte(b, n) != 0).map(|n| byte(a, n).abs_diff(byte(b, n))).sum()
}

fn sad_u16(a: u32, b: u32) -> u32 {
    (a & 0xffff).abs_diff(b & 0xffff) + (a >> 16).abs_diff(b >> 16)
}

fn lerp(a: u32, b: u32, c: u32) -> u32 {
    (0..4).fold(0, |m, n| {
        let s = 8 * n;
        m | (((a >> s & 255) + (b >> s & 255) + (c >> s & 1)) >> 1) << s
    })
}

/// f32 to an 8-bit unsigned, saturating; nearest even.
fn f2u8(x: f32) -> u32 {
    x.round_ties_even().clamp(0.0, 255.0) as u32
}

pub(super) fn norm_i16(x: f32) -> u32 {
    (f64::from(x).clamp(-1.0, 1.0) * 32767.0).round_ties_even() as i16 as u16 as u32
}

pub(super) fn norm_u16(x: f32) -> u32 {
    (f64::from(x).clamp(0.0, 1.0) * 65535.0).round_ties_even() as u16 as u32
}

fn i16_of(x: f32) -> u32 {
    x as i16 as u16 as u32
}

fn u16_of(x: f32) -> u32 {
    x as u16 as u32
}

fn low16(lo: u32, hi: u32) -> u32 {
    lo & 0xffff | hi << 16
}

fn mul_dx9_fma(a: f32, b: f32, c: f32) -> f32 {
    if a == 0.0 || b == 0.0 { c } else { a.mul_add(b, c) }
}

fn add_sat(a: u32, b: u32) -> u32 {
    (a as i32).saturating_add(b as i32) as u32
}

fn sub_sat(a: u32, b: u32) -> u32 {
    (a as i32).saturating_sub(b as i32) as u32
}

/// A transcendental with a scalar result.
macro_rules! scalar_trans {
    ($f:expr) => {
        |w, i, _| {
            let f: fn(f64) -> f64 = $f;
            w.sf1(i, |x| flush(f(flush(x).into()) as f32))
        }
    };
}

pub(super) static VOP3: &[Row] = &[
    r("v_fma_dx9_zero_f32", 0x209, 0x209, |w, i, _| w.f3(i, mul_dx9_fma)),
    r("v_mad_i32_i24", 0x20a, 0x20a, |w, i, _| {
        w.u3(i, |a, b, c| (i24(a).wrapping_mul(i24(b)) as u32).wrapping_add(c))
    }),
    r("v_mad_u32_u24", 0x20b, 0x20b, |w, i, _| {
        w.u3(i, |a, b, c| u24(a).wrapping_mul(u24(b)).wrapping_add(c))
    }),
    refused("v_cubeid_f32", 0x20c, 0x20c),
    refused("v_cubesc_f32", 0x20d, 0x20d),
    refused("v_cubetc_f32", 0x20e, 0x20e),
    refused("v_cubema_f32", 0x20f, 0x20f),
    r("v_bfe_u32", 0x210, 0x210, |w, i, _| w.u3(i, bfe_u)),
    r("v_bfe_i32", 0x211, 0x211, |w, i, _| w.u3(i, bfe_i)),
    r("v_bfi_b32", 0x212, 0x212, |w, i, _| w.u3(i, |a, b, c| a & b | !a & c)),
    r("v_fma_f32", 0x213, 0x213, |w, i, _| w.fma(i)),
    r("v_lerp_u8", 0x215, 0x215, |w, i, _| w.u3(i, lerp)),
    r("v_alignbit_b32", 0x216, 0x216, |w, i, _| w.u3(i, |a, b, c| (both(a, b) >> (c & 31)) as u32)),
    r("v_alignbyte_b32", 0x217, 0x217, |w, i, _| w.u3(i, |a, b, c| (both(a, b) >> (8 * (c & 3))) as u32)),
    refused("v_mullit_f32", 0x218, 0x218),
    r("v_min3_f32", 0x219, NO, |w, i, _| {
        let min = min_mode(w.ieee());
        w.f3(i, |a, b, c| min(min(a, b), c))
    }),
    r("v_min3_num_f32", NO, 0x229, |w, i, _| w.f3(i, |a, b, c| min_num(min_num(a, b), c))),
    r("v_min3_i32", 0x21a, 0x21a, |w, i, _| w.u3(i, |a, b, c| (a as i32).min(b as i32).min(c as i32) as u32)),
    r("v_min3_u32", 0x21b, 0x21b, |w, i, _| w.u3(i, |a, b, c| a.min(b).min(c))),
    r("v_max3_f32", 0x21c, NO, |w, i, _| {
        let max = max_mode(w.ieee());
        w.f3(i, |a, b, c| max(max(a, b), c))
    }),
    r("v_max3_num_f32", NO, 0x22a, |w, i, _| w.f3(i, |a, b, c| max_num(max_num(a, b), c))),
    r("v_max3_i32", 0x21d, 0x21d, |w, i, _| w.u3(i, |a, b, c| (a as i32).max(b as i32).max(c as i32) as u32)),
    r("v_max3_u32", 0x21e, 0x21e, |w, i, _| w.u3(i, |a, b, c| a.max(b).max(c))),
    r("v_med3_f32", 0x21f, NO, |w, i, _| {
        let min = min_mode(w.ieee());
        w.f3(i, |a, b, c| med3(&min, a, b, c))
    }),
    r("v_med3_num_f32", NO, 0x231, |w, i, _| w.f3(i, |a, b, c| med3(min_num, a, b, c))),
    r("v_med3_i32", 0x220, 0x220, |w, i, _| w.u3(i, |a, b, c| med3_i(a as i32, b as i32, c as i32) as u32)),
    r("v_med3_u32", 0x221, 0x221, |w, i, _| w.u3(i, med3_u)),
    r("v_sad_u8", 0x222, 0x222, |w, i, _| w.u3(i, |a, b, c| c.wrapping_add(sad_u8(a, b)))),
    r("v_sad_hi_u8", 0x223, 0x223, |w, i, _| w.u3(i, |a, b, c| c.wrapping_add(sad_u8(a, b) << 16))),
    r("v_sad_u16", 0x224, 0x224, |w, i, _| w.u3(i, |a, b, c| c.wrapping_add(sad_u16(a, b)))),
    r("v_sad_u32", 0x225, 0x225, |w, i, _| w.u3(i, |a, b, c| c.wrapping_add(a.abs_diff(b)))),
    r("v_cvt_pk_u8_f32", 0x226, 0x226, |w, i, _| {
        i.only(signs(1) | DPP)?;
        let (x, n, c) = (w.f32s(i, 0), w.lanes(i, 1), w.lanes(i, 2));
        let r = std::array::from_fn(|l| {
            let s = 8 * (n[l] & 3);
            c[l] & !(255 << s) | f2u8(x[l]) << s
        });
        w.put(i.dst, w.mask(i), w.defined_all(i, 3), &r);
        Ok(())
    }),
    r("v_div_fixup_f32", 0x227, 0x227, |w, i, _| w.f3(i, div_fixup)),
    r("v_div_fmas_f32", 0x237, 0x237, div_fmas),
    r("v_msad_u8", 0x239, 0x239, |w, i, _| w.u3(i, |a, b, c| c.wrapping_add(msad_u8(a, b)))),
    refused("v_qsad_pk_u16_u8", 0x23a, 0x23a),
    refused("v_mqsad_pk_u16_u8", 0x23b, 0x23b),
    refused("v_mqsad_u32_u8", 0x23d, 0x23d),
    r("v_xor3_b32", 0x240, 0x240, |w, i, _| w.u3(i, |a, b, c| a ^ b ^ c)),
    r("v_perm_b32", 0x244, 0x244, |w, i, _| w.u3(i, perm)),
    r("v_xad_u32", 0x245, 0x245, |w, i, _| w.u3(i, |a, b, c| (a ^ b).wrapping_add(c))),
    r("v_lshl_add_u32", 0x246, 0x246, |w, i, _| w.u3(i, |a, b, c| (a << (b & 31)).wrapping_add(c))),
    r("v_add_lshl_u32", 0x247, 0x247, |w, i, _| w.u3(i, |a, b, c| a.wrapping_add(b) << (c & 31))),
    r("v_add3_u32", 0x255, 0x255, |w, i, _| w.u3(i, |a, b, c| a.wrapping_add(b).wrapping_add(c))),
    r("v_lshl_or_b32", 0x256, 0x256, |w, i, _| w.u3(i, |a, b, c| a << (b & 31) | c)),
    r("v_and_or_b32", 0x257, 0x257, |w, i, _| w.u3(i, |a, b, c| a & b | c)),
    r("v_or3_b32", 0x258, 0x258, |w, i, _| w.u3(i, |a, b, c| a | b | c)),
    r("v_permlane16_b32", 0x25b, 0x25b, |w, i, _| permlane16(w, i, false)),
    r("v_permlanex16_b32", 0x25c, 0x25c, |w, i, _| permlane16(w, i, true)),
    r("v_permlane16_var_b32", NO, 0x30f, |w, i, _| permlane16_var(w, i, false)),
    r("v_permlanex16_var_b32", NO, 0x310, |w, i, _| permlane16_var(w, i, true)),
    r("v_maxmin_f32", 0x25e, NO, |w, i, _| {
        let (min, max) = (min_mode(w.ieee()), max_mode(w.ieee()));
        w.f3(i, |a, b, c| min(max(a, b), c))
    }),
    r("v_minmax_f32", 0x25f, NO, |w, i, _| {
        let (min, max) = (min_mode(w.ieee()), max_mode(w.ieee()));
        w.f3(i, |a, b, c| max(min(a, b), c))
    }),
    r("v_minmax_num_f32", NO, 0x268, |w, i, _| w.f3(i, |a, b, c| max_num(min_num(a, b), c))),
    r("v_maxmin_num_f32", NO, 0x269, |w, i, _| w.f3(i, |a, b, c| min_num(max_num(a, b), c))),
    r("v_maxmin_u32", 0x262, 0x262, |w, i, _| w.u3(i, |a, b, c| a.max(b).min(c))),
    r("v_minmax_u32", 0x263, 0x263, |w, i, _| w.u3(i, |a, b, c| a.min(b).max(c))),
    r("v_maxmin_i32", 0x264, 0x264, |w, i, _| {
        w.u3(i, |a, b, c| (a as i32).max(b as i32).min(c as i32) as u32)
    }),
    r("v_minmax_i32", 0x265, 0x265, |w, i, _| {
        w.u3(i, |a, b, c| (a as i32).min(b as i32).max(c as i32) as u32)
    }),
    r("v_minimum3_f32", NO, 0x22d, |w, i, _| w.f3(i, |a, b, c| minimum(minimum(a, b), c))),
    r("v_maximum3_f32", NO, 0x22e, |w, i, _| w.f3(i, |a, b, c| maximum(maximum(a, b), c))),
    r("v_minimummaximum_f32", NO, 0x26c, |w, i, _| w.f3(i, |a, b, c| maximum(minimum(a, b), c))),
    r("v_maximumminimum_f32", NO, 0x26d, |w, i, _| w.f3(i, |a, b, c| minimum(maximum(a, b), c))),
    r("v_s_exp_f32", NO, 0x280, scalar_trans!(f64::exp2)),
    r("v_s_log_f32", NO, 0x282, scalar_trans!(f64::log2)),
    r("v_s_rcp_f32", NO, 0x284, scalar_trans!(|x| 1.0 / x)),
    r("v_s_rsq_f32", NO, 0x286, scalar_trans!(|x| 1.0 / x.sqrt())),
    r("v_s_sqrt_f32", NO, 0x288, scalar_trans!(f64::sqrt)),
    r("v_div_scale_f32", 0x2fc, 0x2fc, div_scale),
    r("v_add_co_u32", 0x300, 0x300, |w, i, _| w.carry(i, false, |a, b, _| a.overflowing_add(b))),
    r("v_sub_co_u32", 0x301, 0x301, |w, i, _| w.carry(i, false, |a, b, _| a.overflowing_sub(b))),
    r("v_subrev_co_u32", 0x302, 0x302, |w, i, _| w.carry(i, false, |a, b, _| b.overflowing_sub(a))),
    r("v_cvt_pk_i16_f32", 0x306, 0x306, |w, i, _| w.f2u(i, |a, b| low16(i16_of(a), i16_of(b)))),
    r("v_cvt_pk_u16_f32", 0x307, 0x307, |w, i, _| w.f2u(i, |a, b| low16(u16_of(a), u16_of(b)))),
    r("v_ldexp_f32", 0x31c, 0x31c, |w, i, _| {
        i.only(signs(1) | OUT | DPP)?;
        let (x, e) = (w.f32s(i, 0), w.lanes(i, 1));
        let r = std::array::from_fn(|l| ldexp(x[l], e[l] as i32));
        w.put_f32(i, w.defined_all(i, 2), r);
        Ok(())
    }),
    r("v_bfm_b32", 0x31d, 0x31d, |w, i, _| w.u2(i, |a, b| ((1 << (a & 31)) - 1) << (b & 31))),
    r("v_bcnt_u32_b32", 0x31e, 0x31e, |w, i, _| w.u2(i, |a, b| a.count_ones().wrapping_add(b))),
    r("v_mbcnt_lo_u32_b32", 0x31f, 0x31f, |w, i, _| {
        i.only(DPP)?;
        let (a, b) = (w.lanes(i, 0), w.lanes(i, 1));
        let r = std::array::from_fn(|l| (a[l] & ((1 << l) - 1)).count_ones().wrapping_add(b[l]));
        w.put(i.dst, w.mask(i), w.defined_all(i, 2), &r);
        Ok(())
    }),
    // A wave of 32 has no lanes that the upper mask would count.
    r("v_mbcnt_hi_u32_b32", 0x320, 0x320, |w, i, _| w.u2(i, |_, b| b)),
    r("v_cvt_pk_norm_i16_f32", 0x321, 0x321, |w, i, _| w.f2u(i, |a, b| low16(norm_i16(a), norm_i16(b)))),
    r("v_cvt_pk_norm_u16_f32", 0x322, 0x322, |w, i, _| w.f2u(i, |a, b| low16(norm_u16(a), norm_u16(b)))),
    r("v_cvt_pk_u16_u32", 0x323, 0x323, |w, i, _| w.u2(i, |a, b| low16(a.min(0xffff), b.min(0xffff)))),
    r("v_cvt_pk_i16_i32", 0x324, 0x324, |w, i, _| {
        let clamp = |x: u32| (x as i32).clamp(-32768, 32767) as u32;
        w.u2(i, |a, b| low16(clamp(a), clamp(b)))
    }),
    r("v_sub_nc_i32", 0x325, 0x325, |w, i, _| w.u2sat(i, u32::wrapping_sub, sub_sat)),
    r("v_add_nc_i32", 0x326, 0x326, |w, i, _| w.u2sat(i, u32::wrapping_add, add_sat)),
    r("v_mul_lo_u32", 0x32c, 0x32c, |w, i, _| w.u2(i, u32::wrapping_mul)),
    r("v_mul_hi_u32", 0x32d, 0x32d, |w, i, _| w.u2(i, |a, b| ((u64::from(a) * u64::from(b)) >> 32) as u32)),
    r("v_mul_hi_i32", 0x32e, 0x32e, |w, i, _| {
        w.u2(i, |a, b| ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32)
    }),
    r("v_readlane_b32", 0x360, 0x360, readlane),
    r("v_writelane_b32", 0x361, 0x361, writelane),
    r("v_minimum_f32", NO, 0x365, |w, i, _| w.f2(i, minimum)),
    r("v_maximum_f32", NO, 0x366, |w, i, _| w.f2(i, maximum)),
    refused("v_cvt_pk_fp8_f32", NO, 0x369),
    refused("v_cvt_pk_bf8_f32", NO, 0x36a),
    refused("v_cvt_sr_fp8_f32", NO, 0x36b),
    refused("v_cvt_sr_bf8_f32", NO, 0x36c),
];

const ALL2: u8 = 3 | D16;
const ALL3: u8 = 7 | D16;

/// The bits of half source n with its modifiers, no subnormal lost.
fn signed_half(w: &Wave, i: &Inst, n: usize) -> [u16; 32] {
    let (clear, flip) = (u16::from(i.abs >> n & 1) << 15, u16::from(i.neg >> n & 1) << 15);
    w.half(i, n, true).map(|x| x & !clear ^ flip)
}

pub(super) fn add_sat16(a: u16, b: u16) -> u16 {
    (a as i16).saturating_add(b as i16) as u16
}

pub(super) fn sub_sat16(a: u16, b: u16) -> u16 {
    (a as i16).saturating_sub(b as i16) as u16
}

fn med3_w(a: i32, b: i32, c: i32) -> u16 {
    med3_i(a, b, c) as u16
}

fn s(x: u16) -> i32 {
    (x as i16).into()
}

pub(super) static HALF: &[Row] = &[
    h("v_mad_u16", 0x241, 0x241, ALL3, |w, i, _| w.w3(i, |a, b, c| a.wrapping_mul(b).wrapping_add(c))),
    h("v_mad_i16", 0x253, 0x253, ALL3, |w, i, _| w.w3(i, |a, b, c| a.wrapping_mul(b).wrapping_add(c))),
    h("v_fma_f16", 0x248, 0x248, ALL3, |w, i, _| w.hfma(i, false)),
    h("v_min3_f16", 0x249, NO, ALL3, |w, i, _| {
        let min = min_mode(w.ieee());
        w.h3(i, |a, b, c| min(min(a, b), c))
    }),
    h("v_min3_num_f16", NO, 0x22b, ALL3, |w, i, _| w.h3(i, |a, b, c| min_num(min_num(a, b), c))),
    h("v_min3_i16", 0x24a, 0x24a, ALL3, |w, i, _| w.w3(i, |a, b, c| s(a).min(s(b)).min(s(c)) as u16)),
    h("v_min3_u16", 0x24b, 0x24b, ALL3, |w, i, _| w.w3(i, |a, b, c| a.min(b).min(c))),
    h("v_max3_f16", 0x24c, NO, ALL3, |w, i, _| {
        let max = max_mode(w.ieee());
        w.h3(i, |a, b, c| max(max(a, b), c))
    }),
    h("v_max3_num_f16", NO, 0x22c, ALL3, |w, i, _| w.h3(i, |a, b, c| max_num(max_num(a, b), c))),
    h("v_max3_i16", 0x24d, 0x24d, ALL3, |w, i, _| w.w3(i, |a, b, c| s(a).max(s(b)).max(s(c)) as u16)),
    h("v_max3_u16", 0x24e, 0x24e, ALL3, |w, i, _| w.w3(i, |a, b, c| a.max(b).max(c))),
    h("v_med3_f16", 0x24f, NO, ALL3, |w, i, _| {
        let min = min_mode(w.ieee());
        w.h3(i, |a, b, c| med3(&min, a, b, c))
    }),
    h("v_med3_num_f16", NO, 0x232, ALL3, |w, i, _| w.h3(i, |a, b, c| med3(min_num, a, b, c))),
    h("v_med3_i16", 0x250, 0x250, ALL3, |w, i, _| w.w3(i, |a, b, c| med3_w(s(a), s(b), s(c)))),
    h("v_med3_u16", 0x251, 0x251, ALL3, |w, i, _| w.w3(i, |a, b, c| med3_w(a.into(), b.into(), c.into()))),
    refused("v_div_fixup_f16", 0x254, 0x254),
    h("v_mad_u32_u16", 0x259, 0x259, 3, |w, i, _| {
        i.only16(2, false, DPP)?;
        let (a, b, c) = (w.half(i, 0, false), w.half(i, 1, false), w.lanes(i, 2));
        let r = std::array::from_fn(|l| (u32::from(a[l]) * u32::from(b[l])).wrapping_add(c[l]));
        w.put(i.dst, w.mask(i), w.defined_all(i, 3), &r);
        Ok(())
    }),
    h("v_mad_i32_i16", 0x25a, 0x25a, 3, |w, i, _| {
        i.only16(2, false, DPP)?;
        let (a, b, c) = (w.half(i, 0, false), w.half(i, 1, false), w.lanes(i, 2));
        let r = std::array::from_fn(|l| ((s(a[l]) * s(b[l])) as u32).wrapping_add(c[l]));
        w.put(i.dst, w.mask(i), w.defined_all(i, 3), &r);
        Ok(())
    }),
    h("v_cndmask_b16", 0x25d, 0x25d, 3 | D16, |w, i, _| {
        i.only16(2, true, signs(2) | SEL_D | DPP)?;
        let (a, b, m) = (signed_half(w, i, 0), signed_half(w, i, 1), w.s32(i.src[2]));
        let r = std::array::from_fn(|l| if m >> l & 1 == 1 { b[l] } else { a[l] });
        let ok = w.defined(i, 0) & !m | w.defined(i, 1) & m;
        w.put_half(i, ok, &r);
        Ok(())
    }),
    h("v_maxmin_f16", 0x260, NO, ALL3, |w, i, _| {
        let (min, max) = (min_mode(w.ieee()), max_mode(w.ieee()));
        w.h3(i, |a, b, c| min(max(a, b), c))
    }),
    h("v_minmax_f16", 0x261, NO, ALL3, |w, i, _| {
        let (min, max) = (min_mode(w.ieee()), max_mode(w.ieee()));
        w.h3(i, |a, b, c| max(min(a, b), c))
    }),
    h("v_minmax_num_f16", NO, 0x26a, ALL3, |w, i, _| w.h3(i, |a, b, c| max_num(min_num(a, b), c))),
    h("v_maxmin_num_f16", NO, 0x26b, ALL3, |w, i, _| w.h3(i, |a, b, c| min_num(max_num(a, b), c))),
    refused("v_dot2_f16_f16", 0x266, 0x266),
    refused("v_dot2_bf16_bf16", 0x267, 0x267),
    h("v_add_nc_u16", 0x303, 0x303, ALL2, |w, i, _| w.w2sat(i, u16::wrapping_add, u16::saturating_add)),
    h("v_sub_nc_u16", 0x304, 0x304, ALL2, |w, i, _| w.w2sat(i, u16::wrapping_sub, u16::saturating_sub)),
    h("v_mul_lo_u16", 0x305, 0x305, ALL2, |w, i, _| w.w2(i, u16::wrapping_mul)),
    h("v_max_u16", 0x309, 0x309, ALL2, |w, i, _| w.w2(i, u16::max)),
    h("v_max_i16", 0x30a, 0x30a, ALL2, |w, i, _| w.w2(i, |a, b| s(a).max(s(b)) as u16)),
    h("v_min_u16", 0x30b, 0x30b, ALL2, |w, i, _| w.w2(i, u16::min)),
    h("v_min_i16", 0x30c, 0x30c, ALL2, |w, i, _| w.w2(i, |a, b| s(a).min(s(b)) as u16)),
    h("v_add_nc_i16", 0x30d, 0x30d, ALL2, |w, i, _| w.w2sat(i, u16::wrapping_add, add_sat16)),
    h("v_sub_nc_i16", 0x30e, 0x30e, ALL2, |w, i, _| w.w2sat(i, u16::wrapping_sub, sub_sat16)),
    h("v_pack_b32_f16", 0x311, 0x311, 3, |w, i, _| {
        i.only16(2, true, signs(2) | DPP)?;
        let (a, b) = (signed_half(w, i, 0), signed_half(w, i, 1));
        let r = std::array::from_fn(|l| low16(a[l].into(), b[l].into()));
        w.put(i.dst, w.mask(i), w.defined_all(i, 2), &r);
        Ok(())
    }),
    h("v_cvt_pk_norm_i16_f16", 0x312, 0x312, 3, |w, i, _| {
        i.only16(2, true, signs(2) | DPP)?;
        let (a, b) = (w.hs(i, 0), w.hs(i, 1));
        let r = std::array::from_fn(|l| low16(norm_i16(a[l]), norm_i16(b[l])));
        w.put(i.dst, w.mask(i), w.defined_all(i, 2), &r);
        Ok(())
    }),
    h("v_cvt_pk_norm_u16_f16", 0x313, 0x313, 3, |w, i, _| {
        i.only16(2, true, signs(2) | DPP)?;
        let (a, b) = (w.hs(i, 0), w.hs(i, 1));
        let r = std::array::from_fn(|l| low16(norm_u16(a[l]), norm_u16(b[l])));
        w.put(i.dst, w.mask(i), w.defined_all(i, 2), &r);
        Ok(())
    }),
    h("v_lshlrev_b16", 0x338, 0x338, ALL2, |w, i, _| w.w2(i, |a, b| b << (a & 15))),
    h("v_lshrrev_b16", 0x339, 0x339, ALL2, |w, i, _| w.w2(i, |a, b| b >> (a & 15))),
    h("v_ashrrev_i16", 0x33a, 0x33a, ALL2, |w, i, _| w.w2(i, |a, b| (b as i16 >> (a & 15)) as u16)),
    h("v_and_b16", 0x362, 0x362, ALL2, |w, i, _| w.w2(i, |a, b| a & b)),
    h("v_or_b16", 0x363, 0x363, ALL2, |w, i, _| w.w2(i, |a, b| a | b)),
    h("v_xor_b16", 0x364, 0x364, ALL2, |w, i, _| w.w2(i, |a, b| a ^ b)),
    h("v_minimum_f16", NO, 0x367, ALL2, |w, i, _| w.h2(i, minimum)),
    h("v_maximum_f16", NO, 0x368, ALL2, |w, i, _| w.h2(i, maximum)),
    h("v_minimum3_f16", NO, 0x22f, ALL3, |w, i, _| w.h3(i, |a, b, c| minimum(minimum(a, b), c))),
    h("v_maximum3_f16", NO, 0x230, ALL3, |w, i, _| w.h3(i, |a, b, c| maximum(maximum(a, b), c))),
    h("v_minimummaximum_f16", NO, 0x26e, ALL3, |w, i, _| w.h3(i, |a, b, c| maximum(minimum(a, b), c))),
    h("v_maximumminimum_f16", NO, 0x26f, ALL3, |w, i, _| w.h3(i, |a, b, c| minimum(maximum(a, b), c))),
    h("v_s_exp_f16", NO, 0x281, 0, scalar_half),
    h("v_s_log_f16", NO, 0x283, 0, scalar_half),
    h("v_s_rcp_f16", NO, 0x285, 0, scalar_half),
    h("v_s_rsq_f16", NO, 0x287, 0, scalar_half),
    h("v_s_sqrt_f16", NO, 0x289, 0, scalar_half),
];

/// V_S_{EXP,LOG,RCP,RSQ,SQRT}_F16.
fn scalar_half(w: &mut Wave, i: &Inst, _: &mut Group<'_>) -> Flow {
    let f: fn(f64) -> f64 = match i.row.name {
        "v_s_exp_f16" => f64::exp2,
        "v_s_log_f16" => f64::log2,
        "v_s_rcp_f16" => f64::recip,
        "v_s_rsq_f16" => |x| 1.0 / x.sqrt(),
        _ => f64::sqrt,
    };
    w.sh1(i, |x| h2f(d2h(f(x.into()))))
}

pub(super) static WIDE: &[Row] = &[
    r("v_fma_f64", 0x214, 0x214, |w, i, _| w.d(i, 3, |[a, b, c]| a.mul_add(b, c))),
    refused("v_div_fixup_f64", 0x228, 0x228),
    refused("v_div_fmas_f64", 0x238, 0x238),
    refused("v_div_scale_f64", 0x2fd, 0x2fd),
    r("v_mad_u64_u32", 0x2fe, NO, |w, i, _| w.mad64(i, Wide::Bits, mad_u)),
    r("v_mad_co_u64_u32", NO, 0x2fe, |w, i, _| w.mad64(i, Wide::Bits, mad_u)),
    r("v_mad_i64_i32", 0x2ff, NO, |w, i, _| w.mad64(i, Wide::Signed, mad_i)),
    r("v_mad_co_i64_i32", NO, 0x2ff, |w, i, _| w.mad64(i, Wide::Signed, mad_i)),
    r("v_add_f64", 0x327, NO, |w, i, _| w.d(i, 2, |[a, b, _]| a + b)),
    r("v_mul_f64", 0x328, NO, |w, i, _| w.d(i, 2, |[a, b, _]| a * b)),
    r("v_min_f64", 0x329, NO, |w, i, _| {
        let min = min_mode64(w.ieee());
        w.d(i, 2, |[a, b, _]| min(a, b))
    }),
    r("v_max_f64", 0x32a, NO, |w, i, _| {
        let max = max_mode64(w.ieee());
        w.d(i, 2, |[a, b, _]| max(a, b))
    }),
    r("v_ldexp_f64", 0x32b, 0x32b, |w, i, _| w.d_ldexp(i, ldexp64)),
    refused("v_trig_preop_f64", 0x32f, 0x32f),
    r("v_lshlrev_b64", 0x33c, NO, |w, i, _| w.shift64(i, Wide::Bits, |a, b| b << (a & 63))),
    r("v_lshrrev_b64", 0x33d, 0x33d, |w, i, _| w.shift64(i, Wide::Bits, |a, b| b >> (a & 63))),
    r("v_ashrrev_i64", 0x33e, 0x33e, |w, i, _| {
        w.shift64(i, Wide::Signed, |a, b| (b as i64 >> (a & 63)) as u64)
    }),
    refused("v_minimum_f64", NO, 0x341),
    refused("v_maximum_f64", NO, 0x342),
];

fn mad_u(a: u32, b: u32, c: u64) -> (u64, bool) {
    (u64::from(a) * u64::from(b)).overflowing_add(c)
}

fn mad_i(a: u32, b: u32, c: u64) -> (u64, bool) {
    let (s, o) = (i64::from(a as i32) * i64::from(b as i32)).overflowing_add(c as i64);
    (s as u64, o)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bit_fields_by_their_definition() {
        assert_eq!(bfe_u(0xabcd_1234, 8, 8), 0x12);
        assert_eq!(bfe_i(0x0000_8f00, 8, 8), 0xffff_ff8f);
        assert_eq!(bfe_i(0x0000_8f00, 8, 0), 0);
        assert_eq!(perm(0x7766_5544, 0x3322_1100, 0x0706_0100), 0x7766_1100);
        assert_eq!(perm(0x8000_0000, 0x0000_8000, 0x0d0c_0b08), 0xff00_ffff);
        assert_eq!(lerp(0x0102_03ff, 0x0304_0501, 0x0000_0001), 0x0203_0480);
        assert_eq!((sad_u8(0x0102_0304, 0x0403_0201), msad_u8(0x0102_0304, 0x0400_0201)), (8, 7));
        assert_eq!((med3_i(-5, 3, 9), med3_u(9, 1, 4)), (3, 4));
    }
}
