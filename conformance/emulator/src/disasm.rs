//! One line of text for an instruction: mnemonic, operands, raw words.

use std::fmt::Write;

use crate::inst::{Enc, Inst, Src};

/// Name of a scalar register file entry.
pub(crate) fn scalar(code: u8) -> String {
    match code {
        0..=105 => format!("s{code}"),
        106 => "vcc_lo".to_owned(),
        107 => "vcc_hi".to_owned(),
        108..=123 => format!("ttmp{}", code - 108),
        124 => "null".to_owned(),
        125 => "m0".to_owned(),
        126 => "exec_lo".to_owned(),
        _ => "exec_hi".to_owned(),
    }
}

fn source(src: Src, neg: bool, abs: bool) -> String {
    let text = match src {
        Src::None => return String::new(),
        Src::V(r) => format!("v{r}"),
        Src::S(c) => scalar(c),
        Src::Inline(c) => match c {
            128..=192 => (i32::from(c) - 128).to_string(),
            193..=208 => (192 - i32::from(c)).to_string(),
            248 => "0.15915494".to_owned(),
            _ => ["0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0"][usize::from(c & 7)].to_owned(),
        },
        Src::Lit(x) => format!("{x:#x}"),
        Src::Special(c) => match c {
            235 => "src_shared_base".to_owned(),
            236 => "src_shared_limit".to_owned(),
            237 => "src_private_base".to_owned(),
            238 => "src_private_limit".to_owned(),
            253 => "scc".to_owned(),
            c => format!("src_{c}"),
        },
    };
    let text = if abs { format!("|{text}|") } else { text };
    if neg { format!("-{text}") } else { text }
}

fn operands(i: &Inst) -> String {
    let srcs = || {
        (0..3)
            .map(|n| {
                let packed = i.enc == Enc::Vop3p;
                source(i.src[n], i.neg >> n & 1 == 1, !packed && i.abs >> n & 1 == 1)
            })
            .filter(|s| !s.is_empty())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let m = &i.mem;
    match i.enc {
        Enc::Sopp => format!("{:#x}", i.imm),
        Enc::Sopk => format!("{}, {:#x}", scalar(i.dst), i.imm),
        Enc::Sopc => srcs(),
        Enc::Sop1 | Enc::Sop2 => format!("{}, {}", scalar(i.dst), srcs()),
        Enc::Smem => format!("{}, s[{}..], {:#x}", scalar(i.dst), m.saddr, m.offset),
        Enc::Vopc => format!("{}, {}", scalar(i.sdst), srcs()),
        Enc::Vop3 if i.row.name.starts_with("v_cmp") => format!("{}, {}", scalar(i.sdst), srcs()),
        Enc::Vop3Sd => format!("v{}, {}, {}", i.dst, scalar(i.sdst), srcs()),
        Enc::Vop1 | Enc::Vop2 | Enc::Vop3 | Enc::Vop3p | Enc::Vopd => {
            let scalar_result = i.row.name.contains("lane_b32") && i.row.name.starts_with("v_read")
                || i.row.name == "v_readfirstlane_b32"
                || i.row.name.starts_with("v_s_");
            let dst = if scalar_result { scalar(i.dst) } else { format!("v{}", i.dst) };
            format!("{dst}, {}", srcs())
        }
        Enc::Ds => format!("v{}, v{}, v{}, v{} offset:{}", i.dst, m.vaddr, m.data, m.data1, m.offset),
        Enc::Flat | Enc::Global | Enc::Scratch | Enc::Buffer => {
            let data = if i.row.name.contains("store") { m.data } else { i.dst };
            format!("v{data}, v{}, {} offset:{}", m.vaddr, scalar(m.saddr), m.offset)
        }
    }
}

/// The instruction as a line: `v_add_f32 v1, v2, s3   // 06040403`.
pub fn line(i: &Inst) -> String {
    let mut out = match &i.dual {
        Some(y) => {
            format!(
                "v_dual_{} {} :: v_dual_{} {}",
                &i.row.name[2..],
                operands(i),
                &y.row.name[2..],
                operands(y)
            )
        }
        None => format!("{} {}", i.row.name, operands(i)),
    };
    out.push_str("   //");
    for w in &i.raw[..i.len_bytes() / 4] {
        write!(out, " {w:08x}").expect("writing to a string");
    }
    out
}
