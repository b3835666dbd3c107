//! The HIP backend: MOSS-Image on AMD Radeon GPUs.
//!
//! Three thin layers over the runtime, which is opened at run time and never linked to: `sys` (its C functions), `error`
//! (its codes, with the call and what was running), `device` (owned streams, events, buffers, modules). Above them
//! [`memory`] plans what lives where, `stream` moves weights, and [`HipBackend`] runs the model's operations.

mod backend;
mod device;
mod discover;
mod error;
#[cfg(test)]
mod fake;
mod host;
mod kernels;
pub mod memory;
mod ops;
mod pool;
mod stage;
mod stream;
mod sys;
mod tensor;
mod trail;
mod watch;
mod weights;

pub use backend::{HipBackend, Options, list_devices};
pub use discover::{DeviceInfo, KernelSets, Listed, Listing};
pub use error::{Error, exit_if_lost};
pub use host::{Host, SysfsMemory};
pub use moss_reference::memory::human;
pub use stage::HipStage;
pub use sys::Standing;
pub use tensor::HipTensor;
pub use watch::is_blocked;
