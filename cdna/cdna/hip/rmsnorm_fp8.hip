// SPDX-License-Identifier: MIT
// Residual + RMSNorm + FP8: one workgroup of 1,024 threads per row, the row in registers, 128-bit accesses, the sum in
// packed fp16 instructions, FP8 by packed conversion.
#include "guide.h"

constexpr int ROW_THREADS = 1024;

template <typename T>
using Eight = GUIDE_VECTOR(T, 8);

// Eight numbers times two factors, as eight FP8 bytes.
template <typename T>
GUIDE_DEVICE u32x2 quantise(Eight<T> s, Eight<T> weight, float factor) {
    float y[8];
    for (int j = 0; j < 8; ++j) y[j] = (float)s[j] * factor * (float)weight[j];
    return u32x2{to_fp8x4(y[0], y[1], y[2], y[3]), to_fp8x4(y[4], y[5], y[6], y[7])};
}

template <typename T, int VECTORS, bool DYNAMIC>
GUIDE_DEVICE void rmsnorm_row(const T* x, const T* residual, const T* weight, T* updated, u8* out, float* scales,
                              int columns, float eps, float inverse_scale) {
    GUIDE_SHARED(float, scratch, ROW_THREADS / WAVE);
    const u64 row = block_x(), start = row * columns;
    const int count = columns / 8;
    Eight<T> kept[VECTORS];
    float sum = 0.0f;
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        // Neighbouring lanes take neighbouring 16 bytes: one contiguous kilobyte for each instruction of a wave.
        const int at = v * ROW_THREADS + thread_id();
        kept[v] = Eight<T>(0);
        if (at < count) {
            kept[v] = load((const Eight<T>*)(x + start) + at) + load((const Eight<T>*)(residual + start) + at);
            store((Eight<T>*)(updated + start) + at, kept[v]);
        }
        for (int j = 0; j < 8; ++j) sum += (float)kept[v][j] * (float)kept[v][j];
    }
    sum = across_workgroup<ROW_THREADS>(sum, scratch, [](float a, float b) { return a + b; });
    const float rstd = inverse_root(sum / columns + eps);
    float factor = rstd * inverse_scale;
    if (DYNAMIC) {
        float top = 0.0f;
#pragma unroll
        for (int v = 0; v < VECTORS; ++v) {
            const int at = v * ROW_THREADS + thread_id();
            if (at < count) {
                const Eight<T> w = load((const Eight<T>*)weight + at);
                for (int j = 0; j < 8; ++j) top = larger(top, __builtin_fabsf((float)kept[v][j] * (float)w[j]));
            }
        }
        top = across_workgroup<ROW_THREADS>(top, scratch, larger) * rstd;
        const float scale = larger(top, 1e-30f) / FP8_MAX;
        if (thread_id() == 0) scales[row] = scale;
        factor = rstd / scale;
    }
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        const int at = v * ROW_THREADS + thread_id();
        if (at < count) {
            const Eight<T> w = load((const Eight<T>*)weight + at);
            store((u32x2*)(out + start) + at, quantise<T>(kept[v], w, factor));
        }
    }
}

#define RMSNORM(name, T, VECTORS, DYNAMIC)                                                                             \
    GUIDE_KERNEL(ROW_THREADS)                                                                                          \
    name(const T* x, const T* residual, const T* weight, T* updated, u8* out, float* scales, int columns, float eps,   \
         float inverse_scale) {                                                                                        \
        rmsnorm_row<T, VECTORS, DYNAMIC>(x, residual, weight, updated, out, scales, columns, eps, inverse_scale);      \
    }
#define RMSNORM_TYPE(suffix, T)                                  \
    RMSNORM(rmsnorm_fp8_##suffix##_8k, T, 1, false)              \
    RMSNORM(rmsnorm_fp8_##suffix##_16k, T, 2, false)             \
    RMSNORM(rmsnorm_fp8_##suffix##_32k, T, 4, false)             \
    RMSNORM(rmsnorm_fp8_rows_##suffix##_8k, T, 1, true)          \
    RMSNORM(rmsnorm_fp8_rows_##suffix##_16k, T, 2, true)         \
    RMSNORM(rmsnorm_fp8_rows_##suffix##_32k, T, 4, true)
RMSNORM_TYPE(f16, f16)
RMSNORM_TYPE(bf16, bf16)

#define LAUNCH(name, T)                                                                                          \
    GUIDE_LAUNCH(name, rows, 1, ROW_THREADS, stream, (const T*)x, (const T*)residual, (const T*)weight, (T*)updated, \
                 (u8*)out, scales, columns, eps, 1.0f / scale)
#define LAUNCH_TYPE(suffix, T)                                                                                      \
    (columns <= 8192    ? (scales ? LAUNCH(rmsnorm_fp8_rows_##suffix##_8k, T) : LAUNCH(rmsnorm_fp8_##suffix##_8k, T))    \
     : columns <= 16384 ? (scales ? LAUNCH(rmsnorm_fp8_rows_##suffix##_16k, T) : LAUNCH(rmsnorm_fp8_##suffix##_16k, T))  \
                        : (scales ? LAUNCH(rmsnorm_fp8_rows_##suffix##_32k, T) : LAUNCH(rmsnorm_fp8_##suffix##_32k, T)))

// type: 0 for fp16, 1 for bf16; scales: one fp32 for each row, or null to use `scale`. 0 means started; -1 that the
// arguments do not fit (columns: a multiple of 8, at most 32,768).
extern "C" int guide_rmsnorm_fp8(int type, const void* x, const void* residual, const void* weight, void* updated,
                                 void* out, float* scales, int rows, int columns, float eps, float scale,
                                 void* stream) {
    if (rows < 1 || columns < 8 || columns % 8 || columns > 32768 || type < 0 || type > 1) return -1;
    return type ? LAUNCH_TYPE(bf16, bf16) : LAUNCH_TYPE(f16, f16);
}
