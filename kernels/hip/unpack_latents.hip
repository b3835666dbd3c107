// unpack_latents: z = x sqrt(var + eps) + mean per packed channel, not fused; channel 4c + 2i + j of token (y, x) goes to
// channel c of pixel (2y + i, 2x + j).
//   x [height width, 4 channels], mean, var [4 channels], out [2 height, 2 width, channels]: f32.
// One element of the result a thread.
// budget: threads 256, vgpr 16, lds 0, wmma 0
#include "moss.h"

KERNEL(256) void unpack_latents(const float* __restrict__ x, const float* __restrict__ mean, const float* __restrict__ var,
                                float* __restrict__ out, int height, int width, int channels, float eps) {
    u32 at = group_x() * 256u + thread_id();
    u32 pixel = at / channels, c = at - pixel * channels;
    u32 row = pixel / (2u * width), column = pixel - row * 2u * width;
    if (row >= 2u * height) return;
    u32 packed = 4 * c + 2 * (row & 1) + (column & 1);
    u64 token = (u64)(row >> 1) * width + (column >> 1);
    out[at] = x[token * 4 * channels + packed] * __builtin_sqrtf(var[packed] + eps) + mean[packed];
}
