# SPDX-License-Identifier: MIT
"""The launches of the INT8 operators that the resource table compiles for MI300X.

``operators_cases`` holds those of the file ``operators``. Each case is a label and a function without arguments that
launches; :mod:`rocm_guide.kernels.resource_table` calls both in a dry run, where tensors take no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch

from rocm_guide.kernels.gemm.configs import CONFIGS, GemmTile
from rocm_guide.kernels.int8 import operators

__all__ = []

#: Pairs of a label and a launch.
Cases: TypeAlias = Iterator[tuple[str, Callable[[], Any]]]


def _empty(*shape: int, dtype: torch.dtype = torch.int8) -> torch.Tensor:
    return torch.empty(*shape, dtype=dtype, device="cuda")


def operators_cases() -> Cases:
    """(label, launch) of each operator at the sizes of OPT-13B, and of the scaled product in every tile."""

    def linear(name: str, tokens: int, n: int, k: int, matrix: bool = False) -> Callable[[], Any]:
        kind = torch.float32 if name.endswith("f32") else torch.int8
        shape = (tokens, n) if matrix else (n,)
        return lambda: getattr(operators, name)(
            _empty(tokens, k), _empty(n, k).T, _empty(*shape, dtype=kind), 0.01, 0.5
        )

    def scaled(m: int, n: int, k: int, dtype: torch.dtype, tile: GemmTile | None) -> Callable[[], Any]:
        def run() -> None:
            rows, columns = _empty(m, dtype=torch.float32), _empty(n, dtype=torch.float32)
            operators.linear_scaled(_empty(m, k), _empty(n, k).T, rows, columns, out_dtype=dtype, tile=tile)

        return run

    for name, n, k in (
        ("linear_abde_i8", 5120, 5120),
        ("linear_relu_abde_i8", 20480, 5120),
        ("linear_ab_i8_de_f32", 5120, 20480),
    ):
        for tokens in (2048, 32):
            yield f"{name} {tokens}x{n}x{k}", linear(name, tokens, n, k)
    yield "linear_abde_i8 with a matrix D 2048x5120x5120", linear("linear_abde_i8", 2048, 5120, 5120, True)
    yield "linear_abde_i8 2047x5120x5118", linear("linear_abde_i8", 2047, 5120, 5118)
    yield (
        "bmm_ab_i8_e_f32 40x2048x2048x128",
        lambda: operators.bmm_ab_i8_e_f32(_empty(40, 2048, 128), _empty(40, 2048, 128).transpose(1, 2), 0.01),
    )
    yield (
        "bmm_abe_i8 40x2048x128x2048",
        lambda: operators.bmm_abe_i8(_empty(40, 2048, 2048), _empty(40, 2048, 128), 0.01),
    )
    for tile in CONFIGS["gfx942"][8]:
        yield f"linear_scaled bfloat16 {tile.bm}x{tile.bn}x{tile.bk}", scaled(4096, 4096, 4096, torch.bfloat16, tile)
