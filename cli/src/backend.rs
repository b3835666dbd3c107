//! The choice of the machine that runs the model.

use moss_reference::cpu::CpuBackend;
use moss_reference::cpu::simd::Path;

use crate::args::{BackendName, ModelArgs};
use crate::error::{CliError, Result};
use crate::progress::Progress;

/// Opens the CPU backend that `args` ask for.
///
/// # Errors
/// A usage error for a backend that this build does not have or for a bad `--threads`.
pub(crate) fn open(args: &ModelArgs, progress: &Progress) -> Result<CpuBackend> {
    match args.backend {
        BackendName::Cpu => {}
        BackendName::Best => progress.line("backend cpu: the hip backend is not in this build yet"),
        BackendName::Hip | BackendName::Rocm => {
            return Err(CliError::Usage("--backend hip: not in this build yet; use --backend cpu".into()));
        }
    }
    if args.threads == Some(0) {
        return Err(CliError::Usage("--threads: 0, at least 1 expected".into()));
    }
    let opened = match args.threads {
        Some(threads) => CpuBackend::with_path(Path::best(), threads),
        None => CpuBackend::new(),
    };
    opened.map_err(|error| CliError::failed("--backend cpu", error))
}
