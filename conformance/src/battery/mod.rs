//! One battery for every backend: each operation of [`Backend`] on inputs that straddle tiles and hold
//! extremes, compared bit for bit with the scalar oracle and, within a budget derived from the roundings of its
//! definition, with the same formula in f64.

mod attention;
mod delta;
mod elementwise;
mod image;
mod inputs;
mod linear;
mod norm;

use moss_reference::backend::{Backend, BackendError, Role};
use moss_reference::oracle::OracleBackend;

use crate::bounded::Bounded;
use crate::compare::{CompareError, Comparison, compare, same_bits};

use inputs::Stored;
pub use inputs::{Fill, Host, Rng};

/// One call of one operation.
pub trait Case {
    /// The operation, its sizes and what is special about the inputs.
    fn name(&self) -> String;

    /// The weights that the call takes, in order, and how they are used.
    fn weights(&self) -> Vec<(Role, &Host)> {
        Vec::new()
    }

    /// Uploads the inputs and runs the operation.
    fn run<B: Backend>(&self, backend: &B, weights: &[B::Tensor]) -> Result<B::Tensor, BackendError>;

    /// The result by the formula in f64, with a bound on the error of every element.
    fn expected(&self) -> Vec<Bounded>;
}

/// Why a battery stopped.
#[derive(Debug, thiserror::Error)]
pub enum BatteryError {
    /// The results are apart.
    #[error(transparent)]
    Apart(#[from] CompareError),
    /// The backend failed.
    #[error("{case}: {source}")]
    Backend {
        /// The case that ran.
        case: String,
        /// What the backend said.
        source: BackendError,
    },
}

/// What the cases of one operation showed.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The operation.
    pub op: &'static str,
    /// Cases that ran.
    pub cases: usize,
    /// Elements compared in all.
    pub elements: usize,
    /// The case that used most of its budget against f64, and its comparison.
    pub worst: Option<(String, Comparison)>,
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} cases, {} elements", self.op, self.cases, self.elements)?;
        match &self.worst {
            Some((case, comparison)) => write!(f, "; against f64 worst in {case}: {comparison}"),
            None => Ok(()),
        }
    }
}

/// What a backend is held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// The oracle's bits, and the f64 budget.
    Bits,
    /// The f64 budget alone: for a matrix unit that does not sum as a chain.
    Budget,
}

/// Runs the cases of one operation on a backend.
pub fn run<B: Backend, C: Case>(
    op: &'static str,
    cases: impl IntoIterator<Item = C>,
    backend: &B,
    demand: Demand,
) -> Result<Summary, BatteryError> {
    let mut summary = Summary { op, cases: 0, elements: 0, worst: None };
    for case in cases {
        let name = case.name();
        let actual = result_of(&case, backend)?;
        if demand == Demand::Bits {
            same_bits(&name, &actual, &result_of(&case, &OracleBackend)?)?;
        }
        let expected = case.expected();
        let values: Vec<f64> = expected.iter().map(|e| e.value).collect();
        let comparison = compare(&name, &actual, &values, |i| expected[i].error)?;
        summary.cases += 1;
        summary.elements += comparison.len;
        let used = |c: &Comparison| c.worst.budget_used;
        if summary.worst.as_ref().is_none_or(|(_, worst)| used(&comparison) > used(worst)) {
            summary.worst = Some((name, comparison));
        }
    }
    Ok(summary)
}

fn result_of<B: Backend, C: Case>(case: &C, backend: &B) -> Result<Vec<f32>, BatteryError> {
    let weights = case.weights();
    let result = || {
        if weights.is_empty() {
            return Ok(backend.download(&case.run(backend, &[])?)?.to_f32());
        }
        let stored = Stored::new(&weights);
        let stage = backend.load(stored.stage())?;
        Ok(backend.download(&case.run(backend, &backend.fixed(&stage))?)?.to_f32())
    };
    result().map_err(|source| BatteryError::Backend { case: case.name(), source })
}

/// Runs every operation's cases on a backend, one summary an operation.
pub fn all<B: Backend>(backend: &B, demand: Demand) -> Result<Vec<Summary>, BatteryError> {
    Ok(vec![
        run("concat", elementwise::concat_cases(), backend, demand)?,
        run("to_bf16", elementwise::to_bf16_cases(), backend, demand)?,
        run("norm", norm::norm_cases(), backend, demand)?,
        run("head_norm_rope", norm::head_norm_rope_cases(), backend, demand)?,
        run("gated_norm", norm::gated_norm_cases(), backend, demand)?,
        run("attention", attention::cases(), backend, demand)?,
        run("sigmoid_gate", elementwise::sigmoid_gate_cases(), backend, demand)?,
        run("linear", linear::linear_cases(), backend, demand)?,
        run("linear_glu", linear::glu_cases(), backend, demand)?,
        run("causal_conv_silu", elementwise::causal_conv_cases(), backend, demand)?,
        run("gated_delta_rule", delta::cases(), backend, demand)?,
        run("euler_step", elementwise::euler_cases(), backend, demand)?,
        run("unpack_latents", image::unpack_cases(), backend, demand)?,
        run("conv2d", image::conv_cases(), backend, demand)?,
        run("group_norm", image::group_norm_cases(), backend, demand)?,
    ])
}
