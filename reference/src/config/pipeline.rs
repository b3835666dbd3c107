//! `model_index.json` and `scheduler/scheduler_config.json`: what a request is filled up with.

use super::{ConfigError, Fields};
use crate::weights::ModelSource;

/// What a model's folder says about requests. The official layout has both files; no part needs them, so a folder without one
/// is used as an official one.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineConfig {
    /// Shift of the schedule when a request has none.
    pub shift: f64,
    /// Width and height of the pictures that a small model was trained on and draws; official models draw any size.
    pub size: Option<[u32; 2]>,
    /// Steps when a request has none.
    pub steps: usize,
    /// Settings of the scheduler that are not followed, each with its file and what is used.
    pub warnings: Vec<String>,
}

const INDEX: &str = "model_index.json";
const SCHEDULER: &str = "scheduler/scheduler_config.json";

impl PipelineConfig {
    /// Reads the files that are there.
    ///
    /// # Errors
    /// [`ConfigError`], naming the file: no folder, no JSON, another pipeline's or scheduler's class, a schedule that was not
    /// trained on 1000 steps.
    pub fn open(source: &ModelSource) -> Result<Self, ConfigError> {
        source.check_folder()?;
        let mut config = Self { shift: 5.0, size: None, steps: 50, warnings: Vec::new() };
        if source.has(INDEX) {
            config.read_index(&Fields::open(source, INDEX)?)?;
        }
        if source.has(SCHEDULER) {
            config.read_scheduler(&Fields::open(source, SCHEDULER)?)?;
        }
        Ok(config)
    }

    /// The classes of the parts are checked in their own files.
    fn read_index(&mut self, f: &Fields) -> Result<(), ConfigError> {
        f.expect_name("_class_name", "a MOSS-Image pipeline", |name| name.to_lowercase().contains("moss"))?;
        let size = f.sizes("default_size", Some(vec![]))?;
        self.size = match size[..] {
            [] => None,
            [w, h] if [w, h].iter().all(|&side| side > 0 && side % 16 == 0 && side <= 4096) => {
                Some([w as u32, h as u32])
            }
            _ => {
                f.check("default_size", format!("{size:?}"), false, || {
                    "[width, height], multiples of 16 to 4096".into()
                })?;
                None
            }
        };
        self.steps = f.size("default_steps", Some(self.steps))?;
        f.check("default_steps", self.steps, (1..=1000).contains(&self.steps), || "1 to 1000".into())
    }

    /// The shift is the schedule's parameter; everything else that would change the schedule must be off.
    fn read_scheduler(&mut self, f: &Fields) -> Result<(), ConfigError> {
        f.expect_name("_class_name", "a flow-match Euler scheduler", |name| {
            matches!(name, "FlowMatchEulerDiscreteScheduler" | "FlowMatchScheduler") || name.contains("MOSS")
        })?;
        let training = f.size("num_train_timesteps", Some(1000))?;
        f.check("num_train_timesteps", training, training == 1000, || "1000".into())?;
        self.shift = f.number("shift", Some(self.shift))?;
        f.check("shift", self.shift, self.shift > 0.0, || "above 0".into())?;
        for key in [
            "use_dynamic_shifting",
            "use_karras_sigmas",
            "use_exponential_sigmas",
            "use_beta_sigmas",
            "invert_sigmas",
            "stochastic_sampling",
        ] {
            if f.flag(key, Some(false))? {
                self.warnings.push(format!("{}: {key} is true, false is used", f.file()));
            }
        }
        if let terminal @ 0.0.. = f.number("shift_terminal", Some(-1.0))? {
            self.warnings.push(format!("{}: shift_terminal is {terminal}, none is used", f.file()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::fields;
    use super::*;
    use serde_json::json;

    fn official() -> PipelineConfig {
        PipelineConfig { shift: 5.0, size: None, steps: 50, warnings: vec![] }
    }

    #[test]
    fn the_official_schedule_is_the_default() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("vae")).unwrap();
        let config = PipelineConfig::open(&ModelSource::Folder(folder.path().into())).unwrap();
        assert_eq!(config, official());
        let mut found = official();
        let json = json!({"_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000,
            "shift": 5.0, "use_dynamic_shifting": false, "shift_terminal": null});
        found.read_scheduler(&fields(&json)).unwrap();
        found.read_index(&fields(&json!({"_class_name": "MOSSImagePipeline"}))).unwrap();
        assert_eq!(found, official());
    }

    #[test]
    fn a_folder_has_its_own_shift_size_and_steps() {
        let mut config = official();
        config.read_scheduler(&fields(&json!({"shift": 3.0}))).unwrap();
        config.read_index(&fields(&json!({"default_size": [128, 64], "default_steps": 20}))).unwrap();
        assert_eq!((config.shift, config.size, config.steps), (3.0, Some([128, 64]), 20));
    }

    #[test]
    fn what_is_not_followed_is_warned_of() {
        let mut config = official();
        config
            .read_scheduler(&fields(&json!({"use_dynamic_shifting": true, "shift_terminal": 0.02})))
            .unwrap();
        let warnings = [
            "config.json: use_dynamic_shifting is true, false is used",
            "config.json: shift_terminal is 0.02, none is used",
        ];
        assert_eq!(config.warnings, warnings);
    }

    #[test]
    fn other_pipelines_and_schedules_are_refused() {
        let other = json!({"_class_name": "FluxPipeline"});
        let error = official().read_index(&fields(&other)).unwrap_err().to_string();
        assert_eq!(error, "config.json: this is FluxPipeline, a MOSS-Image pipeline expected");
        let other = json!({"_class_name": "DDIMScheduler"});
        let error = official().read_scheduler(&fields(&other)).unwrap_err().to_string();
        assert_eq!(error, "config.json: this is DDIMScheduler, a flow-match Euler scheduler expected");
        for (json, field) in
            [(json!({"num_train_timesteps": 500}), "num_train_timesteps"), (json!({"shift": 0.0}), "shift")]
        {
            let error = official().read_scheduler(&fields(&json)).unwrap_err();
            assert!(matches!(&error, ConfigError::Size { field: f, .. } if f == field), "{json}: {error}");
        }
        for (json, field) in [
            (json!({"default_size": [100, 128]}), "default_size"),
            (json!({"default_size": [128]}), "default_size"),
            (json!({"default_steps": 0}), "default_steps"),
        ] {
            let error = official().read_index(&fields(&json)).unwrap_err();
            assert!(matches!(&error, ConfigError::Size { field: f, .. } if f == field), "{json}: {error}");
        }
    }
}
