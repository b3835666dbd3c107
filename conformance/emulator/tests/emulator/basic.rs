//! Launching: arguments, ids, divergence, LDS, barriers, IEEE division.

use crate::common::{Args, BOTH, Bits, get_f32, get_u32, object, put_f32, put_u32};
use moss_emulator::{Memory, Options, Order};

fn inputs(n: usize, seed: u64) -> Vec<f32> {
    let mut bits = Bits(seed);
    (0..n).map(|_| bits.unit()).collect()
}

#[test]
fn adds_with_a_ragged_end() {
    for arch in BOTH {
        let (co, m, n) = (object("basic", arch), Memory::new(), 1000);
        let (a, b) = (inputs(n, 1), inputs(n, 2));
        let (pa, pb, pc) = (put_f32(&m, &a), put_f32(&m, &b), put_f32(&m, &vec![7.0; n + 1]));
        let args = Args::new().ptr(pa).ptr(pb).ptr(pc).u32(n as u32);
        args.run(&co, "add", [4, 1, 1], [256, 1, 1], &m, &Options::default()).expect("runs");
        let c = get_f32(&m, pc, n + 1);
        for i in 0..n {
            assert_eq!(c[i], a[i] + b[i], "{arch} {i}");
        }
        assert_eq!(c[n], 7.0);
    }
}

#[test]
fn reduces_through_lds_in_any_wave_order() {
    for arch in BOTH {
        let (co, n) = (object("basic", arch), 700);
        let a = inputs(n, 3);
        for order in [Order::Forward, Order::Reverse, Order::Shuffle(1), Order::Shuffle(9)] {
            let m = Memory::new();
            let (pa, po) = (put_f32(&m, &a), put_f32(&m, &[0.0; 3]));
            let options = Options { order, ..Options::default() };
            let args = Args::new().ptr(pa).ptr(po).u32(n as u32);
            args.run(&co, "reduce", [3, 1, 1], [256, 1, 1], &m, &options).expect("runs");
            for (g, &got) in get_f32(&m, po, 3).iter().enumerate() {
                // The same tree on the host.
                let mut part: Vec<f32> =
                    (0..256).map(|i| a.get(g * 256 + i).copied().unwrap_or(0.0)).collect();
                let mut s = 128;
                while s > 0 {
                    (0..s).for_each(|i| part[i] += part[i + s]);
                    s /= 2;
                }
                assert_eq!(got, part[0], "{arch} {order:?}");
            }
        }
    }
}

#[test]
fn division_and_square_root_are_ieee() {
    let special = [
        0.0,
        -0.0,
        1.0,
        3.0,
        f32::MIN_POSITIVE,
        f32::MAX,
        f32::INFINITY,
        f32::NAN,
        1e-40,
        -1e-45,
        7e-39,
        1e38,
        3e-38,
    ];
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for &x in &special {
        for &y in &special {
            a.push(x);
            b.push(y);
        }
    }
    let mut bits = Bits(5);
    for _ in 0..2000 {
        a.push(f32::from_bits(bits.next()));
        b.push(f32::from_bits(bits.next()));
    }
    let n = a.len();
    for arch in BOTH {
        let (co, m) = (object("basic", arch), Memory::new());
        let (pa, pb) = (put_f32(&m, &a), put_f32(&m, &b));
        let (pq, pr) = (put_f32(&m, &a), put_f32(&m, &a));
        let args = Args::new().ptr(pa).ptr(pb).ptr(pq).ptr(pr).u32(n as u32);
        let grid = [n.div_ceil(256) as u32, 1, 1];
        args.run(&co, "divide", grid, [256, 1, 1], &m, &Options::default()).expect("runs");
        let (q, r) = (get_f32(&m, pq, n), get_f32(&m, pr, n));
        for i in 0..n {
            let (wq, wr) = (a[i] / b[i], b[i].abs().sqrt());
            let same = |x: f32, y: f32| x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan();
            assert!(same(q[i], wq), "{arch}: {:e} / {:e} = {:e}, not {wq:e}", a[i], b[i], q[i]);
            assert!(same(r[i], wr), "{arch}: sqrt |{:e}| = {:e}, not {wr:e}", b[i], r[i]);
        }
    }
}

#[test]
fn ids_in_three_dimensions() {
    for arch in BOTH {
        let (co, m) = (object("basic", arch), Memory::new());
        let (nx, ny, nz) = (4 * 3, 2 * 2, 3 * 2);
        let out = put_u32(&m, &vec![u32::MAX; nx * ny * nz]);
        let args = Args::new().ptr(out).u32(nx as u32).u32(ny as u32);
        args.run(&co, "index3", [3, 2, 2], [4, 2, 3], &m, &Options::default()).expect("runs");
        for (i, &v) in get_u32(&m, out, nx * ny * nz).iter().enumerate() {
            let (x, y, z) = (i % nx, i / nx % ny, i / nx / ny);
            assert_eq!(v as usize, x + 1000 * y + 1_000_000 * z, "{arch}");
        }
    }
}
