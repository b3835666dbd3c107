//! `linear` and `linear_glu`: bf16 weights from the mapped file, packed panel by panel while they are used.
//!
//! The rows of `x` are widened once into blocks of [`tile_rows`], slice by slice of `k`. A task owns a tile of the output: for
//! each slice of [`SLICE`] values of `k` it packs the tile's weights (widened, `k` outermost), which then stay in the
//! nearest caches while all its row blocks pass over them. Weights are read from memory once for each stretch of
//! [`TASK_BLOCKS`] row blocks, so once when there are few tokens.

use half::bf16;
use rayon::prelude::*;

use super::micro::{Aligned, Run, panel_vectors, panel_width, rows_at_least, tile_rows};
use super::simd::{MAX_LANES, Path, Simd, simd_kernel};
use super::{CpuBackend, CpuTensor};
use crate::backend::{Epilogue, Glu};
use crate::math;
use crate::shapes;

/// Values of `k` that a packed panel holds at a time: with three vectors of 16 lanes, 24 KiB, which the nearest cache holds
/// beside two row blocks.
const SLICE: usize = 128;
/// bf16 numbers in a cache line.
const LINE: usize = 32;
/// Panels of a task.
const TASK_PANELS: usize = 4;
/// Row blocks of a task.
const TASK_BLOCKS: usize = 56;

/// The rows of a weight matrix, in as many pieces as it has parts.
struct Rows<'a> {
    parts: Vec<&'a [bf16]>,
    width: usize,
}

impl<'a> Rows<'a> {
    fn row(&self, mut index: usize) -> &'a [bf16] {
        for part in &self.parts {
            let rows = part.len() / self.width;
            if index < rows {
                return &part[index * self.width..(index + 1) * self.width];
            }
            index -= rows;
        }
        panic!("linear: no weight row {index}");
    }
}

/// What becomes of the accumulators.
enum Finish<'a> {
    Plain,
    Silu,
    Residual(&'a [bf16]),
    GatedResidual { residual: &'a [bf16], gate: &'a [bf16] },
    Glu(Glu),
}

/// A product in progress.
struct Product<'a> {
    /// `x`, widened: `[slice][block][k][row]`.
    x: Aligned,
    tokens: usize,
    k: usize,
    weights: Rows<'a>,
    bias: Option<&'a [bf16]>,
    finish: Finish<'a>,
    /// Columns of the result.
    outputs: usize,
    out: Output,
}

/// The result's memory, written by many tasks.
struct Output(*mut bf16);

// SAFETY: tasks write disjoint rectangles of the result.
#[allow(unsafe_code)]
unsafe impl Sync for Output {}

/// One task's part of the result.
#[derive(Clone, Copy)]
struct Tile {
    /// First column.
    column: usize,
    /// Panels from there; for a gated unit, of up and as many of gate.
    panels: usize,
    /// First row block.
    block: usize,
    /// Row blocks.
    blocks: usize,
}

/// A task's memory, used again by the next one on the thread.
#[derive(Default)]
struct Scratch {
    /// Packed weights, `[panel][k][column]`.
    weights: Aligned,
    /// Accumulators, `[panel][block][row][column]`.
    sums: Aligned,
}

/// [`crate::backend::Backend::linear`].
pub fn linear(
    backend: &CpuBackend,
    x: &CpuTensor,
    w: &CpuTensor,
    bias: Option<&CpuTensor>,
    epilogue: Epilogue<'_, CpuTensor>,
) -> CpuTensor {
    let (tokens, k, n) = shapes::linear(x, w, bias, &epilogue);
    let finish = match epilogue {
        Epilogue::None => Finish::Plain,
        Epilogue::Silu => Finish::Silu,
        Epilogue::Residual(residual) => Finish::Residual(residual.bf16()),
        Epilogue::GatedResidual { residual, gate } => {
            Finish::GatedResidual { residual: residual.bf16(), gate: gate.bf16() }
        }
    };
    product(backend, x, w, bias, finish, [tokens, k, n])
}

/// [`crate::backend::Backend::linear_glu`].
pub fn linear_glu(
    backend: &CpuBackend,
    x: &CpuTensor,
    w: &CpuTensor,
    bias: Option<&CpuTensor>,
    glu: Glu,
) -> CpuTensor {
    let (tokens, k, width) = shapes::linear_glu(x, w, bias);
    product(backend, x, w, bias, Finish::Glu(glu), [tokens, k, width])
}

fn product(
    backend: &CpuBackend,
    x: &CpuTensor,
    w: &CpuTensor,
    bias: Option<&CpuTensor>,
    finish: Finish<'_>,
    [tokens, k, outputs]: [usize; 3],
) -> CpuTensor {
    let path = backend.path();
    let mut out = vec![bf16::ZERO; tokens * outputs];
    backend.run(|| {
        let product = Product {
            x: widen(path, x.bf16(), tokens, k),
            tokens,
            k,
            weights: Rows { parts: w.parts(), width: k },
            bias: bias.map(CpuTensor::bf16),
            finish,
            outputs,
            out: Output(out.as_mut_ptr()),
        };
        tiles(path, &product)
            .into_par_iter()
            .for_each_init(Scratch::default, |scratch, tile| run_tile(path, &product, tile, scratch));
    });
    CpuTensor::from_bf16(out, &[tokens, outputs])
}

/// All tiles of a result; those that share weights follow one another.
fn tiles(path: Path, product: &Product<'_>) -> Vec<Tile> {
    let row_blocks = product.tokens.div_ceil(tile_rows(path.lanes()));
    let width = panel_width(path.lanes());
    let most = match product.finish {
        Finish::Glu(_) => TASK_PANELS / 2,
        _ => TASK_PANELS,
    };
    let mut tiles = Vec::new();
    for column in (0..product.outputs).step_by(most * width) {
        let panels = most.min((product.outputs - column).div_ceil(width));
        for block in (0..row_blocks).step_by(TASK_BLOCKS) {
            tiles.push(Tile { column, panels, block, blocks: TASK_BLOCKS.min(row_blocks - block) });
        }
    }
    tiles
}

/// Widens `x` `[tokens, k]` into `[slice][block][k][row]`, a slice being [`SLICE`] values of `k` (the last may be shorter)
/// and a block [`tile_rows`] tokens; rows beyond the last token are zeros.
fn widen(path: Path, x: &[bf16], tokens: usize, k: usize) -> Aligned {
    let rows = tile_rows(path.lanes());
    let padded = tokens.div_ceil(rows) * rows;
    let mut wide = Aligned::zeros(padded * k);
    wide.par_chunks_mut(padded * SLICE).enumerate().for_each(|(slice, wide)| {
        let len = wide.len() / padded;
        for (block, x) in wide.chunks_exact_mut(rows * len).zip(x.chunks(rows * k)) {
            for (r, row) in x.chunks_exact(k).enumerate() {
                let row = &row[slice * SLICE..][..len];
                for (to, value) in block[r..].iter_mut().step_by(rows).zip(row) {
                    *to = value.to_f32();
                }
            }
        }
    });
    wide
}

simd_kernel! {
    fn run_tile<S>(s: S, product: &Product<'_>, tile: Tile, scratch: &mut Scratch) {
        let width = panel_width(S::LANES);
        let rows = tile_rows(S::LANES);
        let padded = product.tokens.div_ceil(rows) * rows;
        let weights = weight_rows(product, tile, width);
        let panels = weights.len() / width;
        scratch.weights.resize(SLICE * width);
        scratch.sums.fill_zeros(panels * tile.blocks * rows * width);
        for k in (0..product.k).step_by(SLICE) {
            let len = SLICE.min(product.k - k);
            for (p, panel) in weights.chunks_exact(width).enumerate() {
                for v in 0..panel_vectors(S::LANES) {
                    pack(s, &panel[v * S::LANES..], v, k, len, &mut scratch.weights);
                }
                // What the next panel packs, a few rows for each row block: fetched all at once it would keep the core waiting.
                let (next, ahead) = if p + 1 < panels { (p + 1, k) } else { (0, k + SLICE) };
                let mut next = weights[next * width..][..width].iter();
                let share = width.div_ceil(tile.blocks);
                for block in 0..tile.blocks {
                    for row in next.by_ref().take(share) {
                        for line in (ahead..product.k.min(ahead + SLICE)).step_by(LINE) {
                            s.prefetch(row[line..].as_ptr());
                        }
                    }
                    let b = tile.block + block;
                    let a = &product.x[padded * k + b * rows * len..][..rows * len];
                    let run = Run { len, a: a.as_ptr(), a_step: rows, b: scratch.weights.as_ptr() };
                    let sums = &mut scratch.sums[(p * tile.blocks + block) * rows * width..][..rows * width];
                    // SAFETY: `a` has len * rows numbers, the packed panel len * width, the sums rows * width.
                    #[allow(unsafe_code)]
                    unsafe {
                        let rows = rows.min(product.tokens - b * rows);
                        if panel_vectors(S::LANES) == 3 {
                            rows_at_least::<S, 3>(s, rows, run, sums.as_mut_ptr());
                        } else {
                            rows_at_least::<S, 2>(s, rows, run, sums.as_mut_ptr());
                        }
                    }
                }
            }
        }
        finish(s, product, tile, &scratch.sums);
    }
}

/// The weight rows of a tile's panels, `width` for each; columns that do not exist repeat the last one, and nobody reads
/// their sums.
fn weight_rows<'a>(product: &Product<'a>, tile: Tile, width: usize) -> Vec<&'a [bf16]> {
    let columns = (0..tile.panels * width).map(|c| (tile.column + c).min(product.outputs - 1));
    match product.finish {
        Finish::Glu(_) => {
            let gate = columns.clone().map(|column| product.outputs + column);
            columns.chain(gate).map(|row| product.weights.row(row)).collect()
        }
        _ => columns.map(|row| product.weights.row(row)).collect(),
    }
}

/// Packs vector `v` of a panel, `k .. k + len`: `packed[i * width + v * LANES + c]` is element `k + i` of `weights[c]`.
#[inline(always)]
fn pack<S: Simd>(s: S, weights: &[&[bf16]], v: usize, k: usize, len: usize, packed: &mut [f32]) {
    let width = panel_width(S::LANES);
    assert!(packed.len() >= len * width);
    // Loops, not closures: a closure that is not inlined is compiled without the path's instructions.
    let mut rows: [&[bf16]; MAX_LANES] = [&[]; MAX_LANES];
    for c in 0..S::LANES {
        rows[c] = &weights[c][k..k + len];
    }
    let step = 2 * S::LANES;
    let whole = len / step * step;
    let mut at = [std::ptr::null(); MAX_LANES];
    for i in (0..whole).step_by(step) {
        for c in 0..S::LANES {
            at[c] = rows[c][i..i + step].as_ptr();
        }
        // SAFETY: each row has `step` elements at `i`; the panel has `len * width` numbers.
        #[allow(unsafe_code)]
        unsafe {
            s.transpose_bf16(&at, packed.as_mut_ptr().add(i * width + v * S::LANES), width);
        }
    }
    for i in whole..len {
        for c in 0..S::LANES {
            packed[i * width + v * S::LANES + c] = rows[c][i].to_f32();
        }
    }
}

/// The epilogue of a tile.
#[inline(always)]
fn finish<S: Simd>(s: S, product: &Product<'_>, tile: Tile, sums: &[f32]) {
    let rows = tile_rows(S::LANES);
    for block in 0..tile.blocks {
        let token = (tile.block + block) * rows;
        for r in 0..rows.min(product.tokens - token) {
            let vectors = panel_vectors(S::LANES) * tile.panels;
            for v in 0..vectors {
                let column = tile.column + v * S::LANES;
                if column < product.outputs {
                    let sums = Sums { all: sums, blocks: tile.blocks, row: block * rows + r };
                    finish_vector(s, product, sums, v, vectors, token + r, column);
                }
            }
        }
    }
}

/// The accumulators of one row of a tile.
#[derive(Clone, Copy)]
struct Sums<'a> {
    /// [`Scratch::sums`].
    all: &'a [f32],
    /// Row blocks of the tile.
    blocks: usize,
    /// Row in the tile.
    row: usize,
}

/// Outputs `column ..` of a token: vector `v` of a row of sums, and for a gated unit vector `v + gate` too.
#[inline(always)]
fn finish_vector<S: Simd>(
    s: S,
    product: &Product<'_>,
    sums: Sums<'_>,
    v: usize,
    gate: usize,
    token: usize,
    column: usize,
) {
    let count = S::LANES.min(product.outputs - column);
    let place = token * product.outputs + column;
    let y = output(s, product, sums, v, column, count);
    let result = match product.finish {
        Finish::Plain => y,
        Finish::Silu => math::silu(s, y),
        Finish::Residual(residual) => s.add(load(s, &residual[place..], count), y),
        Finish::GatedResidual { residual, gate } => {
            let gated = s.round_bf16(s.mul(y, load(s, &gate[column..], count)));
            s.add(load(s, &residual[place..], count), gated)
        }
        Finish::Glu(kind) => {
            let g = output(s, product, sums, v + gate, product.outputs + column, count);
            match kind {
                Glu::Silu => s.mul(s.round_bf16(math::silu(s, g)), y),
                Glu::Situ => situ(s, y, g),
            }
        }
    };
    // SAFETY: the place and the `count` elements from there lie in the result; no other task has them.
    #[allow(unsafe_code)]
    let to = unsafe { std::slice::from_raw_parts_mut(product.out.0.add(place), count) };
    if count == S::LANES {
        s.store_bf16(result, to);
    } else {
        s.store_bf16_part(result, to);
    }
}

/// `y`, the rounded output, of vector `v` of a row of sums, whose weights and biases are rows `row ..`.
#[inline(always)]
fn output<S: Simd>(s: S, product: &Product<'_>, sums: Sums<'_>, v: usize, row: usize, count: usize) -> S::F {
    let width = panel_width(S::LANES);
    let vectors = panel_vectors(S::LANES);
    let panel = v / vectors * sums.blocks * tile_rows(S::LANES);
    let sum = s.load(&sums.all[(panel + sums.row) * width + v % vectors * S::LANES..]);
    let sum = match product.bias {
        Some(bias) => s.add(sum, load(s, &bias[row..], count)),
        None => sum,
    };
    s.round_bf16(sum)
}

#[inline(always)]
fn load<S: Simd>(s: S, x: &[bf16], count: usize) -> S::F {
    if count == S::LANES { s.load_bf16(x) } else { s.load_bf16_part(&x[..count]) }
}

/// [`Glu::Situ`] of up `u` and gate `g`, before the last rounding.
#[inline(always)]
fn situ<S: Simd>(s: S, u: S::F, g: S::F) -> S::F {
    let p = s.round_bf16(s.mul(soft_clamp(s, g, 4.0), s.round_bf16(math::sigmoid(s, g))));
    s.mul(p, soft_clamp(s, u, 25.0))
}

/// `bf16(bound * bf16(tanh(bf16(x / bound))))`.
#[inline(always)]
fn soft_clamp<S: Simd>(s: S, x: S::F, bound: f32) -> S::F {
    let bound = s.splat(bound);
    let t = s.round_bf16(math::tanh(s, s.round_bf16(s.div(x, bound))));
    s.round_bf16(s.mul(bound, t))
}

#[cfg(test)]
mod tests;
