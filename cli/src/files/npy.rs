//! Tensors in NumPy files.

use std::io::Write;
use std::path::Path;

use moss_reference::files::disguise;
use moss_reference::model::observe::check_values;
use npyz::{DType, NpyFile, NpyHeader, TypeChar, WriterBuilder};
use sha2::{Digest, Sha256};

use crate::error::{CliError, Result};
use crate::files::input;

/// A float array: shape and elements, row-major.
#[derive(Clone, Debug)]
pub(crate) struct Array {
    /// Shape.
    pub shape: Vec<usize>,
    /// Elements as f32.
    pub data: Vec<f32>,
    /// SHA-256 of the file, in hexadecimal.
    pub sha256: String,
}

/// Reads a float array (f16, f32 or f64, C order) that `option` named; its values are finite and have variance.
///
/// # Errors
/// A failure that names the option, the file and what was expected.
pub(crate) fn read(option: &str, path: &Path) -> Result<Array> {
    let name = format!("{option} {}", path.display());
    let failed = |reason: String| CliError::failed(&name, reason);
    let bytes = input::read(path, input::ARRAY, false).map_err(failed)?;
    let (shape, data) = parse(&bytes).map_err(failed)?;
    check_values(&name, &data)?;
    Ok(Array { shape, data, sha256: format!("{:x}", Sha256::digest(&bytes)) })
}

/// Shape and elements of a file's bytes.
fn parse(bytes: &[u8]) -> std::result::Result<(Vec<usize>, Vec<f32>), String> {
    if !bytes.starts_with(b"\x93NUMPY") {
        return Err(disguise(bytes).map_or("".into(), |found| format!("{found}, ")) + "not a .npy file");
    }
    let mut rest = bytes;
    let header = NpyHeader::from_reader(&mut rest).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => format!("has {} bytes, its header needs more", bytes.len()),
        _ => "a .npy file with a damaged header".into(),
    })?;
    let begin = bytes.len() - rest.len();
    if header.order() != npyz::Order::C {
        return Err("Fortran order, C order expected".into());
    }
    let dtype = header.dtype();
    let kind = match &dtype {
        DType::Plain(plain) => (plain.type_char(), plain.size_field()),
        _ => return Err("a plain float array expected".into()),
    };
    let size = match kind {
        (TypeChar::Float, size @ (2 | 4 | 8)) => size as usize,
        _ => return Err(format!("elements are {}, floats expected", dtype.descr())),
    };
    let shape: Vec<usize> = header.shape().iter().map(|&n| n as usize).collect();
    let end = shape.iter().try_fold(size, |n, &side| n.checked_mul(side)).and_then(|n| n.checked_add(begin));
    let end = end.ok_or_else(|| format!("shape {shape:?} is too large"))?;
    match bytes.len() {
        found if found < end => return Err(format!("has {found} bytes, needs {end}")),
        found if found > end => return Err(format!("has {found} bytes, {end} expected")),
        _ => {}
    }
    let npy = NpyFile::with_header(header, &mut rest);
    let data: std::io::Result<Vec<f32>> = match size {
        2 => npy.data::<half::f16>().map_err(|_| "not f16")?.map(|x| x.map(half::f16::to_f32)).collect(),
        4 => npy.data::<f32>().map_err(|_| "not f32")?.collect(),
        _ => npy.data::<f64>().map_err(|_| "not f64")?.map(|x| x.map(|x| x as f32)).collect(),
    };
    Ok((shape, data.map_err(|error| error.to_string())?))
}

/// Writes an f32 array.
///
/// # Errors
/// What `writer` fails with.
pub(crate) fn write(writer: &mut dyn Write, shape: &[usize], data: &[f32]) -> std::io::Result<()> {
    let shape: Vec<u64> = shape.iter().map(|&n| n as u64).collect();
    let mut npy = npyz::WriteOptions::new().default_dtype().shape(&shape).writer(writer).begin_nd()?;
    npy.extend(data.iter().copied())?;
    npy.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(shape: &[usize], data: &[f32]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes, shape, data).unwrap();
        bytes
    }

    #[test]
    fn arrays_come_back() {
        let data = [0.0, -1.5, 2.0, f32::NAN, f32::INFINITY, 1e-40];
        let (shape, found) = parse(&bytes(&[2, 3], &data)).unwrap();
        assert_eq!(shape, [2, 3]);
        let bits = |list: &[f32]| list.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&found), bits(&data));
    }

    #[test]
    fn lengths_that_do_not_fit_give_both() {
        let whole = bytes(&[2, 3], &[0.0; 6]);
        let n = whole.len();
        for length in [n - 3, n - 24] {
            let expected = format!("has {length} bytes, needs {n}");
            assert_eq!(parse(&whole[..length]).unwrap_err(), expected);
        }
        for length in [40, 8] {
            let expected = format!("has {length} bytes, its header needs more");
            assert_eq!(parse(&whole[..length]).unwrap_err(), expected);
        }
        let longer = [&whole[..], b"x"].concat();
        assert_eq!(parse(&longer).unwrap_err(), format!("has {} bytes, {n} expected", n + 1));
    }

    #[test]
    fn what_is_no_array_is_told() {
        assert_eq!(parse(b"not an array").unwrap_err(), "not a .npy file");
        assert!(parse(b"version https://git-lfs.github.com/spec/v1").unwrap_err().contains("Git LFS"));
        let mut damaged = bytes(&[1], &[0.0]);
        damaged[12] = b'?';
        assert_eq!(parse(&damaged).unwrap_err(), "a .npy file with a damaged header");
    }

    #[test]
    fn values_are_checked_as_soon_as_they_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        for (data, named) in [([1.0, f32::NAN], "NaN"), ([1.0, f32::INFINITY], "inf"), ([1.0; 2], "variance")]
        {
            std::fs::write(&path, bytes(&[2], &data)).unwrap();
            let message = read("--x", &path).unwrap_err().message();
            let start = format!("--x {}: ", path.display());
            assert!(message.starts_with(&start) && message.contains(named), "{message}");
        }
    }
}
