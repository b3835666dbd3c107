//! The report for a browser: one file, nothing outside it.

use std::io::{self, Write};

use super::picture::GAIN;
use super::{Report, limit, number, share, verdict};
use crate::row::Row;

const STYLE: &str = "
:root { color-scheme: light dark; --line: #8884; --good: #2a8a4a; --bad: #c62f2f; --bar: #4a86c8; }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 1200px; margin: 2em auto; padding: 0 1.5em; }
h1 { margin-bottom: .3em; } h2 { margin: 1.8em 0 .5em; font-size: 1.15em; }
.verdict { display: inline-block; padding: .35em .9em; border-radius: .4em; color: #fff; font-weight: 600; }
.verdict.pass { background: var(--good); } .verdict.fail { background: var(--bad); }
table { border-collapse: collapse; width: 100%; }
th { text-align: left; font-weight: 600; } th, td { padding: .3em .7em; border-bottom: 1px solid var(--line); }
td { vertical-align: top; } .header { width: auto; margin-top: 1em; } .header th { white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.bar { width: 90px; height: .7em; background: #8883; border-radius: .2em; overflow: hidden; margin-top: .35em; }
.bar div { height: 100%; background: var(--bar); } .failed .bar div { background: var(--bad); }
.good { color: var(--good); } .bad { color: var(--bad); font-weight: 700; }
.failed td { background: #c62f2f1c; } .detail { color: var(--bad); font-size: .9em; }
.reason, .word { font-size: .9em; opacity: .8; }
.pair { display: flex; gap: 1.2em; flex-wrap: wrap; } figure { margin: 0; }
figure img { height: 192px; image-rendering: pixelated; border: 1px solid var(--line); display: block; }
figcaption { font-size: .9em; opacity: .8; }
@media (max-width: 900px) {
  body { padding: 0 .5em; } th, td { padding: .3em .35em; } .number { white-space: normal; }
  .rows .reason, .rows .word, .rows .bar { display: none; }
}
";

pub(super) fn write(report: &Report, to: &mut dyn Write) -> io::Result<()> {
    let class = if report.passes() { "pass" } else { "fail" };
    write!(
        to,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>Conformance report</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>Conformance report</h1>\n\
         <p class=\"verdict {class}\">{}</p>\n<table class=\"header\">\n",
        escape(&report.verdict())
    )?;
    for (name, value) in report.header() {
        writeln!(to, "<tr><th>{name}</th><td>{}</td></tr>", escape(&value))?;
    }
    for note in &report.notes {
        writeln!(to, "<tr><th>Note</th><td>{}</td></tr>", escape(note))?;
    }
    writeln!(to, "</table>")?;
    for rows in report.groups() {
        let failed = rows.iter().filter(|row| !row.passes()).count();
        let count = match failed {
            0 => format!("{} rows", rows.len()),
            failed => format!("{failed} of {} rows fail", rows.len()),
        };
        writeln!(to, "<h2>{} <span class=\"word\">({count})</span></h2>", escape(&rows[0].group))?;
        writeln!(
            to,
            "<table class=\"rows\">\n<tr><th>What</th><th class=\"number\">Figure</th>\
             <th class=\"number\">Limit</th><th class=\"number\">Share used</th><th></th><th>Verdict</th>\
             <th class=\"word\">How</th><th class=\"reason\">Where the limit comes from</th></tr>"
        )?;
        for row in rows {
            write_row(row, to)?;
        }
        writeln!(to, "</table>")?;
    }
    if !report.pictures.is_empty() {
        writeln!(to, "<h2>Pictures</h2>")?;
    }
    for pair in &report.pictures {
        let [official, ours, difference] = pair.addresses()?;
        let (case, width, height) = (escape(pair.case()), pair.width(), pair.height());
        let levels = pair.levels_apart();
        writeln!(to, "<h3>{case}, {width}x{height}</h3>\n<div class=\"pair\">")?;
        let captions = [
            (official, "official, bf16".to_string()),
            (ours, "this backend".to_string()),
            (difference, format!("difference times {GAIN}; at most {levels} of 255 levels")),
        ];
        for (address, caption) in captions {
            writeln!(
                to,
                "<figure><img alt=\"{case}: {caption}\" src=\"{address}\"><figcaption>{caption}</figcaption></figure>"
            )?;
        }
        writeln!(to, "</div>")?;
    }
    writeln!(to, "</body>\n</html>")
}

fn write_row(row: &Row, to: &mut dyn Write) -> io::Result<()> {
    let (class, colour) = if row.passes() { ("", "good") } else { (" class=\"failed\"", "bad") };
    let detail = match row.passes() || row.detail.is_empty() {
        true => String::new(),
        false => format!("<div class=\"detail\">{}</div>", escape(&row.detail)),
    };
    let bar = row.share().filter(|share| share.is_finite()).map_or_else(String::new, |share| {
        let width = (100.0 * share).clamp(0.0, 100.0);
        format!("<div class=\"bar\"><div style=\"width:{width:.1}%\"></div></div>")
    });
    writeln!(
        to,
        "<tr{class}><td>{}{detail}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>\
         <td class=\"number\">{}</td><td>{bar}</td><td class=\"{colour}\">{}</td><td class=\"word\">{}</td>\
         <td class=\"reason\">{}</td></tr>",
        escape(&row.name),
        number(row.figure),
        escape(&limit(row)),
        share(row),
        verdict(row),
        row.word,
        escape(&row.reason)
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
