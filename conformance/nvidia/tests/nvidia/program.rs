//! `moss-logic-check` over the fake driver: its rows and its status.

use std::process::{Command, Output};

use moss_golden::synth::{self, Preset};

use crate::machine::Machine;

/// Runs the program on a machine with the library, the fake driver and a text for every kernel.
fn check(args: &[&str]) -> (Option<i32>, String) {
    let machine = Machine::new();
    machine.write_kernels();
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_moss-logic-check"))
        .args(args)
        .env("LD_LIBRARY_PATH", machine.path(""))
        .env("MOSS_PTX", machine.path("ptx"))
        .output()
        .expect("starts");
    (status.code(), format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
}

#[test]
fn streamed_runs_are_a_row_each() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = folder.path().join("model");
    synth::write(&Preset::Demo.sizes(), 7, &model).expect("a checkpoint is written");
    let model = model.display().to_string();
    let (status, text) = check(&["streams", "--model", &model, "--blocks", "0", "3", "--repeat", "2"]);
    assert_eq!(status, Some(0), "{text}");
    for row in ["0 of 7 blocks on the device, run 1", "0 of 7", "3 of 7 blocks on the device, run 2"] {
        assert!(text.lines().any(|line| line.starts_with("ok ") && line.contains(row)), "{row}: {text}");
    }
    assert_eq!(text.lines().count(), 4, "{text}");
}

/// The fake driver runs no kernel, so an operation cannot have the oracle's bits.
#[test]
fn a_wrong_operation_fails_and_an_unknown_one_is_refused() {
    let (status, text) = check(&["operations", "to_bf16", "--repeat", "2"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.starts_with("FAIL operations / to_bf16"), "{text}");
    let (status, text) = check(&["operations", "softmax"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("softmax: no operation; one of concat, to_bf16, "), "{text}");
    let (status, text) = check(&["streams", "--model", "/no/such/model"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("/no/such/model"), "{text}");
}
