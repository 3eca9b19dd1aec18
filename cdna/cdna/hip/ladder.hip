// SPDX-License-Identifier: MIT
// The ladders to rmsnorm_fp8.hip and swiglu_fp8.hip: the same operations, fp16 and a static scale, one improvement at a
// time. Every rung is right; they differ in what they ask of the hardware. RMSNorm: 8,192 or 16,384 columns.
#include "guide.h"

constexpr int THREADS = 1024, MOST = 16384;
typedef GUIDE_VECTOR(f16, 8) f16x8;

GUIDE_DEVICE float add(float a, float b) { return a + b; }

// FP8 without the instruction: round the magnitude with integer arithmetic, ties to even. What every conversion cost
// before there was an instruction for it.
GUIDE_DEVICE u32 fp8_by_hand(float x) {
    const u32 bits = __builtin_bit_cast(u32, saturate(x));
    const u32 sign = bits >> 24 & 0x80u, size = bits & 0x7FFFFFFFu;
    if (size > 0x7F800000u) return 0x80u;  // NaN
    if (size < 0x3A000000u) return 0u;     // below half of the smallest number, 2^-10
    u32 code;
    if (size < 0x3C000000u) {  // below 2^-7: a subnormal; adding 2^13 leaves the rounded multiple of 2^-10 in the mantissa
        code = __builtin_bit_cast(u32, __builtin_bit_cast(float, size) + 8192.0f) & 0xFFu;
    } else {
        code = (size - 0x3B800000u + 0x7FFFFu + (size >> 20 & 1u)) >> 20;
    }
    return code ? code | sign : 0u;
}

#define RUNG(name)        \
    GUIDE_KERNEL(THREADS) \
    name(const f16* x, const f16* residual, const f16* weight, f16* updated, u8* out, int columns, float eps, float inverse)

// 1. Pointwise: one number for each lane and instruction; the sum goes to memory and is read back.
RUNG(rung_pointwise) {
    GUIDE_SHARED(float, scratch, THREADS / WAVE);
    const u64 start = (u64)block_x() * columns;
    float sum = 0.0f;
    for (int i = thread_id(); i < columns; i += THREADS) {
        const f16 s = load(x + start + i) + load(residual + start + i);
        store(updated + start + i, s);
        sum += (float)s * (float)s;
    }
    const float factor = inverse_root(across_workgroup<THREADS>(sum, scratch, add) / columns + eps) * inverse;
    for (int i = thread_id(); i < columns; i += THREADS) {
        const float s = load(updated + start + i);
        store(out + start + i, (u8)fp8_by_hand(s * factor * (float)load(weight + i)));
    }
}

// Where the v-th group of eight of this thread lies: a run of its own, or interleaved with the other lanes.
template <bool COALESCED>
GUIDE_DEVICE int group(int v, int columns) {
    return COALESCED ? v * THREADS + thread_id() : thread_id() * (columns / 8 / THREADS) + v;
}

enum Keep { MEMORY, LDS, REGISTERS };

template <bool COALESCED, Keep KEEP, bool PACKED>
GUIDE_DEVICE void vectors(const f16* x, const f16* residual, const f16* weight, f16* updated, u8* out, int columns,
                          float eps, float inverse) {
    GUIDE_SHARED(float, scratch, THREADS / WAVE);
    GUIDE_SHARED(f16x8, row, KEEP == LDS ? MOST / 8 : 1);
    constexpr int GROUPS = MOST / 8 / THREADS;
    const u64 start = (u64)block_x() * columns;
    f16x8 kept[GROUPS];
    float sum = 0.0f;
#pragma unroll
    for (int v = 0; v < GROUPS; ++v) {
        const int at = group<COALESCED>(v, columns);
        if (v * THREADS >= columns / 8) break;
        const f16x8 s = load((const f16x8*)(x + start) + at) + load((const f16x8*)(residual + start) + at);
        store((f16x8*)(updated + start) + at, s);
        if (KEEP == LDS) row[at] = s;
        if (KEEP == REGISTERS) kept[v] = s;
        for (int j = 0; j < 8; ++j) sum += (float)s[j] * (float)s[j];
    }
    const float factor = inverse_root(across_workgroup<THREADS>(sum, scratch, add) / columns + eps) * inverse;
#pragma unroll
    for (int v = 0; v < GROUPS; ++v) {
        const int at = group<COALESCED>(v, columns);
        if (v * THREADS >= columns / 8) break;
        const f16x8 s = KEEP == MEMORY ? load((const f16x8*)(updated + start) + at) : KEEP == LDS ? row[at] : kept[v];
        const f16x8 w = load((const f16x8*)weight + at);
        float y[8];
        for (int j = 0; j < 8; ++j) y[j] = (float)s[j] * factor * (float)w[j];
        u32x2 q = {0, 0};
        if (PACKED) {
            q = u32x2{to_fp8x4(y[0], y[1], y[2], y[3]), to_fp8x4(y[4], y[5], y[6], y[7])};
        } else {
            for (int j = 0; j < 8; ++j) q[j / 4] |= fp8_by_hand(y[j]) << j % 4 * 8;
        }
        store((u32x2*)(out + start) + at, q);
    }
}

// 2. 128-bit loads, each thread a run of neighbouring numbers: within one instruction the lanes lie apart.
RUNG(rung_vectors) { vectors<false, MEMORY, false>(x, residual, weight, updated, out, columns, eps, inverse); }
// 3. The same loads, coalesced: within one instruction the lanes are neighbours.
RUNG(rung_coalesced) { vectors<true, MEMORY, false>(x, residual, weight, updated, out, columns, eps, inverse); }
// 4. The sum is kept in LDS instead of being read back.
RUNG(rung_lds) { vectors<true, LDS, false>(x, residual, weight, updated, out, columns, eps, inverse); }
// 5. The sum is kept in registers: every thread needs only its own part.
RUNG(rung_registers) { vectors<true, REGISTERS, false>(x, residual, weight, updated, out, columns, eps, inverse); }
// 6. Two conversions to FP8 with one instruction.
RUNG(rung_packed) { vectors<true, REGISTERS, true>(x, residual, weight, updated, out, columns, eps, inverse); }

// SwiGLU, for the arithmetic: first with a full-precision exponential and division, then with exp2 and the reciprocal.
template <bool EXP2>
GUIDE_DEVICE float swiglu(float gate, float up) {
    return EXP2 ? gate * reciprocal(1.0f + exp2_fast(-LOG2_E * gate)) * up : gate / (1.0f + exp_full(-gate)) * up;
}

#define SWIGLU_RUNG(name) GUIDE_KERNEL(THREADS) name(const f16* x, u8* out, int columns, float inverse)

// 7. One column for each lane, FP8 by hand.
SWIGLU_RUNG(rung_swiglu_pointwise) {
    const int at = block_x() * THREADS + thread_id();
    if (at >= columns) return;
    const f16* row = x + (u64)block_y() * 2 * columns;
    const float y = swiglu<false>(load(row + at), load(row + columns + at));
    store(out + (u64)block_y() * columns + at, (u8)fp8_by_hand(y * inverse));
}

template <bool EXP2>
GUIDE_DEVICE void swiglu_vectors(const f16* x, u8* out, int columns, float inverse) {
    const int at = block_x() * THREADS + thread_id();
    if (at >= columns / 8) return;
    const f16* row = x + (u64)block_y() * 2 * columns;
    const f16x8 gate = load((const f16x8*)row + at), up = load((const f16x8*)(row + columns) + at);
    float y[8];
    for (int j = 0; j < 8; ++j) y[j] = swiglu<EXP2>(gate[j], up[j]) * inverse;
    const u32x2 q = {to_fp8x4(y[0], y[1], y[2], y[3]), to_fp8x4(y[4], y[5], y[6], y[7])};
    store((u32x2*)(out + (u64)block_y() * columns) + at, q);
}
// 8. 128-bit loads, packed conversions.
SWIGLU_RUNG(rung_swiglu_packed) { swiglu_vectors<false>(x, out, columns, inverse); }
// 9. The exponential as exp2, the division as a reciprocal.
SWIGLU_RUNG(rung_swiglu_exp2) { swiglu_vectors<true>(x, out, columns, inverse); }

#define LAUNCH(name)                                                                                                  \
    GUIDE_LAUNCH(name, rows, 1, THREADS, stream, (const f16*)x, (const f16*)residual, (const f16*)weight,             \
                 (f16*)updated, (u8*)out, columns, eps, 1.0f / scale)

#define LAUNCH_SWIGLU(name, each)                                                                        \
    GUIDE_LAUNCH(name, (columns / each + THREADS - 1) / THREADS, rows, THREADS, stream, (const f16*)x, (u8*)out, columns, \
                 1.0f / scale)

// rung: 7 to 9; x: (rows, 2 * columns), columns a multiple of 8.
extern "C" int guide_swiglu_ladder(int rung, const void* x, void* out, int rows, int columns, float scale,
                                   void* stream) {
    if (rows < 1 || rows > 65535 || columns < 8 || columns % 8 || rung < 7 || rung > 9) return -1;
    return rung == 7   ? LAUNCH_SWIGLU(rung_swiglu_pointwise, 1)
           : rung == 8 ? LAUNCH_SWIGLU(rung_swiglu_packed, 8)
                       : LAUNCH_SWIGLU(rung_swiglu_exp2, 8);
}

// rung: 1 to 6. 0 means started; -1 that the arguments do not fit.
extern "C" int guide_ladder(int rung, const void* x, const void* residual, const void* weight, void* updated, void* out,
                            int rows, int columns, float eps, float scale, void* stream) {
    if (rows < 1 || columns < 8192 || columns % 8192 || columns > MOST || rung < 1 || rung > 6) return -1;
    return rung == 1   ? LAUNCH(rung_pointwise)
           : rung == 2 ? LAUNCH(rung_vectors)
           : rung == 3 ? LAUNCH(rung_coalesced)
           : rung == 4 ? LAUNCH(rung_lds)
           : rung == 5 ? LAUNCH(rung_registers)
                       : LAUNCH(rung_packed);
}
