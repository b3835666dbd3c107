//! Vector and scalar memory instructions outside of LDS.

use super::{
    Flow, Hit,
    group::{Access, Group, Who, aligned},
    stop, stop_lane,
    wave::{Lanes, PRIVATE_APERTURE, SHARED_APERTURE, Wave},
};
use crate::{
    decode::NULL,
    fault::What,
    inst::{Enc, Inst},
    memory,
};

/// What a load or store moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    U8,
    I8,
    U16,
    I16,
    /// Byte or halfword into the low or high half of the register, the other half kept.
    D16U8(bool),
    D16I8(bool),
    D16B16(bool),
    /// Dwords.
    B(u8),
}

impl Width {
    pub(crate) fn bytes(self) -> u32 {
        match self {
            Self::U8 | Self::I8 | Self::D16U8(_) | Self::D16I8(_) => 1,
            Self::U16 | Self::I16 | Self::D16B16(_) => 2,
            Self::B(n) => u32::from(n) * 4,
        }
    }

    /// Stores of a high half start there.
    pub(crate) fn store_shift(self) -> u32 {
        match self {
            Self::D16U8(true) | Self::D16I8(true) | Self::D16B16(true) => 16,
            _ => 0,
        }
    }

    /// Extends what was loaded and writes it.
    #[inline]
    pub(crate) fn write_back(self, w: &mut Wave, dst: u8, mask: u32, raw: &[Lanes; 4]) {
        let half = |f: fn(u32) -> u16| raw[0].map(f);
        match self {
            Self::B(n) => {
                for d in 0..n {
                    w.put(dst.wrapping_add(d), mask, u32::MAX, &raw[usize::from(d)]);
                }
            }
            Self::U8 | Self::U16 => w.put(dst, mask, u32::MAX, &raw[0]),
            Self::I8 => w.put(dst, mask, u32::MAX, &raw[0].map(|x| x as i8 as u32)),
            Self::I16 => w.put(dst, mask, u32::MAX, &raw[0].map(|x| x as i16 as u32)),
            Self::D16U8(high) | Self::D16B16(high) => {
                w.put16(dst, high, mask, u32::MAX, &half(|x| x as u16));
            }
            Self::D16I8(high) => w.put16(dst, high, mask, u32::MAX, &half(|x| x as i8 as u16)),
        }
    }
}

/// Where a lane's access goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Global(u64),
    Lds(u32),
    Private(i64),
    /// Beyond a buffer's records: loads give 0, stores are dropped.
    Nowhere,
    /// Across the end of a buffer's records, where the documents do not say how much is dropped.
    Across,
}

/// The address of every lane, computed once per instruction.
pub(crate) struct Addresses {
    base: u64,
    step: Lanes,
    high: Lanes,
    kind: Enc,
    /// Bytes that a raw buffer's records take; the scalar offset does not count towards them.
    limit: u64,
}

impl Addresses {
    /// Evaluates the address operands; undefined ones stop.
    pub(crate) fn new(w: &Wave, i: &Inst) -> Result<Self, Box<Hit>> {
        let (m, exec) = (&i.mem, w.exec());
        if m.odd {
            return stop(What::NotEmulated(format!("a mode of {}", i.row.name)));
        }
        let (zero, offset) = ([0u32; 32], i64::from(m.offset) as u64);
        let mut out = Addresses { base: offset, step: zero, high: zero, kind: i.enc, limit: 0 };
        let v = usize::from(m.vaddr);
        match i.enc {
            Enc::Scratch => {
                if m.use_vaddr {
                    w.require(m.vaddr, exec, "address")?;
                    out.step = w.v[v];
                }
                if m.saddr != NULL {
                    out.base = offset.wrapping_add(w.scalar(m.saddr) as i32 as u64);
                }
            }
            Enc::Buffer => {
                let r = m.saddr;
                let words: [u32; 4] = std::array::from_fn(|k| w.scalar(r + k as u8));
                let soffset = if m.soffset == NULL { 0 } else { w.s32(scalar(m.soffset)) };
                raw_buffer(words)?;
                if m.use_index {
                    return stop(What::NotEmulated("an indexed buffer".to_owned()));
                }
                out.base =
                    (u64::from(words[0]) | u64::from(words[1] & 0xffff) << 32).wrapping_add(soffset.into());
                out.limit = words[2].into();
                out.step = [offset as u32; 32];
                if m.use_vaddr {
                    w.require(m.vaddr, exec, "address")?;
                    out.step = w.v[v].map(|x| x.wrapping_add(offset as u32));
                }
            }
            _ if m.saddr != NULL && i.enc == Enc::Global => {
                w.require(m.vaddr, exec, "address")?;
                out.base = w.s64_at(m.saddr).wrapping_add(offset);
                out.step = w.v[v];
            }
            _ => {
                w.require(m.vaddr, exec, "address")?;
                w.require(m.vaddr.wrapping_add(1), exec, "address")?;
                out.step = w.v[v];
                out.high = w.v[usize::from(m.vaddr.wrapping_add(1))];
                if m.saddr != NULL {
                    // gfx12 flat with a scalar base: the vector part is 32 bits.
                    out.base = w.s64_at(m.saddr).wrapping_add(offset);
                    out.high = zero;
                }
            }
        }
        Ok(out)
    }

    #[inline(always)]
    pub(crate) fn at(&self, l: usize, size: u32) -> Place {
        let vector = u64::from(self.step[l]) | u64::from(self.high[l]) << 32;
        match self.kind {
            Enc::Global => Place::Global(self.base.wrapping_add(vector)),
            Enc::Scratch => Place::Private(i64::from(self.step[l] as i32) + self.base as i64),
            Enc::Buffer if vector >= self.limit => Place::Nowhere,
            Enc::Buffer if vector + u64::from(size) > self.limit => Place::Across,
            Enc::Buffer => Place::Global(self.base.wrapping_add(vector)),
            _ => {
                let a = self.base.wrapping_add(vector);
                match (a >> 32) as u32 {
                    SHARED_APERTURE => Place::Lds(a as u32),
                    PRIVATE_APERTURE => Place::Private(i64::from(a as u32)),
                    _ => Place::Global(a),
                }
            }
        }
    }
}

/// Stops at a resource that is no raw buffer with a check of its byte range: stride 0, no swizzle, no lane
/// number added, and OOB_SELECT 3.
fn raw_buffer(words: [u32; 4]) -> Flow {
    let (stride, swizzle) = (words[1] >> 16 & 0x3fff, words[1] >> 30);
    let (add_lane, select) = (words[3] >> 23 & 1, words[3] >> 28 & 3);
    match (stride, swizzle, add_lane, select) {
        (0, 0, 0, 3) => Ok(()),
        (0, 0, 0, s) => stop(What::NotEmulated(format!("a buffer with OOB_SELECT {s}"))),
        _ => stop(What::NotEmulated("a structured or swizzled buffer".to_owned())),
    }
}

fn across<T>(l: usize, i: &Inst) -> Result<T, Box<Hit>> {
    stop_lane(l, What::NotEmulated(format!("{} across the end of its buffer", i.row.name)))
}

/// Operand code of a scalar offset.
fn scalar(code: u8) -> crate::inst::Src {
    match code {
        0..=127 => crate::inst::Src::S(code),
        128..=248 => crate::inst::Src::Inline(code),
        _ => crate::inst::Src::Special(code),
    }
}

/// Checks a global load or store of `size` bytes.
#[inline(always)]
fn global_check(g: &mut Group<'_>, l: usize, address: u64, size: u32, access: Access, who: Who) -> Flow {
    g.global_check(l, address, size, access, who)?;
    if !aligned(address, size) {
        return stop_lane(l, What::Misaligned { space: "global", address, size });
    }
    Ok(())
}

fn private_check(w: &Wave, l: usize, offset: i64, size: u32) -> Result<usize, Box<Hit>> {
    let limit = w.scratch_lane;
    if offset < 0 || offset + i64::from(size) > i64::from(limit) {
        return stop_lane(l, What::ScratchBounds { offset, size, limit });
    }
    if !aligned(offset as u64, size) {
        return stop_lane(l, What::Misaligned { space: "scratch", address: offset as u64, size });
    }
    Ok(l * limit as usize + offset as usize)
}

/// FLAT, GLOBAL, SCRATCH and BUFFER loads.
#[inline]
pub(crate) fn load(w: &mut Wave, i: &Inst, g: &mut Group<'_>, width: Width) -> Flow {
    let addresses = Addresses::new(w, i)?;
    let (exec, size, who) = (w.exec(), width.bytes(), w.who());
    let mut out = [[0u32; 32]; 4];
    for l in (0..32).filter(|l| exec >> l & 1 == 1) {
        match addresses.at(l, size) {
            Place::Global(a) => {
                global_check(g, l, a, size, Access::Read, who)?;
                match size {
                    1 => out[0][l] = memory::load8(a).into(),
                    2 => out[0][l] = memory::load16(a).into(),
                    _ => {
                        for d in 0..size / 4 {
                            out[d as usize][l] = memory::load32(a + u64::from(4 * d));
                        }
                    }
                }
            }
            Place::Lds(a) => {
                g.lds_check(l, a, size, Access::Read, who)?;
                take(&g.lds[a as usize..], size, l, &mut out);
            }
            Place::Private(a) => {
                let at = private_check(w, l, a, size)?;
                take(&w.scratch[at..], size, l, &mut out);
            }
            Place::Nowhere => {}
            Place::Across => return across(l, i),
        }
    }
    width.write_back(w, i.dst, exec, &out);
    Ok(())
}

/// Little-endian bytes into the lane's dwords.
fn take(bytes: &[u8], size: u32, l: usize, out: &mut [Lanes; 4]) {
    for b in 0..size as usize {
        out[b / 4][l] |= u32::from(bytes[b]) << (8 * (b % 4));
    }
}

/// FLAT, GLOBAL, SCRATCH and BUFFER stores.
#[inline]
pub(crate) fn store(w: &mut Wave, i: &Inst, g: &mut Group<'_>, width: Width) -> Flow {
    let addresses = Addresses::new(w, i)?;
    let (exec, size, who) = (w.exec(), width.bytes(), w.who());
    let dwords = size.div_ceil(4);
    // A spilled register may be undefined in some lanes, so scratch does not ask.
    if i.enc != Enc::Scratch {
        for d in 0..dwords {
            w.require(i.mem.data.wrapping_add(d as u8), exec, "store data")?;
        }
    }
    for l in (0..32).filter(|l| exec >> l & 1 == 1) {
        let place = addresses.at(l, size);
        let value = |d: u32| w.v[usize::from(i.mem.data.wrapping_add(d as u8))][l] >> width.store_shift();
        match place {
            Place::Global(a) => {
                global_check(g, l, a, size, Access::Write, who)?;
                match size {
                    1 => memory::store8(a, value(0) as u8),
                    2 => memory::store16(a, value(0) as u16),
                    _ => {
                        for d in 0..dwords {
                            memory::store32(a + u64::from(4 * d), value(d));
                        }
                    }
                }
            }
            Place::Lds(a) => {
                g.lds_check(l, a, size, Access::Write, who)?;
                for d in 0..dwords {
                    g.lds_put(a + 4 * d, &value(d).to_le_bytes()[..size.min(4) as usize]);
                }
            }
            Place::Private(a) => {
                let at = private_check(w, l, a, size)?;
                for d in 0..dwords {
                    let bytes = value(d).to_le_bytes();
                    let (n, at) = (size.min(4) as usize, at + 4 * d as usize);
                    w.scratch[at..at + n].copy_from_slice(&bytes[..n]);
                }
            }
            Place::Nowhere => {}
            Place::Across => return across(l, i),
        }
    }
    Ok(())
}

/// S_LOAD_* (`buffer` false) and S_BUFFER_LOAD_* of dwords.
pub(crate) fn scalar_load(w: &mut Wave, i: &Inst, g: &mut Group<'_>, dwords: u8, buffer: bool) -> Flow {
    let size = u32::from(dwords) * 4;
    let address = scalar_address(w, i, buffer, size)?;
    let Some(address) = address else {
        (0..dwords).for_each(|d| w.set_s(i.dst + d, 0));
        return Ok(());
    };
    if address % 4 != 0 {
        return stop(What::Misaligned { space: "scalar", address, size });
    }
    scalar_check(w, g, address, size)?;
    for d in 0..dwords {
        w.set_s(i.dst + d, memory::load32(address + u64::from(4 * d)));
    }
    Ok(())
}

/// S_LOAD_{U8,I8,U16,I16} of gfx12.
pub(crate) fn scalar_load_small(
    w: &mut Wave,
    i: &Inst,
    g: &mut Group<'_>,
    width: Width,
    buffer: bool,
) -> Flow {
    let size = width.bytes();
    let Some(address) = scalar_address(w, i, buffer, size)? else {
        w.set_s(i.dst, 0);
        return Ok(());
    };
    if address % u64::from(size) != 0 {
        return stop(What::Misaligned { space: "scalar", address, size });
    }
    scalar_check(w, g, address, size)?;
    let v = match width {
        Width::U8 => memory::load8(address).into(),
        Width::I8 => memory::load8(address) as i8 as u32,
        Width::U16 => memory::load16(address).into(),
        _ => memory::load16(address) as i16 as u32,
    };
    w.set_s(i.dst, v);
    Ok(())
}

/// Checks bounds and races of a scalar load, which no lane is to blame for.
fn scalar_check(w: &Wave, g: &mut Group<'_>, address: u64, size: u32) -> Flow {
    g.global_check(0, address, size, Access::Read, w.who()).map_err(|mut hit| {
        hit.lane = None;
        if let What::Unmapped { access, .. } = &mut hit.what {
            *access = "scalar load";
        }
        hit
    })
}

/// Address of a scalar load; none beyond a buffer's records.
fn scalar_address(w: &Wave, i: &Inst, buffer: bool, size: u32) -> Result<Option<u64>, Box<Hit>> {
    let m = &i.mem;
    let soffset = if m.soffset == NULL { 0 } else { u64::from(w.s32(scalar(m.soffset))) };
    let offset = soffset.wrapping_add(i64::from(m.offset) as u64);
    if !buffer {
        return Ok(Some(w.s64_at(m.saddr).wrapping_add(offset)));
    }
    let words: [u32; 4] = std::array::from_fn(|k| w.scalar(m.saddr + k as u8));
    raw_buffer(words)?;
    let base = u64::from(words[0]) | u64::from(words[1] & 0xffff) << 32;
    let (end, limit) = (offset.wrapping_add(size.into()), u64::from(words[2]));
    if offset < limit && end > limit {
        return stop(What::NotEmulated(format!("{} across the end of its buffer", i.row.name)));
    }
    Ok((offset < limit).then(|| base.wrapping_add(offset)))
}
