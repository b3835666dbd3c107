//! Planted bugs: each is found, with the kernel, the lane and the instruction.

use moss_emulator::{Fault, LaunchError, Memory, Options, Order, What};

use crate::common::{Args, BOTH, get_u32, object, put_u32};

/// Runs a kernel of `bugs.hip` on one workgroup of 256.
fn run(arch: &str, kernel: &str, options: &Options) -> Result<Vec<u32>, Box<Fault>> {
    let (co, m) = (object("bugs", arch), Memory::new());
    let buf = put_u32(&m, &[7; 256]);
    let args = Args::new().ptr(buf).u32(3);
    match args.run(&co, kernel, [1, 1, 1], [256, 1, 1], &m, options) {
        Ok(_) => Ok(get_u32(&m, buf, 256)),
        Err(LaunchError::Fault(f)) => Err(f),
        Err(e) => panic!("{arch} {kernel}: {e}"),
    }
}

fn fault(arch: &str, kernel: &str) -> Fault {
    let options = Options { budget: 100_000, ..Options::default() };
    match run(arch, kernel, &options) {
        Ok(_) => panic!("{arch}: {kernel} ran through"),
        Err(f) => {
            assert_eq!(f.kernel, kernel);
            let text = f.to_string();
            assert!(text.contains(kernel) && text.contains("//"), "{text}");
            *f
        }
    }
}

#[test]
fn global_accesses_are_held_to_exact_bounds() {
    for arch in BOTH {
        let f = fault(arch, "read_past_the_end");
        assert!(matches!(&f.what, What::Unmapped { access: "load", size: 4, .. }), "{f}");
        assert_eq!((f.wave, f.lane), (7, Some(31)));
        assert!(
            f.line.starts_with("global_load_b32") && f.to_string().contains("0 bytes after the end"),
            "{f}"
        );
        let f = fault(arch, "write_before_the_start");
        assert!(matches!(&f.what, What::Unmapped { access: "store", size: 4, .. }), "{f}");
        assert_eq!((f.wave, f.lane), (0, Some(0)));
        let f = fault(arch, "write_to_constants");
        assert!(matches!(&f.what, What::ReadOnly { size: 4, .. }) && f.lane == Some(7), "{f}");
        let f = fault(arch, "misaligned");
        assert!(matches!(&f.what, What::Misaligned { space: "global", size: 4, .. }), "{f}");
        assert_eq!(f.lane, Some(9));
        let f = fault(arch, "misaligned_lds");
        assert!(matches!(&f.what, What::Misaligned { space: "LDS", size: 4, .. }), "{f}");
        assert_eq!(f.lane, Some(9));
        let f = fault(arch, "scratch_past_the_end");
        assert!(matches!(&f.what, What::ScratchBounds { offset: 12000.., size: 4, .. }), "{f}");
    }
}

#[test]
fn lds_races_are_found_in_every_wave_order() {
    for arch in BOTH {
        for order in [Order::Forward, Order::Reverse, Order::Shuffle(3)] {
            let options = Options { order, ..Options::default() };
            let right = run(arch, "with_barrier", &options).expect("no race");
            assert!(right.iter().enumerate().all(|(i, &v)| v as usize == 3 + 255 - i));
            for kernel in ["missing_barrier", "missing_second_barrier"] {
                let f = run(arch, kernel, &options).expect_err(kernel);
                let race = matches!(&f.what, What::LdsRace { .. } | What::LdsUninitialised { .. });
                assert!(race, "{arch} {order:?}: {f}");
                assert!(f.line.starts_with("ds_"), "{f}");
            }
        }
        // The last wave at the barrier runs on and overwrites what the others have yet to read.
        let f = fault(arch, "missing_second_barrier");
        assert!(
            matches!(&f.what, What::LdsRace { access: "read", other, .. } if other == "write of wave 7"),
            "{f}"
        );
    }
}

#[test]
fn uninitialised_values_are_found_where_they_matter() {
    for arch in BOTH {
        let f = fault(arch, "uninitialised_lds");
        assert_eq!(f.what, What::LdsUninitialised { offset: 280 });
        assert_eq!((f.wave, f.lane), (2, Some(6)));
        for (kernel, used_as) in [
            ("uninitialised_register", "store data"),
            ("uninitialised_address", "address"),
            ("uninitialised_comparison", "comparison"),
        ] {
            let f = fault(arch, kernel);
            assert!(matches!(&f.what, What::VgprUninitialised { used_as: u, .. } if *u == used_as), "{f}");
        }
    }
}

#[test]
fn lds_is_held_to_what_the_launch_asked_for() {
    for arch in BOTH {
        let f = fault(arch, "lds_past_the_end");
        assert!(matches!(f.what, What::LdsBounds { offset: 0, size: 4, limit: 0 }), "{f}");
    }
}

#[test]
fn barriers_and_endless_loops_stop() {
    for arch in BOTH {
        let f = fault(arch, "not_all_waves_reach_the_barrier");
        let waiting = vec![0, 1, 3, 4, 5, 6, 7];
        assert_eq!(f.what, What::Barrier { waiting, ended: vec![2] });
        assert!(f.line.starts_with("s_barrier"), "{f}");
        assert!(matches!(fault(arch, "endless").what, What::Budget { budget: 100_000 }));
        assert!(matches!(fault(arch, "jump_into_data").what, What::Jump(_)));
        assert!(matches!(&fault(arch, "trap").what, What::NotEmulated(n) if n == "s_trap"));
    }
}

#[test]
fn a_split_barrier_is_signalled_once_a_phase() {
    assert_eq!(fault("gfx1200", "signalled_twice").what, What::BarrierTwice);
}

#[test]
fn gfx11_matrix_operands_must_repeat_their_half() {
    let f = fault("gfx1100", "halves_differ");
    assert!(matches!(f.what, What::WmmaNotRepeated { lane: 16, .. }), "{f}");
    assert!(f.line.starts_with("v_wmma_f32_16x16x16_bf16"), "{f}");
    run("gfx1200", "halves_differ", &Options::default()).expect("gfx12 has no repeated half");
}

#[test]
fn unknown_and_refused_instructions_are_named() {
    for arch in BOTH {
        let f = fault(arch, "no_instruction");
        assert!(matches!(&f.what, What::Unknown(t) if t.contains("fffffff1") && t.contains("0x3f")), "{f}");
        let f = fault(arch, "refused");
        assert_eq!(f.what, What::NotEmulated("s_sethalt".to_owned()));
        let names = object("bugs", arch).unsupported();
        assert!(names.contains(&"s_sethalt".to_owned()), "{names:?}");
    }
}

#[test]
fn the_first_workgroup_with_a_fault_is_reported_for_any_thread_count() {
    for threads in [1, 2, 5] {
        let (co, m) = (object("bugs", "gfx1200"), Memory::new());
        let buf = put_u32(&m, &[7; 256]);
        let options = Options { threads, ..Options::default() };
        let args = Args::new().ptr(buf).u32(3);
        let failed = args.run(&co, "uninitialised_register", [40, 1, 1], [64, 1, 1], &m, &options);
        match failed {
            Err(LaunchError::Fault(f)) => assert_eq!((f.workgroup, f.wave, f.lane), ([0, 0, 0], 0, Some(0))),
            other => panic!("{other:?}"),
        }
    }
}
