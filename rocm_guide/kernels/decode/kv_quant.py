# SPDX-License-Identifier: MIT
r"""Keys and values in 8 or 4 bits: integer codes on a grid of their own for every token and head.

A vector of :math:`D` features is stored as codes, a scale and a shift:

.. math:: \hat x = \text{shift} + \text{scale} \cdot c, \qquad |x - \hat x| \le \tfrac12\,\text{scale}

8 bits: :math:`c` from -127 to 127, one grid for the whole head. 4 bits: :math:`c = b - 7.5` with :math:`b` from 0 to
15, one grid for each half of the head, and byte :math:`i` holds features :math:`i` (low bits) and :math:`i + D/2`
(high bits), so that unpacking needs no shuffling. The grid is fitted to the smallest and the largest feature; scale
and shift are fp16, rounded *before* the codes are chosen, so that the bound above holds for what is stored.

For a head of 128 a token costs 132 B or 72 B instead of 256 B. Read by attention_decode_int.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocm_guide.kernels.arguments import KernelError, check_dtype, check_shape

if TYPE_CHECKING:
    import torch

__all__ = ["dequantize_kv", "quantize_kv", "unpack_grid"]

_REACH = {8: 127.0, 4: 7.5}
_LEAST_SCALE = 2.0**-14  # the smallest normal fp16


def grid_shape(x_shape: tuple[int, ...], bits: int) -> tuple[int, ...]:
    """Shape of the grid of a (batch, keys, heads, size) tensor: (grids, batch, heads, keys).

    Keys come last, so that the kernel reads the grids of neighbouring keys in one piece.

    >>> grid_shape((2, 100, 8, 128), 4)
    (2, 2, 8, 100)
    """
    batch, keys, heads, _ = x_shape
    return (2 if bits == 4 else 1, batch, heads, keys)


def quantize_kv(x: torch.Tensor, bits: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and grid of keys or values.

    Args:
        x: (batch or pages, keys, heads, head size); numbers below 65,504 in size. The head size is even for 4 bits.
        bits: 8 or 4.

    Returns:
        codes, int8 of the same shape or uint8 of half the head size; and the grid, int32 of :func:`grid_shape`: the
        fp16 scale in the low and the fp16 shift in the high half (read them with :func:`unpack_grid`).

    Raises:
        KernelError: another number of bits or dimensions, or an odd head size for 4 bits.

    >>> import torch
    >>> x = torch.linspace(-1, 1, 8).reshape(1, 1, 1, 8)
    >>> codes, grid = quantize_kv(x, 8)
    >>> codes.flatten().tolist(), grid.shape
    ([-127, -91, -54, -18, 18, 54, 91, 127], torch.Size([1, 1, 1, 1]))
    >>> scale, shift = unpack_grid(grid)
    >>> bool(((dequantize_kv(codes, grid) - x).abs() <= scale / 2).all())
    True
    """
    import torch

    if not isinstance(bits, int) or bits not in _REACH:
        raise KernelError(f"bits={bits!r}: give 8 or 4")
    check_shape("x", x, (None, None, None, None))
    check_dtype("x", x, (torch.float16, torch.bfloat16, torch.float32, torch.float64))
    if not x.shape[-1]:
        raise KernelError("head size 0: a grid is fitted to at least one feature")
    if bits == 4 and x.shape[-1] % 2:
        raise KernelError(f"head size {x.shape[-1]}: two 4-bit codes share a byte, so it must be even")
    groups = x.float().unflatten(-1, (2 if bits == 4 else 1, -1))
    low, high = groups.aminmax(dim=-1, keepdim=True)
    shift = ((low + high) / 2).half().float()
    reach = torch.maximum(high - shift, shift - low) / _REACH[bits]
    scale = reach.clamp(min=_LEAST_SCALE).half().float()  # off by 2^-11 at most: no code leaves its range
    steps = (groups - shift) / scale
    if bits == 8:
        codes = (steps + 0.5).floor().to(torch.int8).flatten(-2)
    else:
        nibbles = (steps + 8.0).floor().to(torch.uint8)
        codes = nibbles[..., 0, :] | (nibbles[..., 1, :] << 4)
    # Side by side in memory, the low half first: one 32-bit load brings both.
    both = torch.cat([scale, shift], dim=-1).half().view(torch.int32)[..., 0]  # (batch, keys, heads, grids)
    return codes, both.permute(3, 0, 2, 1).contiguous()


def unpack_grid(grid: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale and shift, fp32, of the grid that :func:`quantize_kv` returns."""
    import torch

    scale, shift = grid.unsqueeze(-1).view(torch.float16).float().unbind(-1)
    return scale, shift


def dequantize_kv(codes: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    """The numbers that codes and grid stand for, in fp32: the inverse of :func:`quantize_kv` up to half a scale."""
    import torch

    four = codes.dtype == torch.uint8
    parts = [(codes & 15).float() - 7.5, (codes >> 4).float() - 7.5] if four else [codes.float()]
    scale, shift = (x.permute(1, 3, 2, 0) for x in unpack_grid(grid))  # (batch, keys, heads, grids)
    return torch.cat([c * scale[..., i, None] + shift[..., i, None] for i, c in enumerate(parts)], dim=-1)
