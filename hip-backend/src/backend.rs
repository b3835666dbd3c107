//! [`HipBackend`]: the device, its memory and its weights behind the model's trait, [`moss_reference::backend::Backend`];
//! the operations are in [`crate::ops`].

#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::Duration;

use half::bf16;
use moss_kernels::Launch;
use moss_reference::backend::shapes;
use moss_reference::backend::{DType, HostData, StageSpec, Tensor as _};

use crate::device::{Device, Event};
use crate::discover::{self, DeviceInfo, Listing};
use crate::error::Error;
use crate::host::Host;
use crate::kernels::{self, Kernels};
use crate::memory::{DeviceMemory, Limits, Plan};
use crate::pool::Pool;
use crate::stage::{self, Engine, HipStage, StageInner};
use crate::stream::{Feeder, HostBytes};
use crate::sys::Standing;
use crate::tensor::{HipTensor, Storage};
use crate::trail::{Owner, Place};
use crate::watch;
use crate::weights::StageImages;

type Result<T, E = Error> = std::result::Result<T, E>;

/// Host memory that uploads and downloads pass through.
const STAGING: usize = 4 << 20;

/// How to open the backend.
#[derive(Clone, Debug)]
pub struct Options {
    /// `--device`: a number, a PCI address or part of a name; `None` takes the best.
    pub device: Option<String>,
    /// `--vram-budget` in bytes.
    pub vram_budget: Option<u64>,
    /// Most host memory to pin, bytes; `None`: see [`Limits::pinned`].
    pub pinned_budget: Option<u64>,
    /// `--backend-impl`: a kernel set; `None` takes the device's default.
    pub implementation: Option<String>,
    /// Longest wait for the device before it is given up, and longest call of the runtime.
    pub wait_limit: Duration,
    /// Called in a thread of its own when a call of the runtime does not come back: the process ends with status 1 after it.
    pub last_words: fn(&Error),
    /// Print each launch before it is made, and wait for it.
    pub trace: bool,
    /// Give every tensor memory of its own and of its own size, so that a tool that knows allocations sees what lies past a
    /// tensor or was never written; slow, and over the plan.
    pub exact_memory: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            device: None,
            vram_budget: None,
            pinned_budget: None,
            implementation: None,
            wait_limit: Duration::from_secs(120),
            last_words: |error| eprintln!("{error}"),
            trace: false,
            exact_memory: false,
        }
    }
}

/// Lists the devices of this machine and says which the program would use.
///
/// # Errors
/// No runtime, no device, no permission, hidden devices: each with the way out.
pub fn list_devices(host: &Host) -> Result<Listing> {
    let (api, devices) = discover::devices(host)?;
    let devices = discover::judge(&devices, kernels::sets());
    let default = discover::default_device(&devices);
    Ok(Listing { runtime: discover::runtime(&api), devices, default })
}

/// Host memory that small copies pass through.
struct Staging {
    bytes: HostBytes,
    /// Behind the last copy out of `bytes`.
    copied: Event,
    in_use: bool,
}

/// The HIP backend on one device.
pub struct HipBackend {
    pub(crate) engine: Arc<Engine>,
    pub(crate) pool: Arc<Pool>,
    kernels: Kernels,
    /// The loaded runtime.
    runtime: String,
    implementation: &'static str,
    options: Options,
    passed_over: Vec<String>,
    staging: RefCell<Staging>,
    stages: RefCell<Vec<Weak<StageInner>>>,
    notes: RefCell<Vec<String>>,
    /// Of the run that was admitted last.
    plan: RefCell<Option<Plan>>,
    launches: Cell<u64>,
}

impl HipBackend {
    /// Opens the device that `options` ask for, or the best.
    ///
    /// # Errors
    /// Every [`Error`] of finding and choosing a device.
    pub fn open(options: Options) -> Result<Self> {
        Self::open_on(Host::current(), options)
    }

    /// The same device once more, with another `--vram-budget`.
    ///
    /// # Errors
    /// As [`HipBackend::open`].
    pub fn again(&self, vram_budget: u64) -> Result<Self> {
        Self::open(Options {
            device: Some(self.device().index.to_string()),
            vram_budget: Some(vram_budget),
            implementation: Some(self.implementation.to_owned()),
            ..self.options.clone()
        })
    }

    fn open_on(host: Host, options: Options) -> Result<Self> {
        let sets = kernels::sets();
        if let Some(reason) = moss_kernels::why_empty() {
            return Err(Error::NoCodeObjects { reason: reason.to_owned() });
        }
        let archs: Vec<String> = sets.iter().map(|(arch, _)| (*arch).to_owned()).collect();
        host.check_override(&archs)?;
        watch::start(options.wait_limit, options.last_words)?;
        let (api, devices) = discover::devices(&host)?;
        let listed = discover::judge(&devices, sets);
        let (chosen, passed_over) = discover::choose(&listed, sets, options.device.as_deref())?;
        let info = listed[chosen].device.clone();
        let fit = listed[chosen].kernels.clone().unwrap_or_default();
        let implementation = match &options.implementation {
            None => fit[0],
            Some(asked) => *fit.iter().find(|name| *name == asked).ok_or_else(|| Error::NoSuchImpl {
                asked: asked.clone(),
                arch: info.arch.clone(),
                fit: fit.iter().map(|name| (*name).to_owned()).collect(),
            })?,
        };

        let runtime = discover::runtime(&api);
        let device = Device::open(api, info, options.wait_limit, options.trace)?;
        let kernels = Kernels::load(&device)?;
        Ok(Self { implementation, passed_over, runtime, ..Self::on(device, kernels, host, options)? })
    }

    /// The backend on an open device.
    fn on(device: Arc<Device>, kernels: Kernels, host: Host, options: Options) -> Result<Self> {
        let compute = Arc::new(device.stream()?);
        let feeder = Feeder::new(&device)?;
        let staging = Staging {
            bytes: HostBytes::new(&device, STAGING, true, "the buffer for small copies")?,
            copied: device.event()?,
            in_use: false,
        };
        Ok(Self {
            pool: Pool::new(device.clone(), options.exact_memory),
            engine: Arc::new(Engine { device, compute, feeder, host }),
            kernels,
            runtime: String::new(),
            implementation: "",
            options,
            passed_over: Vec::new(),
            staging: RefCell::new(staging),
            stages: RefCell::default(),
            notes: RefCell::default(),
            plan: RefCell::default(),
            launches: Cell::new(0),
        })
    }

    /// The device.
    pub fn device(&self) -> &DeviceInfo {
        &self.engine.device.info
    }

    /// What the device is, by the word of the runtime: a card, or something that stands in for one.
    pub fn standing(&self) -> Standing {
        self.engine.device.standing()
    }

    /// The device, its kernels and the runtime in one line.
    pub(crate) fn description(&self) -> String {
        format!("hip: {}, {} kernels, {}", self.device(), self.implementation, self.runtime)
    }

    /// The kernel set in use.
    pub fn implementation(&self) -> &'static str {
        self.implementation
    }

    /// One line for each device that was not chosen, with the reason.
    pub fn passed_over(&self) -> &[String] {
        &self.passed_over
    }

    /// What the user should know and has not been told yet: each once.
    pub fn take_notes(&self) -> Vec<String> {
        self.notes.take()
    }

    /// The most bytes of activations that were held since the last stage was loaded.
    pub fn peak_activations(&self) -> u64 {
        self.pool.peak()
    }

    /// Kernels launched so far.
    pub fn launches(&self) -> u64 {
        self.launches.get()
    }

    /// Blocks of the stage that stay on the device, and how many it has.
    pub fn resident_blocks(&self, stage: &HipStage) -> (usize, usize) {
        stage.0.resident()
    }

    /// Free memory of the device by every source.
    ///
    /// # Errors
    /// A failed call.
    pub fn memory(&self) -> Result<DeviceMemory> {
        let device = &self.engine.device;
        let (hip_free, hip_total) = device.memory()?;
        let sysfs = self.engine.host.device_memory(&device.info.pci);
        Ok(DeviceMemory { hip_free, hip_total, sysfs, unified: device.info.is_integrated() })
    }

    fn limits(&self) -> Limits {
        Limits {
            budget: self.options.vram_budget,
            host_available: self.engine.host.available_memory(),
            pinned: self.options.pinned_budget,
        }
    }

    /// The memory plan of a run, see [`Plan::new`]; reads no weights.
    ///
    /// # Errors
    /// The refusal, or a weight whose shape the kernels do not take.
    pub fn plan(&self, kept: &StageSpec, stages: &[&StageSpec]) -> Result<Plan> {
        let demand = |spec: &StageSpec| Ok::<_, Error>(stage::demand(spec, &StageImages::new(spec)?));
        let kept = demand(kept)?;
        let stages = stages.iter().map(|spec| demand(spec)).collect::<Result<Vec<_>>>()?;
        // What this backend holds from an earlier run is freed or part of the plan.
        let held = self.held() + self.pool.live();
        let plan = Plan::new(&kept, &stages, self.memory()?.without(held), self.limits())?;
        *self.plan.borrow_mut() = Some(plan.clone());
        Ok(plan)
    }

    /// The plan of the run that was admitted last, for `--dry-run`.
    pub fn admitted_plan(&self) -> Option<Plan> {
        self.plan.borrow().clone()
    }

    /// Whether so many bytes of activations fit beside everything that is loaded, and the reserve.
    pub(crate) fn has_room_for(&self, bytes: u64) -> bool {
        let Some(free) = self.memory().ok().and_then(|memory| memory.free()) else { return false };
        let held = self.held() + self.pool.live();
        let budget = self.options.vram_budget.map_or(u64::MAX, |budget| budget.saturating_sub(held));
        bytes + stage::ROUNDING + crate::memory::RESERVE <= free.min(budget)
    }

    /// Ends the device's context. Nothing of the backend may be used afterwards; call it at the end of the program.
    pub fn reset(self) {
        self.engine.device.reset();
    }

    /// Device bytes that loaded stages hold.
    fn held(&self) -> u64 {
        let mut stages = self.stages.borrow_mut();
        stages.retain(|stage| stage.strong_count() > 0);
        stages.iter().filter_map(Weak::upgrade).map(|stage| stage.device_bytes()).sum()
    }

    pub(crate) fn load_stage(&self, spec: &StageSpec) -> Result<HipStage> {
        *self.engine.device.place() = Place { stage: spec.name, copy: "loading weights", ..Place::default() };
        self.pool.start(spec.activation_bytes + stage::ROUNDING);
        let (memory, limits) = (self.memory()?, self.limits());
        let held = self.held() + self.pool.live();
        let budget = limits.budget.map(|budget| budget.saturating_sub(held));
        let limits = Limits { budget, ..limits };
        let capacity = memory.capacity(&limits)?;
        let (mut notes, make_room) = (Vec::new(), || self.make_room());
        let stage = StageInner::load(&self.engine, spec, &memory, &limits, capacity, &make_room, &mut notes);
        self.notes.borrow_mut().append(&mut notes);
        let stage = Arc::new(stage?);
        self.stages.borrow_mut().push(Arc::downgrade(&stage));
        let mut place = self.engine.device.place();
        *place = Place { stage: spec.name, ..Place::default() };
        Ok(HipStage(stage))
    }

    // ---- memory and copies ---------------------------------------------------------------------------

    /// A new tensor with undefined elements. When the device has no room, blocks of loaded stages move to the host first.
    pub(crate) fn allocate(&self, shape: &[usize], dtype: DType, what: &'static str) -> Result<HipTensor> {
        let bytes = shape.iter().map(|&n| n as u64).product::<u64>() * dtype.size() as u64;
        loop {
            match self.pool.allocate(bytes, what) {
                Ok(buffer) => {
                    return Ok(HipTensor::new(Storage::Pool(Arc::new(buffer)), 0, shape.to_vec(), dtype));
                }
                Err(error @ Error::OutOfMemory { .. }) => {
                    if !self.make_room()? {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn make_room(&self) -> Result<bool> {
        let stages: Vec<Arc<StageInner>> = self.stages.borrow().iter().filter_map(Weak::upgrade).collect();
        for stage in stages {
            if stage.evict()? {
                let (resident, blocks) = stage.resident();
                self.notes.borrow_mut().push(format!(
                    "out of device memory for activations: {resident} of {blocks} blocks stay on the device now"
                ));
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn upload_bytes(&self, bytes: &[u8], to: &HipTensor) -> Result<()> {
        assert_eq!(bytes.len() as u64, to.bytes(), "upload: bytes of the tensor");
        self.engine.device.place().copying("upload");
        let staging = &mut *self.staging.borrow_mut();
        for (i, part) in bytes.chunks(STAGING).enumerate() {
            if staging.in_use {
                staging.copied.wait_after_launches()?;
            }
            let stage = &mut staging.bytes.as_mut_slice()[..part.len()];
            stage.copy_from_slice(part);
            staging.in_use = true;
            let at = to.address() + (i * STAGING) as u64;
            // SAFETY: the tensor has room (checked above); the staging bytes are not written again before `copied`.
            unsafe { self.engine.compute.copy_to_device(at, stage)? };
            self.engine.compute.record(&staging.copied)?;
        }
        Ok(())
    }

    fn download_bytes(&self, from: &HipTensor) -> Result<Vec<u8>> {
        self.engine.device.place().copying("download");
        let mut bytes = vec![0u8; from.bytes() as usize];
        let staging = &mut *self.staging.borrow_mut();
        for (i, part) in bytes.chunks_mut(STAGING).enumerate() {
            let stage = &mut staging.bytes.as_mut_slice()[..part.len()];
            let at = from.address() + (i * STAGING) as u64;
            // SAFETY: the tensor holds the bytes; the staging bytes are read only after the wait below. An earlier copy out of
            // them runs before this one in the same stream.
            unsafe { self.engine.compute.copy_to_host(stage, at)? };
            self.engine.compute.record(&staging.copied)?;
            staging.copied.wait_after_launches()?;
            part.copy_from_slice(stage);
        }
        staging.in_use = false;
        Ok(bytes)
    }

    // ---- launches ------------------------------------------------------------------------------------

    /// Launches a kernel on the compute stream.
    pub(crate) fn launch(&self, launch: &Launch) -> Result<()> {
        let (kernel, grid, block) = (launch.kernel(), launch.grid(), launch.block());
        let function = self.kernels.get(kernel, &self.device().arch)?;
        // SAFETY: only the structs of `moss_kernels::args` can make a `Launch` (its fields are private there), and they check
        // every size against the kernel's needs; its addresses are those of tensors that the caller holds, and memory that is dropped is written again only
        // by later work of the same stream.
        unsafe { self.engine.compute.launch(function, kernel, grid, block, launch.lds(), launch.args())? };
        self.launches.set(self.launches.get() + 1);
        Ok(())
    }

    /// What comes now reads weights of `owner`: what is told of a failure is its stage's, and the stage's activations may be held.
    pub(crate) fn enter(&self, owner: Owner) {
        if self.engine.device.place().enter(owner) {
            self.pool.allow(owner.activations);
        }
    }

    // ---- the trait's data operations -----------------------------------------------------------------

    pub(crate) fn upload_data(&self, data: &HostData, shape: &[usize]) -> Result<HipTensor> {
        shapes::upload(data.len(), shape);
        let tensor = self.allocate(shape, data.dtype(), "an upload")?;
        let bytes: Vec<u8> = match data {
            HostData::Bf16(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
            HostData::F32(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
        };
        self.upload_bytes(&bytes, &tensor)?;
        Ok(tensor)
    }

    pub(crate) fn download_data(&self, x: &HipTensor) -> Result<HostData> {
        let bytes = self.download_bytes(x)?;
        Ok(match x.dtype() {
            DType::Bf16 => {
                HostData::Bf16(bytes.as_chunks().0.iter().map(|b| bf16::from_le_bytes(*b)).collect())
            }
            DType::F32 => HostData::F32(bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()),
        })
    }

    pub(crate) fn view_rows(&self, x: &HipTensor, rows: Range<usize>) -> HipTensor {
        let (shape, width) = shapes::rows(x, &rows);
        x.view((rows.start * width * x.dtype().size()) as u64, shape)
    }

    pub(crate) fn concat_parts(&self, parts: &[&HipTensor]) -> Result<HipTensor> {
        let shape = shapes::concat(parts);
        if let [only] = parts {
            return Ok((*only).clone());
        }
        let out = self.allocate(&shape, parts[0].dtype(), "a concatenation")?;
        self.engine.device.place().copying("concat");
        let mut at = out.address();
        for part in parts {
            // SAFETY: `out` has room for all parts, by its shape; it is new, so it overlaps none of them.
            unsafe { self.engine.compute.copy_on_device(at, part.address(), part.bytes())? };
            at += part.bytes();
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use moss_reference::backend::{Backend as _, Role};
    use moss_reference::files::FileDType;

    use crate::fake::{Fake, Policy};
    use crate::memory::RESERVE;
    use crate::weights::tests::{checkpoint, given, spec};

    struct Setup {
        backend: HipBackend,
        fake: Fake,
    }

    fn setup(policy: Policy, capacity: usize) -> Setup {
        let fake = Fake::start(policy, capacity);
        let kernels = Kernels::default();
        let backend =
            HipBackend::on(fake.device.clone(), kernels, Host::current(), Options::default()).unwrap();
        Setup { backend, fake }
    }

    fn counted(n: usize) -> HostData {
        HostData::F32((0..n).map(|i| i as f32).collect())
    }

    #[test]
    fn what_goes_up_comes_down() {
        for policy in [Policy::Late, Policy::CopiesEarly, Policy::ComputeEarly] {
            let s = setup(policy, 1 << 30);
            for n in [1, 7, STAGING / 4 - 1, STAGING / 4, STAGING / 4 + 1, 3 * STAGING / 4 + 5] {
                let x = s.backend.upload(counted(n), &[n]).unwrap();
                let y = s.backend.upload(HostData::Bf16(vec![bf16::from_f32(-2.5); n]), &[1, n]).unwrap();
                assert_eq!(s.backend.download(&x).unwrap(), counted(n), "{n} elements");
                assert_eq!(s.backend.download(&y).unwrap().to_f32(), vec![-2.5; n]);
            }
            assert_eq!(s.fake.faults(), [""; 0]);
        }
    }

    #[test]
    fn views_share_memory_and_concatenations_do_not() {
        let s = setup(Policy::Late, 1 << 30);
        let b = &s.backend;
        let x = b.upload(counted(24), &[6, 4]).unwrap();
        let middle = b.rows(&x, 2..5);
        let flat = b.reshape(&middle, &[12]);
        assert_eq!((middle.shape(), flat.shape()), (&[3, 4][..], &[12][..]));
        assert_eq!(middle.address(), x.address() + 32);
        drop(x);
        let both = b.concat(&[&middle, &b.rows(&middle, 0..1)]).unwrap();
        let expected: Vec<f32> = (8..20).chain(8..12).map(|i| i as f32).collect();
        assert_eq!(b.download(&both).unwrap().to_f32(), expected);
        assert_eq!(b.download(&flat).unwrap().to_f32(), expected[..12]);
        assert_eq!(b.concat(&[&both]).unwrap().address(), both.address(), "one part is shared");
        assert_eq!(s.fake.faults(), [""; 0]);
    }

    #[test]
    fn freed_memory_is_used_again_in_order() {
        for policy in [Policy::Late, Policy::ComputeEarly] {
            let s = setup(policy, 1 << 30);
            let b = &s.backend;
            let first = b.upload(counted(50_000), &[50_000]).unwrap();
            let address = first.address();
            let copy = b.concat(&[&first, &first]).unwrap();
            drop(first);
            let second = b.upload(HostData::F32(vec![1.0; 50_000]), &[50_000]).unwrap();
            assert_eq!(second.address(), address, "the same memory");
            let copied = b.download(&copy).unwrap().to_f32();
            assert_eq!(copied[50_000..], counted(50_000).to_f32()[..], "read before it was written again");
            assert_eq!(b.peak_activations(), (4 + 7) * (64 << 10), "200 kB and 400 kB in granules");
        }
    }

    #[test]
    fn exact_memory_is_as_large_as_the_tensor_and_not_used_again() {
        let s = setup(Policy::Late, 1 << 30);
        let options = Options { exact_memory: true, ..Options::default() };
        let b = HipBackend::on(s.fake.device.clone(), Kernels::default(), Host::current(), options).unwrap();
        let before = s.fake.device_bytes();
        let x = b.upload(counted(9), &[9]).unwrap();
        assert_eq!(s.fake.device_bytes() - before, 36);
        drop(x);
        assert_eq!(s.fake.device_bytes(), before);
        assert_eq!(b.pool.live(), 0);
    }

    #[test]
    fn a_full_device_moves_blocks_out_before_it_fails() {
        let folder = tempfile::tempdir().unwrap();
        let tensors: Vec<_> = (0..6).map(|i| given(&format!("{i}"), FileDType::Bf16, &[512, 1024])).collect();
        let checkpoint = checkpoint(folder.path(), &tensors);
        let block = 1u64 << 20;
        let activations = 4 * block;
        let capacity = RESERVE + 6 * block + activations + (16 << 20);
        let s = setup(Policy::Late, capacity as usize);
        let b = &s.backend;
        let stage = b
            .load(StageSpec {
                name: "dit",
                checkpoint: checkpoint.clone(),
                fixed: vec![],
                blocks: (0..6).map(|i| vec![spec(&checkpoint, &[&i.to_string()], Role::Matrix)]).collect(),
                resident_limit: usize::MAX,
                activation_bytes: activations,
            })
            .unwrap();
        assert_eq!(b.resident_blocks(&stage), (6, 6));
        let weights = |index: usize| {
            let weights = b.block(&stage, index).unwrap();
            b.download(&weights[0]).unwrap()
        };
        let before: Vec<HostData> = (0..6).map(weights).collect();

        // Take all that is free but half a megabyte, then ask for a megabyte.
        let (free, _) = s.fake.device.memory().unwrap();
        let hog = s.fake.device.allocate(free - (block >> 1), "a hog").unwrap();
        let x = b.allocate(&[1 << 20], DType::Bf16, "a tensor").unwrap();
        assert_eq!(x.bytes(), 2 * block);
        let (resident, _) = b.resident_blocks(&stage);
        assert!(resident < 6 && resident > 0, "{resident}");
        let notes = b.take_notes();
        assert!(notes[0].contains("blocks stay on the device now"), "{notes:?}");
        assert_eq!((0..6).map(weights).collect::<Vec<_>>(), before, "the same weights, from the host");
        drop((hog, x));

        let error = b.allocate(&[1 << 34], DType::Bf16, "a tensor").err().unwrap();
        assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
        assert_eq!(b.resident_blocks(&stage).0, 0, "every block made room first");
    }

    #[test]
    fn budgets_count_what_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = checkpoint(folder.path(), &[given("w", FileDType::Bf16, &[512, 1024])]);
        let mut s = setup(Policy::Late, 4 << 30);
        s.backend.options.vram_budget = Some((3 << 20) + stage::ROUNDING);
        let stage = |activation_bytes: u64| StageSpec {
            name: "vae",
            checkpoint: checkpoint.clone(),
            fixed: vec![spec(&checkpoint, &["w"], Role::Matrix)],
            blocks: vec![],
            resident_limit: usize::MAX,
            activation_bytes,
        };
        let b = &s.backend;
        assert!(b.admit(&stage(2 << 20), &[]).is_ok());
        let text = b.admitted_plan().unwrap().to_string();
        assert!(text.contains("vae: 1.0 MiB weights, kept"), "{text}");
        assert!(b.admit(&stage(3 << 20), &[]).unwrap_err().to_string().contains("--vram-budget allows"));
        let first = b.load(stage(1 << 20)).unwrap();
        assert!(b.load(stage(2 << 20)).is_err(), "the first stage's megabyte is not there twice");
        drop(first);
        assert!(b.load(stage(2 << 20)).is_ok());
    }
}
