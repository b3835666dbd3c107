// head_norm_rope: norm of each head, then rotary embedding.
//   x [tokens, stride] with head i at columns first + i step .. + dim, weight [dim], cos and sin [tokens, rotary],
//   out [tokens, heads dim]: bf16.
//   y as in norm.hip over the head, no modulation. For j < R = rotary, a = y[j], b = y[j + R]:
//   out[j] = bf16(bf16(a cos[j]) + bf16(-b sin[j])), out[j + R] = bf16(bf16(b cos[j]) + bf16(a sin[j])); the rest is y.
// Grid ceil(tokens heads / 8), 256 threads: a wave a head, lane i with the columns 8i .. 8i + 7. dim a multiple of 16, at most
// 256; rotary a multiple of 8: a lane's partner in the rotation is rotary / 8 lanes away.
// budget: threads 256, vgpr 64, lds 0, wmma 0
#include "codes.h"
#include "moss.h"

KERNEL(256) void head_norm_rope(const bf16* __restrict__ x, const bf16* __restrict__ weight, const bf16* __restrict__ cos,
                                const bf16* __restrict__ sin, bf16* __restrict__ out, int tokens, int stride, int first,
                                int step, int heads, int dim, int rotary, float eps, int kind) {
    int row = group_x() * 8 + wave_id();
    if (row >= tokens * heads) return;
    int token = row / heads, head = row - token * heads;
    int lane = lane_id(), c = lane * 8;
    bool used = c < dim;

    Eight v = {}, w = {};
    if (used) {
        v = load8(x + (i64)token * stride + first + (i64)head * step + c);
        w = load8(weight + c);
    }
    float p[8];
    for (int e = 0; e < 8; e++) p[e] = fma(v.at[e], v.at[e], 0.0f);
    float r = 1.0f / __builtin_sqrtf(tree256(p) / (float)dim + eps);
    for (int e = 0; e < 8; e++) {
        float n = v.at[e] * r;
        v.at[e] = round_bf16(kind == NORM_KIND_PLAIN ? round_bf16(n) * w.at[e] : n * (1.0f + w.at[e]));
    }

    // Every lane takes part in the exchange; what comes from or goes to columns that do not rotate is not used.
    u32x4 own = pack8(v), other;
    bool second = c >= rotary;
    int partner = (second ? lane - (rotary >> 3) : lane + (rotary >> 3)) & 31;
    for (int i = 0; i < 4; i++) other[i] = from_lane(own[i], partner);
    if (!used) return;
    if (c < 2 * rotary) {
        int j = second ? c - rotary : c;
        Eight cosine = load8(cos + (i64)token * rotary + j), sine = load8(sin + (i64)token * rotary + j);
        Eight u = widen8(other);
        for (int e = 0; e < 8; e++) {
            float b = second ? u.at[e] : -u.at[e];
            v.at[e] = round_bf16(v.at[e] * cosine.at[e]) + round_bf16(b * sine.at[e]);
        }
    }
    store8(out + ((i64)token * heads + head) * dim + c, v);
}
