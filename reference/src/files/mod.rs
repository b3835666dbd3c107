//! Reading checkpoints: safetensors files, sharded or not, mapped and checked before any tensor is handed out.

mod checkpoint;
mod header;
mod part;
mod rows;
mod source;

pub use checkpoint::{Checkpoint, TensorView};
pub use header::{FileDType, disguise};
pub use part::{Part, TensorSpec};
pub use rows::{Bf16Rows, Element, ReadError, Rows};
pub use source::{Bytes, ModelSource};

/// What is wrong with a model's files.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// A file cannot be opened or read.
    #[error("{file}: {error}")]
    Io {
        /// The file.
        file: String,
        /// What the system says.
        error: std::io::Error,
    },
    /// The model's path is no folder.
    #[error("{path}: {found}, the folder of a MOSS-Image model expected")]
    NotAModel {
        /// The path.
        path: String,
        /// What it is.
        found: &'static str,
    },
    /// A part's folder or file is missing.
    #[error("{path} is missing: a model folder holds {expected}")]
    MissingPart {
        /// The path.
        path: String,
        /// What a complete folder holds.
        expected: &'static str,
    },
    /// Shards that the index names are missing.
    #[error("{index}: {} of {count} shards are missing: {}", missing.len(), missing.join(", "))]
    MissingShards {
        /// The index file.
        index: String,
        /// All that are missing.
        missing: Vec<String>,
        /// Shards that the index names.
        count: usize,
    },
    /// An index is no JSON object with a `weight_map`.
    #[error("{file}: {reason}")]
    Index {
        /// The index file.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// A shard lacks a tensor that the index places there.
    #[error("{file}: tensor {tensor} is missing, the index places it here")]
    IndexMismatch {
        /// The shard.
        file: String,
        /// The tensor.
        tensor: String,
    },
    /// A file is shorter than its header says.
    #[error("{file} has {found} bytes, its header needs {expected}: the download is incomplete")]
    Truncated {
        /// The file.
        file: String,
        /// Its length.
        found: u64,
        /// The length that its header needs.
        expected: u64,
    },
    /// A file is longer than its header says.
    #[error("{file} has {found} bytes, {expected} expected by its header: the file is damaged")]
    Trailing {
        /// The file.
        file: String,
        /// Its length.
        found: u64,
        /// The length that its header accounts for.
        expected: u64,
    },
    /// A file is not in the safetensors format.
    #[error("{file}: {found}, a safetensors file expected")]
    NotSafetensors {
        /// The file.
        file: String,
        /// What it looks like.
        found: String,
    },
    /// A tensor's entry in a header is wrong.
    #[error("{file}: tensor {tensor}: {reason}")]
    Entry {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
        /// What is wrong.
        reason: String,
    },
    /// Two files hold the same tensor.
    #[error("tensor {tensor} is in {first} and in {second}")]
    Duplicate {
        /// The tensor.
        tensor: String,
        /// One file.
        first: String,
        /// The other.
        second: String,
    },
    /// A tensor has another shape than the configuration asks for.
    #[error("{file}: tensor {tensor} is {found:?}, the configuration asks for {expected:?}{hint}")]
    Shape {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
        /// Shape in the file.
        found: Vec<usize>,
        /// Shape by the configuration.
        expected: Vec<usize>,
        /// What the file probably is, when that is known.
        hint: String,
    },
    /// A tensor has an element type that is not supported.
    #[error("{file}: tensor {tensor} is {found}, BF16, F16 or F32 expected")]
    DType {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
        /// Element type in the file.
        found: String,
    },
    /// Tensors are missing.
    #[error("{folder}: {found}; {count} tensors of {part} are missing, first {first} {shape:?}")]
    MissingTensors {
        /// The part's folder.
        folder: String,
        /// What the files look like.
        found: String,
        /// The part.
        part: &'static str,
        /// How many are missing.
        count: usize,
        /// One of them.
        first: String,
        /// Its expected shape.
        shape: Vec<usize>,
    },
    /// Tensors are there that the model does not have.
    #[error("{file}: {count} tensors are not {part}'s, first {first} {shape:?}")]
    UnexpectedTensors {
        /// The file of the first.
        file: String,
        /// The part.
        part: &'static str,
        /// How many there are.
        count: usize,
        /// One of them.
        first: String,
        /// Its shape.
        shape: Vec<usize>,
    },
}
