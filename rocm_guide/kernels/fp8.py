# SPDX-License-Identifier: MIT
"""The four 8-bit floating-point formats: which one a GPU computes in, their limits, and bit-exact conversion models.

MI300X (gfx942) multiplies FNUZ forms: no infinity, no negative zero (its code is the only NaN), and an exponent bias
that is one higher, so the same byte means half as much as in the OCP form that NVIDIA and gfx950 use. The models here
are plain integer arithmetic on the bits, independent of any conversion instruction, and so can judge one.

Source: "OCP 8-bit Floating Point Specification (OFP8)", revision 1.0, 2023; B. Noune et al., "8-bit Numerical Formats
for Deep Neural Networks", https://arxiv.org/abs/2206.02915 (FNUZ). The file needs torch and nothing else: copy it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

__all__ = ["FP8", "decode_fp8", "encode_fp8", "fp8_dtype", "fp8_format"]


class Fp8Format(NamedTuple):
    """One format.

    Attributes:
        name: ``e4m3fn``, ``e5m2`` (OCP), ``e4m3fnuz`` or ``e5m2fnuz`` (MI300X); torch calls it ``float8_<name>``.
        exponent_bits, mantissa_bits, bias: a normal number is 2^(exponent - bias) x 1.mantissa.
        maximum: the largest finite value.
        maximum_code: its byte.
        nan_code: the byte that conversions write for NaN.
        infinity_code: the byte of +infinity; None where the format has none.
        fnuz: True for the forms of MI300X.
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    maximum: float
    maximum_code: int
    nan_code: int
    infinity_code: int | None
    fnuz: bool


#: The formats by name.
FP8 = {
    f.name: f
    for f in (
        Fp8Format("e4m3fn", 4, 3, 7, 448.0, 0x7E, 0x7F, None, False),
        Fp8Format("e4m3fnuz", 4, 3, 8, 240.0, 0x7F, 0x80, None, True),
        Fp8Format("e5m2", 5, 2, 15, 57344.0, 0x7B, 0x7F, 0x7C, False),
        Fp8Format("e5m2fnuz", 5, 2, 16, 57344.0, 0x7F, 0x80, None, True),
    )
}


def fp8_format(kind: str, arch: str) -> Fp8Format:
    """Return the form of ``kind`` (``"e4m3"`` or ``"e5m2"``) that the matrix units of ``arch`` multiply.

    Raises:
        ValueError: another kind.

    >>> fp8_format("e4m3", "gfx942").name, fp8_format("e4m3", "gfx950").maximum, fp8_format("e5m2", "sm_90").name
    ('e4m3fnuz', 448.0, 'e5m2')
    """
    if kind not in ("e4m3", "e5m2"):
        raise ValueError(f"fp8 kind {kind!r}: give 'e4m3' or 'e5m2'; the architecture decides its form")
    fnuz = arch in ("gfx940", "gfx941", "gfx942")
    return FP8[f"{kind}fnuz" if fnuz else {"e4m3": "e4m3fn", "e5m2": "e5m2"}[kind]]


def fp8_dtype(fmt: Fp8Format) -> torch.dtype:
    """Return torch's type of a format.

    >>> fp8_dtype(FP8["e4m3fnuz"])
    torch.float8_e4m3fnuz
    """
    return getattr(torch, f"float8_{fmt.name}")


def decode_fp8(codes: torch.Tensor, fmt: Fp8Format) -> torch.Tensor:
    """Return what bytes mean: uint8 in, float32 of the same shape out, exactly.

    >>> byte = torch.tensor([0x40], dtype=torch.uint8)
    >>> decode_fp8(byte, FP8["e4m3fn"]).item(), decode_fp8(byte, FP8["e4m3fnuz"]).item()
    (2.0, 1.0)
    """
    c = codes.to(torch.int64)
    mantissa = c & ((1 << fmt.mantissa_bits) - 1)
    exponent = (c & 0x7F) >> fmt.mantissa_bits
    implied = torch.where(exponent > 0, 1 << fmt.mantissa_bits, 0)
    power = exponent.clamp(min=1) - fmt.bias - fmt.mantissa_bits
    value = torch.ldexp((mantissa + implied).double(), power)
    value = torch.where(c >= 0x80, -value, value)
    nan = torch.full_like(value, float("nan"))
    if fmt.fnuz:
        value = torch.where(c == fmt.nan_code, nan, value)
    elif fmt.infinity_code is None:
        value = torch.where((c & 0x7F) == fmt.nan_code, nan, value)
    else:
        inf = torch.full_like(value, float("inf")).copysign(value)
        value = torch.where((c & 0x7F) == fmt.infinity_code, inf, value)
        value = torch.where((c & 0x7F) > fmt.infinity_code, nan, value)
    return value.float()


def encode_fp8(x: torch.Tensor, fmt: Fp8Format, *, saturate: bool = True) -> torch.Tensor:
    """Round fp32 (or narrower) values to the nearest code, ties to even; uint8 of the same shape.

    Args:
        x: any float tensor; float64 is taken as it is.
        saturate: values beyond the maximum become the maximum, as inference kernels want it. Otherwise they become
            infinity where the format has one, else NaN.

    NaN stays NaN with the sign dropped. In FNUZ forms every zero, and what rounds to zero, is code 0.

    >>> x = torch.tensor([1.0, 0.3, -500.0])
    >>> decode_fp8(encode_fp8(x, FP8["e4m3fn"]), FP8["e4m3fn"]).tolist()
    [1.0, 0.3125, -448.0]
    >>> decode_fp8(encode_fp8(x, FP8["e4m3fnuz"]), FP8["e4m3fnuz"]).tolist()
    [1.0, 0.3125, -240.0]
    """
    v = x.double()
    size = v.abs()
    _, e = torch.frexp(size)
    # Numbers below the smallest normal share its step; above it, the step is 2^-mantissa_bits of the leading power.
    power = (e - 1).clamp(min=1 - fmt.bias)
    steps = torch.ldexp(size, fmt.mantissa_bits - power).round()  # torch rounds halves to even
    carry = steps >= 2 << fmt.mantissa_bits
    steps, power = torch.where(carry, steps / 2, steps), power + carry.to(power.dtype)
    steps = torch.nan_to_num(steps, nan=0.0, posinf=0.0).to(torch.int64)
    normal = steps >= 1 << fmt.mantissa_bits
    exponent = torch.where(normal, power + fmt.bias, 0).to(torch.int64)
    code = (exponent << fmt.mantissa_bits) | (steps & ((1 << fmt.mantissa_bits) - 1))
    over = (code > fmt.maximum_code) | torch.isinf(size)
    beyond = fmt.infinity_code if fmt.infinity_code is not None else fmt.nan_code
    code = torch.where(over, fmt.maximum_code if saturate else beyond, code)
    signed = (v.signbit()) & ~(torch.isnan(v)) & ((code != 0) if fmt.fnuz else (code >= 0))
    code = torch.where(signed, code | 0x80, code)
    return torch.where(torch.isnan(v), fmt.nan_code, code).to(torch.uint8)
