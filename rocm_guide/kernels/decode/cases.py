# SPDX-License-Identifier: MIT
"""The launches of the decoding kernels that the resource table compiles for MI300X.

``decode_cases`` holds those of the file ``decode``. Each case is a label and a function without arguments that
launches; :mod:`rocm_guide.kernels.resource_table` calls both in a dry run, where tensors take no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch

from rocm_guide.kernels.decode.decode import attention_decode
from rocm_guide.kernels.decode.integer import attention_decode_int
from rocm_guide.kernels.decode.kv_quant import grid_shape
from rocm_guide.kernels.decode.mla import mla_decode
from rocm_guide.kernels.decode.mla_prefill import mla_attention
from rocm_guide.kernels.decode.paged import attention_paged

__all__ = ["decode_cases", "integer_cases", "mla_cases", "mla_prefill_cases"]

#: Pairs of a label and a launch.
Cases: TypeAlias = Iterator[tuple[str, Callable[[], Any]]]


def decode_cases() -> Cases:
    """What is compiled for MI300X and kept in the resource table: (label, call)."""

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


def integer_cases() -> Cases:
    """What is compiled for MI300X and kept in the resource table: (label, call)."""

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


def mla_cases() -> Cases:
    """What is compiled for MI300X and kept in the resource table: (label, call)."""

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
    """What is compiled for MI300X and kept in the resource table: (label, call)."""

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
    """What is compiled for MI300X and kept in the resource table: (label, call)."""

    def case(page: int, bits: int) -> Callable[[], Any]:
        def call() -> Any:
            q = torch.empty(16, 32, 128, dtype=torch.float16, device="cuda")
            shape, kind = (4096, page, 8, 128), {16: torch.float16, 8: torch.int8, 4: torch.uint8}[bits]
            pages = torch.empty(*shape[:3], 64 if bits == 4 else 128, dtype=kind, device="cuda")
            table = torch.empty(16, 2048, dtype=torch.int32, device="cuda")
            lengths = torch.empty(16, dtype=torch.int32, device="cuda")
            grid = None if bits == 16 else torch.empty(grid_shape(shape, bits), dtype=torch.int32, device="cuda")
            grids = None if grid is None else (grid, grid.clone())
            return attention_paged(q, pages, pages.clone(), table, lengths, grids=grids)

        return call

    for page, bits in ((16, 16), (64, 16), (16, 8), (16, 4)):
        store = "fp16" if bits == 16 else f"int{bits}"
        yield f"pages of {page} keys, 32/8 heads of 128, {store} cache", case(page, bits)
