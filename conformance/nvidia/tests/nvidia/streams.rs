//! The program's own backend over the library and the fake driver: with every wait there is no hazard, and each wait that is
//! taken away is found, whatever the bits would have been, or is known to be covered by another.

use std::collections::BTreeMap;
use std::path::Path;

use moss_conformance::bits::DitRun;
use moss_golden::synth::{self, Preset};
use moss_hip::{HipBackend, Options, Standing};
use moss_reference::backend::{Backend as _, HostData};
use moss_reference::files::ModelSource;
use moss_reference::model::Model;

use crate::machine::{self, Machine};

/// The folder of the model, for the child.
const MODEL: &str = "MOSS_NVIDIA_TEST_MODEL";
/// Blocks of the demo model's DiT.
const BLOCKS: u64 = 7;

fn open(options: Options) -> HipBackend {
    HipBackend::open(options).unwrap_or_else(|error| panic!("{error}"))
}

/// A number behind a word of the library's last line.
fn figure<'a>(text: &'a str, word: &str) -> &'a str {
    let line =
        text.lines().rfind(|line| line.starts_with("moss-nvidia: launches")).expect("a line of counts");
    line.split(' ').skip_while(|&found| found != word).nth(1).unwrap_or_else(|| panic!("{word} in {line}"))
}

#[test]
fn the_backend_opens_and_copies() {
    let Some(machine) = Machine::child("streams::the_backend_opens_and_copies", &[]) else { return };
    machine.write_kernels();
    let backend = open(Options::default());
    assert_eq!(backend.standing(), Standing::LogicChecked { chain: true });
    assert!(backend.describe().contains("logic check on NVIDIA Fake"), "{}", backend.describe());
    assert_eq!(backend.device().pci, "0003:1b:02.0");
    let values: Vec<f32> = (0..3_000_000).map(|i| i as f32).collect();
    let there = backend.upload(HostData::F32(values.clone()), &[values.len()]).expect("uploaded");
    assert!(backend.download(&there).expect("downloaded").to_f32() == values);
}

/// A short run with every block of the DiT streamed; kernels only take part in the order.
#[test]
fn streamed_run() {
    let name = "streams::streamed_run";
    if std::env::var_os(machine::CHILD).is_some() {
        Machine::here().write_kernels();
        let folder = std::env::var_os(MODEL).expect("set");
        let model = Model::open(&ModelSource::Folder(folder.into())).expect("a model");
        let run = DitRun::new(&model);
        let first = open(Options::default());
        run.stages().admit(&first).expect("admitted");
        let budget = first.admitted_plan().expect("admitted").stages.last().expect("the DiT").budget(0);
        drop(first);
        let streamed = open(Options { vram_budget: Some(budget), ..Options::default() });
        let look = |stage: &_| assert_eq!(streamed.resident_blocks(stage), (0, BLOCKS as usize));
        run.latents(&streamed, look).unwrap_or_else(|error| panic!("{error}"));
        streamed.reset();
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let model = folder.path().join("model");
    synth::write(&Preset::Demo.sizes(), 7, &model).expect("a checkpoint is written");
    let run = |dropped: Option<&str>| run(name, &model, dropped);

    let text = run(None);
    assert_eq!(figure(&text, "hazards"), "0", "{text}");
    let waits: BTreeMap<String, u64> = figure(&text, "waits")
        .split(',')
        .map(|pair| pair.split_once(':').expect("WAITER:N"))
        .map(|(waiter, n)| (waiter.to_owned(), n.parse().expect("a number")))
        .collect();
    // The first backend made streams 1 and 2; this one computes on 3 and copies on 4.
    assert_eq!(waits.keys().collect::<Vec<_>>(), ["3", "4", "host"], "{text}");
    let found = |waiter: &str| -> Vec<u64> {
        let dropped =
            (1..=waits[waiter]).filter(|n| figure(&run(Some(&format!("{waiter}:{n}"))), "hazards") != "0");
        dropped.collect()
    };
    // When a stage is loaded the host waits as well: two stages with fixed weights. Every other wait is needed.
    assert_eq!(found("3"), (3..=waits["3"]).collect::<Vec<_>>(), "compute stream, {waits:?}");
    assert!(waits["3"] > 2 * BLOCKS, "two steps of two passes");
    assert_eq!(found("4"), (1..=waits["4"]).collect::<Vec<_>>(), "copy stream, {waits:?}");
    // The host also waits for marks that keep it from running ahead; needed are at least the downloads after two steps.
    let host = found("host");
    assert!(host.len() >= 2 && (host.len() as u64) < waits["host"], "host: {host:?} of {waits:?}");
}

fn run(name: &str, model: &Path, dropped: Option<&str>) -> String {
    let model = model.display().to_string();
    let mut env = vec![("MOSS_NVIDIA_CHECK", "1"), ("MOSS_NVIDIA_STATS", "1"), (MODEL, model.as_str())];
    env.extend(dropped.map(|wait| ("MOSS_NVIDIA_DROP_WAIT", wait)));
    Machine::new().run(name, &env)
}
