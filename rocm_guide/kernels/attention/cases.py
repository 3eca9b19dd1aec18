# SPDX-License-Identifier: MIT
"""The launches of the attention kernels that the resource table compiles for MI300X.

``backward_cases`` holds those of the file ``backward``. Each case is a label and a function without arguments that
launches; :mod:`rocm_guide.kernels.resource_table` calls both in a dry run, where tensors take no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch

from rocm_guide.kernels.attention.backward import attention_backward
from rocm_guide.kernels.attention.forward import attention_forward
from rocm_guide.kernels.attention.quantized import attention_quantized

__all__ = ["forward_cases"]

#: Pairs of a label and a launch.
Cases: TypeAlias = Iterator[tuple[str, Callable[[], Any]]]


def backward_cases() -> Cases:
    """Launches to compile for gfx942: (label, thunk)."""

    def case(d: int, rows: int = 1024, kv_heads: int = 8, dtype: Any = torch.float16, **options: Any) -> Any:
        def run() -> None:
            q, out, do = (torch.empty(2, 8, rows, d, dtype=dtype, device="cuda") for _ in range(3))
            k = torch.empty(2, kv_heads, rows, d, dtype=dtype, device="cuda")
            lse = torch.empty(2, 8, rows, device="cuda")
            given = dict(options)
            if given.pop("alibi", False):
                given["alibi_slopes"] = torch.empty(8, device="cuda")
            if given.pop("matrix", False):
                given |= {"bias": torch.empty(2, 8, rows, rows, dtype=dtype, device="cuda"), "bias_gradient": True}
            attention_backward(do, q, k, k, out, lse, **given)

        return run

    for d in (64, 128):
        for causal in (False, True):
            label = f"heads of {d}{', causal' if causal else ''}"
            yield label, case(d, causal=causal)
            for feature in ("alibi", "matrix"):
                yield f"{label}, {feature}", case(d, causal=causal, **{feature: True})
            yield f"{label}, dropout", case(d, causal=causal, dropout=0.1, seed=12345)
        yield f"heads of {d}, causal, bf16, 4 per KV head", case(d, kv_heads=2, dtype=torch.bfloat16, causal=True)
    for d in (16, 72, 80, 256):
        yield f"heads of {d}, causal", case(d, causal=True)


def forward_cases() -> Cases:
    """Launches to compile for gfx942: (label, thunk)."""

    def case(d: int, rows: int = 1024, kv_heads: int = 8, dtype: Any = torch.float16, **options: Any) -> Any:
        def run() -> None:
            q = torch.empty(2, 8, rows, d, dtype=dtype, device="cuda")
            k = torch.empty(2, kv_heads, rows, d, dtype=dtype, device="cuda")
            given = dict(options)
            named = {"alibi": ("alibi_slopes", (8,), torch.float32), "matrix": ("bias", (2, 8, rows, rows), dtype)}
            for name in [n for n in named if given.pop(n, False)]:
                key, shape, kind = named[name]
                given[key] = torch.empty(shape, dtype=kind, device="cuda")
            v = k.mT.contiguous().mT if given.pop("v_transposed", False) else k
            attention_forward(q, k, v, **given)

        return run

    for d in (64, 128):
        for causal in (False, True):
            label = f"heads of {d}{', causal' if causal else ''}"
            yield label, case(d, causal=causal)
            for feature in ("alibi", "matrix", "v_transposed"):
                yield f"{label}, {feature}", case(d, causal=causal, **{feature: True})
            yield f"{label}, dropout", case(d, causal=causal, dropout=0.1, seed=12345)
            for schedule in ("fixed", "dynamic"):
                yield f"{label}, persistent {schedule}", case(d, causal=causal, schedule=schedule)
        yield f"heads of {d}, causal, bf16, 4 per KV head", case(d, kv_heads=2, dtype=torch.bfloat16, causal=True)
        yield f"heads of {d}, causal, 1023 tokens", case(d, rows=1023, causal=True)
    for d in (16, 32, 72, 80, 96, 112, 256):
        yield f"heads of {d}, causal", case(d, causal=True)


def quantized_cases() -> Cases:
    """Launches to compile for gfx942: (label, thunk)."""

    def case(d: int, dtype: Any, q_dtype: Any = None, p_scale: float | None = None, causal: bool = False) -> Any:
        def run() -> None:
            q = torch.empty(2, 8, 1024, d, dtype=q_dtype or dtype, device="cuda")
            k = torch.empty(2, 8, 1024, d, dtype=dtype, device="cuda")
            scale = torch.empty(2, 8, device="cuda")
            named = {"q_scale": None if q_dtype else scale, "k_scale": scale, "v_scale": scale}
            attention_quantized(q, k, k, **named, p_scale=p_scale, causal=causal)

        return run

    fp8 = torch.float8_e4m3fnuz
    for d in (64, 128):
        for causal in (False, True):
            label = f"heads of {d}{', causal' if causal else ''}"
            yield f"{label}, int8 q k v", case(d, torch.int8, causal=causal)
            yield f"{label}, int8 q k v p", case(d, torch.int8, p_scale=1 / 127, causal=causal)
            yield f"{label}, int8 k v", case(d, torch.int8, torch.float16, causal=causal)
            yield f"{label}, fp8", case(d, fp8, causal=causal)
