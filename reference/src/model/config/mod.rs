//! Sizes of a model, read from its folder's JSON files and checked.
//!
//! Fields have the names of the official files. A field without an official default must be there.

mod dit;
mod pipeline;
mod text;
mod vae;

use serde_json::{Map, Value};

pub use dit::DitConfig;
pub use pipeline::PipelineConfig;
pub use text::{LayerType, TextConfig};
pub use vae::VaeConfig;

use crate::files::{ModelSource, WeightsError, disguise};

/// Most layers of a part.
const MAX_LAYERS: usize = 1 << 10;
/// Most columns of a state, and most heads.
const MAX_WIDTH: usize = 1 << 18;
/// Most rows of the embedding.
const MAX_VOCABULARY: usize = 1 << 24;

/// What is wrong with a configuration file.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] WeightsError),
    /// The file is not a JSON object.
    #[error("{file}: not a JSON object: {reason}")]
    Json {
        /// The file.
        file: String,
        /// What the parser says.
        reason: String,
    },
    /// A field is missing.
    #[error("{file}: field {field} is missing")]
    Missing {
        /// The file.
        file: String,
        /// The field.
        field: String,
    },
    /// A field has another type.
    #[error("{file}: field {field} is {found}, {expected} expected")]
    Type {
        /// The file.
        file: String,
        /// The field.
        field: String,
        /// What is there.
        found: String,
        /// What should be.
        expected: &'static str,
    },
    /// The folder is of another model.
    #[error("{file}: this is {found}, {expected} expected")]
    OtherModel {
        /// The file.
        file: String,
        /// The class or model type that is there.
        found: String,
        /// What should be.
        expected: &'static str,
    },
    /// A size is outside what the code can do.
    #[error("{file}: {field} is {found}, {expected} expected")]
    Size {
        /// The file.
        file: String,
        /// The field.
        field: String,
        /// What is there.
        found: String,
        /// The rule.
        expected: String,
    },
}

/// The sizes of all parts of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Text encoder.
    pub text: TextConfig,
    /// DiT.
    pub dit: DitConfig,
    /// VAE decoder.
    pub vae: VaeConfig,
}

impl ModelConfig {
    /// Reads `text_encoder/config.json`, `transformer/config.json` and `vae/config.json`.
    ///
    /// # Errors
    /// [`ConfigError`], naming the file and the field; also when the parts do not fit together.
    pub fn open(source: &ModelSource) -> Result<Self, ConfigError> {
        let text = TextConfig::open(source)?;
        let dit_fields = Fields::open(source, "transformer/config.json")?;
        let dit = DitConfig::from_fields(&dit_fields)?;
        let vae_fields = Fields::open(source, "vae/config.json")?;
        let vae = VaeConfig::from_fields(&vae_fields)?;
        dit_fields.check("text_dim", dit.text_dim, dit.text_dim == text.hidden_size, || {
            format!("the text encoder's hidden_size {}", text.hidden_size)
        })?;
        vae_fields.check(
            "latent_channels",
            vae.latent_channels,
            4 * vae.latent_channels == dit.latent_channels,
            || format!("a quarter of the transformer's latent_channels {}", dit.latent_channels),
        )?;
        Ok(Self { text, dit, vae })
    }
}

/// A configuration file's fields, with typed access and errors that name the file.
pub(crate) struct Fields {
    file: String,
    map: Map<String, Value>,
}

impl Fields {
    pub(crate) fn open(source: &ModelSource, path: &str) -> Result<Self, ConfigError> {
        let bytes = source.read(path)?;
        Self::parse(source.display(path), &bytes)
    }

    pub(crate) fn parse(file: String, bytes: &[u8]) -> Result<Self, ConfigError> {
        if let Some(found) = disguise(bytes) {
            return Err(ConfigError::Json { file, reason: found.into() });
        }
        match serde_json::from_slice(bytes) {
            Ok(Value::Object(map)) => Ok(Self { file, map }),
            Ok(_) => Err(ConfigError::Json { file, reason: "another kind of value".into() }),
            Err(error) => Err(ConfigError::Json { file, reason: error.to_string() }),
        }
    }

    /// The object in field `name`, if there is one.
    pub(crate) fn object(&self, name: &str) -> Result<Option<Self>, ConfigError> {
        let object =
            |v: &Value| v.as_object().map(|map| Some(Self { file: self.file.clone(), map: map.clone() }));
        self.get(name, Some(None), "an object", object)
    }

    /// Whether the field is there and not null.
    pub(crate) fn has(&self, field: &str) -> bool {
        self.map.get(field).is_some_and(|value| !value.is_null())
    }

    /// Refuses a file that says it is of another class; a file that says nothing passes.
    pub(crate) fn expect_name(
        &self,
        field: &str,
        expected: &'static str,
        fits: fn(&str) -> bool,
    ) -> Result<(), ConfigError> {
        match self.get(field, Some(None), "a string", |v| v.as_str().map(|name| Some(name.to_owned())))? {
            Some(found) if !fits(&found) => {
                Err(ConfigError::OtherModel { file: self.file.clone(), found, expected })
            }
            _ => Ok(()),
        }
    }

    fn get<T>(
        &self,
        field: &str,
        default: Option<T>,
        expected: &'static str,
        convert: impl Fn(&Value) -> Option<T>,
    ) -> Result<T, ConfigError> {
        match (self.map.get(field), default) {
            (None | Some(Value::Null), Some(default)) => Ok(default),
            (None | Some(Value::Null), None) => {
                Err(ConfigError::Missing { file: self.file.clone(), field: field.into() })
            }
            (Some(value), _) => convert(value).ok_or_else(|| ConfigError::Type {
                file: self.file.clone(),
                field: field.into(),
                found: value.to_string(),
                expected,
            }),
        }
    }

    /// A count from 0 to `most`. Each has such a bound, so that sums and products of a few of them fit, and so that what is
    /// expected of the weight files can be listed and compared with them before anything of that size is allocated.
    pub(crate) fn size(
        &self,
        field: &str,
        default: Option<usize>,
        most: usize,
    ) -> Result<usize, ConfigError> {
        let size = self.get(field, default, "a whole number from 0", whole)?;
        self.check(field, size, size <= most, || format!("at most {most}"))?;
        Ok(size)
    }

    pub(crate) fn number(&self, field: &str, default: Option<f64>) -> Result<f64, ConfigError> {
        self.get(field, default, "a number", Value::as_f64)
    }

    pub(crate) fn flag(&self, field: &str, default: Option<bool>) -> Result<bool, ConfigError> {
        self.get(field, default, "true or false", Value::as_bool)
    }

    /// A list of counts, each from 0 to `most`.
    pub(crate) fn sizes(
        &self,
        field: &str,
        default: Option<Vec<usize>>,
        most: usize,
    ) -> Result<Vec<usize>, ConfigError> {
        let list = |v: &Value| v.as_array()?.iter().map(whole).collect();
        let sizes = self.get(field, default, "a list of whole numbers", list)?;
        for &size in &sizes {
            self.check(field, size, size <= most, || format!("at most {most}"))?;
        }
        Ok(sizes)
    }

    pub(crate) fn strings(&self, field: &str) -> Result<Option<Vec<String>>, ConfigError> {
        self.get(field, Some(None), "a list of strings", |v| {
            v.as_array()?.iter().map(|s| s.as_str().map(String::from)).collect::<Option<_>>().map(Some)
        })
    }

    pub(crate) fn string(&self, field: &str, default: &str) -> Result<String, ConfigError> {
        self.get(field, Some(default.to_string()), "a string", |v| v.as_str().map(String::from))
    }

    /// Fails with the rule unless `holds`.
    pub(crate) fn check(
        &self,
        field: &str,
        found: impl std::fmt::Display,
        holds: bool,
        expected: impl FnOnce() -> String,
    ) -> Result<(), ConfigError> {
        if holds {
            return Ok(());
        }
        Err(ConfigError::Size {
            file: self.file.clone(),
            field: field.into(),
            found: found.to_string(),
            expected: expected(),
        })
    }

    /// A size that must be a positive multiple of `of`.
    pub(crate) fn check_multiple(&self, field: &str, found: usize, of: usize) -> Result<(), ConfigError> {
        self.check(field, found, found > 0 && found.is_multiple_of(of), || {
            if of == 1 { "at least 1".into() } else { format!("a positive multiple of {of}") }
        })
    }
}

fn whole(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|n| usize::try_from(n).ok())
}

#[cfg(test)]
pub(crate) fn fields(json: &Value) -> Fields {
    Fields::parse("config.json".into(), json.to_string().as_bytes()).unwrap()
}

#[cfg(test)]
mod hostile;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_error_names_file_and_field() {
        let bad = |bytes: &[u8]| Fields::parse("a/config.json".into(), bytes).err().unwrap().to_string();
        assert!(bad(b"[1]").starts_with("a/config.json: not a JSON object"));
        assert!(bad(b"{").starts_with("a/config.json: not a JSON object"));
        assert!(bad(b"<html>").starts_with("a/config.json: not a JSON object: an HTML page"));
        let f = fields(&json!({"n": "x", "_class_name": "Other", "neg": -1}));
        assert_eq!(f.size("m", None, 9).unwrap_err().to_string(), "config.json: field m is missing");
        assert_eq!(f.size("m", Some(3), 9).unwrap(), 3);
        assert!(f.size("n", None, 9).unwrap_err().to_string().contains("field n is \"x\", a whole number"));
        assert!(f.size("neg", None, 9).unwrap_err().to_string().contains("-1"));
        let other = f.expect_name("_class_name", "Mine", |name| name == "Mine").unwrap_err();
        assert_eq!(other.to_string(), "config.json: this is Other, Mine expected");
        let size = f.check_multiple("n", 17, 16).unwrap_err();
        assert_eq!(size.to_string(), "config.json: n is 17, a positive multiple of 16 expected");
    }
}
