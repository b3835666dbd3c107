//! The whole backend on emulated cards: the emulator's `libamdhip64.so` is found on LD_LIBRARY_PATH and runs the shipped code
//! objects. What holds here is emulated, not measured on a card.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use moss_conformance::battery::{Demand, all_served};
use moss_golden::synth::{self, Preset};
use moss_hip::memory::{RESERVE, SLOTS};
use moss_hip::{Error, HipBackend, Host, Options, list_devices};
use moss_reference::backend::{Backend, BackendError, HostData, Tensor as _};
use moss_reference::cpu::CpuBackend;
use moss_reference::dit::Dit;
use moss_reference::model::Silent;
use moss_reference::pipeline::{Guidance, Model, Start, decode, denoise, encode};
use moss_reference::vae::Vae;
use moss_reference::weights::ModelSource;

/// Set in the child process that opens the emulated device of its environment.
const CHILD: &str = "MOSS_HIP_TEST_CHILD";

/// Runs a test again in a process of its own, with an emulated card; true in that process.
fn emulated(test: &str, env: &[(&str, &str)]) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    assert!(moss_kernels::why_empty().is_none(), "this build holds no GPU code: {}", moss_kernels::COMPILER);
    let here = std::env::current_exe().expect("a test has a path");
    let library = here.parent().expect("in a folder");
    let out = Command::new(&here)
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "1")
        .env("LD_LIBRARY_PATH", library)
        .env("MOSS_EMULATE_STATS", "1")
        .envs(env.iter().copied())
        .output()
        .expect("starts itself");
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{text}");
    eprintln!("{text}");
    false
}

fn open(options: Options) -> HipBackend {
    let options = Options { wait_limit: Duration::from_secs(3600), ..options };
    HipBackend::open(options).unwrap_or_else(|error| panic!("{error}"))
}

/// The kernels serve multiples of 16 and the official head sizes; other sizes are refused by name.
fn not_served(error: &BackendError) -> bool {
    matches!(error.0.downcast_ref::<Error>(), Some(Error::Launch(_) | Error::Weight { .. }))
}

fn battery() {
    let backend = open(Options::default());
    let summaries =
        all_served(&[backend], Demand::Bits, &not_served).unwrap_or_else(|error| panic!("{error}"));
    for summary in &summaries {
        eprintln!("{summary}");
        assert!(summary.cases > 0, "{summary}");
    }
}

#[test]
fn battery_on_gfx1100() {
    if emulated("battery_on_gfx1100", &[("MOSS_EMULATE", "gfx1100")]) {
        battery();
    }
}

#[test]
fn battery_on_gfx1200() {
    if emulated(
        "battery_on_gfx1200",
        &[("MOSS_EMULATE", "gfx1200"), ("MOSS_EMULATE_STREAMS", "early-copies")],
    ) {
        battery();
    }
}

/// A synthetic checkpoint of the demo model's sizes.
fn model(folder: &Path) -> Model {
    let folder = folder.join("model");
    synth::write(&Preset::Demo.sizes(), 7, &folder).expect("a checkpoint is written");
    Model::open(&ModelSource::Folder(folder)).expect("and opened")
}

const PROMPT: &[u32] = &[5, 90, 17, 333, 2, 64, 500];
const NEGATIVE: &[u32] = &[8, 9];
const SIZE: (usize, usize) = (1, 2);

fn guidance() -> Guidance {
    Guidance { cfg: 3.0, skip_layers: vec![3], skip_start: 0.0, skip_stop: 1.0 }
}

fn noise(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7919 % 2003) as f32 - 1001.0) / 500.0).collect()
}

/// Latents after two steps from given text states.
fn latents<B: Backend>(backend: &B, dit: &Dit<B>, states: &[B::Tensor]) -> Vec<f32> {
    let (h, w) = SIZE;
    let start = Start { noise: &noise(128 * h * w), h, w, sigmas: &[1.0, 0.75, 0.0], guidance: &guidance() };
    denoise(backend, dit, &states[0], Some(&states[1]), &start, &mut Silent).unwrap_or_else(|e| panic!("{e}"))
}

/// Text states, latents and picture of a whole run.
fn run<B: Backend>(backend: &B, model: &Model) -> (Vec<HostData>, Vec<f32>, Vec<f32>) {
    let (h, w) = SIZE;
    let mut stages = model.stages(h, w, &[PROMPT.len(), NEGATIVE.len()]);
    stages.admit(backend).unwrap_or_else(|error| panic!("{error}"));
    let text = stages.take_text_encoder();
    let vae = Vae::load(backend, &model.config.vae, stages.vae).unwrap_or_else(|error| panic!("{error}"));
    let states =
        encode(backend, model, text, &[PROMPT, NEGATIVE], &mut Silent).unwrap_or_else(|e| panic!("{e}"));
    let dit = Dit::load(backend, &model.config.dit, stages.dit).unwrap_or_else(|error| panic!("{error}"));
    let latents = latents(backend, &dit, &states);
    drop(dit);
    let states = states.iter().map(|s| backend.download(s).expect("text states")).collect();
    let picture =
        decode(backend, &vae, &latents, h, w, &mut Silent).unwrap_or_else(|error| panic!("{error}"));
    (states, latents, picture)
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

fn whole_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = model(folder.path());
    let cpu = run(&CpuBackend::new().expect("threads"), &model);
    let backend = open(Options::default());
    let hip = run(&backend, &model);
    assert!(cpu.0 == hip.0, "text states");
    assert!(bits(&cpu.1) == bits(&hip.1), "latents");
    assert!(bits(&cpu.2) == bits(&hip.2), "picture");
    eprintln!("{}: {} launches, the CPU's bits", backend.describe(), backend.launches());
}

#[test]
fn a_whole_run_on_gfx1100_has_the_cpu_backends_bits() {
    if emulated("a_whole_run_on_gfx1100_has_the_cpu_backends_bits", &[("MOSS_EMULATE", "gfx1100")]) {
        whole_run();
    }
}

#[test]
fn a_whole_run_on_gfx1200_has_the_cpu_backends_bits() {
    let env = [("MOSS_EMULATE", "gfx1200"), ("MOSS_EMULATE_STREAMS", "early-copies")];
    if emulated("a_whole_run_on_gfx1200_has_the_cpu_backends_bits", &env) {
        whole_run();
    }
}

/// The DiT with 0, 1, half and all blocks resident, with pinned and with pageable host memory, and once again.
fn streamed_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = model(folder.path());
    let (h, w) = SIZE;
    let states = |backend: &HipBackend| -> Vec<_> {
        [PROMPT.len(), NEGATIVE.len()]
            .map(|tokens| {
                let width = model.config.dit.text_dim;
                let values = noise(tokens * width).into_iter().map(half::bf16::from_f32).collect();
                backend.upload(HostData::Bf16(values), &[tokens, width]).expect("text states")
            })
            .into()
    };
    let denoised = |options: Options, resident: usize| {
        let backend = open(options);
        let stages = model.stages(h, w, &[PROMPT.len(), NEGATIVE.len()]);
        let states = states(&backend);
        assert!(states.iter().all(|s| s.shape()[1] == model.config.dit.text_dim));
        stages.admit(&backend).unwrap_or_else(|error| panic!("{error}"));
        let _vae =
            Vae::load(&backend, &model.config.vae, stages.vae).unwrap_or_else(|error| panic!("{error}"));
        let spec = stages.dit;
        let stage = backend.load(spec).unwrap_or_else(|error| panic!("{error}"));
        let (found, blocks) = backend.resident_blocks(&stage);
        assert_eq!((found, blocks), (resident, model.config.dit.num_layers));
        drop(stage);
        let spec = model.stages(h, w, &[PROMPT.len(), NEGATIVE.len()]).dit;
        let bytes = spec.activation_bytes;
        let dit = Dit::load(&backend, &model.config.dit, spec).unwrap_or_else(|error| panic!("{error}"));
        let first = latents(&backend, &dit, &states);
        if resident == 1 {
            assert!(bits(&latents(&backend, &dit, &states)) == bits(&first), "a second run");
        }
        eprintln!(
            "{resident} of {blocks} blocks resident: activations {} bytes at their peak, {bytes} planned",
            backend.peak_activations()
        );
        first
    };

    let expected = denoised(Options::default(), 7);
    // The budget that leaves room for so many blocks beside two slots, and half a block more.
    let plan = {
        let backend = open(Options::default());
        model.stages(h, w, &[PROMPT.len(), NEGATIVE.len()]).admit(&backend).expect("fits");
        backend.admitted_plan().expect("admitted").stages.remove(2)
    };
    let block = plan.demand.blocks[0];
    let least = RESERVE + plan.kept + plan.demand.fixed + plan.demand.activations + block / 2;
    for (resident, pinned) in [(0, None), (0, Some(0)), (1, Some(2 * block)), (4, None)] {
        let budget = least + (SLOTS + resident) as u64 * block;
        let options = Options { vram_budget: Some(budget), pinned_budget: pinned, ..Options::default() };
        let found = denoised(options, resident);
        assert!(bits(&found) == bits(&expected), "{resident} blocks resident, pinned at most {pinned:?}");
    }
}

#[test]
fn streamed_blocks_give_the_resident_bits_with_late_work() {
    if emulated("streamed_blocks_give_the_resident_bits_with_late_work", &[("MOSS_EMULATE", "gfx1200")]) {
        streamed_runs();
    }
}

#[test]
fn streamed_blocks_give_the_resident_bits_with_early_copies() {
    let env = [("MOSS_EMULATE", "gfx1200"), ("MOSS_EMULATE_STREAMS", "early-copies")];
    if emulated("streamed_blocks_give_the_resident_bits_with_early_copies", &env) {
        streamed_runs();
    }
}

#[test]
fn devices_are_listed_and_the_discrete_one_is_taken() {
    let env = [("MOSS_EMULATE", "gfx1036,gfx1100,gfx1200"), ("MOSS_EMULATE_VRAM", "512MiB,24GiB,16GiB")];
    if !emulated("devices_are_listed_and_the_discrete_one_is_taken", &env) {
        return;
    }
    let text = list_devices(&Host::current()).unwrap_or_else(|error| panic!("{error}")).to_string();
    eprintln!("{text}");
    assert!(text.contains("no code for gfx1036") && text.contains("  kernels: gfx1100 (wmma)"), "{text}");
    let backend = open(Options::default());
    assert_ne!(backend.device().arch, "gfx1036");
    assert_eq!(backend.passed_over().len(), 2);
    let asked = open(Options { device: Some("2".into()), ..Options::default() });
    assert_eq!(asked.device().arch, "gfx1200");
    let refused = HipBackend::open(Options { implementation: Some("fast".into()), ..Options::default() });
    let text = refused.err().expect("no such kernels").to_string();
    assert!(text.contains("--backend-impl fast") && text.contains("wmma"), "{text}");
    let refused = HipBackend::open(Options { device: Some("0".into()), ..Options::default() });
    assert!(matches!(refused.err(), Some(Error::Unsupported { .. })));
}

#[test]
fn no_device_is_an_error_with_a_reason() {
    if emulated("no_device_is_an_error_with_a_reason", &[("MOSS_EMULATE", "none")]) {
        let error = HipBackend::open(Options::default()).err().expect("no device");
        let text = error.to_string();
        assert!(text.starts_with("no HIP device"), "{text}");
    }
}

#[test]
fn an_override_is_refused_before_anything_runs() {
    let env = [("MOSS_EMULATE", "gfx1200"), ("HSA_OVERRIDE_GFX_VERSION", "")];
    if emulated("an_override_is_refused_before_anything_runs", &env) {
        assert!(matches!(HipBackend::open(Options::default()).err(), Some(Error::Override { .. })));
    }
}

#[test]
fn a_lost_device_is_fatal_and_named() {
    let env = [("MOSS_EMULATE", "gfx1200"), ("MOSS_EMULATE_LOST_AFTER", "1")];
    if !emulated("a_lost_device_is_fatal_and_named", &env) {
        return;
    }
    let backend = open(Options::default());
    let x = backend.upload(HostData::F32(vec![1.0; 64]), &[64]).expect("copies still run");
    let error = (0..4).find_map(|_| backend.to_bf16(&x).and_then(|y| backend.download(&y)).err());
    let error = error.expect("the device is lost");
    let error = error.0.downcast_ref::<Error>().expect("an error of this backend");
    assert!(error.is_fatal(), "{error}");
    assert!(error.to_string().contains("to_bf16"), "{error}");
}
