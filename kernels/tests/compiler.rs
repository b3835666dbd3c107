//! The build's search for a compiler, in folders with stand-ins for one.

#[path = "../build/compiler.rs"]
mod compiler;

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use compiler::Places;

/// A script that answers as a clang of this version, with these targets and this linker.
fn stand_in(file: &Path, version: &str, targets: &str, lld: &str) {
    fs::create_dir_all(file.parent().expect("a folder")).expect("made");
    let text = format!(
        "#!/bin/sh\ncase $1 in\n--version) echo 'clang version {version}';;\n--print-targets) echo '{targets}';;\n\
         -print-prog-name=lld) echo '{lld}';;\nesac\n"
    );
    fs::write(file, text).expect("written");
    fs::set_permissions(file, Permissions::from_mode(0o755)).expect("a mode");
}

fn time_of(folder: &Path) -> SystemTime {
    fs::metadata(folder).and_then(|meta| meta.modified()).expect("a time")
}

/// One test: a script must not be started while another thread's child still holds it open for writing.
#[test]
fn a_compiler_that_appears_is_noticed_and_the_best_one_is_taken() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let made = |name: &str| {
        fs::create_dir(at(name)).expect("made");
        at(name)
    };
    let (first, second, opt) = (made("first"), made("second"), made("opt"));
    let places = Places {
        rocm: Some(at("rocm-elsewhere")),
        opt: opt.clone(),
        path: vec![first.clone(), at("missing"), second.clone(), PathBuf::from("relative")],
    };
    let refused = |why: &str| {
        let message = places.find().expect_err("none will do");
        assert!(message.starts_with("install ROCm's compiler, or clang 19 or newer"), "{message}");
        assert!(message.contains(why), "{message}");
    };

    // None: cargo watches every folder that is there, and a new name makes it newer than the build.
    refused("clang-19 (not in PATH)");
    assert_eq!(places.watched(None), [first.clone(), second.clone(), opt.clone()]);
    let built = SystemTime::now() - Duration::from_secs(60);
    fs::File::open(&second).and_then(|folder| folder.set_modified(built)).expect("a time");
    stand_in(&at("packages/clang-14"), "14.0.6", "amdgcn", "/usr/bin/lld");
    symlink(at("packages/clang-14"), second.join("clang")).expect("installed");
    assert!(time_of(&second) > built);

    // Compilers that will not do, each with its reason.
    refused("clang (version 14)");
    stand_in(&second.join("clang-20"), "20.1.0", "x86", "/usr/bin/lld");
    refused("clang-20 (without the AMDGPU target)");
    stand_in(&second.join("clang-19"), "19.1.7", "amdgcn", "lld");
    refused("clang-19 (without lld)");
    stand_in(&second.join("clang-21"), "next", "amdgcn", "/usr/bin/lld");
    refused("clang-21 (no version in \"clang version next\")");

    // The first on PATH of the first name; ROCm's before it, the newest of /opt; ROCM_PATH's before all.
    let found = || places.find().expect("one will do");
    stand_in(&second.join("clang-19"), "19.1.7", "amdgcn", "/usr/bin/lld");
    assert_eq!((found().path, found().version), (second.join("clang-19"), "clang version 19.1.7".to_owned()));
    assert!(found().targets("amdgcn") && !found().targets("nvptx64"));
    assert_eq!(places.watched(Some(&found())), [second.join("clang-19")]);
    for rocm in [opt.join("rocm-6.4.1"), opt.join("rocm-7.0.0"), at("rocm-elsewhere")] {
        stand_in(&rocm.join("llvm/bin/clang"), "20.0.0git", "amdgcn", "/opt/lld");
        assert_eq!(found().path, rocm.join("llvm/bin/clang"));
    }
}

#[test]
fn the_machines_places_are_those_of_its_environment() {
    let places = Places::of(None, Some(&OsString::from("/usr/bin:/bin")));
    assert_eq!((places.rocm, places.opt), (None, PathBuf::from("/opt")));
    assert_eq!(places.path, [PathBuf::from("/usr/bin"), PathBuf::from("/bin")]);
}
