//! A missing wait between the copy stream and the compute stream, found by the row that compares streamed with resident blocks.

use moss_conformance::bits::{self, DitRun};
use moss_conformance::row::{Row, Word};
use moss_golden::synth::Preset;
use moss_hip::Options;

use crate::{emulated, model, open};

/// The row of a run with every block streamed against one with every block on the device.
fn streamed_row() -> Row {
    let folder = tempfile::tempdir().expect("a folder");
    let model = model(Preset::Demo, folder.path());
    let run = DitRun::new(&model);
    let resident = open(Options::default());
    let expected = run.latents(&resident, |_| ()).unwrap_or_else(|error| panic!("{error}"));
    let plan = resident.admitted_plan().expect("admitted");
    let budget = plan.stages.last().expect("the DiT").budget(0);
    let streamed = open(Options { vram_budget: Some(budget), ..Options::default() });
    let found = run.latents(&streamed, |stage| assert_eq!(streamed.resident_blocks(stage), (0, 7)));
    bits::row("latents, 0 of 7 blocks on the device", found, &expected, Word::Emulated)
}

#[test]
fn with_every_wait_the_streamed_row_passes() {
    let env = [("MOSS_EMULATE", "gfx1200")];
    if emulated("mutations::with_every_wait_the_streamed_row_passes", &env) {
        let row = streamed_row();
        assert!(row.passes(), "{row}");
    }
}

/// Copies run late: the compute stream reads a slot that nothing has been copied to.
#[test]
fn a_compute_stream_that_does_not_wait_fails_the_streamed_row() {
    let env = [("MOSS_EMULATE", "gfx1200"), ("MOSS_EMULATE_SKIP_WAITS", "1")];
    if emulated("mutations::a_compute_stream_that_does_not_wait_fails_the_streamed_row", &env) {
        let row = streamed_row();
        assert!(!row.passes(), "{row}");
        eprintln!("{row}");
    }
}

/// Copies run early: the next block is copied into a slot that a kernel has yet to read.
#[test]
fn a_copy_stream_that_does_not_wait_fails_the_streamed_row() {
    let env = [
        ("MOSS_EMULATE", "gfx1200"),
        ("MOSS_EMULATE_SKIP_WAITS", "1"),
        ("MOSS_EMULATE_STREAMS", "early-copies"),
    ];
    if emulated("mutations::a_copy_stream_that_does_not_wait_fails_the_streamed_row", &env) {
        let row = streamed_row();
        assert!(!row.passes(), "{row}");
        eprintln!("{row}");
    }
}
