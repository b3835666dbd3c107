//! The text encoder: the text stack of Qwen3.5, last norm's output.
//!
//! Every layer is `x += mixer(norm(x))`, `x += down(silu(gate n) * up n)` with `n = norm(x)`; the mixer is full attention or a
//! Gated DeltaNet. Several prompts run through a layer together, so that a streamed layer is fetched once. Structure and
//! rounding follow the public Qwen3_5TextModel of transformers 5.24.0.

use std::sync::Arc;

use half::bf16;

use crate::backend::{
    self, Backend, DType, DeltaHeads, Epilogue, Glu, Heads, HostData, Norm, NormKind, StageSpec, WeightSpec,
};
use crate::files::{Checkpoint, TensorSpec};
use crate::model::config::{LayerType, TextConfig};
use crate::model::observe::{Event, Observer, RunError, announce, check_values};
use crate::model::tokens::{Rope, split};
use crate::model::weight_set::{self, weight_set};

weight_set! {
    /// What every layer has besides its mixer.
    Common(c: &TextConfig) [d = c.hidden_size, f = c.intermediate_size] {
        input_norm: Vector ["input_layernorm.weight" [d]],
        post_norm: Vector ["post_attention_layernorm.weight" [d]],
        up_gate: UpGate ["mlp.up_proj.weight" [f, d], "mlp.gate_proj.weight" [f, d]],
        down: Matrix ["mlp.down_proj.weight" [d, f]],
    }
}

weight_set! {
    /// Full attention with an output gate: `q_proj` gives `[q | gate]` per head.
    Attention(c: &TextConfig) [d = c.hidden_size, q = c.query_width(), kv = c.key_value_width(), h = c.head_dim] {
        qkv: Matrix [
            "self_attn.q_proj.weight" [2 * q, d], "self_attn.k_proj.weight" [kv, d], "self_attn.v_proj.weight" [kv, d]
        ],
        q_norm: Vector ["self_attn.q_norm.weight" [h]],
        k_norm: Vector ["self_attn.k_norm.weight" [h]],
        o: Matrix ["self_attn.o_proj.weight" [d, q]],
    }
}

weight_set! {
    /// Gated DeltaNet with `n` value heads of width `v`.
    DeltaNet(c: &TextConfig) [
        d = c.hidden_size, n = c.linear_num_value_heads, v = c.linear_value_head_dim, qkv = c.delta_qkv_width()
    ] {
        qkv: Matrix ["linear_attn.in_proj_qkv.weight" [qkv, d]],
        z: Matrix ["linear_attn.in_proj_z.weight" [n * v, d]],
        ba: Matrix ["linear_attn.in_proj_b.weight" [n, d], "linear_attn.in_proj_a.weight" [n, d]],
        conv: Depthwise ["linear_attn.conv1d.weight" [qkv, 1, c.linear_conv_kernel_dim]],
        a_log: VectorF32 ["linear_attn.A_log" [n]],
        dt_bias: VectorF32 ["linear_attn.dt_bias" [n]],
        norm: Vector ["linear_attn.norm.weight" [v]],
        out: Matrix ["linear_attn.out_proj.weight" [d, n * v]],
    }
}

weight_set! {
    /// Weights outside the layers that live on the backend.
    Fixed(c: &TextConfig) {
        norm: Vector ["norm.weight" [c.hidden_size]],
    }
}

/// The embedding, which stays on the host.
fn embed_tokens(config: &TextConfig) -> TensorSpec {
    TensorSpec { name: "embed_tokens.weight".into(), shape: vec![config.vocab_size, config.hidden_size] }
}

fn layer_specs(config: &TextConfig, layer: usize) -> Vec<WeightSpec> {
    let prefix = format!("layers.{layer}.");
    let mixer = match config.layer_types[layer] {
        LayerType::FullAttention => Attention::specs(&prefix, config),
        LayerType::LinearAttention => DeltaNet::specs(&prefix, config),
    };
    Common::specs(&prefix, config).into_iter().chain(mixer).collect()
}

/// All tensors of the text encoder.
pub fn tensors(config: &TextConfig) -> Vec<TensorSpec> {
    let layers = (0..config.num_hidden_layers).flat_map(|layer| layer_specs(config, layer));
    let weights = weight_set::tensors(layers.chain(Fixed::specs("", config)));
    std::iter::once(embed_tokens(config)).chain(weights).collect()
}

/// Device bytes of the activations over `tokens` tokens: the residual stream, the norm's output, and the widest of what a
/// mixer (projections, convolution or heads, output) or the feed-forward keeps beside them.
pub fn activation_bytes(config: &TextConfig, tokens: usize) -> u64 {
    let (heads, kv) = (config.query_width(), config.key_value_width());
    let attention = (2 * heads + 2 * kv) + 2 * heads + kv;
    let delta = 2 * config.delta_qkv_width() + 3 * config.delta_value_width();
    let widest = attention.max(delta).max(config.intermediate_size);
    (tokens * (3 * config.hidden_size + widest) * DType::Bf16.size()) as u64
}

/// The stage of an encoder that will run over `tokens` tokens in all prompts, with at most two layers on the device.
pub fn stage_spec(config: &TextConfig, checkpoint: Arc<Checkpoint>, tokens: usize) -> StageSpec {
    StageSpec {
        name: "text encoder",
        checkpoint,
        fixed: Fixed::specs("", config),
        blocks: (0..config.num_hidden_layers).map(|layer| layer_specs(config, layer)).collect(),
        resident_limit: 2,
        activation_bytes: activation_bytes(config, tokens),
    }
}

/// The encoder with its weights on a backend.
pub struct TextEncoder<B: Backend> {
    config: TextConfig,
    checkpoint: Arc<Checkpoint>,
    stage: B::Stage,
    fixed: Fixed<B::Tensor>,
}

impl<B: Backend> TextEncoder<B> {
    /// Loads the weights; see [`stage_spec`].
    ///
    /// # Errors
    /// What the backend's [`Backend::load`] fails with.
    pub fn load(backend: &B, config: &TextConfig, spec: StageSpec) -> Result<Self, RunError> {
        let checkpoint = spec.checkpoint.clone();
        let stage = backend.load(spec)?;
        let fixed = Fixed::take(&mut backend.fixed(&stage).into_iter());
        Ok(Self { config: config.clone(), checkpoint, stage, fixed })
    }

    /// The states of each prompt: token ids in, `[L, hidden]` bf16 out.
    ///
    /// # Errors
    /// What the backend fails with, [`RunError::Token`], [`RunError::NotFinite`], [`RunError::Cancelled`].
    pub fn encode(
        &self,
        backend: &B,
        prompts: &[&[u32]],
        observer: &mut dyn Observer<B>,
    ) -> Result<Vec<B::Tensor>, RunError> {
        let b = backend;
        let segments: Vec<usize> = prompts.iter().map(|ids| ids.len()).collect();
        let mut x = self.embed(b, prompts)?;
        let rope = self.rope(b, &segments)?;
        for layer in 0..self.config.num_hidden_layers {
            announce(observer, Event::TextLayer { layer, layers: self.config.num_hidden_layers })?;
            let mut weights = b.block(&self.stage, layer)?.into_iter();
            let w = Common::take(&mut weights);

            let y = b.norm(&x, self.norm(&w.input_norm), None)?;
            x = match self.config.layer_types[layer] {
                LayerType::FullAttention => {
                    self.attention(b, &Attention::take(&mut weights), &x, &y, &rope, &segments)?
                }
                LayerType::LinearAttention => {
                    self.delta_net(b, &DeltaNet::take(&mut weights), &x, &y, &segments)?
                }
            };
            let y = b.norm(&x, self.norm(&w.post_norm), None)?;
            let y = b.linear_glu(&y, &w.up_gate, None, Glu::Silu)?;
            x = b.linear(&y, &w.down, None, Epilogue::Residual(&x))?;
            observer.tap(&format!("layer_{layer:02}"), b, &x)?;
        }
        let states = b.norm(&x, self.norm(&self.fixed.norm), None)?;
        let values = b.download(&states)?.to_f32();
        check_values("text states", &values)?;
        Ok(split(b, &states, &segments))
    }

    /// The norm that every place of the encoder has.
    fn norm<'a>(&self, weight: &'a B::Tensor) -> Norm<'a, B::Tensor> {
        Norm { weight, eps: self.config.rms_norm_eps as f32, kind: NormKind::ZeroCentred }
    }

    /// `x + o_proj(attn(q, k, v) * sigmoid(gate))`; `q_proj` gives `[q | gate]` per head.
    fn attention(
        &self,
        b: &B,
        w: &Attention<B::Tensor>,
        x: &B::Tensor,
        y: &B::Tensor,
        rope: &Rope<B::Tensor>,
        segments: &[usize],
    ) -> Result<B::Tensor, RunError> {
        let c = &self.config;
        let dim = c.head_dim;
        let (count, kv) = (c.num_attention_heads, c.num_key_value_heads);
        let q_heads = Heads { first: 0, step: 2 * dim, count, dim };
        let gate_heads = Heads { first: dim, ..q_heads };
        let k_heads = Heads::packed(2 * count * dim, kv, dim);
        let v_heads = Heads::packed((2 * count + kv) * dim, kv, dim);

        let qkv = b.linear(y, &w.qkv, None, Epilogue::None)?;
        let rope = rope.tables();
        let q = b.head_norm_rope(&qkv, q_heads, self.norm(&w.q_norm), rope)?;
        let k = b.head_norm_rope(&qkv, k_heads, self.norm(&w.k_norm), rope)?;
        let scale = 1.0 / (dim as f64).sqrt();
        let o = b.attention(backend::Attention {
            q: &q,
            k: &k,
            v: &qkv,
            v_heads,
            scale,
            causal: true,
            segments,
        })?;
        let o = b.sigmoid_gate(&o, &qkv, gate_heads)?;
        Ok(b.linear(&o, &w.o, None, Epilogue::Residual(x))?)
    }

    /// `x + out_proj(gated_norm(delta_rule(silu(conv(qkv)), b, a), z))`.
    fn delta_net(
        &self,
        b: &B,
        w: &DeltaNet<B::Tensor>,
        x: &B::Tensor,
        y: &B::Tensor,
        segments: &[usize],
    ) -> Result<B::Tensor, RunError> {
        let c = &self.config;
        let heads = DeltaHeads {
            key_heads: c.linear_num_key_heads,
            value_heads: c.linear_num_value_heads,
            key_dim: c.linear_key_head_dim,
            value_dim: c.linear_value_head_dim,
        };
        let qkv = b.linear(y, &w.qkv, None, Epilogue::None)?;
        let z = b.linear(y, &w.z, None, Epilogue::None)?;
        let ba = b.linear(y, &w.ba, None, Epilogue::None)?;
        let qkv = b.causal_conv_silu(&qkv, &w.conv, segments)?;
        let o = b.gated_delta_rule(&qkv, &ba, &w.a_log, &w.dt_bias, heads, segments)?;
        let o = b.gated_norm(&o, &z, &w.norm, c.rms_norm_eps as f32)?;
        Ok(b.linear(&o, &w.out, None, Epilogue::Residual(x))?)
    }

    /// The embedding's rows, read on the host: the table is larger than all the rest that is on the device at once.
    fn embed(&self, b: &B, prompts: &[&[u32]]) -> Result<B::Tensor, RunError> {
        let table = self.checkpoint.rows(&[embed_tokens(&self.config)]);
        let (vocab, width) = (self.config.vocab_size, self.config.hidden_size);
        let tokens = prompts.iter().map(|ids| ids.len()).sum();
        let mut rows = vec![bf16::ZERO; tokens * width];
        let ids = prompts.iter().flat_map(|ids| ids.iter().enumerate());
        for ((place, &id), row) in ids.zip(rows.chunks_mut(width)) {
            if id as usize >= vocab {
                return Err(RunError::Token { id, place, vocab });
            }
            let first = id as usize * width;
            table.read(first..first + width, row)?;
        }
        Ok(b.upload(HostData::Bf16(rows), &[tokens, width])?)
    }

    /// Tables of the phases `position / theta^(2j / R)`, `R` the rotary width, in f32.
    fn rope(&self, b: &B, segments: &[usize]) -> Result<Rope<B::Tensor>, RunError> {
        let width = self.config.rotary_dim();
        let frequencies: Vec<f32> = (0..width / 2)
            .map(|j| {
                let exponent = f64::from((2 * j) as f32 / width as f32);
                1.0 / libm::pow(self.config.rope_theta, exponent) as f32
            })
            .collect();
        let phases: Vec<f32> = segments
            .iter()
            .flat_map(|&length| 0..length)
            .flat_map(|t| frequencies.iter().map(move |f| t as f32 * f))
            .collect();
        Ok(Rope::upload(b, &phases, segments.iter().sum())?)
    }
}
