// conv2d: convolution with stride 1 and zero padding that keeps the size, in f32.
//   x [height, width, inputs] (half of each side with upsample, then read doubled), norm [2, inputs] or none, w [side, side,
//   inputs, outputs'] packed (src/pack.rs), bias [outputs], residual [height, width, outputs] or none, out as residual: f32.
//   Each x is replaced by fma(x, a, b), a = norm[0], b = norm[1], then by its silu when asked; padding stays 0.
//   acc = chain over (ky, kx, ci), ci fastest, of x w; y = acc + bias; y + residual.
// The VAE is f32 and its result must not depend on the backend, so this is a chain of f32 fma on the vector unit: a product of
// split bf16 parts on the matrix unit would round differently.
// Grid (ceil(row_count width / 64), ceil(outputs / 64)) over the rows row_first .. + row_count, 128 threads. Implicit GEMM: a
// tile of 64 pixels by 64 outputs, 16 inputs of one tap a step through LDS, double-buffered; a thread has 8 pixels by 4
// outputs. inputs a multiple of 16, outputs any number.
// budget: threads 128, vgpr 128, lds 16896, wmma 0
#include "math.h"

constexpr int STEP = 16;
constexpr int X_ROW = 68; // 64 pixels, and 4 so that the two halves of a wave store to different banks
constexpr int W_ROW = 64;
constexpr int BUFFER = STEP * (X_ROW + W_ROW);

KERNEL(128) void conv2d(const float* __restrict__ x, const float* __restrict__ norm, const float* __restrict__ w,
                        const float* __restrict__ bias, const float* residual, float* out, int height, int width, int inputs,
                        int outputs, int side, int upsample, int silu, int row_first, int row_count) {
    SHARED float lds[2 * BUFFER];
    int thread = thread_id();
    int pixels = row_count * width, first_pixel = group_x() * 64, first_output = group_y() * 64;
    int packed = (outputs + 3) & ~3;

    // What the thread moves in a step: eight inputs of a pixel, eight outputs of an input.
    int load_pixel = thread >> 1, load_input = (thread & 1) * 8;
    int pixel = first_pixel + load_pixel < pixels ? first_pixel + load_pixel : pixels - 1;
    int row = pixel / width, column = pixel - row * width;
    row += row_first;
    int load_row = thread >> 3, load_output = (thread & 7) * 8;
    int source_width = width >> upsample;
    int chunks = inputs / STEP, steps = side * side * chunks;
    f32x4 held_x[2], held_w[2];

    // The tap and the chunk of inputs of the next step to fetch.
    int ky = 0, kx = 0, chunk = 0;
    auto fetch = [&]() {
        int y = row + ky - (side >> 1), at = column + kx - (side >> 1);
        bool inside = (u32)y < (u32)height && (u32)at < (u32)width;
        int input = chunk * STEP + load_input;
        held_x[0] = held_x[1] = 0.0f;
        if (inside) {
            i64 source = (i64)(y >> upsample) * source_width + (at >> upsample);
            const f32x4* from = (const f32x4*)(x + source * inputs + input);
            held_x[0] = from[0];
            held_x[1] = from[1];
            if (norm) {
                const f32x4 *a = (const f32x4*)(norm + input), *b = (const f32x4*)(norm + inputs + input);
                UNROLL for (int i = 0; i < 2; i++)
                    UNROLL for (int e = 0; e < 4; e++) {
                        float v = fma(held_x[i][e], a[i][e], b[i][e]);
                        held_x[i][e] = silu ? math::silu(v) : v;
                    }
            }
        }
        i64 w_row = ((i64)(ky * side + kx) * inputs + chunk * STEP + load_row) * packed;
        UNROLL for (int i = 0; i < 2; i++) {
            int output = first_output + load_output + 4 * i;
            held_w[i] = 0.0f;
            if (output < packed) held_w[i] = *(const f32x4*)(w + w_row + output);
        }
        if (++chunk == chunks) {
            chunk = 0;
            if (++kx == side) {
                kx = 0;
                ky++;
            }
        }
    };
    auto keep = [&](int step) {
        float* to_x = lds + (step & 1) * BUFFER;
        float* to_w = to_x + STEP * X_ROW;
        UNROLL for (int i = 0; i < 2; i++) {
            UNROLL for (int e = 0; e < 4; e++) to_x[(load_input + 4 * i + e) * X_ROW + load_pixel] = held_x[i][e];
            *(f32x4*)(to_w + load_row * W_ROW + load_output + 4 * i) = held_w[i];
        }
    };

    int outputs_at = (thread & 15) * 4, pixels_at = (thread >> 4) * 8;
    float acc[8][4] = {};
    fetch();
    keep(0);
    barrier();
    for (int step = 0; step < steps; step++) {
        if (step + 1 < steps) fetch();
        const float* from_x = lds + (step & 1) * BUFFER + pixels_at;
        const float* from_w = lds + (step & 1) * BUFFER + STEP * X_ROW + outputs_at;
        _Pragma("unroll 4") for (int i = 0; i < STEP; i++) {
            f32x4 low = *(const f32x4*)(from_x + i * X_ROW), high = *(const f32x4*)(from_x + i * X_ROW + 4);
            f32x4 factor = *(const f32x4*)(from_w + i * W_ROW);
            UNROLL for (int p = 0; p < 4; p++)
                UNROLL for (int e = 0; e < 4; e++) {
                    acc[p][e] = fma(low[p], factor[e], acc[p][e]);
                    acc[p + 4][e] = fma(high[p], factor[e], acc[p + 4][e]);
                }
        }
        if (step + 1 < steps) keep(step + 1);
        barrier();
    }

    UNROLL for (int p = 0; p < 8; p++) {
        int at = first_pixel + pixels_at + p;
        if (at >= pixels) continue;
        i64 base = ((i64)row_first * width + at) * outputs;
        UNROLL for (int e = 0; e < 4; e++) {
            int output = first_output + outputs_at + e;
            if (output >= outputs) continue;
            float y = acc[p][e] + bias[output];
            if (residual) y = y + residual[base + output];
            out[base + output] = y;
        }
    }
}
