//! `moss conformance --backend hip`: every row, its word, and the exit status.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::{Machine, built};

/// A committed case.
fn case(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden/cases").join(name)
}

/// Runs the quick form with one case; the report.
fn conformance(machine: &Machine, case: &Path, status: i32) -> Value {
    let case = case.display().to_string();
    let args = ["conformance", "--backend", "hip", "--quick", "--case", &case, "--device-timeout", "3600"];
    let report = ["--report", "report.json", "report.md", "report.html"];
    machine.moss(&[&args[..], &report].concat()).with(status);
    for name in ["report.md", "report.html"] {
        let text = String::from_utf8(machine.read(name)).expect("text");
        assert!(text.contains("emulated") && !text.contains("measured"), "{name}: {text}");
    }
    serde_json::from_slice(&machine.read("report.json")).expect("JSON")
}

/// The rows of a report as (`group / name`, passes), all of which must be emulated.
fn rows(report: &Value) -> Vec<(String, bool)> {
    let text = |row: &Value, key: &str| row[key].as_str().expect("a string").to_owned();
    let rows = report["rows"].as_array().expect("rows").iter();
    rows.map(|row| {
        assert_eq!(text(row, "word"), "emulated", "{row}");
        let passes = row["passes"].as_bool().expect("a verdict");
        (format!("{} / {}", text(row, "group"), text(row, "name")), passes)
    })
    .collect()
}

fn passes(arch: &str) {
    if !built(&[arch]) {
        return;
    }
    let machine = Machine::new(arch);
    let report = conformance(&machine, &case("tiny-one-token"), 0);
    assert_eq!(report["passes"], true, "{report}");
    assert!(report["backend"].as_str().is_some_and(|line| line.contains(arch)), "{report}");
    let rows = rows(&report);
    let expected = [
        "operations / linear: ",
        "operations / attention: ",
        "operations / gated_delta_rule: ",
        "operations / conv2d: ",
        "equal bits / text states, the same run again",
        "equal bits / text states, beside another prompt",
        "equal bits / text states, CPU, ",
        "equal bits / latents, the same run again",
        "equal bits / latents, 0 of 7 blocks on the device",
        "equal bits / latents, 1 of 7 blocks on the device",
        "equal bits / latents, 3 of 7 blocks on the device",
        "equal bits / latents, 7 of 7 blocks on the device",
        "equal bits / latents, CPU, ",
        "tiny-one-token / tokens",
        "tiny-one-token / text: ",
        "tiny-one-token / final latents: ",
        "tiny-one-token / VAE",
    ];
    for start in expected {
        let found = rows.iter().find(|(name, _)| name.starts_with(start));
        assert!(found.is_some_and(|(_, passes)| *passes), "{start:?} in {rows:#?}");
    }
}

#[test]
fn gfx1100_conforms() {
    passes("gfx1100");
}

#[test]
fn gfx1200_conforms() {
    passes("gfx1200");
}

/// The row that fails is the one that is wrong, and the exit status says so.
#[test]
fn a_failing_row_is_named_and_the_status_is_1() {
    if !built(&["gfx1200"]) {
        return;
    }
    let machine = Machine::new("gfx1200");
    let changed = machine.path("changed");
    fs::create_dir(&changed).expect("a folder");
    for entry in fs::read_dir(case("tiny-16x16-cfg1")).expect("the case") {
        let path = entry.expect("readable").path();
        fs::copy(&path, changed.join(path.file_name().expect("a name"))).expect("copied");
    }
    let text = String::from_utf8(machine.read("changed/case.json")).expect("text");
    let mut value: Value = serde_json::from_str(&text).expect("JSON");
    value["request"]["prompt"] = "!".into();
    fs::write(changed.join("case.json"), value.to_string()).expect("written");
    let report = conformance(&machine, &changed, 1);
    let failed: Vec<String> =
        rows(&report).into_iter().filter(|(_, passes)| !passes).map(|(name, _)| name).collect();
    assert!(!failed.is_empty() && failed.iter().all(|name| name.contains("/ tokens")), "{failed:?}");
}

/// Sums as measured on a card move results by less than what the official pipeline's own roundings do, and the report says
/// which model they are of.
#[test]
fn sums_as_measured_on_silicon_stay_within_the_budgets() {
    if !built(&["gfx1200"]) {
        return;
    }
    let machine = Machine::new("gfx1200").set("MOSS_EMULATE_MODEL", "silicon-gfx1151");
    let report = conformance(&machine, &case("tiny-one-token"), 0);
    assert!(report["backend"].as_str().is_some_and(|line| line.contains("silicon-gfx1151")), "{report}");
    let rows = rows(&report);
    assert!(rows.iter().all(|(name, _)| !name.contains("CPU")), "held to budgets, not to bits: {rows:?}");
}

/// Each model's run is a process of its own; the joined report and the table tell how far the results move.
#[test]
fn distances_under_matrix_models_are_listed() {
    let machine = Machine::new("gfx1200");
    let case = case("tiny-one-token").display().to_string();
    let args = ["conformance", "--backend", "hip", "--quick", "--case", &case, "--device-timeout", "3600"];
    let under = ["--matrix-model", "pairs", "--report", "report.json"];
    let ended = machine.moss(&[&args[..], &under].concat()).with(0);
    assert!(ended.stdout.starts_with("| distance (emulated) | pairs |\n"), "{}", ended.stdout);
    let report: Value = serde_json::from_slice(&machine.read("report.json")).expect("JSON");
    let figure = |start: &str| {
        let rows = report["rows"].as_array().expect("rows").iter();
        let name = |row: &Value| format!("{} / {}", row["group"], row["name"]).replace('"', "");
        let mut found = rows.filter(|row| name(row).starts_with(start));
        let row = found.next().unwrap_or_else(|| panic!("{start} in {report}"));
        assert_eq!((&row["word"], &row["passes"]), (&"emulated".into(), &true.into()), "{row}");
        row["figure"].as_f64().expect("a number")
    };
    assert_eq!(figure("under each matrix model / pairs: rows that fail"), 0.0);
    // Products in another order: other bits, and small; a short text's may round to the same; what has no products has the
    // reference's.
    assert!(figure("distance from the reference: operations / linear, pairs") > 0.0);
    for stage in ["operations / linear", "tiny-one-token / text", "tiny-one-token / picture"] {
        let figure = figure(&format!("distance from the reference: {stage}, pairs"));
        assert!((0.0..0.1).contains(&figure), "{stage}: {figure}");
    }
    assert_eq!(figure("distance from the reference: operations / norm, pairs"), 0.0);
}

#[test]
fn a_matrix_model_is_one_of_the_emulated_runtimes() {
    let machine = Machine::new("gfx1200");
    let complaint =
        machine.moss(&["conformance", "--backend", "hip", "--matrix-model", "guess"]).complaint(2);
    assert!(
        complaint.contains("--matrix-model guess") && complaint.contains("silicon-gfx1151"),
        "{complaint}"
    );
    let complaint =
        machine.moss(&["conformance", "--backend", "cpu", "--matrix-model", "exact"]).complaint(2);
    assert!(complaint.contains("--matrix-model: only for --backend hip"), "{complaint}");
}
