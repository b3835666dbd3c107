//! The CUDA driver's C interface: the functions that the library calls, looked up in `libcuda.so.1` at run time.
//!
//! Signatures and numbers are those of the public `cuda.h`; a name that ends in `_v2` is what the header calls the plain one.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libloading::Library;

/// A `CUresult`; 0 is success.
pub(crate) type Code = c_uint;
/// A context, stream, event, module or function: opaque.
pub(crate) type Handle = *mut c_void;

pub(crate) const SUCCESS: Code = 0;

/// Numbers of `CUdevice_attribute`.
pub(crate) mod attribute {
    use std::ffi::c_int;

    pub(crate) const MAX_THREADS_PER_BLOCK: c_int = 1;
    pub(crate) const WARP_SIZE: c_int = 10;
    pub(crate) const MULTIPROCESSORS: c_int = 16;
    pub(crate) const INTEGRATED: c_int = 18;
    pub(crate) const PCI_BUS: c_int = 33;
    pub(crate) const PCI_DEVICE: c_int = 34;
    pub(crate) const PCI_DOMAIN: c_int = 50;
    /// The most shared memory of a block that asks for it.
    pub(crate) const SHARED_OPT_IN: c_int = 97;
}

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
pub(crate) const FUNCTION_DYNAMIC_SHARED: c_int = 8;
/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`: what HIP's pinned memory is without flags.
pub(crate) const PORTABLE_MAPPED: c_uint = 3;

/// Numbers of `CUjit_option`.
pub(crate) mod jit {
    use std::ffi::c_uint;

    pub(crate) const ERROR_LOG: c_uint = 5;
    pub(crate) const ERROR_LOG_BYTES: c_uint = 6;
    pub(crate) const LINE_INFO: c_uint = 13;
}

macro_rules! functions {
    ($($field:ident = $symbol:literal: fn($($arg:ty),*);)*) => {
        /// The driver's functions.
        pub(crate) struct Driver {
            $(pub(crate) $field: unsafe extern "C" fn($($arg),*) -> Code,)*
        }

        impl Driver {
            /// Resolves every function; the error names those that are missing.
            fn resolve(library: &Library) -> Result<Self, String> {
                let mut missing = Vec::new();
                $(
                    // SAFETY: the type is the function's signature in `cuda.h`; the library stays loaded (see `load`).
                    let $field = unsafe {
                        library.get::<unsafe extern "C" fn($($arg),*) -> Code>($symbol.as_bytes())
                    };
                    if $field.is_err() {
                        missing.push($symbol);
                    }
                )*
                if !missing.is_empty() {
                    return Err(format!("{NAME} has no {}; a driver of CUDA 11 or later expected", missing.join(", ")));
                }
                Ok(Self { $($field: *$field.expect("checked above")),* })
            }
        }
    };
}

functions! {
    init = "cuInit": fn(c_uint);
    device_count = "cuDeviceGetCount": fn(*mut c_int);
    device_get = "cuDeviceGet": fn(*mut c_int, c_int);
    device_name = "cuDeviceGetName": fn(*mut c_char, c_int, c_int);
    device_memory = "cuDeviceTotalMem_v2": fn(*mut usize, c_int);
    device_attribute = "cuDeviceGetAttribute": fn(*mut c_int, c_int, c_int);
    context_retain = "cuDevicePrimaryCtxRetain": fn(*mut Handle, c_int);
    context_set = "cuCtxSetCurrent": fn(Handle);
    context_synchronize = "cuCtxSynchronize": fn();
    mem_info = "cuMemGetInfo_v2": fn(*mut usize, *mut usize);
    mem_alloc = "cuMemAlloc_v2": fn(*mut u64, usize);
    mem_free = "cuMemFree_v2": fn(u64);
    host_alloc = "cuMemHostAlloc": fn(*mut *mut c_void, usize, c_uint);
    host_free = "cuMemFreeHost": fn(*mut c_void);
    memcpy_async = "cuMemcpyAsync": fn(u64, u64, usize, Handle);
    stream_create = "cuStreamCreate": fn(*mut Handle, c_uint);
    stream_destroy = "cuStreamDestroy_v2": fn(Handle);
    stream_wait_event = "cuStreamWaitEvent": fn(Handle, Handle, c_uint);
    event_create = "cuEventCreate": fn(*mut Handle, c_uint);
    event_destroy = "cuEventDestroy_v2": fn(Handle);
    event_record = "cuEventRecord": fn(Handle, Handle);
    event_query = "cuEventQuery": fn(Handle);
    module_load = "cuModuleLoadDataEx": fn(*mut Handle, *const c_void, c_uint, *mut c_uint, *mut *mut c_void);
    module_unload = "cuModuleUnload": fn(Handle);
    module_function = "cuModuleGetFunction": fn(*mut Handle, Handle, *const c_char);
    function_attribute = "cuFuncSetAttribute": fn(Handle, c_int, c_int);
    launch = "cuLaunchKernel": fn(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
    );
    error_name = "cuGetErrorName": fn(Code, *mut *const c_char);
}

/// File name of the driver's library.
const NAME: &str = "libcuda.so.1";

impl Driver {
    /// Loads the driver.
    ///
    /// # Errors
    /// A line that says what is missing.
    pub(crate) fn load() -> Result<Self, String> {
        // SAFETY: loading runs the initialisers of NVIDIA's driver, found by its name where the system's loader looks.
        let library = unsafe { Library::new(NAME) }.map_err(|error| {
            let error = error.to_string();
            format!("no CUDA driver ({}); install NVIDIA's driver", error.lines().next().unwrap_or_default())
        })?;
        let driver = Self::resolve(&library)?;
        // The driver keeps threads of its own; it is never unloaded.
        std::mem::forget(library);
        Ok(driver)
    }
}
