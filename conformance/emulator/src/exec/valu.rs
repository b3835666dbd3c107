//! Shapes of 32-bit vector instructions.

use super::{
    Flow,
    fma::fma32,
    group::Group,
    stop,
    wave::{Lanes, Wave},
};
use crate::{
    fault::What,
    inst::{
        Inst, Src,
        mods::{CLAMP, DPP, OUT, neg, sel, signs},
    },
    numeric::{add_odd, exp2i, flush},
};

/// x within 0 and 1; a NaN becomes 0 or stays.
pub(crate) fn clamped(x: f32, nan_to_zero: bool) -> f32 {
    if x > 0.0 {
        x.min(1.0)
    } else if x.is_nan() && !nan_to_zero {
        x
    } else {
        0.0
    }
}

/// A float for each lane.
pub(crate) type Floats = [f32; 32];

#[inline(always)]
pub(crate) fn floats(x: &Lanes) -> Floats {
    std::array::from_fn(|l| f32::from_bits(x[l]))
}

impl Wave {
    /// f32 source n with DPP, absolute value, negation and flushing applied.
    #[inline(always)]
    pub(crate) fn f32s(&self, i: &Inst, n: usize) -> Floats {
        let mut x = self.lanes(i, n);
        if (i.abs | i.neg) >> n & 1 == 1 {
            let clear = if i.abs >> n & 1 == 1 { 0x8000_0000 } else { 0 };
            let flip = if i.neg >> n & 1 == 1 { 0x8000_0000 } else { 0 };
            for v in &mut x {
                *v = *v & !clear ^ flip;
            }
        }
        let mut x = floats(&x);
        if self.flushes_in32() {
            x = x.map(flush);
        }
        x
    }

    /// Output modifiers, flushing, and the write.
    #[inline(always)]
    pub(crate) fn put_f32(&mut self, i: &Inst, ok: u32, mut r: Floats) {
        if self.flushes_out32() {
            r = match self.factor(i, true) {
                // An output modifier leaves no -0.
                Some(k) => r.map(|x| flush(x * k) + 0.0),
                None => r.map(flush),
            };
        }
        if i.clamp {
            let nan = self.clamps_nan();
            r = r.map(|x| clamped(x, nan));
        }
        let bits = r.map(f32::to_bits);
        self.put(i.dst, self.mask(i), ok, &bits);
    }

    /// D = f(S0), floats.
    #[inline(always)]
    pub(crate) fn f1(&mut self, i: &Inst, f: impl Fn(f32) -> f32) -> Flow {
        i.only(signs(1) | OUT | DPP)?;
        let r = self.f32s(i, 0).map(f);
        self.put_f32(i, self.defined(i, 0), r);
        Ok(())
    }

    /// D = f(S0, S1), floats.
    #[inline(always)]
    pub(crate) fn f2(&mut self, i: &Inst, f: impl Fn(f32, f32) -> f32) -> Flow {
        i.only(signs(2) | OUT | DPP)?;
        let (a, b) = (self.f32s(i, 0), self.f32s(i, 1));
        let r = std::array::from_fn(|l| f(a[l], b[l]));
        self.put_f32(i, self.defined_all(i, 2), r);
        Ok(())
    }

    /// D = f(S0, S1, S2), floats.
    #[inline(always)]
    pub(crate) fn f3(&mut self, i: &Inst, f: impl Fn(f32, f32, f32) -> f32) -> Flow {
        i.only(signs(3) | OUT | DPP)?;
        let (a, b, c) = (self.f32s(i, 0), self.f32s(i, 1), self.f32s(i, 2));
        let r = std::array::from_fn(|l| f(a[l], b[l], c[l]));
        self.put_f32(i, self.defined_all(i, 3), r);
        Ok(())
    }

    /// D = fma(S0, S1, S2).
    pub(crate) fn fma(&mut self, i: &Inst) -> Flow {
        i.only(signs(3) | OUT | DPP)?;
        let r = fma32(&self.f32s(i, 0), &self.f32s(i, 1), &self.f32s(i, 2));
        self.put_f32(i, self.defined_all(i, 3), r);
        Ok(())
    }

    /// D = fma(S0, S1, D).
    pub(crate) fn fmac(&mut self, i: &Inst) -> Flow {
        i.only(signs(2) | OUT | DPP)?;
        let mut d = floats(&self.v[usize::from(i.dst)]);
        if self.flushes_in32() {
            d = d.map(flush);
        }
        let r = fma32(&self.f32s(i, 0), &self.f32s(i, 1), &d);
        let ok = self.defined_all(i, 2) & self.init[usize::from(i.dst)];
        self.put_f32(i, ok, r);
        Ok(())
    }

    /// A transcendental: subnormal operands and results are zeros in every mode.
    #[inline(always)]
    pub(crate) fn trans(&mut self, i: &Inst, f: impl Fn(f32) -> f32) -> Flow {
        self.f1(i, |x| flush(f(flush(x))))
    }

    /// D = f(S0), 32-bit integers.
    #[inline(always)]
    pub(crate) fn u1(&mut self, i: &Inst, f: impl Fn(u32) -> u32) -> Flow {
        i.only(DPP)?;
        let r = self.lanes(i, 0).map(f);
        self.put(i.dst, self.mask(i), self.defined(i, 0), &r);
        Ok(())
    }

    /// D = f(S0, S1), 32-bit integers.
    #[inline(always)]
    pub(crate) fn u2(&mut self, i: &Inst, f: impl Fn(u32, u32) -> u32) -> Flow {
        i.only(DPP)?;
        let (a, b) = (self.lanes(i, 0), self.lanes(i, 1));
        let r = std::array::from_fn(|l| f(a[l], b[l]));
        self.put(i.dst, self.mask(i), self.defined_all(i, 2), &r);
        Ok(())
    }

    /// D = wrap(S0, S1), or saturate(S0, S1) with the clamp bit.
    #[inline(always)]
    pub(crate) fn u2sat(
        &mut self,
        i: &Inst,
        wrap: impl Fn(u32, u32) -> u32,
        saturate: impl Fn(u32, u32) -> u32,
    ) -> Flow {
        i.only(CLAMP | DPP)?;
        let (a, b) = (self.lanes(i, 0), self.lanes(i, 1));
        let r = match i.clamp {
            false => std::array::from_fn(|l| wrap(a[l], b[l])),
            true => std::array::from_fn(|l| saturate(a[l], b[l])),
        };
        self.put(i.dst, self.mask(i), self.defined_all(i, 2), &r);
        Ok(())
    }

    /// D = f(S0, S1, S2), 32-bit integers.
    #[inline(always)]
    pub(crate) fn u3(&mut self, i: &Inst, f: impl Fn(u32, u32, u32) -> u32) -> Flow {
        i.only(DPP)?;
        let (a, b, c) = (self.lanes(i, 0), self.lanes(i, 1), self.lanes(i, 2));
        let r = std::array::from_fn(|l| f(a[l], b[l], c[l]));
        self.put(i.dst, self.mask(i), self.defined_all(i, 3), &r);
        Ok(())
    }

    /// Integer D = f(S0 float).
    #[inline(always)]
    pub(crate) fn f1u(&mut self, i: &Inst, f: impl Fn(f32) -> u32) -> Flow {
        i.only(signs(1) | DPP)?;
        let r = self.f32s(i, 0).map(f);
        self.put(i.dst, self.mask(i), self.defined(i, 0), &r);
        Ok(())
    }

    /// Float D = f(S0 integer).
    #[inline(always)]
    pub(crate) fn u1f(&mut self, i: &Inst, f: impl Fn(u32) -> f32) -> Flow {
        i.only(OUT | DPP)?;
        self.u1f_bytes(i, f)
    }

    /// [`Wave::u1f`] where OP_SEL has a meaning for `f`.
    pub(crate) fn u1f_bytes(&mut self, i: &Inst, f: impl Fn(u32) -> f32) -> Flow {
        i.only(sel(2) | OUT | DPP)?;
        let r = self.lanes(i, 0).map(f);
        self.put_f32(i, self.defined(i, 0), r);
        Ok(())
    }

    /// Integer D = f(S0, S1 floats).
    #[inline(always)]
    pub(crate) fn f2u(&mut self, i: &Inst, f: impl Fn(f32, f32) -> u32) -> Flow {
        i.only(signs(2) | DPP)?;
        let (a, b) = (self.f32s(i, 0), self.f32s(i, 1));
        let r = std::array::from_fn(|l| f(a[l], b[l]));
        self.put(i.dst, self.mask(i), self.defined_all(i, 2), &r);
        Ok(())
    }

    /// V_CNDMASK_B32: S1 where the mask has a bit, S0 elsewhere; modifiers as for floats.
    pub(crate) fn cndmask(&mut self, i: &Inst) -> Flow {
        i.only(signs(2) | DPP)?;
        let raw = |w: &Self, n: usize| {
            let x = w.lanes(i, n);
            let clear = if i.abs >> n & 1 == 1 { 0x8000_0000u32 } else { 0 };
            let flip = if i.neg >> n & 1 == 1 { 0x8000_0000u32 } else { 0 };
            x.map(|v| v & !clear ^ flip)
        };
        let select = self.s32(i.src[2]);
        let (a, b) = (raw(self, 0), raw(self, 1));
        let r = std::array::from_fn(|l| if select >> l & 1 == 1 { b[l] } else { a[l] });
        let ok = self.defined(i, 0) & !select | self.defined(i, 1) & select;
        self.put(i.dst, self.mask(i), ok, &r);
        Ok(())
    }

    /// Compare: one bit per lane into the scalar destination, 0 for inactive lanes.
    pub(crate) fn put_mask(&mut self, i: &Inst, n: usize, bits: u32) -> Flow {
        let mask = self.mask(i);
        for k in 0..n {
            self.require_src(i, k, mask, "comparison")?;
        }
        self.set_s(i.sdst, bits & mask);
        Ok(())
    }

    /// Float compare.
    #[inline(always)]
    pub(crate) fn cf(&mut self, i: &Inst, f: impl Fn(f32, f32) -> bool) -> Flow {
        i.only(signs(2) | DPP)?;
        let (a, b) = (self.f32s(i, 0), self.f32s(i, 1));
        let bits = (0..32).fold(0, |m, l| m | u32::from(f(a[l], b[l])) << l);
        self.put_mask(i, 2, bits)
    }

    /// Integer compare.
    #[inline(always)]
    pub(crate) fn cu(&mut self, i: &Inst, f: impl Fn(u32, u32) -> bool) -> Flow {
        i.only(DPP)?;
        let (a, b) = (self.lanes(i, 0), self.lanes(i, 1));
        let bits = (0..32).fold(0, |m, l| m | u32::from(f(a[l], b[l])) << l);
        self.put_mask(i, 2, bits)
    }

    /// Add or subtract with a carry per lane: f gives the sum and the carry out.
    #[inline(always)]
    pub(crate) fn carry(
        &mut self,
        i: &Inst,
        carry_in: bool,
        f: impl Fn(u32, u32, bool) -> (u32, bool),
    ) -> Flow {
        i.only(DPP)?;
        let c = if carry_in { self.s32(i.src[2]) } else { 0 };
        let (a, b) = (self.lanes(i, 0), self.lanes(i, 1));
        let mut r = [0; 32];
        let mut out = 0;
        for l in 0..32 {
            let (x, o) = f(a[l], b[l], c >> l & 1 == 1);
            r[l] = x;
            out |= u32::from(o) << l;
        }
        let mask = self.mask(i);
        self.put(i.dst, mask, self.defined_all(i, 2), &r);
        self.set_s(i.sdst, out & mask);
        Ok(())
    }
}

/// V_DIV_SCALE_F32.
pub(crate) fn div_scale(w: &mut Wave, i: &Inst, _: &mut Group<'_>) -> Flow {
    i.only(neg(3))?;
    let (a, b, c) = (w.f32s(i, 0), w.f32s(i, 1), w.f32s(i, 2));
    let mut r = [0.0; 32];
    let mut out = 0;
    for l in 0..32 {
        let (x, scaled) = crate::numeric::div_scale(a[l], b[l], c[l]);
        r[l] = x;
        out |= u32::from(scaled) << l;
    }
    w.put_f32(i, w.defined_all(i, 3), r);
    w.set_s(i.sdst, out & w.exec());
    Ok(())
}

/// V_DIV_FMAS_F32: an fma whose result is scaled where VCC says so: up after a scaled denominator, which
/// left the quotient S2 large, down after a scaled numerator.
pub(crate) fn div_fmas(w: &mut Wave, i: &Inst, _: &mut Group<'_>) -> Flow {
    i.only(signs(3) | OUT)?;
    let (a, b, quotient) = (w.f32s(i, 0), w.f32s(i, 1), w.f32s(i, 2));
    let mut r = fma32(&a, &b, &quotient);
    let vcc = w.vcc();
    for l in (0..32).filter(|l| vcc >> l & 1 == 1) {
        let up = crate::numeric::exponent(quotient[l]) > 127;
        // The scale comes before the one rounding, or subnormal quotients would round twice.
        let sum = add_odd(f64::from(a[l]) * f64::from(b[l]), quotient[l].into());
        r[l] = (sum * exp2i(if up { 64 } else { -64 })) as f32;
    }
    w.put_f32(i, w.defined_all(i, 3), r);
    Ok(())
}

/// V_SWAP_B32.
pub(crate) fn swap(w: &mut Wave, i: &Inst, _: &mut Group<'_>) -> Flow {
    i.only(0)?;
    let Src::V(s) = i.src[0] else {
        return stop(What::NotEmulated("v_swap_b32 of a scalar".to_owned()));
    };
    let (a, b) = (w.v[usize::from(s)], w.v[usize::from(i.dst)]);
    let (oka, okb) = (w.init[usize::from(s)], w.init[usize::from(i.dst)]);
    let mask = w.exec();
    w.put(i.dst, mask, oka, &a);
    w.put(s, mask, okb, &b);
    Ok(())
}

/// Both halves of a VOPD pair read their sources before either writes.
pub(crate) fn pair(w: &mut Wave, x: &Inst, g: &mut Group<'_>) -> Flow {
    let Some(y) = &x.dual else { return Ok(()) };
    let r = usize::from(x.dst);
    let before = (w.v[r], w.init[r]);
    (x.row.exec)(w, x, g)?;
    let after = (w.v[r], w.init[r]);
    (w.v[r], w.init[r]) = before;
    (y.row.exec)(w, y, g)?;
    (w.v[r], w.init[r]) = after;
    Ok(())
}
