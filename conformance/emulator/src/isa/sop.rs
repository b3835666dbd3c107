//! SOP1, SOP2 and SOPC.

use super::{r, refused};
use crate::{
    exec::{nop, scalar, wave::Wide},
    inst::{NO, Row},
    numeric::{differ, f2h_rtz, max_mode, max_num, maximum, min_mode, min_num, minimum},
};

const BITS: Wide = Wide::Bits;

fn cls(x: u32) -> u32 {
    let same = if (x as i32) < 0 { x.leading_ones() } else { x.leading_zeros() };
    if same == 32 { u32::MAX } else { same }
}

fn quadmask(x: u32) -> u32 {
    (0..8).fold(0, |m, q| m | u32::from(x >> (4 * q) & 15 != 0) << q)
}

fn wqm(x: u32) -> u32 {
    (0..8).fold(0, |m, q| if x >> (4 * q) & 15 != 0 { m | 15 << (4 * q) } else { m })
}

/// 32 when no bit is found becomes -1.
fn found(n: u32, none: u32) -> u32 {
    if n == none { u32::MAX } else { n }
}

/// Bits `offset..offset + width` of a value, by a packed S1: offset in the low bits, width in 22:16.
fn bfe_u(a: u64, offset: u32, width: u32) -> u64 {
    let x = a >> offset;
    if width >= 64 { x } else { x & ((1 << width) - 1) }
}

fn bfe_i(a: i64, offset: u32, width: u32) -> i64 {
    match width {
        0 => 0,
        64.. => a >> offset,
        _ => a >> offset << (64 - width) >> (64 - width),
    }
}

fn replicate(x: u32) -> u64 {
    (0..32).fold(0, |m, b| m | (u64::from(x >> b & 1) * 3) << (2 * b))
}

pub(super) static SOP1: &[Row] = &[
    r("s_mov_b32", 0, 0, |w, i, _| w.move_scalars(i, 1)),
    r("s_mov_b64", 1, 1, |w, i, _| w.move_scalars(i, 2)),
    r("s_cmov_b32", 2, 2, |w, i, _| if w.scc { w.s1(i, |a| a) } else { Ok(()) }),
    r("s_cmov_b64", 3, 3, |w, i, _| if w.scc { w.q1(i, |a| a) } else { Ok(()) }),
    r("s_brev_b32", 4, 4, |w, i, _| w.s1(i, u32::reverse_bits)),
    r("s_brev_b64", 5, 5, |w, i, _| w.q1(i, u64::reverse_bits)),
    r("s_ctz_i32_b32", 8, 8, |w, i, _| w.s1(i, |a| found(a.trailing_zeros(), 32))),
    r("s_ctz_i32_b64", 9, 9, |w, i, _| {
        let a = w.s64(i.src[0], BITS);
        w.s1(i, |_| found(a.trailing_zeros(), 64))
    }),
    r("s_clz_i32_u32", 10, 10, |w, i, _| w.s1(i, |a| found(a.leading_zeros(), 32))),
    r("s_clz_i32_u64", 11, 11, |w, i, _| {
        let a = w.s64(i.src[0], BITS);
        w.s1(i, |_| found(a.leading_zeros(), 64))
    }),
    r("s_cls_i32", 12, 12, |w, i, _| w.s1(i, cls)),
    refused("s_cls_i32_i64", 13, 13),
    r("s_sext_i32_i8", 14, 14, |w, i, _| w.s1(i, |a| a as i8 as u32)),
    r("s_sext_i32_i16", 15, 15, |w, i, _| w.s1(i, |a| a as i16 as u32)),
    r("s_bitset0_b32", 16, 16, |w, i, _| {
        let d = w.scalar(i.dst);
        w.s1(i, |a| d & !(1 << (a & 31)))
    }),
    r("s_bitset0_b64", 17, 17, |w, i, _| {
        let (d, a) = (w.s64_at(i.dst), w.s32(i.src[0]));
        w.set_s64(i.dst, d & !(1 << (a & 63)));
        Ok(())
    }),
    r("s_bitset1_b32", 18, 18, |w, i, _| {
        let d = w.scalar(i.dst);
        w.s1(i, |a| d | 1 << (a & 31))
    }),
    r("s_bitset1_b64", 19, 19, |w, i, _| {
        let (d, a) = (w.s64_at(i.dst), w.s32(i.src[0]));
        w.set_s64(i.dst, d | 1 << (a & 63));
        Ok(())
    }),
    r("s_bitreplicate_b64_b32", 20, 20, |w, i, _| {
        let a = w.s32(i.src[0]);
        w.set_s64(i.dst, replicate(a));
        Ok(())
    }),
    r("s_abs_i32", 21, 21, |w, i, _| w.s1c(i, |a| (a as i32).unsigned_abs())),
    r("s_bcnt0_i32_b32", 22, 22, |w, i, _| w.s1c(i, u32::count_zeros)),
    r("s_bcnt0_i32_b64", 23, 23, |w, i, _| {
        let a = w.s64(i.src[0], BITS);
        w.s1c(i, |_| a.count_zeros())
    }),
    r("s_bcnt1_i32_b32", 24, 24, |w, i, _| w.s1c(i, u32::count_ones)),
    r("s_bcnt1_i32_b64", 25, 25, |w, i, _| {
        let a = w.s64(i.src[0], BITS);
        w.s1c(i, |_| a.count_ones())
    }),
    r("s_quadmask_b32", 26, 26, |w, i, _| w.s1c(i, quadmask)),
    refused("s_quadmask_b64", 27, 27),
    r("s_wqm_b32", 28, 28, |w, i, _| w.s1c(i, wqm)),
    refused("s_wqm_b64", 29, 29),
    r("s_not_b32", 30, 30, |w, i, _| w.s1c(i, |a| !a)),
    r("s_not_b64", 31, 31, |w, i, _| {
        w.scc = w.s64(i.src[0], BITS) != u64::MAX;
        w.q1(i, |a| !a)
    }),
    r("s_and_saveexec_b32", 32, 32, |w, i, _| w.saveexec(i, |s, e| s & e)),
    refused("s_and_saveexec_b64", 33, 33),
    r("s_or_saveexec_b32", 34, 34, |w, i, _| w.saveexec(i, |s, e| s | e)),
    refused("s_or_saveexec_b64", 35, 35),
    r("s_xor_saveexec_b32", 36, 36, |w, i, _| w.saveexec(i, |s, e| s ^ e)),
    refused("s_xor_saveexec_b64", 37, 37),
    r("s_nand_saveexec_b32", 38, 38, |w, i, _| w.saveexec(i, |s, e| !(s & e))),
    r("s_nor_saveexec_b32", 40, 40, |w, i, _| w.saveexec(i, |s, e| !(s | e))),
    r("s_xnor_saveexec_b32", 42, 42, |w, i, _| w.saveexec(i, |s, e| !(s ^ e))),
    r("s_and_not0_saveexec_b32", 44, 44, |w, i, _| w.saveexec(i, |s, e| !s & e)),
    r("s_or_not0_saveexec_b32", 46, 46, |w, i, _| w.saveexec(i, |s, e| !s | e)),
    r("s_and_not1_saveexec_b32", 48, 48, |w, i, _| w.saveexec(i, |s, e| s & !e)),
    r("s_or_not1_saveexec_b32", 50, 50, |w, i, _| w.saveexec(i, |s, e| s | !e)),
    r("s_and_not0_wrexec_b32", 52, 52, |w, i, _| w.wrexec(i, |s, e| !s & e)),
    r("s_and_not1_wrexec_b32", 54, 54, |w, i, _| w.wrexec(i, |s, e| s & !e)),
    refused("s_movrels_b32", 64, 64),
    refused("s_movrels_b64", 65, 65),
    refused("s_movreld_b32", 66, 66),
    refused("s_movreld_b64", 67, 67),
    refused("s_movrelsd_2_b32", 68, 68),
    r("s_getpc_b64", 71, 71, |w, i, g| {
        let next = w.next_address(g);
        w.set_s64(i.dst, next);
        Ok(())
    }),
    r("s_setpc_b64", 72, 72, |w, i, g| {
        let to = w.s64(i.src[0], BITS);
        w.jump(g, to)
    }),
    r("s_swappc_b64", 73, 73, |w, i, g| {
        let (to, next) = (w.s64(i.src[0], BITS), w.next_address(g));
        w.set_s64(i.dst, next);
        w.jump(g, to)
    }),
    refused("s_rfe_b64", 74, 74),
    refused("s_sendmsg_rtn_b32", 76, 76),
    refused("s_sendmsg_rtn_b64", 77, 77),
    r("s_barrier_signal", NO, 78, |w, _, g| scalar::signal(w, g)),
    r("s_barrier_signal_isfirst", NO, 79, |w, _, g| {
        w.scc = g.arrived == 0;
        scalar::signal(w, g)
    }),
    refused("s_get_barrier_state", NO, 80),
    r("s_sleep_var", NO, 88, nop),
    r("s_ceil_f32", 96, 96, |w, i, _| w.sf1(i, f32::ceil)),
    r("s_floor_f32", 97, 97, |w, i, _| w.sf1(i, f32::floor)),
    r("s_trunc_f32", 98, 98, |w, i, _| w.sf1(i, f32::trunc)),
    r("s_rndne_f32", 99, 99, |w, i, _| w.sf1(i, f32::round_ties_even)),
    r("s_cvt_f32_i32", 100, 100, |w, i, _| w.s1(i, |a| (a as i32 as f32).to_bits())),
    r("s_cvt_f32_u32", 101, 101, |w, i, _| w.s1(i, |a| (a as f32).to_bits())),
    r("s_cvt_i32_f32", 102, 102, |w, i, _| w.s1(i, |a| f32::from_bits(a) as i32 as u32)),
    r("s_cvt_u32_f32", 103, 103, |w, i, _| w.s1(i, |a| f32::from_bits(a) as u32)),
    r("s_cvt_f16_f32", 104, 104, |w, i, _| {
        let x = w.sf(w.s32(i.src[0]));
        w.put_sh(i, x)
    }),
    r("s_cvt_f32_f16", 105, 105, |w, i, _| {
        let x = w.sh(i, 0);
        w.put_sf(i, x)
    }),
    r("s_cvt_hi_f32_f16", 106, 106, |w, i, _| {
        let x = w.sh_of((w.sh_bits(i, 0) >> 16) as u16);
        w.put_sf(i, x)
    }),
    r("s_ceil_f16", 107, 107, |w, i, _| w.sh1(i, f32::ceil)),
    r("s_floor_f16", 108, 108, |w, i, _| w.sh1(i, f32::floor)),
    r("s_trunc_f16", 109, 109, |w, i, _| w.sh1(i, f32::trunc)),
    r("s_rndne_f16", 110, 110, |w, i, _| w.sh1(i, f32::round_ties_even)),
];

fn add_overflow(a: u32, b: u32) -> (u32, bool) {
    let (r, o) = (a as i32).overflowing_add(b as i32);
    (r as u32, o)
}

fn sub_overflow(a: u32, b: u32) -> (u32, bool) {
    let (r, o) = (a as i32).overflowing_sub(b as i32);
    (r as u32, o)
}

fn add_carry(a: u32, b: u32, c: bool) -> (u32, bool) {
    let s = u64::from(a) + u64::from(b) + u64::from(c);
    (s as u32, s >> 32 != 0)
}

fn sub_borrow(a: u32, b: u32, c: bool) -> (u32, bool) {
    let s = i64::from(a) - i64::from(b) - i64::from(c);
    (s as u32, s < 0)
}

fn lshl_add(n: u32) -> impl Fn(u32, u32) -> (u32, bool) {
    move |a, b| {
        let s = (u64::from(a) << n) + u64::from(b);
        (s as u32, s >> 32 != 0)
    }
}

pub(super) static SOP2: &[Row] = &[
    r("s_add_u32", 0, NO, |w, i, _| w.s2x(i, u32::overflowing_add)),
    r("s_sub_u32", 1, NO, |w, i, _| w.s2x(i, u32::overflowing_sub)),
    r("s_add_i32", 2, NO, |w, i, _| w.s2x(i, add_overflow)),
    r("s_sub_i32", 3, NO, |w, i, _| w.s2x(i, sub_overflow)),
    r("s_addc_u32", 4, NO, |w, i, _| w.s2carry(i, add_carry)),
    r("s_subb_u32", 5, NO, |w, i, _| w.s2carry(i, sub_borrow)),
    r("s_add_co_u32", NO, 0, |w, i, _| w.s2x(i, u32::overflowing_add)),
    r("s_sub_co_u32", NO, 1, |w, i, _| w.s2x(i, u32::overflowing_sub)),
    r("s_add_co_i32", NO, 2, |w, i, _| w.s2x(i, add_overflow)),
    r("s_sub_co_i32", NO, 3, |w, i, _| w.s2x(i, sub_overflow)),
    r("s_add_co_ci_u32", NO, 4, |w, i, _| w.s2carry(i, add_carry)),
    r("s_sub_co_ci_u32", NO, 5, |w, i, _| w.s2carry(i, sub_borrow)),
    r("s_absdiff_i32", 6, 6, |w, i, _| w.s2c(i, |a, b| (a.wrapping_sub(b) as i32).unsigned_abs())),
    r("s_lshl_b32", 8, 8, |w, i, _| w.s2c(i, |a, b| a << (b & 31))),
    r("s_lshl_b64", 9, 9, |w, i, _| w.q_shift(i, BITS, |a, b| a << (b & 63))),
    r("s_lshr_b32", 10, 10, |w, i, _| w.s2c(i, |a, b| a >> (b & 31))),
    r("s_lshr_b64", 11, 11, |w, i, _| w.q_shift(i, BITS, |a, b| a >> (b & 63))),
    r("s_ashr_i32", 12, 12, |w, i, _| w.s2c(i, |a, b| (a as i32 >> (b & 31)) as u32)),
    r("s_ashr_i64", 13, 13, |w, i, _| w.q_shift(i, Wide::Signed, |a, b| (a as i64 >> (b & 63)) as u64)),
    r("s_lshl1_add_u32", 14, 14, |w, i, _| w.s2x(i, lshl_add(1))),
    r("s_lshl2_add_u32", 15, 15, |w, i, _| w.s2x(i, lshl_add(2))),
    r("s_lshl3_add_u32", 16, 16, |w, i, _| w.s2x(i, lshl_add(3))),
    r("s_lshl4_add_u32", 17, 17, |w, i, _| w.s2x(i, lshl_add(4))),
    r("s_min_i32", 18, 18, |w, i, _| {
        w.s2x(i, |a, b| ((a as i32).min(b as i32) as u32, (a as i32) < b as i32))
    }),
    r("s_min_u32", 19, 19, |w, i, _| w.s2x(i, |a, b| (a.min(b), a < b))),
    r("s_max_i32", 20, 20, |w, i, _| {
        w.s2x(i, |a, b| ((a as i32).max(b as i32) as u32, a as i32 >= b as i32))
    }),
    r("s_max_u32", 21, 21, |w, i, _| w.s2x(i, |a, b| (a.max(b), a >= b))),
    r("s_and_b32", 22, 22, |w, i, _| w.s2c(i, |a, b| a & b)),
    r("s_and_b64", 23, 23, |w, i, _| w.q2(i, true, |a, b| a & b)),
    r("s_or_b32", 24, 24, |w, i, _| w.s2c(i, |a, b| a | b)),
    r("s_or_b64", 25, 25, |w, i, _| w.q2(i, true, |a, b| a | b)),
    r("s_xor_b32", 26, 26, |w, i, _| w.s2c(i, |a, b| a ^ b)),
    r("s_xor_b64", 27, 27, |w, i, _| w.q2(i, true, |a, b| a ^ b)),
    r("s_nand_b32", 28, 28, |w, i, _| w.s2c(i, |a, b| !(a & b))),
    r("s_nand_b64", 29, 29, |w, i, _| w.q2(i, true, |a, b| !(a & b))),
    r("s_nor_b32", 30, 30, |w, i, _| w.s2c(i, |a, b| !(a | b))),
    r("s_nor_b64", 31, 31, |w, i, _| w.q2(i, true, |a, b| !(a | b))),
    r("s_xnor_b32", 32, 32, |w, i, _| w.s2c(i, |a, b| !(a ^ b))),
    r("s_xnor_b64", 33, 33, |w, i, _| w.q2(i, true, |a, b| !(a ^ b))),
    r("s_and_not1_b32", 34, 34, |w, i, _| w.s2c(i, |a, b| a & !b)),
    r("s_and_not1_b64", 35, 35, |w, i, _| w.q2(i, true, |a, b| a & !b)),
    r("s_or_not1_b32", 36, 36, |w, i, _| w.s2c(i, |a, b| a | !b)),
    r("s_or_not1_b64", 37, 37, |w, i, _| w.q2(i, true, |a, b| a | !b)),
    r("s_bfe_u32", 38, 38, |w, i, _| w.s2c(i, |a, b| bfe_u(a.into(), b & 31, b >> 16 & 127) as u32)),
    r("s_bfe_i32", 39, 39, |w, i, _| w.s2c(i, |a, b| bfe_i((a as i32).into(), b & 31, b >> 16 & 127) as u32)),
    r("s_bfe_u64", 40, 40, |w, i, _| w.q_shift(i, BITS, |a, b| bfe_u(a, b & 63, b >> 16 & 127))),
    r("s_bfe_i64", 41, 41, |w, i, _| {
        w.q_shift(i, Wide::Signed, |a, b| bfe_i(a as i64, b & 63, b >> 16 & 127) as u64)
    }),
    r("s_bfm_b32", 42, 42, |w, i, _| w.s2(i, |a, b| ((1 << (a & 31)) - 1) << (b & 31))),
    r("s_bfm_b64", 43, 43, |w, i, _| {
        let (a, b) = (w.s32(i.src[0]), w.s32(i.src[1]));
        w.set_s64(i.dst, ((1 << (a & 63)) - 1) << (b & 63));
        Ok(())
    }),
    r("s_mul_i32", 44, 44, |w, i, _| w.s2(i, u32::wrapping_mul)),
    r("s_mul_hi_u32", 45, 45, |w, i, _| w.s2(i, |a, b| ((u64::from(a) * u64::from(b)) >> 32) as u32)),
    r("s_mul_hi_i32", 46, 46, |w, i, _| {
        w.s2(i, |a, b| ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32)
    }),
    r("s_cselect_b32", 48, 48, |w, i, _| {
        let scc = w.scc;
        w.s2(i, |a, b| if scc { a } else { b })
    }),
    r("s_cselect_b64", 49, 49, |w, i, _| {
        let scc = w.scc;
        w.q2(i, false, |a, b| if scc { a } else { b })
    }),
    r("s_pack_ll_b32_b16", 50, 50, |w, i, _| w.s2(i, |a, b| a & 0xffff | b << 16)),
    r("s_pack_lh_b32_b16", 51, 51, |w, i, _| w.s2(i, |a, b| a & 0xffff | b & 0xffff_0000)),
    r("s_pack_hh_b32_b16", 52, 52, |w, i, _| w.s2(i, |a, b| a >> 16 | b & 0xffff_0000)),
    r("s_pack_hl_b32_b16", 53, 53, |w, i, _| w.s2(i, |a, b| a >> 16 | b << 16)),
    r("s_add_f32", 64, 64, |w, i, _| w.sf2(i, |a, b| a + b)),
    r("s_sub_f32", 65, 65, |w, i, _| w.sf2(i, |a, b| a - b)),
    r("s_min_f32", 66, NO, |w, i, _| {
        let f = min_mode(w.ieee());
        w.sf2(i, f)
    }),
    r("s_max_f32", 67, NO, |w, i, _| {
        let f = max_mode(w.ieee());
        w.sf2(i, f)
    }),
    r("s_min_num_f32", NO, 66, |w, i, _| w.sf2(i, min_num)),
    r("s_max_num_f32", NO, 67, |w, i, _| w.sf2(i, max_num)),
    r("s_mul_f32", 68, 68, |w, i, _| w.sf2(i, |a, b| a * b)),
    r("s_fmaak_f32", 69, 69, |w, i, _| w.sfma(i, [w.s32(i.src[0]), w.s32(i.src[1]), w.s32(i.src[2])])),
    r("s_fmamk_f32", 70, 70, |w, i, _| w.sfma(i, [w.s32(i.src[0]), w.s32(i.src[2]), w.s32(i.src[1])])),
    r("s_fmac_f32", 71, 71, |w, i, _| w.sfma(i, [w.s32(i.src[0]), w.s32(i.src[1]), w.scalar(i.dst)])),
    r("s_cvt_pk_rtz_f16_f32", 72, 72, |w, i, _| {
        let (a, b) = (w.sf(w.s32(i.src[0])), w.sf(w.s32(i.src[1])));
        w.s2(i, |_, _| u32::from(f2h_rtz(a)) | u32::from(f2h_rtz(b)) << 16)
    }),
    r("s_add_f16", 73, 73, |w, i, _| w.sh2(i, |a, b| a + b)),
    r("s_sub_f16", 74, 74, |w, i, _| w.sh2(i, |a, b| a - b)),
    r("s_min_f16", 75, NO, |w, i, _| {
        let f = min_mode(w.ieee());
        w.sh2(i, f)
    }),
    r("s_max_f16", 76, NO, |w, i, _| {
        let f = max_mode(w.ieee());
        w.sh2(i, f)
    }),
    r("s_min_num_f16", NO, 75, |w, i, _| w.sh2(i, min_num)),
    r("s_max_num_f16", NO, 76, |w, i, _| w.sh2(i, max_num)),
    r("s_mul_f16", 77, 77, |w, i, _| w.sh2(i, |a, b| a * b)),
    r("s_fmac_f16", 78, 78, |w, i, _| {
        let d = w.sh_of(w.scalar(i.dst) as u16);
        let r = crate::exec::valu16::fma16(w.sh(i, 0), w.sh(i, 1), d);
        w.put_sh(i, r)
    }),
    r("s_minimum_f32", NO, 79, |w, i, _| w.sf2(i, minimum)),
    r("s_maximum_f32", NO, 80, |w, i, _| w.sf2(i, maximum)),
    r("s_minimum_f16", NO, 81, |w, i, _| w.sh2(i, minimum)),
    r("s_maximum_f16", NO, 82, |w, i, _| w.sh2(i, maximum)),
    r("s_add_nc_u64", NO, 83, |w, i, _| w.q2(i, false, u64::wrapping_add)),
    r("s_sub_nc_u64", NO, 84, |w, i, _| w.q2(i, false, u64::wrapping_sub)),
    r("s_mul_u64", NO, 85, |w, i, _| w.q2(i, false, u64::wrapping_mul)),
];

pub(super) static SOPC: &[Row] = &[
    r("s_cmp_eq_i32", 0, 0, |w, i, _| w.sc(i, |a, b| a == b)),
    r("s_cmp_lg_i32", 1, 1, |w, i, _| w.sc(i, |a, b| a != b)),
    r("s_cmp_gt_i32", 2, 2, |w, i, _| w.sc(i, |a, b| a as i32 > b as i32)),
    r("s_cmp_ge_i32", 3, 3, |w, i, _| w.sc(i, |a, b| a as i32 >= b as i32)),
    r("s_cmp_lt_i32", 4, 4, |w, i, _| w.sc(i, |a, b| (a as i32) < b as i32)),
    r("s_cmp_le_i32", 5, 5, |w, i, _| w.sc(i, |a, b| a as i32 <= b as i32)),
    r("s_cmp_eq_u32", 6, 6, |w, i, _| w.sc(i, |a, b| a == b)),
    r("s_cmp_lg_u32", 7, 7, |w, i, _| w.sc(i, |a, b| a != b)),
    r("s_cmp_gt_u32", 8, 8, |w, i, _| w.sc(i, |a, b| a > b)),
    r("s_cmp_ge_u32", 9, 9, |w, i, _| w.sc(i, |a, b| a >= b)),
    r("s_cmp_lt_u32", 10, 10, |w, i, _| w.sc(i, |a, b| a < b)),
    r("s_cmp_le_u32", 11, 11, |w, i, _| w.sc(i, |a, b| a <= b)),
    r("s_bitcmp0_b32", 12, 12, |w, i, _| w.sc(i, |a, b| a >> (b & 31) & 1 == 0)),
    r("s_bitcmp1_b32", 13, 13, |w, i, _| w.sc(i, |a, b| a >> (b & 31) & 1 == 1)),
    r("s_bitcmp0_b64", 14, 14, |w, i, _| {
        let a = w.s64(i.src[0], BITS);
        w.sc(i, |_, b| a >> (b & 63) & 1 == 0)
    }),
    r("s_bitcmp1_b64", 15, 15, |w, i, _| {
        let a = w.s64(i.src[0], BITS);
        w.sc(i, |_, b| a >> (b & 63) & 1 == 1)
    }),
    r("s_cmp_eq_u64", 16, 16, |w, i, _| {
        let bits = BITS;
        w.scc = w.s64(i.src[0], bits) == w.s64(i.src[1], bits);
        Ok(())
    }),
    r("s_cmp_lg_u64", 17, 17, |w, i, _| {
        let bits = BITS;
        w.scc = w.s64(i.src[0], bits) != w.s64(i.src[1], bits);
        Ok(())
    }),
    r("s_cmp_lt_f32", 65, 65, |w, i, _| w.sfc(i, |a, b| a < b)),
    r("s_cmp_eq_f32", 66, 66, |w, i, _| w.sfc(i, |a, b| a == b)),
    r("s_cmp_le_f32", 67, 67, |w, i, _| w.sfc(i, |a, b| a <= b)),
    r("s_cmp_gt_f32", 68, 68, |w, i, _| w.sfc(i, |a, b| a > b)),
    r("s_cmp_lg_f32", 69, 69, |w, i, _| w.sfc(i, differ)),
    r("s_cmp_ge_f32", 70, 70, |w, i, _| w.sfc(i, |a, b| a >= b)),
    r("s_cmp_o_f32", 71, 71, |w, i, _| w.sfc(i, |a, b| !a.is_nan() && !b.is_nan())),
    r("s_cmp_u_f32", 72, 72, |w, i, _| w.sfc(i, |a, b| a.is_nan() || b.is_nan())),
    r("s_cmp_nge_f32", 73, 73, |w, i, _| w.sfc(i, |a, b| !a.ge(&b))),
    r("s_cmp_nlg_f32", 74, 74, |w, i, _| w.sfc(i, |a, b| !differ(a, b))),
    r("s_cmp_ngt_f32", 75, 75, |w, i, _| w.sfc(i, |a, b| !a.gt(&b))),
    r("s_cmp_nle_f32", 76, 76, |w, i, _| w.sfc(i, |a, b| !a.le(&b))),
    r("s_cmp_neq_f32", 77, 77, |w, i, _| w.sfc(i, |a, b| a != b)),
    r("s_cmp_nlt_f32", 78, 78, |w, i, _| w.sfc(i, |a, b| !a.lt(&b))),
    r("s_cmp_lt_f16", 81, 81, |w, i, _| w.shc(i, |a, b| a < b)),
    r("s_cmp_eq_f16", 82, 82, |w, i, _| w.shc(i, |a, b| a == b)),
    r("s_cmp_le_f16", 83, 83, |w, i, _| w.shc(i, |a, b| a <= b)),
    r("s_cmp_gt_f16", 84, 84, |w, i, _| w.shc(i, |a, b| a > b)),
    r("s_cmp_lg_f16", 85, 85, |w, i, _| w.shc(i, differ)),
    r("s_cmp_ge_f16", 86, 86, |w, i, _| w.shc(i, |a, b| a >= b)),
    r("s_cmp_o_f16", 87, 87, |w, i, _| w.shc(i, |a, b| !a.is_nan() && !b.is_nan())),
    r("s_cmp_u_f16", 88, 88, |w, i, _| w.shc(i, |a, b| a.is_nan() || b.is_nan())),
    r("s_cmp_nge_f16", 89, 89, |w, i, _| w.shc(i, |a, b| !a.ge(&b))),
    r("s_cmp_nlg_f16", 90, 90, |w, i, _| w.shc(i, |a, b| !differ(a, b))),
    r("s_cmp_ngt_f16", 91, 91, |w, i, _| w.shc(i, |a, b| !a.gt(&b))),
    r("s_cmp_nle_f16", 92, 92, |w, i, _| w.shc(i, |a, b| !a.le(&b))),
    r("s_cmp_neq_f16", 93, 93, |w, i, _| w.shc(i, |a, b| a != b)),
    r("s_cmp_nlt_f16", 94, 94, |w, i, _| w.shc(i, |a, b| !a.lt(&b))),
];
