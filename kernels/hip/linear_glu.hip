// linear_glu: out = glu(u, g), u and g the bf16 outputs of x w^T + bias.
//   x [tokens, k], w [2f, k] packed with panels of up and gate in turn (src/pack.rs), bias [2f] (up, then gate) or none,
//   out [tokens, f]: bf16.
//   glu silu: bf16(bf16(silu(g)) * u); situ: a = bf16(4 bf16(tanh(bf16(g / 4)))), p = bf16(a * bf16(sigmoid(g))),
//   bf16(p * bf16(25 bf16(tanh(bf16(u / 25))))).
//   Chain over k ascending in f32, C first.
// Grid (ceil(2f / 64), ceil(tokens / 64)), 128 threads; see gemm.h: a wave's two panels are up and gate of the same sixteen
// outputs, so a lane has both. k and f multiples of 16.
// budget: threads 128, vgpr 112, lds 16384, wmma 8
#include "codes.h"
#include "gemm.h"
#include "math.h"

DEVICE float situ(float u, float g) {
    float a = round_bf16(4.0f * round_bf16(math::tanh(round_bf16(g * 0.25f))));
    float p = round_bf16(a * round_bf16(math::sigmoid(g)));
    float t = round_bf16(25.0f * round_bf16(math::tanh(round_bf16(u / 25.0f))));
    return p * t;
}

KERNEL(GEMM_THREADS) void linear_glu(const bf16* __restrict__ x, const bf16* __restrict__ w, const bf16* __restrict__ bias,
                                     bf16* __restrict__ out, int tokens, int k, int f, int glu) {
    SHARED bf16 lds[GEMM_LDS];
    Gemm g = gemm(x, w, tokens, k, f >> 3, lds);

    int column = (g.panel(0) >> 1) * 16 + g.row();
    if (column >= f) return;
    Eight up_bias = {}, gate_bias = {};
    if (bias) {
        up_bias = load8(bias + column);
        gate_bias = load8(bias + f + column);
    }
    UNROLL for (int j = 0; j < 2; j++) {
        int token = g.token(j);
        if (token >= tokens) continue;
        Eight y;
        for (int e = 0; e < 8; e++) {
            float u = g.d[0][j][e], v = g.d[1][j][e];
            if (bias) {
                u = u + up_bias.at[e];
                v = v + gate_bias.at[e];
            }
            u = round_bf16(u);
            v = round_bf16(v);
            y.at[e] = glu == GLU_SILU ? round_bf16(math::silu(v)) * u : situ(u, v);
        }
        store8(out + (i64)token * f + column, y);
    }
}
