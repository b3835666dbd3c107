//! Short encodings that have no long one, moves by M0, and scalar estimates in the vector encoding.

use super::{
    GENERATIONS, Random, find,
    half::fma,
    operand::{Mode, T, pattern, pattern32, same, value},
    trial::{f16_bits, f32_bits, run, set_vector, vector, wave},
    trials,
};
use crate::{arch::Gen, isa::Format};

/// The forms that are tested here.
pub(super) const NAMES: [&str; 20] = [
    "v_fmaak_f32",
    "v_fmamk_f32",
    "v_fmaak_f16",
    "v_fmamk_f16",
    "s_fmaak_f32",
    "s_fmamk_f32",
    "v_movreld_b32",
    "v_movrels_b32",
    "v_movrelsd_b32",
    "v_swap_b32",
    "v_s_exp_f32",
    "v_s_log_f32",
    "v_s_rcp_f32",
    "v_s_rsq_f32",
    "v_s_sqrt_f32",
    "v_s_exp_f16",
    "v_s_log_f16",
    "v_s_rcp_f16",
    "v_s_rsq_f16",
    "v_s_sqrt_f16",
];

/// Calls `f` with the opcode, `trials` times in each generation that has the form.
fn each(name: &str, formats: &[Format], mut f: impl FnMut(Gen, u32, &mut Random)) {
    for generation in GENERATIONS {
        let Some((_, op)) = find(name, generation, formats) else { continue };
        let mut r = Random::new(name);
        (0..trials()).for_each(|_| f(generation, op.into(), &mut r));
    }
}

fn check(words: &[u32], generation: Gen, w: &mut crate::exec::wave::Wave) {
    if let Err(hit) = run(w, generation, words) {
        panic!("{generation:?} {words:08x?}: {}", hit.what);
    }
}

/// a b + c of f32 or halves.
fn sum(t: T, a: u64, b: u64, c: u64) -> u64 {
    match t {
        T::F16 => fma(value(t, a), value(t, b), value(t, c)),
        _ => f32_bits((value(t, a) as f32).mul_add(value(t, b) as f32, value(t, c) as f32)),
    }
}

#[test]
fn vector_fmas_with_a_constant() {
    for (name, t) in
        [("v_fmaak_f32", T::F32), ("v_fmamk_f32", T::F32), ("v_fmaak_f16", T::F16), ("v_fmamk_f16", T::F16)]
    {
        each(name, &[Format::Valu], |generation, op, r| {
            let mode = Mode::random(generation == Gen::Gfx11, r);
            let mut w = wave(mode.bits(), u32::MAX);
            let [a, b]: [[u64; 32]; 2] =
                std::array::from_fn(|_| std::array::from_fn(|_| u64::from(pattern(t, r) as u32)));
            let k = if t == T::F16 { pattern(t, r) as u32 & 0xffff } else { pattern32(r) };
            set_vector(&mut w, 10, &a, false);
            set_vector(&mut w, 20, &b, false);
            set_vector(&mut w, 40, &[0; 32], false);
            check(&[(op - 0x100) << 25 | 40 << 17 | 20 << 9 | (256 + 10), k], generation, &mut w);
            for l in 0..32 {
                let of = |x: u64| mode.operand(t, if t == T::F16 { x & 0xffff } else { x }, false, false);
                let (a, b, k) = (of(a[l]), of(b[l]), of(k.into()));
                let want = if name.contains("aak") { sum(t, a, b, k) } else { sum(t, a, k, b) };
                let want = mode.result(t, want, 0, false);
                let got = vector(&w, 40, l, false);
                assert!(same(t, got, want), "{generation:?} {name} {mode:?}: {got:#x}, not {want:#x}");
            }
        });
    }
}

#[test]
fn scalar_fmas_with_a_constant() {
    for name in ["s_fmaak_f32", "s_fmamk_f32"] {
        each(name, &[Format::Sop2], |generation, op, r| {
            let mode = Mode::random(generation == Gen::Gfx11, r);
            let mut w = wave(mode.bits(), u32::MAX);
            let [a, b, k] = [pattern32(r), pattern32(r), pattern32(r)];
            w.set_s(20, a);
            w.set_s(24, b);
            check(&[2 << 30 | op << 23 | 40 << 16 | 24 << 8 | 20, k], generation, &mut w);
            let [a, b, k] = [a, b, k].map(|x| mode.operand(T::F32, x.into(), false, false));
            let want = if name.contains("aak") { sum(T::F32, a, b, k) } else { sum(T::F32, a, k, b) };
            let want = mode.result(T::F32, want, 0, false);
            let got = u64::from(w.scalar(40));
            assert!(same(T::F32, got, want), "{generation:?} {name} {mode:?}: {got:#x}, not {want:#x}");
        });
    }
}

#[test]
fn moves_and_swaps() {
    for (name, source, dest) in
        [("v_movreld_b32", 0, 3), ("v_movrels_b32", 3, 0), ("v_movrelsd_b32", 3, 3), ("v_swap_b32", 0, 0)]
    {
        each(name, &[Format::Valu], |generation, op, r| {
            let exec = r.u32();
            let mut w = wave(0x3f0, exec);
            w.set_s(125, 3);
            let [a, d]: [[u64; 32]; 2] = std::array::from_fn(|_| std::array::from_fn(|_| r.u32().into()));
            set_vector(&mut w, 10 + source, &a, false);
            set_vector(&mut w, 40 + dest, &d, false);
            check(&[0x3f << 25 | 40 << 17 | (op - 0x180) << 9 | (256 + 10)], generation, &mut w);
            for l in 0..32 {
                let on = exec >> l & 1 == 1;
                assert_eq!(vector(&w, 40 + dest, l, false), if on { a[l] } else { d[l] }, "{name}");
                let swapped = on && name == "v_swap_b32";
                assert_eq!(vector(&w, 10 + source, l, false), if swapped { d[l] } else { a[l] }, "{name}");
            }
        });
    }
}

#[test]
fn scalar_estimates() {
    type Function = fn(f64) -> f64;
    let functions: [(&str, Function); 5] = [
        ("exp", f64::exp2),
        ("log", f64::log2),
        ("rcp", |x| 1.0 / x),
        ("rsq", |x| 1.0 / x.sqrt()),
        ("sqrt", f64::sqrt),
    ];
    for (name, f) in functions {
        for (kind, t) in [("f32", T::F32), ("f16", T::F16)] {
            each(&format!("v_s_{name}_{kind}"), &[Format::Valu], |generation, op, r| {
                let mode = Mode::random(false, r);
                // Estimates of f32 see and give no subnormals in any mode.
                let mode = if t == T::F32 { Mode { in32: false, out32: false, ..mode } } else { mode };
                let mut w = wave(mode.bits(), u32::MAX);
                let x = pattern(t, r) as u32;
                w.set_s(20, x);
                check(&[0x35 << 26 | op << 16 | 40, 20], generation, &mut w);
                let x = if t == T::F16 { x & 0xffff } else { x };
                let v = f(value(t, mode.operand(t, x.into(), false, false)));
                let want = if t == T::F16 { f16_bits(v) } else { f32_bits(v as f32) };
                let want = mode.result(t, want, 0, false);
                let got = u64::from(w.scalar(40));
                assert!(same(t, got, want), "v_s_{name}_{kind} {mode:?} of {x:#x}: {got:#x}, not {want:#x}");
            });
        }
    }
}
