//! `moss completions` and `moss man`: what shells and man read.

use clap_complete::Shell;
use clap_mangen::Man;

use crate::error::{CliError, Result};
use crate::{options, say};

/// `moss completions SHELL`: the script on stdout.
///
/// # Errors
/// As [`say::out`].
pub(crate) fn completions(shell: Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut options::command(), "moss", &mut script);
    say::out(&String::from_utf8_lossy(&script))
}

/// `moss man [COMMAND]`: the page, in roff, on stdout.
///
/// # Errors
/// A usage error for a command that is not there; else as [`say::out`].
pub(crate) fn manual(command: Option<&str>) -> Result<()> {
    let mut all = options::command();
    // Names the pages of commands `moss-inspect` and so on.
    all.build();
    let page = match command {
        None => all,
        Some(name) => {
            let found = all.get_subcommands().find(|command| command.get_name() == name);
            let unknown = || CliError::Usage(format!("man: there is no command \"{name}\" in moss"));
            found.cloned().ok_or_else(unknown)?
        }
    };
    let mut roff = Vec::new();
    let source = format!("moss {}", options::VERSION);
    Man::new(page).source(source).render(&mut roff).map_err(|error| CliError::failed("man", error))?;
    say::out(&String::from_utf8_lossy(&roff))
}
