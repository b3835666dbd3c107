// sigmoid_gate: out = bf16(x bf16(sigmoid(gate))).
//   x, out [tokens, heads dim], gate [tokens, stride] with head i at columns first + i step .. + dim: bf16.
// Eight columns a thread, 256 threads a workgroup. dim a multiple of 8.
// budget: threads 256, vgpr 72, lds 0, wmma 0
#include "math.h"

KERNEL(256) void sigmoid_gate(const bf16* __restrict__ x, const bf16* __restrict__ gate, bf16* __restrict__ out, int tokens,
                              int stride, int first, int step, int heads, int dim) {
    u32 width = (u32)heads * dim;
    u32 unit = group_x() * 256u + thread_id();
    u32 token = unit / (width >> 3), c = (unit - token * (width >> 3)) * 8;
    if (token >= (u32)tokens) return;
    u32 head = c / dim;
    Eight v = load8(x + (u64)token * width + c);
    Eight g = load8(gate + (u64)token * stride + first + (u64)head * step + (c - head * dim));
    for (int e = 0; e < 8; e++) v.at[e] = v.at[e] * round_bf16(math::sigmoid(g.at[e]));
    store8(out + (u64)token * width + c, v);
}
