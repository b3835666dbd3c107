//! Scalar instructions with their condition code.

use super::{Case, In, Result_::*, case, case2, check};

/// 32 bits and SCC.
fn with(r: u32, scc: bool) -> u64 {
    u64::from(r) | u64::from(scc) << 63
}

/// SCC says whether the result is not zero.
fn nonzero(asm: &str, f: impl Fn(In) -> u32 + 'static) -> Case {
    case(asm, S32, move |i| with(f(i), f(i) != 0))
}

/// SCC stays as it was: set before from a bit of C.
fn untouched(asm: &str, f: impl Fn(In) -> u32 + 'static) -> Case {
    case(&format!("s_bitcmp1_b32 %3, 0\n{asm}"), S32, move |i| with(f(i), i.c & 1 == 1))
}

fn bits() -> Vec<Case> {
    vec![
        untouched("s_mov_b32 %0, %1", |i| i.u()[0]),
        untouched("s_cmov_b32 %0, %1", |i| if i.c & 1 == 1 { i.u()[0] } else { i.u()[3] }),
        untouched("s_cselect_b32 %0, %1, %2", |i| if i.c & 1 == 1 { i.u()[0] } else { i.u()[1] }),
        untouched("s_brev_b32 %0, %1", |i| (0..32).map(|n| (i.u()[0] >> n & 1) << (31 - n)).sum()),
        untouched("s_ctz_i32_b32 %0, %1", |i| (0..32).find(|n| i.a >> n & 1 == 1).unwrap_or(u32::MAX)),
        untouched("s_clz_i32_u32 %0, %1", |i| (0..32).find(|n| i.a >> (31 - n) & 1 == 1).unwrap_or(u32::MAX)),
        untouched("s_cls_i32 %0, %1", |i| {
            (1..32).find(|n| i.a >> (31 - n) & 1 != i.a >> 31 & 1).unwrap_or(u32::MAX)
        }),
        untouched("s_sext_i32_i8 %0, %1", |i| i.a as i8 as u32),
        untouched("s_sext_i32_i16 %0, %1", |i| i.a as i16 as u32),
        untouched("s_bitset0_b32 %0, %1", |i| i.u()[3] & !(1 << (i.a & 31))),
        untouched("s_bitset1_b32 %0, %1", |i| i.u()[3] | 1 << (i.a & 31)),
        nonzero("s_abs_i32 %0, %1", |i| i.i()[0].unsigned_abs()),
        nonzero("s_bcnt0_i32_b32 %0, %1", |i| (0..32).filter(|n| i.a >> n & 1 == 0).count() as u32),
        nonzero("s_bcnt1_i32_b32 %0, %1", |i| (0..32).filter(|n| i.a >> n & 1 == 1).count() as u32),
        nonzero("s_bcnt1_i32_b64 %0, %4", |i| (0..64).filter(|n| i.a >> n & 1 == 1).count() as u32),
        nonzero("s_quadmask_b32 %0, %1", |i| {
            (0..8).map(|q| u32::from(i.u()[0] >> (4 * q) & 15 != 0) << q).sum()
        }),
        nonzero("s_wqm_b32 %0, %1", |i| {
            (0..8).map(|q| if i.u()[0] >> (4 * q) & 15 != 0 { 15 << (4 * q) } else { 0 }).sum()
        }),
        nonzero("s_not_b32 %0, %1", |i| !i.u()[0]),
        nonzero("s_and_b32 %0, %1, %2", |i| i.u()[0] & i.u()[1]),
        nonzero("s_or_b32 %0, %1, %2", |i| i.u()[0] | i.u()[1]),
        nonzero("s_xor_b32 %0, %1, %2", |i| i.u()[0] ^ i.u()[1]),
        nonzero("s_nand_b32 %0, %1, %2", |i| !(i.u()[0] & i.u()[1])),
        nonzero("s_nor_b32 %0, %1, %2", |i| !(i.u()[0] | i.u()[1])),
        nonzero("s_xnor_b32 %0, %1, %2", |i| !(i.u()[0] ^ i.u()[1])),
        nonzero("s_and_not1_b32 %0, %1, %2", |i| i.u()[0] & !i.u()[1]),
        nonzero("s_or_not1_b32 %0, %1, %2", |i| i.u()[0] | !i.u()[1]),
        nonzero("s_lshl_b32 %0, %1, %2", |i| i.u()[0] << (i.b & 31)),
        nonzero("s_lshr_b32 %0, %1, %2", |i| i.u()[0] >> (i.b & 31)),
        nonzero("s_ashr_i32 %0, %1, %2", |i| (i.i()[0] >> (i.b & 31)) as u32),
        nonzero("s_bfe_u32 %0, %1, %2", |i| {
            let (offset, width) = (i.b & 31, (i.b >> 16 & 127).min(32));
            ((u64::from(i.u()[0]) >> offset) & ((1 << width) - 1)) as u32
        }),
        nonzero("s_bfe_i32 %0, %1, 0x00070003", |i| ((i.i()[0] << 22) >> 25) as u32),
        untouched("s_bfm_b32 %0, %1, %2", |i| ((1 << (i.a & 31)) - 1) << (i.b & 31)),
        untouched("s_pack_ll_b32_b16 %0, %1, %2", |i| i.u()[0] & 0xffff | i.u()[1] << 16),
        untouched("s_pack_lh_b32_b16 %0, %1, %2", |i| i.u()[0] & 0xffff | i.u()[1] >> 16 << 16),
        untouched("s_pack_hh_b32_b16 %0, %1, %2", |i| i.u()[0] >> 16 | i.u()[1] >> 16 << 16),
    ]
}

fn sums() -> Vec<Case> {
    let carry = |i: In| with(i.u()[0].wrapping_add(i.u()[1]), i.u()[0].checked_add(i.u()[1]).is_none());
    let borrow = |i: In| with(i.u()[0].wrapping_sub(i.u()[1]), i.u()[0] < i.u()[1]);
    let over = |i: In| with(i.u()[0].wrapping_add(i.u()[1]), i.i()[0].checked_add(i.i()[1]).is_none());
    let under = |i: In| with(i.u()[0].wrapping_sub(i.u()[1]), i.i()[0].checked_sub(i.i()[1]).is_none());
    let c = |i: In| i.c & 1;
    vec![
        case2("s_add_u32 %0, %1, %2", "s_add_co_u32 %0, %1, %2", S32, carry),
        case2("s_sub_u32 %0, %1, %2", "s_sub_co_u32 %0, %1, %2", S32, borrow),
        case2("s_add_i32 %0, %1, %2", "s_add_co_i32 %0, %1, %2", S32, over),
        case2("s_sub_i32 %0, %1, %2", "s_sub_co_i32 %0, %1, %2", S32, under),
        case2(
            "s_bitcmp1_b32 %3, 0\ns_addc_u32 %0, %1, %2",
            "s_bitcmp1_b32 %3, 0\ns_add_co_ci_u32 %0, %1, %2",
            S32,
            move |i| {
                let s = u64::from(i.u()[0]) + u64::from(i.u()[1]) + c(i);
                with(s as u32, s >> 32 != 0)
            },
        ),
        case2(
            "s_bitcmp1_b32 %3, 0\ns_subb_u32 %0, %1, %2",
            "s_bitcmp1_b32 %3, 0\ns_sub_co_ci_u32 %0, %1, %2",
            S32,
            move |i| {
                let s = i64::from(i.u()[0]) - i64::from(i.u()[1]) - c(i) as i64;
                with(s as u32, s < 0)
            },
        ),
        nonzero("s_absdiff_i32 %0, %1, %2", |i| (i.i()[0].wrapping_sub(i.i()[1])).unsigned_abs()),
        case("s_lshl1_add_u32 %0, %1, %2", S32, |i| shifted(i, 1)),
        case("s_lshl2_add_u32 %0, %1, %2", S32, |i| shifted(i, 2)),
        case("s_lshl3_add_u32 %0, %1, %2", S32, |i| shifted(i, 3)),
        case("s_lshl4_add_u32 %0, %1, %2", S32, |i| shifted(i, 4)),
        case("s_min_i32 %0, %1, %2", S32, |i| with(i.i()[0].min(i.i()[1]) as u32, i.i()[0] < i.i()[1])),
        case("s_min_u32 %0, %1, %2", S32, |i| with(i.u()[0].min(i.u()[1]), i.u()[0] < i.u()[1])),
        case("s_max_i32 %0, %1, %2", S32, |i| with(i.i()[0].max(i.i()[1]) as u32, i.i()[0] >= i.i()[1])),
        case("s_max_u32 %0, %1, %2", S32, |i| with(i.u()[0].max(i.u()[1]), i.u()[0] >= i.u()[1])),
        untouched("s_mul_i32 %0, %1, %2", |i| i.u()[0].wrapping_mul(i.u()[1])),
        untouched("s_mul_hi_u32 %0, %1, %2", |i| ((u64::from(i.u()[0]) * u64::from(i.u()[1])) >> 32) as u32),
        untouched("s_mul_hi_i32 %0, %1, %2", |i| ((i64::from(i.i()[0]) * i64::from(i.i()[1])) >> 32) as u32),
        untouched("s_movk_i32 %0, 0x8765", |_| 0xffff_8765),
        untouched("s_mulk_i32 %0, 0xfffd", |i| i.u()[3].wrapping_mul(3).wrapping_neg()),
        case2("s_addk_i32 %0, 0x8000", "s_addk_co_i32 %0, 0x8000", S32, |i| {
            with(i.u()[3].wrapping_sub(0x8000), i.i()[3].checked_sub(0x8000).is_none())
        }),
    ]
}

fn shifted(i: In, n: u32) -> u64 {
    let s = (u64::from(i.u()[0]) << n) + u64::from(i.u()[1]);
    with(s as u32, s >> 32 != 0)
}

fn compares() -> Vec<Case> {
    let cmp = |name: &str, holds: fn(In) -> bool| {
        case(&format!("s_cmp_{name} %1, %2\ns_mov_b32 %0, 0"), S32, move |i| with(0, holds(i)))
    };
    vec![
        cmp("eq_i32", |i| i.i()[0] == i.i()[1]),
        cmp("lg_i32", |i| i.i()[0] != i.i()[1]),
        cmp("gt_i32", |i| i.i()[0] > i.i()[1]),
        cmp("ge_i32", |i| i.i()[0] >= i.i()[1]),
        cmp("lt_i32", |i| i.i()[0] < i.i()[1]),
        cmp("le_i32", |i| i.i()[0] <= i.i()[1]),
        cmp("eq_u32", |i| i.u()[0] == i.u()[1]),
        cmp("gt_u32", |i| i.u()[0] > i.u()[1]),
        cmp("ge_u32", |i| i.u()[0] >= i.u()[1]),
        cmp("lt_u32", |i| i.u()[0] < i.u()[1]),
        cmp("le_u32", |i| i.u()[0] <= i.u()[1]),
        case("s_cmp_eq_u64 %4, %5\ns_mov_b32 %0, 0", S32, |i| with(0, i.a == i.b)),
        case("s_cmp_lg_u64 %4, %5\ns_mov_b32 %0, 0", S32, |i| with(0, i.a != i.b)),
        case("s_bitcmp0_b32 %1, %2\ns_mov_b32 %0, 0", S32, |i| with(0, i.a >> (i.b & 31) & 1 == 0)),
        case("s_bitcmp1_b32 %1, %2\ns_mov_b32 %0, 0", S32, |i| with(0, i.a >> (i.b & 31) & 1 == 1)),
        case2("s_cmpk_lt_i32 %0, 0x8000", "", S32, |i| with(i.u()[3], i.i()[3] < -0x8000)),
        case2("s_cmpk_ge_u32 %0, 0x8000", "", S32, |i| with(i.u()[3], i.u()[3] >= 0x8000)),
    ]
}

#[test]
fn scalars_of_32_bits() {
    let cases: Vec<Case> = bits().into_iter().chain(sums()).chain(compares()).collect();
    check("scalar", &cases, |_| true);
}

#[test]
fn scalars_of_64_bits() {
    let cases = [
        case("s_mov_b64 %0, %4", S64, |i| i.a),
        case("s_mov_b64 %0, 0x87654321", S64, |_| 0x8765_4321),
        case("s_mov_b64 %0, -5", S64, |_| (-5i64) as u64),
        case("s_brev_b64 %0, %4", S64, |i| (0..64).map(|n| (i.a >> n & 1) << (63 - n)).sum()),
        case("s_not_b64 %0, %4", S64, |i| !i.a),
        case("s_and_b64 %0, %4, %5", S64, |i| i.a & i.b),
        case("s_or_b64 %0, %4, %5", S64, |i| i.a | i.b),
        case("s_xor_b64 %0, %4, %5", S64, |i| i.a ^ i.b),
        case("s_and_not1_b64 %0, %4, %5", S64, |i| i.a & !i.b),
        case("s_lshl_b64 %0, %4, %2", S64, |i| i.a << (i.b & 63)),
        case("s_lshr_b64 %0, %4, %2", S64, |i| i.a >> (i.b & 63)),
        case("s_ashr_i64 %0, %4, %2", S64, |i| (i.a as i64 >> (i.b & 63)) as u64),
        case("s_bitreplicate_b64_b32 %0, %1", S64, |i| {
            (0..32).map(|n| (i.a >> n & 1) << (2 * n) | (i.a >> n & 1) << (2 * n + 1)).sum()
        }),
        case("s_bitcmp1_b32 %3, 0\ns_cselect_b64 %0, %4, %5", S64, |i| if i.c & 1 == 1 { i.a } else { i.b }),
        case2("", "s_add_nc_u64 %0, %4, %5", S64, |i| i.a.wrapping_add(i.b)),
        case2("", "s_sub_nc_u64 %0, %4, %5", S64, |i| i.a.wrapping_sub(i.b)),
        case2("", "s_mul_u64 %0, %4, %5", S64, |i| i.a.wrapping_mul(i.b)),
    ];
    check("scalar64", &cases, |_| true);
}

/// gfx12 has scalar floats; so has gfx11.5, whose code shares the tables.
#[test]
fn scalar_floats() {
    let cases = [
        case2("", "s_add_f32 %0, %1, %2\ns_cmp_eq_u32 %1, %1", S32, |i| with(raw(i.f()[0] + i.f()[1]), true)),
        case2("", "s_mul_f32 %0, %1, %2\ns_cmp_eq_u32 %1, %1", S32, |i| with(raw(i.f()[0] * i.f()[1]), true)),
        case2("", "s_fmac_f32 %0, %1, %2\ns_cmp_eq_u32 %1, %1", S32, |i| {
            with(raw(i.f()[0].mul_add(i.f()[1], i.f()[3])), true)
        }),
        case2("", "s_floor_f32 %0, %1\ns_cmp_eq_u32 %1, %1", S32, |i| with(raw(i.f()[0].floor()), true)),
        case2("", "s_cvt_f32_i32 %0, %1\ns_cmp_eq_u32 %1, %1", S32, |i| with(raw(i.i()[0] as f32), true)),
        case2("", "s_cvt_i32_f32 %0, %1\ns_cmp_eq_u32 %1, %1", S32, |i| with(i.f()[0] as i32 as u32, true)),
        case2("", "s_cmp_lt_f32 %1, %2\ns_mov_b32 %0, 0", S32, |i| with(0, i.f()[0] < i.f()[1])),
        case2("", "s_cmp_nge_f32 %1, %2\ns_mov_b32 %0, 0", S32, |i| {
            with(0, i.f()[0] < i.f()[1] || i.f()[0].is_nan() || i.f()[1].is_nan())
        }),
    ];
    check("scalar_float", &cases, |i| [0, 1, 3].iter().all(|&n| !i.f()[n].is_nan() && i.f()[n].is_finite()));
}

fn raw(x: f32) -> u32 {
    x.to_bits()
}
