//! Instructions that move values between lanes or between a lane and scalar registers.

use super::{Flow, group::Group, stop_lane, wave::Wave};
use crate::{
    fault::What,
    inst::{Inst, Src, mods::sel},
};

/// V_READFIRSTLANE_B32: the lowest active lane, lane 0 when none is.
pub(crate) fn readfirstlane(w: &mut Wave, i: &Inst, _: &mut Group<'_>) -> Flow {
    let exec = w.exec();
    let lane = if exec == 0 { 0 } else { exec.trailing_zeros() };
    read(w, i, lane)
}

/// V_READLANE_B32: any lane, active or not.
pub(crate) fn readlane(w: &mut Wave, i: &Inst, _: &mut Group<'_>) -> Flow {
    let lane = w.s32(i.src[1]) & 31;
    match i.src[0] {
        // Compilers keep scalar registers in lanes, those that nobody wrote among them.
        Src::V(r) => {
            i.only(0)?;
            let defined = w.init[usize::from(r)] >> lane & 1 == 1;
            w.set_scalar_as_is(i.dst, w.v[usize::from(r)][lane as usize], defined);
            Ok(())
        }
        _ => read(w, i, lane),
    }
}

fn read(w: &mut Wave, i: &Inst, lane: u32) -> Flow {
    i.only(0)?;
    let v = match i.src[0] {
        Src::V(r) => {
            w.require(r, 1 << lane, "lane read into a scalar register")?;
            w.v[usize::from(r)][lane as usize]
        }
        s => w.s32(s),
    };
    w.set_s(i.dst, v);
    Ok(())
}

/// V_WRITELANE_B32: one lane, active or not.
pub(crate) fn writelane(w: &mut Wave, i: &Inst, _: &mut Group<'_>) -> Flow {
    i.only(0)?;
    let ((v, defined), lane) = (w.scalar_as_is(i.src[0]), w.s32(i.src[1]) & 31);
    w.v[usize::from(i.dst)][lane as usize] = v;
    let init = &mut w.init[usize::from(i.dst)];
    *init = *init & !(1 << lane) | u32::from(defined) << lane;
    Ok(())
}

/// Gathers lanes of source 0 by `from`; OP_SEL bit 0 fetches inactive lanes, bit 1 is bound control.
fn gather(w: &mut Wave, i: &Inst, from: impl Fn(usize) -> usize) -> Flow {
    i.only(sel(2))?;
    let v = w.lanes(i, 0);
    let (init, exec) = (w.defined(i, 0), w.exec());
    let (fetch_inactive, bound) = (i.opsel & 1 == 1, i.opsel & 2 == 2);
    let old = w.v[usize::from(i.dst)];
    let old_init = w.init[usize::from(i.dst)];
    let (mut r, mut ok) = ([0; 32], 0);
    for l in 0..32 {
        let s = from(l);
        let (value, defined) = if fetch_inactive || exec >> s & 1 == 1 {
            (v[s], init >> s & 1)
        } else if bound {
            (0, 1)
        } else {
            (old[l], old_init >> l & 1)
        };
        r[l] = value;
        ok |= defined << l;
    }
    w.put(i.dst, exec, ok, &r);
    Ok(())
}

/// V_PERMLANE16_B32 (`cross` false) and V_PERMLANEX16_B32: selectors from two scalar operands.
pub(crate) fn permlane16(w: &mut Wave, i: &Inst, cross: bool) -> Flow {
    let sel = u64::from(w.s32(i.src[1])) | u64::from(w.s32(i.src[2])) << 32;
    let flip = if cross { 16 } else { 0 };
    gather(w, i, |l| (l & 16 ^ flip) | (sel >> (4 * (l & 15)) & 15) as usize)
}

/// V_PERMLANE16_VAR_B32 and V_PERMLANEX16_VAR_B32: selectors from a vector register.
pub(crate) fn permlane16_var(w: &mut Wave, i: &Inst, cross: bool) -> Flow {
    w.require_src(i, 1, w.exec(), "lane selector")?;
    let sel = w.lanes(i, 1);
    let flip = if cross { 16 } else { 0 };
    gather(w, i, |l| (l & 16 ^ flip) | (sel[l] & 15) as usize)
}

/// DS_PERMUTE_B32: pushes to the lane that the address names; the highest lane wins.
pub(crate) fn ds_permute(w: &mut Wave, i: &Inst, _: &mut Group<'_>) -> Flow {
    let exec = w.exec();
    w.require(i.mem.vaddr, exec, "address")?;
    let (addr, data) = (w.v[usize::from(i.mem.vaddr)], w.v[usize::from(i.mem.data)]);
    let init = w.init[usize::from(i.mem.data)];
    let (mut r, mut ok) = ([0; 32], u32::MAX);
    for l in (0..32).filter(|l| exec >> l & 1 == 1) {
        let to = (addr[l].wrapping_add(i.mem.offset as u32) / 4 % 32) as usize;
        r[to] = data[l];
        ok = ok & !(1 << to) | (init >> l & 1) << to;
    }
    w.put(i.dst, exec, ok, &r);
    Ok(())
}

/// DS_BPERMUTE_B32: pulls from the lane that the address names; inactive lanes give 0 unless `fi`.
pub(crate) fn ds_bpermute(w: &mut Wave, i: &Inst, fi: bool) -> Flow {
    let exec = w.exec();
    w.require(i.mem.vaddr, exec, "address")?;
    let (addr, data) = (w.v[usize::from(i.mem.vaddr)], w.v[usize::from(i.mem.data)]);
    let init = w.init[usize::from(i.mem.data)];
    let (mut r, mut ok) = ([0; 32], u32::MAX);
    for l in 0..32 {
        let from = addr[l].wrapping_add(i.mem.offset as u32) / 4 % 32;
        if fi || exec >> from & 1 == 1 {
            r[l] = data[from as usize];
            ok = ok & !(1 << l) | (init >> from & 1) << l;
        }
    }
    w.put(i.dst, exec, ok, &r);
    Ok(())
}

/// DS_SWIZZLE_B32: a pattern in the offset; inactive source lanes give 0.
pub(crate) fn ds_swizzle(w: &mut Wave, i: &Inst, _: &mut Group<'_>) -> Flow {
    let offset = i.mem.offset as u32;
    let from = |l: u32| match offset {
        // FFT: bit-reversed butterflies.
        0xe000.. => {
            let mask = offset & 31;
            (l.reverse_bits() >> 27) >> mask.count_ones() | l & mask
        }
        // Rotation within the lanes that the mask lets differ.
        0xc000.. => {
            let (mask, by) = (offset & 31, offset >> 5 & 31);
            let turned = if offset >> 10 & 1 == 1 { l.wrapping_sub(by) } else { l + by };
            l & mask | turned & 31 & !mask
        }
        // Any lane of the quad.
        0x8000.. => l & !3 | offset >> (2 * (l & 3)) & 3,
        // And, or, xor.
        _ => (l & offset & 31 | offset >> 5 & 31) ^ (offset >> 10 & 31),
    };
    let exec = w.exec();
    let data = w.v[usize::from(i.mem.vaddr)];
    let init = w.init[usize::from(i.mem.vaddr)];
    let (mut r, mut ok) = ([0; 32], u32::MAX);
    for l in 0..32 {
        let s = from(l as u32) & 31;
        if exec >> s & 1 == 1 {
            r[l] = data[s as usize];
            ok = ok & !(1 << l) | (init >> s & 1) << l;
        }
    }
    w.put(i.dst, exec, ok, &r);
    Ok(())
}

/// V_MOVRELS and the like index registers by M0.
pub(crate) fn relative(w: &mut Wave, i: &Inst, source: bool, dest: bool) -> Flow {
    i.only(0)?;
    let m0 = w.scalar(125);
    let shift = |r: u8, by: bool| u32::from(r) + if by { m0 } else { 0 };
    let Src::V(s) = i.src[0] else {
        return stop_lane(0, What::NotEmulated("relative move of a scalar".to_owned()));
    };
    let (s, d) = (shift(s, source), shift(i.dst, dest));
    if s > 255 || d > 255 {
        return stop_lane(0, What::NotEmulated(format!("relative register beyond v255 (M0 = {m0})")));
    }
    let (values, ok) = (w.v[s as usize], w.init[s as usize]);
    w.put(d as u8, w.exec(), ok, &values);
    Ok(())
}
