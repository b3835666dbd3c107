//! What a picture says about how it was made, and PNG files that carry it.

use std::io::{Cursor, Write};
use std::path::Path;

use moss_reference::files::disguise;
use moss_reference::run::Settings;
use serde::Serialize;

use crate::files::input;

/// Keyword of the JSON record's text chunk.
pub(crate) const RECORD_KEYWORD: &str = "moss";
/// Keyword of the text that A1111 and its relatives read.
pub(crate) const PARAMETERS_KEYWORD: &str = "parameters";

/// The program's name in records, before its version.
pub(crate) const PROGRAM: &str = "moss ";
/// The only numerical tier.
pub(crate) const TIER: &str = "reference";

/// Everything that makes a picture again. Nothing here depends on the time or the machine's speed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Record {
    /// Program and version.
    pub program: String,
    /// Identity of the model; see [`Model::identity`](moss_reference::model::Model::identity).
    pub model: String,
    /// Name of the model's folder when the picture was first made, to know it again; none for the demo model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_name: Option<String>,
    /// The request.
    #[serde(flatten)]
    pub settings: Settings,
    /// Steps that ran, when they are not as many as were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps_run: Option<usize>,
    /// Backend and architecture.
    pub backend: String,
    /// [`TIER`].
    pub tier: String,
}

impl Record {
    /// The text that A1111 and its relatives read.
    pub(crate) fn parameters(&self) -> String {
        let settings = &self.settings;
        let list: Vec<String> = settings.skip_layers.iter().map(usize::to_string).collect();
        let seed = settings.seed.map_or(String::new(), |seed| format!("Seed: {seed}, "));
        let run = self.steps_run.map_or(String::new(), |steps| format!("Steps run: {steps}, "));
        format!(
            "{}\nNegative prompt: {}\nSteps: {}, {run}Sampler: Euler, Schedule type: MOSS-Image, CFG scale: {}, {seed}\
             Size: {}x{}, Model hash: {}, Shift: {}, Skip layers: \"{}\", Version: {}",
            settings.prompt,
            settings.negative,
            settings.steps,
            settings.cfg,
            settings.width,
            settings.height,
            self.model,
            settings.shift,
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

/// Most bytes of a picture's compressed texts together once they are unpacked; ours are not compressed.
const UNPACKED: usize = 16 << 20;

/// The text chunks of a PNG, `(keyword, text)`: those in Latin-1, plain and compressed, then those in UTF-8.
///
/// # Errors
/// What is wrong with the file, without its name.
pub(crate) fn read_texts(path: &Path) -> Result<Vec<(String, String)>, String> {
    let bytes = input::read(path, input::PICTURE, false)?;
    if !bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        return Err(disguise(&bytes).map_or("".into(), |found| format!("{found}, ")) + "not a PNG file");
    }
    let damaged = |error: png::DecodingError| match error {
        png::DecodingError::IoError(_) => "the file is cut short".to_string(),
        png::DecodingError::LimitsExceeded => "the texts in the file are too long".into(),
        _ => "the file is damaged".into(),
    };
    let mut options = png::DecodeOptions::default();
    // Else a text with a wrong sum would be left out without a word.
    options.set_skip_ancillary_crc_failures(false);
    let mut reader =
        png::Decoder::new_with_options(Cursor::new(bytes), options).read_info().map_err(damaged)?;
    // Chunks may also follow the pixels.
    reader.finish().map_err(damaged)?;
    let info = reader.info();
    let mut texts = Vec::new();
    for chunk in &info.uncompressed_latin1_text {
        texts.push((chunk.keyword.clone(), chunk.text.clone()));
    }
    let mut left = UNPACKED;
    let too_long = || format!("the texts in the file unpack to more than {} MiB", UNPACKED >> 20);
    for chunk in &info.compressed_latin1_text {
        let mut chunk = chunk.clone();
        chunk.decompress_text_with_limit(left).map_err(|_| too_long())?;
        let text = chunk.get_text().map_err(damaged)?;
        left = left.saturating_sub(text.len());
        texts.push((chunk.keyword, text));
    }
    for chunk in &info.utf8_text {
        let mut chunk = chunk.clone();
        chunk.decompress_text_with_limit(left).map_err(|_| too_long())?;
        let text = chunk.get_text().map_err(damaged)?;
        left = left.saturating_sub(if chunk.compressed { text.len() } else { 0 });
        texts.push((chunk.keyword, text));
    }
    Ok(texts)
}

/// JSON with one field a line; what is no JSON stays as it is.
pub(crate) fn indented(json: &str) -> String {
    let value = serde_json::from_str::<serde_json::Value>(json);
    value.map_or(json.into(), |value| format!("{value:#}"))
}

#[cfg(test)]
pub(crate) fn example(prompt: &str) -> Record {
    let settings = Settings { width: 32, height: 16, steps: 3, seed: Some(7), ..Settings::default() };
    Record {
        program: "moss 0.0.1".into(),
        model: "00".into(),
        model_name: None,
        settings: Settings { prompt: prompt.into(), ..settings },
        steps_run: None,
        backend: "cpu".into(),
        tier: TIER.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png(record: Option<&Record>) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_png(&mut bytes, &[1, 2, 3, 4, 5, 6], 2, 1, record).unwrap();
        bytes
    }

    #[test]
    fn texts_come_back_in_any_language() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.png");
        for (prompt, chunk) in [("a café", &b"tEXt"[..]), ("桌上的苹果 🍎", b"iTXt"), ("a\tb\u{7f}", b"iTXt")]
        {
            let record = example(prompt);
            let bytes = png(Some(&record));
            let place = |name: &[u8]| bytes.windows(4).position(|w| w == name);
            assert!(place(chunk).unwrap() < place(b"IDAT").unwrap(), "{prompt}");
            std::fs::write(&path, &bytes).unwrap();
            let texts = read_texts(&path).unwrap();
            let text = |name: &str| &texts.iter().find(|(keyword, _)| keyword == name).unwrap().1;
            assert_eq!(*text(RECORD_KEYWORD), serde_json::to_string(&record).unwrap());
            let start = format!("{prompt}\nNegative prompt: \nSteps: 3,");
            assert!(text(PARAMETERS_KEYWORD).starts_with(&start), "{texts:?}");
        }
    }

    #[test]
    fn a_record_is_flat_and_says_what_ran() {
        let json = serde_json::to_string(&example("an apple")).unwrap();
        let expected = r#"{"program":"moss 0.0.1","model":"00","prompt":"an apple","negative":"","width":32,"height":16,"#;
        assert!(json.starts_with(expected), "{json}");
        let rest = r#""steps":3,"cfg":3.0,"shift":5.0,"seed":7,"skip_layers":[22],"skip_start":0.0,"skip_stop":1.0,"#;
        assert!(json.contains(rest) && json.ends_with(r#""backend":"cpu","tier":"reference"}"#), "{json}");
        let mut record = example("an apple");
        record.steps_run = Some(2);
        (record.settings.seed, record.settings.noise_in) = (None, Some("ab".into()));
        let json = serde_json::to_string(&record).unwrap();
        assert!(!json.contains("seed") && json.contains(r#""steps_run":2,"#), "{json}");
        let text = record.parameters();
        assert!(text.contains("Steps: 3, Steps run: 2, ") && !text.contains("Seed"), "{text}");
    }

    #[test]
    fn indented_records_have_a_field_a_line_and_stay_the_same() {
        let mut record = example("a \"{b}\\\", [c]: d\n");
        record.settings.skip_layers = vec![1, 22];
        let text = indented(&serde_json::to_string(&record).unwrap());
        let same: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(same, serde_json::to_value(&record).unwrap());
        assert!(text.lines().any(|line| line == "  \"program\": \"moss 0.0.1\","), "{text}");
        assert_eq!(indented("{not json"), "{not json");
    }

    #[test]
    fn compressed_texts_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.png");
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, 1, 1);
        encoder.add_ztxt_chunk("moss".into(), "{\"caf\u{e9}\":1}".into()).unwrap();
        encoder.write_header().unwrap().write_image_data(&[0]).unwrap();
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(read_texts(&path).unwrap(), [("moss".to_string(), "{\"caf\u{e9}\":1}".to_string())]);
    }

    #[test]
    fn what_is_no_whole_picture_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.png");
        let told = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            read_texts(&path).unwrap_err()
        };
        assert_eq!(told(b"hello"), "not a PNG file");
        assert!(told(b"").contains("an empty file"));
        let whole = png(Some(&example("an apple")));
        assert_eq!(told(&whole[..whole.len() / 2]), "the file is cut short");
        // The last byte of the prompt in the first text, whose sum is wrong then.
        let place = whole.windows(8).position(|w| w == b"an apple").unwrap() + 7;
        let mut changed = whole.clone();
        changed[place] = b'y';
        assert!(told(&changed).contains("the file is damaged"));
        assert!(read_texts(Path::new("/dev/null")).unwrap_err().contains("a device"));
    }
}
