//! The report as the text of an issue.

use std::io::{self, Write};

use super::{Report, limit, number, share, verdict};

pub(super) fn write(report: &Report, to: &mut dyn Write) -> io::Result<()> {
    writeln!(to, "# Conformance report\n\n**{}**\n", report.verdict())?;
    for (name, value) in report.header() {
        writeln!(to, "- {name}: {}", cell(&value))?;
    }
    for note in &report.notes {
        writeln!(to, "- Note: {}", cell(note))?;
    }
    for rows in report.groups() {
        writeln!(to, "\n## {}\n", cell(&rows[0].group))?;
        writeln!(to, "| What | Figure | Limit | Share used | Verdict | How | Where the limit comes from |")?;
        writeln!(to, "|---|---|---|---|---|---|---|")?;
        for row in rows {
            let verdict = match verdict(row) {
                "FAIL" => "**FAIL**",
                pass => pass,
            };
            let (name, reason) = (cell(&row.name), cell(&row.reason));
            let (figure, limit, share, word) = (number(row.figure), limit(row), share(row), row.word);
            writeln!(to, "| {name} | {figure} | {limit} | {share} | {verdict} | {word} | {reason} |")?;
        }
        for row in rows.iter().filter(|row| !row.passes()) {
            writeln!(to, "\n{}: {}", cell(&row.name), cell(&row.detail))?;
        }
    }
    if !report.pictures.is_empty() {
        writeln!(to, "\n## Pictures\n\n| Case | Size | Levels apart from the official picture, at most |")?;
        writeln!(to, "|---|---|---|")?;
        for pair in &report.pictures {
            let (case, levels) = (cell(pair.case()), pair.levels_apart());
            writeln!(to, "| {case} | {}x{} | {levels} |", pair.width(), pair.height())?;
        }
    }
    Ok(())
}

/// Text that ends neither a cell nor a line.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ").replace('<', "&lt;")
}
