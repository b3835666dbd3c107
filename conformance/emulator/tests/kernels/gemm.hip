#include "prelude.h"
// C[M][N] (bf16) = A[M][K] B[N][K]^T in bf16 with f32 sums: 64 x 64 tiles, 4 waves of 32 x 32, K in steps
// of 16 through two LDS buffers.

typedef float f32x8 __attribute__((ext_vector_type(8)));
typedef short s16x8 __attribute__((ext_vector_type(8)));
typedef short s16x16 __attribute__((ext_vector_type(16)));
typedef u32 u32x4 __attribute__((ext_vector_type(4)));

#if defined(__gfx1200__) || defined(__gfx1201__)
typedef s16x8 frag;
static __device__ inline f32x8 mma(frag a, frag b, f32x8 c) {
    return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a, b, c);
}
static __device__ inline int acc_row(int v, int lane) { return 8 * (lane / 16) + v; }
static __device__ inline frag load(const short *row, int lane) {
    return *(const s16x8 *)(row + 8 * (lane / 16));
}
#else
typedef s16x16 frag;
static __device__ inline f32x8 mma(frag a, frag b, f32x8 c) {
    return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c);
}
static __device__ inline int acc_row(int v, int lane) { return 2 * v + lane / 16; }
static __device__ inline frag load(const short *row, int lane) {
    s16x8 lo = *(const s16x8 *)row, hi = *(const s16x8 *)(row + 8);
    return __builtin_shufflevector(lo, hi, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
#endif

static __device__ inline u16 round_bf16(float x) {
    u32 u = __builtin_bit_cast(u32, x);
    return (u + 0x7fff + (u >> 16 & 1)) >> 16;
}

#define TILE 64
#define PAD 24

extern "C" __global__ void BOUNDS(128) gemm(const u16 *a, const u16 *b, u16 *c, int m, int n, int k) {
    __shared__ __attribute__((aligned(16))) short as[2][TILE][PAD], bs[2][TILE][PAD];
    int lane = TID % 32, wave = TID / 32, wm = wave / 2 * 32, wn = wave % 2 * 32;
    int row0 = __builtin_amdgcn_workgroup_id_y() * TILE, col0 = WG * TILE;
    // 128 work-items fetch 64 rows of 16: eight elements of A and of B each.
    int fr = TID / 2, fc = TID % 2 * 8;
    const u16 *pa = a + (row0 + fr) * k + fc, *pb = b + (col0 + fr) * k + fc;
    f32x8 acc[2][2] = {};
    *(u32x4 *)&as[0][fr][fc] = *(const u32x4 *)pa;
    *(u32x4 *)&bs[0][fr][fc] = *(const u32x4 *)pb;
    barrier();
    for (int k0 = 0, buf = 0; k0 < k; k0 += 16, buf ^= 1) {
        u32x4 na = {}, nb = {};
        if (k0 + 16 < k) {
            na = *(const u32x4 *)(pa + k0 + 16);
            nb = *(const u32x4 *)(pb + k0 + 16);
        }
        frag fa[2], fb[2];
        for (int i = 0; i < 2; ++i) {
            fa[i] = load(as[buf][wm + 16 * i + lane % 16], lane);
            fb[i] = load(bs[buf][wn + 16 * i + lane % 16], lane);
        }
        for (int i = 0; i < 2; ++i)
            for (int j = 0; j < 2; ++j) acc[i][j] = mma(fa[i], fb[j], acc[i][j]);
        if (k0 + 16 < k) {
            *(u32x4 *)&as[buf ^ 1][fr][fc] = na;
            *(u32x4 *)&bs[buf ^ 1][fr][fc] = nb;
        }
#ifndef NO_BARRIER
        barrier();
#endif
    }
    for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j)
            for (int v = 0; v < 8; ++v) {
                int r = row0 + wm + 16 * i + acc_row(v, lane), cc = col0 + wn + 16 * j + lane % 16;
                c[r * n + cc] = round_bf16(acc[i][j][v]);
            }
}
