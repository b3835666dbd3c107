//! A wave of 32 lanes: its registers, and how operands are read and results written.

use std::cell::Cell;

use super::{Flow, group::Who, stop_lane};
use crate::{
    decode::{EXEC, NULL, VCC},
    fault::What,
    inst::{Inst, Src},
};

/// A value for each lane.
pub(crate) type Lanes = [u32; 32];

/// High half of the LDS aperture in flat addresses.
pub(crate) const SHARED_APERTURE: u32 = 0x0001_0000;
/// High half of the scratch aperture in flat addresses.
pub(crate) const PRIVATE_APERTURE: u32 = 0x0002_0000;

/// No scalar register was read undefined.
const DEFINED: u8 = 0xff;

/// What registers hold before they are written: a NaN that stands out.
const POISON: u32 = 0x7fba_d0ba;

/// MODE bit: clamping a NaN gives 0.
pub(crate) const DX10_CLAMP: u32 = 0x100;
/// MODE bit: signalling NaNs become quiet, output modifiers are ignored.
pub(crate) const IEEE: u32 = 0x200;

/// Why a wave is not running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Barrier,
    Ended,
}

/// How a 32-bit literal becomes a 64-bit operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wide {
    /// Zero-extended.
    Bits,
    /// Sign-extended.
    Signed,
    /// The high half of an f64.
    Float,
}

/// One wave.
pub(crate) struct Wave {
    pub(crate) v: Box<[Lanes; 256]>,
    /// Bit l of entry r: lane l of vector register r holds a defined value.
    pub(crate) init: Box<[u32; 256]>,
    /// SGPRs, VCC (106), TTMPs (108..), NULL (124), M0 (125), EXEC (126) by operand code.
    s: [u32; 128],
    /// Which of them hold a defined value.
    s_init: [bool; 128],
    /// The last one that was read without, [`DEFINED`] when there was none.
    s_undefined: Cell<u8>,
    pub(crate) scc: bool,
    /// Index of the current and of the next instruction's first dword in the code.
    pub(crate) pc: u32,
    pub(crate) next: u32,
    pub(crate) id: u8,
    pub(crate) state: State,
    pub(crate) signals: u32,
    pub(crate) waits: u32,
    /// MODE register: bits 3:0 round; input and output denormals kept, 4 and 5 of f32, 6 and 7 of f16 and f64;
    /// 8 DX10_CLAMP, 9 IEEE. gfx12 has no bits 8 and 9: they are 1 and 0 there, which is what it does.
    pub(crate) mode: u32,
    /// Private bytes, lane after lane.
    pub(crate) scratch: Vec<u8>,
    /// Private bytes of one lane.
    pub(crate) scratch_lane: u32,
    pub(crate) executed: u64,
}

impl Wave {
    pub(crate) fn new(id: u8) -> Self {
        Wave {
            v: vec![[POISON; 32]; 256].into_boxed_slice().try_into().expect("256 registers"),
            init: vec![0; 256].into_boxed_slice().try_into().expect("256 registers"),
            s: [POISON; 128],
            s_init: [false; 128],
            s_undefined: Cell::new(DEFINED),
            scc: false,
            pc: 0,
            next: 0,
            id,
            state: State::Running,
            signals: 0,
            waits: 0,
            mode: 0,
            scratch: Vec::new(),
            scratch_lane: 0,
            executed: 0,
        }
    }

    /// Back to poisoned registers at the start of a workgroup.
    pub(crate) fn reset(&mut self, entry: u32, mode: u32, scalars_defined: bool) {
        self.v.fill([POISON; 32]);
        self.init.fill(0);
        self.s = [POISON; 128];
        self.s_init = [scalars_defined; 128];
        (self.s[usize::from(NULL)], self.s_init[usize::from(NULL)]) = (0, true);
        self.s_undefined.set(DEFINED);
        (self.scc, self.pc, self.next, self.state) = (false, entry, entry, State::Running);
        (self.signals, self.waits, self.mode, self.executed) = (0, 0, mode, 0);
        self.scratch.fill(0xff);
    }

    #[inline(always)]
    pub(crate) fn exec(&self) -> u32 {
        self.s[usize::from(EXEC)]
    }

    #[inline(always)]
    pub(crate) fn vcc(&self) -> u32 {
        self.scalar(VCC)
    }

    /// A scalar register by its operand code; an undefined one is noted.
    #[inline(always)]
    pub(crate) fn scalar(&self, code: u8) -> u32 {
        let n = usize::from(code & 127);
        if !self.s_init[n] {
            self.s_undefined.set(code & 127);
        }
        self.s[n]
    }

    /// A scalar register that was read undefined since the last call.
    #[inline(always)]
    pub(crate) fn undefined(&self) -> Option<u8> {
        let code = self.s_undefined.get();
        if code == DEFINED {
            return None;
        }
        self.s_undefined.set(DEFINED);
        Some(code)
    }

    /// Copies `n` scalars, defined or not: compilers save registers that nobody wrote.
    pub(crate) fn move_scalars(&mut self, i: &Inst, n: u8) -> Flow {
        let Src::S(from) = i.src[0] else {
            if n == 1 {
                self.set_s(i.dst, self.s32(i.src[0]));
            } else {
                self.set_s64(i.dst, self.s64(i.src[0], Wide::Bits));
            }
            return Ok(());
        };
        let copy: [(u32, bool); 2] = std::array::from_fn(|k| {
            let c = usize::from(from + if from == NULL { 0 } else { k as u8 }) & 127;
            (self.s[c], self.s_init[c])
        });
        for (k, (value, defined)) in copy.into_iter().enumerate().take(n.into()) {
            if i.dst != NULL {
                self.set_s(i.dst + k as u8, value);
                self.s_init[usize::from(i.dst) + k] = defined;
            }
        }
        Ok(())
    }

    /// A scalar for V_WRITELANE and its like, and whether it is defined.
    pub(crate) fn scalar_as_is(&self, src: Src) -> (u32, bool) {
        match src {
            Src::S(c) => (self.s[usize::from(c)], self.s_init[usize::from(c)]),
            s => (self.s32(s), true),
        }
    }

    /// Writes a scalar register that may be undefined.
    pub(crate) fn set_scalar_as_is(&mut self, code: u8, v: u32, defined: bool) {
        if code != NULL {
            self.set_s(code, v);
            self.s_init[usize::from(code & 127)] = defined;
        }
    }

    pub(crate) fn who(&self) -> Who {
        Who { wave: self.id, signals: self.signals, waits: self.waits }
    }

    /// Whether f32 operands lose their subnormals.
    #[inline(always)]
    pub(crate) fn flushes_in32(&self) -> bool {
        self.mode & 0x10 == 0
    }

    /// Whether f32 results lose their subnormals.
    #[inline(always)]
    pub(crate) fn flushes_out32(&self) -> bool {
        self.mode & 0x20 == 0
    }

    /// Whether f16 and f64 operands lose their subnormals.
    #[inline(always)]
    pub(crate) fn flushes_in(&self) -> bool {
        self.mode & 0x40 == 0
    }

    /// Whether f16 and f64 results lose their subnormals.
    #[inline(always)]
    pub(crate) fn flushes_out(&self) -> bool {
        self.mode & 0x80 == 0
    }

    /// Whether V_MIN and V_MAX of gfx11 turn a signalling NaN into a quiet one.
    pub(crate) fn ieee(&self) -> bool {
        self.mode & IEEE != 0
    }

    /// Clamping gives 0 for a NaN.
    pub(crate) fn clamps_nan(&self) -> bool {
        self.mode & DX10_CLAMP != 0
    }

    /// The factor of an output modifier: the hardware ignores it in IEEE mode and where `kept` output
    /// denormals are on.
    pub(crate) fn factor(&self, i: &Inst, flushes: bool) -> Option<f32> {
        let applied = i.omod != 0 && flushes && !self.ieee();
        applied.then(|| [1.0, 2.0, 4.0, 0.5][usize::from(i.omod)])
    }

    #[inline(always)]
    pub(crate) fn set_s(&mut self, code: u8, v: u32) {
        if code != NULL {
            self.s[usize::from(code & 127)] = v;
            self.s_init[usize::from(code & 127)] = true;
        }
    }

    pub(crate) fn set_s64(&mut self, code: u8, v: u64) {
        if code != NULL {
            self.set_s(code, v as u32);
            self.set_s(code + 1, (v >> 32) as u32);
        }
    }

    pub(crate) fn s64_at(&self, code: u8) -> u64 {
        if code == NULL {
            return 0;
        }
        let word = |c: u8| u64::from(self.scalar(c));
        word(code) | word(code + 1) << 32
    }

    /// A scalar operand of 32 bits.
    #[inline(always)]
    pub(crate) fn s32(&self, src: Src) -> u32 {
        match src {
            Src::S(r) => self.scalar(r),
            Src::Inline(c) => inline32(c),
            Src::Lit(x) => x,
            Src::Special(c) => self.special(c) as u32,
            Src::V(_) | Src::None => 0,
        }
    }

    /// A scalar operand of 64 bits.
    pub(crate) fn s64(&self, src: Src, wide: Wide) -> u64 {
        match src {
            Src::S(r) => self.s64_at(r),
            Src::Inline(c) if c >= 240 => inline64(c),
            Src::Inline(c) => inline32(c) as i32 as u64,
            Src::Lit(x) => match wide {
                Wide::Float => u64::from(x) << 32,
                Wide::Signed => x as i32 as u64,
                Wide::Bits => x.into(),
            },
            Src::Special(c) => self.special(c),
            Src::V(_) | Src::None => 0,
        }
    }

    fn special(&self, code: u8) -> u64 {
        match code {
            235 => u64::from(SHARED_APERTURE) << 32,
            236 => u64::from(SHARED_APERTURE) << 32 | 0xffff_ffff,
            237 => u64::from(PRIVATE_APERTURE) << 32,
            238 => u64::from(PRIVATE_APERTURE) << 32 | 0xffff_ffff,
            251 => u64::from(self.vcc() == 0),
            252 => u64::from(self.exec() == 0),
            253 => u64::from(self.scc),
            _ => 0,
        }
    }

    /// A source for every lane, DPP applied, without modifiers.
    #[inline(always)]
    pub(crate) fn lanes(&self, i: &Inst, n: usize) -> Lanes {
        match i.src[n] {
            Src::V(r) => {
                let v = &self.v[usize::from(r)];
                match &i.dpp {
                    Some(d) if n == 0 => self.permuted(d, v),
                    _ => *v,
                }
            }
            s => [self.s32(s); 32],
        }
    }

    #[cold]
    fn permuted(&self, d: &crate::inst::Dpp, v: &Lanes) -> Lanes {
        let missing = self.missing(d);
        std::array::from_fn(|l| if missing >> l & 1 == 1 { 0 } else { v[usize::from(d.sel[l])] })
    }

    /// Lanes whose DPP source lies outside or is inactive.
    fn missing(&self, d: &crate::inst::Dpp) -> u32 {
        if d.fetch_inactive {
            return d.outside;
        }
        let exec = self.exec();
        (0..32).fold(d.outside, |m, l| m | (!(exec >> d.sel[l]) & 1) << l)
    }

    /// Lanes that an instruction writes: EXEC and, with DPP, those that have a source.
    #[inline(always)]
    pub(crate) fn mask(&self, i: &Inst) -> u32 {
        match &i.dpp {
            None => self.exec(),
            Some(d) => {
                let without = if d.zero { 0 } else { self.missing(d) };
                self.exec() & d.write & !without
            }
        }
    }

    /// Lanes where source n is defined; scalar sources always are.
    #[inline(always)]
    pub(crate) fn defined(&self, i: &Inst, n: usize) -> u32 {
        match i.src[n] {
            Src::V(r) => {
                let init = self.init[usize::from(r)];
                match &i.dpp {
                    Some(d) if n == 0 => {
                        let missing = self.missing(d);
                        (0..32).fold(0, |m, l| m | (init >> d.sel[l] & 1) << l) | missing
                    }
                    _ => init,
                }
            }
            _ => u32::MAX,
        }
    }

    /// Lanes where the first `n` sources are defined.
    #[inline(always)]
    pub(crate) fn defined_all(&self, i: &Inst, n: usize) -> u32 {
        (0..n).fold(u32::MAX, |m, k| m & self.defined(i, k))
    }

    /// Writes register `r` where `mask` says; `ok` are the lanes whose value is defined.
    #[inline(always)]
    pub(crate) fn put(&mut self, r: u8, mask: u32, ok: u32, values: &Lanes) {
        let d = &mut self.v[usize::from(r)];
        if mask == u32::MAX {
            *d = *values;
        } else {
            for l in 0..32 {
                let m = 0u32.wrapping_sub(mask >> l & 1);
                d[l] = d[l] & !m | values[l] & m;
            }
        }
        let init = &mut self.init[usize::from(r)];
        *init = *init & !mask | ok & mask;
    }

    /// Writes the low or high half of register `r` and keeps the other.
    pub(crate) fn put16(&mut self, r: u8, high: bool, mask: u32, ok: u32, values: &[u16; 32]) {
        let d = &mut self.v[usize::from(r)];
        for l in 0..32 {
            if mask >> l & 1 == 1 {
                let x = u32::from(values[l]);
                d[l] = if high { d[l] & 0xffff | x << 16 } else { d[l] & !0xffff | x };
            }
        }
        // A half written into an undefined register counts as defined: the other half is not tracked.
        let init = &mut self.init[usize::from(r)];
        *init = *init & !mask | ok & mask;
    }

    /// Stops when an active lane's source is undefined.
    #[inline(always)]
    pub(crate) fn require(&self, r: u8, mask: u32, used_as: &'static str) -> Flow {
        let bad = mask & !self.init[usize::from(r)];
        if bad != 0 {
            let what = What::VgprUninitialised { register: r.into(), used_as };
            return stop_lane(bad.trailing_zeros() as usize, what);
        }
        Ok(())
    }

    /// Stops when a source that decides something (a comparison, a lane read) is undefined.
    pub(crate) fn require_src(&self, i: &Inst, n: usize, mask: u32, used_as: &'static str) -> Flow {
        let bad = mask & !self.defined(i, n);
        if bad != 0
            && let Src::V(r) = i.src[n]
        {
            let what = What::VgprUninitialised { register: r.into(), used_as };
            return stop_lane(bad.trailing_zeros() as usize, what);
        }
        Ok(())
    }
}

/// Inline constant as a 32-bit operand.
pub(crate) fn inline32(code: u8) -> u32 {
    match code {
        128..=192 => u32::from(code) - 128,
        193..=208 => (192 - i32::from(code)) as u32,
        240..=247 => [0.5f32, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0][usize::from(code - 240)].to_bits(),
        248 => 0x3e22_f983,
        _ => 0,
    }
}

/// Inline constant as a 16-bit float operand.
pub(crate) fn inline16(code: u8) -> u16 {
    match code {
        240..=247 => {
            [0x3800, 0xb800, 0x3c00, 0xbc00, 0x4000, 0xc000, 0x4400, 0xc400][usize::from(code - 240)]
        }
        248 => 0x3118,
        _ => inline32(code) as u16,
    }
}

/// Inline float constant as a 64-bit operand.
fn inline64(code: u8) -> u64 {
    match code {
        248 => 0x3fc4_5f30_6dc9_c882,
        _ => f64::from(f32::from_bits(inline32(code))).to_bits(),
    }
}
