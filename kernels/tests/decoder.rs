//! The instructions of everything that is shipped: the emulator's decoder against LLVM's disassembler, and what none may be.

use std::fs;
use std::process::Command;

use moss_emulator::{CodeObject, compare_with_objdump, decode};
use moss_kernels::check::check_instructions;
use moss_kernels::{ARCHS, code_objects, compile_command, object, testing};

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
            fs::write(&file, built.bytes).expect("written");
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

/// What is wrong with the instructions of a kernel.
fn problems(bytes: &[u8], kernel: &str) -> Vec<String> {
    let generation = CodeObject::load(bytes).expect("a code object").arch.generation;
    let code = object::code(bytes, kernel).expect("its code");
    let words: Vec<u32> = code.as_chunks().0.iter().map(|w| u32::from_le_bytes(*w)).collect();
    let (mut at, mut mnemonics) = (0, Vec::new());
    while at < words.len() {
        let inst = decode(generation, &words[at..]).expect("an instruction");
        mnemonics.push(inst.mnemonic());
        at += inst.len_bytes() / 4;
    }
    check_instructions(mnemonics.iter().map(AsRef::as_ref)).iter().map(ToString::to_string).collect()
}

#[test]
fn no_shipped_instruction_is_forbidden() {
    for arch in testing::built(&ARCHS) {
        for built in code_objects(arch) {
            assert_eq!(problems(built.bytes, built.source), [""; 0], "{} on {arch}", built.source);
        }
    }
}

/// Kernels that break a rule, and the instructions in which this must be found.
const FORBIDDEN: [(&str, &str, &[&str]); 5] = [
    (
        "f64 arithmetic",
        "x[0] = (float)((double)x[0] * 0.1);",
        &["v_cvt_f64_f32", "v_mul_f64", "v_cvt_f32_f64"],
    ),
    (
        "float atomics",
        "__hip_atomic_fetch_add(x, 1.0f, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);",
        &["global_atomic_add_f32"],
    ),
    (
        "float atomics",
        "SHARED float sum; sum = 0.0f; barrier();\n\
         __hip_atomic_fetch_add(&sum, x[thread_id()], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);\n\
         barrier(); x[thread_id()] = sum;",
        &["ds_add_f32"],
    ),
    (
        "flat accesses",
        "float* p = x; asm volatile(\"\" : \"+v\"(p)); p[1] = p[0];",
        &["flat_load_b32", "flat_store_b32"],
    ),
    ("", "x[thread_id()] = x[thread_id()] + 1.0f;", &[]),
];

#[test]
fn a_forbidden_instruction_is_found() {
    for arch in testing::built(&["gfx1100", "gfx1200"]) {
        let [compiler, flags @ ..] = compile_command().expect("it has built") else { unreachable!() };
        for (rule, body, found) in FORBIDDEN {
            let folder = tempfile::tempdir().expect("a folder");
            let (source, object) = (folder.path().join("k.hip"), folder.path().join("k.co"));
            let text =
                format!("#include \"moss.h\"\nKERNEL(64) void k(float* __restrict__ x) {{ {body} }}\n");
            fs::write(&source, text).expect("written");
            let output = Command::new(compiler)
                .args(flags)
                .args(["-munsafe-fp-atomics", "-I", concat!(env!("CARGO_MANIFEST_DIR"), "/hip")])
                .args([&format!("--offload-arch={arch}"), "-o"])
                .args([&object, &source])
                .output()
                .expect("the compiler runs");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let bytes = fs::read(object).expect("the code object");
            let expected: Vec<String> = found.iter().map(|name| format!("has {name}: no {rule}")).collect();
            assert_eq!(problems(&bytes, "k"), expected, "{arch}: {body}");
        }
    }
}
