// to_bf16: out[i] = bf16(x[i]).
//   x [count] f32, out [count] bf16.
// One element a thread.
// budget: threads 256, vgpr 16, lds 0, wmma 0
#include "moss.h"

KERNEL(256) void to_bf16(const float* __restrict__ x, bf16* __restrict__ out, int count) {
    u32 i = group_x() * 256u + thread_id();
    if (i < (u32)count) out[i] = to_bf16(x[i]);
}
