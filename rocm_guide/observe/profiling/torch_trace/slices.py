# SPDX-License-Identifier: MIT
"""The part of a transformer that a kernel belongs to.

"The GEMMs take 60 %" does not say what to fix; "the MLP GEMMs take 40 %, attention's take 15 %" does. A kernel's name
alone cannot tell the two apart, so :func:`~rocm_guide.observe.profiling.torch_trace.recording.mark_modules` writes the
place of each module into the trace and the functions here combine place and name into the slices of the MI300X kernels
blog.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any, NamedTuple

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


class Named(NamedTuple):
    """What a library calls its kernels of one kind, and where to read it: a row of ``data/kernel_names.tsv``."""

    library: str
    kind: str
    names: str
    seen: str
    source: str


def _kernels(table: str) -> tuple[Named, ...]:
    rows = [line.split("\t") for line in table.splitlines() if not line.startswith("#")]
    return tuple(Named(*row) for row in rows[1:])


#: Kinds of kernels by name, in the order in which they are tried.
KERNELS = _kernels(files("rocm_guide").joinpath("data", "kernel_names.tsv").read_text(encoding="utf-8"))
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
    """Return the place of every module of a model, by its dotted path; on any device, meta included.

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
