//! A workgroup: its LDS with shadow state, its barrier, and what all of its waves share.

use super::{
    Flow, Hit,
    shadow::{Shadow, Toucher},
    stop_lane,
};
use crate::{arch::Gen, fault::What, matrix_model::MatrixModel, memory::View};

/// Nobody.
const NONE: u8 = 0xff;
/// More than one wave.
const MANY: u8 = 0xfe;

/// Shadow of two LDS bytes. `*_at` is the number of barrier signals its wave had sent.
#[derive(Clone, Copy)]
struct Cell {
    written_at: u32,
    read_at: u32,
    writer: u8,
    reader: u8,
    initialised: u8,
    /// The last write was an atomic operation; these do not race with each other.
    atomic: bool,
}

const FRESH: Cell =
    Cell { written_at: 0, read_at: 0, writer: NONE, reader: NONE, initialised: 0, atomic: false };

/// The kind of an LDS access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    Atomic,
}

impl Access {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Atomic => "atomic",
        }
    }
}

/// Who accesses memory: the wave and its barrier counts.
#[derive(Clone, Copy)]
pub(crate) struct Who {
    pub(crate) wave: u8,
    pub(crate) signals: u32,
    pub(crate) waits: u32,
}

/// State that the waves of one workgroup share.
pub(crate) struct Group<'a> {
    pub(crate) generation: Gen,
    pub(crate) model: MatrixModel,
    pub(crate) lds: Vec<u8>,
    shadow: Vec<Cell>,
    /// Races and uninitialised reads are looked for.
    pub(crate) sanitize: bool,
    /// Who touched global memory, when races are looked for.
    global: Option<&'a Shadow>,
    /// Number of the workgroup in the grid.
    pub(crate) number: u32,
    pub(crate) mem: View<'a>,
    /// Waves of the workgroup, ended ones included.
    pub(crate) waves: u32,
    /// Waves that signalled the barrier's current phase.
    pub(crate) arrived: u32,
    /// Barrier phases that completed.
    pub(crate) completed: u32,
    /// Address of the code, which relative jumps and S_GETPC start from.
    pub(crate) text: u64,
    /// Instructions that clocks count.
    pub(crate) clock: u64,
}

impl<'a> Group<'a> {
    pub(crate) fn new(
        generation: Gen,
        model: MatrixModel,
        global: Option<&'a Shadow>,
        lds: u32,
        mem: View<'a>,
        text: u64,
    ) -> Self {
        let sanitize = global.is_some();
        let cells = if sanitize { lds.div_ceil(2) as usize } else { 0 };
        Group {
            generation,
            model,
            lds: vec![0xff; lds as usize],
            shadow: vec![FRESH; cells],
            sanitize,
            global,
            number: 0,
            mem,
            waves: 0,
            arrived: 0,
            completed: 0,
            text,
            clock: 0,
        }
    }

    /// Back to the state of a fresh workgroup.
    pub(crate) fn reset(&mut self, number: u32, waves: u32) {
        self.number = number;
        self.lds.fill(0xff);
        self.shadow.fill(FRESH);
        (self.waves, self.arrived, self.completed) = (waves, 0, 0);
    }

    fn toucher(&self, who: Who) -> Toucher {
        Toucher { group: self.number, wave: who.wave, signals: who.signals, waits: who.waits }
    }

    /// Checks bounds, rights and races of one lane's access to global memory.
    #[inline(always)]
    pub(crate) fn global_check(
        &mut self,
        lane: usize,
        address: u64,
        size: u32,
        access: Access,
        who: Who,
    ) -> Flow {
        let Some((index, range)) = self.mem.find(address, size) else {
            let access = match access {
                Access::Read => "load",
                Access::Write => "store",
                Access::Atomic => "atomic",
            };
            let nearest = self.mem.nearest(address);
            return stop_lane(lane, What::Unmapped { access, address, size, nearest });
        };
        if !range.writable {
            if access != Access::Read {
                return stop_lane(lane, What::ReadOnly { address, size });
            }
            return Ok(());
        }
        match self.global {
            None => Ok(()),
            Some(shadow) => shadow.touch(lane, (index, range), address, size, access, self.toucher(who)),
        }
    }

    /// A wave is about to execute an atomic operation on global memory.
    pub(crate) fn global_atomic(&self, who: Who) {
        if let Some(shadow) = self.global {
            shadow.atomic(self.toucher(who));
        }
    }

    /// Checks bounds, alignment, initialisation and races of one lane's LDS access.
    #[inline]
    pub(crate) fn lds_check(
        &mut self,
        lane: usize,
        offset: u32,
        size: u32,
        access: Access,
        who: Who,
    ) -> Flow {
        if u64::from(offset) + u64::from(size) > self.lds.len() as u64 {
            let limit = self.lds.len() as u32;
            return stop_lane(lane, What::LdsBounds { offset, size, limit });
        }
        if !aligned(offset.into(), size) {
            return stop_lane(lane, What::Misaligned { space: "LDS", address: offset.into(), size });
        }
        if !self.sanitize {
            return Ok(());
        }
        if size == 1 {
            return self.cell_check(lane, offset, 1 << (offset & 1), access, who);
        }
        let end = offset + size;
        if (offset | size) & 1 == 0 {
            for cell in offset / 2..end / 2 {
                self.cell_check(lane, 2 * cell, 3, access, who)?;
            }
            return Ok(());
        }
        for cell in offset / 2..end.div_ceil(2) {
            let bytes = u8::from(2 * cell >= offset) | u8::from(2 * cell + 1 < end) << 1;
            self.cell_check(lane, 2 * cell, bytes, access, who)?;
        }
        Ok(())
    }

    #[inline]
    fn cell_check(&mut self, lane: usize, offset: u32, bytes: u8, access: Access, who: Who) -> Flow {
        let c = &mut self.shadow[(offset / 2) as usize];
        // An earlier access is ordered before this one when this wave has waited for a barrier that
        // the earlier wave signalled afterwards.
        let unordered = |wave: u8, at: u32| wave != NONE && wave != who.wave && who.waits <= at;
        let writer_races = unordered(c.writer, c.written_at) && !(access == Access::Atomic && c.atomic);
        let reader_races = access != Access::Read && unordered(c.reader, c.read_at);
        if writer_races || reader_races {
            let (kind, other) = match (writer_races, c.atomic) {
                (true, true) => ("atomic", c.writer),
                (true, false) => ("write", c.writer),
                (false, _) => ("read", c.reader),
            };
            return Err(race(lane, offset, access, who.wave, kind, other));
        }
        if access != Access::Write && c.initialised & bytes != bytes {
            return stop_lane(lane, What::LdsUninitialised { offset });
        }
        if access != Access::Read {
            c.initialised |= bytes;
            let shared = access == Access::Atomic && unordered(c.writer, c.written_at);
            let writer = if shared { MANY } else { who.wave };
            (c.writer, c.written_at) = (writer, who.signals);
            c.atomic = access == Access::Atomic;
        } else if c.reader == who.wave || c.reader == NONE || who.waits > c.read_at {
            (c.reader, c.read_at) = (who.wave, who.signals);
        } else {
            (c.reader, c.read_at) = (MANY, who.signals.max(c.read_at));
        }
        Ok(())
    }

    /// Little-endian dword of LDS; bounds were checked.
    #[inline(always)]
    pub(crate) fn lds32(&self, offset: u32) -> u32 {
        let o = offset as usize;
        u32::from_le_bytes(self.lds[o..o + 4].try_into().expect("four bytes"))
    }

    /// Stores bytes of LDS; bounds were checked.
    #[inline(always)]
    pub(crate) fn lds_put(&mut self, offset: u32, bytes: &[u8]) {
        let o = offset as usize;
        self.lds[o..o + bytes.len()].copy_from_slice(bytes);
    }
}

/// Whether an access may have that address. The hardware takes any; one of up to 32 bits off its own size is
/// reported, as compilers make none, while wider ones stand for copies of smaller elements.
pub(crate) fn aligned(address: u64, size: u32) -> bool {
    size > 4 || address.is_multiple_of(size.into())
}

#[cold]
fn race(lane: usize, offset: u32, access: Access, wave: u8, kind: &str, other: u8) -> Box<Hit> {
    let access = access.name();
    let other = match other {
        MANY => format!("{kind} of several waves"),
        w => format!("{kind} of wave {w}"),
    };
    Box::new(Hit {
        lane: Some(lane as u32),
        what: What::LdsRace { offset, access, wave: wave.into(), other },
    })
}
