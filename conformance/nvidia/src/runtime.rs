//! HIP's functions in terms of the CUDA driver's: codes, contexts, modules that come as PTX, and what is counted.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, CString, c_uint, c_void};
use std::ops::Range;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use moss_kernels::object::{self, Object};

use crate::config::{Config, Waiter};
use crate::device::{self, PROPERTIES};
use crate::driver::{self, Driver, Handle, PORTABLE_MAPPED, attribute};
use crate::hazards::{Hazards, StreamId};
use crate::ptx::Ptx;
use crate::say;

/// A `hipError_t`.
pub(crate) type Code = c_uint;

pub(crate) const SUCCESS: Code = 0;
pub(crate) const INVALID_VALUE: Code = 1;
pub(crate) const OUT_OF_MEMORY: Code = 2;
pub(crate) const NO_DEVICE: Code = 100;
pub(crate) const INVALID_DEVICE: Code = 101;
pub(crate) const INVALID_IMAGE: Code = 200;
pub(crate) const NO_BINARY: Code = 209;
pub(crate) const INVALID_HANDLE: Code = 400;
pub(crate) const NOT_FOUND: Code = 500;
pub(crate) const NOT_READY: Code = 600;
pub(crate) const LAUNCH_FAILURE: Code = 719;

/// Result of a runtime function.
pub(crate) type Outcome<T = ()> = Result<T, Code>;

/// Shared memory that a launch may have without asking.
const SHARED_UNASKED: u32 = 48 << 10;
/// Hazards that are printed; all are counted.
const HAZARDS_SHOWN: u64 = 20;

/// HIP's code for a driver's. Most have the same number; HIP lacks the kinds of a fault and of a driver that does not fit.
pub(crate) fn hip_code(code: driver::Code) -> Code {
    match code {
        715..=718 => LAUNCH_FAILURE,
        218 => INVALID_IMAGE,
        222 => NO_BINARY,
        3 | 34 | 35 | 46 | 802 | 803 | 804 => NO_DEVICE,
        code => code,
    }
}

/// A kernel that was compiled by the driver.
#[derive(Clone, Copy)]
struct Function {
    handle: usize,
    module: u64,
    /// Bytes of shared memory that the launch must give.
    shared: u32,
    name: &'static str,
}

struct Module {
    object: Object,
    /// The driver's modules, one a kernel.
    loaded: Vec<usize>,
}

#[derive(Default)]
struct Event {
    recorded: bool,
    /// The host has asked since it was recorded.
    asked: bool,
    /// The host's wait is dropped.
    dropped: bool,
}

/// What the line at the end says.
#[derive(Default)]
struct Counts {
    launches: u64,
    copies: u64,
    bytes: u64,
    waits: BTreeMap<Waiter, u64>,
    hazards: u64,
    device_peak: u64,
    pinned_peak: u64,
}

#[derive(Default)]
struct State {
    streams: HashMap<usize, StreamId>,
    last_stream: StreamId,
    events: HashMap<usize, Event>,
    modules: HashMap<u64, Module>,
    functions: HashMap<u64, Function>,
    next: u64,
    device: BTreeMap<u64, u64>,
    pinned: BTreeMap<u64, u64>,
    counts: Counts,
    hazards: Option<Hazards>,
}

impl State {
    fn stream(&self, stream: Handle) -> Outcome<StreamId> {
        self.streams.get(&(stream as usize)).copied().ok_or(INVALID_HANDLE)
    }

    fn handle(&mut self) -> u64 {
        self.next += 16;
        self.next
    }

    /// Counts a wait; whether it is the one to drop.
    fn wait(&mut self, waiter: Waiter, config: &Config) -> bool {
        let n = self.counts.waits.entry(waiter).or_default();
        *n += 1;
        config.drop_wait == Some((waiter, *n))
    }

    /// Lets the search for hazards see something, and says what it found.
    fn look(&mut self, see: impl FnOnce(&mut Hazards)) {
        let Some(hazards) = &mut self.hazards else { return };
        hazards.enter(std::thread::current().id());
        see(hazards);
        for text in hazards.take() {
            self.counts.hazards += 1;
            if self.counts.hazards <= HAZARDS_SHOWN {
                say(&format!("hazard: {text}"));
            }
        }
    }
}

/// Whether a range lies in one allocation.
fn inside(map: &BTreeMap<u64, u64>, range: &Range<u64>) -> bool {
    map.range(..=range.start).next_back().is_some_and(|(start, bytes)| range.end <= start + bytes)
}

/// The driver, its first device, and what the program has made on it.
pub(crate) struct Runtime {
    driver: Driver,
    config: Config,
    device: i32,
    context: usize,
    state: Mutex<State>,
}

thread_local! {
    /// The context is the calling thread's.
    static BOUND: Cell<bool> = const { Cell::new(false) };
}

impl Runtime {
    /// Loads the driver and takes its first device.
    ///
    /// # Errors
    /// HIP's code; a line says why.
    pub(crate) fn start(config: Config) -> Outcome<Self> {
        let driver = Driver::load().map_err(|text| {
            say(&text);
            NO_DEVICE
        })?;
        let state = State { hazards: config.check.then(Hazards::default), ..State::default() };
        let mut runtime = Self { driver, config, device: 0, context: 0, state: Mutex::new(state) };
        let (mut count, mut context) = (0, null_mut());
        // SAFETY: the pointers are to live variables; the driver is initialised before it is asked anything else.
        unsafe {
            runtime.check("cuInit", (runtime.driver.init)(0))?;
            runtime.check("cuDeviceGetCount", (runtime.driver.device_count)(&mut count))?;
            if count == 0 {
                return Err(NO_DEVICE);
            }
            let code = (runtime.driver.device_get)(&mut runtime.device, 0);
            runtime.check("cuDeviceGet", code)?;
            let code = (runtime.driver.context_retain)(&mut context, runtime.device);
            runtime.check("cuDevicePrimaryCtxRetain", code)?;
        }
        runtime.context = context as usize;
        Ok(runtime)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// HIP's code for what a call returned; what HIP has no words for is said.
    fn check(&self, call: &str, code: driver::Code) -> Outcome {
        match code {
            driver::SUCCESS => Ok(()),
            NOT_READY | OUT_OF_MEMORY => Err(code),
            code => {
                let mut name = std::ptr::null();
                // SAFETY: `name` is a live variable; the driver stores a static text, or null for a code that it does not know.
                let known = unsafe { (self.driver.error_name)(code, &mut name) } == driver::SUCCESS
                    && !name.is_null();
                // SAFETY: a static text that ends with a zero byte.
                let name = if known { unsafe { CStr::from_ptr(name) } } else { c"an unknown error" };
                say(&format!("{call}: {} ({code})", name.to_string_lossy()));
                Err(hip_code(code))
            }
        }
    }

    /// Makes the context the calling thread's: CUDA's contexts belong to threads, HIP's devices have one for all.
    fn enter(&self) -> Outcome<&Driver> {
        if !BOUND.get() {
            // SAFETY: the context was retained and is never released.
            let code = unsafe { (self.driver.context_set)(self.context as Handle) };
            self.check("cuCtxSetCurrent", code)?;
            BOUND.set(true);
        }
        Ok(&self.driver)
    }

    pub(crate) fn bind(&self, device: i32) -> Outcome {
        if device != 0 {
            return Err(INVALID_DEVICE);
        }
        self.enter().map(drop)
    }

    pub(crate) fn properties(&self, device: i32) -> Outcome<[u8; PROPERTIES]> {
        if device != 0 {
            return Err(INVALID_DEVICE);
        }
        let driver = self.enter()?;
        let found = device::properties(driver, self.device, &self.config.arch);
        found.or_else(|code| self.check("cuDeviceGetAttribute", code).map(|()| [0; PROPERTIES]))
    }

    /// Waits for everything; the context stays, for the process ends.
    pub(crate) fn reset(&self) -> Outcome {
        let driver = self.enter()?;
        // SAFETY: takes nothing.
        self.check("cuCtxSynchronize", unsafe { (driver.context_synchronize)() })
    }

    // ---- memory ----------------------------------------------------------------------------------------

    /// Free and total bytes.
    pub(crate) fn memory(&self) -> Outcome<(usize, usize)> {
        let driver = self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are live variables.
        self.check("cuMemGetInfo", unsafe { (driver.mem_info)(&mut free, &mut total) })?;
        Ok((free, total))
    }

    pub(crate) fn malloc(&self, bytes: usize) -> Outcome<*mut c_void> {
        let driver = self.enter()?;
        let mut address = 0;
        // SAFETY: `address` is a live variable.
        self.check("cuMemAlloc", unsafe { (driver.mem_alloc)(&mut address, bytes) })?;
        let state = &mut *self.state();
        state.device.insert(address, bytes as u64);
        state.counts.device_peak = state.counts.device_peak.max(state.device.values().sum());
        state.look(|hazards| hazards.allocated(address, bytes as u64));
        Ok(without_provenance_mut(address as usize))
    }

    pub(crate) fn free(&self, pointer: *mut c_void) -> Outcome {
        if pointer.is_null() {
            return Ok(());
        }
        let driver = self.enter()?;
        let address = pointer as u64;
        {
            let state = &mut *self.state();
            state.device.remove(&address).ok_or(INVALID_VALUE)?;
            state.look(|hazards| hazards.freed(address));
        }
        // SAFETY: allocated by `malloc` and not freed before, for it was in the table.
        self.check("cuMemFree", unsafe { (driver.mem_free)(address) })
    }

    /// Pinned memory; the flags of HIP that CUDA has too (portable 1, mapped 2, write-combined 4) have the same numbers.
    pub(crate) fn host_malloc(&self, bytes: usize, flags: u32) -> Outcome<*mut c_void> {
        if flags & !7 != 0 {
            return Err(INVALID_VALUE);
        }
        let driver = self.enter()?;
        let mut pointer = null_mut();
        // SAFETY: `pointer` is a live variable.
        let code = unsafe { (driver.host_alloc)(&mut pointer, bytes, flags | PORTABLE_MAPPED) };
        self.check("cuMemHostAlloc", code)?;
        let state = &mut *self.state();
        state.pinned.insert(pointer as u64, bytes as u64);
        state.counts.pinned_peak = state.counts.pinned_peak.max(state.pinned.values().sum());
        state.look(|hazards| hazards.pinned(pointer as u64, bytes as u64));
        Ok(pointer)
    }

    pub(crate) fn host_free(&self, pointer: *mut c_void) -> Outcome {
        if pointer.is_null() {
            return Ok(());
        }
        let driver = self.enter()?;
        {
            let state = &mut *self.state();
            state.pinned.remove(&(pointer as u64)).ok_or(INVALID_VALUE)?;
            state.look(|hazards| hazards.unpinned(pointer as u64));
        }
        // SAFETY: allocated by `host_malloc` and not freed before, for it was in the table.
        self.check("cuMemFreeHost", unsafe { (driver.host_free)(pointer) })
    }

    /// `hipMemcpyAsync`. Kinds: 1 to the device, 2 to the host, 3 on the device.
    pub(crate) fn copy(&self, to: u64, from: u64, bytes: usize, kind: u32, stream: Handle) -> Outcome {
        let driver = self.enter()?;
        let (target, source) = (to..to + bytes as u64, from..from + bytes as u64);
        {
            let state = &mut *self.state();
            let id = state.stream(stream)?;
            let (on_target, on_source) = (inside(&state.device, &target), inside(&state.device, &source));
            if !matches!((kind, on_target, on_source), (1, true, false) | (2, false, true) | (3, true, true))
            {
                return Err(INVALID_VALUE);
            }
            if bytes == 0 {
                return Ok(());
            }
            state.counts.copies += 1;
            state.counts.bytes += bytes as u64;
            if self.config.drop_copy == Some(state.counts.copies) {
                return Ok(());
            }
            state.look(|hazards| match kind {
                1 => hazards
                    .copy_in(id, to, source, &|range| crate::bytes_of(range.start, range.end - range.start)),
                2 => hazards.copy_out(id, target, from),
                _ => hazards.copy_on(id, to, from),
            });
        }
        // SAFETY: device ranges lie in allocations; the host's range is the caller's promise.
        self.check("cuMemcpyAsync", unsafe { (driver.memcpy_async)(to, from, bytes, stream) })
    }

    // ---- streams and events ----------------------------------------------------------------------------

    /// Flag 1, without order to the null stream, is CUDA's as well.
    pub(crate) fn stream_create(&self, flags: u32) -> Outcome<Handle> {
        if flags > 1 {
            return Err(INVALID_VALUE);
        }
        let driver = self.enter()?;
        let mut stream = null_mut();
        // SAFETY: `stream` is a live variable.
        self.check("cuStreamCreate", unsafe { (driver.stream_create)(&mut stream, flags) })?;
        let state = &mut *self.state();
        state.last_stream += 1;
        state.streams.insert(stream as usize, state.last_stream);
        Ok(stream)
    }

    pub(crate) fn stream_destroy(&self, stream: Handle) -> Outcome {
        let driver = self.enter()?;
        self.state().streams.remove(&(stream as usize)).ok_or(INVALID_HANDLE)?;
        // SAFETY: a stream of `stream_create`, destroyed once; the driver lets queued work finish.
        self.check("cuStreamDestroy", unsafe { (driver.stream_destroy)(stream) })
    }

    pub(crate) fn wait_event(&self, stream: Handle, event: Handle, flags: u32) -> Outcome {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        let driver = self.enter()?;
        {
            let state = &mut *self.state();
            let id = state.stream(stream)?;
            let recorded = state.events.get(&(event as usize)).ok_or(INVALID_HANDLE)?.recorded;
            if recorded && state.wait(Waiter::Stream(id), &self.config) {
                return Ok(());
            }
            state.look(|hazards| hazards.waits(id, event as u64));
        }
        // SAFETY: both handles are live, for they are in the tables.
        self.check("cuStreamWaitEvent", unsafe { (driver.stream_wait_event)(stream, event, 0) })
    }

    /// Flag 2, without timing, is CUDA's as well.
    pub(crate) fn event_create(&self, flags: u32) -> Outcome<Handle> {
        if flags & !2 != 0 {
            return Err(INVALID_VALUE);
        }
        let driver = self.enter()?;
        let mut event = null_mut();
        // SAFETY: `event` is a live variable.
        self.check("cuEventCreate", unsafe { (driver.event_create)(&mut event, flags) })?;
        self.state().events.insert(event as usize, Event::default());
        Ok(event)
    }

    pub(crate) fn event_destroy(&self, event: Handle) -> Outcome {
        let driver = self.enter()?;
        {
            let state = &mut *self.state();
            state.events.remove(&(event as usize)).ok_or(INVALID_HANDLE)?;
            state.look(|hazards| hazards.forgotten(event as u64));
        }
        // SAFETY: an event of `event_create`, destroyed once.
        self.check("cuEventDestroy", unsafe { (driver.event_destroy)(event) })
    }

    pub(crate) fn event_record(&self, event: Handle, stream: Handle) -> Outcome {
        let driver = self.enter()?;
        {
            let state = &mut *self.state();
            let id = state.stream(stream)?;
            let known = state.events.get_mut(&(event as usize)).ok_or(INVALID_HANDLE)?;
            *known = Event { recorded: true, ..Event::default() };
            state.look(|hazards| hazards.recorded(event as u64, id));
        }
        // SAFETY: both handles are live, for they are in the tables.
        self.check("cuEventRecord", unsafe { (driver.event_record)(event, stream) })
    }

    /// The host's waits are questions until the answer is yes; the first question after a record counts as the wait.
    pub(crate) fn event_query(&self, event: Handle) -> Outcome {
        let driver = self.enter()?;
        {
            let state = &mut *self.state();
            let known = state.events.get_mut(&(event as usize)).ok_or(INVALID_HANDLE)?;
            let first = known.recorded && !std::mem::replace(&mut known.asked, true);
            if first && state.wait(Waiter::Host, &self.config) {
                state.events.entry(event as usize).or_default().dropped = true;
            }
            if state.events[&(event as usize)].dropped {
                return Ok(());
            }
        }
        // SAFETY: the handle is live, for it is in the table.
        self.check("cuEventQuery", unsafe { (driver.event_query)(event) })?;
        self.state().look(|hazards| hazards.done(event as u64));
        Ok(())
    }

    // ---- modules and launches --------------------------------------------------------------------------

    /// Takes an AMD code object for what it says about its kernels; their text comes from the PTX folder.
    pub(crate) fn module_load(&self, image: &[u8]) -> Outcome<u64> {
        let object = object::parse(image).map_err(|error| {
            say(&format!("the module is no code object: {error}"));
            INVALID_IMAGE
        })?;
        if !object.target.ends_with(&self.config.arch) {
            say(&format!(
                "a code object for {}, the device claims to be {}",
                object.target, self.config.arch
            ));
            return Err(NO_BINARY);
        }
        let state = &mut *self.state();
        let id = state.handle();
        state.modules.insert(id, Module { object, loaded: Vec::new() });
        Ok(id)
    }

    pub(crate) fn module_unload(&self, module: u64) -> Outcome {
        let driver = self.enter()?;
        let state = &mut *self.state();
        let removed = state.modules.remove(&module).ok_or(INVALID_HANDLE)?;
        state.functions.retain(|_, function| function.module != module);
        for loaded in removed.loaded {
            // SAFETY: a module of `function`, unloaded once.
            self.check("cuModuleUnload", unsafe { (driver.module_unload)(loaded as Handle) })?;
        }
        Ok(())
    }

    /// A kernel of a module: its PTX is found by the name and compiled by the driver.
    pub(crate) fn function(&self, module: u64, name: &str) -> Outcome<u64> {
        let driver = self.enter()?;
        let lds = {
            let state = self.state();
            let object = &state.modules.get(&module).ok_or(INVALID_HANDLE)?.object;
            object.kernels.iter().find(|kernel| kernel.name == name).ok_or(NOT_FOUND)?.lds
        };
        let refused = |code| {
            move |text: String| {
                say(&text);
                code
            }
        };
        let ptx = Ptx::read(self.config.ptx.as_deref(), name).map_err(refused(NOT_FOUND))?;
        // What the launch gives is what AMD's code object has as its own.
        let shared = if ptx.shared_by_launch { lds } else { 0 };
        let most = device::attribute_of(driver, self.device, attribute::SHARED_OPT_IN);
        let most = most.or_else(|code| self.check("cuDeviceGetAttribute", code).map(|()| 0))?;
        if i64::from(shared) > i64::from(most) {
            say(&format!("{name} needs {shared} bytes of shared memory, a block of this device has {most}"));
            return Err(NO_BINARY);
        }
        let (loaded, handle) = self.compile(driver, &ptx, name)?;
        let state = &mut *self.state();
        let id = state.handle();
        let known = state.modules.get_mut(&module).ok_or(INVALID_HANDLE)?;
        known.loaded.push(loaded as usize);
        // Kernels are few and stay for the whole process.
        let name = Box::leak(name.to_owned().into_boxed_str());
        state.functions.insert(id, Function { handle: handle as usize, module, shared, name });
        Ok(id)
    }

    /// The driver's module of a PTX text, and the kernel in it.
    fn compile(&self, driver: &Driver, ptx: &Ptx, name: &str) -> Outcome<(Handle, Handle)> {
        let mut log = [0u8; 4096];
        let mut options = vec![driver::jit::ERROR_LOG, driver::jit::ERROR_LOG_BYTES];
        let mut values = vec![log.as_mut_ptr().cast::<c_void>(), without_provenance_mut(log.len())];
        if self.config.lines {
            options.push(driver::jit::LINE_INFO);
            values.push(without_provenance_mut(1));
        }
        let (mut module, mut function) = (null_mut(), null_mut());
        // SAFETY: the text ends with a zero byte; options and values are as many as is said, the log as long.
        let code = unsafe {
            (driver.module_load)(
                &mut module,
                ptx.text.as_ptr().cast(),
                options.len() as c_uint,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        self.check("cuModuleLoadDataEx", code).inspect_err(|_| {
            let log = CStr::from_bytes_until_nul(&log).unwrap_or_default().to_string_lossy();
            say(&format!("{}: {}", ptx.path.display(), log.trim().replace('\n', "; ")));
        })?;
        let symbol = CString::new(name).map_err(|_| INVALID_VALUE)?;
        // SAFETY: the module was loaded, the name ends with a zero byte.
        let code = unsafe { (driver.module_function)(&mut function, module, symbol.as_ptr()) };
        self.check("cuModuleGetFunction", code)?;
        Ok((module, function))
    }

    /// `hipModuleLaunchKernel` with the whole argument block.
    pub(crate) fn launch(
        &self,
        function: u64,
        grid: [u32; 3],
        block: [u32; 3],
        lds: u32,
        stream: Handle,
        arguments: &mut [u8],
    ) -> Outcome {
        let driver = self.enter()?;
        let function = {
            let state = &mut *self.state();
            let id = state.stream(stream)?;
            let function = *state.functions.get(&function).ok_or(INVALID_HANDLE)?;
            state.counts.launches += 1;
            state.look(|hazards| hazards.launch(id, function.name, arguments));
            function
        };
        let handle = function.handle as Handle;
        let shared = function.shared + lds;
        if shared > SHARED_UNASKED {
            // SAFETY: the function belongs to a loaded module.
            let code = unsafe {
                (driver.function_attribute)(handle, driver::FUNCTION_DYNAMIC_SHARED, shared as i32)
            };
            self.check("cuFuncSetAttribute", code)?;
        }
        let mut size = arguments.len();
        // CU_LAUNCH_PARAM_BUFFER_POINTER, _BUFFER_SIZE, and _END, which is 0 here and 3 in HIP.
        let mut extra: [*mut c_void; 5] = [
            without_provenance_mut(1),
            arguments.as_mut_ptr().cast(),
            without_provenance_mut(2),
            (&raw mut size).cast(),
            null_mut(),
        ];
        let ([gx, gy, gz], [bx, by, bz]) = (grid, block);
        // SAFETY: function and stream are live; the driver copies the argument block; that its addresses hold what the kernel
        // uses is the promise of the caller of the HIP function.
        let code = unsafe {
            (driver.launch)(handle, gx, gy, gz, bx, by, bz, shared, stream, null_mut(), extra.as_mut_ptr())
        };
        self.check(&format!("cuLaunchKernel of {}", function.name), code)
    }

    /// The line of counts for the end, when it was asked for.
    pub(crate) fn report(&self) {
        let state = &mut *self.state();
        state.look(Hazards::ended);
        if !self.config.stats {
            return;
        }
        let c = &state.counts;
        let waits: Vec<String> = c.waits.iter().map(|(waiter, n)| format!("{waiter}:{n}")).collect();
        let waits = if waits.is_empty() { "none".to_owned() } else { waits.join(",") };
        let hazards = if state.hazards.is_some() { c.hazards.to_string() } else { "unchecked".to_owned() };
        say(&format!(
            "launches {} copies {} bytes {} waits {waits} hazards {hazards} device-peak {} pinned-peak {}",
            c.launches, c.copies, c.bytes, c.device_peak, c.pinned_peak
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::hip_code;

    #[test]
    fn codes_that_hip_lacks_become_what_the_program_knows() {
        for same in [0, 1, 2, 100, 101, 200, 201, 209, 214, 400, 500, 600, 700, 701, 702, 719, 801, 999] {
            assert_eq!(hip_code(same), same);
        }
        for (cuda, hip) in
            [(715, 719), (716, 719), (717, 719), (718, 719), (218, 200), (222, 209), (803, 100)]
        {
            assert_eq!(hip_code(cuda), hip);
        }
    }
}
