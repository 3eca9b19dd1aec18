# SPDX-License-Identifier: MIT
"""Conversions between number formats, with the rounding, saturation and special values of CDNA3.

The 8-bit formats of gfx942 are the FNUZ ones: one NaN (0x80), no infinity, no negative zero.
Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, V_CVT_*; FNUZ: "8-bit Numerical Formats for Deep Neural
Networks", B. Noune et al., 2022, https://arxiv.org/abs/2206.02915.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["FLOAT8", "bf16_to_f32", "f32_to_f8", "round_toward_zero_f16", "saturate", "stochastic_f8", "to_xf32"]


def _values(exponent_bits: int, mantissa_bits: int) -> Any:
    """The 256 values of an FNUZ format."""
    bias = 1 << (exponent_bits - 1)
    codes = np.arange(128)
    e, m = codes >> mantissa_bits, codes & ((1 << mantissa_bits) - 1)
    steps = float(1 << mantissa_bits)
    positive = np.where(e == 0, m / steps * 2.0 ** (1 - bias), (1 + m / steps) * 2.0 ** (e - bias))
    values = np.concatenate([positive, -positive]).astype(np.float32)
    values[128] = np.nan
    return values


FLOAT8 = {"fp8": _values(4, 3), "bf8": _values(5, 2)}
_MIDDLES: dict[str, Any] = {}
for _name, _table in FLOAT8.items():
    _positive = _table[:128].astype(np.float64)
    _last = _positive[-1] + (_positive[-1] - _positive[-2]) / 2
    _MIDDLES[_name] = np.append((_positive[1:] + _positive[:-1]) / 2, _last)


def f32_to_f8(x: Any, kind: str, clamp: bool = False) -> Any:
    """float32 to ``fp8`` (e4m3) or ``bf8`` (e5m2), nearest even, as uint32 codes.

    What lies beyond the largest value becomes NaN (0x80), or with ``clamp`` (MODE.FP16_OVFL) the largest value.

    >>> [hex(c) for c in f32_to_f8(np.float32([1, -240, 250, -0.0]), "fp8")]
    ['0x40', '0xff', '0x80', '0x0']
    """
    size = np.abs(np.asarray(x, np.float64))
    middles = _MIDDLES[kind]
    code = np.searchsorted(middles, size, side="left")
    tie = (code < 128) & (size == middles[np.minimum(code, 127)]) & (code % 2 == 1)
    code = code + tie
    code = np.where(code > 127, 127 if clamp else 128, code)
    code = np.where(np.isnan(size), 128, code)
    return np.where((code == 0) | (code == 128), code, code | np.signbit(x).astype(np.int64) << 7).astype(np.uint32)


def stochastic_f8(x: Any, noise: Any, kind: str, clamp: bool = False) -> Any:
    """V_CVT_SR: random bits are added below the last kept bit, then the rest is cut off.

    ``noise`` is uint32; its top bits are used, as many as are cut off (20 for fp8, 21 for bf8; the manual's S1[31:12]
    and S1[31:11]). For results below the smallest normal value AMD does not say which bits count; here the same ones
    are added below the last bit that is kept, as AMD's conversion in software does it.

    >>> hex(stochastic_f8(np.float32([1.0625]), np.uint32([0x80000000]), "fp8")[0])
    '0x41'
    """
    mantissa = 3 if kind == "fp8" else 2
    bias = 8 if kind == "fp8" else 16
    x = np.asarray(x, np.float32)
    size = np.abs(x).astype(np.float64)
    _, exponent = np.frexp(size)
    # One unit in the last place of the result; below the smallest normal value it stays the same.
    unit = np.ldexp(1.0, np.maximum(exponent - 1, 1 - bias) - mantissa)
    cut = 23 - mantissa
    fraction = (np.asarray(noise, np.uint32) >> np.uint32(32 - cut)).astype(np.float64) / float(1 << cut)
    steps = np.floor(size / unit + fraction)
    rounded = np.where(np.isfinite(size), steps * unit, size)
    return f32_to_f8(np.copysign(rounded, x), kind, clamp)


def bf16_to_f32(halves: Any) -> Any:
    """uint16 bfloat16 to float32, exact."""
    return (halves.astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_xf32(x: Any) -> Any:
    """float32 with the mantissa rounded to 10 bits (nearest even), as the xf32 matrix instructions read it."""
    bits = np.ascontiguousarray(x).view(np.uint32).astype(np.uint64)
    rounded = bits + np.uint64(0xFFF) + (bits >> np.uint64(13) & np.uint64(1)) & np.uint64(0xFFFFE000)
    finite = np.isfinite(x)
    return np.where(finite, rounded.astype(np.uint32).view(np.float32), x)


def round_toward_zero_f16(x: Any) -> Any:
    """float32 to float16, cut off towards zero; a finite value never becomes infinite."""
    x = np.asarray(x, np.float32)
    y = x.astype(np.float16)
    wider = np.abs(y.astype(np.float32)) > np.abs(x)
    return np.where(wider, np.nextafter(y, np.float16(0)), y).astype(np.float16)


def saturate(x: Any, dtype: Any) -> Any:
    """A float to an integer type: towards zero, clipped to its range, NaN becomes 0."""
    info = np.iinfo(dtype)
    wide = np.trunc(np.asarray(x, np.float64))
    clipped = np.clip(np.where(np.isnan(wide), 0, wide), info.min, info.max)
    return clipped.astype(np.int64).astype(dtype)
