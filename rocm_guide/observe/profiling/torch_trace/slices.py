# SPDX-License-Identifier: MIT
"""The part of a transformer that a kernel belongs to.

"The GEMMs take 60 %" does not say what to fix; "the MLP GEMMs take 40 %, attention's take 15 %" does. A kernel's name
alone cannot tell the two apart, so :func:`~rocm_guide.observe.profiling.torch_trace.recording.mark_modules` writes the
place of each module into the trace and the functions here combine place and name into the slices of the MI300X kernels
blog.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

__all__ = []

#: The slices, in the order in which they are drawn.
#: Source: "Creating custom kernels for the AMD MI300" (https://huggingface.co/blog/mi300kernels), day 0 analysis.
SLICES = (
    "attention",
    "attention GEMMs",
    "MLP GEMMs",
    "norms",
    "activation",
    "communication",
    "GEMMs, place unknown",
    "other",
)


@dataclass(frozen=True, slots=True)
class Named:
    """What a library calls its kernels of one kind: a regular expression, any case of letters, and where to read it."""

    library: str
    kind: str
    names: str
    source: str


_VLLM, _SGLANG = "https://github.com/vllm-project/vllm", "https://github.com/sgl-project/sglang"
_AITER, _CK = "https://github.com/ROCm/aiter", "https://github.com/ROCm/composable_kernel"
_TORCH, _TRITON = "https://github.com/pytorch/pytorch", "https://github.com/triton-lang/triton"

#: Kinds of kernels by name; the first row that fits decides, so fused kernels stand before the parts that they hold.
KERNELS = (
    Named("RCCL, NCCL", "communication", r"nccl|rccl|msccl", "https://github.com/ROCm/rccl/tree/develop/src/device"),
    Named("vLLM", "communication", r"cross_device_reduce|quick_?(?:all)?reduce|allreduce_prototype", f"{_VLLM}/csrc"),
    Named("AITER, any", "communication", r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all", f"{_AITER}/csrc"),
    # One kernel for an expert's GEMMs and the activation between them: the GEMMs are what it takes its time for.
    Named("AITER", "GEMM", r"fmoe_|moe_?gemm|moe_?flatmm|fused_?moe_?gemm", f"{_AITER}/hsa, {_CK}/include/ck_tile/ops"),
    Named(
        "vLLM, SGLang", "GEMM", r"fused_moe_kernel|moe_wna16|moe_mmk", f"{_VLLM}/vllm/model_executor/layers/fused_moe"
    ),
    Named("Triton", "GEMM", r"_matmul_ogs|_p_matmul|moe_gemm_a\d+w\d+", f"{_TRITON}/python/triton_kernels, {_AITER}"),
    Named(
        "AITER, vLLM",
        "attention",
        r"\bmla_|mla_(?:a\d|dec|reduce|decode|prefill)|\bpa_(?:fwd|bf16|fp16|a16|decode)",
        _AITER,
    ),
    Named("SGLang", "attention", r"_fwd_(?:grouped_)?kernel_stage\d|_decode_att|extend_attention|kv_indices", _SGLANG),
    Named("AOTriton", "attention", r"attn_fwd|bwd_kernel_d[kq]|bwd_preprocess", "https://github.com/ROCm/aotriton"),
    Named("CK, FlashAttention", "attention", r"fmha|flash(?!infer_silu)", f"{_CK}/include/ck_tile/ops/fmha"),
    Named("vLLM, AITER", "attention", r"attn|attention|paged|rope|rotary|kv_?cache|reshape_and_cache", f"{_VLLM}/csrc"),
    Named("hipBLASLt, Tensile", "GEMM", r"Cijk_", "https://github.com/ROCm/hipBLASLt/tree/develop/tensilelite"),
    Named("cuBLAS, CUTLASS", "GEMM", r"nvjet|xmma|cutlass.*(?:tensorop|wgmma)", "https://github.com/NVIDIA/cutlass"),
    Named("vLLM", "GEMM", r"wvSplitK|splitKreduce|LLMM1|LLGemm", f"{_VLLM}/csrc/rocm/skinny_gemms.cu"),
    Named("inductor", "GEMM", r"triton_tem_\w*mm", f"{_TORCH}/torch/_inductor"),
    Named("inductor", "norms", r"triton_(?:red|per)_\w*rsqrt", f"{_TORCH}/torch/_inductor"),
    Named(
        "CK, AITER",
        "GEMM",
        r"gemm|gemv|flatmm",
        f"{_CK}/include/ck/tensor_operation/gpu/grid, {_AITER}/aiter/ops/triton",
    ),
    Named(
        "PyTorch",
        "GEMM",
        r"^aten::(?:mm|bmm|addmm|baddbmm|matmul|linear|_scaled_mm|mkldnn_linear)$|mkldnn::_linear",
        _TORCH,
    ),
    Named("PyTorch", "GEMM", r"grouped_mm|scaled_mm", _TORCH),
    Named(
        "AITER, Triton",
        "GEMM",
        r"aiter.*mm|(?:^|_)b?matmul(?:$|_)|(?:^|_)bmm(?:$|_)",
        f"{_AITER}/aiter/ops/triton, {_TRITON}",
    ),
    Named("any", "norms", r"norm", f"{_VLLM}/csrc/layernorm_kernels.cu, {_AITER}/csrc/kernels"),
    Named("any", "activation", r"silu|swiglu|gelu|geglu|act_and_mul|relu", f"{_VLLM}/csrc/activation_kernels.cu"),
)
_KINDS = tuple((re.compile(row.names, re.I), row.kind) for row in KERNELS)

_NORM_MODULE = re.compile(r"norm|^ln(_|$|\d)", re.I)
_ATTENTION_MODULE = re.compile(r"attn|attention|rotary|rope", re.I)
_MLP_MODULE = re.compile(
    r"mlp|ffn|feed_?forward|expert|moe|densereludense|intermediate|(?<!self)output$|^fc\d?$|^act(ivation)?(_fn)?$"
    r"|^w[123]$|^dense_h_to_4h$|^dense_4h_to_h$",
    re.I,
)
_LINEAR_CLASS = re.compile(r"linear|conv1d", re.I)
_EMBEDDING_CLASS = re.compile(r"embed", re.I)


def module_place(path: str, cls: str, parent: str = "other", *, linear: bool | None = None) -> str:
    """Return the place of a module: "attention", "attention GEMMs", "mlp", "MLP GEMMs", "norms" or "other".

    Args:
        path: the name of the module in its parent, or its whole dotted path ("model.layers.0.self_attn.q_proj").
        cls: its class name ("Linear").
        parent: the place of the module around it.
        linear: whether it multiplies by a weight matrix; by default decided from the class name.

    >>> module_place("self_attn", "LlamaAttention")
    'attention'
    >>> module_place("q_proj", "Linear", parent="attention")
    'attention GEMMs'
    >>> module_place("fc1", "Linear", parent="other")  # OPT has no module around its two MLP layers
    'MLP GEMMs'
    """
    leaf = path.rsplit(".", 1)[-1]
    if _EMBEDDING_CLASS.search(cls) and not _ATTENTION_MODULE.search(cls):
        return "other"
    if _NORM_MODULE.search(cls) or _NORM_MODULE.search(leaf):
        return "norms"
    # The inside decides for a leaf called "attention.output.dense": attention stays attention.
    if _ATTENTION_MODULE.search(leaf) or _ATTENTION_MODULE.search(cls) or parent == "attention":
        place = "attention"
    elif _MLP_MODULE.search(leaf) or _MLP_MODULE.search(cls):
        place = "mlp"
    else:
        place = parent
    if linear is None:
        linear = bool(_LINEAR_CLASS.search(cls))
    if not linear:
        return place
    return {"attention": "attention GEMMs", "mlp": "MLP GEMMs"}.get(place, place)


def kernel_slice(name: str, place: str = "") -> str:
    """Return the slice of one kernel or operator: its name says what it is, the place which part of the model.

    The name comes first: it is the nearest evidence, and with compiled graphs the place is the frame of a whole model.

    Args:
        name: its name, as the trace gives it.
        place: what :func:`module_place` said of the module that launched it; "" when the trace does not tell.

    >>> kernel_slice("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "attention")
    'communication'
    >>> kernel_slice("Cijk_Alik_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x256x64", "MLP GEMMs")
    'MLP GEMMs'
    >>> kernel_slice("void vectorized_elementwise_kernel<4, silu_kernel>", "mlp")
    'activation'
    >>> kernel_slice("Cijk_Alik_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x256x64")
    'GEMMs, place unknown'
    """
    kind = next((kind for pattern, kind in _KINDS if pattern.search(name)), "")
    if kind == "GEMM":
        # A product inside attention itself, of queries and keys, is attention; one of "other" is the output layer's.
        places = {"mlp": "MLP GEMMs", "": "GEMMs, place unknown", "norms": "GEMMs, place unknown"}
        return places.get(place, place)
    if kind:
        return kind
    return {"mlp": "activation", "": "other"}.get(place, place)


def module_slices(model: Any) -> dict[str, str]:
    """Return the place of every module of a model, by its dotted path.

    Args:
        model: a ``torch.nn.Module``, on any device, meta included.

    >>> import torch
    >>> block = torch.nn.ModuleDict({"self_attn": torch.nn.ModuleDict({"q_proj": torch.nn.Linear(4, 4)}),
    ...                              "mlp": torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.SiLU())})
    >>> {k: v for k, v in module_slices(block).items() if k.count(".") == 1}
    {'self_attn.q_proj': 'attention GEMMs', 'mlp.0': 'MLP GEMMs', 'mlp.1': 'mlp'}
    """
    places: dict[str, str] = {}
    for path, module in model.named_modules():
        parent = places.get(path.rpartition(".")[0], "other") if path else "other"
        weight = getattr(module, "weight", None)
        cls = type(module).__name__
        has_matrix = getattr(weight, "ndim", 0) == 2 and not _EMBEDDING_CLASS.search(cls)
        linear = bool(has_matrix or _LINEAR_CLASS.search(cls))
        # A linear layer that wraps another (LoRA) keeps its place; what hangs below it belongs to the same GEMM.
        if parent in ("attention GEMMs", "MLP GEMMs"):
            places[path] = parent
        else:
            places[path] = module_place(path, cls, parent, linear=linear) if path else "other"
    return places
