//! A decoded instruction, the same for both generations.

use crate::{
    arch::Gen,
    exec::{Flow, group::Group, stop, wave::Wave},
    fault::What,
};

/// What runs one instruction of one wave.
pub(crate) type Exec = fn(&mut Wave, &Inst, &mut Group<'_>) -> Flow;

/// Opcode that a generation does not have.
pub(crate) const NO: u16 = u16::MAX;

/// Sixteen-bit operands of an instruction: bit n for source n, `D16` for the destination.
pub(crate) const D16: u8 = 8;

/// One row of an opcode table: the mnemonic, its opcode in each generation and what it does.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) g11: u16,
    pub(crate) g12: u16,
    /// Which operands are 16 bits wide: their short encoding selects a register half.
    pub(crate) half: u8,
    /// False for instructions that decode, but stop the launch.
    pub(crate) emulated: bool,
    pub(crate) exec: Exec,
}

impl Row {
    pub(crate) fn opcode(&self, generation: Gen) -> u16 {
        match generation {
            Gen::Gfx11 => self.g11,
            Gen::Gfx12 => self.g12,
        }
    }
}

/// Encoding family of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Enc {
    /// Scalar, one source.
    Sop1,
    /// Scalar, two sources.
    Sop2,
    /// Scalar compare.
    Sopc,
    /// Scalar with a 16-bit constant.
    Sopk,
    /// Program control.
    Sopp,
    /// Scalar memory.
    Smem,
    /// Vector, one source, short encoding.
    Vop1,
    /// Vector, two sources, short encoding.
    Vop2,
    /// Vector compare, short encoding.
    Vopc,
    /// Vector, long encoding.
    Vop3,
    /// Vector, long encoding with a scalar result.
    Vop3Sd,
    /// Packed and matrix.
    Vop3p,
    /// Two vector instructions in one.
    Vopd,
    /// Local memory.
    Ds,
    /// Flat addresses.
    Flat,
    /// Global addresses.
    Global,
    /// Private addresses.
    Scratch,
    /// Buffer resources.
    Buffer,
}

/// Source operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Src {
    /// Not used by the encoding.
    None,
    /// Vector register.
    V(u8),
    /// Scalar register file entry: SGPR, VCC, TTMP, NULL, M0, EXEC.
    S(u8),
    /// Inline constant by its operand code (128..=248).
    Inline(u8),
    /// 32-bit literal.
    Lit(u32),
    /// Apertures and condition codes by operand code.
    Special(u8),
}

/// Where each lane's first source comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dpp {
    /// Source lane of each lane.
    pub(crate) sel: [u8; 32],
    /// Lanes whose source lane lies outside of the row.
    pub(crate) outside: u32,
    /// Lanes that row and bank masks let write.
    pub(crate) write: u32,
    /// A missing source reads 0; otherwise it disables the lane.
    pub(crate) zero: bool,
    /// Inactive source lanes are read.
    pub(crate) fetch_inactive: bool,
}

/// Fields of the memory encodings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mem {
    pub(crate) vaddr: u8,
    /// Store data, first register.
    pub(crate) data: u8,
    /// Second data operand of DS.
    pub(crate) data1: u8,
    /// Scalar base or resource; 124 (NULL) for none.
    pub(crate) saddr: u8,
    /// Scalar offset operand code of SMEM and buffers.
    pub(crate) soffset: u8,
    /// Byte offset, sign-extended where the encoding is signed; offset0 of DS pairs.
    pub(crate) offset: i32,
    pub(crate) offset1: u8,
    /// Atomics: the old value is written back.
    pub(crate) returns: bool,
    /// Vector address present (buffer: offen, scratch: sve).
    pub(crate) use_vaddr: bool,
    /// Buffer index present.
    pub(crate) use_index: bool,
    /// Fields this emulator has no meaning for (GDS, TFE, LDS destination).
    pub(crate) odd: bool,
}

/// The modifiers of an instruction as bits. Each shape names those it follows; any other stops.
pub(crate) mod mods {
    /// Negation of source 0; of sources 1 and 2 in the bits above.
    pub(crate) const NEG: u16 = 1;
    /// Absolute value of source 0 (negation of its high half when packed), and so on.
    pub(crate) const ABS: u16 = 1 << 3;
    /// OP_SEL of source 0, and so on.
    pub(crate) const SEL: u16 = 1 << 6;
    /// OP_SEL of the destination.
    pub(crate) const SEL_D: u16 = 1 << 9;
    pub(crate) const CLAMP: u16 = 1 << 10;
    pub(crate) const OMOD: u16 = 1 << 11;
    pub(crate) const DPP: u16 = 1 << 12;
    /// What a float result allows.
    pub(crate) const OUT: u16 = CLAMP | OMOD;

    const fn of(bit: u16, n: usize) -> u16 {
        bit * ((1 << n) - 1)
    }

    /// Negation of the first `n` sources.
    pub(crate) const fn neg(n: usize) -> u16 {
        of(NEG, n)
    }

    /// Negation and absolute value of the first `n` sources.
    pub(crate) const fn signs(n: usize) -> u16 {
        of(NEG, n) | of(ABS, n)
    }

    /// OP_SEL of the first `n` sources.
    pub(crate) const fn sel(n: usize) -> u16 {
        of(SEL, n)
    }

    /// The modifiers among `bits`, as assembly spells them.
    pub(crate) fn names(bits: u16) -> &'static str {
        match bits {
            _ if bits & of(NEG, 3) != 0 => "neg",
            _ if bits & of(ABS, 3) != 0 => "abs",
            _ if bits & (of(SEL, 3) | SEL_D) != 0 => "op_sel",
            _ if bits & CLAMP != 0 => "clamp",
            _ if bits & OMOD != 0 => "omod",
            _ => "dpp",
        }
    }
}

/// A decoded instruction.
#[derive(Clone)]
pub struct Inst {
    pub(crate) row: Row,
    /// Runs the whole instruction; a pair's row runs its X half only.
    pub(crate) run: Exec,
    pub(crate) enc: Enc,
    /// Length in bytes.
    pub(crate) len: u8,
    /// Destination register number, vector or scalar by the instruction.
    pub(crate) dst: u8,
    /// Scalar destination of compares and carries.
    pub(crate) sdst: u8,
    pub(crate) src: [Src; 3],
    pub(crate) neg: u8,
    /// Absolute value; the high half's negation in packed instructions.
    pub(crate) abs: u8,
    pub(crate) opsel: u8,
    pub(crate) opsel_hi: u8,
    pub(crate) clamp: bool,
    pub(crate) omod: u8,
    /// Which modifiers are there: bits of [`mods`].
    pub(crate) mods: u16,
    /// Literal or SIMM16.
    pub(crate) imm: u32,
    pub(crate) mem: Mem,
    pub(crate) dpp: Option<Box<Dpp>>,
    /// The Y half of a VOPD pair; self is the X half.
    pub(crate) dual: Option<Box<Inst>>,
    /// The words as they stand in memory.
    pub(crate) raw: [u32; 3],
}

impl Inst {
    /// Collects the modifiers that the fields hold.
    pub(crate) fn note_modifiers(&mut self) {
        let bits = u16::from(self.neg) | u16::from(self.abs) << 3 | u16::from(self.opsel) << 6;
        let flag = |on: bool, bit: u16| if on { bit } else { 0 };
        self.mods = bits
            | flag(self.clamp, mods::CLAMP)
            | flag(self.omod != 0, mods::OMOD)
            | flag(self.dpp.is_some(), mods::DPP);
    }

    /// Stops at a modifier that the instruction does not follow.
    #[inline(always)]
    pub(crate) fn only(&self, followed: u16) -> Flow {
        if self.mods & !followed == 0 { Ok(()) } else { self.unfollowed(followed) }
    }

    #[cold]
    fn unfollowed(&self, followed: u16) -> Flow {
        stop(What::NotEmulated(format!("{} with {}", self.row.name, mods::names(self.mods & !followed))))
    }

    /// [`Inst::only`] for 16-bit operands: OP_SEL picks halves of the first `n` registers, and a constant is
    /// what its type says. What a float constant is to an integer, or OP_SEL to a constant, is not documented.
    pub(crate) fn only16(&self, n: usize, float: bool, followed: u16) -> Flow {
        self.only(followed | mods::sel(n))?;
        for (k, src) in self.src.iter().enumerate().take(n) {
            let constant = matches!(src, Src::Inline(_) | Src::Lit(_));
            if constant && self.opsel >> k & 1 == 1 {
                return stop(What::NotEmulated(format!("{} with op_sel of a constant", self.row.name)));
            }
            if !float && matches!(src, Src::Inline(240..)) {
                let name = self.row.name;
                return stop(What::NotEmulated(format!("{name} with a float constant")));
            }
        }
        Ok(())
    }

    /// Length in bytes: 4, 8 or 12.
    pub fn len_bytes(&self) -> usize {
        usize::from(self.len)
    }

    /// Encoding family.
    pub fn encoding(&self) -> Enc {
        self.enc
    }

    /// Mnemonic as `llvm-objdump` prints it, without encoding suffixes; both halves of a pair.
    pub fn mnemonic(&self) -> String {
        match &self.dual {
            Some(y) => format!("{} :: {}", dual_name(self.row.name), dual_name(y.row.name)),
            None => self.row.name.to_owned(),
        }
    }
}

/// `v_mul_f32` as half of a pair: `v_dual_mul_f32`.
fn dual_name(name: &str) -> String {
    format!("v_dual_{}", name.trim_start_matches("v_"))
}
