//! The moss-golden command.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use moss_golden::synth::{self, Preset, Sizes};

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
}

fn main() -> ExitCode {
    let Command::Synth { config, seed, out } = Cli::parse().command;
    let sizes = match <Preset as clap::ValueEnum>::from_str(&config, true) {
        Ok(preset) => Ok(preset.sizes()),
        Err(_) => Sizes::from_file(config.as_ref()),
    };
    match sizes.and_then(|sizes| synth::write(&sizes, seed, &out)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("moss-golden: {error}");
            ExitCode::from(1)
        }
    }
}
