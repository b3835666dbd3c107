//! Progress on stderr: a bar on a terminal, one line per event elsewhere. Also the ear for Ctrl-C.

use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use moss_reference::backend::Backend;
use moss_reference::model::{Event, Observer};

use crate::error::{CliError, Result};

static STOP: AtomicBool = AtomicBool::new(false);

/// From now on Ctrl-C ends the run between two blocks; a second one ends the process at once.
///
/// # Errors
/// A failure when the handler cannot be set.
pub(crate) fn listen_for_ctrl_c() -> Result<()> {
    static SET: OnceLock<std::result::Result<(), String>> = OnceLock::new();
    let set = SET.get_or_init(|| {
        ctrlc::set_handler(|| {
            if STOP.swap(true, Ordering::SeqCst) {
                std::process::exit(130);
            }
        })
        .map_err(|error| error.to_string())
    });
    set.clone().map_err(|error| CliError::failed("Ctrl-C handler", error))
}

/// Shows where a run is and how long its stages took.
pub(crate) struct Progress {
    quiet: bool,
    bar: Option<ProgressBar>,
    last: Instant,
    step_times: Vec<Duration>,
}

impl Progress {
    /// A bar when stderr is a terminal, lines when it is not, nothing with `quiet`.
    pub(crate) fn new(quiet: bool) -> Self {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let style = ProgressStyle::with_template("{msg:24} [{bar:32}] {pos}/{len} {elapsed}")
                .expect("the template is valid");
            ProgressBar::new(0).with_style(style.progress_chars("=> "))
        });
        Self { quiet, bar, last: Instant::now(), step_times: Vec::new() }
    }

    /// One line for people, above the bar if there is one.
    pub(crate) fn line(&self, text: &str) {
        match &self.bar {
            _ if self.quiet => {}
            Some(bar) => bar.suspend(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }

    /// A warning; shown even when quiet.
    pub(crate) fn warn(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("warning: {text}")),
            None => eprintln!("warning: {text}"),
        }
    }

    /// Runs one stage and says its name and how long it took.
    ///
    /// # Errors
    /// What `stage` fails with.
    pub(crate) fn stage<T>(
        &mut self,
        name: &str,
        stage: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<(T, Duration)> {
        if STOP.load(Ordering::SeqCst) {
            return Err(CliError::Cancelled);
        }
        let begin = Instant::now();
        self.last = begin;
        if let Some(bar) = &self.bar {
            bar.reset();
            bar.set_message(name.to_string());
        }
        let result = stage(self)?;
        let took = begin.elapsed();
        self.line(&format!("{name} {:.2} s", took.as_secs_f64()));
        Ok((result, took))
    }

    /// How long each denoising step took.
    pub(crate) fn step_times(&self) -> &[Duration] {
        &self.step_times
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn at(&self, position: usize, length: usize) {
        if let Some(bar) = &self.bar {
            bar.set_length(length as u64);
            bar.set_position(position as u64);
        }
    }
}

impl<B: Backend> Observer<B> for Progress {
    fn event(&mut self, event: Event) -> ControlFlow<()> {
        match event {
            Event::TextLayer { layer, layers } => self.at(layer, layers),
            Event::Block { .. } => {}
            Event::VaeBlock { block, blocks } => self.at(block, blocks),
            Event::Step { step, steps } => {
                let took = self.last.elapsed();
                self.last = Instant::now();
                self.step_times.push(took);
                if self.bar.is_some() {
                    self.at(step, steps);
                } else {
                    self.line(&format!("denoise {step}/{steps} {:.2}", took.as_secs_f64()));
                }
            }
        }
        if STOP.load(Ordering::SeqCst) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
