//! `moss conformance`: the operations' battery, equal bits and golden cases on a backend, and a report of them.

use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;

use moss_conformance::battery::{self, BatteryError, Demand, Summary};
use moss_conformance::bits::{self, DitRun};
use moss_conformance::distance;
use moss_conformance::golden::{
    Case, CaseError, Checkpoints, Loaded, Outcome, RunCaseError, quick, run_case,
};
use moss_conformance::report::{self, Format, Pair, Report};
use moss_conformance::row::{Row, Rule, Word};
use moss_reference::backend::{Backend as _, BackendError};
use moss_reference::cpu::CpuBackend;
use moss_reference::simd;

use crate::commands::judged::Judged;
use crate::commands::models;
use crate::error::{CliError, Result};
use crate::files::output::{Destination, Kind, refuse_shared};
use crate::interrupt;
use crate::machine;
use crate::model::Source;
use crate::options::{ConformanceArgs, OverwriteArgs};
use crate::progress::Progress;

/// The committed cases, seen from the repository's root.
const COMMITTED: &str = "golden/cases";
/// With `--quick`, one in so many cases of an operation.
const QUICK_STRIDE: usize = 4;
/// Prompt of the rows about equal bits, cut to [`BITS_TOKENS`].
const BITS_PROMPT: &str = "a lighthouse in the fog";
/// Tokens of these rows: few, for the official sizes take seconds a token on a small machine.
const BITS_TOKENS: usize = 6;

/// Runs the command.
///
/// # Errors
/// What stops it, with the option or file named; a failure when a row fails, after the reports are written.
pub(crate) fn run(args: &ConformanceArgs) -> Result<()> {
    let mut progress = Progress::new(args.model.quiet, args.model.verbose);
    let reports =
        args.report.iter().map(|path| destination(path, args.overwrite)).collect::<Result<Vec<_>>>()?;
    let places: Vec<_> = reports.iter().map(|(_, place)| place).collect();
    refuse_shared(&places, &[], args.model.model.as_deref())?;
    if let Some(wanted) = &args.matrix_model {
        return models::run(args, wanted, &reports, &mut progress);
    }
    let (mut cases, mut notes) = cases(args)?;
    let source = Source::new(args.model.model.as_deref());
    let folder = args.model.model.as_deref().unwrap_or(Path::new("the demo model")).to_path_buf();
    let own = Rc::new(Loaded { model: source.open()?, tokenizer: source.tokenizer()?, folder });
    let mut checkpoints = None;
    if !cases.is_empty() {
        // Cases for other weights than --model's are not made.
        let work = args.model.model.is_none().then(interrupt::temporary_folder).transpose();
        let work = work.map_err(|error| CliError::failed("a temporary folder", error))?;
        let known = checkpoints.insert(Checkpoints::new(own.clone(), work));
        // What was named runs or is refused, before the operations take their time; of the others those that can run.
        if args.case.is_empty() {
            cases = choose(cases, args, known, &mut notes);
        }
        for case in cases.iter().filter(|_| !args.case.is_empty()) {
            known.of(case).map_err(|error| CliError::failed("--case", error))?;
        }
    }
    let opened = machine::open(&args.model, &progress)?;
    let run = Run { args, cases, notes, reports, source, own, checkpoints };
    opened.run(run, &mut progress, Run::on, Run::on)
}

/// A report's place and format.
fn destination(path: &Path, overwrite: OverwriteArgs) -> Result<(Format, Destination)> {
    let format = Format::of(path).ok_or_else(|| {
        CliError::Usage(format!(
            "--report {}: a name that ends in .md, .json or .html expected",
            path.display()
        ))
    })?;
    Ok((format, Destination::check("--report", path, Kind::Report, overwrite.existing())?))
}

/// The cases that were named, or the committed ones when the program runs inside the repository.
fn cases(args: &ConformanceArgs) -> Result<(Vec<Case>, Vec<String>)> {
    let failed = |error: CaseError| CliError::failed("--case", error);
    let mut notes = Vec::new();
    if !args.case.is_empty() {
        let cases = args.case.iter().map(|folder| Case::open(folder)).collect::<std::result::Result<_, _>>();
        return Ok((cases.map_err(failed)?, notes));
    }
    let committed = Path::new(COMMITTED);
    if !committed.is_dir() {
        notes.push(format!("no golden cases: there is no folder {COMMITTED} here, and no --case was given"));
        return Ok((Vec::new(), notes));
    }
    Ok((Case::open_all(committed).map_err(failed)?, notes))
}

/// Of the committed cases those made for `--model`, and with `--quick` the quickest that together touch every stage.
fn choose(all: Vec<Case>, args: &ConformanceArgs, known: &Checkpoints, notes: &mut Vec<String>) -> Vec<Case> {
    let fits = |case: &Case| args.model.model.is_none() || known.has(case);
    let (mut cases, others): (Vec<_>, Vec<_>) = all.into_iter().partition(fits);
    if !others.is_empty() {
        notes.push(format!("{} golden cases are for other weights and did not run", others.len()));
    }
    if args.quick {
        let of = cases.len();
        cases = quick(cases);
        notes.push(format!("--quick: {} of {of} golden cases", cases.len()));
    }
    cases
}

/// Everything that was asked for, checked.
struct Run<'a> {
    args: &'a ConformanceArgs,
    cases: Vec<Case>,
    notes: Vec<String>,
    reports: Vec<(Format, Destination)>,
    source: Source,
    own: Rc<Loaded>,
    /// Of the cases; `None` when there are none.
    checkpoints: Option<Checkpoints>,
}

impl Run<'_> {
    /// Runs everything and writes the reports.
    fn on<B: Judged>(mut self, backend: &B, progress: &mut Progress) -> Result<()> {
        let (word, demand) = backend.standing();
        let mut rows = Rows(Vec::new());

        let stride = if self.args.quick { QUICK_STRIDE } else { 1 };
        if self.args.quick {
            self.notes.push(format!("--quick: one in {QUICK_STRIDE} of the operations' cases"));
        }
        for op in battery::OPERATIONS {
            let (result, _) = progress.stage(op, |_| {
                let refuses = |error: &BackendError| backend.refuses(error);
                Ok(battery::one(op, std::slice::from_ref(backend), demand, stride, &refuses))
            })?;
            rows.add(battery::row("operations", op, demand, &result, word), progress);
            rows.distance("operations", op, demand, &result, word, progress);
        }

        let own = self.own.clone();
        for op in battery::MODEL_OPERATIONS {
            let (result, _) = progress.stage(op, |_| {
                let backends = std::slice::from_ref(backend);
                Ok(battery::at_model_sizes(op, &own.model.config, backends, demand))
            })?;
            rows.add(battery::row("operations at the model's sizes", op, demand, &result, word), progress);
            rows.distance("operations at the model's sizes", op, demand, &result, word, progress);
        }
        equal_text_states(backend, &own, &mut rows, progress)?;
        equal_latents(backend, &own, &mut rows, progress)?;

        let mut pictures = Vec::new();
        if let Some(mut checkpoints) = self.checkpoints.take() {
            let cpu = (demand == Demand::Budget).then(CpuBackend::new).transpose();
            let cpu = cpu.map_err(|error| CliError::failed("cpu backend", error))?;
            for case in &self.cases {
                let (result, _) = progress.stage(&case.name, |_| {
                    let mut run = || -> std::result::Result<_, RunCaseError> {
                        let own = checkpoints.of(case)?;
                        let ours = run_case(backend, word, case, &own.model, &own.tokenizer)?;
                        // Where bits are not demanded the distances say how far the results are from them.
                        let on_cpu = |cpu| run_case(cpu, word, case, &own.model, &own.tokenizer);
                        let distances = match &cpu {
                            Some(cpu) => distance::rows(&case.name, &ours, &on_cpu(cpu)?, word),
                            None => Vec::new(),
                        };
                        Ok((ours, distances))
                    };
                    Ok(run())
                })?;
                match result {
                    Ok((Outcome { rows: judged, picture, official, .. }, distances)) => {
                        let (width, height) = (case.request.width as usize, case.request.height as usize);
                        pictures.extend(Pair::new(&case.name, width, height, official, picture));
                        judged.into_iter().chain(distances).for_each(|row| rows.add(row, progress));
                    }
                    Err(error) => rows.add(cannot_run(case, word, &error), progress),
                }
            }
        }

        let report = Report {
            program: concat!("moss ", env!("CARGO_PKG_VERSION")).into(),
            machine: report::Machine::this(),
            backend: backend.describe(),
            model: self.source.name,
            notes: self.notes,
            rows: rows.0,
            pictures,
        };
        finish(&report, &self.reports, progress)
    }
}

/// Says the notes, writes the reports and says the verdict.
///
/// # Errors
/// A report that cannot be written; a failure when a row fails.
pub(super) fn finish(
    report: &Report,
    reports: &[(Format, Destination)],
    progress: &mut Progress,
) -> Result<()> {
    for note in &report.notes {
        progress.line(&format!("note: {note}"));
    }
    // A report that cannot be written costs no other.
    let mut written = Ok(());
    for (format, destination) in reports {
        let result = destination.write(|to| report.write(*format, to));
        if result.is_ok() {
            progress.line(&format!("report: {}", destination.path().display()));
        }
        written = written.and(result);
    }
    written?;
    match report.passes() {
        true => {
            progress.line(&report.verdict());
            Ok(())
        }
        false => Err(CliError::Failed(format!("conformance: {}", report.verdict()))),
    }
}

/// Rows, shown as they come.
struct Rows(Vec<Row>);

impl Rows {
    fn add(&mut self, row: Row, progress: &Progress) {
        progress.line(&row.to_string());
        self.0.push(row);
    }

    /// The distance of an operation from the oracle, where its bits are not demanded.
    fn distance(
        &mut self,
        group: &str,
        op: &str,
        demand: Demand,
        result: &std::result::Result<Summary, BatteryError>,
        word: Word,
        progress: &Progress,
    ) {
        if let (Demand::Budget, Ok(summary)) = (demand, result) {
            self.add(distance::row(group, op, summary.distance, String::new(), word), progress);
        }
    }
}

/// The row of a case that could not run at all.
fn cannot_run(case: &Case, word: Word, error: &RunCaseError) -> Row {
    Row {
        group: case.name.clone(),
        name: "cannot run".into(),
        figure: f64::INFINITY,
        limit: 0.0,
        rule: Rule::AtMost,
        reason: "a case runs to its end".into(),
        detail: error.to_string(),
        word,
    }
}

/// The CPU backend with every set of instructions and several numbers of threads.
fn cpus() -> Result<Vec<CpuBackend>> {
    let paths = simd::Isa::available().into_iter();
    let all = paths.flat_map(|path| [1, 2].map(|threads| CpuBackend::with_isa(path, threads)));
    all.map(|cpu| cpu.map_err(|error| CliError::failed("cpu backend", error))).collect()
}

/// The text states of a few tokens: again, beside another prompt, and on the CPU.
fn equal_text_states<B: Judged>(
    backend: &B,
    own: &Loaded,
    rows: &mut Rows,
    progress: &mut Progress,
) -> Result<()> {
    let (word, demand) = backend.standing();
    let tokens = own.tokenizer.encode_prompt(BITS_PROMPT, BITS_TOKENS);
    let ids = tokens.map_err(|error| CliError::failed("tokenizer", error))?.ids;
    let (alone, beside) = ([&ids[..]], [&ids[..], &ids[..1]]);
    let states =
        |prompts: &[&[u32]]| bits::text_states(backend, &own.model, prompts).map(|mut s| s.remove(0));
    let (first, _) = progress.stage("equal bits", |_| Ok(states(&alone)?))?;
    for (name, prompts) in [("the same run again", &alone[..]), ("beside another prompt", &beside)] {
        let (found, _) = progress.stage("equal bits", |_| Ok(states(prompts)))?;
        rows.add(bits::row(&format!("text states, {name}"), found, &first, word), progress);
    }
    let cpus = if demand == Demand::Bits { cpus()? } else { Vec::new() };
    for cpu in cpus {
        let states = || bits::text_states(&cpu, &own.model, &alone).map(|mut states| states.remove(0));
        let (found, _) = progress.stage("equal bits", |_| Ok(states()))?;
        rows.add(bits::row(&format!("text states, {}", cpu.describe()), found, &first, word), progress);
    }
    Ok(())
}

/// Latents after a short run: again, with none, one, half and all of the DiT's blocks on the device, and on the CPU.
fn equal_latents<B: Judged>(
    backend: &B,
    own: &Loaded,
    rows: &mut Rows,
    progress: &mut Progress,
) -> Result<()> {
    let (word, demand) = backend.standing();
    let run = DitRun::new(&own.model);
    let (first, _) = progress.stage("equal bits", |_| Ok(run.latents(backend, |_| ())?))?;
    let (again, _) = progress.stage("equal bits", |_| Ok(run.latents(backend, |_| ())))?;
    rows.add(bits::row("latents, the same run again", again, &first, word), progress);
    let all = own.model.config.dit.num_layers;
    let mut seen = BTreeSet::new();
    for blocks in [0, 1, all / 2, all] {
        let Some(machine) = backend.with_blocks(&run.stages(), blocks)? else { break };
        let mut resident = (0, 0);
        let look = |stage: &B::Stage| resident = machine.resident_blocks(stage).unwrap_or_default();
        let (found, _) = progress.stage("equal bits", |_| Ok(run.latents(&machine, look)))?;
        // Of a few blocks all may fit where half were asked for.
        if seen.insert(resident) {
            let name = format!("latents, {} of {} blocks on the device", resident.0, resident.1);
            rows.add(bits::row(&name, found, &first, word), progress);
        }
    }
    if demand == Demand::Bits {
        let cpu = CpuBackend::new().map_err(|error| CliError::failed("cpu backend", error))?;
        let (found, _) = progress.stage("equal bits", |_| Ok(run.latents(&cpu, |_| ())))?;
        rows.add(bits::row(&format!("latents, {}", cpu.describe()), found, &first, word), progress);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(list: &[&str]) -> ConformanceArgs {
        use clap::Parser;
        let cli = crate::options::Cli::try_parse_from([&["moss", "conformance"], list].concat()).unwrap();
        match cli.command {
            Some(crate::options::Command::Conformance(args)) => args,
            other => panic!("conformance expected, {other:?} found"),
        }
    }

    fn own() -> Rc<Loaded> {
        let source = Source::new(None);
        let (model, tokenizer) = (source.open().unwrap(), source.tokenizer().unwrap());
        Rc::new(Loaded { model, tokenizer, folder: "the demo model".into() })
    }

    #[test]
    fn a_report_of_unknown_format_is_refused_by_name() {
        let args = arguments(&["--report", "a.md", "b.json", "--quick"]);
        assert_eq!(args.report.len(), 2);
        match destination(Path::new("report.pdf"), OverwriteArgs::default()) {
            Err(CliError::Usage(message)) => assert!(message.contains("--report report.pdf"), "{message}"),
            other => panic!("a usage error expected, {other:?} found"),
        }
    }

    #[test]
    fn a_case_that_is_not_there_is_named() {
        match cases(&arguments(&["--case", "/nowhere/case"])) {
            Err(CliError::Failed(message)) => {
                assert!(message.contains("/nowhere/case/case.json"), "{message}")
            }
            other => panic!("a failure expected, {other:?} found"),
        }
    }

    #[test]
    fn without_a_folder_of_cases_there_is_a_note() {
        // Tests run in the package's folder, which has none.
        let (cases, notes) = cases(&arguments(&[])).unwrap();
        assert!(cases.is_empty() && notes[0].contains(COMMITTED), "{notes:?}");
    }

    #[test]
    fn a_quick_run_makes_no_large_checkpoint_and_a_model_runs_its_own_cases() {
        let committed =
            || Case::open_all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(COMMITTED)).unwrap();
        let known = Checkpoints::new(own(), None);
        let names = |args: &[&str]| {
            let mut notes = Vec::new();
            let cases = choose(committed(), &arguments(args), &known, &mut notes);
            (cases.into_iter().map(|case| case.name).collect::<Vec<_>>(), notes)
        };
        let (quick, notes) = names(&["--quick"]);
        assert!(quick.iter().all(|name| name.starts_with("tiny")), "{quick:?}");
        assert!(notes[0].ends_with(&format!("of {} golden cases", committed().len())), "{notes:?}");
        assert_eq!(names(&[]), (committed().into_iter().map(|case| case.name).collect(), vec![]));
        let (demo, _) = names(&["--model", "demo"]);
        assert!(!demo.is_empty() && demo.iter().all(|name| name.starts_with("demo")), "{demo:?}");
        assert_eq!(names(&["--model", "demo", "--quick"]).0.len(), 1);
    }

    #[test]
    fn a_case_for_other_weights_is_a_row_that_fails_and_says_how_to_make_them() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden/cases/tiny-16x16-cfg1");
        let case = Case::open(&golden).unwrap();
        let mut checkpoints = Checkpoints::new(own(), None);
        assert!(!checkpoints.has(&case));
        let error = checkpoints.of(&case).err().expect("other weights");
        let row = cannot_run(&case, Word::Measured, &error.into());
        assert!(!row.passes() && row.detail.contains("synth --config tiny --seed 1"), "{row}");
    }
}
