use moss_conformance::bits::DitRun;
use moss_golden::synth::Preset;
use moss_hip::Options;
use moss_reference::backend::Backend;
use moss_reference::cpu::CpuBackend;
use moss_reference::model::observe::Silent;
use moss_reference::run::{Session, Texts};
use moss_reference::sample::{Guidance, Start};

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

/// Text states of both rows, latents after two steps, and picture of a run, in bits.
type Results = (Vec<Vec<u16>>, Vec<u32>, Vec<u32>);

/// The next run of a session.
fn run<B: Backend>(session: &mut Session<'_, B>) -> Results {
    let (h, w) = SIZE;
    let (noise, guidance) = (noise(128 * h * w), guidance());
    let rows = [PROMPT.to_vec(), NEGATIVE.to_vec()];
    let mut run = session.admit(h, w, Texts::Ids(&rows)).unwrap_or_else(|error| panic!("{error}"));
    let states = run.encode(&mut Silent).unwrap_or_else(|error| panic!("{error}"));
    let start = Start { noise: &noise, h, w, sigmas: &[1.0, 0.75, 0.0], guidance: &guidance };
    let latents = run.denoise(&states, &start, &mut Silent).unwrap_or_else(|error| panic!("{error}"));
    let picture = run.decode(&latents, &mut Silent).unwrap_or_else(|error| panic!("{error}"));
    let states = states.iter().map(|states| states.data.iter().map(|x| x.to_bits()).collect()).collect();
    (states, bits(&latents), bits(&picture))
}

fn whole_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = model(Preset::Demo, folder.path());
    let cpu = run(&mut Session::new(&CpuBackend::new().expect("threads"), &model));
    let backend = open(Options::default());
    let mut session = Session::new(&backend, &model);
    let hip = run(&mut session);
    assert!(cpu.0 == hip.0, "text states");
    assert!(cpu.1 == hip.1, "latents");
    assert!(cpu.2 == hip.2, "picture");
    let launches = backend.launches();
    assert!(run(&mut session) == hip, "a second run of the session");
    assert!(backend.launches() - launches < launches, "the text encoder ran again");
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
