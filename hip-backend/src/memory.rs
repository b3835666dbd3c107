//! The memory plan: what of each model part lives where, decided before a weight is read.
//!
//! Pure arithmetic over sizes; it knows neither a device nor a model. One stage (the VAE) is loaded first and its weights are
//! kept for the whole run; every other is alone with them while it runs and is freed after it. A stage with blocks keeps, beside its fixed weights, its activations and a reserve, as many blocks on the device as fit; the others
//! stay in host memory and are copied into one of two slots while the block before them runs.

use std::fmt;

use crate::error::human;
use crate::host::SysfsMemory;

/// Device memory that a stage with blocks leaves alone, for the runtime, the desktop and what the counts miss.
pub const RESERVE: u64 = 512 << 20;
/// Blocks of device memory that streamed blocks pass through.
pub const SLOTS: usize = 2;
/// Host memory of the pinned ring that files are read into.
pub const RING_BYTES: u64 = 3 * (32 << 20);

/// What one stage will ask for, in bytes as they lie on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageDemand {
    /// Name for messages.
    pub name: String,
    /// Weights that stay while the stage is loaded.
    pub fixed: u64,
    /// Weights of each block.
    pub blocks: Vec<u64>,
    /// Most blocks that may be on the device at once; fewer than there are means: read once from the files, kept nowhere.
    pub resident_limit: usize,
    /// Activations at their peak.
    pub activations: u64,
}

/// Free memory of a device, by every source there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceMemory {
    /// `hipMemGetInfo`: free. It does not see what graphics programs hold.
    pub hip_free: u64,
    /// `hipMemGetInfo`: total.
    pub hip_total: u64,
    /// The driver's count.
    pub sysfs: SysfsMemory,
    /// Device and host share their memory.
    pub unified: bool,
}

impl DeviceMemory {
    /// The smaller of what HIP and the driver call free; a zero is no answer. On unified memory the driver's VRAM is only a
    /// part set aside at boot, so there it stands in only when HIP has no answer. `None` when nobody has one.
    pub fn free(&self) -> Option<u64> {
        let vram = self.sysfs.vram_total.saturating_sub(self.sysfs.vram_used);
        let gtt = self.sysfs.gtt_total.saturating_sub(self.sysfs.gtt_used);
        let known = |bytes: u64| (bytes > 0).then_some(bytes);
        if self.unified {
            return known(self.hip_free).or(known(vram.max(gtt)));
        }
        match (known(self.hip_free), known(vram)) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}

/// What the user and the host allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `--vram-budget`, bytes.
    pub budget: Option<u64>,
    /// Host memory that is free to take.
    pub host_available: u64,
    /// Most host memory to pin; `None`: half of what is available, and at most 60 % of what the driver lets the GPU map.
    pub pinned: Option<u64>,
}

/// Where the blocks of a stage come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// All blocks stay on the device.
    Resident,
    /// Each block is read from the model files when its turn comes.
    Files,
    /// Streamed blocks stay in host memory.
    Host,
    /// Unified memory: blocks in host memory are read where they are.
    InPlace,
}

/// The plan of one stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagePlan {
    /// What was asked.
    pub demand: StageDemand,
    /// Weights of other stages that are on the device meanwhile.
    pub kept: u64,
    /// Where streamed blocks come from.
    pub source: Source,
    /// For each block, whether it stays on the device.
    pub resident: Vec<bool>,
    /// Device slots for streamed blocks.
    pub slots: usize,
    /// Bytes of a slot: the largest block.
    pub slot_bytes: u64,
    /// Of the streamed blocks, how many may lie in pinned memory; the others lie in pageable memory.
    pub pinned_blocks: usize,
}

impl StagePlan {
    /// Blocks that stay on the device.
    pub fn resident_blocks(&self) -> usize {
        self.resident.iter().filter(|&&r| r).count()
    }

    /// Bytes of the blocks that stay on the device.
    pub fn resident_bytes(&self) -> u64 {
        self.demand.blocks.iter().zip(&self.resident).filter(|(_, r)| **r).map(|(b, _)| b).sum()
    }

    /// Bytes of the blocks that do not.
    pub fn streamed_bytes(&self) -> u64 {
        self.demand.blocks.iter().sum::<u64>() - self.resident_bytes()
    }

    /// Device memory at the stage's peak, all stages' weights included, the reserve not.
    pub fn peak(&self) -> u64 {
        self.kept
            + self.demand.fixed
            + self.slots as u64 * self.slot_bytes
            + self.resident_bytes()
            + self.demand.activations
    }

    /// A budget with which `count` blocks of this stage stay on the device, and half a block more, for tensors that are held
    /// meanwhile. Close to all blocks, when the others would take no more room than the slots, all stay.
    pub fn budget(&self, count: usize) -> u64 {
        let n = self.demand.blocks.len();
        let slots = if count < n { SLOTS as u64 * self.slot_bytes } else { 0 };
        let resident = self.demand.blocks.iter().zip(spread(n, count)).filter(|(_, r)| *r).map(|(b, _)| b);
        let always = RESERVE + self.kept + self.demand.fixed + self.demand.activations;
        always + slots + resident.sum::<u64>() + self.slot_bytes / 2
    }

    /// Plans one stage into `capacity` bytes of device memory, `kept` of which hold weights of other stages; a stage with blocks
    /// leaves `reserve` of them alone.
    ///
    /// # Errors
    /// The [`Refusal`] with the sizes.
    pub fn new(
        demand: &StageDemand,
        kept: u64,
        capacity: u64,
        reserve: u64,
        device: &DeviceMemory,
        limits: &Limits,
    ) -> Result<Self, Refusal> {
        let n = demand.blocks.len();
        let largest = demand.blocks.iter().copied().max().unwrap_or(0);
        let mut plan = Self {
            demand: demand.clone(),
            kept,
            source: Source::Resident,
            resident: vec![true; n],
            slots: 0,
            slot_bytes: largest,
            pinned_blocks: 0,
        };
        let reserve = if n == 0 { 0 } else { reserve };
        let refuse = |plan: &Self| Refusal::Device {
            stage: demand.name.clone(),
            needs: plan.peak() + reserve,
            parts: plan.parts(reserve),
            capacity,
            budget: limits.budget == Some(capacity),
        };
        let fits = |plan: &Self| plan.peak() + reserve <= capacity;

        if demand.resident_limit < n {
            plan.resident.fill(false);
            plan.source = Source::Files;
            plan.slots = demand.resident_limit.clamp(1, SLOTS);
            return if fits(&plan) { Ok(plan) } else { Err(refuse(&plan)) };
        }
        if fits(&plan) {
            return Ok(plan);
        }
        if n > 0 && device.unified {
            plan.source = Source::InPlace;
        } else if n > 0 {
            plan.source = Source::Host;
            plan.slots = SLOTS;
        }
        // The most resident blocks that fit: sizes may differ, so the count is searched from above.
        for count in (0..n.max(1)).rev() {
            plan.resident = spread(n, count);
            if fits(&plan) {
                plan.place_on_host(device, limits)?;
                return Ok(plan);
            }
        }
        Err(refuse(&plan))
    }

    /// Divides the streamed blocks between pinned and pageable memory.
    fn place_on_host(&mut self, device: &DeviceMemory, limits: &Limits) -> Result<(), Refusal> {
        let needs = self.streamed_bytes() + RING_BYTES;
        if needs > limits.host_available {
            return Err(Refusal::Host {
                stage: self.demand.name.clone(),
                blocks: self.resident.len() - self.resident_blocks(),
                needs,
                available: limits.host_available,
            });
        }
        let gtt = device.sysfs.gtt_total.saturating_sub(device.sysfs.gtt_used);
        let mappable = if gtt == 0 { u64::MAX } else { gtt / 10 * 6 };
        let mut left = limits.pinned.unwrap_or(limits.host_available / 2).min(mappable);
        for (bytes, _) in self.demand.blocks.iter().zip(&self.resident).filter(|(_, r)| !**r) {
            if *bytes > left {
                break;
            }
            left -= bytes;
            self.pinned_blocks += 1;
        }
        Ok(())
    }

    /// The sizes of a refusal, in words.
    fn parts(&self, reserve: u64) -> String {
        let mut parts = Vec::new();
        let mut add = |bytes: u64, what: &str| {
            if bytes > 0 {
                parts.push(format!("{} {what}", human(bytes)));
            }
        };
        add(self.kept, "weights of other parts");
        add(self.demand.fixed, "weights that always stay");
        add(self.slots as u64 * self.slot_bytes, "slots");
        add(self.resident_bytes(), "blocks");
        add(self.demand.activations, "activations");
        add(reserve, "reserve");
        parts.join(" + ")
    }
}

/// Which of `n` blocks stay on the device when `count` do: spread evenly, so that each copy of a streamed block has several
/// resident blocks' time.
fn spread(n: usize, count: usize) -> Vec<bool> {
    (0..n).map(|i| (i + 1) * count / n != i * count / n).collect()
}

/// The plan of a whole run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Device memory that may be used.
    pub capacity: u64,
    /// What the sources said.
    pub device: DeviceMemory,
    /// What the user and the host allow.
    pub limits: Limits,
    /// The kept stage, then the others in order.
    pub stages: Vec<StagePlan>,
}

impl Plan {
    /// Plans a run: the weights of `kept` (the VAE) stay from start to end and its activations come last; `stages` come and go
    /// one after another.
    ///
    /// # Errors
    /// The [`Refusal`] of the first stage that does not fit, with the sizes.
    pub fn new(
        kept: &StageDemand,
        stages: &[StageDemand],
        device: DeviceMemory,
        limits: Limits,
    ) -> Result<Self, Refusal> {
        let capacity = match (device.free(), limits.budget) {
            (Some(free), Some(budget)) => free.min(budget),
            (Some(free), None) => free,
            (None, Some(budget)) => budget,
            (None, None) => return Err(Refusal::Unknown),
        };
        let plan = |stage, kept| StagePlan::new(stage, kept, capacity, RESERVE, &device, &limits);
        let weights = kept.fixed + kept.blocks.iter().sum::<u64>();
        let mut plans = vec![plan(kept, 0)?];
        for stage in stages {
            plans.push(plan(stage, weights)?);
        }
        Ok(Self { capacity, device, limits, stages: plans })
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let d = &self.device;
        let vram = d.sysfs.vram_total.saturating_sub(d.sysfs.vram_used);
        let source = |bytes: u64| if bytes == 0 { "no answer".to_owned() } else { human(bytes) };
        write!(f, "memory: {} usable", human(self.capacity))?;
        write!(f, " (free by hipMemGetInfo {}, by the driver {}", source(d.hip_free), source(vram))?;
        match self.limits.budget {
            Some(budget) => writeln!(f, ", --vram-budget {})", human(budget))?,
            None => writeln!(f, ")")?,
        }
        if d.unified {
            writeln!(
                f,
                "  unified memory: device and host share it, blocks in host memory are read in place"
            )?;
        }
        for stage in &self.stages {
            writeln!(f, "  {stage}")?;
        }
        Ok(())
    }
}

impl fmt::Display for StagePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.resident.len();
        let streamed = n - self.resident_blocks();
        let largest = self.slot_bytes;
        write!(f, "{}: {} weights", self.demand.name, human(self.demand.fixed))?;
        match self.source {
            Source::Resident if n == 0 => write!(f, ", kept")?,
            Source::Resident => {
                write!(f, ", all {n} blocks on the device ({})", human(self.resident_bytes()))?
            }
            Source::Files => write!(
                f,
                ", {n} blocks streamed from the files through {} slots of {}",
                self.slots,
                human(largest)
            )?,
            Source::Host | Source::InPlace => {
                write!(
                    f,
                    ", {} of {n} blocks on the device ({}), {streamed} in host memory ({}, {} pinned)",
                    self.resident_blocks(),
                    human(self.resident_bytes()),
                    human(self.streamed_bytes()),
                    self.pinned_blocks
                )?;
                if self.slots > 0 {
                    write!(f, " through {} slots of {}", self.slots, human(largest))?;
                }
            }
        }
        write!(f, ", {} activations, peak {}", human(self.demand.activations), human(self.peak()))
    }
}

/// Why a run cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A stage does not fit on the device, even with every block streamed.
    #[error(
        "{stage} needs at least {} of device memory ({parts}); {} {}. Make the picture smaller{}",
        human(*needs), if *budget { "--vram-budget allows" } else { "free are" }, human(*capacity),
        if *budget { " or raise --vram-budget" } else { " or close what else uses the GPU" }
    )]
    Device {
        /// The stage.
        stage: String,
        /// Bytes it needs.
        needs: u64,
        /// What they are for.
        parts: String,
        /// Bytes there are.
        capacity: u64,
        /// Whether the budget, not the device, is the limit.
        budget: bool,
    },
    /// The streamed blocks do not fit in the host's memory.
    #[error(
        "{stage} keeps {blocks} blocks in host memory and needs {} for it; {} are available. Raise --vram-budget, make the \
         picture smaller or close other programs", human(*needs), human(*available)
    )]
    Host {
        /// The stage.
        stage: String,
        /// Blocks in host memory.
        blocks: usize,
        /// Bytes they need.
        needs: u64,
        /// Bytes there are.
        available: u64,
    },
    /// Nobody says how much memory the device has.
    #[error("neither HIP nor the driver says how much device memory is free: give --vram-budget GiB")]
    Unknown,
}

#[cfg(test)]
mod tests;
