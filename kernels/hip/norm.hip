// norm: RMS norm of each row, with optional modulation.
//   x [tokens, width], weight [width], scale and shift [width] or none, out [tokens, width]: bf16.
//   s = tree256 of x*x, r = 1 / sqrt(s / width + eps); y = bf16(bf16(x r) w), or zero-centred bf16(x r (1 + w));
//   with modulation out = bf16(bf16(y bf16(1 + scale)) + shift).
// Grid ceil(tokens / 8), 256 threads: a wave a row, lane i with the columns 8i + 256m .. + 7, which are its eight partials.
// width a multiple of 16.
// budget: threads 256, vgpr 64, lds 0, wmma 0
#include "codes.h"
#include "moss.h"

KERNEL(256) void norm(const bf16* __restrict__ x, const bf16* __restrict__ weight, const bf16* __restrict__ scale,
                      const bf16* __restrict__ shift, bf16* __restrict__ out, int tokens, int width, float eps, int kind) {
    int row = group_x() * 8 + wave_id();
    if (row >= tokens) return;
    int first = lane_id() * 8;
    const bf16* from = x + (i64)row * width;
    bf16* to = out + (i64)row * width;

    float p[8] = {};
    for (int c = first; c < width; c += 256) {
        Eight v = load8(from + c);
        for (int e = 0; e < 8; e++) p[e] = fma(v.at[e], v.at[e], p[e]);
    }
    float r = 1.0f / __builtin_sqrtf(tree256(p) / (float)width + eps);

    for (int c = first; c < width; c += 256) {
        Eight v = load8(from + c), w = load8(weight + c);
        for (int e = 0; e < 8; e++) {
            float n = v.at[e] * r;
            v.at[e] = kind == NORM_KIND_PLAIN ? round_bf16(n) * w.at[e] : n * (1.0f + w.at[e]);
        }
        if (scale) {
            Eight a = load8(scale + c), b = load8(shift + c);
            for (int e = 0; e < 8; e++)
                v.at[e] = round_bf16(round_bf16(v.at[e]) * round_bf16(1.0f + a.at[e])) + b.at[e];
        }
        store8(to + c, v);
    }
}
