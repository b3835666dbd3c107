//! The scalar oracle against the same formulas in f64.

use moss_conformance::battery::{Demand, all};
use moss_reference::oracle::OracleBackend;

#[test]
fn oracle_is_within_the_derived_budgets() {
    let summaries = all(&[OracleBackend], Demand::Budget).unwrap_or_else(|error| panic!("{error}"));
    for summary in &summaries {
        eprintln!("{summary}");
        assert!(summary.cases > 0);
    }
}
