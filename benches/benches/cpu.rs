//! The CPU backend on blocks of the official sizes, through the model's own code, against the rate of fused
//! multiply-adds measured in the same run.
//!
//! The weights are synthetic (`moss-golden`'s `block`, 2 GB, written once to the target folder). After Criterion's own
//! report each bench prints a line: best time and GFLOP/s, and the share of the peak, by wall clock and by CPU time: the
//! median over all runs, each against the peak measured right after it, since a shared machine's rate comes and goes. The
//! two differ when something else runs on the machine; then only the second says how good the code is. Where the CPU adds
//! products of bf16 pairs at twice the rate of fused multiply-adds, `linear` does so, and shares go beyond 100 %.
//!
//! What is timed is right: before each bench its result, at the timed size, is held bit for bit against that of a second set of
//! instructions, or of another number of threads where the CPU has one set alone.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::cell::RefCell;
use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::Criterion;
use half::bf16;
use moss_golden::synth::{self, Preset};
use moss_reference::backend::{Attention, Backend, BackendError, Heads, HostData};
use moss_reference::cpu::{CpuBackend, CpuTensor, peak};
use moss_reference::files::{Checkpoint, ModelSource, Part, TensorSpec};
use moss_reference::model::config::{LayerType, ModelConfig, VaeConfig};
use moss_reference::model::dit::{self, Dit};
use moss_reference::model::observe::{Event, Observer, Silent};
use moss_reference::model::text_encoder::{self, TextEncoder};
use moss_reference::model::vae::{self, Unit, UnitKind, Vae};
use moss_reference::simd::Isa;

/// Image and text tokens of the DiT block.
const IMAGE: (usize, usize) = (16, 16);
const TEXT: usize = 64;
/// Tokens of the text layers.
const PROMPT: usize = 320;
/// Latent tokens a side of the VAE decode, 16 pixels each.
const LATENT: usize = 32;

/// Wall clock and CPU time of one run, in seconds.
#[derive(Clone, Copy)]
struct Spent {
    wall: f64,
    cpu: f64,
}

/// A moment on both clocks.
struct Clock {
    wall: Instant,
    cpu: f64,
}

impl Clock {
    fn start() -> Self {
        Self { cpu: cpu_seconds(), wall: Instant::now() }
    }

    fn spent(&self) -> Spent {
        Spent { wall: self.wall.elapsed().as_secs_f64(), cpu: cpu_seconds() - self.cpu }
    }
}

/// CPU time of all threads of this process, where the system tells it; else NaN.
fn cpu_seconds() -> f64 {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return f64::NAN };
    let nanoseconds = tasks.filter_map(|task| {
        let text = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    });
    nanoseconds.sum::<f64>() * 1e-9
}

/// The best of several runs on either clock.
struct Best(RefCell<Spent>);

impl Best {
    fn new() -> Self {
        Self(RefCell::new(Spent { wall: f64::INFINITY, cpu: f64::INFINITY }))
    }

    fn add(&self, spent: Spent) -> Duration {
        let mut best = self.0.borrow_mut();
        best.wall = best.wall.min(spent.wall);
        best.cpu = best.cpu.min(spent.cpu);
        Duration::from_secs_f64(spent.wall)
    }
}

/// FLOP/s of fused multiply-adds in registers on all threads: by wall clock, and per second of CPU time and thread.
fn measure_peak(backend: &CpuBackend) -> Spent {
    let steps = 4_000_000;
    let threads = backend.threads();
    let flops = (steps * threads * peak::flops_per_step(backend.isa().lanes())) as f64;
    let clock = Clock::start();
    let factors = black_box([0.999, 0.001]);
    backend.run(|| rayon::broadcast(|_| black_box(peak::run(backend.isa(), steps, factors))));
    let spent = clock.spent();
    Spent { wall: flops / spent.wall, cpu: flops / spent.cpu * threads as f64 }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Runs `once` under Criterion, and the peak's loop after each run; then prints the best run and the median shares.
fn report(c: &mut Criterion, name: &str, backend: &CpuBackend, flops: f64, mut once: impl FnMut() -> Spent) {
    let best = Best::new();
    let peaks = RefCell::new(Vec::new());
    let threads = backend.threads() as f64;
    c.bench_function(name, |bench| {
        bench.iter_custom(|runs| {
            let run = |_| {
                let spent = once();
                peaks.borrow_mut().push((spent, measure_peak(backend)));
                best.add(spent)
            };
            (0..runs).map(run).sum()
        });
    });
    let (best, peaks) = (best.0.into_inner(), peaks.into_inner());
    if peaks.is_empty() {
        return; // The bench was filtered out.
    }
    println!(
        "moss | {name} | {:.2} ms | {:.1} GFLOP/s | {:.1} % of {:.1} | by CPU time {:.1} GFLOP/s | {:.1} % of {:.1}",
        best.wall * 1e3,
        flops / best.wall * 1e-9,
        100.0 * median(peaks.iter().map(|(spent, peak)| flops / spent.wall / peak.wall)),
        median(peaks.iter().map(|(_, peak)| peak.wall)) * 1e-9,
        threads * flops / best.cpu * 1e-9,
        100.0 * median(peaks.iter().map(|(spent, peak)| threads * flops / spent.cpu / peak.cpu)),
        median(peaks.iter().map(|(_, peak)| peak.cpu)) * 1e-9,
    );
}

/// What a bench's result is held against.
fn second(b: &CpuBackend) -> Result<CpuBackend, Box<dyn Error>> {
    let other = Isa::available().into_iter().rfind(|isa| isa.name() != b.isa().name());
    Ok(match other {
        Some(isa) => CpuBackend::with_isa(isa, b.threads())?,
        None => CpuBackend::with_isa(b.isa(), b.threads() + 1)?,
    })
}

/// Holds the result of `run` on the timed backend against the second one's.
fn check(
    name: &str,
    b: &CpuBackend,
    run: impl Fn(&CpuBackend) -> Result<Vec<f32>, Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let second = second(b)?;
    let bits = |b| Ok::<_, Box<dyn Error>>(run(b)?.into_iter().map(f32::to_bits).collect::<Vec<_>>());
    let (ours, other) = (bits(b)?, bits(&second)?);
    match !ours.is_empty() && ours == other {
        true => Ok(()),
        false => Err(format!("{name}: {} and {} give other bits", b.describe(), second.describe()).into()),
    }
}

/// Times what lies between the event that announces a block or layer and its tap.
struct BlockTimer {
    name: &'static str,
    clock: Clock,
    spent: Option<Spent>,
}

impl BlockTimer {
    fn new(name: &'static str) -> Self {
        Self { name, clock: Clock::start(), spent: None }
    }
}

impl<B: Backend> Observer<B> for BlockTimer {
    fn event(&mut self, _: Event) -> std::ops::ControlFlow<()> {
        self.clock = Clock::start();
        std::ops::ControlFlow::Continue(())
    }

    fn tap(&mut self, name: &str, _: &B, _: &B::Tensor) -> Result<(), BackendError> {
        if name == self.name {
            self.spent = Some(self.clock.spent());
        }
        Ok(())
    }
}

/// The folder of the synthetic model, written when it is not there.
fn model() -> Result<PathBuf, Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("block");
    if !folder.exists() {
        eprintln!("writing {}", folder.display());
        synth::write(&Preset::Block.sizes(), 1, &folder)?;
    }
    Ok(folder)
}

fn open(part: Part, tensors: &[TensorSpec]) -> Result<Arc<Checkpoint>, Box<dyn Error>> {
    Ok(Arc::new(Checkpoint::open(&ModelSource::Folder(model()?), part, tensors)?))
}

/// Numbers from -1 to 1.
fn numbers(count: usize) -> Vec<f32> {
    let mut state = 1u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    (0..count).map(next).collect()
}

fn upload_bf16(b: &CpuBackend, shape: &[usize]) -> Result<CpuTensor, BackendError> {
    let numbers = numbers(shape.iter().product()).into_iter().map(bf16::from_f32);
    b.upload(HostData::Bf16(numbers.collect()), shape)
}

fn dit_block(c: &mut Criterion, b: &CpuBackend, config: &ModelConfig) -> Result<(), Box<dyn Error>> {
    let config = &config.dit;
    let (h, w) = IMAGE;
    let tokens = h * w + TEXT;
    let checkpoint = open(Part::Transformer, &dit::tensors(config))?;
    let load = |b: &CpuBackend| -> Result<_, Box<dyn Error>> {
        let spec = dit::stage_spec(config, checkpoint.clone(), tokens, usize::MAX);
        let dit = Dit::load(b, config, spec)?;
        let context = dit.context(b, &upload_bf16(b, &[TEXT, config.text_dim])?, h, w)?;
        let latents = b.upload(HostData::F32(numbers(h * w * 128)), &[h * w, 128])?;
        Ok((dit, context, latents))
    };
    let name = format!("DiT block, {tokens} tokens");
    check(&name, b, |b| {
        let (dit, context, latents) = load(b)?;
        let velocity = dit.velocity(b, &latents, 0.5, &[(&context, &[])], &mut Silent)?;
        Ok(b.download(&velocity[0])?.to_f32())
    })?;
    let (dit, context, latents) = load(b)?;
    let (t, d, f) = (tokens as f64, config.dim as f64, config.ffn_dim as f64);
    let flops = 2.0 * t * (4.0 * d * d + 3.0 * d * f) + 4.0 * t * t * d;
    report(c, &name, b, flops, || {
        let mut timer = BlockTimer::new("block_00");
        dit.velocity(b, &latents, 0.5, &[(&context, &[])], &mut timer).expect("the block runs");
        timer.spent.expect("there is one block")
    });
    Ok(())
}

fn text_layers(c: &mut Criterion, b: &CpuBackend, config: &ModelConfig) -> Result<(), Box<dyn Error>> {
    let config = &config.text;
    let checkpoint = open(Part::TextEncoder, &text_encoder::tensors(config))?;
    let load = |b: &CpuBackend| {
        TextEncoder::load(b, config, text_encoder::stage_spec(config, checkpoint.clone(), PROMPT))
    };
    let ids: Vec<u32> = (0..PROMPT as u32).map(|i| i * 7 % 1000).collect();
    check("text layers", b, |b| {
        let states = load(b)?.encode(b, &[&ids], &mut Silent)?;
        Ok(b.download(&states[0])?.to_f32())
    })?;
    let encoder = load(b)?;
    let (t, hidden) = (PROMPT as f64, config.hidden_size as f64);
    for (layer, kind) in config.layer_types.iter().enumerate() {
        let (name, mixer) = match kind {
            LayerType::FullAttention => {
                let q = (config.num_attention_heads * config.head_dim) as f64;
                let kv = (config.num_key_value_heads * config.head_dim) as f64;
                // Of the scores and weighted values the causal half is needed.
                ("full attention", 2.0 * t * hidden * (3.0 * q + 2.0 * kv) + 2.0 * t * t * q)
            }
            LayerType::LinearAttention => {
                let (heads, keys) = (config.linear_num_value_heads, config.linear_num_key_heads);
                let (k, v) = (config.linear_key_head_dim, config.linear_value_head_dim);
                let values = (heads * v) as f64;
                let projections = 3.0 * values + (2 * keys * k) as f64 + (2 * heads) as f64;
                // Per token and state element: the decay, two products of the state and its update.
                ("delta rule", 2.0 * t * hidden * projections + 7.0 * t * values * k as f64)
            }
        };
        let flops = mixer + 2.0 * t * 3.0 * hidden * config.intermediate_size as f64;
        let tap: &'static str = if layer == 0 { "layer_00" } else { "layer_01" };
        report(c, &format!("text layer, {name}, {PROMPT} tokens"), b, flops, || {
            let mut timer = BlockTimer::new(tap);
            encoder.encode(b, &[&ids], &mut timer).expect("the layers run");
            timer.spent.expect("there are two layers")
        });
    }
    Ok(())
}

fn attention(c: &mut Criterion, b: &CpuBackend, config: &ModelConfig) -> Result<(), Box<dyn Error>> {
    let (heads, dim) = (config.dit.num_heads, config.dit.dim / config.dit.num_heads);
    let tokens = 1024 + TEXT;
    let width = heads * dim;
    let scale = 1.0 / (dim as f64).sqrt();
    let flops = 4.0 * (tokens * tokens * width) as f64;
    let upload = |b: &CpuBackend| -> Result<Vec<_>, BackendError> {
        (0..3).map(|_| upload_bf16(b, &[tokens, width])).collect()
    };
    let run = |b: &CpuBackend, qkv: &[CpuTensor]| {
        b.attention(Attention {
            q: &qkv[0],
            k: &qkv[1],
            v: &qkv[2],
            v_heads: Heads::packed(0, heads, dim),
            scale,
            causal: false,
            segments: &[tokens],
        })
    };
    let name = format!("attention, {tokens} tokens");
    check(&name, b, |b| Ok(b.download(&run(b, &upload(b)?)?)?.to_f32()))?;
    let qkv = upload(b)?;
    report(c, &name, b, flops, || {
        let clock = Clock::start();
        run(b, &qkv).expect("it runs");
        clock.spent()
    });
    Ok(())
}

/// FLOP of all convolutions and of the middle attention for `h * w` latent tokens.
fn vae_flops(config: &VaeConfig, h: usize, w: usize) -> f64 {
    let flops = |unit: &Unit| {
        let pixels = h * w * unit.pixels;
        let conv =
            |pixels: usize, ci: usize, co: usize, side: usize| 2.0 * (pixels * ci * co * side * side) as f64;
        let Unit { from, to, .. } = *unit;
        match unit.kind {
            UnitKind::Conv { side, upsample } => {
                conv(if upsample { 4 * pixels } else { pixels }, from, to, side)
            }
            UnitKind::Resnet => {
                let shortcut = if from == to { 0.0 } else { conv(pixels, from, to, 1) };
                conv(pixels, from, to, 3) + conv(pixels, to, to, 3) + shortcut
            }
            UnitKind::Attention => 4.0 * conv(pixels, from, to, 1) + 4.0 * (pixels * pixels * from) as f64,
            UnitKind::Out => conv(pixels, from, to, 3),
        }
    };
    vae::units(config).iter().map(flops).sum()
}

fn vae_decode(c: &mut Criterion, b: &CpuBackend, config: &ModelConfig) -> Result<(), Box<dyn Error>> {
    let config = &config.vae;
    let checkpoint = open(Part::Vae, &vae::tensors(config))?;
    let load = |b: &CpuBackend| -> Result<_, Box<dyn Error>> {
        let vae = Vae::load(b, config, vae::stage_spec(config, checkpoint.clone(), LATENT, LATENT))?;
        let latents = b.upload(HostData::F32(numbers(LATENT * LATENT * 128)), &[LATENT * LATENT, 128])?;
        Ok((vae, latents))
    };
    let name = format!("VAE decode, {0}x{0}", 16 * LATENT);
    check(&name, b, |b| {
        let (vae, latents) = load(b)?;
        Ok(vae.decode(b, &latents, LATENT, &mut Silent)?)
    })?;
    let (vae, latents) = load(b)?;
    report(c, &name, b, vae_flops(config, LATENT, LATENT), || {
        let clock = Clock::start();
        vae.decode(b, &latents, LATENT, &mut Silent).expect("it decodes");
        clock.spent()
    });
    Ok(())
}

fn run(c: &mut Criterion) -> Result<(), Box<dyn Error>> {
    let backend = CpuBackend::new()?;
    println!("moss | {}", backend.describe());
    let config = ModelConfig::open(&ModelSource::Folder(model()?))?;
    dit_block(c, &backend, &config)?;
    text_layers(c, &backend, &config)?;
    attention(c, &backend, &config)?;
    vae_decode(c, &backend, &config)
}

fn main() -> Result<(), Box<dyn Error>> {
    let criterion = Criterion::default().sample_size(10).warm_up_time(Duration::from_secs(1)).without_plots();
    let mut criterion = criterion.configure_from_args();
    run(&mut criterion)?;
    criterion.final_summary();
    Ok(())
}
