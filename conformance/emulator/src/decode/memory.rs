//! Memory encodings, where the generations differ: gfx11 packs 64 bits, gfx12 spends 96.

use super::{NULL, Unknown, bits, blank, sext, unknown};
use crate::{
    arch::Gen,
    inst::{Enc, Inst, Mem},
    isa::{self, Format},
};

pub(super) fn decode(generation: Gen, raw: [u32; 3]) -> Result<Inst, Unknown> {
    match (raw[0] >> 26, generation) {
        (0x3d, _) => smem(generation, raw),
        (0x36, _) => ds(generation, raw),
        (0x37, Gen::Gfx11) => flat11(raw),
        (0x38, Gen::Gfx11) => buffer11(raw),
        (0x3b, Gen::Gfx12) => flat12(raw),
        (0x31, Gen::Gfx12) => buffer12(raw),
        (e, _) => Err(Unknown { what: format!("encoding {e:#x} (word {:#010x})", raw[0]) }),
    }
}

fn smem(generation: Gen, raw: [u32; 3]) -> Result<Inst, Unknown> {
    let [w, x, _] = raw;
    let (op, offset) = match generation {
        Gen::Gfx11 => (bits(w, 25, 18), sext(x, 21)),
        Gen::Gfx12 => (bits(w, 18, 13), sext(x, 24)),
    };
    let row = isa::row(Format::Smem, generation, op as u16).ok_or_else(|| unknown("SMEM", op))?;
    let mut i = blank(row, Enc::Smem, 8, raw);
    i.dst = bits(w, 12, 6) as u8;
    i.mem =
        Mem { saddr: (bits(w, 5, 0) << 1) as u8, soffset: bits(x, 31, 25) as u8, offset, ..Mem::default() };
    Ok(i)
}

fn ds(generation: Gen, raw: [u32; 3]) -> Result<Inst, Unknown> {
    let [w, x, _] = raw;
    let op = bits(w, 25, 18);
    let row = isa::row(Format::Ds, generation, op as u16).ok_or_else(|| unknown("DS", op))?;
    let mut i = blank(row, Enc::Ds, 8, raw);
    i.dst = (x >> 24) as u8;
    i.mem = Mem {
        vaddr: x as u8,
        data: (x >> 8) as u8,
        data1: (x >> 16) as u8,
        offset: (w & 0xffff) as i32,
        offset1: (w >> 8) as u8,
        returns: row.name.contains("_rtn"),
        odd: w >> 17 & 1 == 1,
        ..Mem::default()
    };
    if is_pair(row.name) {
        i.mem.offset &= 0xff;
    }
    Ok(i)
}

/// DS instructions with two 8-bit offsets in place of one of 16 bits.
fn is_pair(name: &str) -> bool {
    name.contains("_2addr_")
}

fn segment(seg: u32) -> (Format, Enc, &'static str) {
    match seg {
        0 => (Format::Flat, Enc::Flat, "FLAT"),
        1 => (Format::Scratch, Enc::Scratch, "SCRATCH"),
        _ => (Format::Global, Enc::Global, "GLOBAL"),
    }
}

fn flat11(raw: [u32; 3]) -> Result<Inst, Unknown> {
    let [w, x, _] = raw;
    let (format, enc, name) = segment(bits(w, 17, 16));
    let op = bits(w, 24, 18);
    let row = isa::row(format, Gen::Gfx11, op as u16).ok_or_else(|| unknown(name, op))?;
    let mut i = blank(row, enc, 8, raw);
    i.dst = (x >> 24) as u8;
    i.mem = Mem {
        vaddr: x as u8,
        data: (x >> 8) as u8,
        saddr: bits(x, 22, 16) as u8,
        offset: sext(w, 13),
        returns: w >> 14 & 1 == 1,
        use_vaddr: x >> 23 & 1 == 1,
        soffset: NULL,
        ..Mem::default()
    };
    Ok(i)
}

fn flat12(raw: [u32; 3]) -> Result<Inst, Unknown> {
    let [w, x, y] = raw;
    let (format, enc, name) = segment(bits(w, 25, 24));
    let op = bits(w, 21, 14);
    let row = isa::row(format, Gen::Gfx12, op as u16).ok_or_else(|| unknown(name, op))?;
    let mut i = blank(row, enc, 12, raw);
    i.dst = x as u8;
    i.mem = Mem {
        vaddr: y as u8,
        data: bits(x, 30, 23) as u8,
        saddr: bits(w, 6, 0) as u8,
        offset: sext(y >> 8, 24),
        // TH_ATOMIC_RETURN is the low bit of the temporal hint.
        returns: x >> 20 & 1 == 1,
        use_vaddr: x >> 17 & 1 == 1,
        soffset: NULL,
        ..Mem::default()
    };
    Ok(i)
}

fn buffer11(raw: [u32; 3]) -> Result<Inst, Unknown> {
    let [w, x, _] = raw;
    let op = bits(w, 25, 18);
    let row = isa::row(Format::Buffer, Gen::Gfx11, op as u16).ok_or_else(|| unknown("MUBUF", op))?;
    let mut i = blank(row, Enc::Buffer, 8, raw);
    i.dst = (x >> 8) as u8;
    i.mem = Mem {
        vaddr: x as u8,
        data: (x >> 8) as u8,
        saddr: (bits(x, 20, 16) << 2) as u8,
        soffset: (x >> 24) as u8,
        offset: (w & 0xfff) as i32,
        returns: w >> 14 & 1 == 1,
        use_vaddr: x >> 22 & 1 == 1,
        use_index: x >> 23 & 1 == 1,
        odd: x >> 21 & 1 == 1,
        ..Mem::default()
    };
    Ok(i)
}

fn buffer12(raw: [u32; 3]) -> Result<Inst, Unknown> {
    let [w, x, y] = raw;
    let op = bits(w, 21, 14);
    let row = isa::row(Format::Buffer, Gen::Gfx12, op as u16).ok_or_else(|| unknown("VBUFFER", op))?;
    let mut i = blank(row, Enc::Buffer, 12, raw);
    i.dst = x as u8;
    i.mem = Mem {
        vaddr: y as u8,
        data: x as u8,
        saddr: bits(x, 17, 9) as u8,
        soffset: bits(w, 6, 0) as u8,
        offset: sext(y >> 8, 24),
        returns: x >> 20 & 1 == 1,
        use_vaddr: x >> 30 & 1 == 1,
        use_index: x >> 31 == 1,
        odd: w >> 22 & 1 == 1,
        ..Mem::default()
    };
    Ok(i)
}
