use moss_conformance::bits::DitRun;
use moss_golden::synth::Preset;
use moss_hip::Options;
use moss_reference::backend::{Backend, HostData};
use moss_reference::cpu::CpuBackend;
use moss_reference::model::Model;
use moss_reference::model::dit::Dit;
use moss_reference::model::observe::Silent;
use moss_reference::model::vae::Vae;
use moss_reference::run::{decode, encode};
use moss_reference::sample::{Guidance, Start, denoise};

use crate::{bits, emulated, model, open};

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

fn whole_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = model(Preset::Demo, folder.path());
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
    if emulated("runs::a_whole_run_on_gfx1100_has_the_cpu_backends_bits", &[("MOSS_EMULATE", "gfx1100")]) {
        whole_run();
    }
}

#[test]
fn a_whole_run_on_gfx1200_has_the_cpu_backends_bits() {
    let env = [("MOSS_EMULATE", "gfx1200"), ("MOSS_EMULATE_STREAMS", "early-copies")];
    if emulated("runs::a_whole_run_on_gfx1200_has_the_cpu_backends_bits", &env) {
        whole_run();
    }
}

/// The DiT with 0, 1, half and all blocks resident, with pinned and with pageable host memory, and once again.
fn streamed_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = model(Preset::Demo, folder.path());
    let run = DitRun::new(&model);
    let denoised = |options: Options, resident: usize| {
        let backend = open(options);
        let look = |stage: &_| assert_eq!(backend.resident_blocks(stage), (resident, 7));
        let latents = || run.latents(&backend, look).unwrap_or_else(|error| panic!("{error}"));
        let first = latents();
        if resident == 1 {
            assert!(latents() == first, "a second run");
        }
        let plan = backend.admitted_plan().expect("admitted").stages.remove(1);
        let (peak, planned) = (backend.peak_activations(), plan.demand.activations);
        assert!(peak <= planned, "activations: {peak} bytes at their peak, {planned} planned");
        eprintln!("{resident} of 7 blocks: activations {peak} bytes at their peak, {planned} planned");
        (first, plan)
    };

    let (expected, plan) = denoised(Options::default(), 7);
    let block = plan.demand.blocks[0];
    for (resident, pinned_budget) in [(0, None), (0, Some(0)), (1, Some(2 * block)), (4, None)] {
        let vram_budget = Some(plan.budget(resident));
        let (found, _) = denoised(Options { vram_budget, pinned_budget, ..Options::default() }, resident);
        assert!(found == expected, "{resident} blocks resident, pinned at most {pinned_budget:?}");
    }
}

#[test]
fn streamed_blocks_give_the_resident_bits_with_late_work() {
    if emulated("runs::streamed_blocks_give_the_resident_bits_with_late_work", &[("MOSS_EMULATE", "gfx1200")])
    {
        streamed_runs();
    }
}

#[test]
fn streamed_blocks_give_the_resident_bits_with_early_copies() {
    let env = [("MOSS_EMULATE", "gfx1200"), ("MOSS_EMULATE_STREAMS", "early-copies")];
    if emulated("runs::streamed_blocks_give_the_resident_bits_with_early_copies", &env) {
        streamed_runs();
    }
}
