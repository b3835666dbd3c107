//! Puts the demo model, `golden/demo/model`, and the commit into the program.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let model = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../golden/demo/model");
    println!("cargo::rerun-if-changed={}", model.display());
    println!("cargo::rerun-if-changed=build.rs");
    let folder = model.canonicalize().map_err(|error| {
        format!("{}, the demo model of the program: {error}; git checkout golden/demo/model", model.display())
    })?;
    let mut files = Vec::new();
    collect(&folder, &mut files)?;
    files.sort();
    let mut code = String::from(
        "/// The demo model's files: paths relative to its folder, and contents.\n\
         pub(crate) const DEMO: &[(&str, &[u8])] = &[\n",
    );
    for file in files {
        let name = file.strip_prefix(&folder)?.to_string_lossy().replace('\\', "/");
        writeln!(code, "    ({name:?}, include_bytes!({:?})),", file.display().to_string())?;
    }
    code.push_str("];\n");
    fs::write(out.join("demo.rs"), code)?;
    let commit = commit().map_or(String::new(), |commit| format!(" (commit {commit})"));
    println!("cargo::rustc-env=MOSS_VERSION={}{commit}", env::var("CARGO_PKG_VERSION")?);
    Ok(())
}

/// The commit that is checked out, when the sources are in their own repository and git is there; a copy of them inside another
/// repository has none.
fn commit() -> Option<String> {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR").ok()?).parent()?.canonicalize().ok()?;
    let git = |args: &[&str]| {
        let output = Command::new("git").arg("-C").arg(&root).args(args).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_string())
    };
    if Path::new(&git(&["rev-parse", "--show-toplevel"])?).canonicalize().ok()? != root {
        return None;
    }
    // What changes when another commit is checked out.
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]);
    for name in ["HEAD", "packed-refs"].map(String::from).into_iter().chain(branch) {
        let path = root.join(git(&["rev-parse", "--git-path", &name])?);
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    git(&["rev-parse", "--short=10", "HEAD"])
}

/// All files below a folder.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}
