//! The kernels as PTX: complete, with the parameters of the launches, and as exact as the code objects.
#![cfg(feature = "nvptx")]

use std::fs;
use std::process::Command;

use moss_kernels::check::Budget;
use moss_kernels::{ARCHS, Kind, Param, Ptx, args, built_archs, code_objects, ptx, testing};

/// Every kernel; none where there was no compiler, which is said.
fn all() -> &'static [Ptx] {
    testing::built(&built_archs());
    ptx()
}

/// The instructions, without predicates and operands.
fn instructions(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let words = line.strip_prefix('\t')?.strip_suffix(';')?;
        words.split_whitespace().find(|word| !word.starts_with('@'))
    })
}

/// What rounds otherwise than once and to nearest, flushes, is done in f64 or adds up in no order.
fn inexact(text: &str) -> Vec<&str> {
    instructions(text)
        .filter(|instruction| {
            let parts: Vec<&str> = instruction.split('.').collect();
            let is = |part| parts.contains(&part);
            let rounds =
                ["add", "sub", "mul", "fma", "mad", "div", "sqrt", "rcp"].contains(&parts[0]) && is("f32");
            is("ftz")
                || is("approx")
                || is("f64")
                || (rounds && !is("rn"))
                || ["sin", "cos", "ex2", "lg2", "tanh", "rsqrt", "atom", "red"].contains(&parts[0])
        })
        .collect()
}

#[test]
fn every_kernel_has_the_parameters_of_its_launch() {
    let kernels: Vec<&str> = all().iter().map(|ptx| ptx.kernel).collect();
    let params = args::all_params();
    if kernels.is_empty() {
        return;
    }
    assert_eq!(kernels, params.iter().map(|(kernel, _)| *kernel).collect::<Vec<_>>());
    for (ptx, (kernel, params)) in all().iter().zip(&params) {
        let entry = ptx.text.split(".visible .entry ").nth(1).expect("an entry");
        let (name, rest) = entry.split_once('(').expect("parameters");
        assert_eq!(name, *kernel);
        let found: Vec<&str> = rest.split(')').next().expect("their end").lines().collect();
        let found: Vec<&str> = found.iter().filter_map(|line| line.split_whitespace().nth(1)).collect();
        let kind = |param: &Param| match param.kind {
            Kind::Address => ".u64",
            Kind::I32 => ".u32",
            Kind::F32 => ".f32",
        };
        assert_eq!(found, params.iter().map(kind).collect::<Vec<_>>(), "{kernel}");
    }
}

#[test]
fn arrays_are_aligned_and_as_large_as_in_the_code_objects() {
    let sources: Vec<_> = built_archs().first().into_iter().flat_map(|arch| code_objects(arch)).collect();
    for ptx in all() {
        let declares = |line: &&str| line.starts_with(".shared ") || line.starts_with(".extern .shared ");
        let arrays: Vec<&str> = ptx.text.lines().map(str::trim_start).filter(declares).collect();
        let mut bytes = 0;
        for line in arrays {
            assert!(line.contains(".shared .align 16 "), "{}: {line}", ptx.kernel);
            let size =
                line.rsplit_once('[').and_then(|(_, rest)| rest.split(']').next()?.parse::<u32>().ok());
            bytes += size.unwrap_or(0).next_multiple_of(16);
        }
        let by_launch = ptx.text.contains(".extern .shared");
        assert_eq!(by_launch, ptx.kernel == "attention_256", "{}", ptx.kernel);
        let Some(source) = sources.iter().find(|built| built.source == ptx.kernel) else { continue };
        let budget = Budget::of(source.text).expect("a budget");
        assert_eq!(bytes, if by_launch { 0 } else { budget.lds }, "{}", ptx.kernel);
        let threads = format!(".maxntid {}", budget.threads);
        assert!(ptx.text.contains(&threads), "{}: no {threads}", ptx.kernel);
    }
}

#[test]
fn every_operation_is_rounded_once_and_nothing_is_flushed() {
    for ptx in all() {
        assert_eq!(inexact(ptx.text), [""; 0], "{}", ptx.kernel);
        assert!(
            instructions(ptx.text).any(|i| i.starts_with("ld.global")),
            "{}: no instructions found",
            ptx.kernel
        );
    }
}

#[test]
fn an_inexact_operation_is_found() {
    let Some(ptx) = all().iter().find(|ptx| ptx.kernel == "to_bf16") else { return };
    let [compiler, flags @ ..] = ptx.command else { unreachable!() };
    let folder = tempfile::tempdir().expect("a folder");
    let (source, built) = (folder.path().join("k.hip"), folder.path().join("k.ptx"));
    for (more, body, expected) in [
        ("", "x[0] = x[0] * x[1] + 1.0f;", &[][..]),
        ("-fgpu-flush-denormals-to-zero", "x[0] = x[0] * x[1];", &["mul.rn.ftz.f32"]),
        ("-ffp-contract=fast", "x[0] = x[0] + x[1];", &["add.f32"]),
        ("-ffast-math", "x[0] = x[0] / x[1];", &["div.approx.f32"]),
        ("", "x[0] = (float)((double)x[0] * 0.1);", &["cvt.f64.f32", "mul.rn.f64", "cvt.rn.f32.f64"]),
        ("", "x[0] = __nvvm_ex2_approx_f(x[0]);", &["ex2.approx.f32"]),
        ("", "__nvvm_atom_add_gen_f(x, 1.0f);", &["atom.global.add.f32"]),
    ] {
        let text = format!("#include \"moss.h\"\nKERNEL(64) void k(float* __restrict__ x) {{ {body} }}\n");
        fs::write(&source, text).expect("written");
        let output = Command::new(compiler)
            .args(flags)
            .args(["-I", concat!(env!("CARGO_MANIFEST_DIR"), "/hip")])
            .args((!more.is_empty()).then_some(more))
            .args(["-o".as_ref(), built.as_os_str(), source.as_os_str()])
            .output()
            .expect("the compiler runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(inexact(&fs::read_to_string(&built).expect("PTX")), expected, "{more} {body}");
    }
}

#[test]
fn ptx_is_no_code_object() {
    assert!(ARCHS.iter().all(|arch| !arch.starts_with("nvptx")));
    assert_eq!(code_objects("nvptx64").count(), 0);
    assert!(all().iter().all(|ptx| ptx.text.contains(".target sm_75")));
}
