//! Rows that need no golden data: the same model on the same ids must have the same bits every time.

use moss_reference::backend::Backend;
use moss_reference::model::{RunError, Silent};
use moss_reference::pipeline::{self, Model};

use crate::row::{Row, Rule, Word};

/// The bits of the text states of `ids`, `[L * width]`, bf16 widened to f32.
///
/// # Errors
/// What the backend fails with.
pub fn text_states<B: Backend>(backend: &B, model: &Model, ids: &[u32]) -> Result<Vec<u32>, RunError> {
    let spec = model.stages(1, 1, &[ids.len()]).take_text_encoder();
    let states = pipeline::encode(backend, model, spec, &[ids], &mut Silent)?;
    Ok(backend.download(&states[0])?.to_f32().into_iter().map(f32::to_bits).collect())
}

/// The row of `bits` held against those of the first run.
pub fn row(name: &str, bits: &[u32], first: &[u32], word: Word) -> Row {
    let apart = bits.iter().zip(first).filter(|(a, b)| a != b).count() + bits.len().abs_diff(first.len());
    let detail = match bits.iter().zip(first).position(|(a, b)| a != b) {
        Some(i) => format!("first at {i}: {:e} for {:e}", f32::from_bits(bits[i]), f32::from_bits(first[i])),
        None => format!("{} elements for {}", bits.len(), first.len()),
    };
    Row {
        group: "equal bits".into(),
        name: format!("text states, {name}"),
        figure: apart as f64,
        limit: 0.0,
        rule: Rule::AtMost,
        reason: "no result depends on the run, the threads or the instructions".into(),
        detail,
        word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_bits_and_other_lengths_fail() {
        let zero = 0.0f32.to_bits();
        let minus = (-0.0f32).to_bits();
        assert!(row("again", &[zero, minus], &[zero, minus], Word::Measured).passes());
        let apart = row("again", &[zero, minus], &[zero, zero], Word::Measured);
        assert!(!apart.passes() && apart.detail.starts_with("first at 1"), "{apart}");
        assert!(!row("again", &[zero], &[zero, zero], Word::Measured).passes());
    }
}
