//! A backend with one fault, and what is asked with one fault: a row fails that names the stage, and the stages before pass.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use half::bf16;
use moss_conformance::battery::{self, Demand, Draws};
use moss_conformance::golden::{Case, run_case};
use moss_conformance::row::{Row, Word};
use moss_golden::synth::{self, Preset};
use moss_reference::backend::{
    Attention, Backend, Conv2d, DeltaHeads, Epilogue, Glu, GroupNorm, Heads, HostData, Modulation, Norm,
    NormKind, Result, StageSpec, Tensor as _,
};
use moss_reference::cpu::{CpuBackend, CpuStage, CpuTensor};
use moss_reference::files::ModelSource;
use moss_reference::model::Model;
use moss_reference::model::tokenizer::Tokenizer;

/// What is wrong with a backend.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// `linear` without an epilogue cuts its sums to bf16 instead of rounding them.
    Truncation,
    /// `linear` without an epilogue forgets the last of more than 16 inputs.
    LostTail,
    /// The DiT's rotary embedding has its cosine and sine swapped.
    SwappedRope,
    /// The last block has the first one's weights.
    WrongBlock,
    /// The pictures' convolutions lose their bias.
    LostBias,
}

struct Faulty {
    cpu: CpuBackend,
    fault: Fault,
}

type T = CpuTensor;

/// Operations that are the CPU backend's own.
macro_rules! delegate {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty;)+) => {
        $(fn $name(&self, $($arg: $type),*) -> $result {
            self.cpu.$name($($arg),*)
        })+
    };
}

impl Backend for Faulty {
    type Tensor = CpuTensor;
    type Stage = CpuStage;

    delegate! {
        fn admit(kept: &StageSpec, stages: &[&StageSpec]) -> Result<()>;
        fn fixed(stage: &CpuStage) -> Vec<T>;
        fn block(stage: &CpuStage, index: usize) -> Result<Vec<T>>;
        fn upload(data: HostData, shape: &[usize]) -> Result<T>;
        fn download(x: &T) -> Result<HostData>;
        fn rows(x: &T, rows: std::ops::Range<usize>) -> T;
        fn reshape(x: &T, shape: &[usize]) -> T;
        fn concat(parts: &[&T]) -> Result<T>;
        fn to_bf16(x: &T) -> Result<T>;
        fn norm(x: &T, norm: Norm<'_, T>, modulation: Option<Modulation<'_, T>>) -> Result<T>;
        fn attention(a: Attention<'_, T>) -> Result<T>;
        fn sigmoid_gate(x: &T, gate: &T, heads: Heads) -> Result<T>;
        fn linear_glu(x: &T, w: &T, bias: Option<&T>, glu: Glu) -> Result<T>;
        fn causal_conv_silu(x: &T, w: &T, segments: &[usize]) -> Result<T>;
        fn gated_delta_rule(
            qkv: &T, ba: &T, a_log: &T, dt_bias: &T, heads: DeltaHeads, segments: &[usize],
        ) -> Result<T>;
        fn gated_norm(x: &T, z: &T, weight: &T, eps: f32) -> Result<T>;
        fn euler_step(x: &T, v_cond: &T, v_uncond: Option<&T>, cfg: f32, dt: f32) -> Result<T>;
        fn unpack_latents(x: &T, mean: &T, var: &T, eps: f32, width: usize) -> Result<T>;
        fn group_norm(x: &T, norm: GroupNorm<'_, T>) -> Result<T>;
    }

    fn describe(&self) -> String {
        "faulty".into()
    }

    fn load(&self, mut spec: StageSpec) -> Result<CpuStage> {
        if self.fault == Fault::WrongBlock && spec.name == "dit" {
            let last = spec.blocks.len() - 1;
            spec.blocks[last] = spec.blocks[0].clone();
        }
        self.cpu.load(spec)
    }

    fn head_norm_rope(&self, x: &T, heads: Heads, norm: Norm<'_, T>, (cos, sin): (&T, &T)) -> Result<T> {
        let swapped = self.fault == Fault::SwappedRope && norm.kind == NormKind::Plain;
        self.cpu.head_norm_rope(x, heads, norm, if swapped { (sin, cos) } else { (cos, sin) })
    }

    fn linear(&self, x: &T, w: &T, bias: Option<&T>, epilogue: Epilogue<'_, T>) -> Result<T> {
        let host = |x: &T| self.cpu.download(x).map(|data| data.to_f32());
        if self.fault == Fault::LostTail && matches!(epilogue, Epilogue::None) && x.shape()[1] > 16 {
            let (mut values, [rows, k]) = (host(x)?, [x.shape()[0], x.shape()[1]]);
            values.chunks_mut(k).for_each(|row| row[k - 1] = 0.0);
            let x = HostData::Bf16(values.into_iter().map(bf16::from_f32).collect());
            let x = self.cpu.upload(x, &[rows, k])?;
            return self.cpu.linear(&x, w, bias, epilogue);
        }
        if self.fault != Fault::Truncation || !matches!(epilogue, Epilogue::None) {
            return self.cpu.linear(x, w, bias, epilogue);
        }
        let (values, weights, bias) = (host(x)?, host(w)?, bias.map(host).transpose()?);
        let (k, n) = (x.shape()[1], w.shape()[0]);
        let cut = values.chunks(k).flat_map(|x| {
            let bias = bias.as_deref();
            weights.chunks(k).enumerate().map(move |(i, w)| {
                let sum: f32 = x.iter().zip(w).map(|(x, w)| x * w).sum();
                let bits = (sum + bias.map_or(0.0, |bias| bias[i])).to_bits();
                bf16::from_bits((bits >> 16) as u16)
            })
        });
        self.cpu.upload(HostData::Bf16(cut.collect()), &[values.len() / k, n])
    }

    fn conv2d(&self, x: &T, conv: Conv2d<'_, T>) -> Result<T> {
        let none = self.cpu.upload(HostData::F32(vec![0.0; conv.bias.shape()[0]]), conv.bias.shape())?;
        let bias = if self.fault == Fault::LostBias { &none } else { conv.bias };
        self.cpu.conv2d(x, Conv2d { bias, ..conv })
    }
}

/// The cases' checkpoint, made once.
static CHECKPOINT: LazyLock<(tempfile::TempDir, PathBuf)> = LazyLock::new(|| {
    let work = tempfile::tempdir().unwrap();
    let folder = work.path().join("tiny");
    synth::write(&Preset::Tiny.sizes(), 1, &folder).unwrap();
    (work, folder)
});

/// The rows of the smallest committed case with two rows of guidance, asked and run with a fault.
fn rows(fault: Fault, change: impl FnOnce(&mut Case)) -> Vec<Row> {
    rows_of("tiny-one-token", fault, change)
}

/// The rows of a committed case, asked and run with a fault.
fn rows_of(name: &str, fault: Fault, change: impl FnOnce(&mut Case)) -> Vec<Row> {
    let folder = &CHECKPOINT.1;
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden/cases");
    let mut case = Case::open(&cases.join(name)).unwrap();
    assert_eq!((&*case.checkpoint.config, case.checkpoint.seed), ("tiny", 1));
    change(&mut case);
    let model = Model::open(&ModelSource::Folder(folder.clone())).unwrap();
    let tokenizer = Tokenizer::from_folder(folder.join("tokenizer")).unwrap();
    let backend = Faulty { cpu: CpuBackend::new().unwrap(), fault };
    run_case(&backend, Word::Measured, &case, &model, &tokenizer).unwrap().rows
}

/// The rows whose names start with `stage`, as a list for people, and whether all of them pass.
fn stage(rows: &[Row], stage: &str) -> (String, bool) {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.name.starts_with(stage)).collect();
    assert!(!rows.is_empty(), "no row is named {stage}");
    let list: Vec<String> = rows.iter().map(ToString::to_string).collect();
    (list.join("\n"), rows.iter().all(|row| row.passes()))
}

fn assert_fails(rows: &[Row], name: &str) {
    let (list, passes) = stage(rows, name);
    assert!(!passes, "a failing row expected:\n{list}");
}

fn assert_passes(rows: &[Row], names: &[&str]) {
    for name in names {
        let (list, passes) = stage(rows, name);
        assert!(passes, "no failing row expected:\n{list}");
    }
}

#[test]
fn without_a_fault_every_row_passes() {
    assert_passes(&rows(Fault::None, |_| ()), &[""]);
}

#[test]
fn a_truncated_sum_is_found_in_the_text_and_by_the_operations_row() {
    let found = rows(Fault::Truncation, |_| ());
    assert_fails(&found, "text");
    assert_passes(&found, &["tokens", "sigmas", "noise", "VAE"]);
    let backend = [Faulty { cpu: CpuBackend::new().unwrap(), fault: Fault::Truncation }];
    for (op, passes) in [("linear", false), ("norm", true)] {
        let row = battery::row(
            "operations",
            op,
            Demand::Bits,
            &battery::one(op, &backend, Demand::Bits, 1, &|_| false),
            Word::Measured,
        );
        assert!(row.passes() == passes && row.name.starts_with(op), "{row}");
    }
}

#[test]
fn a_lost_input_is_drawn_and_shrunk() {
    let backend = [Faulty { cpu: CpuBackend::new().unwrap(), fault: Fault::LostTail }];
    let draws = Draws { cases: 64, seed: 1, grain: 1 };
    let found = |op| battery::drawn(op, &backend, Demand::Bits, draws, &|_| false);
    let message = found("linear").unwrap_err().to_string();
    assert!(message.starts_with("drawn with seed 1 and shrunk: faulty: linear "), "{message}");
    // The fewest inputs that lose one, and no output, bias, epilogue or extreme that is not needed.
    assert!(message.contains(", 17] x [1, 17], bias false, None, Normal(1.0): "), "{message}");
    assert_eq!(found("norm").unwrap().cases, 64);
}

#[test]
fn a_swapped_rope_is_found_in_the_first_velocity() {
    let found = rows(Fault::SwappedRope, |_| ());
    assert_fails(&found, "first velocity (cond)");
    assert_fails(&found, "first velocity (uncond)");
    assert_passes(&found, &["tokens", "text", "VAE"]);
}

#[test]
fn a_wrong_block_is_found_in_the_first_velocity() {
    let found = rows(Fault::WrongBlock, |_| ());
    assert_fails(&found, "first velocity (cond)");
    assert_passes(&found, &["tokens", "text", "VAE"]);
}

#[test]
fn a_lost_bias_is_found_in_the_vae() {
    let found = rows(Fault::LostBias, |_| ());
    assert_fails(&found, "VAE alone");
    assert_passes(&found, &["tokens", "text", "first velocity", "final latents"]);
}

#[test]
fn a_block_skipped_wrongly_is_found_in_the_uncond_velocity_alone() {
    let found = rows(Fault::None, |case| case.request.skip_layers = vec![2]);
    assert_fails(&found, "first velocity (uncond)");
    assert_passes(&found, &["tokens", "text", "first velocity (cond)", "VAE"]);
}

#[test]
fn another_token_is_found_in_the_tokens_alone() {
    let found = rows_of("tiny-16x16-cfg1", Fault::None, |case| case.request.prompt.push('!'));
    assert_fails(&found, "tokens (ids)");
    assert_passes(&found, &["sigmas", "text", "first velocity", "final latents", "VAE"]);
}
