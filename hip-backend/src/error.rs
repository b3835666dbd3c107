//! What can go wrong between this program and a Radeon, each with the way out.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use moss_reference::files::ReadError;

use crate::memory::Refusal;
use crate::sys;
use moss_reference::memory::human;

/// An error of the HIP backend.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No HIP runtime on this machine.
    #[error(
        "no HIP runtime: libamdhip64.so was not found. Install ROCm 6 or 7 (package hip-runtime-amd), or put the folder \
         that holds it on LD_LIBRARY_PATH. Tried:\n  {}", tried.join("\n  ")
    )]
    NoLibrary {
        /// Every path tried, with the reason it failed.
        tried: Vec<String>,
    },

    /// A library with the runtime's name that lacks functions.
    #[error(
        "{} is not a HIP runtime of ROCm 6 or 7: it has no {}. Install ROCm 6 or 7, or put the right folder first on \
         LD_LIBRARY_PATH", path.display(), missing.join(", ")
    )]
    MissingSymbols {
        /// The library.
        path: PathBuf,
        /// The functions it lacks.
        missing: Vec<&'static str>,
    },

    /// A library of this project that says it is something else than this version knows.
    #[error(
        "{} says it is {found:?}; \"emulated\" or \"logic-checked\" expected, with how it sums. Use the library of this version",
        path.display()
    )]
    UnknownStanding {
        /// The library.
        path: PathBuf,
        /// What it says.
        found: String,
    },

    /// A device file does not exist.
    #[error("no HIP device: {} does not exist. {way_out}", path.display())]
    NoDriver {
        /// `/dev/kfd` or `/dev/dri/renderD*`.
        path: PathBuf,
        /// What to do here (in a container or not).
        way_out: String,
    },

    /// A device file may not be opened.
    #[error("no HIP device: {} may not be opened (permission denied): it belongs to group {group}. {way_out}", path.display())]
    NoPermission {
        /// `/dev/kfd` or `/dev/dri/renderD*`.
        path: PathBuf,
        /// The group that owns it.
        group: String,
        /// What to do here (in a container or not).
        way_out: String,
    },

    /// Variables hide every device.
    #[error(
        "no HIP device is visible: {}. ROCR_VISIBLE_DEVICES is applied first and renumbers what the others count; unset \
         them, or name devices that exist",
        variables.iter().map(|(name, value)| format!("{name}={value:?}")).collect::<Vec<_>>().join(", ")
    )]
    Hidden {
        /// The variables that are set, with their values.
        variables: Vec<(&'static str, String)>,
    },

    /// The runtime works and finds no device.
    #[error(
        "no HIP device: the runtime {} sees no GPU and nothing hides one. Check that `rocminfo` lists a GPU and that the \
         amdgpu driver supports it (dmesg | grep amdgpu)", library.display()
    )]
    NoDevice {
        /// The runtime that was asked.
        library: PathBuf,
    },

    /// The runtime was told to lie about the architecture.
    #[error(
        "HSA_OVERRIDE_GFX_VERSION is set ({}): the runtime would report a wrong architecture, which can crash the GPU. Unset it: \
         this program holds native code for {}",
        if value.is_empty() { "to nothing, which means gfx000".to_owned() } else { format!("to {value:?}") },
        supported.join(", ")
    )]
    Override {
        /// Value of the variable.
        value: String,
        /// Architectures with code in this build.
        supported: Vec<String>,
    },

    /// No device can run the program.
    #[error("no supported GPU: {}. This build holds code for {}", passed_over.join("; "), supported.join(", "))]
    Unsupported {
        /// Every device with the reason it cannot be used.
        passed_over: Vec<String>,
        /// Architectures with code in this build.
        supported: Vec<String>,
    },

    /// The build holds no device code.
    #[error(
        "this build holds no GPU code: {reason}. Build again with ROCm's clang, or clang 19 or newer with lld, installed"
    )]
    NoCodeObjects {
        /// What the build found.
        reason: String,
    },

    /// `--device` names nothing.
    #[error("--device {asked}: no such device; the devices are {}", devices.join("; "))]
    NoSuchDevice {
        /// What was asked for.
        asked: String,
        /// The devices there are.
        devices: Vec<String>,
    },

    /// `--device` fits several devices.
    #[error("--device {asked} fits several devices: {}. Use the number or the PCI address", devices.join("; "))]
    AmbiguousDevice {
        /// What was asked for.
        asked: String,
        /// The devices that fit.
        devices: Vec<String>,
    },

    /// The asked kernel set does not exist or does not fit the device.
    #[error("--backend-impl {asked}: not a kernel set for {arch}; the fit ones are {}", fit.join(", "))]
    NoSuchImpl {
        /// What was asked for.
        asked: String,
        /// The device's architecture.
        arch: String,
        /// Kernel sets that fit the device.
        fit: Vec<String>,
    },

    /// A kernel that the code object should hold.
    #[error("the code object for {arch} has no kernel {kernel}: the build is inconsistent, build again")]
    NoSuchKernel {
        /// Architecture of the code object.
        arch: String,
        /// The kernel.
        kernel: String,
    },

    /// A call of the runtime failed.
    #[error("{call} failed: {name} ({code}): {text}{}", place(context))]
    Call {
        /// Function of the runtime.
        call: &'static str,
        /// Its result.
        code: u32,
        /// The code's name.
        name: String,
        /// The runtime's description of it.
        text: String,
        /// What was running: stage, step, block, kernel.
        context: String,
    },

    /// The device has no memory left.
    #[error(
        "out of device memory: {what} needs {}, {} of {} are free{}. {}", human(*bytes), human(*free), human(*total),
        place(context), full(*bytes, *free)
    )]
    OutOfMemory {
        /// What was to be allocated.
        what: String,
        /// Its size.
        bytes: u64,
        /// Free device memory.
        free: u64,
        /// All device memory.
        total: u64,
        /// What was running.
        context: String,
    },

    /// The host has no memory left for the streamed blocks.
    #[error("out of host memory: {what} needs {}, refused even as pageable memory", human(*bytes))]
    HostMemory {
        /// What was to be allocated.
        what: String,
        /// Its size.
        bytes: u64,
    },

    /// Work on the device did not end.
    #[error("the GPU did not answer for {seconds} s{}. {SILENT}", place(context))]
    Timeout {
        /// How long was waited.
        seconds: u64,
        /// What was running: stage, step, block, kernel.
        context: String,
    },

    /// A call of the runtime did not come back.
    #[error("the GPU did not answer: {call} has not come back for {seconds} s{}. {SILENT}", place(context))]
    Blocked {
        /// The call.
        call: &'static str,
        /// How long was waited.
        seconds: u64,
        /// What was running: stage, step, block, kernel or copy.
        context: String,
    },

    /// A thread that cannot be started.
    #[error("the thread that {what} cannot be started: {reason}")]
    Thread {
        /// What it does.
        what: &'static str,
        /// Why not.
        reason: String,
    },

    /// The plan says no.
    #[error(transparent)]
    Refused(#[from] Refusal),

    /// Sizes that a kernel cannot take.
    #[error(transparent)]
    Launch(#[from] moss_kernels::LaunchError),

    /// A weight that the kernels cannot take.
    #[error("{tensor}: {why}")]
    Weight {
        /// Name of the tensor.
        tensor: String,
        /// Why not, with the shapes.
        why: String,
    },

    /// A weight file that can no longer be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },

    /// The thread that feeds weights to the device is gone.
    #[error("the thread that copies weights to the device has ended: {reason}")]
    Feeder {
        /// Its last words.
        reason: String,
    },
}

impl From<ReadError> for Error {
    fn from(ReadError { path, source }: ReadError) -> Self {
        Self::Read { path, source }
    }
}

/// What a device that does not answer may suffer from.
const SILENT: &str = "If copies hang, HSA_ENABLE_SDMA=0 makes the driver copy without its DMA engines; a desktop on the same \
                      GPU or a driver reset (dmesg | grep amdgpu) are other causes";

/// The way out of a full device; a refusal with enough memory free is none of the picture's fault.
fn full(bytes: u64, free: u64) -> &'static str {
    if bytes <= free {
        "The runtime refused it all the same, also with less on the device: another program may have taken the memory, or the \
         driver keeps it. Close what else uses the GPU and try again"
    } else {
        "Make the picture smaller, set --vram-budget or close what else uses the GPU"
    }
}

fn place(context: &str) -> String {
    if context.is_empty() { String::new() } else { format!(" ({context})") }
}

impl Error {
    /// Whether the device is lost: nothing that was allocated can be freed in order, and nothing may be tried again.
    pub fn is_fatal(&self) -> bool {
        match self {
            Error::Call { code, .. } => !sys::HARMLESS.contains(code),
            Error::Timeout { .. } | Error::Blocked { .. } => true,
            _ => false,
        }
    }

    /// Whether the kernels do not serve the sizes that were asked for; other sizes may be asked for next.
    pub fn is_not_served(&self) -> bool {
        matches!(self, Error::Launch(_) | Error::Weight { .. })
    }
}

/// Set by the first fatal error of any device.
static LOST: AtomicBool = AtomicBool::new(false);

/// Notes that a device is lost; see [`exit_if_lost`].
pub(crate) fn note_lost() {
    LOST.store(true, Ordering::Release);
}

/// Ends the process at once, with status 1, if a device was lost: after a fault the runtime's own destructors may wait for
/// ever, so no destructor and no exit handler runs. The caller has printed the error and flushed its output.
pub fn exit_if_lost() {
    if LOST.load(Ordering::Acquire) {
        exit_at_once();
    }
}

/// Ends the process with status 1, without destructors and exit handlers.
#[allow(unsafe_code)]
pub(crate) fn exit_at_once() -> ! {
    unsafe extern "C" {
        fn _exit(status: std::ffi::c_int) -> !;
    }
    // SAFETY: POSIX `_exit` takes any status and does not return.
    unsafe { _exit(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(code: u32) -> Error {
        Error::Call { call: "hipX", code, name: "n".into(), text: "t".into(), context: String::new() }
    }

    #[test]
    fn only_what_loses_the_device_is_fatal() {
        for code in [700, 719, 702, 214, 999] {
            assert!(call(code).is_fatal(), "{code}");
        }
        for code in [1, 2, 9, 98, 100, 101, 200, 209, 500, 801] {
            assert!(!call(code).is_fatal(), "{code}");
        }
        assert!(Error::Timeout { seconds: 1, context: String::new() }.is_fatal());
        let full =
            Error::OutOfMemory { what: "x".into(), bytes: 1, free: 0, total: 0, context: String::new() };
        assert!(!full.is_fatal() && !full.is_not_served());
        let unfit = Error::Weight { tensor: "w".into(), why: "[3, 4]".into() };
        assert!(!unfit.is_fatal() && unfit.is_not_served());
    }

    #[test]
    fn messages_name_the_call_the_place_and_the_way_out() {
        let text = Error::Call {
            call: "hipModuleLaunchKernel",
            code: 719,
            name: "hipErrorLaunchFailure".into(),
            text: "unspecified launch failure".into(),
            context: "stage dit, step 3".into(),
        }
        .to_string();
        assert_eq!(
            text,
            "hipModuleLaunchKernel failed: hipErrorLaunchFailure (719): unspecified launch failure (stage dit, step 3)"
        );
        let text = Error::Timeout { seconds: 120, context: "stage vae, kernel conv2d".into() }.to_string();
        assert!(
            text.contains("120 s (stage vae, kernel conv2d)") && text.contains("HSA_ENABLE_SDMA=0"),
            "{text}"
        );
        let text = Error::NoCodeObjects { reason: "no clang was found".into() }.to_string();
        assert!(text.contains("no clang was found") && text.contains("clang 19"), "{text}");
        let text = Error::NoSuchImpl { asked: "x".into(), arch: "gfx1200".into(), fit: vec!["wmma".into()] }
            .to_string();
        assert_eq!(text, "--backend-impl x: not a kernel set for gfx1200; the fit ones are wmma");
        let text = Error::OutOfMemory {
            what: "a block of the dit".into(),
            bytes: 1 << 30,
            free: 1 << 29,
            total: 1 << 31,
            context: String::new(),
        }
        .to_string();
        assert_eq!(
            text,
            "out of device memory: a block of the dit needs 1.00 GiB, 0.50 GiB of 2.00 GiB are free. Make the picture smaller, set \
             --vram-budget or close what else uses the GPU"
        );
        let text = Error::HostMemory { what: "a block".into(), bytes: 1 << 30 }.to_string();
        assert!(text.contains("out of host memory") && text.contains("1.00 GiB"), "{text}");
        let text = Error::NoSuchKernel { arch: "gfx1200".into(), kernel: "linear".into() }.to_string();
        assert!(text.contains("gfx1200") && text.contains("linear"));
        let text = Error::Weight { tensor: "a.weight".into(), why: "[3, 4]".into() }.to_string();
        assert_eq!(text, "a.weight: [3, 4]");
        let text = Error::Feeder { reason: "gone".into() }.to_string();
        assert!(text.ends_with("gone"));
    }
}
