//! The command line: options; how they are read is in [`mod@parse`], their checks are in [`check`].

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

pub(crate) mod check;
mod help;
mod parse;

pub(crate) use help::{BEGIN, VERSION};
pub(crate) use parse::{command, complaint, parse};

use crate::error::{CliError, Result};

/// Makes pictures with MOSS-Image on AMD Radeon GPUs and on CPUs
#[derive(Parser, Debug)]
#[command(name = "moss", version = help::VERSION, before_help = help::BEGIN, after_help = help::AFTER)]
#[command(override_usage = help::USAGE, help_template = help::TEMPLATE, max_term_width = 110)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Cli {
    /// A stage of its own, or a look at a picture.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// What to generate.
    #[command(flatten)]
    pub generate: GenerateArgs,
}

/// What the program does beside making pictures.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Print how a picture was made
    Inspect(InspectArgs),
    /// Print the token ids of a prompt
    Tokenize(TokenizeArgs),
    /// Run the text encoder alone and write its states
    Encode(EncodeArgs),
    /// Decode latents to a picture
    Decode(DecodeArgs),
    /// Check a backend against the definitions and the official pipeline's results
    Conformance(ConformanceArgs),
    /// Print a script that completes commands and options in a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page, of moss or of one of its commands
    Man {
        /// The command
        command: Option<String>,
    },
}

/// Which machine runs the model.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackendName {
    // Comments, for their docs would be lines of the help.
    // A supported GPU, else the CPU; says which and why.
    Best,
    // The CPU reference.
    Cpu,
    // An AMD GPU through the HIP runtime.
    Hip,
    // The same as hip.
    Rocm,
}

/// A number for clap, whose own words for a bad one are Rust's.
fn number<T: FromStr>(text: &str) -> std::result::Result<T, String> {
    text.trim().parse().map_err(|_| "a number expected".into())
}

/// A whole number.
fn whole<T: FromStr>(text: &str) -> std::result::Result<T, String> {
    text.trim().parse().map_err(|_| "a whole number expected".into())
}

/// A whole number that may not be negative.
fn count<T: FromStr>(text: &str) -> std::result::Result<T, String> {
    text.trim().parse().map_err(|_| "a whole number from 0 expected".into())
}

/// Where the model is and what runs it.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Model and machine")]
pub(crate) struct ModelArgs {
    /// A MOSS-Image Base or SFT folder (default: the small demo model inside this program)
    #[arg(short, long, env = "MOSS_MODEL", value_name = "DIR")]
    pub model: Option<PathBuf>,
    /// What runs the model: `best` takes a supported GPU when there is one, else the CPU, with a warning; rocm is hip
    #[arg(long, env = "MOSS_BACKEND", value_name = "NAME", value_enum, default_value = "best")]
    #[arg(ignore_case = true)]
    pub backend: BackendName,
    /// Threads of the cpu backend (default: one a core); the result does not depend on it
    #[arg(long, env = "MOSS_THREADS", value_name = "N", value_parser = count::<usize>)]
    #[arg(allow_hyphen_values = true)]
    pub threads: Option<usize>,
    /// The GPU: its number, PCI address, architecture (gfx1100) or part of its name (default: the best that is supported)
    #[arg(long, env = "MOSS_DEVICE", value_name = "GPU")]
    pub device: Option<String>,
    /// Most device memory to use: 8GiB, 6000MiB, or a number of GiB; the result does not depend on it
    #[arg(long, env = "MOSS_VRAM_BUDGET", value_name = "SIZE", value_parser = check::bytes)]
    #[arg(allow_hyphen_values = true)]
    pub vram_budget: Option<u64>,
    /// Which of the GPU's kernel sets to use; --list-devices names them
    #[arg(long, value_name = "NAME")]
    pub backend_impl: Option<String>,
    /// Seconds to wait for the GPU before it is given up (default 120)
    #[arg(long, env = "MOSS_DEVICE_TIMEOUT", value_name = "N", value_parser = count::<u32>)]
    #[arg(allow_hyphen_values = true)]
    pub device_timeout: Option<u32>,
    /// Print each launch on the GPU before it is made
    #[arg(long)]
    pub trace: bool,
    /// Say nothing but warnings and errors
    #[arg(short, long, overrides_with = "verbose")]
    pub quiet: bool,
    /// Also say what the run is made of: settings, tokens, memory plan
    #[arg(short, long)]
    pub verbose: bool,
    /// The first option given that only a GPU understands.
    #[arg(skip)]
    pub gpu_option: Option<GpuOption>,
}

/// An option that only a GPU understands, as the user gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GpuOption {
    /// `--device`, or `MOSS_DEVICE` when it comes from the environment.
    pub name: &'static str,
    /// Whether it was typed; what is in the environment waits for a GPU.
    pub typed: bool,
}

/// What becomes of files that are there.
#[derive(Args, Debug, Clone, Copy, Default)]
#[command(next_help_heading = "Files that are there already")]
pub(crate) struct OverwriteArgs {
    /// Replace any file; without it only pictures by pictures, arrays by arrays, and none that is read-only
    #[arg(long, overrides_with = "no_clobber")]
    pub force: bool,
    /// Replace no file
    #[arg(long)]
    pub no_clobber: bool,
}

/// The text of a prompt, one way or another.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Text")]
pub(crate) struct PromptArgs {
    /// The prompt; `-` reads it from standard input
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub prompt: Option<OsString>,
    /// A file with the prompt; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "prompt")]
    pub prompt_file: Option<PathBuf>,
    /// Most text tokens of a prompt (default 4096); what is longer is cut, with a warning
    #[arg(long, value_name = "N", value_parser = count::<usize>, allow_hyphen_values = true)]
    pub max_seq: Option<usize>,
}

impl PromptArgs {
    /// Whether no prompt is given.
    pub(crate) fn is_missing(&self) -> bool {
        self.prompt.is_none() && self.prompt_file.is_none()
    }
}

/// Flags of a generation.
#[derive(Args, Debug, Clone)]
pub(crate) struct GenerateArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub prompt: PromptArgs,
    /// What the picture should not show; `-` reads it from standard input
    #[arg(short, long, alias = "negative-prompt", value_name = "TEXT", allow_hyphen_values = true)]
    #[arg(help_heading = "Text")]
    pub negative: Option<OsString>,
    /// Text states instead of a prompt: the cond row's, then the uncond row's, each [L, width]
    #[arg(long, value_name = "COND.npy[,UNCOND.npy]", conflicts_with_all = ["prompt", "prompt_file"])]
    #[arg(help_heading = "Text")]
    pub text_in: Option<String>,
    /// The picture to write; this or --latent-out is required. In a folder that is there it gets a name of its own; {prompt},
    /// {seed} and {index} in a name are filled in; neither replaces a file. `-` is standard output
    #[arg(short, long = "output", value_name = "FILE.png|DIR|-", help_heading = "Picture")]
    pub output: Option<PathBuf>,
    /// Width and height, multiples of 16 (default 1024x1024; the demo model's 128x128)
    #[arg(long, value_name = "WxH", allow_hyphen_values = true, conflicts_with_all = ["width", "height"])]
    #[arg(help_heading = "Picture")]
    pub size: Option<String>,
    /// Width in pixels
    #[arg(short = 'W', long, value_name = "N", value_parser = count::<u32>, allow_hyphen_values = true)]
    #[arg(help_heading = "Picture")]
    pub width: Option<u32>,
    /// Height in pixels
    #[arg(short = 'H', long, value_name = "N", value_parser = count::<u32>, allow_hyphen_values = true)]
    #[arg(help_heading = "Picture")]
    pub height: Option<u32>,
    /// Seed of the noise; -1 picks one (default 42)
    #[arg(short, long, value_name = "N", value_parser = whole::<i128>, allow_hyphen_values = true)]
    #[arg(help_heading = "Picture")]
    pub seed: Option<i128>,
    /// Noise instead of the seed's, [128, h, w] or [1, 128, h, w]
    #[arg(long, value_name = "FILE.npy", help_heading = "Picture")]
    pub noise_in: Option<PathBuf>,
    /// Also write the final latents, [1, 128, h, w]; without -o nothing is decoded
    #[arg(long, value_name = "FILE.npy", help_heading = "Picture")]
    pub latent_out: Option<PathBuf>,
    /// Make a picture again from its record; `-` reads it from standard input
    #[arg(long, value_name = "IMAGE.png", help_heading = "Picture")]
    pub from: Option<PathBuf>,
    /// No generation record in the picture
    #[arg(long, help_heading = "Picture")]
    pub no_metadata: bool,
    /// Steps of the sampler (default 50; the demo model's 20)
    #[arg(long, alias = "num-inference-steps", value_name = "N", value_parser = whole::<i64>)]
    #[arg(allow_hyphen_values = true, help_heading = "Sampling")]
    pub steps: Option<i64>,
    /// Scale of classifier-free guidance; 1 turns it off (default 3)
    #[arg(long, aliases = ["cfg-scale", "guidance-scale"], value_name = "X", value_parser = number::<f32>)]
    #[arg(allow_hyphen_values = true, help_heading = "Sampling")]
    pub cfg: Option<f32>,
    /// Shift of the schedule (default 5)
    #[arg(long, value_name = "X", value_parser = number::<f64>, allow_hyphen_values = true)]
    #[arg(help_heading = "Sampling")]
    pub shift: Option<f64>,
    /// DiT blocks, by number, that the pass with the negative prompt leaves out; "" for none (default 22)
    #[arg(long, value_name = "LIST", allow_hyphen_values = true, help_heading = "Sampling")]
    pub skip_layers: Option<String>,
    /// Progress (0 to 1) from which they are left out (default 0)
    #[arg(long, value_name = "X", value_parser = number::<f64>, allow_hyphen_values = true)]
    #[arg(help_heading = "Sampling")]
    pub skip_start: Option<f64>,
    /// Progress at which they are used again (default 1)
    #[arg(long, value_name = "X", value_parser = number::<f64>, allow_hyphen_values = true)]
    #[arg(help_heading = "Sampling")]
    pub skip_stop: Option<f64>,
    /// The numerical tier; only `reference`
    #[arg(long, value_name = "NAME", default_value = "reference", help_heading = "Sampling")]
    pub tier: String,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub model: ModelArgs,
    /// Print the memory plan and stop; no weights are read
    #[arg(long, help_heading = "Model and machine")]
    pub dry_run: bool,
    /// List the GPUs and whether each can be used
    #[arg(long, help_heading = "Model and machine")]
    pub list_devices: bool,
    /// With --list-devices or --dry-run: one JSON document on standard output
    #[arg(long, help_heading = "Model and machine")]
    pub json: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub overwrite: OverwriteArgs,
    /// Options that front ends may send and this program cannot do yet.
    #[command(flatten)]
    pub unsupported: UnsupportedArgs,
}

/// Declares options that are refused by name.
macro_rules! unsupported {
    ($($field:ident = $name:literal),+ $(,)?) => {
        /// Options of peers that are recognised, so that the refusal can say why.
        #[derive(Args, Debug, Clone, Default)]
        pub(crate) struct UnsupportedArgs {
            $(
                #[arg(long = $name, hide = true, num_args = 0..=1, allow_hyphen_values = true)]
                #[allow(missing_docs)]
                $field: Option<Option<String>>,
            )+
        }

        impl UnsupportedArgs {
            /// Refuses the first that was given.
            pub(crate) fn check(&self) -> Result<()> {
                $(if self.$field.is_some() {
                    return Err(CliError::Usage(format!("--{}: not supported yet", $name)));
                })+
                Ok(())
            }
        }
    };
}

unsupported! {
    lora = "lora",
    sampler = "sampler",
    scheduler = "scheduler",
    schedule = "schedule",
    sigmas = "sigmas",
    preset = "preset",
    image = "image",
    init_image = "init-image",
    mask = "mask",
    strength = "strength",
    reference = "reference",
    control = "control",
    hires = "hires",
    batch = "batch",
    layout = "layout",
    quantize = "quantize",
    dit_file = "dit-file",
    preview = "preview",
}

/// Flags of `moss inspect`.
#[derive(Args, Debug, Clone)]
pub(crate) struct InspectArgs {
    /// A PNG that moss wrote; `-` is standard input
    pub file: PathBuf,
    /// One JSON document: the record and all texts of the picture
    #[arg(long)]
    pub json: bool,
}

/// Flags of `moss tokenize`.
#[derive(Args, Debug, Clone)]
pub(crate) struct TokenizeArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub prompt: PromptArgs,
    /// A MOSS-Image folder (default: the demo model)
    #[arg(short, long, env = "MOSS_MODEL", value_name = "DIR")]
    pub model: Option<PathBuf>,
    /// Do not say how many tokens there are
    #[arg(short, long)]
    pub quiet: bool,
}

/// Flags of `moss encode`.
#[derive(Args, Debug, Clone)]
pub(crate) struct EncodeArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub prompt: PromptArgs,
    /// The states to write, [L, width] f32 with bf16 values; `-` is standard output
    #[arg(short, long = "output", value_name = "STATES.npy", required = true, help_heading = "Text")]
    pub output: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub overwrite: OverwriteArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub model: ModelArgs,
}

/// Flags of `moss decode`.
#[derive(Args, Debug, Clone)]
pub(crate) struct DecodeArgs {
    /// Latents, [128, h, w] or [1, 128, h, w]; `-` is standard input
    #[arg(long, value_name = "LATENT.npy", required = true)]
    pub latent_in: PathBuf,
    /// The picture to write; `-` is standard output
    #[arg(short, long = "output", value_name = "FILE.png", required = true)]
    pub output: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub overwrite: OverwriteArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub model: ModelArgs,
}

/// Flags of `moss conformance`.
#[derive(Args, Debug, Clone)]
pub(crate) struct ConformanceArgs {
    /// A golden case to run, with case.json and tensors.npz (default: those in golden/cases, when that is here)
    #[arg(long, value_name = "DIR")]
    pub case: Vec<PathBuf>,
    /// Fewer cases, for a first look
    #[arg(long)]
    pub quick: bool,
    /// On the emulated runtime: run under another way in which a matrix unit can sum, and show how far results move (a name,
    /// or all)
    #[arg(long, value_name = "NAME")]
    pub matrix_model: Option<String>,
    /// A report to write, in the format that its name ends in: .md, .json or .html
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub report: Vec<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub overwrite: OverwriteArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub model: ModelArgs,
}

#[cfg(test)]
mod tests;
