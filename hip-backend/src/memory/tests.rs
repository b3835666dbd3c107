use super::*;

const GIB: f64 = (1u64 << 30) as f64;

fn bytes(gib: f64) -> u64 {
    (gib * GIB) as u64
}

/// Parameters of the official DiT: a block, and what always stays (embedders, modulations, refiner).
fn dit_sizes() -> (u64, u64) {
    let (d, f) = (3072u64, 8192u64);
    let block = 4 * d * d + 3 * d * f + 2 * d + 2 * 128;
    let refiner = block + 3 * d + d + 2 * f + d;
    let embedders = 128 * d + d + 4096 * d + d + 256 * d + d + d * d + d;
    let modulations = 6 * d * d + 6 * d + 2 * d * d + 2 * d;
    let head = d + 128 * d;
    (2 * block, 2 * (2 * refiner + embedders + modulations + head))
}

fn dit(activations: f64) -> StageDemand {
    let (block, fixed) = dit_sizes();
    StageDemand {
        name: "dit".into(),
        fixed,
        blocks: vec![block; 42],
        resident_limit: usize::MAX,
        activations: bytes(activations),
    }
}

fn vae(decode: f64) -> StageDemand {
    StageDemand {
        name: "vae".into(),
        fixed: bytes(0.1),
        blocks: vec![],
        resident_limit: usize::MAX,
        activations: bytes(decode),
    }
}

fn none() -> StageDemand {
    StageDemand { fixed: 0, activations: 0, ..vae(0.0) }
}

fn text_encoder() -> StageDemand {
    StageDemand {
        name: "text encoder".into(),
        fixed: 8192,
        blocks: vec![bytes(0.43); 32],
        resident_limit: 2,
        activations: bytes(0.05),
    }
}

fn card(gib: f64) -> DeviceMemory {
    DeviceMemory { hip_free: bytes(gib), hip_total: bytes(gib), ..DeviceMemory::default() }
}

fn limits(budget: Option<f64>) -> Limits {
    Limits { budget: budget.map(bytes), host_available: bytes(60.0), pinned: None }
}

fn run(decode: f64, activations: f64, free: f64, budget: Option<f64>) -> Result<Plan, Refusal> {
    Plan::new(&vae(decode), &[text_encoder(), dit(activations)], card(free), limits(budget))
}

/// Activations of the DiT at 1024x1024 that the figures of the program described in the second document imply: with
/// 0.1 GiB of VAE, 1.03 GiB always on the device and a reserve of 0.5 GiB, 17 blocks at 6 GiB and 2 at 3 GiB leave
/// between 0.74 and 0.79 GiB for them.
const IMPLIED: f64 = 0.76;

#[test]
fn official_sizes() {
    let (block, fixed) = dit_sizes();
    assert!((block as f64 / GIB - 0.21).abs() < 0.005, "{block}");
    assert!(((fixed + 2 * block) as f64 / GIB - 1.03).abs() < 0.005, "{fixed}");
    assert!((42.0 * block as f64 / GIB - 8.86).abs() < 0.01);
}

#[test]
fn resident_blocks_under_a_budget() {
    for (budget, blocks) in [(6.0, 17), (3.0, 2)] {
        let plan = run(1.5, IMPLIED, 15.9, Some(budget)).unwrap();
        let dit = &plan.stages[2];
        assert_eq!(dit.resident_blocks(), blocks, "--vram-budget {budget}");
        assert_eq!((dit.source, dit.slots), (Source::Host, 2));
        assert!(dit.peak() + RESERVE <= bytes(budget));
    }
}

#[test]
fn a_card_with_room_keeps_all_blocks_and_needs_no_slots() {
    let dit = run(1.5, IMPLIED, 15.9, None).unwrap().stages.remove(2);
    assert_eq!((dit.resident_blocks(), dit.slots, dit.source), (42, 0, Source::Resident));
    let dit = run(1.5, IMPLIED, 8.0, None).unwrap().stages.remove(2);
    assert!(dit.resident_blocks() > 17 && dit.resident_blocks() < 42);
}

#[test]
fn the_budget_for_so_many_blocks_keeps_so_many() {
    let planned = |budget: Option<u64>| {
        let limits = Limits { budget, ..limits(None) };
        let plan = Plan::new(&vae(1.5), &[text_encoder(), dit(IMPLIED)], card(15.9), limits);
        plan.unwrap().stages.remove(2)
    };
    let all = planned(None);
    for count in [0, 1, 17, 21, 39, 42] {
        assert_eq!(planned(Some(all.budget(count))).resident_blocks(), count);
    }
    assert_eq!(planned(Some(all.budget(40))).resident_blocks(), 42, "two slots hold the last two");
}

#[test]
fn the_decode_must_fit_beside_the_kept_weights() {
    for (side, decode) in [(1024, 1.5), (1456, 3.0), (2048, 6.0)] {
        let budget = Limits { budget: Some(bytes(decode) + bytes(0.1)), ..limits(None) };
        assert!(Plan::new(&vae(decode), &[], card(16.0), budget).is_ok(), "{side}");
        let budget = Limits { budget: Some(bytes(decode)), ..limits(None) };
        let refused = Plan::new(&vae(decode), &[], card(16.0), budget);
        let Err(Refusal::Device { stage, needs, budget, .. }) = refused else {
            panic!("{side}: a budget without room for the weights must be refused")
        };
        assert_eq!((stage.as_str(), budget), ("vae", true));
        assert_eq!(needs, bytes(decode) + bytes(0.1));
    }
    let text = run(6.0, 0.3, 5.0, None).unwrap_err().to_string();
    assert!(text.contains("vae needs at least 6.10 GiB") && text.contains("free are 5.00 GiB"), "{text}");
}

#[test]
fn the_text_encoder_never_has_more_than_two_layers_on_the_device() {
    let plan = run(1.5, IMPLIED, 100.0, None).unwrap();
    let text = &plan.stages[1];
    assert_eq!((text.source, text.slots, text.resident_blocks()), (Source::Files, 2, 0));
    assert_eq!(text.peak(), bytes(0.1) + 8192 + 2 * bytes(0.43) + bytes(0.05));
}

#[test]
fn activations_or_a_budget_below_the_minimum_are_refused_with_sizes() {
    let text = run(1.5, 20.0, 16.0, None).unwrap_err().to_string();
    assert!(text.contains("dit needs at least") && text.contains("20.00 GiB activations"), "{text}");
    let text = run(0.5, IMPLIED, 16.0, Some(2.0)).unwrap_err().to_string();
    assert!(text.contains("--vram-budget allows 2.00 GiB") && text.contains("0.42 GiB slots"), "{text}");
}

#[test]
fn the_smallest_budget_streams_every_block_and_one_byte_less_is_refused() {
    let demand = dit(IMPLIED);
    let least = demand.fixed + 2 * demand.blocks[0] + demand.activations + RESERVE;
    let at = |budget: u64| {
        let limits = Limits { budget: Some(budget), ..limits(None) };
        Plan::new(&none(), std::slice::from_ref(&demand), card(16.0), limits)
    };
    assert_eq!(at(least).unwrap().stages[1].resident_blocks(), 0);
    assert!(at(least - 1).is_err());
    assert_eq!(at(least + demand.blocks[0]).unwrap().stages[1].resident_blocks(), 1);
}

#[test]
fn streamed_blocks_need_host_memory() {
    let plan = |host: f64, pinned: Option<f64>| {
        let limits =
            Limits { budget: Some(bytes(3.0)), host_available: bytes(host), pinned: pinned.map(bytes) };
        Plan::new(&vae(1.5), &[dit(IMPLIED)], card(16.0), limits)
    };
    let Err(Refusal::Host { blocks, needs, available, .. }) = plan(8.0, None) else {
        panic!("8 GiB hold no 40 blocks")
    };
    assert_eq!((blocks, available), (40, bytes(8.0)));
    assert_eq!(needs, 40 * dit_sizes().0 + RING_BYTES);
    // Half of the host's memory is pinned at most, or what is asked for.
    assert_eq!(plan(60.0, None).unwrap().stages[1].pinned_blocks, 40);
    assert_eq!(plan(9.0, None).unwrap().stages[1].pinned_blocks, 21);
    assert_eq!(plan(60.0, Some(1.0)).unwrap().stages[1].pinned_blocks, 4);
    assert_eq!(plan(60.0, Some(0.0)).unwrap().stages[1].pinned_blocks, 0);
}

#[test]
fn pinned_memory_stays_within_what_the_driver_lets_the_gpu_map() {
    let mut device = card(16.0);
    device.sysfs.gtt_total = bytes(4.0);
    device.sysfs.gtt_used = bytes(1.0);
    let plan = Plan::new(&none(), &[dit(IMPLIED)], device, limits(Some(3.0))).unwrap();
    assert_eq!(plan.stages[1].pinned_blocks, 8, "60 % of 3 GiB are 8 blocks of 0.21 GiB");
}

#[test]
fn free_memory_is_the_smaller_answer_and_a_zero_is_none() {
    let memory = |hip: f64, total: f64, used: f64, unified: bool| DeviceMemory {
        hip_free: bytes(hip),
        hip_total: bytes(hip),
        sysfs: SysfsMemory {
            vram_total: bytes(total),
            vram_used: bytes(used),
            gtt_total: bytes(30.0),
            gtt_used: 0,
        },
        unified,
    };
    assert_eq!(memory(15.0, 16.0, 4.0, false).free(), Some(bytes(12.0)));
    assert_eq!(memory(9.0, 16.0, 4.0, false).free(), Some(bytes(9.0)));
    assert_eq!(memory(0.0, 16.0, 4.0, false).free(), Some(bytes(12.0)));
    assert_eq!(memory(9.0, 0.0, 0.0, false).free(), Some(bytes(9.0)));
    assert_eq!(memory(0.0, 0.0, 0.0, false).free(), None);
    assert_eq!(memory(9.0, 16.0, 16.0, false).free(), Some(0), "full is full");
    let full = DeviceMemory { hip_free: 0, ..memory(16.0, 16.0, 0.0, false) };
    assert_eq!(full.free(), Some(0), "by HIP too");
    let planned = Plan::new(&none(), &[dit(0.1)], memory(16.0, 16.0, 16.0, false), limits(None));
    let text = planned.unwrap_err().to_string();
    assert!(text.contains("dit needs at least") && text.contains("free are 0 bytes"), "{text}");
    let unknown = Plan::new(&none(), &[dit(0.1)], DeviceMemory::default(), limits(None)).unwrap_err();
    assert_eq!(unknown, Refusal::Unknown);
    assert!(unknown.to_string().contains("--vram-budget"));
    assert!(Plan::new(&none(), &[dit(0.1)], DeviceMemory::default(), limits(Some(4.0))).is_ok());
}

/// 512 MiB set aside at boot and 48 GiB that the GPU may map, of which the host has 40 to give.
#[test]
fn on_unified_memory_what_the_gpu_may_map_counts() {
    let sysfs = SysfsMemory {
        vram_total: 512 << 20,
        vram_used: 100 << 20,
        gtt_total: bytes(48.0),
        gtt_used: bytes(1.0),
    };
    let apu = DeviceMemory { hip_free: 400 << 20, hip_total: 512 << 20, sysfs, unified: true };
    assert_eq!(apu.free(), Some((412 << 20) + bytes(47.0)));
    assert_eq!(apu.reserve(), RESERVE);
    let limits = |host: f64| Limits { host_available: bytes(host), ..limits(None) };
    assert_eq!(apu.capacity(&limits(40.0)), Ok((412 << 20) + bytes(40.0)));
    let plan = Plan::new(&vae(1.5), &[text_encoder(), dit(IMPLIED)], apu, limits(40.0)).unwrap();
    assert_eq!(plan.stages[2].resident_blocks(), 42);
    let discrete = DeviceMemory { unified: false, ..apu };
    assert_eq!(discrete.free(), Some(400 << 20), "a card's memory is its own");
    let hip_knows = DeviceMemory { hip_free: bytes(60.0), hip_total: bytes(64.0), ..apu };
    assert_eq!(hip_knows.free(), Some(bytes(60.0)), "the carve-out is not the limit");
}

#[test]
fn the_reserve_shrinks_with_the_device() {
    let small = |name: &str| StageDemand {
        name: name.into(),
        fixed: 1 << 20,
        blocks: vec![2 << 20; 7],
        resident_limit: usize::MAX,
        activations: 8 << 20,
    };
    let apu = DeviceMemory { unified: true, ..card(0.5) };
    assert_eq!(apu.reserve(), 32 << 20);
    let plan = Plan::new(&none(), &[small("dit")], apu, limits(None)).unwrap();
    assert_eq!(plan.stages[1].resident_blocks(), 7, "a model of 15 MB on 512 MiB");
    assert_eq!([8.0, 16.0, 24.0].map(|gib| card(gib).reserve()), [RESERVE; 3]);
    assert_eq!(DeviceMemory::default().reserve(), RESERVE);
}

#[test]
fn one_message_says_what_the_whole_run_needs() {
    let text = run(0.01, IMPLIED, 16.0, Some(0.05)).unwrap_err().to_string();
    assert!(text.starts_with("dit needs at least 2."), "the most of all stages, not the first: {text}");
    let Err(Refusal::Device { needs, .. }) = run(0.01, IMPLIED, 16.0, Some(0.05)) else { panic!("refused") };
    let enough = Limits { budget: Some(needs), ..limits(None) };
    assert!(Plan::new(&vae(0.01), &[text_encoder(), dit(IMPLIED)], card(16.0), enough).is_ok());
}

#[test]
fn after_a_failed_allocation_fewer_blocks_stay_down_to_one_slot() {
    let plan = run(1.5, IMPLIED, 15.9, None).unwrap();
    let (device, limits) = (plan.device, plan.limits);
    let mut dit = plan.stages[2].clone();
    let counts: Vec<(usize, usize)> = std::iter::from_fn(|| {
        let fewer = dit.fewer(0, &device, &limits).unwrap();
        (fewer != dit).then(|| {
            dit = fewer;
            (dit.resident_blocks(), dit.slots)
        })
    })
    .collect();
    assert_eq!(counts, [(21, 2), (10, 2), (5, 2), (2, 2), (1, 2), (0, 2), (0, 1)]);
    let all = &plan.stages[2];
    let had = all.demand.fixed + 30 * all.slot_bytes;
    let fewer = all.fewer(had, &device, &limits).unwrap();
    assert!(fewer.resident_blocks() > 20 && fewer.peak() <= all.kept + had, "{fewer}");
    assert_eq!((fewer.source, fewer.pinned_blocks), (Source::Host, 42 - fewer.resident_blocks()));
    let few = Limits { host_available: bytes(1.0), ..limits };
    assert!(matches!(all.fewer(had, &device, &few), Err(Refusal::Host { .. })));
    assert_eq!(plan.stages[0].fewer(0, &device, &limits), Ok(plan.stages[0].clone()), "no blocks");
}

#[test]
fn unified_memory_streams_nothing_through_slots_and_says_so() {
    let device = DeviceMemory { unified: true, ..card(4.0) };
    let plan = Plan::new(&none(), &[dit(IMPLIED)], device, limits(None)).unwrap();
    assert_eq!((plan.stages[1].source, plan.stages[1].slots), (Source::InPlace, 0));
    assert!(plan.to_string().contains("unified memory"));
}

#[test]
fn resident_blocks_are_spread() {
    assert_eq!(spread(4, 2), [false, true, false, true]);
    for (n, count) in [(42, 17), (42, 41), (42, 0), (1, 0), (5, 5)] {
        let chosen = spread(n, count);
        assert_eq!(chosen.iter().filter(|&&r| r).count(), count);
        // No two gaps differ by more than one.
        let at: Vec<usize> = (0..n).filter(|&i| chosen[i]).collect();
        let gaps: Vec<usize> = at.windows(2).map(|w| w[1] - w[0]).collect();
        if let (Some(min), Some(max)) = (gaps.iter().min(), gaps.iter().max()) {
            assert!(max - min <= 1);
        }
    }
}

#[test]
fn the_plan_is_printed_with_every_size() {
    let text = run(1.5, IMPLIED, 15.9, Some(6.0)).unwrap().to_string();
    for part in [
        "memory: 6.00 GiB usable",
        "by the driver no answer",
        "vae: 0.10 GiB weights, kept, 1.50 GiB activations, peak 1.60 GiB",
        "32 blocks streamed from the files through 2 slots of 0.43 GiB",
        "17 of 42 blocks on the device (3.59 GiB), 25 in host memory (5.27 GiB, 25 pinned)",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
}
