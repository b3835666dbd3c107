//! The battery and the streamed runs, as rows on stdout.

use std::path::PathBuf;

use moss_conformance::battery::{self, Demand};
use moss_conformance::bits::{self, DitRun};
use moss_conformance::row::{Row, Word};
use moss_hip::{Error, HipBackend, Options, Standing};
use moss_reference::backend::BackendError;
use moss_reference::files::ModelSource;
use moss_reference::model::Model;

/// Whether all rows passed, or what stopped the run.
type Result = std::result::Result<bool, String>;

fn open(options: Options) -> std::result::Result<HipBackend, String> {
    HipBackend::open(options).map_err(|error| error.to_string())
}

/// What numbers of this device are, and what they are held to.
fn standing(backend: &HipBackend) -> (Word, Demand) {
    let demand = |chain| if chain { Demand::Bits } else { Demand::Budget };
    match backend.standing() {
        Standing::Card => (Word::Measured, Demand::Budget),
        Standing::Emulated { chain } => (Word::Emulated, demand(chain)),
        Standing::LogicChecked { chain } => (Word::LogicChecked, demand(chain)),
    }
}

#[allow(clippy::print_stdout)]
fn print(row: &Row) -> bool {
    println!("{row}");
    row.passes()
}

/// Each case of the operations on `repeat` backends; the oracle computes once.
pub(crate) fn operations(names: &[String], repeat: usize, stride: usize) -> Result {
    if let Some(unknown) = names.iter().find(|name| !battery::OPERATIONS.contains(&name.as_str())) {
        return Err(format!("{unknown}: no operation; one of {} expected", battery::OPERATIONS.join(", ")));
    }
    let options = || Options { exact_memory: true, ..Options::default() };
    let backends = (0..repeat).map(|_| open(options())).collect::<std::result::Result<Vec<_>, _>>()?;
    let (word, demand) = standing(&backends[0]);
    let refuses = |error: &BackendError| error.0.downcast_ref::<Error>().is_some_and(Error::is_not_served);
    let mut passed = true;
    for op in battery::OPERATIONS {
        if names.is_empty() || names.iter().any(|name| name == op) {
            let result = battery::one(op, &backends, demand, stride, &refuses);
            passed &= print(&battery::row("operations", op, demand, &result, word));
        }
    }
    Ok(passed)
}

/// A short run of the DiT with so many blocks on the device, again and again, against one with all of them.
pub(crate) fn streams(model: PathBuf, repeat: usize, blocks: &[usize]) -> Result {
    let model = Model::open(&ModelSource::Folder(model)).map_err(|error| error.to_string())?;
    let run = DitRun::new(&model);
    let resident = open(Options::default())?;
    let (word, _) = standing(&resident);
    let expected = run.latents(&resident, |_| ()).map_err(|error| error.to_string())?;
    let plan = resident.admitted_plan().ok_or("no run was planned")?;
    let dit = plan.stages.last().ok_or("a plan without stages")?.clone();
    drop(resident);
    let mut passed = true;
    for &count in blocks {
        let streamed = open(Options { vram_budget: Some(dit.budget(count)), ..Options::default() })?;
        for n in 1..=repeat {
            let mut held = (0, 0);
            let found = run.latents(&streamed, |stage| held = streamed.resident_blocks(stage));
            let name = format!("latents, {} of {} blocks on the device, run {n}", held.0, held.1);
            passed &= print(&bits::row(&name, found, &expected, word));
        }
    }
    Ok(passed)
}
