//! The choice of the machine that runs the model, and what a run says of it.

use std::time::{Duration, Instant};

use half::bf16;
use moss_hip::{Error, HipBackend, Options, human};
use moss_reference::backend::{Backend, Epilogue, HostData};
use moss_reference::cpu::CpuBackend;
use moss_reference::run::Stages;
use moss_reference::simd::Isa;

use crate::error::{CliError, Result};
use crate::interrupt;
use crate::options::{BackendName, ModelArgs, check};
use crate::plan::Memory;
use crate::progress::Progress;

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

    /// The same for programs.
    fn memory(&self, stages: &Stages) -> Memory;

    /// Operations a second, measured by a short one; `None` where a run takes seconds or it is not known.
    ///
    /// # Errors
    /// What an operation fails with.
    fn rate(&self) -> Result<Option<f64>>;
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

    fn memory(&self, stages: &Stages) -> Memory {
        Memory::on_cpu(stages)
    }

    /// By a product as the DiT's are, on all threads; the first call warms up.
    fn rate(&self) -> Result<Option<f64>> {
        let (tokens, width) = (256, 1024);
        let failed = |error| CliError::failed("--backend cpu", error);
        let ones = |rows: usize| {
            let data = vec![bf16::ONE; rows * width];
            self.upload(HostData::Bf16(data), &[rows, width]).map_err(failed)
        };
        let (x, w) = (ones(tokens)?, ones(width)?);
        let mut best = Duration::MAX;
        for _ in 0..4 {
            let begin = Instant::now();
            self.linear(&x, &w, None, Epilogue::None).map_err(failed)?;
            best = best.min(begin.elapsed());
        }
        Ok(Some((2 * tokens * width * width) as f64 / best.as_secs_f64()))
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

    fn memory(&self, _stages: &Stages) -> Memory {
        Memory::on_gpu(&self.admitted_plan().expect("the run was admitted"))
    }

    fn rate(&self) -> Result<Option<f64>> {
        Ok(None)
    }
}

/// An open backend.
pub(crate) enum Opened {
    /// The CPU reference.
    Cpu(CpuBackend),
    /// A Radeon.
    Hip(Box<HipBackend>),
}

impl Opened {
    /// Says what runs the model, does the work on it and closes it. The work is one function, generic over the backend, given
    /// for each: so a command asks of a backend what it needs.
    ///
    /// # Errors
    /// The work's own.
    pub(crate) fn run<W>(
        self,
        work: W,
        progress: &mut Progress,
        on_cpu: impl FnOnce(W, &CpuBackend, &mut Progress) -> Result<()>,
        on_hip: impl FnOnce(W, &HipBackend, &mut Progress) -> Result<()>,
    ) -> Result<()> {
        match self {
            Opened::Cpu(backend) => {
                progress.line(&backend.describe());
                on_cpu(work, &backend, progress)
            }
            Opened::Hip(backend) => {
                progress.line(&backend.describe());
                for device in backend.passed_over() {
                    progress.line(&format!("not used: {device}"));
                }
                let result = on_hip(work, &backend, progress);
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

/// Opens the backend that `args` ask for. `best` takes a GPU that works, else the CPU with a warning; an option that only a GPU
/// understands wants a GPU.
///
/// # Errors
/// A usage error for an option that does not fit the backend or names nothing, a failure when the backend cannot be opened.
pub(crate) fn open(args: &ModelArgs, progress: &Progress) -> Result<Opened> {
    args.threads.map(check::threads).transpose()?;
    match args.backend {
        BackendName::Cpu => match args.gpu_option {
            // What is in the environment waits for a run on a GPU.
            Some(option) if option.typed => {
                Err(CliError::option(option.name, "only for a GPU, and --backend cpu was asked for"))
            }
            _ => open_cpu(args),
        },
        BackendName::Hip | BackendName::Rocm => open_hip(hip_options(args)?),
        BackendName::Best => match HipBackend::open(hip_options(args)?) {
            Ok(backend) => {
                progress.line("backend hip: a supported GPU is here");
                Ok(Opened::Hip(Box::new(backend)))
            }
            Err(error) => match (args.gpu_option, hip_error(&error)) {
                (Some(_), wrong @ CliError::Usage(_)) => Err(wrong),
                (Some(option), _) => Err(CliError::failed(
                    option.name,
                    format!("only for a GPU, and none can be used: {}", why_not(&error)),
                )),
                (None, _) => {
                    let why = why_not(&error);
                    progress.warn(&format!(
                        "this runs on the CPU: {why}; --backend cpu asks for it and stops this warning"
                    ));
                    open_cpu(args)
                }
            },
        },
    }
}

/// Why there is no GPU, in a line that does not frighten who has none.
fn why_not(error: &Error) -> String {
    match error {
        Error::NoLibrary { .. } => {
            "no HIP runtime is installed (--backend hip says where it was looked for)".into()
        }
        _ => error.to_string().replace(['\n', '\r'], " "),
    }
}

fn hip_options(args: &ModelArgs) -> Result<Options> {
    let default = Options::default();
    let wait_limit = match args.device_timeout {
        Some(0) => return Err(CliError::option("--device-timeout", "0, at least 1 expected")),
        Some(seconds) => Duration::from_secs(seconds.into()),
        None => default.wait_limit,
    };
    Ok(Options {
        device: args.device.clone(),
        vram_budget: args.vram_budget,
        implementation: args.backend_impl.clone(),
        trace: args.trace,
        wait_limit,
        last_words: |error| interrupt::last_words(&error.to_string()),
        ..default
    })
}

fn open_hip(options: Options) -> Result<Opened> {
    HipBackend::open(options).map(|backend| Opened::Hip(Box::new(backend))).map_err(|error| hip_error(&error))
}

/// An option that names nothing is a usage error, anything else a failure.
pub(crate) fn hip_error(error: &Error) -> CliError {
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
