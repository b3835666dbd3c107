//! The kernels of this build, and those of the device's architecture loaded on it.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use moss_kernels::{args, built_archs, code_objects, object};

use crate::device::{Device, Function, Module};
use crate::discover::KernelSets;
use crate::error::Error;

/// The kernel sets of every architecture, the default first: `wmma` multiplies matrices with the matrix unit.
const SETS: &[&str] = &["wmma"];

/// Architectures with code in this build and their kernel sets.
pub(crate) fn sets() -> &'static KernelSets {
    static TABLE: OnceLock<Vec<(&str, &[&str])>> = OnceLock::new();
    TABLE.get_or_init(|| built_archs().into_iter().map(|arch| (arch, SETS)).collect())
}

/// Every kernel on a device.
#[derive(Default)]
pub(crate) struct Kernels {
    functions: HashMap<String, Function>,
    /// The functions belong to these.
    _modules: Vec<Module>,
}

impl Kernels {
    /// Loads the code objects of the device's architecture and finds every kernel in them, so that a missing one fails now and
    /// not in the middle of a picture.
    ///
    /// # Errors
    /// [`Error::NoSuchKernel`], or a failed call.
    pub(crate) fn load(device: &Arc<Device>) -> Result<Self, Error> {
        let arch = device.info.arch.clone();
        let mut functions = HashMap::new();
        let mut modules = Vec::new();
        for built in code_objects(&arch) {
            let parsed = object::parse(built.bytes).map_err(|error| Error::NoSuchKernel {
                arch: arch.clone(),
                kernel: format!("{}: {error}", built.source),
            })?;
            let module = device.module(built.bytes)?;
            for kernel in parsed.kernels {
                let function = module.function(&kernel.name)?;
                functions.insert(kernel.name, function);
            }
            modules.push(module);
        }
        let kernels = Self { functions, _modules: modules };
        for (kernel, _) in args::all_params() {
            kernels.get(kernel, &arch)?;
        }
        Ok(kernels)
    }

    /// A kernel by its name.
    pub(crate) fn get(&self, kernel: &str, arch: &str) -> Result<Function, Error> {
        let missing = || Error::NoSuchKernel { arch: arch.to_owned(), kernel: kernel.to_owned() };
        self.functions.get(kernel).copied().ok_or_else(missing)
    }
}
