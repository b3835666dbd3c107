//! The real binary's runs: their order, what a model's folder and a record decide, and what is said when it is not what was
//! asked for.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use moss_golden::synth::{self, Preset};

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    /// An empty folder.
    fn empty() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// A folder with a synthetic model `tiny`.
    fn new() -> Self {
        let place = Self::empty();
        synth::write(&Preset::Tiny.sizes(), 1, &place.path("tiny")).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn moss(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_moss"))
            .current_dir(self.folder.path())
            .env("TMPDIR", self.folder.path())
            .args(args)
            .args(["--backend", "cpu"])
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// A picture of the model `tiny`, 32x32 in 2 steps.
    fn draw(&self, args: &[&str]) -> Output {
        self.moss(&[&["--model", "tiny", "--prompt", "x", "--size", "32x32", "--steps", "2"], args].concat())
    }

    /// Writes the scheduler's file of `tiny`.
    fn scheduler(&self, json: &str) {
        fs::write(self.path("tiny/scheduler/scheduler_config.json"), json).unwrap();
    }

    fn record(&self, picture: &str) -> serde_json::Map<String, serde_json::Value> {
        record(&self.path(picture))
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What a run that succeeded said, but for the warning of its small size.
#[track_caller]
fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    let text = stderr(output);
    text.lines().filter(|line| !line.contains("draws well")).map(|line| format!("{line}\n")).collect()
}

/// The last line of a run that failed.
#[track_caller]
fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{}", stderr(output));
    stderr(output).lines().last().unwrap_or_default().into()
}

fn record(picture: &Path) -> serde_json::Map<String, serde_json::Value> {
    let file = std::io::BufReader::new(fs::File::open(picture).unwrap());
    let reader = png::Decoder::new(file).read_info().unwrap();
    let texts = &reader.info().uncompressed_latin1_text;
    let json = &texts.iter().find(|text| text.keyword == "moss").unwrap().text;
    serde_json::from_str(json).unwrap()
}

#[test]
fn the_parts_load_in_the_order_of_the_plan() {
    let place = Place::new();
    let text = said(&place.draw(&["-o", "a.png"]));
    let parts = [
        "vae load ",
        "text encoder ",
        "dit load ",
        "denoise 1/2 ",
        "denoise 2/2 ",
        "denoise ",
        "vae ",
        "done: ",
    ];
    let lines: Vec<&str> =
        text.lines().filter(|line| parts.iter().any(|part| line.starts_with(part))).collect();
    assert_eq!(lines.len(), parts.len(), "{text}");
    assert!(lines.iter().zip(parts).all(|(line, part)| line.starts_with(part)), "{text}");
}

#[test]
fn the_shift_of_a_models_scheduler_is_the_default() {
    let place = Place::new();
    let pixels = |name: &str, shift: &[&str]| {
        let text = said(&place.draw(&[shift, &["--no-metadata", "-o", name]].concat()));
        (fs::read(place.path(name)).unwrap(), text)
    };
    let (five, text) = pixels("five.png", &[]);
    assert!(!text.contains("shift"), "5 is MOSS-Image's: {text}");
    let (three, _) = pixels("three.png", &["--shift", "3"]);
    assert!(three != five);

    place.scheduler(r#"{"_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 1.0}"#);
    let (found, text) = pixels("found.png", &[]);
    assert!(
        found == five && text.contains("shift 5, MOSS-Image's: shift 1 in scheduler/scheduler_config.json")
    );
    place.scheduler(
        r#"{"_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 3.0, "use_karras_sigmas": false}"#,
    );
    let (found, text) = pixels("found.png", &[]);
    assert!(
        found == three && text.contains("shift 3, from the model's scheduler/scheduler_config.json\n"),
        "{text}"
    );
    let (found, text) = pixels("found.png", &["--shift", "5"]);
    assert!(found == five && !text.contains("from the model's"), "an option wins: {text}");
    said(&place.draw(&["-o", "a.png"]));
    assert_eq!(place.record("a.png")["shift"], 3.0);
    // The record is followed, not the file.
    place.scheduler("{}");
    let again = place.moss(&["--from", "a.png", "--model", "tiny", "-o", "b.png"]);
    assert!(!said(&again).contains("warning: "), "{}", stderr(&again));
    assert!(fs::read(place.path("a.png")).unwrap() == fs::read(place.path("b.png")).unwrap());
}

#[test]
fn what_of_a_scheduler_is_not_followed_gives_one_warning() {
    let place = Place::new();
    for (json, named) in [
        (
            r#"{"shift": 5, "use_karras_sigmas": true, "shift_terminal": 0.1}"#,
            "shift_terminal 0.1, use_karras_sigmas true",
        ),
        (r#"{"_class_name": "DDIMScheduler", "shift": 3}"#, "_class_name DDIMScheduler"),
    ] {
        place.scheduler(json);
        // It changes the picture from what the folder asks for: quiet runs say it too.
        let text = said(&place.draw(&["--quiet", "-o", "a.png"]));
        let line = format!(
            "warning: scheduler/scheduler_config.json: {named}: not followed, the schedule is MOSS-Image's\n"
        );
        assert_eq!(text, line);
        assert_eq!(place.record("a.png")["shift"], 5.0);
    }
    place.scheduler(r#"{"shift": "3"}"#);
    let line = refused(&place.draw(&["-o", "a.png"]));
    assert!(line.contains("scheduler_config.json: field shift is \"3\", a number expected"), "{line}");
}

#[test]
fn a_picture_of_a_folder_says_which_model_to_give() {
    let place = Place::new();
    said(&place.draw(&["-o", "a.png"]));
    assert_eq!(place.record("a.png")["model_name"], "tiny");
    let line = refused(&place.moss(&["--from", "a.png", "-o", "b.png"]));
    assert_eq!(
        line,
        "moss: --from a.png: made with a model folder named tiny: --model with that folder is required"
    );
    // The name is a help, not a part of what is compared.
    fs::rename(place.path("tiny"), place.path("other")).unwrap();
    said(&place.moss(&["--from", "a.png", "--model", "other", "-o", "b.png"]));
    assert!(fs::read(place.path("a.png")).unwrap() == fs::read(place.path("b.png")).unwrap());
    // A picture of the demo model names none.
    said(&place.moss(&["--prompt", "a", "--size", "16x16", "--steps", "1", "-o", "demo.png"]));
    assert!(!place.record("demo.png").contains_key("model_name"));
    synth::write(&Preset::Tiny.sizes(), 2, &place.path("second")).unwrap();
    let line = refused(&place.moss(&["--from", "a.png", "--model", "second", "-o", "b.png"]));
    assert!(line.contains(" of a folder tiny, this is ") && line.ends_with("(second)"), "{line}");
}

#[test]
fn fewer_steps_than_asked_for_are_told_and_recorded() {
    let place = Place::empty();
    let small = ["--prompt", "a", "--size", "16x16", "--quiet", "-o", "a.png", "--steps"];
    let text = said(&place.moss(&[&small[..], &["300"]].concat()));
    assert_eq!(text, "warning: 300 steps asked for, 287 run: the schedule has no more\n");
    let record = place.record("a.png");
    assert_eq!((&record["steps"], &record["steps_run"]), (&300.into(), &287.into()));
    said(&place.moss(&["--from", "a.png", "--quiet", "-o", "b.png"]));
    assert!(fs::read(place.path("a.png")).unwrap() == fs::read(place.path("b.png")).unwrap());
    assert_eq!(said(&place.moss(&[&small[..], &["3"]].concat())), "");
    assert!(!place.record("a.png").contains_key("steps_run"));
}

#[test]
fn a_seed_is_told_when_nobody_chose_it_and_not_when_none_was_used() {
    let place = Place::empty();
    let small = ["--prompt", "a", "--size", "16x16", "--steps", "1", "--quiet", "--no-metadata"];
    let text = said(&place.moss(&[&small[..], &["--seed", "-1", "-o", "a.png"]].concat()));
    let seed = text.strip_prefix("seed ").and_then(|rest| rest.strip_suffix('\n'));
    let seed = seed.unwrap_or_else(|| panic!("{text}"));
    said(&place.moss(&[&small[..], &["--seed", seed, "-o", "b.png"]].concat()));
    assert!(fs::read(place.path("a.png")).unwrap() == fs::read(place.path("b.png")).unwrap());

    // Latents of one run are as good a noise as any.
    said(&place.moss(&[&small[..], &["--latent-out", "n.npy"]].concat()));
    let noise = ["--prompt", "a", "--size", "16x16", "--steps", "1", "--noise-in", "n.npy", "-o", "c.png"];
    let text = said(&place.moss(&noise));
    assert!(text.contains("done: c.png 16x16, noise from a file, "), "{text}");
    let record = place.record("c.png");
    assert!(!record.contains_key("seed") && record.contains_key("noise_in"), "{record:?}");
    said(&place.moss(&["--from", "c.png", "--noise-in", "n.npy", "-o", "d.png"]));
    assert!(fs::read(place.path("c.png")).unwrap() == fs::read(place.path("d.png")).unwrap());
}

#[test]
fn words_that_the_demo_model_does_not_know_are_told_once() {
    let place = Place::new();
    let small = ["--size", "16x16", "--steps", "1", "--quiet", "-o", "a.png", "--prompt"];
    let told = |prompt| said(&place.moss(&[&small[..], &[prompt]].concat()));
    assert_eq!(told("A red apple on a wooden table."), "");
    let text = told("a RED dragon beside a RED apple");
    let words =
        "warning: the prompt has words that the demo model does not know: \"RED\", \"dragon\", \"beside\"; ";
    assert!(text.starts_with(words) && text.lines().count() == 1, "{text}");
    // Another model has other words.
    assert!(!said(&place.draw(&["--negative", "dragon", "-o", "b.png"])).contains("know"));
}

#[test]
fn a_dry_run_reads_no_weights() {
    let place = Place::new();
    said(&place.draw(&["-o", "a.png"]));
    // Other weights of the same sizes: a run would refuse them for the record's.
    fs::remove_dir_all(place.path("tiny")).unwrap();
    synth::write(&Preset::Tiny.sizes(), 2, &place.path("tiny")).unwrap();
    let from = ["--from", "a.png", "--model", "tiny"];
    refused(&place.moss(&[&from[..], &["-o", "b.png"]].concat()));
    let output = place.moss(&[&from[..], &["--dry-run"]].concat());
    said(&output);
    assert!(String::from_utf8_lossy(&output.stdout).contains("vae: "), "{output:?}");
}
