//! Softmax attention with queries in SIMD lanes.
//!
//! A tile holds `W` queries of one head, one to a lane, as `Q^T` `[h][W]`. Scores `S` `[key][W]` and outputs `O^T`
//! `[h][W]` then need no horizontal operation: every sum of the definition runs down one lane. Both products are the
//! register tiles of [`super::micro`], 8 (AVX2: 4) rows by up to three vectors; keys and values are broadcast.
//! A task is a group of tiles that share each block of keys and values once it is widened to f32; or, for bf16 operands where
//! the isa has [`Bf16Dot`], once it is packed in pairs of what is summed over: of `h` for scores, of keys for outputs.

use std::hint::black_box;
use std::ops::Range;

use half::bf16;
use rayon::prelude::*;

use super::lanes::{from_heads, narrow, widen};
use super::micro::rows_at_least;
use super::{CpuBackend, CpuTensor};
use crate::backend::shapes::{self, AttentionShape};
use crate::backend::{ATTENTION_BLOCK, Attention, DType, Heads, Tensor};
use crate::simd::math::exp2;
use crate::simd::{Bf16Dot, Floor, MAX_LANES, Run, Simd, pair, simd_kernel};

/// Columns of values are laid out in groups of this, the most rows of a register tile.
const PAD: usize = 8;

/// Rows of a register tile: with three vectors of sums, 24 of AVX-512's 32 registers, 12 of AVX2's 16.
const fn tile_rows(lanes: usize) -> usize {
    if lanes == 16 { 8 } else { 4 }
}

/// Vectors of queries in a full tile.
const VECTORS: usize = 3;

/// Most tiles of a task: they share the widening of keys and values, and stay in the second cache (50 KB each for
/// heads of 128).
const TILES: usize = 12;

/// Tasks for each thread that are wanted before tasks grow.
const TASKS_PER_THREAD: usize = 8;

/// Most queries of a tile.
const MAX_TILE: usize = VECTORS * MAX_LANES;

/// What is added to the scores of a key that the first `n` lanes do not see: [`MAX_TILE`] values from
/// index `MAX_TILE - n` on.
const MASK: [f32; 2 * MAX_TILE] = {
    let mut mask = [0.0; 2 * MAX_TILE];
    let mut i = 0;
    while i < MAX_TILE {
        mask[i] = f32::NEG_INFINITY;
        i += 1;
    }
    mask
};

/// Heads in the columns of a matrix.
#[derive(Clone, Copy)]
struct View<'a> {
    /// Elements, row-major.
    data: Elements<'a>,
    /// Columns of the matrix.
    width: usize,
    /// Where the heads lie.
    heads: Heads,
}

/// Elements of either dtype.
#[derive(Clone, Copy)]
enum Elements<'a> {
    Bf16(&'a [bf16]),
    F32(&'a [f32]),
}

impl<'a> View<'a> {
    fn new(x: &'a CpuTensor, heads: Heads) -> Self {
        let data = match x.dtype() {
            DType::Bf16 => Elements::Bf16(x.bf16()),
            DType::F32 => Elements::F32(x.f32()),
        };
        Self { data, width: x.shape()[1], heads }
    }

    /// The columns of a head in row `t`, as f32.
    #[inline(always)]
    fn widen<S: Simd>(&self, s: S, t: usize, head: usize, to: &mut [f32]) {
        let first = t * self.width + self.heads.first + head * self.heads.step;
        match self.data {
            Elements::Bf16(x) => widen(s, &x[first..first + to.len()], to),
            Elements::F32(x) => to.copy_from_slice(&x[first..first + to.len()]),
        }
    }

    /// Writes the columns of a head in `count` rows from `t` on as columns of `to` `[dim][width]`, from column `at` on.
    #[inline(always)]
    fn transpose<S: Simd>(
        &self,
        s: S,
        t: usize,
        count: usize,
        head: usize,
        to: &mut [f32],
        width: usize,
        at: usize,
    ) {
        let dim = self.heads.dim;
        let place = |row: usize| (t + row) * self.width + self.heads.first + head * self.heads.step;
        let step = 2 * S::LANES;
        match self.data {
            Elements::Bf16(x) if count == S::LANES && dim.is_multiple_of(step) => {
                assert!(at + count <= width && to.len() >= dim * width);
                let mut rows = [std::ptr::null(); MAX_LANES];
                for d in (0..dim).step_by(step) {
                    for row in 0..count {
                        rows[row] = x[place(row) + d..][..step].as_ptr();
                    }
                    // SAFETY: `step` elements lie at each row, and `to` has `dim` rows of `width`, `at + LANES` of them inside.
                    #[allow(unsafe_code)]
                    unsafe {
                        s.transpose_bf16(&rows, to.as_mut_ptr().add(d * width + at), width);
                    }
                }
            }
            data => {
                for row in 0..count {
                    for d in 0..dim {
                        to[d * width + at + row] = match data {
                            Elements::Bf16(x) => x[place(row) + d].to_f32(),
                            Elements::F32(x) => x[place(row) + d],
                        };
                    }
                }
            }
        }
    }

    /// Reads one element of each cache line of a head in rows `rows`. Rows lie pages apart, so that the plain loop over
    /// them waits for memory row by row; these short reads all wait at the same time.
    #[inline(always)]
    fn touch(&self, rows: Range<usize>, head: usize) {
        let first = self.heads.first + head * self.heads.step;
        let mut sum = 0u32;
        for t in rows {
            let at = t * self.width + first;
            match self.data {
                Elements::Bf16(x) => {
                    for x in x[at..at + self.heads.dim].iter().step_by(32) {
                        sum = sum.wrapping_add(u32::from(x.to_bits()));
                    }
                }
                Elements::F32(x) => {
                    for x in x[at..at + self.heads.dim].iter().step_by(16) {
                        sum = sum.wrapping_add(x.to_bits());
                    }
                }
            }
        }
        black_box(sum);
    }

    /// The columns of a head in row `t`, of a bf16 matrix.
    #[inline(always)]
    fn row(&self, t: usize, head: usize) -> &'a [bf16] {
        match self.data {
            Elements::Bf16(x) => {
                &x[t * self.width + self.heads.first + head * self.heads.step..][..self.heads.dim]
            }
            Elements::F32(_) => panic!("attention: bf16 expected"),
        }
    }

    /// A head's columns in [`MAX_LANES`] rows from `t` on; rows from `count` on repeat the last.
    #[inline(always)]
    fn rows(&self, t: usize, count: usize, head: usize) -> [&'a [bf16]; MAX_LANES] {
        let mut rows: [&[bf16]; MAX_LANES] = [&[]; MAX_LANES];
        for i in 0..MAX_LANES {
            rows[i] = self.row(t + i.min(count - 1), head);
        }
        rows
    }

    fn is_bf16(&self) -> bool {
        matches!(self.data, Elements::Bf16(_))
    }
}

/// The operands and options of a call.
struct Call<'a> {
    q: View<'a>,
    k: View<'a>,
    v: View<'a>,
    shape: AttentionShape,
    /// Takes part when all operands are bf16.
    dot: Option<Bf16Dot>,
    /// `scale * log2(e)`.
    factor: f32,
    causal: bool,
}

/// Some queries of one head, and where their results go.
struct Task<'a> {
    head: usize,
    /// First token of the segment.
    start: usize,
    /// Tokens of the segment.
    len: usize,
    /// First query, counted from `start`.
    first: usize,
    /// `[queries][h]`.
    out: &'a mut [f32],
}

/// [`Backend::attention`](crate::backend::Backend::attention).
pub fn attention(backend: &CpuBackend, a: Attention<'_, CpuTensor>) -> CpuTensor {
    let shape = shapes::attention(&a);
    let Attention { q, k, v, v_heads, scale, causal, segments } = a;
    let AttentionShape { tokens, q_heads, kv_heads, dim } = shape;
    let [q_view, k_view, v_view] = [
        View::new(q, Heads::packed(0, q_heads, dim)),
        View::new(k, Heads::packed(0, kv_heads, dim)),
        View::new(v, v_heads),
    ];
    let all_bf16 = q_view.is_bf16() && k_view.is_bf16() && v_view.is_bf16();
    let call = Call {
        q: q_view,
        k: k_view,
        v: v_view,
        shape,
        dot: backend.isa().dot().filter(|_| all_bf16),
        factor: (scale * std::f64::consts::LOG2_E) as f32,
        causal,
    };
    // [head][T][h], each task's part in one piece.
    let mut by_head = vec![0f32; q_heads * tokens * dim];
    let lanes = lanes(backend.isa());
    let vectors = q_heads * tokens.div_ceil(lanes);
    let tiles = vectors.div_ceil(TASKS_PER_THREAD * backend.threads() * VECTORS).clamp(1, TILES);
    let most = tiles * VECTORS * lanes;
    let mut tasks = Vec::new();
    let mut rest = &mut by_head[..];
    for head in 0..q_heads {
        let mut start = 0;
        for &len in segments {
            for first in (0..len).step_by(most) {
                let (mine, others) = rest.split_at_mut(most.min(len - first) * dim);
                rest = others;
                tasks.push(Task { head, start, len, first, out: mine });
            }
            start += len;
        }
    }
    backend.run(|| tasks.into_par_iter().for_each(|task| run_task(backend.isa(), &call, task)));
    backend.run(|| match q.dtype() {
        DType::Bf16 => {
            let narrow = |from: &[f32], to: &mut [bf16]| narrow(backend.isa(), from, to);
            CpuTensor::from_bf16(from_heads(&by_head, q_heads, dim, narrow), q.shape())
        }
        DType::F32 => CpuTensor::from_f32(
            from_heads(&by_head, q_heads, dim, |from, to| to.copy_from_slice(from)),
            q.shape(),
        ),
    })
}

simd_kernel! {
    fn lanes<S>(_s: S) -> usize {
        S::LANES
    }
}

/// `W` queries and what the online softmax knows of them.
struct Tile {
    /// First query of the tile, counted from the segment's start.
    first: usize,
    /// Vectors of lanes, 1 to [`VECTORS`].
    vectors: usize,
    /// `Q^T` `[h][W]`; lanes past the last query are zero. Or pairs, `[h / 2][W]`; lanes past the last query repeat it.
    q: Vec<f32>,
    /// Of the pairs.
    q_floor: Floor,
    /// `O^T` `[hp][W]`, `hp` the head width rounded up to a multiple of [`PAD`].
    o: Vec<f32>,
    /// `[4][W]`: maximum, both row sums, the factor `c` of the current block.
    state: Vec<f32>,
}

/// Working memory of a task.
struct Scratch {
    /// Keys of a block, `[64 / LANES][h][LANES]`; absent ones are zero or stale, and finite. Or pairs of `h`.
    k: Vec<f32>,
    /// Values of a block, `[hp / 8][64][8]`. In either, a register tile reads one run of memory. Or pairs of keys.
    v: Vec<f32>,
    /// A row of values or of pairs, `[hp]`.
    row: Vec<f32>,
    /// Scores, then weights `p'`, `[64][W]`, then perhaps pairs of keys.
    s: Vec<f32>,
    /// Of pairs in `k`.
    k_floor: Floor,
    /// Of pairs in `v`.
    v_floor: Floor,
}

/// Cuts a task's queries into tiles and transposes them.
#[inline(always)]
fn tiles<S: Simd>(s: S, call: &Call<'_>, task: &Task<'_>) -> Vec<Tile> {
    let lanes = S::LANES;
    let dim = call.shape.dim;
    let end = task.first + task.out.len() / dim;
    let mut tiles = Vec::new();
    let mut first = task.first;
    while first < end {
        let left = (end - first).div_ceil(lanes);
        // Four vectors are better cut in two halves than in three and one.
        let vectors = if left == VECTORS + 1 { 2 } else { left.min(VECTORS) };
        let w = vectors * lanes;
        let mut q = vec![0f32; dim * w];
        call.q.touch(task.start + first..task.start + end.min(first + w), task.head);
        let queries = w.min(end - first);
        let mut q_floor = Floor::NONE;
        for at in (0..queries).step_by(lanes) {
            let (token, count) = (task.start + first + at, lanes.min(queries - at));
            match call.dot {
                None => call.q.transpose(s, token, count, task.head, &mut q, w, at),
                Some(dot) => {
                    let rows = call.q.rows(token, count, task.head);
                    q_floor = q_floor.min(dot.pack(&rows, &mut q[at..], w));
                }
            }
        }
        let mut state = vec![0f32; 4 * w];
        state[..w].fill(f32::NEG_INFINITY);
        let o = vec![0f32; dim.next_multiple_of(PAD) * w];
        tiles.push(Tile { first, vectors, q, q_floor, o, state });
        first += w;
    }
    tiles
}

simd_kernel! {
    fn run_task<S>(s: S, call: &Call<'_>, task: Task<'_>) {
        let AttentionShape { q_heads, kv_heads, dim, .. } = call.shape;
        let padded = dim.next_multiple_of(PAD);
        let kv_head = task.head / (q_heads / kv_heads);
        let queries = task.out.len() / dim;
        let mut tiles = tiles(s, call, &task);
        let mut scratch = Scratch {
            k: vec![0f32; ATTENTION_BLOCK * dim],
            v: vec![0f32; ATTENTION_BLOCK * padded],
            row: vec![0f32; padded],
            s: vec![0f32; ATTENTION_BLOCK * VECTORS * S::LANES],
            k_floor: Floor::NONE,
            v_floor: Floor::NONE,
        };
        let seen = if call.causal { task.first + queries } else { task.len };
        for first_key in (0..seen).step_by(ATTENTION_BLOCK) {
            let keys = ATTENTION_BLOCK.min(seen - first_key);
            let rows = task.start + first_key..task.start + first_key + keys;
            call.k.touch(rows.clone(), kv_head);
            call.v.touch(rows.clone(), kv_head);
            match call.dot {
                None => widen_block(s, call, &mut scratch, rows, kv_head),
                Some(dot) => pair_block(call, dot, &mut scratch, rows, kv_head),
            }
            for tile in &mut tiles {
                match tile.vectors {
                    1 => step::<S, 1>(s, call, tile, &mut scratch, first_key, keys),
                    2 => step::<S, 2>(s, call, tile, &mut scratch, first_key, keys),
                    _ => step::<S, VECTORS>(s, call, tile, &mut scratch, first_key, keys),
                }
            }
        }
        for tile in &mut tiles {
            finish(s, call, tile);
            let w = tile.vectors * S::LANES;
            let out = &mut task.out[(tile.first - task.first) * dim..];
            for (lane, out) in out.chunks_exact_mut(dim).take(w).enumerate() {
                for (out, o) in out.iter_mut().zip(tile.o.chunks_exact(w)) {
                    *out = o[lane];
                }
            }
        }
    }
}

/// Keys and values of the tokens `rows`, a block, as f32.
#[inline(always)]
fn widen_block<S: Simd>(s: S, call: &Call<'_>, scratch: &mut Scratch, rows: Range<usize>, kv_head: usize) {
    let dim = call.shape.dim;
    for (group, k) in scratch.k.chunks_exact_mut(dim * S::LANES).enumerate() {
        let count = S::LANES.min(rows.len().saturating_sub(group * S::LANES));
        call.k.transpose(s, rows.start + group * S::LANES, count, kv_head, k, S::LANES, 0);
    }
    for (j, token) in rows.enumerate() {
        call.v.widen(s, token, kv_head, &mut scratch.row[..dim]);
        for (group, x) in scratch.row.chunks_exact(PAD).enumerate() {
            scratch.v[(group * ATTENTION_BLOCK + j) * PAD..][..PAD].copy_from_slice(x);
        }
    }
}

/// Keys and values of the tokens `rows`, a block, in pairs.
#[inline(always)]
fn pair_block(call: &Call<'_>, dot: Bf16Dot, scratch: &mut Scratch, rows: Range<usize>, kv_head: usize) {
    let dim = call.shape.dim;
    (scratch.k_floor, scratch.v_floor) = (Floor::NONE, Floor::NONE);
    for (group, token) in rows.clone().step_by(MAX_LANES).enumerate() {
        let keys = call.k.rows(token, rows.end - token, kv_head);
        let k = &mut scratch.k[group * dim * MAX_LANES..];
        scratch.k_floor = scratch.k_floor.min(dot.pack(&keys, k, MAX_LANES));
    }
    for (j, token) in rows.clone().step_by(2).enumerate() {
        let first = call.v.row(token, kv_head);
        scratch.v_floor = scratch.v_floor.min(Floor::of(first));
        if token + 1 < rows.end {
            let second = call.v.row(token + 1, kv_head);
            scratch.v_floor = scratch.v_floor.min(Floor::of(second));
            for ((to, &x), &y) in scratch.row.iter_mut().zip(first).zip(second) {
                *to = pair(&[x, y], bf16::NEG_ZERO);
            }
        } else {
            scratch.row.iter_mut().zip(first).for_each(|(to, &x)| *to = pair(&[x], bf16::NEG_ZERO));
        }
        for (group, x) in scratch.row.chunks_exact(PAD).enumerate() {
            scratch.v[(group * ATTENTION_BLOCK + j) * PAD..][..PAD].copy_from_slice(x);
        }
    }
}

/// One block of `keys` keys for one tile.
#[inline(always)]
fn step<S: Simd, const V: usize>(
    s: S,
    call: &Call<'_>,
    tile: &mut Tile,
    scratch: &mut Scratch,
    first_key: usize,
    keys: usize,
) {
    let last_query = tile.first + V * S::LANES - 1;
    // Keys that no query of the tile sees are left out.
    let keys = if call.causal { keys.min((last_query + 1).saturating_sub(first_key)) } else { keys };
    if keys == 0 {
        return;
    }
    scores::<S, V>(s, call, tile, scratch, keys);
    let hides = call.causal && first_key + keys > tile.first + 1;
    let diagonal = hides.then_some((tile.first, first_key));
    soften::<S, V>(s, call, &mut tile.state, &mut scratch.s, keys, diagonal);
    match call.dot {
        None => weigh::<S, V>(s, &tile.state[3 * V * S::LANES..], &scratch.s, &scratch.v, &mut tile.o, keys),
        Some(dot) => weigh_pairs::<V>(dot, &tile.state[3 * V * MAX_LANES..], scratch, &mut tile.o, keys),
    }
}

/// `S = K Q^T`, without the scale.
#[inline(always)]
fn scores<S: Simd, const V: usize>(s: S, call: &Call<'_>, tile: &Tile, scratch: &mut Scratch, keys: usize) {
    let (w, rows) = (V * S::LANES, tile_rows(S::LANES));
    let Scratch { k, s: scores, k_floor, .. } = scratch;
    let (dim, tame) = (call.shape.dim, k_floor.tame(tile.q_floor));
    let scores = &mut scores[..keys.next_multiple_of(rows) * w];
    scores.fill(0.0);
    assert!(tile.q.len() >= dim * w && k.len() >= keys.next_multiple_of(S::LANES) * dim);
    for (first, scores) in (0..).step_by(rows).zip(scores.chunks_exact_mut(rows * w)) {
        let k = &k[first / S::LANES * dim * S::LANES + first % S::LANES..];
        let (rows, b) = (rows.min(keys - first), tile.q.as_ptr());
        // SAFETY: a group of keys has `dim` steps (of pairs, half as many, rounded up) of LANES, of which `rows` from `first`
        // on; `q` has as many steps of `w`.
        #[allow(unsafe_code)]
        unsafe {
            match call.dot {
                None => {
                    let run = Run { len: dim, a: k.as_ptr(), a_step: S::LANES, b };
                    rows_at_least::<S, V>(s, rows, run, scores.as_mut_ptr());
                }
                Some(dot) => {
                    let run = Run { len: dim.div_ceil(2), a: k.as_ptr(), a_step: S::LANES, b };
                    dot.rows_at_least::<V>(rows, tame, run, scores.as_mut_ptr());
                }
            }
        }
    }
}

/// Scores to weights, and the maximum, sums and factor that go with them. With `diagonal = (first query, first key)`,
/// lane `i` sees key `j` when `first key + j <= first query + i`.
#[inline(always)]
fn soften<S: Simd, const V: usize>(
    s: S,
    call: &Call<'_>,
    state: &mut [f32],
    scores: &mut [f32],
    keys: usize,
    diagonal: Option<(usize, usize)>,
) {
    let w = V * S::LANES;
    let factor = s.splat(call.factor);
    let rounded = call.q.is_bf16();
    for at in (0..w).step_by(S::LANES) {
        let old = s.load(&state[at..]);
        let mut m = old;
        for (j, scores) in scores.chunks_exact_mut(w).take(keys).enumerate() {
            let mut x = s.mul(s.load(&scores[at..]), factor);
            if let Some((query, key)) = diagonal {
                let blind = (key + j).saturating_sub(query).min(MAX_TILE);
                x = s.add(x, s.load(&MASK[MAX_TILE - blind + at..]));
            }
            s.store(x, &mut scores[at..]);
            m = s.max(m, x);
        }
        let c = exp2(s, s.sub(old, m));
        let (mut l0, mut l1) = (s.mul(s.load(&state[w + at..]), c), s.mul(s.load(&state[2 * w + at..]), c));
        for scores in scores[..keys * w].chunks_mut(16 * w) {
            for (j, scores) in scores.chunks_exact_mut(w).enumerate() {
                let p = exp2(s, s.sub(s.load(&scores[at..]), m));
                if j < 8 {
                    l0 = s.add(l0, p);
                } else {
                    l1 = s.add(l1, p);
                }
                s.store(if rounded { s.round_bf16(p) } else { p }, &mut scores[at..]);
            }
        }
        for (row, value) in [m, l0, l1, c].into_iter().enumerate() {
            s.store(value, &mut state[row * w + at..]);
        }
    }
}

/// `O^T = O^T c + V^T P^T`.
#[inline(always)]
fn weigh<S: Simd, const V: usize>(s: S, c: &[f32], p: &[f32], v: &[f32], o: &mut [f32], keys: usize) {
    let (w, rows) = (V * S::LANES, tile_rows(S::LANES));
    assert!(p.len() >= keys * w && v.len() * w >= o.len() * ATTENTION_BLOCK);
    for (first, o) in (0..).step_by(rows).zip(o.chunks_exact_mut(rows * w)) {
        for o in o.chunks_exact_mut(w) {
            for at in (0..w).step_by(S::LANES) {
                let scaled = s.mul(s.load(&o[at..]), s.load(&c[at..]));
                s.store(scaled, &mut o[at..]);
            }
        }
        let v = &v[first / PAD * ATTENTION_BLOCK * PAD + first % PAD..];
        let run = Run { len: keys, a: v.as_ptr(), a_step: PAD, b: p.as_ptr() };
        // SAFETY: a group of columns has 64 steps of PAD, of which `rows` from `first` on; `p` has `keys` steps of `w`.
        #[allow(unsafe_code)]
        unsafe {
            rows_at_least::<S, V>(s, rows, run, o.as_mut_ptr());
        }
    }
}

/// [`weigh`], with pairs of keys.
#[inline(always)]
fn weigh_pairs<const V: usize>(dot: Bf16Dot, c: &[f32], scratch: &mut Scratch, o: &mut [f32], keys: usize) {
    let (w, rows) = (V * MAX_LANES, tile_rows(MAX_LANES));
    let tame = scratch.v_floor.tame(dot.pair_rows(&mut scratch.s, w, keys));
    assert!(scratch.v.len() * w >= o.len() * ATTENTION_BLOCK);
    for (first, o) in (0..).step_by(rows).zip(o.chunks_exact_mut(rows * w)) {
        let tame = dot.scale(o, &c[..w]) && tame;
        let v = &scratch.v[first / PAD * ATTENTION_BLOCK * PAD + first % PAD..];
        let run = Run { len: keys.div_ceil(2), a: v.as_ptr(), a_step: PAD, b: scratch.s.as_ptr() };
        // SAFETY: a group of columns has 64 steps of PAD, of which `rows` from `first` on; there are as many steps of `w`.
        #[allow(unsafe_code)]
        unsafe {
            dot.rows_at_least::<V>(rows, tame, run, o.as_mut_ptr());
        }
    }
}

/// `(o + 0) / (l0 + l1)`, rounded to the dtype, in place.
#[inline(always)]
fn finish<S: Simd>(s: S, call: &Call<'_>, tile: &mut Tile) {
    let w = tile.vectors * S::LANES;
    let rounded = call.q.is_bf16();
    for at in (0..w).step_by(S::LANES) {
        let l = s.add(s.load(&tile.state[w + at..]), s.load(&tile.state[2 * w + at..]));
        for o in tile.o.chunks_exact_mut(w) {
            let y = s.div(s.add(s.load(&o[at..]), s.splat(0.0)), l);
            s.store(if rounded { s.round_bf16(y) } else { y }, &mut o[at..]);
        }
    }
}

#[cfg(test)]
mod tests;
