//! Which tensors each part has, with their shapes, from the configuration.

use crate::files::TensorSpec;
use crate::model::config::{DitConfig, LayerType, TextConfig, VaeConfig};

/// Collects specs under a prefix.
struct List {
    specs: Vec<TensorSpec>,
}

impl List {
    fn new() -> Self {
        Self { specs: Vec::new() }
    }

    fn add(&mut self, name: String, shape: &[usize]) {
        self.specs.push(TensorSpec { name, shape: shape.to_vec() });
    }

    /// A weight of any rank whose bias has its first size.
    fn biased(&mut self, name: &str, shape: &[usize]) {
        self.add(format!("{name}.weight"), shape);
        self.add(format!("{name}.bias"), &shape[..1]);
    }
}

/// Tensors of the text encoder.
pub fn text_encoder_tensors(c: &TextConfig) -> Vec<TensorSpec> {
    let mut list = List::new();
    let d = c.hidden_size;
    list.add("embed_tokens.weight".into(), &[c.vocab_size, d]);
    let (q, kv) = (c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim);
    let value = c.linear_num_value_heads * c.linear_value_head_dim;
    let qkv = 2 * c.linear_num_key_heads * c.linear_key_head_dim + value;
    for (i, kind) in c.layer_types.iter().enumerate() {
        let mut add = |name: &str, shape: &[usize]| list.add(format!("layers.{i}.{name}"), shape);
        add("input_layernorm.weight", &[d]);
        add("post_attention_layernorm.weight", &[d]);
        add("mlp.gate_proj.weight", &[c.intermediate_size, d]);
        add("mlp.up_proj.weight", &[c.intermediate_size, d]);
        add("mlp.down_proj.weight", &[d, c.intermediate_size]);
        match kind {
            LayerType::FullAttention => {
                add("self_attn.q_proj.weight", &[2 * q, d]);
                add("self_attn.k_proj.weight", &[kv, d]);
                add("self_attn.v_proj.weight", &[kv, d]);
                add("self_attn.o_proj.weight", &[d, q]);
                add("self_attn.q_norm.weight", &[c.head_dim]);
                add("self_attn.k_norm.weight", &[c.head_dim]);
            }
            LayerType::LinearAttention => {
                add("linear_attn.in_proj_qkv.weight", &[qkv, d]);
                add("linear_attn.in_proj_z.weight", &[value, d]);
                add("linear_attn.in_proj_b.weight", &[c.linear_num_value_heads, d]);
                add("linear_attn.in_proj_a.weight", &[c.linear_num_value_heads, d]);
                add("linear_attn.conv1d.weight", &[qkv, 1, c.linear_conv_kernel_dim]);
                add("linear_attn.A_log", &[c.linear_num_value_heads]);
                add("linear_attn.dt_bias", &[c.linear_num_value_heads]);
                add("linear_attn.norm.weight", &[c.linear_value_head_dim]);
                add("linear_attn.out_proj.weight", &[d, value]);
            }
        }
    }
    list.add("norm.weight".into(), &[d]);
    list.specs
}

/// Tensors of the DiT.
pub fn dit_tensors(c: &DitConfig) -> Vec<TensorSpec> {
    let mut list = List::new();
    let (d, f, head) = (c.dim, c.ffn_dim, c.dim / c.num_heads);
    list.biased("video_embedder", &[d, c.latent_channels]);
    list.biased("text_embedder.proj", &[d, c.text_dim]);
    for i in 0..2 {
        let name = |part: &str| format!("text_embedder.blocks.{i}.{part}");
        list.add(name("norm1.weight"), &[d]);
        list.add(name("norm2.weight"), &[d]);
        list.add(name("q_norm.weight"), &[head]);
        list.add(name("k_norm.weight"), &[head]);
        list.biased(&name("qkv"), &[3 * d, d]);
        list.biased(&name("proj"), &[d, d]);
        list.biased(&name("ffn_gate"), &[f, d]);
        list.biased(&name("ffn_up"), &[f, d]);
        list.biased(&name("ffn_down"), &[d, f]);
    }
    list.biased("time_embedding.0", &[d, c.freq_dim]);
    list.biased("time_embedding.2", &[d, d]);
    list.biased("shared_block_modulation", &[6 * d, d]);
    for i in 0..c.num_layers {
        let mut add = |name: &str, shape: &[usize]| list.add(format!("layers.{i}.{name}"), shape);
        add("norm1.weight", &[d]);
        add("norm2.weight", &[d]);
        add("q_norm.weight", &[head]);
        add("k_norm.weight", &[head]);
        for part in ["q", "k", "v", "o"] {
            add(&format!("proj.{part}.weight"), &[d, d]);
        }
        add("proj.ffn_up_gate.weight", &[2 * f, d]);
        add("proj.ffn_down.weight", &[d, f]);
    }
    list.add("final_norm_video.weight".into(), &[d]);
    list.add("final_linear_video.weight".into(), &[c.latent_channels, d]);
    list.biased("video_head_modulation", &[2 * d, d]);
    list.specs
}

/// Tensors of the VAE's decoder.
pub fn vae_tensors(c: &VaeConfig) -> Vec<TensorSpec> {
    let mut list = List::new();
    let z = c.latent_channels;
    list.add("bn.running_mean".into(), &[4 * z]);
    list.add("bn.running_var".into(), &[4 * z]);
    if c.use_post_quant_conv {
        list.biased("post_quant_conv", &[z, z, 1, 1]);
    }
    let widths = c.decoder_widths();
    let mut width_in = widths[widths.len() - 1];
    list.biased("decoder.conv_in", &[width_in, z, 3, 3]);
    resnet(&mut list, "decoder.mid_block.resnets.0", width_in, width_in);
    if c.mid_block_add_attention {
        list.biased("decoder.mid_block.attentions.0.group_norm", &[width_in]);
        for part in ["to_q", "to_k", "to_v", "to_out.0"] {
            list.biased(&format!("decoder.mid_block.attentions.0.{part}"), &[width_in, width_in]);
        }
    }
    resnet(&mut list, "decoder.mid_block.resnets.1", width_in, width_in);
    for (i, &width) in widths.iter().rev().enumerate() {
        for j in 0..=c.layers_per_block {
            let from = if j == 0 { width_in } else { width };
            resnet(&mut list, &format!("decoder.up_blocks.{i}.resnets.{j}"), from, width);
        }
        if i + 1 < widths.len() {
            list.biased(&format!("decoder.up_blocks.{i}.upsamplers.0.conv"), &[width, width, 3, 3]);
        }
        width_in = width;
    }
    list.biased("decoder.conv_norm_out", &[width_in]);
    list.biased("decoder.conv_out", &[3, width_in, 3, 3]);
    list.specs
}

fn resnet(list: &mut List, name: &str, from: usize, to: usize) {
    list.biased(&format!("{name}.norm1"), &[from]);
    list.biased(&format!("{name}.conv1"), &[to, from, 3, 3]);
    list.biased(&format!("{name}.norm2"), &[to]);
    list.biased(&format!("{name}.conv2"), &[to, to, 3, 3]);
    if from != to {
        list.biased(&format!("{name}.conv_shortcut"), &[to, from, 1, 1]);
    }
}
