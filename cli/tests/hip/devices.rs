//! Which device is listed, chosen, refused.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::{Ended, Machine, built};

#[test]
fn devices_are_listed_with_kernels_under_each_usable_one() {
    if !built(&["gfx1100", "gfx1200"]) {
        return;
    }
    let text = Machine::new("gfx1036,gfx1100,gfx1200").moss(&["--list-devices"]).with(0).stdout;
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("libamdhip64.so.7"), "{text}");
    for (arch, below) in [("gfx1036", "  unusable: "), ("gfx1100", "  kernels: "), ("gfx1200", "  kernels: ")]
    {
        let at = lines.iter().position(|line| line.starts_with("device ") && line.contains(arch));
        assert!(at.is_some_and(|at| lines[at + 1].starts_with(below)), "{arch} in\n{text}");
    }
}

#[test]
fn the_device_and_its_kernels_can_be_chosen() {
    if !built(&["gfx1100", "gfx1200"]) {
        return;
    }
    let machine = Machine::new("gfx1036,gfx1100,gfx1200");
    let dry =
        |more: &[&str]| machine.moss(&[&["--prompt", "a", "--dry-run", "--backend", "rocm"], more].concat());
    let ended = dry(&["--device", "2", "--backend-impl", "wmma"]).with(0);
    assert!(ended.stderr.contains("gfx1200"), "{}", ended.stderr);
    let ended = dry(&[]).with(0);
    assert_eq!(ended.stderr.matches("not used: device ").count(), 2, "{}", ended.stderr);
    let line = dry(&["--device", "9"]).complaint(2);
    assert!(line.contains("--device 9: no such device"), "{line}");
    let line = dry(&["--device", "0"]).complaint(1);
    assert!(line.contains("no code for gfx1036"), "{line}");
    let line = dry(&["--backend-impl", "fast"]).complaint(2);
    assert!(line.contains("--backend-impl fast") && line.contains("wmma"), "{line}");
    let line =
        machine.moss(&["--prompt", "a", "--dry-run", "--backend", "cpu", "--device", "0"]).complaint(2);
    assert!(line.contains("--device: only for a GPU, and --backend cpu was asked for"), "{line}");
}

#[test]
fn devices_and_plans_are_told_to_programs() {
    if !built(&["gfx1100", "gfx1200"]) {
        return;
    }
    let machine = Machine::new("gfx1036,gfx1100,gfx1200");
    let json = |ended: Ended| -> Value { serde_json::from_str(&ended.with(0).stdout).expect("one document") };
    let listed = json(machine.moss(&["--list-devices", "--json"]));
    assert!(listed["runtime"].as_str().is_some_and(|text| text.contains("libamdhip64.so.7")), "{listed}");
    let devices = listed["devices"].as_array().expect("a list");
    let archs: Vec<&Value> = devices.iter().map(|device| &device["arch"]).collect();
    assert_eq!(archs, ["gfx1036", "gfx1100", "gfx1200"]);
    assert!(devices[0]["unusable"].is_string() && devices[0]["kernels"] == Value::Array(vec![]), "{listed}");
    assert!(devices[1]["unusable"].is_null() && devices[1]["kernels"][0] == "wmma", "{listed}");
    assert_eq!(devices.iter().filter(|device| device["default"] == true).count(), 1, "{listed}");

    let planned = json(machine.hip(&["--dry-run", "--json", "--vram-budget", "2048MiB"]));
    assert_eq!(planned["memory"]["budget"], 2_u64 << 30);
    assert_eq!(planned["memory"]["stages"][2]["blocks_on_device"], 7, "{planned}");
    assert!(planned["expected_seconds"].is_null(), "{planned}");
}

/// A GPU with so little memory is part of a processor, whatever the runtime calls it.
#[test]
fn an_integrated_gpu_in_front_is_passed_over_unless_it_is_asked_for() {
    if !built(&["gfx1100", "gfx1200"]) {
        return;
    }
    let machine = Machine::new("gfx1200,gfx1100").set("MOSS_EMULATE_VRAM", "2GiB,24GiB");
    let ended = machine.hip(&[]).with(0);
    assert!(ended.says("hip: device 1: AMD Radeon RX 7900 XTX"), "{}", ended.stderr);
    let passed_over = ended.stderr.lines().find(|line| line.starts_with("not used: device 0: "));
    assert!(passed_over.is_some_and(|line| line.ends_with(": integrated")), "{}", ended.stderr);
    let by_default = machine.pixels("out.png");
    let ended = machine.hip(&["--device", "0"]).with(0);
    assert!(ended.says("hip: device 0: AMD Radeon RX 9060 XT"), "{}", ended.stderr);
    assert!(machine.pixels("out.png") == by_default, "both make the same picture");
}

#[test]
fn no_device_is_an_error_and_best_says_why_it_takes_the_cpu() {
    if !built(&["gfx1100"]) {
        return;
    }
    let none = Machine::new("none");
    let line = none.hip(&[]).complaint(1);
    assert!(line.starts_with("moss: --backend hip: no HIP device"), "{line}");
    assert!(!none.path("out.png").exists());
    let ended = none.moss(&["--list-devices"]).with(1);
    assert_eq!(ended.stdout, "no HIP devices\n");
    let dry = ["--prompt", "a", "--dry-run"];
    let ended = none.moss(&dry).with(0);
    assert!(ended.says("warning: this runs on the CPU: no HIP device"), "{}", ended.stderr);
    // What only a GPU understands is not ignored.
    for option in ["--vram-budget", "--device-timeout", "--device", "--backend-impl", "--trace"] {
        let value = if option == "--trace" { &[][..] } else { &["6"] };
        let line = none.moss(&[&dry[..], &["--quiet", option], value].concat()).complaint(1);
        assert!(
            line.starts_with(&format!("moss: {option}: only for a GPU, and none can be used: ")),
            "{line}"
        );
    }
    let ended = Machine::new("gfx1100").moss(&dry).with(0);
    assert!(ended.says("backend hip: "), "{}", ended.stderr);
}

#[test]
fn a_library_that_is_no_hip_runtime_is_named() {
    if Path::new("/opt/rocm").exists() {
        eprintln!("not checked: a runtime is installed here");
        return;
    }
    let machine = Machine::new("gfx1100");
    fs::write(machine.path("libamdhip64.so.7"), "no library").expect("a file");
    let ended = machine.hip(&[]).with(1);
    let text = ended.stderr;
    assert!(
        text.starts_with("moss: --backend hip: no HIP runtime") && text.contains("LD_LIBRARY_PATH"),
        "{text}"
    );
    assert!(text.contains(&machine.path("").display().to_string()), "{text}");
}

#[test]
fn an_override_is_refused() {
    let machine = Machine::new("gfx1200").set("HSA_OVERRIDE_GFX_VERSION", "11.0.0");
    let line = machine.hip(&[]).complaint(1);
    assert!(line.contains("HSA_OVERRIDE_GFX_VERSION is set"), "{line}");
    // Without --backend hip the CPU is taken, which is said even when quiet.
    let args = ["--prompt", "a", "--size", "16x16", "--steps", "1", "-o", "o.png", "--quiet"];
    let ended = machine.moss(&args).with(0);
    assert!(ended.says("warning: this runs on the CPU: HSA_OVERRIDE_GFX_VERSION is set"), "{}", ended.stderr);
}
