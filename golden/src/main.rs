//! The moss-golden command.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use moss_golden::synth::{self, Preset, Sizes, SynthError};
use moss_reference::files::ModelSource;
use moss_reference::model::{Model, OpenError};

/// Makes what golden cases are made from.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write a synthetic checkpoint in the official folder layout
    Synth {
        /// tiny, demo, block, full, or a JSON file with the parts' configurations
        #[arg(long)]
        config: String,
        /// Seed of the weights
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// The folder to make
        #[arg(long)]
        out: PathBuf,
    },
    /// Print the SHA-256 of a checkpoint's weights, as golden cases record it
    Hash {
        /// A model folder
        folder: PathBuf,
    },
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Synth { config, seed, out } => synthesize(&config, seed, &out).map_err(|e| e.to_string()),
        Command::Hash { folder } => hash(folder).map_err(|e| e.to_string()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("moss-golden: {error}");
            ExitCode::from(1)
        }
    }
}

fn synthesize(config: &str, seed: u64, out: &Path) -> Result<(), SynthError> {
    let sizes = match <Preset as clap::ValueEnum>::from_str(config, true) {
        Ok(preset) => preset.sizes(),
        Err(_) => Sizes::from_file(config.as_ref())?,
    };
    synth::write(&sizes, seed, out)
}

#[allow(clippy::print_stdout)]
fn hash(folder: PathBuf) -> Result<(), OpenError> {
    println!("{}", Model::open(&ModelSource::Folder(folder))?.sha256());
    Ok(())
}
