# SPDX-License-Identifier: MIT
"""Split-K: several workgroups share one tile of C, each sums a part of K, C = act(alpha * (sum of parts) + bias).

For outputs with few tiles and a long K. c_ij = sum over all k = (sum over the first part) + (sum over the second) + …;
the parts run at the same time. Two ways to add them: each part writes its sum and a second kernel adds them in a fixed
order (results repeat bit for bit, bias and activation are possible), or each part adds itself to C with atomic
operations (no second kernel and no room for the parts, but an order that changes from run to run).
Source: "Creating custom kernels for the AMD MI300", https://huggingface.co/blog/mi300kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from rocm_guide.kernels.arguments import (
    KernelError,
    architecture,
    check_dtype,
    check_number,
    choose,
    is_small_work,
    next_power_of_2,
    unit_count,
)
from rocm_guide.kernels.gemm.configs import RAGGED, GemmTile, is_aligned, promotion_interval, units_of
from rocm_guide.kernels.gemm.tiled import ACTIVATIONS, check_operands, operand_maker, plan_gemm, reference_gemm
from rocm_guide.kernels.gemm.tiles import activate, hint_multiple, tile_dot, tile_order, to_int64
from rocm_guide.kernels.launch import Launch, maker, planned
from rocm_guide.kernels.tracing import operator

if TYPE_CHECKING:
    import torch

__all__ = ["choose_split", "gemm_split_k"]

#: One tile by architecture and bits of the element type.
CONFIGS: dict[str, dict[int, GemmTile]] = {
    "gfx942": {32: GemmTile(64, 64, 32, 4), 16: GemmTile(64, 64, 64, 4), 8: GemmTile(64, 64, 128, 4)},
    "sm_90": {
        32: GemmTile(64, 64, 32, 4, 3),
        16: GemmTile(128, 128, 64, 4, 4, 8, True),
        8: GemmTile(128, 128, 128, 4, 3, 8, True),
    },
    "interpreter": {bits: GemmTile(32, 32, 32, 4) for bits in (32, 16, 8)},
}

#: What one launch of the second kernel adds up: this many elements of C per workgroup.
REDUCE_BLOCK = 1024
#: So few steps of K are done before a second kernel has been launched: nothing is gained by sharing them out.
FEW_STEPS = 4


def choose_split(tiles: int, steps: int, units: int, most: int = 64) -> int:
    """The smallest power of two that gives every compute unit a workgroup, at most one part per step of K.

    >>> choose_split(tiles=64, steps=128, units=304), choose_split(tiles=512, steps=128, units=304)
    (8, 1)
    """
    return max(1, min(next_power_of_2(triton.cdiv(units, max(tiles, 1))), steps, most))


@triton.jit
def gemm_split_k_kernel(
    a,
    b,
    out_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    XCDS: tl.constexpr,
    A_DESC: tl.constexpr,
    B_DESC: tl.constexpr,
    EVEN_K: tl.constexpr,
    INT: tl.constexpr,
    PRECISION: tl.constexpr,
    EXACT: tl.constexpr,
    ATOMIC: tl.constexpr,
    UNITS: tl.constexpr,
) -> None:
    """One part (``program_id(1)``) of one tile: written to ``out[part]``, or added to ``out`` atomically."""
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    tile_m, tile_n = tile_order(tl.program_id(0), tiles_m, tiles_n, GROUP, XCDS)
    row, col = tile_m * BM, tile_n * BN
    part, parts, steps = tl.program_id(1), tl.num_programs(1), tl.cdiv(K, BK)
    first, last = steps * part // parts, steps * (part + 1) // parts
    acc = tile_dot(
        a, b, row, col, first * BK, tl.minimum(last * BK, K), M, N, stride_am, stride_ak, stride_bk, stride_bn,
        BM, BN, BK, A_DESC, B_DESC, EVEN_K, INT, PRECISION, UNITS, EXACT,
    )  # fmt: skip
    N = hint_multiple(N, UNITS[1])
    rm, rn = tl.arange(0, BM), tl.arange(0, BN)
    inside = (row + rm < M)[:, None] & (col + rn < N)[None, :]
    out_ptr += row.to(tl.int64) * N + col
    if ATOMIC:
        tl.atomic_add(out_ptr + rm[:, None] * N + rn[None, :], acc, mask=inside, sem="relaxed")
    else:
        out_ptr += to_int64(part) * M * N
        tl.store(out_ptr + rm[:, None] * N + rn[None, :], acc, mask=inside)


@triton.jit
def add_parts_kernel(
    part_ptr,
    c_ptr,
    bias_ptr,
    size,
    N,
    alpha,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
    EPILOGUE: tl.constexpr,
    BIAS: tl.constexpr,
    ACT: tl.constexpr,
) -> None:
    """C = act(alpha * (sum of PARTS parts) + bias), ``BLOCK`` elements per program, parts added in order."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    at = start + tl.arange(0, BLOCK)
    inside = at < size
    acc = tl.load(part_ptr + at, mask=inside, other=0.0)
    for part in tl.static_range(1, PARTS):
        acc += tl.load(part_ptr + part * to_int64(size) + at, mask=inside, other=0.0)
    if EPILOGUE:
        acc = acc.to(tl.float32) * alpha
        if BIAS:
            acc += tl.load(bias_ptr + at % N, mask=inside, other=0.0).to(tl.float32)
        acc = activate(acc, ACT)
    tl.store(c_ptr + at, acc.to(c_ptr.dtype.element_ty), mask=inside)


def gemm_split_k(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    split: int | None = None,
    atomic: bool = False,
    activation: str = "none",
    alpha: float = 1.0,
    out_dtype: torch.dtype | None = None,
    tf32: bool = False,
    tile: GemmTile | None = None,
) -> torch.Tensor:
    """``act(alpha * a @ b + bias)`` with K shared out among ``split`` workgroups per tile.

    Args:
        a, b, bias, activation, alpha, out_dtype, tf32: as for :func:`rocm_guide.kernels.gemm.tiled.gemm`.
        split: parts, 1 to 64; by default what :func:`choose_split` says, and no split at all (the plain ``gemm``)
            where K has at most FEW_STEPS steps.
        atomic: add atomically; the result is float32 (int32 for int8), and no bias, activation or alpha is possible.
        tile: a launch configuration of your own.

    Raises:
        KernelError: what does not fit, a split outside 1 to 64, or an epilogue together with ``atomic``.
    """
    alpha = check_number("alpha", alpha)
    if (product := operator("gemm_split_k")) is not None:
        return product(a, b, bias, split, atomic, activation, alpha, out_dtype, tf32)
    options = split, bool(atomic), activation, alpha == 1.0, out_dtype, tf32, tile
    return planned(_plan, (a, b, bias), *options)(a, b, bias, alpha)


def _plan(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    split: int | None,
    atomic: bool,
    activation: str,
    no_factor: bool,
    out_dtype: torch.dtype | None,
    tf32: bool,
    tile: GemmTile | None,
) -> Callable[..., torch.Tensor]:
    import torch

    arch = architecture(a)
    check_operands(a, b, bias, arch)
    if activation not in ACTIVATIONS:
        raise KernelError(f"activation={activation!r}: give one of {', '.join(ACTIVATIONS)}")
    if split is not None and (isinstance(split, bool) or not isinstance(split, int) or not 1 <= split <= 64):
        raise KernelError(f"split={split!r}: give a whole number from 1 to 64")
    (m, k), n, integer, device = a.shape, b.shape[1], a.dtype == torch.int8, a.device
    plain = activation == "none" and bias is None and no_factor
    sums = torch.int32 if integer else torch.float32
    if atomic and (not plain or out_dtype not in (None, sums)):
        raise KernelError(f"atomic=True writes plain {sums} sums: leave bias, activation, alpha and out_dtype alone")
    if out_dtype is None:
        out_dtype = sums if atomic or (integer and plain) else a.dtype if a.element_size() > 1 else torch.bfloat16
    allowed = torch.float16, torch.bfloat16, torch.float32, *((torch.int32,) if integer and plain else ())
    check_dtype("out", torch.empty(0, dtype=out_dtype, device=device), allowed)
    if m == 0 or n == 0:
        return lambda *_: torch.empty(m, n, dtype=out_dtype, device=device)
    own = tile is not None
    if tile is None:
        bits = 8 * a.element_size()
        tile = choose(CONFIGS, arch)[bits] if is_aligned(a, b) or arch not in RAGGED else RAGGED[arch][bits]
    tiles, steps = triton.cdiv(m, tile.bm) * triton.cdiv(n, tile.bn), triton.cdiv(k, tile.bk)
    if split is None and not atomic and not own and steps <= FEW_STEPS:
        return plan_gemm(a, b, bias, activation, no_factor, out_dtype, tf32, None)
    described = tile.descriptors and (own or not is_small_work(2 * m * n * k))
    parts = min(split or choose_split(tiles, steps, unit_count(a)), max(1, steps))
    (as_a, a_kind), (as_b, b_kind) = (
        operand_maker(x, block, described) for x, block in ((a, (tile.bm, tile.bk)), (b, (tile.bk, tile.bn)))
    )
    constants = {
        "BM": tile.bm, "BN": tile.bn, "BK": tile.bk, "GROUP": tile.group,
        "XCDS": 8 if arch == "gfx942" and parts == 1 else 1, "A_DESC": a_kind, "B_DESC": b_kind,
        "EVEN_K": k % tile.bk == 0, "INT": integer, "PRECISION": "tf32" if tf32 else "ieee",
        "EXACT": promotion_interval(a, arch, tile), "ATOMIC": atomic,
        "UNITS": units_of(m, n, k, *a.stride(), *b.stride()),
    }  # fmt: skip
    fixed = m, n, k, *a.stride(), *b.stride()
    multiply = Launch(gemm_split_k_kernel, (tiles, parts), fixed, constants, tile.options(arch))
    ends = {"PARTS": parts, "BLOCK": REDUCE_BLOCK, "EPILOGUE": not plain, "BIAS": bias is not None, "ACT": activation}
    add = Launch(add_parts_kernel, (triton.cdiv(m * n, REDUCE_BLOCK),), (m * n, n), ends)

    new_c, new_parts = maker(a, (m, n), out_dtype), maker(a, (parts, m, n), sums)

    def run(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, alpha: float) -> torch.Tensor:
        c = new_c()
        target = c.zero_() if atomic else new_parts()
        if a_kind or b_kind:
            multiply.with_arguments((a, b, target), (as_a(a), as_b(b), target, *multiply.fixed, *multiply.last))
        else:
            multiply(a, b, target)
        if not atomic:
            add(target, c, c if bias is None else bias, floats=(alpha,))
        return c

    return run


def reference_split_k(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None, **kwargs: Any
) -> torch.Tensor:
    """The same in float64; arguments as of :func:`rocm_guide.kernels.gemm.tiled.reference_gemm`."""
    return reference_gemm(a, b, bias, **kwargs)
