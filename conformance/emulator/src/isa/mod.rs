//! Opcode tables: each row is a mnemonic, its opcode in both generations and its meaning.
//!
//! Opcodes, names and definitions are those of AMD's "RDNA3 Instruction Set Architecture" and "RDNA4
//! Instruction Set Architecture" documents. The short vector encodings share the opcode space of the long
//! one: VOPC n is n, VOP2 n is 0x100 + n, VOP1 n is 0x180 + n.

mod ds;
mod smem;
mod sop;
mod sopp;
mod vmem;
mod vop1;
mod vop2;
mod vop3;
mod vop3p;
mod vopc;

use std::sync::OnceLock;

use crate::{
    arch::Gen,
    exec::{not_emulated, valu::pair},
    inst::{Exec, NO, Row},
};

/// Opcode space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Sop1,
    Sop2,
    Sopc,
    Sopk,
    Sopp,
    Smem,
    Valu,
    Vop3p,
    Vopd,
    Ds,
    Flat,
    Global,
    Scratch,
    Buffer,
}

/// Every opcode space.
pub(crate) const ALL_FORMATS: [Format; 14] = [
    Format::Sop1,
    Format::Sop2,
    Format::Sopc,
    Format::Sopk,
    Format::Sopp,
    Format::Smem,
    Format::Valu,
    Format::Vop3p,
    Format::Vopd,
    Format::Ds,
    Format::Flat,
    Format::Global,
    Format::Scratch,
    Format::Buffer,
];

/// A row of an opcode table.
pub(crate) const fn r(name: &'static str, g11: u16, g12: u16, exec: Exec) -> Row {
    Row { name, g11, g12, half: 0, emulated: true, exec }
}

/// An instruction that decodes, but stops the launch.
pub(crate) const fn refused(name: &'static str, g11: u16, g12: u16) -> Row {
    Row { name, g11, g12, half: 0, emulated: false, exec: not_emulated }
}

/// A row with 16-bit operands: bit n for source n, 8 for the destination.
pub(crate) const fn h(name: &'static str, g11: u16, g12: u16, half: u8, exec: Exec) -> Row {
    Row { name, g11, g12, half, emulated: true, exec }
}

/// VOPD opcodes by the name of the instruction that each half performs.
const VOPD: &[(u16, &str)] = &[
    (0, "v_fmac_f32"),
    (1, "v_fmaak_f32"),
    (2, "v_fmamk_f32"),
    (3, "v_mul_f32"),
    (4, "v_add_f32"),
    (5, "v_sub_f32"),
    (6, "v_subrev_f32"),
    (7, "v_mul_dx9_zero_f32"),
    (8, "v_mov_b32"),
    (9, "v_cndmask_b32"),
    (10, "v_max_f32"),
    (10, "v_max_num_f32"),
    (11, "v_min_f32"),
    (11, "v_min_num_f32"),
    (12, "v_dot2acc_f32_f16"),
    (13, "v_dot2acc_f32_bf16"),
    (16, "v_add_nc_u32"),
    (17, "v_lshlrev_b32"),
    (18, "v_and_b32"),
];

fn tables(format: Format) -> Vec<&'static [Row]> {
    match format {
        Format::Sop1 => vec![sop::SOP1],
        Format::Sop2 => vec![sop::SOP2],
        Format::Sopc => vec![sop::SOPC],
        Format::Sopk => vec![sopp::SOPK],
        Format::Sopp => vec![sopp::SOPP],
        Format::Smem => vec![smem::SMEM],
        Format::Valu => {
            vec![
                vop1::VOP1,
                vop1::HALF,
                vop2::VOP2,
                vop3::VOP3,
                vop3::HALF,
                vop3::WIDE,
                vopc::FLOAT,
                vopc::INT,
            ]
        }
        Format::Vop3p => vec![vop3p::VOP3P],
        Format::Vopd => Vec::new(),
        Format::Ds => vec![ds::DS, ds::ATOMIC],
        Format::Flat => vec![vmem::FLAT],
        Format::Global => vec![vmem::GLOBAL, vmem::GLOBAL_ONLY],
        Format::Scratch => vec![vmem::SCRATCH],
        Format::Buffer => vec![vmem::BUFFER, vmem::BUFFER_ONLY],
    }
}

type Index = Vec<Option<Row>>;

fn build(format: Format, generation: Gen) -> Index {
    let mut index: Index = Vec::new();
    let mut add = |op: u16, row: Row| {
        let op = usize::from(op);
        if index.len() <= op {
            index.resize(op + 1, None);
        }
        let old = index[op].replace(row);
        assert!(old.is_none(), "{format:?} {op:#x} is both {} and {}", row.name, old.map_or("", |o| o.name));
    };
    if format == Format::Vopd {
        for &(op, name) in VOPD {
            let known = tables(Format::Valu).into_iter().flatten().find(|r| r.name == name);
            let known = known.expect("every VOPD half is a vector instruction");
            // The dot products exist in pairs only.
            if known.opcode(generation) != NO || name.starts_with("v_dot2acc") {
                add(op, *known);
            }
        }
        return index;
    }
    for row in tables(format).into_iter().flatten() {
        if row.opcode(generation) != NO {
            add(row.opcode(generation), *row);
        }
    }
    index
}

/// The row of an opcode.
pub(crate) fn row(format: Format, generation: Gen, op: u16) -> Option<Row> {
    static INDEX: [[OnceLock<Index>; ALL_FORMATS.len()]; 2] =
        [const { [const { OnceLock::new() }; ALL_FORMATS.len()] }; 2];
    let index = INDEX[generation as usize][format as usize].get_or_init(|| build(format, generation));
    index.get(usize::from(op)).copied().flatten()
}

/// The rows of a space, of both generations.
#[cfg(test)]
pub(crate) fn rows(format: Format) -> impl Iterator<Item = &'static Row> {
    tables(format).into_iter().flatten()
}

/// What runs a VOPD pair.
pub(crate) const PAIR: Exec = pair;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_opcode_has_two_meanings() {
        for generation in [Gen::Gfx11, Gen::Gfx12] {
            for format in ALL_FORMATS {
                let rows = build(format, generation).into_iter().flatten().count();
                assert!(rows > 5, "{format:?}");
            }
        }
    }
}
