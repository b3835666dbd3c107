//! The sequences of a step: all go through a block together, but for those that leave it out.

use super::Context;
use crate::backend::{Backend, Tensor as _};
use crate::model::observe::RunError;
use crate::model::tokens::{Rope, split};

/// The sequences `[image ; text]` of a step's rows, one after another in one tensor `[T, D]`, and which of them the current
/// block has.
pub(super) struct Sequences<'a, B: Backend> {
    rows: &'a [(&'a Context<B::Tensor>, &'a [usize])],
    /// Image tokens of each.
    image: usize,
    /// Tokens of each.
    lengths: Vec<usize>,
    /// Those that the current block has.
    active: Vec<usize>,
    /// Rotary tables of those.
    rope: Rope<B::Tensor>,
}

impl<'a, B: Backend> Sequences<'a, B> {
    /// The sequences of `rows`, contexts with the blocks that each leaves out, and `image` tokens each.
    pub(super) fn new(
        b: &B,
        rows: &'a [(&'a Context<B::Tensor>, &'a [usize])],
        image: usize,
    ) -> Result<Self, RunError> {
        let lengths = rows.iter().map(|(context, _)| image + context.text.shape()[0]).collect();
        let active: Vec<usize> = (0..rows.len()).collect();
        let rope = joint_rope(b, rows, &active)?;
        Ok(Self { rows, image, lengths, active, rope })
    }

    /// The embedded image tokens `[N, D]` and each row's text, as one tensor.
    pub(super) fn join(&self, b: &B, image: &B::Tensor) -> Result<B::Tensor, RunError> {
        let parts: Vec<&B::Tensor> = self.rows.iter().flat_map(|(c, _)| [image, &c.text]).collect();
        Ok(b.concat(&parts)?)
    }

    /// Comes to the next block; false when every row leaves it out.
    pub(super) fn enter(&mut self, b: &B, block: usize) -> Result<bool, RunError> {
        let active: Vec<usize> =
            (0..self.rows.len()).filter(|&row| !self.rows[row].1.contains(&block)).collect();
        if active.is_empty() {
            return Ok(false);
        }
        if active != self.active {
            self.rope = joint_rope(b, self.rows, &active)?;
            self.active = active;
        }
        Ok(true)
    }

    /// `x` with the current block's rows as `run` makes them of these rows, their rotary tables and their lengths.
    pub(super) fn through(
        &self,
        b: &B,
        x: &B::Tensor,
        run: impl FnOnce(&B::Tensor, &Rope<B::Tensor>, &[usize]) -> Result<B::Tensor, RunError>,
    ) -> Result<B::Tensor, RunError> {
        if self.active.len() == self.rows.len() {
            return run(x, &self.rope, &self.lengths);
        }
        let lengths: Vec<usize> = self.active.iter().map(|&row| self.lengths[row]).collect();
        let mut parts = split(b, x, &self.lengths);
        let y = b.concat(&self.active.iter().map(|&row| &parts[row]).collect::<Vec<_>>())?;
        let y = run(&y, &self.rope, &lengths)?;
        for (&row, part) in self.active.iter().zip(split(b, &y, &lengths)) {
            parts[row] = part;
        }
        Ok(b.concat(&parts.iter().collect::<Vec<_>>())?)
    }

    /// The image tokens of all rows, `[rows * N, D]`.
    pub(super) fn image(&self, b: &B, x: &B::Tensor) -> Result<B::Tensor, RunError> {
        let rows = split(b, x, &self.lengths);
        let image: Vec<B::Tensor> = rows.iter().map(|row| b.rows(row, 0..self.image)).collect();
        Ok(b.concat(&image.iter().collect::<Vec<_>>())?)
    }

    /// A tensor over [`Sequences::image`]'s tokens, row by row.
    pub(super) fn split_image(&self, b: &B, x: &B::Tensor) -> Vec<B::Tensor> {
        split(b, x, &vec![self.image; self.rows.len()])
    }
}

fn joint_rope<B: Backend>(
    b: &B,
    rows: &[(&Context<B::Tensor>, &[usize])],
    active: &[usize],
) -> Result<Rope<B::Tensor>, RunError> {
    Ok(Rope::concat(b, &active.iter().map(|&row| &rows[row].0.rope).collect::<Vec<_>>())?)
}
