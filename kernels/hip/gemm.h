// The product that linear and linear_glu share: a tile of 64 rows of the packed weights by 64 tokens, D = W x^T.
//
// 128 threads, four waves in 2 x 2, each with 2 x 2 matrices of 16 x 16: wave w has panels 2 (w % 2) and + 1 of the tile's four
// and tokens 32 (w / 2) .. + 31. K goes in steps of two fragments (32) through LDS, double-buffered, one barrier a step; every
// element of D is one chain over k ascending, C first. Rows and panels past the end repeat the last one and are not stored.
#pragma once
#include "wmma.h"

constexpr int GEMM_THREADS = 128;
constexpr int GEMM_LDS = 2 * 8 * 2 * FRAGMENT; // elements: 16 KiB

struct Gemm {
    f32x8 d[2][2]; // [panel][sixteen tokens]
    int lane, wave, first_panel, first_token;

    // Panel i of the wave, and the lane's token in sixteen j, in the whole problem.
    DEVICE_MEMBER int panel(int i) const { return first_panel + 2 * (wave & 1) + i; }
    DEVICE_MEMBER int token(int j) const { return first_token + 32 * (wave >> 1) + 16 * j + (lane & 15); }
    // First of the lane's eight rows in a panel.
    DEVICE_MEMBER int row() const { return 8 * (lane >> 4); }
};

DEVICE Gemm gemm(const bf16* __restrict__ x, const bf16* __restrict__ w, int tokens, int k, int panels, bf16* lds) {
    Gemm g;
    int thread = thread_id();
    g.lane = thread & 31;
    g.wave = wave_id();
    g.first_panel = group_x() * 4;
    g.first_token = group_y() * 64;
    int fragments = k >> 4, steps = (fragments + 1) >> 1;

    // What the thread moves in a step: two 16-byte pieces of weights and two of x.
    const bf16 *from_w[2], *from_x[2];
    int to_w[2], to_x[2];
    int piece = thread & 63, part = thread & 3;
    int w_fragment = piece >> 5, x_fragment = part >> 1;
    for (int i = 0; i < 2; i++) {
        int panel = (thread >> 6) + 2 * i;
        int source = g.first_panel + panel < panels ? g.first_panel + panel : panels - 1;
        from_w[i] = w + (i64)source * fragments * FRAGMENT + piece * 8;
        to_w[i] = panel * 2 * FRAGMENT + piece * 8;
        int row = (thread >> 2) + 32 * i;
        int token = g.first_token + row < tokens ? g.first_token + row : tokens - 1;
        from_x[i] = x + (i64)token * k + part * 8;
        to_x[i] = ((4 + (row >> 4)) * 2 + x_fragment) * FRAGMENT + (row & 15) * 16 + (part & 1) * 8;
    }
    u32x4 held_w[2] = {}, held_x[2] = {};
    auto fetch = [&](int step) {
        if (2 * step + w_fragment < fragments)
            for (int i = 0; i < 2; i++) held_w[i] = *(const u32x4*)(from_w[i] + (i64)step * 2 * FRAGMENT);
        if (2 * step + x_fragment < fragments)
            for (int i = 0; i < 2; i++) held_x[i] = *(const u32x4*)(from_x[i] + step * 32);
    };
    auto keep = [&](int step) {
        bf16* buffer = lds + (step & 1) * 8 * 2 * FRAGMENT;
        for (int i = 0; i < 2; i++) {
            *(u32x4*)(buffer + to_w[i]) = held_w[i];
            *(u32x4*)(buffer + to_x[i]) = held_x[i];
        }
    };
    auto multiply = [&](int step, int f) {
        const bf16* buffer = lds + (step & 1) * 8 * 2 * FRAGMENT;
        Fragment b[2];
        for (int j = 0; j < 2; j++)
            b[j] = load_b(buffer + ((4 + 2 * (g.wave >> 1) + j) * 2 + f) * FRAGMENT, g.lane);
        for (int i = 0; i < 2; i++) {
            FragmentA a = load_a(buffer + ((2 * (g.wave & 1) + i) * 2 + f) * FRAGMENT, g.lane);
            for (int j = 0; j < 2; j++) g.d[i][j] = wmma(a, b[j], g.d[i][j]);
        }
    };

    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) g.d[i][j] = 0.0f;
    fetch(0);
    keep(0);
    barrier();
    for (int step = 0; step < steps; step++) {
        if (step + 1 < steps) fetch(step + 1);
        multiply(step, 0);
        if (2 * step + 1 < fragments) multiply(step, 1);
        if (step + 1 < steps) keep(step + 1);
        barrier();
    }
    return g;
}
