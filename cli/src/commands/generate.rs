//! `moss --prompt TEXT -o FILE.png`.

use std::path::Path;
use std::time::Duration;

use half::bf16;
use moss_reference::backend::HostData;
use moss_reference::model::config::PipelineConfig;
use moss_reference::model::dit::Dit;
use moss_reference::model::observe::check_values;
use moss_reference::model::vae::{self, Vae};
use moss_reference::model::{Model, TOKEN_SIDE};
use moss_reference::run;
use moss_reference::sample::noise::randn;
use moss_reference::sample::schedule;
use moss_reference::sample::{Guidance, Start, denoise};

use crate::commands::devices;
use crate::error::{CliError, Result};
use crate::files::again::Again;
use crate::files::npy;
use crate::files::output::{Destination, Existing, Kind, refuse_shared};
use crate::files::record::{self, Record, write_png};
use crate::machine::{self, Machine, tell_notes};
use crate::model::{self, MAX_SEQ, Source};
use crate::options::{GenerateArgs, check};
use crate::plan::{Expected, Planned};
use crate::progress::Progress;
use crate::say;

/// Channels of a latent token.
const LATENT_CHANNELS: usize = 128;

/// Everything that was asked for, checked, before any weight is read.
struct Request {
    prompt: String,
    negative: String,
    width: u32,
    height: u32,
    steps: usize,
    guidance: Guidance,
    shift: f64,
    seed: u64,
    max_seq: usize,
    /// Text states of the cond row and, if there is one, the uncond row; empty when a prompt gives them.
    text_in: Vec<npy::Array>,
    noise_in: Option<npy::Array>,
}

/// Runs the command.
///
/// # Errors
/// What stops it, with the option or file named; nothing is written then.
pub(crate) fn run(args: &GenerateArgs) -> Result<()> {
    args.unsupported.check()?;
    if args.list_devices {
        return devices::run(args.json);
    }
    if args.tier != "reference" {
        return Err(CliError::Usage(format!("--tier {}: only the reference tier is supported", args.tier)));
    }
    if args.json && !args.dry_run {
        return Err(CliError::option("--json", "only with --list-devices or --dry-run"));
    }
    if args.output.is_none() && args.latent_out.is_none() && !args.dry_run {
        return Err(CliError::Usage("-o FILE.png or --latent-out FILE.npy is required".into()));
    }
    let mut progress = Progress::new(args.model.quiet, args.model.verbose);
    let existing = args.overwrite.existing();
    let picture =
        args.output.as_deref().map(|path| Destination::picture("-o", path, existing)).transpose()?;
    let latents = |path| Destination::check("--latent-out", path, Kind::Array, existing);
    let latent_out = args.latent_out.as_deref().map(latents).transpose()?;
    refuse_shared_places(args, picture.iter().chain(&latent_out).collect())?;

    let again = args.from.as_deref().map(|path| Again::read(path, |w| progress.warn(w))).transpose()?;
    let source = Source::new(args.model.model.as_deref());
    let config = source.pipeline()?;
    let request = request(args, &Defaults::new(&config, again.as_ref()))?;
    if let Some(again) = &again {
        again.check_files(&request.text_in, request.noise_in.as_ref())?;
    }
    if args.negative.as_ref().is_some_and(|text| !text.is_empty()) && !request.guidance.has_uncond() {
        progress.warn("--negative has no effect with --cfg 1");
    }

    let picture = picture.map(|picture| picture.named(&request.prompt, Some(request.seed)));
    let opened = machine::open(&args.model, &progress)?;
    let generation = Generation { args, source, config, request, again, picture, latent_out };
    opened.run(generation, &mut progress, Generation::on, Generation::on)
}

/// A checked request that waits for its machine.
struct Generation<'a> {
    args: &'a GenerateArgs,
    source: Source,
    config: PipelineConfig,
    request: Request,
    again: Option<Again>,
    picture: Option<Destination>,
    latent_out: Option<Destination>,
}

impl Generation<'_> {
    fn on<B: Machine>(self, backend: &B, progress: &mut Progress) -> Result<()> {
        let Self { args, source, config, request, again, picture, latent_out } = self;
        let model = source.open()?;
        if source.is_demo() {
            progress.line("model: the small demo model inside this program (--model DIR uses MOSS-Image)");
        }
        warn_of_size(&config, &request, progress);
        let identity = source.named(model.identity(&source.source))?;
        if let Some(again) = &again {
            again.check_model(&identity, &source.name)?;
            if again.record.backend != backend.record_name() {
                progress.warn(&format!(
                    "--from: the picture was made with {}, this is {}; it may differ",
                    again.record.backend,
                    backend.record_name()
                ));
            }
        }
        let guidance = with_default_skips(args, &request, &model, again.as_ref())?;
        let request = Request { guidance, ..request };
        check_text_width(args, &request, &model)?;
        progress.detail(&told(&request));
        if args.dry_run {
            return dry_run(backend, &model, &source, &request, args.json, progress);
        }
        let record = (!args.no_metadata).then(|| record_of(&request, identity, backend.record_name()));
        generate(backend, &model, &source, &request, progress, picture, latent_out, record)
    }
}

/// The settings that hold, for `--verbose`.
fn told(request: &Request) -> String {
    let guidance = &request.guidance;
    format!(
        "settings: {}x{}, steps {}, cfg {}, shift {}, seed {}, skip layers {:?} from {} to {}",
        request.width,
        request.height,
        request.steps,
        guidance.cfg,
        request.shift,
        request.seed,
        guidance.skip_layers,
        guidance.skip_start,
        guidance.skip_stop
    )
}

/// What the picture will say about itself.
fn record_of(request: &Request, model: String, backend: String) -> Record {
    Record {
        program: format!("{}{}", record::PROGRAM, env!("CARGO_PKG_VERSION")),
        model,
        prompt: request.prompt.clone(),
        negative: request.negative.clone(),
        text_in: request.text_in.iter().map(|array| array.sha256.clone()).collect(),
        width: request.width,
        height: request.height,
        steps: request.steps,
        cfg: request.guidance.cfg,
        shift: request.shift,
        seed: request.seed,
        noise_in: request.noise_in.as_ref().map(|array| array.sha256.clone()),
        skip_layers: request.guidance.skip_layers.clone(),
        skip_start: request.guidance.skip_start,
        skip_stop: request.guidance.skip_stop,
        max_seq: request.max_seq,
        sampler: record::SAMPLER.into(),
        schedule: record::SCHEDULE.into(),
        noise_layout: record::NOISE_LAYOUT.into(),
        backend,
        tier: record::TIER.into(),
    }
}

/// `--dry-run`: the memory plan of the request on stdout. Reads the prompt and the weights' headers.
fn dry_run<B: Machine>(
    backend: &B,
    model: &Model,
    source: &Source,
    request: &Request,
    json: bool,
    progress: &Progress,
) -> Result<()> {
    let (h, w) = (request.height as usize / TOKEN_SIDE, request.width as usize / TOKEN_SIDE);
    let lengths: Vec<usize> = match request.text_in.is_empty() {
        false => request.text_in.iter().map(|array| array.shape[0]).collect(),
        true => prompt_ids(source, request, progress)?.iter().map(Vec::len).collect(),
    };
    let mut stages = model.stages(h, w, &lengths);
    if !request.text_in.is_empty() {
        drop(stages.take_text_encoder());
    }
    stages.admit(backend)?;
    let expected = expected(backend, &stages, request, &lengths, progress)?;
    match json {
        true => say::json(&Planned {
            backend: backend.record_name(),
            expected_seconds: expected.map(|expected| expected.time().as_secs_f64()),
            memory: backend.memory(&stages),
        }),
        false => say::out(&backend.plan_text(&stages)),
    }
}

/// A time from which a run says first how long it may take.
const LONG: Duration = Duration::from_secs(60);
/// A time from which it does so even when quiet.
const VERY_LONG: Duration = Duration::from_secs(600);

/// Says what a run over prompts of these lengths is made of, and how long the denoising may take where that is long and known.
fn expected<B: Machine>(
    backend: &B,
    stages: &run::Stages,
    request: &Request,
    lengths: &[usize],
    progress: &Progress,
) -> Result<Option<Expected>> {
    let pixels = u64::from(request.width) * u64::from(request.height);
    let latents = pixels as usize / (TOKEN_SIDE * TOKEN_SIDE);
    let tokens = lengths.iter().sum::<usize>() + lengths.len() * latents;
    progress.detail(&format!("tokens: {lengths:?} of text, {latents} of the picture beside each"));
    let rate = backend.rate()?;
    let expected = rate.map(|rate| Expected::new(stages, tokens, request.steps, rate));
    if let Some(expected) = expected {
        let text = format!("expected time: {expected}");
        match expected.time() {
            time if time >= VERY_LONG => progress.warn(&text),
            time if time >= LONG => progress.line(&text),
            _ => {}
        }
    }
    Ok(expected)
}

/// The files of `--text-in`: the cond row's and perhaps the uncond row's.
fn text_files(list: &str) -> impl Iterator<Item = &Path> {
    list.splitn(2, ',').map(Path::new)
}

/// Refuses outputs that are the same file, or one that the run reads.
fn refuse_shared_places(args: &GenerateArgs, outputs: Vec<&Destination>) -> Result<()> {
    let texts = args.text_in.as_deref().into_iter().flat_map(text_files);
    let inputs: Vec<(&str, &Path)> =
        [("--prompt-file", &args.prompt.prompt_file), ("--noise-in", &args.noise_in), ("--from", &args.from)]
            .into_iter()
            .filter_map(|(option, path)| Some((option, path.as_deref()?)))
            .chain(texts.map(|path| ("--text-in", path)))
            .collect();
    refuse_shared(&outputs, &inputs, args.model.model.as_deref())
}

/// Values of options that were not given.
struct Defaults {
    prompt: Option<String>,
    negative: String,
    size: (u32, u32),
    steps: usize,
    cfg: f32,
    shift: f64,
    seed: u64,
    skip_start: f64,
    skip_stop: f64,
    max_seq: usize,
}

impl Defaults {
    fn new(config: &PipelineConfig, again: Option<&Again>) -> Self {
        match again.map(|again| &again.record) {
            Some(r) => Self {
                prompt: Some(r.prompt.clone()),
                negative: r.negative.clone(),
                size: (r.width, r.height),
                steps: r.steps,
                cfg: r.cfg,
                shift: r.shift,
                seed: r.seed,
                skip_start: r.skip_start,
                skip_stop: r.skip_stop,
                max_seq: r.max_seq,
            },
            None => Self {
                prompt: None,
                negative: String::new(),
                size: config.size.map_or((1024, 1024), |[width, height]| (width, height)),
                steps: config.steps,
                cfg: 3.0,
                shift: 5.0,
                seed: 42,
                skip_start: 0.0,
                skip_stop: 1.0,
                max_seq: MAX_SEQ,
            },
        }
    }
}

fn request(args: &GenerateArgs, defaults: &Defaults) -> Result<Request> {
    let usage = |message: String| Err(CliError::Usage(message));
    let (width, height) = check::picture_size(args, defaults.size)?;
    let cfg = check::cfg(args.cfg.unwrap_or(defaults.cfg))?;
    let skip_start = check::progress("--skip-start", args.skip_start.unwrap_or(defaults.skip_start))?;
    let skip_stop = check::progress("--skip-stop", args.skip_stop.unwrap_or(defaults.skip_stop))?;
    if skip_start > skip_stop {
        return usage(format!("--skip-start: {skip_start} is above --skip-stop {skip_stop}"));
    }
    let guidance = Guidance { cfg, skip_layers: Vec::new(), skip_start, skip_stop };
    let steps = args.steps.map_or(Ok(defaults.steps), check::steps)?;
    let shift = check::shift(args.shift.unwrap_or(defaults.shift))?;
    let seed = args.seed.map_or(Ok(defaults.seed), check::seed)?;
    let mut max_seq = check::max_seq(args.prompt.max_seq.unwrap_or(defaults.max_seq))?;

    let (mut prompt, mut negative) = (String::new(), String::new());
    let mut text_in = Vec::new();
    if let Some(list) = &args.text_in {
        for (option, given) in
            [("--negative", args.negative.is_some()), ("--max-seq", args.prompt.max_seq.is_some())]
        {
            if given {
                return usage(format!("--text-in: the text states are given, {option} has no place"));
            }
        }
        max_seq = MAX_SEQ;
        text_in = text_arrays(list, guidance.has_uncond())?;
    } else {
        prompt = match model::prompt(&args.prompt)?.or_else(|| defaults.prompt.clone()) {
            Some(prompt) => prompt,
            None => {
                return usage("--prompt TEXT is required (or --prompt-file, --text-in, --from)".into());
            }
        };
        negative = match &args.negative {
            Some(text) => model::text("--negative", text)?,
            None => defaults.negative.clone(),
        };
    }
    let size = (height as usize / TOKEN_SIDE, width as usize / TOKEN_SIDE);
    let noise_in =
        args.noise_in.as_deref().map(|path| latents("--noise-in", path, Some(size))).transpose()?;
    Ok(Request {
        prompt,
        negative,
        width,
        height,
        steps,
        guidance,
        shift,
        seed,
        max_seq,
        text_in,
        noise_in: noise_in.map(|(array, ..)| array),
    })
}

/// The guidance with its skipped blocks, which only the model's size can check.
fn with_default_skips(
    args: &GenerateArgs,
    request: &Request,
    model: &Model,
    again: Option<&Again>,
) -> Result<Guidance> {
    let skip_layers = match (&args.skip_layers, again) {
        (Some(text), _) => check::skip_layers(text, model.config.dit.num_layers)?,
        (None, Some(again)) => again.skip_layers(model.config.dit.num_layers)?,
        (None, None) => model.config.dit.uncond_skip_layers.clone(),
    };
    Ok(Guidance { skip_layers, ..request.guidance.clone() })
}

/// Fewest pixels that official models draw well; the most are [`check::MAX_PIXELS`].
const MIN_PIXELS: u32 = 250_000;

/// Warns of a size that the model was not made for.
fn warn_of_size(config: &PipelineConfig, request: &Request, progress: &Progress) {
    let (width, height) = (request.width, request.height);
    match config.size {
        Some([w, h]) if (w, h) != (width, height) => {
            progress.warn(&format!("{width}x{height}: this model draws well at {w}x{h} only"));
        }
        None if width * height < MIN_PIXELS => progress.warn(&format!(
            "{width}x{height} is below {} megapixels; MOSS-Image draws well from there to {}",
            f64::from(MIN_PIXELS) / 1e6,
            check::MAX_PIXELS as f64 / 1e6
        )),
        _ => {}
    }
}

fn generate<B: Machine>(
    backend: &B,
    model: &Model,
    source: &Source,
    request: &Request,
    progress: &mut Progress,
    picture: Option<Destination>,
    latent_out: Option<Destination>,
    record: Option<Record>,
) -> Result<()> {
    let (h, w) = (request.height as usize / TOKEN_SIDE, request.width as usize / TOKEN_SIDE);
    let sigmas = schedule::sigmas(request.steps, request.shift)
        .map_err(|error| CliError::Usage(format!("--steps, --shift: {error}")))?;
    if sigmas.len() - 1 < request.steps {
        progress.line(&format!("schedule: {} of {} steps differ", sigmas.len() - 1, request.steps));
    }
    let noise = match &request.noise_in {
        Some(array) => array.data.clone(),
        None => randn(request.seed, LATENT_CHANNELS * h * w),
    };

    let (states, text_time, stages) = text_states(backend, model, source, request, progress, h, w)?;
    let (vae, _) = progress.stage("vae load", |_| Ok(Vae::load(backend, &model.config.vae, stages.vae)?))?;
    let (dit, dit_time) =
        progress.stage("dit load", |_| Ok(Dit::load(backend, &model.config.dit, stages.dit)?))?;
    tell_notes(backend, progress);
    let start = Start { noise: &noise, h, w, sigmas: &sigmas, guidance: &request.guidance };
    let (final_latents, denoise_time) = progress.stage_of_steps("denoise", sigmas.len() - 1, |progress| {
        Ok(denoise(backend, &dit, &states[0], states.get(1), &start, progress)?)
    })?;
    let resident = backend.resident_blocks(dit.stage());
    drop(dit);
    // One output that cannot be written does not cost the other; the first failure is the run's.
    let shape = [1, LATENT_CHANNELS, h, w];
    let mut written = Ok(());
    let mut kept_in = None;
    if let Some(destination) = &latent_out {
        written = destination.write(|writer| npy::write(writer, &shape, &final_latents));
        kept_in = destination.file().filter(|_| written.is_ok());
    }
    let mut vae_time = None;
    if let Some(destination) = &picture {
        let mut draw = || {
            let decoded = progress
                .stage("vae", |progress| Ok(run::decode(backend, &vae, &final_latents, h, w, progress)?));
            let (pixels, took) = decoded.map_err(|error| match error {
                CliError::Failed(message) => CliError::Failed(format!("vae: {message}")),
                other => other,
            })?;
            let rgb = vae::to_rgb8(&pixels);
            destination
                .write(|writer| write_png(writer, &rgb, request.width, request.height, record.as_ref()))?;
            Ok(took)
        };
        match draw() {
            Ok(took) => vae_time = Some(took),
            Err(CliError::Failed(message)) => {
                let kept = match kept_in {
                    Some(path) => format!("the latents are in {}", say::safe(&path.display().to_string())),
                    None => save_latents(destination, &shape, &final_latents),
                };
                let failure = CliError::Failed(format!("{message} ({kept})"));
                if written.is_err() {
                    progress.line(&failure.message());
                }
                return written.and(Err(failure));
            }
            Err(error) => return Err(error),
        }
    }
    let steps = progress.step_times().len().max(1);
    let vae_text = vae_time.map_or("not run".into(), |t| format!("{:.2} s", t.as_secs_f64()));
    let resident = resident.map_or(String::new(), |(blocks, all)| {
        format!(", {blocks} of {all} DiT blocks stayed on the device")
    });
    progress.line(&format!(
        "done: {} {}x{}, seed {}, text encoder {:.2} s, dit load {:.2} s, denoise {:.2} s ({:.3} s a step), vae {vae_text}{resident}",
        picture.as_ref().map_or(Path::new("(no picture)"), Destination::path).display(),
        request.width,
        request.height,
        request.seed,
        text_time,
        dit_time.as_secs_f64(),
        denoise_time.as_secs_f64(),
        denoise_time.as_secs_f64() / steps as f64,
    ));
    written
}

/// A picture that failed must not cost the denoising: the latents are saved beside its place under a name that is free, or, for
/// a stream or where that fails too, where the system has temporary files. Says where, or why not.
fn save_latents(picture: &Destination, shape: &[usize], latents: &[f32]) -> String {
    let elsewhere = std::env::temp_dir().join("moss.png");
    let mut reason = String::new();
    for place in picture.file().into_iter().chain([elsewhere]) {
        let names = (1..).map(|n| match n {
            1 => place.with_extension("latents.npy"),
            n => place.with_extension(format!("latents-{n}.npy")),
        });
        let path = names.into_iter().find(|path| path.symlink_metadata().is_err()).expect("names do not end");
        let saved = Destination::check("latents", &path, Kind::Array, Existing::Never)
            .and_then(|destination| destination.write(|writer| npy::write(writer, shape, latents)));
        match saved {
            Ok(()) => return format!("the latents are saved in {}", say::safe(&path.display().to_string())),
            Err(error) => reason = error.message(),
        }
    }
    format!("saving the latents failed too: {reason}")
}

/// Text states of the cond and, when there is one, the uncond row; admits the whole run before the encoder loads.
fn text_states<B: Machine>(
    backend: &B,
    model: &Model,
    source: &Source,
    request: &Request,
    progress: &mut Progress,
    h: usize,
    w: usize,
) -> Result<(Vec<B::Tensor>, f64, run::Stages)> {
    if !request.text_in.is_empty() {
        let lengths: Vec<usize> = request.text_in.iter().map(|array| array.shape[0]).collect();
        let mut stages = model.stages(h, w, &lengths);
        drop(stages.take_text_encoder());
        stages.admit(backend)?;
        expected(backend, &stages, request, &lengths, progress)?;
        progress.detail(&backend.plan_text(&stages));
        let states = request
            .text_in
            .iter()
            .map(|array| {
                let data = array.data.iter().copied().map(bf16::from_f32).collect();
                backend.upload(HostData::Bf16(data), &array.shape)
            })
            .collect::<std::result::Result<Vec<_>, _>>()
            .map_err(|error| CliError::failed("--text-in", error))?;
        return Ok((states, 0.0, stages));
    }
    let ids = prompt_ids(source, request, progress)?;
    let lengths: Vec<usize> = ids.iter().map(Vec::len).collect();
    let mut stages = model.stages(h, w, &lengths);
    stages.admit(backend)?;
    expected(backend, &stages, request, &lengths, progress)?;
    progress.detail(&backend.plan_text(&stages));
    let prompts: Vec<&[u32]> = ids.iter().map(Vec::as_slice).collect();
    let spec = stages.take_text_encoder();
    let (states, took) = progress
        .stage("text encoder", |progress| Ok(run::encode(backend, model, spec, &prompts, progress)?))?;
    Ok((states, took.as_secs_f64(), stages))
}

/// Token ids of the cond and, when there is one, the uncond row.
fn prompt_ids(source: &Source, request: &Request, progress: &Progress) -> Result<Vec<Vec<u32>>> {
    let tokenizer = source.tokenizer()?;
    let texts = [("prompt", &request.prompt), ("negative prompt", &request.negative)];
    let rows = 1 + usize::from(request.guidance.has_uncond());
    let encode = |(what, text): (&str, &String)| {
        model::encode_prompt(&tokenizer, what, text, Some(request.max_seq), |w| progress.warn(w))
    };
    texts.into_iter().take(rows).map(|text| Ok(encode(text)?.ids)).collect()
}

/// The text states that `--text-in` names, each `[L, width]` or `[1, L, width]`, one array a row.
fn text_arrays(list: &str, uncond: bool) -> Result<Vec<npy::Array>> {
    match (uncond, text_files(list).count()) {
        (true, 1) => {
            return Err(CliError::Usage("--text-in: two files (cond,uncond) unless --cfg is 1".into()));
        }
        (false, 2) => return Err(CliError::Usage("--text-in: one file when --cfg is 1".into())),
        _ => {}
    }
    let read = |file: &Path| {
        let mut array = npy::read("--text-in", file)?;
        if array.shape.len() == 3 && array.shape[0] == 1 {
            array.shape.remove(0);
        }
        // The states are bf16, and what is finite in f32 need not be.
        let rounded: Vec<f32> = array.data.iter().map(|&x| bf16::from_f32(x).to_f32()).collect();
        check_values(&format!("--text-in {} in bf16", file.display()), &rounded)?;
        Ok(npy::Array { data: rounded, ..array })
    };
    text_files(list).map(read).collect()
}

/// The width of given text states, which only the model knows.
fn check_text_width(args: &GenerateArgs, request: &Request, model: &Model) -> Result<()> {
    let width = model.config.dit.text_dim;
    let files = args.text_in.as_deref().into_iter().flat_map(text_files);
    for (file, array) in files.zip(&request.text_in) {
        if !matches!(array.shape[..], [length, found] if length > 0 && found == width) {
            let reason = format!("shape {:?}, [L, {width}] expected", array.shape);
            return Err(CliError::failed(format!("--text-in {}", file.display()), reason));
        }
    }
    Ok(())
}

/// Latents or noise from a file, `[128, h, w]` or `[1, 128, h, w]`, with `h` and `w`.
///
/// # Errors
/// A failure that names the option, the file, the shape found and the one expected.
pub(crate) fn latents(
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
        [LATENT_CHANNELS, h, w] if fits(h, w) => Ok((array, h, w)),
        _ => {
            let expected = size.map_or("[128, h, w]".into(), |(h, w)| format!("[128, {h}, {w}]"));
            let message =
                format!("{option} {}: shape {:?}, {expected} expected", path.display(), array.shape);
            Err(CliError::Failed(message))
        }
    }
}
