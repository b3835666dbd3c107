// linear: out = epilogue(bf16(x w^T + bias)).
//   x [tokens, k], w [n, k] packed (src/pack.rs), bias [n] or none, residual [tokens, n], gate [n], out [tokens, n]: bf16.
//   epilogue as in codes.h: y, bf16(silu(y)), bf16(residual + y) or bf16(residual + bf16(y * gate)).
//   Chain over k ascending in f32, C first; one rounding, then the epilogue's.
// Grid (ceil(n / 64), ceil(tokens / 64)), 128 threads; see gemm.h. A lane holds eight neighbouring outputs of a token: one
// 16-byte store when n is a multiple of 8. k a multiple of 16, n any number.
// budget: threads 128, vgpr 112, lds 16384, wmma 8
#include "codes.h"
#include "gemm.h"
#include "math.h"

KERNEL(GEMM_THREADS) void linear(const bf16* __restrict__ x, const bf16* __restrict__ w, const bf16* __restrict__ bias,
                                 const bf16* residual, const bf16* __restrict__ gate, bf16* out, int tokens, int k, int n,
                                 int epilogue) {
    SHARED bf16 lds[GEMM_LDS];
    Gemm g = gemm(x, w, tokens, k, (n + 15) >> 4, lds);

    bool whole = (n & 7) == 0;
    auto load = [&](const bf16* p, int column) {
        if (whole) return load8(p + column);
        Eight v;
        for (int e = 0; e < 8; e++) v.at[e] = column + e < n ? widen(p[column + e]) : 0.0f;
        return v;
    };
    UNROLL for (int i = 0; i < 2; i++) {
        int column = g.panel(i) * 16 + g.row();
        if (column >= n) continue;
        UNROLL for (int j = 0; j < 2; j++) {
            int token = g.token(j);
            if (token >= tokens) continue;
            Eight y;
            for (int e = 0; e < 8; e++) y.at[e] = g.d[i][j][e];
            if (bias) {
                Eight b = load(bias, column);
                for (int e = 0; e < 8; e++) y.at[e] = y.at[e] + b.at[e];
            }
            for (int e = 0; e < 8; e++) y.at[e] = round_bf16(y.at[e]);
            if (epilogue == EPILOGUE_SILU)
                for (int e = 0; e < 8; e++) y.at[e] = math::silu(y.at[e]);
            if (epilogue == EPILOGUE_GATED_RESIDUAL) {
                Eight factor = load(gate, column);
                for (int e = 0; e < 8; e++) y.at[e] = round_bf16(y.at[e] * factor.at[e]);
            }
            if (epilogue >= EPILOGUE_RESIDUAL) {
                Eight r = load(residual + (i64)token * n, column);
                for (int e = 0; e < 8; e++) y.at[e] = r.at[e] + y.at[e];
            }
            bf16* to = out + (i64)token * n + column;
            if (whole)
                store8(to, y);
            else
                for (int e = 0; e < 8; e++)
                    if (column + e < n) to[e] = to_bf16(y.at[e]);
        }
    }
}
