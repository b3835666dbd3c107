//! A machine whose CUDA driver is the tests' own, for processes that have it in their environment.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;

use libloading::Library;
use tempfile::TempDir;

/// Set in the child process, to the folder of its machine.
pub(crate) const CHILD: &str = "MOSS_NVIDIA_TEST_CHILD";

/// A file beside this test.
fn built(name: &str) -> PathBuf {
    let here = std::env::current_exe().expect("a test has a path");
    let path = here.parent().expect("in a folder").join(name);
    assert!(path.exists(), "{} is not built", path.display());
    path
}

/// A folder with the driver, the library under HIP's name and the kernels' texts.
pub(crate) struct Machine {
    folder: PathBuf,
    _held: Option<TempDir>,
}

impl Machine {
    /// A machine with both libraries.
    pub(crate) fn new() -> Self {
        let machine = Self::without_driver();
        let driver = machine.folder.join("libcuda.so.1");
        std::fs::copy(built("libmoss_fake_cuda.so"), driver).expect("copied");
        machine
    }

    /// A machine without a CUDA driver.
    pub(crate) fn without_driver() -> Self {
        let held = tempfile::tempdir().expect("a folder");
        let folder = held.path().to_path_buf();
        std::fs::copy(built("libmoss_nvidia.so"), folder.join("libamdhip64.so.7")).expect("copied");
        std::fs::create_dir(folder.join("ptx")).expect("made");
        Self { folder, _held: Some(held) }
    }

    /// Runs a test again in a process on this machine; what it printed.
    pub(crate) fn run(&self, test: &str, env: &[(&str, &str)]) -> String {
        let output = Command::new(std::env::current_exe().expect("a test has a path"))
            .args(["--exact", test, "--nocapture", "--test-threads", "1"])
            .env(CHILD, &self.folder)
            .env("LD_LIBRARY_PATH", &self.folder)
            .env("MOSS_PTX", self.folder.join("ptx"))
            .envs(env.iter().copied())
            .output()
            .expect("starts itself");
        let text =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{text}");
        assert!(text.contains("1 passed"), "{text}");
        text
    }

    /// The machine of the child process that a test is run again in; `None` in the process that starts it.
    pub(crate) fn child(test: &str, env: &[(&str, &str)]) -> Option<Self> {
        if std::env::var_os(CHILD).is_some() {
            return Some(Self::here());
        }
        Self::new().run(test, env);
        None
    }

    /// The machine of this process.
    pub(crate) fn here() -> Self {
        Self { folder: PathBuf::from(std::env::var_os(CHILD).expect("a child")), _held: None }
    }

    /// The library's functions.
    pub(crate) fn hip(&self) -> Hip {
        Hip::load()
    }

    /// The driver's calls since the last time.
    pub(crate) fn log(&self) -> String {
        // SAFETY: the fake driver, which is loaded already; its function returns a text that is the caller's.
        unsafe {
            let driver = Library::new("libcuda.so.1").expect("loads");
            let log = driver.get::<unsafe extern "C" fn() -> *mut c_char>(b"fakeLog").expect("exported");
            CString::from_raw(log()).into_string().expect("text")
        }
    }

    /// A text with an entry for each kernel of this build.
    pub(crate) fn write_kernels(&self) {
        for (kernel, _) in moss_kernels::args::all_params() {
            let shared =
                if kernel == "attention_256" { ".extern .shared .align 16 .b8 keys[];\n" } else { "" };
            self.write_kernel(kernel, &format!("{shared}.visible .entry {kernel}(\n"));
        }
    }

    /// A kernel's text.
    pub(crate) fn write_kernel(&self, kernel: &str, text: &str) {
        std::fs::write(self.path("ptx").join(kernel).with_extension("ptx"), text).expect("written");
    }

    /// A file of the machine.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        Path::new(&self.folder).join(name)
    }
}

type Code = c_uint;
type Handle = *mut c_void;

macro_rules! functions {
    ($($field:ident = $symbol:literal: fn($($arg:ty),*) -> $ret:ty;)*) => {
        /// HIP's functions of the library.
        pub(crate) struct Hip {
            $(pub(crate) $field: unsafe extern "C" fn($($arg),*) -> $ret,)*
        }

        impl Hip {
            /// Opens the library as the program does.
            pub(crate) fn load() -> Self {
                // SAFETY: the library under test; the signatures are those of HIP's public header.
                unsafe {
                    let library = Library::new("libamdhip64.so.7").expect("loads");
                    let hip = Self {
                        $($field: *library.get::<unsafe extern "C" fn($($arg),*) -> $ret>($symbol).expect("exported"),)*
                    };
                    std::mem::forget(library);
                    hip
                }
            }
        }
    };
}

functions! {
    standing_text = b"mossRuntimeStanding": fn() -> *const c_char;
    init = b"hipInit": fn(c_uint) -> Code;
    version = b"hipRuntimeGetVersion": fn(*mut c_int) -> Code;
    count = b"hipGetDeviceCount": fn(*mut c_int) -> Code;
    properties = b"hipGetDevicePropertiesR0600": fn(*mut c_void, c_int) -> Code;
    set_device = b"hipSetDevice": fn(c_int) -> Code;
    reset = b"hipDeviceReset": fn() -> Code;
    mem_info = b"hipMemGetInfo": fn(*mut usize, *mut usize) -> Code;
    malloc = b"hipMalloc": fn(*mut Handle, usize) -> Code;
    free = b"hipFree": fn(Handle) -> Code;
    host_malloc = b"hipHostMalloc": fn(*mut Handle, usize, c_uint) -> Code;
    host_free = b"hipHostFree": fn(Handle) -> Code;
    copy = b"hipMemcpyAsync": fn(Handle, *const c_void, usize, c_uint, Handle) -> Code;
    stream_create = b"hipStreamCreateWithFlags": fn(*mut Handle, c_uint) -> Code;
    stream_destroy = b"hipStreamDestroy": fn(Handle) -> Code;
    wait = b"hipStreamWaitEvent": fn(Handle, Handle, c_uint) -> Code;
    event_create = b"hipEventCreateWithFlags": fn(*mut Handle, c_uint) -> Code;
    event_destroy = b"hipEventDestroy": fn(Handle) -> Code;
    event_record = b"hipEventRecord": fn(Handle, Handle) -> Code;
    event_query = b"hipEventQuery": fn(Handle) -> Code;
    module_load = b"hipModuleLoadData": fn(*mut Handle, *const c_void) -> Code;
    module_unload = b"hipModuleUnload": fn(Handle) -> Code;
    module_function = b"hipModuleGetFunction": fn(*mut Handle, Handle, *const c_char) -> Code;
    launch = b"hipModuleLaunchKernel": fn(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut Handle, *mut Handle
    ) -> Code;
    error_name = b"hipGetErrorName": fn(Code) -> *const c_char;
    error_string = b"hipGetErrorString": fn(Code) -> *const c_char;
}

impl Hip {
    /// What the library says it is.
    pub(crate) fn standing(&self) -> String {
        // SAFETY: a static text that ends with a zero byte.
        unsafe { CStr::from_ptr((self.standing_text)()) }.to_string_lossy().into_owned()
    }
}
