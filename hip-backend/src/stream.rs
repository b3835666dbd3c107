//! How weights reach the device: a thread that reads files into a pinned ring and copies on a stream of its own, and the two
//! slots through which the blocks that do not stay on the device pass.
//!
//! # Order
//! A slot is written on the copy stream and read on the compute stream, and both ways are ordered by events:
//! * *ready*: recorded on the copy stream after a slot's last copy; the compute stream waits for it before the block's first
//!   operation.
//! * *released*: recorded on the compute stream once all operations of the slot's last block are issued; the copy stream
//!   waits for it before the first copy into the slot.
//!
//! The host waits only for a ring entry whose last copy has not run, before it fills the entry again.

#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::device::{Buffer, Device, Event, Pinned, Stream};
use crate::error::Error;
use crate::memory::{RING_ENTRIES, RING_ENTRY};
use crate::weights::Image;

type Result<T, E = Error> = std::result::Result<T, E>;

/// Host memory that copies start from.
pub(crate) enum HostBytes {
    /// Pinned: copied by the device itself.
    Pinned(Pinned),
    /// Pageable, where pinning was refused.
    Pageable(Vec<u8>),
}

impl HostBytes {
    /// Pinned memory, or pageable when it is refused or not wanted; `what` is for the message.
    pub(crate) fn new(device: &Arc<Device>, bytes: usize, pin: bool, what: &str) -> Result<Self> {
        if pin && let Some(pinned) = device.pin(bytes as u64)? {
            return Ok(Self::Pinned(pinned));
        }
        let mut pageable = Vec::new();
        let refused = |_| Error::HostMemory { what: what.to_owned(), bytes: bytes as u64 };
        pageable.try_reserve_exact(bytes).map_err(refused)?;
        pageable.resize(bytes, 0);
        Ok(Self::Pageable(pageable))
    }

    pub(crate) fn is_pinned(&self) -> bool {
        matches!(self, Self::Pinned(_))
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Pinned(pinned) => pinned.as_slice(),
            Self::Pageable(bytes) => bytes,
        }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        match self {
            Self::Pinned(pinned) => pinned.as_mut_slice(),
            Self::Pageable(bytes) => bytes,
        }
    }
}

/// Where the bytes of an image are.
#[derive(Clone)]
pub(crate) enum ImageSource {
    /// In the model's files.
    Files(Arc<Image>),
    /// In host memory, as they lie on the device.
    Host(Arc<HostBytes>),
}

/// Device memory that an image is copied to: from byte 0 of the buffer.
struct Fill {
    source: ImageSource,
    to: Arc<Buffer>,
    /// What the copy has to wait for.
    after: Option<Arc<Event>>,
    /// Recorded behind the last copy.
    ready: Arc<Event>,
    answer: Sender<Result<()>>,
}

/// The answer to a fill that was asked for: once it is there, `ready` marks the end of the copies.
pub(crate) struct Filling {
    pub(crate) ready: Arc<Event>,
    issued: Receiver<Result<()>>,
}

impl Filling {
    /// Waits until every copy has been issued (not until it has run).
    pub(crate) fn issued(&self) -> Result<()> {
        self.issued
            .recv()
            .unwrap_or_else(|_| Err(Error::Feeder { reason: "it panicked or was shut down".to_owned() }))
    }
}

/// The thread that copies weights to the device.
pub(crate) struct Feeder {
    orders: Option<Sender<Fill>>,
    thread: Option<JoinHandle<()>>,
}

impl Feeder {
    /// Starts the thread; its ring is allocated by its first fill from files or pageable memory.
    pub(crate) fn new(device: &Arc<Device>) -> Result<Self> {
        let (orders, inbox) = channel::<Fill>();
        let mut worker =
            Worker { stream: device.stream()?, device: device.clone(), ring: Vec::new(), next: 0 };
        let work = move || {
            let mut bound = worker.device.bind();
            for fill in inbox {
                let result = match std::mem::replace(&mut bound, Ok(())) {
                    Ok(()) => worker.fill(&fill),
                    Err(error) => Err(error),
                };
                let Fill { answer, to, source, .. } = fill;
                // Given back before the answer: whoever has it may count on being the only owner.
                drop((to, source));
                // Nobody waits for the answer of a fill that was given up.
                let _ = answer.send(result);
            }
            worker.finish();
        };
        let thread = std::thread::Builder::new().name("weights".to_owned()).spawn(work).map_err(|error| {
            Error::Thread { what: "copies weights to the device", reason: error.to_string() }
        })?;
        Ok(Self { orders: Some(orders), thread: Some(thread) })
    }

    /// Orders a copy of `source` to `to`, after `after`; `ready` will be recorded behind it.
    pub(crate) fn fill(
        &self,
        source: ImageSource,
        to: Arc<Buffer>,
        after: Option<Arc<Event>>,
        ready: Arc<Event>,
    ) -> Filling {
        let (answer, issued) = channel();
        let filling = Filling { ready: ready.clone(), issued };
        let orders = self.orders.as_ref().expect("there until dropped");
        // A closed inbox drops the order and with it the answer's sender, which the waiter sees.
        let _ = orders.send(Fill { source, to, after, ready, answer });
        filling
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // A panic there was reported by the waiter of its last fill.
            let _ = thread.join();
        }
    }
}

/// One entry of the ring: host memory and the event behind its last copy.
struct RingEntry {
    bytes: HostBytes,
    copied: Event,
    in_use: bool,
}

struct Worker {
    device: Arc<Device>,
    stream: Stream,
    ring: Vec<RingEntry>,
    next: usize,
}

impl Worker {
    fn fill(&mut self, fill: &Fill) -> Result<()> {
        if let Some(after) = &fill.after {
            self.stream.wait_for(after)?;
        }
        match &fill.source {
            ImageSource::Files(image) => {
                assert!(image.bytes() <= fill.to.bytes(), "an image larger than its place");
                for units in image.chunks(RING_ENTRY) {
                    let span = image.span(units.clone());
                    self.through_ring(&fill.to, span, |out| image.fill(units, out))?;
                }
            }
            ImageSource::Host(bytes) if bytes.is_pinned() => {
                let bytes = bytes.as_slice();
                assert!(bytes.len() as u64 <= fill.to.bytes(), "an image larger than its place");
                // SAFETY: the place is large enough; the pinned bytes are never changed after they were filled, and the stage
                // that owns them waits for the device before it is dropped.
                unsafe { self.copy(fill.to.address(0), bytes)? };
            }
            ImageSource::Host(bytes) => {
                let bytes = bytes.as_slice();
                assert!(bytes.len() as u64 <= fill.to.bytes(), "an image larger than its place");
                for start in (0..bytes.len()).step_by(RING_ENTRY) {
                    let end = bytes.len().min(start + RING_ENTRY);
                    let part = &bytes[start..end];
                    let copy = |out: &mut [u8]| {
                        out.copy_from_slice(part);
                        Ok(())
                    };
                    self.through_ring(&fill.to, start as u64..end as u64, copy)?;
                }
            }
        }
        self.stream.record(&fill.ready)
    }

    /// Fills a ring entry and copies it to bytes `span` of `to`.
    fn through_ring(
        &mut self,
        to: &Buffer,
        span: Range<u64>,
        fill: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<()> {
        if self.ring.len() < RING_ENTRIES {
            let bytes = HostBytes::new(&self.device, RING_ENTRY, true, "the ring for weights")?;
            let copied = self.device.event()?;
            self.ring.push(RingEntry { bytes, copied, in_use: false });
            self.next = self.ring.len() - 1;
        }
        let entry = &mut self.ring[self.next];
        if entry.in_use {
            entry.copied.wait()?;
        }
        let part = &mut entry.bytes.as_mut_slice()[..(span.end - span.start) as usize];
        fill(part)?;
        entry.in_use = true;
        assert!(span.end <= to.bytes(), "a copy past its place");
        let at = to.address(span.start);
        let entry = &self.ring[self.next];
        // SAFETY: the span is inside the buffer; the entry is not written again before its event has been waited for.
        unsafe { self.copy(at, &entry.bytes.as_slice()[..(span.end - span.start) as usize])? };
        self.stream.record(&entry.copied)?;
        self.next = (self.next + 1) % RING_ENTRIES;
        Ok(())
    }

    /// # Safety
    /// As [`Stream::copy_to_device`].
    unsafe fn copy(&self, to: u64, from: &[u8]) -> Result<()> {
        // SAFETY: by this function's contract.
        unsafe { self.stream.copy_to_device(to, from) }
    }

    /// Waits for the last copies, so that the ring may be freed; on a lost device the ring is left alone.
    fn finish(self) {
        let done = self.ring.iter().filter(|e| e.in_use).all(|e| e.copied.wait().is_ok());
        if !done {
            std::mem::forget(self.ring);
        }
    }
}

/// Which block each slot holds and which comes next: the slots' bookkeeping, without the device.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// Blocks that are streamed, ascending.
    streamed: Vec<usize>,
    /// Block in each slot.
    holds: Vec<Option<usize>>,
    /// After the last block comes the first again; otherwise the blocks are run through once.
    again: bool,
}

impl Schedule {
    pub(crate) fn new(streamed: Vec<usize>, slots: usize, again: bool) -> Self {
        Self { holds: vec![None; slots.min(streamed.len())], streamed, again }
    }

    /// The streamed blocks that should be in the slots when block `index` runs: itself if it is streamed and the next ones,
    /// around the end when the next step begins again.
    fn wanted(&self, index: usize) -> Vec<usize> {
        let first = self.streamed.partition_point(|&block| block < index);
        let start = if self.again { first } else { 0 };
        self.streamed[first..].iter().chain(&self.streamed[..start]).copied().take(self.holds.len()).collect()
    }

    /// The slot that holds a block.
    pub(crate) fn slot_of(&self, block: usize) -> Option<usize> {
        self.holds.iter().position(|&held| held == Some(block))
    }

    /// Assigns the blocks that should be in the slots when `index` runs to the slots that may be refilled (`free[slot]`), the
    /// first wanted first; returns what has to be filled, as (slot, block).
    pub(crate) fn assign(&mut self, index: usize, free: &[bool]) -> Vec<(usize, usize)> {
        let wanted = self.wanted(index);
        let mut fills = Vec::new();
        for &block in &wanted {
            if self.slot_of(block).is_some() {
                continue;
            }
            let spare = (0..self.holds.len())
                .find(|&slot| free[slot] && self.holds[slot].is_none_or(|held| !wanted.contains(&held)));
            if let Some(slot) = spare {
                self.holds[slot] = Some(block);
                fills.push((slot, block));
            }
        }
        fills
    }
}

/// One slot on the device.
struct Slot {
    buffer: Arc<Buffer>,
    ready: Arc<Event>,
    released: Arc<Event>,
    filling: Option<Filling>,
    /// The copies are issued and the compute stream waits for them.
    awaited: bool,
}

/// The slots of a stage.
pub(crate) struct Slots {
    slots: Vec<Slot>,
    schedule: Schedule,
}

impl Slots {
    /// Slots in `buffers` for the blocks `streamed`,
    /// that are run through once or `again` and again.
    pub(crate) fn new(
        device: &Arc<Device>,
        buffers: Vec<Arc<Buffer>>,
        streamed: Vec<usize>,
        again: bool,
    ) -> Result<Self> {
        let schedule = Schedule::new(streamed, buffers.len(), again);
        let slot = |buffer| {
            let (ready, released) = (Arc::new(device.event()?), Arc::new(device.event()?));
            Ok(Slot { buffer, ready, released, filling: None, awaited: false })
        };
        Ok(Self { slots: buffers.into_iter().map(slot).collect::<Result<_>>()?, schedule })
    }

    /// Prepares for block `index`: starts the copies of the next streamed blocks into the slots that nobody reads any more.
    ///
    /// Every operation of the blocks fetched before has been issued to `compute`.
    pub(crate) fn advance(
        &mut self,
        index: usize,
        feeder: &Feeder,
        compute: &Stream,
        source: impl Fn(usize) -> ImageSource,
    ) -> Result<()> {
        // Tensors of a block hold its slot's buffer. A slot whose block was never fetched may be filled again: orders are carried
        // out one after another.
        let free: Vec<bool> = self
            .slots
            .iter()
            .map(|slot| slot.filling.is_some() || Arc::strong_count(&slot.buffer) == 1)
            .collect();
        for (at, block) in self.schedule.assign(index, &free) {
            let slot = &mut self.slots[at];
            let after = slot.awaited.then(|| slot.released.clone());
            if after.is_some() {
                compute.record(&slot.released)?;
            }
            slot.awaited = false;
            slot.filling = Some(feeder.fill(source(block), slot.buffer.clone(), after, slot.ready.clone()));
        }
        Ok(())
    }

    /// The memory of streamed block `block`; the compute stream's next operations see its weights.
    ///
    /// # Panics
    /// When every slot's weights are still held: the caller keeps the weights of an earlier block.
    pub(crate) fn fetch(&mut self, block: usize, compute: &Stream) -> Result<Arc<Buffer>> {
        let at = self.schedule.slot_of(block).unwrap_or_else(|| {
            panic!("block {block}: no slot is free, the weights of an earlier block are still held")
        });
        let slot = &mut self.slots[at];
        if let Some(filling) = slot.filling.take() {
            filling.issued()?;
        }
        if !slot.awaited {
            compute.wait_for(&slot.ready)?;
            slot.awaited = true;
        }
        Ok(slot.buffer.clone())
    }

    /// Bytes of device memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.slots.iter().map(|slot| slot.buffer.bytes()).sum()
    }

    /// Whether the blocks are run through again and again.
    pub(crate) fn again(&self) -> bool {
        self.schedule.again
    }

    /// From now on the blocks `streamed` pass through the slots.
    pub(crate) fn stream_also(&mut self, streamed: Vec<usize>) {
        self.schedule.streamed = streamed;
    }

    /// Waits for every copy that was ordered, so that their sources may go.
    pub(crate) fn settle(&mut self) {
        for (slot, held) in self.slots.iter_mut().zip(&self.schedule.holds) {
            let issued = slot.filling.take().map_or(Ok(()), |filling| filling.issued());
            if held.is_some() && issued.is_ok() {
                // A failed copy has nothing left to wait for; a lost device frees nothing.
                let _ = slot.ready.wait();
            }
        }
    }
}

/// Runs `work` with exclusive access to what a mutex holds, also after a panic elsewhere.
pub(crate) fn locked<T, R>(mutex: &Mutex<T>, work: impl FnOnce(&mut T) -> R) -> R {
    work(&mut mutex.lock().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_slots_alternate_and_wrap_to_the_next_step() {
        let mut s = Schedule::new(vec![0, 1, 2, 3, 4], 2, true);
        assert_eq!(s.assign(0, &[true, true]), [(0, 0), (1, 1)]);
        // While block 0's weights are held, nothing can be refilled.
        assert_eq!(s.assign(1, &[false, true]), []);
        assert_eq!(s.assign(1, &[true, true]), [(0, 2)]);
        assert_eq!(s.assign(2, &[true, true]), [(1, 3)]);
        assert_eq!(s.assign(3, &[true, true]), [(0, 4)]);
        assert_eq!(s.assign(4, &[true, true]), [(1, 0)]);
        assert_eq!(s.assign(0, &[true, true]), [(0, 1)]);
        assert_eq!((s.slot_of(0), s.slot_of(1), s.slot_of(4)), (Some(1), Some(0), None));
    }

    #[test]
    fn resident_blocks_give_both_slots_time() {
        // Blocks 1, 4 and 5 are streamed, the others stay.
        let mut s = Schedule::new(vec![1, 4, 5], 2, true);
        assert_eq!(s.assign(0, &[true, true]), [(0, 1), (1, 4)]);
        assert_eq!(s.assign(1, &[true, true]), []);
        assert_eq!(s.assign(2, &[true, true]), [(0, 5)], "block 1 has run");
        assert_eq!(s.assign(3, &[true, true]), []);
        assert_eq!(s.assign(5, &[true, true]), [(1, 1)]);
        assert_eq!(s.assign(6, &[true, true]), [(0, 4)], "the next step begins while the last blocks run");
    }

    #[test]
    fn a_block_that_is_left_out_frees_its_slot() {
        let mut s = Schedule::new(vec![0, 1, 2, 3], 2, true);
        s.assign(0, &[true, true]);
        assert_eq!(s.assign(2, &[true, true]), [(0, 2), (1, 3)], "block 1 was never fetched");
    }

    #[test]
    fn blocks_that_run_once_are_not_fetched_again() {
        let mut s = Schedule::new(vec![0, 1, 2], 2, false);
        assert_eq!(s.assign(0, &[true, true]), [(0, 0), (1, 1)]);
        assert_eq!(s.assign(1, &[true, true]), [(0, 2)]);
        assert_eq!(s.assign(2, &[true, true]), []);
        assert_eq!(
            s.assign(0, &[true, true]),
            [(0, 0)],
            "unless the stage runs again; block 1 is still there"
        );
    }

    #[test]
    fn one_slot_is_enough() {
        let mut s = Schedule::new(vec![0, 1, 2], 1, true);
        assert_eq!(s.assign(0, &[true]), [(0, 0)]);
        assert_eq!(s.assign(1, &[true]), [(0, 1)]);
        assert_eq!(s.assign(1, &[true]), []);
    }

    #[test]
    fn fewer_streamed_blocks_than_slots() {
        let mut s = Schedule::new(vec![7], 2, true);
        assert_eq!(s.assign(0, &[true, true]), [(0, 7)]);
        assert_eq!(s.assign(7, &[true, true]), []);
        assert_eq!(s.assign(0, &[true, true]), []);
    }
}
