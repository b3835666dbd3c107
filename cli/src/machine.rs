//! The choice of the machine that runs the model, and what a command asks of it beyond the model's operations.

use std::time::Duration;

use moss_conformance::battery::Demand;
use moss_conformance::row::Word;
use moss_hip::{Error, HipBackend, Host, Options, Standing, human};
use moss_reference::backend::{Backend, BackendError};
use moss_reference::cpu::CpuBackend;
use moss_reference::run::Stages;
use moss_reference::simd::Isa;

use crate::error::{CliError, Result};
use crate::options::{BackendName, ModelArgs, check};
use crate::progress::Progress;
use crate::say;

/// A backend with what people want to know about it.
pub(crate) trait Machine: Backend + Sized {
    /// Backend and architecture, for the picture's record.
    fn record_name(&self) -> String;

    /// Blocks of a stage that stay in device memory, and all; `None` where there is no device memory.
    fn resident_blocks(&self, stage: &Self::Stage) -> Option<(usize, usize)>;

    /// What happened that the user should know, once each.
    fn take_notes(&self) -> Vec<String>;

    /// The memory plan of the run with these stages, which was admitted last, for people.
    fn plan_text(&self, stages: &Stages) -> String;

    /// What kind of numbers this machine gives, and what its results are held to.
    fn standing(&self) -> (Word, Demand);

    /// Whether an operation failed because its sizes are not served.
    fn refuses(&self, error: &BackendError) -> bool;

    /// The same machine with device memory for only so many blocks of the last of `stages`; `None` where there is no device
    /// memory.
    ///
    /// # Errors
    /// What planning and opening fail with.
    fn with_blocks(&self, stages: &Stages, blocks: usize) -> Result<Option<Self>>;
}

impl Machine for CpuBackend {
    fn record_name(&self) -> String {
        "cpu".into()
    }

    fn resident_blocks(&self, _stage: &Self::Stage) -> Option<(usize, usize)> {
        None
    }

    fn take_notes(&self) -> Vec<String> {
        Vec::new()
    }

    fn plan_text(&self, stages: &Stages) -> String {
        let mut text =
            String::from("memory: the host's; weights are read from the files as they are needed\n");
        for spec in stages.specs() {
            let parts = spec.blocks.iter().flatten().chain(&spec.fixed).flat_map(|weight| &weight.parts);
            let weights: u64 = parts.map(|part| spec.checkpoint.get(&part.name).bytes().len() as u64).sum();
            text += &format!(
                "  {}: {} weights in the files, {} blocks, {} activations\n",
                spec.name,
                human(weights),
                spec.blocks.len(),
                human(spec.activation_bytes)
            );
        }
        text
    }

    fn standing(&self) -> (Word, Demand) {
        (Word::Measured, Demand::Bits)
    }

    fn refuses(&self, _error: &BackendError) -> bool {
        false
    }

    fn with_blocks(&self, _stages: &Stages, _blocks: usize) -> Result<Option<Self>> {
        Ok(None)
    }
}

impl Machine for HipBackend {
    fn record_name(&self) -> String {
        format!("hip {}", self.device().arch)
    }

    fn resident_blocks(&self, stage: &Self::Stage) -> Option<(usize, usize)> {
        Some(self.resident_blocks(stage))
    }

    fn take_notes(&self) -> Vec<String> {
        self.take_notes()
    }

    fn plan_text(&self, _stages: &Stages) -> String {
        self.admitted_plan().map(|plan| plan.to_string()).unwrap_or_default()
    }

    /// Whoever sums matrix products as chains is held to the CPU's bits; a card's matrix unit need not.
    fn standing(&self) -> (Word, Demand) {
        let demand = |chain| if chain { Demand::Bits } else { Demand::Budget };
        match self.standing() {
            Standing::Card => (Word::Measured, Demand::Budget),
            Standing::Emulated { chain } => (Word::Emulated, demand(chain)),
            Standing::LogicChecked { chain } => (Word::LogicChecked, demand(chain)),
        }
    }

    fn refuses(&self, error: &BackendError) -> bool {
        error.0.downcast_ref::<Error>().is_some_and(Error::is_not_served)
    }

    fn with_blocks(&self, stages: &Stages, blocks: usize) -> Result<Option<Self>> {
        stages.admit(self)?;
        let plan = self.admitted_plan().expect("just admitted");
        let budget = plan.stages.last().expect("a run has stages").budget(blocks);
        self.again(budget).map(Some).map_err(|error| hip_error(&error))
    }
}

/// Work that any backend can do.
pub(crate) trait Work {
    /// Does it.
    ///
    /// # Errors
    /// What stops it.
    fn on<B: Machine>(self, backend: &B, progress: &mut Progress) -> Result<()>;
}

/// An open backend.
pub(crate) enum Opened {
    /// The CPU reference.
    Cpu(CpuBackend),
    /// A Radeon.
    Hip(Box<HipBackend>),
}

impl Opened {
    /// Says what runs the model, does the work on it and closes it.
    ///
    /// # Errors
    /// The work's own.
    pub(crate) fn run(self, work: impl Work, progress: &mut Progress) -> Result<()> {
        match self {
            Opened::Cpu(backend) => {
                progress.line(&backend.describe());
                work.on(&backend, progress)
            }
            Opened::Hip(backend) => {
                progress.line(&backend.describe());
                for device in backend.passed_over() {
                    progress.line(&format!("not used: {device}"));
                }
                let result = work.on(&*backend, progress);
                tell_notes(&*backend, progress);
                // After an error the process ends anyway, and a lost device may not answer.
                if result.is_ok() {
                    backend.reset();
                }
                result
            }
        }
    }
}

/// Prints what the backend has noted.
pub(crate) fn tell_notes<B: Machine>(backend: &B, progress: &Progress) {
    for note in backend.take_notes() {
        progress.line(&format!("note: {note}"));
    }
}

/// Opens the backend that `args` ask for. `best` takes a GPU that works, else the CPU, and says why.
///
/// # Errors
/// A usage error for an option that does not fit the backend or names nothing, a failure when the backend cannot be opened.
pub(crate) fn open(args: &ModelArgs, progress: &Progress) -> Result<Opened> {
    let options = hip_options(args)?;
    args.threads.map(check::threads).transpose()?;
    match args.backend {
        BackendName::Cpu => match gpu_option(args) {
            Some(option) => Err(CliError::Usage(format!("{option}: only for --backend hip"))),
            None => open_cpu(args),
        },
        BackendName::Hip | BackendName::Rocm => open_hip(options),
        BackendName::Best => match HipBackend::open(options) {
            Ok(backend) => {
                progress.line("backend hip: a supported GPU is here");
                Ok(Opened::Hip(Box::new(backend)))
            }
            // Who names a device or its kernels wants no other machine.
            Err(error) if args.device.is_some() || args.backend_impl.is_some() => Err(hip_error(&error)),
            Err(error) => {
                progress.line(&format!("backend cpu: {}", why_not(&error)));
                open_cpu(args)
            }
        },
    }
}

/// Why there is no GPU, in a line that does not frighten who has none.
fn why_not(error: &Error) -> String {
    match error {
        Error::NoLibrary { .. } => {
            "no HIP runtime is installed (--backend hip says where it was looked for)".into()
        }
        _ => format!("hip cannot be used: {}", error.to_string().replace(['\n', '\r'], " ")),
    }
}

/// The first option given that only a GPU understands.
fn gpu_option(args: &ModelArgs) -> Option<&'static str> {
    [
        ("--device", args.device.is_some()),
        ("--vram-budget", args.vram_budget.is_some()),
        ("--backend-impl", args.backend_impl.is_some()),
        ("--device-timeout", args.device_timeout.is_some()),
        ("--trace", args.trace),
    ]
    .into_iter()
    .find_map(|(option, given)| given.then_some(option))
}

fn hip_options(args: &ModelArgs) -> Result<Options> {
    let default = Options::default();
    let wait_limit = match args.device_timeout {
        Some(0) => return Err(CliError::Usage("--device-timeout: 0, at least 1 expected".into())),
        Some(seconds) => Duration::from_secs(seconds.into()),
        None => default.wait_limit,
    };
    Ok(Options {
        device: args.device.clone(),
        vram_budget: args.vram_budget.map(check::vram_budget).transpose()?,
        implementation: args.backend_impl.clone(),
        trace: args.trace,
        wait_limit,
        ..default
    })
}

fn open_hip(options: Options) -> Result<Opened> {
    HipBackend::open(options).map(|backend| Opened::Hip(Box::new(backend))).map_err(|error| hip_error(&error))
}

/// An option that names nothing is a usage error, anything else a failure.
fn hip_error(error: &Error) -> CliError {
    match error {
        Error::NoSuchDevice { .. } | Error::AmbiguousDevice { .. } | Error::NoSuchImpl { .. } => {
            CliError::Usage(error.to_string())
        }
        _ => CliError::failed("--backend hip", error),
    }
}

fn open_cpu(args: &ModelArgs) -> Result<Opened> {
    let opened = match args.threads {
        Some(threads) => CpuBackend::with_isa(Isa::best(), threads),
        None => CpuBackend::new(),
    };
    opened.map(Opened::Cpu).map_err(|error| CliError::failed("--backend cpu", error))
}

/// `--list-devices`: every GPU on stdout, with a `kernels:` line under each that can be used.
///
/// # Errors
/// A failure when there is no runtime or no device.
pub(crate) fn list_devices() -> Result<()> {
    match moss_hip::list_devices(&Host::current()) {
        Ok(listing) => say::out(&listing.to_string()),
        Err(error) => {
            let none = matches!(
                error,
                Error::NoDevice { .. }
                    | Error::NoDriver { .. }
                    | Error::NoPermission { .. }
                    | Error::Hidden { .. }
            );
            if none {
                say::out("no HIP devices\n")?;
            }
            Err(CliError::failed("--list-devices", error))
        }
    }
}
