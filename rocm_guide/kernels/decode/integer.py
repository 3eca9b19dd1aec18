# SPDX-License-Identifier: MIT
r"""Flash decoding over a cache of 8-bit or 4-bit codes: 52 % or 28 % of the bytes, for heads of 128.

With :math:`k = a c + b` (scale, code, shift; see kv_quant) no key is ever dequantised feature by feature:

.. math:: q \cdot k_j = a_j\,(q \cdot c_j) + b_j \sum_d q_d, \qquad
          \sum_j p_j v_j = \sum_j (p_j a'_j)\, c'_j + \sum_j p_j b'_j

Both products run on the matrix units with plain integers in fp16 or bf16, which hold them exactly; scales and shifts
enter once for each key. Split-K and combine are those of attention_decode. Source of the layout's idea (two codes per
byte, scale and shift per group): the int4 path of xFormers' Triton split-K kernel, which the document's
06-attention-decode.py comes from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from rocm_guide.kernels.arguments import (
    KernelError,
    architecture,
    check_contiguous,
    check_dtype,
    check_number,
    check_same_device,
    check_shape,
    choose,
    next_power_of_2,
)
from rocm_guide.kernels.decode.configs import DecodeTile, keys_per_step, parts_for
from rocm_guide.kernels.decode.decode import _LOG2E, _combine, _rows_of, block_rows, check_decode, check_parts
from rocm_guide.kernels.decode.kv_quant import grid_shape
from rocm_guide.kernels.launch import Launch, maker, planned, unread
from rocm_guide.kernels.tracing import operator

if TYPE_CHECKING:
    import torch

__all__ = ["attention_decode_int"]

#: As DECODE_CONFIGS; fewer warps for narrow rows, so that every lane still has 16 bytes to load.
INT_CONFIGS: dict[str, DecodeTile] = {
    "gfx942": DecodeTile(block=64, per_unit=4, least=256, narrow_warps=2),
    "sm_90": DecodeTile(block=64, per_unit=4, least=256, warps=2, stages=2),
    "interpreter": DecodeTile(block=16, per_unit=4, least=16),
}


@triton.jit
def _unpack(codes, HIGH: tl.constexpr, BITS: tl.constexpr, dtype: tl.constexpr):
    """Codes as numbers around 0: -127 to 127, or of the low or high four bits of a byte -8 to 7.

    Conversion instructions are slow on some GPUs (on an H100 they alone took 0.3 of 0.6 ms). In fp16 the bits
    0x6400 + n are the number 1024 + n for n below 1024: so a code becomes the last bits of a number and 1024 is
    subtracted again.
    """
    if BITS == 8:
        if dtype == tl.float16:
            return (codes.to(tl.uint8, bitcast=True).to(tl.uint16) ^ 0x6480).to(tl.float16, bitcast=True) - 1152.0
        return codes.to(dtype)
    nibble = (codes >> 4) if HIGH else (codes & 15)
    if dtype == tl.float16:
        return (nibble.to(tl.uint16) ^ 0x6400).to(tl.float16, bitcast=True) - 1032.0
    return nibble.to(dtype) - 8.0


@triton.jit
def _grid_at(grid_ptr, mark, near, live, BITS: tl.constexpr):
    """Scale and shift of the keys at ``mark``: two fp16 numbers in one 32-bit word, 0 where not ``live``."""
    both = tl.where(live, tl.load(grid_ptr + mark, near, 0), 0)
    scale = (both & 0xFFFF).to(tl.int16).to(tl.float16, bitcast=True)
    shift = (both >> 16).to(tl.int16).to(tl.float16, bitcast=True)
    scale, shift = scale.to(tl.float32), shift.to(tl.float32)
    if BITS == 4:
        shift += 0.5 * scale  # codes are taken around 8 instead of 7.5
    return scale[:, None], shift[:, None]


@triton.jit
def _decode_int_part(
    q_ptr, k_ptr, v_ptr, k_grid, v_grid, length_ptr, table_ptr, out_ptr, lse_ptr,
    tokens, qk_scale, stride_page, stride_token, stride_head, plane, table_width,
    GROUP: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, BITS: tl.constexpr, EIGHTS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """As _decode_part. With 4 bits everything that has features comes in two halves, ``…`` and ``…_h``."""
    TILES: tl.constexpr = (GROUP + BLOCK_M - 1) // BLOCK_M
    W: tl.constexpr = D // 2 if BITS == 4 else D
    head, part, b = tl.program_id(0) // TILES, tl.program_id(1), tl.program_id(2).to(tl.int64)
    heads, parts = tl.num_programs(0) // TILES, tl.num_programs(1)
    d, in_group = tl.arange(0, BLOCK_D), tl.program_id(0) % TILES * BLOCK_M + tl.arange(0, BLOCK_M)
    q_row, in_d = (b * heads + head) * GROUP + in_group, d < W
    wanted, q_place = in_d[:, None] & (in_group < GROUP)[None, :], d[:, None] + q_row[None, :] * D
    q = tl.load(q_ptr + q_place, wanted, 0.0)
    q_h = tl.load(q_ptr + q_place + W, wanted & (BITS == 4), 0.0)
    q_sum, q_sum_h = tl.sum(q.to(tl.float32), 0)[None, :], tl.sum(q_h.to(tl.float32), 0)[None, :]
    acc, acc_h = tl.zeros((BLOCK_D, BLOCK_M), tl.float32), tl.zeros((BLOCK_D, BLOCK_M), tl.float32)
    top, total = tl.full((BLOCK_M,), float("-inf"), tl.float32), tl.zeros((BLOCK_M,), tl.float32)
    drift, drift_h = tl.zeros((BLOCK_M,), tl.float32), tl.zeros((BLOCK_M,), tl.float32)

    length = tokens
    if length_ptr is not None:
        length = tl.minimum(tl.load(length_ptr + b).to(tl.int32), tokens)
    share = tl.cdiv(tl.cdiv(length, BLOCK_N), parts) * BLOCK_N
    for start in range(part * share, tl.minimum(part * share + share, length), BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        live = n < length
        row, page = _rows_of(table_ptr, b, n, live, stride_page, stride_token, table_width, PAGE)
        mark = (page * heads + head) * (PAGE if PAGE else tokens) + (n % PAGE if PAGE else n)
        near = live
        if EIGHTS:  # keys are stored in eights: reading whole ones makes loads wide, and no page ends inside one
            mark, near = tl.max_contiguous(tl.multiple_of(mark, 8), 8), n // 8 * 8 < length
        place, inside = row[:, None] + head.to(tl.int64) * stride_head + d[None, :], live[:, None] & in_d[None, :]
        k = tl.load(k_ptr + place, inside, 0)
        a, shift = _grid_at(k_grid, mark, near, live, BITS)
        score = tl.dot(_unpack(k, False, BITS, q.dtype), q) * a + q_sum * shift
        if BITS == 4:
            a, shift = _grid_at(k_grid + plane, mark, near, live, BITS)
            score += tl.dot(_unpack(k, True, BITS, q.dtype), q_h) * a + q_sum_h * shift
        score = tl.where(live[:, None], score * qk_scale, float("-inf"))
        # Exponentials may be taken relative to anything. This reference point keeps p * a at 1 or less, however small
        # or large the scales are, so that the product is rounded to 16 bits like any probability.
        a, shift = _grid_at(v_grid, mark, near, live, BITS)
        most = a
        if BITS == 4:
            a_h, shift_h = _grid_at(v_grid + plane, mark, near, live, BITS)
            most = tl.maximum(a, a_h)
        new_top = tl.maximum(top, tl.max(score + tl.log2(most), 0))
        p, shrink = tl.exp2(score - new_top[None, :]), tl.exp2(top - new_top)
        v = tl.load(v_ptr + place, inside, 0)
        acc = tl.dot(tl.trans(_unpack(v, False, BITS, q.dtype)), (p * a).to(q.dtype), acc * shrink[None, :])
        drift = drift * shrink + tl.sum(p * shift, 0)
        if BITS == 4:
            weight_h = (p * a_h).to(q.dtype)
            acc_h = tl.dot(tl.trans(_unpack(v, True, BITS, q.dtype)), weight_h, acc_h * shrink[None, :])
            drift_h = drift_h * shrink + tl.sum(p * shift_h, 0)
        total, top = total * shrink + tl.sum(p, 0), new_top

    part_row, some = q_row * parts + part, total > 0.0
    lse = tl.where(some, top + tl.log2(tl.where(some, total, 1.0)), float("-inf"))
    tl.store(lse_ptr + part_row, lse, in_group < GROUP)
    one, out_place = 1.0 / tl.where(some, total, 1.0)[None, :], d[:, None] + part_row[None, :] * D
    tl.store(out_ptr + out_place, ((acc + drift[None, :]) * one).to(out_ptr.dtype.element_ty), wanted)
    out_h = ((acc_h + drift_h[None, :]) * one).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + out_place + W, out_h, wanted & (BITS == 4))


def plan_decode_int(
    q: torch.Tensor,
    k: torch.Tensor,
    grid: torch.Tensor,
    tokens: int,
    table: torch.Tensor | None,
    parts: int | None = None,
    config: DecodeTile | None = None,
) -> Callable[..., torch.Tensor]:
    """Choose both launches for checked arguments; ``k`` and ``grid`` are codes and grid of the keys, as of the values.

    What is returned takes (q, codes, grids, lengths, table, scale) of that kind.
    """
    import torch

    batch, q_heads, width = q.shape
    heads, bits, arch = k.shape[2], 4 if k.dtype == torch.uint8 else 8, architecture(q)
    config = config or choose(INT_CONFIGS, arch)
    block_m, tiles = block_rows(q_heads // heads, heads)
    parts = parts or parts_for(q, tokens, tiles, config)
    page, table_width = (k.shape[1], table.stride(0)) if table is not None else (0, 0)
    steps = {"stride_page": k.stride(0), "stride_token": k.stride(1), "stride_head": k.stride(2)}
    constants = steps | {
        "plane": grid.stride(0), "table_width": table_width,
        "GROUP": q_heads // heads, "D": width, "PAGE": page, "BITS": bits, "EIGHTS": k.shape[1] % 8 == 0,
        "BLOCK_M": block_m, "BLOCK_N": keys_per_step(config, width), "BLOCK_D": max(16, next_power_of_2(k.shape[3])),
    }  # fmt: skip
    options = config.options(arch, k.shape[3])
    decode = Launch(_decode_int_part, (tiles, parts, batch), (tokens,), constants, options)
    shape = {"D": width, "BLOCK_D": next_power_of_2(width), "BLOCK_P": next_power_of_2(parts)}
    combine = Launch(_combine, (batch * q_heads,), (parts,), shape, {"num_warps": 4})
    new_out, new_lse = maker(q, q.shape), maker(q, (batch, q_heads, parts), torch.float32)
    new_parts, nowhere = maker(q, (batch, q_heads, parts, width), torch.float32), unread(q, batch * q_heads)
    none = not q.numel()

    def run(q: torch.Tensor, codes: Any, grids: Any, lengths: Any, table: Any, scale: float) -> torch.Tensor:
        out = new_out()
        if none:
            return out
        part, lse = (new_parts(), new_lse()) if parts > 1 else (out, nowhere())
        decode(q.contiguous(), *codes, *grids, lengths, table, part, lse, floats=(scale * _LOG2E,))
        if parts > 1:
            combine(part, lse, out)
        return out

    return run


def check_decode_int(
    q: torch.Tensor, codes: tuple[torch.Tensor, torch.Tensor], grids: tuple[torch.Tensor, torch.Tensor], lengths: Any
) -> None:
    """As check_decode, for codes and grids."""
    import torch

    check_decode(q, *codes, lengths)
    bits = {torch.int8: 8, torch.uint8: 4}.get(codes[0].dtype)
    if bits is None or codes[1].dtype != codes[0].dtype:
        raise KernelError(f"codes are {codes[0].dtype} and {codes[1].dtype}: give int8 (8 bits) or uint8 (4 bits) both")
    if bits == 4 and q.shape[-1] % 2:
        raise KernelError(f"head size {q.shape[-1]}: two 4-bit codes share a byte, so it must be even")
    check_shape("k_codes", codes[0], (None, None, None, q.shape[2] // (8 // bits)))
    check_same_device(q=q, k_grid=grids[0], v_grid=grids[1])
    for name, grid in zip(("k_grid", "v_grid"), grids, strict=True):
        check_shape(name, grid, grid_shape(tuple(codes[0].shape), bits))
        check_contiguous(name, grid)
        check_dtype(name, grid, (torch.int32,))


def attention_decode_int(
    q: torch.Tensor,
    k_codes: torch.Tensor,
    v_codes: torch.Tensor,
    k_grid: torch.Tensor,
    v_grid: torch.Tensor,
    *,
    lengths: torch.Tensor | None = None,
    scale: float | None = None,
    parts: int | None = None,
) -> torch.Tensor:
    """Attention of one query token per sequence over quantised keys and values.

    Args:
        q: (batch, query heads, head size), fp16 or bf16.
        k_codes, v_codes: (batch, keys, KV heads, head size) int8, or half the head size in uint8: see quantize_kv.
        k_grid, v_grid: their grids, contiguous.
        lengths, scale, parts: as for attention_decode.

    Returns:
        (batch, query heads, head size) in the dtype of q. Against attention over the unquantised cache it is off by at
        most the quantisation of v (half its scale) plus what half a scale in k moves the probabilities.

    Raises:
        KernelError: shapes, dtypes, strides or devices that do not fit together.

    Example, in the interpreter or on a GPU:
    ``(k, k_grid), (v, v_grid) = quantize_kv(k, 4), quantize_kv(v, 4)``, then
    ``out = attention_decode_int(q, k, v, k_grid, v_grid)``.
    """
    if scale is not None:
        scale = check_number("scale", scale)
    tensors = q, k_codes, v_codes, k_grid, v_grid, lengths
    if (traced := operator("attention_decode_int")) is not None:
        return traced(*tensors, scale, parts)
    return planned(_plan, tensors, parts)(*tensors, scale)


def _plan(
    q: torch.Tensor,
    k_codes: torch.Tensor,
    v_codes: torch.Tensor,
    k_grid: torch.Tensor,
    v_grid: torch.Tensor,
    lengths: torch.Tensor | None,
    parts: int | None,
) -> Callable[..., torch.Tensor]:
    check_decode_int(q, (k_codes, v_codes), (k_grid, v_grid), lengths)
    check_shape("k_codes", k_codes, (q.shape[0], None, None, None))
    launch = plan_decode_int(q, k_codes, k_grid, k_codes.shape[1], None, check_parts(parts))
    usual = q.shape[2] ** -0.5
    return lambda q, k, v, k_grid, v_grid, lengths, scale: launch(
        q, (k, v), (k_grid, v_grid), lengths, None, usual if scale is None else scale
    )
