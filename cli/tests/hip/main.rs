//! The real program on emulated cards: the emulator's library lies on LD_LIBRARY_PATH under the runtime's name. What holds
//! here is emulated, not measured on a card.

mod conformance;
mod devices;
mod failures;
mod memory;
mod pictures;

use std::fs::{self, File};
use std::io::BufReader;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

/// Whether this build has GPU code for all of `archs`; without it a test is not run, which is said.
fn built(archs: &[&str]) -> bool {
    moss_kernels::testing::built(archs).len() == archs.len()
}

/// A folder to work in and the environment of an emulated machine.
struct Machine {
    folder: TempDir,
    env: Vec<(&'static str, String)>,
}

/// What a run of the program left.
struct Ended {
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Machine {
    /// A machine with these devices (`MOSS_EMULATE`), the emulator as its HIP runtime.
    fn new(devices: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let here = std::env::current_exe().expect("a test has a path");
        let library = here.parent().expect("in a folder").join("libamdhip64.so");
        let target = folder.path().join("libamdhip64.so.7");
        fs::copy(&library, target).unwrap_or_else(|error| panic!("{}: {error}", library.display()));
        let libraries = folder.path().display().to_string();
        Self { env: vec![("LD_LIBRARY_PATH", libraries), ("MOSS_EMULATE", devices.into())], folder }
    }

    /// The same with a variable.
    fn set(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.env.push((name, value.into()));
        self
    }

    /// `moss` in the folder.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_moss"));
        for name in ["HSA_OVERRIDE_GFX_VERSION", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"] {
            command.env_remove(name);
        }
        let envs = self.env.iter().map(|(name, value)| (name, value));
        command.args(args).current_dir(self.path("")).envs(envs);
        command
    }

    /// Runs `moss` in the folder.
    fn moss(&self, args: &[&str]) -> Ended {
        let output = self.command(args).output().expect("moss starts");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        Ended { status: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Makes the small picture on the GPU, or whatever `more` asks for.
    fn hip(&self, more: &[&str]) -> Ended {
        self.moss(&[&PICTURE[..], &["--backend", "hip", "--device-timeout", "3600"], more].concat())
    }

    /// A file in the folder.
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Bytes of a file in the folder.
    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Pixels of a picture in the folder.
    fn pixels(&self, name: &str) -> Vec<u8> {
        let file = File::open(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut reader = png::Decoder::new(BufReader::new(file)).read_info().expect("a PNG");
        let mut pixels = vec![0; reader.output_buffer_size().expect("it fits in memory")];
        reader.next_frame(&mut pixels).expect("an image");
        pixels
    }
}

impl Ended {
    /// The run, which must have ended with this status.
    fn with(self, status: i32) -> Self {
        assert_eq!(self.status, Some(status), "{}", self.stderr);
        self
    }

    /// The last line on stderr of a run that succeeded.
    fn done(self) -> String {
        self.with(0).stderr.lines().last().unwrap_or_default().to_owned()
    }

    /// The complaint of a run that failed with this status: the last line on stderr, and the only one of its kind.
    fn complaint(self, status: i32) -> String {
        let ended = self.with(status);
        let complaints: Vec<&str> = ended.stderr.lines().filter(|line| line.starts_with("moss: ")).collect();
        assert_eq!(complaints, [ended.stderr.lines().last().unwrap_or_default()], "{}", ended.stderr);
        complaints[0].to_owned()
    }

    /// Whether a line on stderr starts like this.
    fn says(&self, start: &str) -> bool {
        self.stderr.lines().any(|line| line.starts_with(start))
    }
}

/// The small picture of these tests.
const PICTURE: [&str; 10] =
    ["--prompt", "a red apple", "--size", "32x32", "--steps", "2", "--seed", "7", "-o", "out.png"];

/// Its pixels by the CPU backend.
fn cpu_pixels() -> Vec<u8> {
    let machine = Machine::new("none");
    machine.moss(&[&PICTURE[..], &["--backend", "cpu"]].concat()).done();
    machine.pixels("out.png")
}

#[test]
fn the_version_names_the_architectures_of_this_build() {
    let ended = Machine::new("none").moss(&["--version"]).with(0);
    let held = match moss_kernels::why_empty() {
        None => format!("GPU code for {}", moss_kernels::built_archs().join(", ")),
        Some(why) => format!("no GPU code: {why}"),
    };
    assert!(ended.stdout.starts_with("moss ") && ended.stdout.contains(&held), "{}", ended.stdout);
}
