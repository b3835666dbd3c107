//! What a test of the kernels does where they cannot run: it says so in one line, and fails only in CI's mode.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::{built_archs, why_empty};

/// Those of `archs` whose kernels are in this build: a test runs on them. That it is not run on the others, and why, is said in
/// one line on stderr, which a test's captured output does not hide.
///
/// # Panics
/// When there was no compiler and the environment variable `CI` says that one must be there ([`not_run`]). An architecture
/// that `MOSS_KERNELS_ARCHS` leaves out is left out on purpose.
pub fn built<'a>(archs: &[&'a str]) -> Vec<&'a str> {
    let built = built_archs();
    let (here, missing): (Vec<&str>, Vec<&str>) = archs.iter().partition(|arch| built.contains(arch));
    if why_empty().is_some() {
        not_run("there was no compiler of GPU code when this was built (Debian: clang-19, lld-19)");
    } else if !missing.is_empty() {
        say(&format!(" on {}", missing.join(", ")), "not in MOSS_KERNELS_ARCHS");
    }
    here
}

/// Whether the program `tool`, of Debian's package `package`, starts; that the test is not run without it is said in one line.
///
/// # Panics
/// As [`not_run`].
pub fn has_tool(tool: &str, package: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok();
    if !found {
        not_run(&format!("{tool} is not installed (Debian: {package})"));
    }
    found
}

/// Says in one line on stderr that the running test, or a part of it, is not run for want of something that CI has.
///
/// # Panics
/// When the environment variable `CI` is set and not empty.
pub fn not_run(why: &str) {
    let ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    assert!(!ci, "CI is set, and the test cannot run: {why}");
    say("", why);
}

/// Past the capture of a test's output, which only the print macros obey; each line once.
fn say(on: &str, why: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let thread = thread::current();
    let test = thread.name().filter(|name| *name != "main").unwrap_or("a test");
    let line = format!("not run{on}: {test}: {why}\n");
    if SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(line.clone()) {
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}
