//! What operations take besides tensors: element types, weights and stages, heads, epilogues.

use std::sync::Arc;

use half::bf16;

use crate::files::{Checkpoint, TensorSpec};

/// What a backend can fail with at run time (device lost, out of memory, a file that went away).
///
/// Wrong shapes are programming errors and panic with the operation, the operands and their shapes.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct BackendError(#[from] pub Box<dyn std::error::Error + Send + Sync>);

impl BackendError {
    /// Wraps a backend's own error.
    pub fn new(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self(Box::new(error))
    }
}

/// Result of every backend operation.
pub type Result<T, E = BackendError> = std::result::Result<T, E>;

/// Element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// 16-bit brain float.
    Bf16,
    /// IEEE single.
    F32,
}

impl DType {
    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            DType::Bf16 => 2,
            DType::F32 => 4,
        }
    }
}

/// Elements on the host, row-major.
#[derive(Clone, Debug, PartialEq)]
pub enum HostData {
    /// bf16 elements.
    Bf16(Vec<bf16>),
    /// f32 elements.
    F32(Vec<f32>),
}

impl HostData {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            HostData::Bf16(v) => v.len(),
            HostData::F32(v) => v.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        match self {
            HostData::Bf16(_) => DType::Bf16,
            HostData::F32(_) => DType::F32,
        }
    }

    /// The elements as f32 (exact).
    pub fn to_f32(&self) -> Vec<f32> {
        match self {
            HostData::Bf16(v) => v.iter().map(|x| x.to_f32()).collect(),
            HostData::F32(v) => v.clone(),
        }
    }
}

/// What the model may ask of a backend's tensor.
pub trait Tensor: Clone {
    /// Row-major shape. Matrices that are weights have the shape of the stacked parts.
    fn shape(&self) -> &[usize];
    /// Element type that the operations see.
    fn dtype(&self) -> DType;
}

/// How an operation will read a weight: a backend may repack by role when it loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// `[n, k]` bf16 operand of [`super::Backend::linear`]; several parts are stacked along `n`.
    Matrix,
    /// Two `[n, k]` bf16 matrices, *up* then *gate*, or one `[2n, k]` that holds them in that order:
    /// the operand of [`super::Backend::linear_glu`].
    UpGate,
    /// A vector kept in bf16 (norm weights, biases of the bf16 models); parts are joined end to end.
    Vector,
    /// A vector kept in f32 (`A_log`, `dt_bias`, everything one-dimensional in the VAE).
    VectorF32,
    /// `[D, 1, width]` or `[D, width]` bf16 kernel of [`super::Backend::causal_conv_silu`].
    Depthwise,
    /// `[out, in, k, k]` f32 kernel of [`super::Backend::conv2d`], `k` 1 or 3; `[out, in]` means `k` = 1.
    Conv2d,
}

/// One weight as an operation wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightSpec {
    /// Tensors of the checkpoint, stacked along their first axis in this order.
    pub parts: Vec<TensorSpec>,
    /// How it is used.
    pub role: Role,
}

/// The weights of one model part and how they come and go.
pub struct StageSpec {
    /// Name for messages: `text encoder`, `dit`, `vae`.
    pub name: &'static str,
    /// Where the weights are.
    pub checkpoint: Arc<Checkpoint>,
    /// Weights that stay for the whole stage.
    pub fixed: Vec<WeightSpec>,
    /// Weights of each block, fetched in order, again and again; a backend may keep any number of them
    /// on the device and stream the rest.
    pub blocks: Vec<Vec<WeightSpec>>,
    /// Most blocks to hold on the device at once (`usize::MAX`: as many as fit).
    pub resident_limit: usize,
    /// Device bytes that the stage's activations need at their peak, by the model's own count.
    pub activation_bytes: u64,
}

/// Where heads lie in the columns of a `[T, width]` tensor: head `i` is columns
/// `first + i * step .. first + i * step + dim`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// Column of head 0.
    pub first: usize,
    /// Columns from one head to the next.
    pub step: usize,
    /// Number of heads.
    pub count: usize,
    /// Width of a head.
    pub dim: usize,
}

impl Heads {
    /// `count` heads of `dim` columns side by side from column `first`.
    pub fn packed(first: usize, count: usize, dim: usize) -> Self {
        Self { first, step: dim, count, dim }
    }
}

/// How an RMS norm applies its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// `bf16(bf16(x * r) * w)`: the DiT's.
    Plain,
    /// `bf16(x * r * (1 + w))`, products left to right, `1 + w` in f32: the text encoder's.
    ZeroCentred,
}

/// A norm's weight and how it is applied.
pub struct Norm<'a, T> {
    /// `[D]` bf16, `D` the width of a row or a head.
    pub weight: &'a T,
    /// Added to the mean square.
    pub eps: f32,
    /// Where it rounds and what the weight means.
    pub kind: NormKind,
}

/// What scales and shifts a normed row, each `[1, D]` bf16.
pub struct Modulation<'a, T> {
    /// Added to 1, then multiplied.
    pub scale: &'a T,
    /// Added.
    pub shift: &'a T,
}

/// The operands of [`super::Backend::attention`].
pub struct Attention<'a, T> {
    /// Queries, `[T, Hq * h]`.
    pub q: &'a T,
    /// Keys, `[T, Hkv * h]`.
    pub k: &'a T,
    /// Values, in columns `v_heads` of `[T, width]`.
    pub v: &'a T,
    /// Where the values' heads lie.
    pub v_heads: Heads,
    /// Factor of a score.
    pub scale: f64,
    /// Whether a query sees only the keys up to its own place.
    pub causal: bool,
    /// Lengths of the sequences, in tokens.
    pub segments: &'a [usize],
}

/// A convolution: [`Conv2d::new`], then what it does besides.
pub struct Conv2d<'a, T> {
    /// [`Role::Conv2d`].
    pub weight: &'a T,
    /// `[Co]` f32.
    pub bias: &'a T,
    /// Coefficients of a group norm that each input element goes through first, and whether its silu follows.
    pub norm: Option<(&'a T, bool)>,
    /// Whether the input is doubled by nearest neighbour first.
    pub upsample: bool,
    /// Added to the output, `[H', W', Co]` f32.
    pub residual: Option<&'a T>,
}

impl<'a, T> Conv2d<'a, T> {
    /// A convolution and nothing else.
    pub fn new(weight: &'a T, bias: &'a T) -> Self {
        Self { weight, bias, norm: None, upsample: false, residual: None }
    }

    /// Of the normed input; `ab` from [`super::Backend::group_norm`].
    pub fn of_norm(self, ab: &'a T) -> Self {
        Self { norm: Some((ab, false)), ..self }
    }

    /// Of the silu of the normed input.
    pub fn of_norm_silu(self, ab: &'a T) -> Self {
        Self { norm: Some((ab, true)), ..self }
    }

    /// Of the doubled input, when asked.
    pub fn upsample(self, upsample: bool) -> Self {
        Self { upsample, ..self }
    }

    /// Adds `residual` to the output.
    pub fn plus(self, residual: &'a T) -> Self {
        Self { residual: Some(residual), ..self }
    }
}

/// The parameters of a group norm.
pub struct GroupNorm<'a, T> {
    /// Groups of neighbouring channels.
    pub groups: usize,
    /// `[C]` f32.
    pub weight: &'a T,
    /// `[C]` f32.
    pub bias: &'a T,
    /// Added to the variance.
    pub eps: f32,
}

/// What [`super::Backend::linear`] does to an output before it is stored; `y` is the bf16 output of the product.
pub enum Epilogue<'a, T> {
    /// `y`.
    None,
    /// `bf16(silu(y))`.
    Silu,
    /// `bf16(residual + y)`; `residual` `[T, n]` bf16.
    Residual(&'a T),
    /// `bf16(residual + bf16(y * gate))`; `residual` `[T, n]`, `gate` `[1, n]`, bf16.
    GatedResidual {
        /// Added to the gated output, `[T, n]`.
        residual: &'a T,
        /// One factor a column, `[1, n]`.
        gate: &'a T,
    },
}

/// The gated unit of a feed-forward layer; `u` (up) and `g` (gate) are bf16 outputs of the products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Glu {
    /// `bf16(bf16(silu(g)) * u)`: the text encoder's.
    Silu,
    /// MOSS-Image's SiTU, one rounding a step:
    /// `a = bf16(4 * bf16(tanh(bf16(g / 4))))`, `s = bf16(sigmoid(g))`, `p = bf16(a * s)`,
    /// `t = bf16(25 * bf16(tanh(bf16(u / 25))))`, result `bf16(p * t)`.
    Situ,
}

/// The sizes of [`super::Backend::gated_delta_rule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaHeads {
    /// Key (and query) heads.
    pub key_heads: usize,
    /// Value heads; each key head serves `value_heads / key_heads` consecutive ones.
    pub value_heads: usize,
    /// Width of a key head, a multiple of 4.
    pub key_dim: usize,
    /// Width of a value head.
    pub value_dim: usize,
}

/// Rows of `key` that one step of the online softmax takes in [`super::Backend::attention`].
pub const ATTENTION_BLOCK: usize = 64;

/// Pixels of one slice of the sums in [`super::Backend::group_norm`].
pub const GROUP_NORM_SLICE: usize = 4096;
