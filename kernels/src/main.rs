//! The `moss-kernels` command: what is embedded, and whether it keeps to the static floor.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use moss_kernels::{ARCHS, COMPILER, Kind, args, check, code_objects, ptx, why_empty};

#[derive(Parser)]
#[command(name = "moss-kernels", version, about = "Shows the HIP kernels that are built into moss")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Lists the code objects and each kernel's parameters.
    List,
    /// Writes code objects to files SOURCE.ARCH.co.
    Extract {
        /// The architecture, or `all`; `nvptx64` for files KERNEL.ptx, where they are built (feature `nvptx`).
        #[arg(long)]
        arch: String,
        /// The folder; it is made when it is not there.
        #[arg(long)]
        out: PathBuf,
    },
    /// Prints registers, LDS, occupancy and size of each kernel for each architecture.
    Table,
    /// Prints the table, and every breach of the static floor; fails if there is one.
    Check,
}

fn main() -> ExitCode {
    match run(&Cli::parse().command) {
        Ok(code) => code,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "moss-kernels: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> io::Result<ExitCode> {
    let mut out = io::stdout().lock();
    if let Some(why) = why_empty() {
        return Err(io::Error::other(format!("this build has no kernels: {why}")));
    }
    match command {
        Command::List => {
            writeln!(out, "compiled by {COMPILER}")?;
            for arch in ARCHS {
                let (count, bytes) =
                    code_objects(arch).fold((0, 0), |(n, bytes), built| (n + 1, bytes + built.bytes.len()));
                writeln!(out, "{arch}: {count} code objects, {bytes} bytes")?;
            }
            for (kernel, params) in args::all_params() {
                let params: Vec<String> = params
                    .iter()
                    .map(|p| {
                        let kind = match p.kind {
                            Kind::Address => "address",
                            Kind::I32 => "i32",
                            Kind::F32 => "f32",
                        };
                        format!("{}: {kind} at {}", p.name, p.offset)
                    })
                    .collect();
                writeln!(out, "{kernel}({})", params.join(", "))?;
            }
        }
        Command::Extract { arch, out: folder } => extract(arch, folder, &mut out)?,
        Command::Table => write!(out, "{}", check::Table)?,
        Command::Check => {
            write!(out, "{}", check::Table)?;
            let violations = check::all();
            for violation in &violations {
                writeln!(out, "{violation}")?;
            }
            let checked = args::all_params().len() * ARCHS.len();
            writeln!(out, "{checked} kernels checked, {} breaches of the static floor", violations.len())?;
            if !violations.is_empty() {
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn extract(arch: &str, folder: &Path, out: &mut impl Write) -> io::Result<()> {
    if arch == "nvptx64" && !ptx().is_empty() {
        for kernel in ptx() {
            write_file(folder, &format!("{}.ptx", kernel.kernel), kernel.text.as_bytes(), out)?;
        }
        return Ok(());
    }
    let wanted: Vec<_> = ARCHS.into_iter().filter(|name| arch == "all" || arch == *name).collect();
    let objects: Vec<_> = wanted.into_iter().flat_map(code_objects).collect();
    if objects.is_empty() {
        return Err(io::Error::other(format!("--arch {arch}: no code objects; known are {ARCHS:?}")));
    }
    for built in objects {
        write_file(folder, &format!("{}.{}.co", built.source, built.arch), built.bytes, out)?;
    }
    Ok(())
}

fn write_file(folder: &Path, name: &str, bytes: &[u8], out: &mut impl Write) -> io::Result<()> {
    fs::create_dir_all(folder)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", folder.display())))?;
    let path = folder.join(name);
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.persist(&path).map_err(|error| error.error)?;
    writeln!(out, "{}", path.display())
}
