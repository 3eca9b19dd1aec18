// SPDX-License-Identifier: MIT
// The HIP kernels as torch operators, torch.ops.cdna_hip.*: checks, outputs, the current stream. Built by setup.py in
// this folder's neighbour hip_extension/, or by cdna.hip.extension.build_extension(), on a machine with ROCm.
#include <torch/library.h>
#include <ATen/ATen.h>

#include <cmath>
#include <tuple>

extern "C" int guide_rmsnorm_fp8(int type, const void* x, const void* residual, const void* weight, void* updated,
                                 void* out, float* scales, int rows, int columns, float eps, float scale, void* stream);
extern "C" int guide_swiglu_fp8(int type, const void* x, void* out, float* scales, int rows, int columns, float scale,
                                void* stream);
extern "C" int guide_skinny_gemm(int type, int dense, const void* a, const void* b, void* c, float* partial,
                                 unsigned* tickets, int rows, int columns, int depth, int splits, float scale,
                                 void* stream);

namespace {
using at::Tensor;

void check_matrix(const Tensor& t, const char* name) {
    TORCH_CHECK(t.is_cuda() && t.dim() == 2 && t.is_contiguous(), name, ": give a contiguous matrix on the GPU");
}
int type_code(const Tensor& t, const char* name) {
    TORCH_CHECK(t.scalar_type() == at::kHalf || t.scalar_type() == at::kBFloat16, name, ": give fp16 or bf16");
    return t.scalar_type() == at::kBFloat16;
}
void check_started(int status, const char* name) {
    TORCH_CHECK(status != -1, name, ": sizes that the kernel does not take (see the launcher's comment)");
    TORCH_CHECK(status == 0, name, ": HIP error ", status);
}
void check_device(const Tensor& t, const Tensor& first, const char* name) {
    TORCH_CHECK(t.device() == first.device(), name, " is on ", t.device(), ": put it on ", first.device());
}
bool is_static(double scale) {
    // 0 asks for a scale of each row. 1 / scale must be a normal fp32 number too.
    TORCH_CHECK(scale == 0 || (scale >= 1e-37 && scale <= 1e37), "scale=", scale,
                ": give a number from 1e-37 to 1e37, or 0 for one for each row");
    return scale > 0;
}

// stream: torch.cuda.current_stream().cuda_stream, so that this file needs no header of HIP.
std::tuple<Tensor, Tensor, Tensor> rmsnorm_fp8(const Tensor& x, const Tensor& residual, const Tensor& weight, double scale,
                                               double eps, int64_t stream) {
    check_matrix(x, "x");
    check_matrix(residual, "residual");
    check_device(residual, x, "residual");
    check_device(weight, x, "weight");
    TORCH_CHECK(std::isfinite(eps) && eps >= 0, "eps=", eps, ": give a finite number of 0 or more");
    TORCH_CHECK(residual.sizes() == x.sizes() && residual.scalar_type() == x.scalar_type(), "residual: like x");
    TORCH_CHECK(weight.is_cuda() && weight.is_contiguous() && weight.dim() == 1 && weight.size(0) == x.size(1) &&
                weight.scalar_type() == x.scalar_type(), "weight: give (columns,) of the type of x");
    const bool fixed = is_static(scale);
    Tensor updated = at::empty_like(x), out = at::empty(x.sizes(), x.options().dtype(at::kFloat8_e4m3fnuz));
    Tensor scales = at::empty({fixed ? 0 : x.size(0), 1}, x.options().dtype(at::kFloat));
    check_started(guide_rmsnorm_fp8(type_code(x, "x"), x.data_ptr(), residual.data_ptr(), weight.data_ptr(),
                                    updated.data_ptr(), out.data_ptr(), fixed ? nullptr : scales.data_ptr<float>(),
                                    (int)x.size(0), (int)x.size(1), (float)eps, fixed ? (float)scale : 1.0f,
                                    (void*)stream), "rmsnorm_fp8");
    return {out, updated, scales};
}

std::tuple<Tensor, Tensor> swiglu_fp8(const Tensor& x, double scale, int64_t stream) {
    check_matrix(x, "x");
    TORCH_CHECK(x.size(1) % 2 == 0, "x: give gate and up side by side");
    const bool fixed = is_static(scale);
    Tensor out = at::empty({x.size(0), x.size(1) / 2}, x.options().dtype(at::kFloat8_e4m3fnuz));
    Tensor scales = at::empty({fixed ? 0 : x.size(0), 1}, x.options().dtype(at::kFloat));
    check_started(guide_swiglu_fp8(type_code(x, "x"), x.data_ptr(), out.data_ptr(),
                                   fixed ? nullptr : scales.data_ptr<float>(), (int)x.size(0), (int)out.size(1),
                                   fixed ? (float)scale : 1.0f, (void*)stream), "swiglu_fp8");
    return {out, scales};
}

Tensor skinny_gemm(const Tensor& a, const Tensor& b, double scale, int64_t splits, int64_t stream) {
    check_matrix(a, "a");
    check_matrix(b, "b");
    TORCH_CHECK(a.scalar_type() == at::kFloat8_e4m3fnuz && b.scalar_type() == at::kFloat8_e4m3fnuz,
                "a, b: give float8_e4m3fnuz");
    check_device(b, a, "b");
    TORCH_CHECK(a.size(1) == b.size(1), "a and b must share their depth");
    TORCH_CHECK(std::isfinite((float)scale), "scale=", scale, ": give a finite number");
    TORCH_CHECK(splits >= 1 && splits <= 64, "splits=", splits, ": give 1 to 64");
    const auto plain = a.options();
    Tensor c = at::empty({a.size(0), b.size(0)}, plain.dtype(at::kBFloat16));
    Tensor partial = at::empty({splits > 1 ? splits : 0, a.size(0), b.size(0)}, plain.dtype(at::kFloat));
    Tensor tickets = at::zeros({b.size(0) / 32 + 1}, plain.dtype(at::kInt));
    check_started(guide_skinny_gemm(1, 0, a.data_ptr(), b.data_ptr(), c.data_ptr(), partial.data_ptr<float>(),
                                    (unsigned*)tickets.data_ptr<int>(), (int)a.size(0), (int)b.size(0), (int)a.size(1),
                                    (int)splits, (float)scale, (void*)stream), "skinny_gemm");
    return c;
}
}  // namespace

TORCH_LIBRARY(cdna_hip, m) {
    m.def("rmsnorm_fp8(Tensor x, Tensor residual, Tensor weight, float scale, float eps, int stream) -> (Tensor, Tensor, Tensor)");
    m.def("swiglu_fp8(Tensor x, float scale, int stream) -> (Tensor, Tensor)");
    m.def("skinny_gemm(Tensor a, Tensor b, float scale, int splits, int stream) -> Tensor");
}
TORCH_LIBRARY_IMPL(cdna_hip, CUDA, m) {  // the dispatch key of AMD GPUs in torch, too
    m.impl("rmsnorm_fp8", rmsnorm_fp8);
    m.impl("swiglu_fp8", swiglu_fp8);
    m.impl("skinny_gemm", skinny_gemm);
}
