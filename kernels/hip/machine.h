// The machine layer: types and attributes, and what differs from one vendor to the other. No other header and no kernel holds a
// builtin of a vendor, an attribute or an assembler line.
//
// AMD's GPUs are what the kernels are written for. The same text compiles for nvptx64, so that it can be run on real parallel
// hardware where no Radeon is: a logic check of races, barriers and sizes, not of speed. Waves have 32 lanes on both.
#pragma once

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
typedef u16 bf16; // the bits

typedef u32 u32x4 __attribute__((ext_vector_type(4)));
typedef u32 u32x8 __attribute__((ext_vector_type(8)));
typedef float f32x4 __attribute__((ext_vector_type(4)));
typedef float f32x8 __attribute__((ext_vector_type(8)));
typedef short i16x8 __attribute__((ext_vector_type(8)));
typedef short i16x16 __attribute__((ext_vector_type(16)));

#define DEVICE static inline __attribute__((device, always_inline))
#define DEVICE_MEMBER inline __attribute__((device, always_inline))
#define UNROLL _Pragma("unroll")
// Arrays of a workgroup are read 16 bytes at a time.
#define SHARED static __attribute__((shared, aligned(16)))
// One array whose size the launch gives.
#define SHARED_BY_LAUNCH extern __attribute__((shared, aligned(16)))

#if defined(__NVPTX__)

#define KERNEL(threads) extern "C" __attribute__((global, launch_bounds(threads)))

DEVICE int thread_id() { return __nvvm_read_ptx_sreg_tid_x(); }
DEVICE int lane_id() { return thread_id() & 31; }
DEVICE int wave_id() { return thread_id() >> 5; }
DEVICE int group_x() { return __nvvm_read_ptx_sreg_ctaid_x(); }
DEVICE int group_y() { return __nvvm_read_ptx_sreg_ctaid_y(); }

DEVICE void barrier() { __syncthreads(); }

DEVICE int hidden(int x) {
    asm volatile("" : "+r"(x));
    return x;
}

// Shuffles name all lanes: no kernel lets lanes leave before an exchange.
DEVICE u32 from_lane(u32 x, int lane) { return __nvvm_shfl_sync_idx_i32(0xffffffffu, x, lane, 31); }
template <int MASK> DEVICE u32 exchange(u32 x) { return __nvvm_shfl_sync_bfly_i32(0xffffffffu, x, MASK, 31); }

// In two factors, each a normal number for the n of math.h, from -150 to 128. x is between 1/2 and 2 there: the first product is
// exact and the second is rounded once. A NaN stays one.
DEVICE float ldexp(float x, int n) {
    int half = n / 2;
    float first = __builtin_bit_cast(float, (u32)(127 + half) << 23);
    float second = __builtin_bit_cast(float, (u32)(127 + n - half) << 23);
    return x * first * second;
}

#else

#define KERNEL(threads) \
    extern "C" __attribute__((global, amdgpu_flat_work_group_size(threads, threads)))

DEVICE int thread_id() { return __builtin_amdgcn_workitem_id_x(); }
DEVICE int lane_id() { return thread_id() & 31; }
// The same in all lanes of a wave, and known to be.
DEVICE int wave_id() { return __builtin_amdgcn_readfirstlane(thread_id() >> 5); }
DEVICE int group_x() { return __builtin_amdgcn_workgroup_id_x(); }
DEVICE int group_y() { return __builtin_amdgcn_workgroup_id_y(); }

// All threads of the workgroup have come here, and see what the others wrote to LDS before.
DEVICE void barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
}

// x, of which the compiler does not know that it is x.
DEVICE int hidden(int x) {
    asm volatile("" : "+v"(x));
    return x;
}

// The value of lane `lane`, which may be another one in each lane.
DEVICE u32 from_lane(u32 x, int lane) { return __builtin_amdgcn_ds_bpermute(lane * 4, x); }

// The value of lane `lane ^ MASK`; MASK below 16 is one DPP move, 16 exchanges the halves of the wave.
template <int MASK> DEVICE u32 exchange(u32 x) {
    if constexpr (MASK == 16) {
        u32 other = __builtin_amdgcn_permlanex16(x, x, 0x76543210u, 0xfedcba98u, true, false);
        // Clang 19 moves a permlanex16 into the branch that alone uses it, where the other half is switched off.
        asm volatile("" : "+v"(other));
        return other;
    } else
        return __builtin_amdgcn_update_dpp(x, x, 0x160 + MASK, 0xf, 0xf, true);
}

// x 2^n, rounded once.
DEVICE float ldexp(float x, int n) { return __builtin_amdgcn_ldexpf(x, n); }

// The matrix instruction: D = A B + C, each element a chain over k ascending, C first. Layouts in wmma.h.
#if defined(__GFX12__)
DEVICE f32x8 wmma(i16x8 a, i16x8 b, f32x8 c) { return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a, b, c); }
#else
DEVICE f32x8 wmma(i16x16 a, i16x16 b, f32x8 c) { return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c); }
#endif

#endif
