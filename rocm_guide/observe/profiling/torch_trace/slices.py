# SPDX-License-Identifier: MIT
"""The part of a transformer that a kernel belongs to.

"The GEMMs take 60 %" does not say what to fix; "the MLP GEMMs take 40 %, attention's take 15 %" does. A kernel's name
alone cannot tell the two apart, so :func:`~rocm_guide.observe.profiling.torch_trace.recording.mark_modules` writes the
place of each module into the trace and the functions here combine place and name into the slices of the MI300X kernels
blog.
"""

from __future__ import annotations

import re
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

_COMMUNICATION = re.compile(
    r"nccl|rccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|cross_device_reduce|quick_?reduce", re.I
)
_GEMM = re.compile(
    r"gemm|Cijk_|gemv|nvjet|xmma|wvSplitK|splitKreduce|cutlass.*(?:tensorop|wgmma)|grouped_mm|fused_moe_kernel|^_?matmul"
    r"|^aten::(?:mm|bmm|addmm|baddbmm|matmul|linear|_scaled_mm|mkldnn_linear)$|mkldnn::_linear|aiter.*mm",
    re.I,
)
_ATTENTION = re.compile(r"flash|fmha|attn|attention|mla_|paged|rope|rotary|kv_?cache|reshape_and_cache", re.I)
_NORM = re.compile(r"norm", re.I)
_ACTIVATION = re.compile(r"silu|swiglu|gelu|geglu|act_and_mul|relu", re.I)

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
    """Return the slice of one kernel or operator.

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
    if _COMMUNICATION.search(name):
        return "communication"
    if place in ("attention", "attention GEMMs", "MLP GEMMs", "norms", "other"):
        return place
    if place == "mlp":
        return "MLP GEMMs" if _GEMM.search(name) else "activation"
    if _ATTENTION.search(name):
        return "attention"
    if _NORM.search(name):
        return "norms"
    if _ACTIVATION.search(name):
        return "activation"
    return "GEMMs, place unknown" if _GEMM.search(name) else "other"


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
