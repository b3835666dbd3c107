//! The shared library as a program finds it: opened by name, used through HIP's C interface.

#![allow(unsafe_code)]

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    path::PathBuf,
    process::Command,
};

use libloading::{Library, Symbol};

/// The library beside this test.
fn library() -> PathBuf {
    let here = std::env::current_exe().expect("a test has a path");
    let path = here.parent().expect("in a folder").join("libamdhip64.so");
    assert!(path.exists(), "{} is not built", path.display());
    path
}

/// Set in the child process that loads the library with its environment.
const CHILD: &str = "MOSS_EMULATOR_TEST_CHILD";

fn child(test: &str, env: &[(&str, &str)]) -> String {
    let out = Command::new(std::env::current_exe().expect("a test has a path"))
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "1")
        .envs(env.iter().copied())
        .output()
        .expect("starts itself");
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{text}");
    text
}

#[test]
fn presents_the_devices_of_the_environment() {
    if std::env::var_os(CHILD).is_none() {
        let env = [
            ("MOSS_EMULATE", "gfx1036,gfx1100"),
            ("MOSS_EMULATE_VRAM", "512MiB,24GiB"),
            ("MOSS_EMULATE_STATS", "1"),
        ];
        let text = child("presents_the_devices_of_the_environment", &env);
        assert!(text.contains("0 launches, 0 wave instructions"), "{text}");
        return;
    }
    // SAFETY: the library under test; the signatures are those of HIP's public header.
    unsafe {
        let lib = Library::new(library()).expect("loads");
        let init: Symbol<'_, unsafe extern "C" fn(u32) -> u32> = lib.get(b"hipInit").expect("exported");
        let count: Symbol<'_, unsafe extern "C" fn(*mut c_int) -> u32> =
            lib.get(b"hipGetDeviceCount").expect("exported");
        let properties: Symbol<'_, unsafe extern "C" fn(*mut c_void, c_int) -> u32> =
            lib.get(b"hipGetDevicePropertiesR0600").expect("exported");
        let set: Symbol<'_, unsafe extern "C" fn(c_int) -> u32> = lib.get(b"hipSetDevice").expect("exported");
        let info: Symbol<'_, unsafe extern "C" fn(*mut usize, *mut usize) -> u32> =
            lib.get(b"hipMemGetInfo").expect("exported");
        assert_eq!(init(0), 0);
        let mut n = 0;
        assert_eq!((count(&mut n), n), (0, 2));
        let mut block = [0u64; 1472 / 8];
        assert_eq!(properties(block.as_mut_ptr().cast(), 1), 0);
        let at = |offset: usize| block.as_ptr().cast::<u8>().add(offset);
        assert_eq!(CStr::from_ptr(at(1160).cast::<c_char>()), c"gfx1100");
        assert_eq!(at(288).cast::<u64>().read(), 24 << 30);
        assert_eq!(at(308).cast::<i32>().read(), 32);
        assert_eq!((at(360).cast::<i32>().read(), at(396).cast::<i32>().read()), (11, 0));
        assert_eq!(set(2), 101);
        assert_eq!(set(1), 0);
        let (mut free, mut total) = (0, 0);
        assert_eq!((info(&mut free, &mut total), free, total), (0, 24 << 30, 24 << 30));
    }
}

#[test]
fn presents_no_device() {
    if std::env::var_os(CHILD).is_none() {
        child("presents_no_device", &[("MOSS_EMULATE", "none")]);
        return;
    }
    // SAFETY: as above.
    unsafe {
        let lib = Library::new(library()).expect("loads");
        let count: Symbol<'_, unsafe extern "C" fn(*mut c_int) -> u32> =
            lib.get(b"hipGetDeviceCount").expect("exported");
        let name: Symbol<'_, unsafe extern "C" fn(u32) -> *const c_char> =
            lib.get(b"hipGetErrorName").expect("exported");
        let mut n = 5;
        assert_eq!((count(&mut n), n), (100, 0));
        assert_eq!(CStr::from_ptr(name(100)), c"hipErrorNoDevice");
    }
}

#[test]
fn says_what_it_is_and_how_it_sums() {
    let Some(expected) = std::env::var_os(EXPECTED) else {
        for (model, expected) in
            [("fma-chain", "emulated fma-chain"), ("silicon-gfx1151", "emulated silicon-gfx1151")]
        {
            child("says_what_it_is_and_how_it_sums", &[("MOSS_EMULATE_MODEL", model), (EXPECTED, expected)]);
        }
        return;
    };
    // SAFETY: as above.
    unsafe {
        let lib = Library::new(library()).expect("loads");
        let standing: Symbol<'_, unsafe extern "C" fn() -> *const c_char> =
            lib.get(b"mossRuntimeStanding").expect("exported");
        assert_eq!(CStr::from_ptr(standing()).to_str().expect("text"), expected.to_str().expect("text"));
    }
}

/// What the child of the test above expects.
const EXPECTED: &str = "MOSS_EMULATOR_TEST_STANDING";
