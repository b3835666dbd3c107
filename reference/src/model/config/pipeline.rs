//! `model_index.json` and `scheduler/scheduler_config.json`: what a request is filled up with.

use super::{ConfigError, Fields, MAX_WIDTH};
use crate::files::ModelSource;
use crate::sample::schedule::MAX_STEPS;

/// What a model's folder says about requests. The official layout has both files; no part needs them, so a folder without one
/// is used as an official one. What kind of model it is, its weights tell; the schedule is the released one whatever the
/// scheduler's file says, but a file that was not downloaded well is named.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineConfig {
    /// Width and height of the pictures that a small model was trained on and draws; official models draw any size.
    pub size: Option<[u32; 2]>,
    /// Steps when a request has none.
    pub steps: usize,
}

const INDEX: &str = "model_index.json";
const SCHEDULER: &str = "scheduler/scheduler_config.json";

impl PipelineConfig {
    /// Reads the files that are there.
    ///
    /// # Errors
    /// [`ConfigError`], naming the file: no folder, no JSON, a size or steps that no picture has.
    pub fn open(source: &ModelSource) -> Result<Self, ConfigError> {
        source.check_folder()?;
        let mut config = Self { size: None, steps: 50 };
        if source.has(INDEX) {
            config.read_index(&Fields::open(source, INDEX)?)?;
        }
        if source.has(SCHEDULER) {
            Fields::open(source, SCHEDULER)?;
        }
        Ok(config)
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
        self.steps = f.size("default_steps", Some(self.steps), MAX_STEPS)?;
        f.check("default_steps", self.steps, (1..=MAX_STEPS).contains(&self.steps), || {
            format!("1 to {MAX_STEPS}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::fields;
    use super::*;
    use serde_json::json;

    fn official() -> PipelineConfig {
        PipelineConfig { size: None, steps: 50 }
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
        assert_eq!((config.size, config.steps), (Some([128, 64]), 20));
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
