//! Tensors in NumPy files.

use std::io::Write;
use std::path::Path;

use npyz::{DType, NpyFile, TypeChar, WriterBuilder};

use crate::error::{CliError, Result};

/// A float array: shape and elements, row-major.
pub(crate) struct Array {
    /// Shape.
    pub shape: Vec<usize>,
    /// Elements as f32.
    pub data: Vec<f32>,
}

/// Reads a float array (f16, f32 or f64, C order) that `option` named.
///
/// # Errors
/// A failure that names the option, the file and what was expected.
pub(crate) fn read(option: &str, path: &Path) -> Result<Array> {
    let failed =
        |error: &dyn std::fmt::Display| CliError::failed(format!("{option} {}", path.display()), error);
    let bytes = std::fs::read(path).map_err(|error| failed(&error))?;
    let npy = NpyFile::new(&bytes[..]).map_err(|error| failed(&error))?;
    if npy.order() != npyz::Order::C {
        return Err(failed(&"Fortran order, C order expected"));
    }
    let shape: Vec<usize> = npy.shape().iter().map(|&n| n as usize).collect();
    let dtype = npy.dtype();
    let kind = match &dtype {
        DType::Plain(plain) => (plain.type_char(), plain.size_field()),
        _ => return Err(failed(&"a plain float array expected")),
    };
    let data: std::io::Result<Vec<f32>> = match kind {
        (TypeChar::Float, 2) => npy
            .data::<half::f16>()
            .map_err(|error| failed(&error))?
            .map(|x| x.map(half::f16::to_f32))
            .collect(),
        (TypeChar::Float, 4) => npy.data::<f32>().map_err(|error| failed(&error))?.collect(),
        (TypeChar::Float, 8) => {
            npy.data::<f64>().map_err(|error| failed(&error))?.map(|x| x.map(|x| x as f32)).collect()
        }
        _ => return Err(failed(&format!("elements are {}, floats expected", dtype.descr()))),
    };
    Ok(Array { shape, data: data.map_err(|error| failed(&error))? })
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

    #[test]
    fn arrays_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        let mut bytes = Vec::new();
        write(&mut bytes, &[2, 3], &[0.0, -1.5, 2.0, f32::NAN, f32::INFINITY, 1e-40]).unwrap();
        std::fs::write(&path, &bytes).unwrap();
        let array = read("--x", &path).unwrap();
        assert_eq!(array.shape, [2, 3]);
        assert_eq!(array.data[1], -1.5);
        assert!(array.data[3].is_nan());
        std::fs::write(&path, &bytes[..bytes.len() - 3]).unwrap();
        assert!(read("--x", &path).err().unwrap().message().contains("--x"));
        std::fs::write(&path, b"not an array").unwrap();
        assert!(read("--x", &path).err().unwrap().message().contains("x.npy"));
    }
}
