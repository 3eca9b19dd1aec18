# SPDX-License-Identifier: MIT
"""Weights as small floating-point numbers in blocks that share a scale: FP8, MXFP8, MXFP4 and NVFP4. Notebook 13.

A format is the form of its numbers (``e4m3fn``, or the four bits of ``e2m1``), the block that shares a scale, and the
form of the scale itself. Nothing is calibrated: the scale comes from the block's largest magnitude, and every number
is rounded to the nearest. The codes of 8-bit numbers are those of :mod:`rocm_guide.kernels.fp8`.
Source: "OCP Microscaling Formats (MX) Specification", version 1.0, 2023, sections 5 and 6 (MXFP8, MXFP4, E8M0); NVFP4
as the compressed-tensors library stores it, https://github.com/vllm-project/compressed-tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rocm_guide.kernels.fp8 import FP8, decode_fp8, encode_fp8
from rocm_guide.quantize.grid import QuantizationError

__all__ = ["BLOCK_FLOATS", "BlockFloat", "Scaled", "decode_fp4", "encode_fp4", "scale_blocks", "shared_exponent"]

#: What the eight codes without a sign mean, in order.
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
#: The largest number of a form, and the exponent of the power of two that it starts with.
_LARGEST = {"e2m1": (6.0, 2), "e4m3fn": (448.0, 8), "e4m3fnuz": (240.0, 7), "e5m2": (57344.0, 15)}


@dataclass(frozen=True)
class BlockFloat:
    """One format.

    Attributes:
        element: form of the numbers: e4m3fn, e4m3fnuz, e5m2 or e2m1.
        rows, columns: of the block that shares a scale; 0 for all of them.
        scale: form of the scale: ``float32``; ``e8m0``, a power of two in 8 bits; ``e4m3fn``, under one float32 number
            for the whole matrix.
    """

    element: str
    rows: int
    columns: int
    scale: str


#: The formats of notebook 13, the coarsest scale first.
BLOCK_FLOATS = {
    "FP8, tensor": BlockFloat("e4m3fn", 0, 0, "float32"),
    "FP8, channel": BlockFloat("e4m3fn", 1, 0, "float32"),
    "FP8, 128 x 128": BlockFloat("e4m3fn", 128, 128, "float32"),
    "MXFP8": BlockFloat("e4m3fn", 1, 32, "e8m0"),
    "MXFP4": BlockFloat("e2m1", 1, 32, "e8m0"),
    "NVFP4": BlockFloat("e2m1", 1, 16, "e4m3fn"),
}


@dataclass(frozen=True)
class Scaled:
    """A matrix in a format.

    Attributes:
        codes: (out, in) uint8, one code each; 4-bit codes are not packed.
        scales: (blocks down, blocks across) float32, what a code is multiplied by.
        restored: (out, in) float32, codes times scales.
        bits: stored bits for each weight, scales included.
    """

    codes: torch.Tensor
    scales: torch.Tensor
    restored: torch.Tensor
    bits: float


def encode_fp4(x: torch.Tensor) -> torch.Tensor:
    """Round to the nearest code of E2M1, ties to the even code; uint8 of the same shape. Beyond 6 is 6.

    Raises:
        QuantizationError: NaN, which the form cannot hold.

    >>> encode_fp4(torch.tensor([0.25, 0.75, -5.0, 100.0])).tolist()
    [0, 2, 14, 7]
    """
    if torch.isnan(x).any():
        raise QuantizationError("NaN in the numbers to round: E2M1 has no code for it; find where it comes from")
    size = x.abs().unsqueeze(-1)
    values = torch.tensor(_E2M1, device=x.device, dtype=torch.float64)
    middles = (values[1:] + values[:-1]) / 2
    odd_below = torch.arange(7, device=x.device) % 2 == 1  # a tie goes up where the code below is odd
    code = ((size > middles) | ((size == middles) & odd_below)).sum(-1)
    return (code + 8 * torch.signbit(x)).to(torch.uint8)


def decode_fp4(codes: torch.Tensor) -> torch.Tensor:
    """Return what codes of E2M1 mean, one code a byte: uint8 in, float32 of the same shape out.

    >>> decode_fp4(torch.tensor([1, 7, 15], dtype=torch.uint8)).tolist()
    [0.5, 6.0, -6.0]
    """
    values = torch.tensor(_E2M1, device=codes.device)
    return torch.cat([values, -values])[codes.long()]


def shared_exponent(largest: torch.Tensor, element: str, rule: str = "nearest") -> torch.Tensor:
    """Return the exponent of the scale of each block, -127 to 127, int32.

    Args:
        largest: magnitudes, each the largest of a block.
        rule: "floor", the specification's: the power of two below the largest, and what then lies beyond the form's
            largest number becomes that. "nearest": the power above where the largest is at least 1.75 times the one
            below, as Quark and compressed-tensors do it. "above": no number lies beyond.

    Raises:
        QuantizationError: another form or rule.

    >>> shared_exponent(torch.tensor([7.0]), "e2m1", "floor"), shared_exponent(torch.tensor([7.0]), "e2m1")
    (tensor([0], dtype=torch.int32), tensor([1], dtype=torch.int32))
    """
    if element not in _LARGEST or rule not in ("floor", "nearest", "above"):
        raise QuantizationError(
            f"element={element!r}, rule={rule!r}: choose {', '.join(_LARGEST)}; floor, nearest, above"
        )
    most, power = _LARGEST[element]
    x = largest.float()
    if rule == "above":
        mantissa, exponent = torch.frexp(x / most)
        wanted = exponent - (mantissa == 0.5).int()
    else:
        mantissa, exponent = torch.frexp(x)  # 0.5 <= mantissa < 1
        wanted = exponent - 1 - power + ((mantissa >= 0.875).int() if rule == "nearest" else 0)
    return torch.where(x == 0, -127, wanted).clamp(-127, 127).to(torch.int32)


def scale_blocks(weight: torch.Tensor, form: BlockFloat) -> Scaled:
    """Round a matrix to ``form``.

    Args:
        weight: (out, in); blocks at the edges may be cut off, except in a row: what shares a scale there divides it.

    Raises:
        QuantizationError: a block that does not divide a row; NaN or infinity.

    >>> _ = torch.manual_seed(0)
    >>> w = torch.randn(64, 128)
    >>> [round(scale_blocks(w, form).bits, 4) for form in BLOCK_FLOATS.values()]
    [8.0039, 8.25, 8.0039, 8.25, 4.25, 4.5039]
    """
    w = weight.detach().float()
    if not torch.isfinite(w).all():
        raise QuantizationError("NaN or infinity among the weights: no scale makes them fit; look at the checkpoint")
    rows, columns = w.shape
    down, across = form.rows or rows, form.columns or columns
    if form.columns and form.rows == 1 and columns % across:
        raise QuantizationError(f"{across} weights share a scale and do not divide a row of {columns}")
    padded = torch.nn.functional.pad(w, (0, -columns % across, 0, -rows % down))
    blocks = padded.reshape(padded.shape[0] // down, down, padded.shape[1] // across, across)
    largest, most = blocks.abs().amax((1, 3)), _LARGEST[form.element][0]
    extra = 0
    if form.scale == "float32":
        scales, scale_bits = largest / most, 32
    elif form.scale == "e8m0":
        scales, scale_bits = torch.ldexp(torch.ones_like(largest), shared_exponent(largest, form.element)), 8
    else:
        # One number makes the largest scale of the matrix the largest that E4M3 holds.
        whole = largest.amax().clamp(min=torch.finfo(torch.float32).tiny) / (most * 448.0)
        kept = decode_fp8(encode_fp8(largest / most / whole, FP8["e4m3fn"]), FP8["e4m3fn"])
        scales, scale_bits, extra = kept * whole, 8, 32
    divisor = torch.where(scales == 0, 1.0, scales)[:, None, :, None]
    small = blocks / divisor
    codes = encode_fp4(small) if form.element == "e2m1" else encode_fp8(small, FP8[form.element])
    values = decode_fp4(codes) if form.element == "e2m1" else decode_fp8(codes, FP8[form.element])
    restored = (values * scales[:, None, :, None]).reshape(padded.shape)[:rows, :columns]
    width = 4 if form.element == "e2m1" else 8
    bits = width + (scales.numel() * scale_bits + extra) / w.numel()
    return Scaled(codes.reshape(padded.shape)[:rows, :columns], scales, restored.contiguous(), bits)
