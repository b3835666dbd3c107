//! Cases of drawn sizes, options and values: proptest draws them and shrinks one that fails to a small one.

use std::cell::RefCell;

use moss_reference::backend::{Backend, BackendError};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use super::inputs::{Fill, Rng};
use super::{BatteryError, Demand, Summary};
use super::{attention, delta, elementwise, image, linear, norm, run_served};

/// What a case is made from; an operation takes what it needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draw {
    /// Tokens, or columns of a picture.
    pub tokens: usize,
    /// Inputs, or the width of a head; a multiple of the grain.
    pub inputs: usize,
    /// Outputs; a multiple of the grain.
    pub outputs: usize,
    /// Heads, groups, or rows of a picture.
    pub heads: usize,
    /// Query heads to a key/value head, value heads to a key head.
    pub ratio: usize,
    /// Columns before and between heads; a multiple of the grain.
    pub gap: usize,
    /// Where the tokens are cut in two, once taken modulo their number.
    pub cut: usize,
    /// What an operation has to choose.
    pub options: [bool; 3],
    /// Which of an operation's fills.
    pub fill: usize,
    /// Seed of the values.
    pub seed: u64,
    /// What widths are multiples of.
    pub grain: usize,
}

impl Draw {
    fn strategy(grain: usize) -> impl Strategy<Value = Draw> {
        let widths = 1..=96 / grain;
        let sizes = (1..=70usize, widths.clone(), widths, 1..=4usize, 1..=3usize, 0..=1usize);
        let rest = (0..=70usize, any::<[bool; 3]>(), 0..3usize, any::<u64>());
        (sizes, rest).prop_map(
            move |((tokens, inputs, outputs, heads, ratio, gap), (cut, options, fill, seed))| Draw {
                tokens,
                inputs: inputs * grain,
                outputs: outputs * grain,
                heads,
                ratio,
                gap: gap * grain,
                cut,
                options,
                fill,
                seed,
                grain,
            },
        )
    }

    /// The values' generator.
    pub(super) fn rng(&self) -> Rng {
        Rng::new(self.seed)
    }

    /// The drawn one of an operation's fills.
    pub(super) fn fill(&self, fills: [Fill; 3]) -> Fill {
        fills[self.fill]
    }

    /// The tokens in one or two segments.
    pub(super) fn segments(&self) -> Vec<usize> {
        match self.cut % self.tokens {
            0 => vec![self.tokens],
            cut => vec![cut, self.tokens - cut],
        }
    }
}

/// How cases are drawn.
#[derive(Clone, Copy, Debug)]
pub struct Draws {
    /// Cases of an operation.
    pub cases: u32,
    /// The same seed draws the same cases.
    pub seed: u64,
    /// What widths are multiples of: 1, or 16 for a backend that serves these alone.
    pub grain: usize,
}

/// Runs drawn cases of operation `op` as [`super::one`] runs the fixed ones.
///
/// # Errors
/// [`BatteryError::Drawn`] with the smallest failing case that was found.
///
/// # Panics
/// When there is no such operation.
pub fn drawn<B: Backend>(
    op: &str,
    backends: &[B],
    demand: Demand,
    draws: Draws,
    refuses: &dyn Fn(&BackendError) -> bool,
) -> Result<Summary, BatteryError> {
    macro_rules! choose {
        ($draw:expr; $($name:literal: $case:path),+ $(,)?) => {
            match op {
                $($name => run_served($name, [$case($draw)], backends, demand, 1, refuses),)+
                _ => panic!("battery: no operation {op}"),
            }
        };
    }
    let run = |draw: &Draw| {
        choose! {
            draw;
            "concat": elementwise::concat_drawn,
            "to_bf16": elementwise::to_bf16_drawn,
            "norm": norm::norm_drawn,
            "head_norm_rope": norm::head_norm_rope_drawn,
            "gated_norm": norm::gated_norm_drawn,
            "attention": attention::drawn,
            "sigmoid_gate": elementwise::sigmoid_gate_drawn,
            "linear": linear::linear_drawn,
            "linear_glu": linear::glu_drawn,
            "causal_conv_silu": elementwise::causal_conv_drawn,
            "gated_delta_rule": delta::drawn,
            "euler_step": elementwise::euler_drawn,
            "unpack_latents": image::unpack_drawn,
            "conv2d": image::conv_drawn,
            "group_norm": image::group_norm_drawn,
        }
    };
    let (cases, max_shrink_iters) = (draws.cases, 2000);
    let config = Config { cases, max_shrink_iters, failure_persistence: None, ..Config::default() };
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&draws.seed.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    let sum: RefCell<Option<Summary>> = RefCell::new(None);
    let tried = runner.run(&Draw::strategy(draws.grain), |draw| {
        let summary = run(&draw).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let mut sum = sum.borrow_mut();
        *sum = Some(match sum.take() {
            Some(sum) => sum.and(summary),
            None => summary,
        });
        Ok(())
    });
    match tried {
        Ok(()) => Ok(sum.into_inner().expect("a case is drawn")),
        Err(TestError::Fail(_, draw)) => match run(&draw) {
            Err(source) => Err(BatteryError::Drawn { seed: draws.seed, source: Box::new(source) }),
            Ok(_) => panic!("{op}: fails once and passes again with {draw:?}"),
        },
        Err(TestError::Abort(reason)) => panic!("{op}: no case can be drawn: {reason}"),
    }
}
