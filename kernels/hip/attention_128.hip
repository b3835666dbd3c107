// attention_128: softmax attention over bf16 heads of 128 columns; formula, layout and launch in attention.h.
// budget: threads 128, vgpr 240, lds 32768, wmma 64
#include "attention.h"

KERNEL(ATTENTION_THREADS) void attention_128(ATTENTION_PARAMETERS) {
    SHARED bf16 keys[KEYS * 128], values[KEYS * 128];
    attention<128, true>(q, k, v, out, first, length, query_first, query_count, q_heads, kv_heads, dim, v_stride, v_first, v_step,
                       causal, scale, keys, values);
}
