//! Two halves at a time, and dot products.

use super::{
    GENERATIONS, Random, each, find,
    half::{fma, least, strict},
    operand::{Kind, Mode, Source, T, same, value},
    trial::{DST, X, f16_bits, run, set_source, set_vector, vector, wave},
    trials,
};
use crate::{arch::Gen, fault::What, inst::mods::names, isa::Format};

/// A packed or dot product form.
pub(super) struct Packed {
    pub(super) name: &'static str,
    /// Sources read.
    count: usize,
    kind: Kinds,
    /// Follows CLAMP.
    clamp: bool,
}

/// Definition of one half, or of a dot product from the registers.
enum Kinds {
    /// Halves as bits, whether to saturate.
    Int(fn([u16; 3], bool) -> u16),
    /// Halves as bits after their signs, with the mode's rule for NaNs.
    Float(fn(&X) -> u64),
    /// Sum of products of parts that wide, with signs that NEG gives where it may.
    Dot { width: u32, signs: bool },
    /// Two products of halves onto an f32.
    Dot2(fn(u16) -> f32),
    /// An fma of f32 or halves by OP_SEL_HI: result f32, the low or the high half.
    Mix(Option<bool>),
}

fn int(name: &'static str, count: usize, clamp: bool, f: fn([u16; 3], bool) -> u16) -> Packed {
    Packed { name, count, kind: Kinds::Int(f), clamp }
}

fn float(name: &'static str, count: usize, f: fn(&X) -> u64) -> Packed {
    Packed { name, count, kind: Kinds::Float(f), clamp: true }
}

fn s(x: u16) -> i16 {
    x as i16
}

pub(super) fn forms() -> Vec<Packed> {
    vec![
        int("v_pk_mad_i16", 3, false, |[a, b, c], _| a.wrapping_mul(b).wrapping_add(c)),
        int("v_pk_mad_u16", 3, false, |[a, b, c], _| a.wrapping_mul(b).wrapping_add(c)),
        int("v_pk_mul_lo_u16", 2, false, |[a, b, _], _| a.wrapping_mul(b)),
        int("v_pk_add_i16", 2, true, |[a, b, _], c| {
            (if c { s(a).saturating_add(s(b)) } else { s(a).wrapping_add(s(b)) }) as u16
        }),
        int("v_pk_sub_i16", 2, true, |[a, b, _], c| {
            (if c { s(a).saturating_sub(s(b)) } else { s(a).wrapping_sub(s(b)) }) as u16
        }),
        int("v_pk_add_u16", 2, true, |[a, b, _], c| if c { a.saturating_add(b) } else { a.wrapping_add(b) }),
        int("v_pk_sub_u16", 2, true, |[a, b, _], c| if c { a.saturating_sub(b) } else { a.wrapping_sub(b) }),
        int("v_pk_lshlrev_b16", 2, false, |[a, b, _], _| (u32::from(b) << (a % 16)) as u16),
        int("v_pk_lshrrev_b16", 2, false, |[a, b, _], _| b >> (a % 16)),
        int("v_pk_ashrrev_i16", 2, false, |[a, b, _], _| (s(b) >> (a % 16)) as u16),
        int("v_pk_max_i16", 2, false, |[a, b, _], _| if s(a) >= s(b) { a } else { b }),
        int("v_pk_min_i16", 2, false, |[a, b, _], _| if s(a) < s(b) { a } else { b }),
        int("v_pk_max_u16", 2, false, |[a, b, _], _| if a >= b { a } else { b }),
        int("v_pk_min_u16", 2, false, |[a, b, _], _| if a < b { a } else { b }),
        float("v_pk_add_f16", 2, |x| f16_bits(x.h()[0] + x.h()[1])),
        float("v_pk_mul_f16", 2, |x| f16_bits(x.h()[0] * x.h()[1])),
        float("v_pk_fma_f16", 3, |x| {
            let [a, b, c] = x.h();
            fma(a, b, c)
        }),
        float("v_pk_min_f16", 2, |x| least(x, 1.0, x.s[0], x.s[1])),
        float("v_pk_max_f16", 2, |x| least(x, -1.0, x.s[0], x.s[1])),
        float("v_pk_min_num_f16", 2, |x| least(x, 1.0, x.s[0], x.s[1])),
        float("v_pk_max_num_f16", 2, |x| least(x, -1.0, x.s[0], x.s[1])),
        float("v_pk_minimum_f16", 2, |x| strict(1.0, x.s[0], x.s[1])),
        float("v_pk_maximum_f16", 2, |x| strict(-1.0, x.s[0], x.s[1])),
        Packed { name: "v_dot4_i32_iu8", count: 3, kind: Kinds::Dot { width: 8, signs: true }, clamp: true },
        Packed { name: "v_dot4_u32_u8", count: 3, kind: Kinds::Dot { width: 8, signs: false }, clamp: true },
        Packed { name: "v_dot8_i32_iu4", count: 3, kind: Kinds::Dot { width: 4, signs: true }, clamp: true },
        Packed { name: "v_dot8_u32_u4", count: 3, kind: Kinds::Dot { width: 4, signs: false }, clamp: true },
        Packed {
            name: "v_dot2_f32_f16",
            count: 3,
            kind: Kinds::Dot2(|h| half::f16::from_bits(h).to_f32()),
            clamp: true,
        },
        Packed {
            name: "v_dot2_f32_bf16",
            count: 3,
            kind: Kinds::Dot2(|h| f32::from_bits(u32::from(h) << 16)),
            clamp: true,
        },
        Packed { name: "v_fma_mix_f32", count: 3, kind: Kinds::Mix(None), clamp: true },
        Packed { name: "v_fma_mixlo_f16", count: 3, kind: Kinds::Mix(Some(false)), clamp: true },
        Packed { name: "v_fma_mixhi_f16", count: 3, kind: Kinds::Mix(Some(true)), clamp: true },
    ]
}

/// Bits of NEG_LO, NEG_HI, OP_SEL and OP_SEL_HI of three sources, and CLAMP.
#[derive(Clone, Copy, Debug, Default)]
struct Fields {
    neg_lo: u32,
    neg_hi: u32,
    sel: u32,
    sel_hi: u32,
    clamp: bool,
}

impl Fields {
    fn words(self, op: u16, codes: [u32; 3], last: Option<u32>) -> Vec<u32> {
        let first = 0xcc << 24
            | u32::from(op) << 16
            | u32::from(self.clamp) << 15
            | (self.sel_hi >> 2 & 1) << 14
            | self.sel << 11
            | self.neg_hi << 8
            | u32::from(DST);
        let [a, b, c] = codes;
        let second = self.neg_lo << 29 | (self.sel_hi & 3) << 27 | c << 18 | b << 9 | a;
        [first, second].into_iter().chain(last).collect()
    }
}

impl Packed {
    /// Masks of the fields that the form follows.
    fn follows(&self) -> Fields {
        let all = (1 << self.count) - 1;
        let (neg_lo, neg_hi, sel) = match self.kind {
            Kinds::Int(_) => (0, 0, all),
            Kinds::Float(_) | Kinds::Mix(_) => (all, all, all),
            Kinds::Dot { signs, .. } => (if signs { 3 } else { 0 }, 0, 0),
            Kinds::Dot2(_) => (7, 3, 3),
        };
        Fields { neg_lo, neg_hi, sel, sel_hi: all, clamp: self.clamp }
    }

    /// Type that constants of source n have.
    fn source(&self, n: usize, fields: Fields) -> T {
        match self.kind {
            Kinds::Float(_) => T::F16,
            Kinds::Int(_) | Kinds::Dot { .. } => T::U32,
            Kinds::Dot2(_) if n < 2 => T::F16,
            Kinds::Dot2(_) => T::F32,
            Kinds::Mix(_) if fields.sel_hi >> n & 1 == 1 => T::F16,
            Kinds::Mix(_) => T::F32,
        }
    }

    fn want(&self, s: [u32; 3], old: u32, fields: Fields, mode: Mode, gfx11: bool) -> (T, u64) {
        let bit = |field: u32, n: usize| field >> n & 1 == 1;
        let half = |n: usize, high: bool| if high { (s[n] >> 16) as u16 } else { s[n] as u16 };
        let picked = |n: usize, upper: bool| half(n, bit(if upper { fields.sel_hi } else { fields.sel }, n));
        let clamp = fields.clamp;
        match self.kind {
            Kinds::Int(f) => {
                let one = |upper: bool| {
                    let h = std::array::from_fn(|n| if n < self.count { picked(n, upper) } else { 0 });
                    u64::from(f(h, clamp))
                };
                (T::U32, one(false) | one(true) << 16)
            }
            Kinds::Float(f) => {
                let one = |upper: bool| {
                    let neg = if upper { fields.neg_hi } else { fields.neg_lo };
                    let s = std::array::from_fn(|n| {
                        if n >= self.count {
                            return 0;
                        }
                        mode.operand(T::F16, picked(n, upper).into(), false, bit(neg, n))
                    });
                    let x = X { s, d: 0, lane: 0, clamp, ieee: mode.ieee, gfx11, sel: 0 };
                    mode.result(T::F16, f(&x), 0, clamp)
                };
                // Each half is compared on its own, as NaNs are.
                (T::F16, one(false) | one(true) << 16)
            }
            Kinds::Dot { width, signs } => {
                let part = |x: u32, k: u32, signed: bool| {
                    let v = i64::from(x >> (k * width)) & ((1 << width) - 1);
                    if signed && v >> (width - 1) == 1 { v - (1 << width) } else { v }
                };
                let (sa, sb) = (signs && bit(fields.neg_lo, 0), signs && bit(fields.neg_lo, 1));
                let dot: i64 = (0..32 / width).map(|k| part(s[0], k, sa) * part(s[1], k, sb)).sum();
                let sum = dot + if signs { i64::from(s[2] as i32) } else { s[2].into() };
                let bounds = if signs { (-0x8000_0000, 0x7fff_ffff) } else { (0, 0xffff_ffff) };
                (T::U32, (if clamp { sum.clamp(bounds.0, bounds.1) } else { sum }) as u64)
            }
            Kinds::Dot2(up) => {
                let signed = |x: f32, neg: bool| if neg { -x } else { x };
                let low = |n: usize| signed(up(picked(n, false)), bit(fields.neg_lo, n));
                let high = |n: usize| signed(up(picked(n, true)), bit(fields.neg_hi, n));
                let c = signed(f32::from_bits(s[2]), bit(fields.neg_lo, 2));
                let sum = high(0).mul_add(high(1), low(0).mul_add(low(1), c));
                (T::F32, mode.result(T::F32, sum.to_bits().into(), 0, clamp))
            }
            Kinds::Mix(to) => {
                let [a, b, c] = std::array::from_fn(|n| {
                    let (t, x) = match bit(fields.sel_hi, n) {
                        true => (T::F16, u64::from(half(n, bit(fields.sel, n)))),
                        false => (T::F32, s[n].into()),
                    };
                    value(t, mode.operand(t, x, bit(fields.neg_hi, n), bit(fields.neg_lo, n))) as f32
                });
                let sum = u64::from(a.mul_add(b, c).to_bits());
                let Some(high) = to else { return (T::F32, mode.result(T::F32, sum, 0, clamp)) };
                let sum = mode.result(T::F32, sum, 0, false);
                let h = mode.result(T::F16, f16_bits(value(T::F32, sum)), 0, clamp);
                let old = u64::from(old);
                (T::F16, if high { old & 0xffff | h << 16 } else { old & 0xffff_0000 | h })
            }
        }
    }

    fn trial(&self, generation: Gen, op: u16, r: &mut Random) {
        let follows = self.follows();
        let fields = Fields {
            neg_lo: if r.one_in(2) { r.u32() & follows.neg_lo } else { 0 },
            neg_hi: if r.one_in(2) { r.u32() & follows.neg_hi } else { 0 },
            sel: if r.one_in(2) { r.u32() & follows.sel } else { 0 },
            sel_hi: if r.one_in(2) { r.u32() & 7 } else { 7 },
            clamp: follows.clamp && r.one_in(3),
        };
        let mode = Mode::random(generation == Gen::Gfx11, r);
        let exec = if r.one_in(3) { r.u32() } else { u32::MAX };
        let mut w = wave(mode.bits(), exec);
        let (mut codes, mut last, mut literals) = ([0; 3], None, true);
        let mut sources = Vec::new();
        for n in 0..self.count {
            let t = self.source(n, fields);
            let mut source = Source::random(t, r, &mut literals, false);
            // The high half of a constant is documented for packed forms only.
            let high = fields.sel >> n & 1 == 1;
            while source.is_constant() && matches!(self.kind, Kinds::Mix(_)) && t == T::F16 && high {
                source = Source::random(t, r, &mut literals, true);
            }
            let (vector, scalar) = (10 * (n as u8 + 1), 20 + 4 * n as u8);
            set_source(&mut w, &source, T::U32, vector, scalar);
            codes[n] = source.code(vector.into(), scalar.into());
            if let Kind::Literal(x) = source.kind {
                last = Some(x);
            }
            sources.push(source);
        }
        let old: [u64; 32] = std::array::from_fn(|_| r.u32().into());
        set_vector(&mut w, DST, &old, false);
        let words = fields.words(op, codes, last);
        let what = || format!("{generation:?} {} {words:08x?} {fields:?} {mode:?} exec {exec:#x}", self.name);
        if let Err(hit) = run(&mut w, generation, &words) {
            panic!("{}: {}", what(), hit.what);
        }
        for l in 0..32 {
            let got = vector(&w, DST, l, false);
            if exec >> l & 1 == 0 {
                assert_eq!(got, old[l], "{}: inactive lane {l}", what());
                continue;
            }
            let s: [u32; 3] = std::array::from_fn(|n| sources.get(n).map_or(0, |s| s.raw[l] as u32));
            let (t, want) = self.want(s, old[l] as u32, fields, mode, generation == Gen::Gfx11);
            let equal = match t {
                T::F16 => same(t, got, want) && same(t, got >> 16, want >> 16),
                t => same(t, got, want),
            };
            assert!(equal, "{}: lane {l}: {got:#x}, not {want:#x}, of {s:x?}", what());
        }
    }

    /// Every field that the form does not follow stops.
    fn refusals(&self, generation: Gen, op: u16) {
        let follows = self.follows();
        for bit in 0..10u32 {
            let (field, n) = (bit / 3, bit % 3);
            let mut fields = Fields { sel_hi: 7, ..Fields::default() };
            let (at, followed, note) = match field {
                0 => (&mut fields.neg_lo, follows.neg_lo, 1 << n),
                1 => (&mut fields.neg_hi, follows.neg_hi, 1 << (3 + n)),
                2 => (&mut fields.sel, follows.sel, 1 << (6 + n)),
                _ => {
                    if !follows.clamp {
                        fields.clamp = true;
                        self.refuses(generation, op, fields, crate::inst::mods::CLAMP);
                    }
                    continue;
                }
            };
            if followed >> n & 1 == 0 {
                *at = 1 << n;
                self.refuses(generation, op, fields, note);
            }
        }
    }

    fn refuses(&self, generation: Gen, op: u16, fields: Fields, note: u16) {
        let mut w = wave(0x3f0, u32::MAX);
        for r in [10, 20, 30, DST] {
            set_vector(&mut w, r, &[0; 32], false);
        }
        let result = run(&mut w, generation, &fields.words(op, [256 + 10, 256 + 20, 256 + 30], None));
        let want = What::NotEmulated(format!("{} with {}", self.name, names(note)));
        match result {
            Err(hit) => assert_eq!(hit.what, want, "{generation:?}"),
            Ok(()) => panic!("{generation:?}: {want} was expected"),
        }
    }
}

#[test]
fn packed_forms() {
    each(&forms(), |form| {
        for generation in GENERATIONS {
            let Some((_, op)) = find(form.name, generation, &[Format::Vop3p]) else { continue };
            let mut r = Random::new(form.name);
            for _ in 0..trials() {
                form.trial(generation, op, &mut r);
            }
            form.refusals(generation, op);
        }
    });
}
