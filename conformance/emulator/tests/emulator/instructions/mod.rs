//! Single instructions through inline assembly. Expected values are written down from the definitions in
//! AMD's ISA documents, with the host's own arithmetic; nothing of the emulator computes them.

mod alu32;
mod alu64;
mod atomics;
mod compare;
mod float;
mod half;
mod lanes;
mod matrix;
mod memory;
mod modifiers;
mod scalar;

use std::{fmt::Write, path::PathBuf};

use moss_emulator::{CodeObject, Memory, Options};

use crate::common::{Args, BOTH, Bits, compile_source};

/// Operands of one lane: 64-bit values whose low halves are the 32-bit operands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct In {
    pub(crate) a: u64,
    pub(crate) b: u64,
    pub(crate) c: u64,
    /// What the destination held before.
    pub(crate) d: u64,
}

impl In {
    pub(crate) fn u(&self) -> [u32; 4] {
        [self.a as u32, self.b as u32, self.c as u32, self.d as u32]
    }

    pub(crate) fn i(&self) -> [i32; 4] {
        self.u().map(|x| x as i32)
    }

    pub(crate) fn f(&self) -> [f32; 4] {
        self.u().map(f32::from_bits)
    }

    pub(crate) fn f64s(&self) -> [f64; 4] {
        [self.a, self.b, self.c, self.d].map(f64::from_bits)
    }

    /// Whether an operand is a signalling NaN as an f32 or in a half.
    pub(crate) fn signalling(&self) -> bool {
        let half = |h: u32| h & 0x7e00 == 0x7c00 && h & 0x1ff != 0;
        self.u()
            .iter()
            .any(|&x| x & 0x7fc0_0000 == 0x7f80_0000 && x & 0x3f_ffff != 0 || half(x) || half(x >> 16))
    }

    pub(crate) fn h(&self) -> [u16; 4] {
        self.u().map(|x| x as u16)
    }
}

/// How results are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Result_ {
    /// 32 bits.
    U32,
    /// f32; any NaN equals any NaN.
    F32,
    /// 64 bits.
    U64,
    /// f64; any NaN equals any NaN.
    F64,
    /// Two halves; any NaN equals any NaN.
    F16x2,
    /// Scalar: 32 bits, SCC in bit 63.
    S32,
    /// Scalar: 64 bits without SCC.
    S64,
}

use Result_::*;

/// One instruction: assembly for gfx11 and gfx12 ("" where it does not exist; the same when equal), and its
/// definition. `%0` is the result, `%1 %2 %3` the 32-bit operands, `%4 %5 %6` the 64-bit ones.
pub(crate) struct Case {
    pub(crate) asm: [String; 2],
    pub(crate) result: Result_,
    pub(crate) want: Box<dyn Fn(In) -> u64>,
}

pub(crate) fn case(asm: &str, result: Result_, want: impl Fn(In) -> u64 + 'static) -> Case {
    Case { asm: [asm.to_owned(), asm.to_owned()], result, want: Box::new(want) }
}

/// An instruction with a name of its own in each generation.
pub(crate) fn case2(gfx11: &str, gfx12: &str, result: Result_, want: impl Fn(In) -> u64 + 'static) -> Case {
    Case { asm: [gfx11.to_owned(), gfx12.to_owned()], result, want: Box::new(want) }
}

/// Bit patterns at which definitions change.
const EDGES: [u32; 30] = [
    0,
    1,
    2,
    3,
    15,
    16,
    31,
    32,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0x8000,
    0xffff,
    0x10000,
    0x7fff_ffff,
    0x8000_0000,
    0x8000_0001,
    0xffff_ffff,
    0x3f80_0000,
    0xbf80_0000,
    0x3f00_0000,
    0x4020_0000,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
    0x007f_ffff,
    0x7f7f_ffff,
    0x3c00_bc00,
    0x7c00_0001,
];

/// All pairs of edges for the first two operands, and random bits.
pub(crate) fn inputs() -> Vec<In> {
    let mut bits = Bits(11);
    let n = EDGES.len();
    let mut wide = |lo: u32| u64::from(lo) | u64::from(bits.next()) << 32;
    let mut out: Vec<In> = (0..n * n)
        .map(|k| In {
            a: wide(EDGES[k % n]),
            b: wide(EDGES[k / n]),
            c: wide(EDGES[(k * 7 + 3) % n]),
            d: wide(EDGES[(k * 11 + 5) % n]),
        })
        .collect();
    let mut random = || u64::from(bits.next()) << 32 | u64::from(bits.next());
    out.extend((0..220).map(|_| In { a: random(), b: random(), c: random(), d: random() }));
    // Floats of ordinary size, whose arithmetic rounds.
    let mut unit = || u64::from((bits.unit() * 8.0).to_bits()) | 0x4010_0000_0000_0000;
    out.extend((0..32).map(|_| In { a: unit(), b: unit(), c: unit(), d: unit() }));
    out.truncate(out.len() / 32 * 32);
    out
}

fn source(cases: &[&Case], generation: usize) -> String {
    let mut s = "#include \"prelude.h\"\n".to_owned();
    for (n, c) in cases.iter().enumerate() {
        let asm = c.asm[generation].replace('\n', "\\n");
        let scalar = matches!(c.result, S32 | S64);
        let wide = matches!(c.result, U64 | F64 | S64);
        let (index, class) = if scalar { ("WG", "s") } else { ("WG * 32 + TID", "v") };
        let kind = if wide { "u64" } else { "u32" };
        // SCC is kept beside the result in a register of its own.
        let (keep, keeper) = match c.result {
            S32 => ("\\ns_cselect_b32 %1, 1, 0", ", \"=s\"(scc)"),
            _ => ("", ", \"=s\"(scc)"),
        };
        let store = if c.result == S32 { "r | (u64)scc << 63" } else { "r" };
        writeln!(
            s,
            "extern \"C\" __global__ void BOUNDS(32) k{n}(const u64 *in, u64 *out) {{\n\
             u32 i = {index}, scc = 0;\n\
             u64 a = in[4 * i], b = in[4 * i + 1], c = in[4 * i + 2];\n\
             {kind} r = in[4 * i + 3];\n\
             asm volatile(\"{}{keep}\" : \"+{class}\"(r){} : \"{class}\"((u32)a), \"{class}\"((u32)b), \
             \"{class}\"((u32)c), \"{class}\"(a), \"{class}\"(b), \"{class}\"(c) : \"vcc\", \"scc\", \"s20\", \"s21\", \
             \"v100\", \"v101\", \"v102\", \"v103\", \"memory\");\n\
             {} out[i] = {};\n}}",
            renumber(&asm),
            keeper,
            if c.result == S32 { "" } else { "scc = 0;" },
            if c.result == S32 { store } else { "(u64)r" },
        )
        .expect("writing to a string");
    }
    s
}

/// The clobbered result `%7` comes second in the compiler's numbering.
fn renumber(asm: &str) -> String {
    let mut out = String::new();
    let mut chars = asm.chars().peekable();
    while let Some(c) = chars.next() {
        out.push(c);
        if c == '%'
            && let Some(d) = chars.peek().and_then(|d| d.to_digit(10))
        {
            chars.next();
            let n = match d {
                0 => 0,
                7 => 1,
                d => d + 1,
            };
            write!(out, "{n}").expect("writing to a string");
        }
    }
    out
}

fn same(result: Result_, got: u64, want: u64) -> bool {
    let half_nan = |x: u64| x & 0x7c00 == 0x7c00 && x & 0x3ff != 0;
    let half = |x: u64, y: u64| x & 0xffff == y & 0xffff || half_nan(x) && half_nan(y);
    match result {
        U32 => got as u32 == want as u32,
        S32 | U64 | S64 => got == want,
        F32 => {
            let (g, w) = (f32::from_bits(got as u32), f32::from_bits(want as u32));
            g.to_bits() == w.to_bits() || g.is_nan() && w.is_nan()
        }
        F64 => got == want || f64::from_bits(got).is_nan() && f64::from_bits(want).is_nan(),
        F16x2 => half(got, want) && half(got >> 16, want >> 16),
    }
}

/// Compiles and runs every case on both generations; `name` is the family's.
pub(crate) fn check(name: &str, cases: &[Case], filter: impl Fn(&In) -> bool) {
    let inputs: Vec<In> = inputs().into_iter().filter(filter).collect();
    // Whole waves only: the rest repeats the first inputs.
    let padded: Vec<In> = inputs.iter().copied().cycle().take(inputs.len().next_multiple_of(32)).collect();
    let bytes: Vec<u8> =
        padded.iter().flat_map(|i| [i.a, i.b, i.c, i.d]).flat_map(u64::to_le_bytes).collect();
    for (generation, arch) in BOTH.into_iter().enumerate() {
        let here: Vec<&Case> = cases.iter().filter(|c| !c.asm[generation].is_empty()).collect();
        let file: PathBuf = compile_source(name, &source(&here, generation), arch);
        let code = std::fs::read(&file).expect("compiled");
        let object = CodeObject::load(&code).unwrap_or_else(|e| panic!("{name}: {e}"));
        moss_emulator::compare_with_objdump("llvm-objdump-19", &file)
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        for (n, c) in here.into_iter().enumerate() {
            let memory = Memory::new();
            let (from, to) = (memory.alloc_from(&bytes), memory.alloc(8 * padded.len() as u64));
            let scalar = matches!(c.result, S32 | S64);
            let (grid, block) = if scalar { (padded.len(), 1) } else { (padded.len() / 32, 32) };
            let args = Args::new().ptr(from).ptr(to);
            let grid = [grid as u32, 1, 1];
            let ran = args.run(&object, &format!("k{n}"), grid, [block, 1, 1], &memory, &Options::default());
            ran.unwrap_or_else(|e| panic!("{arch} {}: {e}", c.asm[generation]));
            let out = memory.read(to, 8 * padded.len() as u64).expect("allocated");
            for (i, got) in padded.iter().zip(out.chunks_exact(8)) {
                let got = u64::from_le_bytes(got.try_into().expect("eight"));
                let want = (c.want)(*i);
                assert!(
                    same(c.result, got, want),
                    "{arch} {}: {got:#x}, not {want:#x}, for {i:x?}",
                    c.asm[generation]
                );
            }
        }
    }
}
