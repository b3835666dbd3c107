//! Shapes of 16-bit and packed instructions.

use super::{
    Flow,
    group::Group,
    valu::clamped,
    wave::{Wave, inline16},
};
use crate::{
    inst::{
        Inst, Src,
        mods::{CLAMP, DPP, OUT, SEL_D, sel, signs},
    },
    numeric::{f2h, flush, flush16, h2f},
};

/// A 16-bit value for each lane.
pub(crate) type Halves = [u16; 32];

impl Wave {
    /// 16-bit source n: the half that OP_SEL names; `float` constants are half constants.
    pub(crate) fn half(&self, i: &Inst, n: usize, float: bool) -> Halves {
        let shift = if i.opsel >> n & 1 == 1 { 16 } else { 0 };
        match i.src[n] {
            Src::Inline(c) if float => [inline16(c); 32],
            Src::Lit(x) => [x as u16; 32],
            _ => self.lanes(i, n).map(|x| (x >> shift) as u16),
        }
    }

    /// f16 source n as f32 with its modifiers.
    pub(crate) fn hs(&self, i: &Inst, n: usize) -> [f32; 32] {
        let (abs, neg) = (i.abs >> n & 1 == 1, i.neg >> n & 1 == 1);
        self.half(i, n, true).map(|h| {
            let h = if abs { h & 0x7fff } else { h };
            self.sh_of(if neg { h ^ 0x8000 } else { h })
        })
    }

    /// The bits of an f16 result given as an exact or once-rounded f32 value, after its modifiers.
    fn half_bits(&self, i: &Inst, x: f32) -> u16 {
        let flushes = self.flushes_out();
        let x = h2f(f2h(x));
        let factor = self.factor(i, flushes);
        let x = if flushes { flush16(h2f(f2h(factor.map_or(x, |k| x * k)))) } else { x };
        let x = if factor.is_some() { x + 0.0 } else { x };
        f2h(if i.clamp { clamped(x, self.clamps_nan()) } else { x })
    }

    /// Modifiers and write of f16 results.
    pub(crate) fn put_f16(&mut self, i: &Inst, ok: u32, r: [f32; 32]) {
        let bits = r.map(|x| self.half_bits(i, x));
        let mask = self.mask(i);
        self.put16(i.dst, i.opsel & 8 != 0, mask, ok, &bits);
    }

    /// Half D = f(S0).
    pub(crate) fn h1(&mut self, i: &Inst, f: impl Fn(f32) -> f32) -> Flow {
        i.only16(1, true, signs(1) | SEL_D | OUT | DPP)?;
        let r = self.hs(i, 0).map(f);
        self.put_f16(i, self.defined(i, 0), r);
        Ok(())
    }

    /// Half D = f(S0, S1); f32 holds sums and products of halves closely enough to round once.
    pub(crate) fn h2(&mut self, i: &Inst, f: impl Fn(f32, f32) -> f32) -> Flow {
        i.only16(2, true, signs(2) | SEL_D | OUT | DPP)?;
        let (a, b) = (self.hs(i, 0), self.hs(i, 1));
        let r = std::array::from_fn(|l| f(a[l], b[l]));
        self.put_f16(i, self.defined_all(i, 2), r);
        Ok(())
    }

    /// Half D = f(S0, S1, S2).
    pub(crate) fn h3(&mut self, i: &Inst, f: impl Fn(f32, f32, f32) -> f32) -> Flow {
        i.only16(3, true, signs(3) | SEL_D | OUT | DPP)?;
        let (a, b, c) = (self.hs(i, 0), self.hs(i, 1), self.hs(i, 2));
        let r = std::array::from_fn(|l| f(a[l], b[l], c[l]));
        self.put_f16(i, self.defined_all(i, 3), r);
        Ok(())
    }

    /// Half D = fma(S0, S1, S2), or with D as the addend.
    pub(crate) fn hfma(&mut self, i: &Inst, accumulate: bool) -> Flow {
        let n = if accumulate { 2 } else { 3 };
        i.only16(n, true, signs(n) | SEL_D | OUT | DPP)?;
        let (a, b) = (self.hs(i, 0), self.hs(i, 1));
        let (c, mut ok) = if accumulate {
            let shift = if i.opsel & 8 != 0 { 16 } else { 0 };
            let r = usize::from(i.dst);
            (self.v[r].map(|x| self.sh_of((x >> shift) as u16)), self.init[r])
        } else {
            (self.hs(i, 2), self.defined(i, 2))
        };
        ok &= self.defined_all(i, 2);
        let r = std::array::from_fn(|l| fma16(a[l], b[l], c[l]));
        self.put_f16(i, ok, r);
        Ok(())
    }

    /// 16-bit integer D = f(S0, S1).
    pub(crate) fn w2(&mut self, i: &Inst, f: impl Fn(u16, u16) -> u16) -> Flow {
        i.only(!CLAMP)?;
        self.w2sat(i, &f, &f)
    }

    /// D = wrap(S0, S1), or saturate(S0, S1) with the clamp bit.
    pub(crate) fn w2sat(
        &mut self,
        i: &Inst,
        wrap: impl Fn(u16, u16) -> u16,
        saturate: impl Fn(u16, u16) -> u16,
    ) -> Flow {
        i.only16(2, false, SEL_D | CLAMP | DPP)?;
        let f = |a, b| if i.clamp { saturate(a, b) } else { wrap(a, b) };
        let (a, b) = (self.half(i, 0, false), self.half(i, 1, false));
        let r = std::array::from_fn(|l| f(a[l], b[l]));
        let mask = self.mask(i);
        self.put16(i.dst, i.opsel & 8 != 0, mask, self.defined_all(i, 2), &r);
        Ok(())
    }

    /// 16-bit integer D = f(S0, S1, S2).
    pub(crate) fn w3(&mut self, i: &Inst, f: impl Fn(u16, u16, u16) -> u16) -> Flow {
        i.only16(3, false, SEL_D | DPP)?;
        let (a, b, c) = (self.half(i, 0, false), self.half(i, 1, false), self.half(i, 2, false));
        let r = std::array::from_fn(|l| f(a[l], b[l], c[l]));
        let mask = self.mask(i);
        self.put16(i.dst, i.opsel & 8 != 0, mask, self.defined_all(i, 3), &r);
        Ok(())
    }

    /// 16-bit compare; `float` constants and modifiers are those of halves.
    pub(crate) fn ch(&mut self, i: &Inst, f: impl Fn(f32, f32) -> bool) -> Flow {
        i.only16(2, true, signs(2) | DPP)?;
        let (a, b) = (self.hs(i, 0), self.hs(i, 1));
        let bits = (0..32).fold(0, |m, l| m | u32::from(f(a[l], b[l])) << l);
        self.put_mask(i, 2, bits)
    }

    /// 16-bit integer compare.
    pub(crate) fn cw(&mut self, i: &Inst, f: impl Fn(u16, u16) -> bool) -> Flow {
        i.only16(2, false, DPP)?;
        let (a, b) = (self.half(i, 0, false), self.half(i, 1, false));
        let bits = (0..32).fold(0, |m, l| m | u32::from(f(a[l], b[l])) << l);
        self.put_mask(i, 2, bits)
    }

    /// One 16-bit result per lane from any computation.
    pub(crate) fn put_half(&mut self, i: &Inst, ok: u32, r: &Halves) {
        let mask = self.mask(i);
        self.put16(i.dst, i.opsel & 8 != 0, mask, ok, r);
    }

    /// Packed source n: (low, high) halves by OP_SEL and OP_SEL_HI; `float` adds negation.
    pub(crate) fn packed(&self, i: &Inst, n: usize, float: bool) -> [(u16, u16); 32] {
        let pick = |x: u32, high: bool| if high { (x >> 16) as u16 } else { x as u16 };
        let (lo, hi) = (i.opsel >> n & 1 == 1, i.opsel_hi >> n & 1 == 1);
        let x = match i.src[n] {
            // A float constant is one half value in the low half; an integer is sign-extended.
            Src::Inline(c @ 240..) if float => [u32::from(inline16(c)); 32],
            _ => self.lanes(i, n),
        };
        let neg_lo = if float && i.neg >> n & 1 == 1 { 0x8000 } else { 0 };
        let neg_hi = if float && i.abs >> n & 1 == 1 { 0x8000 } else { 0 };
        x.map(|v| (pick(v, lo) ^ neg_lo, pick(v, hi) ^ neg_hi))
    }

    /// Packed integer D = f(S0, S1) in each half.
    pub(crate) fn pk2(&mut self, i: &Inst, f: impl Fn(u16, u16) -> u16) -> Flow {
        i.only(!CLAMP)?;
        self.pk2sat(i, &f, &f)
    }

    /// Packed D = wrap(S0, S1), or saturate(S0, S1) with the clamp bit.
    pub(crate) fn pk2sat(
        &mut self,
        i: &Inst,
        wrap: impl Fn(u16, u16) -> u16,
        saturate: impl Fn(u16, u16) -> u16,
    ) -> Flow {
        i.only(sel(2) | CLAMP)?;
        let f = |a, b| if i.clamp { saturate(a, b) } else { wrap(a, b) };
        let (a, b) = (self.packed(i, 0, false), self.packed(i, 1, false));
        self.put_packed(i, 2, |l| (f(a[l].0, b[l].0), f(a[l].1, b[l].1)))
    }

    /// Packed integer D = f(S0, S1, S2) in each half.
    pub(crate) fn pk3(&mut self, i: &Inst, f: impl Fn(u16, u16, u16) -> u16) -> Flow {
        i.only(sel(3))?;
        let (a, b, c) = (self.packed(i, 0, false), self.packed(i, 1, false), self.packed(i, 2, false));
        self.put_packed(i, 3, |l| (f(a[l].0, b[l].0, c[l].0), f(a[l].1, b[l].1, c[l].1)))
    }

    /// Packed half D = f(S0, S1, S2) of which `n` are read.
    pub(crate) fn pkh(&mut self, i: &Inst, n: usize, f: impl Fn(f32, f32, f32) -> f32) -> Flow {
        i.only(signs(n) | sel(n) | CLAMP)?;
        let s: [[(u16, u16); 32]; 3] = std::array::from_fn(|k| match k < n {
            true => self.packed(i, k, true),
            false => [(0, 0); 32],
        });
        let one = |a: u16, b: u16, c: u16| self.half_bits(i, f(self.sh_of(a), self.sh_of(b), self.sh_of(c)));
        let r: [(u16, u16); 32] = std::array::from_fn(|l| {
            (one(s[0][l].0, s[1][l].0, s[2][l].0), one(s[0][l].1, s[1][l].1, s[2][l].1))
        });
        self.put_packed(i, n, |l| r[l])
    }

    fn put_packed(&mut self, i: &Inst, n: usize, f: impl Fn(usize) -> (u16, u16)) -> Flow {
        let r = std::array::from_fn(|l| {
            let (lo, hi) = f(l);
            u32::from(lo) | u32::from(hi) << 16
        });
        self.put(i.dst, self.mask(i), self.defined_all(i, n), &r);
        Ok(())
    }
}

/// fma of half values, rounded once to half.
pub(crate) fn fma16(a: f32, b: f32, c: f32) -> f32 {
    let sum = crate::numeric::add_odd(f64::from(a) * f64::from(b), f64::from(c));
    h2f(crate::numeric::d2h(sum))
}

/// Where V_FMA_MIX puts its result.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mix {
    F32,
    Low,
    High,
}

/// V_FMA_MIX_F32, V_FMA_MIXLO_F16, V_FMA_MIXHI_F16: each source is f32 or either half.
pub(crate) fn fma_mix(w: &mut Wave, i: &Inst, _: &mut Group<'_>, to: Mix) -> Flow {
    i.only(signs(3) | sel(3) | CLAMP)?;
    let source = |n: usize| -> [f32; 32] {
        let half = i.opsel_hi >> n & 1 == 1;
        let (neg, abs) = (i.neg >> n & 1 == 1, i.abs >> n & 1 == 1);
        let x: [f32; 32] =
            if half { w.half(i, n, true).map(|h| w.sh_of(h)) } else { w.lanes(i, n).map(|b| w.sf(b)) };
        x.map(|x| {
            let x = if abs { x.abs() } else { x };
            if neg { -x } else { x }
        })
    };
    let (a, b, c) = (source(0), source(1), source(2));
    let ok = w.defined_all(i, 3);
    match to {
        Mix::F32 => {
            let r = super::fma::fma32(&a, &b, &c);
            w.put_f32(i, ok, r);
        }
        Mix::Low | Mix::High => {
            // The fma is rounded to f32, the result to f16.
            let fma = super::fma::fma32(&a, &b, &c);
            let flushes = w.flushes_out32();
            let r = fma.map(|x| w.half_bits(i, if flushes { flush(x) } else { x }));
            let mask = w.mask(i);
            w.put16(i.dst, to == Mix::High, mask, ok, &r);
        }
    }
    Ok(())
}
