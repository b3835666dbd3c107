//! The runtime's state: devices, memory, modules, and streams whose work runs late.
//!
//! Work is queued and runs when something waits for it, so a host that forgets to wait finds old data, and a
//! kernel that forgets to wait for a copy reads what the copy has not yet written. Copies from pageable host
//! memory are the exception HIP makes: their bytes are taken at the call.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use moss_emulator::{CodeObject, LaunchError, Memory, ObjectError, What, launch, validate};

use crate::config::{Config, Streams};

/// A `hipError_t`.
pub type Code = u32;

/// `hipSuccess`.
pub const SUCCESS: Code = 0;
/// `hipErrorInvalidValue`.
pub const INVALID_VALUE: Code = 1;
/// `hipErrorOutOfMemory`.
pub const OUT_OF_MEMORY: Code = 2;
/// `hipErrorInvalidConfiguration`.
pub const INVALID_CONFIGURATION: Code = 9;
/// `hipErrorNoDevice`.
pub const NO_DEVICE: Code = 100;
/// `hipErrorInvalidDevice`.
pub const INVALID_DEVICE: Code = 101;
/// `hipErrorInvalidImage`.
pub const INVALID_IMAGE: Code = 200;
/// `hipErrorNoBinaryForGpu`.
pub const NO_BINARY: Code = 209;
/// `hipErrorInvalidHandle`.
pub const INVALID_HANDLE: Code = 400;
/// `hipErrorNotFound`.
pub const NOT_FOUND: Code = 500;
/// `hipErrorNotReady`.
pub const NOT_READY: Code = 600;
/// `hipErrorIllegalAddress`.
pub const ILLEGAL_ADDRESS: Code = 700;
/// `hipErrorLaunchTimeOut`.
pub const LAUNCH_TIME_OUT: Code = 702;
/// `hipErrorLaunchFailure`.
pub const LAUNCH_FAILURE: Code = 719;
/// `hipErrorNotSupported`.
pub const NOT_SUPPORTED: Code = 801;

/// Result of a runtime function.
pub type Outcome<T = ()> = Result<T, Code>;

/// The null stream's handle.
pub const NULL_STREAM: u64 = 0;

/// What a copy reads.
enum Source {
    /// Memory that stays valid until the copy has run.
    Address(u64),
    /// Bytes of pageable memory, taken at the call.
    Bytes(Vec<u8>),
}

/// A kernel launch.
struct Work {
    object: Arc<CodeObject>,
    kernel: String,
    grid: [u32; 3],
    block: [u32; 3],
    lds: u32,
    kernarg: Vec<u8>,
}

enum Op {
    /// Runs another stream up to a count of operations.
    Wait(u64, u64),
    Copy(Source, u64, u64),
    Set(u64, u8, u64),
    Kernel(Box<Work>),
}

#[derive(Default)]
struct Stream {
    device: usize,
    /// Ordered against the null stream.
    blocking: bool,
    queue: VecDeque<Op>,
    /// Operations that have run, and that were queued in all.
    done: u64,
    queued: u64,
}

#[derive(Default)]
struct Event {
    /// Stream and its count of operations when recorded.
    mark: Option<(u64, u64)>,
    /// A query has already said that it is not ready.
    asked: bool,
}

struct Allocation {
    device: usize,
    bytes: u64,
}

/// Counts for the report at exit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Kernels run.
    pub launches: u64,
    /// Wave instructions.
    pub instructions: u64,
    /// Seconds spent running kernels.
    pub seconds: f64,
    /// Bytes copied.
    pub copied: u64,
}

/// Everything behind the C interface.
pub struct Runtime {
    /// What is emulated.
    pub config: Config,
    memory: Memory,
    device: HashMap<u64, Allocation>,
    host: HashMap<u64, u64>,
    streams: HashMap<u64, Stream>,
    events: HashMap<u64, Event>,
    modules: HashMap<u64, Arc<CodeObject>>,
    functions: HashMap<u64, (u64, String)>,
    next: u64,
    mallocs: u64,
    host_mallocs: u64,
    /// The error that ended the device, returned by everything from then on.
    lost: Option<Code>,
    /// What ran.
    pub stats: Stats,
}

impl Runtime {
    /// A runtime with nothing allocated.
    pub fn new(config: Config) -> Self {
        let null = Stream { blocking: true, ..Stream::default() };
        Runtime {
            config,
            memory: Memory::new(),
            device: HashMap::new(),
            host: HashMap::new(),
            streams: HashMap::from([(NULL_STREAM, null)]),
            events: HashMap::new(),
            modules: HashMap::new(),
            functions: HashMap::new(),
            next: 0x1000,
            mallocs: 0,
            host_mallocs: 0,
            lost: None,
            stats: Stats::default(),
        }
    }

    fn handle(&mut self) -> u64 {
        self.next += 16;
        self.next
    }

    /// Whether the device still answers.
    pub fn alive(&self) -> Outcome {
        self.lost.map_or(Ok(()), Err)
    }

    fn known(&self, device: usize) -> Outcome {
        if device < self.config.devices.len() { Ok(()) } else { Err(INVALID_DEVICE) }
    }

    /// `hipMalloc` calls so far.
    pub fn mallocs(&self) -> u64 {
        self.mallocs
    }

    /// Free and total bytes of a device.
    pub fn mem_info(&self, device: usize) -> Outcome<(u64, u64)> {
        self.alive()?;
        self.known(device)?;
        let total = self.config.devices[device].1;
        let used: u64 = self.device.values().filter(|a| a.device == device).map(|a| a.bytes).sum();
        Ok((total - used, total))
    }

    /// `hipMalloc`.
    pub fn malloc(&mut self, device: usize, bytes: u64) -> Outcome<u64> {
        let (free, _) = self.mem_info(device)?;
        self.mallocs += 1;
        if bytes > free || self.config.fail_malloc.hits(self.mallocs) {
            return Err(OUT_OF_MEMORY);
        }
        if bytes == 0 {
            return Ok(0);
        }
        let address = self.memory.alloc(bytes);
        self.device.insert(address, Allocation { device, bytes });
        Ok(address)
    }

    /// `hipFree`: waits for the device first.
    pub fn free(&mut self, address: u64) -> Outcome {
        self.alive()?;
        if address == 0 {
            return Ok(());
        }
        let device = self.device.get(&address).ok_or(INVALID_VALUE)?.device;
        self.synchronize(device)?;
        self.device.remove(&address);
        self.memory.free(address);
        Ok(())
    }

    /// `hipHostMalloc`: pinned memory that kernels see too.
    pub fn host_malloc(&mut self, bytes: u64) -> Outcome<u64> {
        self.alive()?;
        self.host_mallocs += 1;
        if self.config.fail_host_malloc.hits(self.host_mallocs) {
            return Err(OUT_OF_MEMORY);
        }
        let address = self.memory.alloc(bytes.max(1));
        self.host.insert(address, bytes);
        Ok(address)
    }

    /// `hipHostFree`: waits for all devices first.
    pub fn host_free(&mut self, address: u64) -> Outcome {
        self.alive()?;
        if address == 0 {
            return Ok(());
        }
        if !self.host.contains_key(&address) {
            return Err(INVALID_VALUE);
        }
        (0..self.config.devices.len()).try_for_each(|d| self.synchronize(d))?;
        self.host.remove(&address);
        self.memory.free(address);
        Ok(())
    }

    /// `hipStreamCreateWithFlags`.
    pub fn stream_create(&mut self, device: usize, blocking: bool) -> Outcome<u64> {
        self.alive()?;
        self.known(device)?;
        let id = self.handle();
        self.streams.insert(id, Stream { device, blocking, ..Stream::default() });
        Ok(id)
    }

    /// `hipStreamDestroy`: what is queued still runs.
    pub fn stream_destroy(&mut self, stream: u64) -> Outcome {
        self.alive()?;
        if stream == NULL_STREAM {
            return Err(INVALID_HANDLE);
        }
        self.stream_synchronize(stream)?;
        self.streams.remove(&stream);
        Ok(())
    }

    fn stream(&mut self, stream: u64) -> Outcome<&mut Stream> {
        self.streams.get_mut(&stream).ok_or(INVALID_HANDLE)
    }

    /// `hipStreamSynchronize`.
    pub fn stream_synchronize(&mut self, stream: u64) -> Outcome {
        self.alive()?;
        let queued = self.stream(stream)?.queued;
        self.run_until(stream, queued)
    }

    /// `hipDeviceSynchronize`.
    pub fn synchronize(&mut self, device: usize) -> Outcome {
        self.alive()?;
        let mut all: Vec<u64> =
            self.streams.iter().filter(|(_, s)| s.device == device).map(|(&id, _)| id).collect();
        // The newest streams first: no order between streams is promised.
        all.sort_unstable_by(|a, b| b.cmp(a));
        all.into_iter().try_for_each(|s| self.stream_synchronize(s))
    }

    /// Queues work, with the null stream's implicit order against blocking streams.
    fn push(&mut self, stream: u64, op: Op) -> Outcome {
        self.alive()?;
        let s = self.streams.get(&stream).ok_or(INVALID_HANDLE)?;
        let before: Vec<(u64, u64)> = if stream == NULL_STREAM {
            let others = self.streams.iter().filter(|(id, s)| **id != NULL_STREAM && s.blocking);
            others.map(|(&id, s)| (id, s.queued)).collect()
        } else if s.blocking {
            vec![(NULL_STREAM, self.streams[&NULL_STREAM].queued)]
        } else {
            Vec::new()
        };
        let copies = matches!(op, Op::Copy(..) | Op::Set(..));
        let s = self.stream(stream)?;
        for (other, count) in before {
            s.queue.push_back(Op::Wait(other, count));
            s.queued += 1;
        }
        s.queue.push_back(op);
        s.queued += 1;
        if copies && self.config.streams == Streams::EarlyCopies {
            self.run_copies(stream)?;
        }
        Ok(())
    }

    /// Runs the copies at the head of a stream whose waits are already satisfied.
    fn run_copies(&mut self, stream: u64) -> Outcome {
        loop {
            let Some(op) = self.stream(stream)?.queue.front() else { return Ok(()) };
            let ready = match op {
                Op::Kernel(_) => false,
                Op::Wait(other, count) => {
                    let (other, count) = (*other, *count);
                    self.streams.get(&other).is_none_or(|s| s.done >= count)
                }
                _ => true,
            };
            if !ready {
                return Ok(());
            }
            let next = self.stream(stream)?.done + 1;
            self.run_until(stream, next)?;
        }
    }

    /// Runs a stream's operations up to the `count`-th, and before each what it waits for.
    fn run_until(&mut self, stream: u64, count: u64) -> Outcome {
        loop {
            // A stream that is gone was drained before.
            let Some(s) = self.streams.get_mut(&stream) else { return Ok(()) };
            if s.done >= count {
                return Ok(());
            }
            let Some(op) = s.queue.pop_front() else { return Ok(()) };
            match op {
                Op::Wait(other, n) => self.run_until(other, n)?,
                Op::Copy(from, to, len) => self.copy_now(&from, to, len)?,
                Op::Set(to, value, len) => self.fill(to, value, len)?,
                Op::Kernel(work) => self.run_kernel(&work)?,
            }
            if let Some(s) = self.streams.get_mut(&stream) {
                s.done += 1;
            }
        }
    }

    fn lose<T>(&mut self, code: Code) -> Outcome<T> {
        self.lost = Some(code);
        Err(code)
    }

    fn run_kernel(&mut self, w: &Work) -> Outcome {
        if self.config.lost_after.is_some_and(|n| self.stats.launches >= n) {
            return self.lose(LAUNCH_FAILURE);
        }
        self.stats.launches += 1;
        let options = &self.config.options;
        match launch(&w.object, &w.kernel, w.grid, w.block, w.lds, &w.kernarg, &self.memory, options) {
            Ok(report) => {
                self.stats.instructions += report.instructions;
                self.stats.seconds += report.seconds;
                Ok(())
            }
            Err(e) => {
                crate::say(&e.to_string());
                let code = match &e {
                    LaunchError::Fault(f) => match f.what {
                        What::Unmapped { .. } | What::ReadOnly { .. } => ILLEGAL_ADDRESS,
                        What::Budget { .. } => LAUNCH_TIME_OUT,
                        _ => LAUNCH_FAILURE,
                    },
                    _ => LAUNCH_FAILURE,
                };
                self.lose(code)
            }
        }
    }

    fn fill(&mut self, to: u64, value: u8, len: u64) -> Outcome {
        let bytes = vec![value; len as usize];
        self.memory.write(to, &bytes).or_else(|_| self.lose(ILLEGAL_ADDRESS))
    }

    fn copy_now(&mut self, from: &Source, to: u64, len: u64) -> Outcome {
        let started = Instant::now();
        match from {
            Source::Bytes(b) => crate::copy(b.as_ptr() as u64, to, len),
            Source::Address(a) => crate::copy(*a, to, len),
        }
        self.stats.copied += len;
        if let Some(rate) = self.config.copy_rate {
            let wanted = Duration::from_secs_f64(len as f64 / rate);
            std::thread::sleep(wanted.saturating_sub(started.elapsed()));
        }
        Ok(())
    }

    /// Whether `len` bytes at an address lie in one allocation of a device or of pinned memory.
    fn inside(&self, address: u64, len: u64) -> bool {
        self.memory.room(address).is_some_and(|room| room >= len)
    }

    /// `hipMemcpyAsync`. Kinds: 0 host to host, 1 to device, 2 to host, 3 on the device, 4 by the pointers.
    pub fn copy(&mut self, to: u64, from: u64, len: u64, kind: u32, stream: u64) -> Outcome {
        self.alive()?;
        let (to_known, from_known) = (self.inside(to, len), self.inside(from, len));
        let fits = match kind {
            0 => true,
            1 => to_known,
            2 => from_known,
            3 => to_known && from_known,
            4 => to_known || from_known,
            _ => return Err(21),
        };
        if len == 0 {
            return Ok(());
        }
        if !fits || to == 0 || from == 0 {
            return Err(INVALID_VALUE);
        }
        let source = match from_known {
            true => Source::Address(from),
            false => Source::Bytes(crate::bytes_of(from, len)),
        };
        self.push(stream, Op::Copy(source, to, len))?;
        if !to_known {
            // Pageable memory: the call returns when it is written.
            return self.stream_synchronize(stream);
        }
        Ok(())
    }

    /// `hipMemsetAsync`.
    pub fn set(&mut self, to: u64, value: u8, len: u64, stream: u64) -> Outcome {
        self.alive()?;
        if !self.inside(to, len) {
            return Err(INVALID_VALUE);
        }
        self.push(stream, Op::Set(to, value, len))
    }

    /// `hipEventCreateWithFlags`.
    pub fn event_create(&mut self) -> Outcome<u64> {
        self.alive()?;
        let id = self.handle();
        self.events.insert(id, Event::default());
        Ok(id)
    }

    /// `hipEventDestroy`.
    pub fn event_destroy(&mut self, event: u64) -> Outcome {
        self.events.remove(&event).map(|_| ()).ok_or(INVALID_HANDLE)
    }

    /// `hipEventRecord`.
    pub fn event_record(&mut self, event: u64, stream: u64) -> Outcome {
        self.alive()?;
        let mark = (stream, self.stream(stream)?.queued);
        let e = self.events.get_mut(&event).ok_or(INVALID_HANDLE)?;
        *e = Event { mark: Some(mark), asked: false };
        Ok(())
    }

    /// `hipStreamWaitEvent`.
    pub fn wait_event(&mut self, stream: u64, event: u64) -> Outcome {
        self.alive()?;
        let mark = self.events.get(&event).ok_or(INVALID_HANDLE)?.mark;
        self.stream(stream)?;
        match mark {
            _ if self.config.skip_waits => Ok(()),
            Some((other, count)) if other != stream => self.push(stream, Op::Wait(other, count)),
            _ => Ok(()),
        }
    }

    /// `hipEventSynchronize`.
    pub fn event_synchronize(&mut self, event: u64) -> Outcome {
        self.alive()?;
        match self.events.get(&event).ok_or(INVALID_HANDLE)?.mark {
            Some((stream, count)) => self.run_until(stream, count),
            None => Ok(()),
        }
    }

    /// `hipEventQuery`: unfinished work is reported once as not ready, then whoever asks again is waiting.
    pub fn event_query(&mut self, event: u64) -> Outcome {
        self.alive()?;
        let e = self.events.get_mut(&event).ok_or(INVALID_HANDLE)?;
        let Some((stream, count)) = e.mark else { return Ok(()) };
        if self.streams.get(&stream).is_none_or(|s| s.done >= count) {
            return Ok(());
        }
        if !std::mem::replace(&mut e.asked, true) {
            return Err(NOT_READY);
        }
        self.run_until(stream, count)
    }

    /// `hipModuleLoadData` of a whole code object file.
    pub fn module_load(&mut self, device: usize, image: &[u8]) -> Outcome<u64> {
        self.alive()?;
        self.known(device)?;
        let target = &self.config.devices[device].0;
        let object = CodeObject::load(image).map_err(|e| {
            crate::say(&e.to_string());
            if matches!(e, ObjectError::Target { .. }) { NO_BINARY } else { INVALID_IMAGE }
        })?;
        if object.arch.name != target {
            crate::say(&format!("a code object for {} on an emulated {target}", object.arch));
            return Err(NO_BINARY);
        }
        let id = self.handle();
        self.modules.insert(id, Arc::new(object));
        Ok(id)
    }

    /// `hipModuleUnload`.
    pub fn module_unload(&mut self, module: u64) -> Outcome {
        self.modules.remove(&module).ok_or(INVALID_HANDLE)?;
        self.functions.retain(|_, (m, _)| *m != module);
        Ok(())
    }

    /// `hipModuleGetFunction`.
    pub fn function(&mut self, module: u64, name: &str) -> Outcome<u64> {
        self.alive()?;
        let object = self.modules.get(&module).ok_or(INVALID_HANDLE)?;
        object.kernel(name).ok_or(NOT_FOUND)?;
        let id = self.handle();
        self.functions.insert(id, (module, name.to_owned()));
        Ok(id)
    }

    /// Offset and size of each explicit argument of a function.
    pub fn arguments(&self, function: u64) -> Outcome<Vec<(usize, usize)>> {
        let (module, name) = self.functions.get(&function).ok_or(INVALID_HANDLE)?;
        let object = self.modules.get(module).ok_or(INVALID_HANDLE)?;
        let kernel = object.kernel(name).ok_or(NOT_FOUND)?;
        let explicit = kernel.args.iter().filter(|a| !a.kind.starts_with("hidden_"));
        Ok(explicit.map(|a| (a.offset as usize, a.size as usize)).collect())
    }

    /// `hipModuleLaunchKernel`: what can be wrong about a launch itself is refused at once.
    pub fn launch(
        &mut self,
        function: u64,
        grid: [u32; 3],
        block: [u32; 3],
        lds: u32,
        kernarg: Vec<u8>,
        stream: u64,
    ) -> Outcome {
        self.alive()?;
        let (module, kernel) = self.functions.get(&function).ok_or(INVALID_HANDLE)?.clone();
        let object = Arc::clone(self.modules.get(&module).ok_or(INVALID_HANDLE)?);
        if let Err(e) = validate(&object, &kernel, grid, block, lds, &kernarg) {
            crate::say(&e.to_string());
            return Err(match e {
                LaunchError::Arguments { .. } => INVALID_VALUE,
                _ => INVALID_CONFIGURATION,
            });
        }
        self.push(stream, Op::Kernel(Box::new(Work { object, kernel, grid, block, lds, kernarg })))
    }
}
