// What every kernel shares: bf16 conversion and reductions over the machine layer.
//
// No operation is contracted or reassociated by the compiler (see build.rs): what is written is the order in which it happens; a
// fused multiply-add is written as fma.
#pragma once
#include "machine.h"

DEVICE u32 bits(float x) { return __builtin_bit_cast(u32, x); }
DEVICE float from_bits(u32 x) { return __builtin_bit_cast(float, x); }
DEVICE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

// ---- bf16 ------------------------------------------------------------------------------------------------------------

DEVICE float widen(bf16 x) { return from_bits((u32)x << 16); }
DEVICE float widen_low(u32 pair) { return from_bits(pair << 16); }
DEVICE float widen_high(u32 pair) { return from_bits(pair & 0xffff0000u); }

// The rounded value in the upper half: to nearest, ties to even; a NaN stays one, made quiet.
DEVICE u32 round_bits(float x) {
    u32 b = bits(x);
    u32 rounded = b + 0x7fffu + ((b >> 16) & 1u);
    return x == x ? rounded : b | 0x400000u;
}
DEVICE bf16 to_bf16(float x) { return (bf16)(round_bits(x) >> 16); }
// bf16(x) as an f32.
DEVICE float round_bf16(float x) { return from_bits(round_bits(x) & 0xffff0000u); }
DEVICE u32 pack_bf16(float low, float high) { return (round_bits(low) >> 16) | (round_bits(high) & 0xffff0000u); }

// Eight neighbouring bf16: 16 bytes.
struct Eight {
    float at[8];
};
DEVICE Eight widen8(u32x4 v) {
    Eight x;
    for (int i = 0; i < 4; i++) {
        x.at[2 * i] = widen_low(v[i]);
        x.at[2 * i + 1] = widen_high(v[i]);
    }
    return x;
}
DEVICE Eight load8(const bf16* p) { return widen8(*(const u32x4*)p); }
DEVICE u32x4 pack8(const Eight& x) {
    u32x4 v;
    for (int i = 0; i < 4; i++) v[i] = pack_bf16(x.at[2 * i], x.at[2 * i + 1]);
    return v;
}
DEVICE void store8(bf16* p, const Eight& x) { *(u32x4*)p = pack8(x); }

// ---- between lanes -----------------------------------------------------------------------------------------------------

template <int MASK> DEVICE float exchange(float x) { return from_bits(exchange<MASK>(bits(x))); }

// Adds neighbouring lanes, then neighbouring pairs, ...: five butterflies; addition commutes, so all lanes get the same bits.
DEVICE float wave_tree(float x) {
    x = x + exchange<1>(x);
    x = x + exchange<2>(x);
    x = x + exchange<4>(x);
    x = x + exchange<8>(x);
    return x + exchange<16>(x);
}

// tree256 over a wave, lane i with the partials 8i to 8i + 7.
DEVICE float tree256(const float (&p)[8]) {
    float a = (p[0] + p[1]) + (p[2] + p[3]);
    float b = (p[4] + p[5]) + (p[6] + p[7]);
    return wave_tree(a + b);
}
