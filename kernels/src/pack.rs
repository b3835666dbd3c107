//! The order in which weights lie on the device.
//!
//! **Matrices** `[n, k]` bf16 are cut into panels of 16 rows (the last one filled up with zero rows), panels into fragments of
//! 16 columns. Panels follow one another; in a panel fragments follow one another along `k`; a fragment is 16 rows of 16
//! elements, 512 bytes: what one matrix instruction eats, and what a wave of 32 lanes reads with one 16-byte load a lane on
//! gfx12 (on gfx11, whose lane halves repeat each other, with two). Element `(r, c)` is at
//! `((r / 16) * (k / 16) + c / 16) * 256 + (r % 16) * 16 + c % 16`.
//!
//! **Up and gate** `[2F, k]` lie as panels of *up* and *gate* in turn, so that a tile has both for the same outputs: panel `2p`
//! holds the rows `16p..` of up, panel `2p + 1` the rows `16p..` of gate.
//!
//! **Convolution kernels** `[out, in, side, side]` f32 lie as `[side, side, in, out']`, `out'` being `out` rounded up to a
//! multiple of 4, filled with zeros.

use std::ops::Range;

use half::bf16;

/// Rows of a panel and columns of a fragment.
pub const TILE: usize = 16;

/// A weight whose sizes the kernels do not take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PackError {
    /// Columns are no multiple of 16.
    #[error("[{n}, {k}]: the kernels take matrices whose columns are a multiple of {TILE}")]
    Columns {
        /// Rows.
        n: usize,
        /// Columns.
        k: usize,
    },
    /// Up and gate rows are no multiple of 16 each.
    #[error("[{n}, {k}]: the kernels take up and gate matrices whose rows are a multiple of {TILE} each")]
    UpGateRows {
        /// Rows of both.
        n: usize,
        /// Columns.
        k: usize,
    },
    /// A convolution of another kind.
    #[error(
        "[{outputs}, {inputs}, {side}, {side}]: the kernels take 1x1 and 3x3 convolutions whose inputs are a multiple of {TILE}"
    )]
    Conv {
        /// Output channels.
        outputs: usize,
        /// Input channels.
        inputs: usize,
        /// Side of the kernel.
        side: usize,
    },
}

/// A matrix cut into panels; a panel is the unit in which it is read, packed and streamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panels {
    n: usize,
    k: usize,
    up_gate: bool,
}

impl Panels {
    /// The operand of `linear`.
    ///
    /// # Errors
    /// [`PackError::Columns`].
    pub fn matrix(n: usize, k: usize) -> Result<Self, PackError> {
        if n == 0 || k == 0 || !k.is_multiple_of(TILE) {
            return Err(PackError::Columns { n, k });
        }
        Ok(Self { n, k, up_gate: false })
    }

    /// The operand of `linear_glu`: rows of *up*, then of *gate*.
    ///
    /// # Errors
    /// [`PackError::Columns`], [`PackError::UpGateRows`].
    pub fn up_gate(n: usize, k: usize) -> Result<Self, PackError> {
        if n == 0 || !n.is_multiple_of(2 * TILE) {
            return Err(PackError::UpGateRows { n, k });
        }
        Ok(Self { up_gate: true, ..Self::matrix(n, k)? })
    }

    /// Columns.
    pub fn columns(&self) -> usize {
        self.k
    }

    /// Number of panels.
    pub fn count(&self) -> usize {
        self.n.div_ceil(TILE)
    }

    /// Bytes of a packed panel.
    pub fn panel_bytes(&self) -> usize {
        TILE * self.k * 2
    }

    /// Bytes of the packed matrix.
    pub fn bytes(&self) -> usize {
        self.count() * self.panel_bytes()
    }

    /// The rows of the matrix that a panel holds; fewer than 16 at the end.
    pub fn rows(&self, panel: usize) -> Range<usize> {
        let start = if self.up_gate { (panel / 2) * TILE + (panel % 2) * self.n / 2 } else { panel * TILE };
        start..self.n.min(start + TILE)
    }

    /// Packs one panel: `rows` are the elements of [`Panels::rows`], row-major; `out` has [`Panels::panel_bytes`].
    pub fn pack(&self, rows: &[bf16], out: &mut [u8]) {
        assert_eq!(out.len(), self.panel_bytes(), "bytes of a panel");
        assert!(rows.len().is_multiple_of(self.k) && rows.len() <= TILE * self.k, "rows of a panel");
        for (fragment, out) in out.chunks_exact_mut(TILE * TILE * 2).enumerate() {
            for (row, out) in out.chunks_exact_mut(TILE * 2).enumerate() {
                let from = row * self.k + fragment * TILE;
                match rows.get(from..from + TILE) {
                    Some(row) => {
                        for (to, x) in out.chunks_exact_mut(2).zip(row) {
                            to.copy_from_slice(&x.to_le_bytes());
                        }
                    }
                    None => out.fill(0),
                }
            }
        }
    }

    /// Packs a whole matrix, row-major.
    pub fn pack_all(&self, matrix: &[bf16]) -> Vec<u8> {
        assert_eq!(matrix.len(), self.n * self.k, "elements of the matrix");
        let mut out = vec![0; self.bytes()];
        for (panel, out) in out.chunks_exact_mut(self.panel_bytes()).enumerate() {
            let rows = self.rows(panel);
            self.pack(&matrix[rows.start * self.k..rows.end * self.k], out);
        }
        out
    }
}

/// The kernel of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv {
    outputs: usize,
    inputs: usize,
    side: usize,
}

impl Conv {
    /// `[outputs, inputs, side, side]`.
    ///
    /// # Errors
    /// [`PackError::Conv`].
    pub fn new(outputs: usize, inputs: usize, side: usize) -> Result<Self, PackError> {
        if outputs == 0 || inputs == 0 || !inputs.is_multiple_of(TILE) || !matches!(side, 1 | 3) {
            return Err(PackError::Conv { outputs, inputs, side });
        }
        Ok(Self { outputs, inputs, side })
    }

    /// Bytes of the packed kernel.
    pub fn bytes(&self) -> usize {
        self.side * self.side * self.inputs * self.outputs.next_multiple_of(4) * 4
    }

    /// Packs `kernel`, row-major, into `out` of [`Conv::bytes`].
    pub fn pack(&self, kernel: &[f32], out: &mut [u8]) {
        let Self { outputs, inputs, side } = *self;
        let area = side * side;
        assert_eq!(kernel.len(), outputs * inputs * area, "elements of the kernel");
        assert_eq!(out.len(), self.bytes(), "bytes of the packed kernel");
        for (row, out) in out.chunks_exact_mut(outputs.next_multiple_of(4) * 4).enumerate() {
            let (tap, input) = (row / inputs, row % inputs);
            for (output, out) in out.chunks_exact_mut(4).enumerate() {
                let x = if output < outputs { kernel[(output * inputs + input) * area + tap] } else { 0.0 };
                out.copy_from_slice(&x.to_le_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(len: usize) -> Vec<bf16> {
        (0..len).map(|i| bf16::from_bits(i as u16)).collect()
    }

    fn element(packed: &[u8], at: usize) -> u16 {
        u16::from_le_bytes([packed[2 * at], packed[2 * at + 1]])
    }

    #[test]
    fn every_element_of_a_matrix_is_where_the_formula_says() {
        for (n, k) in [(1, 16), (15, 32), (16, 48), (17, 16), (40, 80)] {
            let panels = Panels::matrix(n, k).expect("sizes fit");
            let packed = panels.pack_all(&counted(n * k));
            assert_eq!(packed.len(), n.next_multiple_of(16) * k * 2);
            for r in 0..n.next_multiple_of(16) {
                for c in 0..k {
                    let at = ((r / 16) * (k / 16) + c / 16) * 256 + (r % 16) * 16 + c % 16;
                    let expected = if r < n { (r * k + c) as u16 } else { 0 };
                    assert_eq!(element(&packed, at), expected, "{n}x{k}: ({r}, {c})");
                }
            }
        }
    }

    #[test]
    fn panels_of_up_and_gate_alternate() {
        let (n, k) = (96, 16);
        let panels = Panels::up_gate(n, k).expect("sizes fit");
        let packed = panels.pack_all(&counted(n * k));
        for f in 0..n / 2 {
            for (half, row) in [(0, f), (1, n / 2 + f)] {
                let at = (2 * (f / 16) + half) * 256 + (f % 16) * 16;
                assert_eq!(element(&packed, at), (row * k) as u16, "row {row}");
            }
        }
    }

    #[test]
    fn convolution_kernels_are_turned_and_filled_up() {
        let (outputs, inputs, side) = (3, 16, 3);
        let conv = Conv::new(outputs, inputs, side).expect("sizes fit");
        let kernel: Vec<f32> = (0..outputs * inputs * 9).map(|i| i as f32 + 1.0).collect();
        let mut packed = vec![0xff; conv.bytes()];
        conv.pack(&kernel, &mut packed);
        let packed: Vec<f32> = packed.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        assert_eq!(packed.len(), 9 * inputs * 4);
        for (i, &x) in packed.iter().enumerate() {
            let (o, c, tap) = (i % 4, i / 4 % inputs, i / 4 / inputs);
            let expected = if o < outputs { kernel[(o * inputs + c) * 9 + tap] } else { 0.0 };
            assert_eq!(x, expected, "tap {tap}, input {c}, output {o}");
        }
    }

    #[test]
    fn sizes_that_do_not_fit_are_named() {
        assert_eq!(Panels::matrix(5, 24), Err(PackError::Columns { n: 5, k: 24 }));
        assert_eq!(Panels::up_gate(48, 16), Err(PackError::UpGateRows { n: 48, k: 16 }));
        assert_eq!(Conv::new(8, 16, 5), Err(PackError::Conv { outputs: 8, inputs: 16, side: 5 }));
        let text = Conv::new(8, 8, 3).expect_err("8 inputs").to_string();
        assert!(text.starts_with("[8, 8, 3, 3]: the kernels take"), "{text}");
    }
}
