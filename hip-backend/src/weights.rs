//! Weights as they lie on the device: which bytes of which file go where, and in what order.
//!
//! An [`Image`] is the device memory of a set of weights (a block, or a stage's fixed ones) with all offsets known before a
//! byte is read. It can fill any run of its units: a unit is a panel of a matrix or a piece of a vector, so that a bounded
//! host buffer is enough to pass an image of any size through.

use std::ops::Range;
use std::sync::Arc;

use half::bf16;
use rayon::prelude::*;

use moss_kernels::pack::{Conv, Panels};
use moss_reference::backend::{DType, Role, StageSpec, WeightSpec};
use moss_reference::files::{Checkpoint, Rows};

use crate::error::Error;
use crate::memory::RING_ENTRY;

/// Each weight starts at a multiple of this.
const ALIGN: u64 = 256;
/// Elements of a vector's piece.
const PIECE: usize = 1 << 20;

/// Memory that is used again from unit to unit.
#[derive(Default)]
struct Scratch {
    bf16: Vec<bf16>,
    f32: Vec<f32>,
}

/// How a weight's bytes are made from its parts.
enum Form {
    /// The elements of all parts end to end.
    Vector(DType),
    /// Panels of a matrix's rows.
    Panels(Panels),
    /// A convolution's kernel, whole.
    Conv(Conv),
}

/// One weight of an image.
pub(crate) struct Weight {
    /// Byte of the image at which it starts.
    pub(crate) offset: u64,
    /// Shape that the operations see: the parts stacked along the first axis.
    pub(crate) shape: Vec<usize>,
    /// Element type that the operations see.
    pub(crate) dtype: DType,
    form: Form,
    rows: Rows,
}

/// A piece of an image that is made at once.
struct Unit {
    weight: usize,
    /// Number among the weight's units.
    index: usize,
    /// First byte in the image; the unit reaches to the next one's.
    at: u64,
}

/// The device memory of a set of weights.
pub(crate) struct Image {
    weights: Vec<Weight>,
    units: Vec<Unit>,
    bytes: u64,
}

impl Image {
    /// Lays out `specs`; reads nothing.
    ///
    /// # Errors
    /// [`Error::Weight`] for a shape that the kernels do not take.
    pub(crate) fn new(specs: &[WeightSpec], checkpoint: &Checkpoint) -> Result<Self, Error> {
        let mut image = Self { weights: Vec::new(), units: Vec::new(), bytes: 0 };
        for spec in specs {
            let weight = Weight::new(spec, checkpoint.rows(&spec.parts), image.bytes)?;
            let mut at = weight.offset;
            for index in 0..weight.units() {
                image.units.push(Unit { weight: image.weights.len(), index, at });
                at += weight.unit_bytes(index);
            }
            image.weights.push(weight);
            image.bytes = at.next_multiple_of(ALIGN);
        }
        Ok(image)
    }

    /// Its size on the device.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its weights in the order of their specifications.
    pub(crate) fn weights(&self) -> &[Weight] {
        &self.weights
    }

    /// Runs of units of at most `limit` bytes each (a unit that is larger alone is a run of its own).
    pub(crate) fn chunks(&self, limit: usize) -> Vec<Range<usize>> {
        let mut chunks = Vec::new();
        let mut start = 0;
        for end in 1..=self.units.len() {
            let full = end == self.units.len() || self.end(end) - self.units[start].at > limit as u64;
            if full {
                chunks.push(start..end);
                start = end;
            }
        }
        chunks
    }

    fn end(&self, unit: usize) -> u64 {
        self.units.get(unit + 1).map_or(self.bytes, |next| next.at)
    }

    /// The bytes of the image that a run of units makes.
    pub(crate) fn span(&self, units: Range<usize>) -> Range<u64> {
        self.units[units.start].at..self.end(units.end - 1)
    }

    /// Makes a run of units, in parallel; `out` is as long as their span.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub(crate) fn fill(&self, units: Range<usize>, out: &mut [u8]) -> Result<(), Error> {
        let mut rest = out;
        let mut work = Vec::with_capacity(units.len());
        for unit in units {
            let length = (self.end(unit) - self.units[unit].at) as usize;
            let (own, after) = rest.split_at_mut(length);
            work.push((unit, own));
            rest = after;
        }
        work.into_par_iter().try_for_each_init(Scratch::default, |scratch, (unit, out)| {
            let Unit { weight, index, .. } = self.units[unit];
            let weight = &self.weights[weight];
            let (own, padding) = out.split_at_mut(weight.unit_bytes(index) as usize);
            padding.fill(0);
            weight.make(index, own, scratch)
        })
    }

    /// Makes the whole image.
    pub(crate) fn fill_all(&self, out: &mut [u8]) -> Result<(), Error> {
        if self.units.is_empty() { Ok(()) } else { self.fill(0..self.units.len(), out) }
    }
}

impl Weight {
    fn new(spec: &WeightSpec, rows: Rows, offset: u64) -> Result<Self, Error> {
        let unfit = |why: String| {
            let names: Vec<&str> = spec.parts.iter().map(|part| &*part.name).collect();
            Error::Weight { tensor: names.join(" + "), why }
        };
        let shape = rows.shape().to_vec();
        let (form, dtype) = match spec.role {
            Role::Matrix | Role::UpGate => {
                let [n, k] = shape[..] else { return Err(unfit(format!("{shape:?} is no matrix"))) };
                let panels = match spec.role {
                    Role::Matrix => Panels::matrix(n, k),
                    _ => Panels::up_gate(n, k),
                };
                (Form::Panels(panels.map_err(|error| unfit(error.to_string()))?), DType::Bf16)
            }
            Role::Vector | Role::Depthwise => (Form::Vector(DType::Bf16), DType::Bf16),
            Role::VectorF32 => (Form::Vector(DType::F32), DType::F32),
            Role::Conv2d => {
                let (outputs, inputs, side) = match shape[..] {
                    [o, i] => (o, i, 1),
                    [o, i, h, w] if h == w => (o, i, h),
                    _ => return Err(unfit(format!("{shape:?} is no kernel of a convolution"))),
                };
                let conv = Conv::new(outputs, inputs, side).map_err(|error| unfit(error.to_string()))?;
                (Form::Conv(conv), DType::F32)
            }
        };
        let weight = Self { offset, shape, dtype, form, rows };
        if weight.unit_bytes(0) > RING_ENTRY as u64 {
            return Err(unfit(format!(
                "a piece of {} bytes; at most {RING_ENTRY} pass at once",
                weight.unit_bytes(0)
            )));
        }
        Ok(weight)
    }

    fn units(&self) -> usize {
        match &self.form {
            Form::Vector(_) => self.rows.count().div_ceil(PIECE),
            Form::Panels(panels) => panels.count(),
            Form::Conv(_) => 1,
        }
    }

    fn unit_bytes(&self, index: usize) -> u64 {
        match &self.form {
            Form::Vector(dtype) => ((self.rows.count() - index * PIECE).min(PIECE) * dtype.size()) as u64,
            Form::Panels(panels) => panels.panel_bytes() as u64,
            Form::Conv(conv) => conv.bytes() as u64,
        }
    }

    fn make(&self, index: usize, out: &mut [u8], scratch: &mut Scratch) -> Result<(), Error> {
        let Scratch { bf16, f32 } = scratch;
        match &self.form {
            Form::Vector(dtype) => {
                let start = index * PIECE;
                let elements = start..self.rows.count().min(start + PIECE);
                match dtype {
                    DType::Bf16 => {
                        bf16.resize(elements.len(), bf16::ZERO);
                        self.rows.read(elements, bf16)?;
                        out.copy_from_slice(bytemuck::cast_slice(bf16));
                    }
                    DType::F32 => {
                        f32.resize(elements.len(), 0.0);
                        self.rows.read(elements, f32)?;
                        out.copy_from_slice(bytemuck::cast_slice(f32));
                    }
                }
            }
            Form::Panels(panels) => {
                let (rows, k) = (panels.rows(index), panels.columns());
                bf16.resize(rows.len() * k, bf16::ZERO);
                self.rows.read(rows.start * k..rows.end * k, bf16)?;
                panels.pack(bf16, out);
            }
            Form::Conv(conv) => {
                f32.resize(self.rows.count(), 0.0);
                self.rows.read(0..self.rows.count(), f32)?;
                conv.pack(f32, out);
            }
        }
        Ok(())
    }
}

/// The images of a stage.
pub(crate) struct StageImages {
    pub(crate) fixed: Arc<Image>,
    pub(crate) blocks: Vec<Arc<Image>>,
}

impl StageImages {
    /// Lays out a stage; reads nothing.
    pub(crate) fn new(spec: &StageSpec) -> Result<Self, Error> {
        let fixed = Image::new(&spec.fixed, &spec.checkpoint)?;
        let blocks = spec
            .blocks
            .iter()
            .map(|block| Image::new(block, &spec.checkpoint).map(Arc::new))
            .collect::<Result<_, _>>()?;
        Ok(Self { fixed: Arc::new(fixed), blocks })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use half::f16;
    use moss_reference::files::{FileDType, ModelSource, Part as ModelPart, TensorSpec};
    use std::path::Path;

    /// A tensor of a test checkpoint, with counted elements.
    pub(crate) struct Given {
        pub(crate) name: String,
        pub(crate) dtype: FileDType,
        pub(crate) shape: Vec<usize>,
    }

    pub(crate) fn given(name: &str, dtype: FileDType, shape: &[usize]) -> Given {
        Given { name: name.to_owned(), dtype, shape: shape.to_vec() }
    }

    /// Element `i` of tensor number `t`: exact in every dtype.
    fn value(t: usize, i: usize) -> f32 {
        (((t * 37 + i * 11) % 251) as f32 - 125.0) / 16.0
    }

    /// Writes a checkpoint into `folder/vae` and opens it.
    pub(crate) fn checkpoint(folder: &Path, tensors: &[Given]) -> Arc<Checkpoint> {
        let mut header = String::from("{");
        let mut data = Vec::new();
        for (t, tensor) in tensors.iter().enumerate() {
            let start = data.len();
            for i in 0..tensor.shape.iter().product() {
                let x = value(t, i);
                match tensor.dtype {
                    FileDType::Bf16 => data.extend(bf16::from_f32(x).to_le_bytes()),
                    FileDType::F16 => data.extend(f16::from_f32(x).to_le_bytes()),
                    FileDType::F32 => data.extend(x.to_le_bytes()),
                }
            }
            let dtype = match tensor.dtype {
                FileDType::Bf16 => "BF16",
                FileDType::F16 => "F16",
                FileDType::F32 => "F32",
            };
            let comma = if t == 0 { "" } else { "," };
            header += &format!(
                "{comma}\"{}\":{{\"dtype\":\"{dtype}\",\"shape\":{:?},\"data_offsets\":[{start},{}]}}",
                tensor.name,
                tensor.shape,
                data.len()
            );
        }
        header += "}";
        while header.len() % 8 != 0 {
            header.push(' ');
        }
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header.as_bytes());
        file.extend(data);
        std::fs::create_dir_all(folder.join("vae")).unwrap();
        std::fs::write(folder.join("vae/model.safetensors"), file).unwrap();
        let expected: Vec<TensorSpec> =
            tensors.iter().map(|t| TensorSpec { name: t.name.clone(), shape: t.shape.clone() }).collect();
        let source = ModelSource::Folder(folder.to_owned());
        Arc::new(Checkpoint::open(&source, ModelPart::Vae, &expected).unwrap())
    }

    /// A weight of a checkpoint's tensors.
    pub(crate) fn spec(checkpoint: &Checkpoint, parts: &[&str], role: Role) -> WeightSpec {
        let part = |name: &&str| TensorSpec {
            name: (*name).to_owned(),
            shape: checkpoint.get(name).shape().to_vec(),
        };
        WeightSpec { parts: parts.iter().map(part).collect(), role }
    }

    fn whole(image: &Image) -> Vec<u8> {
        let mut out = vec![0xEE; image.bytes() as usize];
        image.fill_all(&mut out).unwrap();
        out
    }

    fn elements<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> + '_ {
        bytes.as_chunks::<N>().0.iter().copied()
    }

    #[test]
    fn parts_are_stacked_converted_and_packed() {
        let folder = tempfile::tempdir().unwrap();
        let given = [
            given("q", FileDType::Bf16, &[24, 32]),
            given("k", FileDType::F32, &[9, 32]),
            given("norm", FileDType::F16, &[40]),
            given("a_log", FileDType::Bf16, &[5]),
            given("conv", FileDType::F32, &[3, 16, 3, 3]),
        ];
        let checkpoint = checkpoint(folder.path(), &given);
        let specs = [
            spec(&checkpoint, &["q", "k"], Role::Matrix),
            spec(&checkpoint, &["norm"], Role::Vector),
            spec(&checkpoint, &["a_log"], Role::VectorF32),
            spec(&checkpoint, &["conv"], Role::Conv2d),
        ];
        let image = Image::new(&specs, &checkpoint).unwrap();
        let bytes = whole(&image);
        let [qk, norm, a_log, conv] = image.weights() else { panic!("four weights") };
        assert_eq!((&qk.shape[..], qk.dtype), (&[33, 32][..], DType::Bf16));
        assert_eq!((&norm.shape[..], norm.dtype), (&[40][..], DType::Bf16));
        assert_eq!((&a_log.shape[..], a_log.dtype), (&[5][..], DType::F32));
        assert_eq!((&conv.shape[..], conv.dtype), (&[3, 16, 3, 3][..], DType::F32));
        assert!(image.weights().iter().all(|w| w.offset % ALIGN == 0));

        let stacked: Vec<bf16> = (0..24 * 32)
            .map(|i| value(0, i))
            .chain((0..9 * 32).map(|i| value(1, i)))
            .map(bf16::from_f32)
            .collect();
        let expected = Panels::matrix(33, 32).unwrap().pack_all(&stacked);
        assert_eq!(bytes[..expected.len()], expected[..]);
        let at = norm.offset as usize;
        for (i, b) in elements(&bytes[at..at + 80]).enumerate() {
            assert_eq!(bf16::from_le_bytes(b).to_f32(), value(2, i));
        }
        assert!(bytes[at + 80..a_log.offset as usize].iter().all(|&b| b == 0), "padding is zero");
        let at = a_log.offset as usize;
        for (i, b) in elements(&bytes[at..at + 20]).enumerate() {
            assert_eq!(f32::from_le_bytes(b), value(3, i));
        }
        let kernel: Vec<f32> = (0..3 * 16 * 9).map(|i| value(4, i)).collect();
        let packing = Conv::new(3, 16, 3).unwrap();
        let mut expected = vec![0; packing.bytes()];
        packing.pack(&kernel, &mut expected);
        let at = conv.offset as usize;
        assert_eq!(bytes[at..at + expected.len()], expected[..]);
    }

    #[test]
    fn any_chunking_makes_the_same_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let given = [
            given("up_gate", FileDType::Bf16, &[96, 64]),
            given("long", FileDType::F32, &[PIECE + 3]),
            given("down", FileDType::Bf16, &[20, 48]),
        ];
        let checkpoint = checkpoint(folder.path(), &given);
        let specs = [
            spec(&checkpoint, &["up_gate"], Role::UpGate),
            spec(&checkpoint, &["long"], Role::Vector),
            spec(&checkpoint, &["down"], Role::Matrix),
        ];
        let image = Image::new(&specs, &checkpoint).unwrap();
        let expected = whole(&image);
        for limit in [1, 5000, 1 << 20, 3 << 20, usize::MAX] {
            let mut out = vec![0xEE; expected.len()];
            let mut reached = 0;
            for units in image.chunks(limit) {
                let span = image.span(units.clone());
                assert_eq!(span.start, reached, "chunks follow one another");
                let whole = units.len() == 1 || span.end - span.start <= limit as u64;
                assert!(whole, "a chunk of {} bytes under a limit of {limit}", span.end - span.start);
                image.fill(units, &mut out[span.start as usize..span.end as usize]).unwrap();
                reached = span.end;
            }
            assert_eq!(reached, image.bytes());
            assert!(out == expected, "limit {limit}");
        }
    }

    #[test]
    fn shapes_that_do_not_fit_name_their_tensors() {
        let folder = tempfile::tempdir().unwrap();
        let given = [
            given("a.weight", FileDType::Bf16, &[8, 20]),
            given("v.weight", FileDType::Bf16, &[16]),
            given("c.weight", FileDType::F32, &[8, 12, 3, 3]),
            given("wide.weight", FileDType::Bf16, &[1, (1 << 20) + 16]),
        ];
        let checkpoint = checkpoint(folder.path(), &given);
        for (name, role) in
            [("a.weight", Role::Matrix), ("v.weight", Role::Matrix), ("c.weight", Role::Conv2d)]
        {
            let error = Image::new(&[spec(&checkpoint, &[name], role)], &checkpoint).err().unwrap();
            assert!(matches!(error, Error::Weight { .. }) && error.to_string().starts_with(name), "{error}");
        }
    }

    #[test]
    fn a_file_that_shrank_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = checkpoint(folder.path(), &[given("v", FileDType::F32, &[4096])]);
        let image = Image::new(&[spec(&checkpoint, &["v"], Role::Vector)], &checkpoint).unwrap();
        let path = folder.path().join("vae/model.safetensors");
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(4096).unwrap();
        let error = image.fill_all(&mut vec![0; image.bytes() as usize]).unwrap_err();
        assert!(
            matches!(&error, Error::Read { .. }) && error.to_string().contains("model.safetensors"),
            "{error}"
        );
    }
}
