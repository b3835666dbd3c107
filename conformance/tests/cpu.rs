//! The CPU backend against the scalar oracle, bit for bit, on every instruction set and number of threads.

use moss_conformance::battery::{Demand, Draws, MODEL_OPERATIONS, OPERATIONS, all, at_model_sizes, drawn};
use moss_golden::synth::Preset;
use moss_reference::cpu::CpuBackend;
use moss_reference::files::ModelSource;
use moss_reference::model::config::ModelConfig;
use moss_reference::simd::Isa;

#[test]
fn every_path_has_the_oracles_bits_on_any_number_of_threads() {
    let isas = Isa::available();
    let mut backends = Vec::new();
    for (i, &isa) in isas.iter().enumerate() {
        // The fastest isa on 1, 2 and 3 threads, the others on one of these.
        let threads = if i + 1 == isas.len() { vec![1, 2, 3] } else { vec![2 + i % 2] };
        backends.extend(threads.into_iter().map(|n| CpuBackend::with_isa(isa, n).expect("threads")));
    }
    let summaries = all(&backends, Demand::Bits).unwrap_or_else(|error| panic!("{error}"));
    for summary in &summaries {
        eprintln!("{summary}");
        assert!(summary.cases >= 3 * backends.len(), "{summary}");
    }
}

#[test]
fn drawn_cases_have_the_oracles_bits() {
    let isas = Isa::available().into_iter().enumerate();
    let backends: Vec<_> =
        isas.map(|(i, isa)| CpuBackend::with_isa(isa, 1 + i % 3).expect("threads")).collect();
    let draws = Draws { cases: 48, seed: 1, grain: 1 };
    for op in OPERATIONS {
        let summary = drawn(op, &backends, Demand::Bits, draws, &|_| false);
        let summary = summary.unwrap_or_else(|error| panic!("{error}"));
        eprintln!("{summary}");
        assert_eq!(summary.cases, 48 * backends.len(), "{summary}");
    }
}

#[test]
fn the_official_sizes_have_the_oracles_bits() {
    let sizes = Preset::Full.sizes();
    let folder = tempfile::tempdir().unwrap();
    let parts =
        [("text_encoder", sizes.text_encoder), ("transformer", sizes.transformer), ("vae", sizes.vae)];
    for (part, config) in parts {
        std::fs::create_dir(folder.path().join(part)).unwrap();
        std::fs::write(folder.path().join(part).join("config.json"), config.to_string()).unwrap();
    }
    let config = ModelConfig::open(&ModelSource::Folder(folder.path().into())).unwrap();
    let backend = [CpuBackend::new().unwrap()];
    for op in MODEL_OPERATIONS {
        let summary = at_model_sizes(op, &config, &backend, Demand::Bits).unwrap_or_else(|e| panic!("{e}"));
        eprintln!("{summary}");
        assert!(summary.cases > 0, "{summary}");
    }
}
