//! `moss conformance --matrix-model`: the checks under every way in which the emulated matrix unit can sum, and how far each
//! moves the results. The models are the emulated runtime's, which reads them once, so each has a process of its own.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use moss_conformance::distance;
use moss_conformance::report::{self, Format, Report};
use moss_conformance::row::{Row, Rule, Word};
use serde_json::Value;

use crate::error::{CliError, Result};
use crate::files::output::Destination;
use crate::options::{BackendName, ConformanceArgs};
use crate::progress::Progress;
use crate::{interrupt, say};

/// The emulated runtime's models, the reference's first.
const MODELS: [&str; 5] = ["fma-chain", "products-first", "pairs", "exact", "silicon-gfx1151"];
/// The variable by which the emulated runtime is told its model.
const VARIABLE: &str = "MOSS_EMULATE_MODEL";

/// What a run under one model showed.
struct Under {
    model: &'static str,
    /// Names of the rows that fail.
    failed: Vec<String>,
    /// Group, name and figure of each distance.
    distances: Vec<(String, String, f64)>,
}

/// Runs the same command once for each model and joins what it showed.
///
/// # Errors
/// A usage error for an unknown model or a runtime that is not emulated; a failure when a run breaks off or a row fails.
pub(super) fn run(
    args: &ConformanceArgs,
    wanted: &str,
    reports: &[(Format, Destination)],
    progress: &mut Progress,
) -> Result<()> {
    let models = models(wanted)?;
    if !matches!(args.model.backend, BackendName::Hip | BackendName::Rocm) {
        return Err(CliError::Usage("--matrix-model: only for --backend hip".into()));
    }
    if std::env::var_os("MOSS_EMULATE").is_none() {
        let reason = "only the emulated runtime has models, and MOSS_EMULATE is not set";
        return Err(CliError::Usage(format!("--matrix-model: {reason}")));
    }
    let work =
        interrupt::temporary_folder().map_err(|error| CliError::failed("a temporary folder", error))?;
    let mut all = Vec::new();
    for model in models {
        progress.line(&format!("matrix model {model}"));
        all.push(under(model, &work.path().join(format!("{model}.json")))?);
    }
    say::out(&table(&all))?;
    let report = Report {
        program: concat!("moss ", env!("CARGO_PKG_VERSION")).into(),
        machine: report::Machine::this(),
        backend: format!("hip (emulated), matrix models {wanted}"),
        model: args.model.model.as_deref().map_or("demo".into(), |folder| folder.display().to_string()),
        notes: Vec::new(),
        rows: rows(&all),
        pictures: Vec::new(),
    };
    super::conformance::finish(&report, reports, progress)
}

/// The models that `wanted` names.
fn models(wanted: &str) -> Result<Vec<&'static str>> {
    let chosen: Vec<_> = MODELS.into_iter().filter(|&model| wanted == "all" || wanted == model).collect();
    match chosen.is_empty() {
        true => Err(CliError::Usage(format!(
            "--matrix-model {wanted}: all or one of {} expected",
            MODELS.join(", ")
        ))),
        false => Ok(chosen),
    }
}

/// Runs this very command under one model.
fn under(model: &'static str, file: &Path) -> Result<Under> {
    let failed = |reason: String| CliError::failed(format!("--matrix-model {model}"), reason);
    let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let mut command = Command::new(program);
    command.args(without_own_options(std::env::args_os().skip(1))).arg("--report").arg(file);
    let status = command.env(VARIABLE, model).status().map_err(|error| failed(error.to_string()))?;
    if interrupt::asked() {
        return Err(CliError::Cancelled);
    }
    let text = std::fs::read_to_string(file).map_err(|_| failed(format!("no result: {status}")))?;
    let report: Value = serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?;
    let mut under = Under { model, failed: Vec::new(), distances: Vec::new() };
    for row in report["rows"].as_array().into_iter().flatten() {
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_string();
        if row["word"] != "emulated" {
            return Err(failed("the runtime is not the emulated one".into()));
        }
        if text("group").starts_with(distance::GROUP) {
            let figure = row["figure"].as_f64().unwrap_or(f64::NAN);
            under.distances.push((text("group"), text("name"), figure));
        } else if row["passes"] != true {
            under.failed.push(format!("{} / {}", text("group"), text("name")));
        }
    }
    Ok(under)
}

/// The command line without `--matrix-model` and `--report`, which are this run's own.
fn without_own_options(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut args = args.peekable();
    let is =
        |arg: &OsStr, name: &str| arg.to_str().and_then(|arg| arg.strip_prefix(name)).map(str::to_string);
    while let Some(arg) = args.next() {
        let model = is(&arg, "--matrix-model").filter(|rest| rest.is_empty() || rest.starts_with('='));
        let report = is(&arg, "--report").filter(|rest| rest.is_empty() || rest.starts_with('='));
        match (model, report) {
            (Some(rest), _) if rest.is_empty() => drop(args.next()),
            (Some(_), _) => {}
            (_, Some(_)) => {
                // As many files as follow.
                while args.peek().is_some_and(|next| !next.as_encoded_bytes().starts_with(b"-")) {
                    args.next();
                }
            }
            (None, None) => kept.push(arg),
        }
    }
    kept
}

/// The distances that any model shows, in the order in which they were found.
fn names(all: &[Under]) -> Vec<(&str, &str)> {
    let mut names: Vec<(&str, &str)> = Vec::new();
    for (group, name, _) in all.iter().flat_map(|under| &under.distances) {
        if !names.contains(&(group, name)) {
            names.push((group, name));
        }
    }
    names
}

impl Under {
    /// A distance. The reference's own order has its bits, which its rows have shown, so its distances are 0.
    fn distance(&self, group: &str, name: &str) -> f64 {
        match self.distances.iter().find(|(g, n, _)| g == group && n == name) {
            Some((_, _, figure)) => *figure,
            None if self.model == MODELS[0] && self.failed.is_empty() => 0.0,
            None => f64::NAN,
        }
    }
}

/// The rows of the joined report: what fails under each model, and the distances side by side.
fn rows(all: &[Under]) -> Vec<Row> {
    let verdicts = all.iter().map(|under| Row {
        group: "under each matrix model".into(),
        name: format!("{}: rows that fail", under.model),
        figure: under.failed.len() as f64,
        limit: 0.0,
        rule: Rule::AtMost,
        reason: "any order of sums keeps the limits".into(),
        detail: under.failed.join(", "),
        word: Word::Emulated,
    });
    let distances = names(all).into_iter().flat_map(|(group, name)| {
        let of = group.trim_start_matches(distance::GROUP).trim_start_matches(": ");
        all.iter().map(move |under| {
            let (figure, name) = (under.distance(group, name), format!("{name}, {}", under.model));
            distance::row(of, &name, figure, String::new(), Word::Emulated)
        })
    });
    verdicts.chain(distances).collect()
}

/// The distances as a table with a column for each model.
fn table(all: &[Under]) -> String {
    let mut text = String::from("| distance (emulated) |");
    all.iter().for_each(|under| text += &format!(" {} |", under.model));
    text += "\n| --- |";
    text += &" --- |".repeat(all.len());
    text.push('\n');
    for (group, name) in names(all) {
        let of = group.trim_start_matches(distance::GROUP).trim_start_matches(": ");
        let _ = write!(text, "| {of}: {name} |");
        for under in all {
            let _ = match under.distance(group, name) {
                whole if whole == whole.trunc() && whole.is_finite() => write!(text, " {whole:.0} |"),
                figure => write!(text, " {figure:.1e} |"),
            };
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn under(model: &'static str, failed: &[&str], figure: Option<f64>) -> Under {
        let group = format!("{}: operations", distance::GROUP);
        let distances = figure.map(|figure| (group, "linear".into(), figure)).into_iter().collect();
        Under { model, failed: failed.iter().map(|&name| name.into()).collect(), distances }
    }

    #[test]
    fn the_models_are_the_emulators() {
        let emulators: Vec<&str> =
            moss_emulator::MatrixModel::ALL.into_iter().map(|model| model.name()).collect();
        assert_eq!(MODELS.to_vec(), emulators);
        assert_eq!(models("all").unwrap(), MODELS);
        assert_eq!(models("exact").unwrap(), ["exact"]);
        match models("guess") {
            Err(CliError::Usage(message)) => assert!(message.contains("guess") && message.contains("pairs")),
            other => panic!("a usage error expected, {other:?} found"),
        }
    }

    #[test]
    fn a_run_under_a_model_has_neither_the_models_nor_the_reports() {
        let kept = |args: &[&str]| without_own_options(args.iter().map(OsString::from));
        let rest = ["conformance", "--backend", "hip", "--quick"];
        for own in [
            &["--matrix-model", "all", "--report", "a.md", "b.json"][..],
            &["--matrix-model=all", "--report=a.md"],
            &["--report", "a.md", "--matrix-model", "exact"],
        ] {
            assert_eq!(kept(&[&rest[..1], own, &rest[1..]].concat()), rest);
        }
    }

    #[test]
    fn distances_stand_side_by_side_and_failures_fail() {
        let all = [under("fma-chain", &[], None), under("exact", &[], Some(2.5e-3))];
        assert!(table(&all).ends_with("| operations: linear | 0 | 2.5e-3 |\n"), "{}", table(&all));
        assert!(rows(&all).iter().all(Row::passes));
        let broken = [under("fma-chain", &["operations / linear"], None), under("exact", &[], Some(2.5e-3))];
        let failed: Vec<Row> = rows(&broken).into_iter().filter(|row| !row.passes()).collect();
        // No zero is claimed for a chain that broke.
        assert_eq!(failed.len(), 2, "{failed:?}");
        assert!(failed[0].detail.contains("linear") && failed[1].figure.is_nan());
    }
}
