//! The boundary between the model and the machine.
//!
//! The model (text encoder, DiT, VAE) is written once, generic over [`Backend`]. An operation here has
//! the grain of one fused kernel, and its doc comment **is** its definition: formula, shapes, dtypes,
//! rounding points, and the exact order of every reduction. The CPU backend ([`crate::cpu`]) is that
//! definition made runnable; every other backend must give the same bits when its matrix unit sums
//! as a chain of fused multiply-adds.
//!
//! # Notation
//! Shapes are row-major. `T` tokens (all segments one after another), `D` width, `H` heads, `h` head
//! width, `F` feed-forward width. `bf16(..)` is one rounding to nearest, ties to even; everything
//! inside is f32 with one rounding per written operation, and `fma(a, b, c)` rounds once.
//! `exp`, `exp2`, `tanh`, `sigmoid`, `silu`, `log1p` and `softplus` are the polynomials of
//! [`crate::simd::math`], the same on every backend. Division and square root are IEEE correctly rounded.
//!
//! # Reductions
//! * **chain**: `acc = +0`, then `acc = fma(a[i], b[i], acc)` for `i` ascending.
//! * **tree256** of `n` terms `a[i] * b[i]`: 256 partial sums, partial `j` the chain over `i ≡ j (mod 256)`
//!   (a partial without terms is `+0`); then adjacent pairs are added, `p[j] = p[2j] + p[2j+1]`, eight
//!   times. A wave of 32 lanes with 8 neighbouring partials each does this with in-lane additions and five
//!   butterflies. A tree256 of plain terms takes `b[i] = 1`.
//!
//! # Segments
//! Activations of several sequences (the rows of classifier-free guidance, a batch) lie one after another
//! in one tensor; `segments` lists their lengths in tokens and sums to `T`. Only operations that mix
//! tokens take it. No result depends on what else is in the tensor: a sequence alone gives the same bits.

pub mod shapes;
mod specs;

use std::ops::Range;

pub use specs::*;

/// Everything the model asks of a machine.
///
/// Operations may be asynchronous; [`Backend::download`] waits. Tensors are immutable once made.
pub trait Backend {
    /// A tensor in the backend's memory; clones share it.
    type Tensor: Tensor;
    /// The weights of one model part; memory is freed when it is dropped.
    type Stage;

    /// One line for people: the device and what runs on it.
    fn describe(&self) -> String;

    // ---- weights -------------------------------------------------------------------------------------

    /// Refuses a run that cannot be held, before anything is loaded. The weights of `kept` stay from start to end; `stages`
    /// come and go one after another, each with its activations; the activations of `kept` come after the last.
    fn admit(&self, kept: &StageSpec, stages: &[&StageSpec]) -> Result<()>;

    /// Makes the weights of a stage reachable: the fixed ones and as many blocks as fit are loaded,
    /// the rest is left where a later [`Backend::block`] can stream it from.
    fn load(&self, spec: StageSpec) -> Result<Self::Stage>;

    /// Whether activations of `bytes` bytes fit beside everything that is loaded now, so that nothing has to be freed for them
    /// and loaded again. A backend that does not know says no.
    fn has_room(&self, _bytes: u64) -> bool {
        false
    }

    /// The stage's fixed weights, in the order of [`StageSpec::fixed`].
    fn fixed(&self, stage: &Self::Stage) -> Vec<Self::Tensor>;

    /// The weights of block `index`, in the order of [`StageSpec::blocks`]. The caller drops them before it
    /// asks for the next block; a backend that streams may then already be copying the one after.
    fn block(&self, stage: &Self::Stage, index: usize) -> Result<Vec<Self::Tensor>>;

    // ---- data ----------------------------------------------------------------------------------------

    /// Copies host elements to the backend; `data.len()` is the product of `shape`.
    fn upload(&self, data: HostData, shape: &[usize]) -> Result<Self::Tensor>;

    /// Copies a tensor to the host, after everything that it depends on has run.
    fn download(&self, x: &Self::Tensor) -> Result<HostData>;

    /// Rows `rows` of the first axis, sharing memory.
    fn rows(&self, x: &Self::Tensor, rows: Range<usize>) -> Self::Tensor;

    /// The same elements in another shape, sharing memory.
    fn reshape(&self, x: &Self::Tensor, shape: &[usize]) -> Self::Tensor;

    /// Tensors of one width and dtype, one after another along the first axis.
    fn concat(&self, parts: &[&Self::Tensor]) -> Result<Self::Tensor>;

    /// `bf16(x)` of an f32 tensor.
    fn to_bf16(&self, x: &Self::Tensor) -> Result<Self::Tensor>;

    // ---- bf16 operations -----------------------------------------------------------------------------

    /// RMS norm of each row, with optional modulation: `x` `[T, D]`, result `[T, D]`, bf16.
    ///
    /// `s` = tree256 of `x[i] * x[i]`; `r = 1 / sqrt(s / D + eps)`; `y` by [`NormKind`]. With
    /// `modulation`: `bf16(bf16(y * bf16(1 + scale)) + shift)`.
    fn norm(
        &self,
        x: &Self::Tensor,
        norm: Norm<'_, Self::Tensor>,
        modulation: Option<Modulation<'_, Self::Tensor>>,
    ) -> Result<Self::Tensor>;

    /// Norm of each head, then rotary embedding: `x` `[T, width]` with `heads` in its columns,
    /// `rope = (cos, sin)`, each `[T, R]` bf16, result `[T, H * h]` with the heads packed.
    ///
    /// `y` = the norm of [`Backend::norm`] over the head's `h` elements (tree256 over `h`), no modulation.
    /// Then with `R = rope width <= h / 2`, for `j < R`, `a = y[j]`, `b = y[j + R]`:
    /// `y[j] = bf16(bf16(a * cos[j]) + bf16(-b * sin[j]))`, `y[j + R] = bf16(bf16(b * cos[j]) + bf16(a * sin[j]))`;
    /// elements from `2R` on pass through.
    fn head_norm_rope(
        &self,
        x: &Self::Tensor,
        heads: Heads,
        norm: Norm<'_, Self::Tensor>,
        rope: (&Self::Tensor, &Self::Tensor),
    ) -> Result<Self::Tensor>;

    /// Softmax attention within each segment: `q` `[T, Hq * h]`, `k` `[T, Hkv * h]`, `v` in columns `v_heads` of
    /// `[T, width]` (`v_heads.count = Hkv`, `v_heads.dim = h`), result `[T, Hq * h]`, all bf16 or all f32.
    /// Query head `i` reads key/value head `i / (Hq / Hkv)`. With `causal`, query `t` of a segment sees keys `0..=t`.
    ///
    /// Per query, over blocks of [`ATTENTION_BLOCK`] keys of its segment, in order, skipping blocks in which it sees no key:
    /// `m = -inf`, `l0 = l1 = 0`, `o = 0` (f32). In a block, for each key seen:
    /// 1. `s = chain over d of k[d] * q[d]`, then `s = s * (scale * log2(e))`, the constant computed in f64 and rounded to f32;
    /// 2. `m' = max(m, all s)`, `c = exp2(m - m')`, `p = exp2(s - m')` (an unseen or absent key has `p = 0`);
    /// 3. `l0 = l0 * c`, `l1 = l1 * c`; keys in ascending order: `l[(j / 8) % 2] += p[j]`, `j` the key's place in the block;
    /// 4. `o = o * c`, then keys in ascending order: `o[d] = fma(p'[j], v[j][d], o[d])`, with `p' = bf16(p)` for bf16
    ///    tensors and `p' = p` for f32 ones. Keys that are unseen or absent contribute `fma(0, v, o)` or nothing, which
    ///    differs at most in the sign of a zero.
    ///
    /// Result: `(o + 0) / (l0 + l1)`, rounded to the dtype; adding `+0` makes every zero of `o` positive.
    /// Scores and values are finite; the order in which the maximum is taken does not show.
    fn attention(&self, a: Attention<'_, Self::Tensor>) -> Result<Self::Tensor>;

    /// `bf16(x * bf16(sigmoid(gate)))`: `x` `[T, H * h]`, `gate` in columns `heads` of `[T, width]`, result `[T, H * h]`.
    fn sigmoid_gate(&self, x: &Self::Tensor, gate: &Self::Tensor, heads: Heads) -> Result<Self::Tensor>;

    /// `x W^T + b`: `x` `[T, k]`, `w` `[n, k]` ([`Role::Matrix`]), `bias` `[n]`, result `[T, n]`, all bf16.
    ///
    /// `acc` = chain over `k` of `x[k] * w[k]`; `y = bf16(acc)` or `bf16(acc + bias)`; then the [`Epilogue`].
    fn linear(
        &self,
        x: &Self::Tensor,
        w: &Self::Tensor,
        bias: Option<&Self::Tensor>,
        epilogue: Epilogue<'_, Self::Tensor>,
    ) -> Result<Self::Tensor>;

    /// Gated feed-forward input: `x` `[T, k]`, `w` `[2F, k]` ([`Role::UpGate`]), `bias` `[2F]` (up then gate),
    /// result `[T, F]`, bf16. `u` and `g` are outputs as in [`Backend::linear`]; then the [`Glu`].
    fn linear_glu(
        &self,
        x: &Self::Tensor,
        w: &Self::Tensor,
        bias: Option<&Self::Tensor>,
        glu: Glu,
    ) -> Result<Self::Tensor>;

    /// Causal depthwise convolution, then silu: `x` `[T, D]`, `w` [`Role::Depthwise`] `[D, width]`, result `[T, D]`, bf16.
    ///
    /// `y = bf16(chain over j of w[c][j] * x[t - (width - 1) + j][c])`, `j` ascending, tokens before the segment's start
    /// left out; result `bf16(silu(y))`.
    fn causal_conv_silu(
        &self,
        x: &Self::Tensor,
        w: &Self::Tensor,
        segments: &[usize],
    ) -> Result<Self::Tensor>;

    /// Gated delta rule (Gated DeltaNet), recurrent over the tokens of each segment from a zero state.
    ///
    /// `qkv` `[T, 2 * key_heads * K + value_heads * V]` bf16 (all q heads, all k heads, all v heads), `ba` `[T, 2 * value_heads]`
    /// bf16 (the projections b, then a), `a_log`, `dt_bias` `[value_heads]` f32; result `[T, value_heads * V]` bf16.
    ///
    /// Per token and value head, all f32: `beta = bf16(sigmoid(b))`, `g = -exp(a_log) * softplus(a + dt_bias)`,
    /// `decay = exp(g)`; `q^ = (q * (1 / sqrt(tree256 of q*q + 1e-6))) * c`, `c = 1 / sqrt(K)` computed in f64 and rounded to f32;
    /// `k^ = k * (1 / sqrt(tree256 of k*k + 1e-6))`. With `dot4(a, b)` over `K` = four chains, one for each quarter of `0..K`,
    /// summed `(p0 + p1) + (p2 + p3)`; per value column `v` with state `S[0..K]`:
    /// `S[i] = S[i] * decay`; `delta = (v - dot4(k^, S)) * beta`; `S[i] = fma(k^[i], delta, S[i])`; `o = bf16(dot4(q^, S))`.
    fn gated_delta_rule(
        &self,
        qkv: &Self::Tensor,
        ba: &Self::Tensor,
        a_log: &Self::Tensor,
        dt_bias: &Self::Tensor,
        heads: DeltaHeads,
        segments: &[usize],
    ) -> Result<Self::Tensor>;

    /// RMS norm of each head, gated: `x`, `z` `[T, H * h]`, `weight` `[h]`, result `[T, H * h]`, bf16.
    ///
    /// `r` as in [`Backend::norm`] over a head; `bf16(bf16(w * bf16(x * r)) * silu(z))`, silu in f32.
    fn gated_norm(
        &self,
        x: &Self::Tensor,
        z: &Self::Tensor,
        weight: &Self::Tensor,
        eps: f32,
    ) -> Result<Self::Tensor>;

    // ---- f32 operations ------------------------------------------------------------------------------

    /// One Euler step with guidance: `x` f32, velocities bf16, all of one shape; result f32.
    ///
    /// `v = v_cond`, or with `v_uncond`: `v = v_uncond + cfg * (v_cond - v_uncond)`; result `x + dt * v`;
    /// every operation rounded, none fused.
    fn euler_step(
        &self,
        x: &Self::Tensor,
        v_cond: &Self::Tensor,
        v_uncond: Option<&Self::Tensor>,
        cfg: f32,
        dt: f32,
    ) -> Result<Self::Tensor>;

    /// Latents to the VAE's input: `x` `[h * w, 4C]` f32, `width` = `w`, `mean`, `var` `[4C]` f32, result `[2h, 2w, C]` f32.
    ///
    /// `z = x * sqrt(var + eps) + mean` per packed channel, not fused; packed channel `c * 4 + i * 2 + j` of token `(y, x)`
    /// goes to channel `c` of pixel `(2y + i, 2x + j)`.
    fn unpack_latents(
        &self,
        x: &Self::Tensor,
        mean: &Self::Tensor,
        var: &Self::Tensor,
        eps: f32,
        width: usize,
    ) -> Result<Self::Tensor>;

    /// Convolution with stride 1 and zero padding that keeps the size: `x` `[H, W, Ci]`, result `[H', W', Co]`, f32; with `upsample`, `x` is first doubled by nearest neighbour
    /// (`H' = 2H`), without materialising it.
    ///
    /// With `norm`, `ab` from [`Backend::group_norm`], each input element is first replaced by
    /// `fma(x, a[ci], b[ci])`, then by its `silu` when asked; no normalised copy of `x` need exist.
    /// `acc` = chain over `(ky, kx, ci)`, `ci` fastest, of `x * w`, padding pixels left out; `y = acc + bias`; then `y + residual`.
    fn conv2d(&self, x: &Self::Tensor, conv: Conv2d<'_, Self::Tensor>) -> Result<Self::Tensor>;

    /// The coefficients of a group norm: `x` `[H, W, C]`, result `[2, C]` (`a`, then `b`), f32;
    /// the norm itself, `fma(x, a, b)`, is applied by the [`Backend::conv2d`] that reads it.
    ///
    /// A group is `C / groups` neighbouring channels; its elements are ordered by pixel, then channel. A sum over a group =
    /// tree256 over slices of the slice's own tree256, a slice being [`GROUP_NORM_SLICE`] pixels (the last may be shorter).
    /// `mean = sum(x) / n`; `var = sum((x - mean) * (x - mean)) / n`; `r = 1 / sqrt(var + eps)`; `a = weight * r`;
    /// `b = fma(-mean, a, bias)`.
    fn group_norm(&self, x: &Self::Tensor, norm: GroupNorm<'_, Self::Tensor>) -> Result<Self::Tensor>;
}
