//! The CPU backend against the scalar oracle, bit for bit, on every instruction set and number of threads.

use moss_conformance::battery::{Demand, all};
use moss_reference::cpu::CpuBackend;
use moss_reference::cpu::simd::Path;

#[test]
fn every_path_has_the_oracles_bits_on_any_number_of_threads() {
    let paths = Path::available();
    let mut backends = Vec::new();
    for (i, &path) in paths.iter().enumerate() {
        // The fastest path on 1, 2 and 3 threads, the others on one of these.
        let threads = if i + 1 == paths.len() { vec![1, 2, 3] } else { vec![2 + i % 2] };
        backends.extend(threads.into_iter().map(|n| CpuBackend::with_path(path, n).expect("threads")));
    }
    let summaries = all(&backends, Demand::Bits).unwrap_or_else(|error| panic!("{error}"));
    for summary in &summaries {
        eprintln!("{summary}");
        assert!(summary.cases >= 3 * backends.len(), "{summary}");
    }
}
