//! A weight's elements as bf16 or f32: the one place where bytes of a file become numbers, for every backend.
//!
//! A weight is one tensor, or several stacked along their first axis; its elements are those of its tensors laid end to end.
//! Whatever changes them between the file and the backend belongs here.

use std::ops::{Deref, Range};
use std::path::PathBuf;

use half::{bf16, f16};

use super::{Bytes, FileDType, TensorView};

/// Bytes that are read before they are converted.
const BUFFER: usize = 1 << 16;

/// A weight file that can no longer be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct ReadError {
    /// The file.
    pub path: PathBuf,
    /// What the system says.
    pub source: std::io::Error,
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for half::bf16 {}
    impl Sealed for f32 {}
}

/// An element type that weights are read as.
pub trait Element: bytemuck::Pod + sealed::Sealed {
    /// The file's type that needs no conversion.
    const SAME: FileDType;
    /// Zero.
    const ZERO: Self;

    /// From bf16, exact.
    fn of_bf16(x: bf16) -> Self;
    /// One rounding to nearest even where the type is narrower.
    fn of_f32(x: f32) -> Self;
}

impl Element for bf16 {
    const SAME: FileDType = FileDType::Bf16;
    const ZERO: Self = bf16::ZERO;

    fn of_bf16(x: bf16) -> Self {
        x
    }

    fn of_f32(x: f32) -> Self {
        bf16::from_f32(x)
    }
}

impl Element for f32 {
    const SAME: FileDType = FileDType::F32;
    const ZERO: Self = 0.0;

    fn of_bf16(x: bf16) -> Self {
        x.to_f32()
    }

    fn of_f32(x: f32) -> Self {
        x
    }
}

/// A weight of a checkpoint, made by [`super::Checkpoint::rows`].
#[derive(Clone)]
pub struct Rows {
    shape: Vec<usize>,
    parts: Vec<TensorView>,
}

/// Some rows of a weight as bf16.
pub enum Bf16Rows {
    /// In the mapped or embedded file.
    Mapped(Bytes),
    /// Converted.
    Owned(Vec<bf16>),
}

impl Deref for Bf16Rows {
    type Target = [bf16];

    fn deref(&self) -> &[bf16] {
        match self {
            Bf16Rows::Mapped(bytes) => bytemuck::cast_slice(bytes),
            Bf16Rows::Owned(elements) => elements,
        }
    }
}

impl Rows {
    /// # Panics
    /// If the parts' rows have different shapes, or there is no part.
    pub(super) fn new(parts: Vec<TensorView>) -> Self {
        let mut shape = parts[0].shape().to_vec();
        for part in &parts[1..] {
            let fits = part.shape()[1..] == shape[1..];
            assert!(fits, "rows: {} {:?} under {} {shape:?}", part.name(), part.shape(), parts[0].name());
            shape[0] += part.shape()[0];
        }
        Self { shape, parts }
    }

    /// Shape of the parts stacked.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of elements.
    pub fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// Reads the elements `elements` into `out`, which is as long. Files are read at an offset, never through their mapping.
    ///
    /// # Errors
    /// [`ReadError`].
    ///
    /// # Panics
    /// If there are no such elements.
    pub fn read<E: Element>(&self, elements: Range<usize>, out: &mut [E]) -> Result<(), ReadError> {
        assert!(elements.len() == out.len() && elements.end <= self.count(), "rows: {elements:?}");
        let mut start = 0;
        for part in &self.parts {
            let end = start + part.count();
            let (from, to) = (elements.start.max(start), elements.end.min(end));
            if from < to {
                let out = &mut out[from - elements.start..to - elements.start];
                read_part(part, from - start, out)?;
            }
            start = end;
        }
        Ok(())
    }

    /// All elements.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn to_vec<E: Element>(&self) -> Result<Vec<E>, ReadError> {
        let mut out = vec![E::ZERO; self.count()];
        self.read(0..out.len(), &mut out)?;
        Ok(out)
    }

    /// All elements as bf16, part by part: where they lie in the file when they are bf16 there, else converted.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn to_bf16_parts(&self) -> Result<Vec<Bf16Rows>, ReadError> {
        let rows = |part: &TensorView| match mapped_bf16(part) {
            Some(bytes) => Ok(Bf16Rows::Mapped(bytes)),
            None => {
                let mut out = vec![bf16::ZERO; part.count()];
                read_part(part, 0, &mut out)?;
                Ok(Bf16Rows::Owned(out))
            }
        };
        self.parts.iter().map(rows).collect()
    }

    /// Whether the elements come from a file, not from the program.
    pub fn in_file(&self) -> bool {
        self.parts.iter().any(|part| part.place.is_some())
    }

    /// Asks the system to read the elements into its cache; see [`Bytes::read_ahead`].
    pub fn read_ahead(&self) {
        self.parts.iter().for_each(|part| part.bytes().read_ahead());
    }
}

/// A part's bytes, if they are bf16 elements as they lie there.
fn mapped_bf16(part: &TensorView) -> Option<Bytes> {
    let same = part.dtype() == FileDType::Bf16 && cfg!(target_endian = "little");
    let aligned = bytemuck::try_cast_slice::<u8, bf16>(part.bytes()).is_ok();
    (same && aligned).then(|| part.bytes().clone())
}

/// Reads the elements from `first` on, as many as `out` has.
fn read_part<E: Element>(part: &TensorView, first: usize, out: &mut [E]) -> Result<(), ReadError> {
    let size = part.dtype().size();
    if part.dtype() == E::SAME && cfg!(target_endian = "little") {
        return read_bytes(part, first * size, bytemuck::cast_slice_mut(out));
    }
    let mut buffer = [0; BUFFER];
    for (i, out) in out.chunks_mut(BUFFER / size).enumerate() {
        let raw = &mut buffer[..out.len() * size];
        read_bytes(part, (first + i * (BUFFER / size)) * size, raw)?;
        match part.dtype() {
            FileDType::Bf16 => convert(raw, out, |b| E::of_bf16(bf16::from_le_bytes(b))),
            FileDType::F16 => convert(raw, out, |b| E::of_f32(f16::from_le_bytes(b).to_f32())),
            FileDType::F32 => convert(raw, out, |b| E::of_f32(f32::from_le_bytes(b))),
        }
    }
    Ok(())
}

fn convert<E, const N: usize>(raw: &[u8], out: &mut [E], element: impl Fn([u8; N]) -> E) {
    for (to, from) in out.iter_mut().zip(raw.as_chunks::<N>().0) {
        *to = element(*from);
    }
}

/// Reads a part's bytes from byte `at` on.
fn read_bytes(part: &TensorView, at: usize, out: &mut [u8]) -> Result<(), ReadError> {
    match &part.place {
        #[cfg(unix)]
        Some(place) => {
            use std::os::unix::fs::FileExt as _;
            let read = place.file.handle.read_exact_at(out, place.offset + at as u64);
            read.map_err(|source| ReadError { path: place.file.path.clone(), source })
        }
        _ => {
            out.copy_from_slice(&part.bytes()[at..at + out.len()]);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests;
