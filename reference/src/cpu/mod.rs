//! The CPU backend: every operation's definition made runnable, fast, with the same bits on every
//! instruction set and for any number of threads.

pub mod attention;
mod backend;
pub mod conv;
pub mod data;
pub mod delta;
pub mod elementwise;
pub mod gemm;
pub mod group_norm;
mod lanes;
mod memory;
mod micro;
pub mod norm;
pub mod peak;
mod tensor;

use std::sync::Arc;

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::backend::{BackendError, StageSpec};
use crate::simd::Isa;
pub use memory::TooLittleMemory;
pub use tensor::CpuTensor;

/// Computes on the CPU, with its own threads.
#[derive(Clone)]
pub struct CpuBackend {
    isa: Isa,
    pool: Arc<ThreadPool>,
}

/// The weights of a model part: the fixed ones, and where the blocks' lie.
pub struct CpuStage {
    spec: StageSpec,
    fixed: Vec<CpuTensor>,
}

impl CpuBackend {
    /// The fastest instructions of this CPU and a thread for each core.
    ///
    /// # Errors
    /// When the threads cannot be started.
    pub fn new() -> Result<Self, BackendError> {
        Self::with_isa(Isa::best(), std::thread::available_parallelism().map_or(1, |n| n.get()))
    }

    /// Chosen instructions and number of threads; the results do not depend on either.
    ///
    /// # Errors
    /// When the threads cannot be started.
    pub fn with_isa(isa: Isa, threads: usize) -> Result<Self, BackendError> {
        let pool = ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|i| format!("moss-cpu-{i}"))
            .build()
            .map_err(BackendError::new)?;
        Ok(Self { isa, pool: Arc::new(pool) })
    }

    /// The instructions in use.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }

    /// Runs `work` inside the backend's threads, so that rayon's parallel iterators use them.
    pub fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.pool.install(work)
    }
}
