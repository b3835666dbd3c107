// attention_256: softmax attention over bf16 heads of 256 columns; formula, layout and launch in attention.h.
// budget: threads 128, vgpr 240, lds 65536, wmma 128
#include "attention.h"

KERNEL(ATTENTION_THREADS) void attention_256(ATTENTION_PARAMETERS) {
#if defined(__NVPTX__)
    SHARED_BY_LAUNCH bf16 keys[]; // a kernel may declare 48 KiB at most there
    bf16* values = keys + KEYS * 256;
#else
    SHARED bf16 keys[KEYS * 256], values[KEYS * 256];
#endif
    attention<256, false>(q, k, v, out, first, length, query_first, query_count, q_heads, kv_heads, dim, v_stride, v_first, v_step,
                       causal, scale, keys, values);
}
