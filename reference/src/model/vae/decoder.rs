//! The FLUX.2 VAE decoder, small or full, in fp32.
//!
//! Pictures are `[H, W, C]` here (channels last). A group norm is two coefficients a channel that the next convolution
//! applies as it reads, so no normalised copy exists. Structure follows the public AutoencoderKLFlux2 of diffusers 0.42.1.

use std::sync::Arc;

use crate::backend::{
    Attention, Backend, Conv2d, DType, GroupNorm, Heads, StageSpec, Tensor as _, WeightSpec,
};
use crate::files::{Checkpoint, TensorSpec};
use crate::model::config::VaeConfig;
use crate::model::observe::{Event, Observer, RunError, announce, check_values};
use crate::model::weight_set::{self, weight_set};

/// Epsilon of every group norm.
const EPS: f32 = 1e-6;
/// Side of the square of pixels packed into the channels of one latent token.
const PATCH: usize = 2;
/// Channels of a picture.
const COLOURS: usize = 3;

weight_set! {
    /// `x + conv2(silu(norm2(conv1(silu(norm1(x))))))`.
    Resnet(from: usize, to: usize) {
        norm1: VectorF32 ["norm1.weight" [from]],
        norm1_bias: VectorF32 ["norm1.bias" [from]],
        conv1: Conv2d ["conv1.weight" [to, from, 3, 3]],
        conv1_bias: VectorF32 ["conv1.bias" [to]],
        norm2: VectorF32 ["norm2.weight" [to]],
        norm2_bias: VectorF32 ["norm2.bias" [to]],
        conv2: Conv2d ["conv2.weight" [to, to, 3, 3]],
        conv2_bias: VectorF32 ["conv2.bias" [to]],
    }
}

weight_set! {
    /// A convolution with a square kernel.
    Conv(from: usize, to: usize, side: usize) {
        weight: Conv2d ["weight" [to, from, side, side]],
        bias: VectorF32 ["bias" [to]],
    }
}

weight_set! {
    /// The middle block's attention over all pixels.
    MidAttention(c: usize) {
        norm: VectorF32 ["group_norm.weight" [c]],
        norm_bias: VectorF32 ["group_norm.bias" [c]],
        q: Conv2d ["to_q.weight" [c, c]],
        q_bias: VectorF32 ["to_q.bias" [c]],
        k: Conv2d ["to_k.weight" [c, c]],
        k_bias: VectorF32 ["to_k.bias" [c]],
        v: Conv2d ["to_v.weight" [c, c]],
        v_bias: VectorF32 ["to_v.bias" [c]],
        out: Conv2d ["to_out.0.weight" [c, c]],
        out_bias: VectorF32 ["to_out.0.bias" [c]],
    }
}

weight_set! {
    /// `conv(silu(norm(x)))`, to colours.
    Out(from: usize, to: usize) {
        norm: VectorF32 ["conv_norm_out.weight" [from]],
        norm_bias: VectorF32 ["conv_norm_out.bias" [from]],
        conv: Conv2d ["conv_out.weight" [to, from, 3, 3]],
        conv_bias: VectorF32 ["conv_out.bias" [to]],
    }
}

weight_set! {
    /// Statistics of the packed latents.
    Statistics(channels: usize) {
        mean: VectorF32 ["running_mean" [channels]],
        var: VectorF32 ["running_var" [channels]],
    }
}

/// What a part of the decoder does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitKind {
    /// A convolution with a square kernel.
    Conv {
        /// Side of the kernel.
        side: usize,
        /// Whether each pixel of its input becomes four first.
        upsample: bool,
    },
    /// Two convolutions beside a shortcut, which is a 1x1 convolution when the channels change.
    Resnet,
    /// Attention over all pixels, with four 1x1 convolutions.
    Attention,
    /// The last norm and 3x3 convolution.
    Out,
}

/// One part of the decoder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Prefix of its tensors' names.
    pub name: String,
    /// What it does.
    pub kind: UnitKind,
    /// Channels of its input.
    pub from: usize,
    /// Channels of its output.
    pub to: usize,
    /// Pixels of its input for each latent token.
    pub pixels: usize,
}

impl Unit {
    fn specs(&self) -> Vec<WeightSpec> {
        let Self { from, to, .. } = *self;
        match self.kind {
            UnitKind::Conv { side, .. } => Conv::specs(&self.name, from, to, side),
            UnitKind::Resnet => {
                let mut specs = Resnet::specs(&self.name, from, to);
                if from != to {
                    specs.extend(Conv::specs(&format!("{}conv_shortcut.", self.name), from, to, 1));
                }
                specs
            }
            UnitKind::Attention => MidAttention::specs(&self.name, from),
            UnitKind::Out => Out::specs(&self.name, from, to),
        }
    }

    /// Elements for each latent token at its widest moment: its input and its output, and what lies between them.
    fn activations(&self) -> usize {
        let Self { from, to, pixels, .. } = *self;
        match self.kind {
            UnitKind::Conv { upsample: true, .. } => pixels * (from + 4 * to),
            UnitKind::Conv { upsample: false, .. } | UnitKind::Out => pixels * (from + to),
            // The inner result; the shortcut takes the input's place.
            UnitKind::Resnet => pixels * (from + 2 * to),
            // q, k and v.
            UnitKind::Attention => pixels * (2 * from + 3 * from),
        }
    }
}

/// The decoder's units in the order in which they run.
pub fn units(config: &VaeConfig) -> Vec<Unit> {
    let z = config.latent_channels;
    let widths = config.decoder_widths();
    let mut width = *widths.last().expect("the configuration has at least one block");
    let mut pixels = PATCH * PATCH;
    let mut units = Vec::new();
    let mut push = |name: String, kind, from, to, pixels| units.push(Unit { name, kind, from, to, pixels });
    let conv = |side| UnitKind::Conv { side, upsample: false };
    if config.use_post_quant_conv {
        push("post_quant_conv.".into(), conv(1), z, z, pixels);
    }
    push("decoder.conv_in.".into(), conv(3), z, width, pixels);
    push("decoder.mid_block.resnets.0.".into(), UnitKind::Resnet, width, width, pixels);
    if config.mid_block_add_attention {
        push("decoder.mid_block.attentions.0.".into(), UnitKind::Attention, width, width, pixels);
    }
    push("decoder.mid_block.resnets.1.".into(), UnitKind::Resnet, width, width, pixels);
    for (i, &to) in widths.iter().rev().enumerate() {
        for j in 0..=config.layers_per_block {
            push(format!("decoder.up_blocks.{i}.resnets.{j}."), UnitKind::Resnet, width, to, pixels);
            width = to;
        }
        if i + 1 < widths.len() {
            let kind = UnitKind::Conv { side: 3, upsample: true };
            push(format!("decoder.up_blocks.{i}.upsamplers.0.conv."), kind, width, width, pixels);
            pixels *= 4;
        }
    }
    push("decoder.".into(), UnitKind::Out, width, COLOURS, pixels);
    units
}

fn weights(config: &VaeConfig) -> Vec<WeightSpec> {
    let mut weights = Statistics::specs("bn.", PATCH * PATCH * config.latent_channels);
    weights.extend(units(config).iter().flat_map(Unit::specs));
    weights
}

/// All tensors of the decoder.
pub fn tensors(config: &VaeConfig) -> Vec<TensorSpec> {
    weight_set::tensors(weights(config)).collect()
}

/// Device bytes of a decode of `h * w` latents: those of its widest unit.
pub fn activation_bytes(config: &VaeConfig, h: usize, w: usize) -> u64 {
    let widest = units(config).iter().map(Unit::activations).max().unwrap_or(0);
    (h * w * widest * DType::F32.size()) as u64
}

/// The stage of a decoder that will decode `h * w` latents.
pub fn stage_spec(config: &VaeConfig, checkpoint: Arc<Checkpoint>, h: usize, w: usize) -> StageSpec {
    StageSpec {
        name: "vae",
        checkpoint,
        fixed: weights(config),
        blocks: Vec::new(),
        resident_limit: usize::MAX,
        activation_bytes: activation_bytes(config, h, w),
    }
}

/// The decoder with its weights on a backend.
pub struct Vae<B: Backend> {
    config: VaeConfig,
    stage: B::Stage,
}

impl<B: Backend> Vae<B> {
    /// Loads the weights; see [`stage_spec`].
    ///
    /// # Errors
    /// What the backend's [`Backend::load`] fails with.
    pub fn load(backend: &B, config: &VaeConfig, spec: StageSpec) -> Result<Self, RunError> {
        Ok(Self { config: config.clone(), stage: backend.load(spec)? })
    }

    /// Latents `[h * w, 4C]` f32 to a picture `[16h, 16w, 3]` (for four blocks), values about -1 to 1, on the host.
    ///
    /// # Errors
    /// What the backend fails with, [`RunError::NotFinite`], [`RunError::Flat`], [`RunError::Cancelled`].
    pub fn decode(
        &self,
        backend: &B,
        latents: &B::Tensor,
        w: usize,
        observer: &mut dyn Observer<B>,
    ) -> Result<Vec<f32>, RunError> {
        let b = backend;
        let mut weights = b.fixed(&self.stage).into_iter();
        let statistics = Statistics::take(&mut weights);
        let batch_norm_eps = self.config.batch_norm_eps as f32;
        let mut x = b.unpack_latents(latents, &statistics.mean, &statistics.var, batch_norm_eps, w)?;
        let units = units(&self.config);
        for (block, unit) in units.iter().enumerate() {
            announce(observer, Event::VaeBlock { block, blocks: units.len() })?;
            x = match unit.kind {
                UnitKind::Conv { upsample, .. } => {
                    let conv = Conv::take(&mut weights);
                    b.conv2d(&x, Conv2d::new(&conv.weight, &conv.bias).upsample(upsample))?
                }
                UnitKind::Resnet => {
                    let resnet = Resnet::take(&mut weights);
                    let shortcut = (unit.from != unit.to).then(|| Conv::take(&mut weights));
                    self.resnet(b, &resnet, shortcut, x)?
                }
                UnitKind::Attention => self.attention(b, &MidAttention::take(&mut weights), &x)?,
                UnitKind::Out => {
                    let w = Out::take(&mut weights);
                    let ab = b.group_norm(&x, self.norm(&w.norm, &w.norm_bias))?;
                    b.conv2d(&x, Conv2d::new(&w.conv, &w.conv_bias).of_norm_silu(&ab))?
                }
            };
        }
        let picture = b.download(&x)?.to_f32();
        check_values("picture", &picture)?;
        Ok(picture)
    }

    /// The norm that every place of the decoder has.
    fn norm<'a>(&self, weight: &'a B::Tensor, bias: &'a B::Tensor) -> GroupNorm<'a, B::Tensor> {
        GroupNorm { groups: self.config.norm_num_groups, weight, bias, eps: EPS }
    }

    /// Takes `x`, so that it is freed as soon as the shortcut is made.
    fn resnet(
        &self,
        b: &B,
        w: &Resnet<B::Tensor>,
        shortcut: Option<Conv<B::Tensor>>,
        x: B::Tensor,
    ) -> Result<B::Tensor, RunError> {
        let ab = b.group_norm(&x, self.norm(&w.norm1, &w.norm1_bias))?;
        let y = b.conv2d(&x, Conv2d::new(&w.conv1, &w.conv1_bias).of_norm_silu(&ab))?;
        let x = match shortcut {
            Some(conv) => {
                let shortcut = b.conv2d(&x, Conv2d::new(&conv.weight, &conv.bias))?;
                drop(x);
                shortcut
            }
            None => x,
        };
        let ab = b.group_norm(&y, self.norm(&w.norm2, &w.norm2_bias))?;
        Ok(b.conv2d(&y, Conv2d::new(&w.conv2, &w.conv2_bias).of_norm_silu(&ab).plus(&x))?)
    }

    /// `x + out(attn(q(y), k(y), v(y)))`, `y = norm(x)`, one head as wide as the picture.
    fn attention(&self, b: &B, w: &MidAttention<B::Tensor>, x: &B::Tensor) -> Result<B::Tensor, RunError> {
        let (height, width, channels) = (x.shape()[0], x.shape()[1], x.shape()[2]);
        let tokens = height * width;
        let ab = b.group_norm(x, self.norm(&w.norm, &w.norm_bias))?;
        let project = |weight, bias| -> Result<B::Tensor, RunError> {
            let y = b.conv2d(x, Conv2d::new(weight, bias).of_norm(&ab))?;
            Ok(b.reshape(&y, &[tokens, channels]))
        };
        let q = project(&w.q, &w.q_bias)?;
        let k = project(&w.k, &w.k_bias)?;
        let v = project(&w.v, &w.v_bias)?;
        let scale = 1.0 / (channels as f64).sqrt();
        let v_heads = Heads::packed(0, 1, channels);
        let segments = &[tokens];
        let o = b.attention(Attention { q: &q, k: &k, v: &v, v_heads, scale, causal: false, segments })?;
        let o = b.reshape(&o, &[height, width, channels]);
        Ok(b.conv2d(&o, Conv2d::new(&w.out, &w.out_bias).plus(x))?)
    }
}

/// Picture values to 8-bit levels: `round(clamp(x / 2 + 0.5, 0, 1) * 255)`, ties to even.
pub fn to_rgb8(picture: &[f32]) -> Vec<u8> {
    let level = |x: f32| ((x.clamp(-1.0, 1.0) / 2.0 + 0.5).clamp(0.0, 1.0) * 255.0).round_ties_even();
    picture.iter().map(|&x| level(x) as u8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(widths: [usize; 4]) -> VaeConfig {
        VaeConfig {
            latent_channels: 32,
            block_out_channels: widths.into(),
            decoder_block_out_channels: None,
            layers_per_block: 2,
            norm_num_groups: 16,
            batch_norm_eps: 1e-4,
            use_post_quant_conv: true,
            mid_block_add_attention: true,
        }
    }

    #[test]
    fn units_follow_one_another_up_to_the_picture() {
        let units = units(&config([96, 192, 384, 384]));
        for pair in units.windows(2) {
            let up = matches!(pair[0].kind, UnitKind::Conv { upsample: true, .. });
            assert_eq!(pair[1].pixels, pair[0].pixels * if up { 4 } else { 1 }, "{pair:?}");
            assert_eq!(pair[1].from, pair[0].to, "{pair:?}");
        }
        let (first, last) = (&units[0], &units[units.len() - 1]);
        assert_eq!((first.from, first.pixels, last.to, last.pixels), (32, 4, 3, 256));
    }

    #[test]
    fn the_widest_unit_decides_the_activations() {
        // At the picture's size, input, inner result and output of the first resnet of the last block; when that is far
        // narrower, the upsampling convolution before it: a quarter of the pixels in, all of them out.
        for (widths, floats) in [
            ([128, 256, 512, 512], 256 * (256 + 2 * 128)),
            ([96, 192, 384, 384], 256 * (192 + 2 * 96)),
            ([16, 32, 32, 48], 256 * (32 + 2 * 16)),
            ([32, 32, 32, 64], 256 * (32 + 2 * 32)),
        ] {
            assert_eq!(activation_bytes(&config(widths), 3, 5), 15 * 4 * floats, "{widths:?}");
        }
        assert_eq!(activation_bytes(&config([16, 256, 256, 256]), 1, 1), 4 * (64 * 256 + 256 * 256));
    }

    #[test]
    fn levels_are_clamped_and_ties_go_to_even() {
        let middle = to_rgb8(&[-2.0, -1.0, 0.0, 1.0, 7.0]);
        assert_eq!(middle, [0, 0, 128, 255, 255], "0 is 127.5, which goes to 128");
    }
}
