//! What all of the model does with rows of tokens: rotary tables, and sequences that lie one after another.

use std::ops::Range;

use half::bf16;

use crate::backend::{Backend, BackendError, HostData};

/// Cosines and sines of the tokens' positions, each `[T, R]` bf16.
pub(super) struct Rope<T> {
    pub(super) cos: T,
    pub(super) sin: T,
}

impl<T> Rope<T> {
    /// The tables of `tokens` tokens with phases `[T, R]`; cosine and sine in f64, rounded to f32, then to bf16.
    pub(super) fn upload<B: Backend<Tensor = T>>(
        b: &B,
        phases: &[f32],
        tokens: usize,
    ) -> Result<Self, BackendError> {
        let shape = [tokens, phases.len() / tokens];
        let table = |f: fn(f64) -> f64| {
            HostData::Bf16(phases.iter().map(|&p| bf16::from_f32(f(f64::from(p)) as f32)).collect())
        };
        Ok(Self { cos: b.upload(table(libm::cos), &shape)?, sin: b.upload(table(libm::sin), &shape)? })
    }

    /// The tables of some of the tokens.
    pub(super) fn rows<B: Backend<Tensor = T>>(&self, b: &B, tokens: Range<usize>) -> Self {
        Self { cos: b.rows(&self.cos, tokens.clone()), sin: b.rows(&self.sin, tokens) }
    }

    /// The tables of several sequences, one after another.
    pub(super) fn concat<B: Backend<Tensor = T>>(b: &B, parts: &[&Self]) -> Result<Self, BackendError> {
        let of = |pick: fn(&Self) -> &T| b.concat(&parts.iter().map(|&rope| pick(rope)).collect::<Vec<_>>());
        Ok(Self { cos: of(|rope| &rope.cos)?, sin: of(|rope| &rope.sin)? })
    }

    /// Cosines and sines as operations take them.
    pub(super) fn tables(&self) -> (&T, &T) {
        (&self.cos, &self.sin)
    }
}

/// The sequences of these lengths that lie one after another in `x`.
pub(super) fn split<B: Backend>(b: &B, x: &B::Tensor, lengths: &[usize]) -> Vec<B::Tensor> {
    let mut start = 0;
    let next = |&length: &usize| {
        start += length;
        b.rows(x, start - length..start)
    };
    lengths.iter().map(next).collect()
}
