//! Streams and events: work runs when something waits for it, in the order that waits ask for.

use std::{path::PathBuf, process::Command};

use amdhip64::{
    config::{Config, Streams},
    runtime::{INVALID_VALUE, LAUNCH_FAILURE, NO_BINARY, NOT_READY, OUT_OF_MEMORY, Runtime},
};

/// `out[i] = in[i] + 1`, for 64 work-items.
const SOURCE: &str = r#"
typedef unsigned int u32;
extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(1, 64)))
void step(const u32 *in, u32 *out) {
    u32 i = __builtin_amdgcn_workitem_id_x();
    out[i] = in[i] + 1;
}
"#;

/// A code object for a target.
fn compile(arch: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (source, out): (PathBuf, PathBuf) = (dir.path().join("k.hip"), dir.path().join("k.co"));
    std::fs::write(&source, SOURCE).expect("written");
    let run = Command::new("clang-19")
        .args(["-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", "-nogpulib", "-nogpuinc", "-O3"])
        .arg(format!("--offload-arch={arch}"))
        .arg(&source)
        .arg("-o")
        .arg(&out)
        .output()
        .unwrap_or_else(|e| panic!("clang-19 does not start ({e}): install clang-19 and lld-19"));
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    std::fs::read(out).expect("compiled")
}

fn config(more: &[(&str, &str)]) -> Config {
    let more: Vec<(String, String)> = more.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    Config::from_env(|name| match more.iter().find(|(k, _)| k == name) {
        Some((_, v)) => Some(v.clone()),
        None => (name == "MOSS_EMULATE").then(|| "gfx1200".to_owned()),
    })
    .expect("valid")
}

/// 64 values of pinned or device memory.
fn write(p: u64, v: u32) {
    for i in 0..64 {
        // SAFETY: every test passes 256 bytes that its runtime allocated.
        #[allow(unsafe_code)]
        unsafe {
            (p as *mut u32).add(i).write(v);
        }
    }
}

fn read(p: u64) -> u32 {
    // SAFETY: as in `write`.
    #[allow(unsafe_code)]
    unsafe {
        (p as *const u32).read()
    }
}

struct Rig {
    r: Runtime,
    step: u64,
    host: u64,
    a: u64,
    b: u64,
    copy: u64,
    compute: u64,
}

fn rig(config: Config) -> Rig {
    let mut r = Runtime::new(config);
    let module = r.module_load(0, &compile("gfx1200")).expect("loads");
    let step = r.function(module, "step").expect("is there");
    let host = r.host_malloc(256).expect("fits");
    let (a, b) = (r.malloc(0, 256).expect("fits"), r.malloc(0, 256).expect("fits"));
    let (copy, compute) = (r.stream_create(0, false).expect("ok"), r.stream_create(0, false).expect("ok"));
    Rig { r, step, host, a, b, copy, compute }
}

impl Rig {
    fn launch(&mut self) {
        let args = [self.a.to_le_bytes(), self.b.to_le_bytes()].concat();
        self.r.launch(self.step, [1, 1, 1], [64, 1, 1], 0, args, self.compute).expect("queued");
    }
}

#[test]
fn an_event_between_streams_orders_a_copy_before_a_kernel() {
    let mut rig = rig(config(&[]));
    write(rig.host, 41);
    let done = rig.r.event_create().expect("ok");
    rig.r.copy(rig.a, rig.host, 256, 1, rig.copy).expect("queued");
    rig.r.event_record(done, rig.copy).expect("ok");
    rig.r.wait_event(rig.compute, done).expect("ok");
    rig.launch();
    rig.r.copy(rig.host, rig.b, 256, 2, rig.compute).expect("queued");
    // Nothing has run: the host still has its own values.
    assert_eq!(read(rig.host), 41);
    rig.r.stream_synchronize(rig.compute).expect("runs");
    assert_eq!(read(rig.host), 42);
}

#[test]
fn a_missing_wait_on_the_copy_stream_shows() {
    // Forgotten by the program, or skipped on request.
    for (asked, env) in [(false, &[][..]), (true, &[("MOSS_EMULATE_SKIP_WAITS", "1")])] {
        let mut rig = rig(config(env));
        write(rig.host, 41);
        let done = rig.r.event_create().expect("ok");
        rig.r.copy(rig.a, rig.host, 256, 1, rig.copy).expect("queued");
        rig.r.event_record(done, rig.copy).expect("ok");
        if asked {
            rig.r.wait_event(rig.compute, done).expect("ok");
        }
        rig.launch();
        rig.r.stream_synchronize(rig.compute).expect("runs");
        // The kernel read memory that the copy had not reached: 0xffffffff + 1.
        assert_eq!(read(rig.b), 0);
    }
}

#[test]
fn a_source_that_changes_before_the_copy_ran_shows() {
    let mut rig = rig(config(&[]));
    write(rig.host, 1);
    rig.r.copy(rig.a, rig.host, 256, 1, rig.copy).expect("queued");
    write(rig.host, 2);
    rig.r.stream_synchronize(rig.copy).expect("runs");
    assert_eq!(read(rig.a), 2);
    // Pageable memory is taken at the call.
    let mut pageable = vec![7u32; 64];
    rig.r.copy(rig.a, pageable.as_ptr() as u64, 256, 1, rig.copy).expect("queued");
    pageable.fill(8);
    rig.r.stream_synchronize(rig.copy).expect("runs");
    assert_eq!(read(rig.a), 7);
}

#[test]
fn early_copies_overtake_a_kernel_that_should_have_been_waited_for() {
    for (streams, want) in [(Streams::Late, 42), (Streams::EarlyCopies, 100)] {
        let mut c = config(&[]);
        c.streams = streams;
        let mut rig = rig(c);
        write(rig.a, 41);
        rig.launch();
        // The next block's copy into the same slot, without waiting for the kernel.
        write(rig.host, 99);
        rig.r.copy(rig.a, rig.host, 256, 1, rig.copy).expect("queued");
        rig.r.stream_synchronize(rig.compute).expect("runs");
        assert_eq!(read(rig.b), want, "{streams:?}");
    }
    // With the wait, the copy stays behind the kernel.
    let mut c = config(&[]);
    c.streams = Streams::EarlyCopies;
    let mut rig = rig(c);
    write(rig.a, 41);
    rig.launch();
    let done = rig.r.event_create().expect("ok");
    rig.r.event_record(done, rig.compute).expect("ok");
    rig.r.wait_event(rig.copy, done).expect("ok");
    write(rig.host, 99);
    rig.r.copy(rig.a, rig.host, 256, 1, rig.copy).expect("queued");
    rig.r.synchronize(0).expect("runs");
    assert_eq!((read(rig.b), read(rig.a)), (42, 99));
}

#[test]
fn events_are_not_ready_until_asked_twice() {
    let mut rig = rig(config(&[]));
    let e = rig.r.event_create().expect("ok");
    assert_eq!(rig.r.event_query(e), Ok(()));
    write(rig.a, 1);
    rig.launch();
    rig.r.event_record(e, rig.compute).expect("ok");
    assert_eq!(rig.r.event_query(e), Err(NOT_READY));
    assert_ne!(read(rig.b), 2);
    assert_eq!(rig.r.event_query(e), Ok(()));
    assert_eq!(read(rig.b), 2);
}

#[test]
fn memory_is_counted_and_calls_fail_on_request() {
    let mut r = Runtime::new(config(&[("MOSS_EMULATE_VRAM", "1MiB"), ("MOSS_EMULATE_FAIL_MALLOC", "3")]));
    let a = r.malloc(0, 1 << 19).expect("fits");
    assert_eq!(r.mem_info(0), Ok((1 << 19, 1 << 20)));
    assert_eq!(r.malloc(0, (1 << 19) + 1), Err(OUT_OF_MEMORY));
    assert_eq!(r.malloc(0, 16), Err(OUT_OF_MEMORY), "the third call");
    assert!(r.malloc(0, 16).is_ok());
    assert_eq!(r.free(a + 4), Err(INVALID_VALUE));
    r.free(a).expect("frees");
    assert_eq!(r.mem_info(0), Ok(((1 << 20) - 16, 1 << 20)));
    let mut r = Runtime::new(config(&[("MOSS_EMULATE_FAIL_HOST_MALLOC", "2+")]));
    assert!(r.host_malloc(8).is_ok() && r.host_malloc(8).is_err() && r.host_malloc(8).is_err());
}

#[test]
fn a_lost_device_answers_nothing_more() {
    let mut rig = rig(config(&[("MOSS_EMULATE_LOST_AFTER", "1")]));
    write(rig.a, 1);
    rig.launch();
    rig.r.stream_synchronize(rig.compute).expect("the first launch runs");
    rig.launch();
    assert_eq!(rig.r.stream_synchronize(rig.compute), Err(LAUNCH_FAILURE));
    assert_eq!(rig.r.mem_info(0), Err(LAUNCH_FAILURE));
    assert_eq!(rig.r.malloc(0, 4), Err(LAUNCH_FAILURE));
}

#[test]
fn a_module_for_another_target_is_refused() {
    let mut r = Runtime::new(config(&[]));
    assert_eq!(r.module_load(0, &compile("gfx1100")), Err(NO_BINARY));
    assert_eq!(r.module_load(0, b"not an ELF file at all"), Err(200));
}
