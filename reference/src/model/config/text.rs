//! `text_encoder/config.json`: the text stack of Qwen3.5.

use super::{ConfigError, Fields, MAX_LAYERS, MAX_VOCABULARY, MAX_WIDTH};
use crate::files::ModelSource;

/// The mixer of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerType {
    /// Softmax attention.
    FullAttention,
    /// Gated DeltaNet.
    LinearAttention,
}

/// Sizes of the text encoder; fields as in the public Qwen3_5TextConfig.
#[derive(Clone, Debug, PartialEq)]
pub struct TextConfig {
    /// Rows of the embedding.
    pub vocab_size: usize,
    /// Width of the states.
    pub hidden_size: usize,
    /// Layers.
    pub num_hidden_layers: usize,
    /// Mixer of each layer.
    pub layer_types: Vec<LayerType>,
    /// Feed-forward width.
    pub intermediate_size: usize,
    /// Query heads of full attention.
    pub num_attention_heads: usize,
    /// Key and value heads of full attention.
    pub num_key_value_heads: usize,
    /// Width of a head of full attention.
    pub head_dim: usize,
    /// Share of a head that is rotated.
    pub partial_rotary_factor: f64,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Epsilon of all norms.
    pub rms_norm_eps: f64,
    /// Key heads of the Gated DeltaNet.
    pub linear_num_key_heads: usize,
    /// Value heads of the Gated DeltaNet.
    pub linear_num_value_heads: usize,
    /// Width of its key heads.
    pub linear_key_head_dim: usize,
    /// Width of its value heads.
    pub linear_value_head_dim: usize,
    /// Width of its causal convolution.
    pub linear_conv_kernel_dim: usize,
}

impl TextConfig {
    /// Columns of all query heads of full attention.
    pub fn query_width(&self) -> usize {
        self.num_attention_heads * self.head_dim
    }

    /// Columns of all key heads, or value heads, of full attention.
    pub fn key_value_width(&self) -> usize {
        self.num_key_value_heads * self.head_dim
    }

    /// Columns of all value heads of the Gated DeltaNet.
    pub fn delta_value_width(&self) -> usize {
        self.linear_num_value_heads * self.linear_value_head_dim
    }

    /// Columns of all query, key and value heads of the Gated DeltaNet.
    pub fn delta_qkv_width(&self) -> usize {
        2 * self.linear_num_key_heads * self.linear_key_head_dim + self.delta_value_width()
    }

    /// Rotated elements of a head, an even number.
    pub fn rotary_dim(&self) -> usize {
        (self.head_dim as f64 * self.partial_rotary_factor) as usize
    }

    /// Reads `text_encoder/config.json`.
    ///
    /// # Errors
    /// [`ConfigError`], naming the file and the field.
    pub fn open(source: &ModelSource) -> Result<Self, ConfigError> {
        Self::from_fields(&Fields::open(source, "text_encoder/config.json")?)
    }

    pub(super) fn from_fields(outer: &Fields) -> Result<Self, ConfigError> {
        let inner = outer.object("text_config")?;
        let f = inner.as_ref().unwrap_or(outer);
        f.expect_name("model_type", "a Qwen3.5 text encoder", |name| name.starts_with("qwen3_5"))?;
        let rope = f.object("rope_parameters")?;
        let rope = rope.as_ref().unwrap_or(f);
        let with_factor = if f.has("partial_rotary_factor") { f } else { rope };
        let partial_rotary_factor = with_factor.number("partial_rotary_factor", Some(0.25))?;
        let num_hidden_layers = f.size("num_hidden_layers", None, MAX_LAYERS)?;
        let config = Self {
            vocab_size: f.size("vocab_size", None, MAX_VOCABULARY)?,
            hidden_size: f.size("hidden_size", None, MAX_WIDTH)?,
            num_hidden_layers,
            layer_types: layer_types(f, num_hidden_layers)?,
            intermediate_size: f.size("intermediate_size", None, MAX_WIDTH)?,
            num_attention_heads: f.size("num_attention_heads", None, MAX_WIDTH)?,
            num_key_value_heads: f.size("num_key_value_heads", None, MAX_WIDTH)?,
            head_dim: f.size("head_dim", Some(256), MAX_WIDTH)?,
            partial_rotary_factor,
            rope_theta: rope.number("rope_theta", None)?,
            rms_norm_eps: f.number("rms_norm_eps", Some(1e-6))?,
            linear_num_key_heads: f.size("linear_num_key_heads", Some(16), MAX_WIDTH)?,
            linear_num_value_heads: f.size("linear_num_value_heads", Some(32), MAX_WIDTH)?,
            linear_key_head_dim: f.size("linear_key_head_dim", Some(128), MAX_WIDTH)?,
            linear_value_head_dim: f.size("linear_value_head_dim", Some(128), MAX_WIDTH)?,
            linear_conv_kernel_dim: f.size("linear_conv_kernel_dim", Some(4), MAX_WIDTH)?,
        };
        config.check(f)?;
        Ok(config)
    }

    fn check(&self, f: &Fields) -> Result<(), ConfigError> {
        f.check_multiple("vocab_size", self.vocab_size, 1)?;
        f.check_multiple("hidden_size", self.hidden_size, 16)?;
        f.check_multiple("intermediate_size", self.intermediate_size, 16)?;
        f.check_multiple("num_key_value_heads", self.num_key_value_heads, 1)?;
        f.check_multiple("num_attention_heads", self.num_attention_heads, self.num_key_value_heads)?;
        f.check_multiple("head_dim", self.head_dim, 16)?;
        let rotary = self.head_dim as f64 * self.partial_rotary_factor;
        let holds = rotary >= 2.0 && rotary <= self.head_dim as f64 && rotary % 2.0 == 0.0;
        f.check("head_dim * partial_rotary_factor", rotary, holds, || {
            format!("an even number from 2 to head_dim {}", self.head_dim)
        })?;
        f.check("rope_theta", self.rope_theta, self.rope_theta > 1.0, || "above 1".into())?;
        let holds = self.rms_norm_eps as f32 > 0.0 && self.rms_norm_eps <= 1.0;
        f.check("rms_norm_eps", self.rms_norm_eps, holds, || "above 0, at most 1".into())?;
        f.check_multiple("linear_num_key_heads", self.linear_num_key_heads, 1)?;
        f.check_multiple("linear_num_value_heads", self.linear_num_value_heads, self.linear_num_key_heads)?;
        f.check_multiple("linear_key_head_dim", self.linear_key_head_dim, 16)?;
        f.check_multiple("linear_value_head_dim", self.linear_value_head_dim, 16)?;
        let width = self.linear_conv_kernel_dim;
        f.check("linear_conv_kernel_dim", width, (1..=8).contains(&width), || "1 to 8".into())?;
        for (field, value, official) in [("attn_output_gate", true, true), ("attention_bias", false, false)] {
            let found = f.flag(field, Some(value))?;
            f.check(field, found, found == official, || official.to_string())?;
        }
        let activation = f.string("hidden_act", "silu")?;
        f.check("hidden_act", &activation, activation == "silu", || "silu".into())?;
        Ok(())
    }
}

/// `layer_types`, or every `full_attention_interval`-th layer full.
fn layer_types(f: &Fields, layers: usize) -> Result<Vec<LayerType>, ConfigError> {
    let Some(names) = f.strings("layer_types")? else {
        let interval = f.size("full_attention_interval", Some(4), MAX_LAYERS)?;
        f.check_multiple("full_attention_interval", interval, 1)?;
        let full = |layer: usize| (layer + 1).is_multiple_of(interval);
        return Ok((0..layers)
            .map(|layer| if full(layer) { LayerType::FullAttention } else { LayerType::LinearAttention })
            .collect());
    };
    f.check("layer_types (its length)", names.len(), names.len() == layers, || {
        format!("num_hidden_layers {layers}")
    })?;
    names
        .iter()
        .map(|name| match name.as_str() {
            "full_attention" => Ok(LayerType::FullAttention),
            "linear_attention" => Ok(LayerType::LinearAttention),
            other => {
                f.check("layer_types", other, false, || "full_attention or linear_attention".into())?;
                unreachable!("the check above fails")
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::fields;
    use super::*;
    use serde_json::{Value, json};

    fn official() -> Value {
        json!({"model_type": "qwen3_5_text", "vocab_size": 248320, "hidden_size": 4096, "num_hidden_layers": 32,
            "intermediate_size": 12288, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 256,
            "rope_parameters": {"rope_theta": 10000000, "partial_rotary_factor": 0.25}})
    }

    #[test]
    fn nested_and_bare_configurations_are_the_same() {
        let bare = TextConfig::from_fields(&fields(&official())).unwrap();
        let nested =
            TextConfig::from_fields(&fields(&json!({"model_type": "qwen3_5", "text_config": official()})))
                .unwrap();
        assert_eq!(bare, nested);
        assert_eq!(bare.rotary_dim(), 64);
        let full: Vec<usize> =
            (0..32).filter(|&layer| bare.layer_types[layer] == LayerType::FullAttention).collect();
        assert_eq!(full, [3, 7, 11, 15, 19, 23, 27, 31]);
    }

    #[test]
    fn every_size_is_checked() {
        for (field, value, named) in [
            ("vocab_size", json!(0), "vocab_size"),
            ("hidden_size", json!(4100), "hidden_size"),
            ("intermediate_size", json!(8), "intermediate_size"),
            ("num_key_value_heads", json!(0), "num_key_value_heads"),
            ("num_attention_heads", json!(15), "num_attention_heads"),
            ("head_dim", json!(250), "head_dim"),
            ("partial_rotary_factor", json!(0.26), "head_dim * partial_rotary_factor"),
            ("rms_norm_eps", json!(0.0), "rms_norm_eps"),
            ("linear_num_key_heads", json!(0), "linear_num_key_heads"),
            ("linear_num_value_heads", json!(17), "linear_num_value_heads"),
            ("linear_key_head_dim", json!(24), "linear_key_head_dim"),
            ("linear_value_head_dim", json!(0), "linear_value_head_dim"),
            ("linear_conv_kernel_dim", json!(9), "linear_conv_kernel_dim"),
            ("full_attention_interval", json!(0), "full_attention_interval"),
            ("layer_types", json!(["full_attention"]), "layer_types (its length)"),
            ("layer_types", json!(vec!["sliding"; 32]), "layer_types"),
            ("attn_output_gate", json!(false), "attn_output_gate"),
            ("hidden_act", json!("gelu"), "hidden_act"),
            ("rope_parameters", json!({"rope_theta": 0.5}), "rope_theta"),
        ] {
            let mut json = official();
            json[field] = value;
            let error = TextConfig::from_fields(&fields(&json)).unwrap_err();
            assert!(matches!(&error, ConfigError::Size { field: f, .. } if f == named), "{field}: {error}");
        }
    }

    #[test]
    fn qwen3_is_not_qwen3_5() {
        let mut json = official();
        json["model_type"] = json!("qwen3");
        let error = TextConfig::from_fields(&fields(&json)).unwrap_err();
        assert_eq!(error.to_string(), "config.json: this is qwen3, a Qwen3.5 text encoder expected");
    }
}
