// SPDX-License-Identifier: MIT
// One source, three compilers.
//
//   hipcc on a machine with ROCm      the real thing; hip_runtime.h is used
//   plain clang, no ROCm (GUIDE_BARE) the same gfx942 code, to be read: nothing outside this folder is needed
//   plain clang, GUIDE_CPU            every thread of a workgroup is a fiber on the CPU, to be checked (cpu.h)
//
// Kernels use only what is declared here.
#pragma once

#define GUIDE_VECTOR(type, n) type __attribute__((ext_vector_type(n)))
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef GUIDE_VECTOR(u32, 2) u32x2;
typedef GUIDE_VECTOR(u32, 4) u32x4;
typedef GUIDE_VECTOR(int, 2) i32x2;
typedef GUIDE_VECTOR(int, 4) i32x4;
typedef GUIDE_VECTOR(float, 4) f32x4;
typedef _Float16 f16;
typedef __bf16 bf16;

constexpr int WAVE = 64;
constexpr float LOG2_E = 1.4426950408889634f;

#if defined(GUIDE_CPU)
#include "cpu.h"
#else

#if !defined(GUIDE_BARE)
#include <hip/hip_runtime.h>
#else
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
typedef void* hipStream_t;
typedef int hipError_t;
extern "C" hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, __SIZE_TYPE__ lds, hipStream_t stream);
extern "C" hipError_t hipLaunchKernel(const void* f, dim3 grid, dim3 block, void** arguments, __SIZE_TYPE__ lds,
                                      hipStream_t stream);
extern "C" hipError_t hipGetLastError();
#endif

#define GUIDE_DEVICE static __device__ inline __attribute__((always_inline))
#define GUIDE_KERNEL(threads) \
    extern "C" __global__ void __attribute__((amdgpu_flat_work_group_size(threads, threads)))
#define GUIDE_SHARED(type, name, count) __shared__ type name[count]
// Start a kernel; 0 means that it was accepted.
#define GUIDE_LAUNCH(kernel, grid_x, grid_y, threads, stream, ...) \
    (kernel<<<dim3(grid_x, grid_y), dim3(threads), 0, (hipStream_t)(stream)>>>(__VA_ARGS__), (int)hipGetLastError())

GUIDE_DEVICE u32 thread_id() { return __builtin_amdgcn_workitem_id_x(); }
GUIDE_DEVICE u32 block_x() { return __builtin_amdgcn_workgroup_id_x(); }
GUIDE_DEVICE u32 block_y() { return __builtin_amdgcn_workgroup_id_y(); }

// A value that is the same in all lanes, as a scalar: branches on it are then branches of the wave.
GUIDE_DEVICE u32 uniform(u32 value) { return __builtin_amdgcn_readfirstlane(value); }

// All threads of the workgroup have come here, and see what the others wrote before.
GUIDE_DEVICE void barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

GUIDE_DEVICE float lane_xor(float value, u32 mask) {
    const u32 from = (thread_id() % WAVE) ^ mask;
    return __builtin_bit_cast(float, __builtin_amdgcn_ds_bpermute(from * 4, __builtin_bit_cast(int, value)));
}

template <typename T>
GUIDE_DEVICE T load(const T* p) { return *p; }
template <typename T>
GUIDE_DEVICE void store(T* p, T value) { *p = value; }
// For data that is read once: do not keep it in the caches.
GUIDE_DEVICE u32x4 load_once(const u32x4* p) { return __builtin_nontemporal_load(p); }

GUIDE_DEVICE float exp2_fast(float x) { return __builtin_amdgcn_exp2f(x); }
GUIDE_DEVICE float exp_full(float x) { return __builtin_expf(x); }  // to the last bit: a dozen instructions
GUIDE_DEVICE float reciprocal(float x) { return __builtin_amdgcn_rcpf(x); }
GUIDE_DEVICE float inverse_root(float x) { return __builtin_amdgcn_rsqf(x); }
GUIDE_DEVICE float clamp(float x, float low, float high) { return __builtin_amdgcn_fmed3f(x, low, high); }

// Two fp32 to two FP8 in one half of a register; `old` keeps the other half.
template <bool UPPER>
GUIDE_DEVICE u32 convert_two(float a, float b, u32 old) { return __builtin_amdgcn_cvt_pk_fp8_f32(a, b, old, UPPER); }

GUIDE_DEVICE f32x4 mfma_16x16x32(u32x2 a, u32x2 b, f32x4 c) {
    return __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(__builtin_bit_cast(long, a), __builtin_bit_cast(long, b), c, 0, 0, 0);
}
GUIDE_DEVICE f32x4 smfmac_16x16x64(u32x2 a, u32x4 b, f32x4 c, u32 positions) {
    return __builtin_amdgcn_smfmac_f32_16x16x64_fp8_fp8(__builtin_bit_cast(i32x2, a), __builtin_bit_cast(i32x4, b), c,
                                                        positions, 0, 0);
}

// Flags in LDS between the waves of a workgroup. Only LDS has to be in order around them: a plain release would also
// wait for every load from memory that is still under way, which is what the producers want to avoid.
GUIDE_DEVICE u32 flag_read(u32* flag) {
    const u32 value = __hip_atomic_load(flag, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
    return uniform(value);
}
#if __clang_major__ >= 19
#define GUIDE_LDS_FENCE(order) __builtin_amdgcn_fence(order, "workgroup", "local")
#else
#define GUIDE_LDS_FENCE(order) __builtin_amdgcn_fence(order, "workgroup")
#endif
GUIDE_DEVICE void flag_wait(u32* flag, u32 at_least) {
    while (flag_read(flag) < at_least) __builtin_amdgcn_s_sleep(1);
    GUIDE_LDS_FENCE(__ATOMIC_ACQUIRE);
}
GUIDE_DEVICE void flag_add(u32* flag, u32 lane) {
    GUIDE_LDS_FENCE(__ATOMIC_RELEASE);
    if (lane == 0) __hip_atomic_fetch_add(flag, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
}

// A ticket among workgroups, ordered with memory both ways.
GUIDE_DEVICE u32 take_ticket(u32* counter) {
    return __hip_atomic_fetch_add(counter, 1u, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
}
GUIDE_DEVICE void publish() { __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent"); }
GUIDE_DEVICE void refresh() { __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent"); }
#endif

// The largest FP8 number of the format that the GPU's conversion writes: FNUZ e4m3 on gfx942, OCP e4m3 on gfx950.
#if defined(__gfx950__)
constexpr float FP8_MAX = 448.0f;
#else
constexpr float FP8_MAX = 240.0f;
#endif

GUIDE_DEVICE float larger(float a, float b) { return a > b ? a : b; }

template <typename Combine>
GUIDE_DEVICE float across_wave(float value, Combine combine) {
    for (u32 mask = WAVE / 2; mask > 0; mask /= 2) value = combine(value, lane_xor(value, mask));
    return value;
}

// Combine one value of each thread of the workgroup; every thread gets the result. `scratch` holds one per wave.
template <int THREADS, typename Combine>
GUIDE_DEVICE float across_workgroup(float value, float* scratch, Combine combine) {
    constexpr int WAVES = THREADS / WAVE;
    value = across_wave(value, combine);
    if (WAVES == 1) return value;
    if (thread_id() % WAVE == 0) scratch[thread_id() / WAVE] = value;
    barrier();
    value = scratch[0];
    for (int i = 1; i < WAVES; ++i) value = combine(value, scratch[i]);
    barrier();  // scratch may be used again
    return value;
}

// Saturate and keep NaN: med3 alone would turn NaN into a number, and the conversion alone turns 241 into NaN.
GUIDE_DEVICE float saturate(float x) {
    const float clamped = clamp(x, -FP8_MAX, FP8_MAX);
    return x == x ? clamped : x;
}

// Four fp32 to four FP8 in one register: two packed conversions.
GUIDE_DEVICE u32 to_fp8x4(float a, float b, float c, float d) {
    const u32 low = convert_two<false>(saturate(a), saturate(b), 0u);
    return convert_two<true>(saturate(c), saturate(d), low);
}
