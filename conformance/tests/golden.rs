//! Every committed golden case on the CPU backend.

use std::path::Path;

use moss_conformance::golden::{Case, Checkpoints, Loaded, run_case};
use moss_conformance::row::Word;
use moss_reference::cpu::CpuBackend;

#[test]
fn committed_cases_keep_their_budgets() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden");
    let backend = CpuBackend::new().unwrap();
    let demo = Loaded::open(&golden.join("demo/model")).unwrap();
    let mut checkpoints = Checkpoints::new(demo, Some(tempfile::tempdir().unwrap()));
    let mut failed = Vec::new();
    let cases = Case::open_all(&golden.join("cases")).unwrap();
    assert!(!cases.is_empty());
    for case in cases {
        let loaded = checkpoints.of(&case).unwrap_or_else(|error| panic!("{error}"));
        let outcome = run_case(&backend, Word::Measured, &case, &loaded.model, &loaded.tokenizer).unwrap();
        for row in outcome.rows {
            eprintln!("{row}");
            if !row.passes() {
                failed.push(row.to_string());
            }
        }
    }
    assert!(failed.is_empty(), "{} rows:\n{}", failed.len(), failed.join("\n"));
}
