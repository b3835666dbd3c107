//! One line of a report: a figure, what it may be, and what kind of number it is.

use serde::Serialize;

/// How a figure was obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Word {
    /// On the machine that the report names.
    Measured,
    /// By machine code on an emulator.
    Emulated,
    /// On other hardware, as a check of the logic.
    LogicChecked,
}

impl std::fmt::Display for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Word::Measured => "measured",
            Word::Emulated => "emulated",
            Word::LogicChecked => "logic-checked",
        })
    }
}

/// Whether a larger or a smaller figure is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// The figure must not be above the limit.
    AtMost,
    /// The figure must not be below the limit.
    AtLeast,
}

impl Rule {
    /// The rule as a sign between a figure and its limit.
    pub fn sign(self) -> &'static str {
        match self {
            Rule::AtMost => "<=",
            Rule::AtLeast => ">=",
        }
    }
}

/// A figure with its limit.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The case or battery that it belongs to.
    pub group: String,
    /// What was compared.
    pub name: String,
    /// What came out.
    pub figure: f64,
    /// What may come out.
    pub limit: f64,
    /// In which direction.
    pub rule: Rule,
    /// Where the limit comes from.
    pub reason: String,
    /// More about the comparison: worst element, both values.
    pub detail: String,
    /// What kind of number it is.
    pub word: Word,
}

impl Row {
    /// Whether the figure keeps its limit; a NaN never does.
    pub fn passes(&self) -> bool {
        match self.rule {
            Rule::AtMost => self.figure <= self.limit,
            Rule::AtLeast => self.figure >= self.limit,
        }
    }

    /// Share of the limit that is used. For figures that must not be below their limit (cosines) it is what they lack to 1,
    /// over what they may lack. `None` where there is no limit, or none to share.
    pub fn share(&self) -> Option<f64> {
        match self.rule {
            Rule::AtMost => (self.limit > 0.0 && self.limit.is_finite()).then(|| self.figure / self.limit),
            Rule::AtLeast => (self.limit < 1.0).then(|| (1.0 - self.figure) / (1.0 - self.limit)),
        }
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let verdict = if self.passes() { "ok  " } else { "FAIL" };
        write!(f, "{verdict} {} / {}: {:.6e}", self.group, self.name, self.figure)?;
        if self.limit.is_finite() {
            write!(f, " {} {:.6e}", self.rule.sign(), self.limit)?;
        }
        if let Some(share) = self.share() {
            write!(f, " ({:.1} %)", 100.0 * share)?;
        }
        if !self.passes() && !self.detail.is_empty() {
            write!(f, "; {}", self.detail)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(figure: f64, limit: f64, rule: Rule) -> Row {
        let (group, name, reason, detail) = ("g".into(), "n".into(), "r".into(), "worst at 3".into());
        Row { group, name, figure, limit, rule, reason, detail, word: Word::Measured }
    }

    #[test]
    fn limits_are_kept_or_not() {
        assert!(row(1.0, 1.0, Rule::AtMost).passes());
        assert!(!row(1.1, 1.0, Rule::AtMost).passes());
        assert!(row(1.0, 1.0, Rule::AtLeast).passes());
        assert!(!row(0.9, 1.0, Rule::AtLeast).passes());
        assert!(!row(f64::NAN, 1.0, Rule::AtMost).passes());
        assert!(row(1.1, 1.0, Rule::AtMost).to_string().starts_with("FAIL g / n: 1.1"));
        assert!(row(1.1, 1.0, Rule::AtMost).to_string().contains("worst at 3"));
        assert_eq!(row(0.5, 1.0, Rule::AtMost).share(), Some(0.5));
        assert_eq!(row(0.5, 0.0, Rule::AtMost).share(), None);
        let free = row(0.5, f64::INFINITY, Rule::AtMost);
        assert_eq!((free.share(), free.to_string()), (None, "ok   g / n: 5.000000e-1".into()));
        assert_eq!(row(0.75, 0.5, Rule::AtLeast).share(), Some(0.5));
        assert_eq!(row(0.75, 1.0, Rule::AtLeast).share(), None);
    }
}
