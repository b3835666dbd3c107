//! Operands of a trial: what the encoding says and what value each lane reads.

use super::Random;

/// Type of an operand, which decides its modifiers and what constants mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum T {
    F32,
    F16,
    F64,
    U32,
    U16,
    /// Bits of a half: constants are those of floats.
    B16,
    U64,
    /// As U64, with literals sign-extended.
    I64,
    /// A lane mask in a scalar register.
    Mask,
}

impl T {
    pub(super) fn float(self) -> bool {
        matches!(self, T::F32 | T::F16 | T::F64)
    }

    pub(super) fn half(self) -> bool {
        matches!(self, T::F16 | T::U16 | T::B16)
    }

    pub(super) fn wide(self) -> bool {
        matches!(self, T::F64 | T::U64 | T::I64)
    }

    fn sign(self) -> u64 {
        match self {
            T::F16 => 1 << 15,
            T::F64 => 1 << 63,
            _ => 1 << 31,
        }
    }
}

/// Values at which definitions change, by width.
const EDGES32: [u32; 24] = [
    0,
    1,
    2,
    0x1f,
    0x20,
    0x7f_ffff,
    0x80_0000,
    0x3f80_0000,
    0xbf80_0000,
    0x3f7f_ffff,
    0x4b00_0001,
    0xcb7f_ffff,
    0x7f80_0000,
    0xff80_0000,
    0x7f80_0001,
    0x7fc0_0000,
    0xffc0_0123,
    0x7f7f_ffff,
    0x8000_0000,
    0x8000_0001,
    0x7fff_ffff,
    0xffff_ffff,
    0x4f00_0000,
    0xcf00_0001,
];
const EDGES16: [u16; 20] = [
    0, 1, 2, 0xf, 0x10, 0x3ff, 0x400, 0x3c00, 0xbc00, 0x3bff, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7c01, 0x7e00,
    0x8000, 0x8001, 0x7fff, 0xffff,
];

/// A 32-bit pattern: an edge, a float of ordinary size, or anything.
pub(super) fn pattern32(r: &mut Random) -> u32 {
    match r.below(4) {
        0 => EDGES32[r.below(EDGES32.len() as u32) as usize],
        1 => (r.u32() & 0x807f_ffff) | (0x7b + r.below(10)) << 23,
        2 => r.u32() >> r.below(32),
        _ => r.u32(),
    }
}

fn pattern16(r: &mut Random) -> u16 {
    match r.below(4) {
        0 => EDGES16[r.below(EDGES16.len() as u32) as usize],
        1 => (r.u32() & 0x83ff) as u16 | ((13 + r.below(4)) << 10) as u16,
        _ => r.u32() as u16,
    }
}

fn pattern64(r: &mut Random) -> u64 {
    let low = u64::from(r.u32());
    match r.below(5) {
        0 => f64::from(f32::from_bits(pattern32(r))).to_bits(),
        1 => low | u64::from(r.u32() & 0x800f_ffff) << 32 | u64::from(0x3fa + r.below(10)) << 52,
        2 => {
            let edges =
                [0, 1, 1 << 63, 0x7ff0 << 48, 0x7ff0_0000_0000_0001, 0x7ff8 << 48, 0xf_ffff_ffff_ffff];
            edges[r.below(7) as usize]
        }
        3 => low >> r.below(32),
        _ => low | u64::from(r.u32()) << 32,
    }
}

/// Raw bits of a register of that type; both halves of a 16-bit one.
pub(super) fn pattern(t: T, r: &mut Random) -> u64 {
    match t {
        T::F16 | T::U16 | T::B16 => u64::from(pattern16(r)) | u64::from(pattern16(r)) << 16,
        T::F64 | T::U64 | T::I64 => pattern64(r),
        _ => pattern32(r).into(),
    }
}

/// Where a source comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Vector,
    Scalar,
    Inline(u32),
    Literal(u32),
}

/// A source: operand code and, before modifiers, the raw bits in each lane.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) kind: Kind,
    pub(super) raw: [u64; 32],
}

/// An inline constant's bits in an operand of that type.
fn constant(code: u32, t: T) -> u64 {
    let float = |x: f64| match t {
        T::F16 | T::B16 => u64::from(half::f16::from_f64(x).to_bits()),
        T::F64 => x.to_bits(),
        _ => u64::from((x as f32).to_bits()),
    };
    let integer = |x: i64| if t.wide() { x as u64 } else { u64::from(x as u32) };
    match code {
        128..=192 => integer(i64::from(code) - 128),
        193..=208 => integer(192 - i64::from(code)),
        240..=247 => float([0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0][(code - 240) as usize]),
        // 1 / (2 pi), cut and not rounded as an f64.
        _ if t == T::F64 => 0x3fc4_5f30_6dc9_c882,
        _ => float(std::f64::consts::FRAC_1_PI / 2.0),
    }
}

/// A random inline constant that means something to a type.
fn inline(t: T, r: &mut Random) -> u32 {
    match r.below(3) {
        0 if t.float() || matches!(t, T::U32 | T::B16) => 240 + r.below(9),
        1 => 193 + r.below(16),
        _ => 128 + r.below(65),
    }
}

/// A literal's bits in an operand of that type.
fn literal(x: u32, t: T) -> u64 {
    match t {
        T::F64 => u64::from(x) << 32,
        T::I64 => x as i32 as u64,
        _ => x.into(),
    }
}

impl Source {
    /// A source of that type; `literals` says whether a literal is still free, `vector` forces a register.
    pub(super) fn random(t: T, r: &mut Random, literals: &mut bool, vector: bool) -> Self {
        if t == T::Mask {
            return Source { kind: Kind::Scalar, raw: [pattern32(r).into(); 32] };
        }
        match r.below(10) {
            7 if !vector => Source { kind: Kind::Scalar, raw: [pattern(t, r); 32] },
            8 if !vector => {
                let code = inline(t, r);
                Source { kind: Kind::Inline(code), raw: [constant(code, t); 32] }
            }
            9 if !vector && *literals => {
                *literals = false;
                let x = pattern32(r);
                Source { kind: Kind::Literal(x), raw: [literal(x, t); 32] }
            }
            _ => Source { kind: Kind::Vector, raw: std::array::from_fn(|_| pattern(t, r)) },
        }
    }

    /// Operand code with the register number that its place in the instruction has.
    pub(super) fn code(&self, vector: u32, scalar: u32) -> u32 {
        match self.kind {
            Kind::Vector => 256 + vector,
            Kind::Scalar => scalar,
            Kind::Inline(code) => code,
            Kind::Literal(_) => 255,
        }
    }

    pub(super) fn is_constant(&self) -> bool {
        matches!(self.kind, Kind::Inline(_) | Kind::Literal(_))
    }
}

/// Whether subnormal operands and results of each width are kept, and how NaNs are treated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mode {
    pub(super) in32: bool,
    pub(super) out32: bool,
    pub(super) in16: bool,
    pub(super) out16: bool,
    pub(super) dx10_clamp: bool,
    pub(super) ieee: bool,
}

impl Mode {
    pub(super) fn random(gfx11: bool, r: &mut Random) -> Self {
        let mut bit = || !r.one_in(3);
        Mode {
            in32: bit(),
            out32: bit(),
            in16: bit(),
            out16: bit(),
            dx10_clamp: !gfx11 || bit(),
            ieee: gfx11 && bit(),
        }
    }

    /// The MODE register.
    pub(super) fn bits(self) -> u32 {
        let bit = |on: bool, n: u32| u32::from(on) << n;
        bit(self.in32, 4)
            | bit(self.out32, 5)
            | bit(self.in16, 6)
            | bit(self.out16, 7)
            | bit(self.dx10_clamp, 8)
            | bit(self.ieee, 9)
    }

    /// A float operand's bits after absolute value, negation and the loss of subnormals.
    pub(super) fn operand(self, t: T, x: u64, abs: bool, neg: bool) -> u64 {
        let x = if abs { x & !t.sign() } else { x };
        let x = if neg { x ^ t.sign() } else { x };
        let kept = if t == T::F32 { self.in32 } else { self.in16 };
        if kept { x } else { without_subnormal(t, x) }
    }

    /// A float result's bits after its modifiers.
    pub(super) fn result(self, t: T, x: u64, omod: u32, clamp: bool) -> u64 {
        let kept = if t == T::F32 { self.out32 } else { self.out16 };
        let mut v = value(t, x);
        let mut out = x;
        if !kept {
            if omod != 0 && !self.ieee && !v.is_nan() {
                v *= [1.0, 2.0, 4.0, 0.5][omod as usize];
                // Never -0.
                out = without_subnormal(t, encode(t, v));
                out = if value(t, out) == 0.0 { 0 } else { out };
            }
            out = without_subnormal(t, out);
        }
        let v = value(t, out);
        match clamp {
            true if v.is_nan() && !self.dx10_clamp => out,
            true if v.is_nan() || v <= 0.0 => 0,
            true if v > 1.0 => encode(t, 1.0),
            _ => out,
        }
    }
}

fn without_subnormal(t: T, x: u64) -> u64 {
    let exponent = match t {
        T::F16 => 0x7c00,
        T::F64 => 0x7ff0 << 48,
        _ => 0x7f80_0000,
    };
    if x & exponent == 0 { x & t.sign() } else { x }
}

/// The number that the bits stand for.
pub(super) fn value(t: T, x: u64) -> f64 {
    match t {
        T::F16 => half::f16::from_bits(x as u16).to_f64(),
        T::F64 => f64::from_bits(x),
        _ => f32::from_bits(x as u32).into(),
    }
}

/// The nearest representable number's bits.
pub(super) fn encode(t: T, x: f64) -> u64 {
    match t {
        T::F16 => half_bits(x).into(),
        T::F64 => x.to_bits(),
        _ => u64::from((x as f32).to_bits()),
    }
}

/// The half nearest to x, ties to even, found by search: no conversion routine is trusted.
pub(super) fn half_bits(x: f64) -> u16 {
    if x.is_nan() {
        return 0x7e00;
    }
    let sign = u16::from(x.is_sign_negative()) << 15;
    let m = x.abs();
    let number = |b: u16| if b >= 0x7c00 { 65536.0 } else { half::f16::from_bits(b).to_f64() };
    let (mut low, mut high) = (0u16, 0x7c00u16);
    if m >= 65536.0 {
        return sign | high;
    }
    while high - low > 1 {
        let middle = (low + high) / 2;
        if number(middle) <= m { low = middle } else { high = middle }
    }
    let (down, up) = (m - number(low), number(high) - m);
    sign | if down < up || down == up && low % 2 == 0 { low } else { high }
}

/// Whether two results are the same; any NaN equals any NaN.
pub(super) fn same(t: T, got: u64, want: u64) -> bool {
    let mask = if t.half() {
        0xffff
    } else if t.wide() {
        u64::MAX
    } else {
        0xffff_ffff
    };
    let (got, want) = (got & mask, want & mask);
    got == want || t.float() && value(t, got).is_nan() && value(t, want).is_nan()
}
