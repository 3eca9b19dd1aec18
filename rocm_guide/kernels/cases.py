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
from rocm_guide.kernels.decode import attention_decode
from rocm_guide.kernels.decode_int4 import attention_decode_int, grid_shape
from rocm_guide.kernels.layer_norm import layer_norm_backward, layer_norm_forward
from rocm_guide.kernels.mla_decode import mla_decode
from rocm_guide.kernels.mla_prefill import mla_attention
from rocm_guide.kernels.paged import attention_paged
from rocm_guide.kernels.rms_norm import FLOATS, rms_norm_backward, rms_norm_forward
from rocm_guide.kernels.softmax import softmax_backward, softmax_forward

__all__ = ["attention_cases", "decode_cases", "decode_int4_cases", "mla_decode_cases", "mla_prefill_cases"]

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


def decode_cases() -> Cases:
    """Yield (label, launch) for the resource table; for a dry run."""

    def case(batch: int, keys: int, q_heads: int, heads: int, width: int, dtype: torch.dtype) -> Callable[[], Any]:
        def call() -> Any:
            q = torch.empty(batch, q_heads, width, dtype=dtype, device="cuda")
            k, v = (torch.empty(batch, keys, heads, width, dtype=dtype, device="cuda") for _ in range(2))
            return attention_decode(q, k, v)

        return call

    for width in (64, 72, 80, 96, 128, 256):
        yield f"32k keys, 32/8 heads of {width}, fp16", case(1, 32768, 32, 8, width, torch.float16)
    yield "32k keys, 32/8 heads of 128, bf16", case(16, 32768, 32, 8, 128, torch.bfloat16)
    yield "32k keys, 32/32 heads of 128, fp16", case(1, 32768, 32, 32, 128, torch.float16)
    yield "32k keys, 64/1 heads of 128, bf16", case(1, 32768, 64, 1, 128, torch.bfloat16)


def decode_int4_cases() -> Cases:
    """Yield (label, launch) for the resource table; for a dry run."""

    def case(bits: int, width: int, dtype: torch.dtype) -> Callable[[], Any]:
        def call() -> Any:
            q = torch.empty(1, 32, width, dtype=dtype, device="cuda")
            shape = (1, 32768, 8, width)
            stored = (*shape[:3], width // (8 // bits))
            codes = torch.empty(stored, dtype=torch.int8 if bits == 8 else torch.uint8, device="cuda")
            grid = torch.empty(grid_shape(shape, bits), dtype=torch.int32, device="cuda")
            return attention_decode_int(q, codes, codes.clone(), grid, grid.clone())

        return call

    for bits in (8, 4):
        for width, dtype in ((64, torch.float16), (128, torch.float16), (128, torch.bfloat16), (256, torch.float16)):
            name = str(dtype).removeprefix("torch.")
            yield f"32k keys, 32/8 heads of {width}, {name}, int{bits} cache", case(bits, width, dtype)


def mla_decode_cases() -> Cases:
    """Yield (label, launch) for the resource table; for a dry run."""

    def case(heads: int, d: int, r: int, c: int, dtype: torch.dtype) -> Callable[[], Any]:
        def call() -> Any:
            q, q_pe = (torch.empty(1, heads, size, dtype=dtype, device="cuda") for size in (d, r))
            cache = torch.empty(1, 32768, c + r, dtype=dtype, device="cuda")
            w = torch.empty(heads, 2 * d, c, dtype=dtype, device="cuda")
            return mla_decode(q, q_pe, cache[..., :c], cache[..., c:], w)

        return call

    for heads, dtype in ((128, torch.float16), (128, torch.bfloat16), (16, torch.bfloat16)):
        name = str(dtype).removeprefix("torch.")
        yield f"32k keys, {heads} heads of 128 + 64, latents of 512, {name}", case(heads, 128, 64, 512, dtype)
    yield "32k keys, 16 heads of 64 + 32, latents of 256, float16", case(16, 64, 32, 256, torch.float16)


def mla_prefill_cases() -> Cases:
    """Yield (label, launch) for the resource table; for a dry run."""

    def case(b: int, s: int, t: int, sizes: tuple[int, int, int, int], causal: bool) -> Callable[[], Any]:
        def call() -> Any:
            h, d, r, c = sizes
            q, q_pe = (torch.empty(b, s, h, size, dtype=torch.bfloat16, device="cuda") for size in (d, r))
            cache = torch.empty(b, t, c + r, dtype=torch.bfloat16, device="cuda")
            w = torch.empty(h, 2 * d, c, dtype=torch.bfloat16, device="cuda")
            return mla_attention(q, q_pe, cache[..., :c], cache[..., c:], w, causal=causal)

        return call

    # The first is the size that the document was "currently running with"; the others are DeepSeek-V3's.
    yield "128 queries, 16 heads of 64 + 32, latents of 256", case(2, 128, 128, (16, 64, 32, 256), False)
    yield "4k queries, 128 heads of 128 + 64, latents of 512", case(1, 4096, 4096, (128, 128, 64, 512), False)
    yield "4k queries, 128 heads of 128 + 64, latents of 512, causal", case(1, 4096, 4096, (128, 128, 64, 512), True)


def paged_cases() -> Cases:
    """Yield (label, launch) for the resource table; for a dry run."""

    def case(page: int) -> Callable[[], Any]:
        def call() -> Any:
            q = torch.empty(16, 32, 128, dtype=torch.float16, device="cuda")
            pages = torch.empty(4096, page, 8, 128, dtype=torch.float16, device="cuda")
            table = torch.empty(16, 2048, dtype=torch.int32, device="cuda")
            lengths = torch.empty(16, dtype=torch.int32, device="cuda")
            return attention_paged(q, pages, pages.clone(), table, lengths)

        return call

    for page in (16, 64):
        yield f"pages of {page} keys, 32/8 heads of 128, fp16 cache", case(page)


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
