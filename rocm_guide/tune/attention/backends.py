# SPDX-License-Identifier: MIT
"""The attention implementations that work on this machine, why the others do not, and what each one costs."""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from rocm_guide.common.base import GuideError
from rocm_guide.common.device import Timing, accelerator, pick_dtype, time_call
from rocm_guide.kernels.api import attention
from rocm_guide.kernels.attention import reference_attention

__all__ = ["attention_backends", "compare_backends"]

_SDPA = {
    "math": "MATH",
    "flash": "FLASH_ATTENTION",
    "memory-efficient": "EFFICIENT_ATTENTION",
    "cuDNN": "CUDNN_ATTENTION",
}


@dataclass(frozen=True)
class Backend:
    """One implementation.

    Attributes:
        name: for people.
        run: ``run(q, k, v, causal)`` on (batch, heads, rows, D); None when it cannot be used.
        why: where it comes from, or why it is not available and what to do about it.
    """

    name: str
    run: Callable[[torch.Tensor, torch.Tensor, torch.Tensor, bool], torch.Tensor] | None = field(repr=False)
    why: str

    @property
    def available(self) -> bool:
        return self.run is not None


@dataclass(frozen=True)
class BackendResult:
    """One result of :func:`compare_backends`; ``error`` is the largest one against float64, over the largest value."""

    name: str
    timing: Timing
    error: float


def _sdpa(kind: str) -> Callable[..., torch.Tensor]:
    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
        group = q.shape[1] // k.shape[1]
        if group > 1 and kind == "EFFICIENT_ATTENTION":  # the one that cannot share KV heads
            k, v, group = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), 1
        with sdpa_kernel(getattr(SDPBackend, kind)):
            return scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=group > 1)

    return run


def _flash_attn(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    from flash_attn import flash_attn_func

    return flash_attn_func(*(x.transpose(1, 2) for x in (q, k, v)), causal=causal).transpose(1, 2)


def _xformers(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    from xformers.ops import LowerTriangularMask, memory_efficient_attention

    group = q.shape[1] // k.shape[1]
    q, k, v = q.transpose(1, 2), *(x.repeat_interleave(group, 1).transpose(1, 2) for x in (k, v))
    return memory_efficient_attention(q, k, v, attn_bias=LowerTriangularMask() if causal else None).transpose(1, 2)


def _ours(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    return attention(q, k, v, causal=causal)


def _candidates(gpu: bool, rocm: bool) -> list[tuple[str, Any, str, str]]:
    """Return (name, function, module that must be installed, what it is)."""
    triton = os.environ.get("FLASH_ATTENTION_TRITON_AMD_ENABLE", "").upper() == "TRUE"
    flavour = "CUDA" if gpu and not rocm else "Triton" if triton else "CK"
    rows: list[tuple[str, Any, str, str]]
    rows = [(f"SDPA {name}", _sdpa(kind), "torch", "part of torch") for name, kind in _SDPA.items()]
    rows.append((f"FlashAttention-2 ({flavour})", _flash_attn, "flash_attn", "package flash-attn"))
    if rocm or not gpu:
        other = "CK" if triton else "Triton"
        switch = f"FLASH_ATTENTION_TRITON_AMD_ENABLE={'FALSE' if triton else 'TRUE'}"
        rows.append((f"FlashAttention-2 ({other})", None, "flash_attn", f"chosen by {switch} at build and at run time"))
    rows.append(("xFormers", _xformers, "xformers", "package xformers"))
    rows.append(("rocm_guide", _ours, "triton", "our Triton kernels"))
    return rows


def _reason(error: Exception, said: list[str]) -> str:
    """Return the reason: torch explains itself in warnings, and the last one that names a cause is the best answer."""
    plain = [t.split("(Triggered")[0].strip() for t in said]
    useful = [t for t in plain if "kernel not used" not in t and "not deterministic" not in t]
    text = (useful or [str(error)])[-1]
    return text.splitlines()[0] if text else type(error).__name__


def attention_backends(device: str | None = None, dtype: torch.dtype | None = None) -> list[Backend]:
    """Return every implementation that the guide names, each tried on a tiny problem on ``device``.

    Args:
        device: where to try; the accelerator of this machine if None.
        dtype: of the trial; what suits the device if None (fp32 on a CPU, where 16 bits are slow).

    >>> found = {b.name: b for b in attention_backends("cpu")}
    >>> found["SDPA math"].available, found["SDPA cuDNN"].available
    (True, False)
    """
    device = device or accelerator().device
    dtype = dtype or pick_dtype(device)
    gpu, rocm = device.startswith("cuda"), bool(torch.version.hip)
    q = torch.zeros(1, 2, 16, 64, device=device, dtype=dtype)
    found = []
    for name, run, module, why in _candidates(gpu, rocm):
        if importlib.util.find_spec(module) is None:
            run, why = None, f"{module} is not installed" + ("" if gpu else ", and needs a GPU")
        elif not gpu and name in ("SDPA memory-efficient", "SDPA cuDNN"):
            run, why = None, "a GPU kernel, and this is a CPU"
        elif run is not None:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                try:
                    run(q, q, q, True)
                except Exception as e:  # noqa: BLE001 - whatever a library raises is the answer to "why not?"
                    run, why = None, _reason(e, [str(w.message) for w in said])
        found.append(Backend(name, run, why))
    return found


def compare_backends(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = True,
    backends: list[Backend] | None = None,
    runs: int = 10,
) -> list[BackendResult]:
    """Time and check every available implementation on the same (batch, heads, rows, D) tensors, fastest first.

    Correctness comes first: the yardstick is attention in float64, computed here.

    Raises:
        GuideError: none of ``backends`` is available.

    >>> import torch
    >>> x = torch.randn(1, 2, 8, 16)
    >>> [round(r.error, 3) for r in compare_backends(x, x, x, runs=1)][0]
    0.0
    """
    backends = attention_backends(str(q.device.type), q.dtype) if backends is None else backends
    usable = [(b.name, b.run) for b in backends if b.run is not None]
    if not usable:
        raise GuideError("no attention implementation is available: see attention_backends() for the reasons")
    with torch.no_grad():
        # One sequence at a time: the yardstick stores its scores, 8 bytes each.
        each = zip(q.split(1), k.split(1), v.split(1), strict=True)
        expected = torch.cat([reference_attention(*(x.double() for x in one), causal=causal)[0] for one in each])
        rows = []
        for name, run in usable:
            error = float((run(q, k, v, causal).double() - expected).abs().max() / expected.abs().max())
            timing = time_call(partial(run, q, k, v, causal), runs=runs, device=q.device.type)
            rows.append(BackendResult(name, timing, error))
    return sorted(rows, key=lambda r: r.timing.median)
