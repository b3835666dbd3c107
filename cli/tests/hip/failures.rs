//! Allocations that fail and a device that is lost: the same picture, or one line that says what and where.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use crate::{Machine, PICTURE, built};

#[test]
fn a_failed_allocation_ends_with_one_line_that_names_what_and_where() {
    if !built(&["gfx1200"]) {
        return;
    }
    // Which call it is: the VAE's weights, which come first, the encoder's, an activation of the encoder, a block of the DiT.
    for (nth, what, place) in [
        ("1+", "weights of the ", "loading weights"),
        ("12+", "needs", "stage text encoder, step 1, block 0"),
        ("20+", " of the dit needs ", "stage dit, loading weights"),
    ] {
        let machine = Machine::new("gfx1200").set("MOSS_EMULATE_FAIL_MALLOC", nth);
        let line = machine.hip(&[]).complaint(1);
        assert!(line.starts_with("moss: out of device memory: "), "{nth}: {line}");
        assert!(line.contains("of 16.00 GiB are free"), "{nth}: {line}");
        assert!(line.contains("The runtime refused it all the same"), "{nth}: {line}");
        assert!(!line.contains("Make the picture smaller"), "{nth}: {line}");
        assert!(line.contains(what) && line.contains(place), "{nth}: {line}");
        assert!(!machine.path("out.png").exists());
    }
}

/// Every allocation of a run fails once: weights and slots of each stage, activations in the middle of each.
#[test]
fn after_any_failed_allocation_fewer_blocks_stay_or_it_is_made_again() {
    if !built(&["gfx1200"]) {
        return;
    }
    let small: Vec<&str> =
        "--prompt a --size 16x16 --steps 1 --cfg 1 --backend hip --device-timeout 3600 -o out.png"
            .split(' ')
            .collect();
    let machine = Machine::new("gfx1200").set("MOSS_EMULATE_STATS", "1");
    let whole = machine.moss(&small).with(0);
    let expected = machine.pixels("out.png");
    let stats = whole.stderr.lines().find_map(|line| line.strip_suffix(" allocations (emulated)"));
    let allocations = stats.and_then(|line| line.rsplit(' ').next()?.parse::<u32>().ok());
    let allocations = allocations.unwrap_or_else(|| panic!("no count in {}", whole.stderr));
    assert!(allocations > 20, "{allocations}");
    let mut notes = 0;
    for nth in 1..=allocations {
        let machine = Machine::new("gfx1200").set("MOSS_EMULATE_FAIL_MALLOC", nth.to_string());
        let ended = machine.moss(&small).with(0);
        notes += usize::from(ended.says("note: dit: the device did not give "));
        let done = ended.done();
        assert!(done.ends_with("of 7 DiT blocks stayed on the device"), "{nth}: {done}");
        assert!(machine.pixels("out.png") == expected, "{nth}");
    }
    assert!(notes > 7, "the fixed weights, each block and the activations of the DiT; {notes} notes");
}

/// The place of each launch of the small picture, as `--trace` tells it: `stage dit, step 1, block 0, kernel norm`.
fn places() -> Vec<String> {
    let ended = Machine::new("gfx1200").hip(&["--trace"]).with(0);
    let place =
        |line: &str| line.strip_prefix("launch ")?.rsplit_once('(')?.1.strip_suffix(')').map(str::to_owned);
    ended.stderr.lines().filter_map(place).collect()
}

/// A device that is lost in any stage ends the program with the stage, step, block and kernel of the launch that it was lost in,
/// and with `--trace` that launch is the last line.
#[test]
fn a_lost_device_ends_the_program_with_the_place_of_the_launch() {
    if !built(&["gfx1200"]) {
        return;
    }
    let places = places();
    // The first launch of each of these, and one in the middle of it.
    let starts = [
        "stage text encoder, step 1, block 3",
        "stage dit, step 1, kernel",
        "stage dit, step 2, block 6",
        "stage vae",
    ];
    for start in starts {
        let at: Vec<usize> = (0..places.len()).filter(|&n| places[n].starts_with(start)).collect();
        assert!(!at.is_empty(), "{start} in {places:?}");
        for (nth, more) in [(at[0], &[][..]), (at[at.len() / 2], &[]), (at[at.len() - 1], &["--trace"])] {
            let machine = Machine::new("gfx1200").set("MOSS_EMULATE_LOST_AFTER", nth.to_string());
            let ended = machine.hip(more).with(1);
            let last = ended.stderr.lines().rev().find(|line| line.starts_with("launch "));
            assert!(
                last.is_none_or(|line| line.ends_with(&format!("({})", places[nth]))),
                "{}",
                ended.stderr
            );
            let line = ended.complaint(1);
            assert!(line.contains(&format!("({})", places[nth])), "{}: {line}", places[nth]);
            assert!(!machine.path("out.png").exists());
        }
    }
}

/// A call that does not come back is named, and the process ends; nothing temporary stays.
#[test]
fn a_call_that_blocks_is_named_and_ends_the_program() {
    if !built(&["gfx1200"]) {
        return;
    }
    let small =
        PICTURE.iter().chain(&["--backend", "hip", "--device-timeout", "1"]).copied().collect::<Vec<_>>();
    for call in [
        "hipMalloc",
        "hipMemcpyAsync",
        "hipEventQuery",
        "hipModuleLaunchKernel",
        "hipModuleLoadData",
        "hipInit",
    ] {
        let machine = Machine::new("gfx1200").set("MOSS_EMULATE_BLOCK", call);
        let line = machine.moss(&small).complaint(1);
        assert!(line.contains(&format!("the GPU did not answer: {call}")), "{line}");
        assert!(line.contains("has not come back for 1 s"), "{line}");
        let left: Vec<_> =
            fs::read_dir(machine.path("")).expect("a folder").flatten().map(|e| e.file_name()).collect();
        assert_eq!(left, ["libamdhip64.so.7"], "{call}");
    }
}

/// The emulated copy of the first weights takes as long as at 10 bytes a second.
#[test]
fn copies_that_crawl_end_the_program() {
    if !built(&["gfx1200"]) {
        return;
    }
    let machine = Machine::new("gfx1200").set("MOSS_EMULATE_COPY_GIBS", "0.00000001");
    let small =
        PICTURE.iter().chain(&["--backend", "hip", "--device-timeout", "1"]).copied().collect::<Vec<_>>();
    let line = machine.moss(&small).complaint(1);
    assert!(line.contains("the GPU did not answer: hip") && line.contains("stage "), "{line}");
}

#[test]
fn a_signal_during_a_blocked_call_ends_the_program() {
    if !built(&["gfx1200"]) {
        return;
    }
    for call in ["hipMalloc", "hipMemcpyAsync", "hipEventQuery"] {
        let machine = Machine::new("gfx1200").set("MOSS_EMULATE_BLOCK", call);
        let mut child = machine
            .command(&[&PICTURE[..], &["--backend", "hip"]].concat())
            .stderr(Stdio::piped())
            .spawn()
            .expect("moss starts");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok);
        assert!(lines.any(|line| line == format!("moss-emulator: {call} blocks")), "{call}");
        let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
        assert!(sent.expect("kill starts").success());
        let rest: Vec<String> = lines.collect();
        let status = child.wait().expect("it ends");
        assert_eq!(status.code(), Some(143), "{call}: {rest:?}");
        assert_eq!(rest.last().map(String::as_str), Some("moss: cancelled"), "{call}: {rest:?}");
    }
}
