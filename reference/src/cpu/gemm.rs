//! `linear` and `linear_glu`: bf16 weights from the mapped file, packed panel by panel while they are used.
//!
//! The rows of `x` are packed once into blocks of [`tile_rows`], slice by slice of `k`. A task owns a tile of the output: for
//! each slice of [`SLICE`] steps of `k` it packs the tile's weights (`k` outermost), which then stay in the nearest caches
//! while all its row blocks pass over them. Weights are read from memory once for each stretch of [`TASK_BLOCKS`] row blocks,
//! so once when there are few tokens.
//!
//! A step is one value of `k`, widened to f32; where the isa has [`Bf16Dot`], two, packed as [`pair`] says.

use std::ops::Range;

use half::bf16;
use rayon::prelude::*;

use super::micro::{Aligned, panel_vectors, panel_width, rows_at_least, tile_rows};
use super::{CpuBackend, CpuTensor};
use crate::backend::shapes;
use crate::backend::{Epilogue, Glu};
use crate::simd::math;
use crate::simd::{Bf16Dot, Floor, Isa, MAX_LANES, Run, Simd, pair, simd_kernel};

/// Steps of `k` that a packed panel holds at a time: with three vectors of 16 lanes, 24 KiB, which the nearest cache holds
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

/// `x`, ready for the tiles.
struct Packed {
    /// `[slice][block][step][row]`; a slice is [`SLICE`] steps (the last may be shorter), a block [`tile_rows`] tokens; rows
    /// beyond the last token are zeros.
    steps: Aligned,
    /// With [`Bf16Dot`], the floor of each block of each slice.
    floors: Vec<Floor>,
}

/// A product in progress.
struct Product<'a> {
    x: Packed,
    dot: Option<Bf16Dot>,
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
    /// Packed weights of a panel, `[step][column]`.
    weights: Aligned,
    /// Accumulators, `[panel][block][row][column]`.
    sums: Aligned,
    /// Which blocks of accumulators, `[panel][block]`, are sums of products whose floors were high enough so far.
    tame: Vec<bool>,
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
    let isa = backend.isa();
    let mut out = vec![bf16::ZERO; tokens * outputs];
    backend.run(|| {
        let product = Product {
            x: pack_x(isa, x.bf16(), tokens, k),
            dot: isa.dot(),
            tokens,
            k,
            weights: Rows { parts: w.parts(), width: k },
            bias: bias.map(CpuTensor::bf16),
            finish,
            outputs,
            out: Output(out.as_mut_ptr()),
        };
        tiles(isa, &product)
            .into_par_iter()
            .for_each_init(Scratch::default, |scratch, tile| run_tile(isa, &product, tile, scratch));
    });
    CpuTensor::from_bf16(out, &[tokens, outputs])
}

/// All tiles of a result; those that share weights follow one another.
fn tiles(isa: Isa, product: &Product<'_>) -> Vec<Tile> {
    let row_blocks = product.tokens.div_ceil(tile_rows(isa.lanes()));
    let width = panel_width(isa.lanes());
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

/// Values of `k` in a step.
const fn step(dot: Option<Bf16Dot>) -> usize {
    if dot.is_some() { 2 } else { 1 }
}

/// Packs `x` `[tokens, k]`.
fn pack_x(isa: Isa, x: &[bf16], tokens: usize, k: usize) -> Packed {
    let rows = tile_rows(isa.lanes());
    let blocks = tokens.div_ceil(rows);
    let step = step(isa.dot());
    let mut steps = Aligned::zeros(blocks * rows * k.div_ceil(step));
    let mut floors = vec![Floor::NONE; blocks * k.div_ceil(SLICE * step)];
    let slices = steps.par_chunks_mut(blocks * rows * SLICE).zip(floors.par_chunks_mut(blocks));
    slices.enumerate().for_each(|(slice, (steps, floors))| {
        let range = slice * SLICE * step..k.min((slice + 1) * SLICE * step);
        let blocks = steps.chunks_exact_mut(steps.len() / floors.len()).zip(floors);
        for ((block, floor), x) in blocks.zip(x.chunks(rows * k)) {
            for (r, row) in x.chunks_exact(k).enumerate() {
                let (row, to) = (&row[range.clone()], block[r..].iter_mut().step_by(rows));
                if step == 2 {
                    *floor = (*floor).min(Floor::of(row));
                    to.zip(row.chunks(2)).for_each(|(to, numbers)| *to = pair(numbers, bf16::ZERO));
                } else {
                    to.zip(row).for_each(|(to, value)| *to = value.to_f32());
                }
            }
        }
    });
    Packed { steps, floors }
}

simd_kernel! {
    fn run_tile<S>(s: S, product: &Product<'_>, tile: Tile, scratch: &mut Scratch) {
        let width = panel_width(S::LANES);
        let rows = tile_rows(S::LANES);
        let row_blocks = product.tokens.div_ceil(rows);
        let step = step(product.dot);
        let weights = weight_rows(product, tile, width);
        let panels = weights.len() / width;
        scratch.weights.resize(SLICE * width);
        scratch.sums.fill_zeros(panels * tile.blocks * rows * width);
        scratch.tame.clear();
        scratch.tame.resize(panels * tile.blocks, true);
        for k in (0..product.k).step_by(SLICE * step) {
            let slice = k..product.k.min(k + SLICE * step);
            let len = slice.len().div_ceil(step);
            for (p, panel) in weights.chunks_exact(width).enumerate() {
                let mut floor = Floor::NONE;
                for v in 0..panel_vectors(S::LANES) {
                    let rows = vector_rows::<S>(&panel[v * S::LANES..], slice.clone());
                    let to = &mut scratch.weights[v * S::LANES..];
                    match product.dot {
                        None => pack(s, &rows, to, width),
                        Some(dot) => floor = floor.min(dot.pack(&rows, to, width)),
                    }
                }
                // What the next panel packs, a few rows for each row block: fetched all at once it would keep the core waiting.
                let (next, ahead) = if p + 1 < panels { (p + 1, k) } else { (0, slice.end) };
                let mut next = weights[next * width..][..width].iter();
                let share = width.div_ceil(tile.blocks);
                for block in 0..tile.blocks {
                    for row in next.by_ref().take(share) {
                        for line in (ahead..product.k.min(ahead + SLICE * step)).step_by(LINE) {
                            s.prefetch(row[line..].as_ptr());
                        }
                    }
                    let b = tile.block + block;
                    let a = &product.x.steps[(row_blocks * k / step + b * len) * rows..][..rows * len];
                    let run = Run { len, a: a.as_ptr(), a_step: rows, b: scratch.weights.as_ptr() };
                    let sums = &mut scratch.sums[(p * tile.blocks + block) * rows * width..][..rows * width];
                    let rows = rows.min(product.tokens - b * rows);
                    // SAFETY: `a` has rows numbers for each of `len` steps, the packed panel `width`, the sums rows * width;
                    // panels have 3 vectors where there is a dot.
                    #[allow(unsafe_code)]
                    unsafe {
                        if let Some(dot) = product.dot {
                            // Sums that may once have been subnormal stay with the other instructions.
                            let tame = &mut scratch.tame[p * tile.blocks + block];
                            *tame &= floor.tame(product.x.floors[k / (SLICE * step) * row_blocks + b]);
                            dot.rows_at_least::<3>(rows, *tame, run, sums.as_mut_ptr());
                        } else if panel_vectors(S::LANES) == 3 {
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

/// The slice of `k` of the first `LANES` rows.
#[inline(always)]
fn vector_rows<'a, S: Simd>(weights: &[&'a [bf16]], slice: Range<usize>) -> [&'a [bf16]; MAX_LANES] {
    // Loops, not closures: a closure that is not inlined is compiled without the isa's instructions.
    let mut rows: [&[bf16]; MAX_LANES] = [&[]; MAX_LANES];
    for c in 0..S::LANES {
        rows[c] = &weights[c][slice.clone()];
    }
    rows
}

/// Packs and widens a vector of a panel: `packed[i * width + c]` is element `i` of row `c`.
#[inline(always)]
fn pack<S: Simd>(s: S, rows: &[&[bf16]; MAX_LANES], packed: &mut [f32], width: usize) {
    let len = rows[0].len();
    assert!(len == 0 || packed.len() >= (len - 1) * width + S::LANES);
    let step = 2 * S::LANES;
    let whole = len / step * step;
    let mut at = [std::ptr::null(); MAX_LANES];
    for i in (0..whole).step_by(step) {
        for c in 0..S::LANES {
            at[c] = rows[c][i..i + step].as_ptr();
        }
        // SAFETY: each row has `step` elements at `i`; the panel has LANES places at each of `len` widths.
        #[allow(unsafe_code)]
        unsafe {
            s.transpose_bf16(&at, packed.as_mut_ptr().add(i * width), width);
        }
    }
    for i in whole..len {
        for c in 0..S::LANES {
            packed[i * width + c] = rows[c][i].to_f32();
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
