//! One battery for every backend (`all(&[backend], Demand::Bits)`): each operation of [`Backend`] on inputs that straddle tiles and hold
//! extremes, compared bit for bit with the scalar oracle and, within a budget derived from the roundings of its
//! definition, with the same formula in f64.

mod attention;
mod delta;
#[cfg(feature = "drawn")]
mod drawn;
mod elementwise;
mod image;
mod inputs;
mod linear;
mod norm;

use moss_reference::backend::{Backend, BackendError, Role};
use moss_reference::model::config::ModelConfig;
use moss_reference::oracle::OracleBackend;

use crate::bounded::Bounded;
use crate::compare::{CompareError, Comparison, compare, same_bits};
use crate::distance::relative_l2;
use crate::row::{Row, Rule, Word};

#[cfg(feature = "drawn")]
pub use drawn::{Draws, drawn};
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
        /// The backend and the case that ran.
        case: String,
        /// What the backend said.
        source: BackendError,
    },
    /// A drawn case failed; it was shrunk to this one.
    #[error("drawn with seed {seed} and shrunk: {source}")]
    Drawn {
        /// The seed of the draws.
        seed: u64,
        /// What the smallest failing case showed.
        source: Box<BatteryError>,
    },
}

/// What the cases of one operation showed.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The operation.
    pub op: &'static str,
    /// Cases that ran, over all backends.
    pub cases: usize,
    /// Cases that a backend refused, because it does not serve their sizes.
    pub refused: usize,
    /// Elements compared in all.
    pub elements: usize,
    /// The largest relative L2 distance of a case from the scalar oracle's result: 0 where its bits are demanded.
    pub distance: f64,
    /// The case that used most of its budget against f64, and its comparison.
    pub worst: Option<(String, Comparison)>,
}

#[cfg(feature = "drawn")]
impl Summary {
    /// Both together: sums, and the worse of the two worst cases.
    #[must_use]
    fn and(self, other: Self) -> Self {
        let used = |worst: &Option<(String, Comparison)>| worst.as_ref().map(|(_, c)| c.worst.budget_used);
        Self {
            op: self.op,
            cases: self.cases + other.cases,
            refused: self.refused + other.refused,
            elements: self.elements + other.elements,
            distance: self.distance.max(other.distance),
            worst: if used(&other.worst) > used(&self.worst) { other.worst } else { self.worst },
        }
    }
}

/// What an operation showed, as a line of a report in the group `group`; an operation that broke is named by its row.
pub fn row(group: &str, op: &str, demand: Demand, result: &Result<Summary, BatteryError>, word: Word) -> Row {
    let (name, figure, detail) = match result {
        Ok(summary) if summary.cases == 0 => {
            (format!("{op}: no case ran"), f64::NAN, format!("{} cases refused", summary.refused))
        }
        Ok(summary) => {
            let used = summary.worst.as_ref().map_or(0.0, |(_, comparison)| comparison.worst.budget_used);
            let Summary { cases, refused, elements, .. } = summary;
            let refused = if *refused > 0 { format!(", {refused} cases refused") } else { String::new() };
            (
                format!("{op}: {}, {elements} elements{refused}", plural(*cases, "case")),
                used,
                summary.to_string(),
            )
        }
        Err(error) => {
            let figure = match error {
                BatteryError::Apart(CompareError::OverBudget { comparison, .. }) => {
                    comparison.worst.budget_used
                }
                _ => f64::INFINITY,
            };
            (op.to_string(), figure, error.to_string())
        }
    };
    let reason = match demand {
        Demand::Bits => "the scalar oracle's bits, and the f64 budget of the definition's roundings",
        Demand::Budget => "the f64 budget of the definition's roundings",
    };
    let (group, reason) = (group.into(), reason.into());
    Row { group, name, figure, limit: 1.0, rule: Rule::AtMost, reason, detail, word }
}

/// "1 case", "2 cases".
fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}, {} elements", self.op, plural(self.cases, "case"), self.elements)?;
        if self.refused > 0 {
            write!(f, ", {} cases refused", self.refused)?;
        }
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

/// Runs the cases of one operation on some backends; what is expected is computed once.
pub fn run<B: Backend, C: Case>(
    op: &'static str,
    cases: impl IntoIterator<Item = C>,
    backends: &[B],
    demand: Demand,
) -> Result<Summary, BatteryError> {
    run_served(op, cases, backends, demand, 1, &|_| false)
}

/// As [`run`] on backends that do not serve every size: a case that fails with an error that `refuses` knows is counted and
/// left out. Of those that are served one in `stride` runs, from the first on.
pub fn run_served<B: Backend, C: Case>(
    op: &'static str,
    cases: impl IntoIterator<Item = C>,
    backends: &[B],
    demand: Demand,
    stride: usize,
    refuses: &dyn Fn(&BackendError) -> bool,
) -> Result<Summary, BatteryError> {
    let mut summary = Summary { op, cases: 0, refused: 0, elements: 0, distance: 0.0, worst: None };
    let mut to_skip = 0;
    for case in cases {
        if to_skip > 0 {
            to_skip -= 1;
            continue;
        }
        let expected = case.expected();
        let values: Vec<f64> = expected.iter().map(|e| e.value).collect();
        let oracle = result_of(&case, &OracleBackend)?;
        for backend in backends {
            let name = format!("{}: {}", backend.describe(), case.name());
            let actual = match result_of(&case, backend) {
                Err(BatteryError::Backend { source, .. }) if refuses(&source) => {
                    summary.refused += 1;
                    continue;
                }
                result => result?,
            };
            match demand {
                Demand::Bits => same_bits(&name, &actual, &oracle)?,
                Demand::Budget => summary.distance = summary.distance.max(relative_l2(&actual, &oracle)),
            }
            let comparison = compare(&name, &actual, &values, |i| expected[i].error)?;
            to_skip = stride - 1;
            summary.cases += 1;
            summary.elements += comparison.len;
            let used = |c: &Comparison| c.worst.budget_used;
            if summary.worst.as_ref().is_none_or(|(_, worst)| used(&comparison) > used(worst)) {
                summary.worst = Some((name, comparison));
            }
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
    result().map_err(|source| BatteryError::Backend {
        case: format!("{}: {}", backend.describe(), case.name()),
        source,
    })
}

/// The operations, in the order in which [`all`] runs them.
pub const OPERATIONS: [&str; 15] = [
    "concat",
    "to_bf16",
    "norm",
    "head_norm_rope",
    "gated_norm",
    "attention",
    "sigmoid_gate",
    "linear",
    "linear_glu",
    "causal_conv_silu",
    "gated_delta_rule",
    "euler_step",
    "unpack_latents",
    "conv2d",
    "group_norm",
];

/// Runs one in `stride` of the cases of operation `op`, see [`run_served`].
///
/// # Panics
/// When there is no such operation.
pub fn one<B: Backend>(
    op: &str,
    backends: &[B],
    demand: Demand,
    stride: usize,
    refuses: &dyn Fn(&BackendError) -> bool,
) -> Result<Summary, BatteryError> {
    macro_rules! choose {
        ($($name:literal: $cases:expr),+ $(,)?) => {
            match op {
                $($name => run_served($name, $cases, backends, demand, stride, refuses),)+
                _ => panic!("battery: no operation {op}"),
            }
        };
    }
    choose! {
        "concat": elementwise::concat_cases(),
        "to_bf16": elementwise::to_bf16_cases(),
        "norm": norm::norm_cases(),
        "head_norm_rope": norm::head_norm_rope_cases(),
        "gated_norm": norm::gated_norm_cases(),
        "attention": attention::cases(),
        "sigmoid_gate": elementwise::sigmoid_gate_cases(),
        "linear": linear::linear_cases(),
        "linear_glu": linear::glu_cases(),
        "causal_conv_silu": elementwise::causal_conv_cases(),
        "gated_delta_rule": delta::cases(),
        "euler_step": elementwise::euler_cases(),
        "unpack_latents": image::unpack_cases(),
        "conv2d": image::conv_cases(),
        "group_norm": image::group_norm_cases(),
    }
}

/// The operations that have sizes of the model's own, in the order in which a report names them.
pub const MODEL_OPERATIONS: [&str; 7] =
    ["norm", "attention", "linear", "linear_glu", "causal_conv_silu", "gated_delta_rule", "conv2d"];

/// Runs operation `op` at the sizes of a model: its widths and heads, few tokens.
///
/// # Panics
/// When it is none of [`MODEL_OPERATIONS`].
pub fn at_model_sizes<B: Backend>(
    op: &str,
    config: &ModelConfig,
    backends: &[B],
    demand: Demand,
) -> Result<Summary, BatteryError> {
    match op {
        "norm" => run("norm", norm::norm_model_cases(config), backends, demand),
        "attention" => run("attention", attention::model_cases(config), backends, demand),
        "linear" => run("linear", linear::linear_model_cases(config), backends, demand),
        "linear_glu" => run("linear_glu", linear::glu_model_cases(config), backends, demand),
        "causal_conv_silu" => {
            run("causal_conv_silu", elementwise::causal_conv_model_cases(config), backends, demand)
        }
        "gated_delta_rule" => run("gated_delta_rule", delta::model_cases(config), backends, demand),
        "conv2d" => run("conv2d", image::conv_model_cases(config), backends, demand),
        _ => panic!("battery: no operation {op} at a model's sizes"),
    }
}

/// Runs every operation's cases on some backends, one summary an operation, up to the first that fails.
pub fn all<B: Backend>(backends: &[B], demand: Demand) -> Result<Vec<Summary>, BatteryError> {
    all_served(backends, demand, &|_| false)
}

/// As [`all`] on backends that do not serve every size; see [`run_served`].
pub fn all_served<B: Backend>(
    backends: &[B],
    demand: Demand,
    refuses: &dyn Fn(&BackendError) -> bool,
) -> Result<Vec<Summary>, BatteryError> {
    OPERATIONS.iter().map(|op| one(op, backends, demand, 1, refuses)).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use moss_reference::backend::HostData;

    use super::*;

    /// Gives the next of its values at each run: the first run is the oracle's.
    struct Drifting {
        values: [f32; 2],
        run: Cell<usize>,
        expected: Bounded,
    }

    fn drifting(values: [f32; 2], expected: Bounded) -> Drifting {
        Drifting { values, run: Cell::new(0), expected }
    }

    impl Case for Drifting {
        fn name(&self) -> String {
            "drifting".into()
        }

        fn run<B: Backend>(&self, backend: &B, _: &[B::Tensor]) -> Result<B::Tensor, BackendError> {
            let run = self.run.replace(self.run.get() + 1);
            if run == self.values.len() {
                return Err(BackendError::new(std::io::Error::other("worn out")));
            }
            backend.upload(HostData::F32(vec![self.values[run]]), &[1])
        }

        fn expected(&self) -> Vec<Bounded> {
            vec![self.expected]
        }
    }

    fn run_once(case: Drifting, demand: Demand) -> Result<Summary, BatteryError> {
        run("drift", [case], &[OracleBackend], demand)
    }

    #[test]
    fn other_bits_fail_even_within_the_budget() {
        let expected = Bounded::new(0.0, 1.0);
        assert_eq!(run_once(drifting([0.0, 0.0], expected), Demand::Bits).unwrap().cases, 1);
        let error = run_once(drifting([0.0, -0.0], expected), Demand::Bits).unwrap_err();
        assert!(matches!(error, BatteryError::Apart(CompareError::Bits { .. })), "{error}");
        assert!(error.to_string().starts_with("scalar oracle: drifting: 1 of 1 elements"), "{error}");
        let row = row("operations", "drift", Demand::Bits, &Err(error), Word::Measured);
        assert!(!row.passes() && row.name == "drift" && row.detail.contains("1 of 1 elements"), "{row}");
    }

    #[test]
    fn equal_bits_fail_outside_the_budget() {
        let expected = Bounded::new(1.0, 0.25);
        for demand in [Demand::Bits, Demand::Budget] {
            let within = run_once(drifting([1.25, 1.25], expected), demand);
            let row = row("operations", "drift", demand, &within, Word::Measured);
            assert!(row.passes() && row.share() == Some(1.0), "{row}");
            let error = run_once(drifting([1.5, 1.5], expected), demand).unwrap_err();
            assert!(matches!(error, BatteryError::Apart(CompareError::OverBudget { .. })), "{error}");
        }
    }

    #[test]
    fn a_stride_counts_the_cases_that_are_served() {
        // `at` 0 is served; at 1 the oracle has its value and the backend fails.
        let cases = |starts: &[usize], stride| {
            let list = starts.iter().map(|&at| {
                let case = drifting([0.0, 0.0], Bounded::from(0.0));
                case.run.set(at);
                case
            });
            run_served("drift", list, &[OracleBackend], Demand::Bits, stride, &|_| true)
        };
        let summary = cases(&[1, 0, 0, 1, 0], 3).unwrap();
        assert_eq!(
            (summary.cases, summary.refused),
            (2, 1),
            "the first refused, the next two served passed over"
        );
        let summary = cases(&[1, 1], 1);
        let row = row("operations", "drift", Demand::Bits, &summary, Word::Measured);
        assert!(!row.passes() && row.name == "drift: no case ran", "{row}");
    }

    #[test]
    fn a_failing_backend_is_named() {
        let case = drifting([0.0, 0.0], Bounded::from(0.0));
        case.run.set(2);
        let error = run_once(case, Demand::Bits).unwrap_err();
        assert_eq!(error.to_string(), "scalar oracle: drifting: worn out");
    }

    #[test]
    fn stored_weights_come_back_stacked() {
        let host = Rng::new(0).bf16(&[5, 3], Fill::Normal(1.0));
        let stored = Stored::new(&[(Role::Matrix, &host)]);
        assert_eq!(stored.stage().fixed[0].parts.len(), 2);
        let stage = OracleBackend.load(stored.stage()).unwrap();
        let back = OracleBackend.fixed(&stage).remove(0);
        assert_eq!(OracleBackend.download(&back).unwrap(), host.data);
    }
}
