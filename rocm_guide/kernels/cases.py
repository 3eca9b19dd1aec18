# SPDX-License-Identifier: MIT
"""The launches of the kernels in this folder that the resource table compiles for MI300X, beside the families'.

``attention_cases`` holds those of the file ``attention``. Each case is a label and a function without arguments that
launches; :mod:`rocm_guide.kernels.resource_table` calls both in a dry run, where tensors take no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import torch

from rocm_guide.kernels.attention import attention_backward, attention_forward
from rocm_guide.kernels.attention_fp8 import attention_quantized
from rocm_guide.kernels.bandwidth import stream
from rocm_guide.kernels.layer_norm import layer_norm_backward, layer_norm_forward
from rocm_guide.kernels.rms_norm import FLOATS, rms_norm_backward, rms_norm_forward
from rocm_guide.kernels.softmax import softmax_backward, softmax_forward

__all__ = ["attention_cases"]

#: Pairs of a label and a launch.
Cases: TypeAlias = Iterator[tuple[str, Callable[[], Any]]]


def attention_cases() -> Cases:
    """Yield (label, launch) for the resource table: every feature, forward and backward; for a dry run."""

    def case(
        backward: bool, d: int, rows: int = 1024, kv_heads: int = 8, dtype: Any = torch.float16, **more: Any
    ) -> Any:
        def run() -> None:
            q, out, do = (torch.empty(2, 8, rows, d, dtype=dtype, device="cuda") for _ in range(3))
            k = torch.empty(2, kv_heads, rows, d, dtype=dtype, device="cuda")
            given = dict(more)
            if given.pop("alibi", False):
                given["alibi_slopes"] = torch.empty(8, device="cuda")
            if given.pop("matrix", False):
                given["bias"] = torch.empty(2, 8, rows, rows, dtype=dtype, device="cuda")
            v = k.mT.contiguous().mT if given.pop("v_transposed", False) else k
            if backward:
                lse = torch.empty(2, 8, rows, device="cuda")
                attention_backward(do, q, k, v, out, lse, bias_gradient="bias" in given, **given)
            else:
                attention_forward(q, k, v, **given)

        return run

    for name, backward in (("forward", False), ("backward", True)):
        for d in (64, 128):
            for causal in (False, True):
                label = f"{name}, heads of {d}{', causal' if causal else ''}"
                yield label, case(backward, d, causal=causal)
                for feature in ("alibi", "matrix", *(() if backward else ("v_transposed",))):
                    yield f"{label}, {feature}", case(backward, d, causal=causal, **{feature: True})
                yield f"{label}, dropout", case(backward, d, causal=causal, dropout=0.1, seed=12345)
                for schedule in () if backward else ("fixed", "dynamic"):
                    yield f"{label}, persistent {schedule}", case(backward, d, causal=causal, schedule=schedule)
            grouped = case(backward, d, kv_heads=2, dtype=torch.bfloat16, causal=True)
            yield f"{name}, heads of {d}, causal, bf16, 4 per KV head", grouped
            if not backward:
                yield f"{name}, heads of {d}, causal, 1023 tokens", case(backward, d, rows=1023, causal=True)
        for d in (16, 72, 80, 256) if backward else (16, 32, 72, 80, 96, 112, 256):
            yield f"{name}, heads of {d}, causal", case(backward, d, causal=True)


def attention_fp8_cases() -> Cases:
    """Yield (label, launch) for the resource table: each pair of types; for a dry run."""

    def case(d: int, dtype: Any, q_dtype: Any = None, p_scale: float | None = None, causal: bool = False) -> Any:
        def run() -> None:
            q = torch.empty(2, 8, 1024, d, dtype=q_dtype or dtype, device="cuda")
            k, scale = torch.empty(2, 8, 1024, d, dtype=dtype, device="cuda"), torch.empty(2, 8, device="cuda")
            named = {"q_scale": None if q_dtype else scale, "k_scale": scale, "v_scale": scale}
            attention_quantized(q, k, k, **named, p_scale=p_scale, causal=causal)

        return run

    for d in (64, 128):
        for causal in (False, True):
            label = f"heads of {d}{', causal' if causal else ''}"
            yield f"{label}, int8 q k v", case(d, torch.int8, causal=causal)
            yield f"{label}, int8 q k v p", case(d, torch.int8, p_scale=1 / 127, causal=causal)
            yield f"{label}, int8 k v", case(d, torch.int8, torch.float16, causal=causal)
            yield f"{label}, fp8", case(d, torch.float8_e4m3fnuz, causal=causal)


def bandwidth_cases() -> Cases:
    """(label, launch) of every stream in fp32 and bf16, for the resource table; to be called in a dry run."""
    for dtype in (torch.float32, torch.bfloat16):
        x, y, z = (torch.empty(1 << 28, dtype=dtype, device="cuda") for _ in range(3))
        name = str(dtype).removeprefix("torch.")
        yield f"read {name}", partial(stream, "read", None, x)
        yield f"write {name}", partial(stream, "write", z)
        yield f"copy {name}", partial(stream, "copy", z, x)
        yield f"triad {name}", partial(stream, "triad", z, x, y)


def layer_norm_cases() -> Cases:
    """Yield (label, launch) for the resource table: usual row lengths, odd ones, a blocked one; for a dry run."""
    for cols in (128, 512, 1024, 2048, 4096, 8192, 8191, 16384, 16383, 32768, 131072):
        for dtype in FLOATS if cols in (4096, 16384) else (torch.bfloat16,):
            x, w = torch.empty(2048, cols, dtype=dtype, device="cuda"), torch.empty(cols, dtype=dtype, device="cuda")
            r = torch.empty(2048, dtype=torch.float32, device="cuda")
            name = f"{cols} columns, {str(dtype).removeprefix('torch.')}"
            yield f"forward, {name}", partial(layer_norm_forward, x, w, w)
            yield f"backward, {name}", partial(layer_norm_backward, x, w, x, r, r)


def rms_norm_cases() -> Cases:
    """Yield (label, launch) for the resource table: usual row lengths, odd ones, a blocked one; for a dry run."""
    for cols in (128, 512, 1024, 2048, 4096, 8192, 8191, 16384, 16383, 32768, 131072):
        for dtype in FLOATS if cols in (4096, 16384) else (torch.bfloat16,):
            x, w = torch.empty(2048, cols, dtype=dtype, device="cuda"), torch.empty(cols, dtype=dtype, device="cuda")
            r = torch.empty(2048, dtype=torch.float32, device="cuda")
            name = f"{cols} columns, {str(dtype).removeprefix('torch.')}"
            yield f"forward, {name}", partial(rms_norm_forward, x, w)
            yield f"backward, {name}", partial(rms_norm_backward, x, w, x, r)


def softmax_cases() -> Cases:
    """Yield (label, launch) for the resource table: usual row lengths, odd ones, a blocked one; for a dry run."""
    for cols in (128, 512, 1024, 2048, 4096, 8192, 8191, 16384, 16383, 32768, 131072):
        for dtype in FLOATS if cols in (4096, 16384) else (torch.bfloat16,):
            x = torch.empty(2048, cols, dtype=dtype, device="cuda")
            name = f"{cols} columns, {str(dtype).removeprefix('torch.')}"
            yield f"forward, {name}", partial(softmax_forward, x)
            yield f"backward, {name}", partial(softmax_backward, x, x)
