//! Latents in files: given ones, and a run's own, which no failure after the denoising may cost.

use std::path::{Path, PathBuf};

use crate::error::{CliError, Result};
use crate::files::npy;
use crate::files::output::{Destination, Existing, Kind};
use crate::say;

/// Channels of a latent token.
const CHANNELS: usize = 128;

/// Latents or noise from a file, `[128, h, w]` or `[1, 128, h, w]`, with `h` and `w`.
///
/// # Errors
/// A failure that names the option, the file, the shape found and the one expected.
pub(crate) fn read(
    option: &str,
    path: &Path,
    size: Option<(usize, usize)>,
) -> Result<(npy::Array, usize, usize)> {
    let mut array = npy::read(option, path)?;
    if array.shape.len() == 4 && array.shape[0] == 1 {
        array.shape.remove(0);
    }
    let fits = |h: usize, w: usize| size.is_none_or(|size| size == (h, w)) && h > 0 && w > 0;
    match array.shape[..] {
        [CHANNELS, h, w] if fits(h, w) => Ok((array, h, w)),
        _ => {
            let expected = size.map_or("[128, h, w]".into(), |(h, w)| format!("[128, {h}, {w}]"));
            let message =
                format!("{option} {}: shape {:?}, {expected} expected", path.display(), array.shape);
            Err(CliError::Failed(message))
        }
    }
}

/// The final latents of a run, `[128, h, w]`.
pub(crate) struct Latents<'a> {
    /// The elements.
    pub data: Vec<f32>,
    shape: [usize; 4],
    /// The picture's place, beside which they are saved when that is needed.
    picture: Option<&'a Destination>,
    /// Where they are or why they are nowhere, as words in a failure; `None` before anybody asked.
    kept: Option<String>,
}

impl<'a> Latents<'a> {
    /// Latents that are in memory only.
    pub(crate) fn new(data: Vec<f32>, h: usize, w: usize, picture: Option<&'a Destination>) -> Self {
        Self { data, shape: [1, CHANNELS, h, w], picture, kept: None }
    }

    /// Writes them where `--latent-out` says; where that fails they are saved elsewhere.
    ///
    /// # Errors
    /// A failure that names the option, the file and where the latents are.
    pub(crate) fn write(&mut self, destination: &Destination) -> Result<()> {
        match destination.write(|writer| npy::write(writer, &self.shape, &self.data)) {
            Ok(()) => {
                let words =
                    |path: PathBuf| format!("the latents are in {}", say::safe(&path.display().to_string()));
                self.kept = destination.file().map(words);
                Ok(())
            }
            Err(error) => Err(self.failure(&error)),
        }
    }

    /// A failure after the denoising, with the words that say where the latents are.
    pub(crate) fn failure(&mut self, error: &CliError) -> CliError {
        CliError::Failed(format!("{} ({})", error.message(), self.kept()))
    }

    /// Where the latents are; saves them if they are in no file yet.
    pub(crate) fn kept(&mut self) -> &str {
        if self.kept.is_none() {
            self.kept = Some(self.save());
        }
        self.kept.as_deref().expect("just set")
    }

    /// Saves them beside the picture's place under a name that is free, or, for a stream or where that fails too, where the
    /// system has temporary files. Says where, or why not.
    fn save(&self) -> String {
        let elsewhere = std::env::temp_dir().join("moss.png");
        let mut reason = String::new();
        let beside = self.picture.and_then(Destination::file);
        for place in beside.into_iter().chain([elsewhere]) {
            let names = (1..).map(|n| match n {
                1 => place.with_extension("latents.npy"),
                n => place.with_extension(format!("latents-{n}.npy")),
            });
            let path =
                names.into_iter().find(|path| path.symlink_metadata().is_err()).expect("names do not end");
            let saved =
                Destination::check("latents", &path, Kind::Array, Existing::Never).and_then(|destination| {
                    destination.write(|writer| npy::write(writer, &self.shape, &self.data))
                });
            match saved {
                Ok(()) => {
                    return format!("the latents are saved in {}", say::safe(&path.display().to_string()));
                }
                Err(error) => reason = error.message(),
            }
        }
        format!("saving the latents failed too: {reason}")
    }
}
