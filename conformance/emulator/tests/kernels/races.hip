// Global memory that waves or workgroups share, rightly and wrongly.
#include "prelude.h"

#define KERNEL extern "C" __global__ void BOUNDS(64)

static __device__ u32 add(u32 *p, u32 v) {
    return __hip_atomic_fetch_add(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

// Wrong: both workgroups write the same word.
KERNEL two_writers(u32 *p) {
    if (TID == 3) p[7] = WG;
}

// Wrong: workgroup 0 writes what all read.
KERNEL writer_and_readers(u32 *p) {
    p[64 + 64 * WG + TID] = p[5];
    if (WG == 0 && TID == 40) p[5] = 1;
}

// Wrong: the second wave reads what the first writes.
KERNEL waves_without_barrier(u32 *p) {
    p[64 * WG + TID] = TID;
    __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup");
    p[256 + 64 * WG + TID] = p[64 * WG + 63 - TID];
}

// Wrong: the first wave overwrites what the second has yet to read.
KERNEL waves_write_after_read(u32 *p) {
    u32 v = p[64 * WG + 63 - TID];
    __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup");
    p[64 * WG + TID] = v;
}

// Wrong: a plain store beside an atomic operation.
KERNEL store_and_atomic(u32 *p) {
    if (WG == 0) p[9] = 0;
    else add(p + 9, 1);
}

// Right: the same words read by all, own words written.
KERNEL shared_reads(const u32 *p, u32 *q) {
    q[64 * WG + TID] = p[TID] + p[0];
}

// Right: halves and bytes of one word that belong to different workgroups.
KERNEL neighbours(u16 *h, u8 *b) {
    h[64 * WG + TID + 1] = (u16)TID;
    if (TID < 3) b[3 * WG + TID] = 1;
}

// Right: a barrier between the waves.
KERNEL waves_with_barrier(u32 *p) {
    p[64 * WG + TID] = TID;
    barrier();
    u32 v = p[64 * WG + 63 - TID];
    barrier();
    p[64 * WG + TID] = v;
}

// Right: atomic operations of all.
KERNEL counts(u32 *p) {
    add(p, 1);
    add(p + 1 + TID % 2, TID);
}

// Right: partial results published through a counter, summed by whoever comes last.
KERNEL last_block(u32 *p, u32 groups) {
    if (TID == 0) {
        p[1 + WG] = WG + 1;
        __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
        if (add(p, 1) == groups - 1) {
            __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
            u32 sum = 0;
            for (u32 g = 0; g < groups; ++g) sum += p[1 + g];
            p[100] = sum;
        }
    }
}
