//! VOP1: one source. Opcodes are those of the long encoding, 0x180 + n.

use super::{
    h, r, refused,
    vop3::{norm_i16, norm_u16},
};
use crate::{
    exec::{
        lane::{readfirstlane, relative},
        nop,
        valu::swap,
    },
    inst::{
        D16, NO, Row,
        mods::{DPP, OUT, SEL, SEL_D, signs},
    },
    numeric::{bf8, exp2i, f2h, fp8, frexp64, h2f, quieted, turn},
};

/// 1 - 2^-24: fractions never reach 1.
const BELOW_ONE: f32 = 0.999_999_94;

fn fract(x: f32) -> f32 {
    let f = x - x.floor();
    if f > BELOW_ONE { BELOW_ONE } else { f }
}

fn cls(x: u32) -> u32 {
    let same = if (x as i32) < 0 { x.leading_ones() } else { x.leading_zeros() };
    if same == 32 { u32::MAX } else { same }
}

fn frexp_exp(x: f32) -> u32 {
    if x == 0.0 || !x.is_finite() { 0 } else { frexp64(x.into()).1 as u32 }
}

fn frexp_mant(x: f32) -> f32 {
    if x == 0.0 || !x.is_finite() { x } else { frexp64(x.into()).0 as f32 }
}

/// Correctly rounded: hardware is allowed one ulp.
fn through_f64(f: fn(f64) -> f64) -> impl Fn(f32) -> f32 {
    move |x| f(x.into()) as f32
}

fn sin_turn(x: f32) -> f32 {
    if x.is_finite() { turn(x).sin() as f32 } else { f32::NAN }
}

fn cos_turn(x: f32) -> f32 {
    if x.is_finite() { turn(x).cos() as f32 } else { f32::NAN }
}

fn sat_u8(x: u16) -> u16 {
    (x as i16).clamp(0, 255) as u16
}

/// Byte of S0 that OP_SEL names; the select bits are reversed.
fn byte(x: u32, opsel: u8) -> u8 {
    let n = (opsel & 1) << 1 | opsel >> 1 & 1;
    (x >> (8 * n)) as u8
}

macro_rules! vop {
    ($n:literal, $op:expr, $f:expr) => {
        r($n, 0x180 + $op, 0x180 + $op, $f)
    };
}

pub(super) static VOP1: &[Row] = &[
    vop!("v_nop", 0, nop),
    vop!("v_mov_b32", 1, |w, i, _| w.u1(i, |a| a)),
    vop!("v_readfirstlane_b32", 2, readfirstlane),
    vop!("v_cvt_i32_f64", 3, |w, i, _| w.d_to32(i, |x| x as i32 as u32)),
    vop!("v_cvt_f64_i32", 4, |w, i, _| w.d_from32(i, |x| (x as i32).into())),
    vop!("v_cvt_f32_i32", 5, |w, i, _| w.u1f(i, |a| a as i32 as f32)),
    vop!("v_cvt_f32_u32", 6, |w, i, _| w.u1f(i, |a| a as f32)),
    vop!("v_cvt_u32_f32", 7, |w, i, _| w.f1u(i, |a| a as u32)),
    vop!("v_cvt_i32_f32", 8, |w, i, _| w.f1u(i, |a| a as i32 as u32)),
    vop!("v_cvt_nearest_i32_f32", 12, |w, i, _| w.f1u(i, |a| (a + 0.5).floor() as i32 as u32)),
    vop!("v_cvt_floor_i32_f32", 13, |w, i, _| w.f1u(i, |a| a.floor() as i32 as u32)),
    vop!("v_cvt_off_f32_i4", 14, |w, i, _| { w.u1f(i, |a| ((a << 28) as i32 >> 28) as f32 * 0.0625) }),
    vop!("v_cvt_f32_f64", 15, |w, i, _| w.d_to_f32(i)),
    vop!("v_cvt_f64_f32", 16, |w, i, _| w.d_from_f32(i)),
    vop!("v_cvt_f32_ubyte0", 17, |w, i, _| w.u1f(i, |a| (a & 255) as f32)),
    vop!("v_cvt_f32_ubyte1", 18, |w, i, _| w.u1f(i, |a| (a >> 8 & 255) as f32)),
    vop!("v_cvt_f32_ubyte2", 19, |w, i, _| w.u1f(i, |a| (a >> 16 & 255) as f32)),
    vop!("v_cvt_f32_ubyte3", 20, |w, i, _| w.u1f(i, |a| (a >> 24) as f32)),
    vop!("v_cvt_u32_f64", 21, |w, i, _| w.d_to32(i, |x| x as u32)),
    vop!("v_cvt_f64_u32", 22, |w, i, _| w.d_from32(i, f64::from)),
    vop!("v_trunc_f64", 23, |w, i, _| w.d(i, 1, |[a, ..]| a.trunc())),
    vop!("v_ceil_f64", 24, |w, i, _| w.d(i, 1, |[a, ..]| a.ceil())),
    vop!("v_rndne_f64", 25, |w, i, _| w.d(i, 1, |[a, ..]| a.round_ties_even())),
    vop!("v_floor_f64", 26, |w, i, _| w.d(i, 1, |[a, ..]| a.floor())),
    vop!("v_pipeflush", 27, nop),
    vop!("v_fract_f32", 32, |w, i, _| w.f1(i, fract)),
    vop!("v_trunc_f32", 33, |w, i, _| w.f1(i, f32::trunc)),
    vop!("v_ceil_f32", 34, |w, i, _| w.f1(i, f32::ceil)),
    vop!("v_rndne_f32", 35, |w, i, _| w.f1(i, f32::round_ties_even)),
    vop!("v_floor_f32", 36, |w, i, _| w.f1(i, f32::floor)),
    vop!("v_exp_f32", 37, |w, i, _| w.trans(i, through_f64(f64::exp2))),
    vop!("v_log_f32", 39, |w, i, _| w.trans(i, through_f64(f64::log2))),
    vop!("v_rcp_f32", 42, |w, i, _| w.trans(i, |x| 1.0 / x)),
    vop!("v_rcp_iflag_f32", 43, |w, i, _| w.trans(i, |x| 1.0 / x)),
    vop!("v_rsq_f32", 46, |w, i, _| w.trans(i, through_f64(|x| 1.0 / x.sqrt()))),
    vop!("v_rcp_f64", 47, |w, i, _| w.d(i, 1, |[a, ..]| 1.0 / a)),
    vop!("v_rsq_f64", 49, |w, i, _| w.d(i, 1, |[a, ..]| 1.0 / a.sqrt())),
    vop!("v_sqrt_f32", 51, |w, i, _| w.trans(i, f32::sqrt)),
    vop!("v_sqrt_f64", 52, |w, i, _| w.d(i, 1, |[a, ..]| a.sqrt())),
    vop!("v_sin_f32", 53, |w, i, _| w.trans(i, sin_turn)),
    vop!("v_cos_f32", 54, |w, i, _| w.trans(i, cos_turn)),
    vop!("v_not_b32", 55, |w, i, _| w.u1(i, |a| !a)),
    vop!("v_bfrev_b32", 56, |w, i, _| w.u1(i, u32::reverse_bits)),
    vop!("v_clz_i32_u32", 57, |w, i, _| w.u1(i, |a| if a == 0 { u32::MAX } else { a.leading_zeros() })),
    vop!("v_ctz_i32_b32", 58, |w, i, _| w.u1(i, |a| if a == 0 { u32::MAX } else { a.trailing_zeros() })),
    vop!("v_cls_i32", 59, |w, i, _| w.u1(i, cls)),
    vop!("v_frexp_exp_i32_f64", 60, |w, i, _| {
        w.d_to32(i, |x| if x == 0.0 || !x.is_finite() { 0 } else { frexp64(x).1 as u32 })
    }),
    vop!("v_frexp_mant_f64", 61, |w, i, _| {
        w.d(i, 1, |[a, ..]| if a == 0.0 || !a.is_finite() { a } else { frexp64(a).0 })
    }),
    vop!("v_fract_f64", 62, |w, i, _| {
        w.d(i, 1, |[a, ..]| {
            let f = a - a.floor();
            if f >= 1.0 { 1.0 - exp2i(-53) } else { f }
        })
    }),
    vop!("v_frexp_exp_i32_f32", 63, |w, i, _| w.f1u(i, frexp_exp)),
    vop!("v_frexp_mant_f32", 64, |w, i, _| w.f1(i, frexp_mant)),
    vop!("v_movreld_b32", 66, |w, i, _| relative(w, i, false, true)),
    vop!("v_movrels_b32", 67, |w, i, _| relative(w, i, true, false)),
    vop!("v_movrelsd_b32", 68, |w, i, _| relative(w, i, true, true)),
    refused("v_movrelsd_2_b32", 0x180 + 72, 0x180 + 72),
    vop!("v_swap_b32", 101, swap),
    vop!("v_permlane64_b32", 103, nop),
    refused("v_swaprel_b32", 0x180 + 104, 0x180 + 104),
    r("v_cvt_f32_fp8", NO, 0x1ec, |w, i, _| {
        let s = i.opsel;
        w.u1f_bytes(i, |a| fp8(byte(a, s)))
    }),
    r("v_cvt_f32_bf8", NO, 0x1ed, |w, i, _| {
        let s = i.opsel;
        w.u1f_bytes(i, |a| bf8(byte(a, s)))
    }),
    r("v_cvt_pk_f32_fp8", NO, 0x1ee, |w, i, _| pk_f32(w, i, fp8)),
    r("v_cvt_pk_f32_bf8", NO, 0x1ef, |w, i, _| pk_f32(w, i, bf8)),
];

fn pk_f32(w: &mut crate::exec::wave::Wave, i: &crate::inst::Inst, f: fn(u8) -> f32) -> crate::exec::Flow {
    i.only(SEL)?;
    let shift = if i.opsel & 1 == 1 { 16 } else { 0 };
    let r = w.lanes(i, 0).map(|x| {
        let x = x >> shift;
        u64::from(f(x as u8).to_bits()) | u64::from(f((x >> 8) as u8).to_bits()) << 32
    });
    w.put64(i, w.defined(i, 0), &r);
    Ok(())
}

macro_rules! half {
    ($n:literal, $op:expr, $h:expr, $f:expr) => {
        h($n, 0x180 + $op, 0x180 + $op, $h, $f)
    };
}

/// What an instruction from one half to another follows.
const HALF1: u16 = signs(1) | SEL_D | OUT | DPP;

/// A transcendental of halves: computed in f64, rounded once.
macro_rules! half_trans {
    ($f:expr) => {
        |w, i, _| {
            let f: fn(f64) -> f64 = $f;
            i.only16(1, true, HALF1)?;
            let x = w.hs(i, 0).map(|x| crate::numeric::d2h(f(x.into())));
            w.put_f16(i, w.defined(i, 0), x.map(h2f));
            Ok(())
        }
    };
}

pub(super) static HALF: &[Row] = &[
    half!("v_cvt_f16_f32", 10, D16, |w, i, _| {
        i.only(HALF1)?;
        let x = w.f32s(i, 0);
        w.put_f16(i, w.defined(i, 0), x);
        Ok(())
    }),
    half!("v_cvt_f32_f16", 11, 1, |w, i, _| {
        i.only16(1, true, signs(1) | OUT | DPP)?;
        let x = w.hs(i, 0).map(quieted);
        w.put_f32(i, w.defined(i, 0), x);
        Ok(())
    }),
    half!("v_mov_b16", 28, 1 | D16, |w, i, _| {
        i.only16(1, true, SEL_D | DPP)?;
        let x = w.half(i, 0, true);
        w.put_half(i, w.defined(i, 0), &x);
        Ok(())
    }),
    half!("v_cvt_f16_u16", 80, 1 | D16, |w, i, _| {
        i.only16(1, false, SEL_D | OUT | DPP)?;
        let x = w.half(i, 0, false).map(f32::from);
        w.put_f16(i, w.defined(i, 0), x);
        Ok(())
    }),
    half!("v_cvt_f16_i16", 81, 1 | D16, |w, i, _| {
        i.only16(1, false, SEL_D | OUT | DPP)?;
        let x = w.half(i, 0, false).map(|x| f32::from(x as i16));
        w.put_f16(i, w.defined(i, 0), x);
        Ok(())
    }),
    half!("v_cvt_u16_f16", 82, 1 | D16, |w, i, _| {
        i.only16(1, true, signs(1) | SEL_D | DPP)?;
        let x = w.hs(i, 0).map(|x| x as u16);
        w.put_half(i, w.defined(i, 0), &x);
        Ok(())
    }),
    half!("v_cvt_i16_f16", 83, 1 | D16, |w, i, _| {
        i.only16(1, true, signs(1) | SEL_D | DPP)?;
        let x = w.hs(i, 0).map(|x| x as i16 as u16);
        w.put_half(i, w.defined(i, 0), &x);
        Ok(())
    }),
    half!("v_rcp_f16", 84, 1 | D16, half_trans!(|x| 1.0 / x)),
    half!("v_sqrt_f16", 85, 1 | D16, half_trans!(f64::sqrt)),
    half!("v_rsq_f16", 86, 1 | D16, half_trans!(|x| 1.0 / x.sqrt())),
    half!("v_log_f16", 87, 1 | D16, half_trans!(f64::log2)),
    half!("v_exp_f16", 88, 1 | D16, half_trans!(f64::exp2)),
    half!("v_frexp_mant_f16", 89, 1 | D16, |w, i, _| w.h1(i, frexp_mant)),
    half!("v_frexp_exp_i16_f16", 90, 1 | D16, |w, i, _| {
        i.only16(1, true, signs(1) | SEL_D | DPP)?;
        let x = w.hs(i, 0).map(|x| frexp_exp(x) as u16);
        w.put_half(i, w.defined(i, 0), &x);
        Ok(())
    }),
    half!("v_floor_f16", 91, 1 | D16, |w, i, _| w.h1(i, f32::floor)),
    half!("v_ceil_f16", 92, 1 | D16, |w, i, _| w.h1(i, f32::ceil)),
    half!("v_trunc_f16", 93, 1 | D16, |w, i, _| w.h1(i, f32::trunc)),
    half!("v_rndne_f16", 94, 1 | D16, |w, i, _| w.h1(i, f32::round_ties_even)),
    half!("v_fract_f16", 95, 1 | D16, |w, i, _| w.h1(i, |x| {
        let f = x - x.floor();
        if f > 0.999_511_7 { 0.999_511_7 } else { f }
    })),
    half!("v_sin_f16", 96, 1 | D16, |w, i, _| w.h1(i, |x| h2f(f2h(sin_turn(x))))),
    half!("v_cos_f16", 97, 1 | D16, |w, i, _| w.h1(i, |x| h2f(f2h(cos_turn(x))))),
    half!("v_sat_pk_u8_i16", 98, D16, |w, i, _| {
        i.only(SEL_D | DPP)?;
        let x = w.lanes(i, 0).map(|a| sat_u8(a as u16) | sat_u8((a >> 16) as u16) << 8);
        w.put_half(i, w.defined(i, 0), &x);
        Ok(())
    }),
    half!("v_cvt_norm_i16_f16", 99, 1 | D16, |w, i, _| {
        i.only16(1, true, signs(1) | SEL_D | DPP)?;
        let x = w.hs(i, 0).map(|x| norm_i16(x) as u16);
        w.put_half(i, w.defined(i, 0), &x);
        Ok(())
    }),
    half!("v_cvt_norm_u16_f16", 100, 1 | D16, |w, i, _| {
        i.only16(1, true, signs(1) | SEL_D | DPP)?;
        let x = w.hs(i, 0).map(|x| norm_u16(x) as u16);
        w.put_half(i, w.defined(i, 0), &x);
        Ok(())
    }),
    refused("v_swap_b16", 0x180 + 102, 0x180 + 102),
    half!("v_not_b16", 105, 1 | D16, |w, i, _| {
        i.only16(1, false, SEL_D | DPP)?;
        let x = w.half(i, 0, false).map(|x| !x);
        w.put_half(i, w.defined(i, 0), &x);
        Ok(())
    }),
    half!("v_cvt_i32_i16", 106, 1, |w, i, _| {
        i.only16(1, false, DPP)?;
        let x = w.half(i, 0, false).map(|x| x as i16 as u32);
        w.put(i.dst, w.mask(i), w.defined(i, 0), &x);
        Ok(())
    }),
    half!("v_cvt_u32_u16", 107, 1, |w, i, _| {
        i.only16(1, false, DPP)?;
        let x = w.half(i, 0, false).map(u32::from);
        w.put(i.dst, w.mask(i), w.defined(i, 0), &x);
        Ok(())
    }),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_at_their_edges() {
        assert_eq!(fract(-1e-10), BELOW_ONE);
        assert_eq!(fract(2.75), 0.75);
        assert_eq!([cls(0), cls(1), cls(0xffff_fffe), cls(0x4000_0000)], [u32::MAX, 31, 31, 1]);
        assert_eq!((frexp_exp(1.0), frexp_mant(-3.0)), (1, -0.75));
        assert_eq!(frexp_exp(f32::from_bits(1)) as i32, -148);
        assert_eq!(sin_turn(0.25), 1.0);
        assert_eq!(cos_turn(3.5), -1.0);
        assert_eq!([byte(0x4433_2211, 0), byte(0x4433_2211, 1), byte(0x4433_2211, 2)], [0x11, 0x33, 0x22]);
    }
}
