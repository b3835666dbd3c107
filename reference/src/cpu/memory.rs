//! What a run needs of the machine's memory, counted before anything is computed.
//!
//! Matrices that are bf16 in their file stay there: the system's file cache holds them as far as it can. All other weights are
//! copied. Beside the activations of the model's own count an operation may hold another form of one of its operands (heads of
//! the attention in f32, the picture once more on its way out): a quarter covers the widest, attention in the DiT, with an
//! eighth.

use crate::backend::{Role, StageSpec, WeightSpec};
use crate::files::{Checkpoint, FileDType};
use crate::memory::human;

/// Buffers of one thread: stack, tiles, gathered rows.
const THREAD: u64 = 4 << 20;
/// Everything else: the tokenizer, text states, noise, latents, the file that is written.
const REST: u64 = 32 << 20;

/// A run that needs more memory than there is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{stage}: needs {} of memory ({} activations, {} copied weights, {} for the rest), {} are available; make the picture smaller \
         or end other programs", human(self.needs()), human(*activations), human(*weights), human(*rest), human(*available))]
pub struct TooLittleMemory {
    /// The stage that needs the most.
    pub stage: &'static str,
    /// Bytes of activations at their peak, and of what operations hold beside them.
    pub activations: u64,
    /// Bytes of weights that cannot stay in their files.
    pub weights: u64,
    /// Bytes of threads' buffers and of what every run needs.
    pub rest: u64,
    /// Bytes that can be taken.
    pub available: u64,
}

impl TooLittleMemory {
    /// Bytes in all.
    pub fn needs(&self) -> u64 {
        self.activations + self.weights + self.rest
    }
}

/// Refuses a run whose stages, one after another beside the weights of `kept`, need more than `available` bytes.
pub(super) fn admit(
    kept: &StageSpec,
    stages: &[&StageSpec],
    threads: usize,
    available: u64,
) -> Result<(), TooLittleMemory> {
    let rest = threads as u64 * THREAD + REST;
    let of = |spec: &StageSpec, others: u64| TooLittleMemory {
        stage: spec.name,
        activations: spec.activation_bytes + spec.activation_bytes / 4,
        weights: copied(spec) + others,
        rest,
        available,
    };
    let others = copied(kept);
    let most = std::iter::once(of(kept, 0)).chain(stages.iter().map(|spec| of(spec, others)));
    match most.max_by_key(TooLittleMemory::needs) {
        Some(most) if most.needs() > available => Err(most),
        _ => Ok(()),
    }
}

/// Bytes of a stage's weights in memory: the fixed ones and those of its largest block.
fn copied(spec: &StageSpec) -> u64 {
    let all =
        |weights: &[WeightSpec]| weights.iter().map(|weight| bytes(&spec.checkpoint, weight)).sum::<u64>();
    all(&spec.fixed) + spec.blocks.iter().map(|block| all(block)).max().unwrap_or(0)
}

/// Bytes that a weight takes outside its file.
fn bytes(checkpoint: &Checkpoint, weight: &WeightSpec) -> u64 {
    let views = weight.parts.iter().map(|name| checkpoint.get(&name.name));
    let of = |view: &crate::files::TensorView| match weight.role {
        Role::Matrix | Role::UpGate if view.dtype() == FileDType::Bf16 => 0,
        Role::Matrix | Role::UpGate | Role::Vector | Role::Depthwise => 2 * view.count(),
        Role::VectorF32 | Role::Conv2d => 4 * view.count(),
    };
    views.map(|view| of(view) as u64).sum()
}
