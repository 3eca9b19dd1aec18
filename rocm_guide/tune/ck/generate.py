# SPDX-License-Identifier: MIT
"""C++ from an instance: the text that one would write by hand, with a kernel for one problem, or a torch operator.

:func:`kernel_source` is compiled without ROCm (``build.py``); :func:`extension_source` is for hipcc on a machine with
ROCm and was compiled here no further than its instance, because there is neither hipcc nor an MI300X.
"""

from __future__ import annotations

from dataclasses import fields
from string import Template

from rocm_guide.tune.ck.instance import CkError, GemmInstance, Problem
from rocm_guide.tune.ck.operations import operation

__all__ = ["extension_source", "instance_source", "kernel_source"]

HEADER = "ck/tensor_operation/gpu/device/impl/device_gemm_multiple_d_xdl_cshuffle.hpp"
#: Type -> C++, and torch's name of it.
_TYPES = {
    "F16": ("ck::half_t", "at::kHalf"),
    "BF16": ("ck::bhalf_t", "at::kBFloat16"),
    "F32": ("float", "at::kFloat"),
    "F8": ("ck::f8_t", "at::kFloat8_e4m3fnuz"),
    "I8": ("int8_t", "at::kChar"),
    "I32": ("int32_t", "at::kInt"),
}


def _value(name: str, value: object) -> str:
    if name in ("DsLayout", "DsDataType") and isinstance(value, tuple):
        return f"ck::Tuple<{', '.join(map(str, value))}>"
    if isinstance(value, tuple):
        return f"S<{', '.join(map(str, value))}>"
    prefix = {
        "GemmSpec": "ck::tensor_operation::device::GemmSpecialization::",
        "LoopSched": "ck::LoopScheduler::",
        "PipelineVer": "ck::PipelineVersion::",
    }.get(name, "")
    return f"{prefix}{value}"


def instance_source(instance: GemmInstance) -> str:
    """Return includes, types, the elementwise struct and ``using Instance = …``, one template parameter a line.

    >>> print(instance_source(GemmInstance()).splitlines()[0])
    #include "ck/tensor_operation/gpu/device/impl/device_gemm_multiple_d_xdl_cshuffle.hpp"
    """
    op = operation(instance.CDEElementwiseOperation)
    values = {f.name: getattr(instance, f.name) for f in fields(instance)} | {"ComputeDataType": instance.compute_type}
    lines = [(_value(name, value), name) for name, value in values.items()]
    width, ends = max(len(text) for text, _ in lines) + 1, [*[","] * (len(lines) - 1), ">;"]
    listing = [f"    {text + end:<{width}} // {name}" for (text, name), end in zip(lines, ends, strict=True)]
    used = {v for value in values.values() for v in (value if isinstance(value, tuple) else (value,))}
    aliases = [f"using {name:<4} = {cpp};" for name, (cpp, _) in _TYPES.items() if name in used]
    struct = ""
    if op.code:
        # The struct sees C as it lies in LDS, and each D as it lies in memory.
        d = instance.DsDataType[0] if instance.DsDataType else instance.EDataType
        if op.types and op.types != (instance.CShuffleDataType, d):
            said = f"its struct is written for C and D of {' and '.join(op.types)}"
            have = f"{instance.CShuffleDataType} and {d}"
            raise CkError(f"{instance.CDEElementwiseOperation}: {said}, not of {have}")
        types = {"E": instance.EDataType, "C": instance.CShuffleDataType, "D": d}
        struct = Template(op.code).substitute(types, name=instance.CDEElementwiseOperation)
    head = f"""#include "{HEADER}"

template <ck::index_t... Is>
using S = ck::Sequence<Is...>;

using Row         = ck::tensor_layout::gemm::RowMajor;
using Col         = ck::tensor_layout::gemm::ColumnMajor;
using PassThrough = ck::tensor_operation::element_wise::PassThrough;
"""
    using = "using Instance = ck::tensor_operation::device::DeviceGemmMultipleD_Xdl_CShuffle<"
    return "\n".join([head, *aliases, "", struct + "\n" + using if struct else using, *listing]) + "\n"


def _described(rows: int, columns: int, first: int, second: int) -> str:
    return f"ck::make_naive_tensor_descriptor(ck::make_tuple({rows}, {columns}), ck::make_tuple({first}, {second}))"


def _strides(layout: str, stride: int | None, packed: int) -> tuple[int, int]:
    line = packed if stride is None else stride
    return (line, 1) if layout == "Row" else (1, line)


def kernel_source(instance: GemmInstance, problem: Problem) -> str:
    """Return a whole file: the instance, CK's own check of ``problem`` at compile time, and a kernel ``gemm``.

    Its arguments: a, b, one pointer for each D, e, and the scalars of the operation. The sizes are constants, as in
    CK's own run-time compilation, so there is one kernel for each problem.

    Raises:
        CkError: an operation that does not fit the types.
    """
    i, p = instance, problem
    op = operation(i.CDEElementwiseOperation)
    names = [f"d{n}" for n in range(len(i.DsDataType))]
    arguments = [f"const {i.ADataType}* a", f"const {i.BDataType}* b"]
    arguments += [f"const {t}* {n}" for t, n in zip(i.DsDataType, names, strict=True)]
    arguments += [f"{i.EDataType}* e", *(f"float {s}" for s in op.scalars)]
    strides = [*p.StrideDs, *[None] * len(names)]
    packed = {"Row": p.N, "Col": p.M}
    ds = [_described(p.M, p.N, *_strides(x, strides[n], packed[x])) for n, x in enumerate(i.DsLayout)]
    b_row = i.BLayout == "Row"
    descriptors = [
        _described(p.M, p.K, *_strides(i.ALayout, p.StrideA, p.K if i.ALayout == "Row" else p.M)),
        _described(p.N, p.K, *reversed(_strides("Row" if b_row else "Col", p.StrideB, p.N if b_row else p.K))),
        f"ck::make_tuple({', '.join(ds)})",
        _described(p.M, p.N, *_strides(i.ELayout, p.StrideE, p.N if i.ELayout == "Row" else p.M)),
    ]
    comments = ("A, M x K", "B, N x K", "each D, M x N", "E, M x N")
    described = ",\n".join(f"        /* {c:<13} */ {d}" for c, d in zip(comments, descriptors, strict=True))
    lines = [
        f"    constexpr auto desc = Instance::make_descriptor(\n{described});",
        '    static_assert(desc.IsValid(), "CK cannot run this problem with this instance");',
    ]
    if op.scalars:
        lines += ["    auto with_scalars = desc;"]
        lines += [f"    with_scalars.cde_element_op.{s} = {s};" for s in op.scalars]
    given = "with_scalars" if op.scalars else "desc"
    lines.append(f"    Instance::Run({given}, a, b, ck::make_tuple({', '.join(names)}), e);")
    threads = f"__attribute__((amdgpu_flat_work_group_size({i.BlockSize}, {i.BlockSize})))"
    text = f'\nextern "C" __global__ {threads} void gemm(\n    {", ".join(arguments)})\n{{\n'
    return instance_source(instance) + text + "\n".join(lines) + "\n}\n"


def extension_source(instance: GemmInstance, name: str = "ck_gemm") -> str:
    """Return a torch extension around the instance, for hipcc: ``torch.ops.rocm_guide_ck.NAME(a, b, ds, scalars)``.

    Untested on hardware. It asks CK's ``IsSupportedArgument`` before it launches, runs on torch's current stream, and
    takes a D of shape (N,) as one row with stride 0, where AMD's code makes an M x N copy.
    """
    i = instance
    op = operation(i.CDEElementwiseOperation)
    scalars = ", ".join(f"static_cast<float>(scalars[{n}])" for n in range(len(op.scalars)))
    torch_type = {name: torch for name, (_, torch) in _TYPES.items()}
    pointers = ", ".join(f"ds[{n}].data_ptr()" for n in range(len(i.DsDataType)))
    strides = ", ".join(f"ds[{n}].dim() == 1 ? 0 : int(ds[{n}].stride(0))" for n in range(len(i.DsDataType)))
    b_sizes = "b.size(0), b.size(1)" if i.BLayout == "Row" else "b.size(1), b.size(0)"
    tensors = "\n".join(
        f"    TORCH_CHECK(ds[{n}].scalar_type() == {torch_type[t]} && ds[{n}].size(-1) == N,\n"
        f'                "D{n}: wrong type or size");'
        for n, t in enumerate(i.DsDataType)
    )
    return f"""// Generated for hipcc by rocm_guide.tune.ck; untested on hardware.
#include <torch/extension.h>
#include <ATen/hip/HIPContext.h>

{instance_source(instance)}
// a: {"M x K" if i.ALayout == "Row" else "K x M"}; b: {"K x N" if i.BLayout == "Row" else "N x K"}; each D: M x N, or N
torch::Tensor {name}(torch::Tensor a, torch::Tensor b, std::vector<torch::Tensor> ds, std::vector<double> scalars)
{{
    TORCH_CHECK(a.is_cuda() && b.is_cuda() && a.dim() == 2 && b.dim() == 2, "a and b: matrices on a GPU");
    TORCH_CHECK(a.scalar_type() == {torch_type[i.ADataType]} && b.scalar_type() == {torch_type[i.BDataType]},
                "a or b: wrong type");
    TORCH_CHECK(a.stride(1) == 1 && b.stride(1) == 1, "a and b: the last dimension has to be contiguous");
    TORCH_CHECK(ds.size() == {len(i.DsDataType)} && scalars.size() == {len(op.scalars)},
                "wrong number of D or of scalars");
    const int M = a.size({0 if i.ALayout == "Row" else 1}), K = a.size({1 if i.ALayout == "Row" else 0});
    const auto sizes = std::pair<int, int>{{{b_sizes}}};
    const int N = sizes.second;
    TORCH_CHECK(sizes.first == K, "a and b do not fit");
{tensors}
    auto e = torch::empty({{M, N}}, a.options().dtype({torch_type[i.EDataType]}));

    auto gemm     = Instance{{}};
    auto argument = gemm.MakeArgument(a.data_ptr(), b.data_ptr(), {{{pointers}}}, e.data_ptr(), M, N, K,
                                      a.stride(0), b.stride(0), {{{strides}}}, N,
                                      {i.AElementwiseOperation}{{}}, {i.BElementwiseOperation}{{}},
                                      {i.CDEElementwiseOperation}{{{scalars}}});
    TORCH_CHECK(gemm.IsSupportedArgument(argument), "CK cannot run this problem: ", gemm.GetTypeString());
    gemm.MakeInvoker().Run(argument, StreamConfig{{at::hip::getCurrentHIPStream().stream(), false}});
    return e;
}}

TORCH_LIBRARY_FRAGMENT(rocm_guide_ck, m)
{{
    m.def("{name}", &{name});
}}
"""
