// SPDX-License-Identifier: MIT
// Small kernels behind the committed HIP samples: wide copies, a matrix core in two nested loops, a call.
#define GLOBAL __attribute__((global))
#define DEVICE __attribute__((device))
#define SHARED __attribute__((shared))
#define THREADS(n) __attribute__((amdgpu_flat_work_group_size(1, n)))
typedef _Float16 half4 __attribute__((ext_vector_type(4)));
typedef float vec4 __attribute__((ext_vector_type(4)));

extern "C" GLOBAL THREADS(256) void copy16(const vec4* __restrict__ x, vec4* __restrict__ y, int n) {
  for (int i = __builtin_amdgcn_workgroup_id_x() * 256 + __builtin_amdgcn_workitem_id_x(); i < n; i += 256 * 304)
    y[i] = x[i];
}

extern "C" GLOBAL THREADS(128) void mfma_tile(const half4* a, const half4* b, vec4* c, int k) {
  SHARED half4 tile[128];
  int t = __builtin_amdgcn_workitem_id_x();
  vec4 acc = 0;
  for (int j = 0; j < k; ++j) {
    for (int i = 0; i < k; ++i) {
      tile[t] = b[i * 128 + t + j];
      __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
      __builtin_amdgcn_s_barrier();
      __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
      acc = __builtin_amdgcn_mfma_f32_16x16x16f16(a[i * 128 + t], tile[127 - t], acc, 0, 0, 0);
      __builtin_amdgcn_s_barrier();
    }
    acc = acc * 2.0f;
  }
  c[t] = acc;
}

__attribute__((noinline)) DEVICE float helper(float x, int n) {
  float s = x;
  for (int i = 0; i < n; ++i) s = s * s + 1.0f / s;
  return s;
}

extern "C" GLOBAL THREADS(64) void calls(float* y, int n) {
  int t = __builtin_amdgcn_workitem_id_x();
  y[t] = helper(y[t], n);
}
