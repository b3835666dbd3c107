//! Kernels with one defect each: what the sanitizers and the bits must find, or their silence proves little.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use moss_conformance::battery;

/// The kernels' sources by file name.
pub(crate) type Sources = BTreeMap<String, String>;

/// A planted defect.
pub(crate) struct Mutant {
    pub(crate) name: String,
    /// The kernel whose PTX shows it.
    pub(crate) kernel: String,
    /// The tool of compute-sanitizer that may find it.
    tool: &'static str,
    file: String,
    text: String,
}

/// Defects other than a missing barrier: name, kernel, tool, file, the text that is there once, what stands there instead.
const PLANTED: [(&str, &str, &str, &str, &str, &str); 5] = [
    ("unbounded", "to_bf16", "memcheck", "to_bf16.hip", "if (i < (u32)count) ", ""),
    (
        "unclamped",
        "linear",
        "memcheck",
        "gemm.h",
        "g.first_token + row < tokens ? g.first_token + row : tokens - 1",
        "g.first_token + row",
    ),
    (
        "half-a-wave",
        "group_norm_slices",
        "synccheck",
        "group_norm_slices.hip",
        "    barrier();",
        "    if (lane_id() < 16) barrier();",
    ),
    (
        "a-wave-leaves",
        "group_norm_slices",
        "synccheck",
        "group_norm_slices.hip",
        "    barrier();",
        "    if (wave_id() == 3) return;\n    barrier();",
    ),
    (
        "lanes-leave",
        "gated_norm",
        "synccheck",
        "gated_norm.hip",
        "    if (used) v = load8(x + at);",
        "    if (!used) return;\n    v = load8(x + at);",
    ),
];

/// Reads the `.hip` and `.h` files of a folder.
pub(crate) fn sources(folder: &Path) -> Result<Sources, String> {
    let named = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    let mut sources = Sources::new();
    for entry in fs::read_dir(folder).map_err(|error| named(folder, error))? {
        let path = entry.map_err(|error| named(folder, error))?.path();
        if path.extension().is_some_and(|e| e == "hip" || e == "h") {
            let text = fs::read_to_string(&path).map_err(|error| named(&path, error))?;
            let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
            sources.insert(name, text);
        }
    }
    Ok(sources)
}

/// Whether a source is `file` or includes it, through any number of others.
fn reaches(sources: &Sources, from: &str, file: &str) -> bool {
    let Some(text) = sources.get(from) else { return false };
    let included = text.lines().filter_map(|line| line.trim().strip_prefix("#include \"")?.strip_suffix('"'));
    from == file || included.into_iter().any(|next| next != from && reaches(sources, next, file))
}

/// The kernels whose text includes a file, in order; a source is named after its kernel.
fn kernels<'a>(sources: &'a Sources, file: &'a str) -> impl Iterator<Item = &'a str> {
    let names = sources.keys().filter_map(|name| name.strip_suffix(".hip"));
    names.filter(move |kernel| reaches(sources, &format!("{kernel}.hip"), file))
}

/// The operation of the battery that launches a kernel: the longest one that its name begins with.
fn operation(kernel: &str) -> Option<&'static str> {
    battery::OPERATIONS.into_iter().filter(|op| kernel.starts_with(op)).max_by_key(|op| op.len())
}

/// Every barrier of every file, missing in each kernel that has it.
fn barriers(sources: &Sources) -> Vec<Mutant> {
    let mut mutants = Vec::new();
    for (file, text) in sources {
        for (at, call) in text.match_indices("barrier();") {
            let line_start = text[..at].rfind('\n').map_or(0, |n| n + 1);
            // A comment, a declaration, or the end of a longer name.
            let before = &text[..at];
            let named = before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
            if named || before.ends_with("void ") || text[line_start..at].contains("//") {
                continue;
            }
            let line = text[..at].matches('\n').count() + 1;
            for kernel in kernels(sources, file) {
                let name = format!("{kernel}-no-barrier-{}-{line}", file.replace('.', "-"));
                let text = format!("{};{}", &text[..at], &text[at + call.len()..]);
                mutants.push(Mutant {
                    name,
                    kernel: kernel.into(),
                    tool: "racecheck",
                    file: file.clone(),
                    text,
                });
            }
        }
    }
    mutants
}

/// The other defects.
fn planted(sources: &Sources) -> Result<Vec<Mutant>, String> {
    let plant = |(name, kernel, tool, file, old, new): (&str, &str, &'static str, &str, &str, &str)| {
        let text = sources.get(file).ok_or_else(|| format!("{name}: there is no {file}"))?;
        let count = text.matches(old).count();
        if count != 1 {
            return Err(format!("{name}: {file} has {old:?} {count} times, once expected"));
        }
        let (name, text) = (format!("{kernel}-{name}"), text.replace(old, new));
        Ok(Mutant { name, kernel: kernel.into(), tool, file: file.into(), text })
    };
    PLANTED.into_iter().map(plant).collect()
}

/// Every mutant of the kernels.
///
/// # Errors
/// A defect that does not fit the text, or a kernel that no operation launches.
pub(crate) fn all(sources: &Sources) -> Result<Vec<Mutant>, String> {
    let mutants: Vec<Mutant> = barriers(sources).into_iter().chain(planted(sources)?).collect();
    match mutants.iter().find(|mutant| operation(&mutant.kernel).is_none()) {
        Some(mutant) => Err(format!("no operation of the battery launches {}", mutant.kernel)),
        None => Ok(mutants),
    }
}

impl Mutant {
    /// Its line in the list: name, kernel, operation and tool.
    pub(crate) fn line(&self) -> String {
        let op = operation(&self.kernel).unwrap_or("none");
        format!("{} {} {op} {}\n", self.name, self.kernel, self.tool)
    }

    /// Its sources.
    pub(crate) fn sources(&self, sources: &Sources) -> Sources {
        let mut own = sources.clone();
        own.insert(self.file.clone(), self.text.clone());
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> Sources {
        files.iter().map(|(name, text)| ((*name).into(), (*text).into())).collect()
    }

    #[test]
    fn the_defects_fit_the_kernels_as_they_are() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels/hip");
        let sources = sources(&folder).expect("the kernels' sources");
        let mutants = all(&sources).expect("every defect can be planted");
        for kernel in ["linear", "linear_glu", "attention_128", "attention_256", "attention_f32", "conv2d"] {
            assert!(mutants.iter().any(|m| m.kernel == kernel && m.tool == "racecheck"), "{kernel}");
        }
        for mutant in &mutants {
            let changed = mutant.sources(&sources);
            let files: Vec<_> = sources.iter().filter(|(file, text)| changed[*file] != **text).collect();
            assert_eq!(files.len(), 1, "{}", mutant.name);
            assert!(reaches(&changed, &format!("{}.hip", mutant.kernel), files[0].0), "{}", mutant.name);
            assert_eq!(mutant.line().split(' ').count(), 4, "{}", mutant.line());
        }
    }

    #[test]
    fn a_barrier_is_taken_from_every_kernel_that_has_it() {
        let sources = of(&[
            ("moss.h", "void barrier();\n__builtin_s_barrier();\n"),
            ("gemm.h", "#include \"moss.h\"\na;\nbarrier(); // barrier();\n"),
            ("linear.hip", "#include \"gemm.h\"\n"),
            ("linear_glu.hip", "#include \"gemm.h\"\n"),
            ("norm.hip", "#include \"moss.h\"\n"),
        ]);
        let found = barriers(&sources);
        let names: Vec<&str> = found.iter().map(|mutant| mutant.name.as_str()).collect();
        assert_eq!(names, ["linear-no-barrier-gemm-h-3", "linear_glu-no-barrier-gemm-h-3"]);
        assert_eq!(found[0].text, "#include \"moss.h\"\na;\n; // barrier();\n");
        assert!(planted(&sources).err().expect("there is no such file").contains("to_bf16.hip"));
    }

    #[test]
    fn a_kernel_belongs_to_the_longest_operation_of_its_name() {
        assert_eq!(operation("linear_glu_fast"), Some("linear_glu"));
        assert_eq!(operation("linear"), Some("linear"));
        assert_eq!(operation("unknown"), None);
    }
}
