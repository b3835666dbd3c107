//! `--dry-run`: what a run takes, for people and for programs.

use std::time::Duration;

use moss_hip::memory::Plan;
use moss_reference::run::Stages;
use serde::Serialize;

/// The answer to `moss --dry-run --json`; sizes in bytes.
#[derive(Serialize)]
pub(crate) struct Planned {
    /// Backend and architecture, as in a picture's record.
    pub backend: String,
    /// Roughly how long the denoising takes, where that is known.
    pub expected_seconds: Option<f64>,
    pub memory: Memory,
}

/// The memory plan.
#[derive(Serialize)]
pub(crate) struct Memory {
    /// Device memory that may be used; none on the CPU.
    capacity: Option<u64>,
    /// `--vram-budget`.
    budget: Option<u64>,
    /// In the order in which they are planned: what is kept through the run first.
    stages: Vec<Stage>,
}

/// One stage.
#[derive(Serialize)]
struct Stage {
    name: String,
    /// Weights that stay while the stage is loaded.
    fixed: u64,
    /// Weights of each block.
    blocks: Vec<u64>,
    /// Blocks that stay on the device; none on the CPU.
    blocks_on_device: Option<usize>,
    activations: u64,
    /// Device memory at the stage's peak; none on the CPU.
    peak: Option<u64>,
}

impl Memory {
    /// Of a run on the CPU: weights stay in their files.
    pub(crate) fn on_cpu(stages: &Stages) -> Self {
        let stages = stages.specs().map(|spec| {
            let bytes = |weights: &[moss_reference::backend::WeightSpec]| {
                let parts = weights.iter().flat_map(|weight| &weight.parts);
                parts.map(|part| spec.checkpoint.get(&part.name).bytes().len() as u64).sum::<u64>()
            };
            Stage {
                name: spec.name.into(),
                fixed: bytes(&spec.fixed),
                blocks: spec.blocks.iter().map(|block| bytes(block)).collect(),
                blocks_on_device: None,
                activations: spec.activation_bytes,
                peak: None,
            }
        });
        Self { capacity: None, budget: None, stages: stages.collect() }
    }

    /// Of a run on a GPU.
    pub(crate) fn on_gpu(plan: &Plan) -> Self {
        let stages = plan.stages.iter().map(|stage| Stage {
            name: stage.demand.name.clone(),
            fixed: stage.demand.fixed,
            blocks: stage.demand.blocks.clone(),
            blocks_on_device: Some(stage.resident_blocks()),
            activations: stage.demand.activations,
            peak: Some(stage.peak()),
        });
        Self { capacity: Some(plan.capacity), budget: plan.limits.budget, stages: stages.collect() }
    }
}

/// Parameters of a run's DiT, by the elements in its files.
fn parameters(stages: &Stages) -> u64 {
    let parts = stages.dit.blocks.iter().flatten().chain(&stages.dit.fixed).flat_map(|weight| &weight.parts);
    parts.map(|part| part.shape.iter().product::<usize>() as u64).sum()
}

/// How long the denoising may take, from the parameters, the tokens of all rows, the steps and a rate of operations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    parameters: u64,
    tokens: u64,
    steps: u64,
    /// Operations a second.
    rate: f64,
}

impl Expected {
    /// Of a run of `tokens` tokens in all rows.
    pub(crate) fn new(stages: &Stages, tokens: usize, steps: usize, rate: f64) -> Self {
        Self { parameters: parameters(stages), tokens: tokens as u64, steps: steps as u64, rate }
    }

    /// Two operations, a product and a sum, for each parameter, token and step.
    pub(crate) fn time(self) -> Duration {
        let operations = 2.0 * self.parameters as f64 * self.tokens as f64 * self.steps as f64;
        Duration::try_from_secs_f64(operations / self.rate).unwrap_or(Duration::MAX)
    }
}

impl std::fmt::Display for Expected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "about {} (an estimate: 2 operations for each of {} million parameters, {} tokens and {} steps, \
             at {:.0} billion a second, measured just now on this CPU)",
            words(self.time()),
            self.parameters.div_ceil(1_000_000),
            self.tokens,
            self.steps,
            self.rate / 1e9
        )
    }
}

/// A time of rough precision.
fn words(time: Duration) -> String {
    match time.as_secs() {
        seconds @ ..120 => format!("{seconds} seconds"),
        seconds @ 120..7200 => format!("{} minutes", seconds / 60),
        seconds @ 7200..172_800 => format!("{:.1} hours", seconds as f64 / 3600.0),
        seconds => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_says_what_it_is_made_of() {
        let official = Expected { parameters: 4_900_000_000, tokens: 8400, steps: 50, rate: 4e11 };
        assert_eq!(official.time().as_secs(), 10_290);
        let text = official.to_string();
        assert!(
            text.starts_with("about 2.9 hours (an estimate: ") && text.contains("4900 million"),
            "{text}"
        );
    }

    #[test]
    fn times_are_rough() {
        for (seconds, text) in
            [(61, "61 seconds"), (130, "2 minutes"), (9000, "2.5 hours"), (600_000, "6 days")]
        {
            assert_eq!(words(Duration::from_secs(seconds)), text);
        }
    }
}
