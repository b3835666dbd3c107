//! The moss command.

mod commands;
mod embedded;
mod error;
mod files;
mod interrupt;
mod machine;
mod model;
mod options;
mod progress;
mod say;

use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::commands::{conformance, generate, stages};
use crate::error::CliError;
use crate::options::{Cli, Command};

fn main() -> ExitCode {
    let result = match options::parse(&std::env::args_os().collect::<Vec<_>>()) {
        Ok(cli) => interrupt::listen().and_then(|()| dispatch(&cli)),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                let printed = say::printed(error.print());
                match error.kind() {
                    ErrorKind::DisplayVersion => printed.and_then(|()| say::out(&architectures())),
                    _ => printed,
                }
            }
            _ => Err(CliError::Usage(options::complaint(&error))),
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
