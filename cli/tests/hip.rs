//! The real program on emulated cards: the emulator's library lies on LD_LIBRARY_PATH under the runtime's name. What holds
//! here is emulated, not measured on a card.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// A folder with the emulator as the HIP runtime.
fn runtime() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let here = std::env::current_exe().expect("a test has a path");
    let library = here.parent().expect("in a folder").join("libamdhip64.so");
    let target = folder.path().join("libamdhip64.so.7");
    fs::copy(&library, target).unwrap_or_else(|error| panic!("{}: {error}", library.display()));
    folder
}

/// Runs `moss` with the libraries of a folder and an emulated machine.
fn moss(folder: &Path, devices: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_moss"));
    for name in ["HSA_OVERRIDE_GFX_VERSION", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"] {
        command.env_remove(name);
    }
    command.args(args).current_dir(folder).env("LD_LIBRARY_PATH", folder).env("MOSS_EMULATE", devices);
    command.output().expect("moss starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Asserts the exit status; the last line on stderr.
fn ended(output: &Output, status: i32) -> String {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(status), "{text}");
    text.lines().last().unwrap_or_default().to_owned()
}

/// Pixels of a picture, and what `moss inspect` says of it without blanks after colons.
fn picture(path: &Path) -> (Vec<u8>, String) {
    let file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut reader = png::Decoder::new(BufReader::new(file)).read_info().expect("a PNG");
    let mut pixels = vec![0; reader.output_buffer_size().expect("it fits in memory")];
    reader.next_frame(&mut pixels).expect("an image");
    let folder = path.parent().expect("in a folder");
    let output = moss(folder, "none", &["inspect", &path.display().to_string()]);
    ended(&output, 0);
    (pixels, stdout(&output).replace("\": ", "\":"))
}

const PICTURE: [&str; 10] =
    ["--prompt", "a red apple", "--size", "32x32", "--steps", "2", "--seed", "7", "-o", "out.png"];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&PICTURE[..], more].concat()
}

/// The demo model's picture on an emulated card has the CPU backend's pixels.
fn same_pixels(arch: &str) {
    let folder = runtime();
    let path = folder.path().join("out.png");
    ended(&moss(folder.path(), "none", &with(&["--backend", "cpu"])), 0);
    let (expected, record) = picture(&path);
    assert!(record.contains("\"backend\":\"cpu\""), "{record}");
    fs::remove_file(&path).expect("it was written");

    let output = moss(folder.path(), arch, &with(&["--backend", "hip", "--device-timeout", "3600"]));
    let done = ended(&output, 0);
    assert!(done.starts_with("done: ") && done.contains("7 of 7 DiT blocks stayed on the device"), "{done}");
    let text = stderr(&output);
    assert!(text.lines().next().is_some_and(|line| line.contains(arch) && line.contains("wmma")), "{text}");
    let (found, record) = picture(&path);
    assert!(record.contains(&format!("\"backend\":\"hip {arch}\"")), "{record}");
    assert_eq!(found.len(), 3 * 32 * 32);
    assert!(found == expected, "pixels on {arch} are not the CPU backend's");
}

#[test]
fn gfx1100_makes_the_cpu_backends_picture() {
    same_pixels("gfx1100");
}

#[test]
fn gfx1200_makes_the_cpu_backends_picture() {
    same_pixels("gfx1200");
}

#[test]
fn devices_are_listed_with_kernels_under_each_usable_one() {
    let folder = runtime();
    let output = moss(folder.path(), "gfx1036,gfx1100,gfx1200", &["--list-devices"]);
    ended(&output, 0);
    let text = stdout(&output);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("libamdhip64.so.7"), "{text}");
    for (arch, below) in [("gfx1036", "  unusable: "), ("gfx1100", "  kernels: "), ("gfx1200", "  kernels: ")]
    {
        let at = lines.iter().position(|line| line.starts_with("device ") && line.contains(arch));
        assert!(at.is_some_and(|at| lines[at + 1].starts_with(below)), "{arch} in\n{text}");
    }
}

#[test]
fn the_device_and_its_kernels_can_be_chosen() {
    let folder = runtime();
    let dry = |more: &[&str]| {
        let args = [&["--prompt", "a", "--dry-run", "--backend", "rocm"], more].concat();
        moss(folder.path(), "gfx1036,gfx1100,gfx1200", &args)
    };
    let output = dry(&["--device", "2", "--backend-impl", "wmma"]);
    ended(&output, 0);
    assert!(stderr(&output).contains("gfx1200"), "{}", stderr(&output));
    let output = dry(&[]);
    ended(&output, 0);
    assert_eq!(stderr(&output).matches("not used: device ").count(), 2, "{}", stderr(&output));
    let line = ended(&dry(&["--device", "9"]), 2);
    assert!(line.contains("--device 9: no such device"), "{line}");
    let line = ended(&dry(&["--device", "0"]), 1);
    assert!(line.contains("no code for gfx1036"), "{line}");
    let line = ended(&dry(&["--backend-impl", "fast"]), 2);
    assert!(line.contains("--backend-impl fast") && line.contains("wmma"), "{line}");
    let line = ended(&moss(folder.path(), "none", &with(&["--backend", "cpu", "--device", "0"])), 2);
    assert!(line.contains("--device: only for --backend hip"), "{line}");
}

#[test]
fn a_budget_that_is_too_small_is_refused_before_the_text_encoder() {
    let folder = runtime();
    let output = moss(folder.path(), "gfx1200", &with(&["--backend", "hip", "--vram-budget", "0.001"]));
    let line = ended(&output, 1);
    assert!(line.contains("--vram-budget allows 0.00 GiB"), "{line}");
    assert!(!stderr(&output).lines().any(|line| line.starts_with("text encoder")), "{}", stderr(&output));
    assert!(!folder.path().join("out.png").exists());
}

#[test]
fn a_dry_run_prints_the_plan_and_writes_nothing() {
    let folder = runtime();
    let args = with(&["--dry-run", "--backend", "hip", "--vram-budget", "2"]);
    let output = moss(folder.path(), "gfx1200", &args);
    ended(&output, 0);
    let text = stdout(&output);
    assert!(text.starts_with("memory: 2.00 GiB usable"), "{text}");
    for stage in ["  vae: ", "  text encoder: ", "  dit: "] {
        assert!(text.lines().any(|line| line.starts_with(stage)), "{stage:?} in\n{text}");
    }
    assert!(text.contains("all 7 blocks on the device"), "{text}");
    assert!(!folder.path().join("out.png").exists());
    let output = moss(folder.path(), "none", &with(&["--dry-run", "--backend", "cpu"]));
    ended(&output, 0);
    assert!(stdout(&output).contains("  dit: "), "{}", stdout(&output));
}

#[test]
fn no_device_is_an_error_and_best_says_why_it_takes_the_cpu() {
    let folder = runtime();
    let line = ended(&moss(folder.path(), "none", &with(&["--backend", "hip"])), 1);
    assert!(line.starts_with("moss: --backend hip: no HIP device"), "{line}");
    let output = moss(folder.path(), "none", &["--list-devices"]);
    ended(&output, 1);
    assert_eq!(stdout(&output), "no HIP devices\n");
    let output = moss(folder.path(), "none", &with(&["--dry-run"]));
    ended(&output, 0);
    let text = stderr(&output);
    assert!(text.starts_with("backend cpu: hip cannot be used: no HIP device"), "{text}");
    let output = moss(folder.path(), "gfx1100", &with(&["--dry-run"]));
    ended(&output, 0);
    assert!(stderr(&output).starts_with("backend hip: "), "{}", stderr(&output));
}

#[test]
fn a_library_that_is_no_hip_runtime_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("libamdhip64.so.7"), "no library").expect("a file");
    if Path::new("/opt/rocm").exists() {
        eprintln!("not checked: a runtime is installed here");
        return;
    }
    let line = ended(&moss(folder.path(), "gfx1100", &with(&["--backend", "hip"])), 1);
    assert!(line.contains("no HIP runtime") && line.contains("LD_LIBRARY_PATH"), "{line}");
    assert!(line.contains(&folder.path().display().to_string()), "{line}");
}

#[test]
fn an_override_is_refused() {
    let folder = runtime();
    let output = Command::new(env!("CARGO_BIN_EXE_moss"))
        .args(with(&["--backend", "hip"]))
        .current_dir(folder.path())
        .env("LD_LIBRARY_PATH", folder.path())
        .env("MOSS_EMULATE", "gfx1200")
        .env("HSA_OVERRIDE_GFX_VERSION", "11.0.0")
        .output()
        .expect("moss starts");
    let line = ended(&output, 1);
    assert!(line.contains("HSA_OVERRIDE_GFX_VERSION is set"), "{line}");
}

#[test]
fn a_lost_device_ends_the_program_with_its_place() {
    let folder = runtime();
    let output = Command::new(env!("CARGO_BIN_EXE_moss"))
        .args(with(&["--backend", "hip"]))
        .current_dir(folder.path())
        .env("LD_LIBRARY_PATH", folder.path())
        .env("MOSS_EMULATE", "gfx1200")
        .env("MOSS_EMULATE_LOST_AFTER", "20")
        .output()
        .expect("moss starts");
    let line = ended(&output, 1);
    assert!(line.starts_with("moss: ") && line.contains("text encoder"), "{line}");
    assert!(!folder.path().join("out.png").exists());
}

#[test]
fn the_version_names_the_architectures_of_this_build() {
    let output = moss(Path::new("/"), "none", &["--version"]);
    ended(&output, 0);
    let text = stdout(&output);
    assert!(text.starts_with("moss ") && text.contains("gfx1100"), "{text}");
}
