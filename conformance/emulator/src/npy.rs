//! `.npy` files as raw little-endian bytes with their type and shape.

use std::{fs, io::Write, path::Path};

/// An array without interpretation of its elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Npy {
    /// NumPy type, `<f4`.
    pub descr: String,
    /// Dimensions, outermost first.
    pub shape: Vec<u64>,
    /// Elements in row-major order.
    pub data: Vec<u8>,
}

/// Bytes of an element by a short type name; bf16 has no NumPy type and is kept as `<u2`.
pub fn dtype(name: &str) -> Option<(&'static str, u64)> {
    Some(match name {
        "f64" => ("<f8", 8),
        "f32" => ("<f4", 4),
        "f16" => ("<f2", 2),
        "bf16" | "u16" => ("<u2", 2),
        "i16" => ("<i2", 2),
        "i32" => ("<i4", 4),
        "u32" => ("<u4", 4),
        "i64" => ("<i8", 8),
        "u64" => ("<u8", 8),
        "i8" => ("|i1", 1),
        "u8" => ("|u1", 1),
        _ => return None,
    })
}

/// The text between `key` and one of `ends` in a header.
fn field<'a>(header: &'a str, key: &str, ends: &[char]) -> Option<&'a str> {
    let rest = header[header.find(key)? + key.len()..].trim_start_matches([':', ' ', '\'', '(']);
    Some(&rest[..rest.find(ends)?])
}

impl Npy {
    /// Reads a file; the error names it.
    pub fn read(path: &Path) -> Result<Self, String> {
        let bytes = fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
        Self::parse(&bytes).ok_or_else(|| format!("{}: not a C-ordered .npy file", path.display()))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(b"\x93NUMPY")?;
        let (len, at) = match rest.first()? {
            1 => (usize::from(u16::from_le_bytes(rest.get(2..4)?.try_into().ok()?)), 4),
            _ => (u32::from_le_bytes(rest.get(2..6)?.try_into().ok()?) as usize, 6),
        };
        let header = std::str::from_utf8(rest.get(at..at + len)?).ok()?;
        let descr = field(header, "'descr'", &['\''])?.to_owned();
        if field(header, "'fortran_order'", &[','])? != "False" || descr.starts_with('>') {
            return None;
        }
        let shape = field(header, "'shape'", &[')'])?;
        let dims = shape.split(',').map(str::trim).filter(|d| !d.is_empty());
        let shape: Vec<u64> = dims.map(str::parse).collect::<Result<_, _>>().ok()?;
        let width: u64 = descr.get(2..)?.parse().ok()?;
        let data = rest[at + len..].to_vec();
        (data.len() as u64 == shape.iter().product::<u64>() * width).then_some(Npy { descr, shape, data })
    }

    /// Writes a file, complete or not at all.
    pub fn write(&self, path: &Path) -> Result<(), String> {
        let dims: String = self.shape.iter().map(|d| format!("{d}, ")).collect();
        let mut header =
            format!("{{'descr': '{}', 'fortran_order': False, 'shape': ({dims}), }}", self.descr);
        let total = (10 + header.len() + 1).next_multiple_of(64);
        header.extend(std::iter::repeat_n(' ', total - 10 - header.len() - 1));
        header.push('\n');
        let temporary = path.with_extension("npy.partial");
        let write = || -> std::io::Result<()> {
            let mut f = fs::File::create(&temporary)?;
            f.write_all(b"\x93NUMPY\x01\x00")?;
            f.write_all(&(header.len() as u16).to_le_bytes())?;
            f.write_all(header.as_bytes())?;
            f.write_all(&self.data)?;
            f.sync_all()?;
            fs::rename(&temporary, path)
        };
        write().map_err(|e| format!("{}: {e}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_and_refuses_short_files() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().join("a.npy");
        for shape in [vec![], vec![6], vec![2, 3]] {
            let n = shape.iter().product::<u64>() * 4;
            let a = Npy { descr: "<f4".to_owned(), shape, data: (0..n as u8).collect() };
            a.write(&path).expect("written");
            assert_eq!(Npy::read(&path), Ok(a));
        }
        let bytes = fs::read(&path).expect("written");
        assert_eq!(bytes.len() % 64, 24);
        fs::write(&path, &bytes[..bytes.len() - 1]).expect("written");
        assert!(Npy::read(&path).is_err_and(|e| e.contains("a.npy")));
    }
}
