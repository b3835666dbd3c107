//! `libcuda.so.1` for tests: device memory is host memory, copies run at once, launches are only written down.
//!
//! Every call is a line of the log that [`fakeLog`] gives. A call from a thread without the context fails with
//! `CUDA_ERROR_INVALID_CONTEXT`, as the driver's does. The environment:
//!
//! - `FAKE_CUDA_DEVICES`: number of devices, 1 by default
//! - `FAKE_CUDA_SHARED`: most shared memory of a block, 232448 by default
//! - `FAKE_CUDA_FAIL`: `cuMemAlloc_v2:3=2` makes the third call of a function fail with a code; several by commas

#![allow(unsafe_code)]

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

type Code = c_uint;
type Handle = *mut c_void;

const INVALID_VALUE: Code = 1;
const OUT_OF_MEMORY: Code = 2;
const INVALID_CONTEXT: Code = 201;
const INVALID_PTX: Code = 218;
const INVALID_HANDLE: Code = 400;
const NOT_FOUND: Code = 500;

/// The one context.
const CONTEXT: usize = 0xc0;
/// Bytes of device memory.
const MEMORY: usize = 4 << 30;

#[derive(Default)]
struct World {
    log: String,
    calls: HashMap<&'static str, u64>,
    fail: Vec<(String, u64, Code)>,
    initialised: bool,
    next: usize,
    device: BTreeMap<u64, Box<[u8]>>,
    pinned: BTreeMap<u64, Box<[u8]>>,
    streams: BTreeSet<usize>,
    events: BTreeSet<usize>,
    modules: BTreeMap<usize, String>,
    /// Name and dynamic shared memory that was asked for.
    functions: BTreeMap<usize, (String, c_int)>,
}

static WORLD: LazyLock<Mutex<World>> = LazyLock::new(|| {
    let fail = std::env::var("FAKE_CUDA_FAIL").unwrap_or_default();
    let parse = |text: &str| {
        let (name, rest) = text.split_once(':')?;
        let (n, code) = rest.split_once('=')?;
        Some((name.to_owned(), n.parse().ok()?, code.parse().ok()?))
    };
    let fail = fail.split(',').filter(|text| !text.is_empty());
    let fail = fail.map(|text| parse(text).expect("FAKE_CUDA_FAIL=NAME:N=CODE")).collect();
    Mutex::new(World { fail, next: 0x1000, ..World::default() })
});

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

fn world() -> MutexGuard<'static, World> {
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

fn number(name: &str, default: c_int) -> c_int {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

impl World {
    fn handle(&mut self) -> usize {
        self.next += 16;
        self.next
    }
}

/// Writes the call down and runs it, unless it is to fail. All but the first few need the context.
fn call(name: &'static str, with: &str, run: impl FnOnce(&mut World) -> Result<(), Code>) -> Code {
    let world = &mut *world();
    world.log += &format!("{name}{}{with}\n", if with.is_empty() { "" } else { " " });
    let n = world.calls.entry(name).or_default();
    *n += 1;
    let n = *n;
    if let Some((_, _, code)) = world.fail.iter().find(|(f, at, _)| f == name && *at == n) {
        return *code;
    }
    let free = ["cuInit", "cuDevice", "cuCtxSetCurrent", "cuGet"];
    if !free.iter().any(|start| name.starts_with(start)) && CURRENT.get() != CONTEXT {
        return INVALID_CONTEXT;
    }
    if !world.initialised && !["cuInit", "cuGetErrorName"].contains(&name) {
        return 3;
    }
    run(world).err().unwrap_or(0)
}

/// Writes a result where the caller wants it.
fn put<T>(out: *mut T, value: T) -> Result<(), Code> {
    if out.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: not null; the caller promises room for one value.
    unsafe { out.write(value) };
    Ok(())
}

fn text(p: *const c_char) -> String {
    // SAFETY: the caller promises a text that ends with a zero byte.
    unsafe { CStr::from_ptr(p) }.to_string_lossy().into_owned()
}

fn known<T>(found: Option<T>) -> Result<(), Code> {
    found.map(drop).ok_or(INVALID_HANDLE)
}

/// Whether a range lies in a block of device memory.
fn device(world: &World, address: u64, bytes: usize) -> bool {
    let found = world.device.range(..=address).next_back();
    found.is_some_and(|(start, block)| address + bytes as u64 <= start + block.len() as u64)
}

macro_rules! exports {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $t:ty),*) -> $ret:ty $body:block)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// Pointers must be what CUDA's documentation asks for.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $name($($arg: $t),*) -> $ret $body
    )*};
}

exports! {
    /// The calls since the last time, a line each; no function of CUDA's.
    fn fakeLog() -> *mut c_char {
        let log = std::mem::take(&mut world().log);
        CString::new(log).expect("no zero byte").into_raw()
    }

    /// Initialises.
    fn cuInit(flags: c_uint) -> Code {
        call("cuInit", "", |w| {
            w.initialised = true;
            if flags == 0 { Ok(()) } else { Err(INVALID_VALUE) }
        })
    }

    /// `FAKE_CUDA_DEVICES`.
    fn cuDeviceGetCount(out: *mut c_int) -> Code {
        call("cuDeviceGetCount", "", |_| put(out, number("FAKE_CUDA_DEVICES", 1)))
    }

    /// The device of a number.
    fn cuDeviceGet(out: *mut c_int, index: c_int) -> Code {
        call("cuDeviceGet", &index.to_string(), |_| put(out, 7 + index))
    }

    /// `NVIDIA Fake`.
    fn cuDeviceGetName(out: *mut c_char, bytes: c_int, device: c_int) -> Code {
        call("cuDeviceGetName", &device.to_string(), |_| {
            let name = b"NVIDIA Fake\0";
            if (bytes as usize) < name.len() {
                return Err(INVALID_VALUE);
            }
            // SAFETY: as many bytes as the caller has room for, at most.
            unsafe { std::ptr::copy_nonoverlapping(name.as_ptr(), out.cast(), name.len()) };
            Ok(())
        })
    }

    /// Bytes of device memory.
    fn cuDeviceTotalMem_v2(out: *mut usize, device: c_int) -> Code {
        call("cuDeviceTotalMem_v2", &device.to_string(), |_| put(out, MEMORY))
    }

    /// Each has another value.
    fn cuDeviceGetAttribute(out: *mut c_int, which: c_int, device: c_int) -> Code {
        call("cuDeviceGetAttribute", &format!("{which} {device}"), |_| {
            let value = match which {
                1 => 1024,
                10 => 32,
                16 => 132,
                18 => 0,
                33 => 0x1b,
                34 => 2,
                50 => 3,
                97 => number("FAKE_CUDA_SHARED", 232_448),
                _ => return Err(INVALID_VALUE),
            };
            put(out, value)
        })
    }

    /// The one context.
    fn cuDevicePrimaryCtxRetain(out: *mut Handle, device: c_int) -> Code {
        call("cuDevicePrimaryCtxRetain", &device.to_string(), |_| put(out, CONTEXT as Handle))
    }

    /// Makes it the thread's.
    fn cuCtxSetCurrent(context: Handle) -> Code {
        call("cuCtxSetCurrent", "", |_| {
            CURRENT.set(context as usize);
            Ok(())
        })
    }

    /// Nothing is ever queued.
    fn cuCtxSynchronize() -> Code {
        call("cuCtxSynchronize", "", |_| Ok(()))
    }

    /// Free and total bytes.
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Code {
        call("cuMemGetInfo_v2", "", |w| {
            put(free, MEMORY - w.device.values().map(|block| block.len()).sum::<usize>())?;
            put(total, MEMORY)
        })
    }

    /// Host memory that counts as the device's.
    fn cuMemAlloc_v2(out: *mut u64, bytes: usize) -> Code {
        call("cuMemAlloc_v2", &bytes.to_string(), |w| {
            let used: usize = w.device.values().map(|block| block.len()).sum();
            if bytes == 0 {
                return Err(INVALID_VALUE);
            }
            if used + bytes > MEMORY {
                return Err(OUT_OF_MEMORY);
            }
            // As floats: finite, and not all equal, for what kernels that do not run should have written.
            let mut block: Box<[u8]> = (0..bytes).map(|i| (i % 61) as u8).collect();
            let address = block.as_mut_ptr() as u64;
            w.device.insert(address, block);
            put(out, address)
        })
    }

    /// Frees it.
    fn cuMemFree_v2(address: u64) -> Code {
        call("cuMemFree_v2", "", |w| w.device.remove(&address).map(drop).ok_or(INVALID_VALUE))
    }

    /// Host memory that counts as pinned.
    fn cuMemHostAlloc(out: *mut Handle, bytes: usize, flags: c_uint) -> Code {
        call("cuMemHostAlloc", &format!("{bytes} flags {flags}"), |w| {
            let mut block = vec![0u8; bytes].into_boxed_slice();
            let address = block.as_mut_ptr();
            w.pinned.insert(address as u64, block);
            put(out, address.cast())
        })
    }

    /// Frees it.
    fn cuMemFreeHost(pointer: Handle) -> Code {
        call("cuMemFreeHost", "", |w| w.pinned.remove(&(pointer as u64)).map(drop).ok_or(INVALID_VALUE))
    }

    /// Copies at once; one side at least is the device's.
    fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: Handle) -> Code {
        call("cuMemcpyAsync", &format!("{bytes} stream {stream:?}"), |w| {
            known(w.streams.get(&(stream as usize)))?;
            if !device(w, to, bytes) && !device(w, from, bytes) {
                return Err(INVALID_VALUE);
            }
            // SAFETY: device ranges lie in blocks, checked by the library under test; the host's are the caller's promise.
            unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) };
            Ok(())
        })
    }

    /// A stream.
    fn cuStreamCreate(out: *mut Handle, flags: c_uint) -> Code {
        call("cuStreamCreate", &format!("flags {flags}"), |w| {
            let handle = w.handle();
            w.streams.insert(handle);
            put(out, handle as Handle)
        })
    }

    /// Forgets it.
    fn cuStreamDestroy_v2(stream: Handle) -> Code {
        call("cuStreamDestroy_v2", "", |w| known(w.streams.take(&(stream as usize))))
    }

    /// Nothing to wait for.
    fn cuStreamWaitEvent(stream: Handle, event: Handle, flags: c_uint) -> Code {
        call("cuStreamWaitEvent", &format!("flags {flags}"), |w| {
            known(w.streams.get(&(stream as usize)))?;
            known(w.events.get(&(event as usize)))
        })
    }

    /// An event.
    fn cuEventCreate(out: *mut Handle, flags: c_uint) -> Code {
        call("cuEventCreate", &format!("flags {flags}"), |w| {
            let handle = w.handle();
            w.events.insert(handle);
            put(out, handle as Handle)
        })
    }

    /// Forgets it.
    fn cuEventDestroy_v2(event: Handle) -> Code {
        call("cuEventDestroy_v2", "", |w| known(w.events.take(&(event as usize))))
    }

    /// Nothing to mark.
    fn cuEventRecord(event: Handle, stream: Handle) -> Code {
        call("cuEventRecord", "", |w| {
            known(w.streams.get(&(stream as usize)))?;
            known(w.events.get(&(event as usize)))
        })
    }

    /// Always done, unless it is to fail with 600.
    fn cuEventQuery(event: Handle) -> Code {
        call("cuEventQuery", "", |w| known(w.events.get(&(event as usize))))
    }

    /// Any text with an entry; else the log says what is wrong.
    fn cuModuleLoadDataEx(
        out: *mut Handle, image: *const c_void, count: c_uint, options: *mut c_uint, values: *mut Handle
    ) -> Code {
        // SAFETY: as many options and values as the caller says.
        let options = unsafe { std::slice::from_raw_parts(options, count as usize) };
        // SAFETY: as above.
        let values = unsafe { std::slice::from_raw_parts(values, count as usize) };
        call("cuModuleLoadDataEx", &format!("options {options:?}"), |w| {
            let ptx = text(image.cast());
            if ptx.contains("broken") {
                let message = b"line 2: fatal\nsyntax error\0";
                let at = options.iter().position(|&option| option == 5).ok_or(INVALID_PTX)?;
                // SAFETY: the log of option 5 has room for more than this.
                unsafe { std::ptr::copy_nonoverlapping(message.as_ptr(), values[at].cast(), message.len()) };
                return Err(INVALID_PTX);
            }
            let handle = w.handle();
            w.modules.insert(handle, ptx);
            put(out, handle as Handle)
        })
    }

    /// Forgets a module.
    fn cuModuleUnload(module: Handle) -> Code {
        call("cuModuleUnload", "", |w| known(w.modules.remove(&(module as usize))))
    }

    /// A function that the text has an entry for.
    fn cuModuleGetFunction(out: *mut Handle, module: Handle, name: *const c_char) -> Code {
        let name = text(name);
        call("cuModuleGetFunction", &name.clone(), |w| {
            let ptx = w.modules.get(&(module as usize)).ok_or(INVALID_HANDLE)?;
            if !ptx.contains(&format!(".entry {name}(")) {
                return Err(NOT_FOUND);
            }
            let handle = w.handle();
            w.functions.insert(handle, (name, 48 << 10));
            put(out, handle as Handle)
        })
    }

    /// Attribute 8, the most dynamic shared memory.
    fn cuFuncSetAttribute(function: Handle, which: c_int, value: c_int) -> Code {
        call("cuFuncSetAttribute", &format!("{which} {value}"), |w| {
            let found = w.functions.get_mut(&(function as usize)).ok_or(INVALID_HANDLE)?;
            if which != 8 || value > number("FAKE_CUDA_SHARED", 232_448) {
                return Err(INVALID_VALUE);
            }
            found.1 = value;
            Ok(())
        })
    }

    /// Writes the launch down with its argument block.
    fn cuLaunchKernel(
        function: Handle, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint,
        stream: Handle, parameters: *mut Handle, extra: *mut Handle
    ) -> Code {
        // SAFETY: the caller promises pairs of key and value that a null key closes; five entries are read.
        let extra = unsafe { std::slice::from_raw_parts(extra, 5) };
        let closed = extra[0] as usize == 1 && extra[2] as usize == 2 && extra[4].is_null() && parameters.is_null();
        let block = if closed {
            // SAFETY: the block and a pointer to its size, by the keys above.
            unsafe { std::slice::from_raw_parts(extra[1].cast::<u8>(), *extra[3].cast::<usize>()) }.to_vec()
        } else {
            Vec::new()
        };
        let name = world().functions.get(&(function as usize)).map_or("?".to_owned(), |(name, _)| name.clone());
        let grid = format!("{name} grid {gx} {gy} {gz} block {bx} {by} {bz} shared {shared} arguments {block:02x?}");
        call("cuLaunchKernel", &grid, |w| {
            known(w.streams.get(&(stream as usize)))?;
            let (_, most) = w.functions.get(&(function as usize)).ok_or(INVALID_HANDLE)?;
            if closed && i64::from(shared) <= i64::from(*most) { Ok(()) } else { Err(INVALID_VALUE) }
        })
    }

    /// `CUDA_ERROR_` and the number.
    fn cuGetErrorName(error: Code, out: *mut *const c_char) -> Code {
        call("cuGetErrorName", &error.to_string(), |_| {
            put(out, match error {
                716 => c"CUDA_ERROR_MISALIGNED_ADDRESS".as_ptr(),
                218 => c"CUDA_ERROR_INVALID_PTX".as_ptr(),
                _ => return Err(INVALID_VALUE),
            })
        })
    }
}
