//! The part of MessagePack that code object metadata uses.

use std::collections::BTreeMap;

/// A decoded value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Nil,
    Bool(bool),
    Int(i64),
    Str(String),
    Array(Vec<Self>),
    /// Maps with text keys.
    Map(BTreeMap<String, Self>),
}

impl Value {
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Map(m) => m.get(key),
            _ => None,
        }
    }

    pub(crate) fn int(&self) -> Option<i64> {
        match self {
            Self::Int(i) => Some(*i),
            Self::Bool(b) => Some(i64::from(*b)),
            _ => None,
        }
    }

    pub(crate) fn str(&self) -> Option<&str> {
        match self {
            Self::Str(s) => Some(s),
            _ => None,
        }
    }

    pub(crate) fn array(&self) -> &[Self] {
        match self {
            Self::Array(a) => a,
            _ => &[],
        }
    }
}

/// Decodes one value; `None` when the bytes end early or hold a type that metadata does not use.
pub(crate) fn parse(bytes: &[u8]) -> Option<Value> {
    Reader { bytes }.value(0)
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl Reader<'_> {
    fn take(&mut self, n: usize) -> Option<&[u8]> {
        let (head, rest) = self.bytes.split_at_checked(n)?;
        self.bytes = rest;
        Some(head)
    }

    /// Big-endian unsigned integer of `n` bytes.
    fn number(&mut self, n: usize) -> Option<u64> {
        Some(self.take(n)?.iter().fold(0, |v, &b| v << 8 | u64::from(b)))
    }

    fn value(&mut self, depth: u32) -> Option<Value> {
        if depth > 32 {
            return None;
        }
        let tag = self.number(1)? as u8;
        Some(match tag {
            0..=0x7f => Value::Int(tag.into()),
            0x80..=0x8f => return self.map((tag & 15).into(), depth),
            0x90..=0x9f => return self.list((tag & 15).into(), depth),
            0xa0..=0xbf => return self.text((tag & 31).into()),
            0xc0 => Value::Nil,
            0xc2 | 0xc3 => Value::Bool(tag == 0xc3),
            0xcc..=0xcf => Value::Int(self.number(1 << (tag - 0xcc))? as i64),
            0xd0 => Value::Int((self.number(1)? as i8).into()),
            0xd1 => Value::Int((self.number(2)? as i16).into()),
            0xd2 => Value::Int((self.number(4)? as i32).into()),
            0xd3 => Value::Int(self.number(8)? as i64),
            0xd9..=0xdb => {
                let n = self.number(1 << (tag - 0xd9))?;
                return self.text(n);
            }
            0xdc | 0xdd => {
                let n = self.number(2 << (tag - 0xdc))?;
                return self.list(n, depth);
            }
            0xde | 0xdf => {
                let n = self.number(2 << (tag - 0xde))?;
                return self.map(n, depth);
            }
            0xe0.. => Value::Int((tag as i8).into()),
            _ => return None,
        })
    }

    fn text(&mut self, n: u64) -> Option<Value> {
        let bytes = self.take(usize::try_from(n).ok()?)?;
        Some(Value::Str(String::from_utf8_lossy(bytes).into_owned()))
    }

    fn list(&mut self, n: u64, depth: u32) -> Option<Value> {
        (0..n).map(|_| self.value(depth + 1)).collect::<Option<Vec<_>>>().map(Value::Array)
    }

    fn map(&mut self, n: u64, depth: u32) -> Option<Value> {
        let mut out = BTreeMap::new();
        for _ in 0..n {
            let Value::Str(key) = self.value(depth + 1)? else { return None };
            out.insert(key, self.value(depth + 1)?);
        }
        Some(Value::Map(out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_metadata_holds() {
        let bytes = [
            0x83, 0xa1, b'a', 0xcd, 0x01, 0x02, 0xa1, b'b', 0x92, 0xff, 0xc3, 0xa1, b'c', 0xd9, 2, b'h', b'i',
        ];
        let v = parse(&bytes).expect("valid");
        assert_eq!(v.get("a").and_then(Value::int), Some(258));
        assert_eq!(v.get("b").map(Value::array), Some(&[Value::Int(-1), Value::Bool(true)][..]));
        assert_eq!(v.get("c").and_then(Value::str), Some("hi"));
        for cut in 0..bytes.len() {
            assert_eq!(parse(&bytes[..cut]), None, "{cut}");
        }
    }
}
