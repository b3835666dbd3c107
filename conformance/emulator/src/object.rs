//! A loaded code object: relocated image, kernels, decoded instructions.

use std::collections::BTreeMap;

use crate::{
    arch::Arch,
    decode::{self, blank},
    elf::{self, ObjectError},
    exec::{Flow, group::Group, stop, wave::Wave},
    fault::What,
    inst::{Enc, Inst, NO, Row},
    memory::{Memory, Range},
    msgpack::{self, Value},
};

/// One argument of a kernel, hidden ones included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arg {
    /// Byte offset in the kernarg segment.
    pub offset: u32,
    /// Bytes.
    pub size: u32,
    /// `global_buffer`, `by_value`, `hidden_block_count_x` ...
    pub kind: String,
    /// Name in the source, where the compiler kept it.
    pub name: String,
}

/// A kernel as metadata and descriptor describe it.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Name that launches use.
    pub name: String,
    /// Arguments in order.
    pub args: Vec<Arg>,
    /// Bytes of the kernarg segment with the hidden arguments.
    pub kernarg_size: u32,
    /// Static LDS, bytes.
    pub lds: u32,
    /// Scratch of a lane, bytes.
    pub scratch: u32,
    /// Whether the scratch size is only a lower bound.
    pub dynamic_stack: bool,
    /// Work-items that a workgroup may have.
    pub max_workgroup: u32,
    /// Vector registers.
    pub vgprs: u32,
    /// Scalar registers.
    pub sgprs: u32,
    /// Spilled vector registers.
    pub vgpr_spills: u32,
    /// Bytes of the explicit arguments: where the hidden ones start.
    pub explicit_size: u32,
    /// Address of the first instruction in the image.
    pub(crate) entry: u64,
    pub(crate) rsrc1: u32,
    pub(crate) rsrc2: u32,
    pub(crate) properties: u32,
}

/// Decoded instructions of the executable segment.
pub(crate) struct Code {
    /// Address of the segment in the image.
    pub(crate) start: u64,
    pub(crate) insts: Vec<Inst>,
    /// Instruction that starts at each dword, or NONE.
    pub(crate) index: Vec<u32>,
}

/// No instruction starts at this dword.
pub(crate) const NONE: u32 = u32::MAX;

/// A code object in memory, ready to launch.
pub struct CodeObject {
    /// Target.
    pub arch: Arch,
    kernels: BTreeMap<String, Kernel>,
    memory: Memory,
    pub(crate) base: u64,
    pub(crate) segments: Vec<elf::Segment>,
    pub(crate) code: Code,
    /// Workgroups must run one after another because they may order their atomics.
    pub(crate) serial: bool,
}

impl CodeObject {
    /// Loads, relocates and decodes a code object file.
    pub fn load(bytes: &[u8]) -> Result<Self, ObjectError> {
        let mut elf = elf::parse(bytes)?;
        let mach = elf.flags & 0xff;
        let arch = Arch::by_mach(mach).ok_or(ObjectError::Target { mach })?;
        let memory = Memory::new();
        let base = memory.alloc(elf.image.len() as u64);
        relocate(&mut elf, base)?;
        let kernels = kernels(&elf)?;
        memory.write(base, &elf.image).expect("the image was just allocated");
        let code = decode_all(arch, &elf);
        let serial = code.insts.iter().any(|i| {
            i.row.name.contains("_atomic_") && matches!(i.enc, Enc::Flat | Enc::Global | Enc::Buffer)
        });
        Ok(CodeObject { arch, kernels, memory, base, segments: elf.segments, code, serial })
    }

    /// The kernels by name.
    pub fn kernels(&self) -> impl Iterator<Item = &Kernel> {
        self.kernels.values()
    }

    /// The kernel of that name.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.get(name)
    }

    /// Instructions of the code that would stop a launch, by mnemonic; undecodable words by their encoding.
    /// Data and padding between functions may show up here too.
    pub fn unsupported(&self) -> Vec<String> {
        let refused = self.code.insts.iter().filter(|i| !i.row.emulated && i.raw[0] != 0);
        let name = |i: &Inst| match decode::decode(self.arch.generation, &i.raw) {
            Ok(i) => i.mnemonic(),
            Err(u) => u.what,
        };
        let mut out: Vec<String> = refused.map(name).collect();
        out.sort();
        out.dedup();
        out
    }

    /// Address ranges of the image.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range> {
        self.segments.iter().map(|s| Range {
            start: self.base + s.vaddr,
            end: self.base + s.vaddr + s.size,
            writable: s.writable,
        })
    }

    /// Image bytes at an address, for tests.
    pub(crate) fn word(&self, address: u64) -> u32 {
        let bytes = self.memory.read(self.base + address, 4).unwrap_or_default();
        bytes.try_into().map_or(0, u32::from_le_bytes)
    }
}

fn put(image: &mut [u8], offset: u64, bytes: &[u8], kind: u32) -> Result<(), ObjectError> {
    let at = image.get_mut(offset as usize..).and_then(|s| s.get_mut(..bytes.len()));
    let Some(at) = at else {
        return Err(ObjectError::Relocation { kind, offset, symbol: "beyond the image".to_owned() });
    };
    at.copy_from_slice(bytes);
    Ok(())
}

/// Applies the dynamic relocations for an image at `base`.
fn relocate(elf: &mut elf::Elf, base: u64) -> Result<(), ObjectError> {
    for r in std::mem::take(&mut elf.relocations) {
        let symbol = elf.symbols[..elf.dynamic_symbols].get(r.symbol as usize);
        let name = symbol.map_or(String::new(), |s| s.name.clone());
        if r.symbol != 0 && !symbol.is_some_and(|s| s.defined) {
            return Err(ObjectError::Undefined(name));
        }
        let target = base.wrapping_add(symbol.filter(|_| r.symbol != 0).map_or(0, |s| s.value));
        let value = target.wrapping_add_signed(r.addend);
        let relative = value.wrapping_sub(base + r.offset);
        let bytes = value.to_le_bytes();
        match r.kind {
            1 => put(&mut elf.image, r.offset, &bytes[..4], r.kind)?,
            2 => put(&mut elf.image, r.offset, &((value >> 32) as u32).to_le_bytes(), r.kind)?,
            // ABS64, RELATIVE64.
            3 | 13 => put(&mut elf.image, r.offset, &bytes, r.kind)?,
            4 => put(&mut elf.image, r.offset, &(relative as u32).to_le_bytes(), r.kind)?,
            5 => put(&mut elf.image, r.offset, &relative.to_le_bytes(), r.kind)?,
            10 => put(&mut elf.image, r.offset, &(relative as u32).to_le_bytes(), r.kind)?,
            11 => put(&mut elf.image, r.offset, &((relative >> 32) as u32).to_le_bytes(), r.kind)?,
            kind => return Err(ObjectError::Relocation { kind, offset: r.offset, symbol: name }),
        }
    }
    Ok(())
}

fn kernels(elf: &elf::Elf) -> Result<BTreeMap<String, Kernel>, ObjectError> {
    let bad = |what: &str| ObjectError::Metadata(what.to_owned());
    let note = elf.metadata.as_ref().ok_or_else(|| bad("no NT_AMDGPU_METADATA note"))?;
    let root = msgpack::parse(note).ok_or_else(|| bad("unreadable MessagePack"))?;
    let mut out = BTreeMap::new();
    for k in root.get("amdhsa.kernels").map(Value::array).unwrap_or_default() {
        let text = |key: &str| k.get(key).and_then(Value::str).map(str::to_owned);
        let int = |key: &str| k.get(key).and_then(Value::int).unwrap_or(0) as u32;
        let name = text(".name").ok_or_else(|| bad("a kernel without .name"))?;
        let symbol = text(".symbol").ok_or_else(|| bad("a kernel without .symbol"))?;
        if int(".wavefront_size") != 32 {
            return Err(ObjectError::Metadata(format!("{name}: waves of 64 are not supported")));
        }
        let descriptor = elf.symbols.iter().find(|s| s.name == symbol && s.defined);
        let descriptor = descriptor.ok_or_else(|| ObjectError::Undefined(symbol.clone()))?.value;
        let word = |offset: u64, n: usize| -> Result<u64, ObjectError> {
            let at = (descriptor + offset) as usize;
            let b = elf.image.get(at..at + n);
            let b = b.ok_or(ObjectError::Truncated { what: "kernel descriptor", offset: descriptor })?;
            Ok(b.iter().rev().fold(0, |v, &b| v << 8 | u64::from(b)))
        };
        let args = k.get(".args").map(Value::array).unwrap_or_default().iter().map(|a| {
            let field = |key: &str| a.get(key).and_then(Value::str).unwrap_or_default().to_owned();
            Arg {
                offset: a.get(".offset").and_then(Value::int).unwrap_or(0) as u32,
                size: a.get(".size").and_then(Value::int).unwrap_or(0) as u32,
                kind: field(".value_kind"),
                name: field(".name"),
            }
        });
        let args: Vec<Arg> = args.collect();
        let explicit = args.iter().filter(|a| !a.kind.starts_with("hidden_"));
        let kernel = Kernel {
            explicit_size: explicit.map(|a| a.offset + a.size).max().unwrap_or(0),
            args,
            kernarg_size: int(".kernarg_segment_size"),
            lds: word(0, 4)? as u32,
            scratch: word(4, 4)? as u32,
            dynamic_stack: int(".uses_dynamic_stack") != 0,
            max_workgroup: int(".max_flat_workgroup_size"),
            vgprs: int(".vgpr_count"),
            sgprs: int(".sgpr_count"),
            vgpr_spills: int(".vgpr_spill_count"),
            entry: descriptor.wrapping_add(word(16, 8)?),
            rsrc1: word(48, 4)? as u32,
            rsrc2: word(52, 4)? as u32,
            properties: word(56, 2)? as u32,
            name: name.clone(),
        };
        out.insert(name, kernel);
    }
    Ok(out)
}

/// Stops with the encoding's name when executed.
fn unknown(_: &mut Wave, i: &Inst, g: &mut Group<'_>) -> Flow {
    let what = decode::decode(g.generation, &i.raw).map_or_else(|u| u.what, |_| String::new());
    stop(What::Unknown(format!("{what}, words {:08x} {:08x} {:08x}", i.raw[0], i.raw[1], i.raw[2])))
}

const UNKNOWN: Row = Row { name: "(unknown)", g11: NO, g12: NO, half: 0, emulated: false, exec: unknown };

/// Decodes the executable segment, starting afresh at every function.
fn decode_all(arch: Arch, elf: &elf::Elf) -> Code {
    let Some(text) = elf.segments.iter().find(|s| s.executable) else {
        return Code { start: 0, insts: Vec::new(), index: Vec::new() };
    };
    let bytes = &elf.image[text.vaddr as usize..(text.vaddr + text.size) as usize];
    let words: Vec<u32> =
        bytes.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().expect("four bytes"))).collect();
    let mut index = vec![NONE; words.len()];
    let mut insts = Vec::new();
    let mut starts: Vec<usize> = elf
        .symbols
        .iter()
        .filter(|s| s.function && s.defined && s.value >= text.vaddr)
        .map(|s| ((s.value - text.vaddr) / 4) as usize)
        .chain([0, words.len()])
        .filter(|&s| s <= words.len())
        .collect();
    starts.sort_unstable();
    starts.dedup();
    for pair in starts.windows(2) {
        let mut at = pair[0];
        while at < pair[1] {
            let i = match decode::decode(arch.generation, &words[at..]) {
                Ok(i) => i,
                Err(_) => {
                    let raw = std::array::from_fn(|n| words.get(at + n).copied().unwrap_or(0));
                    blank(UNKNOWN, Enc::Sopp, 4, raw)
                }
            };
            index[at] = insts.len() as u32;
            at += i.len_bytes() / 4;
            insts.push(i);
        }
    }
    Code { start: text.vaddr, insts, index }
}
