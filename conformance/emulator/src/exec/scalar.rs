//! Shapes of scalar instructions.

use super::{
    Flow,
    group::Group,
    stop,
    wave::{DX10_CLAMP, IEEE, State, Wave, Wide, inline16},
};
use crate::{
    arch::Gen,
    decode::EXEC,
    fault::What,
    inst::{Inst, Src},
    numeric::{f2h, flush, flush16, h2f},
};

impl Wave {
    /// D = f(S0), SCC untouched.
    #[inline(always)]
    pub(crate) fn s1(&mut self, i: &Inst, f: impl Fn(u32) -> u32) -> Flow {
        let r = f(self.s32(i.src[0]));
        self.set_s(i.dst, r);
        Ok(())
    }

    /// D = f(S0), SCC = D != 0.
    #[inline(always)]
    pub(crate) fn s1c(&mut self, i: &Inst, f: impl Fn(u32) -> u32) -> Flow {
        let r = f(self.s32(i.src[0]));
        self.scc = r != 0;
        self.set_s(i.dst, r);
        Ok(())
    }

    /// D = f(S0, S1), SCC untouched.
    #[inline(always)]
    pub(crate) fn s2(&mut self, i: &Inst, f: impl Fn(u32, u32) -> u32) -> Flow {
        let r = f(self.s32(i.src[0]), self.s32(i.src[1]));
        self.set_s(i.dst, r);
        Ok(())
    }

    /// D = f(S0, S1), SCC = D != 0.
    #[inline(always)]
    pub(crate) fn s2c(&mut self, i: &Inst, f: impl Fn(u32, u32) -> u32) -> Flow {
        self.s2x(i, |a, b| {
            let r = f(a, b);
            (r, r != 0)
        })
    }

    /// (D, SCC) = f(S0, S1).
    #[inline(always)]
    pub(crate) fn s2x(&mut self, i: &Inst, f: impl Fn(u32, u32) -> (u32, bool)) -> Flow {
        let (r, scc) = f(self.s32(i.src[0]), self.s32(i.src[1]));
        self.scc = scc;
        self.set_s(i.dst, r);
        Ok(())
    }

    /// (D, SCC) = f(S0, S1, SCC).
    #[inline(always)]
    pub(crate) fn s2carry(&mut self, i: &Inst, f: impl Fn(u32, u32, bool) -> (u32, bool)) -> Flow {
        let carry = self.scc;
        self.s2x(i, |a, b| f(a, b, carry))
    }

    /// D64 = f(S0 64), SCC untouched.
    pub(crate) fn q1(&mut self, i: &Inst, f: impl Fn(u64) -> u64) -> Flow {
        let r = f(self.s64(i.src[0], Wide::Bits));
        self.set_s64(i.dst, r);
        Ok(())
    }

    /// D64 = f(S0, S1), 64 bits each; `scc` sets SCC = D != 0.
    pub(crate) fn q2(&mut self, i: &Inst, scc: bool, f: impl Fn(u64, u64) -> u64) -> Flow {
        let r = f(self.s64(i.src[0], Wide::Bits), self.s64(i.src[1], Wide::Bits));
        if scc {
            self.scc = r != 0;
        }
        self.set_s64(i.dst, r);
        Ok(())
    }

    /// D64 = f(S0 64, S1 32), SCC = D != 0.
    pub(crate) fn q_shift(&mut self, i: &Inst, wide: Wide, f: impl Fn(u64, u32) -> u64) -> Flow {
        let r = f(self.s64(i.src[0], wide), self.s32(i.src[1]));
        self.scc = r != 0;
        self.set_s64(i.dst, r);
        Ok(())
    }

    /// SCC = f(S0, S1).
    #[inline(always)]
    pub(crate) fn sc(&mut self, i: &Inst, f: impl Fn(u32, u32) -> bool) -> Flow {
        self.scc = f(self.s32(i.src[0]), self.s32(i.src[1]));
        Ok(())
    }

    /// SCC = f(D, SIMM16 as sign-extended and as zero-extended).
    pub(crate) fn sck(&mut self, i: &Inst, f: impl Fn(u32, i32, u32) -> bool) -> Flow {
        self.scc = f(self.scalar(i.dst), i.imm as i16 as i32, i.imm);
        Ok(())
    }

    /// D32 = f(S0) of floats; scalar floats keep the subnormals that the mode keeps.
    pub(crate) fn sf1(&mut self, i: &Inst, f: impl Fn(f32) -> f32) -> Flow {
        i.only(0)?;
        let r = f(self.sf(self.s32(i.src[0])));
        self.put_sf(i, r)
    }

    /// D32 = f(S0, S1) of floats.
    pub(crate) fn sf2(&mut self, i: &Inst, f: impl Fn(f32, f32) -> f32) -> Flow {
        let r = f(self.sf(self.s32(i.src[0])), self.sf(self.s32(i.src[1])));
        self.put_sf(i, r)
    }

    /// D32 = fma(S0, S1, S2) of float bits.
    pub(crate) fn sfma(&mut self, i: &Inst, [a, b, c]: [u32; 3]) -> Flow {
        let r = self.sf(a).mul_add(self.sf(b), self.sf(c));
        self.put_sf(i, r)
    }

    /// An f32 operand from its bits.
    pub(crate) fn sf(&self, bits: u32) -> f32 {
        let x = f32::from_bits(bits);
        if self.flushes_in32() { flush(x) } else { x }
    }

    /// Writes an f32 result.
    pub(crate) fn put_sf(&mut self, i: &Inst, r: f32) -> Flow {
        let r = if self.flushes_out32() { flush(r) } else { r };
        self.set_s(i.dst, r.to_bits());
        Ok(())
    }

    /// SCC = f(S0, S1) of floats.
    pub(crate) fn sfc(&mut self, i: &Inst, f: impl Fn(f32, f32) -> bool) -> Flow {
        self.scc = f(self.sf(self.s32(i.src[0])), self.sf(self.s32(i.src[1])));
        Ok(())
    }

    /// The bits of an f16 operand: inline constants are half constants, integers are sign-extended.
    pub(crate) fn sh_bits(&self, i: &Inst, n: usize) -> u32 {
        match i.src[n] {
            Src::Inline(c @ 240..) => inline16(c).into(),
            s => self.s32(s),
        }
    }

    /// An f16 operand as f32.
    pub(crate) fn sh(&self, i: &Inst, n: usize) -> f32 {
        self.sh_of(self.sh_bits(i, n) as u16)
    }

    /// An f16 operand from its bits.
    pub(crate) fn sh_of(&self, bits: u16) -> f32 {
        if self.flushes_in() { flush16(h2f(bits)) } else { h2f(bits) }
    }

    /// Writes an f16 result; the high half becomes 0.
    pub(crate) fn put_sh(&mut self, i: &Inst, r: f32) -> Flow {
        let r = h2f(f2h(r));
        let r = if self.flushes_out() { flush16(r) } else { r };
        self.set_s(i.dst, f2h(r).into());
        Ok(())
    }

    /// Half D = f(S0).
    pub(crate) fn sh1(&mut self, i: &Inst, f: impl Fn(f32) -> f32) -> Flow {
        i.only(0)?;
        let r = f(self.sh(i, 0));
        self.put_sh(i, r)
    }

    /// Half D = f(S0, S1).
    pub(crate) fn sh2(&mut self, i: &Inst, f: impl Fn(f32, f32) -> f32) -> Flow {
        let r = f(self.sh(i, 0), self.sh(i, 1));
        self.put_sh(i, r)
    }

    /// SCC = f(S0, S1) of halves.
    pub(crate) fn shc(&mut self, i: &Inst, f: impl Fn(f32, f32) -> bool) -> Flow {
        self.scc = f(self.sh(i, 0), self.sh(i, 1));
        Ok(())
    }

    /// D = old EXEC, EXEC = f(S0, EXEC), SCC = EXEC != 0.
    pub(crate) fn saveexec(&mut self, i: &Inst, f: impl Fn(u32, u32) -> u32) -> Flow {
        let (s, old) = (self.s32(i.src[0]), self.exec());
        self.set_s(i.dst, old);
        let new = f(s, old);
        self.set_s(EXEC, new);
        self.scc = new != 0;
        Ok(())
    }

    /// EXEC = D = f(S0, EXEC), SCC = EXEC != 0.
    pub(crate) fn wrexec(&mut self, i: &Inst, f: impl Fn(u32, u32) -> u32) -> Flow {
        let new = f(self.s32(i.src[0]), self.exec());
        self.set_s(EXEC, new);
        self.set_s(i.dst, new);
        self.scc = new != 0;
        Ok(())
    }

    /// Relative jump when `taken`.
    #[inline(always)]
    pub(crate) fn branch(&mut self, i: &Inst, taken: bool) -> Flow {
        if taken {
            self.next = self.next.wrapping_add_signed(i.imm as i16 as i32);
        }
        Ok(())
    }

    /// Address of the next instruction.
    pub(crate) fn next_address(&self, g: &Group<'_>) -> u64 {
        g.text + u64::from(self.next) * 4
    }

    /// Jump to an absolute address.
    pub(crate) fn jump(&mut self, g: &Group<'_>, address: u64) -> Flow {
        let offset = address.wrapping_sub(g.text);
        if !offset.is_multiple_of(4) || offset > u64::from(u32::MAX) {
            return stop(What::Jump(address));
        }
        self.next = (offset / 4) as u32;
        Ok(())
    }
}

/// S_GETREG: the mode, and the clocks; other registers read as 0.
pub(crate) fn getreg(w: &mut Wave, i: &Inst, g: &mut Group<'_>) -> Flow {
    let (id, offset, size) = (i.imm & 63, i.imm >> 6 & 31, (i.imm >> 11 & 31) + 1);
    let value = match id {
        1 if g.generation == Gen::Gfx12 => w.mode & !(DX10_CLAMP | IEEE),
        1 => w.mode,
        29 => g.clock as u32,
        30 => (g.clock >> 32) as u32,
        20 | 21 => return stop(What::NotEmulated("reading the scratch base".to_owned())),
        _ => 0,
    };
    let mask = (u64::MAX >> (64 - size)) as u32;
    w.set_s(i.dst, value >> offset & mask);
    Ok(())
}

/// S_SETREG of the mode register; rounding other than nearest-even is refused.
pub(crate) fn setreg(w: &mut Wave, i: &Inst, generation: Gen, value: u32) -> Flow {
    let (id, offset, size) = (i.imm & 63, i.imm >> 6 & 31, (i.imm >> 11 & 31) + 1);
    if id != 1 {
        return stop(What::NotEmulated(format!("{} of hardware register {id}", i.row.name)));
    }
    let mut mask = ((u64::MAX >> (64 - size)) as u32) << offset;
    if generation == Gen::Gfx12 {
        mask &= !(DX10_CLAMP | IEEE);
    }
    set_mode(w, w.mode & !mask | value << offset & mask)
}

/// Sets MODE.
pub(crate) fn set_mode(w: &mut Wave, mode: u32) -> Flow {
    if mode & 0xf != 0 {
        return stop(What::NotEmulated("rounding other than to nearest even".to_owned()));
    }
    w.mode = mode;
    Ok(())
}

/// Arrives at the workgroup's barrier.
pub(crate) fn signal(w: &mut Wave, g: &mut Group<'_>) -> Flow {
    if w.signals > w.waits {
        return stop(What::BarrierTwice);
    }
    w.signals += 1;
    g.arrived += 1;
    if g.arrived == g.waves {
        g.arrived = 0;
        g.completed += 1;
    }
    Ok(())
}

/// Waits for the phase that this wave signalled: the wave stays here until [`resume`] lets it go on.
pub(crate) fn wait(w: &mut Wave, g: &Group<'_>) -> Flow {
    w.state = State::Barrier;
    resume(w, g);
    Ok(())
}

/// Lets a waiting wave go on once its phase is complete.
pub(crate) fn resume(w: &mut Wave, g: &Group<'_>) {
    if w.state == State::Barrier && g.completed > w.waits {
        w.waits += 1;
        w.state = State::Running;
    }
}

/// gfx11's S_BARRIER: signal once, then wait.
pub(crate) fn barrier(w: &mut Wave, _: &Inst, g: &mut Group<'_>) -> Flow {
    if w.signals == w.waits {
        signal(w, g)?;
    }
    wait(w, g)
}
