//! A HIP runtime for tests of the host code: device memory is host memory, and queued work runs as late, or as early, as the
//! order that was asked for allows. A missing wait therefore moves wrong bytes, every time.

#![allow(unsafe_code)]

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::device::Device;
use crate::discover::DeviceInfo;
use crate::sys::{self, Api, Code, Functions, Handle, Properties};

enum Op {
    Copy { to: usize, from: usize, bytes: usize },
    Wait { event: usize, version: u64 },
    Record { event: usize, version: u64 },
}

#[derive(Default)]
struct EventState {
    issued: u64,
    done: u64,
}

/// When queued work runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Only when somebody waits for it.
    Late,
    /// The streams made after the first (the copies) as soon as their order allows, the first late.
    CopiesEarly,
    /// The first stream as soon as its order allows, the copies late.
    ComputeEarly,
}

#[derive(Default)]
struct World {
    policy: Option<Policy>,
    next: usize,
    streams: BTreeMap<usize, VecDeque<Op>>,
    events: HashMap<usize, EventState>,
    /// Device allocations by address.
    memory: BTreeMap<usize, Box<[u8]>>,
    pinned: BTreeMap<usize, Box<[u8]>>,
    capacity: usize,
    pin_capacity: usize,
    /// Events that never finish.
    hang: bool,
    /// Device allocations so far, and the one that fails.
    allocations: usize,
    fail_at: Option<usize>,
    /// All later ones fail too.
    fail_onwards: bool,
    faults: Vec<String>,
}

static WORLD: Mutex<Option<World>> = Mutex::new(None);
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn with<R>(work: impl FnOnce(&mut World) -> R) -> R {
    let mut world = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
    work(world.as_mut().expect("a fake runtime was started"))
}

impl World {
    fn handle(&mut self) -> usize {
        self.next += 1;
        self.next
    }

    fn used(&self) -> usize {
        self.memory.values().map(|block| block.len()).sum()
    }

    /// The byte range must lie in one allocation, of the device or of pinned memory; plain host memory is not known here.
    fn check(&mut self, address: usize, bytes: usize, what: &str) {
        let inside = self
            .memory
            .range(..=address)
            .next_back()
            .is_some_and(|(start, block)| address + bytes <= start + block.len());
        if !inside {
            self.faults.push(format!("{what}: {bytes} bytes at {address:#x} are not device memory"));
        }
    }

    fn enqueue(&mut self, stream: usize, op: Op) {
        self.streams.get_mut(&stream).expect("a live stream").push_back(op);
        self.run_early();
    }

    fn run_early(&mut self) {
        let streams: Vec<usize> = self.streams.keys().copied().collect();
        let early = match self.policy {
            Some(Policy::CopiesEarly) => &streams[1..],
            Some(Policy::ComputeEarly) => &streams[..1],
            _ => &[],
        };
        // A stream that waits for another makes no progress here; the other runs late.
        let mut progress = true;
        while progress {
            progress = early.iter().any(|&stream| self.step(stream));
        }
    }

    /// Runs the first operation of a stream if its order allows.
    fn step(&mut self, stream: usize) -> bool {
        let Some(op) = self.streams[&stream].front() else { return false };
        match *op {
            Op::Wait { event, version } if self.events[&event].done < version => return false,
            Op::Wait { .. } => {}
            Op::Record { event, version } => {
                let state = self.events.get_mut(&event).expect("a live event");
                state.done = state.done.max(version);
            }
            // SAFETY: both ranges were checked or belong to the caller of the copy, who keeps them until it has run.
            Op::Copy { to, from, bytes } => unsafe {
                std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes);
            },
        }
        self.streams.get_mut(&stream).expect("a live stream").pop_front();
        true
    }

    /// Runs what an event marks, and what that waits for, and nothing else.
    fn run_for(&mut self, event: usize, version: u64) {
        while self.events[&event].done < version {
            let holder = self.streams.iter().find_map(|(&stream, ops)| {
                let records = |op: &Op| matches!(*op, Op::Record { event: e, version: v } if e == event && v == version);
                ops.iter().any(records).then_some(stream)
            });
            let Some(stream) = holder else {
                self.faults.push("a wait for an event that nobody will record".into());
                return;
            };
            if !self.step(stream) {
                let Some(&Op::Wait { event, version }) = self.streams[&stream].front() else { return };
                self.run_for(event, version);
            }
        }
        self.run_early();
    }

    fn run_all(&mut self) {
        let streams: Vec<usize> = self.streams.keys().copied().collect();
        while streams.iter().any(|&stream| self.step(stream)) {}
    }
}

/// Writes a result where the caller wants it.
fn put<T>(out: *mut T, value: T) {
    // SAFETY: every caller passes the address of a live variable, as the interface asks.
    unsafe { *out = value }
}

unsafe extern "C" fn zero_flags(_: c_uint) -> Code {
    0
}
unsafe extern "C" fn version(out: *mut c_int) -> Code {
    put(out, 70_000_001);
    0
}
unsafe extern "C" fn count(out: *mut c_int) -> Code {
    put(out, 1);
    0
}
unsafe extern "C" fn properties(_: *mut Properties, _: c_int) -> Code {
    0
}
unsafe extern "C" fn set_device(_: c_int) -> Code {
    0
}
unsafe extern "C" fn reset() -> Code {
    0
}
unsafe extern "C" fn mem_info(free: *mut usize, total: *mut usize) -> Code {
    with(|w| {
        put(free, w.capacity - w.used());
        put(total, w.capacity);
    });
    0
}
unsafe extern "C" fn malloc(out: *mut *mut c_void, bytes: usize) -> Code {
    with(|w| {
        w.allocations += 1;
        let fails = w.fail_at.is_some_and(|n| w.allocations == n || w.fail_onwards && w.allocations > n);
        if fails || w.used() + bytes > w.capacity {
            return sys::OUT_OF_MEMORY;
        }
        let mut block = vec![0xA5u8; bytes].into_boxed_slice();
        let address = block.as_mut_ptr() as usize;
        w.memory.insert(address, block);
        put(out, address as *mut c_void);
        0
    })
}
unsafe extern "C" fn free(pointer: *mut c_void) -> Code {
    with(|w| {
        w.run_all();
        match w.memory.remove(&(pointer as usize)) {
            Some(_) => 0,
            None => {
                w.faults.push(format!("free of {pointer:?}"));
                1
            }
        }
    })
}
unsafe extern "C" fn host_malloc(out: *mut *mut c_void, bytes: usize, _: c_uint) -> Code {
    with(|w| {
        let used: usize = w.pinned.values().map(|block| block.len()).sum();
        if used + bytes > w.pin_capacity {
            return sys::OUT_OF_MEMORY;
        }
        let mut block = vec![0u8; bytes].into_boxed_slice();
        let address = block.as_mut_ptr() as usize;
        w.pinned.insert(address, block);
        put(out, address as *mut c_void);
        0
    })
}
unsafe extern "C" fn host_free(pointer: *mut c_void) -> Code {
    with(|w| {
        let address = pointer as usize;
        let Some(block) = w.pinned.remove(&address) else {
            w.faults.push(format!("host free of {pointer:?}"));
            return 1;
        };
        let range = address..address + block.len();
        let reads = |op: &Op| matches!(op, Op::Copy { from, .. } if range.contains(from));
        if w.streams.values().flatten().any(reads) {
            w.faults.push("pinned memory freed before a copy from it has run".into());
        }
        0
    })
}
unsafe extern "C" fn copy(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    kind: c_uint,
    stream: Handle,
) -> Code {
    with(|w| {
        if kind != sys::DEVICE_TO_HOST {
            w.check(to as usize, bytes, "copy to");
        }
        if kind != sys::HOST_TO_DEVICE {
            w.check(from as usize, bytes, "copy from");
        }
        w.enqueue(stream as usize, Op::Copy { to: to as usize, from: from as usize, bytes });
    });
    0
}
unsafe extern "C" fn stream_create(out: *mut Handle, _: c_uint) -> Code {
    with(|w| {
        let handle = w.handle();
        w.streams.insert(handle, VecDeque::new());
        put(out, handle as Handle);
    });
    0
}
unsafe extern "C" fn stream_destroy(stream: Handle) -> Code {
    with(|w| {
        w.run_all();
        w.streams.remove(&(stream as usize));
    });
    0
}
unsafe extern "C" fn stream_wait(stream: Handle, event: Handle, _: c_uint) -> Code {
    with(|w| {
        let event = event as usize;
        let version = w.events[&event].issued;
        w.enqueue(stream as usize, Op::Wait { event, version });
    });
    0
}
unsafe extern "C" fn event_create(out: *mut Handle, _: c_uint) -> Code {
    with(|w| {
        let handle = w.handle();
        w.events.insert(handle, EventState::default());
        put(out, handle as Handle);
    });
    0
}
unsafe extern "C" fn event_destroy(event: Handle) -> Code {
    with(|w| {
        w.run_all();
        w.events.remove(&(event as usize));
    });
    0
}
unsafe extern "C" fn event_record(event: Handle, stream: Handle) -> Code {
    with(|w| {
        let event = event as usize;
        let state = w.events.get_mut(&event).expect("a live event");
        state.issued += 1;
        let version = state.issued;
        w.enqueue(stream as usize, Op::Record { event, version });
    });
    0
}
unsafe extern "C" fn event_query(event: Handle) -> Code {
    with(|w| {
        if w.hang {
            return sys::NOT_READY;
        }
        let event = event as usize;
        let version = w.events[&event].issued;
        w.run_for(event, version);
        if w.events[&event].done >= version { 0 } else { sys::NOT_READY }
    })
}
unsafe extern "C" fn load(out: *mut Handle, _: *const c_void) -> Code {
    put(out, 1 as Handle);
    0
}
unsafe extern "C" fn unload(_: Handle) -> Code {
    0
}
unsafe extern "C" fn get_function(out: *mut Handle, _: Handle, name: *const c_char) -> Code {
    // SAFETY: the caller passes a string that ends with a zero byte.
    if unsafe { CStr::from_ptr(name) } == c"missing" {
        return 500;
    }
    put(out, 2 as Handle);
    0
}
unsafe extern "C" fn launch(
    _: Handle,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: Handle,
    _: *mut *mut c_void,
    _: *mut *mut c_void,
) -> Code {
    719
}
unsafe extern "C" fn text(_: Code) -> *const c_char {
    c"fake".as_ptr()
}

/// A started fake runtime; tests with one run one after another.
pub(crate) struct Fake {
    pub(crate) device: Arc<Device>,
    _turn: MutexGuard<'static, ()>,
}

impl Fake {
    /// A device with `capacity` bytes and as much pinned memory.
    pub(crate) fn start(policy: Policy, capacity: usize) -> Self {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        *WORLD.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(World { policy: Some(policy), capacity, pin_capacity: capacity, ..World::default() });
        let functions = Functions {
            init: zero_flags,
            runtime_version: version,
            device_count: count,
            device_properties: properties,
            set_device,
            device_reset: reset,
            mem_info,
            malloc,
            free,
            host_malloc,
            host_free,
            memcpy_async: copy,
            stream_create,
            stream_destroy,
            stream_wait_event: stream_wait,
            event_create,
            event_destroy,
            event_record,
            event_query,
            module_load_data: load,
            module_unload: unload,
            module_get_function: get_function,
            launch,
            error_name: text,
            error_string: text,
        };
        let info = DeviceInfo {
            index: 0,
            name: "fake".into(),
            arch: "gfx1200".into(),
            compute_units: 32,
            memory: 16 << 30,
            warp_size: 32,
            integrated: false,
            pci: "0000:03:00.0".into(),
        };
        let api = Api { functions, path: "fake".into(), standing: sys::Standing::Card };
        let device = Device::open(api, info, Duration::from_millis(200), false).unwrap();
        Self { device, _turn: turn }
    }

    /// Allocation `n` from now on fails (1 is the next).
    pub(crate) fn fail_allocation(&self, n: usize) {
        with(|w| w.fail_at = Some(w.allocations + n));
    }

    /// Allocation `n` from now and all later ones fail.
    pub(crate) fn fail_allocations_from(&self, n: usize) {
        self.fail_allocation(n);
        with(|w| w.fail_onwards = true);
    }

    pub(crate) fn refuse_pins(&self) {
        with(|w| w.pin_capacity = 0);
    }

    pub(crate) fn hang(&self) {
        with(|w| w.hang = true);
    }

    pub(crate) fn device_bytes(&self) -> usize {
        with(|w| w.used())
    }

    /// What went wrong below the interface.
    pub(crate) fn faults(&self) -> Vec<String> {
        with(|w| std::mem::take(&mut w.faults))
    }
}
