//! Bit equality with the definition written as plain loops, for sizes that straddle vectors, panels, row blocks, tasks
//! and slices, on every isa, with one and two threads.

use super::*;
use crate::backend::HostData;
use crate::cpu::data::upload;
use crate::simd::math::scalar;

const SIZES: [usize; 9] = [1, 15, 16, 17, 31, 33, 63, 64, 65];

/// Numbers around 1 of both signs, with some zeros of both signs and some large ones.
fn numbers(count: usize, seed: u32) -> Vec<bf16> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 16
    };
    let value = |bits: u32, size: u32| {
        let unit = bits as f32 / 32768.0 - 1.0;
        match size % 23 {
            0 => unit * 0.0,
            1 => unit * 40.0,
            _ => unit,
        }
    };
    (0..count).map(|_| bf16::from_f32(value(next(), next()))).collect()
}

fn round(x: f32) -> f32 {
    bf16::from_f32(x).to_f32()
}

/// The bf16 output of the product for every token and weight row.
fn products(x: &[bf16], w: &[bf16], bias: Option<&[bf16]>, k: usize) -> Vec<Vec<f32>> {
    let row = |x: &[bf16]| {
        let dot =
            |w: &[bf16]| x.iter().zip(w).fold(0.0f32, |acc, (x, w)| x.to_f32().mul_add(w.to_f32(), acc));
        let outputs = w.chunks(k).map(dot).enumerate();
        outputs.map(|(n, acc)| round(bias.map_or(acc, |bias| acc + bias[n].to_f32()))).collect()
    };
    x.chunks(k).map(row).collect()
}

fn backends() -> Vec<CpuBackend> {
    let all = Isa::available().into_iter().flat_map(|isa| [1, 2].map(|t| CpuBackend::with_isa(isa, t)));
    all.collect::<Result<_, _>>().expect("threads start")
}

fn assert_bits(found: &CpuTensor, expected: &[f32], what: &str) {
    let found = found.bf16();
    assert_eq!(found.len(), expected.len());
    for (i, (f, e)) in found.iter().zip(expected).enumerate() {
        let e = bf16::from_f32(*e);
        assert_eq!(f.to_bits(), e.to_bits(), "{what}: element {i} is {f}, {e} expected");
    }
}

#[test]
fn linear_equals_the_definition_for_all_sizes() {
    let backends = backends();
    let (all_x, all_w) = (numbers(65 * 65, 1), numbers(65 * 65, 2));
    let (all_residual, all_gate) = (numbers(65 * 65, 3), numbers(65, 4));
    for (case, (t, n, k)) in SIZES
        .iter()
        .flat_map(|&t| SIZES.iter().flat_map(move |&n| SIZES.iter().map(move |&k| (t, n, k))))
        .enumerate()
    {
        let (x, w) = (&all_x[..t * k], &all_w[..n * k]);
        let (residual, gate) = (&all_residual[..t * n], &all_gate[..n]);
        let bias = (case % 2 == 0).then_some(gate);
        let y = products(x, w, bias, k);
        let up = |v: &[bf16], shape: &[usize]| upload(HostData::Bf16(v.to_vec()), shape);
        let (tx, tw) = (up(x, &[t, k]), up(w, &[n, k]));
        let (tresidual, tgate) = (up(residual, &[t, n]), up(gate, &[1, n]));
        let tbias = bias.map(|bias| up(bias, &[n]));
        let finish = |f: &dyn Fn(f32, usize, usize) -> f32| -> Vec<f32> {
            y.iter()
                .enumerate()
                .flat_map(|(t, row)| row.iter().enumerate().map(move |(c, &y)| f(y, t, c)))
                .collect()
        };
        let at = |t: usize, c: usize| residual[t * n + c].to_f32();
        // Two of the four epilogues for each size, all four for the largest.
        let kinds = if case == 728 { vec![0, 1, 2, 3] } else { vec![case % 4, (case / 4 + 2) % 4] };
        for kind in kinds {
            let expected = match kind {
                0 => finish(&|y, _, _| y),
                1 => finish(&|y, _, _| scalar::silu(y)),
                2 => finish(&|y, t, c| at(t, c) + y),
                _ => finish(&|y, t, c| at(t, c) + round(y * gate[c].to_f32())),
            };
            for backend in &backends {
                let epilogue = match kind {
                    0 => Epilogue::None,
                    1 => Epilogue::Silu,
                    2 => Epilogue::Residual(&tresidual),
                    _ => Epilogue::GatedResidual { residual: &tresidual, gate: &tgate },
                };
                let found = linear(backend, &tx, &tw, tbias.as_ref(), epilogue);
                let what = format!("epilogue {kind} of [{t}, {k}] x [{n}, {k}] on {}", backend.isa().name());
                assert_bits(&found, &expected, &what);
            }
        }
    }
}

#[test]
fn gated_units_equal_the_definition() {
    let backends = backends();
    for (case, (t, f, k)) in
        [(1, 1, 1), (3, 17, 33), (16, 65, 31), (15, 64, 64), (33, 129, 65)].into_iter().enumerate()
    {
        let (x, w, bias) = (numbers(t * k, 5), numbers(2 * f * k, 6), numbers(2 * f, 7));
        let bias = (case % 2 == 1).then_some(bias);
        let y = products(&x, &w, bias.as_deref(), k);
        let tx = upload(HostData::Bf16(x), &[t, k]);
        let tw = upload(HostData::Bf16(w), &[2 * f, k]);
        let tbias = bias.map(|bias| upload(HostData::Bf16(bias), &[2 * f]));
        for glu in [Glu::Silu, Glu::Situ] {
            let unit = |u: f32, g: f32| match glu {
                Glu::Silu => round(scalar::silu(g)) * u,
                Glu::Situ => {
                    let a = round(4.0 * round(scalar::tanh(round(g / 4.0))));
                    let p = round(a * round(scalar::sigmoid(g)));
                    p * round(25.0 * round(scalar::tanh(round(u / 25.0))))
                }
            };
            let expected: Vec<f32> =
                y.iter().flat_map(|row| (0..f).map(move |c| unit(row[c], row[f + c]))).collect();
            for backend in &backends {
                let found = linear_glu(backend, &tx, &tw, tbias.as_ref(), glu);
                assert_bits(&found, &expected, &format!("{glu:?} {t} {f} {k} on {}", backend.isa().name()));
            }
        }
    }
}

#[test]
fn long_sums_and_many_tasks_keep_the_order() {
    // More than two slices of k, more than one task of rows and of columns, with ends that fit nothing.
    let (t, n, k) =
        (TASK_BLOCKS * tile_rows(MAX_LANES) + 5, TASK_PANELS * panel_width(MAX_LANES) + 7, 2 * SLICE + 37);
    let (x, w) = (numbers(t * k, 8), numbers(n * k, 9));
    let expected = products(&x, &w, None, k).concat();
    let tx = upload(HostData::Bf16(x), &[t, k]);
    let tw = upload(HostData::Bf16(w), &[n, k]);
    for backend in backends() {
        let found = linear(&backend, &tx, &tw, None, Epilogue::None);
        assert_bits(&found, &expected, backend.isa().name());
    }
}

#[test]
fn a_weight_of_several_parts_is_one_matrix() {
    let (t, k) = (5, 40);
    let (x, w) = (numbers(t * k, 10), numbers(70 * k, 11));
    let expected = products(&x, &w, None, k).concat();
    let rows = Rows { parts: vec![&w[..3 * k], &w[3 * k..40 * k], &w[40 * k..]], width: k };
    for i in 0..70 {
        assert!(std::ptr::eq(rows.row(i), &w[i * k..(i + 1) * k]));
    }
    let tx = upload(HostData::Bf16(x), &[t, k]);
    let tw = upload(HostData::Bf16(w), &[70, k]);
    for backend in backends() {
        assert_bits(&linear(&backend, &tx, &tw, None, Epilogue::None), &expected, backend.isa().name());
    }
}

/// `linear` on every isa against the definition; returns the outputs.
fn check(x: &[bf16], w: &[bf16], k: usize) -> Vec<f32> {
    let expected = products(x, w, None, k).concat();
    let up = |v: &[bf16]| upload(HostData::Bf16(v.to_vec()), &[v.len() / k, k]);
    for backend in backends() {
        let found = linear(&backend, &up(x), &up(w), None, Epilogue::None);
        assert_bits(&found, &expected, backend.isa().name());
    }
    expected
}

#[test]
fn subnormal_numbers_and_sums_keep_their_bits() {
    // Every third row of x and w is tiny, in places subnormal; their products are subnormal or lost.
    let (t, n, k) = (37, 150, SLICE + 5);
    let scaled = |numbers: Vec<bf16>, exponents: [f64; 4]| -> Vec<bf16> {
        let scale = |row: usize| if row % 3 == 1 { exponents[row % 4].exp2() } else { 1.0 };
        let value = |(at, x): (usize, bf16)| bf16::from_f64(x.to_f64() * scale(at / k));
        numbers.into_iter().enumerate().map(value).collect()
    };
    let x = scaled(numbers(t * k, 12), [-64.0, -70.0, -126.0, -133.0]);
    let w = scaled(numbers(n * k, 13), [-58.0, -62.0, -10.0, -130.0]);
    let outputs = check(&x, &w, k);
    let subnormal = outputs.iter().filter(|y| **y != 0.0 && y.abs() < f32::MIN_POSITIVE).count();
    assert!(subnormal > 0, "no output is subnormal");
}

#[test]
fn a_subnormal_sum_is_carried_into_the_next_slice() {
    // Products around 2^-128 at first, then around 2^-110: exact beside the others, and alone they are normal.
    let k = 4 * SLICE;
    let row = |seed: u32| -> Vec<bf16> {
        let small = |(i, x): (usize, bf16)| {
            let exponent = if i < 2 * SLICE { -64.0 } else { -55.0 };
            bf16::from_f64(f64::exp2(exponent) * if x > bf16::ZERO { 1.0 } else { -1.5 })
        };
        numbers(k, seed).into_iter().enumerate().map(small).collect()
    };
    let rows = |seed: u32, count: u32| -> Vec<bf16> { (0..count).flat_map(|i| row(seed + i)).collect() };
    let (x, w) = (rows(20, 11), rows(40, 70));
    let outputs = check(&x, &w, k);
    let start =
        |rows: &[bf16]| -> Vec<bf16> { rows.chunks(k).flat_map(|r| &r[..2 * SLICE]).copied().collect() };
    let carried = products(&start(&x), &start(&w), None, 2 * SLICE).concat();
    assert!(carried.iter().any(|y| *y != 0.0 && y.abs() < f32::MIN_POSITIVE));
    assert!(outputs.iter().all(|y| *y == 0.0 || y.abs() >= f32::MIN_POSITIVE));
}

#[test]
fn infinities_and_overflow_keep_their_bits() {
    let (t, n, k) = (9, 50, 70);
    let mut x = numbers(t * k, 14);
    let mut w = numbers(n * k, 15);
    x[3] = bf16::INFINITY;
    w[5 * k + 3] = bf16::from_f32(2.0);
    for i in 0..k {
        x[4 * k + i] = bf16::MAX;
        w[7 * k + i] = bf16::from_f32(if i < 40 { 1.5 } else { -1.0 });
    }
    let expected = products(&x, &w, None, k).concat();
    assert!(expected.iter().any(|y| y.is_infinite()));
    let is_nan: Vec<bool> = expected.iter().map(|y| y.is_nan()).collect();
    for backend in backends() {
        let x = upload(HostData::Bf16(x.clone()), &[t, k]);
        let w = upload(HostData::Bf16(w.clone()), &[n, k]);
        let found = linear(&backend, &x, &w, None, Epilogue::None);
        for (i, found) in found.bf16().iter().enumerate() {
            let equal = if is_nan[i] { found.is_nan() } else { found.to_f32() == expected[i] };
            assert!(equal, "element {i} is {found}, {} expected, on {}", expected[i], backend.isa().name());
        }
    }
}
