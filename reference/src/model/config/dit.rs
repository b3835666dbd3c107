//! `transformer/config.json`.

use super::{ConfigError, Fields, MAX_LAYERS, MAX_WIDTH};
use crate::files::ModelSource;

/// Sizes of the DiT; fields as in the public MOSSImageDiT.
#[derive(Clone, Debug, PartialEq)]
pub struct DitConfig {
    /// Width `D`.
    pub dim: usize,
    /// Feed-forward width `F`.
    pub ffn_dim: usize,
    /// Attention heads.
    pub num_heads: usize,
    /// Blocks.
    pub num_layers: usize,
    /// Width of the text states.
    pub text_dim: usize,
    /// Width of the timestep embedding.
    pub freq_dim: usize,
    /// Channels of a latent token.
    pub latent_channels: usize,
    /// Base of the rotary bands.
    pub rope_base: f64,
    /// Blocks that the uncond row leaves out unless told otherwise. Official models leave out 22; a smaller model's file may
    /// say its own in `uncond_skip_layers`.
    pub uncond_skip_layers: Vec<usize>,
}

impl DitConfig {
    /// The block that the official pipeline leaves out of the uncond row.
    pub const OFFICIAL_SKIP: usize = 22;

    /// Reads `transformer/config.json`.
    ///
    /// # Errors
    /// [`ConfigError`], naming the file and the field.
    pub fn open(source: &ModelSource) -> Result<Self, ConfigError> {
        Self::from_fields(&Fields::open(source, "transformer/config.json")?)
    }

    /// Width of an attention head.
    pub fn head_dim(&self) -> usize {
        self.dim / self.num_heads
    }

    pub(super) fn from_fields(f: &Fields) -> Result<Self, ConfigError> {
        f.expect_name("_class_name", "a MOSS-Image transformer", |name| {
            name.contains("MOSS") || name.contains("Moss")
        })?;
        let num_layers = f.size("num_layers", Some(42), MAX_LAYERS)?;
        let skip = if Self::OFFICIAL_SKIP < num_layers { vec![Self::OFFICIAL_SKIP] } else { vec![] };
        let config = Self {
            dim: f.size("dim", Some(3072), MAX_WIDTH)?,
            ffn_dim: f.size("ffn_dim", Some(8192), MAX_WIDTH)?,
            num_heads: f.size("num_heads", Some(24), MAX_WIDTH)?,
            num_layers,
            text_dim: f.size("text_dim", Some(4096), MAX_WIDTH)?,
            freq_dim: f.size("freq_dim", Some(256), MAX_WIDTH)?,
            latent_channels: f.size("latent_channels", Some(128), MAX_WIDTH)?,
            rope_base: f.number("rope_base", Some(10000.0))?,
            uncond_skip_layers: f.sizes("uncond_skip_layers", Some(skip), MAX_LAYERS)?,
        };
        config.check(f)?;
        Ok(config)
    }

    fn check(&self, f: &Fields) -> Result<(), ConfigError> {
        f.check_multiple("num_heads", self.num_heads, 1)?;
        f.check_multiple("num_layers", self.num_layers, 1)?;
        f.check_multiple("dim", self.dim, 16)?;
        f.check_multiple("dim", self.dim, self.num_heads)?;
        let head = self.head_dim();
        f.check("dim / num_heads", head, head.is_multiple_of(16), || "a multiple of 16".into())?;
        f.check_multiple("ffn_dim", self.ffn_dim, 16)?;
        f.check_multiple("text_dim", self.text_dim, 16)?;
        f.check_multiple("freq_dim", self.freq_dim, 16)?;
        f.check("latent_channels", self.latent_channels, self.latent_channels == 128, || "128".into())?;
        f.check("rope_base", self.rope_base, self.rope_base > 1.0, || "above 1".into())?;
        for &layer in &self.uncond_skip_layers {
            f.check("uncond_skip_layers", layer, layer < self.num_layers, || {
                format!("blocks below num_layers {}", self.num_layers)
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::fields;
    use super::*;
    use serde_json::json;

    #[test]
    fn official_sizes_are_the_defaults() {
        let config = DitConfig::from_fields(&fields(&json!({"_class_name": "MOSSImageDiT"}))).unwrap();
        assert_eq!((config.dim, config.num_layers, config.uncond_skip_layers), (3072, 42, vec![22]));
    }

    #[test]
    fn every_size_is_checked() {
        for (patch, field) in [
            (json!({"num_heads": 0}), "num_heads"),
            (json!({"num_layers": 0}), "num_layers"),
            (json!({"dim": 3080}), "dim"),
            (json!({"dim": 256, "num_heads": 3}), "dim"),
            (json!({"dim": 48, "num_heads": 6}), "dim / num_heads"),
            (json!({"ffn_dim": 100}), "ffn_dim"),
            (json!({"text_dim": 0}), "text_dim"),
            (json!({"freq_dim": 255}), "freq_dim"),
            (json!({"latent_channels": 64}), "latent_channels"),
            (json!({"rope_base": 0.5}), "rope_base"),
            (json!({"uncond_skip_layers": [42]}), "uncond_skip_layers"),
        ] {
            let error = DitConfig::from_fields(&fields(&patch)).unwrap_err();
            assert!(matches!(&error, ConfigError::Size { field: f, .. } if f == field), "{patch}: {error}");
        }
        let error =
            DitConfig::from_fields(&fields(&json!({"_class_name": "FluxTransformer2DModel"}))).unwrap_err();
        assert!(matches!(error, ConfigError::OtherModel { .. }));
    }
}
