//! Launching a kernel: arguments, initial registers, workgroups over threads, the instruction loop.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use crate::{
    arch::Gen,
    decode::EXEC,
    disasm,
    exec::{
        Hit,
        group::Group,
        scalar::resume,
        shadow::Shadow,
        wave::{DX10_CLAMP, IEEE, State, Wave},
    },
    fault::{Fault, What},
    matrix_model::MatrixModel,
    memory::{Memory, Range, View},
    object::{CodeObject, Kernel, NONE},
};

/// In which order waves and workgroups run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Ascending; a wave runs until it waits or ends.
    #[default]
    Forward,
    /// Descending.
    Reverse,
    /// Random waves for random stretches, from a seed.
    Shuffle(u64),
}

/// How to run a launch.
#[derive(Clone, Debug)]
pub struct Options {
    /// Order of waves and workgroups.
    pub order: Order,
    /// Numerics of matrix instructions.
    pub model: MatrixModel,
    /// Worker threads; the result does not depend on it.
    pub threads: usize,
    /// Instructions that a wave may execute.
    pub budget: u64,
    /// Look for races in LDS and global memory, and for LDS and scalar registers that nobody wrote.
    pub sanitize: bool,
    /// Count executed instructions by mnemonic.
    pub histogram: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            order: Order::Forward,
            model: MatrixModel::FmaChain,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            budget: 1 << 28,
            sanitize: true,
            histogram: false,
        }
    }
}

/// What a launch did.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Instructions executed, counted per wave.
    pub instructions: u64,
    /// Wall time.
    pub seconds: f64,
    /// Executions by mnemonic, when asked for.
    pub histogram: BTreeMap<String, u64>,
}

/// Why a launch did not complete.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The code object has no kernel of that name.
    #[error("no kernel {name:?}; the code object has {available:?}")]
    NoKernel {
        /// What was asked for.
        name: String,
        /// What there is.
        available: Vec<String>,
    },
    /// Fewer argument bytes than the kernel's explicit arguments take.
    #[error("kernel {kernel} takes {expected} bytes of arguments, got {found}")]
    Arguments {
        /// Kernel.
        kernel: String,
        /// Bytes of the explicit arguments.
        expected: u32,
        /// Bytes given.
        found: usize,
    },
    /// Work-items beyond what the kernel was compiled for, or none.
    #[error("kernel {kernel}: a block of {found} work-items is not within 1..={limit}")]
    Block {
        /// Kernel.
        kernel: String,
        /// Work-items of the block.
        found: u64,
        /// Work-items allowed.
        limit: u32,
    },
    /// An empty grid, or one whose work-items do not fit 32 bits a dimension.
    #[error("kernel {kernel}: grid {grid:?} of blocks {block:?} is empty or too large")]
    Grid {
        /// Kernel.
        kernel: String,
        /// Workgroups.
        grid: [u32; 3],
        /// Work-items of a block.
        block: [u32; 3],
    },
    /// More LDS than a workgroup can have.
    #[error("kernel {kernel} needs {found} bytes of LDS; a workgroup has 65536")]
    Lds {
        /// Kernel.
        kernel: String,
        /// Static and dynamic bytes.
        found: u64,
    },
    /// The kernel did something wrong.
    #[error(transparent)]
    Fault(Box<Fault>),
}

/// LDS of a workgroup, bytes.
const MAX_LDS: u64 = 65536;
/// Scratch of a lane beyond the static size when the stack is dynamic, bytes.
const DYNAMIC_STACK: u32 = 16384;

/// One launch, shared by its threads.
struct Launch<'a> {
    object: &'a CodeObject,
    kernel: &'a Kernel,
    grid: [u32; 3],
    block: [u32; 3],
    lds: u32,
    kernarg: u64,
    packet: u64,
    ranges: Vec<Range>,
    options: &'a Options,
    threads: usize,
    shadow: Option<Shadow>,
}

/// Runs a kernel over `grid` workgroups of `block` work-items. `kernarg` holds the explicit arguments as
/// the kernel lays them out; hidden arguments are filled in.
pub fn launch(
    object: &CodeObject,
    kernel: &str,
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_lds: u32,
    kernarg: &[u8],
    memory: &Memory,
    options: &Options,
) -> Result<Report, LaunchError> {
    let k = find(object, kernel)?;
    check(k, grid, block, dynamic_lds, kernarg)?;
    let own = Memory::new();
    let argument_bytes = arguments(k, grid, block, dynamic_lds, kernarg);
    let kernarg = own.alloc_from(&argument_bytes);
    let packet = own.alloc_from(&packet(k, grid, block, dynamic_lds, kernarg));
    let mut ranges = memory.ranges();
    ranges.extend(object.ranges());
    ranges.extend(own.ranges().into_iter().map(|r| Range { writable: false, ..r }));
    ranges.sort_by_key(|r| r.start);
    let groups: u64 = grid.iter().map(|&g| u64::from(g)).product();
    let threads = if object.serial { 1 } else { options.threads.clamp(1, groups.min(256) as usize) };
    let shadow = options.sanitize.then(|| Shadow::new(&ranges, groups, object.serial));
    let l = Launch {
        object,
        kernel: k,
        grid,
        block,
        lds: k.lds + dynamic_lds,
        kernarg,
        packet,
        ranges,
        options,
        threads,
        shadow,
    };
    l.run(groups).map_err(LaunchError::Fault)
}

/// Whether [`launch`] would start: kernel, grid, block, LDS and argument bytes.
pub fn validate(
    object: &CodeObject,
    kernel: &str,
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_lds: u32,
    kernarg: &[u8],
) -> Result<(), LaunchError> {
    check(find(object, kernel)?, grid, block, dynamic_lds, kernarg)
}

fn find<'a>(object: &'a CodeObject, kernel: &str) -> Result<&'a Kernel, LaunchError> {
    object.kernel(kernel).ok_or_else(|| {
        let available = object.kernels().map(|k| k.name.clone()).collect();
        LaunchError::NoKernel { name: kernel.to_owned(), available }
    })
}

fn check(
    k: &Kernel,
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_lds: u32,
    kernarg: &[u8],
) -> Result<(), LaunchError> {
    let kernel = || k.name.clone();
    if kernarg.len() < k.explicit_size as usize {
        let (expected, found) = (k.explicit_size, kernarg.len());
        return Err(LaunchError::Arguments { kernel: kernel(), expected, found });
    }
    let items: u64 = block.iter().map(|&b| u64::from(b)).product();
    let limit = if k.max_workgroup == 0 { 1024 } else { k.max_workgroup.min(1024) };
    if items == 0 || items > limit.into() {
        return Err(LaunchError::Block { kernel: kernel(), found: items, limit });
    }
    let fits = grid.iter().zip(block).all(|(&g, b)| g > 0 && u64::from(g) * u64::from(b) <= u32::MAX.into());
    if !fits || grid[1] > 0xffff || grid[2] > 0xffff {
        return Err(LaunchError::Grid { kernel: kernel(), grid, block });
    }
    let found = u64::from(k.lds) + u64::from(dynamic_lds);
    if found > MAX_LDS {
        return Err(LaunchError::Lds { kernel: kernel(), found });
    }
    Ok(())
}

/// The kernarg segment: the explicit arguments and the hidden ones of code object version 5.
fn arguments(k: &Kernel, grid: [u32; 3], block: [u32; 3], dynamic_lds: u32, explicit: &[u8]) -> Vec<u8> {
    // Compilers may read up to the next 64 bytes in one scalar load.
    let mut out = vec![0u8; (k.kernarg_size as usize).max(explicit.len()).next_multiple_of(64)];
    out[..k.explicit_size as usize].copy_from_slice(&explicit[..k.explicit_size as usize]);
    let dims = if grid[2] * block[2] > 1 {
        3
    } else if grid[1] * block[1] > 1 {
        2
    } else {
        1
    };
    for a in &k.args {
        let axis = match a.kind.chars().last() {
            Some('y') => 1,
            Some('z') => 2,
            _ => 0,
        };
        let value = match a.kind.as_str() {
            "hidden_block_count_x" | "hidden_block_count_y" | "hidden_block_count_z" => grid[axis],
            "hidden_group_size_x" | "hidden_group_size_y" | "hidden_group_size_z" => block[axis],
            "hidden_grid_dims" => dims,
            "hidden_dynamic_lds_size" => dynamic_lds,
            "hidden_private_base" => 0x0002_0000,
            "hidden_shared_base" => 0x0001_0000,
            // Remainders and offsets are 0; services that the host would offer are null pointers.
            _ => continue,
        };
        let (at, n) = (a.offset as usize, a.size.min(4) as usize);
        out[at..at + n].copy_from_slice(&value.to_le_bytes()[..n]);
    }
    out
}

/// The AQL dispatch packet, for kernels that ask for it.
fn packet(k: &Kernel, grid: [u32; 3], block: [u32; 3], dynamic_lds: u32, kernarg: u64) -> Vec<u8> {
    let mut out = vec![0u8; 64];
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    put(2, &3u16.to_le_bytes());
    for axis in 0..3 {
        put(4 + 2 * axis, &(block[axis] as u16).to_le_bytes());
        put(12 + 4 * axis, &(grid[axis] * block[axis]).to_le_bytes());
    }
    put(24, &k.scratch.to_le_bytes());
    put(28, &(k.lds + dynamic_lds).to_le_bytes());
    put(40, &kernarg.to_le_bytes());
    out
}

/// Numbers for shuffled orders: splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}

/// What one thread carries from workgroup to workgroup.
struct Worker<'a> {
    waves: Vec<Wave>,
    group: Group<'a>,
    counts: Vec<u64>,
    executed: u64,
}

impl Launch<'_> {
    fn run(&self, groups: u64) -> Result<Report, Box<Fault>> {
        let started = Instant::now();
        let next = AtomicU64::new(0);
        let failed: Mutex<Option<(u64, Box<Fault>)>> = Mutex::new(None);
        let first_failed = AtomicU64::new(u64::MAX);
        let work = || {
            let mut worker = self.worker();
            loop {
                let n = next.fetch_add(1, Relaxed);
                // Workgroups before the first failure still run, so the one reported is always the same.
                if n >= groups || n > first_failed.load(Relaxed) {
                    return worker;
                }
                if let Err(fault) = self.group(&mut worker, self.nth(n, groups)) {
                    first_failed.fetch_min(n, Relaxed);
                    let mut slot = failed.lock().expect("no panic holds it");
                    if slot.as_ref().is_none_or(|(at, _)| n < *at) {
                        *slot = Some((n, fault));
                    }
                }
            }
        };
        let workers: Vec<Worker<'_>> = if self.threads == 1 {
            vec![work()]
        } else {
            std::thread::scope(|s| {
                let handles: Vec<_> = (0..self.threads).map(|_| s.spawn(work)).collect();
                handles.into_iter().map(|h| h.join().expect("workers do not panic")).collect()
            })
        };
        if let Some((_, fault)) = failed.into_inner().expect("no panic holds it") {
            return Err(fault);
        }
        let mut report = Report { seconds: started.elapsed().as_secs_f64(), ..Report::default() };
        for w in &workers {
            report.instructions += w.executed;
            for (i, &n) in self.object.code.insts.iter().zip(&w.counts).filter(|(_, n)| **n > 0) {
                *report.histogram.entry(i.mnemonic()).or_default() += n;
            }
        }
        Ok(report)
    }

    fn worker(&self) -> Worker<'_> {
        let g = Group::new(
            self.object.arch.generation,
            self.options.model,
            self.shadow.as_ref(),
            self.lds,
            View::new(&self.ranges),
            self.object.base + self.object.code.start,
        );
        let items: u32 = self.block.iter().product();
        let scratch = self.kernel.scratch + if self.kernel.dynamic_stack { DYNAMIC_STACK } else { 0 };
        let waves = (0..items.div_ceil(32))
            .map(|n| {
                let mut w = Wave::new(n as u8);
                w.scratch_lane = scratch;
                w.scratch = vec![0xff; scratch as usize * 32];
                w
            })
            .collect();
        let counts = if self.options.histogram { vec![0; self.object.code.insts.len()] } else { Vec::new() };
        Worker { waves, group: g, counts, executed: 0 }
    }

    /// The n-th workgroup to run.
    fn nth(&self, n: u64, groups: u64) -> [u32; 3] {
        let n = match self.options.order {
            Order::Forward => n,
            Order::Reverse => groups - 1 - n,
            // A stride that has no factor in common with the count visits each once.
            Order::Shuffle(seed) => {
                let gcd = |mut a: u64, mut b: u64| {
                    while b != 0 {
                        (a, b) = (b, a % b);
                    }
                    a
                };
                let mut stride = Random(seed).next() % groups;
                while gcd(stride, groups) != 1 {
                    stride += 1;
                }
                (u128::from(n) * u128::from(stride) % u128::from(groups)) as u64
            }
        };
        let [x, y, _] = self.grid.map(u64::from);
        [(n % x) as u32, (n / x % y) as u32, (n / x / y) as u32]
    }

    /// Initial registers of a wave.
    fn start(&self, w: &mut Wave, id: [u32; 3]) {
        let k = self.kernel;
        let entry = ((k.entry - self.object.code.start) / 4) as u32;
        let flags = match self.object.arch.generation {
            Gen::Gfx11 => ((k.rsrc1 >> 21 & 1) * DX10_CLAMP) | ((k.rsrc1 >> 23 & 1) * IEEE),
            Gen::Gfx12 => DX10_CLAMP,
        };
        w.reset(entry, k.rsrc1 >> 12 & 0xff | flags, !self.options.sanitize);
        let [bx, by, bz] = self.block;
        let items = bx * by * bz;
        let first = u32::from(w.id) * 32;
        let live = (items - first).min(32);
        w.set_s(EXEC, (u64::from(u32::MAX) >> (32 - live)) as u32);
        w.set_s(EXEC + 1, 0);
        // Work-item ids, ten bits each.
        for l in 0..live {
            let n = first + l;
            w.v[0][l as usize] = (n % bx) | (n / bx % by) << 10 | (n / bx / by) << 20;
        }
        w.init[0] = w.exec();
        let mut at = 0u8;
        let mut wide = |w: &mut Wave, v: u64| {
            w.set_s64(at, v);
            at += 2;
        };
        let p = k.properties;
        if p & 1 != 0 {
            wide(w, 0);
            wide(w, 0);
        }
        if p & 2 != 0 {
            wide(w, self.packet);
        }
        if p & 4 != 0 {
            wide(w, 0);
        }
        if p & 8 != 0 {
            wide(w, self.kernarg);
        }
        if p & 16 != 0 {
            wide(w, 0);
        }
        if p & 32 != 0 {
            wide(w, 0);
        }
        if p & 64 != 0 {
            w.set_s(at, k.scratch);
        }
        let mut at = (k.rsrc2 >> 1 & 31) as u8;
        match self.object.arch.generation {
            Gen::Gfx11 => {
                for axis in 0..3 {
                    if k.rsrc2 >> (7 + axis) & 1 == 1 {
                        w.set_s(at, id[axis]);
                        at += 1;
                    }
                }
            }
            Gen::Gfx12 => {
                // TTMP9 and TTMP7.
                w.set_s(117, id[0]);
                w.set_s(115, id[1] & 0xffff | id[2] << 16);
            }
        }
    }

    /// Runs one workgroup to its end.
    fn group(&self, worker: &mut Worker<'_>, id: [u32; 3]) -> Result<(), Box<Fault>> {
        let count = worker.waves.len();
        let [x, y, z] = id.map(u64::from);
        let [gx, gy, _] = self.grid.map(u64::from);
        worker.group.reset((x + gx * (y + gy * z)) as u32, count as u32);
        worker.waves.iter_mut().for_each(|w| self.start(w, id));
        let mut random = match self.options.order {
            Order::Shuffle(seed) => {
                Some(Random(seed ^ u64::from(id[0]) << 32 ^ u64::from(id[1]) << 16 ^ u64::from(id[2])))
            }
            _ => None,
        };
        let mut blocked = 0;
        let mut turn = 0;
        loop {
            let n = match (&mut random, self.options.order) {
                (Some(r), _) => (r.next() % count as u64) as usize,
                (None, Order::Reverse) => count - 1 - turn % count,
                _ => turn % count,
            };
            turn += 1;
            // A wave that spins on memory gives way to the others after a while.
            let quantum = random.as_mut().map_or(1 << 16, |r| 1 + r.next() % 400);
            let before = worker.waves[n].executed;
            if worker.waves[n].state != State::Ended
                && let Err(hit) = self.step(worker, n, quantum)
            {
                return Err(self.fault(worker, n, id, *hit));
            }
            let progressed = worker.waves[n].executed > before;
            blocked = if progressed { 0 } else { blocked + 1 };
            let done = worker.waves.iter().all(|w| w.state == State::Ended);
            if done {
                worker.executed += worker.waves.iter().map(|w| w.executed).sum::<u64>();
                return Ok(());
            }
            if blocked > 4 * count {
                self.stuck(worker, id)?;
                blocked = 0;
            }
        }
    }

    /// Whether every wave waits or has ended without the barrier completing.
    fn stuck(&self, worker: &Worker<'_>, id: [u32; 3]) -> Result<(), Box<Fault>> {
        let pick = |s: State| -> Vec<u32> {
            worker.waves.iter().filter(|w| w.state == s).map(|w| w.id.into()).collect()
        };
        let released = |w: &Wave| worker.group.completed > w.waits;
        if !pick(State::Running).is_empty()
            || worker.waves.iter().any(|w| w.state == State::Barrier && released(w))
        {
            return Ok(());
        }
        let waiting = pick(State::Barrier);
        let n = waiting.first().copied().unwrap_or(0) as usize;
        let what = What::Barrier { waiting, ended: pick(State::Ended) };
        Err(self.fault(worker, n, id, Hit { lane: None, what }))
    }

    /// Runs a wave until it waits, ends or used up its turn.
    fn step(&self, worker: &mut Worker<'_>, n: usize, quantum: u64) -> Result<(), Box<Hit>> {
        let code = &self.object.code;
        let (w, g) = (&mut worker.waves[n], &mut worker.group);
        let histogram = !worker.counts.is_empty();
        if w.state == State::Barrier {
            resume(w, g);
            if w.state == State::Barrier {
                return Ok(());
            }
            w.pc = w.next;
        }
        let end = w.executed + quantum;
        while w.executed < end {
            let slot = code.index.get(w.pc as usize).copied().unwrap_or(NONE);
            let Some(i) = code.insts.get(slot as usize) else {
                let address = g.text.wrapping_add(u64::from(w.pc) * 4);
                return Err(Box::new(Hit { lane: None, what: What::Jump(address) }));
            };
            w.next = w.pc + u32::from(i.len) / 4;
            w.executed += 1;
            g.clock += 1;
            if histogram {
                worker.counts[slot as usize] += 1;
            }
            let flow = (i.run)(w, i, g);
            if let Some(register) = w.undefined() {
                let register = disasm::scalar(register);
                return Err(Box::new(Hit { lane: None, what: What::SgprUninitialised { register } }));
            }
            flow?;
            // A wave that waits is still at its barrier.
            if w.state != State::Running {
                return Ok(());
            }
            w.pc = w.next;
        }
        if w.executed > self.options.budget {
            let what = What::Budget { budget: self.options.budget };
            return Err(Box::new(Hit { lane: None, what }));
        }
        Ok(())
    }

    fn fault(&self, worker: &Worker<'_>, n: usize, workgroup: [u32; 3], hit: Hit) -> Box<Fault> {
        let w = &worker.waves[n];
        let code = &self.object.code;
        let slot = code.index.get(w.pc as usize).copied().unwrap_or(NONE);
        let line = match code.insts.get(slot as usize) {
            Some(i) => disasm::line(i),
            None => format!("// {:08x}", self.object.word(code.start + u64::from(w.pc) * 4)),
        };
        Box::new(Fault {
            what: hit.what,
            kernel: self.kernel.name.clone(),
            workgroup,
            wave: n as u32,
            lane: hit.lane,
            pc: code.start as i64 + i64::from(w.pc) * 4 - self.kernel.entry as i64,
            line,
        })
    }
}
