//! Matrix multiply-accumulate: register layouts of both generations and the named models of its sums.

use super::{Flow, fma, group::Group, stop, wave::Wave};
use crate::{
    arch::Gen,
    fault::What,
    inst::{Inst, Src},
    launch::Model,
    numeric::{add_odd, b2f, bf8, d2h, exp2i, f2b, fp8, h2f},
};

/// Element format of A or B.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Elem {
    F16,
    Bf16,
    Fp8,
    Bf8,
}

impl Elem {
    fn bits(self) -> u32 {
        match self {
            Elem::F16 | Elem::Bf16 => 16,
            Elem::Fp8 | Elem::Bf8 => 8,
        }
    }

    fn value(self, x: u32) -> f32 {
        match self {
            Elem::F16 => h2f(x as u16),
            Elem::Bf16 => b2f(x as u16),
            Elem::Fp8 => fp8(x as u8),
            Elem::Bf8 => bf8(x as u8),
        }
    }
}

/// Format of C and D.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acc {
    F32,
    F16,
    Bf16,
}

type Matrix = [[f32; 16]; 16];

/// First register of operand n, after the check of all that one lane's part of it takes.
fn operand(w: &Wave, i: &Inst, n: usize, bits: u32, g: &Group<'_>) -> Result<u8, Box<super::Hit>> {
    let Src::V(first) = i.src[n] else {
        return stop(What::NotEmulated("WMMA with a scalar A or B".to_owned()));
    };
    let per_lane = if g.generation == Gen::Gfx11 { 16 } else { 8 };
    let count = per_lane * bits / 32;
    for r in 0..count {
        let r = first.wrapping_add(r as u8);
        w.require(r, u32::MAX, "WMMA operand")?;
        if g.generation == Gen::Gfx11 {
            let v = &w.v[usize::from(r)];
            if let Some(l) = (0..16).find(|&l| v[l] != v[l + 16]) {
                return stop(What::WmmaNotRepeated { register: r.into(), lane: l as u32 + 16 });
            }
        }
    }
    Ok(first)
}

/// Element `k` of row or column `n` of an operand that starts at register `first`.
fn element(w: &Wave, g: &Group<'_>, first: u8, n: usize, k: u32, bits: u32) -> u32 {
    // gfx11: every lane n % 16 holds all k. gfx12: lane n + 16 holds k = 8..15.
    let (lane, slot) = match g.generation {
        Gen::Gfx11 => (n, k),
        Gen::Gfx12 => (n + 16 * (k / 8) as usize, k % 8),
    };
    let bit = slot * bits;
    let v = w.v[usize::from(first.wrapping_add((bit / 32) as u8))][lane];
    v >> (bit % 32) & (u32::MAX >> (32 - bits))
}

/// A as rows of k and B as rows of n.
fn load(w: &Wave, i: &Inst, g: &Group<'_>, elems: [Elem; 2]) -> Result<[Matrix; 2], Box<super::Hit>> {
    let mut out = [[[0.0; 16]; 16]; 2];
    for (n, elem) in elems.into_iter().enumerate() {
        let first = operand(w, i, n, elem.bits(), g)?;
        let negate = |k: u32| {
            // NEG_LO negates the even elements, NEG_HI the odd ones.
            let field = if k.is_multiple_of(2) { i.neg } else { i.abs };
            elem.bits() == 16 && field >> n & 1 == 1
        };
        for lane in 0..16 {
            for k in 0..16 {
                let x = elem.value(element(w, g, first, lane, k, elem.bits()));
                let x = if negate(k) { -x } else { x };
                let (r, c) = if n == 0 { (lane, k as usize) } else { (k as usize, lane) };
                out[n][r][c] = x;
            }
        }
    }
    Ok(out)
}

/// Row of an f32 or i32 accumulator register, for the lane's half.
fn acc_row(generation: Gen, register: usize, lane: usize) -> usize {
    match generation {
        Gen::Gfx11 => 2 * register + lane / 16,
        Gen::Gfx12 => 8 * (lane / 16) + register,
    }
}

/// Register and half that hold row `m`, of lane half `m`'s rows, in a 16-bit accumulator.
fn half_place(generation: Gen, m: usize, opsel: bool) -> (usize, usize, bool) {
    match generation {
        Gen::Gfx11 => (m / 2, m % 2, opsel),
        Gen::Gfx12 => (m % 8 / 2, m / 8, m % 2 == 1),
    }
}

fn load_acc(w: &Wave, i: &Inst, g: &Group<'_>, acc: Acc) -> Result<Matrix, Box<super::Hit>> {
    let mut c = [[0.0; 16]; 16];
    let up = |x: u16| if acc == Acc::Bf16 { b2f(x) } else { h2f(x) };
    match i.src[2] {
        Src::V(first) => {
            let count = if acc == Acc::F32 || g.generation == Gen::Gfx11 { 8 } else { 4 };
            for r in 0..count {
                w.require(first.wrapping_add(r), u32::MAX, "WMMA accumulator")?;
            }
            for m in 0..16 {
                for n in 0..16 {
                    let high = i.opsel >> 2 & 1 == 1;
                    c[m][n] = match acc {
                        Acc::F32 => {
                            let (r, half) = match g.generation {
                                Gen::Gfx11 => (m / 2, m % 2),
                                Gen::Gfx12 => (m % 8, m / 8),
                            };
                            f32::from_bits(w.v[usize::from(first) + r][n + 16 * half])
                        }
                        _ => {
                            let (r, half, high) = half_place(g.generation, m, high);
                            let x = w.v[usize::from(first) + r][n + 16 * half];
                            up(if high { x >> 16 } else { x } as u16)
                        }
                    };
                }
            }
        }
        s => {
            let x = match (acc, s) {
                (Acc::F32, s) => f32::from_bits(w.s32(s)),
                (_, Src::Inline(k)) if acc == Acc::F16 => h2f(super::wave::inline16(k)),
                (_, s) => up(w.s32(s) as u16),
            };
            c = [[x; 16]; 16];
        }
    }
    let (neg, abs) = (i.neg >> 2 & 1 == 1, i.abs >> 2 & 1 == 1);
    if neg || abs {
        for x in c.iter_mut().flatten() {
            *x = if abs { x.abs() } else { *x };
            *x = if neg { -*x } else { *x };
        }
    }
    Ok(c)
}

/// V_WMMA_{F32,F16,BF16}_16X16X16_*. EXEC is ignored: all lanes take part.
pub(crate) fn wmma(w: &mut Wave, i: &Inst, g: &mut Group<'_>, a: Elem, b: Elem, acc: Acc) -> Flow {
    if i.clamp {
        return stop(What::NotEmulated("WMMA with clamp".to_owned()));
    }
    let [ma, mb] = load(w, i, g, [a, b])?;
    let mut d = load_acc(w, i, g, acc)?;
    match g.model {
        Model::FmaChain => fma::matrix(&ma, &mb, &mut d),
        Model::Exact | Model::SiliconGfx1151 => {
            for m in 0..16 {
                for n in 0..16 {
                    let product = |k: usize| (ma[m][k], mb[k][n]);
                    d[m][n] = if g.model == Model::Exact {
                        exact(d[m][n], (0..16).map(product))
                    } else {
                        let pair =
                            |c, k: usize| silicon(a == Elem::Bf16, c, [product(2 * k), product(2 * k + 1)]);
                        (0..8).fold(d[m][n], pair)
                    };
                }
            }
        }
    }
    store_acc(w, i, g, acc, &d);
    Ok(())
}

fn store_acc(w: &mut Wave, i: &Inst, g: &Group<'_>, acc: Acc, d: &Matrix) {
    let dst = usize::from(i.dst);
    if acc == Acc::F32 {
        for r in 0..8 {
            for l in 0..32 {
                w.v[dst + r][l] = d[acc_row(g.generation, r, l)][l % 16].to_bits();
            }
            w.init[dst + r] = u32::MAX;
        }
        return;
    }
    for m in 0..16 {
        for n in 0..16 {
            let bits = if acc == Acc::Bf16 { f2b(d[m][n]) } else { d2h(d[m][n].into()) };
            let (r, half, high) = half_place(g.generation, m, i.opsel >> 2 & 1 == 1);
            let x = &mut w.v[dst + r][n + 16 * half];
            let bits = u32::from(bits);
            *x = if high { *x & 0xffff | bits << 16 } else { *x & !0xffff | bits };
            w.init[dst + r] = u32::MAX;
        }
    }
}

/// V_WMMA_I32_16X16X16_IU{bits}: NEG_LO makes A or B signed, CLAMP saturates.
pub(crate) fn wmma_int(w: &mut Wave, i: &Inst, g: &mut Group<'_>, bits: u32) -> Flow {
    let depth = 16;
    let mut parts = [[[0i64; 16]; 16]; 2];
    for n in 0..2 {
        let first = operand(w, i, n, bits, g)?;
        let signed = i.neg >> n & 1 == 1;
        for row in 0..16 {
            for k in 0..depth {
                let x = element(w, g, first, row, k, bits);
                let s = (x << (32 - bits)) as i32 >> (32 - bits);
                parts[n][row][k as usize] = if signed { s.into() } else { x.into() };
            }
        }
    }
    let [a, b] = parts;
    let constant = match i.src[2] {
        Src::V(first) => {
            for r in 0..8 {
                w.require(first.wrapping_add(r), u32::MAX, "WMMA accumulator")?;
            }
            None
        }
        s => Some(w.s32(s)),
    };
    let c: Vec<[u32; 32]> = (0..8)
        .map(|r| match (constant, i.src[2]) {
            (None, Src::V(first)) => w.v[usize::from(first) + r],
            (x, _) => [x.unwrap_or(0); 32],
        })
        .collect();
    for r in 0..8 {
        for l in 0..32 {
            let m = acc_row(g.generation, r, l);
            let dot: i64 = (0..depth as usize).map(|k| a[m][k] * b[l % 16][k]).sum();
            let c = c[r][l];
            w.v[usize::from(i.dst) + r][l] = if i.clamp {
                (i64::from(c as i32) + dot).clamp(i32::MIN.into(), i32::MAX.into()) as u32
            } else {
                c.wrapping_add(dot as u32)
            };
        }
        w.init[usize::from(i.dst) + r] = u32::MAX;
    }
    Ok(())
}

/// c + a0 b0 + a1 b1 under a model.
pub(crate) fn dot_pair(model: Model, bf16: bool, c: f32, pairs: [(f32, f32); 2]) -> f32 {
    match model {
        Model::FmaChain => pairs.into_iter().fold(c, |c, (a, b)| a.mul_add(b, c)),
        Model::Exact => exact(c, pairs.into_iter()),
        Model::SiliconGfx1151 => silicon(bf16, c, pairs),
    }
}

/// The sum of c and the products, rounded once.
fn exact(c: f32, products: impl Iterator<Item = (f32, f32)>) -> f32 {
    // Non-overlapping partial sums, smallest first: no bit is lost.
    let mut partials: Vec<f64> = Vec::with_capacity(18);
    let terms = products.map(|(a, b)| f64::from(a) * f64::from(b));
    for mut x in std::iter::once(f64::from(c)).chain(terms) {
        if !x.is_finite() {
            partials = vec![partials.iter().sum::<f64>() + x];
            continue;
        }
        let mut kept = Vec::with_capacity(18);
        for &p in &partials {
            let s = x + p;
            let t = s - x;
            let err = (x - (s - t)) + (p - t);
            if err != 0.0 && s.is_finite() {
                kept.push(err);
            }
            x = s;
        }
        kept.push(x);
        partials = kept;
    }
    // Rounding each partial sum to odd keeps what the last rounding must know.
    partials.into_iter().fold(0.0, |s, p| add_odd(p, s)) as f32
}

/// c + a0 b0 + a1 b1 as reported for gfx1151: addends cut to a common grid, those of the other sign than
/// c's complemented bit by bit, one rounding at the end. bf16 subnormal operands count as zero.
fn silicon(bf16: bool, c: f32, pairs: [(f32, f32); 2]) -> f32 {
    let flush = |x: f32| if bf16 && x.is_subnormal() { 0.0f32.copysign(x) } else { x };
    let pairs = pairs.map(|(a, b)| (flush(a), flush(b)));
    let plain = f64::from(pairs[0].0) * f64::from(pairs[0].1) + f64::from(pairs[1].0) * f64::from(pairs[1].1);
    if !c.is_finite() || !plain.is_finite() {
        return (f64::from(c) + plain) as f32;
    }
    // Every f32, subnormal ones too, is normal as an f64.
    let exponent =
        |x: f32| if x == 0.0 { -1000 } else { (f64::from(x).to_bits() >> 52 & 0x7ff) as i32 - 1023 };
    let largest = pairs.iter().map(|&(a, b)| exponent(a) + exponent(b)).fold(exponent(c), i32::max);
    if largest <= -1000 {
        return c + plain as f32;
    }
    // The reported example, -1 + 3 * 8 + 8 * 4 = 55 + 2^-18, fixes the grid at 2^-24 of the largest.
    let grid = largest - 24;
    let (lsb, per_unit) = (exp2i(grid), exp2i(-grid));
    let negative = c.is_sign_negative();
    let addends = [
        f64::from(c),
        f64::from(pairs[0].0) * f64::from(pairs[0].1),
        f64::from(pairs[1].0) * f64::from(pairs[1].1),
    ];
    let total: i64 = addends
        .into_iter()
        .filter(|&x| x != 0.0)
        .map(|x| {
            let units = (x.abs() * per_unit) as i64;
            if x.is_sign_negative() == negative { units } else { !units }
        })
        .sum();
    let magnitude = total as f64 * lsb;
    (if negative { -magnitude } else { magnitude }) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_differ_as_named() {
        let pairs = [(3.0, 8.0), (8.0, 4.0)];
        assert_eq!(dot_pair(Model::FmaChain, true, -1.0, pairs), 55.0);
        assert_eq!(dot_pair(Model::SiliconGfx1151, true, -1.0, pairs), 55.0 + 2f32.powi(-18));
        // 2^24 + 1 + 1: the chain loses both ones, the exact sum keeps them.
        let ones = [(1.0, 1.0), (1.0, 1.0)];
        let big = 2f32.powi(24);
        assert_eq!(dot_pair(Model::FmaChain, true, big, ones), big);
        assert_eq!(dot_pair(Model::Exact, true, big, ones), big + 2.0);
    }

    #[test]
    fn exact_rounds_once() {
        // The f64 sum 1 + 2^-24 + 2^-60 is a double-rounding trap: it must round up.
        let tiny = (2f32.powi(-30), 2f32.powi(-30));
        let half_ulp = (2f32.powi(-12), 2f32.powi(-12));
        assert_eq!(exact(1.0, [half_ulp, tiny].into_iter()), 1.0 + f32::EPSILON);
        assert_eq!(exact(1.0, [half_ulp].into_iter()), 1.0);
        assert_eq!(exact(1.0, [(-1.0, 1.0)].into_iter()), 0.0);
    }

    #[test]
    fn silicon_flushes_bf16_subnormals_only() {
        let sub = f32::from_bits(0x0040_0000);
        let big = 2f32.powi(100);
        assert_eq!(silicon(true, 0.0, [(sub, big), (0.0, 0.0)]), 0.0);
        assert_eq!(silicon(false, 0.0, [(2f32.powi(-24), 1.0), (0.0, 0.0)]), 2f32.powi(-24));
    }
}
