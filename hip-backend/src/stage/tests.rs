use super::*;
use moss_reference::backend::Role;
use moss_reference::files::{Checkpoint, FileDType};

use crate::fake::{Fake, Policy};
use crate::memory::RESERVE;
use crate::weights::tests::{checkpoint, given, spec};

const BLOCKS: usize = 7;
/// Bytes of a block in these tests: a matrix of 64 x 512 and a vector of 128, bf16.
const BLOCK: u64 = 64 * 512 * 2 + 256;

struct Setup {
    /// Bytes of the largest block.
    block: u64,
    /// Bytes of each block.
    blocks: Vec<u64>,
    engine: Arc<Engine>,
    checkpoint: Arc<Checkpoint>,
    _folder: tempfile::TempDir,
    /// Last: it outlives what runs on it.
    fake: Fake,
}

fn setup(policy: Policy) -> Setup {
    setup_of(policy, 64)
}

/// Blocks with a matrix of `rows` x 512.
fn setup_of(policy: Policy, rows: usize) -> Setup {
    setup_with(policy, [FileDType::Bf16; BLOCKS], [rows; BLOCKS])
}

/// Blocks with matrices of so many rows x 512, from files of these types.
fn setup_with(policy: Policy, types: [FileDType; BLOCKS], rows: [usize; BLOCKS]) -> Setup {
    let folder = tempfile::tempdir().unwrap();
    let mut tensors = vec![given("norm", FileDType::Bf16, &[100])];
    for i in 0..BLOCKS {
        tensors.push(given(&format!("{i}.w"), types[i], &[rows[i], 512]));
        tensors.push(given(&format!("{i}.v"), FileDType::Bf16, &[128]));
    }
    let checkpoint = checkpoint(folder.path(), &tensors);
    let fake = Fake::start(policy, 2 << 30);
    let compute = Arc::new(fake.device.stream().unwrap());
    let feeder = Feeder::new(&fake.device).unwrap();
    let engine = Arc::new(Engine { device: fake.device.clone(), compute, feeder, host: Host::current() });
    let blocks: Vec<u64> = rows.iter().map(|&rows| rows as u64 * 1024 + 256).collect();
    let block = blocks.iter().copied().max().unwrap();
    Setup { block, blocks, engine, checkpoint, _folder: folder, fake }
}

impl Setup {
    fn spec(&self, resident_limit: usize) -> StageSpec {
        StageSpec {
            name: "dit",
            checkpoint: self.checkpoint.clone(),
            fixed: vec![spec(&self.checkpoint, &["norm"], Role::Vector)],
            blocks: (0..BLOCKS)
                .map(|i| {
                    let (w, v) = (format!("{i}.w"), format!("{i}.v"));
                    vec![
                        spec(&self.checkpoint, &[&w], Role::Matrix),
                        spec(&self.checkpoint, &[&v], Role::Vector),
                    ]
                })
                .collect(),
            resident_limit,
            activation_bytes: 1000,
        }
    }

    /// Memory for `resident` of the blocks, the others in two slots; all blocks need no slots.
    fn capacity(&self, resident: u64) -> u64 {
        let slots = if resident < BLOCKS as u64 { 2 } else { 0 };
        256 + (slots + resident) * self.block + 1000 + ROUNDING + RESERVE
    }

    fn load(
        &self,
        resident_limit: usize,
        capacity: u64,
        pinned: Option<u64>,
    ) -> Result<(StageInner, Vec<String>)> {
        let mut notes = Vec::new();
        let memory = DeviceMemory { hip_free: capacity, hip_total: 16 << 30, ..DeviceMemory::default() };
        let limits = Limits { budget: None, host_available: 1 << 40, pinned };
        let spec = self.spec(resident_limit);
        let no_room = || Ok(false);
        let stage = StageInner::load(&self.engine, &spec, &memory, &limits, capacity, &no_room, &mut notes)?;
        Ok((stage, notes))
    }

    /// Runs through the blocks of `steps` steps as a model does: "computes" on each by copying its weights to a place of
    /// their own on the compute stream; then compares every copy with the file.
    fn run(&self, stage: &StageInner, order: &[usize]) {
        let images = StageImages::new(&self.spec(usize::MAX)).unwrap();
        let device = &self.engine.device;
        let mut outputs = Vec::new();
        for &index in order {
            let weights = stage.block(index).unwrap();
            let bytes = self.blocks[index];
            let out = device.allocate(bytes, "an output").unwrap();
            // SAFETY: the block's first weight is at the start of its image, of so many bytes; `out` holds as many.
            #[allow(unsafe_code)]
            unsafe {
                self.engine.compute.copy_on_device(out.address(0), weights[0].address(), bytes).unwrap();
            }
            outputs.push((index, out));
        }
        for (at, (index, out)) in outputs.iter().enumerate() {
            let found = self.engine.fetch_back(out, self.blocks[*index] as usize).unwrap();
            let mut expected = vec![0; self.blocks[*index] as usize];
            images.blocks[*index].fill_all(&mut expected).unwrap();
            assert!(found.as_slice() == expected, "fetch {at}: wrong weights of block {index}");
        }
    }

    fn check_fixed(&self, stage: &StageInner) {
        assert_eq!(stage.fixed()[0].shape(), [100]);
        let found = self.engine.fetch_back(&stage.fixed, 256).unwrap();
        let images = StageImages::new(&self.spec(usize::MAX)).unwrap();
        let mut expected = vec![0; 256];
        images.fixed.fill_all(&mut expected).unwrap();
        assert_eq!(found.as_slice(), expected);
    }
}

fn steps(n: usize) -> Vec<usize> {
    (0..n).flat_map(|_| 0..BLOCKS).collect()
}

const POLICIES: [Policy; 3] = [Policy::Late, Policy::CopiesEarly, Policy::ComputeEarly];

#[test]
fn every_number_of_resident_blocks_gives_the_same_weights() {
    for policy in POLICIES {
        for resident in [0, 1, BLOCKS / 2, BLOCKS - 3, BLOCKS] {
            let s = setup(policy);
            let (stage, notes) = s.load(usize::MAX, s.capacity(resident as u64), None).unwrap();
            assert_eq!((stage.resident(), notes.len()), ((resident, BLOCKS), 0));
            s.check_fixed(&stage);
            s.run(&stage, &steps(3));
            drop(stage);
            assert_eq!(s.fake.device_bytes(), 0, "everything is freed");
            assert_eq!(s.fake.faults(), [""; 0], "{policy:?}, {resident} resident");
        }
    }
}

const MIXED: [FileDType; BLOCKS] = [
    FileDType::Bf16,
    FileDType::F32,
    FileDType::F16,
    FileDType::Bf16,
    FileDType::F32,
    FileDType::Bf16,
    FileDType::F16,
];

#[test]
fn blocks_of_different_sizes_and_types_give_the_same_weights_resident_and_streamed() {
    let rows = [64, 16, 96, 32, 96, 16, 48];
    for policy in POLICIES {
        for resident in 0..=BLOCKS as u64 {
            let s = setup_with(policy, MIXED, rows);
            let all: u64 = s.blocks.iter().sum();
            let always = 256 + 1000 + ROUNDING + RESERVE;
            let capacity = if resident == BLOCKS as u64 { all } else { 2 * s.block + all * resident / 7 };
            let (stage, _) = s.load(usize::MAX, always + capacity, None).unwrap();
            assert!(stage.resident().0 > 0 || resident < 2, "{resident}");
            assert!(stage.device_bytes() <= 256 + capacity);
            s.run(&stage, &steps(3));
            drop(stage);
            assert_eq!((s.fake.device_bytes(), s.fake.faults()), (0, vec![]), "{policy:?}, {resident}");
        }
        let s = setup_with(policy, MIXED, rows);
        let (stage, _) = s.load(2, 1 << 30, None).unwrap();
        assert_eq!(stage.device_bytes(), 256 + 2 * s.block);
        s.run(&stage, &steps(2));
    }
}

#[test]
fn blocks_of_different_sizes_make_room() {
    // The last, the largest first, no two alike, one that outweighs all others.
    for rows in [
        [96, 96, 64, 64, 32, 32, 16],
        [16, 32, 32, 64, 64, 96, 96],
        [16, 32, 48, 64, 80, 96, 112],
        [16, 16, 128, 16, 16, 16, 16],
    ] {
        for policy in POLICIES {
            let s = setup_with(policy, MIXED, rows);
            let (stage, _) = s.load(usize::MAX, RESERVE + (16 << 20), None).unwrap();
            assert_eq!(stage.resident(), (BLOCKS, BLOCKS));
            s.run(&stage, &steps(1));
            let mut held = s.fake.device_bytes();
            while stage.evict().unwrap() {
                assert!(s.fake.device_bytes() < held, "{rows:?}: room is made each time");
                held = s.fake.device_bytes();
                s.run(&stage, &steps(2));
            }
            let possible = s.blocks.iter().sum::<u64>() > 2 * s.block;
            assert_eq!(stage.resident().0, if possible { 0 } else { BLOCKS }, "{rows:?}");
            s.run(&stage, &steps(1));
            drop(stage);
            assert_eq!((s.fake.device_bytes(), s.fake.faults()), (0, vec![]));
        }
    }
}

#[test]
fn pageable_and_mixed_host_memory_give_the_same_weights() {
    for policy in POLICIES {
        for pinned in [0, 2 * BLOCK] {
            let s = setup(policy);
            let (stage, _) = s.load(usize::MAX, s.capacity(1), Some(pinned)).unwrap();
            s.run(&stage, &steps(2));
            drop(stage);
            assert_eq!(s.fake.faults(), [""; 0]);
        }
    }
}

#[test]
fn refused_pinned_memory_falls_back_and_says_so() {
    let s = setup(Policy::Late);
    s.fake.refuse_pins();
    let (stage, notes) = s.load(usize::MAX, s.capacity(1), None).unwrap();
    assert!(notes[0].contains("refused to pin"), "{notes:?}");
    s.run(&stage, &steps(2));
}

#[test]
fn a_stage_of_two_blocks_at_most_streams_from_its_files() {
    for policy in POLICIES {
        let s = setup(policy);
        let (stage, _) = s.load(2, 1 << 30, None).unwrap();
        assert_eq!(stage.resident(), (0, BLOCKS));
        assert_eq!(stage.device_bytes(), 256 + 2 * BLOCK);
        s.run(&stage, &steps(1));
        // A second prompt runs through it again.
        s.run(&stage, &steps(1));
        drop(stage);
        assert_eq!(s.fake.faults(), [""; 0]);
    }
}

#[test]
fn a_block_that_is_left_out_changes_nothing() {
    for policy in POLICIES {
        let s = setup(policy);
        let (stage, _) = s.load(usize::MAX, s.capacity(1), None).unwrap();
        s.run(&stage, &[0, 1, 2, 4, 5, 6, 0, 2, 3, 6, 1, 1]);
        assert_eq!(s.fake.faults(), [""; 0]);
    }
}

/// Allocations: 256 bytes of fixed weights, seven blocks of 2 MiB, a little over 4 MiB for the activations. A new plan also
/// needs two slots.
#[test]
fn a_failed_allocation_plans_again_with_fewer_resident_blocks() {
    let half = BLOCKS / 2;
    let mut resident: Vec<usize> = [half; 6].to_vec();
    resident.extend([0, 1, 2]);
    for (nth, resident) in (1..).zip(resident) {
        let s = setup_of(Policy::Late, 2048);
        s.fake.fail_allocation(nth);
        let loaded = s.load(usize::MAX, s.capacity(BLOCKS as u64), None);
        let (stage, notes) = loaded.unwrap_or_else(|error| panic!("allocation {nth}: {error}"));
        assert_eq!(stage.resident().0, resident, "allocation {nth}");
        let note = match resident {
            0 => "so its 7 blocks pass through 2 slots".to_owned(),
            _ => format!("so {resident} of 7 blocks stay on it"),
        };
        assert!(notes[0].ends_with(&note), "{notes:?}");
        s.run(&stage, &steps(2));
        drop(stage);
        assert_eq!((s.fake.device_bytes(), s.fake.faults()), (0, vec![]), "allocation {nth}");
    }
}

/// Four allocations of a stage whose blocks are streamed: the fixed weights, two slots, the activations.
#[test]
fn a_failed_allocation_is_made_again_where_no_block_stays() {
    for resident_limit in [2, usize::MAX] {
        for nth in 1..=4 {
            let s = setup(Policy::Late);
            s.fake.fail_allocation(nth);
            let (stage, _) = s.load(resident_limit, s.capacity(0), None).unwrap();
            assert_eq!(stage.device_bytes(), 256 + s.block, "one slot is enough");
            s.run(&stage, &steps(1));
            s.run(&stage, &steps(1));
            drop(stage);
            assert_eq!((s.fake.device_bytes(), s.fake.faults()), (0, vec![]), "allocation {nth}");
        }
    }
}

#[test]
fn a_device_that_gives_nothing_more_ends_the_load_with_its_figures() {
    for nth in 1..12 {
        let s = setup(Policy::Late);
        s.fake.fail_allocations_from(nth);
        let error = s.load(usize::MAX, s.capacity(BLOCKS as u64), None).err();
        if nth > BLOCKS + 2 {
            assert!(error.is_none(), "allocation {nth}: the stage was loaded before");
            continue;
        }
        let text = error.expect("nothing is given any more").to_string();
        assert!(text.contains("2.00 GiB are free") && text.contains("refused it all the same"), "{text}");
        assert!(!text.contains("picture smaller"), "{text}");
        assert_eq!((s.fake.device_bytes(), s.fake.faults()), (0, vec![]), "allocation {nth}");
    }
}

#[test]
fn blocks_that_cannot_be_pinned_are_not_read_in_place() {
    let s = setup(Policy::Late);
    let capacity = s.capacity(1);
    let load = || {
        let memory = DeviceMemory {
            hip_free: capacity,
            hip_total: 16 << 30,
            unified: true,
            ..DeviceMemory::default()
        };
        let limits = Limits { budget: None, host_available: 1 << 40, pinned: None };
        let spec = s.spec(usize::MAX);
        let no_room = || Ok(false);
        StageInner::load(&s.engine, &spec, &memory, &limits, capacity, &no_room, &mut Vec::new()).unwrap()
    };
    assert_eq!(load().device_bytes(), 256 + 3 * s.block, "in place: no slots");
    s.fake.refuse_pins();
    let stage = load();
    assert_eq!(stage.device_bytes(), 256 + 3 * s.block, "one block and two slots");
    s.run(&stage, &steps(2));
}

#[test]
fn blocks_make_room_when_the_device_is_full() {
    for policy in POLICIES {
        let s = setup(policy);
        let (stage, _) = s.load(usize::MAX, s.capacity(BLOCKS as u64), None).unwrap();
        s.run(&stage, &steps(1));
        let held = s.fake.device_bytes() as u64;
        assert!(stage.evict().unwrap());
        assert_eq!(stage.resident(), (BLOCKS - 3, BLOCKS), "two become slots");
        assert_eq!(s.fake.device_bytes() as u64, held - BLOCK);
        s.run(&stage, &steps(2));
        assert!(stage.evict().unwrap());
        assert_eq!(s.fake.device_bytes() as u64, held - 2 * BLOCK);
        s.run(&stage, &steps(2));
        while stage.evict().unwrap() {}
        assert_eq!(stage.resident().0, 0);
        s.run(&stage, &steps(2));
        drop(stage);
        assert_eq!((s.fake.device_bytes(), s.fake.faults()), (0, vec![]));
    }
}

#[test]
fn a_stage_that_goes_waits_for_its_copies() {
    for pinned in [None, Some(0)] {
        let s = setup(Policy::Late);
        let (stage, _) = s.load(usize::MAX, s.capacity(0), pinned).unwrap();
        stage.block(0).unwrap();
        drop(stage);
        assert_eq!((s.fake.faults(), s.fake.device_bytes()), (vec![], 0));
    }
}

#[test]
fn a_slot_is_not_filled_while_its_weights_are_held() {
    for policy in POLICIES {
        let s = setup(policy);
        let (stage, _) = s.load(usize::MAX, s.capacity(0), None).unwrap();
        let held = stage.block(0).unwrap();
        for index in 1..BLOCKS {
            stage.block(index).unwrap();
        }
        let out = s.engine.device.allocate(BLOCK, "an output").unwrap();
        // SAFETY: as in `run`.
        #[allow(unsafe_code)]
        unsafe {
            s.engine.compute.copy_on_device(out.address(0), held[0].address(), BLOCK).unwrap();
        }
        let mut expected = vec![0; BLOCK as usize];
        stage.images.blocks[0].fill_all(&mut expected).unwrap();
        assert!(s.engine.fetch_back(&out, BLOCK as usize).unwrap().as_slice() == expected);
    }
}

#[test]
#[should_panic(expected = "the weights of an earlier block are still held")]
fn holding_every_slot_is_a_programming_error() {
    let s = setup(Policy::Late);
    let (stage, _) = s.load(usize::MAX, s.capacity(0), None).unwrap();
    let _held = [stage.block(0).unwrap(), stage.block(1).unwrap()];
    let _ = stage.block(2);
}

#[test]
fn weights_that_are_held_do_not_move() {
    let s = setup(Policy::Late);
    let (stage, _) = s.load(usize::MAX, s.capacity(BLOCKS as u64), None).unwrap();
    let held: Vec<_> = (0..BLOCKS - 2).map(|i| stage.block(i).unwrap()).collect();
    assert!(!stage.evict().unwrap(), "two idle blocks are too few to make room");
    drop(held);
    assert!(stage.evict().unwrap());
}

#[test]
fn a_device_that_does_not_answer_is_reported_with_its_place() {
    let s = setup(Policy::Late);
    let (stage, _) = s.load(usize::MAX, s.capacity(0), None).unwrap();
    stage.block(3).unwrap();
    s.fake.hang();
    let event = s.engine.device.event().unwrap();
    s.engine.compute.record(&event).unwrap();
    let text = event.wait().unwrap_err().to_string();
    assert!(text.contains("stage dit, step 1, block 3"), "{text}");
}
