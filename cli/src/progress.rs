//! Progress on stderr: a bar on a terminal, one line per event elsewhere.

use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use moss_reference::backend::Backend;
use moss_reference::model::observe::{Event, Observer, Part};

use crate::error::{CliError, Result};
use crate::{interrupt, say};

/// A stage whose length is not known.
const SPINNER: &str = "{msg:24} {spinner} {elapsed}";
/// A stage of so many blocks.
const BAR: &str = "{msg:24} [{bar:32}] {pos}/{len} {elapsed}, {eta} left";
/// A stage of steps, which the message counts; the bar counts their blocks.
const STEPS: &str = "{msg:24} [{bar:32}] {percent}% {elapsed}, {eta} left";
/// How often a bar is drawn anew, so that its clock goes on.
const TICK: Duration = Duration::from_millis(250);
/// Shows where a run is and how long its stages took.
pub(crate) struct Progress {
    quiet: bool,
    verbose: bool,
    on_terminal: bool,
    /// The bar of the stage that runs.
    bar: Option<ProgressBar>,
    /// Steps done and all, when the stage has steps.
    steps: Option<(usize, usize)>,
    last: Instant,
    step_times: Vec<Duration>,
    /// Name and begin of the stage that runs.
    stage: (&'static str, Instant),
    /// How long the stages took that have ended.
    took: Vec<(&'static str, Duration)>,
}

impl Progress {
    /// A bar when stderr is a terminal, lines when it is not, nothing with `quiet`, more lines with `verbose`.
    pub(crate) fn new(quiet: bool, verbose: bool) -> Self {
        let on_terminal = !quiet && std::io::stderr().is_terminal();
        let now = Instant::now();
        Self {
            quiet,
            verbose,
            on_terminal,
            bar: None,
            steps: None,
            last: now,
            step_times: Vec::new(),
            stage: ("", now),
            took: Vec::new(),
        }
    }

    /// One line for people, above the bar if there is one.
    pub(crate) fn line(&self, text: &str) {
        if !self.quiet {
            say::line(text);
        }
    }

    /// Lines for people who want to know more.
    pub(crate) fn detail(&self, text: &str) {
        if self.verbose {
            text.lines().for_each(say::line);
        }
    }

    /// A warning; shown even when quiet.
    pub(crate) fn warn(&self, text: &str) {
        say::line(&format!("warning: {text}"));
    }

    /// Runs the model, which tells of its stages by itself.
    ///
    /// # Errors
    /// What `work` fails with; [`CliError::Cancelled`] when a signal came.
    pub(crate) fn run<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        interrupt::computing(true);
        let result = work(self);
        interrupt::computing(false);
        self.bar = None;
        say::above(None);
        let result = result?;
        if interrupt::asked() { Err(CliError::Cancelled) } else { Ok(result) }
    }

    /// Runs one stage and says its name and how long it took.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub(crate) fn stage<T>(
        &mut self,
        name: &str,
        stage: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<(T, Duration)> {
        let begin = Instant::now();
        self.begin(name, None);
        let result = self.run(stage)?;
        let took = begin.elapsed();
        self.ended(name, took);
        Ok((result, took))
    }

    /// A stage begins, with so many steps if it has steps.
    fn begin(&mut self, name: &str, steps: Option<usize>) {
        self.last = Instant::now();
        self.steps = steps.map(|steps| (0, steps));
        if self.on_terminal {
            let bar = ProgressBar::no_length().with_style(style(SPINNER)).with_message(name.to_string());
            bar.enable_steady_tick(TICK);
            say::above(Some(bar.clone()));
            self.bar = Some(bar);
        }
    }

    fn ended(&mut self, name: &str, took: Duration) {
        self.bar = None;
        say::above(None);
        self.line(&format!("{name} {:.2} s", took.as_secs_f64()));
    }

    /// A part of a run has ended.
    fn end(&mut self, part: Part) {
        let (name, begin) = self.stage;
        debug_assert_eq!(name, part_name(part), "parts do not overlap");
        let took = begin.elapsed();
        self.took.push((name, took));
        self.ended(name, took);
    }

    /// How long a part of the last run took; `None` when it did not run.
    pub(crate) fn took(&self, part: Part) -> Option<Duration> {
        self.took.iter().rev().find(|(name, _)| *name == part_name(part)).map(|(_, took)| *took)
    }

    /// How long each denoising step took.
    pub(crate) fn step_times(&self) -> &[Duration] {
        &self.step_times
    }

    /// Moves the bar; the first time in a stage there is a length.
    fn at(&self, position: usize, length: usize, template: &str) {
        if let Some(bar) = &self.bar {
            if bar.length().is_none() {
                bar.set_style(style(template));
            }
            bar.set_length(length as u64);
            bar.set_position(position as u64);
        }
    }

    /// Before a block of a step.
    fn block(&self, block: usize, blocks: usize) {
        match self.steps {
            Some((done, steps)) => {
                if let Some(bar) = &self.bar {
                    bar.set_message(format!("denoise, step {}/{steps}", done + 1));
                }
                self.at(done * blocks + block, steps * blocks, STEPS);
            }
            None => self.at(block, blocks, BAR),
        }
    }

    /// After a step.
    fn step(&mut self, step: usize, steps: usize) {
        let took = self.last.elapsed();
        self.last = Instant::now();
        self.step_times.push(took);
        self.steps = Some((step, steps));
        if self.bar.is_none() {
            self.line(&format!("denoise {step}/{steps} {:.2}", took.as_secs_f64()));
        }
    }
}

/// A part's name for people; front ends know these words.
fn part_name(part: Part) -> &'static str {
    match part {
        Part::LoadVae => "vae load",
        Part::Encode => "text encoder",
        Part::LoadDit => "dit load",
        Part::Denoise { .. } => "denoise",
        Part::Decode => "vae",
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is valid").progress_chars("=> ")
}

impl<B: Backend> Observer<B> for Progress {
    fn event(&mut self, event: Event) -> ControlFlow<()> {
        match event {
            Event::Begin(part) => {
                self.stage = (part_name(part), Instant::now());
                let steps = if let Part::Denoise { steps } = part { Some(steps) } else { None };
                self.begin(part_name(part), steps);
            }
            Event::End(part) => self.end(part),
            Event::TextLayer { layer, layers } => self.at(layer, layers, BAR),
            Event::Block { block, blocks } => self.block(block, blocks),
            Event::VaeBlock { block, blocks } => self.at(block, blocks, BAR),
            Event::Step { step, steps } => self.step(step, steps),
        }
        if interrupt::asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
