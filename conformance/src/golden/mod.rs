//! Golden cases: how close a backend is to the official pipeline.

mod case;
mod checkpoints;
mod quick;
mod run;

pub use case::{Case, CaseError, CheckpointName, Provenance, Swaps};
pub use checkpoints::{Checkpoints, Loaded};
pub use quick::quick;
pub use run::{Outcome, RunCaseError, run_case};
