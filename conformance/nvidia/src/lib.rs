//! The logic check: `libamdhip64.so` over the CUDA driver. The unchanged program runs on another GPU, with its kernels' text
//! compiled for that.
//!
//! Put the library into a folder of `LD_LIBRARY_PATH` as `libamdhip64.so.7` and name the folder of the PTX files in
//! `MOSS_PTX`; see [`config`] for the switches. It exports the functions of HIP that the program calls, and no other. What runs
//! here is logic-checked: bits, waits and bounds of the kernels and the host code; no time of it says anything about a Radeon.

#![allow(unsafe_code)]

pub mod config;
mod device;
mod driver;
pub mod hazards;
mod ptx;
mod runtime;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use config::Config;
use runtime::{Code, INVALID_DEVICE, INVALID_IMAGE, INVALID_VALUE, NO_DEVICE, Outcome, Runtime, SUCCESS};

/// A line for whoever watches the check.
fn say(text: &str) {
    eprintln!("moss-nvidia: {text}");
}

/// Bytes at an address that the caller vouches for.
fn bytes_of(address: u64, len: u64) -> Vec<u8> {
    // SAFETY: the caller of the HIP function promises `len` readable bytes.
    unsafe { std::slice::from_raw_parts(address as *const u8, len as usize) }.to_vec()
}

static RUNTIME: OnceLock<Outcome<Runtime>> = OnceLock::new();

/// The runtime, started by the first call.
fn runtime() -> Outcome<&'static Runtime> {
    let start = || {
        unsafe extern "C" {
            fn atexit(call: extern "C" fn()) -> c_int;
        }
        let config = Config::from_env(|name| std::env::var(name).ok()).map_err(|text| {
            say(&text);
            NO_DEVICE
        })?;
        let runtime = Runtime::start(config)?;
        // SAFETY: the C library's atexit, with a function that lives as long as the process.
        unsafe { atexit(report) };
        Ok(runtime)
    };
    RUNTIME.get_or_init(start).as_ref().map_err(|code| *code)
}

extern "C" fn report() {
    if let Some(Ok(runtime)) = RUNTIME.get() {
        runtime.report();
    }
}

/// The code of a function without a result.
fn code(outcome: Outcome) -> Code {
    outcome.err().unwrap_or(SUCCESS)
}

/// Runs `f`, and stores its value where the caller wants it.
fn store<T>(out: *mut T, f: impl FnOnce(&Runtime) -> Outcome<T>) -> Code {
    if out.is_null() {
        return INVALID_VALUE;
    }
    code(runtime().and_then(f).map(|value| {
        // SAFETY: not null; the caller of the HIP function promises room for one value.
        unsafe { out.write(value) }
    }))
}

fn opaque(id: u64) -> *mut c_void {
    std::ptr::without_provenance_mut(id as usize)
}

macro_rules! exports {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $t:ty),*) -> $ret:ty $body:block)*) => {
        /// The functions that the library exports.
        pub const EXPORTS: &[&str] = &[$(stringify!($name)),*];
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
    /// `logic-checked`, and that matrix products are summed as chains; no function of HIP's.
    fn mossRuntimeStanding() -> *const c_char {
        c"logic-checked fma-chain".as_ptr()
    }

    /// Loads the driver; fails without a device.
    fn hipInit(flags: c_uint) -> Code {
        if flags != 0 {
            return INVALID_VALUE;
        }
        code(runtime().map(drop))
    }

    /// 7.0 as HIP encodes it.
    fn hipRuntimeGetVersion(version: *mut c_int) -> Code {
        store(version, |_| Ok(70_000_000))
    }

    /// One, or an error; `CUDA_VISIBLE_DEVICES` says which.
    fn hipGetDeviceCount(count: *mut c_int) -> Code {
        store(count, |_| Ok(1))
    }

    /// `hipDeviceProp_tR0600`; the name begins with "logic check on".
    fn hipGetDevicePropertiesR0600(out: *mut [u8; device::PROPERTIES], index: c_int) -> Code {
        store(out, |runtime| runtime.properties(index))
    }

    /// Makes the device's context the calling thread's.
    fn hipSetDevice(index: c_int) -> Code {
        if index != 0 {
            return INVALID_DEVICE;
        }
        code(runtime().and_then(|runtime| runtime.bind(index)))
    }

    /// Waits for everything; the context stays.
    fn hipDeviceReset() -> Code {
        code(runtime().and_then(Runtime::reset))
    }

    /// Free and total device memory.
    fn hipMemGetInfo(free: *mut usize, total: *mut usize) -> Code {
        if free.is_null() || total.is_null() {
            return INVALID_VALUE;
        }
        code(runtime().and_then(Runtime::memory).map(|(f, t)| {
            // SAFETY: not null; the caller promises room for one value each.
            unsafe {
                free.write(f);
                total.write(t);
            }
        }))
    }

    /// Device memory.
    fn hipMalloc(out: *mut *mut c_void, bytes: usize) -> Code {
        store(out, |runtime| runtime.malloc(bytes))
    }

    /// Frees device memory.
    fn hipFree(p: *mut c_void) -> Code {
        code(runtime().and_then(|runtime| runtime.free(p)))
    }

    /// Pinned host memory, portable and mapped.
    fn hipHostMalloc(out: *mut *mut c_void, bytes: usize, flags: c_uint) -> Code {
        store(out, |runtime| runtime.host_malloc(bytes, flags))
    }

    /// Frees pinned memory.
    fn hipHostFree(p: *mut c_void) -> Code {
        code(runtime().and_then(|runtime| runtime.host_free(p)))
    }

    /// A copy in a stream's order.
    fn hipMemcpyAsync(to: *mut c_void, from: *const c_void, bytes: usize, kind: c_uint, stream: *mut c_void) -> Code {
        code(runtime().and_then(|runtime| runtime.copy(to as u64, from as u64, bytes, kind, stream)))
    }

    /// A stream.
    fn hipStreamCreateWithFlags(out: *mut *mut c_void, flags: c_uint) -> Code {
        store(out, |runtime| runtime.stream_create(flags))
    }

    /// Forgets a stream.
    fn hipStreamDestroy(stream: *mut c_void) -> Code {
        code(runtime().and_then(|runtime| runtime.stream_destroy(stream)))
    }

    /// Later work of the stream runs after the event.
    fn hipStreamWaitEvent(stream: *mut c_void, event: *mut c_void, flags: c_uint) -> Code {
        code(runtime().and_then(|runtime| runtime.wait_event(stream, event, flags)))
    }

    /// An event.
    fn hipEventCreateWithFlags(out: *mut *mut c_void, flags: c_uint) -> Code {
        store(out, |runtime| runtime.event_create(flags))
    }

    /// Forgets an event.
    fn hipEventDestroy(event: *mut c_void) -> Code {
        code(runtime().and_then(|runtime| runtime.event_destroy(event)))
    }

    /// Marks what a stream was given so far.
    fn hipEventRecord(event: *mut c_void, stream: *mut c_void) -> Code {
        code(runtime().and_then(|runtime| runtime.event_record(event, stream)))
    }

    /// Whether what is marked has run.
    fn hipEventQuery(event: *mut c_void) -> Code {
        code(runtime().and_then(|runtime| runtime.event_query(event)))
    }

    /// Takes a code object; its length follows from its headers.
    fn hipModuleLoadData(out: *mut *mut c_void, image: *const c_void) -> Code {
        if image.is_null() {
            return INVALID_VALUE;
        }
        let Some(len) = file_size(&bytes_of(image as u64, 64)) else {
            say("the module is no code object");
            return INVALID_IMAGE;
        };
        let bytes = bytes_of(image as u64, len);
        store(out, |runtime| runtime.module_load(&bytes).map(opaque))
    }

    /// Forgets a module and its kernels.
    fn hipModuleUnload(module: *mut c_void) -> Code {
        code(runtime().and_then(|runtime| runtime.module_unload(module as u64)))
    }

    /// A kernel, from its PTX file.
    fn hipModuleGetFunction(out: *mut *mut c_void, module: *mut c_void, name: *const c_char) -> Code {
        if name.is_null() {
            return INVALID_VALUE;
        }
        // SAFETY: not null; the caller promises a text that ends with a zero byte.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        store(out, |runtime| runtime.function(module as u64, &name).map(opaque))
    }

    /// Queues a launch; its arguments come as one block.
    fn hipModuleLaunchKernel(
        function: *mut c_void, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
        lds: c_uint, stream: *mut c_void, parameters: *mut *mut c_void, extra: *mut *mut c_void
    ) -> Code {
        if !parameters.is_null() {
            return INVALID_VALUE;
        }
        code(arguments(extra).and_then(|mut block| {
            runtime()?.launch(function as u64, [gx, gy, gz], [bx, by, bz], lds, stream, &mut block)
        }))
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

/// HIP's names for codes; the driver's own name for a failure is printed where it happens.
fn describe(error: Code) -> (&'static CStr, &'static CStr) {
    match error {
        0 => (c"hipSuccess", c"no error"),
        1 => (c"hipErrorInvalidValue", c"invalid argument"),
        2 => (c"hipErrorOutOfMemory", c"out of memory"),
        100 => (c"hipErrorNoDevice", c"no device is detected"),
        101 => (c"hipErrorInvalidDevice", c"invalid device ordinal"),
        200 => (c"hipErrorInvalidImage", c"the kernel's text is invalid"),
        201 => (c"hipErrorInvalidContext", c"invalid device context"),
        209 => (c"hipErrorNoBinaryForGpu", c"the kernel does not run on this device"),
        214 => (c"hipErrorECCNotCorrectable", c"an uncorrectable memory error"),
        400 => (c"hipErrorInvalidHandle", c"invalid resource handle"),
        500 => (c"hipErrorNotFound", c"named symbol not found"),
        600 => (c"hipErrorNotReady", c"not ready"),
        700 => (c"hipErrorIllegalAddress", c"an illegal memory access"),
        701 => (c"hipErrorLaunchOutOfResources", c"too many resources for a launch"),
        702 => (c"hipErrorLaunchTimeOut", c"the launch timed out"),
        719 => (c"hipErrorLaunchFailure", c"the launch failed"),
        801 => (c"hipErrorNotSupported", c"not supported"),
        _ => (c"hipErrorUnknown", c"unknown error"),
    }
}

/// Bytes of an ELF file, which its section or program headers close; `None` for anything else.
fn file_size(header: &[u8]) -> Option<u64> {
    if header.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let half = |at: usize| u64::from(u16::from_le_bytes([header[at], header[at + 1]]));
    let long = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
    // e_shoff + e_shentsize * e_shnum, e_phoff + e_phentsize * e_phnum
    let ends = [(40, 58, 60), (32, 54, 56)]
        .map(|(start, size, count)| long(start).checked_add(half(size) * half(count)));
    ends.into_iter().collect::<Option<Vec<u64>>>()?.into_iter().max().filter(|&size| size < 1 << 30)
}

/// The argument block of a launch: pairs of key and value that key 3 closes.
fn arguments(extra: *mut *mut c_void) -> Outcome<Vec<u8>> {
    if extra.is_null() {
        return Err(INVALID_VALUE);
    }
    let (mut block, mut size) = (0u64, 0usize);
    for n in 0..8 {
        // SAFETY: the caller promises a list that HIP_LAUNCH_PARAM_END (3) closes.
        let key = unsafe { *extra.add(2 * n) } as usize;
        if key == 3 {
            return if block == 0 { Err(INVALID_VALUE) } else { Ok(bytes_of(block, size as u64)) };
        }
        // SAFETY: a key that is not the end has a value.
        let value = unsafe { *extra.add(2 * n + 1) };
        match key {
            1 => block = value as u64,
            // SAFETY: the value of HIP_LAUNCH_PARAM_BUFFER_SIZE points to a size.
            2 if !value.is_null() => size = unsafe { *value.cast::<usize>() },
            _ => return Err(INVALID_VALUE),
        }
    }
    Err(INVALID_VALUE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names that the backend looks up, from its source.
    #[test]
    fn the_exports_are_what_the_backend_resolves() {
        let source = include_str!("../../../hip-backend/src/sys.rs");
        let mut wanted: Vec<&str> = source
            .split('"')
            .filter(|text| ["hip", "moss"].iter().any(|start| text.starts_with(start)))
            .filter(|text| text.chars().all(char::is_alphanumeric))
            .collect();
        wanted.sort_unstable();
        wanted.dedup();
        let mut exported = EXPORTS.to_vec();
        exported.sort_unstable();
        assert_eq!(exported, wanted);
        assert_eq!(exported.len(), 26);
    }

    #[test]
    fn a_file_ends_with_its_last_headers() {
        for built in moss_kernels::code_objects("gfx1200") {
            let size = file_size(&built.bytes[..64]).expect("an ELF file");
            assert_eq!(size, built.bytes.len() as u64, "{}", built.source);
        }
        assert_eq!(file_size(b"\x7fELF\x01\x01 a file of another class"), None);
        assert_eq!(file_size(b"#!/bin/sh"), None);
    }

    #[test]
    fn an_argument_list_is_closed_and_whole() {
        let mut block = *b"0123456789abcdef";
        let mut size = 12usize;
        let key = |n: usize| std::ptr::without_provenance_mut::<c_void>(n);
        let mut good = [key(1), block.as_mut_ptr().cast(), key(2), (&raw mut size).cast(), key(3)];
        assert_eq!(arguments(good.as_mut_ptr()).as_deref(), Ok(&b"0123456789ab"[..]));
        let mut without_block = [key(2), (&raw mut size).cast(), key(3)];
        let mut unknown = [key(4), key(0), key(3)];
        let mut open = [key(1); 16];
        for list in [&mut without_block[..], &mut unknown, &mut open] {
            assert_eq!(arguments(list.as_mut_ptr()), Err(INVALID_VALUE));
        }
        assert_eq!(arguments(std::ptr::null_mut()), Err(INVALID_VALUE));
    }
}
