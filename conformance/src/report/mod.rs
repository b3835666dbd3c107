//! The conformance report: what ran where, every figure with its limit, pictures side by side.

mod html;
mod json;
mod machine;
mod markdown;
mod picture;

use std::io::{self, Write};
use std::path::Path;

pub use machine::Machine;
pub use picture::Pair;

use crate::row::Row;

/// How a report is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Markdown, for an issue's text.
    Markdown,
    /// JSON, for programs; numbers that JSON has no name for are null.
    Json,
    /// One file for a browser, pictures inside.
    Html,
}

impl Format {
    /// The format that a file's ending asks for: `md`, `json` or `html`.
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "md" => Some(Format::Markdown),
            "json" => Some(Format::Json),
            "html" => Some(Format::Html),
            _ => None,
        }
    }
}

/// Everything that a run showed. Holds no date or duration, so that two runs can be compared as files.
#[derive(Clone, Debug)]
pub struct Report {
    /// Program and version.
    pub program: String,
    /// Where it ran.
    pub machine: Machine,
    /// The backend's own line.
    pub backend: String,
    /// The model that was asked for.
    pub model: String,
    /// What did not run and why.
    pub notes: Vec<String>,
    /// The figures, rows of one group one after another.
    pub rows: Vec<Row>,
    /// Pictures of the cases that have one.
    pub pictures: Vec<Pair>,
}

impl Report {
    /// The rows that break their limit.
    pub fn failed(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| !row.passes())
    }

    /// One line: whether everything passed, and how many rows there are. A report without rows does not pass.
    pub fn verdict(&self) -> String {
        match (self.rows.len(), self.failed().count()) {
            (0, _) => "FAIL: nothing ran".into(),
            (rows, 0) => format!("PASS: {rows} rows"),
            (rows, failed) => format!("FAIL: {failed} of {rows} rows"),
        }
    }

    /// Whether there are rows and all pass.
    pub fn passes(&self) -> bool {
        !self.rows.is_empty() && self.failed().next().is_none()
    }

    /// Writes the report.
    ///
    /// # Errors
    /// What `to` fails with.
    pub fn write(&self, format: Format, to: &mut dyn Write) -> io::Result<()> {
        match format {
            Format::Markdown => markdown::write(self, to),
            Format::Json => json::write(self, to),
            Format::Html => html::write(self, to),
        }
    }

    /// The rows by group, in order.
    fn groups(&self) -> impl Iterator<Item = &[Row]> {
        self.rows.chunk_by(|a, b| a.group == b.group)
    }

    /// The lines of the header, name and value.
    fn header(&self) -> [(&'static str, String); 5] {
        let Machine { cpu, cores, os } = &self.machine;
        [
            ("Program", self.program.clone()),
            ("Backend", self.backend.clone()),
            ("Model", self.model.clone()),
            ("CPU", format!("{cpu}, {cores} threads")),
            ("System", os.clone()),
        ]
    }
}

/// A figure as text: whole numbers whole, others with five significant digits.
fn number(x: f64) -> String {
    if x == x.trunc() && x.abs() < 1e15 {
        return format!("{x:.0}");
    }
    match x.abs() {
        // Cosines: what matters is how far they are from 1.
        near if (0.9..1.0).contains(&near) => format!("{x:.9}"),
        middle if (1e-3..1e5).contains(&middle) => format!("{x:.5}"),
        _ => format!("{x:.4e}"),
    }
}

/// A limit with its direction, or a dash.
fn limit(row: &Row) -> String {
    if row.limit.is_infinite() {
        return "–".into();
    }
    format!("{} {}", row.rule.sign(), number(row.limit))
}

/// The share of the limit in percent, or a dash.
fn share(row: &Row) -> String {
    row.share().map_or_else(|| "–".into(), |share| format!("{:.1} %", 100.0 * share))
}

fn verdict(row: &Row) -> &'static str {
    if row.passes() { "pass" } else { "FAIL" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{Rule, Word};

    fn row(group: &str, name: &str, figure: f64, limit: f64, rule: Rule) -> Row {
        Row {
            group: group.into(),
            name: name.into(),
            figure,
            limit,
            rule,
            reason: "f32 | bf16 <sums>".into(),
            detail: format!("worst at 3 of {name}"),
            word: Word::Emulated,
        }
    }

    fn report(rows: Vec<Row>) -> Report {
        let pair = Pair::new("small", 2, 1, vec![0, 0, 0, 255, 9, 9], vec![0, 0, 0, 255, 9, 8]).unwrap();
        Report {
            program: "moss 0".into(),
            machine: Machine { cpu: "A & B".into(), cores: 3, os: "Some OS".into() },
            backend: "cpu".into(),
            model: "demo".into(),
            notes: vec!["no golden cases <here>".into()],
            rows,
            pictures: vec![pair],
        }
    }

    fn text(report: &Report, format: Format) -> String {
        let mut bytes = Vec::new();
        report.write(format, &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    fn good() -> Vec<Row> {
        vec![
            row("operations", "linear", 0.25, 1.0, Rule::AtMost),
            row("case", "cosine", 0.99999, 0.9999, Rule::AtLeast),
            row("case", "tokens", 0.0, 0.0, Rule::AtMost),
        ]
    }

    #[test]
    fn a_failing_row_is_seen_in_every_format() {
        let passing = report(good());
        let mut rows = good();
        rows.push(row("case", "velocity", 2.0, 1.0, Rule::AtMost));
        rows.push(row("case", "nothing", f64::NAN, 1.0, Rule::AtMost));
        let failing = report(rows);
        assert!(passing.passes() && !failing.passes());
        for format in [Format::Markdown, Format::Html] {
            let (passed, failed) = (text(&passing, format), text(&failing, format));
            assert!(passed.contains("PASS: 3 rows") && !passed.contains("FAIL"), "{passed}");
            assert!(failed.contains("FAIL: 2 of 5 rows"), "{failed}");
            assert_eq!(failed.matches("FAIL").count(), 3, "{failed}");
            assert!(failed.contains("worst at 3 of velocity") && failed.contains("NaN"), "{failed}");
            assert!(!failed.contains("worst at 3 of linear"), "details of rows that pass are left out");
            assert!(failed.contains("emulated") && failed.contains("200.0 %") && failed.contains("25.0 %"));
        }
        let value: serde_json::Value = serde_json::from_str(&text(&failing, Format::Json)).unwrap();
        assert_eq!(value["passes"], false);
        assert_eq!(value["rows"][0]["passes"], true);
        assert_eq!(value["rows"][0]["word"], "emulated");
        assert_eq!(value["rows"][3]["passes"], false);
        assert_eq!(value["rows"][3]["detail"], "worst at 3 of velocity");
        assert_eq!(value["rows"][4]["passes"], false);
        assert!(value["rows"][4]["figure"].is_null());
        assert_eq!(value["machine"]["cores"], 3);
        assert_eq!(value["pictures"][0]["levels_apart"], 1);
        let value: serde_json::Value = serde_json::from_str(&text(&passing, Format::Json)).unwrap();
        assert_eq!(value["passes"], true);
    }

    #[test]
    fn nothing_run_is_no_pass() {
        let empty = report(Vec::new());
        assert!(!empty.passes());
        assert!(text(&empty, Format::Markdown).contains("FAIL: nothing ran"));
    }

    #[test]
    fn what_a_format_reads_as_its_own_signs_is_escaped() {
        let html = text(&report(good()), Format::Html);
        assert!(
            html.contains("A &amp; B") && html.contains("&lt;here&gt;") && html.contains("bf16 &lt;sums&gt;")
        );
        assert!(!html.contains("<sums>") && !html.contains("<here>"));
        let markdown = text(&report(good()), Format::Markdown);
        assert!(markdown.contains("f32 \\| bf16"), "{markdown}");
    }

    #[test]
    fn groups_have_their_own_tables_and_pictures_are_inside() {
        let html = text(&report(good()), Format::Html);
        assert_eq!(html.matches("<table class=\"rows\">").count(), 2);
        assert_eq!(html.matches("data:image/png;base64,").count(), 3);
        assert!(!html.contains("http"), "self-contained");
    }

    #[test]
    fn formats_are_told_by_their_ending() {
        assert_eq!(Format::of(Path::new("a.md")), Some(Format::Markdown));
        assert_eq!(Format::of(Path::new("a/b.JSON")), Some(Format::Json));
        assert_eq!(Format::of(Path::new("x.html")), Some(Format::Html));
        assert_eq!(Format::of(Path::new("x.pdf")), None);
        assert_eq!(Format::of(Path::new("html")), None);
    }

    #[test]
    fn numbers_keep_what_matters() {
        assert_eq!(number(0.0), "0");
        assert_eq!(number(1.5e-7), "1.5000e-7");
        assert_eq!(number(0.99998), "0.999980000");
        assert_eq!(number(0.25), "0.25000");
        assert_eq!(number(f64::INFINITY), "inf");
    }
}
