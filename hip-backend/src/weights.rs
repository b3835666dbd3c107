//! Weights as they lie on the device: which bytes of which file go where, and in what order.
//!
//! An [`Image`] is the device memory of a set of weights (a block, or a stage's fixed ones) with all offsets known before a
//! byte is read. It can fill any run of its units: a unit is a panel of a matrix or a piece of a vector, so that a bounded
//! host buffer is enough to pass an image of any size through.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use half::{bf16, f16};
use rayon::prelude::*;

use moss_kernels::pack::{Conv, Panels};
use moss_reference::backend::{DType, Role, StageSpec, WeightSpec};
use moss_reference::files::{Bytes, Checkpoint, FileDType, TensorView};

use crate::error::Error;
use crate::stream::RING_ENTRY;

/// Each weight starts at a multiple of this.
const ALIGN: u64 = 256;
/// Elements of a vector's piece.
const PIECE: usize = 1 << 20;

/// Open files, each opened once for a stage.
#[derive(Default)]
pub(crate) struct Files(HashMap<PathBuf, Arc<File>>);

impl Files {
    fn open(&mut self, path: PathBuf) -> Result<Arc<File>, Error> {
        if let Some(file) = self.0.get(&path) {
            return Ok(file.clone());
        }
        let file = Arc::new(File::open(&path).map_err(|source| Error::Read { path: path.clone(), source })?);
        self.0.insert(path, file.clone());
        Ok(file)
    }
}

/// Where a tensor's bytes are read from.
enum Bytewise {
    /// `pread` at an offset: pages of a mapping are never handed to a copy.
    File { path: PathBuf, file: Arc<File>, offset: u64 },
    /// Part of the program.
    Embedded(Bytes),
}

/// One tensor of a checkpoint.
struct Part {
    source: Bytewise,
    dtype: FileDType,
    shape: Vec<usize>,
}

impl Part {
    fn open(view: &TensorView, files: &mut Files) -> Result<Self, Error> {
        let source = match view.file() {
            Some((path, offset)) => {
                Bytewise::File { file: files.open(path.to_owned())?, path: path.to_owned(), offset }
            }
            None => Bytewise::Embedded(view.bytes().clone()),
        };
        Ok(Self { source, dtype: view.dtype(), shape: view.shape().to_vec() })
    }

    fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Reads the bytes of a run of elements.
    fn read(&self, elements: Range<usize>, out: &mut [u8]) -> Result<(), Error> {
        let size = self.dtype.size();
        match &self.source {
            Bytewise::File { path, file, offset } => file
                .read_exact_at(out, offset + (elements.start * size) as u64)
                .map_err(|source| Error::Read { path: path.clone(), source })?,
            Bytewise::Embedded(all) => {
                out.copy_from_slice(&all[elements.start * size..elements.end * size]);
            }
        }
        Ok(())
    }
}

/// An element type on the device; files and devices are little-endian, as every host with ROCm is.
trait Element: bytemuck::Pod {
    /// The file's type that needs no conversion.
    const SAME: FileDType;

    fn of_bf16(x: bf16) -> Self;
    /// One rounding to nearest even where the type is narrower.
    fn of_f32(x: f32) -> Self;

    /// Reads a run of elements of a tensor; `raw` is scratch memory.
    fn read(part: &Part, elements: Range<usize>, out: &mut [Self], raw: &mut Vec<u8>) -> Result<(), Error> {
        if part.dtype == Self::SAME {
            return part.read(elements, bytemuck::cast_slice_mut(out));
        }
        raw.resize(elements.len() * part.dtype.size(), 0);
        part.read(elements, raw)?;
        match part.dtype {
            FileDType::Bf16 => convert(raw, out, |b| Self::of_bf16(bf16::from_le_bytes(b))),
            FileDType::F16 => convert(raw, out, |b| Self::of_f32(f16::from_le_bytes(b).to_f32())),
            FileDType::F32 => convert(raw, out, |b| Self::of_f32(f32::from_le_bytes(b))),
        }
        Ok(())
    }
}

impl Element for bf16 {
    const SAME: FileDType = FileDType::Bf16;

    fn of_bf16(x: bf16) -> Self {
        x
    }

    fn of_f32(x: f32) -> Self {
        bf16::from_f32(x)
    }
}

impl Element for f32 {
    const SAME: FileDType = FileDType::F32;

    fn of_bf16(x: bf16) -> Self {
        x.to_f32()
    }

    fn of_f32(x: f32) -> Self {
        x
    }
}

fn convert<E, const N: usize>(raw: &[u8], out: &mut [E], element: impl Fn([u8; N]) -> E) {
    for (to, from) in out.iter_mut().zip(raw.as_chunks::<N>().0) {
        *to = element(*from);
    }
}

/// Memory that is used again from unit to unit.
#[derive(Default)]
struct Scratch {
    raw: Vec<u8>,
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
    parts: Vec<Part>,
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
    /// [`Error::Weight`] for a shape that the kernels do not take, [`Error::Read`] for a file that cannot be opened.
    pub(crate) fn new(
        specs: &[WeightSpec],
        checkpoint: &Checkpoint,
        files: &mut Files,
    ) -> Result<Self, Error> {
        let mut image = Self { weights: Vec::new(), units: Vec::new(), bytes: 0 };
        for spec in specs {
            let parts = spec
                .parts
                .iter()
                .map(|name| Part::open(checkpoint.get(name), files))
                .collect::<Result<Vec<_>, _>>()?;
            let weight = Weight::new(spec, parts, image.bytes)?;
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
    fn new(spec: &WeightSpec, parts: Vec<Part>, offset: u64) -> Result<Self, Error> {
        let unfit = |why: String| Error::Weight { tensor: spec.parts.join(" + "), why };
        let mut shape = parts[0].shape.clone();
        shape[0] = parts.iter().map(|part| part.shape[0]).sum();
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
        let weight = Self { offset, shape, dtype, form, parts };
        if weight.unit_bytes(0) > RING_ENTRY as u64 {
            return Err(unfit(format!(
                "a piece of {} bytes; at most {RING_ENTRY} pass at once",
                weight.unit_bytes(0)
            )));
        }
        Ok(weight)
    }

    fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    fn units(&self) -> usize {
        match &self.form {
            Form::Vector(_) => self.elements().div_ceil(PIECE),
            Form::Panels(panels) => panels.count(),
            Form::Conv(_) => 1,
        }
    }

    fn unit_bytes(&self, index: usize) -> u64 {
        match &self.form {
            Form::Vector(dtype) => ((self.elements() - index * PIECE).min(PIECE) * dtype.size()) as u64,
            Form::Panels(panels) => panels.panel_bytes() as u64,
            Form::Conv(conv) => conv.bytes() as u64,
        }
    }

    fn make(&self, index: usize, out: &mut [u8], scratch: &mut Scratch) -> Result<(), Error> {
        let Scratch { raw, bf16, f32 } = scratch;
        match &self.form {
            Form::Vector(dtype) => {
                let start = index * PIECE;
                let elements = start..self.elements().min(start + PIECE);
                match dtype {
                    DType::Bf16 => {
                        bf16.resize(elements.len(), bf16::ZERO);
                        self.gather(elements, bf16, raw)?;
                        out.copy_from_slice(bytemuck::cast_slice(bf16));
                    }
                    DType::F32 => {
                        f32.resize(elements.len(), 0.0);
                        self.gather(elements, f32, raw)?;
                        out.copy_from_slice(bytemuck::cast_slice(f32));
                    }
                }
            }
            Form::Panels(panels) => {
                let (rows, k) = (panels.rows(index), panels.columns());
                bf16.resize(rows.len() * k, bf16::ZERO);
                self.gather(rows.start * k..rows.end * k, bf16, raw)?;
                panels.pack(bf16, out);
            }
            Form::Conv(conv) => {
                f32.resize(self.elements(), 0.0);
                self.gather(0..self.elements(), f32, raw)?;
                conv.pack(f32, out);
            }
        }
        Ok(())
    }

    /// Reads a run of elements of the parts laid end to end.
    fn gather<E: Element>(
        &self,
        elements: Range<usize>,
        out: &mut [E],
        raw: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let mut start = 0;
        for part in &self.parts {
            let end = start + part.elements();
            let (from, to) = (elements.start.max(start), elements.end.min(end));
            if from < to {
                let out = &mut out[from - elements.start..to - elements.start];
                E::read(part, from - start..to - start, out, raw)?;
            }
            start = end;
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
        let mut files = Files::default();
        let fixed = Image::new(&spec.fixed, &spec.checkpoint, &mut files)?;
        let blocks = spec
            .blocks
            .iter()
            .map(|block| Image::new(block, &spec.checkpoint, &mut files).map(Arc::new))
            .collect::<Result<_, _>>()?;
        Ok(Self { fixed: Arc::new(fixed), blocks })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use moss_reference::files::{ModelSource, Part as ModelPart, TensorSpec};
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

    pub(crate) fn spec(parts: &[&str], role: Role) -> WeightSpec {
        WeightSpec { parts: parts.iter().map(|p| (*p).to_owned()).collect(), role }
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
            spec(&["q", "k"], Role::Matrix),
            spec(&["norm"], Role::Vector),
            spec(&["a_log"], Role::VectorF32),
            spec(&["conv"], Role::Conv2d),
        ];
        let image = Image::new(&specs, &checkpoint, &mut Files::default()).unwrap();
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
        let specs =
            [spec(&["up_gate"], Role::UpGate), spec(&["long"], Role::Vector), spec(&["down"], Role::Matrix)];
        let image = Image::new(&specs, &checkpoint, &mut Files::default()).unwrap();
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
            let error = Image::new(&[spec(&[name], role)], &checkpoint, &mut Files::default()).err().unwrap();
            assert!(matches!(error, Error::Weight { .. }) && error.to_string().starts_with(name), "{error}");
        }
    }

    #[test]
    fn a_file_that_shrank_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = checkpoint(folder.path(), &[given("v", FileDType::F32, &[4096])]);
        let image = Image::new(&[spec(&["v"], Role::Vector)], &checkpoint, &mut Files::default()).unwrap();
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
