//! Weights: everything is read at once and kept.

use super::OracleTensor;
use crate::backend::{Role, StageSpec, WeightSpec};
use crate::files::Checkpoint;

/// All weights of a stage.
#[derive(Clone, Debug)]
pub struct OracleStage {
    /// Those of [`StageSpec::fixed`].
    pub(super) fixed: Vec<OracleTensor>,
    /// Those of [`StageSpec::blocks`].
    pub(super) blocks: Vec<Vec<OracleTensor>>,
}

pub(super) fn load(spec: &StageSpec) -> OracleStage {
    let read = |weights: &Vec<WeightSpec>| weights.iter().map(|w| weight(&spec.checkpoint, w)).collect();
    OracleStage { fixed: read(&spec.fixed), blocks: spec.blocks.iter().map(read).collect() }
}

/// The parts of a weight, stacked along their first axis.
fn weight(checkpoint: &Checkpoint, spec: &WeightSpec) -> OracleTensor {
    let parts: Vec<_> = spec.parts.iter().map(|name| checkpoint.get(name)).collect();
    let mut shape = parts[0].shape().to_vec();
    for part in &parts[1..] {
        let fits = part.shape()[1..] == shape[1..];
        assert!(fits, "load: part {} {:?} under {} {shape:?}", part.name(), part.shape(), parts[0].name());
        shape[0] += part.shape()[0];
    }
    match spec.role {
        Role::Matrix | Role::UpGate | Role::Vector | Role::Depthwise => {
            let rounded = |part: &crate::files::TensorView| -> Vec<f32> {
                part.to_bf16().iter().map(|x| x.to_f32()).collect()
            };
            OracleTensor::bf16(&shape, parts.iter().flat_map(|part| rounded(part)).collect())
        }
        Role::VectorF32 | Role::Conv2d => {
            OracleTensor::f32(&shape, parts.iter().flat_map(|part| part.to_f32()).collect())
        }
    }
}
