//! A vector form in its long encoding: builds the words, runs them on one wave, and compares every lane.

use super::{
    GENERATIONS, Random,
    dpp::{Dpp, From},
    each, find,
    operand::{Kind, Mode, Source, T, encode, pattern, same, value},
    trials,
};
use crate::{
    arch::Gen,
    decode::decode,
    exec::{Flow, group::Group, wave::Wave},
    fault::What,
    inst::mods::{CLAMP, OMOD, OUT, SEL, SEL_D, names, sel, signs},
    isa::Format,
    matrix_model::MatrixModel,
    memory::View,
};

/// What a formula sees of one lane: operands after their modifiers, as bits.
pub(super) struct X {
    pub(super) s: [u64; 3],
    /// What the destination held, with its modifiers of reading.
    pub(super) d: u64,
    pub(super) lane: u32,
    pub(super) clamp: bool,
    pub(super) ieee: bool,
    pub(super) gfx11: bool,
    /// OP_SEL of all operands.
    pub(super) sel: u32,
}

impl X {
    pub(super) fn u(&self) -> [u32; 3] {
        self.s.map(|x| x as u32)
    }

    pub(super) fn i(&self) -> [i32; 3] {
        self.u().map(|x| x as i32)
    }

    pub(super) fn f(&self) -> [f32; 3] {
        self.u().map(f32::from_bits)
    }

    pub(super) fn w(&self) -> [u16; 3] {
        self.s.map(|x| x as u16)
    }

    /// Halves as numbers.
    pub(super) fn h(&self) -> [f64; 3] {
        self.s.map(|x| value(T::F16, x))
    }

    pub(super) fn f64s(&self) -> [f64; 3] {
        self.s.map(f64::from_bits)
    }

    /// The lane's bit of source n, a mask.
    pub(super) fn bit(&self, n: usize) -> bool {
        self.s[n] >> self.lane & 1 == 1
    }
}

/// A vector instruction: its operands, the modifiers beyond those of its types, and its definition.
pub(super) struct Form {
    pub(super) name: String,
    pub(super) sources: Vec<T>,
    pub(super) dst: T,
    /// Modifiers that the form follows.
    pub(super) mods: u16,
    /// Which sources must be vector registers.
    pub(super) vectors: bool,
    pub(super) formula: Box<dyn Fn(&X) -> u64>,
    /// The lane's bit of the scalar destination, for those that have one.
    pub(super) carry: Option<Carry>,
}

/// The lane's bit of a scalar result.
type Carry = Box<dyn Fn(&X) -> bool>;

impl Form {
    pub(super) fn new(name: &str, sources: &[T], dst: T, formula: impl Fn(&X) -> u64 + 'static) -> Self {
        let mut mods = if dst.float() { OUT } else { 0 };
        for (n, t) in sources.iter().enumerate() {
            mods |= if t.float() { signs(1) << n } else { 0 } | if t.half() { SEL << n } else { 0 };
        }
        mods |= if dst.half() { SEL_D } else { 0 };
        let (name, formula) = (name.to_owned(), Box::new(formula));
        Form { name, sources: sources.to_vec(), dst, mods, vectors: false, formula, carry: None }
    }

    pub(super) fn with(mut self, mods: u16) -> Self {
        self.mods |= mods;
        self
    }

    pub(super) fn vectors(mut self) -> Self {
        self.vectors = true;
        self
    }

    pub(super) fn carry(mut self, carry: impl Fn(&X) -> bool + 'static) -> Self {
        self.carry = Some(Box::new(carry));
        self
    }
}

/// The words of a long encoding.
pub(super) struct Words {
    pub(super) op: u16,
    pub(super) dst: u32,
    pub(super) codes: [u32; 3],
    pub(super) mods: u16,
    pub(super) omod: u32,
    /// Scalar destination, in place of ABS and OP_SEL.
    pub(super) sdst: Option<u32>,
    pub(super) last: Option<u32>,
}

impl Words {
    pub(super) fn vop3(&self) -> Vec<u32> {
        let m = u32::from(self.mods);
        let clamp = u32::from(self.mods & CLAMP != 0) << 15;
        let middle = match self.sdst {
            Some(sdst) => sdst << 8,
            None => (m >> 3 & 7) << 8 | (m >> 6 & 15) << 11,
        };
        let first = 0x35 << 26 | u32::from(self.op) << 16 | clamp | middle | self.dst;
        let [a, b, c] = self.codes;
        let second = (m & 7) << 29 | self.omod << 27 | c << 18 | b << 9 | a;
        [first, second].into_iter().chain(self.last).collect()
    }
}

/// Destination register of trials; sources are at 10, 20 and 30.
pub(super) const DST: u8 = 40;
/// Scalar destination of trials.
pub(super) const SDST: u8 = 60;

/// A wave of the generation in that mode.
pub(super) fn wave(mode: u32, exec: u32) -> Wave {
    let mut w = Wave::new(0);
    w.reset(0, mode, true);
    w.set_s(126, exec);
    w
}

/// Runs the words.
pub(super) fn run(w: &mut Wave, generation: Gen, words: &[u32]) -> Flow {
    let i = decode(generation, words).unwrap_or_else(|u| panic!("{}", u.what));
    assert_eq!(i.len_bytes(), 4 * words.len(), "{}: length of {words:08x?}", i.mnemonic());
    let mut g = Group::new(generation, MatrixModel::FmaChain, None, 0, View::new(&[]), 0);
    (i.run)(w, &i, &mut g)
}

/// Puts a value into a vector register or a pair.
pub(super) fn set_vector(w: &mut Wave, r: u8, values: &[u64; 32], wide: bool) {
    w.put(r, u32::MAX, u32::MAX, &values.map(|x| x as u32));
    if wide {
        w.put(r + 1, u32::MAX, u32::MAX, &values.map(|x| (x >> 32) as u32));
    }
}

pub(super) fn vector(w: &Wave, r: u8, l: usize, wide: bool) -> u64 {
    let part = |r: u8| u64::from(w.v[usize::from(r)][l]);
    part(r) | if wide { part(r + 1) << 32 } else { 0 }
}

/// Puts a source where its code reads it.
pub(super) fn set_source(w: &mut Wave, s: &Source, t: T, vector: u8, scalar: u8) {
    match s.kind {
        Kind::Vector => set_vector(w, vector, &s.raw, t.wide()),
        Kind::Scalar if t.wide() => w.set_s64(scalar, s.raw[0]),
        Kind::Scalar => w.set_s(scalar, s.raw[0] as u32),
        _ => {}
    }
}

/// All trials of the forms, on both generations.
pub(super) fn check(forms: &[Form]) {
    each(forms, |form| {
        for generation in GENERATIONS {
            let Some((_, op)) = find(&form.name, generation, &[Format::Valu]) else { continue };
            let mut r = Random::new(&form.name);
            for _ in 0..trials() {
                trial(form, generation, op, &mut r);
            }
            if form.carry.is_none() {
                refusals(form, generation, op);
            }
        }
    });
}

fn trial(form: &Form, generation: Gen, op: u16, r: &mut Random) {
    let n = form.sources.len();
    // DPP takes the literal's place, and moves 32 bits.
    let narrow = !form.dst.wide() && !form.sources.iter().any(|t| t.wide());
    let dpp = (narrow && r.one_in(4)).then(|| Dpp::random(r));
    let mut literals = dpp.is_none();
    let of =
        |(k, &t): (usize, &T)| Source::random(t, r, &mut literals, form.vectors || k == 0 && dpp.is_some());
    let sources: Vec<Source> = form.sources.iter().enumerate().map(of).collect();
    // Each modifier with one chance in three; OP_SEL of a constant is nowhere defined.
    let mut mods =
        (0..12).map(|b| 1 << b).filter(|b| form.mods & b != 0 && r.one_in(3)).fold(0, |m, b| m | b);
    for (k, s) in sources.iter().enumerate() {
        if s.is_constant() {
            mods &= !(SEL << k);
        }
    }
    let omod = if mods & OMOD != 0 { 1 + r.below(3) } else { 0 };
    let mode = Mode::random(generation == Gen::Gfx11, r);
    let exec = if r.one_in(3) { r.u32() } else { u32::MAX };
    let mut w = wave(mode.bits(), exec);
    let mut codes = [0; 3];
    let mut last = None;
    for (k, (s, &t)) in sources.iter().zip(&form.sources).enumerate() {
        let (vector, scalar) = (10 * (k as u8 + 1), 20 + 4 * k as u8);
        set_source(&mut w, s, t, vector, scalar);
        codes[k] = s.code(vector.into(), scalar.into());
        if let Kind::Literal(x) = s.kind {
            last = Some(x);
        }
    }
    if let Some(dpp) = dpp {
        codes[0] = dpp.code();
        last = Some(dpp.word(10));
    }
    let old: [u64; 32] = std::array::from_fn(|_| pattern(form.dst, r));
    set_vector(&mut w, DST, &old, form.dst.wide());
    let sdst = form.carry.as_ref().map(|_| u32::from(SDST));
    let words = Words { op, dst: DST.into(), codes, mods, omod, sdst, last }.vop3();
    let what = || format!("{generation:?} {} {words:08x?} {dpp:?} {mode:?} exec {exec:#010x}", form.name);
    if let Err(hit) = run(&mut w, generation, &words) {
        panic!("{}: {}", what(), hit.what);
    }
    let high = mods & SEL_D != 0 && form.dst.half();
    let mut carries = 0;
    for l in 0..32 {
        let got = vector(&w, DST, l, form.dst.wide());
        let first = dpp.map_or(From::Lane(l), |d| d.source(l, exec));
        if exec >> l & 1 == 0 || first == From::Off {
            assert_eq!(got, vector_bits(old[l], form.dst), "{}: lane {l} is not written", what());
            continue;
        }
        let mut s = [0; 3];
        for k in 0..n {
            let t = form.sources[k];
            let raw = match first {
                From::Lane(from) if k == 0 => sources[0].raw[from],
                From::Zero if k == 0 => 0,
                _ => sources[k].raw[l],
            };
            let raw = if t.half() && mods >> 6 >> k & 1 == 1 { raw >> 16 } else { raw };
            let raw = if t.half() { raw & 0xffff } else { raw };
            let (neg, abs) = (mods >> k & 1 == 1, mods >> 3 >> k & 1 == 1);
            s[k] = if t.float() { mode.operand(t, raw, abs, neg) } else { signs_only(raw, abs, neg, t) };
        }
        let before = if high { old[l] >> 16 } else { old[l] };
        let d = match form.dst {
            T::F32 | T::F16 => mode.operand(
                form.dst,
                if form.dst == T::F16 { before & 0xffff } else { before },
                false,
                false,
            ),
            _ => before,
        };
        let x = X {
            s,
            d,
            lane: l as u32,
            clamp: mods & CLAMP != 0,
            ieee: mode.ieee,
            gfx11: generation == Gen::Gfx11,
            sel: u32::from(mods >> 6 & 15),
        };
        let mut want = (form.formula)(&x);
        if form.dst.float() && form.mods & OUT != 0 {
            want = mode.result(form.dst, want, omod, x.clamp);
        }
        let (got, kept) = match (form.dst.half(), high) {
            (true, false) => (got & 0xffff, got >> 16 == old[l] >> 16 & 0xffff),
            (true, true) => (got >> 16, got & 0xffff == old[l] & 0xffff),
            _ => (got, true),
        };
        assert!(
            kept && same(form.dst, got, want),
            "{}: lane {l}: {got:#x}, not {want:#x}, of {s:x?}, before {:#x}",
            what(),
            old[l]
        );
        if let Some(carry) = &form.carry {
            carries |= u32::from(carry(&x)) << l;
        }
    }
    if form.carry.is_some() {
        assert_eq!(w.s32(crate::inst::Src::S(SDST)), carries, "{}: scalar result", what());
    }
}

/// V_CNDMASK and its like: signs of bits, without a float's loss of subnormals.
fn signs_only(raw: u64, abs: bool, neg: bool, t: T) -> u64 {
    let sign = if t.half() { 1 << 15 } else { 1 << 31 };
    let x = if abs { raw & !sign } else { raw };
    if neg { x ^ sign } else { x }
}

fn vector_bits(x: u64, t: T) -> u64 {
    if t.wide() { x } else { x & 0xffff_ffff }
}

/// Every modifier that the form does not follow stops, with the instruction's name.
fn refusals(form: &Form, generation: Gen, op: u16) {
    let all = signs(3) | sel(3) | SEL_D | CLAMP | OMOD;
    for bit in (0..12).map(|b| 1u16 << b).filter(|b| all & b != 0 && form.mods & b == 0) {
        let mut w = wave(0x3f0, u32::MAX);
        let mut codes = [0; 3];
        for (k, &t) in form.sources.iter().enumerate() {
            let r = 10 * (k as u8 + 1);
            set_vector(&mut w, r, &[0; 32], true);
            codes[k] = if t == T::Mask { 20 } else { 256 + u32::from(r) };
        }
        set_vector(&mut w, DST, &[0; 32], true);
        let omod = u32::from(bit & OMOD != 0);
        let words = Words { op, dst: DST.into(), codes, mods: bit, omod, sdst: None, last: None }.vop3();
        match run(&mut w, generation, &words) {
            Err(hit) => {
                let want = format!("{} with {}", form.name, names(bit));
                assert_eq!(hit.what, What::NotEmulated(want), "{generation:?}");
            }
            Ok(()) => panic!(
                "{generation:?} {}: {} (bit {bit:#x}) is not followed, and passed",
                form.name,
                names(bit)
            ),
        }
    }
}

/// A float result from a number.
pub(super) fn f32_bits(x: f32) -> u64 {
    x.to_bits().into()
}

/// A half result, rounded once.
pub(super) fn f16_bits(x: f64) -> u64 {
    encode(T::F16, x)
}
