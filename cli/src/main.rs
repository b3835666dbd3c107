//! The moss command.

mod commands;
mod embedded;
mod error;
mod files;
mod interrupt;
mod machine;
mod model;
mod options;
mod plan;
mod progress;
mod say;

use std::process::ExitCode;

use clap::error::ErrorKind;
use moss_reference::simd::Isa;

use crate::commands::{conformance, generate, inspect, pages, stages};
use crate::error::CliError;
use crate::options::{Cli, Command};

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().collect();
    let result = match options::parse(&args) {
        Ok(_) if args.len() < 2 => {
            options::BEGIN.lines().for_each(say::line);
            Err(CliError::Usage("nothing was asked for; moss --help lists the options and commands".into()))
        }
        Ok(cli) => interrupt::listen().and_then(|()| dispatch(&cli)),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp => say::printed(error.print()),
            ErrorKind::DisplayVersion => say::printed(error.print()).and_then(|()| say::out(&build())),
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

/// The CPU's level in use and what GPU code this build holds.
fn build() -> String {
    let cpu = format!("CPU code in use here: {}\n", Isa::best().name());
    cpu + &match moss_kernels::why_empty() {
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
        Some(Command::Inspect(args)) => inspect::run(args),
        Some(Command::Completions { shell }) => pages::completions(*shell),
        Some(Command::Man { command }) => pages::manual(command.as_deref()),
    }
}
