//! The command line: options and how it is read; their checks are in [`check`].

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

pub(crate) mod check;

use crate::error::{CliError, Result};

/// Makes pictures with MOSS-Image. Without a command: `moss --prompt TEXT -o FILE.png`.
#[derive(Parser, Debug)]
#[command(name = "moss", version, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Cli {
    /// A stage of its own, or a look at a picture.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// What to generate.
    #[command(flatten)]
    pub generate: GenerateArgs,
}

/// Stages on their own.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Print the token ids of a prompt.
    Tokenize(TokenizeArgs),
    /// Run the text encoder and write its states.
    Encode(EncodeArgs),
    /// Decode latents to a picture.
    Decode(DecodeArgs),
    /// Check a backend against the definitions and the official pipeline's results.
    Conformance(ConformanceArgs),
    /// Print the generation record in a picture.
    Inspect {
        /// A PNG that moss wrote.
        file: PathBuf,
    },
}

/// Which machine runs the model.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackendName {
    /// The CPU reference.
    Cpu,
    /// An AMD GPU through the HIP runtime.
    Hip,
    /// The same as hip.
    Rocm,
    /// The best that this machine has; says which and why.
    Best,
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
    #[arg(short, long, value_name = "DIR")]
    pub model: Option<PathBuf>,
    /// What runs the model
    #[arg(long, value_enum, default_value = "best", ignore_case = true)]
    pub backend: BackendName,
    /// Threads of the cpu backend (default: one a core); the result does not depend on it
    #[arg(long, value_name = "N", value_parser = count::<usize>, allow_negative_numbers = true)]
    pub threads: Option<usize>,
    /// The GPU: its number, its PCI address or part of its name (default: the best discrete one that is supported)
    #[arg(long, value_name = "N|NAME|PCI")]
    pub device: Option<String>,
    /// Most device memory to use, in GiB; the result does not depend on it
    #[arg(long, value_name = "GIB", value_parser = number::<f64>, allow_negative_numbers = true)]
    pub vram_budget: Option<f64>,
    /// Which of the GPU's kernel sets to use
    #[arg(long, value_name = "NAME")]
    pub backend_impl: Option<String>,
    /// Seconds to wait for the GPU before it is given up (default 120)
    #[arg(long, value_name = "N", value_parser = count::<u32>, allow_negative_numbers = true)]
    pub device_timeout: Option<u32>,
    /// Print each launch on the GPU before it is made
    #[arg(long)]
    pub trace: bool,
    /// No progress
    #[arg(long)]
    pub quiet: bool,
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
    #[arg(long, value_name = "N", value_parser = count::<usize>, allow_negative_numbers = true)]
    pub max_seq: Option<usize>,
}

/// Flags of a generation.
#[derive(Args, Debug, Clone)]
pub(crate) struct GenerateArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub prompt: PromptArgs,
    /// What the picture should not show
    #[arg(short, long, alias = "negative-prompt", value_name = "TEXT", allow_hyphen_values = true)]
    #[arg(help_heading = "Text")]
    pub negative: Option<OsString>,
    /// Text states instead of a prompt: the cond row's, then the uncond row's, each [L, width]
    #[arg(long, value_name = "COND.npy[,UNCOND.npy]", conflicts_with_all = ["prompt", "prompt_file"])]
    #[arg(help_heading = "Text")]
    pub text_in: Option<String>,
    /// The picture to write; this or --latent-out is required
    #[arg(short, long = "output", value_name = "FILE.png", help_heading = "Picture")]
    pub output: Option<PathBuf>,
    /// Width and height, multiples of 16 (default 1024x1024; the demo model's 128x128)
    #[arg(long, value_name = "WxH", allow_hyphen_values = true, conflicts_with_all = ["width", "height"])]
    #[arg(help_heading = "Picture")]
    pub size: Option<String>,
    /// Width in pixels
    #[arg(short = 'W', long, value_name = "N", value_parser = count::<u32>, allow_negative_numbers = true)]
    #[arg(help_heading = "Picture")]
    pub width: Option<u32>,
    /// Height in pixels
    #[arg(short = 'H', long, value_name = "N", value_parser = count::<u32>, allow_negative_numbers = true)]
    #[arg(help_heading = "Picture")]
    pub height: Option<u32>,
    /// Seed of the noise; -1 picks one (default 42)
    #[arg(short, long, value_name = "N", value_parser = whole::<i128>, allow_negative_numbers = true)]
    #[arg(help_heading = "Picture")]
    pub seed: Option<i128>,
    /// Noise instead of the seed's, [128, h, w] or [1, 128, h, w]
    #[arg(long, value_name = "FILE.npy", help_heading = "Picture")]
    pub noise_in: Option<PathBuf>,
    /// Also write the final latents, [1, 128, h, w]; without -o nothing is decoded
    #[arg(long, value_name = "FILE.npy", help_heading = "Picture")]
    pub latent_out: Option<PathBuf>,
    /// Make a picture again from its record
    #[arg(long, value_name = "IMAGE.png", help_heading = "Picture")]
    pub from: Option<PathBuf>,
    /// No generation record in the picture
    #[arg(long, help_heading = "Picture")]
    pub no_metadata: bool,
    /// Steps of the sampler (default 50; the demo model's 20)
    #[arg(long, alias = "num-inference-steps", value_name = "N", value_parser = whole::<i64>)]
    #[arg(allow_negative_numbers = true, help_heading = "Sampling")]
    pub steps: Option<i64>,
    /// Scale of classifier-free guidance; 1 turns it off (default 3)
    #[arg(long, aliases = ["cfg-scale", "guidance-scale"], value_name = "X", value_parser = number::<f32>)]
    #[arg(allow_negative_numbers = true, help_heading = "Sampling")]
    pub cfg: Option<f32>,
    /// Shift of the schedule (default 5)
    #[arg(long, value_name = "X", value_parser = number::<f64>, allow_negative_numbers = true)]
    #[arg(help_heading = "Sampling")]
    pub shift: Option<f64>,
    /// DiT blocks, by number, that the pass with the negative prompt leaves out; "" for none (default 22)
    #[arg(long, value_name = "LIST", allow_hyphen_values = true, help_heading = "Sampling")]
    pub skip_layers: Option<String>,
    /// Progress (0 to 1) from which they are left out (default 0)
    #[arg(long, value_name = "X", value_parser = number::<f64>, allow_negative_numbers = true)]
    #[arg(help_heading = "Sampling")]
    pub skip_start: Option<f64>,
    /// Progress at which they are used again (default 1)
    #[arg(long, value_name = "X", value_parser = number::<f64>, allow_negative_numbers = true)]
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

/// Flags of `moss tokenize`.
#[derive(Args, Debug, Clone)]
pub(crate) struct TokenizeArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub prompt: PromptArgs,
    /// A MOSS-Image folder (default: the demo model)
    #[arg(short, long, value_name = "DIR")]
    pub model: Option<PathBuf>,
}

/// Flags of `moss encode`.
#[derive(Args, Debug, Clone)]
pub(crate) struct EncodeArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub prompt: PromptArgs,
    /// The states to write, [L, width] f32 with bf16 values
    #[arg(short, long = "output", value_name = "STATES.npy", required = true, help_heading = "Text")]
    pub output: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub model: ModelArgs,
}

/// Flags of `moss decode`.
#[derive(Args, Debug, Clone)]
pub(crate) struct DecodeArgs {
    /// Latents, [128, h, w] or [1, 128, h, w]
    #[arg(long, value_name = "LATENT.npy", required = true)]
    pub latent_in: PathBuf,
    /// The picture to write
    #[arg(short, long = "output", value_name = "FILE.png", required = true)]
    pub output: PathBuf,
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
    /// A report to write, in the format that its name ends in: .md, .json or .html
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub report: Vec<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub model: ModelArgs,
}

/// Reads the command line.
///
/// # Errors
/// Clap's error, also for help and version; [`complaint`] tells it in one line.
pub(crate) fn parse(args: &[OsString]) -> std::result::Result<Cli, clap::Error> {
    let text = |i: usize| args.get(i).and_then(|arg| arg.to_str()).unwrap_or_default();
    // These take any text, so that a prompt can begin with a dash; a forgotten prompt must not swallow the next option.
    for i in 1..args.len() {
        if matches!(text(i), "--prompt" | "-p" | "--negative" | "-n") && is_option(text(i + 1)) {
            let message = format!("{}: a text expected, the option {} found\n", text(i), text(i + 1));
            return Err(Cli::command().error(ErrorKind::InvalidValue, message));
        }
    }
    Cli::try_parse_from(args)
}

/// Whether the word is the name of an option of any command.
fn is_option(word: &str) -> bool {
    let command = Cli::command();
    std::iter::once(&command).chain(command.get_subcommands()).flat_map(clap::Command::get_arguments).any(
        |arg| {
            let short = word.strip_prefix('-').and_then(|name| name.parse().ok());
            let long = word.strip_prefix("--");
            (short.is_some() && arg.get_short() == short) || (long.is_some() && arg.get_long() == long)
        },
    )
}

/// Clap's message without its usage block, on one line, with what may have been meant.
pub(crate) fn complaint(error: &clap::Error) -> String {
    let text = error.to_string();
    let mut blocks = text.split("\n\n").map(|block| block.split_whitespace().collect::<Vec<_>>().join(" "));
    let message = blocks.next().unwrap_or_default().trim_start_matches("error: ").to_string();
    let tip = blocks.find_map(|block| block.strip_prefix("tip: ").map(String::from));
    let tip = tip.or(match error.kind() {
        ErrorKind::InvalidSubcommand => Some("a prompt is given in quotes, behind --prompt".into()),
        ErrorKind::ArgumentConflict if message.contains("subcommand") => {
            Some("a subcommand's options are given behind it".into())
        }
        _ => None,
    });
    tip.map_or(message.clone(), |tip| format!("{message}; {tip}"))
}

#[cfg(test)]
mod tests;
