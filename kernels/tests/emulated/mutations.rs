//! Bugs put into the kernels on purpose: each must be found, by the sanitizer or by a wrong bit, or the tests above prove little.

use std::path::Path;
use std::process::Command;

use moss_emulator::{LaunchError, Order};
use moss_kernels::pack::{Conv, Panels};
use moss_kernels::{Launch, args, compile_command, testing};
use moss_reference::backend::{Attention, Backend, Conv2d, Epilogue, Heads};
use moss_reference::oracle::{OracleBackend, OracleTensor};

use crate::gpu::{Gpu, Rng, bf16s, f32s, oracle};

/// An architecture of each generation.
const GENERATIONS: [&str; 2] = ["gfx1100", "gfx1200"];

/// The check that found a bug.
#[derive(Debug, PartialEq)]
enum Found {
    /// The sanitizer stopped the kernel; the name of its check.
    Stopped(&'static str),
    /// The row of this kernel: bits differ from the oracle's.
    Row(&'static str),
    Nothing,
}

/// A barrier is missing: which of the two comes first depends on the order of the waves.
const MISSING_BARRIER: [Found; 2] = [Found::Stopped("LDS race"), Found::Stopped("uninitialised LDS")];

/// Compiles `source` with `old` replaced by `new` in `file`, and gives it to `run` in each order until something is found.
fn mutate(
    arch: &'static str,
    source: &str,
    (file, old, new): (&str, &str, &str),
    run: impl Fn(&Gpu) -> (Launch, u64, OracleTensor),
) -> Found {
    let [compiler, flags @ ..] = compile_command().expect("the kernels were built") else { unreachable!() };
    let folder = tempfile::tempdir().expect("a folder");
    let hip = Path::new(env!("CARGO_MANIFEST_DIR")).join("hip");
    for entry in std::fs::read_dir(hip).expect("the sources") {
        let path = entry.expect("readable").path();
        let mut text = std::fs::read_to_string(&path).expect("text");
        let name = path.file_name().expect("a name");
        if name == file {
            assert_eq!(text.matches(old).count(), 1, "{file} has {old:?} once");
            text = text.replace(old, new);
        }
        std::fs::write(folder.path().join(name), text).expect("written");
    }
    let object = folder.path().join("mutated.co");
    let output = Command::new(compiler)
        .args(flags)
        .args(["-Wno-error", &format!("--offload-arch={arch}")])
        .arg(folder.path().join(source).with_extension("hip"))
        .arg("-o")
        .arg(&object)
        .output()
        .expect("the compiler runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let bytes = std::fs::read(object).expect("the code object");

    for order in [Order::Forward, Order::Reverse, Order::Shuffle(7)] {
        let gpu = Gpu::new(arch, &[&bytes], order);
        let (launch, out, expected) = run(&gpu);
        match gpu.launch(&launch) {
            Err(LaunchError::Fault(fault)) => return Found::Stopped(fault.what.check()),
            Err(error) => panic!("{error}"),
            Ok(()) if gpu.differences(out, &expected).is_some() => return Found::Row(launch.kernel()),
            Ok(()) => {}
        }
    }
    Found::Nothing
}

fn linear(gpu: &Gpu) -> (Launch, u64, OracleTensor) {
    let mut rng = Rng::new(20);
    let (tokens, k, n) = (65, 80, 72);
    let (x, w) = rng.cancelling(tokens, k, n);
    let out = gpu.room(tokens * n * 2);
    let launch = args::Linear {
        x: gpu.put(&x),
        w: gpu.bytes(&Panels::matrix(n, k).expect("sizes fit").pack_all(bf16s(&w))),
        out,
        tokens: tokens as i32,
        k: k as i32,
        n: n as i32,
        ..args::Linear::default()
    };
    let expected =
        OracleBackend.linear(&oracle(&x, &[tokens, k]), &oracle(&w, &[n, k]), None, Epilogue::None);
    (launch.launches().expect("sizes fit").remove(0), out, expected.expect("the oracle"))
}

/// Enough outputs that a change of a sum by its last f32 bit shows in the bf16 of some of them.
fn attention(gpu: &Gpu) -> (Launch, u64, OracleTensor) {
    let mut rng = Rng::new(21);
    let (tokens, heads, dim) = (330, 4, 128);
    let width = heads * dim;
    let [q, k, v] = [3.0, 1.0, 1.0].map(|scale| rng.bf16(tokens * width, scale));
    let out = gpu.room(tokens * width * 2);
    let scale = 1.0 / (dim as f64).sqrt();
    let launch = args::Attention {
        q: gpu.put(&q),
        k: gpu.put(&k),
        v: gpu.put(&v),
        out,
        length: tokens as i32,
        q_heads: heads as i32,
        kv_heads: heads as i32,
        dim: dim as i32,
        v_stride: width as i32,
        v_step: dim as i32,
        causal: 1,
        scale: (scale * std::f64::consts::LOG2_E) as f32,
        ..args::Attention::default()
    };
    let [q, k, v] = [q, k, v].map(|x| oracle(&x, &[tokens, width]));
    let v_heads = Heads::packed(0, heads, dim);
    let expected = OracleBackend.attention(Attention {
        q: &q,
        k: &k,
        v: &v,
        v_heads,
        scale,
        causal: true,
        segments: &[tokens],
    });
    (launch.launches_bf16().expect("sizes fit").remove(0), out, expected.expect("the oracle"))
}

fn conv(gpu: &Gpu) -> (Launch, u64, OracleTensor) {
    let mut rng = Rng::new(22);
    let (height, width, inputs, outputs) = (5, 14, 32, 70);
    let (x, bias) = (rng.f32(height * width * inputs, 1.0), rng.f32(outputs, 1.0));
    let w = rng.f32(outputs * inputs * 9, 0.2);
    let conv = Conv::new(outputs, inputs, 3).expect("sizes fit");
    let mut packed = vec![0; conv.bytes()];
    conv.pack(f32s(&w), &mut packed);
    let out = gpu.room(height * width * outputs * 4);
    let launch = args::Conv2d {
        x: gpu.put(&x),
        w: gpu.bytes(&packed),
        bias: gpu.put(&bias),
        out,
        height: height as i32,
        width: width as i32,
        inputs: inputs as i32,
        outputs: outputs as i32,
        side: 3,
        ..args::Conv2d::default()
    };
    let (x, w) = (oracle(&x, &[height, width, inputs]), oracle(&w, &[outputs, inputs, 3, 3]));
    let expected = OracleBackend.conv2d(&x, Conv2d::new(&w, &oracle(&bias, &[outputs])));
    (launch.launches().expect("sizes fit").remove(0), out, expected.expect("the oracle"))
}

#[test]
fn unchanged_kernels_pass_where_mutated_ones_fail() {
    for arch in testing::built(&GENERATIONS) {
        let same = ("moss.h", "#pragma once", "#pragma once");
        assert_eq!(mutate(arch, "linear", same, linear), Found::Nothing);
        assert_eq!(mutate(arch, "attention_128", same, attention), Found::Nothing);
        assert_eq!(mutate(arch, "conv2d", same, conv), Found::Nothing);
    }
}

#[test]
fn a_removed_barrier_is_found() {
    for arch in testing::built(&GENERATIONS) {
        let gemm = (
            "gemm.h",
            "        if (step + 1 < steps) keep(step + 1);\n        barrier();",
            "        if (step + 1 < steps) keep(step + 1);",
        );
        let flash = ("attention.h", "        barrier(); // the block before has been read\n", "");
        let image = (
            "conv2d.hip",
            "        if (step + 1 < steps) keep(step + 1);\n        barrier();",
            "        if (step + 1 < steps) keep(step + 1);",
        );
        for found in [
            mutate(arch, "linear", gemm, linear),
            mutate(arch, "attention_128", flash, attention),
            mutate(arch, "conv2d", image, conv),
        ] {
            assert!(MISSING_BARRIER.contains(&found), "{arch}: {found:?}");
        }
    }
}

#[test]
fn a_wrong_lds_offset_is_found() {
    for arch in testing::built(&GENERATIONS) {
        let gemm = ("gemm.h", "(row & 15) * 16 + (part & 1) * 8;", "(row & 15) * 16 + (part & 1) * 4;");
        let flash = ("attention.h", "(part & 1) * 8 * 16 + (key & 15)", "(part & 1) * 8 * 16 + (key & 7)");
        // Two threads write the same place, and a place between stays empty.
        for found in [mutate(arch, "linear", gemm, linear), mutate(arch, "attention_128", flash, attention)] {
            assert!(MISSING_BARRIER.contains(&found), "{arch}: {found:?}");
        }
    }
}

#[test]
fn a_wrong_lane_half_is_found() {
    for arch in testing::built(&GENERATIONS) {
        let gemm = ("gemm.h", "return 8 * (lane >> 4);", "return 8 * (1 - (lane >> 4));");
        let flash = ("attention.h", "t * 16 + half * 8 + e >= limit", "t * 16 + (1 - half) * 8 + e >= limit");
        assert_eq!(mutate(arch, "linear", gemm, linear), Found::Row("linear"));
        assert_eq!(mutate(arch, "attention_128", flash, attention), Found::Row("attention_128"));
    }
    if testing::built(&["gfx1100"]) == ["gfx1100"] {
        let unrepeated = (
            "wmma.h",
            "    i16x8 low = *(const i16x8*)row, high = *(const i16x8*)(row + 8);\n",
            "    i16x8 low = *(const i16x8*)row, high = *(const i16x8*)(row + 8);\n    if (lane_id() > 15) low = high;\n",
        );
        let found = mutate("gfx1100", "linear", unrepeated, linear);
        assert_eq!(found, Found::Stopped("unrepeated half of a WMMA operand"));
    }
}

#[test]
fn a_read_past_the_end_is_found() {
    for arch in testing::built(&GENERATIONS) {
        let gemm = (
            "gemm.h",
            "g.first_token + row < tokens ? g.first_token + row : tokens - 1",
            "g.first_token + row",
        );
        let found = mutate(arch, "linear", gemm, linear);
        assert_eq!(found, Found::Stopped("access outside every allocation"), "{arch}");
    }
}

#[test]
fn a_reordered_sum_is_found() {
    for arch in testing::built(&GENERATIONS) {
        let steps = (
            "gemm.h",
            "        multiply(step, 0);\n        if (2 * step + 1 < fragments) multiply(step, 1);",
            "        if (2 * step + 1 < fragments) multiply(step, 1);\n        multiply(step, 0);",
        );
        assert_eq!(mutate(arch, "linear", steps, linear), Found::Row("linear"));
        let sums = (
            "attention.h",
            "                l = l + p.at[e];\n            }",
            "            }\n            for (int e = 7; e >= 0; e--) l = l + p.at[e];",
        );
        assert_eq!(mutate(arch, "attention_128", sums, attention), Found::Row("attention_128"));
    }
}
