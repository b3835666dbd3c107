//! `conv2d` as an implicit matrix product over the tiles of [`super::micro`]: rows are pixels, `k` is `(ky, kx, ci)`.
//!
//! The picture is worked off in bands of rows. A band of input rows (normalised, activated, doubled, as asked) is laid out
//! in blocks of [`tile_rows`] neighbouring pixels and one more on either side, channel outermost: what a tile reads for a
//! channel lies side by side, and `kx` only moves the start by one. Nothing else is ever copied, so the memory beside
//! input and output is one band. At the border the taps outside the picture are left out, not multiplied by zero.

use rayon::prelude::*;

use super::lanes;
use super::micro::{self, Aligned, panel_width, rows_at_least, rows_exactly, tile_rows};
use super::tensor::Buffer;
use super::{CpuBackend, CpuTensor};
use crate::backend::Conv2d;
use crate::backend::shapes::{self, ConvShape};
use crate::simd::math;
use crate::simd::{Isa, Run, Simd, simd_kernel};

/// Input channels that one run takes: with three vectors of 16 lanes, 18 KiB of weights.
const SLICE: usize = 96;
/// Bytes of a band of laid-out input rows.
const BAND_BYTES: usize = 16 << 20;
/// Bytes of laid-out input that one task reads: about half of a second-level cache.
const TASK_BYTES: usize = 1 << 20;
/// Pixel blocks of one task at most.
const TASK_BLOCKS: usize = 112;

/// A convolution in progress.
struct Conv<'a> {
    shape: ConvShape,
    /// The input picture, `[h, w, inputs]`.
    x: &'a [f32],
    /// The picture is doubled first.
    upsample: bool,
    /// `a` and `b` of the norm, and whether silu follows.
    norm: Option<(&'a [f32], &'a [f32], bool)>,
    /// `[panel][ky][kx][ci][column]`; see [`panel_vectors`].
    weights: Aligned,
    bias: &'a [f32],
    residual: Option<&'a [f32]>,
    out: Output,
}

/// The result's memory, written by many tasks.
struct Output(*mut f32);

// SAFETY: tasks write disjoint pixels of the result.
#[allow(unsafe_code)]
unsafe impl Sync for Output {}

/// Laid-out input rows from `first` on.
#[derive(Default)]
struct Band {
    first: usize,
    rows: Aligned,
}

/// One task's pixels: rows `row .. row + rows`, pixel blocks `block .. block + blocks` of each.
#[derive(Clone, Copy)]
struct Area {
    row: usize,
    rows: usize,
    block: usize,
    blocks: usize,
}

impl Conv<'_> {
    /// Pixels on either side of a pixel that the kernel reaches.
    fn reach(&self) -> usize {
        self.shape.kernel / 2
    }
}

/// Pixel blocks in a row.
fn blocks(shape: &ConvShape, lanes: usize) -> usize {
    shape.width.div_ceil(tile_rows(lanes))
}

/// Numbers of a laid-out pixel block.
fn block_len(shape: &ConvShape, lanes: usize) -> usize {
    shape.inputs * (tile_rows(lanes) + 2)
}

/// [`crate::backend::Backend::conv2d`].
pub fn conv2d(backend: &CpuBackend, x: &CpuTensor, conv: Conv2d<'_, CpuTensor>) -> CpuTensor {
    let shape = shapes::conv2d(x, &conv);
    let Conv2d { weight: w, bias, norm, upsample, residual } = conv;
    let isa = backend.isa();
    let ConvShape { height, width, inputs, outputs, .. } = shape;
    let mut out = Buffer::zeros(height * width * outputs);
    backend.run(|| {
        let conv = Conv {
            shape,
            x: x.f32(),
            upsample,
            norm: norm.map(|(ab, silu)| {
                let (a, b) = ab.f32().split_at(inputs);
                (a, b, silu)
            }),
            weights: pack_weights(isa, w.f32(), &shape),
            bias: bias.f32(),
            residual: residual.map(CpuTensor::f32),
            out: Output(out.as_mut_ptr()),
        };
        let row_len = blocks(&shape, isa.lanes()) * block_len(&shape, isa.lanes());
        let band_rows = (BAND_BYTES / 4 / row_len).max(4);
        let mut band = Band::default();
        for row in (0..height).step_by(band_rows) {
            run_band(isa, &conv, row, band_rows.min(height - row), &mut band);
        }
    });
    CpuTensor::from_buffer(out, &[height, width, outputs])
}

/// Vectors of the panel that starts at output `column`: no more than hold what is left.
fn panel_vectors(outputs: usize, column: usize, lanes: usize) -> usize {
    (outputs - column).div_ceil(lanes).min(micro::panel_vectors(lanes))
}

/// `w` `[co, ci, k, k]` to `[panel][ky][kx][ci][column]`; columns without an output are zeros.
fn pack_weights(isa: Isa, w: &[f32], shape: &ConvShape) -> Aligned {
    let taps = shape.kernel * shape.kernel;
    let (inputs, lanes) = (shape.inputs, isa.lanes());
    let most = panel_width(lanes);
    let mut packed = Aligned::zeros(shape.outputs.div_ceil(most) * taps * inputs * most);
    let panels = packed.par_chunks_mut(taps * inputs * most).enumerate();
    panels.zip(w.par_chunks(most * inputs * taps)).for_each(|((p, panel), w)| {
        let width = panel_vectors(shape.outputs, p * most, lanes) * lanes;
        for (column, w) in w.chunks_exact(inputs * taps).enumerate() {
            for (ci, w) in w.chunks_exact(taps).enumerate() {
                for (tap, &value) in w.iter().enumerate() {
                    panel[(tap * inputs + ci) * width + column] = value;
                }
            }
        }
    });
    packed
}

/// Output rows `row .. row + rows`.
fn run_band(isa: Isa, conv: &Conv<'_>, row: usize, rows: usize, band: &mut Band) {
    let shape = &conv.shape;
    let lanes = isa.lanes();
    let (blocks, block_len) = (blocks(shape, lanes), block_len(shape, lanes));
    let first = row.saturating_sub(conv.reach());
    let end = (row + rows + conv.reach()).min(shape.height);
    band.first = first;
    band.rows.resize((end - first) * blocks * block_len);
    let input_rows = band.rows.par_chunks_mut(blocks * block_len).enumerate();
    input_rows.for_each_init(Vec::new, |line, (y, to)| lay_out_row(isa, conv, first + y, line, to));

    let wide = blocks.min(TASK_BLOCKS.min(TASK_BYTES / 4 / block_len / 3).max(1));
    let high = (TASK_BYTES / 4 / (wide * block_len)).saturating_sub(2).min(TASK_BLOCKS / wide).max(1);
    let mut areas = Vec::new();
    for y in (row..row + rows).step_by(high) {
        for block in (0..blocks).step_by(wide) {
            let (rows, blocks) = (high.min(row + rows - y), wide.min(blocks - block));
            areas.push(Area { row: y, rows, block, blocks });
        }
    }
    let band = &*band;
    let sums = Aligned::default;
    areas.into_par_iter().for_each_init(sums, |sums, area| run_area(isa, conv, band, area, sums));
}

simd_kernel! {
    /// One input row of the (doubled) picture: for each pixel block `[ci][pixel]`, from the pixel before the block to the
    /// one after it; zeros where there is no pixel. `line` is scratch.
    fn lay_out_row<S>(s: S, conv: &Conv<'_>, y: usize, line: &mut Vec<f32>, to: &mut [f32]) {
        let ConvShape { width, inputs, .. } = conv.shape;
        let (source_y, source_width) = if conv.upsample { (y / 2, width / 2) } else { (y, width) };
        let source = &conv.x[source_y * source_width * inputs..][..source_width * inputs];
        let source = match conv.norm {
            None => source,
            Some((a, b, silu)) => {
                line.resize(source.len(), 0.0);
                for (pixel, to) in source.chunks_exact(inputs).zip(line.chunks_exact_mut(inputs)) {
                    for ci in (0..inputs).step_by(S::LANES) {
                        let (a, b) = (lanes::load(s, &a[ci..]), lanes::load(s, &b[ci..]));
                        let y = s.fma(lanes::load(s, &pixel[ci..]), a, b);
                        lanes::store(s, if silu { math::silu(s, y) } else { y }, &mut to[ci..]);
                    }
                }
                line
            }
        };
        let rows = tile_rows(S::LANES);
        let step = rows + 2;
        for (block, to) in to.chunks_exact_mut(inputs * step).enumerate() {
            for j in 0..step {
                // Pixel `block * rows + j - 1`.
                let x = block * rows + j;
                if x == 0 || x > width {
                    to.iter_mut().skip(j).step_by(step).for_each(|to| *to = 0.0);
                    continue;
                }
                let x = if conv.upsample { (x - 1) / 2 } else { x - 1 };
                let pixel = &source[x * inputs..(x + 1) * inputs];
                for (to, &value) in to[j..].iter_mut().step_by(step).zip(pixel) {
                    *to = value;
                }
            }
        }
    }
}

simd_kernel! {
    /// All outputs of an area, panel by panel. `sums` is scratch: `[row][block][pixel][column]`.
    fn run_area<S>(s: S, conv: &Conv<'_>, band: &Band, area: Area, sums: &mut Aligned) {
        let outputs = conv.shape.outputs;
        for column in (0..outputs).step_by(panel_width(S::LANES)) {
            match panel_vectors(outputs, column, S::LANES) {
                1 => run_panel::<S, 1>(s, conv, band, area, column, sums),
                2 => run_panel::<S, 2>(s, conv, band, area, column, sums),
                _ => run_panel::<S, 3>(s, conv, band, area, column, sums),
            }
        }
    }
}

/// Outputs `column ..` of an area, `NV` vectors.
#[inline(always)]
fn run_panel<S: Simd, const NV: usize>(
    s: S,
    conv: &Conv<'_>,
    band: &Band,
    area: Area,
    column: usize,
    sums: &mut Aligned,
) {
    sums.fill_zeros(area.rows * area.blocks * tile_rows(S::LANES) * NV * S::LANES);
    sum_panel::<S, NV>(s, conv, band, area, column, sums);
    finish_panel::<S, NV>(s, conv, area, column, sums);
}

/// The sums of a panel: the taps in order, for each the slices of channels in order, for each all pixel blocks.
#[inline(always)]
fn sum_panel<S: Simd, const NV: usize>(
    s: S,
    conv: &Conv<'_>,
    band: &Band,
    area: Area,
    column: usize,
    sums: &mut [f32],
) {
    let ConvShape { height, inputs, kernel, .. } = conv.shape;
    let width = NV * S::LANES;
    let rows = tile_rows(S::LANES);
    let (reach, step) = (conv.reach(), rows + 2);
    let row_blocks = blocks(&conv.shape, S::LANES);
    let weights = &conv.weights[column * kernel * kernel * inputs..][..kernel * kernel * inputs * width];
    for ky in 0..kernel {
        for kx in 0..kernel {
            for ci in (0..inputs).step_by(SLICE) {
                let len = SLICE.min(inputs - ci);
                let b = &weights[((ky * kernel + kx) * inputs + ci) * width..][..len * width];
                for y in 0..area.rows {
                    let input_y = area.row + y + ky;
                    if input_y < reach || input_y - reach >= height {
                        continue;
                    }
                    for x in 0..area.blocks {
                        let block = (input_y - reach - band.first) * row_blocks + area.block + x;
                        // One before the pixel for `kx` 0; a 1x1 kernel reads the pixel itself.
                        let start = (block * inputs + ci) * step + kx + 1 - reach;
                        let a = &band.rows[start..start + (len - 1) * step + rows];
                        let run = Run { len, a: a.as_ptr(), a_step: step, b: b.as_ptr() };
                        let sums = &mut sums[(y * area.blocks + x) * rows * width..][..rows * width];
                        let pixels = pixels_with_tap(&conv.shape, rows, area.block + x, kx);
                        // SAFETY: `a` has `rows` numbers at each of `len` steps, `b` a panel's for each, `sums` all of a tile's.
                        #[allow(unsafe_code)]
                        unsafe {
                            if pixels.start == 0 && pixels.end == rows {
                                rows_at_least::<S, NV>(s, rows, run, sums.as_mut_ptr());
                            } else {
                                rows_exactly::<S, NV>(s, pixels.start, pixels.len(), run, sums.as_mut_ptr());
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The pixels of a block that exist and have an input pixel under column `kx` of the kernel.
#[inline(always)]
fn pixels_with_tap(shape: &ConvShape, rows: usize, block: usize, kx: usize) -> std::ops::Range<usize> {
    let first = block * rows;
    let exist = rows.min(shape.width - first);
    if shape.kernel == 1 {
        return 0..exist;
    }
    let start = usize::from(first + kx == 0);
    let end = exist - usize::from(kx == 2 && first + exist == shape.width);
    start..end.max(start)
}

/// Adds bias and residual to the sums of a panel and writes the pixels.
#[inline(always)]
fn finish_panel<S: Simd, const NV: usize>(s: S, conv: &Conv<'_>, area: Area, column: usize, sums: &[f32]) {
    let ConvShape { width, outputs, .. } = conv.shape;
    let rows = tile_rows(S::LANES);
    for y in 0..area.rows {
        for block in 0..area.blocks {
            let first = (area.block + block) * rows;
            for x in 0..rows.min(width - first) {
                for v in 0..NV {
                    let column = column + v * S::LANES;
                    if column >= outputs {
                        continue;
                    }
                    let count = S::LANES.min(outputs - column);
                    let place = ((area.row + y) * width + first + x) * outputs + column;
                    let at = (((y * area.blocks + block) * rows + x) * NV + v) * S::LANES;
                    let sum = s.add(s.load(&sums[at..]), lanes::load(s, &conv.bias[column..column + count]));
                    let sum = match conv.residual {
                        Some(residual) => s.add(sum, lanes::load(s, &residual[place..place + count])),
                        None => sum,
                    };
                    // SAFETY: the place and the `count` numbers from there lie in the result; no other task has them.
                    #[allow(unsafe_code)]
                    let to = unsafe { std::slice::from_raw_parts_mut(conv.out.0.add(place), count) };
                    lanes::store(s, sum, to);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
