//! The real binary on a terminal: the bar, what becomes of it when the terminal goes, and text that is not obeyed.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// A terminal: the end that shows, and the end that a program has.
fn terminal() -> (File, File) {
    let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&screen).unwrap();
    unlockpt(&screen).unwrap();
    let name = ptsname(&screen, Vec::new()).unwrap().into_string().unwrap();
    // Opened by the test, which has no controlling terminal to gain here: it is held open by the program alone.
    let program = rustix::fs::open(
        name,
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY,
        rustix::fs::Mode::empty(),
    );
    (File::from(screen), File::from(program.unwrap()))
}

/// Reads a screen until the program has left it, which Linux tells by an error.
fn shown(mut screen: File) -> String {
    let (mut all, mut some) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = screen.read(&mut some) {
        all.extend(&some[..count]);
    }
    String::from_utf8_lossy(&all).into_owned()
}

fn moss(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_moss"));
    command.current_dir(folder).args(args).stdin(Stdio::null()).env("TERM", "xterm");
    command
}

const RUN: [&str; 8] = ["--backend", "cpu", "--size", "256x256", "--steps", "4", "-o", "o.png"];

#[test]
fn the_bar_counts_steps_and_says_what_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let (screen, program) = terminal();
    let run = [&RUN[..], &["--prompt", "x"]].concat();
    let mut child = moss(folder.path(), &run).stderr(program).spawn().unwrap();
    let text = shown(screen);
    assert!(child.wait().unwrap().success(), "{text}");
    assert!(!text.contains("0/0") && !text.contains("/0 "), "{text}");
    assert!(text.contains("denoise, step 2/4") && text.contains(" left"), "{text}");
    // Within a step: more places than steps end at.
    let places: std::collections::BTreeSet<&str> =
        text.split("% ").filter_map(|part| part.rsplit([' ', ']']).next()).collect();
    assert!(places.len() > 6, "{places:?}");
    assert!(text.contains("done: o.png 256x256"), "{text}");
}

#[test]
fn a_terminal_that_goes_away_ends_no_run() {
    let folder = tempfile::tempdir().unwrap();
    let (mut screen, program) = terminal();
    let run = [&RUN[..], &["--prompt", "x"]].concat();
    let mut child = moss(folder.path(), &run).stderr(program).spawn().unwrap();
    let mut some = [0; 64];
    assert!(screen.read(&mut some).unwrap() > 0);
    drop(screen);
    assert!(child.wait().unwrap().success());
    assert!(fs::read(folder.path().join("o.png")).unwrap().starts_with(b"\x89PNG"));
}

#[test]
fn a_record_is_shown_and_not_obeyed() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let run = ["--backend", "cpu", "--size", "16x16", "--steps", "1", "-o", "o.png", "--quiet"];
    let made = moss(at, &[&run[..], &["--prompt", "a \u{1b}[2J apple"]].concat()).status().unwrap();
    assert!(made.success());
    let (screen, program) = terminal();
    let reader = thread::spawn(|| shown(screen));
    assert!(moss(at, &["inspect", "o.png"]).stdout(program).status().unwrap().success());
    let text = reader.join().unwrap();
    assert!(!text.contains('\u{1b}') && text.contains("parameters: a \\u001b[2J apple\r\n"), "{text}");
    let piped = moss(at, &["inspect", "o.png"]).output().unwrap().stdout;
    let piped = String::from_utf8(piped).unwrap();
    assert!(!piped.contains('\u{1b}') && piped.contains("parameters: a \\u001b[2J apple\n"), "{piped}");
    let json = piped.split_once("moss: ").unwrap().1.split_inclusive("\n}").next().unwrap();
    let record: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(record["prompt"], "a \u{1b}[2J apple");
    assert!(json.contains("\n  \"steps\": 1,\n"), "{json}");
}
