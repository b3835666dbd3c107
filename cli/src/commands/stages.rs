//! The commands that run one stage alone.

use moss_reference::backend::Tensor as _;
use moss_reference::model::TOKEN_SIDE;
use moss_reference::model::text_encoder;
use moss_reference::model::vae::{self, Vae};
use moss_reference::run::{self, MAX_PIXELS, MAX_SIDE};

use crate::error::{CliError, Result};
use crate::files::output::{Destination, Kind, refuse_shared};
use crate::files::record::write_png;
use crate::files::{latents, npy};
use crate::machine::{self, Machine};
use crate::model::{self, Source};
use crate::options::{DecodeArgs, EncodeArgs, PromptArgs, TokenizeArgs, check};
use crate::progress::Progress;
use crate::say;

fn required_prompt(args: &PromptArgs) -> Result<String> {
    model::prompt(args)?.ok_or_else(|| CliError::Usage("--prompt TEXT is required (or --prompt-file)".into()))
}

/// `moss tokenize`: the ids on stdout, their number on stderr.
///
/// # Errors
/// What stops it.
pub(crate) fn tokenize(args: &TokenizeArgs) -> Result<()> {
    let prompt = required_prompt(&args.prompt)?;
    let progress = Progress::new(args.quiet, false);
    let tokenizer = Source::new(args.model.as_deref()).tokenizer()?;
    let max_seq = check::max_seq(args.prompt.max_seq)?;
    let encoded = model::encode_prompt(&tokenizer, "prompt", &prompt, max_seq, |w| progress.warn(w))?;
    progress.line(&format!("{} tokens", encoded.ids.len()));
    let ids: Vec<String> = encoded.ids.iter().map(u32::to_string).collect();
    say::out(&(ids.join(" ") + "\n"))
}

/// `moss encode`: text states to a file.
///
/// # Errors
/// What stops it; nothing is written then.
pub(crate) fn encode(args: &EncodeArgs) -> Result<()> {
    let mut progress = Progress::new(args.model.quiet, args.model.verbose);
    let destination = Destination::check("-o", &args.output, Kind::Array, args.overwrite.existing())?;
    let inputs: Vec<_> = args.prompt.prompt_file.iter().map(|path| ("--prompt-file", &**path)).collect();
    refuse_shared(&[&destination], &inputs, args.model.model.as_deref())?;
    let prompt = required_prompt(&args.prompt)?;
    let source = Source::new(args.model.model.as_deref());
    let opened = machine::open(&args.model, &progress)?;
    opened.run(Encode { args, prompt, source, destination }, &mut progress, Encode::on, Encode::on)
}

/// A checked `moss encode`.
struct Encode<'a> {
    args: &'a EncodeArgs,
    prompt: String,
    source: Source,
    destination: Destination,
}

impl Encode<'_> {
    fn on<B: Machine>(self, backend: &B, progress: &mut Progress) -> Result<()> {
        let Self { args, prompt, source, destination } = self;
        let (config, weights) = source.text_encoder()?;
        let tokenizer = source.tokenizer()?;
        let max_seq = check::max_seq(args.prompt.max_seq)?;
        let encoded = model::encode_prompt(&tokenizer, "prompt", &prompt, max_seq, |w| progress.warn(w))?;
        let spec = text_encoder::stage_spec(&config, weights, encoded.ids.len());
        backend.admit(&spec, &[]).map_err(|error| CliError::failed("text encoder", error))?;
        let (states, _) = progress.stage("text encoder", |progress| {
            Ok(run::encode(backend, &config, spec, &[&encoded.ids], progress)?)
        })?;
        let data =
            backend.download(&states[0]).map_err(|error| CliError::failed("text states", error))?.to_f32();
        destination.write(|writer| npy::write(writer, states[0].shape(), &data))?;
        progress.line(&format!("done: {} {:?}", args.output.display(), states[0].shape()));
        Ok(())
    }
}

/// `moss decode`: latents to a picture.
///
/// # Errors
/// What stops it; nothing is written then.
pub(crate) fn decode(args: &DecodeArgs) -> Result<()> {
    let mut progress = Progress::new(args.model.quiet, args.model.verbose);
    let destination = Destination::check("-o", &args.output, Kind::Picture, args.overwrite.existing())?;
    refuse_shared(&[&destination], &[("--latent-in", &args.latent_in)], args.model.model.as_deref())?;
    let (array, h, w) = latents::read("--latent-in", &args.latent_in, None)?;
    let (height, width) = (h * TOKEN_SIDE, w * TOKEN_SIDE);
    if height.max(width) > MAX_SIDE as usize || (height * width) as u64 > MAX_PIXELS {
        let path = args.latent_in.display();
        return Err(CliError::Failed(format!("--latent-in {path}: {width}x{height} pixels are too many")));
    }
    let opened = machine::open(&args.model, &progress)?;
    let decode = Decode { args, data: array.data, h, w, destination };
    opened.run(decode, &mut progress, Decode::on, Decode::on)
}

/// A checked `moss decode` of `h * w` latents.
struct Decode<'a> {
    args: &'a DecodeArgs,
    data: Vec<f32>,
    h: usize,
    w: usize,
    destination: Destination,
}

impl Decode<'_> {
    fn on<B: Machine>(self, backend: &B, progress: &mut Progress) -> Result<()> {
        let Self { args, data, h, w, destination } = self;
        let (height, width) = (h * TOKEN_SIDE, w * TOKEN_SIDE);
        let (config, weights) = Source::new(args.model.model.as_deref()).vae()?;
        let spec = vae::stage_spec(&config, weights, h, w);
        backend.admit(&spec, &[]).map_err(|error| CliError::failed("vae", error))?;
        let (pixels, _) = progress.stage("vae", |progress| {
            let vae = Vae::load(backend, &config, spec)?;
            Ok(run::decode(backend, &vae, &data, h, w, progress)?)
        })?;
        let rgb = vae::to_rgb8(&pixels);
        destination.write(|writer| write_png(writer, &rgb, width as u32, height as u32, None))?;
        progress.line(&format!("done: {} {width}x{height}", args.output.display()));
        Ok(())
    }
}
