//! Signals that ask the program to end, and the temporary files that must not outlive it.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tempfile::NamedTempFile;

use crate::error::{CliError, Result};
use crate::say;

/// The first signal that came; 0 before.
static SIGNAL: AtomicI32 = AtomicI32::new(0);
/// Whether the model runs, which ends between two blocks.
static COMPUTING: AtomicBool = AtomicBool::new(false);
/// Every temporary file and folder made. The names are random, so one that is gone does no harm here.
static TEMPORARIES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// From now on Ctrl-C, SIGTERM and SIGHUP end the program: between two blocks while the model runs, else, and when one comes
/// again, at once. A SIGHUP that was ignored (`nohup`) stays ignored.
///
/// # Errors
/// A failure when the handler cannot be set.
pub(crate) fn listen() -> Result<()> {
    let failed = |error: io::Error| CliError::failed("the signal handler", error);
    let ended_by = [SIGINT, SIGTERM].into_iter().chain((!hang_up_is_ignored()).then_some(SIGHUP));
    let mut signals = Signals::new(ended_by).map_err(failed)?;
    let watch = move || {
        for signal in signals.forever() {
            let first = SIGNAL.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst).is_ok();
            if first && COMPUTING.load(Ordering::SeqCst) {
                tell("stopping after this block");
                std::thread::spawn(end_when_blocked);
            } else {
                end();
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(watch).map(drop).map_err(failed)
}

/// Whether the program was started with SIGHUP ignored, where the system tells.
fn hang_up_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask >> (SIGHUP - 1) & 1 == 1)
}

/// Whether a signal asked to stop.
pub(crate) fn asked() -> bool {
    SIGNAL.load(Ordering::SeqCst) != 0
}

/// Says whether the model runs.
pub(crate) fn computing(now: bool) {
    COMPUTING.store(now, Ordering::SeqCst);
}

/// The exit status after the signal: 130 for Ctrl-C.
pub(crate) fn status() -> u8 {
    128 + SIGNAL.load(Ordering::SeqCst).clamp(0, 127) as u8
}

/// Ends the program at once, without its temporaries.
fn end() -> ! {
    // Held to the end: no temporary is made any more.
    let temporaries = TEMPORARIES.lock().unwrap_or_else(PoisonError::into_inner);
    remove(&temporaries);
    tell("moss: cancelled");
    std::process::exit(status().into())
}

/// After a signal: ends the program at once when a call of the GPU's runtime does not come back, so that the block will not end.
fn end_when_blocked() {
    loop {
        std::thread::sleep(Duration::from_millis(100));
        if moss_hip::is_blocked(Duration::from_millis(500)) {
            end();
        }
    }
}

/// Says why the process is about to end, and removes its temporaries: the caller ends it.
pub(crate) fn last_words(reason: &str) {
    remove(&TEMPORARIES.lock().unwrap_or_else(PoisonError::into_inner));
    tell(&format!("moss: {reason}"));
}

/// Removes files and folders, as far as they are there.
fn remove(paths: &[PathBuf]) {
    for path in paths {
        let _ = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    }
}

/// Says a line, but does not wait for a stderr that nobody reads.
fn tell(text: &str) {
    let (said, wait) = mpsc::channel();
    let text = text.to_owned();
    std::thread::spawn(move || {
        say::line(&text);
        let _ = said.send(());
    });
    let _ = wait.recv_timeout(Duration::from_millis(200));
}

/// Makes a temporary file in a folder, with the permissions of an ordinary new file.
///
/// # Errors
/// Why it cannot be made.
pub(crate) fn temporary_file(folder: &Path) -> io::Result<NamedTempFile> {
    let mut temporaries = TEMPORARIES.lock().unwrap_or_else(PoisonError::into_inner);
    let ordinary = std::fs::Permissions::from_mode(0o666);
    let file =
        tempfile::Builder::new().prefix(".moss-").suffix(".tmp").permissions(ordinary).tempfile_in(folder)?;
    temporaries.push(file.path().to_path_buf());
    Ok(file)
}

/// Makes a temporary folder where the system has them.
///
/// # Errors
/// Why it cannot be made.
pub(crate) fn temporary_folder() -> io::Result<tempfile::TempDir> {
    let mut temporaries = TEMPORARIES.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir()?;
    temporaries.push(folder.path().to_path_buf());
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporaries_are_known_and_go() {
        let folder = tempfile::tempdir().unwrap();
        let file = temporary_file(folder.path()).unwrap();
        let work = temporary_folder().unwrap();
        std::fs::write(work.path().join("weights"), "x").unwrap();
        let made = [file.path().to_path_buf(), work.path().to_path_buf()];
        let known = TEMPORARIES.lock().unwrap().clone();
        assert!(made.iter().all(|path| path.exists() && known.contains(path)));
        remove(&[&[folder.path().join("renamed")], &made[..]].concat());
        assert!(!made.iter().any(|path| path.exists()));
    }
}
