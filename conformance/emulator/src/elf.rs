//! The part of ELF64 that code objects use.
//!
//! With `msgpack.rs` the second reader of code objects beside `moss_kernels::object`, and independent of it on purpose: a test
//! there compares what both find, so that a mistake of one is seen.

/// A malformed code object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// Not a 64-bit little-endian ELF for AMD GPUs.
    #[error("not an AMDGPU ELF: {0}")]
    NotAmdgpu(&'static str),
    /// A table or segment reaches beyond the file.
    #[error("truncated code object: {what} at {offset:#x}")]
    Truncated {
        /// What was being read.
        what: &'static str,
        /// File offset.
        offset: u64,
    },
    /// A target that the emulator does not run.
    #[error(
        "unsupported target (EF_AMDGPU_MACH {mach:#x}); supported are gfx1100-1103, gfx1150, gfx1151, gfx1200, gfx1201"
    )]
    Target {
        /// The number in the ELF flags.
        mach: u32,
    },
    /// A relocation the loader does not apply.
    #[error("relocation type {kind} at {offset:#x} against {symbol:?} is not supported")]
    Relocation {
        /// R_AMDGPU number.
        kind: u32,
        /// Address in the image.
        offset: u64,
        /// Symbol name.
        symbol: String,
    },
    /// A symbol that no other part of the object defines.
    #[error("undefined symbol {0:?}")]
    Undefined(String),
    /// Metadata that is missing or unreadable.
    #[error("code object metadata: {0}")]
    Metadata(String),
}

/// A PT_LOAD segment.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) vaddr: u64,
    pub(crate) size: u64,
    pub(crate) writable: bool,
    pub(crate) executable: bool,
}

/// A symbol with a place in the image.
#[derive(Clone, Debug)]
pub(crate) struct Symbol {
    pub(crate) name: String,
    pub(crate) value: u64,
    pub(crate) function: bool,
    pub(crate) defined: bool,
}

/// A relocation with addend.
#[derive(Clone, Debug)]
pub(crate) struct Rela {
    pub(crate) offset: u64,
    pub(crate) kind: u32,
    pub(crate) symbol: u32,
    pub(crate) addend: i64,
}

/// What a code object file contains.
pub(crate) struct Elf {
    pub(crate) flags: u32,
    /// Bytes from address 0 to the end of the last segment.
    pub(crate) image: Vec<u8>,
    pub(crate) segments: Vec<Segment>,
    /// Of the dynamic table, then of the full one.
    pub(crate) symbols: Vec<Symbol>,
    pub(crate) dynamic_symbols: usize,
    pub(crate) relocations: Vec<Rela>,
    /// Contents of the NT_AMDGPU_METADATA note.
    pub(crate) metadata: Option<Vec<u8>>,
}

struct File<'a>(&'a [u8]);

impl<'a> File<'a> {
    fn bytes(&self, offset: u64, len: u64, what: &'static str) -> Result<&'a [u8], ObjectError> {
        let end = offset.checked_add(len);
        end.and_then(|end| self.0.get(offset as usize..end as usize))
            .ok_or(ObjectError::Truncated { what, offset })
    }

    fn number(&self, offset: u64, len: u64, what: &'static str) -> Result<u64, ObjectError> {
        let b = self.bytes(offset, len, what)?;
        Ok(b.iter().rev().fold(0, |v, &b| v << 8 | u64::from(b)))
    }
}

/// Text at an offset of a string table, to its NUL.
fn text(table: &[u8], offset: u64) -> String {
    let rest = table.get(offset as usize..).unwrap_or_default();
    String::from_utf8_lossy(rest.split(|&b| b == 0).next().unwrap_or_default()).into_owned()
}

/// Largest image that is plausible for a code object, bytes.
const MAX_IMAGE: u64 = 1 << 30;

pub(crate) fn parse(data: &[u8]) -> Result<Elf, ObjectError> {
    let f = File(data);
    if data.get(..6) != Some(&[0x7f, b'E', b'L', b'F', 2, 1]) {
        return Err(ObjectError::NotAmdgpu("no ELF64 header"));
    }
    if f.number(18, 2, "header")? != 224 {
        return Err(ObjectError::NotAmdgpu("another machine"));
    }
    let mut elf = Elf {
        flags: f.number(48, 4, "header")? as u32,
        image: Vec::new(),
        segments: Vec::new(),
        symbols: Vec::new(),
        dynamic_symbols: 0,
        relocations: Vec::new(),
        metadata: None,
    };
    segments(&f, &mut elf)?;
    sections(&f, &mut elf)?;
    Ok(elf)
}

fn segments(f: &File<'_>, elf: &mut Elf) -> Result<(), ObjectError> {
    let (offset, size, count) =
        (f.number(32, 8, "header")?, f.number(54, 2, "header")?, f.number(56, 2, "header")?);
    for n in 0..count {
        let at = |field: u64, len: u64| f.number(offset + n * size + field, len, "program header");
        let (kind, flags) = (at(0, 4)?, at(4, 4)?);
        let (file_offset, vaddr, file_size, mem_size) = (at(8, 8)?, at(16, 8)?, at(32, 8)?, at(40, 8)?);
        match kind {
            1 => {
                let end = vaddr.checked_add(mem_size).filter(|&e| e <= MAX_IMAGE && file_size <= mem_size);
                let end = end.ok_or(ObjectError::Truncated { what: "segment", offset: vaddr })?;
                if elf.image.len() < end as usize {
                    elf.image.resize(end as usize, 0);
                }
                let bytes = f.bytes(file_offset, file_size, "segment")?;
                elf.image[vaddr as usize..vaddr as usize + bytes.len()].copy_from_slice(bytes);
                elf.segments.push(Segment {
                    vaddr,
                    size: mem_size,
                    writable: flags & 2 != 0,
                    executable: flags & 1 != 0,
                });
            }
            4 => notes(f.bytes(file_offset, file_size, "notes")?, elf),
            _ => {}
        }
    }
    Ok(())
}

/// Finds NT_AMDGPU_METADATA (32, owner "AMDGPU").
fn notes(mut notes: &[u8], elf: &mut Elf) {
    while let Some((header, rest)) = notes.split_at_checked(12) {
        let word =
            |n: usize| u32::from_le_bytes(header[4 * n..4 * n + 4].try_into().expect("four bytes")) as usize;
        let (name_len, len, kind) = (word(0), word(1), word(2));
        let padded = name_len.next_multiple_of(4);
        let Some(body) = rest.get(padded..padded + len) else { return };
        if kind == 32 && rest.get(..name_len) == Some(b"AMDGPU\0") {
            elf.metadata = Some(body.to_vec());
        }
        let Some(next) = rest.get(padded + len.next_multiple_of(4)..) else { return };
        notes = next;
    }
}

fn sections(f: &File<'_>, elf: &mut Elf) -> Result<(), ObjectError> {
    let (offset, size, count) =
        (f.number(40, 8, "header")?, f.number(58, 2, "header")?, f.number(60, 2, "header")?);
    let at = |n: u64, field: u64, len: u64| f.number(offset + n * size + field, len, "section header");
    for wanted in [11, 2] {
        for n in 0..count {
            if at(n, 4, 4)? != wanted {
                continue;
            }
            let (start, len, link) = (at(n, 24, 8)?, at(n, 32, 8)?, at(n, 40, 4)?);
            let table = f.bytes(at(link, 24, 8)?, at(link, 32, 8)?, "string table")?;
            for s in 0..len / 24 {
                let field = |o: u64, l: u64| f.number(start + s * 24 + o, l, "symbol");
                elf.symbols.push(Symbol {
                    name: text(table, field(0, 4)?),
                    value: field(8, 8)?,
                    function: field(4, 1)? & 15 == 2,
                    defined: field(6, 2)? != 0,
                });
            }
        }
        if wanted == 11 {
            elf.dynamic_symbols = elf.symbols.len();
        }
    }
    for n in 0..count {
        if at(n, 4, 4)? == 4 {
            let (start, len) = (at(n, 24, 8)?, at(n, 32, 8)?);
            for r in 0..len / 24 {
                let field = |o: u64| f.number(start + r * 24 + o, 8, "relocation");
                let info = field(8)?;
                elf.relocations.push(Rela {
                    offset: field(0)?,
                    kind: info as u32,
                    symbol: (info >> 32) as u32,
                    addend: field(16)? as i64,
                });
            }
        }
    }
    Ok(())
}
