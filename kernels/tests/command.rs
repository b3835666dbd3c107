//! The `moss-kernels` command, and its figures against another reader of the code objects.

use std::process::{Command, Output};

use moss_emulator::{CodeObject, decode};
use moss_kernels::{ARCHS, built_archs, code_objects, kernel, kernel_names, object, testing, why_empty};

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_moss-kernels")).args(args).output().expect("the command runs")
}

#[test]
fn extract_writes_the_embedded_code_objects() {
    let Some(&arch) = built_archs().first() else {
        let output = run(&["list"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains(why_empty().expect("a reason")));
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("new");
    let output = run(&["extract", "--arch", arch, "--out", &out.to_string_lossy()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let objects: Vec<_> = code_objects(arch).collect();
    assert_eq!(std::fs::read_dir(&out).expect("the folder").count(), objects.len());
    for built in objects {
        let file = out.join(format!("{}.{arch}.co", built.source));
        assert_eq!(std::fs::read(&file).expect("written"), built.bytes, "{}", file.display());
    }
    let output = run(&["extract", "--arch", "gfx906", "--out", &out.to_string_lossy()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--arch gfx906: no code objects"));
}

/// Every kernel's figures, read by the emulator's own reader and decoder.
#[test]
fn another_reader_finds_the_same_figures() {
    for arch in testing::built(&ARCHS) {
        for built in code_objects(arch) {
            let object = CodeObject::load(built.bytes).expect("a code object");
            let theirs = object.kernel(built.source).expect("the kernel");
            let ours = kernel(arch, built.source).expect("in the table");
            assert_eq!((ours.vgpr, ours.sgpr), (theirs.vgprs, theirs.sgprs), "{arch} {}", built.source);
            assert_eq!((ours.lds, ours.scratch), (theirs.lds, theirs.scratch), "{arch} {}", built.source);

            let code = object::code(built.bytes, built.source).expect("its code");
            let words: Vec<u32> = code.as_chunks().0.iter().map(|w| u32::from_le_bytes(*w)).collect();
            let (mut at, mut wmma) = (0, 0);
            while at < words.len() {
                let inst = decode(object.arch.generation, &words[at..]).expect("an instruction");
                wmma += u32::from(inst.mnemonic().starts_with("v_wmma_f32_16x16x16_bf16"));
                at += inst.len_bytes() / 4;
            }
            assert_eq!(ours.wmma, wmma, "{arch} {}", built.source);
        }
    }
}

#[test]
fn every_architecture_has_the_same_kernels() {
    let built = testing::built(&ARCHS);
    for arch in &built {
        assert_eq!(kernel_names(arch), kernel_names(built[0]), "{arch}");
    }
}
