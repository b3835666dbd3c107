//! The text encoder at lengths that straddle the tiles of every kernel, with synthetic and with trained weights.

use std::path::Path;

use moss_conformance::bits::text_states;
use moss_golden::synth::Preset;
use moss_hip::Options;
use moss_reference::cpu::CpuBackend;
use moss_reference::files::ModelSource;
use moss_reference::model::Model;

use crate::{emulated, model, open};

/// Tokens of a prompt. Tiles have 64 rows, the longest is the usual limit of a prompt.
const LENGTHS: [usize; 5] = [1, 63, 64, 65, 300];
/// A prompt and a negative prompt that run together.
const PAIR: [usize; 2] = [65, 7];

/// Ids below the smaller vocabulary of the two models.
fn ids(length: usize) -> Vec<u32> {
    (0..length).map(|i| (i * i * 31 + 17 * i + 5) as u32 % 512).collect()
}

/// Text states have the CPU backend's bits, and those of a pair are those of each prompt alone.
fn encoder(model: &Model) {
    let cpu = CpuBackend::new().expect("threads");
    let hip = open(Options::default());
    let states = |lengths: &[usize]| {
        let prompts: Vec<Vec<u32>> = lengths.iter().map(|&length| ids(length)).collect();
        let prompts: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
        let expected = text_states(&cpu, model, &prompts).unwrap_or_else(|error| panic!("{error}"));
        let found = text_states(&hip, model, &prompts).unwrap_or_else(|error| panic!("{error}"));
        for ((length, found), expected) in lengths.iter().zip(&found).zip(&expected) {
            assert_eq!(found.len(), length * model.config.text.hidden_size);
            let differ = found.iter().zip(expected).filter(|(a, b)| a != b).count();
            assert_eq!(differ, 0, "{length} tokens of {lengths:?}: of {} elements", found.len());
        }
        eprintln!("{lengths:?} tokens: the CPU's bits");
        found
    };
    for length in LENGTHS {
        states(&[length]);
    }
    let together = states(&PAIR);
    assert!(together == PAIR.map(|length| states(&[length]).remove(0)), "each alone");
}

fn tiny() {
    let folder = tempfile::tempdir().expect("a folder");
    encoder(&model(Preset::Tiny, folder.path()));
}

fn demo() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden/demo/model");
    encoder(&Model::open(&ModelSource::Folder(folder)).unwrap_or_else(|error| panic!("{error}")));
}

#[test]
fn tiny_states_on_gfx1100_have_the_cpu_backends_bits() {
    if emulated("encoder::tiny_states_on_gfx1100_have_the_cpu_backends_bits", &[("MOSS_EMULATE", "gfx1100")])
    {
        tiny();
    }
}

#[test]
fn tiny_states_on_gfx1200_have_the_cpu_backends_bits() {
    if emulated("encoder::tiny_states_on_gfx1200_have_the_cpu_backends_bits", &[("MOSS_EMULATE", "gfx1200")])
    {
        tiny();
    }
}

#[test]
fn demo_states_on_gfx1100_have_the_cpu_backends_bits() {
    if emulated("encoder::demo_states_on_gfx1100_have_the_cpu_backends_bits", &[("MOSS_EMULATE", "gfx1100")])
    {
        demo();
    }
}

#[test]
fn demo_states_on_gfx1200_have_the_cpu_backends_bits() {
    if emulated("encoder::demo_states_on_gfx1200_have_the_cpu_backends_bits", &[("MOSS_EMULATE", "gfx1200")])
    {
        demo();
    }
}
