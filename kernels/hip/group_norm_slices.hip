// group_norm_slices: the sum over each slice of each group, tree256 in the order pixel, then channel.
//   x [pixels, channels], mean [groups] or none, partial [groups, slices]: f32. Without mean the sum of x, with it the sum of
//   (x - mean)(x - mean). A slice is 4096 pixels.
// Grid (slices, groups), 256 threads: thread j has partial j.
// budget: threads 256, vgpr 24, lds 32, wmma 0
#include "moss.h"

constexpr int SLICE = 4096;

KERNEL(256) void group_norm_slices(const float* __restrict__ x, const float* __restrict__ mean, float* __restrict__ partial,
                                   int pixels, int channels, int groups) {
    SHARED float sums[8];
    int thread = thread_id(), slice = group_x(), group = group_y();
    int width = channels / groups;
    int first = slice * SLICE, rest = pixels - first;
    int count = (rest < SLICE ? rest : SLICE) * width;
    const float* from = x + (i64)first * channels + (i64)group * width;

    // Element i is channel i % width of pixel i / width; 256 elements on, both advance by fixed steps.
    int pixel = thread / width, channel = thread - pixel * width;
    int pixel_step = 256 / width, channel_step = 256 - pixel_step * width;
    float centre = mean ? mean[group] : 0.0f;
    float p = 0.0f;
    for (int i = thread; i < count; i += 256) {
        float v = from[(i64)pixel * channels + channel];
        if (mean) {
            float d = v - centre;
            p = fma(d, d, p);
        } else {
            p = p + v;
        }
        pixel += pixel_step;
        channel += channel_step;
        if (channel >= width) {
            channel -= width;
            pixel++;
        }
    }
    float sum = wave_tree(p);
    if (lane_id() == 0) sums[wave_id()] = sum;
    barrier();
    if (thread == 0) {
        float low = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        float high = (sums[4] + sums[5]) + (sums[6] + sums[7]);
        partial[(i64)group * ((pixels + SLICE - 1) / SLICE) + slice] = low + high;
    }
}
