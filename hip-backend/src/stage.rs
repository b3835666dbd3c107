//! The weights of one model part on the device: what stays, what is streamed, and the blocks as they are asked for.

use std::sync::{Arc, Mutex};

use moss_reference::backend::{StageSpec, Tensor as _};

use crate::device::{Buffer, Device, Stream};
use crate::error::Error;
use crate::host::Host;
use crate::memory::{DeviceMemory, Limits, SLOTS, Source, StageDemand, StagePlan};
use crate::stream::{Feeder, Filling, HostBytes, ImageSource, Slots, locked};
use crate::tensor::{HipTensor, Storage};
use crate::trail::{Owner, Place};
use crate::weights::{Image, StageImages};
use moss_reference::memory::human;

type Result<T, E = Error> = std::result::Result<T, E>;

/// Where one block is.
enum BlockPlace {
    Device(Arc<Buffer>),
    Files,
    Host(Arc<HostBytes>),
    /// Pinned host memory that the device reads in place.
    InPlace(Arc<HostBytes>),
}

struct State {
    places: Vec<BlockPlace>,
    slots: Option<Slots>,
}

/// What a stage does its work with, shared by all stages.
pub(crate) struct Engine {
    pub(crate) device: Arc<Device>,
    pub(crate) compute: Arc<Stream>,
    pub(crate) feeder: Feeder,
    pub(crate) host: Host,
}

impl Engine {
    /// Orders a copy of an image to a buffer.
    fn feed(&self, source: ImageSource, to: &Arc<Buffer>) -> Result<Filling> {
        let ready = Arc::new(self.device.event()?);
        Ok(self.feeder.fill(source, to.clone(), None, ready))
    }

    /// Copies the first `bytes` bytes of a buffer to new host memory, after everything that was issued before.
    #[allow(unsafe_code)]
    fn fetch_back(&self, buffer: &Buffer, bytes: usize) -> Result<HostBytes> {
        let mut host = HostBytes::new(&self.device, bytes, true, "a block that makes room")?;
        assert!(bytes as u64 <= buffer.bytes(), "more bytes than the buffer holds");
        let done = self.device.event()?;
        // SAFETY: the buffer holds the bytes; the host memory is waited for before anything else touches it, and given up
        // with the device when the wait fails.
        let copied = unsafe { self.compute.copy_to_host(host.as_mut_slice(), buffer.address(0)) };
        match copied.and_then(|()| self.compute.record(&done)).and_then(|()| done.wait_after_launches()) {
            Ok(()) => Ok(host),
            Err(error) => {
                std::mem::forget(host);
                Err(error)
            }
        }
    }
}

pub(crate) struct StageInner {
    name: &'static str,
    engine: Arc<Engine>,
    images: StageImages,
    /// Bytes of activations that may be held while the stage runs.
    activations: u64,
    state: Mutex<State>,
    fixed: Arc<Buffer>,
}

/// The weights of one model part; its memory is freed when it is dropped.
pub struct HipStage(pub(crate) Arc<StageInner>);

/// Device memory for the pool's rounding of sizes: 64 tensors' worth.
pub(crate) const ROUNDING: u64 = 64 * crate::pool::GRANULE;

/// What a stage asks for, by its images.
pub(crate) fn demand(spec: &StageSpec, images: &StageImages) -> StageDemand {
    StageDemand {
        name: spec.name.to_owned(),
        fixed: images.fixed.bytes(),
        blocks: images.blocks.iter().map(|image| image.bytes()).collect(),
        resident_limit: spec.resident_limit,
        activations: spec.activation_bytes + ROUNDING,
    }
}

impl StageInner {
    /// Loads a stage by a plan for `capacity` bytes. A failed allocation plans again with fewer blocks on the device, to the least
    /// that the stage can run with; that is tried twice, and the second time `make_room` may free what other stages hold.
    ///
    /// # Errors
    /// A refusal of the plan, an allocation that failed with nothing left to give up, a file that cannot be read, a failed
    /// call.
    pub(crate) fn load(
        engine: &Arc<Engine>,
        spec: &StageSpec,
        memory: &DeviceMemory,
        limits: &Limits,
        capacity: u64,
        make_room: &dyn Fn() -> Result<bool>,
        notes: &mut Vec<String>,
    ) -> Result<Self> {
        let images = StageImages::new(spec)?;
        let first = StagePlan::new(&demand(spec, &images), 0, capacity, memory, limits)?;
        let mut plan = first.clone();
        let mut least_failed = false;
        let held = loop {
            let (error, had) = match Held::allocate(&engine.device, &plan) {
                Ok(held) => break held,
                Err((error @ Error::OutOfMemory { .. }, had)) => (error, had),
                Err((error, _)) => return Err(error),
            };
            let fewer = plan.fewer(had, memory, limits)?;
            if fewer == plan && std::mem::replace(&mut least_failed, true) && !make_room()? {
                return Err(error);
            }
            plan = fewer;
        };
        if plan != first {
            let (planned, blocks) = (human(first.peak()), plan.resident.len());
            let instead = match plan.resident_blocks() {
                0 => format!("its {blocks} blocks pass through {} slots", plan.slots),
                resident => format!("{resident} of {blocks} blocks stay on it"),
            };
            notes.push(format!("{}: the device did not give the {planned} planned, so {instead}", spec.name));
        }
        match Self::fill(engine, spec, images, &plan, held, notes)? {
            Some(stage) => Ok(stage),
            // Pinned memory that cannot be had is not read in place: the blocks are copied from pageable memory.
            None => {
                let memory = DeviceMemory { unified: false, ..*memory };
                Self::load(engine, spec, &memory, limits, capacity, make_room, notes)
            }
        }
    }

    /// Reads a stage's weights to the memory held for them; `None` when blocks that the device shall read in place cannot be
    /// pinned.
    fn fill(
        engine: &Arc<Engine>,
        spec: &StageSpec,
        images: StageImages,
        plan: &StagePlan,
        held: Held,
        notes: &mut Vec<String>,
    ) -> Result<Option<Self>> {
        let Held { fixed, blocks, slots } = held;

        let mut places = Vec::with_capacity(images.blocks.len());
        let mut pageable = 0;
        let mut to_pin = plan.pinned_blocks;
        for (image, buffer) in images.blocks.iter().zip(blocks) {
            places.push(match (buffer, plan.source) {
                (Some(buffer), _) => BlockPlace::Device(buffer),
                (None, Source::Files | Source::Resident) => BlockPlace::Files,
                (None, Source::Host | Source::InPlace) => {
                    let pin = to_pin > 0 || plan.source == Source::InPlace;
                    to_pin = to_pin.saturating_sub(1);
                    let what = format!("a block of the {}", spec.name);
                    let mut bytes = HostBytes::new(&engine.device, image.bytes() as usize, pin, &what)?;
                    if pin && !bytes.is_pinned() {
                        // One refusal is the answer for all the others: asking again takes long.
                        to_pin = 0;
                        pageable += 1;
                        if plan.source == Source::InPlace {
                            return Ok(None);
                        }
                    }
                    image.fill_all(bytes.as_mut_slice())?;
                    let bytes = Arc::new(bytes);
                    if plan.source == Source::InPlace {
                        BlockPlace::InPlace(bytes)
                    } else {
                        BlockPlace::Host(bytes)
                    }
                }
            });
        }
        if pageable > 0 {
            notes.push(format!(
                "{}: the system refused to pin host memory (limit on locked memory, ulimit -l: {}); streamed blocks are copied \
                 through the ring instead",
                spec.name,
                engine.host.locked_memory_limit()
            ));
        }

        let mut fillings = vec![engine.feed(ImageSource::Files(images.fixed.clone()), &fixed)?];
        for (image, place) in images.blocks.iter().zip(&places) {
            if let BlockPlace::Device(buffer) = place {
                fillings.push(engine.feed(ImageSource::Files(image.clone()), buffer)?);
            }
        }
        for filling in fillings {
            filling.issued()?;
            engine.compute.wait_for(&filling.ready)?;
            filling.ready.wait()?;
        }

        let streamed: Vec<usize> = (0..places.len())
            .filter(|&i| matches!(places[i], BlockPlace::Files | BlockPlace::Host(_)))
            .collect();
        let again = plan.source == Source::Host;
        let slots = match streamed.is_empty() {
            true => None,
            false => Some(Slots::new(&engine.device, slots, streamed, again)?),
        };
        Ok(Some(Self {
            name: spec.name,
            engine: engine.clone(),
            images,
            activations: plan.demand.activations,
            fixed,
            state: Mutex::new(State { places, slots }),
        }))
    }

    /// Bytes of the weights that are on the device, slots included.
    pub(crate) fn device_bytes(&self) -> u64 {
        locked(&self.state, |state| {
            let blocks = state.places.iter().map(|place| match place {
                BlockPlace::Device(buffer) => buffer.bytes(),
                _ => 0,
            });
            self.fixed.bytes() + blocks.sum::<u64>() + state.slots.as_ref().map_or(0, Slots::bytes)
        })
    }

    /// How many blocks stay on the device, and how many there are.
    pub(crate) fn resident(&self) -> (usize, usize) {
        locked(&self.state, |state| {
            let resident = state.places.iter().filter(|p| matches!(p, BlockPlace::Device(_))).count();
            (resident, state.places.len())
        })
    }

    pub(crate) fn fixed(&self) -> Vec<HipTensor> {
        tensors(&self.images.fixed, &Storage::Weights(self.fixed.clone(), self.owner(None)))
    }

    /// Whose weights those of a block, or those that stay, are.
    pub(crate) fn owner(&self, block: Option<usize>) -> Owner {
        Owner {
            stage: self.name,
            block,
            steps: !self.images.blocks.is_empty(),
            activations: self.activations,
        }
    }

    /// The weights of a block; earlier blocks' operations have all been issued.
    pub(crate) fn block(&self, index: usize) -> Result<Vec<HipTensor>> {
        let owner = self.owner(Some(index));
        self.engine.device.place().enter(owner);
        locked(&self.state, |state| {
            let State { places, slots } = state;
            if let Some(slots) = slots {
                let source = |block: usize| match &places[block] {
                    BlockPlace::Host(bytes) => ImageSource::Host(bytes.clone()),
                    _ => ImageSource::Files(self.images.blocks[block].clone()),
                };
                slots.advance(index, &self.engine.feeder, &self.engine.compute, source)?;
            }
            let storage = match &places[index] {
                BlockPlace::Device(buffer) => Storage::Weights(buffer.clone(), owner),
                BlockPlace::InPlace(bytes) => Storage::Host(bytes.clone(), owner),
                BlockPlace::Files | BlockPlace::Host(_) => {
                    let slots = slots.as_mut().expect("streamed blocks have slots");
                    Storage::Weights(slots.fetch(index, &self.engine.compute)?, owner)
                }
            };
            Ok(tensors(&self.images.blocks[index], &storage))
        })
    }

    /// Moves blocks that nobody holds from the device to host memory, to make room; false when they would make none.
    ///
    /// It is one block, the last: the blocks that come next are needed first. The first time the stage has no slots yet, so as
    /// many blocks move as are larger than the slots together, and what fits of their memory becomes the slots.
    pub(crate) fn evict(&self) -> Result<bool> {
        locked(&self.state, |state| {
            let slot = self.images.blocks.iter().map(|image| image.bytes()).max().unwrap_or(0);
            let needed = match &state.slots {
                Some(slots) if !slots.again() => return Ok(false),
                Some(_) => 0,
                None => SLOTS as u64 * slot,
            };
            let mut moved = Vec::new();
            let mut bytes = 0;
            for (index, place) in state.places.iter().enumerate().rev() {
                match place {
                    BlockPlace::Device(buffer) if bytes <= needed && Arc::strong_count(buffer) == 1 => {
                        bytes += buffer.bytes();
                        moved.push(index);
                    }
                    _ => {}
                }
            }
            if bytes <= needed {
                return Ok(false);
            }
            let mut freed = Vec::new();
            for index in moved {
                let BlockPlace::Device(buffer) = &state.places[index] else {
                    unreachable!("only resident blocks are idle")
                };
                let bytes = self.engine.fetch_back(buffer, self.images.blocks[index].bytes() as usize)?;
                let place = std::mem::replace(&mut state.places[index], BlockPlace::Host(Arc::new(bytes)));
                if let BlockPlace::Device(buffer) = place {
                    freed.push(buffer);
                }
            }
            let streamed: Vec<usize> =
                (0..state.places.len()).filter(|&i| matches!(state.places[i], BlockPlace::Host(_))).collect();
            match &mut state.slots {
                Some(slots) => slots.stream_also(streamed),
                None => {
                    freed.retain(|buffer| buffer.bytes() >= slot);
                    freed.truncate(SLOTS);
                    while freed.len() < SLOTS {
                        let what = format!("a slot of the {}", self.name);
                        freed.push(Arc::new(self.engine.device.allocate(slot, &what)?));
                    }
                    state.slots = Some(Slots::new(&self.engine.device, freed, streamed, true)?);
                }
            }
            Ok(true)
        })
    }
}

impl Drop for StageInner {
    fn drop(&mut self) {
        // What comes next is not this stage's, until weights of another are read.
        {
            let mut place = self.engine.device.place();
            if place.stage == self.name {
                *place = Place::default();
            }
        }
        locked(&self.state, |state| {
            if let Some(slots) = &mut state.slots {
                slots.settle();
            }
        });
    }
}

fn tensors(image: &Image, storage: &Storage) -> Vec<HipTensor> {
    let tensor =
        |w: &crate::weights::Weight| HipTensor::new(storage.clone(), w.offset, w.shape.clone(), w.dtype);
    let all: Vec<HipTensor> = image.weights().iter().map(tensor).collect();
    debug_assert!(all.iter().all(|t| !t.shape().is_empty()));
    all
}

/// Device memory of a stage, allocated before anything is read.
struct Held {
    fixed: Arc<Buffer>,
    blocks: Vec<Option<Arc<Buffer>>>,
    slots: Vec<Arc<Buffer>>,
}

impl Held {
    /// # Errors
    /// The error, and how many bytes had been allocated before it.
    fn allocate(device: &Arc<Device>, plan: &StagePlan) -> Result<Self, (Error, u64)> {
        let mut had = 0;
        let mut take = |bytes: u64, what: &str| {
            let what = format!("{what} of the {}", plan.demand.name);
            let buffer = device.allocate(bytes, &what).map_err(|error| (error, had))?;
            had += bytes;
            Ok(Arc::new(buffer))
        };
        let fixed = take(plan.demand.fixed, "the fixed weights")?;
        let slots =
            (0..plan.slots).map(|_| take(plan.slot_bytes, "a slot")).collect::<Result<_, (Error, u64)>>()?;
        let mut blocks = Vec::new();
        for (&bytes, &resident) in plan.demand.blocks.iter().zip(&plan.resident) {
            blocks.push(if resident { Some(take(bytes, "a block")?) } else { None });
        }
        if !blocks.is_empty() {
            // The activations come later; that they fit is tried now, while there is still a choice.
            take(plan.demand.activations, "the activations")?;
        }
        Ok(Self { fixed, blocks, slots })
    }
}

#[cfg(test)]
mod tests;
