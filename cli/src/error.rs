//! How the program ends when it does not succeed.

use std::fmt::Display;
use std::process::ExitCode;

use moss_reference::model::observe::RunError;

use crate::{interrupt, say};

/// Why the program stops; one line on stderr each.
#[derive(Debug)]
pub(crate) enum CliError {
    /// Wrong or unsupported options: exit 2.
    Usage(String),
    /// An option's value that cannot be, or cannot be done: exit 2.
    Option {
        /// As the user knows it: `--steps`.
        option: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Anything that goes wrong while running: exit 1.
    Failed(String),
    /// Ctrl-C (exit 130) or another signal.
    Cancelled,
    /// Who read stdout has enough: no line and exit 0.
    NoReader,
}

/// Result of everything that a command does.
pub(crate) type Result<T> = std::result::Result<T, CliError>;

impl CliError {
    /// A failure with what was being done or read.
    pub(crate) fn failed(context: impl Display, error: impl Display) -> Self {
        CliError::Failed(format!("{}: {error}", say::safe(&context.to_string())))
    }

    /// An option's value that cannot be.
    pub(crate) fn option(option: &str, reason: impl Into<String>) -> Self {
        CliError::Option { option: option.into(), reason: reason.into() }
    }

    /// The line for people, always one.
    pub(crate) fn message(&self) -> String {
        match self {
            CliError::Usage(message) | CliError::Failed(message) => message.replace(['\n', '\r'], " "),
            CliError::Option { option, reason } => format!("{option}: {reason}").replace(['\n', '\r'], " "),
            CliError::Cancelled => "cancelled".into(),
            CliError::NoReader => "nobody reads standard output".into(),
        }
    }

    /// The exit status.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            CliError::Failed(_) => ExitCode::from(1),
            CliError::Usage(_) | CliError::Option { .. } => ExitCode::from(2),
            CliError::Cancelled => ExitCode::from(interrupt::status()),
            CliError::NoReader => ExitCode::SUCCESS,
        }
    }
}

impl From<RunError> for CliError {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Cancelled => CliError::Cancelled,
            other => CliError::Failed(other.to_string()),
        }
    }
}
