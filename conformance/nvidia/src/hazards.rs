//! Work on memory that nothing orders: what a missing wait makes possible, whether or not it happened this time.
//!
//! Every copy and launch gets its place in its stream. What is certain to have run before it follows from the order of each
//! stream, from waits of streams for events, and from waits of the host: a stream is a vector clock. Two pieces of work on one
//! allocation, one of which writes, must be ordered; a kernel counts as writing whatever allocation its arguments point into.
//! Pinned memory belongs to the host as well: what a copy out of it has taken must still be there when the next one is
//! issued, unless the host has waited, and what a copy into it wrote must have been waited for before it is used again.
//!
//! A thread of the host knows what it has waited for itself: what threads tell each other is not seen, so that an order that
//! only came about by their speed counts as none.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hasher};
use std::ops::Range;
use std::thread::ThreadId;

/// A stream's number, from 1.
pub type StreamId = u32;

/// Pieces of work of each stream that are certain to have run.
#[derive(Clone, Debug, Default)]
struct Clock(BTreeMap<StreamId, u64>);

impl Clock {
    fn knows(&self, work: &Work) -> bool {
        self.0.get(&work.stream).is_some_and(|&n| n >= work.place)
    }

    /// Whether `work`, before which this clock is, comes after `other`.
    fn orders(&self, work: &Work, other: &Work) -> bool {
        work.stream == other.stream || self.knows(other)
    }

    fn join(&mut self, other: &Clock) {
        for (&stream, &n) in &other.0 {
            let own = self.0.entry(stream).or_default();
            *own = (*own).max(n);
        }
    }
}

/// A copy or a launch.
#[derive(Clone, Debug)]
struct Work {
    stream: StreamId,
    place: u64,
    what: String,
}

/// What is known of a device allocation.
#[derive(Debug, Default)]
struct Device {
    bytes: u64,
    write: Option<Work>,
    /// Since the last write, the last of each stream.
    reads: Vec<Work>,
}

/// A copy from or to pinned memory that the host has not waited for.
#[derive(Debug)]
struct Pending {
    work: Work,
    range: Range<u64>,
    /// Of the bytes when the copy was issued; `None` for a copy into the memory.
    taken: Option<u64>,
}

#[derive(Debug, Default)]
struct Pinned {
    bytes: u64,
    pending: Vec<Pending>,
}

/// All that was issued, and what was found.
#[derive(Debug, Default)]
pub struct Hazards {
    streams: BTreeMap<StreamId, Clock>,
    events: BTreeMap<u64, Clock>,
    /// Of each thread.
    hosts: HashMap<Option<ThreadId>, Clock>,
    thread: Option<ThreadId>,
    device: BTreeMap<u64, Device>,
    pinned: BTreeMap<u64, Pinned>,
    found: Vec<String>,
}

/// A hash of bytes, to see whether they were changed.
pub fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// The allocation that an address lies in, or ends.
fn holder<T>(map: &mut BTreeMap<u64, T>, address: u64, bytes: impl Fn(&T) -> u64) -> Option<&mut T> {
    let (&start, found) = map.range_mut(..=address).next_back()?;
    (address - start < bytes(found).max(1)).then_some(found)
}

impl Hazards {
    /// What follows is the work of this thread.
    pub fn enter(&mut self, thread: ThreadId) {
        self.thread = Some(thread);
    }

    /// What the thread knows to have run.
    fn host(&self) -> Clock {
        self.hosts.get(&self.thread).cloned().unwrap_or_default()
    }

    /// Device memory was allocated.
    pub fn allocated(&mut self, address: u64, bytes: u64) {
        self.device.insert(address, Device { bytes, ..Device::default() });
    }

    /// Device memory was freed; that waits for the work on it.
    pub fn freed(&mut self, address: u64) {
        self.device.remove(&address);
    }

    /// Pinned memory was allocated.
    pub fn pinned(&mut self, address: u64, bytes: u64) {
        self.pinned.insert(address, Pinned { bytes, ..Pinned::default() });
    }

    /// Pinned memory is freed: no copy may still use it.
    pub fn unpinned(&mut self, address: u64) {
        let Some(pinned) = self.pinned.remove(&address) else { return };
        let host = self.host();
        for pending in pinned.pending {
            if !host.knows(&pending.work) {
                self.found.push(format!(
                    "pinned memory is freed; the host has not waited for {}",
                    pending.work.what
                ));
            }
        }
    }

    /// The next piece of work of a stream.
    fn work(&mut self, stream: StreamId, what: String) -> (Work, Clock) {
        let host = self.host();
        let clock = self.streams.entry(stream).or_default();
        clock.join(&host);
        let place = clock.0.get(&stream).copied().unwrap_or_default() + 1;
        let before = clock.clone();
        clock.0.insert(stream, place);
        (Work { stream, place, what: format!("{what} on stream {stream}") }, before)
    }

    fn write(&mut self, address: u64, work: &Work, before: &Clock) {
        let Some(device) = holder(&mut self.device, address, |d| d.bytes) else { return };
        let others = device.write.iter().chain(&device.reads).filter(|other| !before.orders(work, other));
        let found = others.map(|other| format!("{} is not ordered after {}", work.what, other.what));
        self.found.extend(found);
        device.write = Some(work.clone());
        device.reads.clear();
    }

    fn read(&mut self, address: u64, work: &Work, before: &Clock) {
        let Some(device) = holder(&mut self.device, address, |d| d.bytes) else { return };
        if let Some(other) = device.write.as_ref().filter(|other| !before.orders(work, other)) {
            self.found.push(format!("{} is not ordered after {}", work.what, other.what));
        }
        device.reads.retain(|read| read.stream != work.stream);
        device.reads.push(work.clone());
    }

    /// A copy to the device. `bytes_at` gives the host's bytes of an address range.
    pub fn copy_in(
        &mut self,
        stream: StreamId,
        to: u64,
        from: Range<u64>,
        bytes_at: &dyn Fn(Range<u64>) -> Vec<u8>,
    ) {
        let (work, before) = self.work(stream, "a copy to the device".to_owned());
        self.write(to, &work, &before);
        let host = self.host();
        let Some(pinned) = holder(&mut self.pinned, from.start, |p| p.bytes) else { return };
        pinned.pending.retain(|pending| !host.knows(&pending.work));
        for pending in overlapping(&pinned.pending, &from) {
            match pending.taken {
                Some(taken) if digest(&bytes_at(pending.range.clone())) == taken => {}
                Some(_) => self.found.push(format!(
                    "the host has changed pinned memory without waiting for {}",
                    pending.work.what
                )),
                None => self
                    .found
                    .push(format!("pinned memory is used again without waiting for {}", pending.work.what)),
            }
        }
        let taken = Some(digest(&bytes_at(from.clone())));
        pinned.pending.push(Pending { work, range: from, taken });
    }

    /// A copy to the host. A copy to memory that is not pinned has happened when the call returns.
    pub fn copy_out(&mut self, stream: StreamId, to: Range<u64>, from: u64) {
        let (work, before) = self.work(stream, "a copy to the host".to_owned());
        self.read(from, &work, &before);
        let host = self.host();
        let Some(pinned) = holder(&mut self.pinned, to.start, |p| p.bytes) else {
            self.hosts.entry(self.thread).or_default().join(&self.streams[&stream]);
            return;
        };
        pinned.pending.retain(|pending| !host.knows(&pending.work));
        for pending in overlapping(&pinned.pending, &to) {
            if pending.taken.is_none() {
                self.found
                    .push(format!("pinned memory is used again without waiting for {}", pending.work.what));
            } else if !before.orders(&work, &pending.work) {
                self.found.push(format!("{} is not ordered after {}", work.what, pending.work.what));
            }
        }
        pinned.pending.push(Pending { work, range: to, taken: None });
    }

    /// A copy on the device.
    pub fn copy_on(&mut self, stream: StreamId, to: u64, from: u64) {
        let (work, before) = self.work(stream, "a copy on the device".to_owned());
        self.read(from, &work, &before);
        self.write(to, &work, &before);
    }

    /// A launch; `arguments` is its argument block, in which every aligned word that is an address of an allocation counts.
    pub fn launch(&mut self, stream: StreamId, kernel: &str, arguments: &[u8]) {
        let (work, before) = self.work(stream, kernel.to_owned());
        for word in arguments.as_chunks::<8>().0 {
            self.write(u64::from_ne_bytes(*word), &work, &before);
        }
    }

    /// An event marks what a stream was given so far.
    pub fn recorded(&mut self, event: u64, stream: StreamId) {
        let host = self.host();
        let clock = self.streams.entry(stream).or_default();
        clock.join(&host);
        self.events.insert(event, clock.clone());
    }

    /// An event is gone.
    pub fn forgotten(&mut self, event: u64) {
        self.events.remove(&event);
    }

    /// A stream waits for an event.
    pub fn waits(&mut self, stream: StreamId, event: u64) {
        if let Some(clock) = self.events.get(&event) {
            self.streams.entry(stream).or_default().join(clock);
        }
    }

    /// The host knows that what an event marks has run.
    pub fn done(&mut self, event: u64) {
        if let Some(clock) = self.events.get(&event) {
            self.hosts.entry(self.thread).or_default().join(clock);
        }
    }

    /// The process ends: what was copied to the host must have been waited for, by whichever thread.
    pub fn ended(&mut self) {
        let mut host = Clock::default();
        self.hosts.values().for_each(|clock| host.join(clock));
        for pending in self.pinned.values().flat_map(|pinned| &pinned.pending) {
            if pending.taken.is_none() && !host.knows(&pending.work) {
                self.found.push(format!("the host has never waited for {}", pending.work.what));
            }
        }
    }

    /// What was found since the last call.
    pub fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.found)
    }
}

fn overlapping<'a>(pending: &'a [Pending], range: &Range<u64>) -> impl Iterator<Item = &'a Pending> {
    let range = range.clone();
    pending.iter().filter(move |p| p.range.start < range.end && range.start < p.range.end)
}

#[cfg(test)]
mod tests;
