//! The shapes and dtypes that each operation of [`Backend`] accepts, checked in one place for every backend.
//!
//! A wrong shape is a programming error: each function panics with the operation and all its operands
//! (`norm: operands do not fit: x [3, 8] Bf16, weight [7] Bf16`), and returns the sizes otherwise.

use std::fmt::Write as _;

#[cfg(doc)]
use crate::backend::Backend;
use crate::backend::{
    Attention, Conv2d, DType, DeltaHeads, Epilogue, GroupNorm, Heads, Modulation, Norm, Tensor,
};

use DType::{Bf16, F32};

/// Panics unless `ok`, naming the operation and its operands with their shapes and dtypes.
#[track_caller]
pub fn require<T: Tensor>(op: &str, ok: bool, operands: &[(&str, &T)]) {
    if ok {
        return;
    }
    let mut list = String::new();
    for (name, tensor) in operands {
        let comma = if list.is_empty() { "" } else { ", " };
        let _ = write!(list, "{comma}{name} {:?} {:?}", tensor.shape(), tensor.dtype());
    }
    panic!("{op}: operands do not fit: {list}");
}

fn is<T: Tensor>(x: &T, dtype: DType, shape: &[usize]) -> bool {
    x.dtype() == dtype && x.shape() == shape
}

/// Rows and columns of a matrix; `(0, 0)`, which fits nothing, for any other shape.
fn matrix<T: Tensor>(x: &T) -> (usize, usize) {
    match *x.shape() {
        [rows, columns] => (rows, columns),
        _ => (0, 0),
    }
}

fn fits(heads: Heads, width: usize) -> bool {
    let Heads { first, step, count, dim } = heads;
    count > 0 && dim > 0 && step >= dim && first + (count - 1) * step + dim <= width
}

/// Segments are at least one token each and cover all tokens.
fn covers(segments: &[usize], tokens: usize) -> bool {
    segments.iter().all(|&n| n > 0) && segments.iter().sum::<usize>() == tokens
}

/// [`Backend::upload`]: at least one element, and the number of elements is the product of the shape.
#[track_caller]
pub fn upload(len: usize, shape: &[usize]) {
    assert!(len > 0 && shape.iter().product::<usize>() == len, "upload: {len} elements for shape {shape:?}");
}

/// [`Backend::rows`]: returns the new shape and the number of elements in one row.
#[track_caller]
pub fn rows<T: Tensor>(x: &T, rows: &std::ops::Range<usize>) -> (Vec<usize>, usize) {
    let shape = x.shape();
    let ok = !shape.is_empty() && rows.start < rows.end && rows.end <= shape[0];
    assert!(ok, "rows: {rows:?} of x {shape:?}");
    let mut out = shape.to_vec();
    out[0] = rows.len();
    (out, shape[1..].iter().product())
}

/// [`Backend::reshape`]: the same number of elements.
#[track_caller]
pub fn reshape<T: Tensor>(x: &T, shape: &[usize]) {
    let len: usize = x.shape().iter().product();
    assert!(shape.iter().product::<usize>() == len, "reshape: x {:?} to {shape:?}", x.shape());
}

/// [`Backend::concat`]: returns the shape of the result.
#[track_caller]
pub fn concat<T: Tensor>(parts: &[&T]) -> Vec<usize> {
    assert!(!parts.is_empty(), "concat: no parts");
    let first = parts[0];
    let ok = !first.shape().is_empty()
        && parts.iter().all(|x| {
            x.dtype() == first.dtype()
                && x.shape().len() == first.shape().len()
                && x.shape()[1..] == first.shape()[1..]
        });
    let named: Vec<(&str, &T)> = parts.iter().map(|&x| ("part", x)).collect();
    require("concat", ok, &named);
    let mut shape = first.shape().to_vec();
    shape[0] = parts.iter().map(|x| x.shape()[0]).sum();
    shape
}

/// [`Backend::to_bf16`].
#[track_caller]
pub fn to_bf16<T: Tensor>(x: &T) {
    require("to_bf16", x.dtype() == F32, &[("x", x)]);
}

/// [`Backend::norm`]: returns `(T, D)`.
#[track_caller]
pub fn norm<T: Tensor>(x: &T, norm: &Norm<'_, T>, modulation: Option<&Modulation<'_, T>>) -> (usize, usize) {
    let weight = norm.weight;
    let (tokens, width) = matrix(x);
    let mut operands = vec![("x", x), ("weight", weight)];
    let mut ok = x.dtype() == Bf16 && width > 0 && is(weight, Bf16, &[width]);
    if let Some(&Modulation { scale, shift }) = modulation {
        operands.extend([("scale", scale), ("shift", shift)]);
        ok &= is(scale, Bf16, &[1, width]) && is(shift, Bf16, &[1, width]);
    }
    require("norm", ok, &operands);
    (tokens, width)
}

/// [`Backend::head_norm_rope`]: returns `(T, R)`.
#[track_caller]
pub fn head_norm_rope<T: Tensor>(x: &T, heads: Heads, norm: &Norm<'_, T>, rope: (&T, &T)) -> (usize, usize) {
    let weight = norm.weight;
    let (tokens, width) = matrix(x);
    let (_, rotary) = matrix(rope.0);
    let ok = x.dtype() == Bf16
        && fits(heads, width)
        && is(weight, Bf16, &[heads.dim])
        && is(rope.0, Bf16, &[tokens, rotary])
        && is(rope.1, Bf16, &[tokens, rotary])
        && 2 * rotary <= heads.dim;
    let operands = [("x", x), ("weight", weight), ("cos", rope.0), ("sin", rope.1)];
    require(&format!("head_norm_rope {heads:?}"), ok, &operands);
    (tokens, rotary)
}

/// The sizes of [`Backend::attention`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    /// Tokens of all segments.
    pub tokens: usize,
    /// Query heads.
    pub q_heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub dim: usize,
}

/// [`Backend::attention`].
#[track_caller]
pub fn attention<T: Tensor>(a: &Attention<'_, T>) -> AttentionShape {
    let &Attention { q, k, v, v_heads, segments, .. } = a;
    let Heads { count: kv_heads, dim, .. } = v_heads;
    let (tokens, q_width) = matrix(q);
    let (v_tokens, v_width) = matrix(v);
    let q_heads = q_width / dim.max(1);
    let ok = fits(v_heads, v_width)
        && is(k, q.dtype(), &[tokens, kv_heads * dim])
        && v.dtype() == q.dtype()
        && v_tokens == tokens
        && q_heads > 0
        && q_width == q_heads * dim
        && q_heads.is_multiple_of(kv_heads)
        && covers(segments, tokens);
    require(&format!("attention {v_heads:?}, segments {segments:?}"), ok, &[("q", q), ("k", k), ("v", v)]);
    AttentionShape { tokens, q_heads, kv_heads, dim }
}

/// [`Backend::sigmoid_gate`]: returns `T`.
#[track_caller]
pub fn sigmoid_gate<T: Tensor>(x: &T, gate: &T, heads: Heads) -> usize {
    let (tokens, width) = matrix(gate);
    let ok = fits(heads, width) && gate.dtype() == Bf16 && is(x, Bf16, &[tokens, heads.count * heads.dim]);
    require(&format!("sigmoid_gate {heads:?}"), ok, &[("x", x), ("gate", gate)]);
    tokens
}

/// [`Backend::linear`]: returns `(T, k, n)`.
#[track_caller]
pub fn linear<T: Tensor>(
    x: &T,
    w: &T,
    bias: Option<&T>,
    epilogue: &Epilogue<'_, T>,
) -> (usize, usize, usize) {
    let (tokens, k) = matrix(x);
    let (n, _) = matrix(w);
    let mut operands = vec![("x", x), ("w", w)];
    let mut ok = x.dtype() == Bf16 && k > 0 && n > 0 && is(w, Bf16, &[n, k]);
    if let Some(bias) = bias {
        operands.push(("bias", bias));
        ok &= is(bias, Bf16, &[n]);
    }
    match *epilogue {
        Epilogue::None | Epilogue::Silu => {}
        Epilogue::Residual(residual) => {
            operands.push(("residual", residual));
            ok &= is(residual, Bf16, &[tokens, n]);
        }
        Epilogue::GatedResidual { residual, gate } => {
            operands.extend([("residual", residual), ("gate", gate)]);
            ok &= is(residual, Bf16, &[tokens, n]) && is(gate, Bf16, &[1, n]);
        }
    }
    require("linear", ok, &operands);
    (tokens, k, n)
}

/// [`Backend::linear_glu`]: returns `(T, k, F)`.
#[track_caller]
pub fn linear_glu<T: Tensor>(x: &T, w: &T, bias: Option<&T>) -> (usize, usize, usize) {
    let (tokens, k) = matrix(x);
    let (n, _) = matrix(w);
    let mut operands = vec![("x", x), ("w", w)];
    let mut ok = x.dtype() == Bf16 && k > 0 && n > 0 && n.is_multiple_of(2) && is(w, Bf16, &[n, k]);
    if let Some(bias) = bias {
        operands.push(("bias", bias));
        ok &= is(bias, Bf16, &[n]);
    }
    require("linear_glu", ok, &operands);
    (tokens, k, n / 2)
}

/// [`Backend::causal_conv_silu`]: returns `(T, D, width)`.
#[track_caller]
pub fn causal_conv_silu<T: Tensor>(x: &T, w: &T, segments: &[usize]) -> (usize, usize, usize) {
    let (tokens, channels) = matrix(x);
    let (w_channels, width) = match *w.shape() {
        [d, width] | [d, 1, width] => (d, width),
        _ => (0, 0),
    };
    let ok = x.dtype() == Bf16
        && w.dtype() == Bf16
        && channels > 0
        && w_channels == channels
        && width > 0
        && covers(segments, tokens);
    require(&format!("causal_conv_silu, segments {segments:?}"), ok, &[("x", x), ("w", w)]);
    (tokens, channels, width)
}

/// [`Backend::gated_delta_rule`]: returns `T`.
#[track_caller]
pub fn gated_delta_rule<T: Tensor>(
    qkv: &T,
    ba: &T,
    a_log: &T,
    dt_bias: &T,
    heads: DeltaHeads,
    segments: &[usize],
) -> usize {
    let DeltaHeads { key_heads, value_heads, key_dim, value_dim } = heads;
    let (tokens, width) = matrix(qkv);
    let ok = key_heads > 0
        && value_heads > 0
        && value_heads.is_multiple_of(key_heads)
        && key_dim > 0
        && key_dim.is_multiple_of(4)
        && value_dim > 0
        && qkv.dtype() == Bf16
        && width == 2 * key_heads * key_dim + value_heads * value_dim
        && is(ba, Bf16, &[tokens, 2 * value_heads])
        && is(a_log, F32, &[value_heads])
        && is(dt_bias, F32, &[value_heads])
        && covers(segments, tokens);
    let operands = [("qkv", qkv), ("ba", ba), ("a_log", a_log), ("dt_bias", dt_bias)];
    require(&format!("gated_delta_rule {heads:?}, segments {segments:?}"), ok, &operands);
    tokens
}

/// [`Backend::gated_norm`]: returns `(T, H, h)`.
#[track_caller]
pub fn gated_norm<T: Tensor>(x: &T, z: &T, weight: &T) -> (usize, usize, usize) {
    let (tokens, width) = matrix(x);
    let dim = weight.shape().first().copied().unwrap_or(0).max(1);
    let ok = x.dtype() == Bf16
        && width > 0
        && width.is_multiple_of(dim)
        && is(z, Bf16, &[tokens, width])
        && is(weight, Bf16, &[dim]);
    require("gated_norm", ok, &[("x", x), ("z", z), ("weight", weight)]);
    (tokens, width / dim, dim)
}

/// [`Backend::euler_step`].
#[track_caller]
pub fn euler_step<T: Tensor>(x: &T, v_cond: &T, v_uncond: Option<&T>) {
    let mut operands = vec![("x", x), ("v_cond", v_cond)];
    let mut ok = x.dtype() == F32 && is(v_cond, Bf16, x.shape());
    if let Some(v_uncond) = v_uncond {
        operands.push(("v_uncond", v_uncond));
        ok &= is(v_uncond, Bf16, x.shape());
    }
    require("euler_step", ok, &operands);
}

/// [`Backend::unpack_latents`]: returns `(h, C)`.
#[track_caller]
pub fn unpack_latents<T: Tensor>(x: &T, mean: &T, var: &T, width: usize) -> (usize, usize) {
    let (tokens, packed) = matrix(x);
    let ok = x.dtype() == F32
        && width > 0
        && tokens.is_multiple_of(width)
        && packed > 0
        && packed.is_multiple_of(4)
        && is(mean, F32, &[packed])
        && is(var, F32, &[packed]);
    require(&format!("unpack_latents, width {width}"), ok, &[("x", x), ("mean", mean), ("var", var)]);
    (tokens / width, packed / 4)
}

/// The sizes of [`Backend::conv2d`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvShape {
    /// Rows of the result (twice the input's with `upsample`).
    pub height: usize,
    /// Columns of the result.
    pub width: usize,
    /// Input channels.
    pub inputs: usize,
    /// Output channels.
    pub outputs: usize,
    /// Side of the kernel, 1 or 3.
    pub kernel: usize,
}

/// [`Backend::conv2d`].
#[track_caller]
pub fn conv2d<T: Tensor>(x: &T, conv: &Conv2d<'_, T>) -> ConvShape {
    let &Conv2d { weight: w, bias, norm, upsample, residual } = conv;
    let (h, width, inputs) = match *x.shape() {
        [h, w, c] => (h, w, c),
        _ => (0, 0, 0),
    };
    let (outputs, w_inputs, kernel) = match *w.shape() {
        [o, i] => (o, i, 1),
        [o, i, k, k2] if k == k2 => (o, i, k),
        _ => (0, 0, 0),
    };
    let scale = if upsample { 2 } else { 1 };
    let shape = ConvShape { height: h * scale, width: width * scale, inputs, outputs, kernel };
    let mut operands = vec![("x", x), ("w", w), ("bias", bias)];
    let mut ok = [x, w].iter().all(|t| t.dtype() == F32)
        && h * width * inputs > 0
        && outputs > 0
        && w_inputs == inputs
        && (kernel == 1 || kernel == 3)
        && is(bias, F32, &[outputs]);
    if let Some((ab, _)) = norm {
        operands.push(("norm", ab));
        ok &= is(ab, F32, &[2, inputs]);
    }
    if let Some(residual) = residual {
        operands.push(("residual", residual));
        ok &= is(residual, F32, &[shape.height, shape.width, outputs]);
    }
    require(&format!("conv2d, upsample {upsample}"), ok, &operands);
    shape
}

/// [`Backend::group_norm`]: returns `(pixels, C)`.
#[track_caller]
pub fn group_norm<T: Tensor>(x: &T, norm: &GroupNorm<'_, T>) -> (usize, usize) {
    let &GroupNorm { groups, weight, bias, .. } = norm;
    let (pixels, channels) = match *x.shape() {
        [h, w, c] => (h * w, c),
        _ => (0, 0),
    };
    let ok = x.dtype() == F32
        && pixels * channels > 0
        && groups > 0
        && channels.is_multiple_of(groups)
        && is(weight, F32, &[channels])
        && is(bias, F32, &[channels]);
    require(&format!("group_norm, {groups} groups"), ok, &[("x", x), ("weight", weight), ("bias", bias)]);
    (pixels, channels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::NormKind;

    #[derive(Clone)]
    struct Shaped(DType, Vec<usize>);

    fn plain(weight: &Shaped) -> Norm<'_, Shaped> {
        Norm { weight, eps: 1e-6, kind: NormKind::Plain }
    }

    impl Tensor for Shaped {
        fn shape(&self) -> &[usize] {
            &self.1
        }

        fn dtype(&self) -> DType {
            self.0
        }
    }

    fn b(shape: &[usize]) -> Shaped {
        Shaped(Bf16, shape.to_vec())
    }

    fn f(shape: &[usize]) -> Shaped {
        Shaped(F32, shape.to_vec())
    }

    /// The message that `call` panics with.
    fn message<R>(call: impl FnOnce() -> R + std::panic::UnwindSafe) -> String {
        let result = std::panic::catch_unwind(call).map(|_| ());
        let panic = result.expect_err("the shapes were accepted");
        *panic.downcast::<String>().expect("a formatted message")
    }

    #[test]
    fn good_shapes_give_their_sizes() {
        assert_eq!(
            norm(&b(&[3, 8]), &plain(&b(&[8])), Some(&Modulation { scale: &b(&[1, 8]), shift: &b(&[1, 8]) })),
            (3, 8)
        );
        assert_eq!(linear(&b(&[3, 8]), &b(&[5, 8]), None, &Epilogue::Residual(&b(&[3, 5]))), (3, 8, 5));
        assert_eq!(linear_glu(&b(&[3, 8]), &b(&[10, 8]), Some(&b(&[10]))), (3, 8, 5));
        let (q, k, v) = (b(&[4, 32]), b(&[4, 16]), b(&[4, 20]));
        let v_heads = Heads::packed(4, 2, 8);
        let size = attention(&Attention {
            q: &q,
            k: &k,
            v: &v,
            v_heads,
            scale: 1.0,
            causal: false,
            segments: &[1, 3],
        });
        assert_eq!(size, AttentionShape { tokens: 4, q_heads: 4, kv_heads: 2, dim: 8 });
        let (kernel, bias, residual) = (f(&[5, 4, 3, 3]), f(&[5]), f(&[4, 6, 5]));
        let size = conv2d(&f(&[2, 3, 4]), &Conv2d::new(&kernel, &bias).upsample(true).plus(&residual));
        assert_eq!(size, ConvShape { height: 4, width: 6, inputs: 4, outputs: 5, kernel: 3 });
        assert_eq!(conv2d(&f(&[2, 3, 4]), &Conv2d::new(&f(&[5, 4]), &f(&[5]))).kernel, 1);
        assert_eq!(concat(&[&b(&[2, 3]), &b(&[4, 3])]), [6, 3]);
        assert_eq!(rows(&b(&[4, 3, 2]), &(1..3)), (vec![2, 3, 2], 6));
    }

    #[test]
    fn wrong_shapes_panic_with_operation_and_operands() {
        let text = message(|| norm(&b(&[3, 8]), &plain(&b(&[7])), None));
        assert_eq!(text, "norm: operands do not fit: x [3, 8] Bf16, weight [7] Bf16");
        let text = message(|| linear(&f(&[3, 8]), &b(&[5, 8]), None, &Epilogue::None));
        assert_eq!(text, "linear: operands do not fit: x [3, 8] F32, w [5, 8] Bf16");
        let heads = Heads { first: 1, step: 8, count: 2, dim: 8 };
        let text = message(move || sigmoid_gate(&b(&[3, 16]), &b(&[3, 16]), heads));
        assert!(text.starts_with("sigmoid_gate Heads { first: 1"), "{text}");
        let text = message(|| causal_conv_silu(&b(&[3, 8]), &b(&[8, 4]), &[1, 1]));
        assert!(text.starts_with("causal_conv_silu, segments [1, 1]: operands do not fit"), "{text}");
        let text = message(|| rows(&b(&[4, 3]), &(2..5)));
        assert_eq!(text, "rows: 2..5 of x [4, 3]");
        assert_eq!(message(|| upload(5, &[2, 3])), "upload: 5 elements for shape [2, 3]");
        let text = message(|| reshape(&b(&[4, 3]), &[5]));
        assert_eq!(text, "reshape: x [4, 3] to [5]");
        let text = message(|| concat(&[&b(&[2, 3]), &b(&[4, 4])]));
        assert!(text.ends_with("part [2, 3] Bf16, part [4, 4] Bf16"), "{text}");
    }

    #[test]
    fn heads_and_segments_must_fit() {
        let heads = |first, step, count| Heads { first, step, count, dim: 8 };
        assert!(fits(heads(0, 8, 2), 16) && fits(heads(3, 9, 2), 20));
        assert!(!fits(heads(1, 8, 2), 16) && !fits(heads(0, 7, 2), 16) && !fits(heads(0, 8, 0), 16));
        assert!(covers(&[1, 2], 3) && !covers(&[1, 2], 4) && !covers(&[3, 0], 3));
    }
}
