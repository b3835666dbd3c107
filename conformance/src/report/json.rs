//! The report for programs.

use std::io::{self, Write};

use serde::Serialize;

use super::{Machine, Report};
use crate::row::Row;

#[derive(Serialize)]
struct Out<'a> {
    program: &'a str,
    machine: &'a Machine,
    backend: &'a str,
    model: &'a str,
    passes: bool,
    notes: &'a [String],
    rows: Vec<OutRow<'a>>,
    pictures: Vec<OutPicture<'a>>,
}

#[derive(Serialize)]
struct OutRow<'a> {
    #[serde(flatten)]
    row: &'a Row,
    share: Option<f64>,
    passes: bool,
}

#[derive(Serialize)]
struct OutPicture<'a> {
    case: &'a str,
    width: usize,
    height: usize,
    levels_apart: u8,
}

pub(super) fn write(report: &Report, to: &mut dyn Write) -> io::Result<()> {
    let rows = report.rows.iter();
    let pictures = report.pictures.iter();
    let out = Out {
        program: &report.program,
        machine: &report.machine,
        backend: &report.backend,
        model: &report.model,
        passes: report.passes(),
        notes: &report.notes,
        rows: rows.map(|row| OutRow { row, share: row.share(), passes: row.passes() }).collect(),
        pictures: pictures
            .map(|pair| OutPicture {
                case: pair.case(),
                width: pair.width(),
                height: pair.height(),
                levels_apart: pair.levels_apart(),
            })
            .collect(),
    };
    serde_json::to_writer_pretty(&mut *to, &out)?;
    writeln!(to)
}
