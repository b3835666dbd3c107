// euler_step: v = v_cond, or v_uncond + cfg (v_cond - v_uncond); out = x + dt v. Every operation rounded, none fused.
//   x, out [count] f32, v_cond, v_uncond [count] bf16.
// One element a thread.
// budget: threads 256, vgpr 16, lds 0, wmma 0
#include "moss.h"

KERNEL(256) void euler_step(const float* x, const bf16* __restrict__ v_cond, const bf16* __restrict__ v_uncond, float* out,
                            int count, float cfg, float dt) {
    u32 i = group_x() * 256u + thread_id();
    if (i >= (u32)count) return;
    float v = widen(v_cond[i]);
    if (v_uncond) {
        float u = widen(v_uncond[i]);
        v = u + cfg * (v - u);
    }
    out[i] = x[i] + dt * v;
}
