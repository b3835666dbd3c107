//! Puts the demo model, `golden/demo/model`, into the program.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
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
    Ok(())
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
