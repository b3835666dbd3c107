//! A device and what lives on it, each freed when dropped: streams, events, buffers, modules.
//!
//! Everything holds its device, so the order of drops does not matter. A raw launch is `unsafe`; what the rest of the crate
//! calls are the typed operations built on it.

#![allow(unsafe_code)]

use std::ffi::{CString, c_void};
use std::io::Write as _;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::discover::DeviceInfo;
use crate::error::{Error, note_lost};
use crate::sys::{self, Api, Code, Functions, Handle};
use crate::trail::{Place, Trail};
use crate::watch::{self, Waiting};

type Result<T, E = Error> = std::result::Result<T, E>;

/// How far something is that is waited for.
enum Polled {
    Done,
    Progress,
    Nothing,
}

/// Launches that the host runs ahead of the device, at most: so few that a desktop on the same GPU gets its turns.
const LAUNCHES_AHEAD: usize = 128;
/// First pause between two questions whether work has run; the later ones are longer.
const FIRST_PAUSE: Duration = Duration::from_micros(5);

/// The device that the program runs on, the only one it makes a context on.
pub(crate) struct Device {
    api: Api,
    /// What the runtime says about it.
    pub(crate) info: DeviceInfo,
    /// Longest wait for one event.
    wait_limit: Duration,
    /// Print each launch before it is made.
    trace: bool,
    place: Mutex<Place>,
    trail: Mutex<Trail>,
    /// Set by the first fatal error; nothing is freed any more.
    dead: AtomicBool,
}

impl Device {
    /// Makes `info`'s device current and gives access to it.
    pub(crate) fn open(api: Api, info: DeviceInfo, wait_limit: Duration, trace: bool) -> Result<Arc<Self>> {
        let (place, trail, dead) = (Mutex::default(), Mutex::default(), AtomicBool::new(false));
        let device = Arc::new(Self { api, info, wait_limit, trace, place, trail, dead });
        watch::on(Arc::downgrade(&device));
        device.bind()?;
        Ok(device)
    }

    /// Makes a call of the runtime.
    fn call(&self, name: &'static str, work: impl FnOnce(&Functions) -> Code) -> Code {
        watch::call(name, || work(&self.api.functions))
    }

    /// Makes the device current for the calling thread; every thread that uses it does so first.
    pub(crate) fn bind(&self) -> Result<()> {
        // SAFETY: sets a thread-local number; a wrong one is an error code.
        let code = self.call("hipSetDevice", |f| unsafe { (f.set_device)(self.info.index) });
        self.check("hipSetDevice", code)
    }

    /// What the runtime says it is.
    pub(crate) fn standing(&self) -> sys::Standing {
        self.api.standing
    }

    /// Where the run is, to read or change.
    pub(crate) fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the run is, for the thread that watches: it must not wait for one that is blocked.
    pub(crate) fn place_if_free(&self) -> String {
        self.place.try_lock().map_or_else(|_| String::new(), |place| place.to_string())
    }

    fn trail(&self) -> MutexGuard<'_, Trail> {
        self.trail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place of what the device, lost or silent, did last.
    fn place_of_failure(&self) -> String {
        let now = *self.place();
        self.trail().place_of_failure(now)
    }

    /// Turns a code into an error with the call and what was running: the call itself, or, on a lost device, the launch that
    /// lost it.
    fn check(&self, call: &'static str, code: Code) -> Result<()> {
        if code == sys::SUCCESS {
            return Ok(());
        }
        let (name, text) = self.api.describe(code);
        let mut error = Error::Call { call, code, name, text, context: self.place().to_string() };
        if error.is_fatal() {
            self.lose();
            let place = self.place_of_failure();
            if let Error::Call { context, .. } = &mut error {
                *context = place;
            }
        }
        Err(error)
    }

    /// Forgets the launches that have run, oldest first.
    fn advance(&self) -> Result<()> {
        loop {
            let Some(oldest) = self.trail().oldest() else { return Ok(()) };
            // SAFETY: the trail's events live as long as the device.
            match self.call("hipEventQuery", |f| unsafe { (f.event_query)(oldest.event) }) {
                sys::SUCCESS => self.trail().ran(oldest),
                sys::NOT_READY => return Ok(()),
                code => {
                    self.trail().fail(oldest);
                    self.check("hipEventQuery", code)?;
                }
            }
        }
    }

    /// Waits until at most `left` launches are not known to have run.
    ///
    /// # Errors
    /// [`Error::Timeout`] when no launch ended for the device's wait limit, naming the one that did not; the device is then given
    /// up.
    pub(crate) fn drain(&self, left: usize) -> Result<()> {
        let mut known = usize::MAX;
        self.poll(|| {
            self.advance()?;
            let now = self.trail().len();
            Ok(match now <= left {
                true => Polled::Done,
                false if std::mem::replace(&mut known, now) != now => Polled::Progress,
                false => Polled::Nothing,
            })
        })
    }

    /// Asks how far something is until it is done, first often, then every millisecond.
    fn poll(&self, mut ask: impl FnMut() -> Result<Polled>) -> Result<()> {
        let waiting = Waiting::bounded("a wait for the device");
        let (mut since, mut pause) = (Instant::now(), FIRST_PAUSE);
        loop {
            match ask()? {
                Polled::Done => return Ok(()),
                Polled::Progress => {
                    (since, pause) = (Instant::now(), FIRST_PAUSE);
                    waiting.progress();
                }
                Polled::Nothing => {}
            }
            if since.elapsed() >= self.wait_limit {
                self.lose();
                let context = self.place_of_failure();
                return Err(Error::Timeout { seconds: self.wait_limit.as_secs(), context });
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(1));
        }
    }

    /// A launch was made on `stream`: an event behind it tells when it has run.
    fn launched(&self, stream: Handle, place: Place) -> Result<()> {
        let spare = self.trail().spare.pop();
        let event = match spare {
            Some(event) => event,
            None => self.new_event()?,
        };
        // SAFETY: both handles are live.
        let code = self.call("hipEventRecord", |f| unsafe { (f.event_record)(event, stream) });
        self.trail().push(place, event);
        self.check("hipEventRecord", code)
    }

    fn new_event(&self) -> Result<Handle> {
        let mut handle = null_mut();
        // SAFETY: `handle` is a live variable.
        let code = self.call("hipEventCreateWithFlags", |f| unsafe {
            (f.event_create)(&mut handle, sys::EVENT_DISABLE_TIMING)
        });
        self.check("hipEventCreateWithFlags", code)?;
        Ok(handle)
    }

    /// Before a call that waits for all work anyway: waits for the launches one by one, so that one that fails is known.
    fn settle(&self) {
        // The next call has the same error.
        let _ = self.drain(0);
    }

    /// The device is given up: nothing on it is freed any more.
    fn lose(&self) {
        self.dead.store(true, Ordering::Release);
        note_lost();
    }

    fn alive(&self) -> bool {
        !self.dead.load(Ordering::Acquire)
    }

    /// Free and total device memory as HIP counts them.
    pub(crate) fn memory(&self) -> Result<(u64, u64)> {
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: both pointers are to live variables.
        let code = self.call("hipMemGetInfo", |f| unsafe { (f.mem_info)(&mut free, &mut total) });
        self.check("hipMemGetInfo", code)?;
        Ok((free as u64, total as u64))
    }

    /// Allocates device memory; `what` is for the message.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when there is none left, which leaves the device usable.
    pub(crate) fn allocate(self: &Arc<Self>, bytes: u64, what: &str) -> Result<Buffer> {
        let mut pointer = null_mut();
        // SAFETY: `pointer` is a live variable; the size is not zero.
        let code = self.call("hipMalloc", |f| unsafe { (f.malloc)(&mut pointer, bytes.max(1) as usize) });
        if code == sys::OUT_OF_MEMORY {
            let (free, total) = self.memory().unwrap_or((0, 0));
            // The kernel before has nothing to do with it.
            let context = Place { kernel: "", ..*self.place() }.to_string();
            return Err(Error::OutOfMemory { what: what.to_owned(), bytes, free, total, context });
        }
        self.check("hipMalloc", code)?;
        Ok(Buffer { device: self.clone(), pointer, bytes })
    }

    /// Allocates pinned host memory, or `None` when the runtime refuses: "out of memory" here means the host's limits.
    pub(crate) fn pin(self: &Arc<Self>, bytes: u64) -> Result<Option<Pinned>> {
        let mut pointer = null_mut();
        // SAFETY: `pointer` is a live variable; flags 0 are the default kind of pinned memory.
        let code = self
            .call("hipHostMalloc", |f| unsafe { (f.host_malloc)(&mut pointer, bytes.max(1) as usize, 0) });
        if code == sys::OUT_OF_MEMORY || code == sys::INVALID_VALUE {
            return Ok(None);
        }
        self.check("hipHostMalloc", code)?;
        Ok(Some(Pinned { device: self.clone(), pointer: pointer.cast(), bytes: bytes as usize }))
    }

    /// A new stream without implicit order to any other.
    pub(crate) fn stream(self: &Arc<Self>) -> Result<Stream> {
        let mut handle = null_mut();
        // SAFETY: `handle` is a live variable.
        let code = self.call("hipStreamCreateWithFlags", |f| unsafe {
            (f.stream_create)(&mut handle, sys::STREAM_NON_BLOCKING)
        });
        self.check("hipStreamCreateWithFlags", code)?;
        Ok(Stream { device: self.clone(), handle })
    }

    /// A new event, not recorded yet.
    pub(crate) fn event(self: &Arc<Self>) -> Result<Event> {
        Ok(Event { device: self.clone(), handle: self.new_event()? })
    }

    /// Loads a code object.
    pub(crate) fn module(self: &Arc<Self>, image: &[u8]) -> Result<Module> {
        let mut handle = null_mut();
        // SAFETY: `image` is a whole code object; the runtime copies it.
        let code = self.call("hipModuleLoadData", |f| unsafe {
            (f.module_load_data)(&mut handle, image.as_ptr().cast())
        });
        self.check("hipModuleLoadData", code)?;
        Ok(Module { device: self.clone(), handle })
    }

    /// Ends the device's context: everything on it is freed by the driver. Called once, at the very end.
    pub(crate) fn reset(&self) {
        if self.alive() {
            self.dead.store(true, Ordering::Release);
            // SAFETY: `dead` keeps every later drop from touching what this frees.
            self.call("hipDeviceReset", |f| unsafe { (f.device_reset)() });
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.alive() {
            let events = self.trail().events();
            for event in events {
                // SAFETY: created once, destroyed once.
                self.call("hipEventDestroy", |f| unsafe { (f.event_destroy)(event) });
            }
        }
    }
}

/// Device memory.
pub(crate) struct Buffer {
    device: Arc<Device>,
    pointer: *mut c_void,
    bytes: u64,
}

// SAFETY: a device address is a number to the host; the runtime's functions may be called from any thread.
unsafe impl Send for Buffer {}
// SAFETY: as above; no host memory is shared through it.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Its size.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The device address of byte `offset`.
    pub(crate) fn address(&self, offset: u64) -> u64 {
        assert!(offset <= self.bytes, "offset {offset} in a buffer of {} bytes", self.bytes);
        self.pointer as u64 + offset
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.device.settle();
        if self.device.alive() {
            // SAFETY: allocated by hipMalloc, freed once. hipFree waits for work that uses it.
            self.device.call("hipFree", |f| unsafe { (f.free)(self.pointer) });
        }
    }
}

/// Pinned host memory, which the device's copy engines read and write directly.
pub(crate) struct Pinned {
    device: Arc<Device>,
    pointer: *mut u8,
    bytes: usize,
}

// SAFETY: plain host memory with one owner.
unsafe impl Send for Pinned {}
// SAFETY: shared references only read; copies by the device are ordered by events (see `stream`).
unsafe impl Sync for Pinned {}

impl Pinned {
    /// The bytes.
    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: `bytes` bytes from `pointer` belong to this value; hipHostMalloc memory is readable and zeroed by the system.
        unsafe { std::slice::from_raw_parts(self.pointer, self.bytes) }
    }

    /// The bytes, to fill. The caller has waited for every copy that still reads them.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, with a unique reference.
        unsafe { std::slice::from_raw_parts_mut(self.pointer, self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.device.settle();
        if self.device.alive() {
            // SAFETY: allocated by hipHostMalloc, freed once.
            self.device.call("hipHostFree", |f| unsafe { (f.host_free)(self.pointer.cast()) });
        }
    }
}

/// A queue of work that runs in order.
pub(crate) struct Stream {
    device: Arc<Device>,
    handle: Handle,
}

// SAFETY: the runtime's functions may be called from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// Copies host bytes to device address `to`, in the stream's order.
    ///
    /// # Safety
    /// `to` has room for the bytes, and `from` stays as it is until the copy has run.
    pub(crate) unsafe fn copy_to_device(&self, to: u64, from: &[u8]) -> Result<()> {
        let call = "hipMemcpyAsync (host to device)";
        // SAFETY: by this function's contract.
        let code = self.device.call(call, |f| unsafe {
            (f.memcpy_async)(
                to as *mut c_void,
                from.as_ptr().cast(),
                from.len(),
                sys::HOST_TO_DEVICE,
                self.handle,
            )
        });
        self.device.check(call, code)
    }

    /// Copies device bytes to the host, in the stream's order.
    ///
    /// # Safety
    /// `from` holds as many bytes as `to`, and `to` is not read or moved until the copy has run.
    pub(crate) unsafe fn copy_to_host(&self, to: &mut [u8], from: u64) -> Result<()> {
        let call = "hipMemcpyAsync (device to host)";
        // SAFETY: by this function's contract.
        let code = self.device.call(call, |f| unsafe {
            (f.memcpy_async)(
                to.as_mut_ptr().cast(),
                from as *const c_void,
                to.len(),
                sys::DEVICE_TO_HOST,
                self.handle,
            )
        });
        self.device.check(call, code)
    }

    /// Copies `bytes` from device address `from` to `to`, in the stream's order.
    ///
    /// # Safety
    /// Both ranges are allocated and do not overlap.
    pub(crate) unsafe fn copy_on_device(&self, to: u64, from: u64, bytes: u64) -> Result<()> {
        let call = "hipMemcpyAsync (on the device)";
        // SAFETY: by this function's contract.
        let code = self.device.call(call, |f| unsafe {
            (f.memcpy_async)(
                to as *mut c_void,
                from as *const c_void,
                bytes as usize,
                sys::DEVICE_TO_DEVICE,
                self.handle,
            )
        });
        self.device.check(call, code)
    }

    /// Later work of this stream runs after what `event` marks.
    pub(crate) fn wait_for(&self, event: &Event) -> Result<()> {
        // SAFETY: both handles are live.
        let code = self
            .device
            .call("hipStreamWaitEvent", |f| unsafe { (f.stream_wait_event)(self.handle, event.handle, 0) });
        self.device.check("hipStreamWaitEvent", code)
    }

    /// `event` marks the end of all work issued to this stream so far.
    pub(crate) fn record(&self, event: &Event) -> Result<()> {
        // SAFETY: both handles are live.
        let code =
            self.device.call("hipEventRecord", |f| unsafe { (f.event_record)(event.handle, self.handle) });
        self.device.check("hipEventRecord", code)
    }

    /// Launches a kernel.
    ///
    /// # Safety
    /// `function` belongs to a loaded module, `arguments` is the kernel's argument block, its addresses hold what the kernel reads and have room for what it
    /// writes, until it has run.
    pub(crate) unsafe fn launch(
        &self,
        function: Function,
        kernel: &'static str,
        grid: [u32; 3],
        block: [u32; 3],
        lds: u32,
        arguments: &[u8],
    ) -> Result<()> {
        let device = &self.device;
        let place = {
            let mut place = device.place();
            place.launching(kernel);
            *place
        };
        if device.trace {
            // A trace that nobody reads any more ends no run.
            let _ = writeln!(
                std::io::stderr(),
                "launch {kernel} grid {grid:?} block {block:?} lds {lds} ({place})"
            );
        }
        let mut size = arguments.len();
        // HIP_LAUNCH_PARAM_BUFFER_POINTER, _BUFFER_SIZE, _END: the whole argument block at once.
        let mut extra: [*mut c_void; 5] = [
            without_provenance_mut(1),
            arguments.as_ptr().cast_mut().cast(),
            without_provenance_mut(2),
            (&raw mut size).cast(),
            without_provenance_mut(3),
        ];
        // SAFETY: the function belongs to a loaded module; the runtime copies the argument block before it returns; what
        // the addresses in it need is this function's contract.
        let code = device.call("hipModuleLaunchKernel", |f| unsafe {
            (f.launch)(
                function.0,
                grid[0],
                grid[1],
                grid[2],
                block[0],
                block[1],
                block[2],
                lds,
                self.handle,
                null_mut(),
                extra.as_mut_ptr(),
            )
        });
        device.check("hipModuleLaunchKernel", code)?;
        device.launched(self.handle, place)?;
        // A traced launch has run before the next is made: the last line of a trace is the launch that failed.
        device.drain(if device.trace { 0 } else { LAUNCHES_AHEAD })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.device.settle();
        if self.device.alive() {
            // SAFETY: created once, destroyed once; the runtime lets queued work finish.
            self.device.call("hipStreamDestroy", |f| unsafe { (f.stream_destroy)(self.handle) });
        }
    }
}

/// A mark in a stream.
pub(crate) struct Event {
    device: Arc<Device>,
    handle: Handle,
}

// SAFETY: the runtime's functions may be called from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// Whether the marked work has run.
    fn is_done(&self) -> Result<Polled> {
        // SAFETY: the handle is live.
        match self.device.call("hipEventQuery", |f| unsafe { (f.event_query)(self.handle) }) {
            sys::NOT_READY => Ok(Polled::Nothing),
            code => self.device.check("hipEventQuery", code).map(|()| Polled::Done),
        }
    }

    /// Waits until the marked work has run.
    ///
    /// # Errors
    /// [`Error::Timeout`] after the device's wait limit, naming what was running; the device is then given up.
    pub(crate) fn wait(&self) -> Result<()> {
        self.device.poll(|| self.is_done())
    }

    /// The same for an event behind launches: waits for them one by one first, so that one that fails is known.
    pub(crate) fn wait_after_launches(&self) -> Result<()> {
        self.device.drain(0)?;
        self.wait()
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.device.alive() {
            // SAFETY: created once, destroyed once.
            self.device.call("hipEventDestroy", |f| unsafe { (f.event_destroy)(self.handle) });
        }
    }
}

/// A loaded code object.
pub(crate) struct Module {
    device: Arc<Device>,
    handle: Handle,
}

// SAFETY: the runtime's functions may be called from any thread.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

/// A kernel of a loaded code object.
#[derive(Clone, Copy)]
pub(crate) struct Function(Handle);

// SAFETY: a handle is a number to the host.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Module {
    /// The kernel of a name.
    ///
    /// # Errors
    /// [`Error::NoSuchKernel`].
    pub(crate) fn function(&self, kernel: &str) -> Result<Function> {
        let name = CString::new(kernel).expect("kernel names hold no zero byte");
        let mut function = null_mut();
        // SAFETY: the module is loaded, the name ends with a zero byte.
        let code = self.device.call("hipModuleGetFunction", |f| unsafe {
            (f.module_get_function)(&mut function, self.handle, name.as_ptr())
        });
        if code != sys::SUCCESS {
            let arch = self.device.info.arch.clone();
            return Err(Error::NoSuchKernel { arch, kernel: kernel.to_owned() });
        }
        Ok(Function(function))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if self.device.alive() {
            // SAFETY: loaded once, unloaded once.
            self.device.call("hipModuleUnload", |f| unsafe { (f.module_unload)(self.handle) });
        }
    }
}
