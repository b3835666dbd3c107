//! Classifier-free guidance.

/// How the uncond row is used.
#[derive(Clone, Debug, PartialEq)]
pub struct Guidance {
    /// Scale of classifier-free guidance; at 1 there is no uncond row.
    pub cfg: f32,
    /// DiT blocks that the uncond row leaves out.
    pub skip_layers: Vec<usize>,
    /// They are left out at step `i` of `n` (from 0) when `skip_start <= i / n < skip_stop`.
    pub skip_start: f64,
    /// See `skip_start`.
    pub skip_stop: f64,
}

impl Guidance {
    /// Whether a run has an uncond row.
    pub fn has_uncond(&self) -> bool {
        self.cfg != 1.0
    }

    /// The blocks that the uncond row leaves out at step `step` (from 0) of `steps`.
    pub fn skipped(&self, step: usize, steps: usize) -> &[usize] {
        let progress = step as f64 / steps as f64;
        if (self.skip_start..self.skip_stop).contains(&progress) { &self.skip_layers } else { &[] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_skip_window_is_half_open() {
        let guidance = Guidance { cfg: 3.0, skip_layers: vec![2], skip_start: 0.25, skip_stop: 0.75 };
        let skips: Vec<bool> = (0..4).map(|step| !guidance.skipped(step, 4).is_empty()).collect();
        assert_eq!(skips, [false, true, true, false]);
    }
}
