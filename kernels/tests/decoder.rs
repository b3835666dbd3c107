//! The emulator against LLVM's disassembler, on everything that is shipped.

use moss_emulator::{CodeObject, compare_with_objdump};
use moss_kernels::{ARCHS, code_objects, testing};

/// Length and mnemonic of every instruction of every embedded code object.
#[test]
fn the_decoder_agrees_with_llvm_on_every_shipped_instruction() {
    let objdump = "llvm-objdump-19";
    let built = testing::built(&ARCHS);
    if built.is_empty() || !testing::has_tool(objdump, "llvm-19") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut differences = Vec::new();
    for arch in built {
        let mut instructions = 0;
        for built in code_objects(arch) {
            let file = folder.path().join(format!("{}.{arch}.co", built.source));
            std::fs::write(&file, built.bytes).expect("written");
            match compare_with_objdump(objdump, &file) {
                Ok(n) => instructions += n,
                Err(found) => differences.push(format!("{}: {found}", built.source)),
            }
        }
        eprintln!("{arch}: {instructions} instructions, LLVM says the same of each");
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn every_shipped_instruction_is_emulated() {
    for arch in testing::built(&ARCHS) {
        for built in code_objects(arch) {
            let object = CodeObject::load(built.bytes).expect("a code object");
            assert_eq!(object.unsupported(), [""; 0], "{} on {arch}", built.source);
        }
    }
}
