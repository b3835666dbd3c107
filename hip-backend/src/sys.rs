//! The HIP runtime's C interface: the functions that this program calls, looked up in `libamdhip64` at run time.
//!
//! Nothing links to ROCm. Signatures, constants and the layout of the property structure are those of HIP's public
//! `hip_runtime_api.h` (R0600, shared by ROCm 6 and 7).

#![allow(unsafe_code, non_snake_case)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};

use libloading::Library;

use crate::error::Error;
use crate::host::Host;

/// Result code of every HIP function; 0 is success.
pub(crate) type Code = c_uint;
/// A stream, event, module or function: opaque.
pub(crate) type Handle = *mut c_void;

/// Success.
pub(crate) const SUCCESS: Code = 0;
/// A wrong argument.
pub(crate) const INVALID_VALUE: Code = 1;
/// Out of device memory; host allocations return it too.
pub(crate) const OUT_OF_MEMORY: Code = 2;
/// A launch with a grid, block or LDS size that the device does not take.
pub(crate) const INVALID_CONFIGURATION: Code = 9;
/// The code object has no function of the kernel's name for the device.
pub(crate) const INVALID_DEVICE_FUNCTION: Code = 98;
/// `hipGetDeviceCount` found nothing.
pub(crate) const NO_DEVICE: Code = 100;
/// A number that is no device's.
pub(crate) const INVALID_DEVICE: Code = 101;
/// Bytes that are no code object.
pub(crate) const INVALID_IMAGE: Code = 200;
/// A code object without code for the device.
pub(crate) const NO_BINARY_FOR_GPU: Code = 209;
/// A name that is not in the code object.
pub(crate) const NOT_FOUND: Code = 500;
/// An event's work has not finished.
pub(crate) const NOT_READY: Code = 600;

/// Something that the device or the runtime cannot do.
pub(crate) const NOT_SUPPORTED: Code = 801;
/// The codes that leave the device as it was: bad arguments, a full memory, missing symbols.
pub(crate) const HARMLESS: [Code; 10] = [
    INVALID_VALUE,
    OUT_OF_MEMORY,
    INVALID_CONFIGURATION,
    INVALID_DEVICE_FUNCTION,
    NO_DEVICE,
    INVALID_DEVICE,
    INVALID_IMAGE,
    NO_BINARY_FOR_GPU,
    NOT_FOUND,
    NOT_SUPPORTED,
];

/// `hipMemcpyHostToDevice`.
pub(crate) const HOST_TO_DEVICE: c_uint = 1;
/// `hipMemcpyDeviceToHost`.
pub(crate) const DEVICE_TO_HOST: c_uint = 2;
/// `hipMemcpyDeviceToDevice`.
pub(crate) const DEVICE_TO_DEVICE: c_uint = 3;

/// `hipStreamNonBlocking`: no implicit order with the null stream.
pub(crate) const STREAM_NON_BLOCKING: c_uint = 1;
/// `hipEventDisableTiming`.
pub(crate) const EVENT_DISABLE_TIMING: c_uint = 2;

/// `hipDeviceProp_tR0600`, 1472 bytes; only the fields read here have names, at the offsets of the public header.
#[repr(C, align(8))]
pub(crate) struct Properties {
    /// Larger than the structure, so that a longer one of a later version does not write past it.
    bytes: [u8; 4096],
}

impl Properties {
    pub(crate) fn zeroed() -> Self {
        Self { bytes: [0; 4096] }
    }

    fn i32_at(&self, offset: usize) -> i32 {
        i32::from_ne_bytes(self.bytes[offset..offset + 4].try_into().expect("four bytes"))
    }

    fn text_at(&self, offset: usize) -> String {
        let field = &self.bytes[offset..offset + 256];
        CStr::from_bytes_until_nul(field).map_or_else(|_| String::new(), |s| s.to_string_lossy().into_owned())
    }

    /// Marketing name.
    pub(crate) fn name(&self) -> String {
        self.text_at(0)
    }

    /// Bytes of device memory.
    pub(crate) fn total_memory(&self) -> u64 {
        u64::from_ne_bytes(self.bytes[288..296].try_into().expect("eight bytes"))
    }

    /// Lanes of a wave.
    pub(crate) fn warp_size(&self) -> i32 {
        self.i32_at(308)
    }

    /// Compute units (WGPs on parts that run in WGP mode).
    pub(crate) fn compute_units(&self) -> i32 {
        self.i32_at(388)
    }

    /// Whether the runtime calls it an integrated GPU; not to be trusted alone.
    pub(crate) fn integrated(&self) -> bool {
        self.i32_at(396) != 0
    }

    /// PCI domain, bus and device.
    pub(crate) fn pci(&self) -> (i32, i32, i32) {
        (self.i32_at(592), self.i32_at(584), self.i32_at(588))
    }

    /// Architecture with its feature suffixes (`gfx1100`, `gfx90a:xnack-`).
    pub(crate) fn arch(&self) -> String {
        self.text_at(1160)
    }
}

macro_rules! functions {
    ($($(#[$doc:meta])* $field:ident = $symbol:literal: fn($($arg:ty),*) -> $ret:ty;)*) => {
        /// The runtime's functions.
        pub(crate) struct Functions {
            $($(#[$doc])* pub(crate) $field: unsafe extern "C" fn($($arg),*) -> $ret,)*
        }

        /// Names of all functions, in the order they are resolved.
        #[cfg(test)]
        const SYMBOLS: &[&str] = &[$($symbol),*];

        impl Functions {
            /// Resolves every function, or returns the names of all that are missing.
            fn resolve(library: &Library) -> Result<Self, Vec<&'static str>> {
                let mut missing = Vec::new();
                $(
                    // SAFETY: the type is the function's signature in HIP's public header; the pointer is only
                    // used while the library is loaded, which is until the process ends (see `Api`).
                    let $field = unsafe {
                        library.get::<unsafe extern "C" fn($($arg),*) -> $ret>($symbol.as_bytes())
                    };
                    if $field.is_err() {
                        missing.push($symbol);
                    }
                )*
                if !missing.is_empty() {
                    return Err(missing);
                }
                Ok(Self { $($field: *$field.expect("checked above")),* })
            }
        }
    };
}

functions! {
    /// `hipInit(flags)`.
    init = "hipInit": fn(c_uint) -> Code;
    /// `hipRuntimeGetVersion(&version)`.
    runtime_version = "hipRuntimeGetVersion": fn(*mut c_int) -> Code;
    /// `hipGetDeviceCount(&count)`.
    device_count = "hipGetDeviceCount": fn(*mut c_int) -> Code;
    /// `hipGetDevicePropertiesR0600(&properties, device)`.
    device_properties = "hipGetDevicePropertiesR0600": fn(*mut Properties, c_int) -> Code;
    /// `hipSetDevice(device)`: the calling thread's device.
    set_device = "hipSetDevice": fn(c_int) -> Code;
    /// `hipDeviceReset()`.
    device_reset = "hipDeviceReset": fn() -> Code;
    /// `hipMemGetInfo(&free, &total)`.
    mem_info = "hipMemGetInfo": fn(*mut usize, *mut usize) -> Code;
    /// `hipMalloc(&pointer, bytes)`.
    malloc = "hipMalloc": fn(*mut *mut c_void, usize) -> Code;
    /// `hipFree(pointer)`.
    free = "hipFree": fn(*mut c_void) -> Code;
    /// `hipHostMalloc(&pointer, bytes, flags)`.
    host_malloc = "hipHostMalloc": fn(*mut *mut c_void, usize, c_uint) -> Code;
    /// `hipHostFree(pointer)`.
    host_free = "hipHostFree": fn(*mut c_void) -> Code;
    /// `hipMemcpyAsync(to, from, bytes, kind, stream)`.
    memcpy_async = "hipMemcpyAsync": fn(*mut c_void, *const c_void, usize, c_uint, Handle) -> Code;
    /// `hipStreamCreateWithFlags(&stream, flags)`.
    stream_create = "hipStreamCreateWithFlags": fn(*mut Handle, c_uint) -> Code;
    /// `hipStreamDestroy(stream)`.
    stream_destroy = "hipStreamDestroy": fn(Handle) -> Code;
    /// `hipStreamWaitEvent(stream, event, flags)`.
    stream_wait_event = "hipStreamWaitEvent": fn(Handle, Handle, c_uint) -> Code;
    /// `hipEventCreateWithFlags(&event, flags)`.
    event_create = "hipEventCreateWithFlags": fn(*mut Handle, c_uint) -> Code;
    /// `hipEventDestroy(event)`.
    event_destroy = "hipEventDestroy": fn(Handle) -> Code;
    /// `hipEventRecord(event, stream)`.
    event_record = "hipEventRecord": fn(Handle, Handle) -> Code;
    /// `hipEventQuery(event)`.
    event_query = "hipEventQuery": fn(Handle) -> Code;
    /// `hipModuleLoadData(&module, image)`.
    module_load_data = "hipModuleLoadData": fn(*mut Handle, *const c_void) -> Code;
    /// `hipModuleUnload(module)`.
    module_unload = "hipModuleUnload": fn(Handle) -> Code;
    /// `hipModuleGetFunction(&function, module, name)`.
    module_get_function = "hipModuleGetFunction": fn(*mut Handle, Handle, *const c_char) -> Code;
    /// `hipModuleLaunchKernel(function, grid xyz, block xyz, dynamic LDS bytes, stream, parameters, extra)`.
    launch = "hipModuleLaunchKernel": fn(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
    ) -> Code;
    /// `hipGetErrorName(code)`.
    error_name = "hipGetErrorName": fn(Code) -> *const c_char;
    /// `hipGetErrorString(code)`.
    error_string = "hipGetErrorString": fn(Code) -> *const c_char;
}

/// What is behind the runtime's interface, by its own word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A card: AMD's runtime has no such word.
    Card,
    /// An emulator of a card's machine code.
    Emulated {
        /// Whether matrix products are summed as chains, as the CPU backend sums them.
        chain: bool,
    },
    /// Other hardware, for which the kernels' text was compiled.
    LogicChecked {
        /// As above.
        chain: bool,
    },
}

/// The function by which a runtime that is not AMD's says what it is: `mossRuntimeStanding()` returns `emulated` or
/// `logic-checked`, a blank, and how matrix products are summed (`fma-chain` or another name).
const STANDING: &str = "mossRuntimeStanding";

impl Standing {
    fn parse(text: &str) -> Option<Self> {
        let (word, sums) = text.split_once(' ')?;
        let chain = sums == "fma-chain";
        match word {
            "emulated" => Some(Self::Emulated { chain }),
            "logic-checked" => Some(Self::LogicChecked { chain }),
            _ => None,
        }
    }

    /// Asks a library.
    fn of(library: &Library, path: &Path) -> Result<Self, Error> {
        // SAFETY: a function of this project's own libraries, which alone have this name.
        let Ok(function) =
            (unsafe { library.get::<unsafe extern "C" fn() -> *const c_char>(STANDING.as_bytes()) })
        else {
            return Ok(Self::Card);
        };
        // SAFETY: it takes nothing and returns a static text that ends with a zero byte.
        let text = unsafe { CStr::from_ptr(function()) }.to_string_lossy();
        Self::parse(&text)
            .ok_or_else(|| Error::UnknownStanding { path: path.to_owned(), found: text.into_owned() })
    }
}

/// The loaded runtime.
pub(crate) struct Api {
    pub(crate) functions: Functions,
    /// File that was loaded.
    pub(crate) path: PathBuf,
    /// What it says of itself.
    pub(crate) standing: Standing,
}

/// Names of the runtime, newest first: an old `.so.6` may be left over beside a `.so.7`.
pub(crate) const LIBRARY_NAMES: [&str; 3] = ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"];

/// Every file that may be the runtime, in the order in which it is tried: for each name, the folders of
/// `LD_LIBRARY_PATH`, `$ROCM_PATH/lib`, `/opt/rocm/lib`, `/opt/rocm/core-*/lib` (newest first), `/opt/rocm-*/lib`, and last
/// the bare name, for the loader's own paths.
pub(crate) fn candidates(host: &Host) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    if let Some(paths) = host.env("LD_LIBRARY_PATH") {
        folders.extend(paths.split(':').filter(|p| !p.is_empty()).map(PathBuf::from));
    }
    if let Some(root) = host.env("ROCM_PATH").filter(|root| !root.is_empty()) {
        folders.push(Path::new(&root).join("lib"));
    }
    folders.push(host.path("/opt/rocm/lib"));
    folders.extend(versioned(host, "/opt/rocm", "core-"));
    folders.extend(versioned(host, "/opt", "rocm-"));

    let mut files = Vec::new();
    for name in LIBRARY_NAMES {
        files.extend(folders.iter().map(|folder| folder.join(name)));
        files.push(PathBuf::from(name));
    }
    files
}

/// `parent/PREFIX*/lib`, the highest version first.
fn versioned(host: &Host, parent: &str, prefix: &str) -> Vec<PathBuf> {
    let version = |name: &str| -> Vec<u32> {
        name[prefix.len()..].split(['.', '-']).map(|part| part.parse().unwrap_or(0)).collect()
    };
    let mut names: Vec<String> = std::fs::read_dir(host.path(parent))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(prefix))
        .collect();
    names.sort_by_key(|name| std::cmp::Reverse(version(name)));
    names.iter().map(|name| host.path(parent).join(name).join("lib")).collect()
}

impl Api {
    /// Loads the first runtime found.
    ///
    /// # Errors
    /// [`Error::NoLibrary`] with every path tried and why it failed; [`Error::MissingSymbols`] when a library loads but is
    /// not the runtime that it should be.
    pub(crate) fn load(host: &Host) -> Result<Self, Error> {
        let mut tried = Vec::new();
        for path in candidates(host) {
            if path.is_absolute() && !path.exists() {
                tried.push(format!("{}: no such file", path.display()));
                continue;
            }
            // SAFETY: loading runs the library's initialisers. It is the HIP runtime by its name, found on the
            // paths where the user installs it, as the system's loader would.
            match unsafe { Library::new(&path) } {
                Ok(library) => return Self::from_library(library, path),
                Err(error) => tried.push(format!("{}: {}", path.display(), first_line(&error.to_string()))),
            }
        }
        Err(Error::NoLibrary { tried })
    }

    fn from_library(library: Library, path: PathBuf) -> Result<Self, Error> {
        let functions = Functions::resolve(&library)
            .map_err(|missing| Error::MissingSymbols { path: path.clone(), missing })?;
        let standing = Standing::of(&library, &path)?;
        // The runtime keeps threads of its own; it is never unloaded.
        std::mem::forget(library);
        Ok(Self { functions, path, standing })
    }

    /// The runtime's name and description of a code.
    pub(crate) fn describe(&self, code: Code) -> (String, String) {
        let text = |pointer: *const c_char| {
            if pointer.is_null() {
                return "unknown".to_owned();
            }
            // SAFETY: the runtime returns a pointer to a static string that ends with a zero byte.
            unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
        };
        // SAFETY: both functions take any code and have no other effect.
        unsafe { (text((self.functions.error_name)(code)), text((self.functions.error_string)(code))) }
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_few_and_unique() {
        let mut names = SYMBOLS.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SYMBOLS.len());
        assert_eq!(names.len(), 25);
    }

    #[test]
    fn a_standing_is_a_word_and_how_products_are_summed() {
        let parse = Standing::parse;
        assert_eq!(parse("emulated fma-chain"), Some(Standing::Emulated { chain: true }));
        assert_eq!(parse("emulated silicon-gfx1151"), Some(Standing::Emulated { chain: false }));
        assert_eq!(parse("logic-checked fma-chain"), Some(Standing::LogicChecked { chain: true }));
        for unknown in ["", "emulated", "measured fma-chain", "Emulated fma-chain"] {
            assert_eq!(parse(unknown), None, "{unknown:?}");
        }
    }

    #[test]
    fn property_fields_lie_where_the_header_puts_them() {
        // The header's fields in order, up to those that are read: sizes and alignments give the offsets.
        let mut at = 0usize;
        let mut next = |size: usize, align: usize| {
            at = at.next_multiple_of(align) + size;
            at - size
        };
        assert_eq!(next(256, 1), 0, "name");
        next(16, 1); // uuid
        next(8, 1); // luid
        next(4, 4); // luidDeviceNodeMask
        assert_eq!(next(8, 8), 288, "totalGlobalMem");
        next(8, 8); // sharedMemPerBlock
        next(4, 4); // regsPerBlock
        assert_eq!(next(4, 4), 308, "warpSize");
        next(8, 8); // memPitch
        next(4 * 8, 4); // maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], clockRate
        next(8, 8); // totalConstMem
        next(8, 4); // major, minor
        next(16, 8); // textureAlignment, texturePitchAlignment
        next(4, 4); // deviceOverlap
        assert_eq!(next(4, 4), 388, "multiProcessorCount");
        next(4, 4); // kernelExecTimeoutEnabled
        assert_eq!(next(4, 4), 396, "integrated");

        let mut properties = Properties::zeroed();
        properties.bytes[..3].copy_from_slice(b"RX\0");
        properties.bytes[288..296].copy_from_slice(&(16u64 << 30).to_ne_bytes());
        properties.bytes[388..392].copy_from_slice(&32i32.to_ne_bytes());
        properties.bytes[584..596].copy_from_slice(&[3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
        properties.bytes[1160..1168].copy_from_slice(b"gfx1200\0");
        assert_eq!(properties.name(), "RX");
        assert_eq!(properties.total_memory(), 16 << 30);
        assert_eq!(properties.compute_units(), 32);
        assert_eq!(properties.pci(), (1, 3, 0));
        assert_eq!(properties.arch(), "gfx1200");
        assert!(!properties.integrated());
    }

    #[test]
    fn every_place_is_tried_newest_name_first() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["opt/rocm/core-7.9/lib", "opt/rocm/core-7.14/lib", "opt/rocm-6.4.3/lib"] {
            std::fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        let host = Host::with_root(root.path()).set("LD_LIBRARY_PATH", "/a::/b").set("ROCM_PATH", "/r");
        let files = candidates(&host);
        let shown: Vec<String> = files
            .iter()
            .map(|f| f.strip_prefix(root.path()).map_or(f.clone(), Path::to_path_buf).display().to_string())
            .collect();
        assert_eq!(
            shown[..8],
            [
                "/a/libamdhip64.so.7",
                "/b/libamdhip64.so.7",
                "/r/lib/libamdhip64.so.7",
                "opt/rocm/lib/libamdhip64.so.7",
                "opt/rocm/core-7.14/lib/libamdhip64.so.7",
                "opt/rocm/core-7.9/lib/libamdhip64.so.7",
                "opt/rocm-6.4.3/lib/libamdhip64.so.7",
                "libamdhip64.so.7",
            ]
        );
        assert_eq!(shown.len(), 24);
        assert_eq!(shown[8], "/a/libamdhip64.so.6");
        assert_eq!(shown[23], "libamdhip64.so");
    }

    #[test]
    fn a_missing_library_lists_every_path_tried() {
        let root = tempfile::tempdir().unwrap();
        let host = Host::with_root(root.path()).set("LD_LIBRARY_PATH", "/nowhere-at-all");
        let Err(error) = Api::load(&host) else {
            return; // A machine with ROCm on the loader's own path.
        };
        let text = error.to_string();
        assert!(text.contains("/nowhere-at-all/libamdhip64.so.7: no such file"), "{text}");
        assert!(text.contains("opt/rocm/lib/libamdhip64.so.6"), "{text}");
    }

    #[test]
    fn a_library_that_is_not_hip_names_each_missing_symbol() {
        // SAFETY: the C library is loaded already; loading it again runs nothing.
        let library = unsafe { Library::new("libc.so.6") }.unwrap();
        let Err(error) = Api::from_library(library, "libc.so.6".into()) else { panic!("libc is not HIP") };
        let text = error.to_string();
        for symbol in SYMBOLS {
            assert!(text.contains(symbol), "{symbol} in {text}");
        }
    }
}
