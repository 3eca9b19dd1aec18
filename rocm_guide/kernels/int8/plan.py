# SPDX-License-Identifier: MIT
"""How the kernel of the INT8 operators is launched: what is chosen once for a kind of arguments, and the rest.

The arguments are checked before, in :mod:`rocm_guide.kernels.int8.operators`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import triton

from rocm_guide.kernels.arguments import architecture, unit_count
from rocm_guide.kernels.gemm.configs import GemmTile, is_aligned, pick_gemm_tile, units_of
from rocm_guide.kernels.gemm.tiled import operand_maker
from rocm_guide.kernels.int8.configs import pick_int8_tile
from rocm_guide.kernels.launch import Launch, maker

if TYPE_CHECKING:
    import torch

__all__ = []


def plan_product(
    kernel: Any,
    a: torch.Tensor,
    b: torch.Tensor,
    shape: Sequence[int],
    dtype: torch.dtype,
    d: torch.Tensor | None = None,
    *,
    scaled: bool = False,
    relu: bool = False,
    tile: GemmTile | None = None,
) -> Callable[..., torch.Tensor]:
    """Plan the product of (batch, M, K) and (batch, K, N), int8. The result, of ``shape``, is (batch, M, N) in memory.

    What is returned takes (a, b, d, rows, columns, alpha, beta); tensors of 2 dimensions stand for a batch of one.
    """
    (batch, m, k), n, arch = a.shape, b.shape[2], architecture(a)
    new_e = maker(a, shape, dtype)
    if not (batch and m and n):
        return lambda *_: new_e()
    if tile is None and is_aligned(a[0], b[0]):
        tile = pick_int8_tile(m, n, batch, arch, unit_count(a), weight=b.stride(1) == 1)
    elif tile is None:
        tile = pick_gemm_tile(m, n * batch, 8, arch, unit_count(a), aligned=False)
    (as_a, a_kind), (as_b, b_kind) = (
        operand_maker(x[0], block, tile.descriptors and batch == 1)
        for x, block in ((a, (tile.bm, tile.bk)), (b, (tile.bk, tile.bn)))
    )
    constants = {
        "BM": tile.bm, "BN": tile.bn, "BK": tile.bk, "GROUP": tile.group, "XCDS": 8 if arch == "gfx942" else 1,
        "A_DESC": a_kind, "B_DESC": b_kind, "EVEN_K": k % tile.bk == 0,
        "UNITS": units_of(m, n, k, *a.stride()[1:], *b.stride()[1:]),
        "D": "none" if d is None else "row" if d.ndim == 1 else "matrix",
        "ROWS": scaled, "COLUMNS": scaled, "RELU": relu,
    }  # fmt: skip
    fixed = m, n, k, *a.stride(), *b.stride(), 0 if d is None else d.stride(0), m * n, n
    grid = triton.cdiv(m, tile.bm) * triton.cdiv(n, tile.bn), batch
    launch, described = Launch(kernel, grid, fixed, constants, tile.options(arch)), a_kind or b_kind

    def run(a: Any, b: Any, d: Any, rows: Any, columns: Any, alpha: float, beta: float) -> torch.Tensor:
        e = new_e()
        rest = (e if d is None else d, e, rows, columns) if scaled else (e if d is None else d, e, e, e)
        if described:
            arguments = (as_a(a), as_b(b), *rest, *launch.fixed, alpha, beta, *launch.last)
            launch.with_arguments((a, b, *rest), arguments)
        else:
            launch(a, b, *rest, floats=(alpha, beta))
        return e

    return run
