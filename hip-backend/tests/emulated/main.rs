//! The whole backend on emulated cards: the emulator's `libamdhip64.so` is found on LD_LIBRARY_PATH and runs the shipped code
//! objects. What holds here is emulated, not measured on a card.

mod battery;
mod devices;
mod encoder;
mod mutations;
mod runs;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use moss_golden::synth::{self, Preset};
use moss_hip::{HipBackend, Options};
use moss_kernels::{ARCHS, testing, why_empty};
use moss_reference::files::ModelSource;
use moss_reference::model::Model;

/// Set in the child process that opens the emulated device of its environment.
const CHILD: &str = "MOSS_HIP_TEST_CHILD";

/// Runs a test again in a process of its own, with an emulated card; true in that process. The build must have kernels for the
/// cards; without them that the test is not run is said, or is a failure ([`testing::built`]).
pub(crate) fn emulated(test: &str, env: &[(&str, &str)]) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let cards = env.iter().find(|(name, _)| *name == "MOSS_EMULATE").map_or("", |(_, cards)| cards);
    let needed: Vec<&str> = cards.split(',').filter(|card| ARCHS.contains(card)).collect();
    if testing::built(&needed) != needed || why_empty().is_some() {
        return false;
    }
    let here = std::env::current_exe().expect("a test has a path");
    let library = here.parent().expect("in a folder");
    let out = Command::new(&here)
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "1")
        .env("LD_LIBRARY_PATH", library)
        .env("MOSS_EMULATE_STATS", "1")
        .envs(env.iter().copied())
        .output()
        .expect("starts itself");
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{text}");
    eprintln!("{text}");
    false
}

pub(crate) fn open(options: Options) -> HipBackend {
    let options = Options { wait_limit: Duration::from_secs(3600), ..options };
    HipBackend::open(options).unwrap_or_else(|error| panic!("{error}"))
}

/// A synthetic checkpoint, opened; its files are in `folder`.
pub(crate) fn model(preset: Preset, folder: &Path) -> Model {
    let folder = folder.join("model");
    synth::write(&preset.sizes(), 7, &folder).expect("a checkpoint is written");
    Model::open(&ModelSource::Folder(folder)).expect("and opened")
}

pub(crate) fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}
