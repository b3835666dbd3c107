//! VOPC: compares into a scalar mask, and into EXEC for V_CMPX.

use super::r;
use crate::{
    exec::wave::Wide,
    inst::{
        NO, Row,
        mods::{DPP, signs},
    },
    numeric::{class, differ},
};

/// The rows of one float type: V_CMP and V_CMPX with sixteen relations. gfx12 has no constant relations.
macro_rules! float_rows {
    ($base:literal, $t:literal, $c:ident, $half:expr; $($n:literal $op:expr, $constant:literal => $f:expr;)*) => {
        &[
            $(
                Row {
                    name: concat!("v_cmp_", $n, "_", $t),
                    g11: $base + $op,
                    g12: if $constant { NO } else { $base + $op },
                    half: $half,
                    emulated: true,
                    exec: |w, i, _| w.$c(i, $f),
                },
                Row {
                    name: concat!("v_cmpx_", $n, "_", $t),
                    g11: 0x80 + $base + $op,
                    g12: if $constant { NO } else { 0x80 + $base + $op },
                    half: $half,
                    emulated: true,
                    exec: |w, i, _| w.$c(i, $f),
                },
            )*
        ]
    };
}

macro_rules! all_floats {
    ($base:literal, $t:literal, $c:ident, $half:expr) => {
        float_rows!($base, $t, $c, $half;
            "f" 0, true => |_, _| false;
            "lt" 1, false => |a, b| a < b;
            "eq" 2, false => |a, b| a == b;
            "le" 3, false => |a, b| a <= b;
            "gt" 4, false => |a, b| a > b;
            "lg" 5, false => |a, b| differ(a, b);
            "ge" 6, false => |a, b| a >= b;
            "o" 7, false => |a, b| !a.is_nan() && !b.is_nan();
            "u" 8, false => |a, b| a.is_nan() || b.is_nan();
            "nge" 9, false => |a, b| !a.ge(&b);
            "nlg" 10, false => |a, b| !differ(a, b);
            "ngt" 11, false => |a, b| !a.gt(&b);
            "nle" 12, false => |a, b| !a.le(&b);
            "neq" 13, false => |a, b| a != b;
            "nlt" 14, false => |a, b| !a.lt(&b);
            "t" 15, true => |_, _| true;
        )
    };
}

/// Rows by float type.
pub(super) static FLOAT: &[Row] = &flatten();

const F16: &[Row] = all_floats!(0, "f16", ch, 3);
const F32: &[Row] = all_floats!(16, "f32", cf, 0);
const F64: &[Row] = all_floats!(32, "f64", cd, 0);

const fn flatten() -> [Row; 96] {
    let mut out = [F16[0]; 96];
    let mut n = 0;
    while n < 32 {
        out[n] = F16[n];
        out[32 + n] = F32[n];
        out[64 + n] = F64[n];
        n += 1;
    }
    out
}

/// V_CMP and V_CMPX of one integer relation.
macro_rules! int_rows {
    ($($n:literal, $t:literal, $op:expr, $g12:literal, $half:expr, $f:expr;)*) => {
        &[
            $(
                Row {
                    name: concat!("v_cmp_", $n, "_", $t),
                    g11: $op,
                    g12: if $g12 { $op } else { NO },
                    half: $half,
                    emulated: true,
                    exec: $f,
                },
                Row {
                    name: concat!("v_cmpx_", $n, "_", $t),
                    g11: 0x80 + $op,
                    g12: if $g12 { 0x80 + $op } else { NO },
                    half: $half,
                    emulated: true,
                    exec: $f,
                },
            )*
            // The classes of one operand, chosen by the bits of the other.
            Row { name: "v_cmp_class_f16", g11: 0x7d, g12: 0x7d, half: 3, emulated: true, exec: CLASS16 },
            Row { name: "v_cmpx_class_f16", g11: 0xfd, g12: 0xfd, half: 3, emulated: true, exec: CLASS16 },
            r("v_cmp_class_f32", 0x7e, 0x7e, CLASS32),
            r("v_cmpx_class_f32", 0xfe, 0xfe, CLASS32),
            r("v_cmp_class_f64", 0x7f, 0x7f, CLASS64),
            r("v_cmpx_class_f64", 0xff, 0xff, CLASS64),
        ]
    };
}

type Step = fn(
    &mut crate::exec::wave::Wave,
    &crate::inst::Inst,
    &mut crate::exec::group::Group<'_>,
) -> crate::exec::Flow;

const CLASS16: Step = |w, i, _| {
    i.only16(2, true, signs(1) | DPP)?;
    let (a, b) = (w.half(i, 0, true), w.half(i, 1, false));
    let bits = (0..32).fold(0, |m, l| {
        let x = modified(i, u32::from(a[l]), 15) as u16;
        let sub = x & 0x7c00 == 0 && x & 0x3ff != 0;
        let c = class(crate::numeric::h2f(x).into(), sub, x & 0x200 == 0);
        m | u32::from(b[l] >> c & 1) << l
    });
    w.put_mask(i, 2, bits)
};

const CLASS32: Step = |w, i, _| {
    i.only(signs(1) | DPP)?;
    let (a, b) = (w.lanes(i, 0), w.lanes(i, 1));
    let bits = (0..32).fold(0, |m, l| {
        let x = f32::from_bits(modified(i, a[l], 31));
        let c = class(x.into(), x.is_subnormal(), x.to_bits() & 0x40_0000 == 0);
        m | (b[l] >> c & 1) << l
    });
    w.put_mask(i, 2, bits)
};

const CLASS64: Step = |w, i, _| {
    i.only(signs(1))?;
    let (abs, neg) = (i.abs & 1 == 1, i.neg & 1 == 1);
    let a = w.pairs(i, 0, Wide::Float).map(|x| {
        let x = f64::from_bits(if abs { x & !(1 << 63) } else { x });
        if neg { -x } else { x }
    });
    let b = w.lanes(i, 1);
    let bits = (0..32).fold(0, |m, l| {
        let c = class(a[l], a[l].is_subnormal(), a[l].to_bits() >> 51 & 1 == 0);
        m | (b[l] >> c & 1) << l
    });
    w.put_mask(i, 2, bits)
};

/// Absolute value and negation of source 0.
fn modified(i: &crate::inst::Inst, x: u32, sign: u32) -> u32 {
    let x = if i.abs & 1 == 1 { x & !(1 << sign) } else { x };
    x ^ u32::from(i.neg & 1) << sign
}

pub(super) static INT: &[Row] = int_rows!(
    "lt", "i16", 0x31, true, 3, |w, i, _| w.cw(i, |a, b| (a as i16) < b as i16);
    "eq", "i16", 0x32, true, 3, |w, i, _| w.cw(i, |a, b| a == b);
    "le", "i16", 0x33, true, 3, |w, i, _| w.cw(i, |a, b| a as i16 <= b as i16);
    "gt", "i16", 0x34, true, 3, |w, i, _| w.cw(i, |a, b| a as i16 > b as i16);
    "ne", "i16", 0x35, true, 3, |w, i, _| w.cw(i, |a, b| a != b);
    "ge", "i16", 0x36, true, 3, |w, i, _| w.cw(i, |a, b| a as i16 >= b as i16);
    "lt", "u16", 0x39, true, 3, |w, i, _| w.cw(i, |a, b| a < b);
    "eq", "u16", 0x3a, true, 3, |w, i, _| w.cw(i, |a, b| a == b);
    "le", "u16", 0x3b, true, 3, |w, i, _| w.cw(i, |a, b| a <= b);
    "gt", "u16", 0x3c, true, 3, |w, i, _| w.cw(i, |a, b| a > b);
    "ne", "u16", 0x3d, true, 3, |w, i, _| w.cw(i, |a, b| a != b);
    "ge", "u16", 0x3e, true, 3, |w, i, _| w.cw(i, |a, b| a >= b);
    "f", "i32", 0x40, false, 0, |w, i, _| w.cu(i, |_, _| false);
    "lt", "i32", 0x41, true, 0, |w, i, _| w.cu(i, |a, b| (a as i32) < b as i32);
    "eq", "i32", 0x42, true, 0, |w, i, _| w.cu(i, |a, b| a == b);
    "le", "i32", 0x43, true, 0, |w, i, _| w.cu(i, |a, b| a as i32 <= b as i32);
    "gt", "i32", 0x44, true, 0, |w, i, _| w.cu(i, |a, b| a as i32 > b as i32);
    "ne", "i32", 0x45, true, 0, |w, i, _| w.cu(i, |a, b| a != b);
    "ge", "i32", 0x46, true, 0, |w, i, _| w.cu(i, |a, b| a as i32 >= b as i32);
    "t", "i32", 0x47, false, 0, |w, i, _| w.cu(i, |_, _| true);
    "f", "u32", 0x48, false, 0, |w, i, _| w.cu(i, |_, _| false);
    "lt", "u32", 0x49, true, 0, |w, i, _| w.cu(i, |a, b| a < b);
    "eq", "u32", 0x4a, true, 0, |w, i, _| w.cu(i, |a, b| a == b);
    "le", "u32", 0x4b, true, 0, |w, i, _| w.cu(i, |a, b| a <= b);
    "gt", "u32", 0x4c, true, 0, |w, i, _| w.cu(i, |a, b| a > b);
    "ne", "u32", 0x4d, true, 0, |w, i, _| w.cu(i, |a, b| a != b);
    "ge", "u32", 0x4e, true, 0, |w, i, _| w.cu(i, |a, b| a >= b);
    "t", "u32", 0x4f, false, 0, |w, i, _| w.cu(i, |_, _| true);
    "f", "i64", 0x50, false, 0, |w, i, _| w.cq(i, Wide::Signed, |_, _| false);
    "lt", "i64", 0x51, true, 0, |w, i, _| w.cq(i, Wide::Signed, |a, b| (a as i64) < b as i64);
    "eq", "i64", 0x52, true, 0, |w, i, _| w.cq(i, Wide::Signed, |a, b| a == b);
    "le", "i64", 0x53, true, 0, |w, i, _| w.cq(i, Wide::Signed, |a, b| a as i64 <= b as i64);
    "gt", "i64", 0x54, true, 0, |w, i, _| w.cq(i, Wide::Signed, |a, b| a as i64 > b as i64);
    "ne", "i64", 0x55, true, 0, |w, i, _| w.cq(i, Wide::Signed, |a, b| a != b);
    "ge", "i64", 0x56, true, 0, |w, i, _| w.cq(i, Wide::Signed, |a, b| a as i64 >= b as i64);
    "t", "i64", 0x57, false, 0, |w, i, _| w.cq(i, Wide::Signed, |_, _| true);
    "f", "u64", 0x58, false, 0, |w, i, _| w.cq(i, Wide::Bits, |_, _| false);
    "lt", "u64", 0x59, true, 0, |w, i, _| w.cq(i, Wide::Bits, |a, b| a < b);
    "eq", "u64", 0x5a, true, 0, |w, i, _| w.cq(i, Wide::Bits, |a, b| a == b);
    "le", "u64", 0x5b, true, 0, |w, i, _| w.cq(i, Wide::Bits, |a, b| a <= b);
    "gt", "u64", 0x5c, true, 0, |w, i, _| w.cq(i, Wide::Bits, |a, b| a > b);
    "ne", "u64", 0x5d, true, 0, |w, i, _| w.cq(i, Wide::Bits, |a, b| a != b);
    "ge", "u64", 0x5e, true, 0, |w, i, _| w.cq(i, Wide::Bits, |a, b| a >= b);
    "t", "u64", 0x5f, false, 0, |w, i, _| w.cq(i, Wide::Bits, |_, _| true);
);
