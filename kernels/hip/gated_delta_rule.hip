// gated_delta_rule: the recurrence of Gated DeltaNet over the tokens of one segment, from a zero state.
//   qkv [T, 2 key_heads 128 + value_heads value_dim] (all q, all k, all v), ba [T, 2 value_heads] (b, then a),
//   out [T, value_heads value_dim]: bf16; a_log, dt_bias [value_heads]: f32. Segment: length tokens from token first on.
//   beta = bf16(sigmoid(b)), decay = exp(-exp(a_log) softplus(a + dt_bias)), q^ = (q / sqrt(tree256 of q q + 1e-6)) scale,
//   k^ = k / sqrt(..), as products with 1 / sqrt. Per value column with state S[128]: S = S decay;
//   delta = (v - dot4(k^, S)) beta; S = fma(k^, delta, S); out = bf16(dot4(q^, S)); dot4 = a chain for each quarter,
//   (p0 + p1) + (p2 + p3).
// Grid (value_dim / 32, value_heads), 128 threads: four lanes a column, each with a quarter of its state in 32 registers. Eight
// tokens at a time have their q^, k^, v, beta and decay put into LDS, a wave a token, then run one after another.
// budget: threads 128, vgpr 104, lds 10304, wmma 0
#include "math.h"

constexpr int WIDTH = 128;
constexpr int TOKENS = 8;
constexpr int QUARTER = 36; // 32, and 4 so that the quarters lie in different banks
constexpr int ROW = 4 * QUARTER;

DEVICE float inverse_length(const float (&x)[4]) {
    float p[4];
    for (int e = 0; e < 4; e++) p[e] = fma(x[e], x[e], 0.0f);
    // The partials 128 to 255 of the tree have no terms: adding their zero changes nothing.
    return 1.0f / __builtin_sqrtf(wave_tree((p[0] + p[1]) + (p[2] + p[3])) + 1e-6f);
}

DEVICE float dot4(const float* a, const float (&s)[32]) {
    float p = 0.0f;
    UNROLL for (int i = 0; i < 8; i++) {
        f32x4 v = *(const f32x4*)(a + 4 * i);
        UNROLL for (int e = 0; e < 4; e++) p = fma(v[e], s[4 * i + e], p);
    }
    p = p + exchange<1>(p);
    return p + exchange<2>(p);
}

KERNEL(128) void gated_delta_rule(const bf16* __restrict__ qkv, const bf16* __restrict__ ba, const float* __restrict__ a_log,
                                  const float* __restrict__ dt_bias, bf16* __restrict__ out, int first, int length,
                                  int key_heads, int value_heads, int key_dim, int value_dim, float scale) {
    (void)key_dim;
    SHARED float queries[TOKENS * ROW], keys[TOKENS * ROW], values[TOKENS * 32], betas[TOKENS], decays[TOKENS];
    int thread = thread_id(), lane = lane_id(), wave = wave_id();
    int head = group_y(), key_head = head / (value_heads / key_heads);
    int column = thread >> 2, quarter = thread & 3;
    i64 stride = 2 * (i64)key_heads * WIDTH + (i64)value_heads * value_dim;
    const bf16* q_head = qkv + key_head * WIDTH;
    const bf16* k_head = q_head + (i64)key_heads * WIDTH;
    const bf16* v_head = qkv + 2 * (i64)key_heads * WIDTH + (i64)head * value_dim + group_x() * 32;
    bf16* to = out + (i64)head * value_dim + group_x() * 32 + column;
    float rate = -math::exp(a_log[head]), bias = dt_bias[head];

    float s[32];
    for (int i = 0; i < 32; i++) s[i] = 0.0f;

    for (int block = 0; block < length; block += TOKENS) {
        int count = length - block < TOKENS ? length - block : TOKENS;
        barrier(); // the tokens before have been read
        for (int t = wave; t < count; t += 4) {
            i64 token = (i64)first + block + t;
            float q[4], k[4];
            for (int e = 0; e < 4; e++) {
                q[e] = widen(q_head[token * stride + lane * 4 + e]);
                k[e] = widen(k_head[token * stride + lane * 4 + e]);
            }
            float q_factor = inverse_length(q), k_factor = inverse_length(k);
            f32x4 q_hat, k_hat;
            for (int e = 0; e < 4; e++) {
                q_hat[e] = q[e] * q_factor * scale;
                k_hat[e] = k[e] * k_factor;
            }
            int at = t * ROW + (lane >> 3) * QUARTER + (lane & 7) * 4;
            *(f32x4*)(queries + at) = q_hat;
            *(f32x4*)(keys + at) = k_hat;
            values[t * 32 + lane] = widen(v_head[token * stride + lane]);
            const bf16* gates = ba + token * 2 * value_heads + head;
            float beta = round_bf16(math::sigmoid(widen(gates[0])));
            float decay = math::exp(rate * math::softplus(widen(gates[value_heads]) + bias));
            if (lane == 0) {
                betas[t] = beta;
                decays[t] = decay;
            }
        }
        barrier();
        for (int t = 0; t < count; t++) {
            float beta = betas[t], decay = decays[t], v = values[t * 32 + column];
            const float* q = queries + t * ROW + quarter * QUARTER;
            const float* k = keys + t * ROW + quarter * QUARTER;
            for (int i = 0; i < 32; i++) s[i] = s[i] * decay;
            float delta = (v - dot4(k, s)) * beta;
            UNROLL for (int i = 0; i < 8; i++) {
                f32x4 k4 = *(const f32x4*)(k + 4 * i);
                UNROLL for (int e = 0; e < 4; e++) s[4 * i + e] = fma(k4[e], delta, s[4 * i + e]);
            }
            float o = dot4(q, s);
            if (quarter == 0) to[((i64)first + block + t) * value_heads * value_dim] = to_bf16(o);
        }
    }
}
