//! Pairs of bf16 numbers, and what makes their sums safe for instructions that know no subnormal numbers.

use half::bf16;

/// The one or two `numbers` in 32 bits, the first in the upper half and `absent` for an absent second; as an f32 that is only
/// ever moved. Where an absent number meets one in the other operand, zeros of different signs are the ones that change no
/// sum, not even `-0`.
#[inline(always)]
pub(crate) fn pair(numbers: &[bf16], absent: bf16) -> f32 {
    let second = *numbers.get(1).unwrap_or(&absent);
    f32::from_bits(u32::from(numbers[0].to_bits()) << 16 | u32::from(second.to_bits()))
}

/// A bound below for the magnitudes of some bf16 numbers: the least exponent, as its bits say it, of those that are not zero;
/// 255 when all are zero, 0 when one is subnormal, infinite or a NaN.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Floor(u8);

impl Floor {
    /// No numbers, or zeros.
    pub(crate) const NONE: Self = Self(255);

    /// The floor of `numbers`.
    #[inline(always)]
    pub(crate) fn of(numbers: &[bf16]) -> Self {
        let (mut least, mut most) = (u16::MAX, 0);
        for x in numbers {
            let bits = x.to_bits() & 0x7fff;
            least = least.min(bits.wrapping_sub(1));
            most = most.max(bits);
        }
        Self::of_magnitudes(least, most)
    }

    /// From the least of all magnitudes' bits, each less one and zeros wrapped around, and from the largest.
    #[inline(always)]
    pub(crate) fn of_magnitudes(least_less_one: u16, most: u16) -> Self {
        match (most, least_less_one) {
            (0x7f80.., _) => Self(0),
            (_, u16::MAX) => Self::NONE,
            (_, least) => Self(((least + 1) >> 7) as u8),
        }
    }

    /// Whether no sum of products of numbers above these floors, added up from zero in any order, can be subnormal, nor any
    /// of the numbers.
    ///
    /// A normal bf16 number with exponent `e` is a multiple of `2^(e - 134)`; products are multiples of `2^(e + f - 268)`,
    /// and so are their sums, however they were rounded. If that is at least `2^-126`, a sum is zero or normal.
    #[inline(always)]
    pub(crate) fn tame(self, other: Self) -> bool {
        self.0 != 0 && other.0 != 0 && u16::from(self.0) + u16::from(other.0) >= 268 - 126
    }
}
