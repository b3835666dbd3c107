//! Shapes of 64-bit vector instructions: register pairs.

use super::{
    Flow,
    wave::{Wave, Wide},
};
use crate::{
    inst::{
        Inst, Src,
        mods::{OUT, signs},
    },
    numeric::flush64,
};

impl Wave {
    /// 64-bit source n of each lane.
    pub(crate) fn pairs(&self, i: &Inst, n: usize, wide: Wide) -> [u64; 32] {
        match i.src[n] {
            Src::V(r) => {
                let (lo, hi) = (&self.v[usize::from(r)], &self.v[usize::from(r.wrapping_add(1))]);
                std::array::from_fn(|l| u64::from(lo[l]) | u64::from(hi[l]) << 32)
            }
            s => [self.s64(s, wide); 32],
        }
    }

    /// f64 source n with its modifiers.
    pub(crate) fn f64s(&self, i: &Inst, n: usize) -> [f64; 32] {
        let (abs, neg) = (i.abs >> n & 1 == 1, i.neg >> n & 1 == 1);
        self.pairs(i, n, Wide::Float).map(|b| {
            let x = f64::from_bits(b);
            let x = if abs { x.abs() } else { x };
            let x = if neg { -x } else { x };
            if self.flushes_in() { flush64(x) } else { x }
        })
    }

    /// Output modifiers, flushing, and the write of f64 results.
    pub(crate) fn put_f64(&mut self, i: &Inst, ok: u32, r: &[f64; 32]) {
        let (flushes, nan) = (self.flushes_out(), self.clamps_nan());
        let factor = self.factor(i, flushes).map(f64::from);
        let bits = r.map(|x| {
            let x = if flushes { flush64(factor.map_or(x, |k| x * k)) } else { x };
            let x = if factor.is_some() { x + 0.0 } else { x };
            let x = match i.clamp {
                true if x > 0.0 => x.min(1.0),
                true if !x.is_nan() || nan => 0.0,
                _ => x,
            };
            x.to_bits()
        });
        self.put64(i, ok, &bits);
    }

    /// Lanes where the low and the high half of source n are defined.
    pub(crate) fn defined_halves(&self, i: &Inst, n: usize) -> [u32; 2] {
        match i.src[n] {
            Src::V(r) => [self.init[usize::from(r)], self.init[usize::from(r.wrapping_add(1))]],
            _ => [u32::MAX; 2],
        }
    }

    /// Lanes where both halves of source n are defined.
    pub(crate) fn defined64(&self, i: &Inst, n: usize) -> u32 {
        let [lo, hi] = self.defined_halves(i, n);
        lo & hi
    }

    /// Writes a register pair whose halves are both defined in the lanes `ok`.
    pub(crate) fn put64(&mut self, i: &Inst, ok: u32, r: &[u64; 32]) {
        self.put_halves(i, [ok, ok], r);
    }

    /// Writes a register pair.
    fn put_halves(&mut self, i: &Inst, ok: [u32; 2], r: &[u64; 32]) {
        let mask = self.mask(i);
        self.put(i.dst, mask, ok[0], &r.map(|x| x as u32));
        self.put(i.dst.wrapping_add(1), mask, ok[1], &r.map(|x| (x >> 32) as u32));
    }

    /// f64 D = f(first `n` sources).
    pub(crate) fn d(&mut self, i: &Inst, n: usize, f: impl Fn([f64; 3]) -> f64) -> Flow {
        i.only(signs(n) | OUT)?;
        let s: [[f64; 32]; 3] = std::array::from_fn(|k| if k < n { self.f64s(i, k) } else { [0.0; 32] });
        let r = std::array::from_fn(|l| f([s[0][l], s[1][l], s[2][l]]));
        let ok = (0..n).fold(u32::MAX, |m, k| m & self.defined64(i, k));
        self.put_f64(i, ok, &r);
        Ok(())
    }

    /// f64 D = f(S0 of 32 bits).
    pub(crate) fn d_from32(&mut self, i: &Inst, f: impl Fn(u32) -> f64) -> Flow {
        i.only(OUT)?;
        let r = self.lanes(i, 0).map(f);
        self.put_f64(i, self.defined(i, 0), &r);
        Ok(())
    }

    /// V_CVT_F64_F32.
    pub(crate) fn d_from_f32(&mut self, i: &Inst) -> Flow {
        i.only(signs(1) | OUT)?;
        let r = self.f32s(i, 0).map(f64::from);
        self.put_f64(i, self.defined(i, 0), &r);
        Ok(())
    }

    /// V_CVT_F32_F64.
    pub(crate) fn d_to_f32(&mut self, i: &Inst) -> Flow {
        i.only(signs(1) | OUT)?;
        let r = self.f64s(i, 0).map(|x| x as f32);
        self.put_f32(i, self.defined64(i, 0), r);
        Ok(())
    }

    /// V_LDEXP_F64: the exponent is a 32-bit integer.
    pub(crate) fn d_ldexp(&mut self, i: &Inst, f: impl Fn(f64, i32) -> f64) -> Flow {
        i.only(signs(1) | OUT)?;
        let (x, e) = (self.f64s(i, 0), self.lanes(i, 1));
        let r = std::array::from_fn(|l| f(x[l], e[l] as i32));
        self.put_f64(i, self.defined64(i, 0) & self.defined(i, 1), &r);
        Ok(())
    }

    /// 32-bit D = f(S0 f64).
    pub(crate) fn d_to32(&mut self, i: &Inst, f: impl Fn(f64) -> u32) -> Flow {
        i.only(signs(1))?;
        let r = self.f64s(i, 0).map(f);
        self.put(i.dst, self.mask(i), self.defined64(i, 0), &r);
        Ok(())
    }

    /// 64-bit D = f(S0 32 bits, S1 64 bits): the reversed shifts.
    pub(crate) fn shift64(&mut self, i: &Inst, wide: Wide, f: impl Fn(u32, u64) -> u64) -> Flow {
        i.only(0)?;
        let (a, b) = (self.lanes(i, 0), self.pairs(i, 1, wide));
        let r = std::array::from_fn(|l| f(a[l], b[l]));
        // Shifting the undefined bits shows which half of the result they reach.
        let [lo, hi] = self.defined_halves(i, 1);
        let (mut ok_lo, mut ok_hi) = (0, 0);
        for l in 0..32 {
            let bad = |ok: u32| if ok >> l & 1 == 1 { 0 } else { u64::from(u32::MAX) };
            let reach = f(a[l], bad(lo) | bad(hi) << 32);
            ok_lo |= u32::from(reach as u32 == 0) << l;
            ok_hi |= u32::from(reach >> 32 == 0) << l;
        }
        let amount = self.defined(i, 0);
        self.put_halves(i, [ok_lo & amount, ok_hi & amount], &r);
        Ok(())
    }

    /// 64-bit D = f(S0, S1, S2 64 bits) with a carry bit per lane.
    pub(crate) fn mad64(&mut self, i: &Inst, wide: Wide, f: impl Fn(u32, u32, u64) -> (u64, bool)) -> Flow {
        i.only(0)?;
        let (a, b, c) = (self.lanes(i, 0), self.lanes(i, 1), self.pairs(i, 2, wide));
        let mut out = 0;
        let r = std::array::from_fn(|l| {
            let (x, carry) = f(a[l], b[l], c[l]);
            out |= u32::from(carry) << l;
            x
        });
        // The low half does not depend on the addend's high half, which compilers leave undefined.
        let [lo, hi] = self.defined_halves(i, 2);
        let ok = self.defined_all(i, 2) & lo;
        let mask = self.mask(i);
        self.put_halves(i, [ok, ok & hi], &r);
        self.set_s(i.sdst, out & mask);
        Ok(())
    }

    /// Compare of 64-bit integers.
    pub(crate) fn cq(&mut self, i: &Inst, wide: Wide, f: impl Fn(u64, u64) -> bool) -> Flow {
        i.only(0)?;
        let (a, b) = (self.pairs(i, 0, wide), self.pairs(i, 1, wide));
        let bits = (0..32).fold(0, |m, l| m | u32::from(f(a[l], b[l])) << l);
        self.put_mask(i, 2, bits)
    }

    /// Compare of f64.
    pub(crate) fn cd(&mut self, i: &Inst, f: impl Fn(f64, f64) -> bool) -> Flow {
        i.only(signs(2))?;
        let (a, b) = (self.f64s(i, 0), self.f64s(i, 1));
        let bits = (0..32).fold(0, |m, l| m | u32::from(f(a[l], b[l])) << l);
        self.put_mask(i, 2, bits)
    }
}
