//! Every instruction form against a formula written apart from it: random operands, random modifiers among
//! those that the form follows, random modes and lanes, on the encoding that the decoder reads.
//!
//! The formulas are those of AMD's "RDNA3 Instruction Set Architecture" and "RDNA4 Instruction Set
//! Architecture" documents. `MOSS_EMULATOR_TRIALS` sets the trials of each form.

mod compare;
mod dpp;
mod elsewhere;
mod float32;
mod half;
mod integer;
mod operand;
mod packed;
mod scalar;
mod short;
mod trial;
mod wide;

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::{
    arch::Gen,
    inst::{NO, Row},
    isa::{self, Format},
};

pub(super) const GENERATIONS: [Gen; 2] = [Gen::Gfx11, Gen::Gfx12];

/// Trials of each form and generation.
pub(super) fn trials() -> usize {
    std::env::var("MOSS_EMULATOR_TRIALS").ok().and_then(|n| n.parse().ok()).unwrap_or(200)
}

/// Random numbers: a 64-bit linear congruence, high half.
pub(super) struct Random(u64);

impl Random {
    /// From a name, so that each form has its own.
    pub(super) fn new(name: &str) -> Self {
        Random(
            name.bytes().fold(0x9e37_79b9_7f4a_7c15, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)),
        )
    }

    pub(super) fn u32(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 32) as u32
    }

    /// Below `n`.
    pub(super) fn below(&mut self, n: u32) -> u32 {
        ((u64::from(self.u32()) * u64::from(n)) >> 32) as u32
    }

    pub(super) fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }
}

/// Checks every form, and panics with what each of the failing ones said.
pub(super) fn each<F>(forms: &[F], check: impl Fn(&F)) {
    let failed: Vec<String> = forms
        .iter()
        .filter_map(|form| {
            let panic = catch_unwind(AssertUnwindSafe(|| check(form))).err()?;
            let text = panic.downcast_ref::<String>().map_or("a panic without a text", String::as_str);
            Some(text.to_owned())
        })
        .collect();
    assert!(failed.is_empty(), "{} forms:\n{}", failed.len(), failed.join("\n"));
}

/// The row of that name in a generation, with its opcode space.
pub(super) fn find(name: &str, generation: Gen, formats: &[Format]) -> Option<(Format, u16)> {
    formats.iter().find_map(|&format| {
        let mut rows = isa::rows(format).filter(|r| r.name == name && r.opcode(generation) != NO);
        rows.next().map(|r| (format, r.opcode(generation)))
    })
}

/// The forms that the emulator executes, by name.
fn executed(generation: Gen) -> Vec<(Format, Row)> {
    let formats = isa::ALL_FORMATS.into_iter();
    formats
        .flat_map(|f| isa::rows(f).map(move |r| (f, *r)))
        .filter(|(_, r)| r.emulated && r.opcode(generation) != NO)
        .collect()
}

#[test]
fn every_executed_form_has_a_formula_or_a_reason() {
    let covered: BTreeSet<String> = float32::forms()
        .into_iter()
        .chain(half::forms())
        .chain(integer::forms())
        .chain(wide::forms())
        .map(|f| f.name)
        .chain(packed::forms().into_iter().map(|f| f.name.to_owned()))
        .chain(scalar::forms().into_iter().map(|f| f.name.to_owned()))
        .chain(short::NAMES.map(str::to_owned))
        .collect();
    let mut missing = BTreeSet::new();
    for generation in GENERATIONS {
        for (format, row) in executed(generation) {
            let compares = compare::covers(row.name);
            match elsewhere::reason(format, row.name) {
                Some(_) => assert!(
                    !covered.contains(row.name) && !compares,
                    "{} has a formula: it needs no reason",
                    row.name
                ),
                None if covered.contains(row.name) || compares => {}
                None => {
                    missing.insert(row.name);
                }
            }
        }
    }
    assert!(missing.is_empty(), "neither a formula nor a reason: {missing:?}");
    // A formula without an instruction tests nothing.
    let known: BTreeSet<&str> = GENERATIONS.into_iter().flat_map(executed).map(|(_, row)| row.name).collect();
    let idle: Vec<&String> = covered.iter().filter(|name| !known.contains(name.as_str())).collect();
    assert!(idle.is_empty(), "formulas of no executed instruction: {idle:?}");
}
