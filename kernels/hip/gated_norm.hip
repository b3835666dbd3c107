// gated_norm: out = bf16(bf16(w bf16(x r)) silu(z)) for each head, r as in norm.hip over the head.
//   x, z, out [tokens, heads dim], weight [dim]: bf16.
// Grid ceil(tokens heads / 8), 256 threads: a wave a head, lane i with the columns 8i .. 8i + 7. dim a multiple of 16, at most
// 256.
// budget: threads 256, vgpr 72, lds 0, wmma 0
#include "math.h"

KERNEL(256) void gated_norm(const bf16* __restrict__ x, const bf16* __restrict__ z, const bf16* __restrict__ weight,
                            bf16* __restrict__ out, int tokens, int heads, int dim, float eps) {
    int row = group_x() * 8 + wave_id();
    if (row >= tokens * heads) return;
    int c = lane_id() * 8;
    i64 at = (i64)row * dim + c;
    bool used = c < dim;

    Eight v = {};
    if (used) v = load8(x + at);
    float p[8];
    for (int e = 0; e < 8; e++) p[e] = fma(v.at[e], v.at[e], 0.0f);
    float r = 1.0f / __builtin_sqrtf(tree256(p) / (float)dim + eps);
    if (!used) return;
    Eight gate = load8(z + at), w = load8(weight + c);
    for (int e = 0; e < 8; e++)
        v.at[e] = round_bf16(w.at[e] * round_bf16(v.at[e] * r)) * math::silu(gate.at[e]);
    store8(out + at, v);
}
