//! `vae/config.json`: the FLUX.2 VAE.

use super::{ConfigError, Fields, MAX_LAYERS, MAX_WIDTH};
use crate::files::ModelSource;

/// Sizes of the VAE decoder; fields as in the public AutoencoderKLFlux2.
#[derive(Clone, Debug, PartialEq)]
pub struct VaeConfig {
    /// Channels of the decoder's input.
    pub latent_channels: usize,
    /// Widths of the blocks, from the picture's side to the latents'.
    pub block_out_channels: Vec<usize>,
    /// The decoder's own widths, when they differ (the small decoder).
    pub decoder_block_out_channels: Option<Vec<usize>>,
    /// Resnets of an up block, less one.
    pub layers_per_block: usize,
    /// Groups of every group norm.
    pub norm_num_groups: usize,
    /// Added to the latents' variance.
    pub batch_norm_eps: f64,
    /// Whether a 1x1 convolution comes first.
    pub use_post_quant_conv: bool,
    /// Whether the middle block attends.
    pub mid_block_add_attention: bool,
}

impl VaeConfig {
    /// Widths of the decoder's blocks, from the picture's side to the latents'.
    pub fn decoder_widths(&self) -> &[usize] {
        self.decoder_block_out_channels.as_ref().unwrap_or(&self.block_out_channels)
    }

    /// Reads `vae/config.json`.
    ///
    /// # Errors
    /// [`ConfigError`], naming the file and the field.
    pub fn open(source: &ModelSource) -> Result<Self, ConfigError> {
        Self::from_fields(&Fields::open(source, "vae/config.json")?)
    }

    pub(super) fn from_fields(f: &Fields) -> Result<Self, ConfigError> {
        f.expect_name("_class_name", "a FLUX.2 VAE (AutoencoderKLFlux2)", |name| {
            name == "AutoencoderKLFlux2"
        })?;
        let config = Self {
            latent_channels: f.size("latent_channels", Some(32), MAX_WIDTH)?,
            block_out_channels: f.sizes("block_out_channels", Some(vec![128, 256, 512, 512]), MAX_WIDTH)?,
            decoder_block_out_channels: f
                .sizes("decoder_block_out_channels", Some(vec![]), MAX_WIDTH)
                .map(|widths| (!widths.is_empty()).then_some(widths))?,
            layers_per_block: f.size("layers_per_block", Some(2), MAX_LAYERS)?,
            norm_num_groups: f.size("norm_num_groups", Some(32), MAX_WIDTH)?,
            batch_norm_eps: f.number("batch_norm_eps", Some(1e-4))?,
            use_post_quant_conv: f.flag("use_post_quant_conv", Some(true))?,
            mid_block_add_attention: f.flag("mid_block_add_attention", Some(true))?,
        };
        config.check(f)?;
        Ok(config)
    }

    fn check(&self, f: &Fields) -> Result<(), ConfigError> {
        f.check_multiple("latent_channels", self.latent_channels, 16)?;
        f.check_multiple("norm_num_groups", self.norm_num_groups, 1)?;
        f.check_multiple("layers_per_block", self.layers_per_block, 1)?;
        let field = match self.decoder_block_out_channels {
            Some(_) => "decoder_block_out_channels",
            None => "block_out_channels",
        };
        let widths = self.decoder_widths();
        f.check(&format!("{field} (their number)"), widths.len(), widths.len() == 4, || {
            "4, for 16 pixels a latent token".into()
        })?;
        for &width in widths {
            f.check_multiple(field, width, 16)?;
            f.check_multiple(field, width, self.norm_num_groups)?;
        }
        let holds = (0.0..=1.0).contains(&self.batch_norm_eps);
        f.check("batch_norm_eps", self.batch_norm_eps, holds, || "0 to 1".into())?;
        let patch = f.sizes("patch_size", Some(vec![2, 2]), MAX_WIDTH)?;
        f.check("patch_size", format!("{patch:?}"), patch == [2, 2], || "[2, 2]".into())
    }
}

#[cfg(test)]
mod tests {
    use super::super::fields;
    use super::*;
    use serde_json::json;

    #[test]
    fn both_decoders_are_read() {
        let full = VaeConfig::from_fields(&fields(&json!({"_class_name": "AutoencoderKLFlux2"}))).unwrap();
        assert_eq!(full.decoder_widths(), [128, 256, 512, 512]);
        let small = json!({"decoder_block_out_channels": [96, 192, 384, 384]});
        assert_eq!(VaeConfig::from_fields(&fields(&small)).unwrap().decoder_widths(), [96, 192, 384, 384]);
    }

    #[test]
    fn every_size_is_checked() {
        for (json, named) in [
            (json!({"latent_channels": 4}), "latent_channels"),
            (json!({"norm_num_groups": 0}), "norm_num_groups"),
            (json!({"layers_per_block": 0}), "layers_per_block"),
            (json!({"block_out_channels": [128, 256]}), "block_out_channels (their number)"),
            (json!({"decoder_block_out_channels": [96, 100, 384, 384]}), "decoder_block_out_channels"),
            (json!({"decoder_block_out_channels": [80, 192, 384, 384]}), "decoder_block_out_channels"),
            (json!({"batch_norm_eps": -1.0}), "batch_norm_eps"),
            (json!({"patch_size": [1, 1]}), "patch_size"),
        ] {
            let error = VaeConfig::from_fields(&fields(&json)).unwrap_err();
            assert!(matches!(&error, ConfigError::Size { field: f, .. } if f == named), "{json}: {error}");
        }
        let error = VaeConfig::from_fields(&fields(&json!({"_class_name": "AutoencoderKL"}))).unwrap_err();
        assert!(matches!(error, ConfigError::OtherModel { .. }));
    }
}
