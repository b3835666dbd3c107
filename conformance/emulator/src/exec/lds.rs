//! DS instructions on local memory.

use super::{
    Flow,
    group::{Access, Group},
    stop,
    wave::Wave,
};
use crate::{exec::mem::Width, fault::What, inst::Inst};

/// Lane addresses; inactive lanes' are never looked at.
fn check_address(w: &Wave, i: &Inst) -> Result<u32, Box<super::Hit>> {
    if i.mem.odd {
        return stop(What::NotEmulated("global data share".to_owned()));
    }
    let exec = w.exec();
    w.require(i.mem.vaddr, exec, "LDS address")?;
    Ok(exec)
}

/// DS_LOAD_*.
pub(crate) fn load(w: &mut Wave, i: &Inst, g: &mut Group<'_>, width: Width) -> Flow {
    let exec = check_address(w, i)?;
    let who = w.who();
    let addr = w.v[usize::from(i.mem.vaddr)];
    let size = width.bytes();
    let mut out = [[0u32; 32]; 4];
    for l in (0..32).filter(|l| exec >> l & 1 == 1) {
        let a = addr[l].wrapping_add(i.mem.offset as u32);
        g.lds_check(l, a, size, Access::Read, who)?;
        match size {
            1 => out[0][l] = g.lds[a as usize].into(),
            2 => out[0][l] = u16::from_le_bytes([g.lds[a as usize], g.lds[a as usize + 1]]).into(),
            _ => {
                for d in 0..size / 4 {
                    out[d as usize][l] = g.lds32(a + 4 * d);
                }
            }
        }
    }
    width.write_back(w, i.dst, exec, &out);
    Ok(())
}

/// DS_STORE_*.
pub(crate) fn store(w: &mut Wave, i: &Inst, g: &mut Group<'_>, width: Width) -> Flow {
    let exec = check_address(w, i)?;
    let who = w.who();
    let addr = w.v[usize::from(i.mem.vaddr)];
    let size = width.bytes();
    for d in 0..size.div_ceil(4) {
        w.require(i.mem.data.wrapping_add(d as u8), exec, "LDS store data")?;
    }
    for l in (0..32).filter(|l| exec >> l & 1 == 1) {
        let a = addr[l].wrapping_add(i.mem.offset as u32);
        g.lds_check(l, a, size, Access::Write, who)?;
        for d in 0..size.div_ceil(4) {
            let v = w.v[usize::from(i.mem.data) + d as usize][l] >> width.store_shift();
            let bytes = v.to_le_bytes();
            g.lds_put(a + 4 * d, &bytes[..size.min(4) as usize]);
        }
    }
    Ok(())
}

/// Scale of the two offsets: the element, times 64 in the STRIDE64 forms.
fn pair_offsets(i: &Inst, size: u32, stride64: bool) -> [u32; 2] {
    let unit = if stride64 { size * 64 } else { size };
    [i.mem.offset as u32 * unit, u32::from(i.mem.offset1) * unit]
}

/// DS_LOAD_2ADDR_*: two elements of `size` bytes.
pub(crate) fn load2(w: &mut Wave, i: &Inst, g: &mut Group<'_>, size: u32, stride64: bool) -> Flow {
    let exec = check_address(w, i)?;
    let who = w.who();
    let addr = w.v[usize::from(i.mem.vaddr)];
    let dwords = (size / 4) as usize;
    let mut out = [[0u32; 32]; 4];
    for l in (0..32).filter(|l| exec >> l & 1 == 1) {
        for (n, offset) in pair_offsets(i, size, stride64).into_iter().enumerate() {
            let a = addr[l].wrapping_add(offset);
            g.lds_check(l, a, size, Access::Read, who)?;
            for d in 0..dwords {
                out[n * dwords + d][l] = g.lds32(a + 4 * d as u32);
            }
        }
    }
    for (d, values) in out.iter().enumerate().take(2 * dwords) {
        w.put(i.dst.wrapping_add(d as u8), exec, u32::MAX, values);
    }
    Ok(())
}

/// DS_STORE_2ADDR_*.
pub(crate) fn store2(w: &mut Wave, i: &Inst, g: &mut Group<'_>, size: u32, stride64: bool) -> Flow {
    let exec = check_address(w, i)?;
    let who = w.who();
    let addr = w.v[usize::from(i.mem.vaddr)];
    let data = [i.mem.data, i.mem.data1];
    let dwords = (size / 4) as u8;
    for first in data {
        for d in 0..dwords {
            w.require(first.wrapping_add(d), exec, "LDS store data")?;
        }
    }
    for l in (0..32).filter(|l| exec >> l & 1 == 1) {
        for (first, offset) in data.into_iter().zip(pair_offsets(i, size, stride64)) {
            let a = addr[l].wrapping_add(offset);
            g.lds_check(l, a, size, Access::Write, who)?;
            for d in 0..dwords {
                let bytes = w.v[usize::from(first.wrapping_add(d))][l].to_le_bytes();
                g.lds_put(a + 4 * u32::from(d), &bytes);
            }
        }
    }
    Ok(())
}

/// DS atomics of 32 or 64 bits: new = f(old, data, data1).
pub(crate) fn atomic(
    w: &mut Wave,
    i: &Inst,
    g: &mut Group<'_>,
    wide: bool,
    f: impl Fn(u64, u64, u64) -> u64,
) -> Flow {
    let exec = check_address(w, i)?;
    let who = w.who();
    let addr = w.v[usize::from(i.mem.vaddr)];
    let (size, dwords) = if wide { (8, 2) } else { (4, 1) };
    for d in 0..dwords {
        w.require(i.mem.data.wrapping_add(d), exec, "LDS atomic data")?;
    }
    let get = |w: &Wave, first: u8, l: usize| {
        let lo = u64::from(w.v[usize::from(first)][l]);
        lo | if wide { u64::from(w.v[usize::from(first.wrapping_add(1))][l]) << 32 } else { 0 }
    };
    let mut out = [[0u32; 32]; 2];
    for l in (0..32).filter(|l| exec >> l & 1 == 1) {
        let a = addr[l].wrapping_add(i.mem.offset as u32);
        g.lds_check(l, a, size, Access::Atomic, who)?;
        let old = u64::from(g.lds32(a)) | if wide { u64::from(g.lds32(a + 4)) << 32 } else { 0 };
        let new = f(old, get(w, i.mem.data, l), get(w, i.mem.data1, l));
        g.lds_put(a, &new.to_le_bytes()[..size as usize]);
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
