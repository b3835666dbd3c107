//! Every committed golden case on the CPU backend.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use moss_conformance::golden::{Case, run_case};
use moss_conformance::row::Word;
use moss_golden::synth::{self, Preset};
use moss_reference::cpu::CpuBackend;
use moss_reference::files::ModelSource;
use moss_reference::model::Model;
use moss_reference::model::tokenizer::Tokenizer;

/// The checkpoints that the cases ask for, each made once.
struct Checkpoints {
    work: tempfile::TempDir,
    made: BTreeMap<(String, u64), PathBuf>,
}

impl Checkpoints {
    fn folder(&mut self, golden: &Path, config: &str, seed: u64) -> PathBuf {
        if config == "demo" {
            return golden.join("demo/model");
        }
        let out = self.work.path().join(format!("{config}-{seed}"));
        self.made
            .entry((config.into(), seed))
            .or_insert_with(|| {
                let preset = <Preset as clap::ValueEnum>::from_str(config, true).unwrap();
                synth::write(&preset.sizes(), seed, &out).unwrap();
                out
            })
            .clone()
    }
}

#[test]
fn committed_cases_keep_their_budgets() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden");
    let backend = CpuBackend::new().unwrap();
    let mut checkpoints = Checkpoints { work: tempfile::tempdir().unwrap(), made: BTreeMap::new() };
    let mut failed = Vec::new();
    let cases = Case::open_all(&golden.join("cases")).unwrap();
    assert!(!cases.is_empty());
    for case in cases {
        let path = checkpoints.folder(&golden, &case.checkpoint.config, case.checkpoint.seed);
        let model = Model::open(&ModelSource::Folder(path.clone())).unwrap();
        case.check_weights(&model.sha256(), &path).unwrap();
        let tokenizer = Tokenizer::from_folder(path.join("tokenizer")).unwrap();
        let outcome = run_case(&backend, Word::Measured, &case, &model, &tokenizer).unwrap();
        for row in outcome.rows {
            eprintln!("{row}");
            if !row.passes() {
                failed.push(row.to_string());
            }
        }
    }
    assert!(failed.is_empty(), "{} rows:\n{}", failed.len(), failed.join("\n"));
}
