//! The one comparison that everything is judged by: how far two results are apart, and whether that is
//! within a budget that was derived from arithmetic before anything ran.

use std::fmt;

/// Largest relative error of one rounding to bf16: 8 significant bits, to nearest, so half an ulp is 2^-8 of 1.
pub const BF16_ROUNDOFF: f64 = 1.0 / 256.0;

/// Largest relative error of one rounding to f32: 24 significant bits, to nearest, so half an ulp is 2^-24 of 1.
pub const F32_ROUNDOFF: f64 = 1.0 / 16_777_216.0;

/// The error allowed to an element whose expected value is `e`: `atol + rtol * |e|`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// Absolute part.
    pub atol: f64,
    /// Relative part.
    pub rtol: f64,
}

impl Budget {
    /// No error at all (zeros of either sign are equal in value; [`same_bits`] tells them apart).
    pub const EXACT: Self = Self { atol: 0.0, rtol: 0.0 };

    /// The error allowed at an expected value.
    pub fn at(self, expected: f64) -> f64 {
        self.atol + self.rtol * expected.abs()
    }
}

/// How far `actual` is from `expected`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// Elements compared.
    pub len: usize,
    /// Largest `|actual - expected|`.
    pub max_abs: f64,
    /// Largest `|actual - expected| / |expected|` over the elements that are expected to be non-zero.
    pub max_rel: f64,
    /// `||actual - expected|| / ||expected||`, Euclidean; 0 when both are zero.
    pub relative_l2: f64,
    /// Cosine of the angle between the two as vectors; 1 when both are zero, 0 when one is.
    pub cosine: f64,
    /// Where the largest share of the budget is used.
    pub worst: Worst,
}

/// The element that is worst off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worst {
    /// Its place.
    pub index: usize,
    /// What was found.
    pub actual: f64,
    /// What was expected.
    pub expected: f64,
    /// `|actual - expected|` over the budget: 1 is the limit. 0 when there is no error, infinite when
    /// there is one and the budget is 0.
    pub budget_used: f64,
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Comparison { len, max_abs, max_rel, relative_l2, cosine, worst } = self;
        write!(
            f,
            "{len} elements, max abs {max_abs:.3e}, max rel {max_rel:.3e}, relative L2 {relative_l2:.3e}, \
             cosine {cosine:.9}, worst at {}: {:e} for {:e}, {:.1} % of the budget",
            worst.index,
            worst.actual,
            worst.expected,
            100.0 * worst.budget_used
        )
    }
}

/// Why a comparison failed. `what` names the operation or tensor and its sizes.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CompareError {
    /// The two sides have different numbers of elements, or there are none.
    #[error("{what}: {actual} elements, expected {expected} (and at least one)")]
    Length {
        /// What was compared.
        what: String,
        /// Elements found.
        actual: usize,
        /// Elements expected.
        expected: usize,
    },
    /// A value is NaN, or infinite where the other side is not the same infinity.
    #[error("{what}: element {index} is {actual:e}, expected {expected:e}")]
    NotFinite {
        /// What was compared.
        what: String,
        /// Place of the first such element.
        index: usize,
        /// Value found.
        actual: f64,
        /// Value expected.
        expected: f64,
    },
    /// An element is further away than its budget.
    #[error("{what}: over budget: {comparison}")]
    OverBudget {
        /// What was compared.
        what: String,
        /// The whole measurement.
        comparison: Comparison,
    },
    /// Two results that must have the same bits do not.
    #[error(
        "{what}: {different} of {len} elements have other bits, first at {index}: \
         {actual:e} ({actual_bits:#010x}), expected {expected:e} ({expected_bits:#010x})"
    )]
    Bits {
        /// What was compared.
        what: String,
        /// Elements that differ.
        different: usize,
        /// Elements in all.
        len: usize,
        /// Place of the first difference.
        index: usize,
        /// Value found there.
        actual: f32,
        /// Value expected there.
        expected: f32,
        /// Bits found there.
        actual_bits: u32,
        /// Bits expected there.
        expected_bits: u32,
    },
}

/// Measures `actual` against `expected`, allowing element `i` the error `budget(i)`; an error names `what`.
///
/// Equal infinities agree; any other non-finite value is an error, and so is an element over its budget.
pub fn compare(
    what: &str,
    actual: &[f32],
    expected: &[f64],
    budget: impl Fn(usize) -> f64,
) -> Result<Comparison, CompareError> {
    check_length(what, actual.len(), expected.len())?;
    let mut worst = Worst { index: 0, actual: 0.0, expected: 0.0, budget_used: -1.0 };
    let (mut max_abs, mut max_rel) = (0f64, 0f64);
    let (mut error2, mut actual2, mut expected2, mut dot) = (0f64, 0f64, 0f64, 0f64);
    for (index, (&a, &e)) in actual.iter().zip(expected).enumerate() {
        let a = f64::from(a);
        if a.is_infinite() && a == e {
            continue;
        }
        if !a.is_finite() || !e.is_finite() {
            return Err(CompareError::NotFinite { what: what.into(), index, actual: a, expected: e });
        }
        let error = (a - e).abs();
        max_abs = max_abs.max(error);
        if e != 0.0 {
            max_rel = max_rel.max(error / e.abs());
        }
        error2 += error * error;
        actual2 += a * a;
        expected2 += e * e;
        dot += a * e;
        let share = if error == 0.0 { 0.0 } else { error / budget(index) };
        // A budget that is not a number allows nothing.
        let budget_used = if share.is_nan() { f64::INFINITY } else { share };
        if budget_used > worst.budget_used {
            worst = Worst { index, actual: a, expected: e, budget_used };
        }
    }
    let comparison = Comparison {
        len: actual.len(),
        max_abs,
        max_rel,
        relative_l2: if error2 == 0.0 { 0.0 } else { (error2 / expected2).sqrt() },
        cosine: match (actual2 == 0.0, expected2 == 0.0) {
            (true, true) => 1.0,
            (false, false) => dot / (actual2.sqrt() * expected2.sqrt()),
            _ => 0.0,
        },
        worst: Worst { budget_used: worst.budget_used.max(0.0), ..worst },
    };
    if worst.budget_used <= 1.0 {
        Ok(comparison)
    } else {
        Err(CompareError::OverBudget { what: what.into(), comparison })
    }
}

/// Checks that two results have the same bits, element by element; an error names `what`.
pub fn same_bits(what: &str, actual: &[f32], expected: &[f32]) -> Result<(), CompareError> {
    check_length(what, actual.len(), expected.len())?;
    let differs = |&i: &usize| actual[i].to_bits() != expected[i].to_bits();
    let Some(index) = (0..actual.len()).find(differs) else { return Ok(()) };
    Err(CompareError::Bits {
        what: what.into(),
        different: (0..actual.len()).filter(differs).count(),
        len: actual.len(),
        index,
        actual: actual[index],
        expected: expected[index],
        actual_bits: actual[index].to_bits(),
        expected_bits: expected[index].to_bits(),
    })
}

fn check_length(what: &str, actual: usize, expected: usize) -> Result<(), CompareError> {
    if actual == expected && actual > 0 {
        return Ok(());
    }
    Err(CompareError::Length { what: what.into(), actual, expected })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(actual: &[f32], expected: &[f64], budget: Budget) -> Result<Comparison, CompareError> {
        compare("test", actual, expected, |i| budget.at(expected[i]))
    }

    #[test]
    fn figures_by_hand() {
        let c = flat(&[3.0, 4.5, 0.0], &[3.0, 4.0, 0.0], Budget { atol: 0.0, rtol: 0.25 }).unwrap();
        assert_eq!((c.len, c.max_abs, c.max_rel), (3, 0.5, 0.125));
        assert_eq!(c.relative_l2, 0.1);
        assert!((c.cosine - 27.0 / (5.0 * 29.25f64.sqrt())).abs() < 1e-15);
        assert_eq!(c.worst, Worst { index: 1, actual: 4.5, expected: 4.0, budget_used: 0.5 });
        assert!(c.to_string().contains("worst at 1: 4.5e0 for 4e0, 50.0 % of the budget"), "{c}");
    }

    #[test]
    fn worst_is_by_budget_not_by_size() {
        let c = compare("test", &[101.0, 1.5], &[100.0, 1.0], |i| [10.0, 1.0][i]).unwrap();
        assert_eq!((c.worst.index, c.max_abs), (1, 1.0));
    }

    #[test]
    fn equal_sides_use_no_budget() {
        let c = flat(&[0.0, f32::INFINITY, -7.0], &[0.0, f64::INFINITY, -7.0], Budget::EXACT).unwrap();
        assert_eq!((c.max_abs, c.relative_l2, c.cosine, c.worst.budget_used), (0.0, 0.0, 1.0, 0.0));
        assert_eq!(flat(&[0.0], &[0.0], Budget::EXACT).unwrap().cosine, 1.0);
        same_bits("test", &[f32::NAN, 1.0], &[f32::NAN, 1.0]).unwrap();
    }

    #[test]
    fn over_budget() {
        let error = flat(&[1.0, 2.0], &[1.0, 2.5], Budget { atol: 0.1, rtol: 0.1 }).unwrap_err();
        let CompareError::OverBudget { comparison, .. } = &error else { panic!("{error}") };
        assert_eq!(comparison.worst.index, 1);
        assert!(error.to_string().starts_with("test: over budget: 2 elements"), "{error}");
        // Any error is too much for an exact budget, and a budget that is not a number allows nothing.
        assert!(flat(&[1.0], &[1.0 + 1e-9], Budget::EXACT).is_err());
        assert!(compare("test", &[1.0, 1.0], &[1.5, 1.0], |_| f64::NAN).is_err());
    }

    #[test]
    fn not_finite() {
        for (a, e) in
            [(f32::NAN, 1.0), (1.0, f64::NAN), (f32::INFINITY, 1.0), (f32::INFINITY, f64::NEG_INFINITY)]
        {
            let error = flat(&[0.0, a], &[0.0, e], Budget { atol: 1e300, rtol: 0.0 }).unwrap_err();
            assert!(matches!(error, CompareError::NotFinite { index: 1, .. }), "{error}");
        }
    }

    #[test]
    fn length() {
        let error = flat(&[1.0], &[1.0, 2.0], Budget::EXACT).unwrap_err();
        assert_eq!(error.to_string(), "test: 1 elements, expected 2 (and at least one)");
        assert!(matches!(flat(&[], &[], Budget::EXACT), Err(CompareError::Length { .. })));
        assert!(matches!(same_bits("test", &[], &[]), Err(CompareError::Length { .. })));
    }

    #[test]
    fn bits() {
        let error = same_bits("test", &[1.0, 0.0, 2.0], &[1.0, -0.0, 3.0]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "test: 2 of 3 elements have other bits, first at 1: 0e0 (0x00000000), expected -0e0 (0x80000000)"
        );
    }
}
