//! The request: everything besides the model that decides a picture, with its names, defaults and limits in this one place.
//!
//! The command line fills it, a picture's record holds it, a golden case states it. A new setting is one line of `settings!`
//! (and one rule of [`Settings::check`], if it has one); what reads and writes settings knows it then.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::model::TOKEN_SIDE;
use crate::model::config::{DitConfig, PipelineConfig};
use crate::sample::Guidance;
use crate::sample::schedule::{MAX_STEPS, ScheduleError, sigmas};

/// Longest side of a picture in pixels.
pub const MAX_SIDE: u32 = 4096;
/// Most pixels of a picture.
pub const MAX_PIXELS: u64 = 4_200_000;
/// Official limit of a prompt in tokens.
pub const MAX_SEQ: usize = 4096;
/// The only sampler.
pub const SAMPLER: &str = "euler";
/// The only schedule.
pub const SCHEDULE: &str = "moss-image";
/// Where the noise of a seed comes from.
pub const NOISE_LAYOUT: &str = "torch-cpu";

/// Declares the settings: name, type and the official default of each.
macro_rules! settings {
    ($($(#[$meta:meta])* $field:ident: $type:ty = $default:expr,)+) => {
        /// A request; [`Default`] is the official one, [`Settings::of_model`] what a model's folder makes of it.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Settings {
            $($(#[$meta])* pub $field: $type,)+
        }

        impl Default for Settings {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        impl Settings {
            /// Takes every setting out of an object and checks what needs no model; what is left in it is no setting.
            ///
            /// # Errors
            /// The first setting that is missing, of another type or out of its limits.
            pub fn take(map: &mut Map<String, Value>) -> Result<Self, SettingError> {
                let settings = Self { $($field: take(map, stringify!($field))?,)+ };
                settings.check()?;
                Ok(settings)
            }
        }
    };
}

settings! {
    /// The prompt as given.
    prompt: String = String::new(),
    /// The negative prompt.
    negative: String = String::new(),
    /// SHA-256 of the files that the text states came from instead, cond then uncond, if they did.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    text_in: Vec<String> = Vec::new(),
    /// Width in pixels.
    width: u32 = 1024,
    /// Height in pixels.
    height: u32 = 1024,
    /// Steps asked for.
    steps: usize = 50,
    /// Guidance scale; 1 turns guidance off.
    cfg: f32 = 3.0,
    /// Schedule shift.
    shift: f64 = 5.0,
    /// Seed of the noise; none when the noise came from a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64> = Some(42),
    /// SHA-256 of the file that the noise came from instead, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    noise_in: Option<String> = None,
    /// DiT blocks that the uncond row leaves out.
    skip_layers: Vec<usize> = vec![DitConfig::OFFICIAL_SKIP],
    /// From this progress.
    skip_start: f64 = 0.0,
    /// To this progress.
    skip_stop: f64 = 1.0,
    /// Longest prompt in tokens.
    max_seq: usize = MAX_SEQ,
    /// [`SAMPLER`].
    sampler: String = SAMPLER.into(),
    /// [`SCHEDULE`].
    schedule: String = SCHEDULE.into(),
    /// [`NOISE_LAYOUT`].
    noise_layout: String = NOISE_LAYOUT.into(),
}

/// A setting that cannot be used; who asked for it says how it is called there (an option, a record's field).
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SettingError {
    /// It is not there.
    #[error("{field} is missing")]
    Missing {
        /// The setting.
        field: &'static str,
    },
    /// It is of another type.
    #[error("{field} is {found}, {expected} expected")]
    Type {
        /// The setting.
        field: &'static str,
        /// What is there, as JSON.
        found: String,
        /// What should be.
        expected: &'static str,
    },
    /// It is a name of which only one is known.
    #[error("{field} is \"{found}\", \"{supported}\" is supported")]
    Unsupported {
        /// The setting.
        field: &'static str,
        /// What is there.
        found: String,
        /// What can be.
        supported: &'static str,
    },
    /// It is out of its limits.
    #[error("{field}: {reason}")]
    Value {
        /// The setting; `size` when width and height are each possible and both together are not.
        field: &'static str,
        /// What is there and what was expected.
        reason: String,
    },
    /// It is above another setting that bounds it.
    #[error("{field} is {found}, above {bound} {limit}")]
    Above {
        /// The setting.
        field: &'static str,
        /// What is there.
        found: f64,
        /// The setting that bounds it.
        bound: &'static str,
        /// Its value.
        limit: f64,
    },
}

impl SettingError {
    /// The setting's name.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Missing { field }
            | Self::Type { field, .. }
            | Self::Unsupported { field, .. }
            | Self::Value { field, .. }
            | Self::Above { field, .. } => field,
        }
    }

    /// What is wrong, to be put behind the setting's name.
    pub fn reason(&self) -> String {
        self.to_string().split_off(self.field().len())
    }
}

/// The type of a setting, as JSON has it.
trait Field: for<'de> Deserialize<'de> {
    /// What people call it.
    const EXPECTED: &'static str;

    /// The value of a setting that is not there, where it may be missing.
    fn missing() -> Option<Self> {
        None
    }
}

impl Field for String {
    const EXPECTED: &'static str = "a text";
}

impl Field for u32 {
    const EXPECTED: &'static str = "a number of pixels";
}

impl Field for usize {
    const EXPECTED: &'static str = "a whole number";
}

impl Field for u64 {
    const EXPECTED: &'static str = "a whole number from 0";
}

impl Field for f32 {
    const EXPECTED: &'static str = "a number";
}

impl Field for f64 {
    const EXPECTED: &'static str = "a number";
}

impl Field for Vec<usize> {
    const EXPECTED: &'static str = "a list of whole numbers";
}

impl Field for Vec<String> {
    const EXPECTED: &'static str = "a list of texts";

    fn missing() -> Option<Self> {
        Some(Vec::new())
    }
}

impl<T: Field> Field for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;

    fn missing() -> Option<Self> {
        Some(None)
    }
}

/// Takes a setting out of an object; null is no value.
fn take<T: Field>(map: &mut Map<String, Value>, field: &'static str) -> Result<T, SettingError> {
    let Some(value) = map.remove(field) else { return T::missing().ok_or(SettingError::Missing { field }) };
    let found = value.to_string();
    match serde_json::from_value(value) {
        Ok(taken) if found != "null" => Ok(taken),
        _ => Err(SettingError::Type { field, found, expected: T::EXPECTED }),
    }
}

impl Settings {
    /// The request that a model's folder makes when nothing else is asked for.
    pub fn of_model(pipeline: &PipelineConfig, dit: &DitConfig) -> Self {
        let official = Self::default();
        let [width, height] = pipeline.size.unwrap_or([official.width, official.height]);
        Self {
            width,
            height,
            steps: pipeline.steps.unwrap_or(official.steps),
            shift: pipeline.shift.filter(|&s| s != PipelineConfig::NO_SHIFT).unwrap_or(official.shift),
            skip_layers: dit.uncond_skip_layers.clone(),
            ..official
        }
    }

    /// Checks everything that needs no model.
    ///
    /// # Errors
    /// The first setting out of its limits.
    pub fn check(&self) -> Result<(), SettingError> {
        let value = |field, reason| Err(SettingError::Value { field, reason });
        check_side("width", self.width)?;
        check_side("height", self.height)?;
        let pixels = u64::from(self.width) * u64::from(self.height);
        if pixels > MAX_PIXELS {
            let reason = format!(
                "{}x{} is {:.2} megapixels, at most {:.1} are possible",
                self.width,
                self.height,
                pixels as f64 / 1e6,
                MAX_PIXELS as f64 / 1e6
            );
            return value("size", reason);
        }
        if !(1..=MAX_STEPS).contains(&self.steps) {
            return value("steps", format!("{}, 1 to {MAX_STEPS} expected", self.steps));
        }
        if !(self.cfg.is_finite() && self.cfg >= 0.0) {
            return value("cfg", format!("{}, a finite number from 0 expected", self.cfg));
        }
        if !(self.shift.is_finite() && self.shift > 0.0) {
            return value("shift", format!("{}, a finite number above 0 expected", self.shift));
        }
        if self.seed.is_none() && self.noise_in.is_none() {
            return Err(SettingError::Missing { field: "seed" });
        }
        for (field, progress) in [("skip_start", self.skip_start), ("skip_stop", self.skip_stop)] {
            if !(0.0..=1.0).contains(&progress) {
                return value(field, format!("{progress}, 0 to 1 expected"));
            }
        }
        if self.skip_start > self.skip_stop {
            let (field, bound) = ("skip_start", "skip_stop");
            return Err(SettingError::Above { field, found: self.skip_start, bound, limit: self.skip_stop });
        }
        if self.max_seq == 0 {
            return value("max_seq", "0, at least 1 expected".into());
        }
        for (field, found, supported) in [
            ("sampler", &self.sampler, SAMPLER),
            ("schedule", &self.schedule, SCHEDULE),
            ("noise_layout", &self.noise_layout, NOISE_LAYOUT),
        ] {
            if found != supported {
                return Err(SettingError::Unsupported { field, found: found.clone(), supported });
            }
        }
        Ok(())
    }

    /// Checks the skipped blocks against a model's number of them, and puts them in order.
    ///
    /// # Errors
    /// A block that the model does not have.
    pub fn check_blocks(&mut self, blocks: usize) -> Result<(), SettingError> {
        self.skip_layers.sort_unstable();
        self.skip_layers.dedup();
        match self.skip_layers.iter().find(|&&layer| layer >= blocks) {
            None => Ok(()),
            Some(layer) => Err(SettingError::Value {
                field: "skip_layers",
                reason: format!("{layer}, this model has blocks 0 to {}", blocks - 1),
            }),
        }
    }

    /// Rows of latents.
    pub fn h(&self) -> usize {
        self.height as usize / TOKEN_SIDE
    }

    /// Columns of latents.
    pub fn w(&self) -> usize {
        self.width as usize / TOKEN_SIDE
    }

    /// How the uncond row is used.
    pub fn guidance(&self) -> Guidance {
        Guidance {
            cfg: self.cfg,
            skip_layers: self.skip_layers.clone(),
            skip_start: self.skip_start,
            skip_stop: self.skip_stop,
        }
    }

    /// The texts of the rows: the prompt, and the negative prompt when there is an uncond row.
    pub fn texts(&self) -> Vec<&str> {
        let rows = 1 + usize::from(self.guidance().has_uncond());
        [&*self.prompt, &*self.negative].into_iter().take(rows).collect()
    }

    /// The sigmas of the run, high to low, ending in 0; there can be fewer steps than asked for.
    ///
    /// # Errors
    /// [`ScheduleError`] for steps and shifts that [`Settings::check`] refuses.
    pub fn sigmas(&self) -> Result<Vec<f32>, ScheduleError> {
        sigmas(self.steps, self.shift)
    }
}

/// Checks one side: a positive multiple of 16 up to [`MAX_SIDE`].
fn check_side(field: &'static str, side: u32) -> Result<(), SettingError> {
    let token = TOKEN_SIDE as u32;
    let below = side / token * token;
    let reason = if side > MAX_SIDE {
        format!("{side} is over {MAX_SIDE}, the longest side")
    } else if side == 0 {
        format!("0, a multiple of {token} from {token} to {MAX_SIDE} expected")
    } else if side.is_multiple_of(token) {
        return Ok(());
    } else if below == 0 {
        format!("{side} is no multiple of {token}; the nearest is {token}")
    } else {
        format!("{side} is no multiple of {token}; the nearest are {below} and {}", below + token)
    };
    Err(SettingError::Value { field, reason })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The object of the official request with one setting changed, or taken out by null.
    fn changed(field: &str, value: Value) -> Map<String, Value> {
        let Ok(Value::Object(mut map)) = serde_json::to_value(Settings::default()) else { panic!() };
        match value {
            Value::Null => drop(map.remove(field)),
            value => drop(map.insert(field.into(), value)),
        }
        map
    }

    #[test]
    fn settings_come_back_and_leave_what_is_none() {
        let mut settings = Settings { prompt: "an apple".into(), cfg: 0.1, ..Settings::default() };
        for noise_in in [None, Some("ab".to_string())] {
            settings.seed = noise_in.is_none().then_some(u64::MAX);
            settings.noise_in = noise_in;
            let Ok(Value::Object(mut map)) = serde_json::to_value(&settings) else { panic!() };
            map.insert("lora".into(), json!("a"));
            assert_eq!(Settings::take(&mut map).unwrap(), settings);
            assert_eq!(map.into_iter().collect::<Vec<_>>(), [("lora".to_string(), json!("a"))]);
        }
        let read: Settings = serde_json::from_value(json!({"steps": 3})).unwrap();
        assert_eq!(read, Settings { steps: 3, ..Settings::default() });
        assert!(serde_json::from_value::<Settings>(json!({"stepz": 3})).is_err());
    }

    #[test]
    fn bad_settings_are_named_with_what_was_expected() {
        for (field, value, message) in [
            ("sampler", json!("heun"), "sampler is \"heun\", \"euler\" is supported"),
            (
                "noise_layout",
                json!("torch-cuda"),
                "noise_layout is \"torch-cuda\", \"torch-cpu\" is supported",
            ),
            ("steps", json!(10_001), "steps: 10001, 1 to 10000 expected"),
            ("steps", json!("3"), "steps is \"3\", a whole number expected"),
            ("steps", Value::Null, "steps is missing"),
            ("seed", Value::Null, "seed is missing"),
            ("seed", json!(-1), "seed is -1, a whole number from 0 expected"),
            ("width", json!(0), "width: 0, a multiple of 16 from 16 to 4096 expected"),
            ("width", json!(8), "width: 8 is no multiple of 16; the nearest is 16"),
            ("width", json!(4090), "width: 4090 is no multiple of 16; the nearest are 4080 and 4096"),
            ("height", json!(8192), "height: 8192 is over 4096, the longest side"),
            ("height", json!(-16), "height is -16, a number of pixels expected"),
            ("cfg", json!(1e39), "cfg: inf, a finite number from 0 expected"),
            ("shift", json!(0), "shift: 0, a finite number above 0 expected"),
            ("skip_start", json!(2), "skip_start: 2, 0 to 1 expected"),
            ("skip_stop", json!(-0.5), "skip_stop: -0.5, 0 to 1 expected"),
            ("skip_layers", json!([1.5]), "skip_layers is [1.5], a list of whole numbers expected"),
            ("max_seq", json!(0), "max_seq: 0, at least 1 expected"),
            ("text_in", json!([1]), "text_in is [1], a list of texts expected"),
        ] {
            let error = Settings::take(&mut changed(field, value)).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
        let late = Settings { skip_start: 0.5, skip_stop: 0.25, ..Settings::default() };
        assert_eq!(late.check().unwrap_err().to_string(), "skip_start is 0.5, above skip_stop 0.25");
        let large = Settings { width: 4096, height: 4096, ..Settings::default() };
        let message = large.check().unwrap_err().to_string();
        assert_eq!(message, "size: 4096x4096 is 16.78 megapixels, at most 4.2 are possible");
    }

    #[test]
    fn blocks_are_put_in_order_and_held_against_the_model() {
        let mut settings = Settings { skip_layers: vec![5, 1, 5], ..Settings::default() };
        settings.check_blocks(6).unwrap();
        assert_eq!(settings.skip_layers, [1, 5]);
        let message = settings.check_blocks(5).unwrap_err().to_string();
        assert_eq!(message, "skip_layers: 5, this model has blocks 0 to 4");
    }
}
