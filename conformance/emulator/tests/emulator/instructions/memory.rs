//! Loads and stores of every width on global, flat, scratch and LDS addresses.

use moss_emulator::{CodeObject, Memory, Options};

use crate::common::{Args, BOTH, compile_source, get_u32, put_u32};

/// Words that tell their place.
fn word(n: usize) -> u32 {
    0x8180_0000u32.wrapping_add((n as u32).wrapping_mul(0x0103_0507))
}

/// Byte `n` of the words.
fn byte(n: usize) -> u32 {
    u32::from(word(n / 4).to_le_bytes()[n % 4])
}

fn half(n: usize) -> u32 {
    byte(n) | byte(n + 1) << 8
}

/// Runs assembly where `%0` is a result of `words` dwords (0x77777777 before), `%1` the lane's global address,
/// 256 bytes apart from `word(64 * lane)`, and `%2` the lane's byte offset in 16 KiB of LDS.
fn run(name: &str, asm: &str, words: usize, arch: &str) -> (Vec<u32>, Vec<u32>) {
    let kind = ["u32", "u64", "u32x3", "u32x4"][words - 1];
    let source = format!(
        "#include \"prelude.h\"\n\
         typedef u32 u32x3 __attribute__((ext_vector_type(3)));\ntypedef u32 u32x4 __attribute__((ext_vector_type(4)));\n\
         extern \"C\" __global__ void BOUNDS(32) k(u32 *in, u32 *out) {{\n\
         __shared__ u32 lds[4096];\n\
         for (u32 i = 0; i < 64; ++i) lds[64 * TID + i] = in[64 * TID + i];\n\
         {kind} r; __builtin_memset(&r, 0x77, sizeof r);\n\
         u32 offset = (u32)(u64)(__attribute__((address_space(3))) u32 *)lds + 256 * TID;\n\
         u32 by = 256 * TID;\n\
         asm volatile(\"{}\\ns_nop 0\" : \"+&v\"(r), \"+&v\"(offset) : \"v\"(in + 64 * TID), \"s\"(in), \"v\"(by) : \"memory\", \"s20\", \"s21\", \"s22\", \"s23\", \"s24\", \"s25\");\n\
         u32 t[{words}]; __builtin_memcpy(t, &r, {});\n\
         for (u32 i = 0; i < {words}; ++i) out[{words} * TID + i] = t[i];\n}}\n",
        // The offset is an operand that the code may change, so it comes second.
        asm.replace("%1", "%x").replace("%2", "%1").replace("%x", "%2").replace('\n', "\\n"),
        4 * words
    );
    let file = compile_source(name, &source, arch);
    moss_emulator::compare_with_objdump("llvm-objdump-19", &file).unwrap_or_else(|e| panic!("{asm}: {e}"));
    let object = CodeObject::load(&std::fs::read(&file).expect("compiled")).expect("loads");
    let m = Memory::new();
    let values: Vec<u32> = (0..2048).map(word).collect();
    let (a, out) = (put_u32(&m, &values), put_u32(&m, &vec![0; 32 * words]));
    let args = Args::new().ptr(a).ptr(out);
    args.run(&object, "k", [1, 1, 1], [32, 1, 1], &m, &Options::default())
        .unwrap_or_else(|e| panic!("{arch} {asm}: {e}"));
    (get_u32(&m, out, 32 * words), get_u32(&m, a, 2048))
}

/// Sign extension from 8 or 16 bits.
fn sext(x: u32, bits: u32) -> u32 {
    ((x << (32 - bits)) as i32 >> (32 - bits)) as u32
}

#[test]
fn loads_extend_as_they_say() {
    // What one lane reads at byte `n` of the words, given 0x77777777 before.
    type Want = fn(usize) -> u32;
    let narrow: [(&str, &str, Want); 10] = [
        ("load_u8", "ds_load_u8", byte),
        ("load_i8", "ds_load_i8", |n| sext(byte(n), 8)),
        ("load_u16", "ds_load_u16", half),
        ("load_i16", "ds_load_i16", |n| sext(half(n), 16)),
        ("load_d16_u8", "ds_load_u8_d16", |n| 0x7777_0000 | byte(n)),
        ("load_d16_i8", "ds_load_i8_d16", |n| 0x7777_0000 | sext(byte(n), 8) & 0xffff),
        ("load_d16_b16", "ds_load_u16_d16", |n| 0x7777_0000 | half(n)),
        ("load_d16_hi_u8", "ds_load_u8_d16_hi", |n| 0x7777 | byte(n) << 16),
        ("load_d16_hi_i8", "ds_load_i8_d16_hi", |n| 0x7777 | sext(byte(n), 8) << 16),
        ("load_d16_hi_b16", "ds_load_u16_d16_hi", |n| 0x7777 | half(n) << 16),
    ];
    for arch in BOTH {
        for (name, ds, want) in narrow {
            for (tag, text) in [
                ("g", format!("global_{name} %0, %1, off offset:6")),
                ("f", format!("flat_{name} %0, %1 offset:6")),
                ("s", format!("global_{name} %0, %4, %3 offset:6")),
                ("d", format!("{ds} %0, %2 offset:6")),
            ] {
                // One width shows that the other address forms reach the same loads.
                if matches!(tag, "f" | "s") && name != "load_i16" {
                    continue;
                }
                let (got, _) = run(&format!("{name}_{tag}"), &text, 1, arch);
                for l in 0..32 {
                    assert_eq!(got[l], want(256 * l + 6), "{arch} {text} lane {l}");
                }
            }
        }
    }
}

#[test]
fn wide_loads_and_pairs() {
    for arch in BOTH {
        for words in 1..=4 {
            let bits = 32 * words;
            for (tag, text) in [
                ("g", format!("global_load_b{bits} %0, %1, off offset:16")),
                ("f", format!("flat_load_b{bits} %0, %1 offset:16")),
                ("d", format!("ds_load_b{bits} %0, %2 offset:16")),
            ] {
                let (got, _) = run(&format!("wide{words}_{tag}"), &text, words, arch);
                for (i, &v) in got.iter().enumerate() {
                    assert_eq!(v, word(64 * (i / words) + 4 + i % words), "{arch} {text}");
                }
            }
        }
        for (name, text, words, at) in [
            ("pair32", "ds_load_2addr_b32 %0, %2 offset0:3 offset1:9", 2, [3, 9, 0, 0]),
            ("pair64", "ds_load_2addr_b64 %0, %2 offset0:1 offset1:7", 4, [2, 3, 14, 15]),
            // Lane 31's base plus 64 dwords lies outside, so all lanes start at 0 here.
            (
                "stride",
                "v_sub_nc_u32 %2, %2, %4\nds_load_2addr_stride64_b32 %0, %2 offset0:1 offset1:3",
                2,
                [64, 192, 0, 0],
            ),
        ] {
            let (got, _) = run(name, text, words, arch);
            for (i, &v) in got.iter().enumerate() {
                let base = if name == "stride" { 0 } else { 64 * (i / words) };
                assert_eq!(v, word(base + at[i % words]), "{arch} {text}");
            }
        }
    }
}

#[test]
fn stores_write_exactly_their_bytes() {
    for arch in BOTH {
        for (name, text, bytes) in [
            ("st8", "global_store_b8 %1, %4, off offset:9", vec![(9, 0u32)]),
            ("st16", "global_store_b16 %1, %4, off offset:10", vec![(10, 0), (11, 1)]),
            ("st32", "global_store_b32 %1, %4, off offset:12", vec![(12, 0), (13, 1), (14, 2), (15, 3)]),
            ("sthi8", "v_lshlrev_b32 %0, 16, %4\nglobal_store_d16_hi_b8 %1, %0, off offset:9", vec![(9, 0)]),
            (
                "sthi16",
                "v_lshlrev_b32 %0, 16, %4\nglobal_store_d16_hi_b16 %1, %0, off offset:10",
                vec![(10, 0), (11, 1)],
            ),
            ("stf8", "flat_store_b8 %1, %4 offset:9", vec![(9, 0)]),
        ] {
            let (_, memory) = run(name, text, 1, arch);
            for l in 0..32 {
                let stored = (256 * l as u32).to_le_bytes();
                for n in 0..16 {
                    let want = bytes
                        .iter()
                        .find(|(at, _)| *at == n)
                        .map_or(byte(256 * l + n), |(_, from)| stored[*from as usize].into());
                    let got = u32::from(memory[64 * l + n / 4].to_le_bytes()[n % 4]);
                    assert_eq!(got, want, "{arch} {text}, lane {l}, byte {n}");
                }
            }
        }
        // Local memory and back, in parts.
        let text = "ds_store_b8 %2, %4 offset:1\nv_mov_b32 %0, 0x1234\nds_store_b16 %2, %0 offset:2\nds_load_b32 %0, %2";
        let (got, _) = run("dsst", text, 1, arch);
        for l in 0..32 {
            assert_eq!(got[l], byte(256 * l) | ((256 * l as u32) & 255) << 8 | 0x1234 << 16, "{arch}");
        }
    }
}

/// Private arrays live in a scratch of each lane of each wave; flat pointers reach scratch and LDS.
#[test]
fn scratch_is_private_and_flat_pointers_find_their_space() {
    let source = "#include \"prelude.h\"\n\
        static __device__ __attribute__((noinline)) u32 through(u32 *p, u32 i) { return p[i] + 1; }\n\
        extern \"C\" __global__ void BOUNDS(128) k(u32 *in, u32 *out) {\n\
        __shared__ u32 lds[128]; volatile u32 own[16];\n\
        for (u32 i = 0; i < 16; ++i) own[i] = in[0] * 16 * TID + i;\n\
        lds[TID] = 1000 + TID; barrier();\n\
        out[3 * TID] = through((u32 *)own, in[1]);\n\
        out[3 * TID + 1] = through(lds, 127 - TID);\n\
        out[3 * TID + 2] = through(in, 2);\n}\n";
    for arch in BOTH {
        let file = compile_source("scratch", source, arch);
        let object = CodeObject::load(&std::fs::read(&file).expect("compiled")).expect("loads");
        assert!(object.kernels().all(|k| k.scratch >= 64));
        let m = Memory::new();
        let (a, out) = (put_u32(&m, &[1, 5, 77]), put_u32(&m, &[0; 384]));
        let args = Args::new().ptr(a).ptr(out);
        args.run(&object, "k", [1, 1, 1], [128, 1, 1], &m, &Options::default()).expect("runs");
        for (t, got) in get_u32(&m, out, 384).chunks(3).enumerate() {
            let t = t as u32;
            assert_eq!(got, [16 * t + 5 + 1, 1000 + 127 - t + 1, 78], "{arch}");
        }
    }
}

/// The hardware takes any address; wide accesses stand for copies of smaller elements.
#[test]
fn wide_loads_and_stores_at_odd_addresses() {
    for arch in BOTH {
        for (name, text, words, at) in [
            ("odd64", "global_load_b64 %0, %1, off offset:2", 2, 2),
            ("odd128", "global_load_b128 %0, %1, off offset:7", 4, 7),
            ("oddf64", "flat_load_b64 %0, %1 offset:6", 2, 6),
            ("oddds64", "ds_load_b64 %0, %2 offset:2", 2, 2),
            ("odd96", "global_load_b96 %0, %1, off offset:9", 3, 9),
        ] {
            let (got, _) = run(name, text, words, arch);
            for (i, &v) in got.iter().enumerate() {
                let n = 256 * (i / words) + at + 4 * (i % words);
                assert_eq!(v, half(n) | half(n + 2) << 16, "{arch} {text}");
            }
        }
        let text = "global_load_b64 %0, %1, off offset:8\nglobal_store_b64 %1, %0, off offset:21";
        let (_, memory) = run("oddstore", text, 2, arch);
        for l in 0..32 {
            for n in 16..32 {
                let want = if (21..29).contains(&n) { byte(256 * l + n - 13) } else { byte(256 * l + n) };
                assert_eq!(memory[64 * l + n / 4] >> (8 * (n % 4)) & 255, want, "{arch} byte {n}");
            }
        }
    }
}

/// A raw buffer of 64 bytes in s[20:23], 16 in s24, 0 in s25, and four bytes a lane in `%2`.
fn buffer(third: &str, text: &str) -> String {
    format!(
        "s_mov_b64 s[20:21], %3\ns_movk_i32 s22, 64\ns_mov_b32 s23, {third}\ns_mov_b32 s24, 16\ns_mov_b32 s25, 0\n\
         v_lshrrev_b32 %2, 6, %4\n{text}"
    )
}

#[test]
fn raw_buffers_give_zero_beyond_their_records() {
    let raw = "0x31004000";
    for arch in BOTH {
        // The scalar offset moves the address but is no part of the check.
        let text = buffer(raw, "buffer_load_b32 %0, %2, s[20:23], s24 offen offset:8");
        let (got, _) = run("buf32", &text, 1, arch);
        for (l, &v) in got.iter().enumerate() {
            assert_eq!(v, if 4 * l + 8 < 64 { word(l + 6) } else { 0 }, "{arch} lane {l}");
        }
        let text = buffer(raw, "buffer_load_u16 %0, %2, s[20:23], s25 offen offset:2");
        let (got, _) = run("buf16", &text, 1, arch);
        for (l, &v) in got.iter().enumerate() {
            assert_eq!(v, if 4 * l + 2 < 64 { half(4 * l + 2) } else { 0 }, "{arch} lane {l}");
        }
        let text =
            buffer(raw, "v_lshlrev_b32 %2, 2, %2\nbuffer_load_b128 %0, %2, s[20:23], s25 offen offset:16");
        let (got, _) = run("buf128", &text, 4, arch);
        for (i, &v) in got.iter().enumerate() {
            let n = 4 * (i / 4) + 4;
            assert_eq!(v, if n < 16 { word(n + i % 4) } else { 0 }, "{arch} {i}");
        }
        // A lane whose offset wraps below the start is beyond the end.
        let text = buffer(raw, "v_sub_nc_u32 %2, 0, %2\nbuffer_load_b32 %0, %2, s[20:23], s25 offen");
        let (got, _) = run("bufneg", &text, 1, arch);
        assert!(got[0] == word(0) && got[1..].iter().all(|&v| v == 0), "{arch}");
        let text = buffer(raw, "v_mov_b32 %0, 1\nbuffer_store_b32 %0, %2, s[20:23], s24 offen offset:8");
        let (_, memory) = run("bufst", &text, 1, arch);
        for (n, &v) in memory.iter().enumerate() {
            assert_eq!(v, if (6..20).contains(&n) { 1 } else { word(n) }, "{arch} word {n}");
        }
    }
}

#[test]
fn buffers_that_no_document_settles_stop() {
    for arch in BOTH {
        let load = "buffer_load_b32 %0, %2, s[20:23], s25 offen";
        let wide = "buffer_load_b64 %0, %2, s[20:23], s25 offen";
        let stride = format!("s_bitset1_b32 s21, 20\n{load}");
        for (name, third, words, text, what) in [
            ("bufacross", "0x31004000", 2, wide, "buffer_load_b64 across the end of its buffer"),
            ("bufselect", "0x01004000", 1, load, "a buffer with OOB_SELECT 0"),
            ("bufstride", "0x31004000", 1, &stride, "a structured or swizzled buffer"),
        ] {
            let message =
                std::panic::catch_unwind(|| run(name, &buffer(third, text), words, arch)).unwrap_err();
            let message = message.downcast_ref::<String>().expect("a message");
            assert!(message.contains(&format!("not emulated: {what}")), "{message}");
        }
    }
}

#[test]
fn scalar_buffers_and_narrow_scalar_loads() {
    for arch in BOTH {
        for (at, want) in [(60, word(15)), (64, 0), (1 << 19, 0)] {
            let text =
                buffer("0x31004000", &format!("s_buffer_load_b32 s24, s[20:23], {at}\nv_mov_b32 %0, s24"));
            let (got, _) = run(&format!("sbuf{at}"), &text, 1, arch);
            assert_eq!(got, [want; 32], "{arch} at {at}");
        }
    }
    for (name, want) in
        [("u8", byte(6)), ("i8", sext(byte(6), 8)), ("u16", half(6)), ("i16", sext(half(6), 16))]
    {
        let text = format!("s_load_{name} s24, %3, 6\nv_mov_b32 %0, s24");
        assert_eq!(run(&format!("sload{name}"), &text, 1, "gfx1200").0, [want; 32], "{name}");
    }
    let (got, _) = run("sload96", "s_load_b96 s[20:22], %3, 4\nv_mov_b32 %0, s22", 1, "gfx1200");
    assert_eq!(got, [word(3); 32]);
}
