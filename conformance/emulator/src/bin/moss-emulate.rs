//! `moss-emulate FILE.co KERNEL --grid X,Y,Z --block X,Y,Z --arg ...`: one kernel launch from the shell.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Parser;
use moss_emulator::{
    CodeObject, MatrixModel, Memory, Npy, Options, Order, compare_with_objdump, dtype, launch,
};

/// Runs one kernel of a gfx11 or gfx12 code object on the CPU.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// Code object that clang wrote
    file: PathBuf,
    /// Kernel name; without one, the kernels are listed
    kernel: Option<String>,
    /// Workgroups: X, X,Y or X,Y,Z
    #[arg(long, default_value = "1", value_parser = triple)]
    grid: [u32; 3],
    /// Work-items of a workgroup: X, X,Y or X,Y,Z
    #[arg(long, default_value = "32", value_parser = triple)]
    block: [u32; 3],
    /// Kernel argument, in order: buf:IN.npy[:OUT.npy], buf:zeros:SHAPE:TYPE[:OUT.npy] with SHAPE as 4x8,
    /// i32:N, u32:N, i64:N, u64:N, f32:X, null
    #[arg(long = "arg", value_name = "ARG")]
    args: Vec<String>,
    /// Dynamic LDS, bytes
    #[arg(long, default_value_t = 0)]
    dynamic_lds: u32,
    /// Order of waves and workgroups: forward, reverse, shuffle, shuffle:SEED
    #[arg(long, default_value = "forward", value_parser = order)]
    order: Order,
    /// Sums of matrix instructions: fma-chain, products-first, pairs, exact, silicon-gfx1151
    #[arg(long, default_value = "fma-chain", value_parser = model)]
    model: MatrixModel,
    /// Print the executed instructions by mnemonic
    #[arg(long)]
    histogram: bool,
    /// Worker threads [default: all cores]
    #[arg(long)]
    threads: Option<usize>,
    /// Instructions that a wave may execute
    #[arg(long)]
    budget: Option<u64>,
    /// Compare the decoder with llvm-objdump on the whole file, and list what would stop a launch
    #[arg(long)]
    check_decoder: bool,
    /// Do not look for races in LDS and global memory, and for LDS and scalar registers that nobody wrote
    #[arg(long)]
    no_sanitize: bool,
}

fn triple(text: &str) -> Result<[u32; 3], String> {
    let mut out = [1; 3];
    let parts: Vec<&str> = text.split(',').collect();
    if parts.len() > 3 {
        return Err("at most three numbers".to_owned());
    }
    for (o, p) in out.iter_mut().zip(parts) {
        *o = p.trim().parse().map_err(|e| format!("{p:?}: {e}"))?;
    }
    Ok(out)
}

fn order(text: &str) -> Result<Order, String> {
    match text.split_once(':') {
        None if text == "forward" => Ok(Order::Forward),
        None if text == "reverse" => Ok(Order::Reverse),
        None if text == "shuffle" => Ok(Order::Shuffle(1)),
        Some(("shuffle", seed)) => seed.parse().map(Order::Shuffle).map_err(|e| e.to_string()),
        _ => Err("expected forward, reverse, shuffle or shuffle:SEED".to_owned()),
    }
}

fn model(text: &str) -> Result<MatrixModel, String> {
    MatrixModel::by_name(text).ok_or_else(|| format!("expected one of {}", MatrixModel::names()))
}

/// An output to write after the launch.
struct Output {
    address: u64,
    array: Npy,
    path: PathBuf,
}

/// The kernarg bytes and outputs of the command's arguments.
fn arguments(args: &[String], memory: &Memory) -> Result<(Vec<u8>, Vec<Output>), String> {
    let (mut bytes, mut outputs) = (Vec::new(), Vec::new());
    for arg in args {
        let bad = |why: &str| format!("--arg {arg}: {why}");
        let (kind, value) = arg.split_once(':').unwrap_or((arg, ""));
        let value_bytes = match kind {
            "buf" => {
                let (array, path) = buffer(value).map_err(|e| bad(&e))?;
                let address = memory.alloc_from(&array.data);
                if let Some(path) = path {
                    outputs.push(Output { address, array, path });
                }
                address.to_le_bytes().to_vec()
            }
            "null" => 0u64.to_le_bytes().to_vec(),
            "i32" => value.parse::<i32>().map_err(|e| bad(&e.to_string()))?.to_le_bytes().to_vec(),
            "u32" => value.parse::<u32>().map_err(|e| bad(&e.to_string()))?.to_le_bytes().to_vec(),
            "i64" => value.parse::<i64>().map_err(|e| bad(&e.to_string()))?.to_le_bytes().to_vec(),
            "u64" => value.parse::<u64>().map_err(|e| bad(&e.to_string()))?.to_le_bytes().to_vec(),
            "f32" => value.parse::<f32>().map_err(|e| bad(&e.to_string()))?.to_le_bytes().to_vec(),
            _ => return Err(bad("expected buf, null, i32, u32, i64, u64 or f32")),
        };
        bytes.resize(bytes.len().next_multiple_of(value_bytes.len()), 0);
        bytes.extend(value_bytes);
    }
    Ok((bytes, outputs))
}

/// `IN.npy[:OUT.npy]` or `zeros:SHAPE:TYPE[:OUT.npy]`.
fn buffer(value: &str) -> Result<(Npy, Option<PathBuf>), String> {
    let parts: Vec<&str> = value.split(':').collect();
    match parts.as_slice() {
        ["zeros", shape, kind, out @ ..] if out.len() < 2 => {
            let (descr, width) = dtype(kind).ok_or_else(|| format!("no type {kind:?}"))?;
            let dims = shape.split('x').map(str::parse::<u64>).collect::<Result<Vec<_>, _>>();
            let shape = dims.map_err(|e| format!("shape {shape:?}: {e}"))?;
            let len = shape.iter().product::<u64>() * width;
            let array = Npy { descr: descr.to_owned(), shape, data: vec![0; len as usize] };
            Ok((array, out.first().map(PathBuf::from)))
        }
        [input] => Ok((Npy::read(Path::new(input))?, None)),
        [input, out] => Ok((Npy::read(Path::new(input))?, Some(PathBuf::from(out)))),
        _ => Err("expected IN.npy[:OUT.npy] or zeros:SHAPE:TYPE[:OUT.npy]".to_owned()),
    }
}

fn run(cli: &Cli) -> Result<(), String> {
    let mut stdout = std::io::stdout().lock();
    let mut say = |line: String| writeln!(stdout, "{line}").map_err(|e| format!("stdout: {e}"));
    let bytes = std::fs::read(&cli.file).map_err(|e| format!("{}: {e}", cli.file.display()))?;
    let object = CodeObject::load(&bytes).map_err(|e| format!("{}: {e}", cli.file.display()))?;
    if cli.check_decoder {
        let count = compare_with_objdump("llvm-objdump-19", &cli.file)?;
        say(format!("{}: {count} instructions agree with LLVM", object.arch))?;
        let refused = object.unsupported();
        return if refused.is_empty() {
            Ok(())
        } else {
            Err(format!("not emulated: {}", refused.join(", ")))
        };
    }
    let Some(kernel) = &cli.kernel else {
        for k in object.kernels() {
            say(format!(
                "{} {}: {} argument bytes, LDS {}, scratch {}, VGPRs {}, SGPRs {}, block <= {}",
                object.arch, k.name, k.explicit_size, k.lds, k.scratch, k.vgprs, k.sgprs, k.max_workgroup
            ))?;
        }
        return Ok(());
    };
    let memory = Memory::new();
    let (kernarg, outputs) = arguments(&cli.args, &memory)?;
    let mut options = Options {
        order: cli.order,
        model: cli.model,
        histogram: cli.histogram,
        sanitize: !cli.no_sanitize,
        ..Options::default()
    };
    options.threads = cli.threads.unwrap_or(options.threads);
    options.budget = cli.budget.unwrap_or(options.budget);
    let report = launch(&object, kernel, cli.grid, cli.block, cli.dynamic_lds, &kernarg, &memory, &options)
        .map_err(|e| e.to_string())?;
    for mut o in outputs {
        o.array.data = memory.read(o.address, o.array.data.len() as u64).map_err(|e| e.to_string())?;
        o.array.write(&o.path)?;
    }
    let rate = report.instructions as f64 / report.seconds / 1e6;
    say(format!(
        "{} {kernel}: {} wave instructions in {:.3} s, {rate:.2} M/s (emulated)",
        object.arch, report.instructions, report.seconds
    ))?;
    let mut rows: Vec<_> = report.histogram.into_iter().collect();
    rows.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    rows.into_iter().try_for_each(|(name, n)| say(format!("{n:>12} {name}")))
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("moss-emulate: {e}");
            ExitCode::FAILURE
        }
    }
}
