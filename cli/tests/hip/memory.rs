//! What stays on the device, what is refused, and that neither a budget nor a slow or failing machine changes a picture.

use crate::{Machine, built, cpu_pixels};

/// Two of the demo model's blocks fit beside the reserve, two slots and everything else; gibibytes.
const SOME_BLOCKS: &str = "0.515";

#[test]
fn a_dry_run_prints_the_plan_and_writes_nothing() {
    if !built(&["gfx1200"]) {
        return;
    }
    let machine = Machine::new("gfx1200");
    let text = machine.hip(&["--dry-run", "--vram-budget", "2"]).with(0).stdout;
    assert!(text.starts_with("memory: 2.00 GiB usable"), "{text}");
    for stage in ["  vae: ", "  text encoder: ", "  dit: "] {
        assert!(text.lines().any(|line| line.starts_with(stage)), "{stage:?} in\n{text}");
    }
    assert!(text.contains("all 7 blocks on the device"), "{text}");
    assert!(!machine.path("out.png").exists());
    let ended = machine.moss(&["--prompt", "a", "--dry-run", "--backend", "cpu"]).with(0);
    assert!(ended.stdout.contains("  dit: "), "{}", ended.stdout);
}

#[test]
fn some_blocks_on_the_device_and_some_streamed_give_the_same_picture() {
    if !built(&["gfx1200"]) {
        return;
    }
    let machine = Machine::new("gfx1200").set("MOSS_EMULATE_STREAMS", "early-copies");
    let text = machine.hip(&["--dry-run", "--vram-budget", SOME_BLOCKS]).with(0).stdout;
    assert!(text.contains("2 of 7 blocks on the device") && text.contains("5 in host memory"), "{text}");
    let done = machine.hip(&["--vram-budget", SOME_BLOCKS]).done();
    assert!(done.ends_with("2 of 7 DiT blocks stayed on the device"), "{done}");
    assert!(machine.pixels("out.png") == cpu_pixels());
}

#[test]
fn blocks_that_may_not_be_pinned_are_streamed_all_the_same() {
    if !built(&["gfx1100"]) {
        return;
    }
    let machine = Machine::new("gfx1100").set("MOSS_EMULATE_FAIL_HOST_MALLOC", "1+");
    let ended = machine.hip(&["--vram-budget", SOME_BLOCKS]).with(0);
    assert!(ended.says("note: dit: the system refused to pin host memory"), "{}", ended.stderr);
    assert!(ended.done().ends_with("2 of 7 DiT blocks stayed on the device"));
    assert!(machine.pixels("out.png") == cpu_pixels());
}

#[test]
fn slow_copies_change_nothing() {
    if !built(&["gfx1200"]) {
        return;
    }
    let machine = Machine::new("gfx1200").set("MOSS_EMULATE_COPY_GIBS", "0.05");
    machine.hip(&["--vram-budget", SOME_BLOCKS]).done();
    assert!(machine.pixels("out.png") == cpu_pixels());
}

/// So little memory means an integrated GPU; the reserve is a part of it.
#[test]
fn half_a_gibibyte_runs_a_model_of_15_mb() {
    let machine = Machine::new("gfx1200").set("MOSS_EMULATE_VRAM", "512MiB");
    let done = machine.hip(&[]).done();
    assert!(done.ends_with("7 of 7 DiT blocks stayed on the device"), "{done}");
    assert!(machine.pixels("out.png") == cpu_pixels());
}

/// The first refusal says what the whole run needs: with so much it is admitted.
#[test]
fn the_memory_needed_is_said_once() {
    let machine = Machine::new("gfx1200");
    let line = machine.hip(&["--vram-budget", "0.001"]).complaint(1);
    let needs = line.split("needs at least ").nth(1).and_then(|rest| rest.split(" GiB").next());
    let needs: f64 = needs.and_then(|gib| gib.parse().ok()).unwrap_or_else(|| panic!("{line}"));
    let more = (needs + 0.01).to_string();
    machine.hip(&["--dry-run", "--vram-budget", &more]).with(0);
}

#[test]
fn too_little_memory_is_refused_with_the_sizes_before_the_text_encoder() {
    if !built(&["gfx1200"]) {
        return;
    }
    let budget = Machine::new("gfx1200");
    let device = Machine::new("gfx1200").set("MOSS_EMULATE_VRAM", "8MiB");
    for (machine, args, words) in [
        (&budget, &["--vram-budget", "0.001"][..], "--vram-budget allows 1.0 MiB"),
        (&device, &[], "free are 8.0 MiB"),
    ] {
        let ended = machine.hip(args);
        assert!(!ended.says("text encoder"), "{}", ended.stderr);
        let line = ended.complaint(1);
        assert!(line.contains(words) && line.contains("needs at least"), "{line}");
        assert!(!machine.path("out.png").exists());
    }
}
