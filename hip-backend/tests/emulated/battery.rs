use moss_conformance::battery::{Demand, Draws, OPERATIONS, all_served, drawn};
use moss_hip::{Error, Options};
use moss_reference::backend::BackendError;

use crate::{emulated, open};

/// The kernels serve multiples of 16 and the official head sizes; other sizes are refused by name.
fn not_served(error: &BackendError) -> bool {
    error.0.downcast_ref::<Error>().is_some_and(Error::is_not_served)
}

fn battery(options: Options) {
    let backend = open(options);
    let summaries =
        all_served(&[backend], Demand::Bits, &not_served).unwrap_or_else(|error| panic!("{error}"));
    for summary in &summaries {
        eprintln!("{summary}");
        assert!(summary.cases > 0, "{summary}");
    }
}

/// With tensors in memory of their own size the emulator sees every access past one.
#[test]
fn battery_on_gfx1100() {
    if emulated("battery::battery_on_gfx1100", &[("MOSS_EMULATE", "gfx1100")]) {
        battery(Options { exact_memory: true, ..Options::default() });
    }
}

#[test]
fn battery_on_gfx1200() {
    if emulated(
        "battery::battery_on_gfx1200",
        &[("MOSS_EMULATE", "gfx1200"), ("MOSS_EMULATE_STREAMS", "early-copies")],
    ) {
        battery(Options::default());
    }
}

/// Few draws of widths that are served; another seed on each card.
fn drawn_cases(seed: u64) {
    let backend = [open(Options::default())];
    for op in OPERATIONS {
        let draws = Draws { cases: 6, seed, grain: 16 };
        let summary = drawn(op, &backend, Demand::Bits, draws, &not_served);
        let summary = summary.unwrap_or_else(|error| panic!("{error}"));
        eprintln!("{summary}");
        assert!(summary.cases >= 3, "{summary}");
    }
}

#[test]
fn drawn_on_gfx1100() {
    if emulated("battery::drawn_on_gfx1100", &[("MOSS_EMULATE", "gfx1100")]) {
        drawn_cases(1);
    }
}

#[test]
fn drawn_on_gfx1200() {
    if emulated("battery::drawn_on_gfx1200", &[("MOSS_EMULATE", "gfx1200")]) {
        drawn_cases(2);
    }
}
