//! The official schedule and its parameters.
//!
//! The Euler step itself is [`crate::backend::Backend::euler_step`].

/// Steps of the training schedule.
const TRAINING_STEPS: usize = 1000;

/// Most steps that can be asked for; they snap to the 1000 of the training schedule.
pub const MAX_STEPS: usize = 10_000;

/// The schedule cannot be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ScheduleError {
    /// No steps, or too many.
    #[error("steps is {0}, 1 to {MAX_STEPS} expected")]
    Steps(usize),
    /// The shift is not a positive finite number.
    #[error("shift is {0}, a finite number above 0 expected")]
    Shift(f64),
}

/// `torch.linspace(1, end, n)` in f32: from both ends towards the middle, fused multiply-adds.
fn linspace_from_one(end: f32, n: usize) -> Vec<f32> {
    if n == 1 {
        return vec![1.0];
    }
    let step = (end - 1.0) / (n - 1) as f32;
    (0..n)
        .map(
            |i| {
                if i < n / 2 { step.mul_add(i as f32, 1.0) } else { (-step).mul_add((n - 1 - i) as f32, end) }
            },
        )
        .collect()
}

/// `n` sigmas from 1 down, shifted twice: the end point of the line, then every value.
fn grid(n: usize, shift: f64) -> Vec<f32> {
    let end = (shift / ((TRAINING_STEPS - 1) as f64 + shift)) as f32;
    let (s, s1) = (shift as f32, (shift - 1.0) as f32);
    linspace_from_one(end, n).into_iter().map(|v| (s * v) / (1.0 + s1 * v)).collect()
}

/// The sigmas of a run, high to low, ending in 0: one step from each to the next.
///
/// `grid(steps, shift)` snapped to the nearest of `grid(1000, 1)`, ties to the lower, consecutive repeats
/// removed; so a run can have fewer steps than asked for. Source: the MOSS-Image release's flow-match schedule.
///
/// # Errors
/// [`ScheduleError`] when `steps` is 0 or above [`MAX_STEPS`], or `shift` is not above 0.
pub fn sigmas(steps: usize, shift: f64) -> Result<Vec<f32>, ScheduleError> {
    if !(1..=MAX_STEPS).contains(&steps) {
        return Err(ScheduleError::Steps(steps));
    }
    if !(shift.is_finite() && shift > 0.0) {
        return Err(ScheduleError::Shift(shift));
    }
    let mut training = grid(TRAINING_STEPS, 1.0);
    training.reverse();
    let mut sigmas: Vec<f32> = grid(steps, shift)
        .into_iter()
        .map(|sigma| {
            let upper = training.partition_point(|&t| t < sigma).min(TRAINING_STEPS - 1);
            let lower = upper.saturating_sub(1);
            if (sigma - training[lower]).abs() <= (training[upper] - sigma).abs() {
                training[lower]
            } else {
                training[upper]
            }
        })
        .collect();
    sigmas.dedup();
    sigmas.push(0.0);
    Ok(sigmas)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published anchors of the release schedule: 4 steps, shift 5, timesteps 1000, 910, 717, 24.
    #[test]
    fn four_steps_are_the_published_anchors() {
        let t: Vec<i32> =
            sigmas(4, 5.0).unwrap().iter().map(|&s| (1000.0 * f64::from(s)).round() as i32).collect();
        assert_eq!(t, [1000, 910, 717, 24, 0]);
    }

    #[test]
    fn sigmas_fall_from_one_to_zero_on_the_training_grid() {
        for (steps, shift) in [(1, 5.0), (2, 1.0), (50, 5.0), (1000, 0.3), (3000, 5.0)] {
            let sigmas = sigmas(steps, shift).unwrap();
            assert_eq!(sigmas[0], 1.0);
            assert_eq!(*sigmas.last().unwrap(), 0.0);
            assert!(sigmas.windows(2).all(|w| w[0] > w[1]), "{steps} {shift}");
            assert!(sigmas.len() <= steps + 1);
        }
        assert!(sigmas(3000, 5.0).unwrap().len() <= TRAINING_STEPS + 1, "repeats are removed");
    }

    #[test]
    fn bad_parameters_are_named() {
        for steps in [0, MAX_STEPS + 1, usize::MAX] {
            assert_eq!(sigmas(steps, 5.0), Err(ScheduleError::Steps(steps)));
        }
        for shift in [0.0, -1.0, f64::INFINITY] {
            assert_eq!(sigmas(4, shift), Err(ScheduleError::Shift(shift)));
        }
        assert!(matches!(sigmas(4, f64::NAN), Err(ScheduleError::Shift(_))));
    }
}
