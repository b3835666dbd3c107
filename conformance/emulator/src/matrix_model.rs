//! How matrix instructions and dot products sum: named models, as no public source defines what silicon does.

use crate::numeric::{add_odd, exp2i};

/// The order and the roundings of C + a0 b0 + a1 b1 + ... in f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatrixModel {
    /// C first, k ascending, one f32 fma each: what the reference does.
    #[default]
    FmaChain,
    /// The products by fma, k ascending, and C last.
    ProductsFirst,
    /// C, then the exact sum of two products at a time, one rounding a pair.
    Pairs,
    /// All products and C exactly, one rounding.
    Exact,
    /// Pairs of products on a common grid with complemented opposing addends, as measured on gfx1151.
    SiliconGfx1151,
}

impl MatrixModel {
    /// Every model, the reference's first.
    pub const ALL: [Self; 5] =
        [Self::FmaChain, Self::ProductsFirst, Self::Pairs, Self::Exact, Self::SiliconGfx1151];

    /// The model of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|model| model.name() == name)
    }

    /// The name that [`MatrixModel::by_name`] takes.
    pub fn name(self) -> &'static str {
        match self {
            Self::FmaChain => "fma-chain",
            Self::ProductsFirst => "products-first",
            Self::Pairs => "pairs",
            Self::Exact => "exact",
            Self::SiliconGfx1151 => "silicon-gfx1151",
        }
    }

    /// What it sums, in one line.
    pub fn description(self) -> &'static str {
        match self {
            Self::FmaChain => "C, then the products in order of k, one f32 fma each: the reference's order",
            Self::ProductsFirst => "the products in order of k, one f32 fma each, and C last",
            Self::Pairs => "C, then the exact sum of two products at a time, rounded once a pair",
            Self::Exact => "C and all products exactly, rounded once",
            Self::SiliconGfx1151 => {
                "as measured on gfx1151: C and two products at a time, cut to a common grid, \
                 opposing addends complemented, bf16 subnormals zero"
            }
        }
    }

    /// The names of all models with commas, for messages.
    pub fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    /// C and the products of A and B, k ascending; `bf16` elements may lose their subnormals.
    pub(crate) fn sum(self, bf16: bool, c: f32, products: &[(f32, f32)]) -> f32 {
        let fma = |c: f32, &(a, b): &(f32, f32)| a.mul_add(b, c);
        let pairs = products.chunks(2);
        match self {
            Self::FmaChain => products.iter().fold(c, fma),
            // -0 is the neutral start: the first fma is the rounded product.
            Self::ProductsFirst => c + products.iter().fold(-0.0, fma),
            Self::Pairs => pairs.fold(c, exact),
            Self::Exact => exact(c, products),
            Self::SiliconGfx1151 => pairs.fold(c, |c, pair| silicon(bf16, c, pair)),
        }
    }
}

/// a + b rounded, and what the rounding lost.
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let s = a + b;
    let t = s - a;
    (s, (a - (s - t)) + (b - t))
}

/// The sum of c and the products, rounded once.
fn exact(c: f32, products: &[(f32, f32)]) -> f32 {
    let terms = || products.iter().map(|&(a, b)| f64::from(a) * f64::from(b));
    let mut lost = 0.0;
    let plain = terms().fold(f64::from(c), |s, x| {
        let (s, err) = two_sum(s, x);
        lost += err.abs();
        s
    });
    // Nothing was lost on the way; a NaN says that there is no finite sum.
    if lost == 0.0 || lost.is_nan() {
        return plain as f32;
    }
    // Non-overlapping partial sums, smallest first: no bit is lost.
    let mut partials: Vec<f64> = Vec::with_capacity(products.len() + 1);
    for mut x in std::iter::once(f64::from(c)).chain(terms()) {
        let mut kept = 0;
        for n in 0..partials.len() {
            let (s, err) = two_sum(x, partials[n]);
            if err != 0.0 {
                partials[kept] = err;
                kept += 1;
            }
            x = s;
        }
        partials.truncate(kept);
        partials.push(x);
    }
    // Rounding each partial sum to odd keeps what the last rounding must know.
    partials.into_iter().fold(0.0, |s, p| add_odd(p, s)) as f32
}

/// c + a0 b0 + a1 b1 as reported for gfx1151: addends cut to a common grid, those of the other sign than
/// c's complemented bit by bit, one rounding at the end. bf16 subnormal operands count as zero.
fn silicon(bf16: bool, c: f32, pair: &[(f32, f32)]) -> f32 {
    let flush = |x: f32| if bf16 && x.is_subnormal() { 0.0f32.copysign(x) } else { x };
    let pair = |n: usize| pair.get(n).map_or((0.0, 0.0), |&(a, b)| (flush(a), flush(b)));
    let pairs = [pair(0), pair(1)];
    let products = pairs.map(|(a, b)| f64::from(a) * f64::from(b));
    let plain = products[0] + products[1];
    if !c.is_finite() || !plain.is_finite() {
        return (f64::from(c) + plain) as f32;
    }
    // Every f32, subnormal ones too, is normal as an f64.
    let exponent =
        |x: f32| if x == 0.0 { -1000 } else { (f64::from(x).to_bits() >> 52 & 0x7ff) as i32 - 1023 };
    let largest = pairs.iter().map(|&(a, b)| exponent(a) + exponent(b)).fold(exponent(c), i32::max);
    if largest <= -1000 {
        return c + plain as f32;
    }
    // The reported example, -1 + 3 * 8 + 8 * 4 = 55 + 2^-18, fixes the grid at 2^-24 of the largest.
    let grid = largest - 24;
    let (lsb, per_unit) = (exp2i(grid), exp2i(-grid));
    let negative = c.is_sign_negative();
    let total: i64 = [f64::from(c), products[0], products[1]]
        .into_iter()
        .filter(|&x| x != 0.0)
        .map(|x| {
            let units = (x.abs() * per_unit) as i64;
            if x.is_sign_negative() == negative { units } else { !units }
        })
        .sum();
    let magnitude = total as f64 * lsb;
    (if negative { -magnitude } else { magnitude }) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use MatrixModel::*;

    #[test]
    fn names_are_distinct_and_found() {
        for model in MatrixModel::ALL {
            assert_eq!(MatrixModel::by_name(model.name()), Some(model));
            assert!(!model.description().is_empty());
        }
        assert_eq!(MatrixModel::by_name("guess"), None);
        assert_eq!(MatrixModel::default(), MatrixModel::ALL[0]);
    }

    #[test]
    fn models_differ_as_named() {
        let pairs = [(3.0, 8.0), (8.0, 4.0)];
        assert_eq!(FmaChain.sum(true, -1.0, &pairs), 55.0);
        assert_eq!(SiliconGfx1151.sum(true, -1.0, &pairs), 55.0 + 2f32.powi(-18));
        // 2^24 + 1 + 1 + 1 + 1: the chain loses every one, pairs and the exact sum keep them all.
        let ones = [(1.0, 1.0); 4];
        let big = 2f32.powi(24);
        let got = MatrixModel::ALL.map(|m| m.sum(true, big, &ones) - big);
        assert_eq!(got, [0.0, 4.0, 4.0, 4.0, 4.0]);
        // 1 + 1 + 2^24 + 2^24: the order of the large ones decides what the products' own sum loses.
        let mixed = [(1.0, 1.0), (big, 1.0), (1.0, 1.0), (1.0, 1.0)];
        let got = MatrixModel::ALL.map(|m| m.sum(true, big, &mixed) - 2.0 * big);
        assert_eq!(got, [0.0, 0.0, 0.0, 4.0, 0.0]);
    }

    /// The elements, their products and every partial sum are integers of this unit.
    const UNIT: i32 = -44;

    fn units(x: f32) -> i128 {
        (f64::from(x) * exp2i(-UNIT)) as i128
    }

    fn rounded(x: i128) -> f32 {
        (f64::from(x as f32) * exp2i(UNIT)) as f32
    }

    /// The definitions over integers.
    fn naive(model: MatrixModel, c: f32, products: &[(f32, f32)]) -> f32 {
        let product = |&(a, b): &(f32, f32)| (units(a) * units(b)) >> -UNIT;
        match model {
            FmaChain => products.iter().fold(c, |c, p| rounded(units(c) + product(p))),
            ProductsFirst => {
                let sum = products.iter().fold(0.0, |s, p| rounded(units(s) + product(p)));
                rounded(units(sum) + units(c))
            }
            Pairs => {
                products.chunks(2).fold(c, |c, p| rounded(units(c) + p.iter().map(product).sum::<i128>()))
            }
            Exact => rounded(units(c) + products.iter().map(product).sum::<i128>()),
            SiliconGfx1151 => products.chunks(2).fold(c, |c, p| {
                let top = |x: f32| if x == 0.0 { -1000 } else { units(x.abs()).ilog2() as i32 + UNIT };
                let exponents = p.iter().map(|&(a, b)| top(a) + top(b));
                let grid = exponents.fold(top(c), i32::max) - 24;
                let addends = [units(c), product(&p[0]), product(&p[1])].map(|x| {
                    let cut = x.abs() >> (grid - UNIT);
                    if x == 0 || (x < 0) == c.is_sign_negative() { cut } else { -cut - 1 }
                });
                let sum = rounded(addends.iter().sum::<i128>() << (grid - UNIT));
                if c.is_sign_negative() { -sum } else { sum }
            }),
        }
    }

    #[test]
    fn every_model_is_its_formula() {
        let mut state = 5u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as u32
        };
        let mut differs = [0; 5];
        for round in 0..4000 {
            // Eight significant bits, as bf16 has them; a wide or a narrow range of exponents.
            let spread = if round % 2 == 0 { 16 } else { 3 };
            let mut element = || {
                let m = (128 + next() % 128) as f32 * if next() % 2 == 0 { 1.0 } else { -1.0 };
                m * 2f32.powi((next() % spread) as i32 - 16)
            };
            let products: [(f32, f32); 16] = std::array::from_fn(|_| (element(), element()));
            let c = element() * element() * 1.0009766;
            for (n, model) in MatrixModel::ALL.into_iter().enumerate() {
                let (got, want) = (model.sum(true, c, &products), naive(model, c, &products));
                assert_eq!(got.to_bits(), want.to_bits(), "{}: {got:e}, not {want:e}", model.name());
                differs[n] += u32::from(got != naive(Exact, c, &products));
            }
        }
        // Each of the others rounds more often than once, and that shows.
        assert_eq!(differs[3], 0);
        assert!([0, 1, 2, 4].iter().all(|&n| differs[n] > 400), "{differs:?}");
    }

    #[test]
    fn exact_rounds_once() {
        // The f64 sum 1 + 2^-24 + 2^-60 is a double-rounding trap: it must round up.
        let tiny = (2f32.powi(-30), 2f32.powi(-30));
        let half_ulp = (2f32.powi(-12), 2f32.powi(-12));
        assert_eq!(exact(1.0, &[half_ulp, tiny]), 1.0 + f32::EPSILON);
        assert_eq!(exact(1.0, &[half_ulp]), 1.0);
        assert_eq!(exact(1.0, &[(-1.0, 1.0)]), 0.0);
        assert!(exact(f32::INFINITY, &[(f32::NEG_INFINITY, 1.0)]).is_nan());
        assert_eq!(exact(1.0, &[(f32::INFINITY, 1.0), (2f32.powi(-100), 1.0)]), f32::INFINITY);
    }

    #[test]
    fn silicon_flushes_bf16_subnormals_only() {
        let sub = f32::from_bits(0x0040_0000);
        let big = 2f32.powi(100);
        assert_eq!(silicon(true, 0.0, &[(sub, big), (0.0, 0.0)]), 0.0);
        assert_eq!(silicon(false, 0.0, &[(2f32.powi(-24), 1.0), (0.0, 0.0)]), 2f32.powi(-24));
    }
}
