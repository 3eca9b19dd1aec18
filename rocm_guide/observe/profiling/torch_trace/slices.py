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
    """What a library calls its kernels of one kind: a regular expression, any case of letters, and where to read it.

    Attributes:
        seen: a name of one of its kernels, which stands in ``source``.
        source: the file or folder, read on 2026-11-27; of a library without sources, a trace that has the name.
    """

    library: str
    kind: str
    names: str
    seen: str
    source: str


_VLLM, _SGLANG = "https://github.com/vllm-project/vllm/tree/main", "https://github.com/sgl-project/sglang/tree/main"
_AITER, _CK = "https://github.com/ROCm/aiter/tree/main", "https://github.com/ROCm/composable_kernel/tree/develop"
_TORCH, _TRITON = "https://github.com/pytorch/pytorch/tree/main", "https://github.com/triton-lang/triton/tree/main"

#: Kinds of kernels by name; the first row that fits decides, so fused kernels stand before the parts that they hold.
KERNELS = (
    Named(
        "RCCL, NCCL",
        "communication",
        r"nccl|rccl|msccl",
        "ncclDevKernel_Generic",
        "https://github.com/ROCm/rccl/tree/develop/src/device/common.h",
    ),
    Named(
        "vLLM",
        "communication",
        r"cross_device_reduce|quick_?(?:all)?reduce|allreduce_prototype",
        "vllm::cross_device_reduce_1stage",
        f"{_VLLM}/csrc/custom_all_reduce.cuh",
    ),
    Named(
        "AITER, any",
        "communication",
        r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all",
        "allgather_naive",
        f"{_AITER}/csrc/include/custom_all_reduce.cuh",
    ),
    # One kernel for an expert's GEMMs and the activation between them: the GEMMs are what it takes its time for.
    Named(
        "AITER",
        "GEMM",
        r"fmoe_|moe_?gemm|moe_?flatmm|fused_?moe_?gemm",
        "_ZN5aiter47fmoe_bf16_blockscaleFp8_g1u1_vs_gelu_1tg_32x128E",
        f"{_AITER}/hsa/gfx942/fmoe",
    ),
    Named(
        "vLLM, SGLang",
        "GEMM",
        r"fused_moe_kernel|moe_wna16|moe_mmk",
        "fused_moe_kernel_gptq_awq",
        f"{_VLLM}/vllm/model_executor/layers/fused_moe/fused_moe.py",
    ),
    Named(
        "Triton",
        "GEMM",
        r"_matmul_ogs|_p_matmul",
        "_p_matmul",
        f"{_TRITON}/python/triton_kernels/triton_kernels/matmul_details/_p_matmul.py",
    ),
    # A mangled name has its length before it, so no word begins there.
    Named(
        "AITER, vLLM",
        "attention",
        r"(?<![a-z])(?:mla_(?:a\d|dec|reduce|prefill|pfl)|pa_(?:fwd|bf16|fp16|a16|a8|decode))",
        "_ZN5aiter44PA_A16W8_BLK256_1TG_4W_16mx1_64nx4_MTP_PS_PBE",
        f"{_AITER}/hsa/gfx942/pa/pa_asm.csv",
    ),
    Named(
        "SGLang",
        "attention",
        r"_fwd_(?:grouped_)?kernel_stage\d|_decode_att|extend_attention|kv_indices",
        "_fwd_grouped_kernel_stage1",
        f"{_SGLANG}/python/sglang/srt/layers/attention/triton_ops/decode_attention.py",
    ),
    Named(
        "AOTriton",
        "attention",
        r"attn_fwd|bwd_kernel_d[kq]|bwd_preprocess",
        "bwd_kernel_dk_dv",
        "https://github.com/ROCm/aotriton/tree/main/modules/flash/aot",
    ),
    Named(
        "CK, FlashAttention",
        "attention",
        r"fmha|flash(?!infer_silu)",
        "ck_tile::FmhaFwdKernel",
        f"{_CK}/include/ck_tile/ops/fmha/kernel/fmha_fwd_kernel.hpp",
    ),
    Named(
        "vLLM, AITER",
        "attention",
        r"attn|attention|paged|rope|rotary|kv_?cache|reshape_and_cache",
        "paged_attention_v1_kernel",
        f"{_VLLM}/csrc/attention/paged_attention_v1.cu",
    ),
    Named(
        "hipBLASLt, Tensile",
        "GEMM",
        r"Cijk_",
        "Cijk_Alik_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs",
        "https://github.com/ROCm/hipBLASLt/tree/develop/library/src/amd_detail/rocblaslt/src/Tensile/Logic/asm_full"
        "/aquavanjaram/gfx942/Equality",
    ),
    Named(
        "cuBLAS, CUTLASS",
        "GEMM",
        r"nvjet|xmma|cutlass.*(?:tensorop|wgmma)",
        "nvjet_sm90_tst_128x8_64x12_4x1_v_bz_TNT",
        "notebooks/recorded/decode_b1.json.gz",
    ),
    Named(
        "vLLM",
        "GEMM",
        r"wvSplitK|splitKreduce|LLMM1|LLGemm",
        "wvSplitK_hf_sml_",
        f"{_VLLM}/csrc/rocm/skinny_gemms.cu",
    ),
    Named(
        "inductor",
        "GEMM",
        r"triton_tem_\w*mm",
        "triton_tem_fused_addmm_3",
        f"{_TORCH}/torch/_inductor/wrapper_benchmark.py",
    ),
    Named(
        "inductor",
        "norms",
        r"triton_(?:red|per)_\w*rsqrt",
        "triton_per_fused_rsqrt_0",
        f"{_TORCH}/torch/_inductor/wrapper_benchmark.py",
    ),
    Named(
        "CK, AITER",
        "GEMM",
        r"(?<!fb)gemm|gemv|flatmm",  # FBGEMM's embeddings carry its name in their arguments
        "kernel_gemm_xdl_cshuffle_v3_multi_d",
        f"{_CK}/include/ck/tensor_operation/gpu/grid/gridwise_gemm_xdl_cshuffle_v3_multi_d.hpp",
    ),
    Named(
        "PyTorch",
        "GEMM",
        r"^aten::(?:mm|bmm|addmm|baddbmm|matmul|linear|_scaled_mm|mkldnn_linear)$|mkldnn::_linear",
        "aten::baddbmm",
        f"{_TORCH}/aten/src/ATen/native/native_functions.yaml",
    ),
    Named(
        "PyTorch",
        "GEMM",
        r"grouped_mm|scaled_mm",
        "aten::_grouped_mm",
        f"{_TORCH}/aten/src/ATen/native/native_functions.yaml",
    ),
    Named(
        "AITER, Triton",
        "GEMM",
        r"aiter.*mm|(?:^|_)b?matmul(?:$|_)|(?:^|_)bmm(?:$|_)",
        "_fused_fp4_bmm_reduce_kernel",
        f"{_AITER}/aiter/ops/triton/_triton_kernels/fusions/fused_bmm_rope_kv_cache.py",
    ),
    Named("any", "norms", r"norm", "fused_qk_rmsnorm_kernel", f"{_AITER}/csrc/kernels/fused_qk_norm.cu"),
    Named(
        "any",
        "activation",
        r"silu|swiglu|gelu|geglu|act_and_mul|relu",
        "act_and_mul_kernel",
        f"{_AITER}/csrc/kernels/activation_kernels.cu",
    ),
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
