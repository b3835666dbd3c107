//! Allocations that fail and a device that is lost: the same picture, or one line that says what and where.

use crate::{Machine, built, cpu_pixels};

#[test]
fn a_failed_allocation_ends_with_one_line_that_names_what_and_where() {
    if !built(&["gfx1200"]) {
        return;
    }
    // Which call it is: the encoder's weights, an activation of the encoder, a block of the DiT.
    for (nth, what, place) in [
        ("1", "the fixed weights of the text encoder needs 256 bytes", "stage text encoder, loading weights"),
        ("9+", "needs", "stage text encoder, step 1, block 0, kernel"),
        ("20+", "a block of the dit needs 1.1 MiB", "stage dit, loading weights"),
    ] {
        let machine = Machine::new("gfx1200").set("MOSS_EMULATE_FAIL_MALLOC", nth);
        let line = machine.hip(&[]).complaint(1);
        assert!(line.starts_with("moss: out of device memory: "), "{nth}: {line}");
        assert!(line.contains(what) && line.contains(place), "{nth}: {line}");
        assert!(!machine.path("out.png").exists());
    }
}

#[test]
fn after_a_failed_allocation_fewer_blocks_stay_or_memory_is_given_back() {
    if !built(&["gfx1200"]) {
        return;
    }
    let expected = cpu_pixels();
    // The DiT's activations, tried while it loads; an activation in the middle of the encoder, asked for again.
    for (nth, note, resident) in [("26", true, 0), ("9", false, 7)] {
        let machine = Machine::new("gfx1200").set("MOSS_EMULATE_FAIL_MALLOC", nth);
        let ended = machine.hip(&[]).with(0);
        assert_eq!(ended.says("note: dit: the device gave "), note, "{nth}: {}", ended.stderr);
        let done = ended.done();
        assert!(done.ends_with(&format!("{resident} of 7 DiT blocks stayed on the device")), "{nth}: {done}");
        assert!(machine.pixels("out.png") == expected, "{nth}");
    }
}

#[test]
fn a_lost_device_ends_the_program_with_its_place() {
    if !built(&["gfx1200"]) {
        return;
    }
    for (launches, stage) in [("20", "text encoder"), ("100", "dit")] {
        let machine = Machine::new("gfx1200").set("MOSS_EMULATE_LOST_AFTER", launches);
        let line = machine.hip(&[]).complaint(1);
        assert!(line.contains(&format!("stage {stage}")) && line.contains("kernel"), "{line}");
        assert!(!machine.path("out.png").exists());
    }
}
