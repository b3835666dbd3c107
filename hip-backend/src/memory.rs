//! The memory plan: what of each model part lives where, decided before a weight is read.
//!
//! Pure arithmetic over sizes; it knows neither a device nor a model. One stage (the VAE) is loaded first and its weights are
//! kept for the whole run; every other is alone with them while it runs and is freed after it. A stage with blocks keeps, beside its fixed weights, its activations and a reserve, as many blocks on the device as fit; the others
//! stay in host memory and are copied into one of two slots while the block before them runs.

use std::fmt;

use crate::host::SysfsMemory;
use moss_reference::memory::human;

/// Most device memory that a stage with blocks leaves alone, for the runtime, the desktop and what the counts miss; see
/// [`DeviceMemory::reserve`].
pub const RESERVE: u64 = 512 << 20;
/// The reserve is at most this part of what there is.
const RESERVE_PART: u64 = 16;
/// Blocks of device memory that streamed blocks pass through.
pub const SLOTS: usize = 2;
/// Bytes of an entry of the pinned ring that files are read into.
pub const RING_ENTRY: usize = 32 << 20;
/// Entries of the ring.
pub const RING_ENTRIES: usize = 3;
/// Host memory of the ring.
pub const RING_BYTES: u64 = (RING_ENTRIES * RING_ENTRY) as u64;

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
    /// What HIP calls free; a total of zero is no answer.
    fn by_hip(&self) -> Option<u64> {
        (self.hip_total > 0).then_some(self.hip_free)
    }

    /// What the driver calls free; a total of zero is no answer. On unified memory the VRAM is only the part set aside at boot, and
    /// what the GPU may map of the host's memory counts too.
    fn by_driver(&self) -> Option<u64> {
        let s = &self.sysfs;
        let (vram, gtt) = (s.vram_total.saturating_sub(s.vram_used), s.gtt_total.saturating_sub(s.gtt_used));
        match self.unified {
            true => (s.vram_total + s.gtt_total > 0).then_some(vram + gtt),
            false => (s.vram_total > 0).then_some(vram),
        }
    }

    /// The smaller of what HIP and the driver call free; the larger on unified memory, where HIP may know only the part set
    /// aside at boot. `None` when nobody has an answer.
    pub fn free(&self) -> Option<u64> {
        match (self.by_hip(), self.by_driver()) {
            (Some(hip), Some(driver)) if !self.unified => Some(hip.min(driver)),
            (hip, driver) => hip.max(driver),
        }
    }

    /// Device memory that a stage with blocks leaves alone: [`RESERVE`], or a sixteenth of a smaller device's memory.
    pub fn reserve(&self) -> u64 {
        let gtt = if self.unified { self.sysfs.gtt_total } else { 0 };
        match self.hip_total.max(self.sysfs.vram_total + gtt) {
            0 => RESERVE,
            total => RESERVE.min(total / RESERVE_PART),
        }
    }

    /// Device memory that may be used: what is free, and at most the budget. On unified memory all but the VRAM is the host's.
    ///
    /// # Errors
    /// [`Refusal::Unknown`] when nobody says how much is free and there is no budget.
    pub fn capacity(&self, limits: &Limits) -> Result<u64, Refusal> {
        let vram = self.sysfs.vram_total.saturating_sub(self.sysfs.vram_used);
        let host = if self.unified { vram.saturating_add(limits.host_available) } else { u64::MAX };
        let known = self.free().map(|free| free.min(host));
        known.into_iter().chain(limits.budget).min().ok_or(Refusal::Unknown)
    }
}

impl DeviceMemory {
    /// The same device when `held` bytes of it are given back.
    #[must_use]
    pub fn without(mut self, held: u64) -> Self {
        // 0 is no answer.
        if self.hip_free > 0 {
            self.hip_free += held;
        }
        self.sysfs.vram_used = self.sysfs.vram_used.saturating_sub(held);
        self
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
    /// Device memory that is left alone.
    pub reserve: u64,
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
        let always = self.reserve + self.kept + self.demand.fixed + self.demand.activations;
        always + slots + resident.sum::<u64>() + self.slot_bytes / 2
    }

    /// Plans one stage into `capacity` bytes of device memory, `kept` of which hold weights of other stages; a stage with blocks
    /// leaves the device's reserve alone.
    ///
    /// # Errors
    /// The [`Refusal`] with the sizes.
    pub fn new(
        demand: &StageDemand,
        kept: u64,
        capacity: u64,
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
            reserve: if n == 0 { 0 } else { device.reserve() },
        };
        let refuse = |plan: &Self| Refusal::Device {
            stage: demand.name.clone(),
            needs: plan.peak() + plan.reserve,
            parts: plan.parts(),
            capacity,
            budget: limits.budget == Some(capacity),
        };
        let fits = |plan: &Self| plan.peak() + plan.reserve <= capacity;

        if demand.resident_limit < n {
            plan.resident.fill(false);
            plan.source = Source::Files;
            plan.slots = demand.resident_limit.clamp(1, SLOTS);
            return if fits(&plan) { Ok(plan) } else { Err(refuse(&plan)) };
        }
        if fits(&plan) {
            return Ok(plan);
        }
        if n > 0 {
            plan.stream_some(device);
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

    /// From now on not all blocks stay on the device.
    fn stream_some(&mut self, device: &DeviceMemory) {
        (self.source, self.slots) = match device.unified {
            true => (Source::InPlace, 0),
            false => (Source::Host, SLOTS),
        };
    }

    /// The plan after an allocation failed that `had` bytes had been allocated before: as many blocks on the device as fit
    /// into those, or half of them where none fits; then none; then one slot. The same plan when there is nothing left to do
    /// without.
    ///
    /// # Errors
    /// [`Refusal::Host`] when the host has no room for the blocks that must leave the device.
    pub fn fewer(&self, had: u64, device: &DeviceMemory, limits: &Limits) -> Result<Self, Refusal> {
        let (n, resident) = (self.resident.len(), self.resident_blocks());
        if resident == 0 {
            return Ok(Self { slots: self.slots.min(1), ..self.clone() });
        }
        // What the reserve is for has shown itself.
        let mut plan = Self { reserve: self.reserve.min(had / RESERVE_PART), ..self.clone() };
        if self.source == Source::Resident {
            plan.stream_some(device);
        }
        let fit = (0..resident).rev().find(|&count| {
            plan.resident = spread(n, count);
            plan.peak() + plan.reserve <= self.kept + had
        });
        plan.resident = spread(n, fit.unwrap_or(resident / 2));
        plan.pinned_blocks = 0;
        plan.place_on_host(device, limits)?;
        Ok(plan)
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
    fn parts(&self) -> String {
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
        add(self.reserve, "reserve");
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
    /// The [`Refusal`] of the stage that needs most of those that do not fit, with the sizes.
    pub fn new(
        kept: &StageDemand,
        stages: &[StageDemand],
        device: DeviceMemory,
        limits: Limits,
    ) -> Result<Self, Refusal> {
        let capacity = device.capacity(&limits)?;
        let weights = kept.fixed + kept.blocks.iter().sum::<u64>();
        let all = std::iter::once((kept, 0)).chain(stages.iter().map(|stage| (stage, weights)));
        let (mut plans, mut refusals) = (Vec::new(), Vec::new());
        for (stage, kept) in all {
            match StagePlan::new(stage, kept, capacity, &device, &limits) {
                Ok(plan) => plans.push(plan),
                Err(refusal) => refusals.push(refusal),
            }
        }
        match refusals.into_iter().max_by_key(Refusal::device_bytes) {
            None => Ok(Self { capacity, device, limits, stages: plans }),
            Some(refusal) => Err(refusal),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let d = &self.device;
        let source = |bytes: Option<u64>| bytes.map_or_else(|| "no answer".to_owned(), human);
        write!(f, "memory: {} usable", human(self.capacity))?;
        write!(f, " (free by hipMemGetInfo {}, by the driver {}", source(d.by_hip()), source(d.by_driver()))?;
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

impl Refusal {
    /// Device memory that was asked for; 0 where that is not what lacks.
    fn device_bytes(&self) -> u64 {
        match self {
            Refusal::Device { needs, .. } => *needs,
            Refusal::Host { .. } | Refusal::Unknown => 0,
        }
    }
}

#[cfg(test)]
mod tests;
