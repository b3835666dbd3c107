//! SOP1, SOP2, SOPC and SOPK: scalar results and SCC.

use super::{
    GENERATIONS, Random, each, find,
    float32::{I32, U32_MAX, integer, toward_zero},
    half::fma,
    operand::{Kind, Mode, Source, T, pattern, same, value},
    trial::{f16_bits, f32_bits, run, set_source, wave},
    trials,
};
use crate::{arch::Gen, isa::Format};

use T::{F16, F32, U32, U64};

/// Operands of a scalar instruction.
pub(super) struct S {
    a: u64,
    b: u64,
    /// What the destination held.
    d: u64,
    scc: bool,
    exec: u32,
    ieee: bool,
    gfx11: bool,
}

/// What happens to SCC.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scc {
    Stays,
    /// D != 0.
    NotZero,
    /// Bit 64 of the result.
    Bit,
}

/// A scalar instruction.
pub(super) struct Scalar {
    pub(super) name: &'static str,
    sources: &'static [T],
    /// None for compares, whose result is SCC alone.
    dst: Option<T>,
    scc: Scc,
    formula: Box<dyn Fn(&S) -> u128>,
    /// EXEC afterwards.
    exec: Option<fn(&S) -> u32>,
}

fn form(
    name: &'static str,
    sources: &'static [T],
    dst: T,
    scc: Scc,
    f: impl Fn(&S) -> u128 + 'static,
) -> Scalar {
    Scalar { name, sources, dst: Some(dst), scc, formula: Box::new(f), exec: None }
}

fn u1(name: &'static str, scc: Scc, f: fn(u32) -> u32) -> Scalar {
    form(name, &[U32], U32, scc, move |s| f(s.a as u32).into())
}

fn u2(name: &'static str, scc: Scc, f: fn(u32, u32) -> u32) -> Scalar {
    form(name, &[U32, U32], U32, scc, move |s| f(s.a as u32, s.b as u32).into())
}

fn q1(name: &'static str, dst: T, scc: Scc, f: fn(u64) -> u64) -> Scalar {
    form(name, &[U64], dst, scc, move |s| f(s.a).into())
}

fn q2(name: &'static str, scc: Scc, f: fn(u64, u64) -> u64) -> Scalar {
    form(name, &[U64, U64], U64, scc, move |s| f(s.a, s.b).into())
}

fn shift(name: &'static str, f: fn(u64, u32) -> u64) -> Scalar {
    form(name, &[U64, U32], U64, Scc::NotZero, move |s| f(s.a, s.b as u32).into())
}

/// D in the low half, SCC in bit 64.
fn both(name: &'static str, f: fn(i64, i64, bool) -> (i64, bool)) -> Scalar {
    form(name, &[U32, U32], U32, Scc::Bit, move |s| {
        let (d, scc) = f(s.a as i64, s.b as i64, s.scc);
        u128::from(d as u32) | u128::from(scc) << 64
    })
}

fn test(name: &'static str, sources: &'static [T], f: impl Fn(&S) -> bool + 'static) -> Scalar {
    let formula = Box::new(move |s: &S| u128::from(f(s)) << 64);
    Scalar { name, sources, dst: None, scc: Scc::Bit, formula, exec: None }
}

fn float(name: &'static str, n: usize, f: fn(&S, f32, f32) -> f32) -> Scalar {
    form(name, &[F32, F32][..n], F32, Scc::Stays, move |s| {
        f32_bits(f(s, f32::from_bits(s.a as u32), f32::from_bits(s.b as u32))).into()
    })
}

fn half(name: &'static str, n: usize, f: fn(&S, f64, f64) -> f64) -> Scalar {
    form(name, &[F16, F16][..n], F16, Scc::Stays, move |s| {
        f16_bits(f(s, value(F16, s.a), value(F16, s.b))).into()
    })
}

fn found(bits: impl DoubleEndedIterator<Item = u64>) -> u32 {
    let mut bits = bits;
    bits.position(|b| b == 1).map_or(u32::MAX, |n| n as u32)
}

fn low_first(x: u64, n: u32) -> impl DoubleEndedIterator<Item = u64> {
    (0..n).map(move |k| x >> k & 1)
}

/// A field by S1: offset in its low bits, width in bits 22:16, of a value continued by its sign or zeros.
fn field(x: i128, s1: u32, offsets: u32, sign: bool) -> i128 {
    let (offset, width) = (s1 % offsets, s1 >> 16 & 127);
    if width > 64 {
        return x >> offset;
    }
    let v = x >> offset & ((1 << width) - 1);
    if sign && width > 0 && v >> (width - 1) & 1 == 1 { v - (1 << width) } else { v }
}

fn groups(x: u32, f: impl Fn(u32) -> u32) -> u32 {
    (0..8).filter(|n| x >> (4 * n) & 15 != 0).fold(0, |m, n| m | f(n))
}

fn bits() -> Vec<Scalar> {
    use Scc::{NotZero, Stays};
    vec![
        u1("s_mov_b32", Stays, |a| a),
        q1("s_mov_b64", U64, Stays, |a| a),
        form("s_cmov_b32", &[U32], U32, Stays, |s| if s.scc { s.a.into() } else { s.d.into() }),
        form("s_cmov_b64", &[U64], U64, Stays, |s| if s.scc { s.a.into() } else { s.d.into() }),
        u1("s_brev_b32", Stays, |a| (0..32).fold(0, |m, n| m | (a >> n & 1) << (31 - n))),
        q1("s_brev_b64", U64, Stays, |a| (0..64).fold(0, |m, n| m | (a >> n & 1) << (63 - n))),
        u1("s_ctz_i32_b32", Stays, |a| found(low_first(a.into(), 32))),
        q1("s_ctz_i32_b64", U32, Stays, |a| found(low_first(a, 64)).into()),
        u1("s_clz_i32_u32", Stays, |a| found(low_first(a.into(), 32).rev())),
        q1("s_clz_i32_u64", U32, Stays, |a| found(low_first(a, 64).rev()).into()),
        u1("s_cls_i32", Stays, |a| {
            let differs = found((0..31).rev().map(|n| u64::from((a >> n ^ a >> 31) & 1)));
            if differs == u32::MAX { differs } else { differs + 1 }
        }),
        u1("s_sext_i32_i8", Stays, |a| if a & 0x80 == 0 { a & 0xff } else { a | 0xffff_ff00 }),
        u1("s_sext_i32_i16", Stays, |a| if a & 0x8000 == 0 { a & 0xffff } else { a | 0xffff_0000 }),
        form("s_bitset0_b32", &[U32], U32, Stays, |s| (s.d & !(1 << (s.a % 32))).into()),
        form("s_bitset1_b32", &[U32], U32, Stays, |s| (s.d | 1 << (s.a % 32)).into()),
        form("s_bitset0_b64", &[U32], U64, Stays, |s| (s.d & !(1 << (s.a % 64))).into()),
        form("s_bitset1_b64", &[U32], U64, Stays, |s| (s.d | 1 << (s.a % 64)).into()),
        form("s_bitreplicate_b64_b32", &[U32], U64, Stays, |s| {
            (0..64).fold(0u64, |m, n| m | (s.a >> (n / 2) & 1) << n).into()
        }),
        u1("s_abs_i32", NotZero, |a| if a >> 31 == 1 { 0u32.wrapping_sub(a) } else { a }),
        u1("s_bcnt0_i32_b32", NotZero, |a| low_first((!a).into(), 32).sum::<u64>() as u32),
        u1("s_bcnt1_i32_b32", NotZero, |a| low_first(a.into(), 32).sum::<u64>() as u32),
        q1("s_bcnt0_i32_b64", U32, NotZero, |a| low_first(!a, 64).sum()),
        q1("s_bcnt1_i32_b64", U32, NotZero, |a| low_first(a, 64).sum()),
        u1("s_quadmask_b32", NotZero, |a| groups(a, |n| 1 << n)),
        u1("s_wqm_b32", NotZero, |a| groups(a, |n| 15 << (4 * n))),
        u1("s_not_b32", NotZero, |a| a ^ u32::MAX),
        q1("s_not_b64", U64, NotZero, |a| a ^ u64::MAX),
        u2("s_and_b32", NotZero, |a, b| a & b),
        u2("s_or_b32", NotZero, |a, b| a | b),
        u2("s_xor_b32", NotZero, |a, b| a ^ b),
        u2("s_nand_b32", NotZero, |a, b| !(a & b)),
        u2("s_nor_b32", NotZero, |a, b| !(a | b)),
        u2("s_xnor_b32", NotZero, |a, b| !(a ^ b)),
        u2("s_and_not1_b32", NotZero, |a, b| a & !b),
        u2("s_or_not1_b32", NotZero, |a, b| a | !b),
        q2("s_and_b64", NotZero, |a, b| a & b),
        q2("s_or_b64", NotZero, |a, b| a | b),
        q2("s_xor_b64", NotZero, |a, b| a ^ b),
        q2("s_nand_b64", NotZero, |a, b| !(a & b)),
        q2("s_nor_b64", NotZero, |a, b| !(a | b)),
        q2("s_xnor_b64", NotZero, |a, b| !(a ^ b)),
        q2("s_and_not1_b64", NotZero, |a, b| a & !b),
        q2("s_or_not1_b64", NotZero, |a, b| a | !b),
        u2("s_lshl_b32", NotZero, |a, b| (u64::from(a) << (b % 32)) as u32),
        u2("s_lshr_b32", NotZero, |a, b| a >> (b % 32)),
        u2("s_ashr_i32", NotZero, |a, b| (a as i32 >> (b % 32)) as u32),
        shift("s_lshl_b64", |a, b| a << (b % 64)),
        shift("s_lshr_b64", |a, b| a >> (b % 64)),
        shift("s_bfe_u64", |a, b| field(a.into(), b, 64, false) as u64),
        form("s_ashr_i64", &[T::I64, U32], U64, NotZero, |s| ((s.a as i64 >> (s.b % 64)) as u64).into()),
        form("s_bfe_i64", &[T::I64, U32], U64, NotZero, |s| {
            (field((s.a as i64).into(), s.b as u32, 64, true) as u64).into()
        }),
        u2("s_bfe_u32", NotZero, |a, b| field(a.into(), b, 32, false) as u32),
        u2("s_bfe_i32", NotZero, |a, b| field((a as i32).into(), b, 32, true) as u32),
        u2("s_bfm_b32", Stays, |a, b| (((1u64 << (a % 32)) - 1) << (b % 32)) as u32),
        form("s_bfm_b64", &[U32, U32], U64, Stays, |s| {
            u128::from((((1u128 << (s.a % 64)) - 1) << (s.b % 64)) as u64)
        }),
        form("s_cselect_b32", &[U32, U32], U32, Stays, |s| if s.scc { s.a } else { s.b }.into()),
        form("s_cselect_b64", &[U64, U64], U64, Stays, |s| if s.scc { s.a } else { s.b }.into()),
        u2("s_pack_ll_b32_b16", Stays, |a, b| a & 0xffff | b << 16),
        u2("s_pack_lh_b32_b16", Stays, |a, b| a & 0xffff | b & 0xffff_0000),
        u2("s_pack_hh_b32_b16", Stays, |a, b| a >> 16 | b & 0xffff_0000),
        u2("s_pack_hl_b32_b16", Stays, |a, b| a >> 16 | b << 16),
    ]
}

fn sums() -> Vec<Scalar> {
    fn carry(v: i64) -> (i64, bool) {
        (v, !(0..1 << 32).contains(&v))
    }
    fn overflow(v: i64) -> (i64, bool) {
        (v, i32::try_from(v).is_err())
    }
    fn i(x: i64) -> i64 {
        (x as i32).into()
    }
    let mut out = vec![
        both("s_min_i32", |a, b, _| (i(a).min(i(b)), i(a) < i(b))),
        both("s_max_i32", |a, b, _| (i(a).max(i(b)), i(a) >= i(b))),
        both("s_min_u32", |a, b, _| (a.min(b), a < b)),
        both("s_max_u32", |a, b, _| (a.max(b), a >= b)),
        both("s_lshl1_add_u32", |a, b, _| carry((a << 1) + b)),
        both("s_lshl2_add_u32", |a, b, _| carry((a << 2) + b)),
        both("s_lshl3_add_u32", |a, b, _| carry((a << 3) + b)),
        both("s_lshl4_add_u32", |a, b, _| carry((a << 4) + b)),
        u2("s_absdiff_i32", Scc::NotZero, |a, b| {
            let d = a.wrapping_sub(b);
            if d >> 31 == 1 { 0u32.wrapping_sub(d) } else { d }
        }),
        u2("s_mul_i32", Scc::Stays, |a, b| (u64::from(a) * u64::from(b)) as u32),
        u2("s_mul_hi_u32", Scc::Stays, |a, b| ((u64::from(a) * u64::from(b)) >> 32) as u32),
        u2("s_mul_hi_i32", Scc::Stays, |a, b| ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32),
        q2("s_add_nc_u64", Scc::Stays, |a, b| (u128::from(a) + u128::from(b)) as u64),
        q2("s_sub_nc_u64", Scc::Stays, |a, b| (i128::from(a) - i128::from(b)) as u64),
        q2("s_mul_u64", Scc::Stays, |a, b| (u128::from(a) * u128::from(b)) as u64),
    ];
    for [add, sub, addi, subi, addc, subc] in [
        ["s_add_u32", "s_sub_u32", "s_add_i32", "s_sub_i32", "s_addc_u32", "s_subb_u32"],
        [
            "s_add_co_u32",
            "s_sub_co_u32",
            "s_add_co_i32",
            "s_sub_co_i32",
            "s_add_co_ci_u32",
            "s_sub_co_ci_u32",
        ],
    ] {
        out.push(both(add, |a, b, _| carry(a + b)));
        out.push(both(sub, |a, b, _| carry(a - b)));
        out.push(both(addi, |a, b, _| overflow(i(a) + i(b))));
        out.push(both(subi, |a, b, _| overflow(i(a) - i(b))));
        out.push(both(addc, |a, b, c| carry(a + b + i64::from(c))));
        out.push(both(subc, |a, b, c| carry(a - b - i64::from(c))));
    }
    out
}

/// Saves EXEC and changes it, or writes the new one to both.
fn masks() -> Vec<Scalar> {
    fn of(name: &'static str, write: bool, f: fn(&S) -> u32) -> Scalar {
        let formula = move |s: &S| {
            let d = if write { f(s) } else { s.exec };
            u128::from(d) | u128::from(f(s) != 0) << 64
        };
        Scalar { exec: Some(f), ..form(name, &[U32], U32, Scc::Bit, formula) }
    }
    vec![
        of("s_and_saveexec_b32", false, |s| s.a as u32 & s.exec),
        of("s_or_saveexec_b32", false, |s| s.a as u32 | s.exec),
        of("s_xor_saveexec_b32", false, |s| s.a as u32 ^ s.exec),
        of("s_nand_saveexec_b32", false, |s| !(s.a as u32 & s.exec)),
        of("s_nor_saveexec_b32", false, |s| !(s.a as u32 | s.exec)),
        of("s_xnor_saveexec_b32", false, |s| !(s.a as u32 ^ s.exec)),
        of("s_and_not0_saveexec_b32", false, |s| !(s.a as u32) & s.exec),
        of("s_or_not0_saveexec_b32", false, |s| !(s.a as u32) | s.exec),
        of("s_and_not1_saveexec_b32", false, |s| s.a as u32 & !s.exec),
        of("s_or_not1_saveexec_b32", false, |s| s.a as u32 | !s.exec),
        of("s_and_not0_wrexec_b32", true, |s| !(s.a as u32) & s.exec),
        of("s_and_not1_wrexec_b32", true, |s| s.a as u32 & !s.exec),
    ]
}

fn least(s: &S, sign: f64, a: f64, b: f64, signalling: bool) -> f64 {
    if s.gfx11 && s.ieee && signalling {
        return f64::NAN;
    }
    if a.is_nan() || b.is_nan() {
        return if a.is_nan() { b } else { a };
    }
    let (p, q) = (a * sign, b * sign);
    if p < q || p == q && p == 0.0 && p.is_sign_negative() { a } else { b }
}

fn least32(s: &S, sign: f64, a: f32, b: f32) -> f32 {
    let signalling = |x: f32| x.is_nan() && x.to_bits() & 0x40_0000 == 0;
    least(s, sign, a.into(), b.into(), signalling(a) || signalling(b)) as f32
}

fn least16(s: &S, sign: f64, a: f64, b: f64) -> f64 {
    let signalling = |h: u64| h & 0x7e00 == 0x7c00 && h & 0x1ff != 0;
    least(s, sign, a, b, signalling(s.a) || signalling(s.b))
}

fn strict(s: &S, sign: f64, a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { least(s, sign, a, b, false) }
}

fn floats() -> Vec<Scalar> {
    use Scc::Stays;
    let f = |x: u64| f32::from_bits(x as u32);
    let mut out = vec![
        float("s_add_f32", 2, |_, a, b| a + b),
        float("s_sub_f32", 2, |_, a, b| a - b),
        float("s_mul_f32", 2, |_, a, b| a * b),
        float("s_minimum_f32", 2, |s, a, b| strict(s, 1.0, a.into(), b.into()) as f32),
        float("s_maximum_f32", 2, |s, a, b| strict(s, -1.0, a.into(), b.into()) as f32),
        float("s_ceil_f32", 1, |_, a, _| a.ceil()),
        float("s_floor_f32", 1, |_, a, _| a.floor()),
        float("s_trunc_f32", 1, |_, a, _| a.trunc()),
        float("s_rndne_f32", 1, |_, a, _| a.round_ties_even()),
        form("s_fmac_f32", &[F32, F32], F32, Stays, move |s| f32_bits(f(s.a).mul_add(f(s.b), f(s.d))).into()),
        half("s_add_f16", 2, |_, a, b| a + b),
        half("s_sub_f16", 2, |_, a, b| a - b),
        half("s_mul_f16", 2, |_, a, b| a * b),
        half("s_minimum_f16", 2, |s, a, b| strict(s, 1.0, a, b)),
        half("s_maximum_f16", 2, |s, a, b| strict(s, -1.0, a, b)),
        half("s_ceil_f16", 1, |_, a, _| a.ceil()),
        half("s_floor_f16", 1, |_, a, _| a.floor()),
        half("s_trunc_f16", 1, |_, a, _| a.trunc()),
        half("s_rndne_f16", 1, |_, a, _| a.round_ties_even()),
        form("s_fmac_f16", &[F16, F16], F16, Stays, |s| {
            fma(value(F16, s.a), value(F16, s.b), value(F16, s.d & 0xffff)).into()
        }),
        u1("s_cvt_f32_i32", Stays, |a| (a as i32 as f32).to_bits()),
        u1("s_cvt_f32_u32", Stays, |a| (a as f32).to_bits()),
        form("s_cvt_i32_f32", &[F32], U32, Stays, move |s| integer(f(s.a).into(), I32[0], I32[1]).into()),
        form("s_cvt_u32_f32", &[F32], U32, Stays, move |s| integer(f(s.a).into(), 0.0, U32_MAX).into()),
        form("s_cvt_f16_f32", &[F32], F16, Stays, move |s| f16_bits(f(s.a).into()).into()),
        form("s_cvt_pk_rtz_f16_f32", &[F32, F32], U32, Stays, move |s| {
            u128::from(toward_zero(f(s.a)) | toward_zero(f(s.b)) << 16)
        }),
        form("s_cvt_f32_f16", &[F16], F32, Stays, |s| f32_bits(value(F16, s.a) as f32).into()),
    ];
    for (min, max) in [("s_min_f32", "s_max_f32"), ("s_min_num_f32", "s_max_num_f32")] {
        out.push(float(min, 2, |s, a, b| least32(s, 1.0, a, b)));
        out.push(float(max, 2, |s, a, b| least32(s, -1.0, a, b)));
    }
    for (min, max) in [("s_min_f16", "s_max_f16"), ("s_min_num_f16", "s_max_num_f16")] {
        out.push(half(min, 2, |s, a, b| least16(s, 1.0, a, b)));
        out.push(half(max, 2, |s, a, b| least16(s, -1.0, a, b)));
    }
    out
}

/// SIMM16 comes as operand `b`, sign-extended.
fn constants() -> Vec<Scalar> {
    fn k(name: &'static str, scc: Scc, f: impl Fn(&S) -> u128 + 'static) -> Scalar {
        form(name, &[], U32, scc, f)
    }
    fn sum(s: &S) -> u128 {
        let v = i64::from(s.d as i32) + s.b as i64;
        u128::from(v as u32) | u128::from(i32::try_from(v).is_err()) << 64
    }
    fn signed(name: &'static str, f: fn(i64, i64) -> bool) -> Scalar {
        k(name, Scc::Bit, move |s| u128::from(s.d) | u128::from(f((s.d as i32).into(), s.b as i64)) << 64)
    }
    fn unsigned(name: &'static str, f: fn(u64, u64) -> bool) -> Scalar {
        k(name, Scc::Bit, move |s| u128::from(s.d) | u128::from(f(s.d, s.b & 0xffff)) << 64)
    }
    vec![
        k("s_movk_i32", Scc::Stays, |s| s.b.into()),
        k("s_cmovk_i32", Scc::Stays, |s| if s.scc { s.b } else { s.d }.into()),
        k("s_mulk_i32", Scc::Stays, |s| u128::from((i64::from(s.d as i32) * s.b as i64) as u32)),
        k("s_addk_i32", Scc::Bit, sum),
        k("s_addk_co_i32", Scc::Bit, sum),
        signed("s_cmpk_eq_i32", |a, b| a == b),
        signed("s_cmpk_lg_i32", |a, b| a != b),
        signed("s_cmpk_gt_i32", |a, b| a > b),
        signed("s_cmpk_ge_i32", |a, b| a >= b),
        signed("s_cmpk_lt_i32", |a, b| a < b),
        signed("s_cmpk_le_i32", |a, b| a <= b),
        unsigned("s_cmpk_eq_u32", |a, b| a == b),
        unsigned("s_cmpk_lg_u32", |a, b| a != b),
        unsigned("s_cmpk_gt_u32", |a, b| a > b),
        unsigned("s_cmpk_ge_u32", |a, b| a >= b),
        unsigned("s_cmpk_lt_u32", |a, b| a < b),
        unsigned("s_cmpk_le_u32", |a, b| a <= b),
    ]
}

fn compares() -> Vec<Scalar> {
    let mut out = vec![
        test("s_cmp_eq_i32", &[U32, U32], |s| s.a as i32 == s.b as i32),
        test("s_cmp_lg_i32", &[U32, U32], |s| s.a as i32 != s.b as i32),
        test("s_cmp_gt_i32", &[U32, U32], |s| s.a as i32 > s.b as i32),
        test("s_cmp_ge_i32", &[U32, U32], |s| s.a as i32 >= s.b as i32),
        test("s_cmp_lt_i32", &[U32, U32], |s| (s.a as i32) < s.b as i32),
        test("s_cmp_le_i32", &[U32, U32], |s| s.a as i32 <= s.b as i32),
        test("s_cmp_eq_u32", &[U32, U32], |s| s.a == s.b),
        test("s_cmp_lg_u32", &[U32, U32], |s| s.a != s.b),
        test("s_cmp_gt_u32", &[U32, U32], |s| s.a > s.b),
        test("s_cmp_ge_u32", &[U32, U32], |s| s.a >= s.b),
        test("s_cmp_lt_u32", &[U32, U32], |s| s.a < s.b),
        test("s_cmp_le_u32", &[U32, U32], |s| s.a <= s.b),
        test("s_cmp_eq_u64", &[U64, U64], |s| s.a == s.b),
        test("s_cmp_lg_u64", &[U64, U64], |s| s.a != s.b),
        test("s_bitcmp0_b32", &[U32, U32], |s| s.a >> (s.b % 32) & 1 == 0),
        test("s_bitcmp1_b32", &[U32, U32], |s| s.a >> (s.b % 32) & 1 == 1),
        test("s_bitcmp0_b64", &[U64, U32], |s| s.a >> (s.b % 64) & 1 == 0),
        test("s_bitcmp1_b64", &[U64, U32], |s| s.a >> (s.b % 64) & 1 == 1),
    ];
    type Relation = fn(f64, f64) -> bool;
    let relations: [(&str, Relation); 14] = [
        ("lt", |a, b| a < b),
        ("eq", |a, b| a == b),
        ("le", |a, b| a <= b),
        ("gt", |a, b| a > b),
        ("lg", |a, b| !a.is_nan() && !b.is_nan() && a != b),
        ("ge", |a, b| a >= b),
        ("o", |a, b| !a.is_nan() && !b.is_nan()),
        ("u", |a, b| a.is_nan() || b.is_nan()),
        ("nge", |a, b| a.is_nan() || b.is_nan() || a < b),
        ("nlg", |a, b| a.is_nan() || b.is_nan() || a == b),
        ("ngt", |a, b| a.is_nan() || b.is_nan() || a <= b),
        ("nle", |a, b| a.is_nan() || b.is_nan() || a > b),
        ("neq", |a, b| a.is_nan() || b.is_nan() || a != b),
        ("nlt", |a, b| a.is_nan() || b.is_nan() || a >= b),
    ];
    for (name, f) in relations {
        for (t, kind, sources) in [(F32, "f32", &[F32, F32]), (F16, "f16", &[F16, F16])] {
            let name: &'static str = Box::leak(format!("s_cmp_{name}_{kind}").into_boxed_str());
            out.push(test(name, sources, move |s| f(value(t, s.a), value(t, s.b))));
        }
    }
    out
}

pub(super) fn forms() -> Vec<Scalar> {
    [bits(), sums(), masks(), floats(), constants(), compares()].into_iter().flatten().collect()
}

const DST: u32 = 40;

fn trial(form: &Scalar, generation: Gen, (format, op): (Format, u16), r: &mut Random) {
    let mode = Mode::random(generation == Gen::Gfx11, r);
    let (exec, scc) = (if r.one_in(8) { 0 } else { r.u32() }, r.one_in(2));
    let mut w = wave(mode.bits(), exec);
    w.scc = scc;
    let (mut codes, mut last, mut literals) = ([0; 2], None, true);
    let mut values = [0; 2];
    for (n, &t) in form.sources.iter().enumerate() {
        let mut s = Source::random(t, r, &mut literals, false);
        if s.kind == Kind::Vector {
            s = Source { kind: Kind::Scalar, raw: [pattern(t, r); 32] };
        }
        set_source(&mut w, &s, t, 0, 20 + 4 * n as u8);
        codes[n] = s.code(0, 20 + 4 * n as u32);
        if let Kind::Literal(x) = s.kind {
            last = Some(x);
        }
        let raw = if t.half() { s.raw[0] & 0xffff } else { s.raw[0] };
        values[n] = if t.float() { mode.operand(t, raw, false, false) } else { raw };
    }
    let dst = form.dst.unwrap_or(U32);
    let old = pattern(dst, r);
    w.set_s64(DST as u8, old);
    let d = if dst.half() {
        old & 0xffff
    } else if dst.wide() {
        old
    } else {
        old & 0xffff_ffff
    };
    let d = if dst.float() { mode.operand(dst, d, false, false) } else { d };
    let op = u32::from(op);
    let constant = if r.one_in(2) { r.u32() as u16 } else { old as u16 };
    if format == Format::Sopk {
        values[1] = constant as i16 as u64;
    }
    let first = match format {
        Format::Sopk => 0xb << 28 | op << 23 | DST << 16 | u32::from(constant),
        Format::Sop1 => 0x17d << 23 | DST << 16 | op << 8 | codes[0],
        Format::Sopc => 0x17e << 23 | op << 16 | codes[1] << 8 | codes[0],
        _ => 2 << 30 | op << 23 | DST << 16 | codes[1] << 8 | codes[0],
    };
    let words: Vec<u32> = [first].into_iter().chain(last).collect();
    let what = || format!("{generation:?} {} {words:08x?} {mode:?} exec {exec:#x} scc {scc}", form.name);
    if let Err(hit) = run(&mut w, generation, &words) {
        panic!("{}: {}", what(), hit.what);
    }
    let s = S { a: values[0], b: values[1], d, scc, exec, ieee: mode.ieee, gfx11: generation == Gen::Gfx11 };
    let full = (form.formula)(&s);
    let mut want = full as u64;
    if dst.float() {
        want = mode.result(dst, want, 0, false);
    }
    if form.dst.is_some() {
        let got = w.s64_at(DST as u8);
        // A half result clears the upper half.
        let got = if dst.wide() { got } else { got & 0xffff_ffff };
        assert!(
            same(dst, got, want) && (!dst.half() || got >> 16 == 0),
            "{}: {got:#x}, not {want:#x}, of {values:x?}, {d:#x}",
            what()
        );
    }
    let expected = match form.scc {
        Scc::Stays => scc,
        Scc::NotZero => {
            if dst.wide() {
                want != 0
            } else {
                want as u32 != 0
            }
        }
        Scc::Bit => full >> 64 & 1 == 1,
    };
    assert_eq!(w.scc, expected, "{}: SCC of {values:x?}", what());
    assert_eq!(w.exec(), form.exec.map_or(exec, |f| f(&s)), "{}: EXEC", what());
}

#[test]
fn scalar_forms() {
    each(&forms(), |form| {
        for generation in GENERATIONS {
            let formats = [Format::Sop1, Format::Sop2, Format::Sopc, Format::Sopk];
            let Some(found) = find(form.name, generation, &formats) else { continue };
            let mut r = Random::new(form.name);
            for _ in 0..trials() {
                trial(form, generation, found, &mut r);
            }
        }
    });
}
