//! Bit equality with the oracle where sums are subnormal or lost: there an instruction that knows no subnormal numbers has
//! to give way. (Plain numbers and all shapes: the battery of `moss-conformance`.)

use half::bf16;

use crate::backend::{ATTENTION_BLOCK, Attention, Backend, Heads, HostData};
use crate::cpu::CpuBackend;
use crate::oracle::OracleBackend;
use crate::simd::Isa;

/// `[tokens, heads, dim]` and the options of a call.
struct Case {
    shape: [usize; 3],
    scale: f64,
    causal: bool,
    segments: Vec<usize>,
}

/// Numbers of both signs, a fifth of them zeros, with a factor for each row.
fn numbers(seed: u32, [rows, heads, dim]: [usize; 3], factor: impl Fn(usize) -> f64) -> Vec<bf16> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(state >> 16) / 32768.0 - 1.0
    };
    let mut value = |row| {
        let x = next();
        bf16::from_f64(if x.abs() < 0.2 { 0.0 } else { x * factor(row) })
    };
    (0..rows).flat_map(|row| (0..heads * dim).map(|_| value(row)).collect::<Vec<_>>()).collect()
}

fn run<B: Backend>(b: &B, case: &Case, qkv: [&[bf16]; 3]) -> Vec<bf16> {
    let [tokens, heads, dim] = case.shape;
    let up =
        |x: &[bf16]| b.upload(HostData::Bf16(x.to_vec()), &[tokens, heads * dim]).expect("it is uploaded");
    let [q, k, v] = qkv.map(up);
    let v_heads = Heads::packed(0, heads, dim);
    let o = b
        .attention(Attention {
            q: &q,
            k: &k,
            v: &v,
            v_heads,
            scale: case.scale,
            causal: case.causal,
            segments: &case.segments,
        })
        .expect("it runs");
    match b.download(&o).expect("it is downloaded") {
        HostData::Bf16(o) => o,
        HostData::F32(_) => panic!("bf16 expected"),
    }
}

/// Every isa against the oracle, whose result it returns.
fn check(case: &Case, qkv: [&[bf16]; 3]) -> Vec<bf16> {
    let expected = run(&OracleBackend, case, qkv);
    for isa in Isa::available() {
        let backend = CpuBackend::with_isa(isa, 2).expect("threads start");
        let found = run(&backend, case, qkv);
        let differ = found.iter().zip(&expected).position(|(f, e)| f.to_bits() != e.to_bits());
        assert_eq!(differ, None, "{:?}, scale {}, on {}", case.shape, case.scale, isa.name());
    }
    expected
}

fn is_subnormal(x: &bf16) -> bool {
    x.is_finite() && !x.is_normal() && *x != bf16::ZERO
}

#[test]
fn subnormal_scores_weights_and_values_keep_their_bits() {
    // Exponents of q, k and v, and the scale: scores are subnormal but count; weights fall to nothing; so do values.
    let cases =
        [([-70.0, -62.0, 0.0], f64::exp2(126.0)), ([0.0, 0.0, -120.0], 9.0), ([0.0, -130.0, -126.0], 60.0)];
    for (shape, causal) in [([101, 2, 128], false), ([67, 1, 20], true), ([40, 3, 7], true)] {
        for (exponents, scale) in cases {
            let mut seed = 0;
            let [q, k, v] = exponents.map(|exponent: f64| {
                seed += 1;
                numbers(seed, shape, |_| exponent.exp2())
            });
            let case = Case { shape, scale, causal, segments: vec![shape[0] / 3, shape[0] - shape[0] / 3] };
            check(&case, [&q, &k, &v]);
        }
    }
}

#[test]
fn outputs_that_a_later_block_makes_subnormal_keep_their_bits() {
    // The second block's scores are larger by 120 octaves; its values are zeros, so that what is left of the first shows.
    let shape = [ATTENTION_BLOCK + 20, 2, 24];
    let later = |row: usize| row >= ATTENTION_BLOCK;
    let row = |value: fn(bool) -> f64| -> Vec<bf16> {
        let numbers =
            (0..shape[0]).flat_map(|row| vec![bf16::from_f64(value(later(row))); shape[1] * shape[2]]);
        numbers.collect()
    };
    let (q, k) = (row(|_| 1.0), row(|later| if later { 5.0 } else { 0.0 }));
    let v = numbers(7, shape, |row| if later(row) { 0.0 } else { f64::exp2(-10.0) });
    let case = Case { shape, scale: std::f64::consts::LN_2, causal: false, segments: vec![shape[0]] };
    let outputs = check(&case, [&q, &k, &v]);
    assert!(outputs.iter().filter(|x| is_subnormal(x)).count() > outputs.len() / 2);
}
