//! `libamdhip64.so` without a card: the HIP functions that moss calls, over the RDNA emulator.
//!
//! Put it into a folder of `LD_LIBRARY_PATH` as `libamdhip64.so.7` and name a target in `MOSS_EMULATE`; see
//! [`config`] for the switches. Results are emulated: they prove code, not a card.

#![allow(unsafe_code)]

pub mod config;
mod device;
pub mod runtime;

use std::{
    cell::Cell,
    ffi::{CStr, CString, c_char, c_int, c_uint, c_void},
    sync::{LazyLock, Mutex, MutexGuard},
};

use config::Config;
use runtime::{Code, INVALID_VALUE, NO_DEVICE, NOT_SUPPORTED, Outcome, Runtime, SUCCESS};

/// What this library is, and how it sums matrix products.
static STANDING: LazyLock<CString> = LazyLock::new(|| {
    let sums = runtime().config.options.model.name();
    CString::new(format!("emulated {sums}")).expect("a model's name has no zero byte")
});

/// A line for whoever watches the emulated device.
fn say(text: &str) {
    eprintln!("moss-emulator: {text}");
}

/// Copies bytes between addresses that the caller has checked or vouched for.
fn copy(from: u64, to: u64, len: u64) {
    // SAFETY: device and pinned ranges were checked against the allocation table; pageable ranges are the
    // caller's promise of hipMemcpy. The ranges may overlap.
    unsafe { std::ptr::copy(from as *const u8, to as *mut u8, len as usize) }
}

/// Bytes at an address that the caller vouches for.
fn bytes_of(address: u64, len: u64) -> Vec<u8> {
    // SAFETY: the caller of the HIP function promises `len` readable bytes.
    unsafe { std::slice::from_raw_parts(address as *const u8, len as usize) }.to_vec()
}

static RUNTIME: LazyLock<Mutex<Runtime>> = LazyLock::new(|| {
    let config = Config::from_env(|name| std::env::var(name).ok()).unwrap_or_else(|e| {
        say(&format!("{e}; no device is emulated"));
        Config::from_env(|_| None).expect("an empty environment is valid")
    });
    if config.stats {
        unsafe extern "C" {
            fn atexit(call: extern "C" fn()) -> c_int;
        }
        // SAFETY: the C library's atexit, with a function that lives as long as the process.
        unsafe { atexit(report) };
    }
    Mutex::new(Runtime::new(config))
});

extern "C" fn report() {
    let r = runtime();
    let (s, mallocs) = (r.stats, r.mallocs());
    drop(r);
    let rate = if s.seconds > 0.0 { s.instructions as f64 / s.seconds / 1e6 } else { 0.0 };
    say(&format!(
        "{} launches, {} wave instructions in {:.2} s, {rate:.2} M/s, {} bytes copied, {mallocs} allocations (emulated)",
        s.launches, s.instructions, s.seconds, s.copied
    ));
}

/// Never comes back when calls of this function shall block.
fn may_block(function: &str) {
    if runtime().config.block.as_deref() == Some(function) {
        say(&format!("{function} blocks"));
        loop {
            std::thread::park();
        }
    }
}

fn runtime() -> MutexGuard<'static, Runtime> {
    RUNTIME.lock().unwrap_or_else(|e| e.into_inner())
}

thread_local! {
    static DEVICE: Cell<usize> = const { Cell::new(0) };
    static LAST: Cell<Code> = const { Cell::new(SUCCESS) };
}

/// Result code, remembered for `hipGetLastError`; NotReady is no error.
fn code(outcome: Outcome) -> Code {
    let code = outcome.err().unwrap_or(SUCCESS);
    if code != SUCCESS && code != runtime::NOT_READY {
        LAST.set(code);
    }
    code
}

/// Runs `f`, and stores its value where the caller wants it.
fn store<T>(out: *mut T, f: impl FnOnce(&mut Runtime) -> Outcome<T>) -> Code {
    if out.is_null() {
        return code(Err(INVALID_VALUE));
    }
    code(f(&mut runtime()).map(|v| {
        // SAFETY: not null; the caller of the HIP function promises room for one value.
        unsafe { out.write(v) }
    }))
}

fn handle(h: *mut c_void) -> u64 {
    h as u64
}

fn opaque(h: u64) -> *mut c_void {
    h as *mut c_void
}

macro_rules! exports {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $t:ty),*) -> $ret:ty $body:block)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// Pointers must be what HIP's documentation asks for.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case)]
            pub unsafe extern "C" fn $name($($arg: $t),*) -> $ret $body
        )*
    };
}

exports! {
    /// `emulated` and the name of the matrix model, for programs that label what they print; no function of HIP's.
    fn mossRuntimeStanding() -> *const c_char {
        STANDING.as_ptr()
    }

    /// Initialises; fails without a device.
    fn hipInit(flags: c_uint) -> Code {
        may_block("hipInit");
        if flags != 0 {
            return code(Err(INVALID_VALUE));
        }
        let none = runtime().config.devices.is_empty();
        code(if none { Err(NO_DEVICE) } else { Ok(()) })
    }

    /// 7.0 as HIP encodes it.
    fn hipRuntimeGetVersion(version: *mut c_int) -> Code {
        store(version, |_| Ok(70_000_000))
    }

    /// The same as the runtime's.
    fn hipDriverGetVersion(version: *mut c_int) -> Code {
        store(version, |_| Ok(70_000_000))
    }

    /// Number of devices; none is an error.
    fn hipGetDeviceCount(count: *mut c_int) -> Code {
        if count.is_null() {
            return code(Err(INVALID_VALUE));
        }
        let n = runtime().config.devices.len();
        // SAFETY: not null.
        unsafe { count.write(n as c_int) };
        code(if n == 0 { Err(NO_DEVICE) } else { Ok(()) })
    }

    /// Makes a device the calling thread's.
    fn hipSetDevice(index: c_int) -> Code {
        let known = index >= 0 && (index as usize) < runtime().config.devices.len();
        if known {
            DEVICE.set(index as usize);
        }
        code(if known { Ok(()) } else { Err(runtime::INVALID_DEVICE) })
    }

    /// The calling thread's device.
    fn hipGetDevice(index: *mut c_int) -> Code {
        store(index, |_| Ok(DEVICE.get() as c_int))
    }

    /// `hipDeviceProp_tR0600`.
    fn hipGetDevicePropertiesR0600(out: *mut [u8; device::PROPERTIES], index: c_int) -> Code {
        store(out, |r| {
            let device = usize::try_from(index).ok().and_then(|i| r.config.devices.get(i).map(|d| (i, d)));
            let (i, (target, memory)) = device.ok_or(runtime::INVALID_DEVICE)?;
            Ok(device::properties(target, *memory, i, r.config.options.model))
        })
    }

    /// `hipDeviceAttributeIntegrated` (16); no other is known.
    fn hipDeviceGetAttribute(out: *mut c_int, attribute: c_int, index: c_int) -> Code {
        store(out, |r| {
            let device = usize::try_from(index).ok().and_then(|i| r.config.devices.get(i));
            let (target, _) = device.ok_or(runtime::INVALID_DEVICE)?;
            if attribute != 16 {
                return Err(NOT_SUPPORTED);
            }
            Ok(c_int::from(device::integrated(target)))
        })
    }

    /// `0000:03:00.0`.
    fn hipDeviceGetPCIBusId(out: *mut c_char, len: c_int, index: c_int) -> Code {
        let known = index >= 0 && (index as usize) < runtime().config.devices.len();
        if out.is_null() || len < 13 || !known {
            return code(Err(INVALID_VALUE));
        }
        let text = format!("0000:{:02x}:00.0\0", device::bus(index as usize));
        copy(text.as_ptr() as u64, out as u64, text.len() as u64);
        SUCCESS
    }

    /// Free and total device memory.
    fn hipMemGetInfo(free: *mut usize, total: *mut usize) -> Code {
        let info = runtime().mem_info(DEVICE.get());
        code(info.map(|(f, t)| {
            for (out, value) in [(free, f), (total, t)] {
                if !out.is_null() {
                    // SAFETY: not null; the caller promises room for one value.
                    unsafe { out.write(value as usize) }
                }
            }
        }))
    }

    /// Device memory, filled with 0xff.
    fn hipMalloc(out: *mut *mut c_void, bytes: usize) -> Code {
        may_block("hipMalloc");
        store(out, |r| r.malloc(DEVICE.get(), bytes as u64).map(opaque))
    }

    /// Frees device memory after the device's work.
    fn hipFree(p: *mut c_void) -> Code {
        may_block("hipFree");
        code(runtime().free(handle(p)))
    }

    /// Pinned host memory.
    fn hipHostMalloc(out: *mut *mut c_void, bytes: usize, _flags: c_uint) -> Code {
        store(out, |r| r.host_malloc(bytes as u64).map(opaque))
    }

    /// Frees pinned memory after all work.
    fn hipHostFree(p: *mut c_void) -> Code {
        code(runtime().host_free(handle(p)))
    }

    /// A copy that has happened on return.
    fn hipMemcpy(to: *mut c_void, from: *const c_void, bytes: usize, kind: c_uint) -> Code {
        let mut r = runtime();
        let copied = r.copy(to as u64, from as u64, bytes as u64, kind, runtime::NULL_STREAM);
        let done = copied.and_then(|()| r.stream_synchronize(runtime::NULL_STREAM));
        drop(r);
        code(done)
    }

    /// A copy that happens when something waits for it.
    fn hipMemcpyAsync(to: *mut c_void, from: *const c_void, bytes: usize, kind: c_uint, stream: *mut c_void) -> Code {
        may_block("hipMemcpyAsync");
        code(runtime().copy(to as u64, from as u64, bytes as u64, kind, handle(stream)))
    }

    /// Fills device memory when something waits for it.
    fn hipMemsetAsync(to: *mut c_void, value: c_int, bytes: usize, stream: *mut c_void) -> Code {
        code(runtime().set(handle(to), value as u8, bytes as u64, handle(stream)))
    }

    /// Flag 1 leaves the null stream's implicit order.
    fn hipStreamCreateWithFlags(out: *mut *mut c_void, flags: c_uint) -> Code {
        store(out, |r| r.stream_create(DEVICE.get(), flags & 1 == 0).map(opaque))
    }

    /// Runs what is queued, then forgets the stream.
    fn hipStreamDestroy(stream: *mut c_void) -> Code {
        code(runtime().stream_destroy(handle(stream)))
    }

    /// Runs what is queued.
    fn hipStreamSynchronize(stream: *mut c_void) -> Code {
        code(runtime().stream_synchronize(handle(stream)))
    }

    /// Later work of the stream runs after the event.
    fn hipStreamWaitEvent(stream: *mut c_void, event: *mut c_void, _flags: c_uint) -> Code {
        code(runtime().wait_event(handle(stream), handle(event)))
    }

    /// An event without timing.
    fn hipEventCreateWithFlags(out: *mut *mut c_void, _flags: c_uint) -> Code {
        store(out, |r| r.event_create().map(opaque))
    }

    /// Forgets an event.
    fn hipEventDestroy(event: *mut c_void) -> Code {
        code(runtime().event_destroy(handle(event)))
    }

    /// Marks what is queued now.
    fn hipEventRecord(event: *mut c_void, stream: *mut c_void) -> Code {
        code(runtime().event_record(handle(event), handle(stream)))
    }

    /// NotReady once, then runs what is marked.
    fn hipEventQuery(event: *mut c_void) -> Code {
        may_block("hipEventQuery");
        code(runtime().event_query(handle(event)))
    }

    /// Runs what is marked.
    fn hipEventSynchronize(event: *mut c_void) -> Code {
        code(runtime().event_synchronize(handle(event)))
    }

    /// Loads a code object from memory; its length follows from its headers.
    fn hipModuleLoadData(out: *mut *mut c_void, image: *const c_void) -> Code {
        may_block("hipModuleLoadData");
        if image.is_null() {
            return code(Err(INVALID_VALUE));
        }
        let Some(len) = elf_size(&bytes_of(image as u64, 64)) else {
            say("the module is no ELF code object");
            return code(Err(runtime::INVALID_IMAGE));
        };
        let bytes = bytes_of(image as u64, len);
        store(out, |r| r.module_load(DEVICE.get(), &bytes).map(opaque))
    }

    /// Forgets a module.
    fn hipModuleUnload(module: *mut c_void) -> Code {
        code(runtime().module_unload(handle(module)))
    }

    /// A kernel of a module.
    fn hipModuleGetFunction(out: *mut *mut c_void, module: *mut c_void, name: *const c_char) -> Code {
        if name.is_null() {
            return code(Err(INVALID_VALUE));
        }
        // SAFETY: not null; the caller promises a NUL-terminated text.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        store(out, |r| r.function(handle(module), &name).map(opaque))
    }

    /// Queues a launch; arguments come as pointers or as one block.
    fn hipModuleLaunchKernel(
        function: *mut c_void, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
        lds: c_uint, stream: *mut c_void, parameters: *mut *mut c_void, extra: *mut *mut c_void
    ) -> Code {
        may_block("hipModuleLaunchKernel");
        let mut r = runtime();
        let launched = kernarg(&r, handle(function), parameters, extra).and_then(|arguments| {
            r.launch(handle(function), [gx, gy, gz], [bx, by, bz], lds, arguments, handle(stream))
        });
        drop(r);
        code(launched)
    }

    /// Runs everything queued on the thread's device.
    fn hipDeviceSynchronize() -> Code {
        code(runtime().synchronize(DEVICE.get()))
    }

    /// Runs everything queued; what is allocated stays.
    fn hipDeviceReset() -> Code {
        code(runtime().synchronize(DEVICE.get()))
    }

    /// The thread's last error, once.
    fn hipGetLastError() -> Code {
        LAST.replace(SUCCESS)
    }

    /// `hipErrorNoDevice`.
    fn hipGetErrorName(error: Code) -> *const c_char {
        describe(error).0.as_ptr()
    }

    /// A sentence.
    fn hipGetErrorString(error: Code) -> *const c_char {
        describe(error).1.as_ptr()
    }
}

fn describe(error: Code) -> (&'static CStr, &'static CStr) {
    match error {
        0 => (c"hipSuccess", c"no error"),
        1 => (c"hipErrorInvalidValue", c"invalid argument"),
        2 => (c"hipErrorOutOfMemory", c"out of memory"),
        9 => (c"hipErrorInvalidConfiguration", c"invalid configuration argument"),
        21 => (c"hipErrorInvalidMemcpyDirection", c"invalid copy direction for memcpy"),
        100 => (c"hipErrorNoDevice", c"no ROCm-capable device is detected"),
        101 => (c"hipErrorInvalidDevice", c"invalid device ordinal"),
        200 => (c"hipErrorInvalidImage", c"device kernel image is invalid"),
        209 => (c"hipErrorNoBinaryForGpu", c"no kernel image is available for execution on the device"),
        400 => (c"hipErrorInvalidHandle", c"invalid resource handle"),
        500 => (c"hipErrorNotFound", c"named symbol not found"),
        600 => (c"hipErrorNotReady", c"device not ready"),
        700 => (c"hipErrorIllegalAddress", c"an illegal memory access was encountered"),
        702 => (c"hipErrorLaunchTimeOut", c"the launch timed out and was terminated"),
        719 => (c"hipErrorLaunchFailure", c"unspecified launch failure"),
        801 => (c"hipErrorNotSupported", c"operation not supported"),
        _ => (c"hipErrorUnknown", c"unknown error"),
    }
}

/// Bytes of an ELF file whose section headers come last, as linkers write it.
fn elf_size(header: &[u8]) -> Option<u64> {
    if header.get(..6)? != [0x7f, b'E', b'L', b'F', 2, 1] {
        return None;
    }
    let number =
        |at: usize, n: usize| header[at..at + n].iter().rev().fold(0u64, |v, &b| v << 8 | u64::from(b));
    let sections = number(40, 8).checked_add(number(58, 2) * number(60, 2))?;
    let programs = number(32, 8).checked_add(number(54, 2) * number(56, 2))?;
    Some(sections.max(programs)).filter(|&n| n < 1 << 30)
}

/// The argument block of a launch.
fn kernarg(
    r: &Runtime,
    function: u64,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Outcome<Vec<u8>> {
    if !extra.is_null() {
        let (mut buffer, mut size) = (0u64, 0usize);
        for n in 0..8 {
            // SAFETY: the caller promises a list of keys and values that HIP_LAUNCH_PARAM_END (3) closes.
            let key = unsafe { *extra.add(2 * n) } as usize;
            if key == 3 {
                return if buffer == 0 { Err(INVALID_VALUE) } else { Ok(bytes_of(buffer, size as u64)) };
            }
            // SAFETY: a key that is not the end has a value.
            let value = unsafe { *extra.add(2 * n + 1) };
            match key {
                1 => buffer = value as u64,
                // SAFETY: the value of HIP_LAUNCH_PARAM_BUFFER_SIZE points to a size.
                2 => size = unsafe { *value.cast::<usize>() },
                _ => return Err(INVALID_VALUE),
            }
        }
        return Err(INVALID_VALUE);
    }
    let mut out = Vec::new();
    for (n, (offset, size)) in r.arguments(function)?.into_iter().enumerate() {
        if parameters.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the caller promises as many pointers as the kernel has arguments.
        let value = unsafe { *parameters.add(n) } as u64;
        if value == 0 {
            return Err(INVALID_VALUE);
        }
        out.resize(offset, 0);
        out.extend(bytes_of(value, size as u64));
    }
    Ok(out)
}
