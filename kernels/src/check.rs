//! The static floor: what every shipped code object must be, whatever it computes.

use std::fmt;

use crate::args::all_params;
use crate::object::{self, Kernel, Object};
use crate::table::{self, Built};
use crate::{ARCHS, Kind, Param};

/// What the header comment of a source allows its kernel: `budget: threads 128, vgpr 112, lds 16384, wmma 8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Threads of a workgroup, exactly.
    pub threads: u32,
    /// Most vector registers.
    pub vgpr: u32,
    /// Bytes of LDS, at most.
    pub lds: u32,
    /// Matrix instructions in the code, exactly.
    pub wmma: u32,
}

impl Budget {
    /// Reads the budget line of a source.
    pub fn of(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("// budget: "))?;
        let number = |name: &str| {
            line.split(", ").find_map(|part| part.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
        };
        Some(Self {
            threads: number("threads")?,
            vgpr: number("vgpr")?,
            lds: number("lds")?,
            wmma: number("wmma")?,
        })
    }
}

/// What is wrong with one kernel of one architecture.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{arch} {source_name}: {problem}")]
pub struct Violation {
    /// The architecture.
    pub arch: &'static str,
    /// The source's name, without `.hip`.
    pub source_name: String,
    /// What is wrong.
    pub problem: Problem,
}

/// A rule that a code object breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// There is no code object.
    #[error("not built")]
    Missing,
    /// The file cannot be read.
    #[error(transparent)]
    Object(#[from] object::ObjectError),
    /// Compiled for something else.
    #[error("compiled for {found}")]
    Target {
        /// The metadata's target.
        found: String,
    },
    /// Not exactly one kernel with the source's name.
    #[error("has kernels {found:?}")]
    Kernels {
        /// The kernels.
        found: Vec<String>,
    },
    /// The source states no budget.
    #[error("the header comment has no budget line")]
    NoBudget,
    /// A symbol that nothing defines.
    #[error("uses {symbol}, which is not defined")]
    Undefined {
        /// The symbol.
        symbol: String,
    },
    /// A figure above its limit, or another than the exact one.
    #[error("{figure} is {found}, the budget is {allowed}")]
    Over {
        /// The figure.
        figure: &'static str,
        /// What the code object has.
        found: u32,
        /// What is allowed.
        allowed: u32,
    },
    /// An instruction that no kernel may have.
    #[error("has {mnemonic}: {rule}")]
    Instruction {
        /// The instruction.
        mnemonic: String,
        /// What it breaks.
        rule: &'static str,
    },
    /// The parameters are not those of the struct in [`crate::args`].
    #[error("takes (offset, size, kind) {found:?}, the launch passes {passed:?}")]
    Parameters {
        /// By the metadata.
        found: Vec<(u32, u32, String)>,
        /// By the struct.
        passed: Vec<(u32, u32, String)>,
    },
}

/// Checks every kernel for every architecture.
pub fn all() -> Vec<Violation> {
    let params = all_params();
    let mut violations = Vec::new();
    for arch in ARCHS {
        for (name, params) in &params {
            let built = table::code_objects(arch).find(|built| built.source == *name);
            let problems = built.map_or_else(|| vec![Problem::Missing], |built| check_built(built, params));
            let source_name = (*name).to_owned();
            violations.extend(problems.into_iter().map(|problem| Violation {
                arch,
                source_name: source_name.clone(),
                problem,
            }));
        }
    }
    violations
}

fn check_built(built: &Built, params: &[Param]) -> Vec<Problem> {
    match (object::parse(built.bytes), Budget::of(built.text)) {
        (Err(error), _) => vec![error.into()],
        (_, None) => vec![Problem::NoBudget],
        (Ok(object), Some(budget)) => check(&object, built.arch, built.source, budget, params),
    }
}

/// Checks one code object.
pub fn check(object: &Object, arch: &str, name: &str, budget: Budget, params: &[Param]) -> Vec<Problem> {
    let mut problems = Vec::new();
    if object.target.rsplit('-').next() != Some(arch) {
        problems.push(Problem::Target { found: object.target.clone() });
    }
    problems.extend(object.undefined.iter().map(|symbol| Problem::Undefined { symbol: symbol.clone() }));
    let [kernel] = &object.kernels[..] else {
        let found = object.kernels.iter().map(|kernel| kernel.name.clone()).collect();
        problems.push(Problem::Kernels { found });
        return problems;
    };
    if kernel.name != name {
        problems.push(Problem::Kernels { found: vec![kernel.name.clone()] });
    }
    let mut at_most = |figure, found, allowed| {
        if found > allowed {
            problems.push(Problem::Over { figure, found, allowed });
        }
    };
    at_most("vector registers", kernel.vgpr, budget.vgpr);
    at_most("LDS", kernel.lds, budget.lds);
    at_most("spilled vector registers", kernel.vgpr_spills, 0);
    at_most("spilled scalar registers", kernel.sgpr_spills, 0);
    at_most("scratch", kernel.scratch, 0);
    at_most("dynamic stack", u32::from(kernel.dynamic_stack), 0);
    let mut exactly = |figure, found, allowed| {
        if found != allowed {
            problems.push(Problem::Over { figure, found, allowed });
        }
    };
    exactly("threads of a workgroup", kernel.max_workgroup, budget.threads);
    exactly("matrix instructions", kernel.wmma, budget.wmma);
    exactly("lanes of a wave", kernel.wave, 32);

    let found: Vec<_> = kernel.args.iter().map(|a| (a.offset, a.size, a.kind.clone())).collect();
    let passed: Vec<_> = params
        .iter()
        .map(|p| {
            let kind = if p.kind == Kind::Address { "global_buffer" } else { "by_value" };
            (p.offset, p.kind.size(), kind.to_owned())
        })
        .collect();
    if found != passed {
        problems.push(Problem::Parameters { found, passed });
    }
    problems
}

/// What no kernel may do, of its instructions: f64 arithmetic (no kernel needs it, and it is slow), float
/// atomics (their order, and so the result, is left to chance) and flat accesses (slower than those of a known address space; each
/// counts as one of LDS too). The instructions come from a disassembler, by LLVM's names; each is reported once.
pub fn check_instructions<'a>(mnemonics: impl IntoIterator<Item = &'a str>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for mnemonic in mnemonics {
        let is = |kind: &str| mnemonic.split('_').any(|part| part == kind);
        let float = ["f16", "bf16", "f32", "f64"].into_iter().any(is);
        let rule = if float && (is("atomic") || mnemonic.starts_with("ds_")) {
            "no float atomics"
        } else if is("f64") {
            "no f64 arithmetic"
        } else if mnemonic.starts_with("flat_") {
            "no flat accesses"
        } else {
            continue;
        };
        let problem = Problem::Instruction { mnemonic: mnemonic.to_owned(), rule };
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }
    problems
}

/// Vector registers of a SIMD lane and their allocation granule, by LLVM's `Feature1_5xVGPRs`.
fn registers(arch: &str) -> (u32, u32) {
    match arch {
        "gfx1102" | "gfx1103" | "gfx1150" => (1024, 16),
        _ => (1536, 24),
    }
}

/// Waves that a SIMD holds at once: at most 16, limited by vector registers and by the LDS of its WGP (four SIMDs, 128 KiB,
/// granule 1 KiB). A workgroup lies in one WGP.
pub fn occupancy(arch: &str, kernel: &Kernel) -> u32 {
    let (all, granule) = registers(arch);
    let by_registers = (all / kernel.vgpr.max(1).next_multiple_of(granule)).min(16);
    let waves = kernel.max_workgroup.div_ceil(32);
    let by_lds = (128 << 10) / kernel.lds.max(1).next_multiple_of(1024);
    let groups = (4 * by_registers / waves).min(by_lds);
    groups * waves / 4
}

/// A table of all kernels and architectures, one a line.
pub struct Table;

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:20} {:8} {:>5} {:>5} {:>5} {:>6} {:>10} {:>6} {:>7} {:>6}",
            "kernel", "arch", "wmma", "vgpr", "sgpr", "lds", "waves/SIMD", "spills", "scratch", "bytes"
        )?;
        for (name, _) in all_params() {
            for arch in ARCHS {
                let Some(kernel) = table::kernel(arch, name) else { continue };
                let Kernel { wmma, vgpr, sgpr, lds, scratch, code_size, .. } = kernel;
                let (spills, waves) = (kernel.vgpr_spills + kernel.sgpr_spills, occupancy(arch, kernel));
                writeln!(
                    f,
                    "{name:20} {arch:8} {wmma:5} {vgpr:5} {sgpr:5} {lds:6} {waves:10} {spills:6} {scratch:7} {code_size:6}"
                )?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Arg;

    const BUDGET: Budget = Budget { threads: 128, vgpr: 100, lds: 1024, wmma: 8 };
    const PARAMS: [Param; 2] = [
        Param { name: "x", kind: Kind::Address, offset: 0 },
        Param { name: "n", kind: Kind::I32, offset: 8 },
    ];

    fn good() -> Object {
        let arg = |offset, size, kind: &str| Arg { offset, size, kind: kind.into() };
        let kernel = Kernel {
            name: "k".into(),
            args: vec![arg(0, 8, "global_buffer"), arg(8, 4, "by_value")],
            kernarg_size: 16,
            max_workgroup: 128,
            wave: 32,
            vgpr: 100,
            sgpr: 20,
            vgpr_spills: 0,
            sgpr_spills: 0,
            lds: 1024,
            scratch: 0,
            dynamic_stack: false,
            code_size: 64,
            wmma: 8,
        };
        Object { target: "amdgcn-amd-amdhsa--gfx1200".into(), kernels: vec![kernel], undefined: Vec::new() }
    }

    fn problems(change: impl FnOnce(&mut Object)) -> Vec<String> {
        let mut object = good();
        change(&mut object);
        check(&object, "gfx1200", "k", BUDGET, &PARAMS).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_rule_is_enforced() {
        assert_eq!(problems(|_| ()), [""; 0]);
        let kernel = |change: fn(&mut Kernel)| problems(|object| change(&mut object.kernels[0]));
        assert_eq!(kernel(|k| k.vgpr = 101), ["vector registers is 101, the budget is 100"]);
        assert_eq!(kernel(|k| k.lds = 1025), ["LDS is 1025, the budget is 1024"]);
        assert_eq!(kernel(|k| k.vgpr_spills = 1), ["spilled vector registers is 1, the budget is 0"]);
        assert_eq!(kernel(|k| k.sgpr_spills = 2), ["spilled scalar registers is 2, the budget is 0"]);
        assert_eq!(kernel(|k| k.scratch = 4), ["scratch is 4, the budget is 0"]);
        assert_eq!(kernel(|k| k.dynamic_stack = true), ["dynamic stack is 1, the budget is 0"]);
        assert_eq!(kernel(|k| k.max_workgroup = 64), ["threads of a workgroup is 64, the budget is 128"]);
        assert_eq!(kernel(|k| k.wmma = 0), ["matrix instructions is 0, the budget is 8"]);
        assert_eq!(kernel(|k| k.wave = 64), ["lanes of a wave is 64, the budget is 32"]);
        assert_eq!(kernel(|k| k.name = "q".into()), ["has kernels [\"q\"]"]);
        assert!(kernel(|k| k.args[1].offset = 12)[0].starts_with("takes (offset, size, kind)"));
        assert_eq!(problems(|o| o.undefined.push("f".into())), ["uses f, which is not defined"]);
        assert_eq!(problems(|o| o.kernels.clear()), ["has kernels []"]);
        let other = "amdgcn-amd-amdhsa--gfx1100";
        assert_eq!(problems(|o| o.target = other.into()), ["compiled for amdgcn-amd-amdhsa--gfx1100"]);
    }

    #[test]
    fn forbidden_instructions_are_told_from_others() {
        let problems = |mnemonics: &[&str]| -> Vec<String> {
            check_instructions(mnemonics.iter().copied()).iter().map(ToString::to_string).collect()
        };
        let allowed =
            ["v_fma_f32", "ds_load_b64", "ds_bpermute_b32", "global_atomic_add_u32", "v_lshlrev_b64"];
        assert_eq!(problems(&allowed), [""; 0]);
        assert_eq!(problems(&["v_fma_f64", "v_fma_f64"]), ["has v_fma_f64: no f64 arithmetic"]);
        assert_eq!(problems(&["v_cvt_f32_f64_e32"]), ["has v_cvt_f32_f64_e32: no f64 arithmetic"]);
        for atomic in ["global_atomic_add_f32", "ds_add_rtn_f32", "flat_atomic_pk_add_bf16", "ds_max_num_f64"]
        {
            assert_eq!(problems(&[atomic]), [format!("has {atomic}: no float atomics")]);
        }
        assert_eq!(problems(&["flat_load_b128"]), ["has flat_load_b128: no flat accesses"]);
    }

    #[test]
    fn budgets_are_read_from_the_header() {
        let text = "// k: a kernel\n// budget: threads 128, vgpr 100, lds 1024, wmma 8\n";
        assert_eq!(Budget::of(text), Some(BUDGET));
        assert_eq!(Budget::of("// budget: threads 128, vgpr 100, lds 1024\n"), None);
    }

    #[test]
    fn occupancy_follows_registers_and_lds() {
        let kernel = |vgpr, lds| Kernel { vgpr, lds, ..good().kernels.remove(0) };
        // 192 of 1536 registers, of 1024; 256 is rounded up to 264.
        assert_eq!(occupancy("gfx1200", &kernel(192, 0)), 8);
        assert_eq!(occupancy("gfx1150", &kernel(192, 0)), 5);
        assert_eq!(occupancy("gfx1200", &kernel(256, 0)), 5);
        assert_eq!(occupancy("gfx1200", &kernel(24, 0)), 16);
        // Four groups of four waves in 128 KiB.
        assert_eq!(occupancy("gfx1200", &kernel(24, 32 << 10)), 4);
    }

    #[test]
    fn shipped_code_objects_keep_to_the_floor() {
        let built = crate::testing::built(&ARCHS);
        let broken: Vec<_> = all().into_iter().filter(|v| built.contains(&v.arch)).collect();
        assert!(broken.is_empty(), "{broken:#?}");
    }
}
