//! `model_index.json` and `scheduler/scheduler_config.json`: what a request is filled up with.

use serde_json::Value;

use super::{ConfigError, Fields, MAX_WIDTH};
use crate::files::ModelSource;
use crate::sample::schedule::MAX_STEPS;

/// What a model's folder says about requests. The official layout has both files; no part needs them, so a folder without one
/// is used as an official one. What kind of model it is, its weights tell. The schedule is MOSS-Image's; of the scheduler's file
/// only the shift is followed, and what else would change the schedule is named.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineConfig {
    /// Width and height of the pictures that a small model was trained on and draws; official models draw any size.
    pub size: Option<[u32; 2]>,
    /// Steps that a small model draws well with, when a request has none.
    pub steps: Option<usize>,
    /// Shift of the schedule in the scheduler's file.
    pub shift: Option<f64>,
    /// What the scheduler's file asks for and the schedule does not follow: fields with their values, or the class.
    pub not_followed: Vec<String>,
}

/// The class of scheduler whose shift is followed, as diffusers names it, with or without more behind it.
const CLASS: &str = "FlowMatchEuler";
/// What diffusers' FlowMatchEulerDiscreteScheduler (0.42.1) does when a field is not given; other values change a schedule.
const DEFAULTS: [(&str, Value); 7] = [
    ("use_dynamic_shifting", Value::Bool(false)),
    ("invert_sigmas", Value::Bool(false)),
    ("shift_terminal", Value::Null),
    ("use_karras_sigmas", Value::Bool(false)),
    ("use_exponential_sigmas", Value::Bool(false)),
    ("use_beta_sigmas", Value::Bool(false)),
    ("stochastic_sampling", Value::Bool(false)),
];
/// Fields that count with `use_dynamic_shifting` only, which is named then.
const DYNAMIC: [&str; 5] =
    ["base_shift", "max_shift", "base_image_seq_len", "max_image_seq_len", "time_shift_type"];

const INDEX: &str = "model_index.json";
const SCHEDULER: &str = "scheduler/scheduler_config.json";

impl PipelineConfig {
    /// The shift that diffusers gives a scheduler which nobody gave one: in a file it says nothing about the model.
    pub const NO_SHIFT: f64 = 1.0;

    /// Reads the files that are there.
    ///
    /// # Errors
    /// [`ConfigError`], naming the file: no folder, no JSON, a size or steps that no picture has.
    pub fn open(source: &ModelSource) -> Result<Self, ConfigError> {
        source.check_folder()?;
        let mut config = Self { size: None, steps: None, shift: None, not_followed: Vec::new() };
        if source.has(INDEX) {
            config.read_index(&Fields::open(source, INDEX)?)?;
        }
        if source.has(SCHEDULER) {
            config.read_scheduler(&Fields::open(source, SCHEDULER)?)?;
        }
        Ok(config)
    }

    fn read_scheduler(&mut self, f: &Fields) -> Result<(), ConfigError> {
        let class = f.string("_class_name", CLASS)?;
        if !class.starts_with(CLASS) {
            self.not_followed = vec![format!("_class_name {class}")];
            return Ok(());
        }
        self.shift = f.get("shift", Some(None), "a number", |v| v.as_f64().map(Some))?;
        let fits = self.shift.is_none_or(|shift| shift.is_finite() && shift > 0.0);
        f.check("shift", self.shift.unwrap_or_default(), fits, || "a finite number above 0".into())?;
        let is_default = |field: &str, value: &Value| {
            value.is_null()
                || DEFAULTS.iter().any(|(known, default)| *known == field && default == value)
                || (field == "num_train_timesteps" && value.as_f64() == Some(1000.0))
        };
        let counts = |field: &str| field != "shift" && !field.starts_with('_') && !DYNAMIC.contains(&field);
        let others = f.map.iter().filter(|(field, value)| counts(field) && !is_default(field, value));
        self.not_followed = others.map(|(field, value)| format!("{field} {value}")).collect();
        Ok(())
    }

    fn read_index(&mut self, f: &Fields) -> Result<(), ConfigError> {
        let size = f.sizes("default_size", Some(vec![]), MAX_WIDTH)?;
        self.size = match size[..] {
            [] => None,
            _ => {
                let fits =
                    size.len() == 2 && size.iter().all(|&side| side > 0 && side % 16 == 0 && side <= 4096);
                let rule = || "[width, height], multiples of 16 to 4096".into();
                f.check("default_size", format!("{size:?}"), fits, rule)?;
                Some([size[0] as u32, size[1] as u32])
            }
        };
        self.steps = f.get("default_steps", Some(None), "a whole number from 0", |v| {
            v.as_u64().and_then(|n| usize::try_from(n).ok()).map(Some)
        })?;
        let fits = self.steps.is_none_or(|steps| (1..=MAX_STEPS).contains(&steps));
        f.check("default_steps", self.steps.unwrap_or_default(), fits, || format!("1 to {MAX_STEPS}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::fields;
    use super::*;
    use serde_json::json;

    fn official() -> PipelineConfig {
        PipelineConfig { size: None, steps: None, shift: None, not_followed: vec![] }
    }

    #[test]
    fn the_files_may_be_absent_and_say_nothing() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("vae")).unwrap();
        let config = PipelineConfig::open(&ModelSource::Folder(folder.path().into())).unwrap();
        assert_eq!(config, official());
        let mut found = official();
        found.read_index(&fields(&json!({"_class_name": "MOSSImagePipeline"}))).unwrap();
        assert_eq!(found, official());
    }

    #[test]
    fn a_small_model_has_its_own_size_and_steps() {
        let mut config = official();
        config.read_index(&fields(&json!({"default_size": [128, 64], "default_steps": 20}))).unwrap();
        assert_eq!((config.size, config.steps), (Some([128, 64]), Some(20)));
    }

    #[test]
    fn of_the_scheduler_the_shift_is_followed_and_the_rest_is_named() {
        // What diffusers writes for a scheduler that is at its defaults but for the shift.
        let plain = json!({
            "_class_name": "FlowMatchEulerDiscreteScheduler", "_diffusers_version": "0.42.1", "num_train_timesteps": 1000,
            "shift": 3.0, "use_dynamic_shifting": false, "base_shift": 0.5, "max_shift": 1.15, "base_image_seq_len": 256,
            "max_image_seq_len": 4096, "invert_sigmas": false, "shift_terminal": null, "use_karras_sigmas": false,
            "use_exponential_sigmas": false, "use_beta_sigmas": false, "time_shift_type": "exponential",
            "stochastic_sampling": false,
        });
        let read = |json: &Value| {
            let mut config = official();
            config.read_scheduler(&fields(json)).map(|()| (config.shift, config.not_followed))
        };
        assert_eq!(read(&plain).unwrap(), (Some(3.0), vec![]));
        for (field, value, named) in [
            ("use_karras_sigmas", json!(true), "use_karras_sigmas true"),
            ("use_dynamic_shifting", json!(true), "use_dynamic_shifting true"),
            ("shift_terminal", json!(0.02), "shift_terminal 0.02"),
            ("num_train_timesteps", json!(500), "num_train_timesteps 500"),
            ("sigma_data", json!("x"), "sigma_data \"x\""),
        ] {
            let mut changed = plain.clone();
            changed[field] = value;
            assert_eq!(read(&changed).unwrap(), (Some(3.0), vec![named.to_string()]));
        }
        let other = json!({"_class_name": "DDIMScheduler", "shift": 3.0, "beta_end": 0.1});
        assert_eq!(read(&other).unwrap(), (None, vec!["_class_name DDIMScheduler".into()]));
        assert_eq!(read(&json!({})).unwrap(), (None, vec![]));
        for shift in [json!("3"), json!(0), json!(-1)] {
            let message = read(&json!({"shift": shift})).unwrap_err().to_string();
            assert!(message.starts_with("config.json: ") && message.contains("shift"), "{message}");
        }
    }

    #[test]
    fn sizes_and_steps_of_no_picture_are_refused() {
        for (json, field) in [
            (json!({"default_size": [100, 128]}), "default_size"),
            (json!({"default_size": [128]}), "default_size"),
            (json!({"default_size": [1_000_000_000, 16]}), "default_size"),
            (json!({"default_steps": 0}), "default_steps"),
            (json!({"default_steps": 10_000_000_000_000_000_000u64}), "default_steps"),
        ] {
            let error = official().read_index(&fields(&json)).unwrap_err();
            assert!(matches!(&error, ConfigError::Size { field: f, .. } if f == field), "{json}: {error}");
        }
    }
}
