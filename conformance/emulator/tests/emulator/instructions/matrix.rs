//! Matrix instructions: operand and accumulator layouts of both generations, integer forms, half results.

use moss_emulator::{CodeObject, Memory, Options};

use crate::common::{Args, BOTH, Bits, compile_source, get_u32, put_u32};

/// Runs one instruction on raw registers: 8 dwords a lane each of A, B and C, and 8 of D.
fn run(name: &str, arch: &str, call: &str, a: &[u32], b: &[u32], c: &[u32]) -> Vec<u32> {
    let source = format!(
        "#include \"prelude.h\"\n\
         #define V(t, n) t __attribute__((ext_vector_type(n)))\n\
         typedef V(int, 1) i1; typedef V(int, 2) i2; typedef V(int, 4) i4; typedef V(int, 8) i8; typedef V(float, 8) f8;\n\
         typedef V(f16, 8) h8; typedef V(f16, 16) h16; typedef V(short, 8) s8; typedef V(short, 16) s16;\n\
         template <typename T> static __device__ T get(const u32 *p) {{ T t; __builtin_memcpy(&t, p + 8 * TID, sizeof t); return t; }}\n\
         extern \"C\" __global__ void BOUNDS(32) k(const u32 *a, const u32 *b, const u32 *c, u32 *d) {{\n\
         auto r = {call};\n__builtin_memcpy(d + 8 * TID, &r, sizeof r);\n}}\n"
    );
    let file = compile_source(name, &source, arch);
    moss_emulator::compare_with_objdump("llvm-objdump-19", &file).unwrap_or_else(|e| panic!("{name}: {e}"));
    let object = CodeObject::load(&std::fs::read(&file).expect("compiled")).expect("loads");
    let m = Memory::new();
    let (pa, pb, pc, pd) = (put_u32(&m, a), put_u32(&m, b), put_u32(&m, c), put_u32(&m, &[0; 256]));
    let args = Args::new().ptr(pa).ptr(pb).ptr(pc).ptr(pd);
    args.run(&object, "k", [1, 1, 1], [32, 1, 1], &m, &Options::default())
        .unwrap_or_else(|e| panic!("{arch} {name}: {e}"));
    get_u32(&m, pd, 256)
}

/// Registers of an operand whose element (row, k) is `x(row, k)`, `bits` wide. gfx11: a lane holds all k of
/// row lane % 16. gfx12: lanes 0-15 hold k 0-7, lanes 16-31 k 8-15.
fn operand(arch: &str, bits: usize, x: impl Fn(usize, usize) -> u32) -> Vec<u32> {
    let mut out = vec![0; 256];
    for l in 0..32 {
        let (count, first) = if arch == "gfx1100" { (16, 0) } else { (8, 8 * (l / 16)) };
        for n in 0..count {
            out[8 * l + n * bits / 32] |= x(l % 16, first + n) << (n * bits % 32);
        }
    }
    out
}

/// (register, lane) of an f32 or i32 accumulator element.
fn place(arch: &str, m: usize, n: usize) -> (usize, usize) {
    if arch == "gfx1100" { (m / 2, n + 16 * (m % 2)) } else { (m % 8, n + 16 * (m / 8)) }
}

fn element(registers: &[u32], (r, l): (usize, usize)) -> u32 {
    registers[8 * l + r]
}

#[test]
fn integers_signed_and_unsigned() {
    for arch in BOTH {
        let (suffix, ty) = if arch == "gfx1100" { ("", "i4") } else { ("_gfx12", "i2") };
        let mut bits = Bits(21);
        let bytes: Vec<u32> = (0..512).map(|_| bits.next() & 0xff).collect();
        let (at, bt) = (|r: usize, k: usize| bytes[16 * r + k], |r: usize, k: usize| bytes[256 + 16 * r + k]);
        let (a, b) = (operand(arch, 8, at), operand(arch, 8, bt));
        let c: Vec<u32> = (0..256).map(|_| bits.next() >> 4).collect();
        for (name, sa, sb) in
            [("iu8ss", true, true), ("iu8su", true, false), ("iu8us", false, true), ("iu8uu", false, false)]
        {
            let call = format!(
                "__builtin_amdgcn_wmma_i32_16x16x16_iu8_w32{suffix}({sa}, get<{ty}>(a), {sb}, get<{ty}>(b), get<i8>(c), false)"
            );
            let d = run(name, arch, &call, &a, &b, &c);
            let v = |x: u32, s: bool| if s { i64::from(x as u8 as i8) } else { i64::from(x) };
            for m in 0..16 {
                for n in 0..16 {
                    let dot: i64 = (0..16).map(|k| v(at(m, k), sa) * v(bt(n, k), sb)).sum();
                    let at = place(arch, m, n);
                    assert_eq!(
                        element(&d, at),
                        element(&c, at).wrapping_add(dot as u32),
                        "{arch} {name} {m},{n}"
                    );
                }
            }
        }
    }
}

#[test]
fn halves_into_floats_with_a_constant_accumulator() {
    for arch in BOTH {
        let (suffix, ty) = if arch == "gfx1100" { ("", "h16") } else { ("_gfx12", "h8") };
        let half = |r: usize, k: usize, salt: usize| {
            half::f16::from_f32(((r * 31 + k * 17 + salt) % 64) as f32 / 16.0 - 2.0)
        };
        let a = operand(arch, 16, |r, k| half(r, k, 0).to_bits().into());
        let b = operand(arch, 16, |r, k| half(r, k, 5).to_bits().into());
        for (name, c, start) in [("f16zero", "(f8)0.0f", 0.0f32), ("f16one", "(f8)1.0f", 1.0)] {
            let call = format!(
                "__builtin_amdgcn_wmma_f32_16x16x16_f16_w32{suffix}(get<{ty}>(a), get<{ty}>(b), {c})"
            );
            let d = run(name, arch, &call, &a, &b, &[0; 256]);
            for m in 0..16 {
                for n in 0..16 {
                    // Multiples of 2^-8 below 2^7: every partial sum is exact.
                    let want =
                        (0..16).map(|k| half(m, k, 0).to_f32() * half(n, k, 5).to_f32()).sum::<f32>() + start;
                    assert_eq!(f32::from_bits(element(&d, place(arch, m, n))), want, "{arch} {name} {m},{n}");
                }
            }
        }
    }
}

/// bf16 results are rounded to nearest even, not cut.
#[test]
fn bf16_results_round() {
    let value = |x: u32| f32::from_bits(x << 16);
    let round = |x: f32| (x.to_bits() + 0x7fff + (x.to_bits() >> 16 & 1)) >> 16;
    for arch in BOTH {
        let bits =
            |r: usize, k: usize, salt: usize| (((r * 13 + k * 7 + salt) % 32) as f32 - 15.5).to_bits() >> 16;
        let a = operand(arch, 16, |r, k| bits(r, k, 0));
        let b = operand(arch, 16, |r, k| bits(r, k, 9));
        let call = match arch {
            "gfx1100" => {
                "__builtin_amdgcn_wmma_bf16_16x16x16_bf16_w32(get<s16>(a), get<s16>(b), (s16)(short)0, false)"
            }
            _ => "__builtin_amdgcn_wmma_bf16_16x16x16_bf16_w32_gfx12(get<s8>(a), get<s8>(b), (s8)(short)0)",
        };
        let d = run("bf16out", arch, call, &a, &b, &[0; 256]);
        for m in 0..16 {
            for n in 0..16 {
                let want = round((0..16).map(|k| value(bits(m, k, 0)) * value(bits(n, k, 9))).sum::<f32>());
                // gfx11 keeps one result in the low half of a register, gfx12 packs two rows.
                let got = match arch {
                    "gfx1100" => element(&d, place(arch, m, n)) & 0xffff,
                    _ => d[8 * (n + 16 * (m / 8)) + m % 8 / 2] >> (16 * (m % 2)) & 0xffff,
                };
                assert_eq!(got, want, "{arch} {m},{n}");
            }
        }
    }
}

/// 32 k of four bits on gfx12: a lane holds 16 of them.
#[test]
fn four_bits_of_32_k() {
    let mut bits = Bits(33);
    let values: Vec<u32> = (0..1024).map(|_| bits.next() & 15).collect();
    let registers = |first: usize| {
        let mut out = vec![0; 256];
        for l in 0..32 {
            for n in 0..16 {
                out[8 * l + n / 8] |= values[first + 32 * (l % 16) + 16 * (l / 16) + n] << (4 * (n % 8));
            }
        }
        out
    };
    let (a, b) = (registers(0), registers(512));
    let c: Vec<u32> = (0..256).map(|_| bits.next()).collect();
    for (name, sa, sb, clamp) in
        [("iu4ss", true, true, false), ("iu4su", true, false, false), ("iu4uu", false, false, true)]
    {
        let call = format!(
            "__builtin_amdgcn_wmma_i32_16x16x32_iu4_w32_gfx12({sa}, get<i2>(a), {sb}, get<i2>(b), get<i8>(c), {clamp})"
        );
        let d = run(name, "gfx1200", &call, &a, &b, &c);
        let v = |x: u32, s: bool| if s && x > 7 { i64::from(x) - 16 } else { i64::from(x) };
        for m in 0..16 {
            for n in 0..16 {
                let dot: i64 =
                    (0..32).map(|k| v(values[32 * m + k], sa) * v(values[512 + 32 * n + k], sb)).sum();
                let at = place("gfx1200", m, n);
                let sum = i64::from(element(&c, at) as i32) + dot;
                let want = if clamp { sum.clamp(i32::MIN.into(), i32::MAX.into()) } else { sum };
                assert_eq!(element(&d, at), want as u32, "{name} {m},{n}");
            }
        }
    }
}
