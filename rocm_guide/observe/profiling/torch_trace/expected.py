# SPDX-License-Identifier: MIT
"""Is the fast kernel really used? A model that silently falls back computes the right numbers, slowly."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from cdna.checks import Check
from rocm_guide.common.base import GuideError
from rocm_guide.observe.profiling.torch_trace.summary import TraceSummary

__all__ = ["check_kernels", "replaced_kernels"]

#: What a fast path is called in a trace, on ROCm, CUDA and CPU.
KERNEL_PATTERNS: Mapping[str, str] = {
    "fused attention": r"flash|fmha|attn_fwd|_attention_for_cpu|efficient_attention|FmhaFwd|paged_attention",
    "fused norm": r"rms_?norm|layer_?norm_kernel|vectorized_layer_norm|fused_layer_norm",
    "fused activation": r"silu_and_mul|swiglu|gelu_and_mul|act_and_mul",
    "hipBLASLt or Tensile GEMM": r"Cijk_|hipblaslt|nvjet|cutlass|xmma|mkldnn|^aten::(?:addmm|mm|bmm)$",
    "FP8 GEMM": r"f8|fp8|e4m3|F8F8|_scaled_mm",
    "graph replay": r"cudaGraphLaunch|hipGraphLaunch",
}


@dataclass(frozen=True)
class KernelCheck:
    """The check that a kind of kernel ran. ``found``: the names that match; ``instead``: the longest of the slice."""

    what: str
    used: bool
    found: tuple[str, ...]
    instead: tuple[str, ...]

    def __str__(self) -> str:
        """Return the line that a reader wants."""
        if self.used:
            return str(Check("OK", f"{self.what}:", self.found[0][:80]))
        instead = ", ".join(n[:50] for n in self.instead) or "nothing like it"
        return str(Check("WARN", f"{self.what}:", f"not used; instead {instead}"))


def check_kernels(
    summary: TraceSummary, expected: Mapping[str, str] | None = None, *, within: str = "attention"
) -> list[KernelCheck]:
    """Look for the kernels that should have run.

    Args:
        summary: of a trace.
        expected: name -> regular expression; by default only fused attention, the most common silent fallback.
        within: the slice whose longest kernels are shown when one is missing.

    Raises:
        GuideError: an expression that does not compile.

    >>> from rocm_guide.observe.profiling.torch_trace.summary import KernelTime
    >>> def summary(*names):
    ...     rows = tuple(KernelTime(n, "attention", 1, 5.0, 5.0, 5.0, 0.5) for n in names)
    ...     return TraceSummary("t", "cpu", "", 1, 10, 10, 0, 0, 10, 2, rows, {}, (), 0)
    >>> print(check_kernels(summary("aten::bmm", "aten::_softmax"))[0])
    [WARN] fused attention: not used; instead aten::bmm, aten::_softmax
    """
    wanted = expected if expected is not None else {"fused attention": KERNEL_PATTERNS["fused attention"]}
    rows = []
    for what, pattern in wanted.items():
        try:
            search = re.compile(pattern, re.I).search
        except re.error as e:
            raise GuideError(f"{what}: {pattern!r} is no regular expression ({e})") from e
        found = tuple(k.name for k in summary.kernels if search(k.name))
        instead = () if found else tuple(k.name for k in summary.kernels if k.slice == within)[:3]
        rows.append(KernelCheck(what, bool(found), found, instead))
    return rows


def replaced_kernels(a: TraceSummary, b: TraceSummary) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return by slice the kernels that only A launches and those that only B launches; equal slices are left out.

    A new library, another dtype or a missing environment variable shows up here before it shows up in the time.

    >>> from rocm_guide.observe.profiling.torch_trace.summary import KernelTime
    >>> def summary(name):
    ...     row = KernelTime(name, "attention", 1, 5.0, 5.0, 5.0, 1.0)
    ...     return TraceSummary("t", "gpu", "", 1, 5, 5, 0, 0, 5, 1, (row,), {}, (), 0)
    >>> replaced_kernels(summary("flash_fwd"), summary("softmax"))
    {'attention': (('flash_fwd',), ('softmax',))}
    """
    tables: list[dict[str, set[str]]] = []
    for summary in (a, b):
        table: dict[str, set[str]] = {}
        for k in summary.kernels:
            table.setdefault(k.slice, set()).add(k.name)
        tables.append(table)
    found = {}
    for part in {**tables[0], **tables[1]}:
        left, right = tables[0].get(part, set()), tables[1].get(part, set())
        if left != right:
            found[part] = tuple(sorted(left - right)), tuple(sorted(right - left))
    return found
