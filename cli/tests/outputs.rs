//! The real binary: where its outputs go, what it says when nobody listens, and how signals end it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A small run: 16x16 pixels, 2 steps.
const SMALL: [&str; 8] = ["--size", "16x16", "--steps", "2", "--backend", "cpu", "--prompt", "an apple"];

/// `moss` with these arguments in a folder, which has the temporary files too. Signals are as a terminal's shell leaves them:
/// whoever started the tests may ignore some (`nohup`), which a child would inherit.
fn moss(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP,INT,TERM,PIPE,XFSZ").arg(env!("CARGO_BIN_EXE_moss"));
    command.current_dir(folder).env("TMPDIR", folder).args(args).stdin(Stdio::null());
    command
}

fn small(folder: &Path, args: &[&str]) -> Output {
    moss(folder, &[&SMALL[..], args].concat()).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The last line on stderr of a run that ended with this status.
fn last_line(output: &Output, status: i32) -> String {
    assert_eq!(output.status.code(), Some(status), "{}", stderr(output));
    stderr(output).lines().last().unwrap_or_default().into()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Whether this is a whole PNG.
fn is_png(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x89PNG") && bytes.ends_with(b"IEND\xae\x42\x60\x82")
}

#[test]
fn links_are_followed_and_stay() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    last_line(&small(at, &["-o", "plain.png"]), 0);
    let plain = fs::read(at.join("plain.png")).unwrap();

    fs::create_dir(at.join("other")).unwrap();
    fs::write(at.join("other/real.png"), b"\x89PNG\r\n\x1a\n old").unwrap();
    symlink("other/real.png", at.join("link.png")).unwrap();
    symlink("other/new.png", at.join("dangling.png")).unwrap();
    for (link, file) in [("link.png", "other/real.png"), ("dangling.png", "other/new.png")] {
        last_line(&small(at, &["-o", link]), 0);
        assert!(at.join(link).is_symlink() && fs::read(at.join(file)).unwrap() == plain, "{link}");
    }

    // The link that /dev/stdout is, in a folder of the test: a program of root that took it for a file would replace it.
    symlink("/proc/self/fd/1", at.join("stdout")).unwrap();
    let written = |append: &str| {
        let file = at.join("caught.png");
        fs::write(&file, append).unwrap();
        let stdout = File::options().append(true).open(&file).unwrap();
        let status = moss(at, &[&SMALL[..], &["--quiet", "-o", "stdout"]].concat()).stdout(stdout).status();
        assert!(status.unwrap().success() && at.join("stdout").is_symlink());
        fs::read(file).unwrap()
    };
    assert!(written("") == plain, "a file on standard output");
    assert!(written("before") == [b"before", &plain[..]].concat(), "it goes on where it was");
    assert!(small(at, &["-o", "stdout"]).stdout == plain, "a pipe on standard output");
    assert!(Path::new("/dev/stdout").is_symlink());

    symlink("loop.png", at.join("loop.png")).unwrap();
    let line = last_line(&small(at, &["-o", "loop.png"]), 1);
    assert!(line.starts_with("moss: -o loop.png: a loop"), "{line}");
    assert!(at.join("loop.png").is_symlink());
}

#[test]
fn a_named_pipe_is_written_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    assert!(Command::new("mkfifo").arg(at.join("pipe")).status().unwrap().success());
    symlink("pipe", at.join("link")).unwrap();
    let pipe = at.join("pipe");
    let reader = thread::spawn(move || fs::read(pipe).unwrap());
    last_line(&small(at, &["-o", "link"]), 0);
    assert!(is_png(&reader.join().unwrap()));
    assert_eq!(names(at), ["link", "pipe"]);
}

#[test]
fn outputs_that_would_overwrite_something_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::create_dir(at.join("model")).unwrap();
    for file in ["in", "in.npy", "in.png", "model/config"] {
        fs::write(at.join(file), "in").unwrap();
    }
    symlink("in.npy", at.join("link.npy")).unwrap();
    symlink("in.npy", at.join("link")).unwrap();
    fs::hard_link(at.join("in"), at.join("hard.png")).unwrap();
    let before = names(at);
    let generate = |args: &[&str]| {
        let args = [&["--backend", "cpu", "--force"], args].concat();
        moss(at, &args).output().unwrap()
    };
    for (args, named) in [
        (&["--prompt", "x", "-o", "same", "--latent-out", "./same"][..], "-o"),
        (&["--prompt-file", "in", "-o", "./in"], "--prompt-file"),
        (&["--prompt-file", "in", "-o", "hard.png"], "--prompt-file"),
        (&["--prompt", "x", "--noise-in", "in.npy", "--latent-out", "link.npy"], "--noise-in"),
        (&["--text-in", "a.npy,in.npy", "--latent-out", "in.npy"], "--text-in"),
        (&["--from", "in.png", "-o", "in.png"], "--from"),
        (&["--prompt", "x", "--model", "model", "-o", "model/config"], "--model"),
        (&["decode", "--latent-in", "in.npy", "-o", "link"], "--latent-in"),
        (&["encode", "--prompt-file", "in", "-o", "in"], "--prompt-file"),
        (&["conformance", "--report", "a.md", "--report", "./a.md"], "--report"),
    ] {
        let output = match args[0].starts_with('-') {
            true => generate(args),
            false => moss(at, &[args, &["--backend", "cpu", "--force"]].concat()).output().unwrap(),
        };
        let line = last_line(&output, 2);
        let rest = line.split_once(": ").unwrap().1;
        let (output_option, other) = rest.split_once(": ").unwrap();
        assert!(args.contains(&output_option.split(' ').next().unwrap()), "{line}");
        assert!(other.contains(named), "{args:?}: {line}");
        assert_eq!(names(at), before, "{args:?}");
        assert!(fs::read(at.join("in.npy")).unwrap() == b"in");
    }
    // A device holds nothing that could be overwritten.
    last_line(&small(at, &["-o", "/dev/null", "--latent-out", "/dev/null"]), 0);
}

#[test]
fn a_failing_output_does_not_cost_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let is_npy = |name: &str| fs::read(at.join(name)).unwrap().starts_with(b"\x93NUMPY");
    let output = small(at, &["-o", "o.png", "--latent-out", "/dev/full"]);
    let line = last_line(&output, 1);
    assert!(line.starts_with("moss: --latent-out /dev/full: "), "{line}");
    assert!(line.ends_with("/o.latents.npy)") && is_npy("o.latents.npy"), "{line}");
    assert!(is_png(&fs::read(at.join("o.png")).unwrap()));
    assert!(!stderr(&output).contains("done: ") && stderr(&output).contains("the picture is in o.png\n"));

    let line = last_line(&small(at, &["-o", "/dev/full", "--latent-out", "l.npy"]), 1);
    assert!(line.starts_with("moss: -o /dev/full: ") && line.contains("the latents are in "), "{line}");
    assert!(is_npy("l.npy"));
    assert_eq!(names(at), ["l.npy", "o.latents.npy", "o.png"]);
}

#[test]
fn latents_alone_on_a_full_disk_are_saved_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let output = small(at, &["--latent-out", "/dev/full"]);
    let line = last_line(&output, 1);
    assert!(
        line.starts_with("moss: --latent-out /dev/full: ") && line.ends_with("/moss.latents.npy)"),
        "{line}"
    );
    assert!(!stderr(&output).contains("done: "), "{}", stderr(&output));
    last_line(&small(at, &["--latent-out", "l.npy"]), 0);
    assert!(fs::read(at.join("moss.latents.npy")).unwrap() == fs::read(at.join("l.npy")).unwrap());
}

#[test]
fn when_both_outputs_fail_each_message_says_where_the_latents_are() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let output = small(at, &["--quiet", "-o", "/dev/full", "--latent-out", "/dev/full"]);
    last_line(&output, 1);
    let text = stderr(&output);
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("warning: ")).collect();
    assert!(
        lines.len() == 2 && lines[0].starts_with("moss: --latent-out ") && lines[1].starts_with("moss: -o ")
    );
    assert!(lines.iter().all(|line| line.ends_with("/moss.latents.npy)")), "{text}");
    assert_eq!(names(at), ["moss.latents.npy"]);
}

#[test]
fn ctrl_c_in_the_decode_keeps_the_latents() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let run = ["--prompt", "a", "--size", "512x512", "--steps", "1", "--backend", "cpu", "--threads", "1"];
    let mut child = moss(at, &[&run[..], &["-o", "o.png"]].concat()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    // The line of the whole stage, behind that of its step: the decode has begun.
    while !(line.starts_with("denoise ") && line.ends_with(" s\n")) {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "the run has ended");
    }
    signal(&child, "-INT");
    line.clear();
    said.read_to_string(&mut line).unwrap();
    assert_eq!(ends(child).status.code(), Some(130), "{line}");
    let lines: Vec<&str> = line.lines().collect();
    let (last, before) = lines.split_last().unwrap();
    assert!(*last == "moss: cancelled", "{line}");
    assert!(before.iter().any(|line| line.starts_with("the latents are saved in ")), "{line}");
    assert!(fs::read(at.join("o.latents.npy")).unwrap().starts_with(b"\x93NUMPY"));
    assert_eq!(names(at), ["o.latents.npy"]);
}

#[test]
fn a_run_that_needs_more_memory_than_there_is_is_refused_before_it_starts() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let run = |size: &str, kib: &str| {
        Command::new("sh")
            .args(["-c", &format!("ulimit -v {kib}; exec \"$@\""), "sh", env!("CARGO_BIN_EXE_moss")])
            .args(["--backend", "cpu", "--prompt", "a", "--steps", "1", "--threads", "1", "--size", size])
            .args(["-o", "o.png"])
            .current_dir(at)
            .env("TMPDIR", at)
            .output()
            .unwrap()
    };
    // Before, the decode died with all steps done.
    let line = last_line(&run("1024x1024", "450000"), 1);
    assert!(line.starts_with("moss: vae: needs ") && line.contains(" are available"), "{line}");
    assert!(!stderr(&run("1024x1024", "450000")).contains("denoise"));
    assert!(names(at).is_empty());
    last_line(&run("128x128", "450000"), 0);
}

#[test]
fn a_picture_that_cannot_be_written_leaves_its_latents() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    // Files end at 1024 bytes: the latents' 640 fit, the picture with its record does not.
    let full = |blocks: u32| {
        Command::new("sh")
            .args(["-c", &format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\""), "sh"])
            .arg(env!("CARGO_BIN_EXE_moss"))
            .args(SMALL)
            .args(["-o", "o.png", "--negative", &"blur ".repeat(200)])
            .current_dir(at)
            .env("TMPDIR", at)
            .output()
            .unwrap()
    };
    fs::write(at.join("o.latents.npy"), "mine").unwrap();
    let line = last_line(&full(2), 1);
    assert!(line.starts_with("moss: -o o.png: ") && line.contains("saved in "), "{line}");
    assert!(line.ends_with("o.latents-2.npy)"), "{line}");
    assert!(fs::read(at.join("o.latents-2.npy")).unwrap().starts_with(b"\x93NUMPY"));
    assert!(fs::read(at.join("o.latents.npy")).unwrap() == b"mine");
    let decoded = moss(at, &["decode", "--latent-in", "o.latents-2.npy", "-o", "d.png", "--backend", "cpu"]);
    last_line(&{ decoded }.output().unwrap(), 0);
    let line = last_line(&full(0), 1);
    assert!(line.contains("saving the latents failed too"), "{line}");
    assert_eq!(names(at), ["d.png", "o.latents-2.npy", "o.latents.npy"]);

    // Nothing is left in the folder of a device.
    let line = last_line(&small(at, &["-o", "/dev/full"]), 1);
    assert!(line.starts_with("moss: -o /dev/full: ") && line.ends_with("/moss.latents.npy)"), "{line}");
    assert!(at.join("moss.latents.npy").is_file());
}

#[test]
fn what_cannot_be_printed_ends_without_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let broken = || std::io::pipe().unwrap().1;
    last_line(&small(at, &["-o", "o.png"]), 0);
    let printing: [&[&str]; 5] = [
        &["--help"],
        &["--version"],
        &["inspect", "o.png"],
        &["tokenize", "--prompt", "x"],
        &["--prompt", "x", "--backend", "cpu", "--dry-run", "--quiet"],
    ];
    for args in printing {
        let line = last_line(&moss(at, args).stdout(full()).output().unwrap(), 1);
        assert!(line.starts_with("moss: standard output: "), "{args:?}: {line}");
        let output = moss(at, args).stdout(broken()).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        assert!(!stderr(&output).contains("moss: "), "{args:?}: {}", stderr(&output));
    }
    for (file, to) in [("a.png", Stdio::from(full())), ("b.png", Stdio::from(broken()))] {
        let status = moss(at, &[&SMALL[..], &["-o", file]].concat()).stderr(to).status().unwrap();
        assert!(status.success() && is_png(&fs::read(at.join(file)).unwrap()), "{file}");
    }
    let status = moss(at, &["--steps", "0"]).stderr(full()).status().unwrap();
    assert_eq!(status.code(), Some(2), "the complaint is lost, its status is not");
}

/// Waits for a program to end, or kills it: a test that hangs says nothing.
fn ends(mut child: Child) -> Output {
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
        }
        thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().unwrap()
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

/// Waits until the program catches SIGTERM; before that a signal would end it the system's way.
fn listening(child: &Child) {
    let catches = || {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or_default();
        u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask >> (15 - 1) & 1 == 1)
    };
    let begin = Instant::now();
    while !catches() {
        assert!(begin.elapsed() < Duration::from_secs(60), "no handler is set");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_signal_ends_a_program_that_waits_for_its_prompt() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    assert!(Command::new("mkfifo").arg(at.join("pipe")).status().unwrap().success());
    let stdin: [&str; 4] = ["--prompt", "-", "-o", "o.png"];
    let pipe = ["--prompt-file", "pipe", "-o", "o.png"];
    for (args, name, status) in
        [(stdin, "-INT", 130), (pipe, "-INT", 130), (stdin, "-TERM", 143), (stdin, "-HUP", 129)]
    {
        let child = moss(at, &args).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        listening(&child);
        signal(&child, name);
        let output = ends(child);
        assert_eq!(last_line(&output, status), "moss: cancelled", "{args:?} {name}");
        assert_eq!(names(at), ["pipe"]);
    }
}

/// Starts a long run, sends Ctrl-C inside a block and waits for the line that follows.
fn stopping(folder: &Path, size: &str) -> (Child, BufReader<ChildStderr>) {
    let run = ["--prompt", "x", "--size", size, "--steps", "1000", "--backend", "cpu", "--threads", "1"];
    let args = [&run[..], &["-o", "o.png"]].concat();
    let mut child = moss(folder, &args).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut next = || {
        let mut line = String::new();
        assert!(said.read_line(&mut line).unwrap() > 0, "the run has ended");
        line
    };
    while !next().starts_with("dit load ") {}
    thread::sleep(Duration::from_millis(500));
    signal(&child, "-INT");
    while next() != "stopping after this block\n" {}
    (child, said)
}

#[test]
fn ctrl_c_ends_a_run_after_a_block() {
    let folder = tempfile::tempdir().unwrap();
    let (child, mut said) = stopping(folder.path(), "512x512");
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    // The block may have been the last of a step, whose line then follows.
    let lines: Vec<&str> = rest.lines().filter(|line| !line.starts_with("denoise ")).collect();
    assert_eq!((ends(child).status.code(), &lines[..]), (Some(130), &["moss: cancelled"][..]));
    assert!(names(folder.path()).is_empty());
}

#[test]
fn a_second_ctrl_c_waits_for_no_block() {
    let folder = tempfile::tempdir().unwrap();
    // A block of so many tokens takes a thread several seconds.
    let (child, said) = stopping(folder.path(), "2048x2048");
    let begin = Instant::now();
    signal(&child, "-INT");
    assert_eq!(ends(child).status.code(), Some(130));
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    drop(said);
    assert!(names(folder.path()).is_empty());
}

#[test]
fn nohup_keeps_a_run_alive() {
    let folder = tempfile::tempdir().unwrap();
    let child = Command::new("sh")
        .args(["-c", "trap '' HUP; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_moss")])
        .args(["tokenize", "--prompt", "-"])
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = child.unwrap();
    listening(&child);
    signal(&child, "-HUP");
    thread::sleep(Duration::from_millis(200));
    child.stdin.take().unwrap().write_all(b"x").unwrap();
    let output = ends(child);
    assert!(output.status.success() && output.status.signal().is_none(), "{}", output.status);
}

#[test]
fn names_stay_on_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let line = last_line(&small(at, &["-o", "a\n\u{1b}[2Jb.png"]), 0);
    assert!(line.starts_with("done: a\\n\\u001b[2Jb.png 16x16"), "{line}");
    let line = last_line(&small(at, &["-o", "a\nb/c.png"]), 1);
    assert!(line.starts_with("moss: -o a\\nb/c.png: "), "{line}");
}

/// Front ends read these lines: `denoise <step>/<steps> <seconds>`.
#[test]
fn each_step_has_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["--size", "16x16", "--steps", "30", "--backend", "cpu", "--prompt", "x", "-o", "o.png"];
    let output = moss(folder.path(), &args).output().unwrap();
    let text = stderr(&output);
    let steps: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("denoise ")).collect();
    assert_eq!(steps.len(), 31, "{text}");
    for (i, step) in steps[..30].iter().enumerate() {
        let (place, seconds) = step.split_once(' ').unwrap();
        assert_eq!(place, format!("{}/30", i + 1));
        assert!(seconds.parse::<f64>().is_ok(), "{step}");
    }
    assert!(steps[30].ends_with(" s"), "the whole stage: {}", steps[30]);
}
