//! The embedded code objects.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use crate::object::{self, Kernel};

/// Every architecture that the kernels are written for.
pub const ARCHS: [&str; 8] =
    ["gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1200", "gfx1201"];

/// A code object: one source compiled for one architecture.
#[derive(Debug)]
pub struct Built {
    /// The architecture.
    pub arch: &'static str,
    /// The source's name, without `.hip`.
    pub source: &'static str,
    /// The source itself.
    pub text: &'static str,
    /// The ELF file, as a module loader takes it.
    pub bytes: &'static [u8],
}

/// A kernel for another vendor's GPU: text that its driver compiles. It is no code object and holds nothing that is shipped.
#[derive(Debug)]
pub struct Ptx {
    /// The kernel, and its source's name.
    pub kernel: &'static str,
    /// The text.
    pub text: &'static str,
    /// The compiler's path and flags that made it, without files.
    pub command: &'static [&'static str],
}

mod generated {
    use super::{Built, Ptx};
    include!(concat!(env!("OUT_DIR"), "/objects.rs"));
}

/// The compiler that made the code objects, with its version; or, when there are none, what was looked for.
pub const COMPILER: &str = generated::COMPILER;

/// The compiler's path and flags, without architecture and files; `None` when there was no compiler.
pub fn compile_command() -> Option<&'static [&'static str]> {
    (!generated::COMMAND[0].is_empty()).then_some(generated::COMMAND)
}

/// The code objects of an architecture; none when it was not built. A kernel is in exactly one of them.
pub fn code_objects(arch: &str) -> impl Iterator<Item = &'static Built> {
    generated::OBJECTS.iter().filter(move |object| object.arch == arch)
}

/// Every kernel as PTX, for the logic check; none unless the feature `nvptx` is on.
pub fn ptx() -> &'static [Ptx] {
    generated::PTX
}

/// Architectures that have code objects in this build.
pub fn built_archs() -> Vec<&'static str> {
    ARCHS.into_iter().filter(|arch| code_objects(arch).next().is_some()).collect()
}

/// Why this build has no code objects; `None` when it has.
pub fn why_empty() -> Option<&'static str> {
    generated::OBJECTS.is_empty().then_some(COMPILER)
}

type Kernels = BTreeMap<&'static str, BTreeMap<String, Kernel>>;

fn kernels() -> &'static Kernels {
    static TABLE: OnceLock<Kernels> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut table = Kernels::new();
        for built in generated::OBJECTS {
            let parsed = object::parse(built.bytes)
                .unwrap_or_else(|error| panic!("code object {} for {}: {error}", built.source, built.arch));
            let kernels = table.entry(built.arch).or_default();
            kernels.extend(parsed.kernels.into_iter().map(|kernel| (kernel.name.clone(), kernel)));
        }
        table
    })
}

/// What the code object of an architecture says about a kernel.
pub fn kernel(arch: &str, name: &str) -> Option<&'static Kernel> {
    kernels().get(arch)?.get(name)
}

/// Names of all kernels of an architecture, sorted; every architecture has the same.
pub fn kernel_names(arch: &str) -> Vec<&'static str> {
    kernels().get(arch).map(|kernels| kernels.keys().map(String::as_str).collect()).unwrap_or_default()
}
