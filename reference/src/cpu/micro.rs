//! The innermost loop of `linear` and `conv2d`: a tile of accumulators that stays in registers while `k` runs.
//!
//! A tile is up to [`tile_rows`] rows (tokens, pixels) by a *panel* of [`panel_width`] columns (outputs). `a` holds, for
//! each `k`, the rows' values side by side; `b` holds, for each `k`, the panel's weights side by side. Each accumulator is
//! one lane of a register, fed by one fma for each `k` in ascending order; between calls it rests in memory, so a sum may
//! be cut anywhere without a change in its bits.

use crate::simd::{Run, Simd};

/// Most rows of a tile: what the registers hold beside a panel's vectors and a broadcast.
pub(super) const fn tile_rows(lanes: usize) -> usize {
    if lanes == 16 { 8 } else { 6 }
}

/// Vectors of a panel. With the 32 registers of AVX-512, 8 rows by 3 vectors need fewer loads a product than 14 by 2.
pub(super) const fn panel_vectors(lanes: usize) -> usize {
    if lanes == 16 { 3 } else { 2 }
}

/// Columns of a panel.
pub(super) const fn panel_width(lanes: usize) -> usize {
    panel_vectors(lanes) * lanes
}

/// Numbers whose first lies at the start of a cache line, so that no vector of a panel crosses two.
#[derive(Default)]
pub(super) struct Aligned {
    numbers: Vec<f32>,
    start: usize,
    len: usize,
}

impl Aligned {
    /// `len` zeros.
    pub(super) fn zeros(len: usize) -> Self {
        let mut aligned = Self { numbers: vec![0.0; len + LINE - 1], ..Self::default() };
        aligned.resize(len);
        aligned
    }

    /// Has `len` numbers from now on, old ones or zeros; the memory is used again.
    pub(super) fn resize(&mut self, len: usize) {
        self.numbers.resize(len + LINE - 1, 0.0);
        self.start = self.numbers.as_ptr().align_offset(LINE * size_of::<f32>());
        self.len = len;
    }

    /// Becomes `len` zeros; the memory is used again.
    pub(super) fn fill_zeros(&mut self, len: usize) {
        self.resize(len);
        self.fill(0.0);
    }
}

/// Numbers in a cache line.
const LINE: usize = 16;

impl std::ops::Deref for Aligned {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.numbers[self.start..self.start + self.len]
    }
}

impl std::ops::DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.numbers[self.start..self.start + self.len]
    }
}

/// `c[r][v] = fma(a[k][r], b[k][v], c[r][v])` for `k` ascending, `MR` rows, `NV` vectors.
///
/// # Safety
/// For each of `run.len` steps `MR` numbers can be read at `a` and `NV * LANES` at `b`; `MR * NV * LANES` numbers at `c` can
/// be read and written.
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn tile<S: Simd, const MR: usize, const NV: usize>(s: S, run: Run, c: *mut f32) {
    let Run { len, mut a, a_step, mut b } = run;
    let mut acc = [[s.splat(0.0); NV]; MR];
    // SAFETY: the caller vouches for every place that is read or written.
    unsafe {
        for r in 0..MR {
            for v in 0..NV {
                acc[r][v] = s.load_at(c.add((r * NV + v) * S::LANES));
            }
        }
        for _ in 0..len {
            let mut w = [s.splat(0.0); NV];
            for v in 0..NV {
                w[v] = s.load_at(b.add(v * S::LANES));
            }
            for r in 0..MR {
                let x = s.splat(*a.add(r));
                for v in 0..NV {
                    acc[r][v] = s.fma(x, w[v], acc[r][v]);
                }
            }
            a = a.add(a_step);
            b = b.add(NV * S::LANES);
        }
        for r in 0..MR {
            for v in 0..NV {
                s.store_at(acc[r][v], c.add((r * NV + v) * S::LANES));
            }
        }
    }
}

/// At least the first `rows` rows of a tile, `rows` from 1 to [`tile_rows`]; further rows of the tile may be computed too.
///
/// # Safety
/// As for [`tile`], with `MR` = [`tile_rows`].
#[inline(always)]
#[allow(unsafe_code)]
pub(super) unsafe fn rows_at_least<S: Simd, const NV: usize>(s: S, rows: usize, run: Run, c: *mut f32) {
    // SAFETY: no size is above `tile_rows`.
    unsafe {
        if S::LANES == 16 {
            match rows {
                1 => tile::<S, 1, NV>(s, run, c),
                2 => tile::<S, 2, NV>(s, run, c),
                3..=4 => tile::<S, 4, NV>(s, run, c),
                _ => tile::<S, 8, NV>(s, run, c),
            }
        } else {
            match rows {
                1 => tile::<S, 1, NV>(s, run, c),
                2 => tile::<S, 2, NV>(s, run, c),
                3..=4 => tile::<S, 4, NV>(s, run, c),
                _ => tile::<S, 6, NV>(s, run, c),
            }
        }
    }
}

/// Rows `first .. first + rows` of a tile and no others.
///
/// # Safety
/// As for [`tile`], for the rows named; `first + rows <= tile_rows`.
#[inline(always)]
#[allow(unsafe_code)]
pub(super) unsafe fn rows_exactly<S: Simd, const NV: usize>(
    s: S,
    first: usize,
    rows: usize,
    run: Run,
    c: *mut f32,
) {
    let (mut first, end) = (first, first + rows);
    // SAFETY: each piece stays within the rows named.
    unsafe {
        while first < end {
            let piece = Run { a: run.a.add(first), ..run };
            let c = c.add(first * NV * S::LANES);
            first += match end - first {
                8.. if S::LANES == 16 => {
                    tile::<S, 8, NV>(s, piece, c);
                    8
                }
                6.. if S::LANES < 16 => {
                    tile::<S, 6, NV>(s, piece, c);
                    6
                }
                4.. => {
                    tile::<S, 4, NV>(s, piece, c);
                    4
                }
                2.. => {
                    tile::<S, 2, NV>(s, piece, c);
                    2
                }
                _ => {
                    tile::<S, 1, NV>(s, piece, c);
                    1
                }
            };
        }
    }
}
