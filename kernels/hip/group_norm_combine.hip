// group_norm_combine: sum = tree256 over the slices of a group. The stage of the mean: mean = sum / elements. The stage of the
// coefficients: var = sum / elements, r = 1 / sqrt(var + eps), a = weight r, b = fma(-mean, a, bias).
//   partial [groups, slices], mean [groups], weight, bias [channels], ab [2, channels]: f32.
// Grid groups, 32 threads: lane i has the partials 8i .. 8i + 7.
// budget: threads 32, vgpr 24, lds 0, wmma 0
#include "codes.h"
#include "moss.h"

KERNEL(32) void group_norm_combine(const float* __restrict__ partial, float* mean, const float* __restrict__ weight,
                                   const float* __restrict__ bias, float* __restrict__ ab, int slices, int channels,
                                   int groups, float elements, float eps, int stage) {
    int lane = thread_id(), group = group_x();
    const float* from = partial + (i64)group * slices;
    float p[8] = {};
    for (int s = lane * 8; s < slices; s += 256)
        UNROLL for (int e = 0; e < 8; e++)
            if (s + e < slices) p[e] = p[e] + from[s + e];
    float value = tree256(p) / elements;
    if (stage == COMBINE_STAGE_MEAN) {
        if (lane == 0) mean[group] = value;
        return;
    }
    float r = 1.0f / __builtin_sqrtf(value + eps), centre = mean[group];
    int width = channels / groups;
    for (int i = lane; i < width; i += 32) {
        int c = group * width + i;
        float a = weight[c] * r;
        ab[c] = a;
        ab[channels + c] = fma(-centre, a, bias[c]);
    }
}
