//! Compiles `hip/*.hip` for every architecture, one code object each, and writes the table that embeds them.
//!
//! The compiler is ROCm's clang if there is one, else clang 19 or newer with the AMDGPU target; without any the table is empty
//! and says what was looked for. `MOSS_KERNELS_ARCHS=gfx1100,gfx1200` builds fewer architectures. The feature `nvptx` builds a
//! ninth target of the same sources, as PTX text, for the logic check on another vendor's GPU; the others do not change by it.

#[path = "build/codes.rs"]
mod codes;
#[path = "build/compiler.rs"]
mod compiler;

use std::collections::hash_map::DefaultHasher;
use std::fmt::Write as _;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use compiler::{Compiler, Places};

const ARCHS: [&str; 8] =
    ["gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1200", "gfx1201"];

/// Every flag has a reason: device code alone, with no library and no header of ROCm's; nothing contracted, reassociated or
/// flushed beyond what the sources say; division and square root correctly rounded; a warning is an error.
const FLAGS: [&str; 19] = [
    "-x",
    "hip",
    "--cuda-device-only",
    "--no-gpu-bundle-output",
    "-nogpulib",
    "-nogpuinc",
    "-std=c++17",
    "-O3",
    "-mcode-object-version=5",
    "-ffp-contract=off",
    "-fno-gpu-flush-denormals-to-zero",
    "-fhip-fp32-correctly-rounded-divide-sqrt",
    "-fno-exceptions",
    "-fno-strict-aliasing",
    "-fuse-cuid=none",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unused-command-line-argument",
];

/// The ninth target: the same promises, as text for any GPU of sm_75 or newer, which the driver compiles.
const NVPTX: &str = "nvptx64";
const NVPTX_FLAGS: [&str; 17] = [
    "-x",
    "cuda",
    "--cuda-device-only",
    "-nocudainc",
    "-nocudalib",
    "--cuda-gpu-arch=sm_75",
    "--cuda-feature=+ptx64",
    "-std=c++17",
    "-S",
    "-O3",
    "-ffp-contract=off",
    "-fno-gpu-flush-denormals-to-zero",
    "-fno-exceptions",
    "-fno-strict-aliasing",
    "-Wall",
    "-Wextra",
    "-Werror",
];
/// The arrays of these stay in local memory unless their loops are unrolled without a limit. The attention kernels run at half
/// the speed with it.
const UNROLLED: [&str; 2] = ["linear", "linear_glu"];
const UNROLL_FLAGS: [&str; 2] = ["-mllvm", "-unroll-threshold=100000"];

fn main() {
    println!("cargo::rerun-if-changed=hip");
    for variable in ["ROCM_PATH", "MOSS_KERNELS_ARCHS", "PATH"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let header = fs::read_to_string("hip/codes.h").unwrap_or_else(|error| panic!("hip/codes.h: {error}"));
    let modules = codes::modules(&header).unwrap_or_else(|error| panic!("{error}"));
    fs::write(out.join("codes.rs"), modules).expect("OUT_DIR is writable");
    let variable = |name: &str| std::env::var_os(name);
    let places = Places::of(variable("ROCM_PATH").as_deref(), variable("PATH").as_deref());
    let found = places.find();
    for path in places.watched(found.as_ref().ok()) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    let table = match found {
        Ok(compiler) => table(&compiler, &build(&compiler, &out)),
        Err(looked_for) => {
            println!("cargo::warning=no HIP kernels in this build: {looked_for}");
            table(&Compiler { path: PathBuf::new(), version: looked_for }, &[])
        }
    };
    fs::write(out.join("objects.rs"), table).expect("OUT_DIR is writable");
}

struct Job {
    /// The architecture, or [`NVPTX`].
    target: &'static str,
    source: String,
    path: PathBuf,
    flags: Vec<String>,
    /// What is compiled.
    built: PathBuf,
}

/// Compiles what changed since the last build, as many files at once as cargo allows jobs.
fn build(compiler: &Compiler, out: &Path) -> Vec<Job> {
    let wanted = std::env::var("MOSS_KERNELS_ARCHS").ok();
    let wanted: Option<Vec<&str>> = wanted.as_deref().map(|list| list.split(',').map(str::trim).collect());
    for name in wanted.iter().flatten() {
        assert!(ARCHS.contains(name), "MOSS_KERNELS_ARCHS: {name:?} is none of {ARCHS:?}");
    }
    let nvptx = std::env::var_os("CARGO_FEATURE_NVPTX").is_some();
    assert!(
        !nvptx || compiler.targets(NVPTX),
        "feature nvptx: {} has no such target",
        compiler.path.display()
    );
    let archs = ARCHS.into_iter().filter(|arch| wanted.as_ref().is_none_or(|list| list.contains(arch)));
    let targets: Vec<&str> = archs.chain(nvptx.then_some(NVPTX)).collect();

    let mut files: Vec<PathBuf> =
        fs::read_dir("hip").expect("hip/ is there").map(|entry| entry.expect("readable").path()).collect();
    files.sort();
    let is = |path: &Path, extension: &str| path.extension().is_some_and(|e| e == extension);
    let read = |path: &Path| fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let headers: Vec<Vec<u8>> = files.iter().filter(|path| is(path, "h")).map(|path| read(path)).collect();

    let mut jobs = Vec::new();
    let mut stale = Vec::new();
    for path in files.iter().filter(|path| is(path, "hip")) {
        let source = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let contents = read(path);
        for &target in &targets {
            let flags = flags(target, &source);
            let mut hasher = DefaultHasher::new();
            (&flags, &compiler.version, &compiler.path, &headers, &contents).hash(&mut hasher);
            let extension = if target == NVPTX { "ptx" } else { "co" };
            let built = out.join(format!("{source}.{target}.{:016x}.{extension}", hasher.finish()));
            if !built.exists() {
                remove_old(out, &format!("{source}.{target}."));
                stale.push(jobs.len());
            }
            jobs.push(Job { target, source: source.clone(), path: path.clone(), flags, built });
        }
    }

    let threads = std::env::var("NUM_JOBS").ok().and_then(|n| n.parse().ok()).unwrap_or(1usize);
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads.min(stale.len()) {
            scope.spawn(|| {
                while let Some(&job) = stale.get(next.fetch_add(1, Ordering::Relaxed)) {
                    compile(compiler, &jobs[job]);
                }
            });
        }
    });
    jobs
}

fn flags(target: &str, source: &str) -> Vec<String> {
    let flags = match target {
        NVPTX if UNROLLED.contains(&source) => [&NVPTX_FLAGS[..], &UNROLL_FLAGS].concat(),
        NVPTX => NVPTX_FLAGS.to_vec(),
        _ => FLAGS.to_vec(),
    };
    let arch = (target != NVPTX).then(|| format!("--offload-arch={target}"));
    flags.into_iter().map(str::to_owned).chain(arch).collect()
}

fn remove_old(out: &Path, prefix: &str) {
    for entry in fs::read_dir(out).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            fs::remove_file(entry.path()).expect("OUT_DIR is writable");
        }
    }
}

fn compile(compiler: &Compiler, job: &Job) {
    let partial = job.built.with_extension("partial");
    let output = Command::new(&compiler.path)
        .args(&job.flags)
        .arg(&job.path)
        .arg("-o")
        .arg(&partial)
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", compiler.path.display()));
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && messages.is_empty(),
        "{} for {}:\n{messages}",
        job.path.display(),
        job.target
    );
    fs::rename(&partial, &job.built).expect("OUT_DIR is writable");
}

fn table(compiler: &Compiler, jobs: &[Job]) -> String {
    let mut text = format!("pub(super) const COMPILER: &str = {:?};\n", compiler.version);
    let command = |flags: Vec<String>| -> Vec<String> {
        std::iter::once(compiler.path.display().to_string()).chain(flags).collect()
    };
    let _ = writeln!(
        text,
        "pub(super) static COMMAND: &[&str] = &{:?};",
        command(FLAGS.map(str::to_owned).to_vec())
    );
    let (ptx, objects): (Vec<&Job>, Vec<&Job>) = jobs.iter().partition(|job| job.target == NVPTX);
    text.push_str("pub(super) static OBJECTS: &[Built] = &[\n");
    for Job { target, source, path, built, .. } in objects {
        let path = path.canonicalize().expect("the source is there");
        let _ = writeln!(
            text,
            "    Built {{ arch: {target:?}, source: {source:?}, text: include_str!({path:?}), bytes: include_bytes!({built:?}) }},"
        );
    }
    text.push_str("];\npub(super) static PTX: &[Ptx] = &[\n");
    for Job { source, flags, built, .. } in ptx {
        let command = command(flags.clone());
        let _ = writeln!(
            text,
            "    Ptx {{ kernel: {source:?}, text: include_str!({built:?}), command: &{command:?} }},"
        );
    }
    text.push_str("];\n");
    text
}
