//! How far results are from the CPU's where a matrix unit does not sum as the reference does: figures without a limit, so that
//! one card can be told from another.

use crate::compare::compare;
use crate::golden::Outcome;
use crate::row::{Row, Rule, Word};

/// What the groups of these rows start with.
pub const GROUP: &str = "distance from the reference";

/// A row of the group [`GROUP`]`: of` without a limit.
pub fn row(of: &str, name: &str, figure: f64, detail: String, word: Word) -> Row {
    Row {
        group: format!("{GROUP}: {of}"),
        name: name.into(),
        figure,
        limit: f64::INFINITY,
        rule: Rule::AtMost,
        reason: "a matrix unit may sum in another order; the limits are in the other groups".into(),
        detail,
        word,
    }
}

/// The relative L2 distance; NaN, which no row passes with, when lengths differ or a value is not finite.
pub(crate) fn relative_l2(actual: &[f32], expected: &[f32]) -> f64 {
    let expected: Vec<f64> = expected.iter().map(|&x| x.into()).collect();
    compare("", actual, &expected, |_| f64::INFINITY).map_or(f64::NAN, |found| found.relative_l2)
}

/// The rows of a case that ran on a backend and on the CPU: the distance of every stage, and the pictures' levels.
pub fn rows(case: &str, ours: &Outcome, cpu: &Outcome, word: Word) -> Vec<Row> {
    let mut rows: Vec<Row> = cpu
        .results
        .iter()
        .map(|(name, expected)| {
            let found = ours.results.iter().find(|(other, _)| other == name);
            let figure = found.map_or(f64::NAN, |(_, actual)| relative_l2(actual, expected));
            row(case, name, figure, format!("{} elements", expected.len()), word)
        })
        .collect();
    let apart = || ours.picture.iter().zip(&cpu.picture).map(|(a, b)| a.abs_diff(*b));
    let same_size = ours.picture.len() == cpu.picture.len();
    let most = apart().max().filter(|_| same_size).map_or(f64::NAN, f64::from);
    let detail = format!("{} of {} samples differ", apart().filter(|&x| x > 0).count(), cpu.picture.len());
    rows.push(row(case, "picture: levels apart, of 255", most, detail, word));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(text: &[f32], picture: &[u8]) -> Outcome {
        let results = vec![("text".into(), text.to_vec())];
        Outcome { rows: Vec::new(), picture: picture.to_vec(), official: Vec::new(), results }
    }

    #[test]
    fn equal_results_are_at_zero_and_others_are_not() {
        let cpu = outcome(&[3.0, 4.0], &[1, 9]);
        let figures = |ours: &Outcome| {
            let rows = rows("small", ours, &cpu, Word::Emulated);
            assert!(rows.iter().all(|row| row.share().is_none() && row.passes() == row.figure.is_finite()));
            assert!(rows.iter().all(|row| row.group == "distance from the reference: small"));
            rows.iter().map(|row| row.figure).collect::<Vec<_>>()
        };
        assert_eq!(figures(&outcome(&[3.0, 4.0], &[1, 9])), [0.0, 0.0]);
        assert_eq!(figures(&outcome(&[3.0, 4.5], &[2, 7])), [0.1, 2.0]);
        assert!(figures(&outcome(&[3.0], &[1])).iter().all(|figure| figure.is_nan()));
        assert!(figures(&outcome(&[f32::NAN, 4.0], &[1, 9]))[0].is_nan());
    }
}
