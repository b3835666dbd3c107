//! Golden cases: how close a backend is to the official pipeline.

mod case;
mod run;

pub use case::{Case, CaseError, CheckpointName, Provenance, Request, Swaps};
pub use run::{Outcome, RunCaseError, run_case};
