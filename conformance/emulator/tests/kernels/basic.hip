#include "prelude.h"

extern "C" __global__ void BOUNDS(256) add(const float *a, const float *b, float *c, int n) {
    int i = WG * 256 + TID;
    if (i < n) c[i] = a[i] + b[i];
}

// Every wave's sum through LDS and a barrier.
extern "C" __global__ void BOUNDS(256) reduce(const float *a, float *out, int n) {
    __shared__ float part[256];
    int i = WG * 256 + TID;
    part[TID] = i < n ? a[i] : 0.0f;
    barrier();
    for (int s = 128; s > 0; s /= 2) {
        if (TID < s) part[TID] += part[TID + s];
        barrier();
    }
    if (TID == 0) out[WG] = part[0];
}

// IEEE division and square root, subnormals kept.
extern "C" __global__ void BOUNDS(256) divide(const float *a, const float *b, float *q, float *r, int n) {
    int i = WG * 256 + TID;
    if (i >= n) return;
    q[i] = a[i] / b[i];
    r[i] = __builtin_sqrtf(__builtin_fabsf(b[i]));
}

extern "C" __global__ void BOUNDS(64) index3(u32 *out, u32 nx, u32 ny) {
    u32 gx = __builtin_amdgcn_workgroup_id_x() * 4 + __builtin_amdgcn_workitem_id_x();
    u32 gy = __builtin_amdgcn_workgroup_id_y() * 2 + __builtin_amdgcn_workitem_id_y();
    u32 gz = __builtin_amdgcn_workgroup_id_z() * 3 + __builtin_amdgcn_workitem_id_z();
    out[(gz * ny + gy) * nx + gx] = gx + 1000 * gy + 1000000 * gz;
}
