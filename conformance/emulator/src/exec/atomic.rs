//! Atomics on flat, global and buffer addresses.

use super::{
    Flow,
    group::{Access, Group},
    mem::{Addresses, Place},
    stop_lane,
    wave::Wave,
};
use crate::{
    fault::What,
    inst::Inst,
    memory::{load32, store32},
    numeric::{max_num, min_num},
};

/// new = f(old, data, compare). A code object with atomics runs its workgroups one after another, so the
/// read and the write of one instruction are not torn and their order is fixed.
pub(crate) fn atomic(
    w: &mut Wave,
    i: &Inst,
    g: &mut Group<'_>,
    wide: bool,
    operands: u8,
    f: impl Fn(u64, u64, u64) -> u64,
) -> Flow {
    let addresses = Addresses::new(w, i)?;
    let exec = w.exec();
    let (size, dwords) = if wide { (8u32, 2u8) } else { (4, 1) };
    for d in 0..dwords * operands {
        w.require(i.mem.data.wrapping_add(d), exec, "atomic data")?;
    }
    g.global_atomic(w.who());
    let mut out = [[0u32; 32]; 2];
    for l in (0..32).filter(|l| exec >> l & 1 == 1) {
        let get = |first: u8| {
            let word = |d: u8| u64::from(w.v[usize::from(i.mem.data.wrapping_add(first + d))][l]);
            word(0) | if wide { word(1) << 32 } else { 0 }
        };
        let (data, compare) = (get(0), if operands > 1 { get(dwords) } else { 0 });
        let old = match addresses.at(l, size) {
            Place::Global(a) => {
                g.global_check(l, a, size, Access::Atomic, w.who())?;
                if a % u64::from(size) != 0 {
                    return stop_lane(l, What::Misaligned { space: "global", address: a, size });
                }
                let old = u64::from(load32(a)) | if wide { u64::from(load32(a + 4)) << 32 } else { 0 };
                let new = f(old, data, compare);
                store32(a, new as u32);
                if wide {
                    store32(a + 4, (new >> 32) as u32);
                }
                old
            }
            Place::Lds(a) => {
                g.lds_check(l, a, size, Access::Atomic, w.who())?;
                let old = u64::from(g.lds32(a)) | if wide { u64::from(g.lds32(a + 4)) << 32 } else { 0 };
                let new = f(old, data, compare);
                g.lds_put(a, &new.to_le_bytes()[..size as usize]);
                old
            }
            Place::Private(_) => {
                return stop_lane(l, What::NotEmulated("an atomic on scratch".to_owned()));
            }
            Place::Nowhere => 0,
            Place::Across => {
                return stop_lane(
                    l,
                    What::NotEmulated(format!("{} across the end of its buffer", i.row.name)),
                );
            }
        };
        out[0][l] = old as u32;
        out[1][l] = (old >> 32) as u32;
    }
    if i.mem.returns {
        for d in 0..dwords {
            w.put(i.dst.wrapping_add(d), exec, u32::MAX, &out[usize::from(d)]);
        }
    }
    Ok(())
}

/// A 32-bit float operation on raw bits.
pub(crate) fn float(f: impl Fn(f32, f32) -> f32) -> impl Fn(u64, u64, u64) -> u64 {
    move |old, data, _| u64::from(f(f32::from_bits(old as u32), f32::from_bits(data as u32)).to_bits())
}

/// Adds two packed 16-bit floats.
pub(crate) fn packed(up: fn(u16) -> f32, down: fn(f32) -> u16) -> impl Fn(u64, u64, u64) -> u64 {
    move |old, data, _| {
        let add = |s: u32| u64::from(down(up((old >> s) as u16) + up((data >> s) as u16))) << s;
        add(0) | add(16)
    }
}

/// Wraps to 0 above the operand.
pub(crate) fn inc(old: u64, data: u64, _: u64) -> u64 {
    if old >= data { 0 } else { old + 1 }
}

/// Wraps to the operand below 0.
pub(crate) fn dec(old: u64, data: u64, _: u64) -> u64 {
    if old == 0 || old > data { data } else { old - 1 }
}

/// gfx11's float minimum of memory and data.
pub(crate) fn min_f32(old: f32, data: f32) -> f32 {
    if data < old { data } else { old }
}

/// gfx11's float maximum of memory and data.
pub(crate) fn max_f32(old: f32, data: f32) -> f32 {
    if data > old { data } else { old }
}

/// gfx12's float minimum of memory and data.
pub(crate) fn min_num_f32(old: f32, data: f32) -> f32 {
    min_num(data, old)
}

/// gfx12's float maximum of memory and data.
pub(crate) fn max_num_f32(old: f32, data: f32) -> f32 {
    max_num(data, old)
}
