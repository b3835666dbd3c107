//! What a picture says about how it was made, and PNG files that carry it.

use std::io::{Cursor, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{CliError, Result};

/// Keyword of the JSON record's text chunk.
pub(crate) const RECORD_KEYWORD: &str = "moss";
/// Keyword of the text that A1111 and its relatives read.
pub(crate) const PARAMETERS_KEYWORD: &str = "parameters";

/// Everything that makes a picture again. Nothing here depends on the time or the machine's speed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Program and version.
    pub program: String,
    /// `demo` or the model folder's name.
    pub model: String,
    /// Identity of the weights (SHA-256 of their headers and sizes).
    pub weights: String,
    /// The prompt as given.
    pub prompt: String,
    /// The negative prompt.
    pub negative: String,
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Steps asked for.
    pub steps: usize,
    /// Guidance scale.
    pub cfg: f32,
    /// Schedule shift.
    pub shift: f64,
    /// Seed of the noise.
    pub seed: u64,
    /// Blocks that the uncond row left out.
    pub skip_layers: Vec<usize>,
    /// From this progress.
    pub skip_start: f64,
    /// To this progress.
    pub skip_stop: f64,
    /// Longest prompt in tokens.
    pub max_seq: usize,
    /// Sampler.
    pub sampler: String,
    /// Where the noise comes from.
    pub noise_layout: String,
    /// Backend and architecture.
    pub backend: String,
    /// Numerical tier.
    pub tier: String,
    /// Inputs that came from files, which the record cannot give back (`noise`, `text`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub from_files: Vec<String>,
}

impl Record {
    /// The text that A1111 and its relatives read.
    pub(crate) fn parameters(&self) -> String {
        let list: Vec<String> = self.skip_layers.iter().map(usize::to_string).collect();
        format!(
            "{}\nNegative prompt: {}\nSteps: {}, Sampler: Euler, Schedule type: MOSS-Image, CFG scale: {}, Seed: {}, \
             Size: {}x{}, Model: {}, Shift: {}, Skip layers: \"{}\", Version: {}",
            self.prompt,
            self.negative,
            self.steps,
            self.cfg,
            self.seed,
            self.width,
            self.height,
            self.model,
            self.shift,
            list.join(","),
            self.program
        )
    }
}

/// Adds a text chunk: tEXt when the text is Latin-1 without control characters but newlines, else iTXt (UTF-8).
fn add_text<W: Write>(encoder: &mut png::Encoder<'_, W>, keyword: &str, text: &str) -> std::io::Result<()> {
    let latin1 = text.chars().all(|c| matches!(c, '\n' | ' '..='~' | '\u{a1}'..='\u{ff}'));
    let added = if latin1 {
        encoder.add_text_chunk(keyword.into(), text.into())
    } else {
        encoder.add_itxt_chunk(keyword.into(), text.into())
    };
    added.map_err(std::io::Error::other)
}

/// Writes an 8-bit RGB PNG, with the record before the pixels.
///
/// # Errors
/// What `writer` fails with.
pub(crate) fn write_png(
    writer: &mut dyn Write,
    rgb: &[u8],
    width: u32,
    height: u32,
    record: Option<&Record>,
) -> std::io::Result<()> {
    let mut encoder = png::Encoder::new(writer, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Balanced);
    if let Some(record) = record {
        add_text(&mut encoder, PARAMETERS_KEYWORD, &record.parameters())?;
        add_text(&mut encoder, RECORD_KEYWORD, &serde_json::to_string(record)?)?;
    }
    let mut writer = encoder.write_header().map_err(std::io::Error::other)?;
    writer.write_image_data(rgb).map_err(std::io::Error::other)?;
    writer.finish().map_err(std::io::Error::other)
}

/// The text chunks of a PNG, `(keyword, text)` in file order.
///
/// # Errors
/// A failure that names the file when it cannot be read or is no PNG.
pub(crate) fn read_texts(path: &Path) -> Result<Vec<(String, String)>> {
    let failed = |error: &dyn std::fmt::Display| CliError::failed(path.display(), error);
    let bytes = std::fs::read(path).map_err(|error| failed(&error))?;
    let mut reader = png::Decoder::new(Cursor::new(bytes)).read_info().map_err(|error| failed(&error))?;
    let size = reader.output_buffer_size().ok_or_else(|| failed(&"the picture is too large"))?;
    // Chunks may also follow the pixels.
    let mut pixels = vec![0; size];
    reader.next_frame(&mut pixels).map_err(|error| failed(&error))?;
    reader.finish().map_err(|error| failed(&error))?;
    let info = reader.info();
    let latin1 = info.uncompressed_latin1_text.iter().map(|t| (t.keyword.clone(), t.text.clone()));
    let mut texts: Vec<(String, String)> = latin1.collect();
    for chunk in &info.utf8_text {
        texts.push((chunk.keyword.clone(), chunk.get_text().map_err(|error| failed(&error))?));
    }
    Ok(texts)
}

/// The record in a PNG.
///
/// # Errors
/// A failure that names the file when there is no record or it cannot be read.
pub(crate) fn read_record(path: &Path) -> Result<Record> {
    let texts = read_texts(path)?;
    let json = texts.iter().find(|(keyword, _)| keyword == RECORD_KEYWORD);
    let (_, json) = json.ok_or_else(|| CliError::failed(path.display(), "no moss record in this picture"))?;
    serde_json::from_str(json)
        .map_err(|error| CliError::failed(path.display(), format!("the moss record: {error}")))
}

/// A JSON object with one field a line, otherwise as it was written; what is no JSON stays as it is.
pub(crate) fn indented(json: &str) -> String {
    if serde_json::from_str::<serde::de::IgnoredAny>(json).is_err() {
        return json.into();
    }
    let (mut text, mut depth, mut quoted, mut escaped) = (String::new(), 0, false, false);
    for c in json.chars() {
        if quoted {
            text.push(c);
            (quoted, escaped) = (escaped || c != '"', !escaped && c == '\\');
            continue;
        }
        if matches!(c, '}' | ']') {
            depth -= 1;
        }
        match (c, depth) {
            (' ' | '\n' | '\r' | '\t', _) => {}
            ('{', 0) => text += "{\n  ",
            ('}', 0) => text += "\n}",
            (',', 1) => text += ",\n  ",
            (',', _) => text += ", ",
            (':', _) => text += ": ",
            _ => text.push(c),
        }
        if matches!(c, '{' | '[') {
            depth += 1;
        }
        quoted = c == '"';
    }
    text
}

#[cfg(test)]
pub(crate) fn example(prompt: &str) -> Record {
    Record {
        program: "moss 0".into(),
        model: "demo".into(),
        weights: "00".into(),
        prompt: prompt.into(),
        negative: String::new(),
        width: 2,
        height: 1,
        steps: 3,
        cfg: 3.0,
        shift: 5.0,
        seed: 7,
        skip_layers: vec![22],
        skip_start: 0.0,
        skip_stop: 1.0,
        max_seq: 4096,
        sampler: "euler".into(),
        noise_layout: "torch-cpu".into(),
        backend: "cpu".into(),
        tier: "reference".into(),
        from_files: vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_in_any_language() {
        let folder = tempfile::tempdir().unwrap();
        for (prompt, chunk) in [("a café", &b"tEXt"[..]), ("桌上的苹果 🍎", b"iTXt"), ("a\tb\u{7f}", b"iTXt")]
        {
            let record = example(prompt);
            let mut bytes = Vec::new();
            write_png(&mut bytes, &[1, 2, 3, 4, 5, 6], 2, 1, Some(&record)).unwrap();
            let place = |name: &[u8]| bytes.windows(4).position(|w| w == name);
            assert!(place(chunk).unwrap() < place(b"IDAT").unwrap(), "{prompt}");
            let path = folder.path().join("x.png");
            std::fs::write(&path, &bytes).unwrap();
            assert_eq!(read_record(&path).unwrap(), record);
            let texts = read_texts(&path).unwrap();
            let parameters = &texts.iter().find(|(k, _)| k == PARAMETERS_KEYWORD).unwrap().1;
            assert!(parameters.starts_with(&format!("{prompt}\nNegative prompt: \nSteps: 3,")));
        }
    }

    #[test]
    fn indented_records_have_a_field_a_line_and_stay_the_same() {
        let record = Record { skip_layers: vec![1, 22], ..example("a \"{b}\\\", [c]: d\n") };
        let text = indented(&serde_json::to_string(&record).unwrap());
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines[0], lines[1], lines[lines.len() - 1]), ("{", "  \"program\": \"moss 0\",", "}"));
        assert!(lines.contains(&"  \"skip_layers\": [1, 22],"), "{text}");
        assert_eq!(indented("{not json"), "{not json");
    }

    #[test]
    fn pictures_without_a_record_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.png");
        let mut bytes = Vec::new();
        write_png(&mut bytes, &[0; 6], 2, 1, None).unwrap();
        std::fs::write(&path, &bytes).unwrap();
        assert!(read_record(&path).unwrap_err().message().contains("no moss record"));
        std::fs::write(&path, b"hello").unwrap();
        assert!(read_record(&path).unwrap_err().message().contains("x.png"));
    }
}
