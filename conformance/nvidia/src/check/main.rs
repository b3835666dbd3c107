//! `moss-logic-check`: what the logic check runs beside `moss` itself. It finds the library as `moss` does.

mod kernels;
mod mutants;
mod run;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Runs parts of the program under the logic check's library, and makes kernels with planted defects.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Hold operations against the scalar oracle, every tensor in memory of its own size
    Operations {
        /// Operations (default: all)
        names: Vec<String>,
        /// Times that each case runs
        #[arg(long, default_value_t = 1)]
        repeat: usize,
        /// Run one in so many cases
        #[arg(long, default_value_t = 1)]
        stride: usize,
    },
    /// Hold latents of streamed runs of the DiT against those of a resident one
    Streams {
        /// A MOSS-Image folder
        #[arg(long)]
        model: PathBuf,
        /// Runs for each number of blocks
        #[arg(long, default_value_t = 1)]
        repeat: usize,
        /// Blocks on the device
        #[arg(long, num_args = 1.., default_values_t = [0])]
        blocks: Vec<usize>,
    },
    /// Write the kernels' texts: OUT/ptx, OUT/lines (with line numbers), OUT/mutants with a planted defect each, and their list
    Kernels {
        /// The kernels' sources
        #[arg(long)]
        sources: PathBuf,
        /// The folder to write to
        #[arg(long)]
        out: PathBuf,
    },
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Operations { names, repeat, stride } => {
            run::operations(&names, repeat.max(1), stride.max(1))
        }
        Command::Streams { model, repeat, blocks } => run::streams(model, repeat.max(1), &blocks),
        Command::Kernels { sources, out } => kernels::write(&sources, &out).map(|()| true),
    };
    let status = match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("moss-logic-check: {error}");
            ExitCode::from(1)
        }
    };
    // After a fault nothing on the device can be freed in order.
    moss_hip::exit_if_lost();
    status
}
