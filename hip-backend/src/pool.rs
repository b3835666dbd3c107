//! Device memory for activations: freed buffers are kept and handed out again.
//!
//! All operations run in one stream, so a buffer that is dropped and handed out again is written only after its last reader
//! has run: nothing waits. The memory is plain `hipMalloc` memory.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::device::{Buffer, Device};
use crate::error::Error;

/// Sizes are rounded up to this, so that buffers of nearly one size serve each other.
pub(crate) const GRANULE: u64 = 64 << 10;

/// Buffers without an owner, by size.
#[derive(Debug)]
struct FreeList<B> {
    /// Ascending by size.
    blocks: Vec<(u64, B)>,
    bytes: u64,
}

impl<B> Default for FreeList<B> {
    fn default() -> Self {
        Self { blocks: Vec::new(), bytes: 0 }
    }
}

impl<B> FreeList<B> {
    /// The smallest buffer of at least `bytes` that is not more than an eighth too large.
    fn take(&mut self, bytes: u64) -> Option<(u64, B)> {
        let at = self.blocks.partition_point(|(size, _)| *size < bytes);
        if self.blocks.get(at)?.0 > bytes + bytes / 8 {
            return None;
        }
        let block = self.blocks.remove(at);
        self.bytes -= block.0;
        Some(block)
    }

    fn put(&mut self, bytes: u64, block: B) {
        let at = self.blocks.partition_point(|(size, _)| *size < bytes);
        self.blocks.insert(at, (bytes, block));
        self.bytes += bytes;
    }

    /// Takes out the largest buffers until at most `bytes` are left.
    fn shrink(&mut self, bytes: u64) -> Vec<B> {
        let mut out = Vec::new();
        while self.bytes > bytes {
            let (size, block) = self.blocks.pop().expect("bytes are counted with their blocks");
            self.bytes -= size;
            out.push(block);
        }
        out
    }
}

#[derive(Default)]
struct State {
    free: FreeList<Buffer>,
    /// Bytes that tensors hold.
    live: u64,
    /// The most that they held since the last [`Pool::start`].
    peak: u64,
    /// Bytes that tensors and the free list may hold together; beyond it free buffers are given back.
    limit: u64,
}

/// The pool.
pub(crate) struct Pool {
    device: Arc<Device>,
    /// Every tensor has memory of its own, of its own size.
    exact: bool,
    state: Mutex<State>,
}

/// A buffer of the pool; goes back to it when dropped.
pub(crate) struct Pooled {
    /// Some until dropped.
    buffer: Option<Buffer>,
    pool: Weak<Pool>,
}

impl Pooled {
    /// The device address of byte `offset`.
    pub(crate) fn address(&self, offset: u64) -> u64 {
        self.buffer.as_ref().expect("there until dropped").address(offset)
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let buffer = self.buffer.take().expect("there until dropped");
        if let Some(pool) = self.pool.upgrade() {
            let mut state = pool.state();
            state.live -= buffer.bytes();
            if !pool.exact {
                state.free.put(buffer.bytes(), buffer);
            }
        }
    }
}

impl Pool {
    /// A pool; with `exact` nothing is rounded up or handed out again.
    pub(crate) fn new(device: Arc<Device>, exact: bool) -> Arc<Self> {
        let state = State { limit: u64::MAX, ..State::default() };
        Arc::new(Self { device, exact, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new stage begins: free buffers go back to the device, `limit` bytes may be held, the peak is counted anew.
    pub(crate) fn start(&self, limit: u64) {
        let mut state = self.state();
        state.limit = limit;
        state.peak = state.live;
        drop(state.free.shrink(0));
    }

    /// From now on tensors and free buffers may hold `limit` bytes together.
    pub(crate) fn allow(&self, limit: u64) {
        self.state().limit = limit;
    }

    /// Gives all free buffers back to the device.
    pub(crate) fn trim(&self) {
        let blocks = self.state().free.shrink(0);
        drop(blocks);
    }

    /// The most bytes that tensors held since the stage began.
    pub(crate) fn peak(&self) -> u64 {
        self.state().peak
    }

    /// Bytes that tensors hold.
    pub(crate) fn live(&self) -> u64 {
        self.state().live
    }

    /// A buffer of at least `bytes` bytes with undefined content.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when the device has none left even after the free buffers were given back.
    pub(crate) fn allocate(self: &Arc<Self>, bytes: u64, what: &str) -> Result<Pooled, Error> {
        let bytes = bytes.max(1).next_multiple_of(if self.exact { 1 } else { GRANULE });
        let reused = self.state().free.take(bytes).map(|(_, buffer)| buffer);
        let buffer = match reused {
            Some(buffer) => buffer,
            None => {
                let surplus = {
                    let mut state = self.state();
                    let room = state.limit.saturating_sub(state.live + bytes);
                    state.free.shrink(room)
                };
                drop(surplus);
                match self.device.allocate(bytes, what) {
                    Err(Error::OutOfMemory { .. }) => {
                        self.trim();
                        self.device.allocate(bytes, what)?
                    }
                    result => result?,
                }
            }
        };
        let mut state = self.state();
        state.live += buffer.bytes();
        state.peak = state.peak.max(state.live);
        Ok(Pooled { buffer: Some(buffer), pool: Arc::downgrade(self) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_fit_is_taken_but_nothing_much_larger() {
        let mut list = FreeList::default();
        for (bytes, name) in [(1000, "b"), (64, "a"), (1100, "c"), (5000, "d")] {
            list.put(bytes, name);
        }
        assert_eq!(list.take(65), None, "the next larger one would waste too much");
        assert_eq!(list.take(990), Some((1000, "b")));
        assert_eq!(list.take(990), Some((1100, "c")), "within an eighth");
        assert_eq!(list.take(990), None);
        assert_eq!(list.take(64), Some((64, "a")));
        assert_eq!(list.take(5001), None);
        assert_eq!(list.bytes, 5000);
    }

    #[test]
    fn shrinking_gives_the_largest_back_first() {
        let mut list = FreeList::default();
        for bytes in [10u64, 30, 20] {
            list.put(bytes, bytes);
        }
        assert_eq!(list.shrink(60), Vec::<u64>::new());
        assert_eq!(list.shrink(31), [30]);
        assert_eq!((list.bytes, list.blocks.len()), (30, 2));
        assert_eq!(list.shrink(0), [20, 10]);
        assert_eq!(list.bytes, 0);
    }
}
