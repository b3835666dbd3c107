// attention_f32: softmax attention in f32 for the VAE's middle block: one head as wide as the picture has channels.
//   Formula and parameters as in attention.h, with p not rounded: o = fma(p[j], v[j], o).
// On the vector unit, for the reason given in conv2d.hip.
// Grid (ceil(query_count / 32), q_heads), 256 threads. Of a block of 64 keys and the tile's 32 queries, S is made 16 columns at
// a time through LDS, a thread having 4 keys by 2 queries; then two threads a query, one for each l, make p in LDS; then a
// thread has 8 queries by the columns i, i + 64, ... of o. dim a multiple of 16, at most 512.
// budget: threads 256, vgpr 232, lds 16000, wmma 0
#include "math.h"

constexpr int THREADS = 256;
constexpr int KEYS = 64;
constexpr int QUERIES = 32;
constexpr int STEP = 16;
constexpr int KEY_ROW = KEYS + 4;
constexpr int QUERY_ROW = QUERIES + 4;
constexpr int COLUMNS = 8; // of o a thread, 64 apart

KERNEL(THREADS) void attention_f32(const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ v,
                                   float* __restrict__ out, int first, int length, int query_first, int query_count,
                                   int q_heads, int kv_heads, int dim, int v_stride, int v_first, int v_step, int causal,
                                   float scale) {
    SHARED float k_lds[STEP * KEY_ROW], q_lds[STEP * QUERY_ROW], p_lds[KEYS * QUERY_ROW], factors[QUERIES];
    int thread = thread_id();
    int head = group_y(), kv_head = head / (q_heads / kv_heads);
    int tile = query_first + group_x() * QUERIES;
    int end = query_first + query_count;
    i64 q_stride = (i64)q_heads * dim, k_stride = (i64)kv_heads * dim;
    const float* k_head = k + first * k_stride + (i64)kv_head * dim;
    const float* v_head = v + (i64)first * v_stride + v_first + (i64)kv_head * v_step;

    // Loads: four columns of a key, and in the first half of the threads of a query.
    int load_row = thread >> 2, load_column = (thread & 3) * 4;
    int load_query = tile + (load_row & 31) < end ? tile + (load_row & 31) : end - 1;
    const float* q_row = q + (first + (i64)load_query) * q_stride + (i64)head * dim + load_column;
    // S: four keys by two queries.
    int s_keys = (thread & 15) * 4, s_queries = (thread >> 4) * 2;
    // p: the eights of keys of one parity, of one query.
    int p_query = (thread & 63) >> 1, parity = thread & 1;
    float m = -__builtin_inff(), l = 0.0f;
    // o: eight queries, columns 64 apart.
    int o_queries = wave_id() >> 1 << 3, o_column = thread & 63;
    int columns = (dim + 63) >> 6;
    float o[8][COLUMNS];
    UNROLL for (int a = 0; a < 8; a++)
        UNROLL for (int i = 0; i < COLUMNS; i++) o[a][i] = 0.0f;

    int last = tile + QUERIES - 1 < end ? tile + QUERIES - 1 : end - 1;
    int seen = causal ? last + 1 : length;
    for (int block = 0; block < seen; block += KEYS) {
        int present = length - block < KEYS ? length - block : KEYS;
        int load_key = block + (load_row < present ? load_row : present - 1);
        const float* k_row = k_head + load_key * k_stride + load_column;
        float s[4][2] = {};
        for (int d = 0; d < dim; d += STEP) {
            f32x4 held_k = *(const f32x4*)(k_row + d), held_q = 0.0f;
            if (thread < 128) held_q = *(const f32x4*)(q_row + d);
            barrier(); // the columns before, and p of the block before, have been read
            UNROLL for (int e = 0; e < 4; e++) k_lds[(load_column + e) * KEY_ROW + load_row] = held_k[e];
            if (thread < 128)
                UNROLL for (int e = 0; e < 4; e++) q_lds[(load_column + e) * QUERY_ROW + load_row] = held_q[e];
            barrier();
            _Pragma("unroll 4") for (int i = 0; i < STEP; i++) {
                f32x4 keys = *(const f32x4*)(k_lds + i * KEY_ROW + s_keys);
                UNROLL for (int b = 0; b < 2; b++) {
                    float query = q_lds[i * QUERY_ROW + s_queries + b];
                    UNROLL for (int a = 0; a < 4; a++) s[a][b] = fma(keys[a], query, s[a][b]);
                }
            }
        }
        UNROLL for (int a = 0; a < 4; a++)
            UNROLL for (int b = 0; b < 2; b++) p_lds[(s_keys + a) * QUERY_ROW + s_queries + b] = s[a][b] * scale;
        barrier();

        if (thread < 2 * QUERIES) {
            int query = tile + p_query;
            int limit = causal && query < length ? query + 1 : length;
            float highest = m;
            for (int j = 0; j < 32; j++) {
                int key = (j >> 3) * 16 + parity * 8 + (j & 7);
                if (block + key < limit) highest = __builtin_fmaxf(highest, p_lds[key * QUERY_ROW + p_query]);
            }
            highest = __builtin_fmaxf(highest, exchange<1>(highest));
            float c = math::exp2_negative(m - highest);
            m = highest;
            l = l * c;
            for (int j = 0; j < 32; j++) {
                int key = (j >> 3) * 16 + parity * 8 + (j & 7);
                float p = 0.0f;
                if (block + key < limit) p = math::exp2_negative(p_lds[key * QUERY_ROW + p_query] - m);
                l = l + p;
                p_lds[key * QUERY_ROW + p_query] = p;
            }
            if (parity == 0) factors[p_query] = c;
        }
        barrier();

        UNROLL for (int a = 0; a < 8; a++) {
            float c = factors[o_queries + a];
            UNROLL for (int i = 0; i < COLUMNS; i++) o[a][i] = o[a][i] * c;
        }
        _Pragma("unroll 1") for (int key = 0; key < present; key++) {
            const float* row = v_head + (i64)(block + key) * v_stride;
            f32x4 low = *(const f32x4*)(p_lds + key * QUERY_ROW + o_queries);
            f32x4 high = *(const f32x4*)(p_lds + key * QUERY_ROW + o_queries + 4);
            UNROLL for (int i = 0; i < COLUMNS; i++) {
                if (i >= columns) break;
                int column = o_column + 64 * i;
                float value = row[column < dim ? column : dim - 1];
                UNROLL for (int a = 0; a < 4; a++) {
                    o[a][i] = fma(low[a], value, o[a][i]);
                    o[a + 4][i] = fma(high[a], value, o[a + 4][i]);
                }
            }
        }
    }

    barrier(); // the last factors have been read
    if (thread < 2 * QUERIES) {
        float sum = l + exchange<1>(l);
        if (parity == 0) factors[p_query] = sum;
    }
    barrier();
    UNROLL for (int a = 0; a < 8; a++) {
        int query = tile + o_queries + a;
        if (query >= end) continue;
        float sum = factors[o_queries + a];
        float* to = out + (first + (i64)query) * q_stride + (i64)head * dim;
        UNROLL for (int i = 0; i < COLUMNS; i++) {
            int column = o_column + 64 * i;
            if (column < dim) to[column] = (o[a][i] + 0.0f) / sum; // +0 for the -0 of an underflow
        }
    }
}
