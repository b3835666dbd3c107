//! Who touched which bytes of global memory during one launch: finds accesses of different waves that
//! nothing orders.
//!
//! Two bytes share a cell. Within a workgroup, barriers order its waves. Workgroups are not ordered: bytes
//! that one writes belong to it alone. Atomic operations do not race with each other, and two waves that both
//! have executed one before are taken to have synchronised: which of them publishes what is not followed.

use std::sync::{
    OnceLock,
    atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst},
};

use super::{Flow, Hit, group::Access};
use crate::{fault::What, memory::Range};

/// Bytes of a page of cells.
const PAGE: u64 = 4096;
/// Cells of a page.
const CELLS: usize = PAGE as usize / 2;

/// The last writer and the readers of a page's cells, made when the first comes.
#[derive(Default)]
struct Page {
    writers: OnceLock<Box<[AtomicU64]>>,
    readers: OnceLock<Box<[AtomicU64]>>,
}

fn cells(of: &OnceLock<Box<[AtomicU64]>>) -> &[AtomicU64] {
    of.get_or_init(|| (0..CELLS).map(|_| AtomicU64::new(0)).collect())
}

/// Shadow of the allocations of a launch, shared by its threads.
pub(crate) struct Shadow {
    /// Pages of each writable range, by its place in the launch's table.
    ranges: Vec<OnceLock<Box<[Page]>>>,
    /// Waves of each workgroup, a bit each, that have executed an atomic operation.
    atomics: Vec<AtomicU32>,
}

/// Who accesses: one wave of one workgroup, between two barriers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Toucher {
    /// Number of the workgroup in the grid.
    pub(crate) group: u32,
    pub(crate) wave: u8,
    pub(crate) signals: u32,
    pub(crate) waits: u32,
}

/// Several workgroups have read.
const EVERYBODY: u64 = u64::MAX;
/// Several waves of a workgroup.
const MANY: u8 = 0xff;
/// Barriers of a workgroup that a cell can count.
const LATEST: u32 = (1 << 20) - 1;
/// Which of the two bytes.
const BYTES: u64 = 3 << 22;

/// A cell: workgroup + 1 in the upper half, then the wave, which of the two bytes, whether it was atomic, and
/// the barriers that the wave had signalled.
fn pack(t: Toucher, wave: u8, bytes: u8, atomic: bool, at: u32) -> u64 {
    let low = u32::from(wave) << 24 | u32::from(bytes) << 22 | u32::from(atomic) << 21 | at.min(LATEST);
    u64::from(t.group + 1) << 32 | u64::from(low)
}

struct Cell {
    group: u32,
    wave: u8,
    bytes: u8,
    atomic: bool,
    at: u32,
}

fn unpack(cell: u64) -> Option<Cell> {
    let group = ((cell >> 32) as u32).checked_sub(1)?;
    let low = cell as u32;
    let (wave, bytes, atomic) = ((low >> 24) as u8, (low >> 22 & 3) as u8, low >> 21 & 1 == 1);
    Some(Cell { group, wave, bytes, atomic, at: low & LATEST })
}

impl Shadow {
    /// Shadow of `ranges` for a launch of that many workgroups; `synchronises` when the code has atomics.
    pub(crate) fn new(ranges: &[Range], groups: u64, synchronises: bool) -> Self {
        let groups = if synchronises { groups } else { 0 };
        Shadow {
            ranges: ranges.iter().map(|_| OnceLock::new()).collect(),
            atomics: (0..groups).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Whether that wave, or any of its workgroup, has executed an atomic operation.
    fn synchronised(&self, group: u32, wave: u8) -> bool {
        let mask = if wave == MANY { u32::MAX } else { 1 << (wave & 31) };
        self.atomics.get(group as usize).is_some_and(|waves| waves.load(Relaxed) & mask != 0)
    }

    /// A wave is about to execute an atomic operation.
    pub(crate) fn atomic(&self, t: Toucher) {
        if let Some(waves) = self.atomics.get(t.group as usize) {
            waves.fetch_or(1 << (t.wave & 31), Relaxed);
        }
    }

    /// Records one lane's access of `size` bytes and stops at one that races with an earlier one.
    #[inline]
    pub(crate) fn touch(
        &self,
        lane: usize,
        (index, range): (usize, &Range),
        address: u64,
        size: u32,
        access: Access,
        t: Toucher,
    ) -> Flow {
        let pages = self.ranges[index].get_or_init(|| {
            // Allocations start at even addresses, so an even offset is an even address.
            let count = (range.end - range.start).div_ceil(PAGE);
            (0..count).map(|_| Page::default()).collect()
        });
        let (mut at, end) = (address - range.start, address - range.start + u64::from(size));
        while at < end {
            let page = &pages[(at / PAGE) as usize];
            let stop = end.min((at / PAGE + 1) * PAGE);
            let result = match access {
                Access::Read => self.read(page, at, stop, t),
                _ => self.write(page, at, stop, access == Access::Atomic, t),
            };
            if let Err((offset, kind, other)) = result {
                return Err(race(lane, range.start + offset, access, kind, other, t));
            }
            at = stop;
        }
        Ok(())
    }

    /// The mark comes first and the look at others' marks second, here and in [`Shadow::write`]: of two
    /// threads at least one sees the other's.
    fn read(&self, page: &Page, at: u64, stop: u64, t: Toucher) -> Result<(), Race> {
        let readers = cells(&page.readers);
        // What everybody reads needs no more marks.
        let known = &readers[at as usize / 2 % CELLS..=(stop as usize - 1) / 2 % CELLS];
        if known.iter().any(|c| c.load(Relaxed) != EVERYBODY) {
            mark_reads(readers, at, stop, t);
        }
        let Some(writers) = page.writers.get() else { return Ok(()) };
        for (n, offset, bytes) in each(at, stop) {
            self.against_writer(writers[n].load(SeqCst), offset, bytes, false, t)?;
        }
        Ok(())
    }

    fn against_writer(&self, old: u64, offset: u64, bytes: u8, atomic: bool, t: Toucher) -> Result<(), Race> {
        match unpack(old) {
            Some(c) if c.bytes & bytes != 0 && !(atomic && c.atomic) && self.unordered(&c, t) => {
                Err((offset, if c.atomic { "atomic" } else { "write" }, Some((c.group, c.wave))))
            }
            _ => Ok(()),
        }
    }

    fn write(&self, page: &Page, at: u64, stop: u64, atomic: bool, t: Toucher) -> Result<(), Race> {
        let writers = cells(&page.writers);
        for (n, offset, bytes) in each(at, stop) {
            let mine = pack(t, t.wave, bytes, atomic, t.signals);
            // The other byte's mark of the same wave stays.
            let before = writers[n].load(Relaxed);
            let kept = if before | BYTES == mine | BYTES { before & BYTES } else { 0 };
            let old = writers[n].swap(mine | kept, SeqCst);
            self.against_writer(old, offset, bytes, atomic, t)?;
        }
        let Some(readers) = page.readers.get() else { return Ok(()) };
        for (n, offset, bytes) in each(at, stop) {
            let old = readers[n].load(SeqCst);
            match unpack(old) {
                _ if old == EVERYBODY && self.synchronised(t.group, t.wave) => {}
                _ if old == EVERYBODY => return Err((offset, "read", None)),
                Some(c) if c.bytes & bytes != 0 && self.unordered(&c, t) => {
                    return Err((offset, "read", Some((c.group, c.wave))));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether nothing orders an earlier access before this one.
    fn unordered(&self, c: &Cell, t: Toucher) -> bool {
        let apart = if c.group == t.group { c.wave != t.wave && t.waits <= c.at } else { true };
        apart && !(self.synchronised(c.group, c.wave) && self.synchronised(t.group, t.wave))
    }
}

/// Cells of the bytes from `at` to `stop` of a page: index, offset and which of the two bytes.
fn each(at: u64, stop: u64) -> impl Iterator<Item = (usize, u64, u8)> {
    (at / 2..stop.div_ceil(2)).map(move |c| {
        let low = u8::from(2 * c >= at);
        let high = u8::from(2 * c + 1 < stop) << 1;
        (c as usize % CELLS, 2 * c, low | high)
    })
}

/// Adds a wave to the readers of its cells.
fn mark_reads(readers: &[AtomicU64], at: u64, stop: u64, t: Toucher) {
    for (n, _, bytes) in each(at, stop) {
        let mine = pack(t, t.wave, bytes, false, t.signals);
        let old = readers[n].load(Relaxed);
        if old != mine && old != EVERYBODY {
            let new = match unpack(old) {
                Some(c) if c.group != t.group => EVERYBODY,
                Some(c) if c.wave != t.wave && t.waits <= c.at => {
                    pack(t, MANY, bytes | c.bytes, false, t.signals.max(c.at))
                }
                Some(_) if old | BYTES == mine | BYTES => mine | old & BYTES,
                _ => mine,
            };
            // A workgroup on another thread may have read meanwhile.
            if readers[n].compare_exchange(old, new, SeqCst, SeqCst).is_err() {
                readers[n].store(EVERYBODY, SeqCst);
            }
        }
    }
}

/// Offset in the range, kind of the earlier access, and who did it where that is one workgroup.
type Race = (u64, &'static str, Option<(u32, u8)>);

#[cold]
fn race(
    lane: usize,
    address: u64,
    access: Access,
    kind: &str,
    other: Option<(u32, u8)>,
    t: Toucher,
) -> Box<Hit> {
    let other = match other {
        None => format!("{kind} of several workgroups"),
        Some((group, MANY)) if group == t.group => format!("{kind} of several waves of its workgroup"),
        Some((group, wave)) if group == t.group => format!("{kind} of wave {wave} of its workgroup"),
        Some((group, _)) => format!("{kind} of workgroup number {group}"),
    };
    Box::new(Hit {
        lane: Some(lane as u32),
        what: What::GlobalRace { address, access: access.name(), other },
    })
}
