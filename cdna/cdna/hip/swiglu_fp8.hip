// SPDX-License-Identifier: MIT
// SwiGLU + FP8: eight columns for each thread, 128-bit loads of gate and up, the exponential as exp2, FP8 by packed
// conversion.
#include "guide.h"

constexpr int TILE_THREADS = 256, ROW_THREADS = 1024;

template <typename T>
using Eight = GUIDE_VECTOR(T, 8);

// y = gate * sigmoid(gate) * up of eight columns, in fp32. The instruction computes 2^x: log2(e) goes into the argument.
template <typename T>
GUIDE_DEVICE void swiglu_eight(const T* row, int columns, int at, float* y) {
    const Eight<T> gate = load((const Eight<T>*)row + at), up = load((const Eight<T>*)(row + columns) + at);
    for (int j = 0; j < 8; ++j) {
        const float g = gate[j];
        y[j] = g * reciprocal(1.0f + exp2_fast(-LOG2_E * g)) * (float)up[j];
    }
}

GUIDE_DEVICE u32x2 quantise(const float* y, float factor) {
    return u32x2{to_fp8x4(y[0] * factor, y[1] * factor, y[2] * factor, y[3] * factor),
                 to_fp8x4(y[4] * factor, y[5] * factor, y[6] * factor, y[7] * factor)};
}

template <typename T>
GUIDE_DEVICE void swiglu_tile(const T* x, u8* out, int columns, float inverse_scale) {
    const u64 row = block_y();
    const int at = block_x() * TILE_THREADS + thread_id();
    if (at >= columns / 8) return;
    float y[8];
    swiglu_eight(x + row * 2 * columns, columns, at, y);
    store((u32x2*)(out + row * columns) + at, quantise(y, inverse_scale));
}

// A scale for each row: the row stays in registers between its maximum and its conversion.
template <typename T, int VECTORS>
GUIDE_DEVICE void swiglu_row(const T* x, u8* out, float* scales, int columns) {
    GUIDE_SHARED(float, scratch, ROW_THREADS / WAVE);
    const u64 row = block_x();
    float y[VECTORS][8], top = 0.0f;
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        const int at = v * ROW_THREADS + thread_id();
        for (int j = 0; j < 8; ++j) y[v][j] = 0.0f;
        if (at < columns / 8) swiglu_eight(x + row * 2 * columns, columns, at, y[v]);
        for (int j = 0; j < 8; ++j) top = larger(top, __builtin_fabsf(y[v][j]));
    }
    const float scale = larger(across_workgroup<ROW_THREADS>(top, scratch, larger), 1e-30f) / FP8_MAX;
    if (thread_id() == 0) scales[row] = scale;
    const float factor = 1.0f / scale;
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        const int at = v * ROW_THREADS + thread_id();
        if (at < columns / 8) store((u32x2*)(out + row * columns) + at, quantise(y[v], factor));
    }
}

#define SWIGLU_TYPE(suffix, T)                                                                                          \
    GUIDE_KERNEL(TILE_THREADS) swiglu_fp8_##suffix(const T* x, u8* out, int columns, float inverse_scale) {             \
        swiglu_tile<T>(x, out, columns, inverse_scale);                                                                 \
    }                                                                                                                   \
    GUIDE_KERNEL(ROW_THREADS) swiglu_fp8_rows_##suffix##_8k(const T* x, u8* out, float* scales, int columns) {          \
        swiglu_row<T, 1>(x, out, scales, columns);                                                                      \
    }                                                                                                                   \
    GUIDE_KERNEL(ROW_THREADS) swiglu_fp8_rows_##suffix##_16k(const T* x, u8* out, float* scales, int columns) {         \
        swiglu_row<T, 2>(x, out, scales, columns);                                                                      \
    }                                                                                                                   \
    GUIDE_KERNEL(ROW_THREADS) swiglu_fp8_rows_##suffix##_32k(const T* x, u8* out, float* scales, int columns) {         \
        swiglu_row<T, 4>(x, out, scales, columns);                                                                      \
    }
SWIGLU_TYPE(f16, f16)
SWIGLU_TYPE(bf16, bf16)

#define LAUNCH_ROWS(name, T) GUIDE_LAUNCH(name, rows, 1, ROW_THREADS, stream, (const T*)x, (u8*)out, scales, columns)
#define LAUNCH_TYPE(suffix, T)                                                                           \
    (!scales            ? GUIDE_LAUNCH(swiglu_fp8_##suffix, (columns / 8 + TILE_THREADS - 1) / TILE_THREADS, rows, \
                                       TILE_THREADS, stream, (const T*)x, (u8*)out, columns, 1.0f / scale) \
     : columns <= 8192  ? LAUNCH_ROWS(swiglu_fp8_rows_##suffix##_8k, T)                                  \
     : columns <= 16384 ? LAUNCH_ROWS(swiglu_fp8_rows_##suffix##_16k, T)                                 \
                        : LAUNCH_ROWS(swiglu_fp8_rows_##suffix##_32k, T))

// x: (rows, 2 * columns). type: 0 for fp16, 1 for bf16; scales: one fp32 for each row, or null to use `scale`. 0 means
// started; -1 that the arguments do not fit (columns: a multiple of 8; at most 32,768 with scales for rows).
extern "C" int guide_swiglu_fp8(int type, const void* x, void* out, float* scales, int rows, int columns, float scale,
                                void* stream) {
    if (rows < 1 || rows > 65535 || columns < 8 || columns % 8 || (scales && columns > 32768)) return -1;
    if (type < 0 || type > 1) return -1;
    return type ? LAUNCH_TYPE(bf16, bf16) : LAUNCH_TYPE(f16, f16);
}
