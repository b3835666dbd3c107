//! The moss command.

mod args;
mod backend;
mod conformance;
mod embedded;
mod error;
mod generate;
mod model;
mod npy;
mod output;
mod progress;
mod record;
mod stages;

use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::args::{Cli, Command};
use crate::error::CliError;

fn main() -> ExitCode {
    let result = match args::parse(&std::env::args_os().collect::<Vec<_>>()) {
        Ok(cli) => dispatch(&cli),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                // Nothing sensible is left to do when stdout is closed.
                let _ = error.print();
                if error.kind() == ErrorKind::DisplayVersion {
                    print_architectures();
                }
                return ExitCode::SUCCESS;
            }
            _ => Err(CliError::Usage(args::complaint(&error))),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("moss: {}", error.message());
            moss_hip::exit_if_lost();
            error.exit_code()
        }
    }
}

/// What GPU code this build holds.
#[allow(clippy::print_stdout)]
fn print_architectures() {
    match moss_kernels::why_empty() {
        None => {
            println!("GPU code for {} ({})", moss_kernels::built_archs().join(", "), moss_kernels::COMPILER)
        }
        Some(reason) => println!("no GPU code: {reason}"),
    }
}

fn dispatch(cli: &Cli) -> error::Result<()> {
    match &cli.command {
        None => generate::run(&cli.generate),
        Some(Command::Tokenize(args)) => stages::tokenize(args),
        Some(Command::Encode(args)) => stages::encode(args),
        Some(Command::Decode(args)) => stages::decode(args),
        Some(Command::Conformance(args)) => conformance::run(args),
        Some(Command::Inspect { file }) => stages::inspect(file),
    }
}
