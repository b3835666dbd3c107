//! The initial noise: `torch.randn` of torch's CPU generator.
//!
//! MT19937 seeded with the low 32 bits of the seed; 24-bit uniforms; Box-Muller in blocks of 16 that pairs
//! element `j` with `j + 8`. Logarithm, sine and cosine are the single-precision ones of Cephes (Moshier) with
//! every multiply-add fused, as torch computes them on any processor with AVX2: there the noise is torch's bit
//! for bit. (On a processor without AVX2 torch calls the C library instead and differs from itself elsewhere.)

use std::f32::consts::{FRAC_1_SQRT_2, PI};

/// Cephes `logf` for normal `x > 0`.
fn log(x: f32) -> f32 {
    const P: [f32; 9] = [
        7.037_683_6e-2,
        -1.151_461e-1,
        1.167_699_87e-1,
        -1.242_014_1e-1,
        1.424_932_3e-1,
        -1.666_805_8e-1,
        2.000_071_4e-1,
        -2.499_999_4e-1,
        3.333_333e-1,
    ];
    let bits = x.to_bits();
    let mut e = ((bits >> 23) as i32 - 126) as f32;
    let mut m = f32::from_bits((bits & 0x007f_ffff) | 0x3f00_0000);
    if m < FRAC_1_SQRT_2 {
        e -= 1.0;
        m = (m - 1.0) + m;
    } else {
        m -= 1.0;
    }
    let z = m * m;
    let y = P[1..].iter().fold(P[0], |y, &p| y.mul_add(m, p)) * m;
    let y = y.mul_add(z, e * -2.121_944_4e-4) - z * 0.5;
    e.mul_add(0.693_359_4, m + y)
}

/// Cephes `sinf` and `cosf` for `0 <= x < 8192`: `(sin, cos)`.
fn sin_cos(x: f32) -> (f32, f32) {
    const FOUR_OVER_PI: f32 = 1.273_239_5;
    // pi / 4 in three parts.
    const DP: [f32; 3] = [-0.785_156_25, -2.418_756_5e-4, -3.774_895e-8];
    let octant = ((x * FOUR_OVER_PI) as i32 + 1) & !1;
    let y = octant as f32;
    let x = DP.iter().fold(x, |x, &dp| y.mul_add(dp, x));
    let z = x * x;
    let c = 2.443_315_7e-5f32.mul_add(z, -1.388_731_6e-3).mul_add(z, 4.166_664_6e-2) * z;
    let c = c.mul_add(z, -(z * 0.5)) + 1.0;
    let s = (-1.951_529_6e-4f32).mul_add(z, 8.332_161e-3).mul_add(z, -1.666_665_5e-1) * z;
    let s = s.mul_add(x, x);
    let (sin, cos) = if octant & 2 == 0 { (s, c) } else { (c, s) };
    let sin = if octant & 4 == 0 { sin } else { -sin };
    let cos = if (octant - 2) & 4 == 0 { -cos } else { cos };
    (sin, cos)
}

/// Mersenne Twister MT19937 (Matsumoto, Nishimura 1998), 32-bit output.
struct Mt19937 {
    state: [u32; 624],
    next: usize,
}

impl Mt19937 {
    fn new(seed: u32) -> Self {
        let mut state = [seed; 624];
        for i in 1..624 {
            let previous = state[i - 1];
            state[i] = (previous ^ (previous >> 30)).wrapping_mul(1_812_433_253).wrapping_add(i as u32);
        }
        Self { state, next: 624 }
    }

    fn refill(&mut self) {
        for i in 0..624 {
            let y = (self.state[i] & 0x8000_0000) | (self.state[(i + 1) % 624] & 0x7fff_ffff);
            let twist = if y & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[i] = self.state[(i + 397) % 624] ^ (y >> 1) ^ twist;
        }
        self.next = 0;
    }

    fn next_u32(&mut self) -> u32 {
        if self.next == 624 {
            self.refill();
        }
        let mut y = self.state[self.next];
        self.next += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }

    /// A multiple of 2^-24 in [0, 1).
    fn uniform(&mut self) -> f32 {
        (self.next_u32() & 0x00ff_ffff) as f32 * 2f32.powi(-24)
    }
}

/// One block of Box-Muller: uniforms in, normals out.
fn box_muller(block: &mut [f32]) {
    for j in 0..8 {
        let radius = (-2.0 * log(1.0 - block[j])).sqrt();
        let (sin, cos) = sin_cos(2.0 * PI * block[j + 8]);
        block[j] = radius * cos;
        block[j + 8] = radius * sin;
    }
}

/// `len` standard normals for `seed`, as `torch.randn(len, generator=torch.Generator("cpu").manual_seed(seed))`.
///
/// `len` is at least 16 (below that torch takes another path; latents never do).
///
/// # Panics
/// If `len < 16`.
pub fn randn(seed: u64, len: usize) -> Vec<f32> {
    assert!(len >= 16, "randn: len {len}, at least 16 expected");
    let mut generator = Mt19937::new(seed as u32);
    let mut values: Vec<f32> = (0..len).map(|_| generator.uniform()).collect();
    let whole = len - len % 16;
    for block in values[..whole].chunks_exact_mut(16) {
        box_muller(block);
    }
    if whole < len {
        // torch draws the last 16 values again when the length is no multiple of 16.
        let tail = &mut values[len - 16..];
        tail.iter_mut().for_each(|v| *v = generator.uniform());
        box_muller(tail);
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generator_gives_the_published_values() {
        // The 10000th output for seed 5489 is fixed by the C++ standard, [rand.predef].
        let mut generator = Mt19937::new(5489);
        let last = (0..10_000).map(|_| generator.next_u32()).last();
        assert_eq!(last, Some(4_123_659_995));
    }

    #[test]
    fn log_sin_and_cos_are_close_to_the_true_ones() {
        for i in 1..=1u32 << 16 {
            let u = i as f32 / 65536.0;
            // Cephes states a relative error below 2^-23 on these ranges; sin and cos near a zero lose what the
            // three-part reduction leaves, 2^-23 absolute.
            let l = f64::from(u).ln();
            assert!((f64::from(log(u)) - l).abs() <= 2f64.powi(-22) * l.abs().max(1e-30), "log {u}");
            let x = 2.0 * PI * (u - 1.0 / 65536.0);
            let (s, c) = sin_cos(x);
            assert!((f64::from(s) - f64::from(x).sin()).abs() <= 2f64.powi(-23), "sin {x}");
            assert!((f64::from(c) - f64::from(x).cos()).abs() <= 2f64.powi(-23), "cos {x}");
        }
    }

    #[test]
    fn seeds_beyond_32_bits_wrap_as_in_torch() {
        assert_eq!(randn(7, 32), randn(7 + (1 << 32), 32));
        assert_ne!(randn(7, 32), randn(8, 32));
    }

    #[test]
    fn a_ragged_tail_is_drawn_again() {
        let (even, ragged) = (randn(3, 48), randn(3, 40));
        assert_eq!(even[..24], ragged[..24]);
        assert_ne!(even[24..40], ragged[24..40]);
    }

    #[test]
    fn moments_are_those_of_a_standard_normal() {
        let n = 1 << 18;
        let values = randn(42, n);
        let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / n as f64;
        let var = values.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / n as f64;
        // Five standard errors.
        assert!(mean.abs() < 5.0 / (n as f64).sqrt(), "mean {mean}");
        assert!((var - 1.0).abs() < 5.0 * (2.0 / n as f64).sqrt(), "var {var}");
    }
}
