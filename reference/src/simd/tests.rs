//! Each operation of each isa against plain arithmetic on single numbers.

use super::*;
use crate::cpu::data::round_to_bf16;
use crate::simd::Run;

/// Awkward numbers: signed zeros, subnormal, ties of the bf16 rounding, the largest, infinities, NaNs.
fn numbers() -> Vec<f32> {
    let mut bits = vec![
        0,
        1,
        0x7fff,
        0x8000,
        0x8001,
        0x1_8000,
        0x007f_ffff,
        0x0080_0000,
        0x3eff_ffff,
        0x3f00_0000,
        0x3f20_0000,
        0x3f7f_7fff,
        0x3f7f_8000,
        0x3f7f_8001,
        0x3f7f_ffff,
        0x3f80_0000,
        0x3f80_7fff,
        0x3f80_8000,
        0x3f80_8001,
        0x3f81_8000,
        0x3fc0_0000,
        0x4020_0000,
        0x4b00_0001,
        0x7f7f_7fff,
        0x7f7f_8000,
        0x7f7f_ffff,
        0x7f80_0000,
        0x7f80_0001,
        0x7fc0_0000,
        0x7fff_ffff,
        0x4049_0fdb,
        0x42fd_1234,
    ];
    bits.extend(bits.clone().iter().map(|b| b | 0x8000_0000));
    let mut state = 1u32;
    while bits.len() < 512 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        bits.push(state);
    }
    bits.into_iter().map(f32::from_bits).collect()
}

simd_kernel! {
    /// All results that have one vector, for each vector of `a`, `b`, `c`, one after another.
    fn all_operations<S>(s: S, a: &[f32], b: &[f32], c: &[f32], to: &mut Vec<f32>) {
        for i in (0..a.len()).step_by(S::LANES) {
            let (a, b, c) = (s.load(&a[i..]), s.load(&b[i..]), s.load(&c[i..]));
            let n = s.min(s.splat(252.0), s.max(s.splat(-252.0), s.round(b)));
            let n = s.select(s.less(n, s.splat(300.0)), n, s.splat(3.0)); // no NaN
            let near_one = s.fma(s.splat(1e-9), s.min(s.splat(4e8), s.max(s.splat(-4e8), c)), s.splat(1.0));
            let results = [
                s.add(a, b), s.sub(a, b), s.mul(a, b), s.div(a, b), s.sqrt(a), s.fma(a, b, c), s.max(a, b),
                s.min(a, b), s.round(a), s.ldexp(near_one, n), s.exponent(s.max(s.splat(1e-37), s.abs(a))),
                s.abs(a), s.neg(a), s.copysign(s.abs(a), b), s.round_bf16(a), s.select(s.less(a, b), a, c),
            ];
            for r in results {
                let mut lanes = [0.0; MAX_LANES];
                s.store(r, &mut lanes);
                to.extend(&lanes[..S::LANES]);
            }
        }
    }
}

/// What [`all_operations`] writes, in the order of a isa with `lanes` lanes.
fn expected(lanes: usize, a: &[f32], b: &[f32], c: &[f32]) -> Vec<f32> {
    let max = |a: f32, b: f32| if a > b { a } else { b };
    let min = |a: f32, b: f32| if a < b { a } else { b };
    let mut to = Vec::new();
    for start in (0..a.len()).step_by(lanes) {
        let operations: [&dyn Fn(f32, f32, f32) -> f32; 16] = [
            &|a, b, _| a + b,
            &|a, b, _| a - b,
            &|a, b, _| a * b,
            &|a, b, _| a / b,
            &|a, _, _| a.sqrt(),
            &|a, b, c| a.mul_add(b, c),
            &|a, b, _| max(a, b),
            &|a, b, _| min(a, b),
            &|a, _, _| a.round_ties_even(),
            &|_, b, c| {
                let n = min(252.0, max(-252.0, b.round_ties_even()));
                let n = if n < 300.0 { n } else { 3.0 };
                let near_one = 1e-9f32.mul_add(min(4e8, max(-4e8, c)), 1.0);
                (f64::from(near_one) * 2f64.powi(n as i32)) as f32
            },
            &|a, _, _| {
                let a = f64::from(max(1e-37, a.abs()));
                let e = if a.is_finite() { (a / 0.75).log2().floor() } else { 128.0 };
                if a.is_nan() { f32::NAN } else { e as f32 }
            },
            &|a, _, _| a.abs(),
            &|a, _, _| -a,
            &|a, b, _| a.abs().copysign(b),
            &|a, _, _| bf16::from_f32(a).to_f32(),
            &|a, b, c| if a < b { a } else { c },
        ];
        for f in operations {
            to.extend((start..start + lanes).map(|i| f(a[i], b[i], c[i])));
        }
    }
    to
}

#[test]
fn every_path_gives_the_bits_of_plain_arithmetic() {
    let numbers = numbers();
    let len = numbers.len();
    for isa in Isa::available() {
        let lanes = isa.lanes();
        for shift in 0..64 {
            let b: Vec<f32> = (0..len).map(|i| numbers[(i + shift) % len]).collect();
            let c: Vec<f32> = (0..len).map(|i| numbers[(i * 7 + shift) % len]).collect();
            let mut found = Vec::new();
            all_operations(isa, &numbers, &b, &c, &mut found);
            let expected = expected(lanes, &numbers, &b, &c);
            assert_eq!(found.len(), expected.len());
            for (i, (f, e)) in found.iter().zip(&expected).enumerate() {
                let place = i / lanes / 16 * lanes + i % lanes;
                let operation = i / lanes % 16;
                // The exponent of a NaN is whatever its bits say.
                let same = f.to_bits() == e.to_bits() || e.is_nan() && (f.is_nan() || operation == 10);
                assert!(
                    same,
                    "{} operation {operation} of {:e}, {:e}, {:e}: {f:e}, expected {e:e}",
                    isa.name(),
                    numbers[place],
                    b[place],
                    c[place]
                );
            }
        }
    }
}

#[test]
fn bf16_rounding_is_to_nearest_even_and_keeps_nan() {
    let mut x: Vec<f32> = (0..1u32 << 16).map(|i| f32::from_bits(i << 16)).collect();
    for low in [1, 0x7fff, 0x8000, 0x8001, 0xffff] {
        x.extend((0..1u32 << 16).map(|i| f32::from_bits(i << 16 | low)));
    }
    x.push(1.0); // not a multiple of any vector
    for isa in Isa::available() {
        let mut found = vec![bf16::ZERO; x.len()];
        round_to_bf16(isa, &x, &mut found);
        for (x, y) in x.iter().zip(&found) {
            let bits = x.to_bits();
            let up = (bits & 0xffff) + (bits >> 16 & 1) > 0x8000;
            let nan = x.is_nan();
            let expected = if nan { (bits >> 16) as u16 | 0x40 } else { (bits >> 16) as u16 + u16::from(up) };
            assert_eq!(y.to_bits(), expected, "{bits:08x} on {}", isa.name());
        }
    }
}

simd_kernel! {
    fn transpose<S>(s: S, x: &[bf16], width: usize, to: &mut [f32], stride: usize) -> usize {
        assert!(width >= 2 * S::LANES && x.len() >= width * S::LANES && to.len() >= stride * 2 * S::LANES);
        let mut rows = [x.as_ptr(); MAX_LANES];
        for (i, row) in rows[..S::LANES].iter_mut().enumerate() {
            *row = x[i * width..].as_ptr();
        }
        // SAFETY: the lengths are checked above.
        #[allow(unsafe_code)]
        unsafe {
            s.transpose_bf16(&rows, to.as_mut_ptr(), stride);
        }
        S::LANES
    }
}

#[test]
fn transposition_moves_every_element() {
    let (width, stride) = (37, 19);
    let x: Vec<bf16> = (0..16 * width).map(|i| bf16::from_bits(0x3f80 + i as u16)).collect();
    for isa in Isa::available() {
        let mut to = vec![f32::NAN; 32 * stride];
        let lanes = transpose(isa, &x, width, &mut to, stride);
        for k in 0..2 * lanes {
            for r in 0..stride {
                let found = to[k * stride + r];
                if r < lanes {
                    assert_eq!(found, x[r * width + k].to_f32(), "row {r}, {k} on {}", isa.name());
                } else {
                    assert!(found.is_nan(), "nothing is written beside the rows");
                }
            }
        }
    }
}

#[test]
fn a_floor_is_the_least_exponent_and_finds_what_is_wild() {
    let floor = |numbers: &[f32]| Floor::of(&numbers.iter().map(|x| bf16::from_f32(*x)).collect::<Vec<_>>());
    let (one, tiny) = (floor(&[0.0, 3.0, -1.5]), floor(&[f32::MIN_POSITIVE, 1.0]));
    assert!(one.tame(one));
    assert!(one.tame(floor(&[-0.0, 0.0])), "zeros have no exponent");
    assert!(!one.tame(tiny));
    for wild in [f32::from_bits(0x0001_0000), f32::INFINITY, f32::NAN] {
        assert!(!floor(&[1.0, wild]).tame(one), "{wild:e}");
        assert!(!one.tame(floor(&[wild])), "{wild:e}");
    }
    // 2^-56 (128 + m) / 128: products are multiples of 2^-126, and one step lower they are not.
    let (edge, below) = (floor(&[f32::exp2(-56.0)]), floor(&[f32::exp2(-57.0)]));
    assert!(edge.tame(edge));
    assert!(!edge.tame(below));
}

/// The instruction against two fused multiply-adds wherever the floors allow it, from the edge of the subnormal numbers to
/// overflow, with cancellations.
#[test]
fn a_dot_of_tame_pairs_is_two_fused_multiply_adds() {
    let Some(dot) = Bf16Dot::new() else { return };
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    };
    let (steps, rows, columns) = (4, 8, 48);
    let mut compared = 0;
    for trial in 0..4_000 {
        // Around a common exponent, so that sums cancel; with sparse mantissas, so that they cancel to nothing.
        let (x_exponent, spread) = ([71, 90, 127, 180][trial % 4], 1 + next() % 12);
        let w_exponent = if trial % 4 == 0 { 142 - 71 } else { 127 };
        let mask = if trial % 3 == 0 { 0x8060 } else { 0x807f };
        let mut number = |exponent: u32| {
            let bits = (next() & mask) | ((exponent + next() % spread) << 7);
            bf16::from_bits(if next() % 16 == 0 { 0 } else { bits as u16 })
        };
        let x: Vec<[bf16; 2]> = (0..steps * rows).map(|_| [number(x_exponent), number(x_exponent)]).collect();
        let w: Vec<[bf16; 2]> =
            (0..steps * columns).map(|_| [number(w_exponent), number(w_exponent)]).collect();
        let floors = [&x, &w].map(|numbers| Floor::of(numbers.as_flattened()));
        assert!(floors[0].tame(floors[1]));
        let pack =
            |numbers: &[[bf16; 2]]| -> Vec<f32> { numbers.iter().map(|n| pair(n, bf16::ZERO)).collect() };
        let (a, b) = (pack(&x), pack(&w));
        for tame in [true, false] {
            let mut sums = vec![0f32; rows * columns];
            let run = Run { len: steps, a: a.as_ptr(), a_step: rows, b: b.as_ptr() };
            // SAFETY: `a` has `rows` numbers for each step, `b` and the sums those of a panel of three vectors.
            #[allow(unsafe_code)]
            unsafe {
                dot.rows_at_least::<3>(rows, tame, run, sums.as_mut_ptr());
            }
            for (i, found) in sums.iter().enumerate() {
                let (r, c) = (i / columns, i % columns);
                let expected = (0..2 * steps).fold(0f32, |acc, k| {
                    let (x, w) = (x[k / 2 * rows + r][k % 2], w[k / 2 * columns + c][k % 2]);
                    x.to_f32().mul_add(w.to_f32(), acc)
                });
                let equal = found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan());
                assert!(equal, "trial {trial}, tame {tame}: {found:e}, {expected:e} expected");
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 4_000 * 2 * rows * columns);
}
