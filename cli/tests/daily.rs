//! The real binary in daily use: what it says of itself, defaults from the environment, names that it chooses, JSON.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// `moss` in a folder, with no variable of its own and no HIP runtime.
fn moss(folder: &Path, args: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_moss"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("MOSS_")) {
        command.env_remove(name);
    }
    let variables = variables.iter().copied();
    command.current_dir(folder).args(args).envs(variables).stdin(Stdio::null()).output().unwrap()
}

#[track_caller]
fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A small run: 16x16 pixels, a step.
const SMALL: [&str; 7] = ["--size", "16x16", "--steps", "1", "--backend", "cpu", "-q"];

#[test]
fn alone_it_says_how_to_begin() {
    let folder = tempfile::tempdir().unwrap();
    let output = moss(folder.path(), &[], &[]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2));
    assert!(text.contains("moss --prompt \"a red apple on a wooden table\" -o apple.png"), "{text}");
    assert!(text.lines().last().unwrap().starts_with("moss: ") && text.contains("moss --help"), "{text}");
}

#[test]
fn help_names_the_environment_and_the_exit_status() {
    let folder = tempfile::tempdir().unwrap();
    let text = stdout(&moss(folder.path(), &["--help"], &[("MOSS_MODEL", "/home/somebody")]));
    for part in
        ["Exit status:", "Examples:", "[env: MOSS_MODEL]", "[env: MOSS_VRAM_BUDGET]", "gfx1100", "--force"]
    {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    assert!(!text.contains("somebody"), "no value of this machine: {text}");
    assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
}

#[test]
fn the_version_has_the_commit_and_the_cpus_level() {
    let folder = tempfile::tempdir().unwrap();
    let text = stdout(&moss(folder.path(), &["--version"], &[]));
    assert!(text.starts_with(concat!("moss ", env!("CARGO_PKG_VERSION"))), "{text}");
    assert!(text.contains("\nCPU code in use here: "), "{text}");
    let git = Command::new("git").args(["rev-parse", "--is-inside-work-tree"]).output();
    if git.is_ok_and(|output| output.status.success()) {
        let commit = text.lines().next().unwrap().split("(commit ").nth(1).unwrap_or_default();
        assert!(commit.trim_end_matches(')').len() >= 10, "{text}");
    }
}

#[test]
fn completions_and_the_manual_are_printed() {
    let folder = tempfile::tempdir().unwrap();
    for (shell, part) in
        [("bash", "complete -F _moss"), ("zsh", "#compdef moss"), ("fish", "complete -c moss")]
    {
        let script = stdout(&moss(folder.path(), &["completions", shell], &[]));
        assert!(script.contains(part) && script.contains("vram-budget"), "{shell}: {script}");
    }
    let page = stdout(&moss(folder.path(), &["man"], &[]));
    assert!(page.contains(".TH moss 1") && page.contains("MOSS_VRAM_BUDGET"), "{page}");
    let page = stdout(&moss(folder.path(), &["man", "decode"], &[]));
    assert!(page.contains(".TH moss-decode 1") && page.contains("latent"), "{page}");
    assert_eq!(moss(folder.path(), &["man", "nothing"], &[]).status.code(), Some(2));
}

#[test]
fn variables_give_defaults_and_the_command_line_comes_first() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let dry = ["--prompt", "x", "--dry-run"];
    let cpu = ("MOSS_BACKEND", "cpu");
    let output = moss(at, &dry, &[cpu, ("MOSS_THREADS", "1")]);
    assert!(stderr(&output).contains(", 1 thread"), "{}", stderr(&output));
    let output = moss(at, &[&dry[..], &["--threads", "2"]].concat(), &[cpu, ("MOSS_THREADS", "1")]);
    assert!(stderr(&output).contains(", 2 threads"), "{}", stderr(&output));
    let output = moss(at, &dry, &[cpu, ("MOSS_MODEL", "nowhere")]);
    assert!(stderr(&output).contains("--model nowhere: nothing there"), "{}", stderr(&output));
    // It stands in no command's way, and empty is none.
    let output = moss(at, &["tokenize", "--prompt", "x"], &[("MOSS_MODEL", ""), ("MOSS_THREADS", "")]);
    assert!(!stdout(&output).is_empty());
    let output = moss(at, &["completions", "bash"], &[("MOSS_MODEL", "nowhere"), ("MOSS_DEVICE", "0")]);
    assert!(!stdout(&output).is_empty());
    let output = moss(at, &dry, &[cpu, ("MOSS_THREADS", "x")]);
    assert!(stderr(&output).contains("it is the value of MOSS_THREADS"), "{}", stderr(&output));
    // A GPU option in the environment waits for a GPU; one that was typed beside --backend cpu is a mistake.
    stdout(&moss(at, &dry, &[cpu, ("MOSS_DEVICE", "0"), ("MOSS_VRAM_BUDGET", "6GiB")]));
    let output = moss(at, &[&dry[..], &["--vram-budget", "6"]].concat(), &[cpu]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--vram-budget: only for a GPU"), "{}", stderr(&output));
}

#[test]
fn a_folder_or_a_template_gets_names_that_are_free() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::create_dir(at.join("pictures")).unwrap();
    let draw = |output: &str, more: &[&str]| {
        let prompt = ["--prompt", "A red/blue apple!", "--seed", "7", "-o", output];
        stdout(&moss(at, &[&SMALL[..], &prompt, more].concat(), &[]));
    };
    draw("pictures", &[]);
    draw("pictures/", &[]);
    assert_eq!(names(&at.join("pictures")), ["A-red-blue-apple-7-2.png", "A-red-blue-apple-7.png"]);
    let whole = fs::read(at.join("pictures/A-red-blue-apple-7.png")).unwrap();
    draw("{prompt}_{index}.png", &[]);
    draw("{prompt}_{index}.png", &["--no-clobber"]);
    draw("{seed}.png", &[]);
    draw("{seed}.png", &["--force"]);
    let expected = ["7.png", "A-red-blue-apple_0001.png", "A-red-blue-apple_0002.png", "pictures"];
    assert_eq!(names(at), expected);
    assert!(fs::read(at.join("A-red-blue-apple_0002.png")).unwrap() == whole);
    let output = moss(at, &["--prompt", "x", "-o", "{sed}.png"], &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("{sed} is no field"), "{}", stderr(&output));
    // The last line names the file.
    let args = ["--prompt", "x", "--size", "16x16", "--steps", "1", "--backend", "cpu", "-o", "pictures"];
    let output = moss(at, &args, &[]);
    assert!(stderr(&output).contains("done: pictures/x-42.png 16x16"), "{}", stderr(&output));
}

#[test]
fn json_is_one_document_on_standard_output() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let json = |args: &[&str]| {
        let output = moss(at, args, &[]);
        serde_json::from_str::<Value>(&stdout(&output)).unwrap()
    };
    stdout(&moss(at, &[&SMALL[..], &["--prompt", "苹果 \u{1b}", "-o", "a.png"]].concat(), &[]));
    let inspected = json(&["inspect", "--json", "a.png"]);
    assert_eq!(inspected["record"]["prompt"], "苹果 \u{1b}");
    assert_eq!(inspected["record"]["steps"], 1);
    let keywords: Vec<&Value> =
        inspected["texts"].as_array().unwrap().iter().map(|t| &t["keyword"]).collect();
    assert!(keywords.contains(&&Value::from("moss")) && keywords.contains(&&Value::from("parameters")));
    let planned = json(&["--prompt", "x", "--dry-run", "--json", "--backend", "cpu"]);
    assert_eq!(planned["backend"], "cpu");
    assert!(planned["expected_seconds"].as_f64().unwrap() > 0.0, "{planned}");
    let stages: Vec<&Value> =
        planned["memory"]["stages"].as_array().unwrap().iter().map(|s| &s["name"]).collect();
    assert_eq!(stages, ["vae", "text encoder", "dit"]);
    let blocks = planned["memory"]["stages"][2]["blocks"].as_array().unwrap();
    assert!(blocks.len() == 7 && blocks.iter().all(|bytes| bytes.as_u64().unwrap() > 0), "{planned}");
    let output = moss(at, &["--list-devices", "--json"], &[]);
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(listed["devices"].is_array(), "{listed}");
}

#[test]
fn a_long_run_on_the_cpu_says_first_how_long_it_may_take() {
    let folder = tempfile::tempdir().unwrap();
    let dry = |more: &[&str]| {
        let args = ["--prompt", "x", "--dry-run", "--backend", "cpu", "--threads", "1", "--quiet"];
        stderr(&moss(folder.path(), &[&args[..], more].concat(), &[]))
    };
    let text = dry(&["--size", "2048x2048", "--steps", "10000"]);
    let line = text.lines().find(|line| line.starts_with("warning: expected time: about "));
    assert!(line.is_some_and(|line| line.contains("an estimate") && line.contains(" steps, at ")), "{text}");
    assert!(!dry(&[]).contains("expected time"));
}

#[test]
fn verbose_says_what_a_run_is_made_of() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["--prompt", "x", "--backend", "cpu", "--size", "16x16", "--steps", "2", "-o", "a.png"];
    let told = |more: &[&str]| stderr(&moss(folder.path(), &[&args[..], more].concat(), &[]));
    let text = told(&["-v"]);
    for line in ["settings: {\"prompt\":\"x\",", "tokens: [", "memory: ", "  dit: "] {
        assert!(text.lines().any(|found| found.starts_with(line)), "{line} in\n{text}");
    }
    assert!(!told(&[]).contains("settings: "));
}

#[test]
fn of_a_repeated_option_the_last_wins() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["--backend", "cpu", "-q", "--prompt", "x", "-o", "b.png", "--steps", "9", "--cfg-scale", "1"];
    let last =
        ["--prompt", "y", "-o", "a.png", "--num-inference-steps", "1", "--cfg", "2", "--size", "32x32"];
    let all = [&args[..], &last, &["--size", "16x16", "-q"]].concat();
    stdout(&moss(folder.path(), &all, &[]));
    assert_eq!(names(folder.path()), ["a.png"]);
    let record = stdout(&moss(folder.path(), &["inspect", "--json", "--json", "a.png"], &[]));
    let record = &serde_json::from_str::<Value>(&record).unwrap()["record"];
    assert_eq!((&record["steps"], &record["cfg"]), (&1.into(), &2.0.into()));
    assert_eq!((&record["width"], &record["prompt"]), (&16.into(), &"y".into()));
}
