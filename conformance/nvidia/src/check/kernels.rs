//! The kernels' texts for the pack: as the build made them, with line numbers, and with planted defects.

use std::fs;
use std::path::Path;
use std::process::Command;

use moss_kernels::{Ptx, ptx};

use crate::mutants::{self, Sources};

type Result<T> = std::result::Result<T, String>;

fn named<T>(path: &Path, result: std::io::Result<T>) -> Result<T> {
    result.map_err(|error| format!("{}: {error}", path.display()))
}

/// Compiles one kernel of some sources as the build did, with line numbers; a planted defect may leave a warning.
fn compile(kernel: &Ptx, sources: &Sources, out: &Path) -> Result<()> {
    let folder = tempfile::tempdir().map_err(|error| format!("a temporary folder: {error}"))?;
    for (file, text) in sources {
        let path = folder.path().join(file);
        named(&path, fs::write(&path, text))?;
    }
    let [compiler, flags @ ..] = kernel.command else { return Err("the build has no command".into()) };
    let output = Command::new(compiler)
        .args(flags)
        .args(["-Wno-error", "-gline-tables-only"])
        .arg(folder.path().join(kernel.kernel).with_extension("hip"))
        .arg("-o")
        .arg(out)
        .output();
    let output = named(Path::new(compiler), output)?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{}: {}", out.display(), String::from_utf8_lossy(&output.stderr).trim()))
}

/// A text without its line numbers: no places, no labels of them, no sections about them at the end.
fn code(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().map(str::trim_start).take_while(|line| !line.starts_with(".section"));
    lines.filter(|line| ![".loc", ".file", "$L__tmp"].iter().any(|start| line.starts_with(start)))
}

/// Writes everything below `out`, and the list of the mutants, of which those are left out that change nothing.
///
/// # Errors
/// A build without PTX, a defect that does not fit the sources, the compiler's message.
pub(crate) fn write(folder: &Path, out: &Path) -> Result<()> {
    if ptx().is_empty() {
        return Err("this build has no PTX; build it with --features nvptx".into());
    }
    let sources = mutants::sources(folder)?;
    for name in ["ptx", "lines", "mutants"] {
        let path = out.join(name);
        named(&path, fs::create_dir_all(&path))?;
    }
    let file = |name: &str, kernel: &str| out.join(name).join(format!("{kernel}.ptx"));
    for kernel in ptx() {
        let path = file("ptx", kernel.kernel);
        named(&path, fs::write(&path, kernel.text))?;
        compile(kernel, &sources, &file("lines", kernel.kernel))?;
    }
    let mut list = String::new();
    for mutant in mutants::all(&sources)? {
        let Some(kernel) = ptx().iter().find(|kernel| kernel.kernel == mutant.kernel) else {
            return Err(format!("{}: the build has no {}", mutant.name, mutant.kernel));
        };
        let path = file("mutants", &mutant.name);
        compile(kernel, &mutant.sources(&sources), &path)?;
        let unchanged = file("lines", kernel.kernel);
        let [mutated, unchanged] = [&path, &unchanged].map(|path| named(path, fs::read_to_string(path)));
        // A kernel may leave out the part that was changed.
        if code(&mutated?).eq(code(&unchanged?)) {
            named(&path, fs::remove_file(&path))?;
        } else {
            list += &mutant.line();
        }
    }
    let path = out.join("mutants/list");
    named(&path, fs::write(&path, list))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_numbers_are_no_change() {
        let text = |loc: &str, op: &str| {
            format!("{{\n\t.loc 1 {loc}\n$L__tmp1:\n\t{op};\n}}\n.section .debug {{ {loc} }}\n")
        };
        assert!(code(&text("7", "bar.sync 0")).eq(code(&text("8", "bar.sync 0"))));
        assert!(!code(&text("7", "bar.sync 0")).eq(code(&text("7", "ret"))));
    }
}
