#include "prelude.h"
// One planted bug a kernel. Every kernel takes (u32 *buf, u32 n); buf has 256 elements.
#define KERNEL(name) extern "C" __global__ void BOUNDS(256) name(u32 *buf, u32 n)

KERNEL(read_past_the_end) {
    u32 v = buf[TID + 1];
    if (v == n) buf[TID] = v;
}

KERNEL(write_before_the_start) { buf[(int)TID - 1] = n; }

KERNEL(write_to_constants) {
    static const __attribute__((constant)) u32 table[4] = {1, 2, 3, 4};
    u32 *p = (u32 *)(const u32 *)table;
    if (TID == 7) *(volatile u32 *)(p + n % 4) = n;
    buf[TID] = p[TID % 4];
}

KERNEL(misaligned) {
    u8 *p = (u8 *)buf + 4 * TID + (TID == 9 ? 2 : 0);
    u32 v;
    asm volatile("global_load_b32 %0, %1, off" : "=v"(v) : "v"(p));
    buf[TID] = v;
}

KERNEL(missing_barrier) {
    __shared__ u32 x[256];
    x[TID] = n + TID;
    if (n != 0) buf[TID] = x[255 - TID];
}

KERNEL(with_barrier) {
    __shared__ u32 x[256];
    x[TID] = n + TID;
    barrier();
    if (n != 0) buf[TID] = x[255 - TID];
}

// Overwrites what other waves may still read.
KERNEL(missing_second_barrier) {
    __shared__ u32 x[256];
    u32 sum = 0;
    for (u32 i = 0; i < n; ++i) {
        x[TID] = i + TID;
        barrier();
        sum += x[255 - TID];
    }
    buf[TID] = sum;
}

KERNEL(uninitialised_lds) {
    __shared__ u32 x[256];
    if (TID != 70) x[TID] = n;
    barrier();
    buf[TID] = x[TID];
}

KERNEL(lds_past_the_end) {
    extern __shared__ u32 dynamic[];
    dynamic[TID] = n;
    buf[TID] = dynamic[TID];
}

KERNEL(uninitialised_register) {
    u32 v;
    asm volatile("" : "=v"(v));
    buf[TID] = v + n;
}

KERNEL(uninitialised_address) {
    u64 p;
    asm volatile("" : "=v"(p));
    *(volatile u32 *)p = n;
}

KERNEL(uninitialised_comparison) {
    u32 v;
    asm volatile("" : "=v"(v));
    buf[TID] = v > n ? 1 : 2;
}

KERNEL(not_all_waves_reach_the_barrier) {
    __shared__ u32 x[256];
    x[TID] = n;
    if (TID / 32 == 2) return;
    asm volatile("" ::: "memory");
    __builtin_amdgcn_s_barrier();
    buf[TID] = x[TID];
}

KERNEL(endless) {
    volatile u32 *p = buf;
    while (p[0] != 12345) {}
}

KERNEL(trap) { __builtin_trap(); }

typedef float f32x8 __attribute__((ext_vector_type(8)));
typedef short s16x8 __attribute__((ext_vector_type(8)));
typedef short s16x16 __attribute__((ext_vector_type(16)));

KERNEL(halves_differ) {
#if defined(__gfx1200__) || defined(__gfx1201__)
    s16x8 a = (s16x8)(short)TID;
    f32x8 c = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a, a, (f32x8)0.0f);
#else
    s16x16 a = (s16x16)(short)TID;
    f32x8 c = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, a, (f32x8)0.0f);
#endif
    buf[TID] = __builtin_bit_cast(u32, c[n % 8]);
}

// 0xffffffff is in no opcode table.
KERNEL(no_instruction) {
    asm volatile(".long 0xfffffff1\n s_nop 0\n s_nop 0");
    buf[TID] = n;
}

KERNEL(refused) {
    asm volatile("s_sethalt 1");
    buf[TID] = n;
}

KERNEL(misaligned_lds) {
    __shared__ u32 x[256];
    x[TID] = n;
    barrier();
    u32 v, at = 4 * TID + (TID == 9 ? 2 : 0);
    asm volatile("ds_load_b32 %0, %1" : "=v"(v) : "v"(at), "v"(x));
    buf[TID] = v;
}

KERNEL(scratch_past_the_end) {
    volatile u32 local[8];
    local[n] = TID;
    buf[TID] = local[n * 1000];
}

KERNEL(signalled_twice) {
#if defined(__gfx1200__) || defined(__gfx1201__)
    asm volatile("s_barrier_signal -1\n s_barrier_signal -1\n s_barrier_wait -1");
#endif
    buf[TID] = n;
}

KERNEL(jump_into_data) {
    asm volatile("s_setpc_b64 %0" ::"s"(buf));
    buf[TID] = n;
}
