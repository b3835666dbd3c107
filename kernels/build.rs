//! Compiles `hip/*.hip` for every architecture, one code object each, and writes the table that embeds them.
//!
//! The compiler is ROCm's clang if there is one, else clang 19 or newer with the AMDGPU target; without any the table is empty
//! and says what was looked for. `MOSS_KERNELS_ARCHS=gfx1100,gfx1200` builds fewer architectures.

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
    arch: &'static str,
    source: String,
    path: PathBuf,
    object: PathBuf,
}

/// Compiles what changed since the last build, as many files at once as cargo allows jobs.
fn build(compiler: &Compiler, out: &Path) -> Vec<Job> {
    let wanted = std::env::var("MOSS_KERNELS_ARCHS").ok();
    let wanted: Option<Vec<&str>> = wanted.as_deref().map(|list| list.split(',').map(str::trim).collect());
    for name in wanted.iter().flatten() {
        assert!(ARCHS.contains(name), "MOSS_KERNELS_ARCHS: {name:?} is none of {ARCHS:?}");
    }
    let archs: Vec<_> =
        ARCHS.into_iter().filter(|arch| wanted.as_ref().is_none_or(|list| list.contains(arch))).collect();

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
        for arch in &archs {
            let mut hasher = DefaultHasher::new();
            (FLAGS, &compiler.version, &compiler.path, &headers, &contents).hash(&mut hasher);
            let object = out.join(format!("{source}.{arch}.{:016x}.co", hasher.finish()));
            if !object.exists() {
                remove_old(out, &format!("{source}.{arch}."));
                stale.push(jobs.len());
            }
            jobs.push(Job { arch, source: source.clone(), path: path.clone(), object });
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

fn remove_old(out: &Path, prefix: &str) {
    for entry in fs::read_dir(out).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            fs::remove_file(entry.path()).expect("OUT_DIR is writable");
        }
    }
}

fn compile(compiler: &Compiler, job: &Job) {
    let partial = job.object.with_extension("partial");
    let output = Command::new(&compiler.path)
        .args(FLAGS)
        .arg(format!("--offload-arch={}", job.arch))
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
        job.arch
    );
    fs::rename(&partial, &job.object).expect("OUT_DIR is writable");
}

fn table(compiler: &Compiler, jobs: &[Job]) -> String {
    let mut text = format!("pub(super) const COMPILER: &str = {:?};\n", compiler.version);
    let command: Vec<String> =
        std::iter::once(compiler.path.display().to_string()).chain(FLAGS.map(str::to_owned)).collect();
    let _ = writeln!(text, "pub(super) static COMMAND: &[&str] = &{command:?};");
    text.push_str("pub(super) static OBJECTS: &[Built] = &[\n");
    for Job { arch, source, object, path } in jobs {
        let (object, path) =
            (object.display().to_string(), path.canonicalize().expect("the source is there"));
        let _ = writeln!(
            text,
            "    Built {{ arch: {arch:?}, source: {source:?}, text: include_str!({path:?}), bytes: include_bytes!({object:?}) }},"
        );
    }
    text.push_str("];\n");
    text
}
