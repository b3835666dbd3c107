//! 32-bit integer vector instructions.

use super::{Case, Result_::*, case, check};

fn sext(x: u32, bits: u32) -> i64 {
    i64::from((x << (32 - bits)) as i32 >> (32 - bits))
}

fn bytes(x: u32) -> [u32; 4] {
    x.to_le_bytes().map(u32::from)
}

/// Two source words as eight bytes, S1 the lower.
fn eight(a: u32, b: u32) -> [u8; 8] {
    (u64::from(a) << 32 | u64::from(b)).to_le_bytes()
}

fn select(data: [u8; 8], sel: u8) -> u8 {
    match sel {
        0..=7 => data[usize::from(sel)],
        8..=11 => {
            if data[usize::from(2 * (sel - 8) + 1)] >= 0x80 {
                0xff
            } else {
                0
            }
        }
        12 => 0,
        _ => 0xff,
    }
}

fn two() -> Vec<Case> {
    vec![
        case("v_mov_b32 %0, %1", U32, |i| i.a),
        case("v_not_b32 %0, %1", U32, |i| !i.a),
        case("v_bfrev_b32 %0, %1", U32, |i| (0..32).map(|n| (i.a >> n & 1) << (31 - n)).sum()),
        case("v_clz_i32_u32 %0, %1", U32, |i| (0..32).find(|n| i.a >> (31 - n) & 1 == 1).unwrap_or(u64::MAX)),
        case("v_ctz_i32_b32 %0, %1", U32, |i| (0..32).find(|n| i.a >> n & 1 == 1).unwrap_or(u64::MAX)),
        case("v_cls_i32 %0, %1", U32, |i| {
            (1..32).find(|n| i.a >> (31 - n) & 1 != i.a >> 31 & 1).unwrap_or(u64::MAX)
        }),
        case("v_and_b32 %0, %1, %2", U32, |i| i.a & i.b),
        case("v_or_b32 %0, %1, %2", U32, |i| i.a | i.b),
        case("v_xor_b32 %0, %1, %2", U32, |i| i.a ^ i.b),
        case("v_xnor_b32 %0, %1, %2", U32, |i| !(i.a ^ i.b)),
        case("v_lshlrev_b32 %0, %1, %2", U32, |i| i.b << (i.a & 31)),
        case("v_lshrrev_b32 %0, %1, %2", U32, |i| u64::from(i.u()[1]) >> (i.a & 31)),
        case("v_ashrrev_i32 %0, %1, %2", U32, |i| (i64::from(i.i()[1]) >> (i.a & 31)) as u64),
        case("v_add_nc_u32 %0, %1, %2", U32, |i| i.a.wrapping_add(i.b)),
        case("v_sub_nc_u32 %0, %1, %2", U32, |i| i.a.wrapping_sub(i.b)),
        case("v_subrev_nc_u32 %0, %1, %2", U32, |i| i.b.wrapping_sub(i.a)),
        case("v_add_nc_u32_e64 %0, %1, %2 clamp", U32, |i| {
            (u64::from(i.u()[0]) + u64::from(i.u()[1])).min(0xffff_ffff)
        }),
        case("v_sub_nc_u32_e64 %0, %1, %2 clamp", U32, |i| {
            (i64::from(i.u()[0]) - i64::from(i.u()[1])).max(0) as u64
        }),
        case("v_add_nc_i32 %0, %1, %2 clamp", U32, |i| {
            (i64::from(i.i()[0]) + i64::from(i.i()[1])).clamp(-0x8000_0000, 0x7fff_ffff) as u64
        }),
        case("v_sub_nc_i32 %0, %1, %2 clamp", U32, |i| {
            (i64::from(i.i()[0]) - i64::from(i.i()[1])).clamp(-0x8000_0000, 0x7fff_ffff) as u64
        }),
        case("v_min_i32 %0, %1, %2", U32, |i| i.i()[0].min(i.i()[1]) as u64),
        case("v_max_i32 %0, %1, %2", U32, |i| i.i()[0].max(i.i()[1]) as u64),
        case("v_min_u32 %0, %1, %2", U32, |i| i.u()[0].min(i.u()[1]).into()),
        case("v_max_u32 %0, %1, %2", U32, |i| i.u()[0].max(i.u()[1]).into()),
        case("v_mul_i32_i24 %0, %1, %2", U32, |i| (sext(i.u()[0], 24) * sext(i.u()[1], 24)) as u64),
        case("v_mul_hi_i32_i24 %0, %1, %2", U32, |i| {
            ((sext(i.u()[0], 24) * sext(i.u()[1], 24)) >> 32) as u64
        }),
        case("v_mul_u32_u24 %0, %1, %2", U32, |i| (i.a & 0xff_ffff) * (i.b & 0xff_ffff)),
        case("v_mul_hi_u32_u24 %0, %1, %2", U32, |i| ((i.a & 0xff_ffff) * (i.b & 0xff_ffff)) >> 32),
        case("v_mul_lo_u32 %0, %1, %2", U32, |i| i.a.wrapping_mul(i.b)),
        case("v_mul_hi_u32 %0, %1, %2", U32, |i| (u64::from(i.u()[0]) * u64::from(i.u()[1])) >> 32),
        case("v_mul_hi_i32 %0, %1, %2", U32, |i| ((i64::from(i.i()[0]) * i64::from(i.i()[1])) >> 32) as u64),
        case("v_bfm_b32 %0, %1, %2", U32, |i| ((1 << (i.a & 31)) - 1) << (i.b & 31)),
        case("v_bcnt_u32_b32 %0, %1, %2", U32, |i| {
            (0..32).map(|n| i.a >> n & 1).sum::<u64>().wrapping_add(i.b)
        }),
        case("v_cvt_pk_u16_u32 %0, %1, %2", U32, |i| {
            (i.u()[0].min(0xffff) | i.u()[1].min(0xffff) << 16).into()
        }),
        case("v_cvt_pk_i16_i32 %0, %1, %2", U32, |i| {
            let c = |x: i32| u64::from(x.clamp(-0x8000, 0x7fff) as u16);
            c(i.i()[0]) | c(i.i()[1]) << 16
        }),
    ]
}

fn three() -> Vec<Case> {
    vec![
        case("v_mad_i32_i24 %0, %1, %2, %3", U32, |i| {
            (sext(i.u()[0], 24) * sext(i.u()[1], 24) + i64::from(i.i()[2])) as u64
        }),
        case("v_mad_u32_u24 %0, %1, %2, %3", U32, |i| {
            (i.a & 0xff_ffff) * (i.b & 0xff_ffff) + (i.c & 0xffff_ffff)
        }),
        case("v_bfe_u32 %0, %1, %2, %3", U32, |i| {
            u64::from(i.u()[0]) >> (i.b & 31) & ((1 << (i.c & 31)) - 1)
        }),
        case("v_bfe_i32 %0, %1, %2, %3", U32, |i| {
            let n = i.u()[2] & 31;
            if n == 0 { 0 } else { sext((i.i()[0] >> (i.b & 31)) as u32, n) as u64 }
        }),
        case("v_bfi_b32 %0, %1, %2, %3", U32, |i| (i.a & i.b) | (!i.a & i.c)),
        case("v_alignbit_b32 %0, %1, %2, %3", U32, |i| (i.a << 32 | i.b & 0xffff_ffff) >> (i.c & 31)),
        case("v_alignbyte_b32 %0, %1, %2, %3", U32, |i| (i.a << 32 | i.b & 0xffff_ffff) >> (8 * (i.c & 3))),
        case("v_perm_b32 %0, %1, %2, %3", U32, |i| {
            let data = eight(i.u()[0], i.u()[1]);
            u32::from_le_bytes(i.u()[2].to_le_bytes().map(|s| select(data, s))).into()
        }),
        // Selectors that random bytes seldom hit.
        case("v_perm_b32 %0, %1, %2, 0x07080a0c", U32, |i| {
            let data = eight(i.u()[0], i.u()[1]);
            u32::from_le_bytes([12, 10, 8, 7].map(|s| select(data, s))).into()
        }),
        case("v_perm_b32 %0, %1, %2, 0x090b0d00", U32, |i| {
            let data = eight(i.u()[0], i.u()[1]);
            u32::from_le_bytes([0, 13, 11, 9].map(|s| select(data, s))).into()
        }),
        case("v_min3_i32 %0, %1, %2, %3", U32, |i| i.i()[..3].iter().copied().min().map_or(0, |x| x as u64)),
        case("v_min3_u32 %0, %1, %2, %3", U32, |i| i.u()[..3].iter().copied().min().map_or(0, u64::from)),
        case("v_max3_i32 %0, %1, %2, %3", U32, |i| i.i()[..3].iter().copied().max().map_or(0, |x| x as u64)),
        case("v_max3_u32 %0, %1, %2, %3", U32, |i| i.u()[..3].iter().copied().max().map_or(0, u64::from)),
        case("v_med3_i32 %0, %1, %2, %3", U32, |i| {
            let mut v = [i.i()[0], i.i()[1], i.i()[2]];
            v.sort_unstable();
            v[1] as u64
        }),
        case("v_med3_u32 %0, %1, %2, %3", U32, |i| {
            let mut v = [i.u()[0], i.u()[1], i.u()[2]];
            v.sort_unstable();
            v[1].into()
        }),
        case("v_maxmin_u32 %0, %1, %2, %3", U32, |i| i.u()[0].max(i.u()[1]).min(i.u()[2]).into()),
        case("v_minmax_u32 %0, %1, %2, %3", U32, |i| i.u()[0].min(i.u()[1]).max(i.u()[2]).into()),
        case("v_maxmin_i32 %0, %1, %2, %3", U32, |i| i.i()[0].max(i.i()[1]).min(i.i()[2]) as u64),
        case("v_minmax_i32 %0, %1, %2, %3", U32, |i| i.i()[0].min(i.i()[1]).max(i.i()[2]) as u64),
        case("v_sad_u8 %0, %1, %2, %3", U32, |i| {
            let d = bytes(i.u()[0]).into_iter().zip(bytes(i.u()[1])).map(|(x, y)| x.max(y) - x.min(y));
            u64::from(d.sum::<u32>()) + i.c
        }),
        case("v_sad_hi_u8 %0, %1, %2, %3", U32, |i| {
            let d = bytes(i.u()[0]).into_iter().zip(bytes(i.u()[1])).map(|(x, y)| x.max(y) - x.min(y));
            (u64::from(d.sum::<u32>()) << 16).wrapping_add(i.c)
        }),
        case("v_msad_u8 %0, %1, %2, %3", U32, |i| {
            let pairs = bytes(i.u()[0]).into_iter().zip(bytes(i.u()[1])).filter(|(_, y)| *y != 0);
            u64::from(pairs.map(|(x, y)| x.max(y) - x.min(y)).sum::<u32>()).wrapping_add(i.c)
        }),
        case("v_sad_u16 %0, %1, %2, %3", U32, |i| {
            let d = |s: u32| (i.a >> s & 0xffff).abs_diff(i.b >> s & 0xffff);
            d(0) + d(16) + (i.c & 0xffff_ffff)
        }),
        case("v_sad_u32 %0, %1, %2, %3", U32, |i| {
            u64::from(i.u()[0]).abs_diff(i.u()[1].into()) + (i.c & 0xffff_ffff)
        }),
        case("v_lerp_u8 %0, %1, %2, %3", U32, |i| {
            let (a, b, c) = (bytes(i.u()[0]), bytes(i.u()[1]), bytes(i.u()[2]));
            let r: [u8; 4] = std::array::from_fn(|n| ((a[n] + b[n] + (c[n] & 1)) / 2) as u8);
            u32::from_le_bytes(r).into()
        }),
        case("v_xor3_b32 %0, %1, %2, %3", U32, |i| i.a ^ i.b ^ i.c),
        case("v_or3_b32 %0, %1, %2, %3", U32, |i| i.a | i.b | i.c),
        case("v_and_or_b32 %0, %1, %2, %3", U32, |i| (i.a & i.b) | i.c),
        case("v_xad_u32 %0, %1, %2, %3", U32, |i| (i.a ^ i.b).wrapping_add(i.c)),
        case("v_add3_u32 %0, %1, %2, %3", U32, |i| i.a.wrapping_add(i.b).wrapping_add(i.c)),
        case("v_lshl_add_u32 %0, %1, %2, %3", U32, |i| (i.a << (i.b & 31)).wrapping_add(i.c)),
        case("v_add_lshl_u32 %0, %1, %2, %3", U32, |i| i.a.wrapping_add(i.b) << (i.c & 31)),
        case("v_lshl_or_b32 %0, %1, %2, %3", U32, |i| (i.a << (i.b & 31)) | i.c),
        case("v_mad_u32_u16 %0, %1, %2, %3", U32, |i| (i.a & 0xffff) * (i.b & 0xffff) + (i.c & 0xffff_ffff)),
        case("v_mad_i32_i16 %0, %1, %2, %3", U32, |i| {
            (sext(i.u()[0], 16) * sext(i.u()[1], 16) + i64::from(i.i()[2])) as u64
        }),
    ]
}

fn carries() -> Vec<Case> {
    vec![
        case("v_add_co_u32 %0, vcc_lo, %1, %2\nv_cndmask_b32 %0, %0, %3, vcc_lo", U32, |i| {
            let s = u64::from(i.u()[0]) + u64::from(i.u()[1]);
            if s >> 32 == 1 { i.c } else { s }
        }),
        case("v_sub_co_u32 %0, vcc_lo, %1, %2\nv_cndmask_b32 %0, %0, %3, vcc_lo", U32, |i| {
            if i.u()[0] < i.u()[1] { i.c } else { i.a.wrapping_sub(i.b) }
        }),
        case("v_subrev_co_u32 %0, s20, %1, %2\nv_cndmask_b32 %0, %0, %3, s20", U32, |i| {
            if i.u()[1] < i.u()[0] { i.c } else { i.b.wrapping_sub(i.a) }
        }),
        // The carry of a + b into c + d, and its carry out.
        case("v_add_co_u32 %0, vcc_lo, %1, %2\nv_add_co_ci_u32 %0, vcc_lo, %3, %3, vcc_lo", U32, |i| {
            let carry = (u64::from(i.u()[0]) + u64::from(i.u()[1])) >> 32;
            i.c.wrapping_add(i.c).wrapping_add(carry)
        }),
        case("v_sub_co_u32 %0, vcc_lo, %1, %2\nv_sub_co_ci_u32 %0, vcc_lo, %3, %1, vcc_lo", U32, |i| {
            i.c.wrapping_sub(i.a).wrapping_sub(u64::from(i.u()[0] < i.u()[1]))
        }),
        case("v_sub_co_u32 %0, vcc_lo, %1, %2\nv_subrev_co_ci_u32 %0, vcc_lo, %3, %1, vcc_lo", U32, |i| {
            i.a.wrapping_sub(i.c).wrapping_sub(u64::from(i.u()[0] < i.u()[1]))
        }),
    ]
}

#[test]
fn integers_of_32_bits() {
    let cases: Vec<Case> = two().into_iter().chain(three()).chain(carries()).collect();
    check("alu32", &cases, |_| true);
}

/// Literals, inline constants and scalar registers as operands.
#[test]
fn every_kind_of_operand() {
    let cases = [
        case("v_add_nc_u32 %0, 0x12345678, %1", U32, |i| i.a.wrapping_add(0x1234_5678)),
        case("v_add3_u32 %0, %1, 0x7654321, %2", U32, |i| i.a.wrapping_add(0x765_4321).wrapping_add(i.b)),
        case("v_add_nc_u32 %0, -16, %1", U32, |i| i.a.wrapping_sub(16)),
        case("v_add_nc_u32 %0, 64, %1", U32, |i| i.a.wrapping_add(64)),
        case("v_xor_b32 %0, 1.0, %1", U32, |i| i.a ^ 0x3f80_0000),
        case("v_xor_b32 %0, -4.0, %1", U32, |i| i.a ^ 0xc080_0000),
        case("v_xor_b32 %0, 0.15915494, %1", U32, |i| i.a ^ 0x3e22_f983),
        case("s_mov_b32 s20, 0x00abcdef\nv_xor_b32 %0, s20, %1", U32, |i| i.a ^ 0xab_cdef),
        case("v_mov_b32 %0, src_shared_base", U32, |_| 0),
    ];
    check("operands", &cases, |_| true);
}
