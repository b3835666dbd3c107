// Matrix instructions: D = A B + C with A 16x16, B 16x16 (bf16), C and D 16x16 (f32), on gfx11 and gfx12.
//
// A fragment in memory is 16 rows (of A, or columns of B) of 16 consecutive k, 512 bytes (src/pack.rs). A lane reads row
// `a_row(lane)` of A and row `lane % 16` of B. On gfx12 lane half h holds k = 8h .. 8h + 7; on gfx11 both halves hold all 16,
// and the hardware returns row 2v + h of D in element v of half h. There a_row permutes the rows of A, so that on both
//     element v of D in a lane is row 8 * (lane / 16) + v, column lane % 16.
// Eight neighbouring rows of D in a lane are one 16-byte store, and an eight of P^T is already what B of the next product
// wants on gfx12 (on gfx11 after one exchange of the halves).
// On nvptx64, which has no such instruction, the leaf is the chain itself on the vector unit: a lane keeps of A the place of its
// eight rows in LDS, and reads them when it multiplies; of B it has all 16 k, as on gfx11.
#pragma once
#include "moss.h"

constexpr int FRAGMENT = 256; // elements

#if defined(__GFX12__)
typedef i16x8 Fragment;
// The lane's part of the 16 consecutive k at `row`.
DEVICE Fragment load_k16(const bf16* row, int lane) { return *(const i16x8*)(row + (lane >> 4) * 8); }
// B whose eight rows k = 8h .. 8h + 7 are the lane's own.
DEVICE Fragment b_of_eight(u32x4 own, int) { return __builtin_bit_cast(Fragment, own); }
#else
typedef i16x16 Fragment;
DEVICE Fragment load_k16(const bf16* row, int) {
    i16x8 low = *(const i16x8*)row, high = *(const i16x8*)(row + 8);
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
DEVICE Fragment b_of_eight(u32x4 own, int lane) {
    u32x4 low, high;
    for (int i = 0; i < 4; i++) {
        u32 other = exchange<16>(own[i]);
        low[i] = lane < 16 ? own[i] : other;
        high[i] = lane < 16 ? other : own[i];
    }
    return __builtin_shufflevector(__builtin_bit_cast(i16x8, low), __builtin_bit_cast(i16x8, high), 0, 1, 2, 3, 4,
                                   5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
#endif

#if defined(__NVPTX__)
struct FragmentA {
    const bf16* rows;
};
DEVICE FragmentA load_a(const bf16* fragment, int lane) { return {fragment + 8 * (lane >> 4) * 16}; }
DEVICE f32x8 wmma(FragmentA a, Fragment b, f32x8 c) {
    u32x8 column = __builtin_bit_cast(u32x8, b);
    UNROLL for (int v = 0; v < 8; v++) {
        const u32x4* row = (const u32x4*)(a.rows + v * 16);
        u32x4 low = row[0], high = row[1];
        float sum = c[v];
        UNROLL for (int i = 0; i < 8; i++) {
            u32 pair = i < 4 ? low[i] : high[i - 4];
            sum = fma(widen_low(pair), widen_low(column[i]), sum);
            sum = fma(widen_high(pair), widen_high(column[i]), sum);
        }
        c[v] = sum;
    }
    return c;
}
#else
typedef Fragment FragmentA;
#if defined(__GFX12__)
DEVICE int a_row(int lane) { return lane & 15; }
#else
DEVICE int a_row(int lane) { return ((lane & 1) << 3) | ((lane & 15) >> 1); }
#endif
DEVICE FragmentA load_a(const bf16* fragment, int lane) { return load_k16(fragment + a_row(lane) * 16, lane); }
#endif
DEVICE Fragment load_b(const bf16* fragment, int lane) { return load_k16(fragment + (lane & 15) * 16, lane); }
