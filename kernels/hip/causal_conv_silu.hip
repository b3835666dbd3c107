// causal_conv_silu: y = bf16(chain over j of w[c][j] x[t - (width - 1) + j][c]), tokens before the segment left out;
// out = bf16(silu(y)).
//   x, out [T, channels], w [channels, width]: bf16; one segment of length tokens from token first on.
// Eight channels of a token a thread, 256 threads a workgroup. channels a multiple of 8.
// budget: threads 256, vgpr 64, lds 0, wmma 0
#include "math.h"

KERNEL(256) void causal_conv_silu(const bf16* __restrict__ x, const bf16* __restrict__ w, bf16* __restrict__ out, int first,
                                  int length, int channels, int width) {
    u32 unit = group_x() * 256u + thread_id();
    u32 eights = (u32)channels >> 3;
    int t = unit / eights, c = (unit - t * eights) * 8;
    if (t >= length) return;
    const bf16* from = x + (i64)first * channels + c;
    Eight y = {};
    for (int j = 0; j < width; j++) {
        int source = t - (width - 1) + j;
        if (source < 0) continue;
        Eight v = load8(from + (i64)source * channels);
        for (int e = 0; e < 8; e++) y.at[e] = fma(widen(w[(i64)(c + e) * width + j]), v.at[e], y.at[e]);
    }
    for (int e = 0; e < 8; e++) y.at[e] = math::silu(round_bf16(y.at[e]));
    store8(out + ((i64)first + t) * channels + c, y);
}
