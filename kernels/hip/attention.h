// Flash attention over bf16 for heads of D columns: attention_128 and attention_256.
//   q [T, q_heads D], k [T, kv_heads D], v [T, v_stride] with head i at columns v_first + i v_step .. + D, out [T, q_heads D].
//   Queries query_first .. + query_count of the segment first .. + length; query head i reads key/value head
//   i / (q_heads / kv_heads). Blocks of 64 keys in order; per query, with m = -inf, l0 = l1 = 0, o = 0:
//     s = chain over d of k q, then s = s scale; m' = max(m, s), c = exp2(m - m'), p = exp2(s - m');
//     l = l c, then l[(j / 8) % 2] += p[j] for keys j ascending; o = o c, then o = fma(bf16(p[j]), v[j], o), j ascending.
//   out = bf16(o / (l0 + l1)).
// Grid (ceil(query_count / 64), q_heads), 128 threads: a wave has 16 queries. S^T = K Q^T: a lane has one query (lane % 16) and
// of each 16 keys the eight of its half, so a half's sum of p is l0 or l1, and the eight, rounded, are P^T, the second operand
// of O^T = V^T P^T. K and V lie in LDS in fragment order, V transposed.
#pragma once
#include "math.h"
#include "wmma.h"

constexpr int ATTENTION_THREADS = 128;
constexpr int KEYS = 64;

#define ATTENTION_PARAMETERS                                                                                             \
    const bf16 *__restrict__ q, const bf16 *__restrict__ k, const bf16 *__restrict__ v, bf16 *__restrict__ out, int first, \
        int length, int query_first, int query_count, int q_heads, int kv_heads, int dim, int v_stride, int v_first,       \
        int v_step, int causal, float scale

// Keys of a block, in fragments: [16 keys][16 columns][key][column].
template <int D> DEVICE void stage_keys(const bf16* __restrict__ k, i64 stride, int present, bf16* lds) {
    constexpr int PARTS = D / 8;
    int thread = thread_id();
    _Pragma("unroll 4") for (int i = 0; i < KEYS * PARTS / ATTENTION_THREADS; i++) {
        int piece = thread + i * ATTENTION_THREADS;
        int key = piece / PARTS, part = piece % PARTS;
        u32x4 x = {};
        if (key < present) x = *(const u32x4*)(k + key * stride + part * 8);
        *(u32x4*)(lds + ((key >> 4) * (D / 16) + (part >> 1)) * FRAGMENT + (key & 15) * 16 + (part & 1) * 8) = x;
    }
}

// Values of a block, transposed, in fragments: [16 columns][16 keys][column][key]. A thread moves two keys' eight columns.
template <int D> DEVICE void stage_values(const bf16* __restrict__ v, i64 stride, int present, bf16* lds) {
    constexpr int UNITS = KEYS / 2 * (D / 8) / ATTENTION_THREADS;
    int thread = thread_id();
    _Pragma("unroll 2") for (int i = 0; i < UNITS; i++) {
        int unit = thread + i * ATTENTION_THREADS;
        int key = 2 * ((unit & 7) + 8 * ((unit >> 5) & 3));
        int part = ((unit >> 3) & 3) + 4 * (unit >> 7);
        u32x4 even = {}, odd = {};
        if (key < present) even = *(const u32x4*)(v + key * stride + part * 8);
        if (key + 1 < present) odd = *(const u32x4*)(v + (key + 1) * stride + part * 8);
        bf16* to = lds + ((part >> 1) * 4 + (key >> 4)) * FRAGMENT + (part & 1) * 8 * 16 + (key & 15);
        for (int e = 0; e < 4; e++) {
            *(u32*)(to + (2 * e) * 16) = (even[e] & 0xffffu) | (odd[e] << 16);
            *(u32*)(to + (2 * e + 1) * 16) = (even[e] >> 16) | (odd[e] & 0xffff0000u);
        }
    }
}

// QUERY_IN_REGISTERS: the queries' fragments are held; otherwise they are read again for each block.
template <int D, bool QUERY_IN_REGISTERS> DEVICE void attention(ATTENTION_PARAMETERS, bf16* keys, bf16* values) {
    (void)dim;
    constexpr int SLICES = D / 16;
    int lane = lane_id(), half = lane >> 4;
    int head = group_y(), kv_head = head / (q_heads / kv_heads);
    int tile = query_first + group_x() * 64;
    int end = query_first + query_count;
    int query = tile + wave_id() * 16 + (lane & 15);
    int token = first + (query < end ? query : end - 1);
    i64 q_stride = (i64)q_heads * D, k_stride = (i64)kv_heads * D;
    const bf16* q_row = q + token * q_stride + head * D;
    const bf16* k_head = k + first * k_stride + kv_head * D;
    const bf16* v_head = v + (i64)first * v_stride + v_first + (i64)kv_head * v_step;

    Fragment held[QUERY_IN_REGISTERS ? SLICES : 1];
    if constexpr (QUERY_IN_REGISTERS)
        for (int f = 0; f < SLICES; f++) held[f] = load_k16(q_row + f * 16, lane);

    f32x8 o[SLICES];
    for (int d = 0; d < SLICES; d++) o[d] = 0.0f;
    float m = -__builtin_inff(), l = 0.0f;
    int last = tile + 63 < end ? tile + 63 : end - 1;
    int seen = causal ? last + 1 : length;

    for (int block = 0; block < seen; block += KEYS) {
        int present = length - block;
        barrier(); // the block before has been read
        stage_keys<D>(k_head + block * k_stride, k_stride, present, keys);
        stage_values<D>(v_head + (i64)block * v_stride, v_stride, present, values);
        barrier();

        f32x8 s[4];
        for (int t = 0; t < 4; t++) s[t] = 0.0f;
        // Or all of q would be kept, and spilled. A hidden address would no longer be known to be one of global memory.
        int again = QUERY_IN_REGISTERS ? 0 : hidden(0);
        UNROLL for (int f = 0; f < SLICES; f++) {
            Fragment b;
            if constexpr (QUERY_IN_REGISTERS)
                b = held[f];
            else
                b = load_k16(q_row + again + f * 16, lane);
            for (int t = 0; t < 4; t++) s[t] = wmma(load_a(keys + (t * SLICES + f) * FRAGMENT, lane), b, s[t]);
        }

        float highest = m;
        bool whole = present >= KEYS && !(causal && block + KEYS > tile);
        int limit = causal && query < length ? query + 1 : length;
        for (int t = 0; t < 4; t++)
            for (int e = 0; e < 8; e++) {
                float x = s[t][e] * scale;
                if (!whole && block + t * 16 + half * 8 + e >= limit) x = -__builtin_inff();
                s[t][e] = x;
                highest = __builtin_fmaxf(highest, x);
            }
        highest = __builtin_fmaxf(highest, exchange<16>(highest));
        float c = math::exp2_negative(m - highest);
        m = highest;
        l = l * c;
        for (int d = 0; d < SLICES; d++) o[d] = o[d] * c;
        UNROLL for (int t = 0; t < 4; t++) {
            Eight p;
            for (int e = 0; e < 8; e++) {
                p.at[e] = math::exp2_negative(s[t][e] - m);
                l = l + p.at[e];
            }
            Fragment b = b_of_eight(pack8(p), lane);
            for (int d = 0; d < SLICES; d++) o[d] = wmma(load_a(values + (d * 4 + t) * FRAGMENT, lane), b, o[d]);
        }
    }

    float sum = l + exchange<16>(l);
    if (query >= end) return;
    bf16* to = out + token * q_stride + head * D + half * 8;
    UNROLL for (int d = 0; d < SLICES; d++) {
        Eight y;
        for (int e = 0; e < 8; e++) y.at[e] = (o[d][e] + 0.0f) / sum; // +0 for the -0 of an underflow
        store8(to + d * 16, y);
    }
}
