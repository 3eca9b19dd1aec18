# SPDX-License-Identifier: MIT
"""The launches that the resource table compiles for MI300X.

``softmax_cases`` holds those of the file ``softmax``. Each case is a label and a function without arguments that
launches; :mod:`rocm_guide.kernels.resource_table` calls both in a dry run, where tensors take no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import torch

from rocm_guide.kernels.bandwidth import stream
from rocm_guide.kernels.fp8_ladder import RUNGS, run_rung
from rocm_guide.kernels.gemm import CONFIGS as GEMM_TILES
from rocm_guide.kernels.gemm import gemm
from rocm_guide.kernels.gemm_multiply_reduce import gemm_multiply_reduce
from rocm_guide.kernels.gemm_skinny import SHAPES, gemm_skinny
from rocm_guide.kernels.gemm_split_k import gemm_split_k
from rocm_guide.kernels.gemm_stream_k import gemm_stream_k
from rocm_guide.kernels.int8_gemm import CONFIGS as INT8_TILES
from rocm_guide.kernels.int8_gemm import (
    bmm_ab_i8_e_f32,
    bmm_abe_i8,
    linear_ab_i8_de_f32,
    linear_abde_i8,
    linear_relu_abde_i8,
    linear_scaled,
)
from rocm_guide.kernels.layer_norm import layer_norm_backward, layer_norm_forward
from rocm_guide.kernels.rms_norm import FLOATS, rms_norm_backward, rms_norm_forward
from rocm_guide.kernels.rmsnorm_fp8 import rmsnorm_fp8
from rocm_guide.kernels.softmax import softmax_backward, softmax_forward
from rocm_guide.kernels.swiglu_fp8 import swiglu_fp8

__all__ = ["rmsnorm_fp8_cases", "swiglu_fp8_cases"]

#: Pairs of a label and a launch.
Cases: TypeAlias = Iterator[tuple[str, Callable[[], Any]]]

BF16, FP32, INT8 = torch.bfloat16, torch.float32, torch.int8
#: Types of the products, in the order of the table.
PRODUCTS = (torch.float16, BF16, FP32, INT8, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
#: Row lengths: usual ones, odd ones, a blocked one.
COLUMNS = (128, 512, 1024, 2048, 4096, 8192, 8191, 16384, 16383, 32768, 131072)


def empty(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    """Return a tensor on the GPU."""
    return torch.empty(shape, dtype=dtype, device="cuda")


def name_of(dtype: torch.dtype, weight: bool | None = None) -> str:
    """Return the start of a label: the type, and whether the second operand is a weight, which is stored transposed."""
    return str(dtype).removeprefix("torch.") + {None: "", True: " A B^T", False: " A B"}[weight]


def multiply(
    product: Callable[..., Any], m: int, n: int, k: int, dtype: torch.dtype, weight: bool = True, **options: Any
) -> Callable[[], Any]:
    """Return a launch of ``product(a, b)``, A (m, k) and B (k, n); as a ``weight`` B is stored transposed."""

    def run() -> None:
        a, b = empty(m, k, dtype=dtype), empty(*((n, k) if weight else (k, n)), dtype=dtype)
        product(a, b.T if weight else b, **options)

    return run


def bandwidth_cases() -> Cases:
    """Yield every stream in fp32 and bf16."""
    for dtype in (FP32, BF16):
        x, y, z = (empty(1 << 28, dtype=dtype) for _ in range(3))
        yield f"read {name_of(dtype)}", partial(stream, "read", None, x)
        yield f"write {name_of(dtype)}", partial(stream, "write", z)
        yield f"copy {name_of(dtype)}", partial(stream, "copy", z, x)
        yield f"triad {name_of(dtype)}", partial(stream, "triad", z, x, y)


def layer_norm_cases() -> Cases:
    """Yield both directions at all row lengths."""
    for cols in COLUMNS:
        for dtype in FLOATS if cols in (4096, 16384) else (BF16,):
            x, w, r = empty(2048, cols, dtype=dtype), empty(cols, dtype=dtype), empty(2048, dtype=FP32)
            yield f"forward, {cols} columns, {name_of(dtype)}", partial(layer_norm_forward, x, w, w)
            yield f"backward, {cols} columns, {name_of(dtype)}", partial(layer_norm_backward, x, w, x, r, r)


def rms_norm_cases() -> Cases:
    """Yield both directions at all row lengths."""
    for cols in COLUMNS:
        for dtype in FLOATS if cols in (4096, 16384) else (BF16,):
            x, w, r = empty(2048, cols, dtype=dtype), empty(cols, dtype=dtype), empty(2048, dtype=FP32)
            yield f"forward, {cols} columns, {name_of(dtype)}", partial(rms_norm_forward, x, w)
            yield f"backward, {cols} columns, {name_of(dtype)}", partial(rms_norm_backward, x, w, x, r)


def softmax_cases() -> Cases:
    """Yield both directions at all row lengths."""
    for cols in COLUMNS:
        for dtype in FLOATS if cols in (4096, 16384) else (BF16,):
            x = empty(2048, cols, dtype=dtype)
            yield f"forward, {cols} columns, {name_of(dtype)}", partial(softmax_forward, x)
            yield f"backward, {cols} columns, {name_of(dtype)}", partial(softmax_backward, x, x)


def gemm_cases() -> Cases:
    """Yield each type and tile, both layouts of B, odd sizes, and the three products of a training step."""

    def with_bias(a: torch.Tensor, b: torch.Tensor) -> None:
        gemm(a, b, empty(b.shape[1]), activation="gelu")

    def training() -> None:
        x, w = empty(8192, 4096), empty(4096, 4096)
        gemm(x, w.T)
        gemm(x, w)
        gemm(x.T, x)

    for dtype in PRODUCTS:
        for tile in GEMM_TILES["gfx942"][8 * dtype.itemsize]:
            for weight in (False, True):
                launch = multiply(gemm, 8192, 8192, 8192, dtype, weight, tile=tile)
                yield f"{name_of(dtype, weight)} {tile.bm}x{tile.bn}x{tile.bk}", launch
    yield "bfloat16 bias gelu", multiply(with_bias, 8192, 8192, 8192, BF16)
    yield "bfloat16 4097x4099x4100", multiply(gemm, 4097, 4099, 4100, BF16)
    for dtype in (BF16, FP32):
        for weight in (False, True):  # multiples of 8, not of 16
            yield f"{name_of(dtype, weight)} 8200x8200x8200", multiply(gemm, 8200, 8200, 8200, dtype, weight)
    yield "bfloat16 forward, dx, dW 8192x4096x4096", training


def gemm_multiply_reduce_cases() -> Cases:
    """Yield each type, both layouts of B, one row and four."""
    for dtype in PRODUCTS:
        for weight in (True, False):
            for m in (1, 4):
                launch = multiply(gemm_multiply_reduce, m, 2304, 4096, dtype, weight)
                yield f"{name_of(dtype, weight)} {m}x2304x4096", launch


def gemm_skinny_cases() -> Cases:
    """Yield the document's shapes, both widths, 16 and 32 rows."""

    def case(m: int, n: int, k: int, dtype: torch.dtype) -> Callable[[], Any]:
        return lambda: gemm_skinny(empty(m, k, dtype=dtype), empty(n, k, dtype=dtype), 0.5, 0.5)

    for dtype in (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, BF16, torch.float16):
        for n, k in SHAPES:
            for m in (1, 8, 16, 32) if dtype == torch.float8_e4m3fnuz else (16, 32):
                yield f"{name_of(dtype)} {m}x{n}x{k}", case(m, n, k, dtype)


def gemm_split_k_cases() -> Cases:
    """Yield each type, both ways of adding, odd sizes."""
    for dtype in PRODUCTS:
        yield f"{name_of(dtype)} 128x2048x16384", multiply(gemm_split_k, 128, 2048, 16384, dtype)
        launch = multiply(gemm_split_k, 128, 2048, 16384, dtype, atomic=True)
        yield f"{name_of(dtype)} 128x2048x16384 {{'atomic': True}}", launch
    yield "float16 100x100x999", multiply(gemm_split_k, 100, 100, 999, torch.float16)
    for weight in (False, True):  # multiples of 8, not of 16
        label = f"{name_of(torch.float16, weight)} 136x2056x16392"
        yield label, multiply(gemm_split_k, 136, 2056, 16392, torch.float16, weight)


def gemm_stream_k_cases() -> Cases:
    """Yield each type, both layouts of B, odd sizes."""
    for dtype in (torch.float16, BF16, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, FP32):
        for weight in (False, True):
            for m, n, k in ((4864, 4096, 8192), (4097, 4096, 4100), *[(4104, 4104, 8200)] * (dtype == BF16)):
                yield f"{name_of(dtype, weight)} {m}x{n}x{k}", multiply(gemm_stream_k, m, n, k, dtype, weight)


def int8_gemm_cases() -> Cases:
    """Yield each operator at the sizes of OPT-13B, and the scaled product in every tile."""

    def linear(operator: Callable[..., Any], tokens: int, n: int, k: int, matrix: bool = False) -> Callable[[], Any]:
        kind, shape = FP32 if operator is linear_ab_i8_de_f32 else INT8, (tokens, n) if matrix else (n,)
        return lambda: operator(
            empty(tokens, k, dtype=INT8), empty(n, k, dtype=INT8).T, empty(*shape, dtype=kind), 0.01, 0.5
        )

    def scaled(m: int, n: int, k: int, tile: Any) -> Callable[[], Any]:
        return lambda: linear_scaled(
            empty(m, k, dtype=INT8), empty(n, k, dtype=INT8).T, empty(m, dtype=FP32), empty(n, dtype=FP32),
            out_dtype=BF16, tile=tile,
        )  # fmt: skip

    for operator, n, k in (
        (linear_abde_i8, 5120, 5120),
        (linear_relu_abde_i8, 20480, 5120),
        (linear_ab_i8_de_f32, 5120, 20480),
    ):
        for tokens in (2048, 32):
            yield f"{operator.__name__} {tokens}x{n}x{k}", linear(operator, tokens, n, k)
    yield "linear_abde_i8 with a matrix D 2048x5120x5120", linear(linear_abde_i8, 2048, 5120, 5120, True)
    yield "linear_abde_i8 2047x5120x5118", linear(linear_abde_i8, 2047, 5120, 5118)
    many = partial(empty, dtype=INT8)
    yield (
        "bmm_ab_i8_e_f32 40x2048x2048x128",
        lambda: bmm_ab_i8_e_f32(many(40, 2048, 128), many(40, 2048, 128).transpose(1, 2), 0.01),
    )
    yield (
        "bmm_abe_i8 40x2048x128x2048",
        lambda: bmm_abe_i8(many(40, 2048, 2048), many(40, 2048, 128), 0.01),
    )
    for tile in INT8_TILES["gfx942"]:
        yield f"linear_scaled bfloat16 {tile.bm}x{tile.bn}x{tile.bk}", scaled(4096, 4096, 4096, tile)


def fp8_ladder_cases() -> Cases:
    """Yield the rungs at 16,384 columns."""
    for rung, name in enumerate(RUNGS[:4], 1):
        x, w = empty(1024, 16384, dtype=torch.float16), empty(16384, dtype=torch.float16)
        yield f"rung {rung}, {name}", partial(run_rung, rung, x, x, w, 0.5)


def rmsnorm_fp8_cases() -> Cases:
    """Yield every configuration."""

    def launch(columns: int, scale: float | None, dtype: torch.dtype) -> Any:
        x = empty(1024, columns, dtype=dtype)
        return rmsnorm_fp8(x, empty(1024, columns, dtype=dtype), empty(columns, dtype=dtype), scale)

    for columns in (1024, 2048, 4096, 5120, 8192, 16384, 32768, 65536, 131072):
        for scale in (0.5, None):
            for dtype in (torch.float16, BF16) if columns == 16384 else (BF16,):
                name = f"{name_of(dtype)} {columns} columns, {'static' if scale else 'per-row'} scale"
                yield name, partial(launch, columns, scale, dtype)


def swiglu_fp8_cases() -> Cases:
    """Yield every configuration."""

    def launch(columns: int, scale: float | None, dtype: torch.dtype) -> Any:
        return swiglu_fp8(empty(1024, 2 * columns, dtype=dtype), scale)

    for columns in (1024, 2048, 4096, 8192, 14336, 16384, 28672, 53248):
        for scale in (0.5, None):
            for dtype in (torch.float16, BF16) if columns == 8192 else (BF16,):
                name = f"{name_of(dtype)} {columns} columns, {'static' if scale else 'per-row'} scale"
                yield name, partial(launch, columns, scale, dtype)
