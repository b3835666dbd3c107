//! Dot products of packed values into 32 bits.

use super::{Flow, group::Group, wave::Wave};
use crate::{
    inst::{
        Inst,
        mods::{ABS, CLAMP, DPP, neg, sel},
    },
    numeric::{b2f, h2f},
};

/// V_DOT2_F32_F16 and V_DOT2_F32_BF16.
pub(crate) fn dot2_f32(w: &mut Wave, i: &Inst, g: &mut Group<'_>, bf16: bool) -> Flow {
    i.only(neg(3) | ABS | ABS << 1 | sel(2) | CLAMP)?;
    let (a, b) = (w.packed(i, 0, true), w.packed(i, 1, true));
    // The addend is f32, so are its inline constants and its negation.
    let c: [f32; 32] = w.lanes(i, 2).map(|x| {
        let x = f32::from_bits(x);
        if i.neg >> 2 & 1 == 1 { -x } else { x }
    });
    let up = if bf16 { b2f } else { h2f };
    let r = std::array::from_fn(|l| {
        let (p, q) = ((up(a[l].0), up(b[l].0)), (up(a[l].1), up(b[l].1)));
        g.model.sum(bf16, c[l], &[p, q])
    });
    w.put_f32(i, w.defined_all(i, 3), r);
    Ok(())
}

/// V_DOT2ACC_F32_F16 and its bf16 twin of VOPD: the destination is the addend.
pub(crate) fn dot2acc(w: &mut Wave, i: &Inst, g: &mut Group<'_>, bf16: bool) -> Flow {
    i.only(DPP)?;
    let (a, b) = (w.lanes(i, 0), w.lanes(i, 1));
    let c = w.v[usize::from(i.dst)];
    let up = if bf16 { b2f } else { h2f };
    let r = std::array::from_fn(|l| {
        let p = (up(a[l] as u16), up(b[l] as u16));
        let q = (up((a[l] >> 16) as u16), up((b[l] >> 16) as u16));
        g.model.sum(bf16, f32::from_bits(c[l]), &[p, q])
    });
    let ok = w.defined_all(i, 2) & w.init[usize::from(i.dst)];
    w.put_f32(i, ok, r);
    Ok(())
}

/// Sums of `count` products of `32 / count`-bit integers onto S2; NEG makes a source signed.
pub(crate) fn dot_int(w: &mut Wave, i: &Inst, count: u32, fixed_unsigned: bool) -> Flow {
    i.only(if fixed_unsigned { CLAMP } else { neg(2) | CLAMP })?;
    let width = 32 / count;
    let signed = |n: u32| !fixed_unsigned && i.neg >> n & 1 == 1;
    let part = |x: u32, k: u32, signed: bool| -> i64 {
        let v = x << (32 - width * (k + 1));
        if signed { i64::from(v as i32 >> (32 - width)) } else { i64::from(v >> (32 - width)) }
    };
    let (a, b, c) = (w.lanes(i, 0), w.lanes(i, 1), w.lanes(i, 2));
    let r = std::array::from_fn(|l| {
        let dot: i64 = (0..count).map(|k| part(a[l], k, signed(0)) * part(b[l], k, signed(1))).sum();
        match (fixed_unsigned, i.clamp) {
            (true, true) => (i64::from(c[l]) + dot).clamp(0, u32::MAX.into()) as u32,
            (false, true) => (i64::from(c[l] as i32) + dot).clamp(i32::MIN.into(), i32::MAX.into()) as u32,
            (_, false) => c[l].wrapping_add(dot as u32),
        }
    });
    w.put(i.dst, w.mask(i), w.defined_all(i, 3), &r);
    Ok(())
}
