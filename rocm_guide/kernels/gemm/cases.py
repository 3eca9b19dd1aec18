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

#: Types of the products, in the order of the table.
DTYPES = (
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.int8,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
)


def _name(dtype: torch.dtype, weight: bool | None = None) -> str:
    """The start of a label: the type, and whether the second operand is a weight, which is stored transposed."""
    return str(dtype).removeprefix("torch.") + {None: "", True: " A B^T", False: " A B"}[weight]


def _launch(
    product: Callable[..., Any], m: int, n: int, k: int, dtype: torch.dtype, weight: bool = True, **options: Any
) -> Callable[[], Any]:
    """A launch of ``product(a, b)`` for A (m, k) and B (k, n); as a ``weight``, B is the transpose of an (n, k) one."""

    def run() -> None:
        a = torch.empty(m, k, dtype=dtype, device="cuda")
        b = torch.empty((n, k) if weight else (k, n), dtype=dtype, device="cuda")
        product(a, b.T if weight else b, **options)

    return run


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

    for dtype in DTYPES:
        for weight in (True, False):
            for m in (1, 4):
                launch = _launch(gemm_multiply_reduce, m, 2304, 4096, dtype, weight)
                yield f"{_name(dtype, weight)} {m}x2304x4096", launch


def skinny_cases() -> Cases:
    """Every launch that the resource table compiles for MI300X: the document's shapes, both widths, 16 and 32 rows."""

    def case(m: int, n: int, k: int, dtype: torch.dtype) -> Callable[[], Any]:
        return lambda: gemm_skinny(
            torch.empty(m, k, dtype=dtype, device="cuda"), torch.empty(n, k, dtype=dtype, device="cuda"), 0.5, 0.5
        )

    for dtype in (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.bfloat16, torch.float16):
        for n, k in SHAPES:
            for m in (1, 8, 16, 32) if dtype == torch.float8_e4m3fnuz else (16, 32):
                yield f"{_name(dtype)} {m}x{n}x{k}", case(m, n, k, dtype)


def split_k_cases() -> Cases:
    """Every launch that the resource table compiles for MI300X."""

    for dtype in DTYPES:
        launch = _launch(gemm_split_k, 128, 2048, 16384, dtype)
        yield f"{_name(dtype)} 128x2048x16384", launch
        launch = _launch(gemm_split_k, 128, 2048, 16384, dtype, atomic=True)
        yield f"{_name(dtype)} 128x2048x16384 {{'atomic': True}}", launch
    yield "float16 100x100x999", _launch(gemm_split_k, 100, 100, 999, torch.float16)
    for weight in (False, True):  # multiples of 8, not of 16
        yield (
            f"{_name(torch.float16, weight)} 136x2056x16392",
            _launch(gemm_split_k, 136, 2056, 16392, torch.float16, weight),
        )


def stream_k_cases() -> Cases:
    """Every launch that the resource table compiles for MI300X."""

    for dtype in (torch.float16, torch.bfloat16, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float32):
        for weight in (False, True):
            for m, n, k in ((4864, 4096, 8192), (4097, 4096, 4100), *[(4104, 4104, 8200)] * (dtype == torch.bfloat16)):
                yield f"{_name(dtype, weight)} {m}x{n}x{k}", _launch(gemm_stream_k, m, n, k, dtype, weight)


def tiled_cases() -> Cases:
    """Every launch that the resource table compiles for MI300X: each type and tile, both layouts of B, odd sizes."""

    def with_bias(a: torch.Tensor, b: torch.Tensor) -> None:
        gemm(a, b, torch.empty(b.shape[1], dtype=torch.bfloat16, device="cuda"), activation="gelu")

    for dtype in DTYPES:
        for tile in CONFIGS["gfx942"][8 * dtype.itemsize]:
            for weight in (False, True):
                launch = _launch(gemm, 8192, 8192, 8192, dtype, weight, tile=tile)
                yield f"{_name(dtype, weight)} {tile.bm}x{tile.bn}x{tile.bk}", launch
    yield "bfloat16 bias gelu", _launch(with_bias, 8192, 8192, 8192, torch.bfloat16)
    yield "bfloat16 4097x4099x4100", _launch(gemm, 4097, 4099, 4100, torch.bfloat16)
    for dtype in (torch.bfloat16, torch.float32):
        for weight in (False, True):  # multiples of 8, not of 16
            yield f"{_name(dtype, weight)} 8200x8200x8200", _launch(gemm, 8200, 8200, 8200, dtype, weight)
