//! What `moss conformance` asks of a backend.

use moss_conformance::battery::Demand;
use moss_conformance::row::Word;
use moss_hip::{Error, HipBackend, Standing};
use moss_reference::backend::BackendError;
use moss_reference::cpu::CpuBackend;
use moss_reference::run::Stages;

use crate::error::Result;
use crate::machine::{Machine, hip_error};

/// A backend whose results are judged.
pub(crate) trait Judged: Machine {
    /// What kind of numbers this machine gives, and what its results are held to.
    fn standing(&self) -> (Word, Demand);

    /// Whether an operation failed because its sizes are not served.
    fn refuses(&self, error: &BackendError) -> bool;

    /// The same machine with device memory for only so many blocks of the last of `stages`; `None` where there is no device
    /// memory.
    ///
    /// # Errors
    /// What planning and opening fail with.
    fn with_blocks(&self, stages: &Stages, blocks: usize) -> Result<Option<Self>>;
}

impl Judged for CpuBackend {
    fn standing(&self) -> (Word, Demand) {
        (Word::Measured, Demand::Bits)
    }

    fn refuses(&self, _error: &BackendError) -> bool {
        false
    }

    fn with_blocks(&self, _stages: &Stages, _blocks: usize) -> Result<Option<Self>> {
        Ok(None)
    }
}

impl Judged for HipBackend {
    /// Whoever sums matrix products as chains is held to the CPU's bits; a card's matrix unit need not.
    fn standing(&self) -> (Word, Demand) {
        let demand = |chain| if chain { Demand::Bits } else { Demand::Budget };
        match self.standing() {
            Standing::Card => (Word::Measured, Demand::Budget),
            Standing::Emulated { chain } => (Word::Emulated, demand(chain)),
            Standing::LogicChecked { chain } => (Word::LogicChecked, demand(chain)),
        }
    }

    fn refuses(&self, error: &BackendError) -> bool {
        error.0.downcast_ref::<Error>().is_some_and(Error::is_not_served)
    }

    fn with_blocks(&self, stages: &Stages, blocks: usize) -> Result<Option<Self>> {
        stages.admit(self)?;
        let plan = self.admitted_plan().expect("just admitted");
        let budget = plan.stages.last().expect("a run has stages").budget(blocks);
        self.again(budget).map(Some).map_err(|error| hip_error(&error))
    }
}
