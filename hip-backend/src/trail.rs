//! Where a run is, and which launches may still be running: a failure shows later than its launch, and is told with the
//! launch's own place.

use std::collections::VecDeque;
use std::fmt;

use crate::sys::Handle;

/// Whose weights a tensor holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// The stage.
    pub(crate) stage: &'static str,
    /// The block; `None` for what always stays.
    pub(crate) block: Option<usize>,
    /// The stage has blocks, and so counts its steps.
    pub(crate) steps: bool,
    /// Bytes of the stage's activations.
    pub(crate) activations: u64,
}

/// What is running, for messages: kept up to date by the backend, read when something fails.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    /// Stage whose weights are loaded, or were read last.
    pub(crate) stage: &'static str,
    /// Steps begun; 0 where none are counted.
    pub(crate) step: usize,
    /// Block whose weights were read last, unless others of the stage were read since.
    pub(crate) block: Option<usize>,
    /// Kernel launched last.
    pub(crate) kernel: &'static str,
    /// Copy issued since then.
    pub(crate) copy: &'static str,
}

impl Place {
    /// What comes now reads weights of `owner`; true when the stage is another one than before.
    pub(crate) fn enter(&mut self, owner: Owner) -> bool {
        let other = self.stage != owner.stage;
        if other {
            *self = Place { stage: owner.stage, ..Place::default() };
        }
        if owner.steps {
            self.step = self.step.max(1);
        }
        (self.block, self.copy) = (owner.block, "");
        other
    }

    /// What comes now is a copy.
    pub(crate) fn copying(&mut self, what: &'static str) {
        (self.kernel, self.copy) = ("", what);
    }

    /// What comes now is a launch.
    pub(crate) fn launching(&mut self, kernel: &'static str) {
        (self.kernel, self.copy) = (kernel, "");
    }

    /// The next step begins.
    pub(crate) fn step_ends(&mut self) {
        (self.step, self.block) = (self.step + 1, None);
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if !self.stage.is_empty() {
            parts.push(format!("stage {}", self.stage));
        }
        if self.step > 0 {
            parts.push(format!("step {}", self.step));
        }
        if let Some(block) = self.block {
            parts.push(format!("block {block}"));
        }
        if !self.kernel.is_empty() {
            parts.push(format!("kernel {}", self.kernel));
        }
        if !self.copy.is_empty() {
            parts.push(self.copy.to_owned());
        }
        f.write_str(&parts.join(", "))
    }
}

/// A launch, and the event recorded behind it.
#[derive(Clone, Copy)]
pub(crate) struct Launched {
    number: u64,
    pub(crate) place: Place,
    pub(crate) event: Handle,
}

/// Launches that are not known to have run, oldest first.
#[derive(Default)]
pub(crate) struct Trail {
    launched: VecDeque<Launched>,
    /// Events of launches that have run.
    pub(crate) spare: Vec<Handle>,
    count: u64,
    /// The launch that was seen to fail.
    failed: Option<Place>,
}

// SAFETY: a handle is a number to the host; the runtime's functions may be called from any thread.
#[allow(unsafe_code)]
unsafe impl Send for Trail {}

impl Trail {
    /// Launches that are not known to have run.
    pub(crate) fn len(&self) -> usize {
        self.launched.len()
    }

    /// A launch was made, with `event` behind it.
    pub(crate) fn push(&mut self, place: Place, event: Handle) {
        self.count += 1;
        self.launched.push_back(Launched { number: self.count, place, event });
    }

    /// The oldest launch that is not known to have run.
    pub(crate) fn oldest(&self) -> Option<Launched> {
        self.launched.front().copied()
    }

    /// `launched` has run.
    pub(crate) fn ran(&mut self, launched: Launched) {
        if self.launched.front().is_some_and(|front| front.number == launched.number) {
            self.launched.pop_front();
            self.spare.push(launched.event);
        }
    }

    /// `launched` was asked for and the device is lost: it is the one that failed.
    pub(crate) fn fail(&mut self, launched: Launched) {
        self.failed.get_or_insert(launched.place);
    }

    /// The place of a failure that may come from any launch that has not run: the one that was seen to fail, or the oldest and
    /// how many may be meant instead; `now` when all have run.
    pub(crate) fn place_of_failure(&self, now: Place) -> String {
        match (self.failed, self.launched.front()) {
            (Some(failed), _) => failed.to_string(),
            (None, None) => now.to_string(),
            (None, Some(oldest)) => match self.launched.len() - 1 {
                0 => oldest.place.to_string(),
                1 => format!("{}, or the launch after it", oldest.place),
                n => format!("{}, or one of the {n} launches after it", oldest.place),
            },
        }
    }

    /// Every event, to be freed.
    pub(crate) fn events(&mut self) -> Vec<Handle> {
        self.launched.drain(..).map(|launched| launched.event).chain(self.spare.drain(..)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::without_provenance_mut;

    fn owner(stage: &'static str, block: Option<usize>) -> Owner {
        Owner { stage, block, steps: stage == "dit", activations: 0 }
    }

    #[test]
    fn a_place_says_what_it_knows() {
        assert_eq!(Place::default().to_string(), "");
        let place = Place { stage: "dit", step: 3, block: Some(7), kernel: "linear", copy: "" };
        assert_eq!(place.to_string(), "stage dit, step 3, block 7, kernel linear");
        let place = Place { copy: "download", kernel: "", block: None, ..place };
        assert_eq!(place.to_string(), "stage dit, step 3, download");
    }

    #[test]
    fn a_place_follows_the_weights_that_are_read() {
        let mut place = Place::default();
        let mut at = |owner: Owner, kernel| {
            place.enter(owner);
            place.launching(kernel);
            let text = place.to_string();
            if kernel == "euler_step" {
                place.step_ends();
            }
            text
        };
        assert_eq!(at(owner("dit", None), "linear"), "stage dit, step 1, kernel linear");
        assert_eq!(at(owner("dit", Some(6)), "norm"), "stage dit, step 1, block 6, kernel norm");
        assert_eq!(at(owner("dit", None), "euler_step"), "stage dit, step 1, kernel euler_step");
        assert_eq!(at(owner("dit", None), "linear"), "stage dit, step 2, kernel linear");
        assert_eq!(at(owner("vae", None), "conv2d"), "stage vae, kernel conv2d");
        assert_eq!(at(owner("dit", Some(0)), "norm"), "stage dit, step 1, block 0, kernel norm");
    }

    #[test]
    fn a_failure_has_the_place_of_its_launch() {
        let launch = |trail: &mut Trail, kernel| {
            let event = without_provenance_mut(trail.spare.len() + 7);
            trail.push(Place { kernel, ..Place::default() }, event);
        };
        let mut trail = Trail::default();
        let now = Place { copy: "download", ..Place::default() };
        assert_eq!(trail.place_of_failure(now), "download");
        for kernel in ["a", "b", "c"] {
            launch(&mut trail, kernel);
        }
        assert_eq!(trail.place_of_failure(now), "kernel a, or one of the 2 launches after it");
        let first = trail.oldest().unwrap();
        trail.ran(first);
        trail.ran(first);
        assert_eq!((trail.len(), trail.spare.len()), (2, 1), "one launch ends once");
        assert_eq!(trail.place_of_failure(now), "kernel b, or the launch after it");
        let second = trail.oldest().unwrap();
        trail.fail(second);
        assert_eq!(trail.place_of_failure(now), "kernel b");
        trail.ran(second);
        assert_eq!(trail.place_of_failure(now), "kernel b", "what was seen to fail stays");
        assert_eq!(trail.events().len(), 3);
    }
}
