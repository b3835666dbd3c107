//! The FLUX.2 VAE decoder, small or full, in fp32.
//!
//! Pictures are `[H, W, C]` here (channels last). A group norm is two coefficients a channel that the next convolution
//! applies as it reads, so no normalised copy exists. Structure follows the public AutoencoderKLFlux2 of diffusers 0.42.1.

use std::sync::Arc;

use crate::backend::{
    Attention, Backend, Conv2d, DType, GroupNorm, Heads, StageSpec, Tensor as _, WeightSpec,
};
use crate::files::Checkpoint;
use crate::model::config::VaeConfig;
use crate::model::observe::{Event, Observer, RunError, announce, check_values};
use crate::model::weight_set::weight_set;

/// Epsilon of every group norm.
const EPS: f32 = 1e-6;
/// Side of the square of pixels packed into the channels of one latent token.
const PATCH: usize = 2;

weight_set! {
    /// `x + conv2(silu(norm2(conv1(silu(norm1(x))))))`.
    Resnet {
        norm1: VectorF32 ["norm1.weight"],
        norm1_bias: VectorF32 ["norm1.bias"],
        conv1: Conv2d ["conv1.weight"],
        conv1_bias: VectorF32 ["conv1.bias"],
        norm2: VectorF32 ["norm2.weight"],
        norm2_bias: VectorF32 ["norm2.bias"],
        conv2: Conv2d ["conv2.weight"],
        conv2_bias: VectorF32 ["conv2.bias"],
    }
}

weight_set! {
    /// A convolution.
    Conv {
        weight: Conv2d ["weight"],
        bias: VectorF32 ["bias"],
    }
}

weight_set! {
    /// The middle block's attention over all pixels.
    MidAttention {
        norm: VectorF32 ["group_norm.weight"],
        norm_bias: VectorF32 ["group_norm.bias"],
        q: Conv2d ["to_q.weight"],
        q_bias: VectorF32 ["to_q.bias"],
        k: Conv2d ["to_k.weight"],
        k_bias: VectorF32 ["to_k.bias"],
        v: Conv2d ["to_v.weight"],
        v_bias: VectorF32 ["to_v.bias"],
        out: Conv2d ["to_out.0.weight"],
        out_bias: VectorF32 ["to_out.0.bias"],
    }
}

weight_set! {
    /// The last norm.
    Norm {
        weight: VectorF32 ["weight"],
        bias: VectorF32 ["bias"],
    }
}

weight_set! {
    /// Statistics of the packed latents.
    Statistics {
        mean: VectorF32 ["running_mean"],
        var: VectorF32 ["running_var"],
    }
}

/// One part of the decoder, in the order in which it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Conv { upsample: bool },
    Resnet { shortcut: bool },
    Attention,
}

/// The decoder's units with their names in the checkpoint.
fn units(config: &VaeConfig) -> Vec<(String, Unit)> {
    let mut units = Vec::new();
    let mut push = |name: String, unit| units.push((name, unit));
    if config.use_post_quant_conv {
        push("post_quant_conv.".into(), Unit::Conv { upsample: false });
    }
    push("decoder.conv_in.".into(), Unit::Conv { upsample: false });
    push("decoder.mid_block.resnets.0.".into(), Unit::Resnet { shortcut: false });
    if config.mid_block_add_attention {
        push("decoder.mid_block.attentions.0.".into(), Unit::Attention);
    }
    push("decoder.mid_block.resnets.1.".into(), Unit::Resnet { shortcut: false });
    let widths = config.decoder_widths();
    let mut width_in = *widths.last().expect("the configuration has at least one block");
    for (i, &width) in widths.iter().rev().enumerate() {
        for j in 0..=config.layers_per_block {
            let shortcut = j == 0 && width_in != width;
            push(format!("decoder.up_blocks.{i}.resnets.{j}."), Unit::Resnet { shortcut });
        }
        if i + 1 < widths.len() {
            push(format!("decoder.up_blocks.{i}.upsamplers.0.conv."), Unit::Conv { upsample: true });
        }
        width_in = width;
    }
    units
}

fn unit_specs(name: &str, unit: Unit) -> Vec<WeightSpec> {
    match unit {
        Unit::Conv { .. } => Conv::<()>::specs(name),
        Unit::Resnet { shortcut: false } => Resnet::<()>::specs(name),
        Unit::Resnet { shortcut: true } => {
            let mut specs = Resnet::<()>::specs(name);
            specs.extend(Conv::<()>::specs(&format!("{name}conv_shortcut.")));
            specs
        }
        Unit::Attention => MidAttention::<()>::specs(name),
    }
}

/// Device bytes of a decode of `h * w` latents: at the last resolution the widest moment of a resnet, its input, its inner
/// result, its shortcut and its output, or of an upsampling convolution, its input and its output.
pub fn activation_bytes(config: &VaeConfig, h: usize, w: usize) -> u64 {
    let widths = config.decoder_widths();
    let side = |level: usize| PATCH << (widths.len() - 1 - level);
    let mut most = 0;
    let mut width_in = *widths.last().expect("the configuration has at least one block");
    for (level, &width) in widths.iter().enumerate().rev() {
        let pixels = h * w * side(level) * side(level);
        let first = pixels * (width_in + 2 * width);
        let resnet = pixels * 3 * width;
        let up = if level > 0 { pixels * width + 4 * pixels * width } else { 0 };
        most = most.max(first).max(resnet).max(up);
        width_in = width;
    }
    (most * DType::F32.size()) as u64
}

/// The stage of a decoder that will decode `h * w` latents.
pub fn stage_spec(config: &VaeConfig, checkpoint: Arc<Checkpoint>, h: usize, w: usize) -> StageSpec {
    let mut fixed = Statistics::<()>::specs("bn.");
    fixed.extend(units(config).iter().flat_map(|(name, unit)| unit_specs(name, *unit)));
    fixed.extend(Norm::<()>::specs("decoder.conv_norm_out."));
    fixed.extend(Conv::<()>::specs("decoder.conv_out."));
    StageSpec {
        name: "vae",
        checkpoint,
        fixed,
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
        let mut take = |count: usize| weights.by_ref().take(count).collect::<Vec<_>>();
        let statistics = Statistics::take(take(2));
        let batch_norm_eps = self.config.batch_norm_eps as f32;
        let mut x = b.unpack_latents(latents, &statistics.mean, &statistics.var, batch_norm_eps, w)?;
        let units = units(&self.config);
        for (block, (name, unit)) in units.iter().enumerate() {
            announce(observer, Event::VaeBlock { block, blocks: units.len() })?;
            let weights = take(unit_specs(name, *unit).len());
            x = match *unit {
                Unit::Conv { upsample } => {
                    let conv = Conv::take(weights);
                    b.conv2d(&x, Conv2d::new(&conv.weight, &conv.bias).upsample(upsample))?
                }
                Unit::Resnet { .. } => self.resnet(b, weights, x)?,
                Unit::Attention => self.attention(b, MidAttention::take(weights), &x)?,
            };
        }
        let norm = Norm::take(take(2));
        let out = Conv::take(take(2));
        let ab = b.group_norm(&x, self.norm(&norm.weight, &norm.bias))?;
        let picture = b.conv2d(&x, Conv2d::new(&out.weight, &out.bias).of_norm_silu(&ab))?;
        let picture = b.download(&picture)?.to_f32();
        check_values("picture", &picture)?;
        Ok(picture)
    }

    /// The norm that every place of the decoder has.
    fn norm<'a>(&self, weight: &'a B::Tensor, bias: &'a B::Tensor) -> GroupNorm<'a, B::Tensor> {
        GroupNorm { groups: self.config.norm_num_groups, weight, bias, eps: EPS }
    }

    /// Takes `x`, so that it is freed as soon as the shortcut is made.
    fn resnet(&self, b: &B, mut weights: Vec<B::Tensor>, x: B::Tensor) -> Result<B::Tensor, RunError> {
        let shortcut = weights.split_off(Resnet::<()>::specs("").len());
        let w = Resnet::take(weights);
        let ab = b.group_norm(&x, self.norm(&w.norm1, &w.norm1_bias))?;
        let y = b.conv2d(&x, Conv2d::new(&w.conv1, &w.conv1_bias).of_norm_silu(&ab))?;
        let x = if shortcut.is_empty() {
            x
        } else {
            let conv = Conv::take(shortcut);
            b.conv2d(&x, Conv2d::new(&conv.weight, &conv.bias))?
        };
        let ab = b.group_norm(&y, self.norm(&w.norm2, &w.norm2_bias))?;
        Ok(b.conv2d(&y, Conv2d::new(&w.conv2, &w.conv2_bias).of_norm_silu(&ab).plus(&x))?)
    }

    /// `x + out(attn(q(y), k(y), v(y)))`, `y = norm(x)`, one head as wide as the picture.
    fn attention(&self, b: &B, w: MidAttention<B::Tensor>, x: &B::Tensor) -> Result<B::Tensor, RunError> {
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

    #[test]
    fn levels_are_clamped_and_ties_go_to_even() {
        let middle = to_rgb8(&[-2.0, -1.0, 0.0, 1.0, 7.0]);
        assert_eq!(middle, [0, 0, 128, 255, 255], "0 is 127.5, which goes to 128");
    }
}
