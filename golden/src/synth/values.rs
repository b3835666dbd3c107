//! The elements of synthetic tensors.

use half::bf16;
use moss_reference::files::Part;
use rayon::prelude::*;

/// Elements that one task fills.
const TASK: usize = 1 << 16;

/// How an element follows from a standard value `n` (mean 0, variance 1).
#[derive(Clone, Copy, Debug, PartialEq)]
enum Law {
    /// `mean + deviation * n`.
    Linear { mean: f32, deviation: f32 },
    /// `ln` of a uniform value from 1 to 16.
    LogUniform,
    /// Zero bytes.
    Zero,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum DType {
    Bf16,
    F32,
    I64,
}

/// Element type and distribution of a tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Kind {
    dtype: DType,
    law: Law,
}

impl Kind {
    /// bf16 noise of a deviation.
    pub(super) fn noise(deviation: f32) -> Self {
        Self { dtype: DType::Bf16, law: Law::Linear { mean: 0.0, deviation } }
    }

    /// An integer counter.
    pub(super) fn count() -> Self {
        Self { dtype: DType::I64, law: Law::Zero }
    }

    /// The distribution for a tensor of a part with this many layers: matrices keep their input's size, norms are near the
    /// identity, and what is added to the residual stream is scaled by `1 / sqrt(2 * layers)` (Radford et al. 2019), so
    /// that depth neither drowns the stream nor amplifies rounding as an untrained network would.
    pub(super) fn of(part: Part, name: &str, shape: &[usize], layers: usize) -> Self {
        let dtype = match part {
            Part::Vae => DType::F32,
            _ if name.ends_with("A_log") || name.ends_with("dt_bias") => DType::F32,
            _ => DType::Bf16,
        };
        let linear = |mean, deviation| Law::Linear { mean, deviation };
        let fan_in: usize = shape.iter().skip(1).product();
        let zero_centred = part == Part::TextEncoder && !name.contains("linear_attn.norm");
        let law = if name.ends_with("A_log") {
            Law::LogUniform
        } else if name.ends_with("dt_bias") {
            linear(-4.5, 1.0)
        } else if name.starts_with("embed_tokens") {
            linear(0.0, 0.5)
        } else if name.ends_with("running_mean") || name.ends_with("bias") {
            linear(0.0, 0.05)
        } else if name.ends_with("running_var") {
            linear(1.0, 0.05)
        } else if shape.len() == 1 {
            linear(if zero_centred { 0.0 } else { 1.0 }, 0.1)
        } else {
            let residual = ["proj.o.", ".proj.weight", "ffn_down", "out_proj", "o_proj", "down_proj"];
            let adds = name.contains(".blocks.") || name.starts_with("layers.");
            let gain = if adds && residual.iter().any(|part| name.contains(part)) {
                1.0 / (2.0 * layers as f32).sqrt()
            } else if name.ends_with("modulation.weight") {
                // Adaptive norms are trained from zero and stay small.
                0.25
            } else {
                1.0
            };
            linear(0.0, gain / (fan_in as f32).sqrt())
        };
        Self { dtype, law }
    }

    /// Bytes of an element.
    pub(super) fn dtype_size(&self) -> usize {
        match self.dtype {
            DType::Bf16 => 2,
            DType::F32 => 4,
            DType::I64 => 8,
        }
    }

    /// The element type's name in a header.
    pub(super) fn dtype_name(&self) -> &'static str {
        match self.dtype {
            DType::Bf16 => "BF16",
            DType::F32 => "F32",
            DType::I64 => "I64",
        }
    }
}

/// One step of splitmix64 (Steele, Lea, Flood 2014) at place `x`.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The stream of random bits of one tensor.
pub(super) fn stream(seed: u64, part: &str, name: &str) -> u64 {
    let text = part.bytes().chain([b'/']).chain(name.bytes());
    text.fold(mix(seed ^ 0x6d6f_7373), |state, byte| mix(state ^ u64::from(byte)))
}

/// Element `index` of a stream: a uniform value in [0, 1) and a standard one (a sum of four uniforms, scaled).
fn element(law: Law, stream: u64, index: usize) -> f32 {
    let bits = mix(stream.wrapping_add(index as u64));
    match law {
        Law::Linear { mean, deviation } => {
            let sum: u32 = (0..4).map(|i| (bits >> (16 * i)) as u32 & 0xffff).sum();
            // Four uniforms on [0, 65535] have mean 2 * 65535 and variance 65536^2 / 3 (nearly).
            let standard = (sum as f32 - 131_070.0) * (3f32.sqrt() / 65_536.0);
            mean + deviation * standard
        }
        Law::LogUniform => (1.0 + 15.0 * (bits >> 40) as f32 / (1 << 24) as f32).ln(),
        Law::Zero => 0.0,
    }
}

/// Fills `buffer` with the bytes of elements `start .. start + count`.
pub(super) fn fill(kind: &Kind, stream: u64, start: usize, count: usize, buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.resize(count * kind.dtype_size(), 0);
    let law = kind.law;
    match kind.dtype {
        DType::Bf16 => put(buffer, start, |i| bf16::from_f32(element(law, stream, i)).to_le_bytes()),
        // Rounded to bf16 so that a run that keeps everything in bf16 sees the same weights.
        DType::F32 if law == Law::LogUniform => {
            put(buffer, start, |i| bf16::from_f32(element(law, stream, i)).to_f32().to_le_bytes())
        }
        DType::F32 => put(buffer, start, |i| element(law, stream, i).to_le_bytes()),
        DType::I64 => {}
    }
}

/// Writes element `start + i` to the `i`-th `N` bytes of `buffer`, on all threads.
fn put<const N: usize>(buffer: &mut [u8], start: usize, element: impl Fn(usize) -> [u8; N] + Sync) {
    buffer.par_chunks_mut(TASK * N).enumerate().for_each(|(task, bytes)| {
        let base = start + task * TASK;
        for (i, out) in bytes.as_chunks_mut::<N>().0.iter_mut().enumerate() {
            *out = element(base + i);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_have_the_moments_they_should() {
        let law = Law::Linear { mean: 0.0, deviation: 1.0 };
        let n = 1 << 16;
        let values: Vec<f64> = (0..n).map(|i| f64::from(element(law, stream(1, "p", "t"), i))).collect();
        let mean = values.iter().sum::<f64>() / n as f64;
        let var = values.iter().map(|v| v * v).sum::<f64>() / n as f64;
        // Five standard errors.
        assert!(mean.abs() < 5.0 / 256.0, "{mean}");
        assert!((var - 1.0).abs() < 5.0 * 2f64.sqrt() / 256.0, "{var}");
    }

    #[test]
    fn chunks_join_without_a_seam() {
        let kind = Kind::noise(1.0);
        let (mut whole, mut part) = (Vec::new(), Vec::new());
        fill(&kind, 7, 0, 3 * TASK, &mut whole);
        fill(&kind, 7, TASK + 5, 100, &mut part);
        assert_eq!(part[..], whole[2 * (TASK + 5)..][..200]);
        assert_ne!(stream(1, "a", "b"), stream(1, "a/", "b"));
    }
}
