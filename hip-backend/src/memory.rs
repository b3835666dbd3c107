//! The memory plan: what of each model part lives where, decided before a weight is read.
//!
//! Pure arithmetic over sizes; it knows neither a device nor a model. One stage (the VAE) is loaded first and its weights are
//! kept for the whole run; every other is alone with them while it runs and is freed after it. A stage with blocks keeps, beside its fixed weights, its activations and a reserve, as many blocks on the device as fit; the others
//! stay in host memory and are copied into one of two slots while the block before them runs.

use std::fmt;

use crate::error::gib;
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

    /// Plans one stage into `capacity` bytes of device memory, `kept` of which hold weights of other stages.
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
        };
        let reserve = if n == 0 { 0 } else { RESERVE };
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
                parts.push(format!("{} {what}", gib(bytes)));
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
        let plan = |stage, kept| StagePlan::new(stage, kept, capacity, &device, &limits);
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
        let source = |bytes: u64| if bytes == 0 { "no answer".to_owned() } else { gib(bytes) };
        write!(f, "memory: {} usable", gib(self.capacity))?;
        write!(f, " (free by hipMemGetInfo {}, by the driver {}", source(d.hip_free), source(vram))?;
        match self.limits.budget {
            Some(budget) => writeln!(f, ", --vram-budget {})", gib(budget))?,
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
        write!(f, "{}: {} weights", self.demand.name, gib(self.demand.fixed))?;
        match self.source {
            Source::Resident if n == 0 => write!(f, ", kept")?,
            Source::Resident => write!(f, ", all {n} blocks on the device ({})", gib(self.resident_bytes()))?,
            Source::Files => write!(
                f,
                ", {n} blocks streamed from the files through {} slots of {}",
                self.slots,
                gib(largest)
            )?,
            Source::Host | Source::InPlace => {
                write!(
                    f,
                    ", {} of {n} blocks on the device ({}), {streamed} in host memory ({}, {} pinned)",
                    self.resident_blocks(),
                    gib(self.resident_bytes()),
                    gib(self.streamed_bytes()),
                    self.pinned_blocks
                )?;
                if self.slots > 0 {
                    write!(f, " through {} slots of {}", self.slots, gib(largest))?;
                }
            }
        }
        write!(f, ", {} activations, peak {}", gib(self.demand.activations), gib(self.peak()))
    }
}

/// Why a run cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A stage does not fit on the device, even with every block streamed.
    #[error(
        "{stage} needs at least {} of device memory ({parts}); {} {}. Make the picture smaller{}",
        gib(*needs), if *budget { "--vram-budget allows" } else { "free are" }, gib(*capacity),
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
         picture smaller or close other programs", gib(*needs), gib(*available)
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
mod tests {
    use super::*;

    const GIB: f64 = (1u64 << 30) as f64;

    fn bytes(gib: f64) -> u64 {
        (gib * GIB) as u64
    }

    /// Parameters of the official DiT: a block, and what always stays (embedders, modulations, refiner).
    fn dit_sizes() -> (u64, u64) {
        let (d, f) = (3072u64, 8192u64);
        let block = 4 * d * d + 3 * d * f + 2 * d + 2 * 128;
        let refiner = block + 3 * d + d + 2 * f + d;
        let embedders = 128 * d + d + 4096 * d + d + 256 * d + d + d * d + d;
        let modulations = 6 * d * d + 6 * d + 2 * d * d + 2 * d;
        let head = d + 128 * d;
        (2 * block, 2 * (2 * refiner + embedders + modulations + head))
    }

    fn dit(activations: f64) -> StageDemand {
        let (block, fixed) = dit_sizes();
        StageDemand {
            name: "dit".into(),
            fixed,
            blocks: vec![block; 42],
            resident_limit: usize::MAX,
            activations: bytes(activations),
        }
    }

    fn vae(decode: f64) -> StageDemand {
        StageDemand {
            name: "vae".into(),
            fixed: bytes(0.1),
            blocks: vec![],
            resident_limit: usize::MAX,
            activations: bytes(decode),
        }
    }

    fn none() -> StageDemand {
        StageDemand { fixed: 0, activations: 0, ..vae(0.0) }
    }

    fn text_encoder() -> StageDemand {
        StageDemand {
            name: "text encoder".into(),
            fixed: 8192,
            blocks: vec![bytes(0.43); 32],
            resident_limit: 2,
            activations: bytes(0.05),
        }
    }

    fn card(gib: f64) -> DeviceMemory {
        DeviceMemory { hip_free: bytes(gib), hip_total: bytes(gib), ..DeviceMemory::default() }
    }

    fn limits(budget: Option<f64>) -> Limits {
        Limits { budget: budget.map(bytes), host_available: bytes(60.0), pinned: None }
    }

    fn run(decode: f64, activations: f64, free: f64, budget: Option<f64>) -> Result<Plan, Refusal> {
        Plan::new(&vae(decode), &[text_encoder(), dit(activations)], card(free), limits(budget))
    }

    /// Activations of the DiT at 1024x1024 that the figures of the program described in the second document imply: with
    /// 0.1 GiB of VAE, 1.03 GiB always on the device and a reserve of 0.5 GiB, 17 blocks at 6 GiB and 2 at 3 GiB leave
    /// between 0.74 and 0.79 GiB for them.
    const IMPLIED: f64 = 0.76;

    #[test]
    fn official_sizes() {
        let (block, fixed) = dit_sizes();
        assert!((block as f64 / GIB - 0.21).abs() < 0.005, "{block}");
        assert!(((fixed + 2 * block) as f64 / GIB - 1.03).abs() < 0.005, "{fixed}");
        assert!((42.0 * block as f64 / GIB - 8.86).abs() < 0.01);
    }

    #[test]
    fn resident_blocks_under_a_budget() {
        for (budget, blocks) in [(6.0, 17), (3.0, 2)] {
            let plan = run(1.5, IMPLIED, 15.9, Some(budget)).unwrap();
            let dit = &plan.stages[2];
            assert_eq!(dit.resident_blocks(), blocks, "--vram-budget {budget}");
            assert_eq!((dit.source, dit.slots), (Source::Host, 2));
            assert!(dit.peak() + RESERVE <= bytes(budget));
        }
    }

    #[test]
    fn a_card_with_room_keeps_all_blocks_and_needs_no_slots() {
        let dit = run(1.5, IMPLIED, 15.9, None).unwrap().stages.remove(2);
        assert_eq!((dit.resident_blocks(), dit.slots, dit.source), (42, 0, Source::Resident));
        let dit = run(1.5, IMPLIED, 8.0, None).unwrap().stages.remove(2);
        assert!(dit.resident_blocks() > 17 && dit.resident_blocks() < 42);
    }

    #[test]
    fn the_decode_must_fit_beside_the_kept_weights() {
        for (side, decode) in [(1024, 1.5), (1456, 3.0), (2048, 6.0)] {
            let budget = Limits { budget: Some(bytes(decode) + bytes(0.1)), ..limits(None) };
            assert!(Plan::new(&vae(decode), &[], card(16.0), budget).is_ok(), "{side}");
            let Err(Refusal::Device { stage, needs, budget, .. }) = run(decode, 0.3, 16.0, Some(decode))
            else {
                panic!("{side}: a budget without room for the weights must be refused")
            };
            assert_eq!((stage.as_str(), budget), ("vae", true));
            assert_eq!(needs, bytes(decode) + bytes(0.1));
        }
        let text = run(6.0, 0.3, 5.0, None).unwrap_err().to_string();
        assert!(text.contains("vae needs at least 6.10 GiB") && text.contains("free are 5.00 GiB"), "{text}");
    }

    #[test]
    fn the_text_encoder_never_has_more_than_two_layers_on_the_device() {
        let plan = run(1.5, IMPLIED, 100.0, None).unwrap();
        let text = &plan.stages[1];
        assert_eq!((text.source, text.slots, text.resident_blocks()), (Source::Files, 2, 0));
        assert_eq!(text.peak(), bytes(0.1) + 8192 + 2 * bytes(0.43) + bytes(0.05));
    }

    #[test]
    fn activations_or_a_budget_below_the_minimum_are_refused_with_sizes() {
        let text = run(1.5, 20.0, 16.0, None).unwrap_err().to_string();
        assert!(text.contains("dit needs at least") && text.contains("20.00 GiB activations"), "{text}");
        let text = run(0.5, IMPLIED, 16.0, Some(2.0)).unwrap_err().to_string();
        assert!(text.contains("--vram-budget allows 2.00 GiB") && text.contains("0.42 GiB slots"), "{text}");
    }

    #[test]
    fn the_smallest_budget_streams_every_block_and_one_byte_less_is_refused() {
        let demand = dit(IMPLIED);
        let least = demand.fixed + 2 * demand.blocks[0] + demand.activations + RESERVE;
        let at = |budget: u64| {
            let limits = Limits { budget: Some(budget), ..limits(None) };
            Plan::new(&none(), std::slice::from_ref(&demand), card(16.0), limits)
        };
        assert_eq!(at(least).unwrap().stages[1].resident_blocks(), 0);
        assert!(at(least - 1).is_err());
        assert_eq!(at(least + demand.blocks[0]).unwrap().stages[1].resident_blocks(), 1);
    }

    #[test]
    fn streamed_blocks_need_host_memory() {
        let plan = |host: f64, pinned: Option<f64>| {
            let limits =
                Limits { budget: Some(bytes(3.0)), host_available: bytes(host), pinned: pinned.map(bytes) };
            Plan::new(&vae(1.5), &[dit(IMPLIED)], card(16.0), limits)
        };
        let Err(Refusal::Host { blocks, needs, available, .. }) = plan(8.0, None) else {
            panic!("8 GiB hold no 40 blocks")
        };
        assert_eq!((blocks, available), (40, bytes(8.0)));
        assert_eq!(needs, 40 * dit_sizes().0 + RING_BYTES);
        // Half of the host's memory is pinned at most, or what is asked for.
        assert_eq!(plan(60.0, None).unwrap().stages[1].pinned_blocks, 40);
        assert_eq!(plan(9.0, None).unwrap().stages[1].pinned_blocks, 21);
        assert_eq!(plan(60.0, Some(1.0)).unwrap().stages[1].pinned_blocks, 4);
        assert_eq!(plan(60.0, Some(0.0)).unwrap().stages[1].pinned_blocks, 0);
    }

    #[test]
    fn pinned_memory_stays_within_what_the_driver_lets_the_gpu_map() {
        let mut device = card(16.0);
        device.sysfs.gtt_total = bytes(4.0);
        device.sysfs.gtt_used = bytes(1.0);
        let plan = Plan::new(&none(), &[dit(IMPLIED)], device, limits(Some(3.0))).unwrap();
        assert_eq!(plan.stages[1].pinned_blocks, 8, "60 % of 3 GiB are 8 blocks of 0.21 GiB");
    }

    #[test]
    fn free_memory_is_the_smaller_answer_and_a_zero_is_none() {
        let memory = |hip: f64, total: f64, used: f64, unified: bool| DeviceMemory {
            hip_free: bytes(hip),
            hip_total: bytes(hip),
            sysfs: SysfsMemory {
                vram_total: bytes(total),
                vram_used: bytes(used),
                gtt_total: bytes(30.0),
                gtt_used: 0,
            },
            unified,
        };
        assert_eq!(memory(15.0, 16.0, 4.0, false).free(), Some(bytes(12.0)));
        assert_eq!(memory(9.0, 16.0, 4.0, false).free(), Some(bytes(9.0)));
        assert_eq!(memory(0.0, 16.0, 4.0, false).free(), Some(bytes(12.0)));
        assert_eq!(memory(9.0, 0.0, 0.0, false).free(), Some(bytes(9.0)));
        assert_eq!(memory(0.0, 0.0, 0.0, false).free(), None);
        assert_eq!(memory(60.0, 0.5, 0.4, true).free(), Some(bytes(60.0)), "the carve-out is not the limit");
        assert_eq!(memory(0.0, 0.5, 0.4, true).free(), Some(bytes(30.0)));
        let unknown = Plan::new(&none(), &[dit(0.1)], DeviceMemory::default(), limits(None)).unwrap_err();
        assert_eq!(unknown, Refusal::Unknown);
        assert!(unknown.to_string().contains("--vram-budget"));
        assert!(Plan::new(&none(), &[dit(0.1)], DeviceMemory::default(), limits(Some(4.0))).is_ok());
    }

    #[test]
    fn unified_memory_streams_nothing_through_slots_and_says_so() {
        let device = DeviceMemory { unified: true, ..card(4.0) };
        let plan = Plan::new(&none(), &[dit(IMPLIED)], device, limits(None)).unwrap();
        assert_eq!((plan.stages[1].source, plan.stages[1].slots), (Source::InPlace, 0));
        assert!(plan.to_string().contains("unified memory"));
    }

    #[test]
    fn resident_blocks_are_spread() {
        assert_eq!(spread(4, 2), [false, true, false, true]);
        for (n, count) in [(42, 17), (42, 41), (42, 0), (1, 0), (5, 5)] {
            let chosen = spread(n, count);
            assert_eq!(chosen.iter().filter(|&&r| r).count(), count);
            // No two gaps differ by more than one.
            let at: Vec<usize> = (0..n).filter(|&i| chosen[i]).collect();
            let gaps: Vec<usize> = at.windows(2).map(|w| w[1] - w[0]).collect();
            if let (Some(min), Some(max)) = (gaps.iter().min(), gaps.iter().max()) {
                assert!(max - min <= 1);
            }
        }
    }

    #[test]
    fn the_plan_is_printed_with_every_size() {
        let text = run(1.5, IMPLIED, 15.9, Some(6.0)).unwrap().to_string();
        for part in [
            "memory: 6.00 GiB usable",
            "by the driver no answer",
            "vae: 0.10 GiB weights, kept, 1.50 GiB activations, peak 1.60 GiB",
            "32 blocks streamed from the files through 2 slots of 0.43 GiB",
            "17 of 42 blocks on the device (3.59 GiB), 25 in host memory (5.27 GiB, 25 pinned)",
        ] {
            assert!(text.contains(part), "{part:?} in\n{text}");
        }
    }
}
