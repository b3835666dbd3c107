//! The compiler of the kernels: where it may be, which one is taken, and what cargo watches to notice that there is another.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names of clang on PATH, the first choice first.
const NAMES: [&str; 5] = ["clang-19", "clang-20", "clang-21", "clang-22", "clang"];

/// Folders in which a compiler may be.
pub(crate) struct Places {
    /// `ROCM_PATH`.
    pub(crate) rocm: Option<PathBuf>,
    /// The folder of installed ROCm versions: `/opt`.
    pub(crate) opt: PathBuf,
    /// The folders of `PATH`.
    pub(crate) path: Vec<PathBuf>,
}

/// A compiler that will do.
#[derive(Debug)]
pub(crate) struct Compiler {
    /// The program.
    pub(crate) path: PathBuf,
    /// The first line of its `--version`.
    pub(crate) version: String,
}

impl Places {
    /// Those of this machine.
    pub(crate) fn of(rocm_path: Option<&OsStr>, path: Option<&OsStr>) -> Self {
        let path = path.iter().flat_map(std::env::split_paths).collect();
        Self { rocm: rocm_path.map(PathBuf::from), opt: "/opt".into(), path }
    }

    /// The first candidate that knows the AMDGPU target and is new enough; else what was looked for.
    pub(crate) fn find(&self) -> Result<Compiler, String> {
        let mut rejected = Vec::new();
        for (name, path) in self.candidates() {
            match path.ok_or_else(|| "not in PATH".to_owned()).and_then(|path| Ok((version(&path)?, path))) {
                Ok((version, path)) => return Ok(Compiler { path, version }),
                Err(reason) => rejected.push(format!("{} ({reason})", name.display())),
            }
        }
        Err(format!(
            "install ROCm's compiler, or clang 19 or newer with the AMDGPU target and lld (Debian: clang-19 lld-19); \
             looked for {}",
            rejected.join(", ")
        ))
    }

    /// What a change must be seen of: the compiler that was found, or else the folders in which one may appear. Cargo looks at a
    /// folder's own time too, which changes with each new name in it. A file that is not there yet is no answer: cargo would
    /// run the script, and compile what depends on it, every time.
    pub(crate) fn watched(&self, found: Option<&Compiler>) -> Vec<PathBuf> {
        match found {
            Some(compiler) => vec![compiler.path.clone()],
            None => {
                let all = self.path.iter().chain(&self.rocm).chain([&self.opt]);
                all.filter(|folder| folder.is_absolute() && folder.is_dir()).cloned().collect()
            }
        }
    }

    /// What to call each candidate, and where it is.
    fn candidates(&self) -> Vec<(PathBuf, Option<PathBuf>)> {
        let mut roots: Vec<PathBuf> = fs::read_dir(&self.opt)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("rocm"))
            .map(|entry| entry.path())
            .collect();
        roots.sort();
        roots.reverse();
        let rocm = self.rocm.iter().chain(&roots).map(|root| root.join("llvm/bin/clang"));
        let on_path =
            |name: &str| self.path.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
        rocm.map(|path| (path.clone(), Some(path)))
            .chain(NAMES.map(|name| (PathBuf::from(name), on_path(name))))
            .collect()
    }
}

impl Compiler {
    /// Whether it compiles for a target of this name.
    pub(crate) fn targets(&self, name: &str) -> bool {
        let output = Command::new(&self.path).arg("--print-targets").output();
        output.is_ok_and(|output| {
            let text = String::from_utf8_lossy(&output.stdout);
            text.lines().any(|line| line.split_whitespace().next() == Some(name))
        })
    }
}

/// The first line of `--version`, or why the compiler will not do.
fn version(path: &Path) -> Result<String, String> {
    let run = |args: &[&str]| {
        let output = Command::new(path).args(args).output().map_err(|error| error.kind().to_string())?;
        Ok::<_, String>(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let text = run(&["--version"])?;
    let line = text.lines().next().unwrap_or_default().to_owned();
    let major = line.split("version ").nth(1).and_then(|v| v.split('.').next()?.parse::<u32>().ok());
    match major {
        None => return Err(format!("no version in \"{line}\"")),
        Some(major) if major < 19 => return Err(format!("version {major}")),
        Some(_) => {}
    }
    if !run(&["--print-targets"])?.contains("amdgcn") {
        return Err("without the AMDGPU target".to_owned());
    }
    // Clang prints the linker's path, or its bare name when it finds none.
    if !Path::new(run(&["-print-prog-name=lld"])?.trim()).is_absolute() {
        return Err("without lld".to_owned());
    }
    Ok(line)
}
