//! The `moss-emulate` command.

use std::process::{Command, Output};

use moss_emulator::{MatrixModel, Memory, Npy, Options, Order};

use crate::common::{Args, compile, object, put_u16};

fn emulate(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_moss-emulate")).args(args).output().expect("the command starts")
}

fn floats(v: &[f32]) -> Npy {
    let data = v.iter().flat_map(|x| x.to_le_bytes()).collect();
    Npy { descr: "<f4".to_owned(), shape: vec![v.len() as u64], data }
}

#[test]
fn runs_a_kernel_on_npy_files() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (a, b): (Vec<f32>, Vec<f32>) = (0..300).map(|i| (i as f32, 0.5 * i as f32)).unzip();
    floats(&a).write(path("a.npy").as_ref()).expect("written");
    floats(&b).write(path("b.npy").as_ref()).expect("written");
    let file = compile("basic", "gfx1200").display().to_string();
    let (pa, pb) = (format!("buf:{}", path("a.npy")), format!("buf:{}", path("b.npy")));
    let out = format!("buf:zeros:300:f32:{}", path("c.npy"));
    let common = ["--grid", "2", "--block", "256,1,1", "--arg", &pa, "--arg", &pb, "--arg", &out, "--arg"];
    let ok = emulate(&[&[file.as_str(), "add"], &common[..], &["i32:300", "--histogram"]].concat());
    let text = String::from_utf8_lossy(&ok.stdout).into_owned();
    assert!(ok.status.success(), "{}", String::from_utf8_lossy(&ok.stderr));
    assert!(text.contains("wave instructions") && text.contains("global_store_b32"), "{text}");
    let want: Vec<f32> = a.iter().zip(&b).map(|(x, y)| x + y).collect();
    assert_eq!(Npy::read(path("c.npy").as_ref()), Ok(floats(&want)));
    // A length beyond the buffers: the first lane outside is named.
    let bad = emulate(&[&[file.as_str(), "add"], &common[..], &["i32:301"]].concat());
    let text = String::from_utf8_lossy(&bad.stderr).into_owned();
    assert_eq!(bad.status.code(), Some(1));
    assert!(
        text.contains("kernel add at +") && text.contains("lane 12") && text.contains("no allocation"),
        "{text}"
    );
    assert!(text.contains("global_load_b32"), "{text}");
}

#[test]
fn orders_and_models_are_those_of_the_library() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| dir.path().join(name).display().to_string();
    // In each run of 16 products the first and the last are 2^24 and -2^24: what is left of the others depends on the sum.
    let a: Vec<u16> = (0..64 * 64)
        .map(|i| match i % 16 {
            0 => 0x4b80,
            15 => 0xcb80,
            _ => 0x3f80 + i as u16 % 7,
        })
        .collect();
    let b: Vec<u16> =
        (0..64 * 64).map(|i| if i % 16 % 15 == 0 { 0x3f80 } else { 0x3f80 + (i * 5 % 11) as u16 }).collect();
    for (name, values) in [("a.npy", &a), ("b.npy", &b)] {
        let data = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        let npy = Npy { descr: "<u2".to_owned(), shape: vec![64, 64], data };
        npy.write(path(name).as_ref()).expect("written");
    }
    let object = object("gemm", "gfx1200");
    let file = compile("gemm", "gfx1200").display().to_string();
    let (pa, pb) = (format!("buf:{}", path("a.npy")), format!("buf:{}", path("b.npy")));
    let pc = format!("buf:zeros:64x64:u16:{}", path("c.npy"));
    let mut seen = Vec::new();
    for (order, model, options) in [
        ("forward", "fma-chain", Options::default()),
        (
            "reverse",
            "exact",
            Options { order: Order::Reverse, model: MatrixModel::Exact, ..Options::default() },
        ),
        (
            "shuffle:5",
            "silicon-gfx1151",
            Options { order: Order::Shuffle(5), model: MatrixModel::SiliconGfx1151, ..Options::default() },
        ),
    ] {
        let args = ["--block", "128", "--arg", &pa, "--arg", &pb, "--arg", &pc];
        let sizes = ["--arg", "i32:64", "--arg", "i32:64", "--arg", "i32:64"];
        let how = ["--order", order, "--model", model];
        let ran = emulate(&[&[file.as_str(), "gemm"], &args[..], &sizes, &how].concat());
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let memory = Memory::new();
        let c = memory.alloc(2 * 64 * 64);
        let args =
            Args::new().ptr(put_u16(&memory, &a)).ptr(put_u16(&memory, &b)).ptr(c).u32(64).u32(64).u32(64);
        args.run(&object, "gemm", [1, 1, 1], [128, 1, 1], &memory, &options).expect("runs");
        let found = Npy::read(path("c.npy").as_ref()).expect("written").data;
        assert!(found == memory.read(c, 2 * 64 * 64).expect("allocated"), "{order} {model}");
        seen.push(found);
    }
    assert!(seen[0] != seen[1], "the models differ on these sums");
}

#[test]
fn names_what_is_wrong_with_its_arguments() {
    let file = compile("basic", "gfx1200").display().to_string();
    let list = emulate(&[&file]);
    assert!(String::from_utf8_lossy(&list.stdout).contains("gfx1200 reduce: 20 argument bytes, LDS 1024"));
    for (args, code, message) in [
        (vec!["/nowhere.co", "add"], 1, "/nowhere.co"),
        (vec![file.as_str(), "absent"], 1, "no kernel \"absent\""),
        (vec![&file, "add", "--arg", "i32:x"], 1, "--arg i32:x"),
        (vec![&file, "add", "--arg", "buf:zeros:4:f33"], 1, "no type \"f33\""),
        (vec![&file, "add", "--arg", "u32:5"], 1, "takes 28 bytes of arguments, got 4"),
        (vec![&file, "add", "--grid", "1,2,3,4"], 2, "at most three"),
        (vec![&file, "add", "--order", "sideways"], 2, "expected forward"),
        (vec![&file, "add", "--model", "guess"], 2, "expected one of fma-chain, products-first"),
    ] {
        let out = emulate(&args);
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(code), "{args:?}: {text}");
        assert!(text.contains(message), "{args:?}: {text}");
    }
}
