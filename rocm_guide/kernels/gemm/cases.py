# SPDX-License-Identifier: MIT
"""The launches of the GEMM kernels that the resource table compiles for MI300X.

``tiled_cases`` holds those of the file ``tiled``. Each case is a label and a function without arguments that
launches; :mod:`rocm_guide.kernels.resource_table` calls both in a dry run, where tensors take no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch

from rocm_guide.kernels.gemm.configs import CONFIGS
from rocm_guide.kernels.gemm.multiply_reduce import gemm_multiply_reduce
from rocm_guide.kernels.gemm.skinny import gemm_skinny
from rocm_guide.kernels.gemm.skinny_configs import SHAPES
from rocm_guide.kernels.gemm.split_k import gemm_split_k
from rocm_guide.kernels.gemm.stream_k import gemm_stream_k
from rocm_guide.kernels.gemm.tiled import gemm

__all__ = []

#: Pairs of a label and a launch.
Cases: TypeAlias = Iterator[tuple[str, Callable[[], Any]]]


def linear_cases() -> Cases:
    """The three products of a training step."""

    def products() -> None:
        x, w = (torch.empty(s, dtype=torch.bfloat16, device="cuda") for s in ((8192, 4096), (4096, 4096)))
        gemm(x, w.T)
        gemm(x, w)
        gemm(x.T, x)

    yield "bfloat16 forward, dx, dW 8192x4096x4096", products


def multiply_reduce_cases() -> Cases:
    """Every launch that the resource table compiles for MI300X."""

    def case(m: int, dtype: torch.dtype, weight: bool) -> Callable[[], Any]:
        def run() -> None:
            a = torch.empty(m, 4096, dtype=dtype, device="cuda")
            b = torch.empty((2304, 4096) if weight else (4096, 2304), dtype=dtype, device="cuda")
            gemm_multiply_reduce(a, b.T if weight else b)

        return run

    for dtype in (
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.int8,
        torch.float8_e4m3fnuz,
        torch.float8_e5m2fnuz,
    ):
        for weight in (True, False):
            for m in (1, 4):
                name = f"{str(dtype).removeprefix('torch.')} {'A B^T' if weight else 'A B'} {m}x2304x4096"
                yield name, case(m, dtype, weight)


def skinny_cases() -> Cases:
    """Every launch that the resource table compiles for MI300X: the document's shapes, both widths, 16 and 32 rows."""

    def case(m: int, n: int, k: int, dtype: torch.dtype) -> Callable[[], Any]:
        return lambda: gemm_skinny(
            torch.empty(m, k, dtype=dtype, device="cuda"), torch.empty(n, k, dtype=dtype, device="cuda"), 0.5, 0.5
        )

    for dtype in (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.bfloat16, torch.float16):
        name = str(dtype).removeprefix("torch.")
        for n, k in SHAPES:
            for m in (1, 8, 16, 32) if dtype == torch.float8_e4m3fnuz else (16, 32):
                yield f"{name} {m}x{n}x{k}", case(m, n, k, dtype)


def split_k_cases() -> Cases:
    """Every launch that the resource table compiles for MI300X."""

    def case(m: int, n: int, k: int, dtype: torch.dtype, **kwargs: Any) -> Callable[[], Any]:
        def run() -> None:
            a, w = (torch.empty(s, dtype=dtype, device="cuda") for s in ((m, k), (n, k)))
            gemm_split_k(a, w.T, **kwargs)

        return run

    for dtype in (
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.int8,
        torch.float8_e4m3fnuz,
        torch.float8_e5m2fnuz,
    ):
        name = str(dtype).removeprefix("torch.")
        for kwargs in ({}, {"atomic": True}):
            yield f"{name} 128x2048x16384 {kwargs or ''}".strip(), case(128, 2048, 16384, dtype, **kwargs)
    yield "float16 100x100x999", case(100, 100, 999, torch.float16)


def stream_k_cases() -> Cases:
    """Every launch that the resource table compiles for MI300X."""

    def case(m: int, n: int, k: int, dtype: torch.dtype, weight: bool) -> Callable[[], Any]:
        def run() -> None:
            a = torch.empty(m, k, dtype=dtype, device="cuda")
            b = torch.empty((n, k) if weight else (k, n), dtype=dtype, device="cuda")
            gemm_stream_k(a, b.T if weight else b)

        return run

    for dtype in (torch.float16, torch.bfloat16, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float32):
        for weight in (False, True):
            name = f"{str(dtype).removeprefix('torch.')} {'A B^T' if weight else 'A B'}"
            for m, n, k in ((4864, 4096, 8192), (4097, 4096, 4100)):
                yield f"{name} {m}x{n}x{k}", case(m, n, k, dtype, weight)


def tiled_cases() -> Cases:
    """Every launch that the resource table compiles for MI300X: each type and tile, both layouts of B, odd sizes."""

    def case(m: int, n: int, k: int, dtype: torch.dtype, weight: bool, **options: Any) -> Callable[[], Any]:
        def run() -> None:
            a = torch.empty(m, k, dtype=dtype, device="cuda")
            b = torch.empty((n, k) if weight else (k, n), dtype=dtype, device="cuda")
            bias = torch.empty(n, dtype=torch.bfloat16, device="cuda") if "activation" in options else None
            gemm(a, b.T if weight else b, bias, **options)

        return run

    for dtype in (
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.int8,
        torch.float8_e4m3fnuz,
        torch.float8_e5m2fnuz,
    ):
        name = str(dtype).removeprefix("torch.")
        for tile in CONFIGS["gfx942"][8 * dtype.itemsize]:
            for weight in (False, True):
                shape = f"{name} {'A B^T' if weight else 'A B'} {tile.bm}x{tile.bn}x{tile.bk}"
                yield shape, case(8192, 8192, 8192, dtype, weight, tile=tile)
    yield "bfloat16 bias gelu", case(8192, 8192, 8192, torch.bfloat16, True, activation="gelu")
    yield "bfloat16 4097x4099x4100", case(4097, 4099, 4100, torch.bfloat16, True)
