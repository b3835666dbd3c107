//! Each function of the interface, and each way in which a machine may lack something.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;

use crate::machine::{self, Hip, Machine};

#[test]
fn the_device_says_what_it_is() {
    let Some(machine) = Machine::child("library::the_device_says_what_it_is", &[("MOSS_NVIDIA_STATS", "1")])
    else {
        return;
    };
    let hip = machine.hip();
    assert_eq!(hip.standing(), "logic-checked fma-chain");
    // SAFETY: the signatures are those of HIP's public header; every pointer is to a live variable.
    unsafe {
        assert_eq!((hip.init)(0), 0);
        let mut count = 0;
        assert_eq!(((hip.count)(&mut count), count), (0, 1));
        let mut block = [0xffu8; 4096];
        assert_eq!((hip.properties)(block.as_mut_ptr().cast(), 0), 0);
        let number = |at: usize| i32::from_ne_bytes(block[at..at + 4].try_into().expect("four bytes"));
        let text =
            |at: usize| CStr::from_bytes_until_nul(&block[at..]).expect("closed").to_str().expect("text");
        assert_eq!(text(0), "logic check on NVIDIA Fake");
        assert_eq!(text(1160), "gfx1200");
        assert_eq!(u64::from_ne_bytes(block[288..296].try_into().expect("eight bytes")), 4 << 30);
        assert_eq!([308, 388, 396, 584, 588, 592].map(number), [32, 132, 0, 0x1b, 2, 3]);
        assert_eq!(block[1472..], [0xff; 4096 - 1472], "nothing behind the structure");
        assert_eq!((hip.properties)(block.as_mut_ptr().cast(), 1), 101);
        assert_eq!((hip.set_device)(1), 101);
        assert_eq!((hip.set_device)(0), 0);
        let mut version = 0;
        assert_eq!(((hip.version)(&mut version), version), (0, 70_000_000));
        assert_eq!((hip.reset)(), 0);
        assert_eq!(CStr::from_ptr((hip.error_name)(719)), c"hipErrorLaunchFailure");
        assert_eq!(CStr::from_ptr((hip.error_string)(0)), c"no error");
    }
    assert!(machine.log().ends_with("cuCtxSynchronize\n"));
}

#[test]
fn counts_are_told_at_the_end() {
    let text = Machine::new().run("library::the_device_says_what_it_is", &[("MOSS_NVIDIA_STATS", "1")]);
    let line = "launches 0 copies 0 bytes 0 waits none hazards unchecked device-peak 0 pinned-peak 0";
    assert!(text.contains(line), "{text}");
}

#[test]
fn memory_is_counted_copied_and_freed_once() {
    let Some(machine) = Machine::child("library::memory_is_counted_copied_and_freed_once", &[]) else {
        return;
    };
    let hip = machine.hip();
    // SAFETY: as above; copies stay inside what was allocated, unless the library must refuse them.
    unsafe {
        let (mut a, mut b, mut pinned, mut stream) = (null_mut(), null_mut(), null_mut(), null_mut());
        assert_eq!((hip.malloc)(&mut a, 64), 0);
        assert_eq!((hip.malloc)(&mut b, 64), 0);
        assert_eq!((hip.host_malloc)(&mut pinned, 64, 0), 0);
        assert_eq!((hip.host_malloc)(&mut pinned, 64, 8), 1);
        assert_eq!((hip.stream_create)(&mut stream, 1), 0);
        assert_eq!((hip.stream_create)(&mut stream, 2), 1);
        let log = machine.log();
        assert!(log.contains("cuMemHostAlloc 64 flags 3") && log.contains("cuStreamCreate flags 1"), "{log}");
        let (mut free, mut total) = (0, 0);
        assert_eq!(((hip.mem_info)(&mut free, &mut total), total, total - free), (0, 4 << 30, 128));

        let host: &mut [u8] = std::slice::from_raw_parts_mut(pinned.cast(), 64);
        host.copy_from_slice(&std::array::from_fn::<u8, 64, _>(|i| i as u8));
        assert_eq!((hip.copy)(a, pinned, 64, 1, stream), 0);
        assert_eq!((hip.copy)(b.byte_add(8), a, 32, 3, stream), 0);
        let mut back = [0u8; 40];
        assert_eq!((hip.copy)(back.as_mut_ptr().cast(), b, 40, 2, stream), 0);
        assert_eq!(back[8..], std::array::from_fn::<u8, 32, _>(|i| i as u8));

        // Past the end, the wrong kind, a stream that is none.
        assert_eq!((hip.copy)(a.byte_add(1), pinned, 64, 1, stream), 1);
        assert_eq!((hip.copy)(pinned, a.byte_add(1), 64, 2, stream), 1);
        assert_eq!((hip.copy)(a, pinned, 64, 2, stream), 1);
        assert_eq!((hip.copy)(a, pinned, 64, 3, stream), 1);
        assert_eq!((hip.copy)(a, pinned, 64, 1, null_mut()), 400);
        assert_eq!((hip.copy)(a, pinned, 0, 1, stream), 0);
        assert_eq!(machine.log().matches("cuMemcpyAsync").count(), 3);

        assert_eq!(((hip.free)(a), (hip.free)(a), (hip.free)(null_mut())), (0, 1, 0));
        assert_eq!(
            ((hip.host_free)(pinned), (hip.host_free)(pinned), (hip.host_free)(null_mut())),
            (0, 1, 0)
        );
        assert_eq!((hip.malloc)(&mut a, 8 << 30), 2, "out of memory");
        assert_eq!(((hip.stream_destroy)(stream), (hip.stream_destroy)(stream)), (0, 400));
    }
}

#[test]
fn one_copy_is_dropped() {
    let env = [("MOSS_NVIDIA_DROP_COPY", "2")];
    let Some(machine) = Machine::child("library::one_copy_is_dropped", &env) else { return };
    let hip = machine.hip();
    // SAFETY: as above.
    unsafe {
        let (mut device, mut stream) = (null_mut(), null_mut());
        assert_eq!(((hip.malloc)(&mut device, 8), (hip.stream_create)(&mut stream, 1)), (0, 0));
        let mut found = 0u64;
        for value in [5u64, 6] {
            assert_eq!((hip.copy)(device, (&raw const value).cast(), 8, 1, stream), 0);
        }
        assert_eq!((hip.copy)((&raw mut found).cast(), device, 8, 2, stream), 0);
        assert_eq!(found, 5, "the second was never made");
    }
}

#[test]
fn every_thread_has_the_context() {
    let Some(machine) = Machine::child("library::every_thread_has_the_context", &[]) else { return };
    let hip = machine.hip();
    // The fake driver refuses whoever has not set it.
    let allocate = || {
        let mut pointer = null_mut();
        // SAFETY: `pointer` is a live variable.
        unsafe { (hip.malloc)(&mut pointer, 16) }
    };
    assert_eq!(allocate(), 0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| assert_eq!(allocate(), 0));
        }
    });
    assert_eq!(machine.log().matches("cuCtxSetCurrent").count(), 4);
}

#[test]
fn streams_wait_and_the_host_asks() {
    let env = [("FAKE_CUDA_FAIL", "cuEventQuery:1=600")];
    let Some(machine) = Machine::child("library::streams_wait_and_the_host_asks", &env) else { return };
    let hip = machine.hip();
    // SAFETY: as above.
    unsafe {
        let (mut stream, mut event) = (null_mut(), null_mut());
        assert_eq!((hip.stream_create)(&mut stream, 1), 0);
        assert_eq!(((hip.event_create)(&mut event, 4), (hip.event_create)(&mut event, 2)), (1, 0));
        assert_eq!((hip.event_record)(event, stream), 0);
        assert_eq!(((hip.event_query)(event), (hip.event_query)(event)), (600, 0));
        assert_eq!(((hip.wait)(stream, event, 0), (hip.wait)(stream, event, 1)), (0, 1));
        assert_eq!(((hip.wait)(stream, null_mut(), 0), (hip.wait)(null_mut(), event, 0)), (400, 400));
        assert_eq!(((hip.event_record)(null_mut(), stream), (hip.event_query)(null_mut())), (400, 400));
        assert_eq!(((hip.event_destroy)(event), (hip.event_destroy)(event)), (0, 400));
    }
    let log = machine.log();
    assert!(
        log.contains("cuEventCreate flags 2\ncuEventRecord\ncuEventQuery\ncuEventQuery\ncuStreamWaitEvent"),
        "{log}"
    );
}

#[test]
fn one_wait_of_the_host_or_of_a_stream_is_dropped() {
    let name = "library::one_wait_of_the_host_or_of_a_stream_is_dropped";
    if std::env::var_os(machine::CHILD).is_none() {
        for (wait, left) in [("none:0", (3, 2)), ("1:2", (2, 2)), ("2:2", (3, 2)), ("host:1", (3, 1))] {
            let env = if wait == "none:0" { vec![] } else { vec![("MOSS_NVIDIA_DROP_WAIT", wait)] };
            let text = Machine::new().run(name, &env);
            let found = format!("{} waits of streams, {} questions", left.0, left.1);
            assert!(text.contains(&found), "{wait}: {text}");
        }
        return;
    }
    let machine = Machine::here();
    let hip = machine.hip();
    // SAFETY: as above.
    unsafe {
        let (mut one, mut two, mut event) = (null_mut(), null_mut(), null_mut());
        assert_eq!(((hip.stream_create)(&mut one, 1), (hip.stream_create)(&mut two, 1)), (0, 0));
        assert_eq!((hip.event_create)(&mut event, 2), 0);
        for _ in 0..2 {
            assert_eq!((hip.event_record)(event, two), 0);
            assert_eq!(((hip.wait)(one, event, 0), (hip.event_query)(event)), (0, 0));
        }
        assert_eq!((hip.wait)(two, event, 0), 0);
    }
    let log = machine.log();
    let count = |name: &str| log.matches(name).count();
    eprintln!("{} waits of streams, {} questions", count("cuStreamWaitEvent"), count("cuEventQuery"));
}

/// An AMD code object with kernels, and a function of it.
unsafe fn function(hip: &Hip, name: &CStr) -> (u32, *mut c_void, *mut c_void) {
    let object = moss_kernels::code_objects("gfx1200")
        .find(|built| built.source == name.to_str().expect("text"))
        .expect("built");
    let (mut module, mut function) = (null_mut(), null_mut());
    // SAFETY: a whole code object; the pointers are to live variables.
    unsafe {
        assert_eq!((hip.module_load)(&mut module, object.bytes.as_ptr().cast()), 0);
        ((hip.module_function)(&mut function, module, name.as_ptr()), module, function)
    }
}

#[test]
fn a_launch_reaches_the_driver_with_its_arguments() {
    let env = [("MOSS_NVIDIA_LINES", "1")];
    let Some(machine) = Machine::child("library::a_launch_reaches_the_driver_with_its_arguments", &env)
    else {
        return;
    };
    let hip = machine.hip();
    machine.write_kernels();
    // SAFETY: as above; the argument list is closed and as long as it says.
    unsafe {
        let mut stream = null_mut();
        assert_eq!((hip.stream_create)(&mut stream, 1), 0);
        let (code, module, linear) = function(&hip, c"linear");
        assert_eq!(code, 0);
        let (_, _, wide) = function(&hip, c"attention_256");
        let log = machine.log();
        assert!(log.contains("cuModuleLoadDataEx options [5, 6, 13]\ncuModuleGetFunction linear\n"), "{log}");
        let launch = |function, lds| {
            let (mut block, mut size) = ([1u8, 2, 3, 0xff], 4usize);
            let end = |n: usize| std::ptr::without_provenance_mut::<c_void>(n);
            let mut extra = [end(1), block.as_mut_ptr().cast(), end(2), (&raw mut size).cast(), end(3)];
            (hip.launch)(function, 5, 6, 7, 256, 1, 1, lds, stream, null_mut(), extra.as_mut_ptr())
        };
        assert_eq!(launch(linear, 100), 0);
        assert_eq!(
            machine.log(),
            "cuLaunchKernel linear grid 5 6 7 block 256 1 1 shared 100 arguments [01, 02, 03, ff]\n"
        );
        // 64 KiB that AMD's code has as its own are given by the launch here, and must be asked for.
        assert_eq!(launch(wide, 0), 0);
        let log = machine.log();
        assert!(log.starts_with("cuFuncSetAttribute 8 65536\ncuLaunchKernel attention_256 "), "{log}");
        assert!(log.contains(" shared 65536 "), "{log}");
        assert_eq!(launch(null_mut(), 0), 400);
        assert_eq!(((hip.module_unload)(module), (hip.module_unload)(module)), (0, 400));
        assert_eq!(launch(linear, 0), 400, "gone with its module");
    }
}

#[test]
fn what_is_wrong_with_the_kernels_is_said() {
    let name = "library::what_is_wrong_with_the_kernels_is_said";
    if std::env::var_os(machine::CHILD).is_none() {
        let said = |env: &[(&str, &str)]| Machine::new().run(name, env);
        let text = said(&[("EXPECT", "500"), ("MOSS_PTX", "")]);
        assert!(text.contains("moss-nvidia: MOSS_PTX is not set"), "{text}");
        let text = said(&[("EXPECT", "500"), ("MOSS_PTX", "/no/such")]);
        assert!(text.contains("moss-nvidia: /no/such/attention_256.ptx: No such file"), "{text}");
        let text = said(&[("EXPECT", "200"), ("BREAK", "1")]);
        assert!(text.contains("cuModuleLoadDataEx: CUDA_ERROR_INVALID_PTX (218)"), "{text}");
        assert!(text.contains("attention_256.ptx: line 2: fatal; syntax error"), "{text}");
        let text = said(&[("EXPECT", "209"), ("FAKE_CUDA_SHARED", "65535")]);
        assert!(
            text.contains(
                "attention_256 needs 65536 bytes of shared memory, a block of this device has 65535"
            ),
            "{text}"
        );
        let text = said(&[("EXPECT", "209"), ("FAKE_CUDA_FAIL", "cuModuleLoadDataEx:1=222")]);
        assert!(text.contains("cuModuleLoadDataEx: an unknown error (222)"), "{text}");
        return;
    }
    let machine = Machine::here();
    let hip = machine.hip();
    machine.write_kernels();
    if std::env::var_os("BREAK").is_some() {
        machine.write_kernel("attention_256", "broken\n.visible .entry attention_256(\n");
    }
    let expected: u32 = std::env::var("EXPECT").expect("set").parse().expect("a number");
    // SAFETY: as above.
    unsafe {
        assert_eq!(function(&hip, c"attention_256").0, expected);
        // The module and the context are as they were.
        let mut function = null_mut();
        assert_eq!((hip.module_function)(&mut function, null_mut(), c"norm".as_ptr()), 400);
    }
}

#[test]
fn a_code_object_for_another_card_is_refused() {
    let env = [("MOSS_NVIDIA_ARCH", "gfx1100")];
    let Some(machine) = Machine::child("library::a_code_object_for_another_card_is_refused", &env) else {
        return;
    };
    let hip = machine.hip();
    let object = moss_kernels::code_objects("gfx1200").next().expect("built");
    let mut module = null_mut();
    // SAFETY: as above.
    unsafe {
        assert_eq!((hip.module_load)(&mut module, object.bytes.as_ptr().cast()), 209);
        let text = [b'x'; 64];
        assert_eq!((hip.module_load)(&mut module, text.as_ptr().cast()), 200);
    }
}

#[test]
fn a_fault_is_named_and_has_a_code_that_the_program_knows() {
    let name = "library::a_fault_is_named_and_has_a_code_that_the_program_knows";
    if std::env::var_os(machine::CHILD).is_none() {
        let text = Machine::new().run(name, &[("FAKE_CUDA_FAIL", "cuMemAlloc_v2:2=716")]);
        assert!(text.contains("moss-nvidia: cuMemAlloc: CUDA_ERROR_MISALIGNED_ADDRESS (716)"), "{text}");
        return;
    }
    let machine = Machine::here();
    let hip = machine.hip();
    let mut pointer = null_mut();
    // SAFETY: as above.
    unsafe {
        assert_eq!(((hip.malloc)(&mut pointer, 16), (hip.malloc)(&mut pointer, 16)), (0, 719));
    }
}

#[test]
fn without_a_driver_or_a_device_there_is_none_and_a_reason() {
    let name = "library::without_a_driver_or_a_device_there_is_none_and_a_reason";
    if std::env::var_os(machine::CHILD).is_none() {
        let text = Machine::without_driver().run(name, &[]);
        assert!(text.contains("moss-nvidia: no CUDA driver (libcuda.so.1"), "{text}");
        Machine::new().run(name, &[("FAKE_CUDA_DEVICES", "0")]);
        let text = Machine::new().run(name, &[("FAKE_CUDA_FAIL", "cuInit:1=803")]);
        assert!(text.contains("moss-nvidia: cuInit: an unknown error (803)"), "{text}");
        let text = Machine::new().run(name, &[("MOSS_NVIDIA_CHECK", "maybe")]);
        assert!(text.contains("moss-nvidia: MOSS_NVIDIA_CHECK=\"maybe\"; 0 or 1 expected"), "{text}");
        return;
    }
    let hip = Hip::load();
    let (mut count, mut pointer) = (5, null_mut());
    // SAFETY: as above.
    unsafe {
        assert_eq!(((hip.init)(0), (hip.count)(&mut count)), (100, 100));
        assert_eq!(((hip.malloc)(&mut pointer, 1), (hip.set_device)(0)), (100, 100));
        assert_eq!(CStr::from_ptr((hip.error_name)(100)), c"hipErrorNoDevice");
    }
}
