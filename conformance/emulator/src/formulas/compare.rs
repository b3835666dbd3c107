//! V_CMP and V_CMPX: the relation and the type are in the name.

use super::{
    GENERATIONS, Random, each, executed,
    operand::{Kind, Mode, Source, T, value},
    trial::{Words, run, set_source, set_vector, wave},
    trials,
};
use crate::{
    arch::Gen,
    fault::What,
    inst::{
        Row,
        mods::{CLAMP, OMOD, SEL, SEL_D, names, sel, signs},
    },
};

/// Whether the instruction is a compare.
pub(super) fn covers(name: &str) -> bool {
    parts(name).is_some()
}

/// EXEC is the destination; relation; type.
fn parts(name: &str) -> Option<(bool, &str, &str)> {
    let (x, rest) = match name.strip_prefix("v_cmpx_") {
        Some(rest) => (true, rest),
        None => (false, name.strip_prefix("v_cmp_")?),
    };
    let (relation, kind) = rest.split_once('_')?;
    Some((x, relation, kind))
}

fn types(relation: &str, kind: &str) -> [T; 2] {
    let t = match kind {
        "f16" => T::F16,
        "f32" => T::F32,
        "f64" => T::F64,
        "i16" | "u16" => T::U16,
        "i64" => T::I64,
        "u64" => T::U64,
        _ => T::U32,
    };
    let second = match (relation, t) {
        ("class", T::F16) => T::U16,
        ("class", _) => T::U32,
        _ => t,
    };
    [t, second]
}

fn relation(name: &str, order: Option<std::cmp::Ordering>) -> bool {
    use std::cmp::Ordering::{Equal, Greater, Less};
    match name {
        "f" => false,
        "t" => true,
        "lt" => order == Some(Less),
        "eq" => order == Some(Equal),
        "le" => matches!(order, Some(Less | Equal)),
        "gt" => order == Some(Greater),
        "lg" => matches!(order, Some(Less | Greater)),
        "ge" => matches!(order, Some(Greater | Equal)),
        "ne" => order != Some(Equal),
        "o" => order.is_some(),
        "u" => order.is_none(),
        _ => !relation(&name[1..], order),
    }
}

/// Bit of the operand's class in the second source.
fn class(t: T, x: u64) -> u32 {
    let (mantissa, bits) = match t {
        T::F16 => (10, 5),
        T::F32 => (23, 8),
        _ => (52, 11),
    };
    let exponents = (1 << bits) - 1;
    let (e, m) = (x >> mantissa & exponents, x & ((1 << mantissa) - 1));
    let negative = x >> (mantissa + bits) & 1 == 1;
    let n = match (e, m) {
        (e, m) if e == exponents && m != 0 => return if m >> (mantissa - 1) == 0 { 0 } else { 1 },
        (e, _) if e == exponents => 2,
        (0, 0) => 5,
        (0, _) => 4,
        _ => 3,
    };
    if negative { n } else { 11 - n }
}

fn want(kind: &str, name: &str, t: T, a: u64, b: u64) -> bool {
    if name == "class" {
        return b >> class(t, a) & 1 == 1;
    }
    let order = match kind {
        _ if t.float() => value(t, a).partial_cmp(&value(t, b)),
        "i16" => Some((a as i16).cmp(&(b as i16))),
        "i32" => Some((a as i32).cmp(&(b as i32))),
        "i64" => Some((a as i64).cmp(&(b as i64))),
        _ => Some(a.cmp(&b)),
    };
    relation(name, order)
}

const SDST: u32 = 60;

fn trial(name: &str, generation: Gen, op: u16, r: &mut Random) {
    let (to_exec, relation, kind) = parts(name).expect("a compare");
    let types = types(relation, kind);
    let followed = follows(types);
    let mut literals = true;
    let sources = types.map(|t| Source::random(t, r, &mut literals, false));
    let mut mods = (0..9).map(|b| 1 << b).filter(|b| followed & b != 0 && r.one_in(3)).fold(0, |m, b| m | b);
    for (n, s) in sources.iter().enumerate() {
        if s.is_constant() {
            mods &= !(SEL << n);
        }
    }
    let mode = Mode::random(generation == Gen::Gfx11, r);
    let exec = if r.one_in(3) { r.u32() } else { u32::MAX };
    let mut w = wave(mode.bits(), exec);
    let (mut codes, mut last) = ([0; 3], None);
    for (n, (s, &t)) in sources.iter().zip(&types).enumerate() {
        let (vector, scalar) = (10 * (n as u8 + 1), 20 + 4 * n as u8);
        set_source(&mut w, s, t, vector, scalar);
        codes[n] = s.code(vector.into(), scalar.into());
        if let Kind::Literal(x) = s.kind {
            last = Some(x);
        }
    }
    let words = Words { op, dst: SDST, codes, mods, omod: 0, sdst: None, last }.vop3();
    if let Err(hit) = run(&mut w, generation, &words) {
        panic!("{generation:?} {name} {words:08x?}: {}", hit.what);
    }
    let bits = (0..32).filter(|l| exec >> l & 1 == 1).fold(0u32, |m, l| {
        let operand = |n: usize| {
            let t = types[n];
            let raw = sources[n].raw[l] >> if t.half() && mods >> 6 >> n & 1 == 1 { 16 } else { 0 };
            let raw = if t.half() { raw & 0xffff } else { raw };
            let (neg, abs) = (mods >> n & 1 == 1, mods >> 3 >> n & 1 == 1);
            match t.float() {
                // Classes tell subnormals from zeros in every mode.
                true if relation == "class" => {
                    Mode { in32: true, in16: true, ..mode }.operand(t, raw, abs, neg)
                }
                true => mode.operand(t, raw, abs, neg),
                false => raw,
            }
        };
        m | u32::from(want(kind, relation, types[0], operand(0), operand(1))) << l
    });
    let got = if to_exec { w.exec() } else { w.scalar(SDST as u8) };
    assert_eq!(got, bits, "{generation:?} {name} {words:08x?} {mode:?} exec {exec:#x}: {sources:x?}");
}

fn follows(types: [T; 2]) -> u16 {
    let of = |n: usize, t: T| if t.float() { signs(1) << n } else { 0 } | if t.half() { SEL << n } else { 0 };
    of(0, types[0]) | of(1, types[1])
}

#[test]
fn compares() {
    for generation in GENERATIONS {
        let rows: Vec<Row> = executed(generation).into_iter().map(|(_, row)| row).collect();
        let compares: Vec<Row> = rows.into_iter().filter(|row| covers(row.name)).collect();
        each(&compares, |row| {
            let op = row.opcode(generation);
            let mut r = Random::new(row.name);
            for _ in 0..trials() {
                trial(row.name, generation, op, &mut r);
            }
            refusals(row.name, generation, op);
        });
    }
}

/// Every modifier that the compare does not follow stops, with its name.
fn refusals(name: &str, generation: Gen, op: u16) {
    let (_, relation, kind) = parts(name).expect("a compare");
    let followed = follows(types(relation, kind));
    let all = signs(3) | sel(3) | SEL_D | CLAMP | OMOD;
    for bit in (0..12).map(|b| 1u16 << b).filter(|b| all & b != 0 && followed & b == 0) {
        let mut w = wave(0x3f0, u32::MAX);
        for r in [10, 20] {
            set_vector(&mut w, r, &[0; 32], true);
        }
        let (codes, omod) = ([256 + 10, 256 + 20, 0], u32::from(bit & OMOD != 0));
        let words = Words { op, dst: SDST, codes, mods: bit, omod, sdst: None, last: None }.vop3();
        let refused = run(&mut w, generation, &words).expect_err(name);
        assert_eq!(refused.what, What::NotEmulated(format!("{name} with {}", names(bit))));
    }
}
