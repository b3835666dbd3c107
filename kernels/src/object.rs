//! Reading AMDGPU code objects: what the ELF file's symbols and metadata say about its kernels.
//!
//! Layout: the ELF64 specification; metadata (a MessagePack map in a note), kernel descriptors and the target's flags: LLVM's
//! "User Guide for AMDGPU Backend", code object version 5.
//!
//! The emulator has a reader of its own, of what a loader needs. The two share no line on purpose: each is the other's judge (a
//! test compares their figures of every kernel), and the static floor must not rest on the reading of the program that it checks.

/// What is wrong with a code object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// The file ends inside a structure.
    #[error("{what} lies outside the file")]
    Truncated {
        /// The structure.
        what: &'static str,
    },
    /// Not what a code object begins with, or a structure of another kind.
    #[error("{what} is not {expected}")]
    Format {
        /// The structure.
        what: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// A key that the metadata must have.
    #[error("kernel metadata has no {key}")]
    Missing {
        /// The key.
        key: &'static str,
    },
}

/// An argument of a kernel, as the metadata describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arg {
    /// Byte of the kernel argument segment.
    pub offset: u32,
    /// Bytes.
    pub size: u32,
    /// `global_buffer`, `by_value`, or a hidden argument's name.
    pub kind: String,
}

/// What the metadata says about a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// Arguments of the source, without hidden ones.
    pub args: Vec<Arg>,
    /// Bytes of the kernel argument segment, hidden arguments included.
    pub kernarg_size: u32,
    /// Most threads of a workgroup.
    pub max_workgroup: u32,
    /// Lanes of a wave.
    pub wave: u32,
    /// Vector registers.
    pub vgpr: u32,
    /// Scalar registers.
    pub sgpr: u32,
    /// Spilled vector registers.
    pub vgpr_spills: u32,
    /// Spilled scalar registers.
    pub sgpr_spills: u32,
    /// Bytes of static LDS.
    pub lds: u32,
    /// Bytes of scratch for a thread.
    pub scratch: u32,
    /// Whether the stack's size is unknown.
    pub dynamic_stack: bool,
    /// Bytes of machine code.
    pub code_size: u64,
    /// Matrix instructions (`v_wmma_f32_16x16x16_bf16`).
    pub wmma: u32,
}

/// A code object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The target of the metadata, such as `amdgcn-amd-amdhsa--gfx1200`.
    pub target: String,
    /// Its kernels.
    pub kernels: Vec<Kernel>,
    /// Symbols that are used and not defined.
    pub undefined: Vec<String>,
}

/// Reads a code object.
///
/// # Errors
/// [`ObjectError`] for anything that is not one.
pub fn parse(bytes: &[u8]) -> Result<Object, ObjectError> {
    let file = Elf(bytes);
    if bytes.get(..6) != Some(b"\x7fELF\x02\x01") || file.u16(18)? != 224 {
        return Err(ObjectError::Format { what: "the file", expected: "a little-endian AMDGPU ELF64 file" });
    }
    let sections = file.sections()?;
    let symbols = file.symbols(&sections)?;
    let undefined = symbols.iter().filter(|s| s.section == 0 && !s.name.is_empty());
    let undefined = undefined.map(|s| s.name.clone()).collect();

    let metadata = file.metadata(&sections)?;
    let target = metadata.get("amdhsa.target").and_then(Value::text).unwrap_or_default();
    let mut kernels = Vec::new();
    for entry in metadata.get("amdhsa.kernels").map(Value::items).unwrap_or_default() {
        let mut kernel = kernel(entry)?;
        let code = symbols.iter().find(|s| s.name == kernel.name);
        let code = code.ok_or(ObjectError::Missing { key: "symbol of the kernel" })?;
        kernel.code_size = code.size;
        kernel.wmma =
            file.code(&sections, code)?.as_chunks::<4>().0.iter().filter(|w| is_wmma(**w)).count() as u32;
        kernels.push(kernel);
    }
    Ok(Object { target, kernels, undefined })
}

/// The machine code of a kernel.
///
/// # Errors
/// [`ObjectError`] when there is no such kernel, or the file is not a code object.
pub fn code<'a>(bytes: &'a [u8], kernel: &str) -> Result<&'a [u8], ObjectError> {
    let file = Elf(bytes);
    let sections = file.sections()?;
    let symbols = file.symbols(&sections)?;
    let symbol = symbols.iter().find(|s| s.name == kernel);
    file.code(&sections, symbol.ok_or(ObjectError::Missing { key: "symbol of the kernel" })?)
}

fn kernel(entry: &Value) -> Result<Kernel, ObjectError> {
    let number = |key: &'static str| {
        entry.get(key).and_then(Value::number).ok_or(ObjectError::Missing { key }).map(|n| n as u32)
    };
    let mut args = Vec::new();
    for arg in entry.get(".args").map(Value::items).unwrap_or_default() {
        let kind = arg.get(".value_kind").and_then(Value::text);
        let kind = kind.ok_or(ObjectError::Missing { key: ".value_kind" })?;
        if kind.starts_with("hidden_") {
            continue;
        }
        let number = |key| arg.get(key).and_then(Value::number).ok_or(ObjectError::Missing { key });
        args.push(Arg { offset: number(".offset")? as u32, size: number(".size")? as u32, kind });
    }
    Ok(Kernel {
        name: entry.get(".name").and_then(Value::text).ok_or(ObjectError::Missing { key: ".name" })?,
        args,
        kernarg_size: number(".kernarg_segment_size")?,
        max_workgroup: number(".max_flat_workgroup_size")?,
        wave: number(".wavefront_size")?,
        vgpr: number(".vgpr_count")?,
        sgpr: number(".sgpr_count")?,
        vgpr_spills: number(".vgpr_spill_count")?,
        sgpr_spills: number(".sgpr_spill_count")?,
        lds: number(".group_segment_fixed_size")?,
        scratch: number(".private_segment_fixed_size")?,
        dynamic_stack: matches!(entry.get(".uses_dynamic_stack"), Some(Value::Bool(true))),
        code_size: 0,
        wmma: 0,
    })
}

/// Whether a word begins `v_wmma_f32_16x16x16_bf16`: encoding VOP3P (0xcc), opcode 0x41 on both generations. Every word is looked
/// at, not every instruction: no literal or second word of ours looks like that (a test compares with LLVM's disassembler).
fn is_wmma(word: [u8; 4]) -> bool {
    u32::from_le_bytes(word) & 0xff7f_0000 == 0xcc41_0000
}

struct Section {
    kind: u32,
    address: u64,
    offset: u64,
    size: u64,
    link: u32,
}

struct Symbol {
    name: String,
    section: u16,
    address: u64,
    size: u64,
}

struct Elf<'a>(&'a [u8]);

impl<'a> Elf<'a> {
    fn at<const N: usize>(&self, offset: u64) -> Result<[u8; N], ObjectError> {
        let bytes = usize::try_from(offset).ok().and_then(|o| self.0.get(o..)?.first_chunk());
        bytes.copied().ok_or(ObjectError::Truncated { what: "a header" })
    }

    fn u16(&self, offset: u64) -> Result<u16, ObjectError> {
        self.at(offset).map(u16::from_le_bytes)
    }

    fn u32(&self, offset: u64) -> Result<u32, ObjectError> {
        self.at(offset).map(u32::from_le_bytes)
    }

    fn u64(&self, offset: u64) -> Result<u64, ObjectError> {
        self.at(offset).map(u64::from_le_bytes)
    }

    fn body(&self, section: &Section) -> Result<&'a [u8], ObjectError> {
        let end = section.offset.checked_add(section.size);
        let range = end.map(|end| section.offset as usize..end as usize);
        range.and_then(|r| self.0.get(r)).ok_or(ObjectError::Truncated { what: "a section" })
    }

    fn sections(&self) -> Result<Vec<Section>, ObjectError> {
        let (table, size, count) = (self.u64(40)?, self.u16(58)?, self.u16(60)?);
        (0..u64::from(count))
            .map(|i| {
                let at = table
                    .checked_add(i * u64::from(size))
                    .ok_or(ObjectError::Truncated { what: "the section table" })?;
                Ok(Section {
                    kind: self.u32(at + 4)?,
                    address: self.u64(at + 16)?,
                    offset: self.u64(at + 24)?,
                    size: self.u64(at + 32)?,
                    link: self.u32(at + 40)?,
                })
            })
            .collect()
    }

    /// The dynamic symbols: a code object's own table may be stripped.
    fn symbols(&self, sections: &[Section]) -> Result<Vec<Symbol>, ObjectError> {
        const SHT_DYNSYM: u32 = 11;
        let mut symbols = Vec::new();
        for section in sections.iter().filter(|s| s.kind == SHT_DYNSYM) {
            let strings = sections.get(section.link as usize);
            let strings = self.body(strings.ok_or(ObjectError::Truncated { what: "the string table" })?)?;
            for entry in self.body(section)?.as_chunks::<24>().0 {
                let table = Elf(entry);
                let name = strings.get(table.u32(0)? as usize..).unwrap_or_default();
                let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
                symbols.push(Symbol {
                    name: String::from_utf8_lossy(&name[..end]).into_owned(),
                    section: table.u16(6)?,
                    address: table.u64(8)?,
                    size: table.u64(16)?,
                });
            }
        }
        Ok(symbols)
    }

    /// The bytes of a function.
    fn code(&self, sections: &[Section], symbol: &Symbol) -> Result<&'a [u8], ObjectError> {
        let outside = ObjectError::Truncated { what: "the code of a kernel" };
        let section = sections.get(usize::from(symbol.section)).ok_or(outside.clone())?;
        let start = symbol.address.checked_sub(section.address).ok_or(outside.clone())? as usize;
        let end = start.saturating_add(symbol.size as usize);
        self.body(section)?.get(start..end).ok_or(outside)
    }

    fn metadata(&self, sections: &[Section]) -> Result<Value, ObjectError> {
        const SHT_NOTE: u32 = 7;
        const NT_AMDGPU_METADATA: u32 = 32;
        for section in sections.iter().filter(|s| s.kind == SHT_NOTE) {
            let (note, mut at) = (Elf(self.body(section)?), 0);
            while at + 12 <= section.size {
                let (name, size) = (u64::from(note.u32(at)?), u64::from(note.u32(at + 4)?));
                let start = at + 12 + name.next_multiple_of(4);
                if note.u32(at + 8)? == NT_AMDGPU_METADATA {
                    let range = start as usize..(start + size) as usize;
                    let body = note.0.get(range).ok_or(ObjectError::Truncated { what: "the metadata" })?;
                    return MessagePack { bytes: body, at: 0 }.value(0);
                }
                at = start + size.next_multiple_of(4);
            }
        }
        Err(ObjectError::Missing { key: "note with metadata" })
    }
}

/// The part of MessagePack that metadata uses.
enum Value {
    Nil,
    Bool(bool),
    Number(u64),
    Text(String),
    Items(Vec<Value>),
    Map(Vec<(Value, Value)>),
}

impl Value {
    fn get(&self, key: &str) -> Option<&Value> {
        let Value::Map(entries) = self else { return None };
        entries.iter().find(|(k, _)| matches!(k, Value::Text(k) if k == key)).map(|(_, v)| v)
    }

    fn text(&self) -> Option<String> {
        if let Value::Text(text) = self { Some(text.clone()) } else { None }
    }

    fn number(&self) -> Option<u64> {
        if let Value::Number(n) = *self { Some(n) } else { None }
    }

    fn items(&self) -> &[Value] {
        if let Value::Items(items) = self { items } else { &[] }
    }
}

struct MessagePack<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl MessagePack<'_> {
    fn take(&mut self, count: usize) -> Result<&[u8], ObjectError> {
        let bytes = self.at.checked_add(count).and_then(|end| self.bytes.get(self.at..end));
        self.at += count;
        bytes.ok_or(ObjectError::Truncated { what: "the metadata" })
    }

    /// A big-endian number of `bytes` bytes.
    fn number(&mut self, bytes: usize) -> Result<u64, ObjectError> {
        Ok(self.take(bytes)?.iter().fold(0, |n, &b| n << 8 | u64::from(b)))
    }

    fn value(&mut self, depth: usize) -> Result<Value, ObjectError> {
        if depth > 16 {
            return Err(ObjectError::Format { what: "the metadata", expected: "at most 16 levels deep" });
        }
        let tag = self.take(1)?[0];
        Ok(match tag {
            0x00..=0x7f => Value::Number(u64::from(tag)),
            0x80..=0x8f => self.map(u64::from(tag & 15), depth)?,
            0x90..=0x9f => self.items(u64::from(tag & 15), depth)?,
            0xa0..=0xbf => self.text(u64::from(tag & 31))?,
            0xc0 => Value::Nil,
            0xc2 | 0xc3 => Value::Bool(tag == 0xc3),
            0xcc..=0xcf => Value::Number(self.number(1 << (tag - 0xcc))?),
            0xd9..=0xdb => {
                let length = self.number(1 << (tag - 0xd9))?;
                self.text(length)?
            }
            0xdc | 0xdd => {
                let count = self.number(2 << (tag - 0xdc))?;
                self.items(count, depth)?
            }
            0xde | 0xdf => {
                let count = self.number(2 << (tag - 0xde))?;
                self.map(count, depth)?
            }
            _ => {
                return Err(ObjectError::Format {
                    what: "the metadata",
                    expected: "MessagePack as LLVM writes it",
                });
            }
        })
    }

    fn text(&mut self, length: u64) -> Result<Value, ObjectError> {
        Ok(Value::Text(String::from_utf8_lossy(self.take(length as usize)?).into_owned()))
    }

    fn items(&mut self, count: u64, depth: usize) -> Result<Value, ObjectError> {
        (0..count).map(|_| self.value(depth + 1)).collect::<Result<_, _>>().map(Value::Items)
    }

    fn map(&mut self, count: u64, depth: usize) -> Result<Value, ObjectError> {
        (0..count)
            .map(|_| Ok((self.value(depth + 1)?, self.value(depth + 1)?)))
            .collect::<Result<_, _>>()
            .map(Value::Map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file header of an AMDGPU ELF64 file without sections.
    fn header() -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[18..20].copy_from_slice(&224u16.to_le_bytes());
        bytes
    }

    #[test]
    fn what_is_no_code_object_is_refused() {
        let expected = "a little-endian AMDGPU ELF64 file";
        for bytes in [&b"<html>"[..], b"\x7fELF\x02\x01", &[]] {
            let error = parse(bytes).expect_err("refused");
            assert!(
                matches!(error, ObjectError::Format { expected: e, .. } if e == expected)
                    || error == ObjectError::Truncated { what: "a header" },
                "{error}"
            );
        }
        let error = parse(&header()).expect_err("refused");
        assert_eq!(error, ObjectError::Missing { key: "note with metadata" });
        let mut outside = header();
        outside[40..48].copy_from_slice(&(1u64 << 40).to_le_bytes());
        (outside[58], outside[60]) = (64, 1);
        assert_eq!(parse(&outside), Err(ObjectError::Truncated { what: "a header" }));
    }

    #[test]
    fn message_pack_is_read_and_bounded() {
        let read = |bytes: &[u8]| MessagePack { bytes, at: 0 }.value(0);
        let map = read(b"\x82\xa1a\xcd\x01\x02\xd9\x01b\x92\xc3\xc0").expect("a map");
        assert_eq!(map.get("a").and_then(Value::number), Some(0x102));
        assert!(matches!(map.get("b").map(Value::items), Some([Value::Bool(true), Value::Nil])));
        assert!(matches!(read(b"\xa5ab"), Err(ObjectError::Truncated { .. })));
        assert!(matches!(read(&[0x91; 40]), Err(ObjectError::Format { .. })));
        assert!(matches!(read(b"\xcb"), Err(ObjectError::Format { .. })));
    }
}
