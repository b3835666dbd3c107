//! The MOSS-Image diffusion transformer.
//!
//! One sequence is `[image tokens ; text tokens]`; all sequences of a step (the cond and the uncond row, a batch)
//! run through a block together, so that a streamed block is fetched once. Letters: `N` image tokens, `L` text
//! tokens, `D` = `dim`, `F` = `ffn_dim`. Structure and rounding follow the public MOSSImageDiT of diffsynth 2.1.12.

mod sequences;

use std::sync::Arc;

use half::bf16;

use sequences::Sequences;

use crate::backend::{
    self, Attention, Backend, DType, Epilogue, Glu, Heads, HostData, Norm, NormKind, StageSpec, WeightSpec,
};
use crate::files::{Checkpoint, TensorSpec};
use crate::model::config::DitConfig;
use crate::model::observe::{Event, Observer, RunError, announce};
use crate::model::tokens::Rope;
use crate::model::weight_set::{self, weight_set};

/// Epsilon of every norm.
const EPS: f32 = 1e-6;
/// Blocks of the text refiner.
const REFINER_BLOCKS: usize = 2;

weight_set! {
    /// Weights used once a step or once a run.
    Fixed(c: &DitConfig) [d = c.dim, latent = c.latent_channels] {
        video_embedder: Matrix ["video_embedder.weight" [d, latent]],
        video_embedder_bias: Vector ["video_embedder.bias" [d]],
        text_proj: Matrix ["text_embedder.proj.weight" [d, c.text_dim]],
        text_proj_bias: Vector ["text_embedder.proj.bias" [d]],
        time_0: Matrix ["time_embedding.0.weight" [d, c.freq_dim]],
        time_0_bias: Vector ["time_embedding.0.bias" [d]],
        time_2: Matrix ["time_embedding.2.weight" [d, d]],
        time_2_bias: Vector ["time_embedding.2.bias" [d]],
        block_modulation: Matrix ["shared_block_modulation.weight" [6 * d, d]],
        block_modulation_bias: Vector ["shared_block_modulation.bias" [6 * d]],
        head_modulation: Matrix ["video_head_modulation.weight" [2 * d, d]],
        head_modulation_bias: Vector ["video_head_modulation.bias" [2 * d]],
        final_norm: Vector ["final_norm_video.weight" [d]],
        final_linear: Matrix ["final_linear_video.weight" [latent, d]],
    }
}

weight_set! {
    /// One block of the text refiner; `h` is the width of a head.
    Refiner(c: &DitConfig) [d = c.dim, f = c.ffn_dim, h = c.head_dim()] {
        norm1: Vector ["norm1.weight" [d]],
        q_norm: Vector ["q_norm.weight" [h]],
        k_norm: Vector ["k_norm.weight" [h]],
        qkv: Matrix ["qkv.weight" [3 * d, d]],
        qkv_bias: Vector ["qkv.bias" [3 * d]],
        proj: Matrix ["proj.weight" [d, d]],
        proj_bias: Vector ["proj.bias" [d]],
        norm2: Vector ["norm2.weight" [d]],
        ffn_up_gate: UpGate ["ffn_up.weight" [f, d], "ffn_gate.weight" [f, d]],
        ffn_up_gate_bias: Vector ["ffn_up.bias" [f], "ffn_gate.bias" [f]],
        ffn_down: Matrix ["ffn_down.weight" [d, f]],
        ffn_down_bias: Vector ["ffn_down.bias" [d]],
    }
}

weight_set! {
    /// One of the transformer's blocks; `h` is the width of a head.
    Block(c: &DitConfig) [d = c.dim, f = c.ffn_dim, h = c.head_dim()] {
        norm1: Vector ["norm1.weight" [d]],
        q_norm: Vector ["q_norm.weight" [h]],
        k_norm: Vector ["k_norm.weight" [h]],
        qkv: Matrix ["proj.q.weight" [d, d], "proj.k.weight" [d, d], "proj.v.weight" [d, d]],
        o: Matrix ["proj.o.weight" [d, d]],
        norm2: Vector ["norm2.weight" [d]],
        ffn_up_gate: UpGate ["proj.ffn_up_gate.weight" [2 * f, d]],
        ffn_down: Matrix ["proj.ffn_down.weight" [d, f]],
    }
}

/// Weights that stay for the whole stage: [`Fixed`], then the refiner's blocks.
fn fixed(config: &DitConfig) -> Vec<WeightSpec> {
    let refiner =
        (0..REFINER_BLOCKS).flat_map(|i| Refiner::specs(&format!("text_embedder.blocks.{i}."), config));
    Fixed::specs("", config).into_iter().chain(refiner).collect()
}

/// Weights of each block.
fn blocks(config: &DitConfig) -> Vec<Vec<WeightSpec>> {
    (0..config.num_layers).map(|i| Block::specs(&format!("layers.{i}."), config)).collect()
}

/// All tensors of the transformer.
pub fn tensors(config: &DitConfig) -> Vec<TensorSpec> {
    weight_set::tensors(fixed(config).into_iter().chain(blocks(config).into_iter().flatten())).collect()
}

/// The rows of one set of modulations, each `[1, D]`.
struct Modulation<T> {
    shift_a: T,
    scale_a: T,
    gate_a: T,
    shift_f: T,
    scale_f: T,
    gate_f: T,
}

/// One row of a step: a text that conditions the picture.
pub struct Context<T> {
    /// Refined text `[L, D]` bf16.
    text: T,
    /// Rotary tables of image and text tokens.
    rope: Rope<T>,
}

/// The transformer with its weights on a backend.
pub struct Dit<B: Backend> {
    config: DitConfig,
    stage: B::Stage,
    fixed: Fixed<B::Tensor>,
    refiner: Vec<Refiner<B::Tensor>>,
}

/// Device bytes of the activations of a step over `tokens` tokens in all: the residual stream, and beside it at most
/// the norm's output, q|k|v, q, k and the attention's output (8 widths), or the norm's output and the feed-forward's (2 and `F`).
pub fn activation_bytes(config: &DitConfig, tokens: usize) -> u64 {
    let widths = (8 * config.dim).max(3 * config.dim + config.ffn_dim);
    (tokens * widths * DType::Bf16.size()) as u64
}

/// The stage of a transformer that will run over `tokens` tokens in all rows.
pub fn stage_spec(
    config: &DitConfig,
    checkpoint: Arc<Checkpoint>,
    tokens: usize,
    resident_limit: usize,
) -> StageSpec {
    StageSpec {
        name: "dit",
        checkpoint,
        fixed: fixed(config),
        blocks: blocks(config),
        resident_limit,
        activation_bytes: activation_bytes(config, tokens),
    }
}

impl<B: Backend> Dit<B> {
    /// Loads the weights; see [`stage_spec`].
    ///
    /// # Errors
    /// What the backend's [`Backend::load`] fails with.
    pub fn load(backend: &B, config: &DitConfig, spec: StageSpec) -> Result<Self, RunError> {
        let stage = backend.load(spec)?;
        let mut weights = backend.fixed(&stage).into_iter();
        let fixed = Fixed::take(&mut weights);
        let refiner = (0..REFINER_BLOCKS).map(|_| Refiner::take(&mut weights)).collect();
        Ok(Self { config: config.clone(), stage, fixed, refiner })
    }

    /// The loaded weights, as the backend knows them.
    pub fn stage(&self) -> &B::Stage {
        &self.stage
    }

    fn heads(&self, third: usize) -> Heads {
        Heads::packed(third * self.config.dim, self.config.num_heads, self.config.head_dim())
    }

    fn scale(&self) -> f64 {
        1.0 / (self.config.head_dim() as f64).sqrt()
    }

    /// What one text brings to every step: the text encoder's `states` `[L, text_dim]` bf16 through the refiner, and the
    /// positions of `h * w` image tokens and `L` text tokens.
    ///
    /// # Errors
    /// What the backend fails with.
    pub fn context(
        &self,
        backend: &B,
        states: &B::Tensor,
        h: usize,
        w: usize,
    ) -> Result<Context<B::Tensor>, RunError> {
        use crate::backend::Tensor as _;
        let length = states.shape()[0];
        let tokens = h * w + length;
        let rope = Rope::upload(backend, &rope_phases(&self.config, h, w, length), tokens)?;
        let text_rope = rope.rows(backend, h * w..tokens);
        let f = &self.fixed;
        let mut text = backend.linear(states, &f.text_proj, Some(&f.text_proj_bias), Epilogue::None)?;
        for weights in &self.refiner {
            text = self.refiner_block(backend, weights, &text, &text_rope)?;
        }
        Ok(Context { text, rope })
    }

    /// `x += proj(attn(qkv(norm1 x)))`, `x += ffn_down(situ(ffn_up y, ffn_gate y))` with `y = norm2 x`.
    fn refiner_block(
        &self,
        b: &B,
        w: &Refiner<B::Tensor>,
        x: &B::Tensor,
        rope: &Rope<B::Tensor>,
    ) -> Result<B::Tensor, RunError> {
        use crate::backend::Tensor as _;
        let segments = [x.shape()[0]];
        let y = b.norm(x, norm(&w.norm1), None)?;
        let qkv = b.linear(&y, &w.qkv, Some(&w.qkv_bias), Epilogue::None)?;
        let o = self.attend(b, &qkv, &w.q_norm, &w.k_norm, rope, &segments)?;
        let x = b.linear(&o, &w.proj, Some(&w.proj_bias), Epilogue::Residual(x))?;

        let y = b.norm(&x, norm(&w.norm2), None)?;
        let y = b.linear_glu(&y, &w.ffn_up_gate, Some(&w.ffn_up_gate_bias), Glu::Situ)?;
        Ok(b.linear(&y, &w.ffn_down, Some(&w.ffn_down_bias), Epilogue::Residual(&x))?)
    }

    /// Norms and rotates q and k of `qkv` `[T, 3D]`, then attends within each segment.
    fn attend(
        &self,
        b: &B,
        qkv: &B::Tensor,
        q_norm: &B::Tensor,
        k_norm: &B::Tensor,
        rope: &Rope<B::Tensor>,
        segments: &[usize],
    ) -> Result<B::Tensor, RunError> {
        let rope = rope.tables();
        let q = b.head_norm_rope(qkv, self.heads(0), norm(q_norm), rope)?;
        let k = b.head_norm_rope(qkv, self.heads(1), norm(k_norm), rope)?;
        Ok(b.attention(Attention {
            q: &q,
            k: &k,
            v: qkv,
            v_heads: self.heads(2),
            scale: self.scale(),
            causal: false,
            segments,
        })?)
    }

    /// `y = norm1(x)*(1+scale_a)+shift_a`, `x += o(attn)*gate_a`, `y = norm2(x)*(1+scale_f)+shift_f`,
    /// `x += ffn_down(situ(up, gate))*gate_f`.
    fn block(
        &self,
        b: &B,
        w: &Block<B::Tensor>,
        x: &B::Tensor,
        m: &Modulation<B::Tensor>,
        rope: &Rope<B::Tensor>,
        segments: &[usize],
    ) -> Result<B::Tensor, RunError> {
        let y =
            b.norm(x, norm(&w.norm1), Some(backend::Modulation { scale: &m.scale_a, shift: &m.shift_a }))?;
        let qkv = b.linear(&y, &w.qkv, None, Epilogue::None)?;
        let o = self.attend(b, &qkv, &w.q_norm, &w.k_norm, rope, segments)?;
        drop((y, qkv));
        let x = b.linear(&o, &w.o, None, Epilogue::GatedResidual { residual: x, gate: &m.gate_a })?;
        drop(o);

        let y =
            b.norm(&x, norm(&w.norm2), Some(backend::Modulation { scale: &m.scale_f, shift: &m.shift_f }))?;
        let y = b.linear_glu(&y, &w.ffn_up_gate, None, Glu::Situ)?;
        let gated = Epilogue::GatedResidual { residual: &x, gate: &m.gate_f };
        Ok(b.linear(&y, &w.ffn_down, None, gated)?)
    }

    /// The velocity of each row, `[N, 128]` bf16, at `sigma` (the timestep is `1000 * sigma`).
    ///
    /// `latents` `[N, 128]` f32. `rows` are contexts with the blocks that each leaves out.
    ///
    /// # Errors
    /// What the backend fails with, or [`RunError::Cancelled`].
    pub fn velocity(
        &self,
        backend: &B,
        latents: &B::Tensor,
        sigma: f32,
        rows: &[(&Context<B::Tensor>, &[usize])],
        observer: &mut dyn Observer<B>,
    ) -> Result<Vec<B::Tensor>, RunError> {
        use crate::backend::Tensor as _;
        let b = backend;
        let f = &self.fixed;
        let mut rows = Sequences::new(b, rows, latents.shape()[0])?;

        let (modulation, head_shift, head_scale) = self.modulation(b, sigma)?;
        let latents = b.to_bf16(latents)?;
        let image = b.linear(&latents, &f.video_embedder, Some(&f.video_embedder_bias), Epilogue::None)?;
        let mut x = rows.join(b, &image)?;
        drop((image, latents));
        for block in 0..self.config.num_layers {
            announce(observer, Event::Block { block, blocks: self.config.num_layers })?;
            if rows.enter(b, block)? {
                let w = Block::take(&mut b.block(&self.stage, block)?.into_iter());
                x =
                    rows.through(b, &x, |x, rope, lengths| self.block(b, &w, x, &modulation, rope, lengths))?;
                observer.tap(&format!("block_{block:02}"), b, &x)?;
            }
        }
        let y = rows.image(b, &x)?;
        let y = b.norm(
            &y,
            norm(&f.final_norm),
            Some(backend::Modulation { scale: &head_scale, shift: &head_shift }),
        )?;
        let v = b.linear(&y, &f.final_linear, None, Epilogue::None)?;
        Ok(rows.split_image(b, &v))
    }

    /// The six modulation rows of the blocks, then the head's shift and scale.
    #[allow(clippy::type_complexity)]
    fn modulation(
        &self,
        b: &B,
        sigma: f32,
    ) -> Result<(Modulation<B::Tensor>, B::Tensor, B::Tensor), RunError> {
        let f = &self.fixed;
        let dim = self.config.dim;
        let embedding = timestep_embedding(1000.0 * sigma, self.config.freq_dim);
        let t = b.upload(HostData::Bf16(embedding), &[1, self.config.freq_dim])?;
        let t = b.linear(&t, &f.time_0, Some(&f.time_0_bias), Epilogue::Silu)?;
        let t = b.linear(&t, &f.time_2, Some(&f.time_2_bias), Epilogue::None)?;
        let m = b.linear(&t, &f.block_modulation, Some(&f.block_modulation_bias), Epilogue::None)?;
        let m = b.reshape(&m, &[6, dim]);
        let row = |i: usize| b.rows(&m, i..i + 1);
        let modulation = Modulation {
            shift_a: row(0),
            scale_a: row(1),
            gate_a: row(2),
            shift_f: row(3),
            scale_f: row(4),
            gate_f: row(5),
        };
        let head = b.linear(&t, &f.head_modulation, Some(&f.head_modulation_bias), Epilogue::None)?;
        let head = b.reshape(&head, &[2, dim]);
        Ok((modulation, b.rows(&head, 0..1), b.rows(&head, 1..2)))
    }
}

/// The norm that every place of the transformer has.
fn norm<T>(weight: &T) -> Norm<'_, T> {
    Norm { weight, eps: EPS, kind: NormKind::Plain }
}

/// `[cos | sin](t * 10000^(-k / half))`, `k < half = width / 2`, in f64, rounded to f32, then to bf16.
fn timestep_embedding(t: f32, width: usize) -> Vec<bf16> {
    let half = width / 2;
    let phase = |k: usize| f64::from(t) * libm::pow(10000.0, -(k as f64) / half as f64);
    let round = |x: f64| bf16::from_f32(x as f32);
    let cos = (0..half).map(|k| round(libm::cos(phase(k))));
    let sin = (0..half).map(|k| round(libm::sin(phase(k))));
    cos.chain(sin).collect()
}

/// Rotary phases of `h * w` image tokens and `length` text tokens, `[h * w + length, head_dim / 2]`.
///
/// Four axes (r, t, y, x) of `head_dim / 8` bands: image tokens at `(0, length, y - (h-1)/2, x - (w-1)/2)`, text token `i`
/// at `(0, i, 0, 0)`; `band_j = 1 / base^(j / bands)`; phases in f32.
fn rope_phases(config: &DitConfig, h: usize, w: usize, length: usize) -> Vec<f32> {
    let count = config.head_dim() / 8;
    let bands: Vec<f32> = (0..count)
        .map(|j| {
            let exponent = f64::from(j as f32 / count as f32);
            1.0 / libm::pow(config.rope_base, exponent) as f32
        })
        .collect();
    let centre = |size: usize| (size as f32 - 1.0) / 2.0;
    let image =
        (0..h * w).map(|i| [0.0, length as f32, (i / w) as f32 - centre(h), (i % w) as f32 - centre(w)]);
    let text = (0..length).map(|i| [0.0, i as f32, 0.0, 0.0]);
    image.chain(text).flatten().flat_map(|p| bands.iter().map(move |band| p * band)).collect()
}
