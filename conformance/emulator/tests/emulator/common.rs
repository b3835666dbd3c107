//! Compiling test kernels and building their arguments.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
};

use moss_emulator::{CodeObject, LaunchError, Memory, Options, Report, launch};

/// Compiles `tests/kernels/NAME.hip` for a target and returns the code object file.
pub(crate) fn compile(name: &str, arch: &str) -> PathBuf {
    run_clang(name, &kernels().join(format!("{name}.hip")), arch)
}

/// Compiles HIP source text.
pub(crate) fn compile_source(name: &str, text: &str, arch: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let source = folder.join(format!("{name}-{arch}-{}.hip", std::process::id()));
    std::fs::write(&source, text).expect("the target folder is writable");
    run_clang(name, &source, arch)
}

fn kernels() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/kernels")
}

fn run_clang(name: &str, source: &Path, arch: &str) -> PathBuf {
    static BUSY: Mutex<()> = Mutex::new(());
    let _one_at_a_time = BUSY.lock().unwrap_or_else(|e| e.into_inner());
    let out =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{arch}-{}.co", std::process::id()));
    if out.exists() {
        return out;
    }
    let run = Command::new("clang-19")
        .args(["-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", "-nogpulib", "-nogpuinc", "-O3"])
        .args(["-Wno-unused-command-line-argument", "-mcode-object-version=5"])
        .arg(format!("--offload-arch={arch}"))
        .arg("-I")
        .arg(kernels())
        .arg(source)
        .arg("-o")
        .arg(&out)
        .output();
    let run = run.unwrap_or_else(|e| panic!("clang-19 does not start ({e}): install clang-19 and lld-19"));
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "clang-19 cannot compile {name} for {arch}:\n{errors}");
    assert!(errors.trim().is_empty(), "clang-19 warns about {name}:\n{errors}");
    out
}

/// The compiled and loaded kernels of a file.
pub(crate) fn object(name: &str, arch: &str) -> CodeObject {
    let path = compile(name, arch);
    let bytes = std::fs::read(&path).expect("just compiled");
    CodeObject::load(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Kernel arguments, each aligned to its size.
#[derive(Default)]
pub(crate) struct Args(Vec<u8>);

impl Args {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    fn push(mut self, bytes: &[u8]) -> Self {
        self.0.resize(self.0.len().next_multiple_of(bytes.len()), 0);
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn ptr(self, p: u64) -> Self {
        self.push(&p.to_le_bytes())
    }

    pub(crate) fn u32(self, v: u32) -> Self {
        self.push(&v.to_le_bytes())
    }

    pub(crate) fn run(
        &self,
        object: &CodeObject,
        kernel: &str,
        grid: [u32; 3],
        block: [u32; 3],
        memory: &Memory,
        options: &Options,
    ) -> Result<Report, LaunchError> {
        launch(object, kernel, grid, block, 0, &self.0, memory, options)
    }
}

/// Device copies of typed values.
pub(crate) fn put_f32(memory: &Memory, v: &[f32]) -> u64 {
    memory.alloc_from(&v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>())
}

pub(crate) fn put_u32(memory: &Memory, v: &[u32]) -> u64 {
    memory.alloc_from(&v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>())
}

pub(crate) fn put_u16(memory: &Memory, v: &[u16]) -> u64 {
    memory.alloc_from(&v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>())
}

pub(crate) fn get_u32(memory: &Memory, p: u64, n: usize) -> Vec<u32> {
    let bytes = memory.read(p, 4 * n as u64).expect("allocated");
    bytes.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().expect("four"))).collect()
}

pub(crate) fn get_f32(memory: &Memory, p: u64, n: usize) -> Vec<f32> {
    get_u32(memory, p, n).into_iter().map(f32::from_bits).collect()
}

pub(crate) fn get_u16(memory: &Memory, p: u64, n: usize) -> Vec<u16> {
    let bytes = memory.read(p, 2 * n as u64).expect("allocated");
    bytes.chunks_exact(2).map(|b| u16::from_le_bytes(b.try_into().expect("two"))).collect()
}

/// Pseudo-random bits: a 64-bit linear congruence, high half.
pub(crate) struct Bits(pub(crate) u64);

impl Bits {
    pub(crate) fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 32) as u32
    }

    /// In [-1, 1), a multiple of 2^-23.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.next() >> 8) as f32 / (1 << 23) as f32 - 1.0
    }
}

/// One target of each encoding.
pub(crate) const BOTH: [&str; 2] = ["gfx1100", "gfx1200"];

/// Every file of test kernels.
pub(crate) const KERNEL_FILES: [&str; 3] = ["basic", "gemm", "races"];
