//! Each field of each file with values that eat a machine or are of another kind: an error or a model, soon, and no panic.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::*;
use crate::model::{dit, text_encoder, vae};

fn values() -> Vec<Value> {
    let numbers =
        ["0", "-1", "1", "3", "16", "1e9", "1000000000", "1000000000000000000", "10000000000000000000"];
    let others = [
        "100000000000000000000",
        "1.5",
        "1e-320",
        "1e308",
        "-1e308",
        "\"x\"",
        "\"NaN\"",
        "null",
        "true",
        "[]",
    ];
    let nested = [
        "[1e9]",
        "[1000000000]",
        "[1,1,1,1]",
        "[16,16,16,1000000000]",
        "[\"x\"]",
        "[null]",
        "{}",
        "{\"a\":[]}",
    ];
    let parse = |text: &&str| serde_json::from_str(text).unwrap();
    numbers.iter().chain(&others).chain(&nested).map(parse).collect()
}

/// What a configuration that is accepted makes the program list before a weight file is looked at.
type Read = fn(&Fields) -> Result<usize, ConfigError>;

fn read_text(f: &Fields) -> Result<usize, ConfigError> {
    let config = TextConfig::from_fields(f)?;
    text_encoder::activation_bytes(&config, 4096);
    elements(&text_encoder::tensors(&config))
}

fn read_dit(f: &Fields) -> Result<usize, ConfigError> {
    let config = DitConfig::from_fields(f)?;
    dit::activation_bytes(&config, 70_000);
    elements(&dit::tensors(&config))
}

fn read_vae(f: &Fields) -> Result<usize, ConfigError> {
    let config = VaeConfig::from_fields(f)?;
    vae::activation_bytes(&config, 256, 256);
    elements(&vae::tensors(&config))
}

/// The number of tensors; a size that overflows panics.
fn elements(tensors: &[crate::files::TensorSpec]) -> Result<usize, ConfigError> {
    for tensor in tensors {
        let count = tensor.shape.iter().try_fold(4usize, |n, &size| n.checked_mul(size));
        assert!(count.is_some(), "{} {:?} overflows", tensor.name, tensor.shape);
    }
    Ok(tensors.len())
}

#[test]
fn no_value_of_a_field_eats_the_machine() {
    let text = json!({"model_type": "qwen3_5", "text_config": {
        "model_type": "qwen3_5_text", "vocab_size": 528, "hidden_size": 128, "num_hidden_layers": 4,
        "layer_types": null, "full_attention_interval": 4, "intermediate_size": 256, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 256, "partial_rotary_factor": 0.25, "rms_norm_eps": 1e-6,
        "linear_num_key_heads": 1, "linear_num_value_heads": 2, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "attn_output_gate": true, "attention_bias": false,
        "hidden_act": "silu", "rope_parameters": {"rope_theta": 10_000_000, "partial_rotary_factor": 0.25}
    }});
    let dit = json!({"_class_name": "MOSSImageDiT", "dim": 256, "ffn_dim": 384, "num_heads": 2, "num_layers": 7,
        "text_dim": 128, "freq_dim": 256, "latent_channels": 128, "rope_base": 10000.0, "uncond_skip_layers": [3]});
    let vae = json!({"_class_name": "AutoencoderKLFlux2", "latent_channels": 32,
        "block_out_channels": [128, 256, 512, 512], "decoder_block_out_channels": [32, 32, 32, 64],
        "layers_per_block": 2, "norm_num_groups": 8, "batch_norm_eps": 1e-4, "use_post_quant_conv": true,
        "mid_block_add_attention": true, "patch_size": [2, 2]});
    let parts: [(Value, Read); 3] = [(text, read_text), (dit, read_dit), (vae, read_vae)];
    for (good, read) in parts {
        read(&fields(&good)).unwrap();
        for path in paths(&good, String::new()) {
            for value in values() {
                let mut json = good.clone();
                *json.pointer_mut(&path).unwrap() = value.clone();
                let started = Instant::now();
                match read(&fields(&json)) {
                    Ok(tensors) => assert!(tensors < 20_000, "{path} = {value}: {tensors} tensors"),
                    Err(error) => {
                        let (error, field) = (error.to_string(), path.rsplit('/').next().unwrap());
                        // A wrong product or a wrong count of another field may be named instead.
                        let wrong_type = error.contains(" expected") && error.contains("field ");
                        assert!(error.starts_with("config.json: "), "{path} = {value}: {error}");
                        assert!(!wrong_type || error.contains(field), "{path} = {value}: {error}");
                    }
                }
                assert!(started.elapsed() < Duration::from_secs(5), "{path} = {value} takes long");
            }
        }
    }
}

/// Every field, those inside of objects too.
fn paths(json: &Value, under: String) -> Vec<String> {
    let Some(map) = json.as_object() else { return vec![] };
    let below = |(name, value): (&String, &Value)| {
        let path = format!("{under}/{name}");
        [vec![path.clone()], paths(value, path)].concat()
    };
    map.iter().flat_map(below).collect()
}

#[test]
fn what_is_there_has_its_type_and_is_never_replaced() {
    let text = json!({"vocab_size": 528, "hidden_size": 128, "num_hidden_layers": 4, "intermediate_size": 256,
        "num_attention_heads": 2, "num_key_value_heads": 1, "rope_parameters": {"rope_theta": 1e7}});
    let wrong = |at: &str, value: Value| {
        let mut json = text.clone();
        match at.split_once('/') {
            Some((outer, inner)) => json[outer][inner] = value,
            None => json[at] = value,
        }
        TextConfig::from_fields(&fields(&json)).unwrap_err().to_string()
    };
    for (at, value, message) in [
        ("partial_rotary_factor", json!("0.5"), "field partial_rotary_factor is \"0.5\", a number expected"),
        (
            "rope_parameters/partial_rotary_factor",
            json!([]),
            "field partial_rotary_factor is [], a number expected",
        ),
        ("rope_parameters", json!(3), "field rope_parameters is 3, an object expected"),
        ("text_config", json!("x"), "field text_config is \"x\", an object expected"),
        ("model_type", json!(5), "field model_type is 5, a string expected"),
        ("head_dim", json!("256"), "field head_dim is \"256\", a whole number from 0 expected"),
        ("num_hidden_layers", json!(1_000_000_000), "num_hidden_layers is 1000000000, at most 1024 expected"),
        ("num_hidden_layers", json!(10_000_000_000_000_000_000u64), "at most 1024 expected"),
        ("vocab_size", json!(1_000_000_000), "vocab_size is 1000000000, at most 16777216 expected"),
    ] {
        let found = wrong(at, value);
        assert!(found.starts_with("config.json: ") && found.contains(message), "{at}: {found}");
    }
}
