//! Length and mnemonic of every instruction of every test kernel, on all targets, against LLVM.

use moss_emulator::{ARCHS, compare_with_objdump};

use crate::common::compile;

#[test]
fn agrees_with_llvm_on_all_targets() {
    let mut total = 0;
    let mut differences = Vec::new();
    for arch in ARCHS {
        for name in crate::common::KERNEL_FILES {
            match compare_with_objdump("llvm-objdump-19", &compile(name, arch.name)) {
                Ok(n) => total += n,
                Err(e) => differences.push(format!("{name}: {e}")),
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    eprintln!("{total} instructions agree");
}
