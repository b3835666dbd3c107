//! Device memory: a table of exact allocations over host memory.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    collections::BTreeMap,
    ptr,
    sync::{
        RwLock,
        atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering::Relaxed},
    },
};

/// Alignment of every allocation, bytes.
const ALIGN: usize = 256;
/// What fresh device memory holds: a NaN in bf16, f16 and f32.
const POISON: u8 = 0xff;

/// An address range that kernels may touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) writable: bool,
}

struct Block {
    len: u64,
    writable: bool,
    /// Host memory that this table owns and frees.
    layout: Option<Layout>,
}

/// The address space that kernels see. A device pointer is the host address of its bytes.
#[derive(Default)]
pub struct Memory {
    blocks: RwLock<BTreeMap<u64, Block>>,
}

/// An address that is not the start of an allocation, or a range outside of all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{size} bytes at {address:#x} are not inside one allocation")]
pub struct NotAllocated {
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

impl Memory {
    /// An empty address space.
    pub fn new() -> Self {
        Self::default()
    }

    /// Allocates `len` bytes filled with 0xff (NaN in every float format); the bound is exact.
    pub fn alloc(&self, len: u64) -> u64 {
        let layout = Layout::from_size_align(len.max(1) as usize, ALIGN).expect("size fits");
        #[allow(unsafe_code)]
        // SAFETY: the layout's size is not zero, and the fill stays inside of it.
        let p = unsafe {
            let p = alloc_zeroed(layout);
            if p.is_null() {
                std::alloc::handle_alloc_error(layout);
            }
            ptr::write_bytes(p, POISON, layout.size());
            p
        };
        let address = p as u64;
        self.insert(address, Block { len, writable: true, layout: Some(layout) });
        address
    }

    /// Allocates and fills.
    pub fn alloc_from(&self, bytes: &[u8]) -> u64 {
        let address = self.alloc(bytes.len() as u64);
        self.write(address, bytes).expect("just allocated");
        address
    }

    /// Makes foreign host memory visible to kernels until [`Memory::free`].
    ///
    /// # Safety
    /// `len` bytes at `address` must stay valid and be accessed by nobody else during launches.
    #[allow(unsafe_code)]
    pub unsafe fn map(&self, address: u64, len: u64, writable: bool) {
        self.insert(address, Block { len, writable, layout: None });
    }

    fn insert(&self, address: u64, block: Block) {
        self.blocks.write().expect("no panic holds the table").insert(address, block);
    }

    /// Frees an allocation; false when `address` does not start one.
    pub fn free(&self, address: u64) -> bool {
        let Some(block) = self.blocks.write().expect("no panic holds the table").remove(&address) else {
            return false;
        };
        if let Some(layout) = block.layout {
            #[allow(unsafe_code)]
            // SAFETY: allocated by `alloc` with this layout, and just removed from the table.
            unsafe {
                dealloc(address as *mut u8, layout);
            }
        }
        true
    }

    /// Bytes from `address` to the end of the allocation it lies in.
    pub fn room(&self, address: u64) -> Option<u64> {
        let blocks = self.blocks.read().expect("no panic holds the table");
        let (start, block) = blocks.range(..=address).next_back()?;
        (start + block.len).checked_sub(address)
    }

    fn check(&self, address: u64, size: u64) -> Result<(), NotAllocated> {
        match self.room(address) {
            Some(room) if room >= size => Ok(()),
            _ => Err(NotAllocated { address, size }),
        }
    }

    /// Copies host bytes to the device.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), NotAllocated> {
        self.check(address, bytes.len() as u64)?;
        #[allow(unsafe_code)]
        // SAFETY: the range is inside an allocation, which the caller's slice cannot overlap.
        unsafe {
            ptr::copy(bytes.as_ptr(), address as *mut u8, bytes.len());
        }
        Ok(())
    }

    /// Copies device bytes to the host.
    pub fn read(&self, address: u64, len: u64) -> Result<Vec<u8>, NotAllocated> {
        self.check(address, len)?;
        let mut out = vec![0u8; len as usize];
        #[allow(unsafe_code)]
        // SAFETY: the range is inside an allocation and `out` has `len` bytes.
        unsafe {
            ptr::copy(address as *const u8, out.as_mut_ptr(), out.len());
        }
        Ok(out)
    }

    /// The ranges at this moment, in ascending order.
    pub(crate) fn ranges(&self) -> Vec<Range> {
        let blocks = self.blocks.read().expect("no panic holds the table");
        let range = |(&start, b): (&u64, &Block)| Range { start, end: start + b.len, writable: b.writable };
        blocks.iter().map(range).collect()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let starts: Vec<u64> = self.ranges().iter().map(|r| r.start).collect();
        for start in starts {
            self.free(start);
        }
    }
}

/// One thread's view of the ranges, with the last hit at hand.
pub(crate) struct View<'a> {
    ranges: &'a [Range],
    last: usize,
}

impl<'a> View<'a> {
    pub(crate) fn new(ranges: &'a [Range]) -> Self {
        View { ranges, last: 0 }
    }

    /// The allocation that the bytes lie in, and its place in the table.
    #[inline(always)]
    pub(crate) fn find(&mut self, address: u64, size: u32) -> Option<(usize, &'a Range)> {
        let inside = |r: &Range| address >= r.start && address + u64::from(size) <= r.end;
        if let Some(r) = self.ranges.get(self.last)
            && inside(r)
        {
            return Some((self.last, r));
        }
        let n = self.ranges.partition_point(|r| r.start <= address).checked_sub(1)?;
        let hit = inside(&self.ranges[n]);
        if hit {
            self.last = n;
        }
        hit.then(|| (n, &self.ranges[n]))
    }

    /// The allocation next to a bad address, in words.
    pub(crate) fn nearest(&self, address: u64) -> String {
        let n = self.ranges.partition_point(|r| r.start <= address);
        let below = n.checked_sub(1).map(|i| &self.ranges[i]);
        let above = self.ranges.get(n);
        let after = below.map(|r| (address.saturating_sub(r.end), r, "after the end"));
        let before = above.map(|r| (r.start - address, r, "before the start"));
        match [after, before].into_iter().flatten().min_by_key(|(d, ..)| *d) {
            Some((d, r, side)) => {
                format!("{d} bytes {side} of {:#x}+{}", r.start, r.end - r.start)
            }
            None => "there are no allocations".to_owned(),
        }
    }
}

/// Loads a dword from any address that [`View::find`] accepted.
#[inline(always)]
pub(crate) fn load32(address: u64) -> u32 {
    if !address.is_multiple_of(4) {
        return (0..4).fold(0, |v, n| v | u32::from(load8(address + n)) << (8 * n));
    }
    #[allow(unsafe_code)]
    // SAFETY: the caller checked bounds, the address is a multiple of four; relaxed atomics allow racing workgroups.
    unsafe {
        AtomicU32::from_ptr(address as *mut u32).load(Relaxed)
    }
}

/// Stores a dword at any address that [`View::find`] accepted as writable.
#[inline(always)]
pub(crate) fn store32(address: u64, v: u32) {
    if !address.is_multiple_of(4) {
        return (0..4).for_each(|n| store8(address + n, (v >> (8 * n)) as u8));
    }
    #[allow(unsafe_code)]
    // SAFETY: as in `load32`.
    unsafe {
        AtomicU32::from_ptr(address as *mut u32).store(v, Relaxed);
    }
}

/// Loads 16 bits from an even address.
#[inline(always)]
pub(crate) fn load16(address: u64) -> u16 {
    #[allow(unsafe_code)]
    // SAFETY: the caller checked bounds and alignment.
    unsafe {
        AtomicU16::from_ptr(address as *mut u16).load(Relaxed)
    }
}

/// Stores 16 bits at an even address.
#[inline(always)]
pub(crate) fn store16(address: u64, v: u16) {
    #[allow(unsafe_code)]
    // SAFETY: as in `load16`.
    unsafe {
        AtomicU16::from_ptr(address as *mut u16).store(v, Relaxed);
    }
}

/// Loads a byte; see [`load32`].
#[inline(always)]
pub(crate) fn load8(address: u64) -> u8 {
    #[allow(unsafe_code)]
    // SAFETY: as in `load32`.
    unsafe {
        AtomicU8::from_ptr(address as *mut u8).load(Relaxed)
    }
}

/// Stores a byte; see [`store32`].
#[inline(always)]
pub(crate) fn store8(address: u64, v: u8) {
    #[allow(unsafe_code)]
    // SAFETY: as in `load32`.
    unsafe {
        AtomicU8::from_ptr(address as *mut u8).store(v, Relaxed);
    }
}
