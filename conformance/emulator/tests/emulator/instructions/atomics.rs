//! Atomics on global memory and LDS, with and without the old value.

use moss_emulator::{CodeObject, Memory, Options};

use crate::common::{Args, BOTH, compile_source, get_u32, put_u32};

type Op = fn(u32, u32) -> u32;

/// Name on global memory, name on LDS, and the new value of (old, data).
const OPS: [(&str, &str, Op); 11] = [
    ("add_u32", "add_rtn_u32", |a, b| a.wrapping_add(b)),
    ("sub_u32", "sub_rtn_u32", |a, b| a.wrapping_sub(b)),
    ("min_i32", "min_rtn_i32", |a, b| if (b as i32) < a as i32 { b } else { a }),
    ("max_i32", "max_rtn_i32", |a, b| if b as i32 > a as i32 { b } else { a }),
    ("min_u32", "min_rtn_u32", |a, b| if b < a { b } else { a }),
    ("max_u32", "max_rtn_u32", |a, b| if b > a { b } else { a }),
    ("and_b32", "and_rtn_b32", |a, b| a & b),
    ("or_b32", "or_rtn_b32", |a, b| a | b),
    ("xor_b32", "xor_rtn_b32", |a, b| a ^ b),
    ("swap_b32", "storexchg_rtn_b32", |_, b| b),
    ("add_f32", "add_rtn_f32", |a, b| (f32::from_bits(a) + f32::from_bits(b)).to_bits()),
];

fn inputs(n: u32) -> (u32, u32) {
    let mix = |x: u32| x.wrapping_mul(0x9e37_79b9) ^ x.rotate_left(13);
    // Small floats in half of the lanes, any bits in the others.
    if n.is_multiple_of(2) {
        ((n as f32 * 0.75).to_bits(), (1.5 - n as f32).to_bits())
    } else {
        (mix(n) & !0x4000_0000, mix(n + 99) & !0x4000_0000)
    }
}

#[test]
fn return_the_old_value_and_store_the_new_one() {
    for arch in BOTH {
        let flag = if arch == "gfx1200" { "th:TH_ATOMIC_RETURN" } else { "glc" };
        let mut source = "#include \"prelude.h\"\n".to_owned();
        for (n, (global, ds, _)) in OPS.iter().enumerate() {
            let body = format!(
                "u32 v = in[64 + TID], old = 5, old2 = 5, keep = 5; __shared__ u32 x[32]; x[TID] = in[TID]; u32 *p = in + TID;\n\
                 u32 at = (u32)(u64)(__attribute__((address_space(3))) u32 *)&x[TID];\n\
                 asm volatile(\"global_atomic_{global} %0, %1, %2, off {flag}\" : \"+v\"(old) : \"v\"(p), \"v\"(v) : \"memory\");\n\
                 asm volatile(\"ds_{ds} %0, %1, %2\" : \"+v\"(old2) : \"v\"(at), \"v\"(v) : \"memory\");\n\
                 asm volatile(\"global_atomic_{global} %1, %2, off offset:128\" : \"+v\"(keep) : \"v\"(p), \"v\"(v) : \"memory\");\n\
                 out[TID] = old; out[32 + TID] = old2; out[64 + TID] = x[TID]; out[96 + TID] = keep;"
            );
            source.push_str(&format!(
                "extern \"C\" __global__ void BOUNDS(32) k{n}(u32 *in, u32 *out) {{\n{body}\n}}\n"
            ));
        }
        let file = compile_source("atomics", &source, arch);
        moss_emulator::compare_with_objdump("llvm-objdump-19", &file).unwrap_or_else(|e| panic!("{e}"));
        let object = CodeObject::load(&std::fs::read(&file).expect("compiled")).expect("loads");
        for (n, (name, _, op)) in OPS.iter().enumerate() {
            let m = Memory::new();
            let (old, data): (Vec<u32>, Vec<u32>) = (0..32).map(inputs).unzip();
            let (a, out) = (put_u32(&m, &[&old[..], &old[..], &data[..]].concat()), put_u32(&m, &[0; 128]));
            let args = Args::new().ptr(a).ptr(out);
            args.run(&object, &format!("k{n}"), [1, 1, 1], [32, 1, 1], &m, &Options::default())
                .unwrap_or_else(|e| panic!("{arch} {name}: {e}"));
            let (after, got) = (get_u32(&m, a, 64), get_u32(&m, out, 128));
            for l in 0..32 {
                let new = op(old[l], data[l]);
                assert_eq!([after[l], after[32 + l], got[64 + l]], [new; 3], "{arch} {name} lane {l}");
                assert_eq!([got[l], got[32 + l], got[96 + l]], [old[l], old[l], 5], "{arch} {name} lane {l}");
            }
        }
    }
}

#[test]
fn many_workgroups_count_without_loss() {
    let source = "#include \"prelude.h\"\n\
        extern \"C\" __global__ void BOUNDS(64) k(u32 *n) {\n\
        __shared__ u32 x; if (TID == 0) x = 0; barrier();\n\
        __atomic_fetch_add(&x, TID, __ATOMIC_RELAXED); barrier();\n\
        if (TID == 0) __atomic_fetch_add(n, x, __ATOMIC_RELAXED);\n}\n";
    for arch in BOTH {
        let file = compile_source("count", source, arch);
        let object = CodeObject::load(&std::fs::read(&file).expect("compiled")).expect("loads");
        let m = Memory::new();
        let n = put_u32(&m, &[0]);
        let options = Options { threads: 4, ..Options::default() };
        Args::new().ptr(n).run(&object, "k", [100, 1, 1], [64, 1, 1], &m, &options).expect("runs");
        assert_eq!(get_u32(&m, n, 1), [100 * 63 * 32], "{arch}");
    }
}
