//! The sizes of the synthetic models.

use std::path::Path;

use serde_json::{Value, json};

use super::SynthError;

/// The configuration files of a model, and how its weights are split.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    /// `text_encoder/config.json`.
    pub text_encoder: Value,
    /// `transformer/config.json`.
    pub transformer: Value,
    /// `vae/config.json`.
    pub vae: Value,
    /// Most bytes of a shard, unless one tensor alone has more.
    pub shard_bytes: u64,
}

impl Sizes {
    /// Reads `{"text_encoder": .., "transformer": .., "vae": .., "shard_bytes": ..}`.
    ///
    /// # Errors
    /// [`SynthError`], naming the file.
    pub fn from_file(path: &Path) -> Result<Self, SynthError> {
        let bad = |reason: String| SynthError::Sizes { file: path.display().to_string(), reason };
        let text = std::fs::read_to_string(path).map_err(super::io(path))?;
        let json: Value = serde_json::from_str(&text).map_err(|error| bad(format!("not JSON: {error}")))?;
        let part = |name: &str| match json.get(name) {
            Some(part) if part.is_object() => Ok(part.clone()),
            _ => Err(bad(format!("an object {name} expected"))),
        };
        let shard_bytes = match json.get("shard_bytes") {
            None => OFFICIAL_SHARD,
            Some(n) => n.as_u64().ok_or_else(|| bad("shard_bytes is no whole number".into()))?,
        };
        let (text_encoder, transformer, vae) = (part("text_encoder")?, part("transformer")?, part("vae")?);
        Ok(Self { text_encoder, transformer, vae, shard_bytes })
    }
}

/// Shards of the official files stay below this.
const OFFICIAL_SHARD: u64 = 5_000_000_000;

/// A named set of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Preset {
    /// Official head widths and little else; odd head counts; a few MB.
    Tiny,
    /// The sizes of the demo model; at most 16 MiB.
    Demo,
    /// One official-size block of each kind, and the official VAE; about 2 GB.
    Block,
    /// The official sizes; 26 GB.
    Full,
}

impl Preset {
    /// The preset's sizes.
    pub fn sizes(self) -> Sizes {
        match self {
            Preset::Tiny => Sizes {
                text_encoder: text(64, 96, &["linear_attention", "full_attention"], (2, 1), (1, 3), 512),
                transformer: dit(384, 176, 3, 3, 64, Some(&[1])),
                vae: vae(&[16, 32, 32, 48], 16),
                shard_bytes: 1 << 19,
            },
            Preset::Demo => Sizes {
                text_encoder: text(128, 256, &PATTERN, (2, 1), (1, 2), 528),
                transformer: dit(256, 384, 2, 7, 128, Some(&[3])),
                vae: vae(&[32, 32, 32, 64], 8),
                shard_bytes: OFFICIAL_SHARD,
            },
            Preset::Block => Sizes {
                text_encoder: text(
                    4096,
                    12288,
                    &["linear_attention", "full_attention"],
                    (16, 4),
                    (16, 32),
                    1024,
                ),
                transformer: dit(3072, 8192, 24, 1, 4096, None),
                vae: vae(&[96, 192, 384, 384], 32),
                shard_bytes: OFFICIAL_SHARD,
            },
            Preset::Full => {
                let types: Vec<&str> = PATTERN.iter().copied().cycle().take(32).collect();
                Sizes {
                    text_encoder: text(4096, 12288, &types, (16, 4), (16, 32), 248_320),
                    transformer: dit(3072, 8192, 24, 42, 4096, None),
                    vae: vae(&[96, 192, 384, 384], 32),
                    shard_bytes: OFFICIAL_SHARD,
                }
            }
        }
    }
}

/// The official pattern of layers.
const PATTERN: [&str; 4] = ["linear_attention", "linear_attention", "linear_attention", "full_attention"];

fn text(
    hidden: usize,
    ffn: usize,
    types: &[&str],
    (heads, kv_heads): (usize, usize),
    (key_heads, value_heads): (usize, usize),
    vocab: usize,
) -> Value {
    json!({
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "text_config": {
            "attention_bias": false,
            "attn_output_gate": true,
            "dtype": "bfloat16",
            "head_dim": 256,
            "hidden_act": "silu",
            "hidden_size": hidden,
            "intermediate_size": ffn,
            "layer_types": types,
            "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": 128,
            "linear_num_key_heads": key_heads,
            "linear_num_value_heads": value_heads,
            "linear_value_head_dim": 128,
            "max_position_embeddings": 262_144,
            "model_type": "qwen3_5_text",
            "num_attention_heads": heads,
            "num_hidden_layers": types.len(),
            "num_key_value_heads": kv_heads,
            "partial_rotary_factor": 0.25,
            "rms_norm_eps": 1e-6,
            "rope_parameters": {
                "mrope_interleaved": true,
                "mrope_section": [11, 11, 10],
                "partial_rotary_factor": 0.25,
                "rope_theta": 10_000_000,
                "rope_type": "default"
            },
            "tie_word_embeddings": false,
            "vocab_size": vocab
        }
    })
}

fn dit(
    dim: usize,
    ffn: usize,
    heads: usize,
    layers: usize,
    text_dim: usize,
    skip: Option<&[usize]>,
) -> Value {
    let mut config = json!({
        "_class_name": "MOSSImageDiT",
        "dim": dim,
        "ffn_dim": ffn,
        "freq_dim": 256,
        "latent_channels": 128,
        "num_heads": heads,
        "num_layers": layers,
        "rope_base": 10000.0,
        "text_dim": text_dim
    });
    if let Some(skip) = skip {
        config["uncond_skip_layers"] = json!(skip);
    }
    config
}

fn vae(widths: &[usize], groups: usize) -> Value {
    json!({
        "_class_name": "AutoencoderKLFlux2",
        "batch_norm_eps": 1e-4,
        "block_out_channels": [128, 256, 512, 512],
        "decoder_block_out_channels": widths,
        "latent_channels": 32,
        "layers_per_block": 2,
        "mid_block_add_attention": true,
        "norm_num_groups": groups,
        "patch_size": [2, 2],
        "use_post_quant_conv": true,
        "use_quant_conv": true
    })
}

/// `model_index.json`.
pub(super) fn model_index() -> Value {
    json!({
        "_class_name": "MOSSImagePipeline",
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "text_encoder": ["transformers", "Qwen3_5ForConditionalGeneration"],
        "tokenizer": ["transformers", "Qwen2TokenizerFast"],
        "transformer": ["moss_image", "MOSSImageDiT"],
        "vae": ["diffusers", "AutoencoderKLFlux2"]
    })
}

/// `scheduler/scheduler_config.json`.
pub(super) fn scheduler() -> Value {
    json!({"_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000, "shift": 5.0})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_come_from_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sizes.json");
        let tiny = Preset::Tiny.sizes();
        let json = json!({"text_encoder": tiny.text_encoder, "transformer": tiny.transformer, "vae": tiny.vae,
            "shard_bytes": tiny.shard_bytes});
        std::fs::write(&path, json.to_string()).unwrap();
        assert_eq!(Sizes::from_file(&path).unwrap(), tiny);
        for bad in ["{", "{}", r#"{"text_encoder":{},"transformer":{},"vae":{},"shard_bytes":-1}"#] {
            std::fs::write(&path, bad).unwrap();
            let error = Sizes::from_file(&path).unwrap_err();
            assert!(matches!(&error, SynthError::Sizes { .. }), "{error}");
            assert!(error.to_string().contains("sizes.json"), "{error}");
        }
    }
}
