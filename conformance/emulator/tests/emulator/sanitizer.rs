//! What the sanitizer finds beyond local memory: races in global memory, scalar registers that nobody wrote,
//! matrix instructions with lanes switched off; and what it must let pass.

use moss_emulator::{CodeObject, LaunchError, Memory, Options, Order, Report, What};

use crate::common::{Args, BOTH, compile_source, get_u32, object, put_u32};

const ORDERS: [Order; 3] = [Order::Forward, Order::Reverse, Order::Shuffle(3)];

/// Runs a kernel of `races.hip` on four workgroups of two waves, with a buffer for each of its pointers.
fn run(arch: &str, kernel: &str, options: &Options) -> Result<(Report, Vec<u32>), LaunchError> {
    let (co, m) = (object("races", arch), Memory::new());
    let (p, q) = (put_u32(&m, &[0; 512]), put_u32(&m, &[0; 512]));
    let two = ["shared_reads", "neighbours"].contains(&kernel);
    let args = if two { Args::new().ptr(p).ptr(q) } else { Args::new().ptr(p).u32(4) };
    let report = args.run(&co, kernel, [4, 1, 1], [64, 1, 1], &m, options)?;
    Ok((report, get_u32(&m, p, 512)))
}

#[test]
fn races_in_global_memory_are_found_in_every_order() {
    for arch in BOTH {
        for order in ORDERS {
            for threads in [1, 2] {
                let options = Options { order, threads, ..Options::default() };
                for (kernel, between) in [
                    ("two_writers", "workgroup"),
                    ("writer_and_readers", "workgroup"),
                    ("waves_without_barrier", "of its workgroup"),
                    ("waves_write_after_read", "of its workgroup"),
                    ("store_and_atomic", "workgroup"),
                ] {
                    match run(arch, kernel, &options) {
                        Err(LaunchError::Fault(f)) => {
                            let race =
                                matches!(&f.what, What::GlobalRace { other, .. } if other.contains(between));
                            assert!(race, "{arch} {kernel} {order:?}: {f}");
                            assert!(f.line.starts_with("global_") || f.line.starts_with("s_load"), "{f}");
                        }
                        other => panic!("{arch} {kernel} {order:?}: {other:?}"),
                    }
                }
            }
        }
        let off = Options { sanitize: false, threads: 1, ..Options::default() };
        run(arch, "two_writers", &off).expect("nothing is looked for");
    }
}

#[test]
fn a_race_names_both_sides() {
    let options = Options { threads: 1, ..Options::default() };
    let Err(LaunchError::Fault(f)) = run("gfx1200", "two_writers", &options) else { panic!("a race") };
    assert_eq!((f.workgroup, f.wave, f.lane), ([1, 0, 0], 0, Some(3)));
    let text = f.to_string();
    assert!(text.contains("this write and an earlier write of workgroup number 0 are not ordered"), "{text}");
    assert_eq!(f.what.check(), "global memory race");
}

#[test]
fn sharing_that_is_ordered_passes() {
    for arch in BOTH {
        for order in ORDERS {
            for threads in [1, 3] {
                let options = Options { order, threads, ..Options::default() };
                for kernel in ["shared_reads", "neighbours", "waves_with_barrier", "counts", "last_block"] {
                    let (_, p) = run(arch, kernel, &options)
                        .unwrap_or_else(|e| panic!("{arch} {kernel} {order:?} {threads}: {e}"));
                    if kernel == "last_block" {
                        assert_eq!(p[100], 10);
                    }
                }
            }
        }
    }
}

/// Runs one block of assembly in one wave; `%0` is a vector register.
fn assembly(arch: &str, name: &str, asm: &str, options: &Options) -> Result<Report, LaunchError> {
    let source = format!(
        "#include \"prelude.h\"\nextern \"C\" __global__ void BOUNDS(32) k(u32 *p) {{\n\
         u32 r = TID;\nasm volatile(\"{asm}\" : \"+v\"(r) : : \"s20\", \"s21\", \"v100\");\np[TID] = r;\n}}\n"
    );
    let file = compile_source(name, &source, arch);
    let co = CodeObject::load(&std::fs::read(file).expect("compiled")).expect("loads");
    let m = Memory::new();
    let p = put_u32(&m, &[0; 32]);
    Args::new().ptr(p).run(&co, "k", [1, 1, 1], [32, 1, 1], &m, options)
}

#[test]
fn scalar_registers_that_nobody_wrote_are_named() {
    let (on, off) = (Options::default(), Options { sanitize: false, ..Options::default() });
    for arch in BOTH {
        for (n, (asm, register)) in [
            ("s_lshl_b32 s20, s90, 1", "s90"),
            ("s_and_b64 s[20:21], s[88:89], 1", "s89"),
            ("v_cndmask_b32 %0, %0, %0, vcc_lo", "vcc_lo"),
            ("v_add_nc_u32 %0, s77, %0", "s77"),
            ("s_cbranch_vccz 0", "vcc_lo"),
            // A register that is kept in a lane comes back as it was.
            ("v_writelane_b32 v100, s90, 3\\nv_readlane_b32 s21, v100, 3\\ns_not_b32 s20, s21", "s21"),
            ("s_mov_b32 s20, s90\\ns_not_b32 s20, s20", "s20"),
        ]
        .into_iter()
        .enumerate()
        {
            match assembly(arch, &format!("scalar{n}"), asm, &on) {
                Err(LaunchError::Fault(f)) => {
                    assert_eq!(
                        f.what,
                        What::SgprUninitialised { register: register.to_owned() },
                        "{arch} {asm}"
                    );
                }
                other => panic!("{arch} {asm}: {other:?}"),
            }
            if n < 5 {
                assembly(arch, &format!("scalar{n}"), asm, &off).expect("nothing is looked for");
            }
        }
        // Compilers save what they do not know.
        let saves =
            "v_writelane_b32 v100, s90, 3\\ns_mov_b64 s[20:21], s[88:89]\\nv_readlane_b32 s20, v100, 3";
        assembly(arch, "saves", saves, &on).expect("nothing reads the values");
    }
}

#[test]
fn matrix_instructions_want_all_lanes() {
    for (arch, ty, suffix) in [("gfx1100", 16, ""), ("gfx1200", 8, "_gfx12")] {
        let source = format!(
            "#include \"prelude.h\"\n\
             typedef f16 h __attribute__((ext_vector_type({ty})));\ntypedef float f8 __attribute__((ext_vector_type(8)));\n\
             extern \"C\" __global__ void BOUNDS(32) k(float *p, u32 n) {{\n\
             h a = (f16)1.0f; f8 c = 0.0f;\n\
             if (TID < n) c = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32{suffix}(a, a, c);\n\
             p[TID] = c[0];\n}}\n"
        );
        let file = compile_source("lanes_off", &source, arch);
        let co = CodeObject::load(&std::fs::read(file).expect("compiled")).expect("loads");
        let run = |n: u32| {
            let m = Memory::new();
            let p = put_u32(&m, &[0; 32]);
            Args::new().ptr(p).u32(n).run(&co, "k", [1, 1, 1], [32, 1, 1], &m, &Options::default())
        };
        run(32).expect("all lanes are on");
        match run(20) {
            Err(LaunchError::Fault(f)) => assert_eq!(f.what, What::WmmaInactive { exec: 0xf_ffff }, "{arch}"),
            other => panic!("{arch}: {other:?}"),
        }
    }
}

/// Eight waves pass nine barriers: one after the loads, one a step of the tree.
#[test]
fn a_barrier_is_executed_once_by_each_wave() {
    for (arch, name) in [("gfx1100", "s_barrier"), ("gfx1200", "s_barrier_wait")] {
        let mut totals = Vec::new();
        for order in ORDERS {
            let (co, m) = (object("basic", arch), Memory::new());
            let (a, out) = (put_u32(&m, &[0; 256]), put_u32(&m, &[0; 1]));
            let options = Options { order, histogram: true, ..Options::default() };
            let args = Args::new().ptr(a).ptr(out).u32(256);
            let report = args.run(&co, "reduce", [1, 1, 1], [256, 1, 1], &m, &options).expect("runs");
            assert_eq!(report.histogram.get(name), Some(&72), "{arch} {order:?}");
            totals.push(report.instructions);
        }
        assert!(totals.iter().all(|&t| t == totals[0]), "{arch}: {totals:?}");
    }
}
