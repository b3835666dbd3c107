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

use clap::Parser;
use clap::error::ErrorKind;

use crate::args::{Cli, Command};
use crate::error::CliError;

fn main() -> ExitCode {
    let result = match Cli::try_parse() {
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
            _ => Err(CliError::Usage(one_line(&error))),
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

/// Clap's message without its usage block, on one line.
fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let message = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = message.split_whitespace().collect();
    words.join(" ").trim_start_matches("error: ").to_string()
}
