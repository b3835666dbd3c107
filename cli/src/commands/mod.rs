//! What each command does.

pub(crate) mod conformance;
pub(crate) mod generate;
pub(crate) mod stages;
