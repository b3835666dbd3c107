// The elementary functions of reference/src/simd/math.rs, step by step the same: see there for formulas, ranges and errors.
#pragma once
#include "moss.h"

namespace math {

template <int N> struct Polynomial {
    u32 bits[N];
};

constexpr Polynomial<7> EXP2 = {
    {0x391e9fb1, 0x3aaf2981, 0x3c1d9955, 0x3d6358ab, 0x3e75fdec, 0x3f317217, 0x3f800000}};
constexpr Polynomial<5> EXP = {{0x3ab7f5f2, 0x3c092be7, 0x3d2aa980, 0x3e2aaa33, 0x3f000000}};
constexpr Polynomial<9> LOG1P = {{0xbd3bfd3d, 0x3dd8ba48, 0xbe074a24, 0x3e143f83, 0xbe2a6afd, 0x3e4cb331,
                                  0xbe800042, 0x3eaaaad7, 0xbf000000}};
constexpr Polynomial<5> TANH = {{0xbbcc90d1, 0x3cac728c, 0xbd5c8f3f, 0x3e088677, 0xbeaaaaa5}};
constexpr float LOG2_E = __builtin_bit_cast(float, 0x3fb8aa3bu);
constexpr float LN2_HI = __builtin_bit_cast(float, 0x3f317200u);
constexpr float LN2_LO = __builtin_bit_cast(float, 0x35bfbe8eu);

template <int N> DEVICE float horner(float x, const Polynomial<N>& c) {
    float p = from_bits(c.bits[0]);
    for (int i = 1; i < N; i++) p = fma(p, x, from_bits(c.bits[i]));
    return p;
}

// Keep a NaN that stands second.
DEVICE float max(float a, float b) { return a > b ? a : b; }
DEVICE float min(float a, float b) { return a < b ? a : b; }

DEVICE float ldexp(float x, float n) { return ::ldexp(x, (int)n); }

// exp2 of a number that is not above 0, or of a NaN.
DEVICE float exp2_negative(float x) {
    x = max(-150.0f, x);
    float n = __builtin_rintf(x);
    return ldexp(horner(x - n, EXP2), n);
}

DEVICE float exp(float x) {
    x = min(89.0f, max(-104.0f, x));
    float n = __builtin_rintf(x * LOG2_E);
    float f = fma(n, -LN2_HI, x);
    f = fma(n, -LN2_LO, f);
    float p = horner(f, EXP);
    p = fma(p, f, 1.0f);
    p = fma(p, f, 1.0f);
    return ldexp(p, n);
}

DEVICE float tanh(float x) {
    float y = min(10.0f, __builtin_fabsf(x));
    float z = y * y;
    float small = fma(y, z * horner(z, TANH), y);
    float large = 1.0f - 2.0f / (exp(y + y) + 1.0f);
    return __builtin_copysignf(y < 0.55f ? small : large, x);
}

DEVICE float one_plus_exp_neg(float x) {
    float y = -x;
    float c = min(88.0f, max(-30.0f, y));
    float n = __builtin_rintf(c * LOG2_E);
    float f = fma(n, -LN2_HI, c);
    f = fma(n, -LN2_LO, f);
    float p = fma(horner(f, EXP), f, 1.0f);
    float t = ldexp(1.0f, n);
    float d = fma(t * f, p, min(t, 1.0f)) + max(t, 1.0f);
    return 88.0f < y ? __builtin_inff() : d;
}

DEVICE float sigmoid(float x) { return 1.0f / one_plus_exp_neg(x); }
DEVICE float silu(float x) { return x / one_plus_exp_neg(x); }

DEVICE float log1p(float x) {
    float u = 1.0f + x;
    float e = (float)((int)(bits(u) - 0x3f400000u) >> 23);
    float t = ldexp(1.0f, -e);
    float f = fma(x, t, t - 1.0f);
    float r = fma(f * f, horner(f, LOG1P), f);
    r = fma(e, LN2_LO, r);
    r = fma(e, LN2_HI, r);
    return x < __builtin_inff() ? r : x;
}

DEVICE float softplus(float x) { return 20.0f < x ? x : log1p(exp(x)); }

} // namespace math
