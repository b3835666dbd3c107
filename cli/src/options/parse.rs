//! How the command line is read, and the words for what cannot be read.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory, FromArgMatches};

use super::{Cli, Command as Asked, GpuOption, ModelArgs};

/// What only a GPU understands: the field, the option, and the variable that gives a default.
const GPU_OPTIONS: [(&str, &str, &str); 5] = [
    ("device", "--device", "MOSS_DEVICE"),
    ("vram_budget", "--vram-budget", "MOSS_VRAM_BUDGET"),
    ("backend_impl", "--backend-impl", ""),
    ("device_timeout", "--device-timeout", "MOSS_DEVICE_TIMEOUT"),
    ("trace", "--trace", ""),
];

/// The whole command line. Of an option that is given again the last one wins, an empty variable is as none, and help shows no
/// variable's value.
pub(crate) fn command() -> Command {
    let variable = |arg: Arg| match arg.get_env() {
        Some(name) if std::env::var_os(name).is_some_and(|value| value.is_empty()) => arg.env(None::<&str>),
        Some(_) => arg.hide_env_values(true),
        None => arg,
    };
    let each = |command: Command| command.args_override_self(true).mut_args(variable);
    each(Cli::command()).mut_subcommands(each)
}

/// Reads the command line.
///
/// # Errors
/// Clap's error, also for help and version; [`complaint`] tells it in one line.
pub(crate) fn parse(args: &[OsString]) -> Result<Cli, clap::Error> {
    let text = |i: usize| args.get(i).and_then(|arg| arg.to_str()).unwrap_or_default();
    // Some take any text, so that a prompt can begin with a dash; a forgotten one must not swallow the next option.
    for i in 1..args.len() {
        if let Some(expected) = forgotten(text(i)).filter(|_| is_option(text(i + 1))) {
            let message = format!("{}: {expected} expected, the option {} found\n", text(i), text(i + 1));
            return Err(command().error(ErrorKind::InvalidValue, message));
        }
    }
    let matches = command().try_get_matches_from(args)?;
    let mut cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command()))?;
    let below = matches.subcommand().map_or(&matches, |(_, below)| below);
    let model: Option<&mut ModelArgs> = match &mut cli.command {
        None => Some(&mut cli.generate.model),
        Some(Asked::Encode(args)) => Some(&mut args.model),
        Some(Asked::Decode(args)) => Some(&mut args.model),
        Some(Asked::Conformance(args)) => Some(&mut args.model),
        Some(Asked::Inspect(_) | Asked::Tokenize(_) | Asked::Completions { .. } | Asked::Man { .. }) => None,
    };
    if let Some(model) = model {
        model.gpu_option = gpu_option(below);
    }
    Ok(cli)
}

/// The first GPU option typed, else the first in the environment.
fn gpu_option(matches: &ArgMatches) -> Option<GpuOption> {
    let from = |wanted: ValueSource| {
        GPU_OPTIONS.into_iter().find(|(id, ..)| matches.value_source(id) == Some(wanted))
    };
    let typed = from(ValueSource::CommandLine).map(|(_, name, _)| GpuOption { name, typed: true });
    typed.or_else(|| from(ValueSource::EnvVariable).map(|(_, _, name)| GpuOption { name, typed: false }))
}

/// Whether the word is the name of an option of any command.
fn is_option(word: &str) -> bool {
    with_option(word, |_| ()).is_some()
}

/// What the option of this name wants behind it, if it takes any text.
fn forgotten(word: &str) -> Option<&'static str> {
    let takes = |arg: &Arg| arg.is_allow_hyphen_values_set() && !arg.is_hide_set();
    let text = |arg: &Arg| matches!(arg.get_id().as_str(), "prompt" | "negative");
    let what = with_option(word, |arg| takes(arg).then(|| if text(arg) { "a text" } else { "a value" }));
    what.flatten()
}

/// Asks the option of this name, of any command.
fn with_option<T>(word: &str, ask: impl Fn(&Arg) -> T) -> Option<T> {
    let short = word.strip_prefix('-').and_then(|name| name.parse().ok());
    let long = word.strip_prefix("--");
    let named = |arg: &&Arg| {
        let aliases = arg.get_all_aliases().unwrap_or_default();
        let is = |name: &str| arg.get_long() == Some(name) || aliases.contains(&name);
        (short.is_some() && arg.get_short() == short) || long.is_some_and(is)
    };
    let command = command();
    let all = std::iter::once(&command).chain(command.get_subcommands());
    all.flat_map(Command::get_arguments).find(named).map(ask)
}

/// Clap's message without its usage block, on one line, with what may have been meant, or the variable that is wrong.
pub(crate) fn complaint(error: &clap::Error) -> String {
    let text = error.to_string();
    let mut blocks = text.split("\n\n").map(|block| block.split_whitespace().collect::<Vec<_>>().join(" "));
    let message = blocks.next().unwrap_or_default().trim_start_matches("error: ").to_string();
    let tip = blocks.find_map(|block| block.strip_prefix("tip: ").map(String::from));
    let tip = tip.or_else(|| from_variable(error)).or(match error.kind() {
        ErrorKind::InvalidSubcommand => Some("a prompt is given in quotes, behind --prompt".into()),
        ErrorKind::ArgumentConflict if message.contains("subcommand") => {
            Some("a subcommand's options are given behind it".into())
        }
        _ => None,
    });
    tip.map_or(message.clone(), |tip| format!("{message}; {tip}"))
}

/// The variable that a wrong value comes from.
fn from_variable(error: &clap::Error) -> Option<String> {
    let value = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let (arg, found) = (value(ContextKind::InvalidArg)?, value(ContextKind::InvalidValue)?);
    let option = arg.split([' ', '=']).next()?;
    let command = command();
    let name = command.get_arguments().find(|arg| arg.get_long() == option.strip_prefix("--"))?.get_env()?;
    let typed = std::env::args().any(|word| word.split('=').next() == Some(option));
    (!typed && std::env::var_os(name)? == found).then(|| format!("it is the value of {}", name.display()))
}
