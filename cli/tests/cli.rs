//! The real binary: what it writes, what it refuses, and in which words.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use moss_golden::synth::{self, Preset};
use tempfile::TempDir;

fn moss(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_moss"))
        .current_dir(folder)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The last line of stderr, which must start with `moss: `.
fn complaint(output: &Output) -> String {
    let text = stderr(output);
    let last = text.lines().last().unwrap_or_default().to_string();
    assert!(last.starts_with("moss: "), "{text}");
    last
}

/// A small run: 32x32 pixels, 2 steps.
const SMALL: [&str; 6] = ["--size", "32x32", "--steps", "2", "--backend", "cpu"];

fn generate(folder: &Path, args: &[&str]) -> Output {
    moss(folder, &[&SMALL[..], args].concat())
}

fn tiny(folder: &TempDir) -> String {
    let out = folder.path().join("tiny");
    synth::write(&Preset::Tiny.sizes(), 1, &out).unwrap();
    out.display().to_string()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn two_runs_any_threads_and_the_record_give_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for (file, threads) in [("a.png", "1"), ("b.png", "2"), ("c.png", "2")] {
        let output =
            generate(at, &["--prompt", "苹果", "--negative", "blur", "--threads", threads, "-o", file]);
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(stderr(&output).lines().last().unwrap().starts_with("done: "), "{}", stderr(&output));
    }
    let read = |file: &str| fs::read(at.join(file)).unwrap();
    assert!(read("a.png") == read("b.png") && read("b.png") == read("c.png"));
    let again = moss(at, &["--from", "a.png", "-o", "again.png", "--backend", "cpu", "--quiet"]);
    assert!(again.status.success(), "{}", stderr(&again));
    let warnings = stderr(&again);
    assert!(warnings.starts_with("warning: 32x32: this model draws well at 128x128 only\n"), "{warnings}");
    assert!(
        warnings.lines().all(|line| line.starts_with("warning: ")),
        "quiet says nothing else: {warnings}"
    );
    assert!(read("a.png") == read("again.png"), "--from makes the same bytes");
    let inspect = moss(at, &["inspect", "a.png"]);
    let text = String::from_utf8(inspect.stdout).unwrap();
    assert!(text.contains("\n  \"prompt\": \"苹果\",\n") && text.contains("Negative prompt: blur"), "{text}");
    generate(at, &["--prompt", "苹果", "--negative", "blur", "--no-metadata", "-o", "plain.png"]);
    assert!(moss(at, &["inspect", "plain.png"]).status.code() == Some(1));
    assert_eq!(names(at), ["a.png", "again.png", "b.png", "c.png", "plain.png"]);
}

#[test]
fn stages_alone_give_what_the_whole_run_gives() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let model = tiny(&folder);
    let m: &[&str] = &["--model", &model, "--backend", "cpu"];
    let run = |args: &[&str]| {
        let output = moss(at, args);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        output
    };
    let whole = ["--prompt", "the apple", "--size", "32x48", "--steps", "2", "--no-metadata"];
    run(&[m, &whole, &["--latent-out", "l.npy", "-o", "whole.png"]].concat());
    run(&[&["encode"], m, &["--prompt", "the apple", "-o", "cond.npy"]].concat());
    run(&[&["encode"], m, &["--prompt", "", "-o", "uncond.npy"]].concat());
    run(&[
        m,
        &["--text-in", "cond.npy,uncond.npy", "--size", "32x48", "--steps", "2", "--no-metadata"],
        &["--latent-out", "l2.npy", "-o", "parts.png"],
    ]
    .concat());
    run(&[&["decode"], m, &["--latent-in", "l.npy", "-o", "decoded.png"]].concat());
    let read = |file: &str| fs::read(at.join(file)).unwrap();
    assert!(read("l.npy") == read("l2.npy"), "text states from a file");
    assert!(read("whole.png") == read("parts.png") && read("whole.png") == read("decoded.png"));
    let ids = run(&["tokenize", "--model", &model, "--prompt", "the apple"]);
    let ids = String::from_utf8(ids.stdout).unwrap();
    assert!(ids.trim().split(' ').all(|id| id.parse::<u32>().is_ok()), "{ids}");
    fs::write(at.join("p.txt"), "\u{feff}the apple").unwrap();
    let from_file = run(&["tokenize", "--model", &model, "--prompt-file", "p.txt"]);
    assert_eq!(String::from_utf8(from_file.stdout).unwrap(), ids, "a byte order mark is dropped");
}

#[test]
fn bad_options_are_named_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let cases: &[(&[&str], &str)] = &[
        (&["--prompt", "x", "--size", "1000x512", "-o", "o.png"], "992 and 1008"),
        (&["--prompt", "x", "--size", "5008x16", "-o", "o.png"], "4096"),
        (&["--prompt", "x", "--size", "4096x2048", "-o", "o.png"], "megapixels"),
        (&["--prompt", "x", "--steps", "0", "-o", "o.png"], "--steps"),
        (&["--prompt", "x", "--cfg", "nan", "-o", "o.png"], "--cfg"),
        (&["--prompt", "x", "--cfg", "-1", "-o", "o.png"], "--cfg: -1, a finite number from 0"),
        (&["--prompt", "x", "--cfg", "-inf", "-o", "o.png"], "--cfg: -inf, a finite number from 0"),
        (&["--prompt", "x", "--width", "0", "-o", "o.png"], "--width: 0"),
        (&["--prompt", "x", "--json", "-o", "o.png"], "--json: only with --list-devices or --dry-run"),
        (&["--prompt", "x", "--shift", "0", "-o", "o.png"], "--shift"),
        (&["--prompt", "x", "--seed", "-2", "-o", "o.png"], "--seed"),
        (&["--prompt", "x", "--skip-layers", "99", "-o", "o.png"], "--skip-layers"),
        (&["--prompt", "x", "--skip-start", "2", "-o", "o.png"], "--skip-start"),
        (&["--prompt", "x", "--max-seq", "0", "-o", "o.png"], "--max-seq"),
        (&["--prompt", "x", "--threads", "0", "-o", "o.png"], "--threads"),
        (&["--prompt", "x", "--tier", "fast", "-o", "o.png"], "--tier"),
        (&["--prompt", "x", "--lora", "a.safetensors", "-o", "o.png"], "--lora"),
        (&["--prompt", "x", "--no-such-thing", "-o", "o.png"], "--no-such-thing"),
        (&["--prompt", "x", "--steps", "many", "-o", "o.png"], "--steps"),
        (&["--prompt", "x"], "-o FILE.png"),
        (&["-o", "o.png"], "--prompt"),
        (&["--text-in", "a.npy", "-o", "o.png"], "--text-in"),
    ];
    for (args, named) in cases {
        let args = [*args, &["--backend", "cpu"]].concat();
        let output = moss(at, &args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert!(complaint(&output).contains(named), "{args:?}: {}", stderr(&output));
        assert!(names(at).is_empty(), "{args:?}: {:?}", names(at));
    }
}

#[cfg(unix)]
#[test]
fn a_prompt_that_is_not_utf8_is_refused() {
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_moss"))
        .current_dir(folder.path())
        .arg("--prompt")
        .arg(std::ffi::OsStr::from_bytes(b"caf\xe9"))
        .args(["-o", "o.png", "--backend", "cpu"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(complaint(&output).contains("UTF-8"));
    fs::write(folder.path().join("p.txt"), b"caf\xe9").unwrap();
    let output = moss(folder.path(), &["--prompt-file", "p.txt", "-o", "o.png", "--backend", "cpu"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(complaint(&output).contains("p.txt"));
    assert_eq!(names(folder.path()), ["p.txt"]);
}

#[test]
fn bad_places_and_folders_are_named_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("file"), "x").unwrap();
    fs::create_dir(at.join("empty")).unwrap();
    let model = tiny(&folder);
    let broken = at.join("tiny/vae/diffusion_pytorch_model.safetensors");
    let whole = fs::read(&broken).unwrap();
    let cases: &[(&[&str], &str)] = &[
        (&["-o", "missing/o.png"], "missing/o.png"),
        (&["-o", "missing/"], "there is no such folder"),
        (&["-o", "o.png", "--latent-out", "missing/l.npy"], "--latent-out"),
        (&["-o", "o.png", "--model", "nowhere"], "nowhere"),
        (&["-o", "o.png", "--model", "file"], "a file"),
        (&["-o", "o.png", "--model", "empty"], "an empty folder"),
        (&["-o", "o.png", "--noise-in", "file"], "--noise-in"),
        (&["-o", "o.png", "--from", "file"], "file"),
    ];
    for (args, named) in cases {
        let output = generate(at, &[&["--prompt", "x"], *args].concat());
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", stderr(&output));
        assert!(complaint(&output).contains(named), "{args:?}: {}", stderr(&output));
    }
    for (bytes, named) in [
        (&whole[..whole.len() - 7], "incomplete"),
        (&b"version https://git-lfs.github.com/spec/v1\n"[..], "Git LFS"),
        (&b"<!DOCTYPE html>"[..], "HTML"),
        (&b""[..], "empty"),
    ] {
        fs::write(&broken, bytes).unwrap();
        let output = generate(at, &["--prompt", "x", "-o", "o.png", "--model", &model]);
        assert_eq!(output.status.code(), Some(1));
        assert!(complaint(&output).contains(named), "{}", stderr(&output));
    }
    assert_eq!(names(at), ["empty", "file", "tiny"]);
}

#[test]
fn long_prompts_are_cut_with_a_count_and_control_tokens_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let prompt = "x ".repeat(40) + "<|im_end|>";
    let output = generate(folder.path(), &["--prompt", &prompt, "--max-seq", "16", "-o", "o.png"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("are cut off (--max-seq 16)"), "{}", stderr(&output));
    assert!(stderr(&output).contains("<|im_end|>"), "{}", stderr(&output));
}

#[test]
fn latents_that_are_no_picture_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    // One token of [128, 1, 1] f32, with a header by hand: the test must not share the program's writer.
    let npy = |value: f32| {
        let mut header = "{'descr': '<f4', 'fortran_order': False, 'shape': (128, 1, 1), }".to_string();
        header.push_str(&" ".repeat(118 - 1 - header.len()));
        header.push('\n');
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend((0..128).flat_map(|i| (if i == 5 { value } else { 1.0 }).to_le_bytes()));
        bytes
    };
    for (value, named) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (1.0, "variance")] {
        fs::write(at.join("l.npy"), npy(value)).unwrap();
        let output = moss(at, &["decode", "--latent-in", "l.npy", "-o", "o.png", "--backend", "cpu"]);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(complaint(&output).contains(named), "{}", stderr(&output));
    }
    fs::write(at.join("l.npy"), npy(2.0)).unwrap();
    let output = moss(at, &["decode", "--latent-in", "l.npy", "-o", "o.png", "--backend", "cpu"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(names(at), ["l.npy", "o.png"]);
}
