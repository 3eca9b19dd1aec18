// SPDX-License-Identifier: MIT
// What CK's headers expect of HIP when they are compiled at run time (__HIPCC_RTC__), for a clang without HIP.
#pragma once
#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __launch_bounds__(...)
#define BOTH __host__ __device__

typedef __SIZE_TYPE__ size_t;
typedef unsigned short ushort;
typedef _Float16 __half;
struct dim3
{
    unsigned x, y, z;
    constexpr BOTH dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
#define OF_AXES(what) \
    dim3(__builtin_amdgcn_##what##_x(), __builtin_amdgcn_##what##_y(), __builtin_amdgcn_##what##_z())
#define threadIdx OF_AXES(workitem_id)
#define blockIdx OF_AXES(workgroup_id)
#define blockDim OF_AXES(workgroup_size)
#define gridDim dim3(__builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x())

__device__ inline void __syncthreads()
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
__device__ inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
__device__ inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned long long)a * b >> 32; }

namespace __hip_internal {
template <class A, class B>
struct is_same
{
    static constexpr bool value = __is_same(A, B);
};
} // namespace __hip_internal

// Named by headers that a matrix product includes, called by none of ours: declared, so that they parse.
#define DECLARED(name)      \
    BOTH float name##f(float); \
    BOTH double name(double);
DECLARED(acos) DECLARED(acosh) DECLARED(asin) DECLARED(asinh) DECLARED(atan) DECLARED(atanh) DECLARED(ceil)
DECLARED(cos) DECLARED(cosh) DECLARED(erf) DECLARED(expm1) DECLARED(floor) DECLARED(sin) DECLARED(sinh)
DECLARED(tan) DECLARED(tanh)
BOTH float abs(float);
BOTH double abs(double);
BOTH bool isnan(float);
BOTH bool isnan(double);
BOTH float powf(float, float);
__device__ float __logf(float);
__device__ unsigned __byte_perm(unsigned, unsigned, unsigned);
extern "C" __device__ float __ocml_exp_f32(float);
extern "C" __device__ int printf(const char*, ...);
__device__ __half __hneg(__half);
__device__ __half hceil(__half);
__device__ __half hexp(__half);
__device__ __half hfloor(__half);
__device__ __half hlog(__half);
__device__ __half hsin(__half);
template <class T>
__device__ T atomicAdd(T*, T);
template <class T>
__device__ T atomicMax(T*, T);
#define __hip_assert(condition)
