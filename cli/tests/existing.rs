//! The real binary and files that are there: what it replaces, what it leaves, and `-` for streams.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use moss_golden::synth::{self, Preset};

/// A small run: 16x16 pixels, a step.
const SMALL: [&str; 7] = ["--size", "16x16", "--steps", "1", "--backend", "cpu", "-q"];

fn moss(folder: &Path, args: &[&str]) -> Output {
    fed(folder, args, b"")
}

/// Runs the program with `input` on its standard input.
fn fed(folder: &Path, args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_moss"))
        .current_dir(folder)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that refuses its options reads nothing.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn draw(folder: &Path, args: &[&str]) -> Output {
    moss(folder, &[&SMALL[..], &["--prompt", "x"], args].concat())
}

/// The last line on stderr of a run that ended with this status.
#[track_caller]
fn last(output: &Output, status: i32) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{text}");
    text.lines().last().unwrap_or_default().to_string()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Begins as a PNG does.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n and more";

#[test]
fn only_files_of_the_same_kind_are_replaced_unasked() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let read = |name: &str| fs::read(at.join(name)).unwrap();
    fs::write(at.join("notes"), "mine").unwrap();
    fs::write(at.join("notes.png"), "mine").unwrap();
    fs::write(at.join("l.npy"), "mine").unwrap();
    fs::write(at.join("r.md"), "mine").unwrap();
    for (args, file) in [
        (&["-o", "notes"][..], "notes"),
        (&["-o", "notes.png"], "notes.png"),
        (&["--latent-out", "l.npy"], "l.npy"),
    ] {
        let line = last(&draw(at, args), 1);
        assert!(line.contains("is there and no ") && line.contains("--force"), "{line}");
        assert_eq!(read(file), b"mine");
    }
    let line = last(&moss(at, &["conformance", "--quick", "--backend", "cpu", "--report", "r.md"]), 1);
    assert!(line.contains("is there and no report"), "{line}");
    let line = last(&moss(at, &["encode", "--prompt", "x", "--backend", "cpu", "-o", "l.npy"]), 1);
    assert!(line.contains("is there and no npy array"), "{line}");
    assert_eq!((read("l.npy"), read("r.md")), (b"mine".to_vec(), b"mine".to_vec()));

    last(&draw(at, &["-o", "notes", "--latent-out", "l.npy", "--force"]), 0);
    assert!(read("notes").starts_with(b"\x89PNG") && read("l.npy").starts_with(b"\x93NUMPY"));
    // Now they are of the kind, and an empty file may become anything.
    fs::write(at.join("empty.png"), "").unwrap();
    last(&draw(at, &["-o", "notes", "--latent-out", "l.npy"]), 0);
    last(&draw(at, &["-o", "empty.png"]), 0);
    let line = last(&draw(at, &["-o", "notes", "--no-clobber"]), 1);
    assert!(line.contains("is there already, and --no-clobber"), "{line}");
    // The last of the two counts.
    last(&draw(at, &["-o", "notes", "--no-clobber", "--force"]), 0);
    last(&draw(at, &["-o", "notes", "--force", "--no-clobber"]), 1);
}

#[test]
fn mode_and_owner_stay_and_a_read_only_file_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let file = at.join("a.png");
    fs::write(&file, PNG).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
    // Only root may give a file away.
    let root = fs::metadata(&file).unwrap().uid() == 0;
    if root {
        std::os::unix::fs::chown(&file, Some(12345), Some(54321)).unwrap();
    }
    let before = fs::metadata(&file).unwrap();
    last(&draw(at, &["-o", "a.png"]), 0);
    let after = fs::metadata(&file).unwrap();
    assert_eq!((before.mode(), before.uid(), before.gid()), (after.mode(), after.uid(), after.gid()));
    assert_ne!(fs::read(&file).unwrap(), PNG);

    fs::write(&file, PNG).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o444)).unwrap();
    let line = last(&draw(at, &["-o", "a.png"]), 1);
    assert!(line.contains("-o a.png: is read-only; --force replaces it"), "{line}");
    assert_eq!(fs::read(&file).unwrap(), PNG);
    last(&draw(at, &["-o", "a.png", "--force"]), 0);
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o444);
    assert_eq!(names(at), ["a.png"]);
}

#[test]
fn a_name_of_another_format_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for (args, named) in [
        (&["-o", "x.jpg"][..], "-o x.jpg: a PNG picture is written, and .jpg is not its extension"),
        (&["-o", "x.PNG.webp"], ".webp is not its extension"),
        (&["-o", "{seed}.gif"], ".gif is not its extension"),
        (&["-o", "x.png", "--latent-out", "l.pt"], "--latent-out l.pt: a npy array is written"),
    ] {
        let line = last(&draw(at, args), 2);
        assert!(line.contains(named), "{line}");
    }
    assert!(names(at).is_empty());
    last(&draw(at, &["-o", "x.PNG"]), 0);
    last(&draw(at, &["-o", "plain"]), 0);
    last(&draw(at, &["-o", "/dev/null"]), 0);
}

#[test]
fn a_dash_is_a_stream_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let run = |args: &[&str], input: &[u8]| {
        let output = fed(at, &[&SMALL[..], args].concat(), input);
        last(&output, 0);
        output.stdout
    };
    let plain = run(&["--prompt", "x", "--negative", "blur", "-o", "-"], b"");
    assert!(plain.starts_with(b"\x89PNG") && plain.ends_with(b"IEND\xae\x42\x60\x82"));
    assert!(run(&["--prompt", "x", "-n", "-", "-o", "-"], b"blur\n") == plain, "the negative prompt");
    assert!(run(&["--from", "-", "-o", "-"], &plain) == plain, "the record");
    let inspected = fed(at, &["inspect", "-"], &plain);
    last(&inspected, 0);
    assert!(String::from_utf8(inspected.stdout).unwrap().contains("\"negative\": \"blur\""));
    let latents = run(&["--prompt", "x", "--negative", "blur", "--latent-out", "-"], b"");
    assert!(latents.starts_with(b"\x93NUMPY"));
    let decode = ["decode", "--backend", "cpu", "-q", "--latent-in", "-", "-o", "-"];
    let decoded = fed(at, &decode, &latents);
    last(&decoded, 0);
    let drawn = run(&["--prompt", "x", "--negative", "blur", "--no-metadata", "-o", "-"], b"");
    assert!(decoded.stdout == drawn, "the picture of the latents");
    let encoded = fed(at, &["encode", "--backend", "cpu", "-q", "-p", "-", "-o", "-"], b"x");
    last(&encoded, 0);
    assert!(encoded.stdout.starts_with(b"\x93NUMPY"));
    assert!(names(at).is_empty(), "{:?}", names(at));

    let line = last(&fed(at, &[&SMALL[..], &["-p", "-", "-n", "-", "-o", "-"]].concat(), b"x"), 1);
    assert!(line.contains("standard input can be read for one option only"), "{line}");
    let both = [&SMALL[..], &["-p", "x", "-o", "-", "--latent-out", "-"]].concat();
    assert!(last(&moss(at, &both), 2).contains("the same file as"));
}

#[test]
fn work_in_the_models_folder_leaves_the_model_alone() {
    let folder = tempfile::tempdir().unwrap();
    let at = &folder.path().join("model");
    synth::write(&Preset::Tiny.sizes(), 1, at).unwrap();
    let model = names(at);
    let run = |args: &[&str]| moss(at, &[&SMALL[..], &["-m", ".", "-p", "x"], args].concat());
    for _ in 0..2 {
        last(&run(&["-o", "out.png", "--latent-out", "vae/l.npy"]), 0);
    }
    fs::copy(at.join("vae/config.json"), at.join("vae/config")).unwrap();
    fs::hard_link(at.join("model_index.json"), at.join("vae/again.png")).unwrap();
    for file in ["vae/config", "vae/again.png"] {
        let line = last(&run(&["-o", file, "--force"]), 2);
        assert!(line.contains("a file of --model ."), "{line}");
    }
    assert_eq!(names(at).len(), model.len() + 1);
}
