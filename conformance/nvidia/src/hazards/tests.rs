use super::*;

const SLOT: u64 = 0x1000;
const OTHER: u64 = 0x9000;
const PIN: u64 = 0x10_0000;
const COMPUTE: StreamId = 1;
const COPY: StreamId = 2;
const READY: u64 = 71;
const RELEASED: u64 = 72;

/// Two device allocations and pinned memory.
fn machine() -> Hazards {
    let mut h = Hazards::default();
    h.allocated(SLOT, 0x100);
    h.allocated(OTHER, 0x100);
    h.pinned(PIN, 0x100);
    h
}

/// Host bytes that never change.
fn same(range: Range<u64>) -> Vec<u8> {
    vec![7; (range.end - range.start) as usize]
}

fn fill(h: &mut Hazards) {
    h.copy_in(COPY, SLOT, PIN..PIN + 0x40, &same);
    h.recorded(READY, COPY);
}

fn run(h: &mut Hazards) {
    h.launch(COMPUTE, "linear", &[0u64.to_ne_bytes(), (SLOT + 16).to_ne_bytes()].concat());
    h.recorded(RELEASED, COMPUTE);
}

#[test]
fn a_slot_that_is_filled_and_read_in_order_has_no_hazard() {
    let mut h = machine();
    for _ in 0..3 {
        fill(&mut h);
        h.waits(COMPUTE, READY);
        run(&mut h);
        h.waits(COPY, RELEASED);
    }
    assert!(h.take().is_empty());
}

#[test]
fn either_wait_of_a_slot_is_needed() {
    let mut h = machine();
    fill(&mut h);
    run(&mut h);
    assert_eq!(h.take(), ["linear on stream 1 is not ordered after a copy to the device on stream 2"]);

    let mut h = machine();
    fill(&mut h);
    h.waits(COMPUTE, READY);
    run(&mut h);
    fill(&mut h);
    assert_eq!(h.take(), ["a copy to the device on stream 2 is not ordered after linear on stream 1"]);
}

#[test]
fn an_event_orders_what_was_there_when_it_was_recorded() {
    let mut h = machine();
    h.recorded(READY, COPY);
    h.copy_in(COPY, SLOT, PIN..PIN + 0x40, &same);
    h.waits(COMPUTE, READY);
    run(&mut h);
    assert_eq!(h.take().len(), 1);
}

#[test]
fn order_goes_through_a_third_stream_and_through_the_host() {
    let mut h = machine();
    fill(&mut h);
    h.waits(3, READY);
    h.recorded(99, 3);
    h.waits(COMPUTE, 99);
    run(&mut h);
    assert!(h.take().is_empty());

    let mut h = machine();
    fill(&mut h);
    h.done(READY);
    run(&mut h);
    assert!(h.take().is_empty());
}

#[test]
fn what_another_thread_has_waited_for_is_no_order() {
    let mut h = machine();
    fill(&mut h);
    h.done(READY);
    h.enter(std::thread::current().id());
    run(&mut h);
    assert_eq!(h.take().len(), 1);
}

#[test]
fn reads_need_no_order_among_themselves_and_writes_do() {
    let mut h = machine();
    h.copy_on(COMPUTE, OTHER, SLOT);
    h.copy_out(COPY, PIN..PIN + 8, SLOT);
    assert!(h.take().is_empty());
    h.copy_in(3, SLOT, PIN + 0x80..PIN + 0x88, &same);
    assert_eq!(h.take().len(), 2, "after both reads");
}

#[test]
fn one_launch_may_use_an_allocation_twice_and_numbers_are_no_addresses() {
    let mut h = machine();
    let arguments: Vec<u8> =
        [SLOT, SLOT + 0x80, SLOT + 0x100, 5].iter().flat_map(|x| x.to_ne_bytes()).collect();
    h.launch(COMPUTE, "linear", &arguments);
    h.copy_on(COMPUTE, SLOT, SLOT + 0x80);
    assert!(h.take().is_empty());
}

#[test]
fn pinned_memory_that_changes_under_a_copy_is_found() {
    let changed = |range: Range<u64>| vec![8; (range.end - range.start) as usize];
    let mut h = machine();
    fill(&mut h);
    h.copy_in(COPY, OTHER, PIN + 0x20..PIN + 0x60, &changed);
    assert_eq!(
        h.take(),
        ["the host has changed pinned memory without waiting for a copy to the device on stream 2"]
    );

    // The same bytes may be copied again, and others once the host has waited.
    let mut h = machine();
    fill(&mut h);
    h.copy_in(COPY, OTHER, PIN..PIN + 0x40, &same);
    h.recorded(READY, COPY);
    h.done(READY);
    h.copy_in(COPY, OTHER, PIN..PIN + 0x40, &changed);
    assert!(h.take().is_empty());
}

#[test]
fn what_came_to_the_host_is_waited_for_before_the_memory_is_used_again() {
    let out = |h: &mut Hazards| h.copy_out(COMPUTE, PIN..PIN + 0x40, SLOT);
    let mut h = machine();
    out(&mut h);
    out(&mut h);
    h.copy_in(COMPUTE, OTHER, PIN..PIN + 8, &same);
    assert_eq!(h.take().len(), 3, "one by the second copy, two by the third");

    let mut h = machine();
    out(&mut h);
    h.recorded(READY, COMPUTE);
    h.done(READY);
    out(&mut h);
    assert!(h.take().is_empty());
    h.ended();
    assert_eq!(h.take(), ["the host has never waited for a copy to the host on stream 1"]);
}

#[test]
fn a_copy_out_of_pinned_memory_is_over_before_one_into_it() {
    let mut h = machine();
    h.copy_in(COMPUTE, OTHER, PIN..PIN + 0x40, &same);
    h.copy_out(COMPUTE, PIN..PIN + 0x40, OTHER);
    assert!(h.take().is_empty(), "one stream");
    let mut h = machine();
    h.copy_in(COPY, OTHER, PIN..PIN + 0x40, &same);
    h.copy_out(COMPUTE, PIN..PIN + 0x40, SLOT);
    assert_eq!(
        h.take(),
        ["a copy to the host on stream 1 is not ordered after a copy to the device on stream 2"]
    );
}

#[test]
fn a_copy_to_pageable_memory_is_a_wait() {
    let mut h = machine();
    fill(&mut h);
    h.waits(COMPUTE, READY);
    run(&mut h);
    h.copy_out(COMPUTE, 0x50_0000..0x50_0010, SLOT);
    fill(&mut h);
    assert!(h.take().is_empty());
}

#[test]
fn pinned_memory_is_freed_after_its_copies() {
    let mut h = machine();
    fill(&mut h);
    h.unpinned(PIN);
    assert_eq!(
        h.take(),
        ["pinned memory is freed; the host has not waited for a copy to the device on stream 2"]
    );
    let mut h = machine();
    fill(&mut h);
    h.done(READY);
    h.unpinned(PIN);
    assert!(h.take().is_empty());
}

#[test]
fn memory_that_is_allocated_anew_has_no_past() {
    let mut h = machine();
    fill(&mut h);
    h.freed(SLOT);
    h.allocated(SLOT, 0x100);
    run(&mut h);
    assert!(h.take().is_empty());
}
