//! Matrix multiply-accumulate: register layouts of both generations and the named models of its sums.

use super::{Flow, fma, group::Group, stop, wave::Wave};
use crate::{
    arch::Gen,
    fault::What,
    inst::{
        Inst, Src,
        mods::{CLAMP, SEL, neg, signs},
    },
    matrix_model::MatrixModel,
    numeric::{b2f, bf8, d2h, f2b, fp8, h2f},
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

/// First register of operand n of that many k, after the check of all that one lane's part of it takes.
fn operand(
    w: &Wave,
    i: &Inst,
    n: usize,
    bits: u32,
    depth: u32,
    g: &Group<'_>,
) -> Result<u8, Box<super::Hit>> {
    if w.exec() != u32::MAX {
        return stop(What::WmmaInactive { exec: w.exec() });
    }
    let Src::V(first) = i.src[n] else {
        return stop(What::NotEmulated("WMMA with a scalar A or B".to_owned()));
    };
    let per_lane = if g.generation == Gen::Gfx11 { depth } else { depth / 2 };
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

/// Element `k` of row or column `n` of an operand of `depth` k that starts at register `first`.
#[inline(always)]
fn element(w: &Wave, g: &Group<'_>, first: u8, n: usize, k: u32, bits: u32, depth: u32) -> u32 {
    // gfx11: every lane n % 16 holds all k. gfx12: lane n + 16 holds the upper half of k.
    let half = depth / 2;
    let (lane, slot) = match g.generation {
        Gen::Gfx11 => (n, k),
        Gen::Gfx12 => (n + 16 * (k / half) as usize, k % half),
    };
    let bit = slot * bits;
    let v = w.v[usize::from(first.wrapping_add((bit / 32) as u8))][lane];
    v >> (bit % 32) & (u32::MAX >> (32 - bits))
}

/// A as rows of k and B as rows of n.
fn load(w: &Wave, i: &Inst, g: &Group<'_>, elems: [Elem; 2]) -> Result<[Matrix; 2], Box<super::Hit>> {
    let mut out = [[[0.0; 16]; 16]; 2];
    for (n, elem) in elems.into_iter().enumerate() {
        let first = operand(w, i, n, elem.bits(), 16, g)?;
        let negate = |k: u32| {
            // NEG_LO negates the even elements, NEG_HI the odd ones.
            let field = if k.is_multiple_of(2) { i.neg } else { i.abs };
            elem.bits() == 16 && field >> n & 1 == 1
        };
        for lane in 0..16 {
            for k in 0..16 {
                let x = elem.value(element(w, g, first, lane, k, elem.bits(), 16));
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

/// V_WMMA_{F32,F16,BF16}_16X16X16_*: all lanes take part.
pub(crate) fn wmma(w: &mut Wave, i: &Inst, g: &mut Group<'_>, a: Elem, b: Elem, acc: Acc) -> Flow {
    let halves = acc != Acc::F32 && g.generation == Gen::Gfx11;
    let signed = if a.bits() == 16 { signs(3) } else { signs(3) & !signs(2) };
    i.only(signed | if halves { SEL << 2 } else { 0 })?;
    let [ma, mb] = load(w, i, g, [a, b])?;
    let mut d = load_acc(w, i, g, acc)?;
    if g.model == MatrixModel::FmaChain {
        fma::matrix(&ma, &mb, &mut d);
    } else {
        for m in 0..16 {
            for n in 0..16 {
                let products: [(f32, f32); 16] = std::array::from_fn(|k| (ma[m][k], mb[k][n]));
                d[m][n] = g.model.sum(a == Elem::Bf16, d[m][n], &products);
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

/// V_WMMA_I32_16X16X{depth}_IU{bits}: NEG_LO makes A or B signed, CLAMP saturates.
pub(crate) fn wmma_int(w: &mut Wave, i: &Inst, g: &mut Group<'_>, bits: u32, depth: u32) -> Flow {
    i.only(neg(2) | CLAMP)?;
    let mut parts = [[[0i64; 32]; 16]; 2];
    for n in 0..2 {
        let first = operand(w, i, n, bits, depth, g)?;
        let signed = i.neg >> n & 1 == 1;
        for row in 0..16 {
            for k in 0..depth {
                let x = element(w, g, first, row, k, bits, depth);
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
