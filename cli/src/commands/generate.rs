//! `moss --prompt TEXT -o FILE.png`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use half::bf16;
use moss_reference::model::config::PipelineConfig;
use moss_reference::model::observe::{Part, RunError, check_values};
use moss_reference::model::vae;
use moss_reference::run::{MAX_PIXELS, Session, Settings, Stages, TextStates, Texts};

use crate::commands::devices;
use crate::error::{CliError, Result};
use crate::files::again::Again;
use crate::files::latents::{self, Latents};
use crate::files::npy;
use crate::files::output::{Destination, Kind, refuse_shared};
use crate::files::record::{self, Record, write_png};
use crate::machine::{self, Machine, tell_notes};
use crate::model::{self, Source};
use crate::options::{GenerateArgs, check};
use crate::plan::{Expected, Planned};
use crate::progress::Progress;
use crate::say;

/// What a request reads from files instead of making it itself.
#[derive(Default)]
pub(crate) struct Inputs {
    /// Text states of the cond row and, if there is one, the uncond row; empty when a prompt gives them.
    text: Vec<npy::Array>,
    noise: Option<npy::Array>,
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
    let (config, dit) = source.requests()?;
    let base = match &again {
        Some(again) => again.settings(dit.num_layers)?,
        None => Settings::of_model(&config, &dit),
    };
    if again.is_none() && args.prompt.is_missing() && args.text_in.is_none() {
        return Err(CliError::Usage(
            "--prompt TEXT is required (or --prompt-file, --text-in, --from)".into(),
        ));
    }
    let (settings, inputs) = settings(args, base, dit.num_layers)?;
    tell_of_schedule(args, &config, &settings, again.is_some(), &progress)?;
    check_text_width(args, &inputs, dit.text_dim)?;
    if let Some(again) = &again {
        again.check_files(&inputs.text, inputs.noise.as_ref())?;
    }
    if args.negative.as_ref().is_some_and(|text| !text.is_empty()) && !settings.guidance().has_uncond() {
        progress.warn("--negative has no effect with --cfg 1");
    }

    // A seed that nobody chose would be lost with a quiet run's last line.
    if let (Some(-1), Some(seed)) = (args.seed, settings.seed) {
        say::line(&format!("seed {seed}"));
    }

    let picture = picture.map(|picture| picture.named(&settings.prompt, settings.seed));
    let opened = machine::open(&args.model, &progress)?;
    let request = Request { settings, inputs };
    let generation = Generation { args, source, config, request, again, picture, latent_out };
    opened.run(generation, &mut progress, Generation::on, Generation::on)
}

/// Everything that was asked for, checked, before any weight is read.
struct Request {
    settings: Settings,
    inputs: Inputs,
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
        warn_of_size(&config, &request.settings, progress);
        let mut session = Session::new(backend, &model);
        let texts = request.texts(&source, progress)?;
        let (h, w) = (request.settings.h(), request.settings.w());
        let lengths = texts.borrow().lengths();
        progress.detail(&format!("settings: {}", told(&request.settings)));
        if args.dry_run {
            let stages = session.admit(h, w, texts.borrow())?.stages();
            let expected = expected(backend, &stages, &request.settings, &lengths, progress)?;
            return match args.json {
                true => say::json(&Planned {
                    backend: backend.record_name(),
                    expected_seconds: expected.map(|expected| expected.time().as_secs_f64()),
                    memory: backend.memory(&stages),
                }),
                false => say::out(&backend.plan_text(&stages)),
            };
        }
        let identity = source.named(model.identity(&source.source))?;
        let name = (!source.is_demo()).then(|| source.name.clone());
        if let Some(again) = &again {
            again.check_model(&identity, name.as_deref())?;
            if again.record.backend != backend.record_name() {
                progress.warn(&format!(
                    "--from: the picture was made with {}, this is {}; it may differ",
                    again.record.backend,
                    backend.record_name()
                ));
            }
        }
        let name = again.map_or(name, |again| again.record.model_name);
        let record = record_of(&request.settings, identity, name, backend.record_name())?;
        let record = (!args.no_metadata).then_some(record);

        let mut run = session.admit(h, w, texts.borrow())?;
        let stages = run.stages();
        expected(backend, &stages, &request.settings, &lengths, progress)?;
        progress.detail(&backend.plan_text(&stages));
        drop(stages);
        progress.run(|progress| Ok(run.prepare(progress)?))?;
        tell_notes(backend, progress);
        let noise = request.inputs.noise.as_ref().map(|array| &array.data[..]);
        let data = progress.run(|progress| Ok(run.latents(&request.settings, noise, progress)?))?;
        let resident = run.dit_stage().and_then(|stage| backend.resident_blocks(stage));
        let mut latents = Latents::new(data, h, w, picture.as_ref());

        // One output that cannot be written does not cost the other.
        let mut failure = None;
        if let Some(destination) = &latent_out {
            failure = latents.write(destination).err();
        }
        if let Some(destination) = &picture {
            let drawn = progress.run(|progress| match run.decode(&latents.data, progress) {
                Ok(pixels) => Ok(vae::to_rgb8(&pixels)),
                Err(RunError::Cancelled) => Err(CliError::Cancelled),
                Err(error) => Err(CliError::failed("vae", error)),
            });
            let written = drawn.and_then(|rgb| {
                let Settings { width, height, .. } = request.settings;
                destination.write(|writer| write_png(writer, &rgb, width, height, record.as_ref()))
            });
            match (written, failure.take()) {
                (Ok(()), None) => {}
                (Ok(()), Some(first)) => {
                    progress.line(&format!("the picture is in {}", destination.path().display()));
                    failure = Some(first);
                }
                (Err(error), first) => {
                    if let Some(first) = first {
                        say::line(&format!("moss: {}", first.message()));
                    }
                    if matches!(error, CliError::Cancelled) {
                        say::line(latents.kept());
                        return Err(error);
                    }
                    failure = Some(latents.failure(&error));
                }
            }
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        done(&request.settings, picture.as_ref(), resident, progress);
        Ok(())
    }
}

/// The last line of a run that gave everything it should.
fn done(
    settings: &Settings,
    picture: Option<&Destination>,
    resident: Option<(usize, usize)>,
    progress: &Progress,
) {
    let seconds = |part| progress.took(part).unwrap_or_default().as_secs_f64();
    let steps = progress.step_times().len().max(1);
    let denoise = seconds(Part::Denoise { steps });
    let vae = progress.took(Part::Decode).map_or("not run".into(), |t| format!("{:.2} s", t.as_secs_f64()));
    let resident = resident.map_or(String::new(), |(blocks, all)| {
        format!(", {blocks} of {all} DiT blocks stayed on the device")
    });
    progress.line(&format!(
        "done: {} {}x{}, {}, text encoder {:.2} s, dit load {:.2} s, denoise {denoise:.2} s ({:.3} s a step), vae {vae}{resident}",
        picture.map_or(Path::new("(no picture)"), Destination::path).display(),
        settings.width,
        settings.height,
        settings.seed.map_or("noise from a file".into(), |seed| format!("seed {seed}")),
        seconds(Part::Encode),
        seconds(Part::LoadDit),
        denoise / steps as f64,
    ));
}

/// What the picture will say about itself.
///
/// # Errors
/// A usage error when the settings have no schedule.
fn record_of(
    settings: &Settings,
    model: String,
    model_name: Option<String>,
    backend: String,
) -> Result<Record> {
    Ok(Record {
        program: format!("{}{}", record::PROGRAM, env!("CARGO_PKG_VERSION")),
        model,
        model_name,
        settings: settings.clone(),
        steps_run: Some(steps_run(settings)?).filter(|&steps| steps != settings.steps),
        backend,
        tier: record::TIER.into(),
    })
}

/// Steps that a request runs: not more than the schedule has.
fn steps_run(settings: &Settings) -> Result<usize> {
    let sigmas = settings.sigmas().map_err(|error| CliError::Usage(format!("--steps, --shift: {error}")))?;
    Ok(sigmas.len() - 1)
}

/// The texts of a run's rows, held for [`Texts`].
enum Rows {
    Ids(Vec<Vec<u32>>),
    States(Vec<Arc<TextStates>>),
}

impl Rows {
    fn borrow(&self) -> Texts<'_> {
        match self {
            Rows::Ids(rows) => Texts::Ids(rows),
            Rows::States(rows) => Texts::States(rows),
        }
    }
}

impl Request {
    /// Token ids of the rows, or the text states that files hold.
    fn texts(&self, source: &Source, progress: &Progress) -> Result<Rows> {
        if !self.inputs.text.is_empty() {
            let states = |array: &npy::Array| {
                let data = array.data.iter().copied().map(bf16::from_f32).collect();
                Arc::new(TextStates { data, length: array.shape[0] })
            };
            return Ok(Rows::States(self.inputs.text.iter().map(states).collect()));
        }
        let tokenizer = source.tokenizer()?;
        let encode = |(what, text): (&str, &str)| {
            let unknown = if source.is_demo() { model::unknown_words(&tokenizer, text) } else { vec![] };
            if let Some(warning) = model::warning_of_unknown(what, &unknown) {
                progress.warn(&warning);
            }
            let max_seq = self.settings.max_seq;
            Ok(model::encode_prompt(&tokenizer, what, text, max_seq, |w| progress.warn(w))?.ids)
        };
        let names = ["prompt", "negative prompt"].into_iter();
        names.zip(self.settings.texts()).map(encode).collect::<Result<_>>().map(Rows::Ids)
    }
}

/// The settings that hold, for `--verbose`.
fn told(settings: &Settings) -> String {
    serde_json::to_string(settings).unwrap_or_default()
}

/// A time from which a run says first how long it may take.
const LONG: Duration = Duration::from_secs(60);
/// A time from which it does so even when quiet.
const VERY_LONG: Duration = Duration::from_secs(600);

/// Says what a run over prompts of these lengths is made of, and how long the denoising may take where that is long and known.
fn expected<B: Machine>(
    backend: &B,
    stages: &Stages,
    settings: &Settings,
    lengths: &[usize],
    progress: &Progress,
) -> Result<Option<Expected>> {
    let latents = settings.h() * settings.w();
    let tokens = lengths.iter().sum::<usize>() + lengths.len() * latents;
    progress.detail(&format!("tokens: {lengths:?} of text, {latents} of the picture beside each"));
    let rate = backend.rate()?;
    let expected = rate.map(|rate| Expected::new(stages, tokens, settings.steps, rate));
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

/// `base` with what the options say, for a model of `blocks` DiT blocks, and the files that they name.
///
/// # Errors
/// A usage error that names the option, a failure that names a file.
pub(crate) fn settings(args: &GenerateArgs, base: Settings, blocks: usize) -> Result<(Settings, Inputs)> {
    let refused = |error| check::refused(args, &error);
    let mut settings = base;
    (settings.width, settings.height) = check::picture_size(args, (settings.width, settings.height))?;
    if let Some(steps) = args.steps {
        settings.steps = check::steps(steps)?;
    }
    if let Some(seed) = args.seed {
        settings.seed = Some(check::seed(seed)?);
    }
    if let Some(text) = &args.skip_layers {
        settings.skip_layers = check::skip_layers(text)?;
    }
    settings.cfg = args.cfg.unwrap_or(settings.cfg);
    settings.shift = args.shift.unwrap_or(settings.shift);
    settings.skip_start = args.skip_start.unwrap_or(settings.skip_start);
    settings.skip_stop = args.skip_stop.unwrap_or(settings.skip_stop);
    settings.max_seq = args.prompt.max_seq.unwrap_or(settings.max_seq);
    settings.check().map_err(refused)?;
    settings.check_blocks(blocks).map_err(refused)?;

    let mut inputs = Inputs::default();
    if let Some(list) = &args.text_in {
        let given = [("--negative", args.negative.is_some()), ("--max-seq", args.prompt.max_seq.is_some())];
        if let Some((option, _)) = given.iter().find(|(_, given)| *given) {
            let message = format!("--text-in: the text states are given, {option} has no place");
            return Err(CliError::Usage(message));
        }
        inputs.text = text_arrays(list, settings.guidance().has_uncond())?;
        let official = Settings::default();
        (settings.prompt, settings.negative) = (official.prompt, official.negative);
        settings.max_seq = official.max_seq;
    } else {
        if let Some(prompt) = model::prompt(&args.prompt)? {
            settings.prompt = prompt;
        }
        if let Some(text) = &args.negative {
            settings.negative = model::text("--negative", text)?;
        }
    }
    settings.text_in = inputs.text.iter().map(|array| array.sha256.clone()).collect();
    if let Some(path) = &args.noise_in {
        let (array, ..) = latents::read("--noise-in", path, Some((settings.h(), settings.w())))?;
        settings.noise_in = Some(array.sha256.clone());
        settings.seed = None;
        inputs.noise = Some(array);
    }
    Ok((settings, inputs))
}

/// Says where the shift comes from when no option gave it, what of the scheduler's file is not followed, and how many steps run
/// when they are fewer than were asked for.
///
/// # Errors
/// As [`steps_run`].
fn tell_of_schedule(
    args: &GenerateArgs,
    config: &PipelineConfig,
    settings: &Settings,
    again: bool,
    progress: &Progress,
) -> Result<()> {
    let file = "scheduler/scheduler_config.json";
    let shift = settings.shift;
    match config.shift.filter(|_| args.shift.is_none() && !again) {
        Some(PipelineConfig::NO_SHIFT) => progress.line(&format!(
            "shift {shift}, MOSS-Image's: shift {} in {file} is what a scheduler has that nobody gave one",
            PipelineConfig::NO_SHIFT
        )),
        Some(_) if shift != Settings::default().shift => {
            progress.line(&format!("shift {shift}, from the model's {file}"));
        }
        _ => {}
    }
    if !config.not_followed.is_empty() {
        let fields = config.not_followed.join(", ");
        progress.warn(&format!("{file}: {fields}: not followed, the schedule is MOSS-Image's"));
    }
    let run = steps_run(settings)?;
    if run < settings.steps {
        progress.warn(&format!("{} steps asked for, {run} run: the schedule has no more", settings.steps));
    }
    Ok(())
}

/// Fewest pixels that official models draw well; the most are [`MAX_PIXELS`].
const MIN_PIXELS: u32 = 250_000;

/// Warns of a size that the model was not made for.
fn warn_of_size(config: &PipelineConfig, settings: &Settings, progress: &Progress) {
    let (width, height) = (settings.width, settings.height);
    match config.size {
        Some([w, h]) if (w, h) != (width, height) => {
            progress.warn(&format!("{width}x{height}: this model draws well at {w}x{h} only"));
        }
        None if width * height < MIN_PIXELS => progress.warn(&format!(
            "{width}x{height} is below {} megapixels; MOSS-Image draws well from there to {}",
            f64::from(MIN_PIXELS) / 1e6,
            MAX_PIXELS as f64 / 1e6
        )),
        _ => {}
    }
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
fn check_text_width(args: &GenerateArgs, inputs: &Inputs, width: usize) -> Result<()> {
    let files = args.text_in.as_deref().into_iter().flat_map(text_files);
    for (file, array) in files.zip(&inputs.text) {
        if !matches!(array.shape[..], [length, found] if length > 0 && found == width) {
            let reason = format!("shape {:?}, [L, {width}] expected", array.shape);
            return Err(CliError::failed(format!("--text-in {}", file.display()), reason));
        }
    }
    Ok(())
}
