//! The kernels' text for another GPU: a folder with one PTX file a kernel.

use std::path::{Path, PathBuf};

/// A kernel's text.
pub(crate) struct Ptx {
    /// Its file.
    pub(crate) path: PathBuf,
    /// The text with a closing zero byte, as the driver wants it.
    pub(crate) text: Vec<u8>,
    /// It declares shared memory whose size the launch gives.
    pub(crate) shared_by_launch: bool,
}

impl Ptx {
    /// Reads `folder/KERNEL.ptx`.
    ///
    /// # Errors
    /// A line that names the folder or the file and what is wrong.
    pub(crate) fn read(folder: Option<&Path>, kernel: &str) -> Result<Self, String> {
        let folder = folder.ok_or("MOSS_PTX is not set; the folder with the kernels' PTX files expected")?;
        let path = folder.join(kernel).with_extension("ptx");
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        if !has_entry(&text, kernel) {
            return Err(format!("{}: it has no kernel {kernel}", path.display()));
        }
        let shared_by_launch = text.lines().any(|line| line.trim_start().starts_with(".extern .shared"));
        let mut text = text.into_bytes();
        text.push(0);
        Ok(Self { path, text, shared_by_launch })
    }
}

/// Whether a text has `.entry KERNEL` with nothing of a name behind it.
fn has_entry(text: &str, kernel: &str) -> bool {
    text.split(".entry ").skip(1).any(|rest| {
        rest.trim_start()
            .strip_prefix(kernel)
            .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '$')))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_found_by_its_whole_name() {
        let text = ".visible .entry linear_glu(\n)\n{}\n.visible .entry norm(\n)";
        assert!(has_entry(text, "linear_glu") && has_entry(text, "norm"));
        assert!(!has_entry(text, "linear") && !has_entry(text, "glu"));
    }

    #[test]
    fn what_is_wrong_with_a_folder_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = |folder: Option<&Path>| Ptx::read(folder, "norm").err().expect("refused");
        assert!(error(None).starts_with("MOSS_PTX is not set"));
        assert!(error(Some(folder.path())).contains("norm.ptx: No such file"));
        let write = |text: &str| std::fs::write(folder.path().join("norm.ptx"), text).expect("written");
        write(".visible .entry normal(\n");
        assert!(error(Some(folder.path())).ends_with("norm.ptx: it has no kernel norm"));
        write(".extern .shared .align 16 .b8 keys[];\n.visible .entry norm(\n");
        let ptx = Ptx::read(Some(folder.path()), "norm").expect("read");
        assert!(ptx.shared_by_launch && ptx.text.ends_with(&[0]));
        write(".shared .align 16 .b8 keys[64];\n.visible .entry norm(\n");
        assert!(!Ptx::read(Some(folder.path()), "norm").expect("read").shared_by_launch);
    }
}
