//! Shapes of 16-bit and packed instructions.

use super::{
    Flow,
    group::Group,
    stop,
    wave::{Wave, inline16},
};
use crate::{
    fault::What,
    inst::{Inst, Src},
    numeric::{f2h, h2f},
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
            self.hflush(h2f(if neg { h ^ 0x8000 } else { h }))
        })
    }

    /// A half's subnormals vanish when the mode says so.
    pub(crate) fn hflush(&self, x: f32) -> f32 {
        let keeps = self.mode & 0xc0 == 0xc0;
        if !keeps && x.abs() < 6.103_515_6e-5 { 0.0f32.copysign(x) } else { x }
    }

    /// Modifiers and write of f16 results that are given as exact or once-rounded f32 values.
    pub(crate) fn put_f16(&mut self, i: &Inst, ok: u32, r: [f32; 32]) {
        let k = [1.0, 2.0, 4.0, 0.5][usize::from(i.omod)];
        let bits = r.map(|x| {
            let x = h2f(f2h(x));
            let x = self.hflush(if i.omod != 0 { x * k } else { x });
            f2h(if !i.clamp {
                x
            } else if x > 0.0 {
                x.min(1.0)
            } else {
                0.0
            })
        });
        let mask = self.mask(i);
        self.put16(i.dst, i.opsel & 8 != 0, mask, ok, &bits);
    }

    /// Half D = f(S0).
    pub(crate) fn h1(&mut self, i: &Inst, f: impl Fn(f32) -> f32) -> Flow {
        let r = self.hs(i, 0).map(f);
        self.put_f16(i, self.defined(i, 0), r);
        Ok(())
    }

    /// Half D = f(S0, S1); f32 holds sums and products of halves closely enough to round once.
    pub(crate) fn h2(&mut self, i: &Inst, f: impl Fn(f32, f32) -> f32) -> Flow {
        let (a, b) = (self.hs(i, 0), self.hs(i, 1));
        let r = std::array::from_fn(|l| f(a[l], b[l]));
        self.put_f16(i, self.defined_all(i, 2), r);
        Ok(())
    }

    /// Half D = f(S0, S1, S2).
    pub(crate) fn h3(&mut self, i: &Inst, f: impl Fn(f32, f32, f32) -> f32) -> Flow {
        let (a, b, c) = (self.hs(i, 0), self.hs(i, 1), self.hs(i, 2));
        let r = std::array::from_fn(|l| f(a[l], b[l], c[l]));
        self.put_f16(i, self.defined_all(i, 3), r);
        Ok(())
    }

    /// Half D = fma(S0, S1, S2), or with D as the addend.
    pub(crate) fn hfma(&mut self, i: &Inst, accumulate: bool) -> Flow {
        let (a, b) = (self.hs(i, 0), self.hs(i, 1));
        let (c, mut ok) = if accumulate {
            let shift = if i.opsel & 8 != 0 { 16 } else { 0 };
            let r = usize::from(i.dst);
            (self.v[r].map(|x| h2f((x >> shift) as u16)), self.init[r])
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
        if i.clamp {
            return stop(What::NotEmulated(format!("{} with clamp", i.row.name)));
        }
        let (a, b) = (self.half(i, 0, false), self.half(i, 1, false));
        let r = std::array::from_fn(|l| f(a[l], b[l]));
        let mask = self.mask(i);
        self.put16(i.dst, i.opsel & 8 != 0, mask, self.defined_all(i, 2), &r);
        Ok(())
    }

    /// 16-bit integer D = f(S0, S1, S2).
    pub(crate) fn w3(&mut self, i: &Inst, f: impl Fn(u16, u16, u16) -> u16) -> Flow {
        if i.clamp {
            return stop(What::NotEmulated(format!("{} with clamp", i.row.name)));
        }
        let (a, b, c) = (self.half(i, 0, false), self.half(i, 1, false), self.half(i, 2, false));
        let r = std::array::from_fn(|l| f(a[l], b[l], c[l]));
        let mask = self.mask(i);
        self.put16(i.dst, i.opsel & 8 != 0, mask, self.defined_all(i, 3), &r);
        Ok(())
    }

    /// 16-bit compare; `float` constants and modifiers are those of halves.
    pub(crate) fn ch(&mut self, i: &Inst, f: impl Fn(f32, f32) -> bool) -> Flow {
        let (a, b) = (self.hs(i, 0), self.hs(i, 1));
        let bits = (0..32).fold(0, |m, l| m | u32::from(f(a[l], b[l])) << l);
        self.put_mask(i, 2, bits)
    }

    /// 16-bit integer compare.
    pub(crate) fn cw(&mut self, i: &Inst, f: impl Fn(u16, u16) -> bool) -> Flow {
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
            // A float constant is one half value in the low half.
            Src::Inline(c) if float => [u32::from(inline16(c)); 32],
            _ => self.lanes(i, n),
        };
        let neg_lo = if float && i.neg >> n & 1 == 1 { 0x8000 } else { 0 };
        let neg_hi = if float && i.abs >> n & 1 == 1 { 0x8000 } else { 0 };
        x.map(|v| (pick(v, lo) ^ neg_lo, pick(v, hi) ^ neg_hi))
    }

    /// Packed integer D = f(S0, S1) in each half.
    pub(crate) fn pk2(&mut self, i: &Inst, f: impl Fn(u16, u16) -> u16) -> Flow {
        if i.clamp {
            return stop(What::NotEmulated(format!("{} with clamp", i.row.name)));
        }
        let (a, b) = (self.packed(i, 0, false), self.packed(i, 1, false));
        self.put_packed(i, 2, |l| (f(a[l].0, b[l].0), f(a[l].1, b[l].1)))
    }

    /// Packed integer D = f(S0, S1, S2) in each half.
    pub(crate) fn pk3(&mut self, i: &Inst, f: impl Fn(u16, u16, u16) -> u16) -> Flow {
        if i.clamp {
            return stop(What::NotEmulated(format!("{} with clamp", i.row.name)));
        }
        let (a, b, c) = (self.packed(i, 0, false), self.packed(i, 1, false), self.packed(i, 2, false));
        self.put_packed(i, 3, |l| (f(a[l].0, b[l].0, c[l].0), f(a[l].1, b[l].1, c[l].1)))
    }

    /// Packed half D = f(S0, S1, S2) of which `n` are read.
    pub(crate) fn pkh(&mut self, i: &Inst, n: usize, f: impl Fn(f32, f32, f32) -> f32) -> Flow {
        let s: [[(u16, u16); 32]; 3] = std::array::from_fn(|k| match k < n {
            true => self.packed(i, k, true),
            false => [(0, 0); 32],
        });
        let (clamp, keeps) = (i.clamp, self.mode & 0xc0 == 0xc0);
        let tiny = |x: f32| if !keeps && x.abs() < 6.103_515_6e-5 { 0.0f32.copysign(x) } else { x };
        let one = |a: u16, b: u16, c: u16| {
            let x = tiny(h2f(f2h(f(tiny(h2f(a)), tiny(h2f(b)), tiny(h2f(c))))));
            f2h(if !clamp {
                x
            } else if x > 0.0 {
                x.min(1.0)
            } else {
                0.0
            })
        };
        self.put_packed(i, n, |l| {
            (one(s[0][l].0, s[1][l].0, s[2][l].0), one(s[0][l].1, s[1][l].1, s[2][l].1))
        })
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
    let source = |n: usize| -> [f32; 32] {
        let half = i.opsel_hi >> n & 1 == 1;
        let (neg, abs) = (i.neg >> n & 1 == 1, i.abs >> n & 1 == 1);
        let x: [f32; 32] = if half {
            w.half(i, n, true).map(|h| w.hflush(h2f(h)))
        } else {
            let flushes = w.flushes32();
            w.lanes(i, n).map(|b| {
                let x = f32::from_bits(b);
                if flushes { crate::numeric::flush(x) } else { x }
            })
        };
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
            let r = std::array::from_fn(|l| {
                let p = f64::from(a[l]) * f64::from(b[l]);
                let x = h2f(crate::numeric::d2h(crate::numeric::add_odd(p, f64::from(c[l]))));
                f2h(match i.clamp {
                    true if x > 0.0 => x.min(1.0),
                    true => 0.0,
                    false => x,
                })
            });
            let mask = w.mask(i);
            w.put16(i.dst, to == Mix::High, mask, ok, &r);
        }
    }
    Ok(())
}
