//! `--from`: a picture's record, read and checked as the options would be.

use std::path::{Path, PathBuf};

use moss_reference::run::{SettingError, Settings};
use serde_json::{Map, Value};

use crate::error::{CliError, Result};
use crate::files::npy::Array;
use crate::files::record::{PROGRAM, RECORD_KEYWORD, Record, TIER, read_texts};

/// A record whose fields this program can all reproduce, with the picture that it is from.
#[derive(Debug)]
pub(crate) struct Again {
    /// The picture.
    path: PathBuf,
    /// Its record.
    pub record: Record,
}

impl Again {
    /// Reads the record in a picture; `warn` is told when a newer program wrote it.
    ///
    /// # Errors
    /// A failure that names the file and the field, what was found and what is supported.
    pub(crate) fn read(path: &Path, warn: impl Fn(&str)) -> Result<Self> {
        let failed = |reason: String| CliError::failed(format!("--from {}", path.display()), reason);
        let texts = read_texts(path).map_err(failed)?;
        let json = texts.into_iter().find(|(keyword, _)| keyword == RECORD_KEYWORD);
        let (_, json) = json.ok_or_else(|| failed("no moss record in this picture".into()))?;
        match serde_json::from_str(&json) {
            Ok(Value::Object(map)) => Self::from_map(path, map, warn),
            _ => Err(failed("the moss record is not a JSON object".into())),
        }
    }

    fn from_map(path: &Path, map: Map<String, Value>, warn: impl Fn(&str)) -> Result<Self> {
        let mut f = Fields { path, map };
        let program = f.text("program")?;
        match program.strip_prefix(PROGRAM).and_then(version) {
            Some(theirs) if Some(theirs) > version(env!("CARGO_PKG_VERSION")) => warn(&format!(
                "--from {}: made by {program}, this is {PROGRAM}{}; the picture may differ",
                path.display(),
                env!("CARGO_PKG_VERSION")
            )),
            Some(_) => {}
            None => return Err(f.wrong("program", &program.into(), &format!("{PROGRAM}and a version"))),
        }
        let text = |v: &Value| v.as_str().map(String::from);
        let record = Record {
            program,
            model: f.text("model")?,
            model_name: f.optional("model_name", "a text", text)?,
            settings: Settings::take(&mut f.map).map_err(|error| setting_error(path, &error))?,
            steps_run: f.optional("steps_run", "a whole number", |v| v.as_u64().map(|n| n as usize))?,
            backend: f.text("backend")?,
            tier: f.only("tier", TIER)?,
        };
        match f.map.iter().next() {
            None => Ok(Self { path: path.to_path_buf(), record }),
            Some((name, value)) => Err(f.error(name, &format!(" is {value}, not known to this program"))),
        }
    }

    /// The error of a field, in the words of [`Fields::error`].
    fn error(&self, field: &str, reason: &str) -> CliError {
        field_error(&self.path, field, reason)
    }

    /// Refuses another model than the picture's; `name` is the folder's, none for the demo model.
    ///
    /// # Errors
    /// A failure with both identities; without a folder, with the one that `--model` should name.
    pub(crate) fn check_model(&self, identity: &str, name: Option<&str>) -> Result<()> {
        let found = &self.record.model;
        match (name, &self.record.model_name) {
            _ if found == identity => Ok(()),
            (Some(name), Some(made)) => {
                let reason = format!(" is {found} of a folder {made}, this is {identity} ({name})");
                Err(self.error("model", &reason))
            }
            (Some(name), None) => {
                Err(self.error("model", &format!(" is {found}, this is {identity} ({name})")))
            }
            (None, Some(made)) => Err(CliError::failed(
                format!("--from {}", self.path.display()),
                format!("made with a model folder named {made}: --model with that folder is required"),
            )),
            (None, None) => {
                let reason =
                    format!(" is {found}, this is {identity} (demo): --model with that folder is required");
                Err(self.error("model", &reason))
            }
        }
    }

    /// The record's settings for a model of `blocks` DiT blocks.
    ///
    /// # Errors
    /// A failure when the model does not have the blocks that are left out.
    pub(crate) fn settings(&self, blocks: usize) -> Result<Settings> {
        let mut settings = self.record.settings.clone();
        settings.check_blocks(blocks).map_err(|error| setting_error(&self.path, &error))?;
        Ok(settings)
    }

    /// Refuses a picture whose text states or noise came from files, unless the same files are given again.
    ///
    /// # Errors
    /// A failure that names the field and the option.
    pub(crate) fn check_files(&self, text_in: &[Array], noise_in: Option<&Array>) -> Result<()> {
        let record = &self.record.settings;
        let text: Vec<&str> = text_in.iter().map(|array| array.sha256.as_str()).collect();
        let noise: Vec<&str> = noise_in.iter().map(|array| array.sha256.as_str()).collect();
        let check = |field, option, recorded: Vec<&str>, given: Vec<&str>| match recorded == given {
            _ if recorded.is_empty() => Ok(()),
            true => Ok(()),
            false if given.is_empty() => {
                let reason = format!(" is {}: {option} with that file is required", recorded.join(","));
                Err(self.error(field, &reason))
            }
            false => {
                let reason = format!(" is {}, {option}'s is {}", recorded.join(","), given.join(","));
                Err(self.error(field, &reason))
            }
        };
        check("text_in", "--text-in", record.text_in.iter().map(String::as_str).collect(), text)?;
        check("noise_in", "--noise-in", record.noise_in.iter().map(String::as_str).collect(), noise)
    }
}

/// The numbers of a version; what follows a dash or a plus sign does not count.
fn version(text: &str) -> Option<[u64; 3]> {
    let numbers = text.split(['-', '+']).next()?;
    let numbers: Option<Vec<u64>> = numbers.split('.').map(|number| number.parse().ok()).collect();
    let mut three = numbers?;
    three.resize(3, 0);
    three.try_into().ok()
}

fn field_error(path: &Path, field: &str, reason: &str) -> CliError {
    CliError::Failed(format!("--from {}: record field \"{field}\"{reason}", path.display()))
}

fn setting_error(path: &Path, error: &SettingError) -> CliError {
    // A size is two fields; the last is named.
    let field = if error.field() == "size" { "height" } else { error.field() };
    field_error(path, field, &error.reason())
}

/// The fields of a record that nobody took yet.
struct Fields<'a> {
    path: &'a Path,
    map: Map<String, Value>,
}

impl Fields<'_> {
    fn error(&self, field: &str, reason: &str) -> CliError {
        field_error(self.path, field, reason)
    }

    fn wrong(&self, field: &str, found: &Value, expected: &str) -> CliError {
        self.error(field, &format!(" is {found}, {expected} expected"))
    }

    /// Takes a field that may be missing.
    fn optional<T>(
        &mut self,
        field: &str,
        expected: &str,
        convert: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.map.remove(field) else { return Ok(None) };
        convert(&value).map(Some).ok_or_else(|| self.wrong(field, &value, expected))
    }

    fn get<T>(&mut self, field: &str, expected: &str, convert: impl Fn(&Value) -> Option<T>) -> Result<T> {
        self.optional(field, expected, convert)?.ok_or_else(|| self.error(field, " is missing"))
    }

    fn text(&mut self, field: &str) -> Result<String> {
        self.get(field, "a text", |v| v.as_str().map(String::from))
    }

    /// Takes a field of which this program can do one value.
    fn only(&mut self, field: &str, supported: &str) -> Result<String> {
        let found = self.text(field)?;
        match found == supported {
            true => Ok(found),
            false => Err(self.error(field, &format!(" is \"{found}\", \"{supported}\" is supported"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use serde_json::json;

    use super::*;
    use crate::files::record::example;

    /// The example's record with one field changed, or taken out by null.
    fn read(field: &str, value: Value) -> (Result<Again>, Vec<String>) {
        let Value::Object(mut map) = serde_json::to_value(example("an apple")).unwrap() else { panic!() };
        match value {
            Value::Null => drop(map.remove(field)),
            value => drop(map.insert(field.into(), value)),
        }
        let warnings = RefCell::new(Vec::new());
        let again = Again::from_map(Path::new("a.png"), map, |w| warnings.borrow_mut().push(w.into()));
        (again, warnings.into_inner())
    }

    #[test]
    fn a_record_of_this_program_comes_back() {
        let (again, warnings) = read("none", Value::Null);
        assert_eq!(again.unwrap().record, example("an apple"));
        assert!(warnings.is_empty());
        let (again, _) = read("noise_in", json!("ab"));
        assert_eq!(again.unwrap().record.settings.noise_in.as_deref(), Some("ab"));
    }

    #[test]
    fn what_cannot_be_reproduced_names_the_field_the_value_and_what_is_supported() {
        for (field, value, reason) in [
            ("sampler", json!("heun"), " is \"heun\", \"euler\" is supported"),
            ("schedule", json!("karras"), " is \"karras\", \"moss-image\" is supported"),
            ("noise_layout", json!("torch-cuda"), " is \"torch-cuda\", \"torch-cpu\" is supported"),
            ("tier", json!("fast"), " is \"fast\", \"reference\" is supported"),
            ("lora", json!("a.safetensors"), " is \"a.safetensors\", not known to this program"),
            ("program", json!("other 1.0"), " is \"other 1.0\", moss and a version expected"),
            ("steps", json!(1_000_000_000_000_000_u64), ": 1000000000000000, 1 to 10000 expected"),
            ("steps", json!(0), ": 0, 1 to 10000 expected"),
            ("steps", json!("3"), " is \"3\", a whole number expected"),
            ("steps", Value::Null, " is missing"),
            ("width", json!(1000), ": 1000 is no multiple of 16; the nearest are 992 and 1008"),
            ("width", json!(-16), " is -16, a number of pixels expected"),
            ("height", json!(8192), ": 8192 is over 4096, the longest side"),
            ("cfg", json!("NaN"), " is \"NaN\", a number expected"),
            ("cfg", json!(1e39), ": inf, a finite number from 0 expected"),
            ("cfg", json!(-1), ": -1, a finite number from 0 expected"),
            ("shift", json!(0), ": 0, a finite number above 0 expected"),
            ("seed", json!(-1), " is -1, a whole number from 0 expected"),
            ("skip_start", json!(2), ": 2, 0 to 1 expected"),
            ("skip_stop", json!(-1), ": -1, 0 to 1 expected"),
            ("skip_layers", json!([-1]), " is [-1], a list of whole numbers expected"),
            ("max_seq", json!(0), ": 0, at least 1 expected"),
            ("text_in", json!("x"), " is \"x\", a list of texts expected"),
            ("model_name", json!(1), " is 1, a text expected"),
            ("steps_run", json!("x"), " is \"x\", a whole number expected"),
        ] {
            let error = read(field, value).0.unwrap_err();
            assert!(matches!(error, CliError::Failed(_)));
            assert_eq!(error.message(), format!("--from a.png: record field \"{field}\"{reason}"));
        }
        let mut large = example("");
        (large.settings.width, large.settings.height) = (4096, 4096);
        let Value::Object(map) = serde_json::to_value(large).unwrap() else { panic!() };
        let message = Again::from_map(Path::new("a.png"), map, |_| ()).unwrap_err().message();
        assert!(message.contains("\"height\": 4096x4096 is 16.78 megapixels"), "{message}");
    }

    #[test]
    fn a_newer_program_is_warned_of_and_an_older_is_not() {
        for (program, warned) in
            [("moss 0.0.9", 0), ("moss 0.1.0", 0), ("moss 0.1.1", 1), ("moss 10.0.0-rc", 1)]
        {
            let (again, warnings) = read("program", json!(program));
            assert!(again.is_ok());
            assert_eq!(warnings.len(), warned, "{program}: {warnings:?}");
        }
    }

    #[test]
    fn model_blocks_and_files_must_be_the_records() {
        let mut again = read("none", Value::Null).0.unwrap();
        assert!(again.check_model("00", None).is_ok() && again.check_model("00", Some("any")).is_ok());
        let message = again.check_model("11", Some("other")).unwrap_err().message();
        assert_eq!(message, "--from a.png: record field \"model\" is 00, this is 11 (other)");
        let message = again.check_model("11", None).unwrap_err().message();
        assert!(
            message.ends_with(" is 00, this is 11 (demo): --model with that folder is required"),
            "{message}"
        );
        again.record.model_name = Some("base".into());
        let message = again.check_model("11", Some("other")).unwrap_err().message();
        assert!(message.ends_with(" is 00 of a folder base, this is 11 (other)"), "{message}");
        let message = again.check_model("11", None).unwrap_err().message();
        assert!(message.contains("a model folder named base: --model with that folder"), "{message}");
        assert_eq!(again.settings(42).unwrap().skip_layers, [22]);
        let message = again.settings(3).unwrap_err().message();
        assert_eq!(message, "--from a.png: record field \"skip_layers\": 22, this model has blocks 0 to 2");
        assert!(again.check_files(&[], None).is_ok());
        again.record.settings.noise_in = Some("ab".into());
        let message = again.check_files(&[], None).unwrap_err().message();
        assert!(message.contains("\"noise_in\" is ab: --noise-in with that file is required"), "{message}");
        let array = |sha256: &str| Array { shape: vec![], data: vec![], sha256: sha256.into() };
        assert!(again.check_files(&[], Some(&array("ab"))).is_ok());
        let message = again.check_files(&[], Some(&array("cd"))).unwrap_err().message();
        assert!(message.contains("\"noise_in\" is ab, --noise-in's is cd"), "{message}");
        again.record.settings.text_in = vec!["1".into(), "2".into()];
        let message = again.check_files(&[array("1")], None).unwrap_err().message();
        assert!(message.contains("\"text_in\" is 1,2, --text-in's is 1"), "{message}");
    }
}
