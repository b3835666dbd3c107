//! The moss command.

mod again;
mod args;
mod backend;
mod conformance;
mod embedded;
mod error;
mod generate;
mod input;
mod interrupt;
mod model;
mod npy;
mod output;
mod progress;
mod record;
mod say;
mod stages;

use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::args::{Cli, Command};
use crate::error::CliError;

fn main() -> ExitCode {
    let result = match args::parse(&std::env::args_os().collect::<Vec<_>>()) {
        Ok(cli) => interrupt::listen().and_then(|()| dispatch(&cli)),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                let printed = say::printed(error.print());
                match error.kind() {
                    ErrorKind::DisplayVersion => printed.and_then(|()| say::out(&architectures())),
                    _ => printed,
                }
            }
            _ => Err(CliError::Usage(args::complaint(&error))),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !matches!(error, CliError::NoReader) {
                say::line(&format!("moss: {}", error.message()));
            }
            moss_hip::exit_if_lost();
            error.exit_code()
        }
    }
}

/// What GPU code this build holds.
fn architectures() -> String {
    match moss_kernels::why_empty() {
        None => {
            let archs = moss_kernels::built_archs().join(", ");
            format!("GPU code for {archs} ({})\n", moss_kernels::COMPILER)
        }
        Some(reason) => format!("no GPU code: {reason}\n"),
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
