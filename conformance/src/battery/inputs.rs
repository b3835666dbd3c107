//! Inputs: tensors on the host, filled with values that find mistakes.

use std::ops::Range;
use std::sync::Arc;

use half::bf16;
use moss_reference::backend::{Backend, BackendError, DType, HostData, Role, StageSpec, WeightSpec};
use moss_reference::files::{Checkpoint, ModelSource, Part, TensorSpec};
use tempfile::TempDir;

use crate::bounded::Bounded;

/// A tensor on the host.
#[derive(Clone, Debug)]
pub struct Host {
    /// Row-major shape.
    pub shape: Vec<usize>,
    /// Elements.
    pub data: HostData,
}

impl Host {
    /// Copies it to a backend.
    pub fn upload<B: Backend>(&self, backend: &B) -> Result<B::Tensor, BackendError> {
        backend.upload(self.data.clone(), &self.shape)
    }

    /// The elements as exact values.
    pub fn exact(&self) -> Vec<Bounded> {
        self.data.to_f32().into_iter().map(Bounded::from).collect()
    }
}

/// How to fill a tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fill {
    /// Roughly normal with this standard deviation.
    Normal(f32),
    /// Zeros of both signs, subnormals, values up to this magnitude and as small as 2^-30, and normal ones.
    Extreme(f32),
    /// Zeros but for one element in each row, which has this value.
    OneHot(f32),
}

/// SplitMix64: small, seeded, the same everywhere.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A stream of its own for each seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// Uniform in `[0, 1)`.
    pub fn uniform(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / 16_777_216.0
    }

    /// The sum of twelve uniforms less six: near enough to normal, within 6 of 0.
    pub fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.uniform()).sum::<f32>() - 6.0
    }

    fn extreme(&mut self, limit: f32) -> f32 {
        let sign = if self.bits() & 1 == 0 { 1.0 } else { -1.0 };
        let magnitude = match self.below(8) {
            0 => 0.0,
            1 => 1e-39 * self.uniform(),
            2 => limit,
            3 => limit * self.uniform(),
            4 | 5 => (30.0 * (self.uniform() - 1.0)).exp2() * limit.min(4.0),
            _ => self.normal().abs(),
        };
        sign * magnitude.min(limit)
    }

    fn values(&mut self, shape: &[usize], fill: Fill) -> Vec<f32> {
        let len = shape.iter().product();
        match fill {
            Fill::Normal(std) => (0..len).map(|_| std * self.normal()).collect(),
            Fill::Extreme(limit) => (0..len).map(|_| self.extreme(limit)).collect(),
            Fill::OneHot(value) => {
                let width = shape[shape.len() - 1];
                let mut out = vec![0.0; len];
                for row in out.chunks_mut(width) {
                    row[self.below(width)] = value;
                }
                out
            }
        }
    }

    /// An f32 tensor.
    pub fn f32(&mut self, shape: &[usize], fill: Fill) -> Host {
        Host { shape: shape.to_vec(), data: HostData::F32(self.values(shape, fill)) }
    }

    /// A bf16 tensor.
    pub fn bf16(&mut self, shape: &[usize], fill: Fill) -> Host {
        let values = self.values(shape, fill);
        Host { shape: shape.to_vec(), data: HostData::Bf16(values.into_iter().map(bf16::from_f32).collect()) }
    }
}

/// Weights of a case in a checkpoint of their own, as a model's are; the first is cut in two parts when its rows allow,
/// so that stacking is part of every case.
pub(super) struct Stored {
    /// Holds the file until the case has run.
    _folder: TempDir,
    spec: StageSpec,
}

impl Stored {
    pub(super) fn new(weights: &[(Role, &Host)]) -> Self {
        let mut file = SafetensorsFile::default();
        let mut fixed = Vec::new();
        for (i, &(role, host)) in weights.iter().enumerate() {
            let rows = host.shape[0];
            let cut = if i == 0 && rows > 1 && role != Role::Conv2d {
                vec![rows / 2, rows - rows / 2]
            } else {
                vec![rows]
            };
            let width = host.data.len() / rows;
            let (mut parts, mut first) = (Vec::new(), 0);
            for (j, rows) in cut.into_iter().enumerate() {
                let mut shape = host.shape.clone();
                shape[0] = rows;
                let part = TensorSpec { name: format!("weight{i}.{j}"), shape };
                file.push(&part, &bytes(&host.data, first * width..(first + rows) * width), &host.data);
                parts.push(part);
                first += rows;
            }
            fixed.push(WeightSpec { parts, role });
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join(Part::Transformer.folder());
        std::fs::create_dir(&path).expect("a folder in it");
        std::fs::write(path.join("case.safetensors"), file.encode()).expect("a file in that");
        let source = ModelSource::Folder(folder.path().to_owned());
        let checkpoint = Checkpoint::open(&source, Part::Transformer, &file.specs)
            .unwrap_or_else(|error| panic!("the battery's own file: {error}"));
        let spec = StageSpec {
            name: "battery",
            checkpoint: Arc::new(checkpoint),
            fixed,
            blocks: Vec::new(),
            resident_limit: usize::MAX,
            activation_bytes: 1 << 26,
        };
        Self { _folder: folder, spec }
    }

    /// The stage to load.
    pub(super) fn stage(&self) -> StageSpec {
        StageSpec {
            name: self.spec.name,
            checkpoint: self.spec.checkpoint.clone(),
            fixed: self.spec.fixed.clone(),
            blocks: Vec::new(),
            resident_limit: self.spec.resident_limit,
            activation_bytes: self.spec.activation_bytes,
        }
    }
}

/// Little-endian bytes of some elements.
fn bytes(data: &HostData, range: Range<usize>) -> Vec<u8> {
    match data {
        HostData::Bf16(x) => x[range].iter().flat_map(|x| x.to_le_bytes()).collect(),
        HostData::F32(x) => x[range].iter().flat_map(|x| x.to_le_bytes()).collect(),
    }
}

/// A safetensors file in the making.
#[derive(Default)]
struct SafetensorsFile {
    specs: Vec<TensorSpec>,
    header: serde_json::Map<String, serde_json::Value>,
    data: Vec<u8>,
}

impl SafetensorsFile {
    fn push(&mut self, part: &TensorSpec, bytes: &[u8], like: &HostData) {
        let dtype = match like.dtype() {
            DType::Bf16 => "BF16",
            DType::F32 => "F32",
        };
        let start = self.data.len();
        self.data.extend(bytes);
        let offsets = [start, self.data.len()];
        let entry = serde_json::json!({ "dtype": dtype, "shape": part.shape, "data_offsets": offsets });
        self.header.insert(part.name.clone(), entry);
        self.specs.push(part.clone());
    }

    fn encode(&self) -> Vec<u8> {
        let mut header = serde_json::to_vec(&self.header).expect("a map of names");
        header.resize(header.len().next_multiple_of(8), b' ');
        [&(header.len() as u64).to_le_bytes()[..], &header, &self.data].concat()
    }
}
