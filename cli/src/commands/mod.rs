//! What each command does.

pub(crate) mod conformance;
pub(crate) mod devices;
pub(crate) mod generate;
pub(crate) mod inspect;
mod judged;
mod models;
pub(crate) mod pages;
pub(crate) mod stages;
