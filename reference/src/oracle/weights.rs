//! Weights: everything is read at once and kept.

use half::bf16;

use super::OracleTensor;
use crate::backend::{BackendError, Result, Role, StageSpec, WeightSpec};
use crate::files::Checkpoint;

/// All weights of a stage.
#[derive(Clone, Debug)]
pub struct OracleStage {
    /// Those of [`StageSpec::fixed`].
    pub(super) fixed: Vec<OracleTensor>,
    /// Those of [`StageSpec::blocks`].
    pub(super) blocks: Vec<Vec<OracleTensor>>,
}

pub(super) fn load(spec: &StageSpec) -> Result<OracleStage> {
    let read = |weights: &Vec<WeightSpec>| weights.iter().map(|w| weight(&spec.checkpoint, w)).collect();
    Ok(OracleStage {
        fixed: read(&spec.fixed)?,
        blocks: spec.blocks.iter().map(read).collect::<Result<_>>()?,
    })
}

fn weight(checkpoint: &Checkpoint, spec: &WeightSpec) -> Result<OracleTensor> {
    let rows = checkpoint.rows(&spec.parts);
    Ok(match spec.role {
        Role::Matrix | Role::UpGate | Role::Vector | Role::Depthwise => {
            let elements = rows.to_vec::<bf16>().map_err(BackendError::new)?;
            OracleTensor::bf16(rows.shape(), elements.into_iter().map(bf16::to_f32).collect())
        }
        Role::VectorF32 | Role::Conv2d => {
            OracleTensor::f32(rows.shape(), rows.to_vec().map_err(BackendError::new)?)
        }
    })
}
