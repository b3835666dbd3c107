//! A bf16 matrix product with LDS double buffering on the matrix unit.

use moss_emulator::{MatrixModel, Memory, Options, Order, Report};

use crate::common::{Args, BOTH, Bits, get_u16, object, put_u16};

/// bf16 of an f32, nearest even.
fn bf16(x: f32) -> u16 {
    let u = x.to_bits();
    ((u + 0x7fff + (u >> 16 & 1)) >> 16) as u16
}

fn value(x: u16) -> f32 {
    f32::from_bits(u32::from(x) << 16)
}

fn run(arch: &str, a: &[u16], b: &[u16], [m, n, k]: [usize; 3], options: &Options) -> (Vec<u16>, Report) {
    let (co, mem) = (object("gemm", arch), Memory::new());
    let (pa, pb, pc) = (put_u16(&mem, a), put_u16(&mem, b), mem.alloc((2 * m * n) as u64));
    let args = Args::new().ptr(pa).ptr(pb).ptr(pc).u32(m as u32).u32(n as u32).u32(k as u32);
    let grid = [(n / 64) as u32, (m / 64) as u32, 1];
    let report = args.run(&co, "gemm", grid, [128, 1, 1], &mem, options);
    let report = report.unwrap_or_else(|e| panic!("{arch}: {e}"));
    (get_u16(&mem, pc, m * n), report)
}

fn random(n: usize, seed: u64) -> Vec<u16> {
    let mut bits = Bits(seed);
    (0..n).map(|_| bf16(bits.unit())).collect()
}

#[test]
fn equals_the_chain_of_fmas_in_any_wave_order() {
    let [m, n, k] = [128, 192, 80];
    let (a, b) = (random(m * k, 1), random(n * k, 2));
    let want: Vec<u16> = (0..m * n)
        .map(|i| {
            let (r, c) = (i / n, i % n);
            bf16((0..k).fold(0.0f32, |s, x| value(a[r * k + x]).mul_add(value(b[c * k + x]), s)))
        })
        .collect();
    for arch in BOTH {
        for order in [Order::Forward, Order::Reverse, Order::Shuffle(7)] {
            for threads in [1, 3] {
                let options = Options { order, threads, ..Options::default() };
                assert!(run(arch, &a, &b, [m, n, k], &options).0 == want, "{arch} {order:?}");
            }
        }
    }
}

#[test]
fn models_move_few_results_and_only_a_little() {
    let shape = [128, 128, 64];
    let (a, b) = (random(128 * 64, 3), random(128 * 64, 4));
    let of = |model| run("gfx1200", &a, &b, shape, &Options { model, ..Options::default() }).0;
    let chain = of(MatrixModel::FmaChain);
    for other in MatrixModel::ALL.map(of) {
        let mut count = 0;
        for (i, (&x, &y)) in chain.iter().zip(&other).enumerate().filter(|(_, (x, y))| x != y) {
            let (r, c) = (i / 128, i % 128);
            let sum: f32 = (0..64).map(|k| (value(a[r * 64 + k]) * value(b[c * 64 + k])).abs()).sum();
            // 64 roundings of partial sums no larger than the sum of magnitudes, then one place of bf16.
            let place = value(x).abs() * 2f32.powi(-7);
            let bound = 64.0 * sum * f32::EPSILON + place;
            assert!((value(x) - value(y)).abs() <= bound, "{x:#x} {y:#x}");
            count += 1;
        }
        // A relative difference of 2^-20 crosses a bf16 rounding boundary once in about 2^11 results.
        assert!(count < 64, "{count} of {} results moved", chain.len());
    }
}

#[test]
fn the_exact_model_rounds_the_exact_sum() {
    let shape = [64, 64, 16];
    let (a, b) = (random(64 * 16, 3), random(64 * 16, 4));
    for arch in BOTH {
        let options = Options { model: MatrixModel::Exact, ..Options::default() };
        for (i, &got) in run(arch, &a, &b, shape, &options).0.iter().enumerate() {
            let (r, c) = (i / 64, i % 64);
            // 16 products of bf16 near 1 fit an f64 exactly.
            let products = (0..16).map(|x| f64::from(value(a[r * 16 + x])) * f64::from(value(b[c * 16 + x])));
            assert_eq!(got, bf16(products.sum::<f64>() as f32), "{arch}");
        }
    }
}

#[test]
fn reports_its_speed() {
    let shape = [256, 256, 256];
    let (a, b) = (random(256 * 256, 5), random(256 * 256, 6));
    for arch in BOTH {
        let options = Options { threads: 1, histogram: true, ..Options::default() };
        let (_, report) = run(arch, &a, &b, shape, &options);
        let wmma =
            report.histogram.iter().filter(|(n, _)| n.starts_with("v_wmma")).map(|(_, n)| n).sum::<u64>();
        assert_eq!(wmma, 16 * 16 * 16);
        assert_eq!(report.histogram.values().sum::<u64>(), report.instructions);
        let rate = report.instructions as f64 / report.seconds / 1e6;
        eprintln!("{arch}: {} wave instructions, {rate:.2} M/s on one thread", report.instructions);
    }
}
