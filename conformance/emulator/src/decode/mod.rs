//! Machine words to [`Inst`]: the encodings that both generations share.

mod memory;

use crate::{
    arch::Gen,
    inst::{D16, Dpp, Enc, Inst, Mem, Row, Src},
    isa::{self, Format},
};

/// VCC_LO as an operand code.
pub(crate) const VCC: u8 = 106;
/// NULL as an operand code.
pub(crate) const NULL: u8 = 124;
/// EXEC_LO as an operand code.
pub(crate) const EXEC: u8 = 126;

/// Words that are no instruction the emulator knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// Encoding family and opcode, `VOP3 opcode 0x123`.
    pub what: String,
}

/// Bits `hi..=lo` of a word.
pub(crate) fn bits(w: u32, hi: u32, lo: u32) -> u32 {
    (w >> lo) & (u32::MAX >> (31 - (hi - lo)))
}

/// Sign extension of the low `n` bits.
pub(crate) fn sext(v: u32, n: u32) -> i32 {
    ((v << (32 - n)) as i32) >> (32 - n)
}

fn unknown(encoding: &str, op: u32) -> Unknown {
    Unknown { what: format!("{encoding} opcode {op:#x}") }
}

/// The instruction before its fields are filled in.
pub(crate) fn blank(row: Row, enc: Enc, len: u8, raw: [u32; 3]) -> Inst {
    Inst {
        run: row.exec,
        row,
        enc,
        len,
        dst: 0,
        sdst: VCC,
        src: [Src::None; 3],
        neg: 0,
        abs: 0,
        opsel: 0,
        opsel_hi: 0,
        clamp: false,
        omod: 0,
        mods: 0,
        imm: 0,
        mem: Mem::default(),
        dpp: None,
        dual: None,
        raw,
    }
}

/// Nine-bit operand code; 255 takes the literal.
fn src9(code: u32, literal: u32) -> Src {
    match code {
        0..=127 => Src::S(code as u8),
        128..=208 | 240..=248 => Src::Inline(code as u8),
        255 => Src::Lit(literal),
        256.. => Src::V((code - 256) as u8),
        _ => Src::Special(code as u8),
    }
}

/// Decodes the instruction at the start of `words`, of which the first three are looked at.
pub fn decode(generation: Gen, words: &[u32]) -> Result<Inst, Unknown> {
    let at = |i: usize| words.get(i).copied().unwrap_or(0);
    let raw = [at(0), at(1), at(2)];
    let w = raw[0];
    let mut inst = match w >> 26 {
        _ if w >> 31 == 0 => vop_short(generation, raw)?,
        0x20..=0x2f => scalar(generation, raw)?,
        0x35 => vop3(generation, raw)?,
        0x33 if w >> 24 == 0xcc => vop3p(generation, raw)?,
        0x32 => vopd(generation, raw)?,
        _ => return memory::decode(generation, raw),
    };
    inst.note_modifiers();
    Ok(inst)
}

fn scalar(generation: Gen, raw: [u32; 3]) -> Result<Inst, Unknown> {
    let w = raw[0];
    let (format, enc, name, op) = match w >> 23 {
        0x17d => (Format::Sop1, Enc::Sop1, "SOP1", bits(w, 15, 8)),
        0x17e => (Format::Sopc, Enc::Sopc, "SOPC", bits(w, 22, 16)),
        0x17f => (Format::Sopp, Enc::Sopp, "SOPP", bits(w, 22, 16)),
        _ if w >> 28 == 0xb => (Format::Sopk, Enc::Sopk, "SOPK", bits(w, 27, 23)),
        _ => (Format::Sop2, Enc::Sop2, "SOP2", bits(w, 29, 23)),
    };
    let row = isa::row(format, generation, op as u16).ok_or_else(|| unknown(name, op))?;
    let mut i = blank(row, enc, 4, raw);
    i.dst = bits(w, 22, 16) as u8;
    match enc {
        Enc::Sopp => i.imm = w & 0xffff,
        Enc::Sopk => {
            i.imm = w & 0xffff;
            if row.name == "s_setreg_imm32_b32" {
                i.src[0] = Src::Lit(raw[1]);
                i.len = 8;
            }
        }
        _ => {
            i.src[0] = src9(w & 0xff, raw[1]);
            let two = enc != Enc::Sop1;
            if two {
                i.src[1] = src9(bits(w, 15, 8), raw[1]);
            }
            let k = row.name == "s_fmaak_f32" || row.name == "s_fmamk_f32";
            if k {
                i.src[2] = Src::Lit(raw[1]);
            }
            if k || i.src[..2].iter().any(|s| matches!(s, Src::Lit(_))) {
                i.len = 8;
            }
        }
    }
    Ok(i)
}

/// VOP1, VOP2 and VOPC.
fn vop_short(generation: Gen, raw: [u32; 3]) -> Result<Inst, Unknown> {
    let w = raw[0];
    let (enc, name, op, space) = match w >> 25 {
        0x3f => (Enc::Vop1, "VOP1", bits(w, 16, 9), 0x180),
        0x3e => (Enc::Vopc, "VOPC", bits(w, 24, 17), 0),
        _ => (Enc::Vop2, "VOP2", bits(w, 30, 25), 0x100),
    };
    let row = match op > 0x7f && enc == Enc::Vop1 {
        true => None,
        false => isa::row(Format::Valu, generation, (space + op) as u16),
    };
    let row = row.ok_or_else(|| unknown(name, op))?;
    let mut i = blank(row, enc, 4, raw);
    i.dst = bits(w, 24, 17) as u8;
    if enc == Enc::Vopc {
        i.dst = 0;
        i.sdst = if row.name.starts_with("v_cmpx") { EXEC } else { VCC };
    }
    i.src[0] = src9(w & 0x1ff, raw[1]);
    if enc != Enc::Vop1 {
        i.src[1] = Src::V(bits(w, 16, 9) as u8);
    }
    implied(&mut i, raw[1]);
    match w & 0x1ff {
        250 => dpp16(&mut i, raw[1]),
        233 | 234 => dpp8(&mut i, raw[1], w & 0x1ff == 234),
        255 => i.len = 8,
        _ => {}
    }
    halves(&mut i);
    Ok(i)
}

/// Third operands that the short encodings leave out: VCC and the K constant.
fn implied(i: &mut Inst, literal: u32) {
    let name = i.row.name;
    if name.starts_with("v_fmaak") {
        i.src[2] = Src::Lit(literal);
        i.len = 8;
    } else if name.starts_with("v_fmamk") {
        i.src[2] = i.src[1];
        i.src[1] = Src::Lit(literal);
        i.len = 8;
    } else if name.contains("_co_ci_") || name == "v_cndmask_b32" {
        i.src[2] = Src::S(VCC);
    }
}

/// Short encodings name the high half of v0..v127 as v128..v255 in 16-bit operands.
fn halves(i: &mut Inst) {
    for n in 0..2 {
        if let Src::V(r) = &mut i.src[n]
            && i.row.half >> n & 1 == 1
            && *r >= 128
        {
            *r -= 128;
            i.opsel |= 1 << n;
        }
    }
    if i.row.half & D16 != 0 && i.dst >= 128 {
        i.dst -= 128;
        i.opsel |= 8;
    }
}

fn vop3(generation: Gen, raw: [u32; 3]) -> Result<Inst, Unknown> {
    let [w, x, _] = raw;
    let op = bits(w, 25, 16);
    let row = isa::row(Format::Valu, generation, op as u16).ok_or_else(|| unknown("VOP3", op))?;
    let carry = matches!(op, 288..=290 | 764..=770);
    let mut i = blank(row, if carry { Enc::Vop3Sd } else { Enc::Vop3 }, 8, raw);
    i.dst = w as u8;
    if op < 256 {
        i.sdst = if row.name.starts_with("v_cmpx") { EXEC } else { w as u8 & 0x7f };
    }
    if carry {
        i.sdst = bits(w, 14, 8) as u8;
    } else {
        i.abs = bits(w, 10, 8) as u8;
        i.opsel = bits(w, 14, 11) as u8;
    }
    i.clamp = w >> 15 & 1 == 1;
    long_sources(&mut i, x, raw[2]);
    i.omod = bits(x, 28, 27) as u8;
    i.neg = (x >> 29) as u8;
    Ok(i)
}

/// The three sources of VOP3 and VOP3P with their literal or DPP word.
fn long_sources(i: &mut Inst, x: u32, third: u32) {
    for (n, lo) in [0, 9, 18].into_iter().enumerate() {
        i.src[n] = src9(bits(x, lo + 8, lo), third);
        if matches!(i.src[n], Src::Lit(_)) {
            i.len = 12;
        }
    }
    match x & 0x1ff {
        250 => dpp16(i, third),
        233 | 234 => dpp8(i, third, x & 0x1ff == 234),
        _ => {}
    }
}

fn vop3p(generation: Gen, raw: [u32; 3]) -> Result<Inst, Unknown> {
    let [w, x, _] = raw;
    let op = bits(w, 22, 16);
    let row = isa::row(Format::Vop3p, generation, op as u16).ok_or_else(|| unknown("VOP3P", op))?;
    let mut i = blank(row, Enc::Vop3p, 8, raw);
    i.dst = w as u8;
    i.abs = bits(w, 10, 8) as u8;
    i.opsel = bits(w, 13, 11) as u8;
    i.opsel_hi = (bits(x, 28, 27) | (w >> 14 & 1) << 2) as u8;
    i.clamp = w >> 15 & 1 == 1;
    i.neg = (x >> 29) as u8;
    long_sources(&mut i, x, raw[2]);
    Ok(i)
}

fn vopd(generation: Gen, raw: [u32; 3]) -> Result<Inst, Unknown> {
    let [w, x, literal] = raw;
    let half = |op: u32, src0: u32, src1: u32, dst: u32| {
        let row = isa::row(Format::Vopd, generation, op as u16).ok_or_else(|| unknown("VOPD", op))?;
        let mut i = blank(row, Enc::Vopd, 8, raw);
        i.src[0] = src9(src0, literal);
        i.src[1] = Src::V(src1 as u8);
        i.dst = dst as u8;
        implied(&mut i, literal);
        let k = row.name.starts_with("v_fmaak") || row.name.starts_with("v_fmamk");
        i.len = if k || src0 == 255 { 12 } else { 8 };
        Ok(i)
    };
    let dst_x = bits(x, 31, 24);
    let mut i = half(bits(w, 25, 22), w & 0x1ff, bits(w, 16, 9), dst_x)?;
    // The Y destination's low bit is the complement of X's.
    let dst_y = bits(x, 23, 17) << 1 | (!dst_x & 1);
    let y = half(bits(w, 21, 17), x & 0x1ff, bits(x, 16, 9), dst_y)?;
    i.len = i.len.max(y.len);
    i.dual = Some(Box::new(y));
    i.run = isa::PAIR;
    Ok(i)
}

/// The DPP16 word: source register, control, masks and modifiers.
fn dpp16(i: &mut Inst, d: u32) {
    i.len += 4;
    i.src[0] = Src::V(d as u8);
    if matches!(i.enc, Enc::Vop1 | Enc::Vop2 | Enc::Vopc) {
        // The long encodings carry their modifiers themselves.
        i.neg = (d >> 20 & 1 | (d >> 22 & 1) << 1) as u8;
        i.abs = (d >> 21 & 1 | (d >> 23 & 1) << 1) as u8;
    }
    let (sel, outside) = dpp_pattern(bits(d, 16, 8));
    let (row_mask, bank_mask) = (d >> 28, d >> 24 & 0xf);
    let write = (0..32u32)
        .filter(|l| row_mask >> (l / 16) & 1 == 1 && bank_mask >> (l % 16 / 4) & 1 == 1)
        .fold(0, |m, l| m | 1 << l);
    i.dpp =
        Some(Box::new(Dpp { sel, outside, write, zero: d >> 19 & 1 == 1, fetch_inactive: d >> 18 & 1 == 1 }));
}

/// Source lane of each lane for a DPP_CTRL value, and the lanes that have none.
fn dpp_pattern(ctrl: u32) -> ([u8; 32], u32) {
    let mut sel = [0u8; 32];
    let mut outside = 0;
    for l in 0..32i32 {
        let (row, n) = (l & !15, l & 15);
        let amount = (ctrl & 15) as i32;
        let source = match ctrl {
            0..=0xff => Some(l & !3 | (ctrl >> (2 * (l & 3)) & 3) as i32),
            0x101..=0x10f => (n + amount < 16).then_some(l + amount),
            0x111..=0x11f => (n >= amount).then_some(l - amount),
            0x121..=0x12f => Some(row | (n - amount) & 15),
            0x140 => Some(row | (15 - n)),
            0x141 => Some(row | (n & 8) | (7 - (n & 7))),
            0x150..=0x15f => Some(row | amount),
            0x160..=0x16f => Some(row | (n ^ amount)),
            _ => None,
        };
        match source {
            Some(s) => sel[l as usize] = s as u8,
            None => outside |= 1 << l,
        }
    }
    (sel, outside)
}

/// The DPP8 word: any lane of the same group of eight.
fn dpp8(i: &mut Inst, d: u32, fetch_inactive: bool) {
    i.len += 4;
    i.src[0] = Src::V(d as u8);
    let sel = std::array::from_fn(|l| (l as u8 & !7) | (d >> (8 + 3 * (l & 7)) & 7) as u8);
    i.dpp = Some(Box::new(Dpp { sel, outside: 0, write: u32::MAX, zero: true, fetch_inactive }));
}
