# SPDX-License-Identifier: MIT
"""Arithmetic and conversions that numpy lacks, with the rounding, saturation and special values of CDNA3.

Multiply-add is rounded once; minimum, maximum and the steps of a division are AMD's. The 8-bit formats of gfx942 are
the FNUZ ones: one NaN (0x80), no infinity, no negative zero.
Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, V_FMA, V_MAX, V_MED3, V_DIV_SCALE, V_DIV_FMAS,
V_DIV_FIXUP, V_TRIG_PREOP, V_CVT_*. Exact addition: T. J. Dekker, "A floating-point technique for extending the
available precision", 1971; rounding to odd: S. Boldo and G. Melquiond, "Emulation of FMA and correctly rounded sums",
2008; FNUZ: "8-bit Numerical Formats for Deep Neural Networks", B. Noune et al., 2022, https://arxiv.org/abs/2206.02915.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

__all__ = ["FLOAT8"]

_MIDDLE, _LOW29 = np.uint64(0x1000_0000), np.uint64(0x1FFF_FFFF)
_SMALL = 2.0**-125


def to_unit(x: Any) -> Any:
    """Return floats clamped to 0 to 1 as the modifier ``clamp`` does it: NaN becomes 0, and -0 stays.

    ``np.clip`` gives 0 or -0 for -0, by numpy's release.
    """
    one, zero = x.dtype.type(1), x.dtype.type(0)
    return np.where(x > 0, np.minimum(x, one), np.where(x == 0, x, zero))


def to_odd(p: Any, c: Any, s: Any) -> Any:
    """Return ``p + c`` in float64 rounded to odd, so that a second rounding is right; ``s`` is their rounded sum."""
    part = s - p
    error = (p - (s - part)) + (c - part)
    bits = s.view(np.int64).copy()
    inexact = np.isfinite(s) & (error != 0) & (bits & 1 == 0)
    bits += np.where(inexact, np.where((error > 0) == (s > 0), 1, -1), 0)
    return bits.view(np.float64)


def product_sum(a: Any, b: Any, c: Any) -> tuple[Any, Any, Any]:
    """Return ``a * b`` and ``c`` of float32 or float16, exact in float64, and their sum, which is rounded there."""
    p = np.multiply(a, b, dtype=np.float64)
    c = np.asarray(c, np.float64)
    return p, c, np.atleast_1d(p + c)


def fma32(a: Any, b: Any, c: Any) -> Any:
    """Return ``a * b + c`` of float32 with one rounding.

    >>> x = np.float32(1 + 2**-12)
    >>> float(fma32(x, x, np.float32(-1))[0]) == 2**-11 + 2**-24
    True
    """
    p, c, s = product_sum(a, b, c)
    # The double-precision sum goes wrong in the second rounding only when it lies on the middle of two floats.
    if ((s.view(np.uint64) & _LOW29) == _MIDDLE).any() or (np.abs(s) < _SMALL).any():
        s = to_odd(p, c, s)
    return s.astype(np.float32)


def fma16(a: Any, b: Any, c: Any) -> Any:
    """Return ``a * b + c`` of float16 with one rounding."""
    return to_odd(*product_sum(a, b, c)).astype(np.float16)


def fma64(a: Any, b: Any, c: Any) -> Any:
    """Return ``a * b + c`` of float64 with one rounding, by exact fractions: slow, and rare in kernels."""
    a, b, c = np.broadcast_arrays(a, b, c)
    out = a * b + c
    for i in range(out.size):
        x, y, z = float(a.flat[i]), float(b.flat[i]), float(c.flat[i])
        if math.isfinite(x) and math.isfinite(y) and math.isfinite(z) and (x and y):
            exact = Fraction(x) * Fraction(y) + Fraction(z)
            try:
                out.flat[i] = float(exact) if exact else 0.0 * out.flat[i]
            except OverflowError:
                out.flat[i] = math.inf if exact > 0 else -math.inf
    return out


def min_num(a: Any, b: Any) -> Any:
    """Return the smaller; a number rather than a NaN; -0 is smaller than +0.

    >>> min_num(np.float32([np.nan, 0.0]), np.float32([1, -0.0]))
    array([ 1., -0.], dtype=float32)
    """
    r = np.fmin(a, b)
    return np.where(np.signbit(a) | np.signbit(b), -np.abs(r), r) if (r == 0).any() and _zeros(a, b, r) else r


def _zeros(a: Any, b: Any, r: Any) -> bool:
    return bool(((a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b))).any())


def max_num(a: Any, b: Any) -> Any:
    """Return the larger; a number rather than a NaN; +0 is larger than -0."""
    r = np.fmax(a, b)
    if (r == 0).any() and _zeros(a, b, r):
        return np.where((a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b)), np.abs(r), r)
    return r


def median3(a: Any, b: Any, c: Any) -> Any:
    """Return the middle one of three; with a NaN among them, the minimum."""
    if a.dtype.kind != "f":
        return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))
    middle = max_num(min_num(a, b), min_num(max_num(a, b), c))
    nan = np.isnan(a) | np.isnan(b) | np.isnan(c)
    return np.where(nan, min_num(min_num(a, b), c), middle) if np.any(nan) else middle


def transcendental(f: Any, x: Any) -> Any:
    """Return ``f`` in float64, rounded to float32; denormal inputs and results become zero, as these instructions do
    it.
    """
    x = np.where(np.abs(x) < np.float32(2.0**-126), np.copysign(np.float32(0), x), x)
    y = f(np.asarray(x, np.float64)).astype(np.float32)
    return np.where(np.abs(y) < np.float32(2.0**-126), np.copysign(np.float32(0), y), y)


_LIMITS = {np.dtype(np.float32): (127, 23, 96, 64), np.dtype(np.float64): (1023, 52, 768, 128)}


def _exponent(x: Any, bias: int, mantissa: int) -> Any:
    """Return the biased exponent field."""
    bits = np.atleast_1d(x).view(np.uint32 if mantissa == 23 else np.uint64).astype(np.int64)
    return bits >> mantissa & (2 * bias + 1)


def _ordinary(*values: Any) -> bool:
    """Return whether all are float32 of moderate size, between which no step of a division goes near a limit."""
    for v in values:
        if v.dtype != np.float32:
            return False
        exponent = (v.view(np.uint32) >> np.uint32(23)) & np.uint32(255)
        if not np.all(exponent - np.uint32(64) < np.uint32(95)):
            return False
    return True


def div_scale(x: Any, denominator: Any, numerator: Any) -> tuple[Any, Any]:
    """Scale ``x`` (one of the other two) as V_DIV_SCALE does, so that the division steps neither overflow
    nor lose bits.

    Returns the scaled value and the mask of lanes whose quotient V_DIV_FMAS must scale back.
    """
    if _ordinary(denominator, numerator):
        return x, np.bool_(False)
    x, d, n = np.broadcast_arrays(*(np.atleast_1d(v) for v in (x, denominator, numerator)))
    bias, mantissa, far, step = _LIMITS[x.dtype]
    smallest = 2.0 ** (1 - bias)
    wide = np.longdouble if mantissa == 52 else np.float64
    reciprocal, quotient = np.abs(wide(1) / d.astype(wide)), np.abs(n.astype(wide) / d.astype(wide))
    tiny_r, tiny_q = (reciprocal < smallest) & (reciprocal > 0), (quotient < smallest) & (quotient > 0)
    up, down = np.ldexp(x, step), np.ldexp(x, -step)
    is_d, is_n = x == d, x == n
    cases = [
        ((n == 0) | (d == 0), np.full_like(x, np.nan), False),
        (_exponent(n, bias, mantissa) - _exponent(d, bias, mantissa) >= far, np.where(is_d, up, x), True),
        ((d != 0) & (np.abs(d) < smallest), up, False),
        (tiny_r & tiny_q, np.where(is_d, up, x), True),
        (tiny_r, down, False),
        (tiny_q, np.where(is_n, up, x), True),
        (_exponent(n, bias, mantissa) <= mantissa, up, False),
    ]
    value = np.select([c for c, _, _ in cases], [v for _, v, _ in cases], x).astype(x.dtype)
    return value, np.select([c for c, _, _ in cases], [np.full(x.shape, f) for _, _, f in cases], False)


def div_fixup(quotient: Any, denominator: Any, numerator: Any) -> Any:
    """Put the special cases of a division right, as V_DIV_FIXUP does."""
    if _ordinary(quotient, denominator, numerator):
        sign_of = np.uint32(1 << 31)
        signs = (denominator.view(np.uint32) ^ numerator.view(np.uint32)) & sign_of
        return (quotient.view(np.uint32) & ~sign_of | signs).view(np.float32)
    q, d, n = np.broadcast_arrays(*(np.atleast_1d(v) for v in (quotient, denominator, numerator)))
    t = q.dtype.type
    negative = np.signbit(d) ^ np.signbit(n)
    sign = np.where(negative, t(-1), t(1))
    cases: list[tuple[Any, Any]] = [
        (np.isnan(n), n),
        (np.isnan(d), d),
        ((d == 0) & (n == 0) | np.isinf(d) & np.isinf(n), np.full_like(q, -np.nan)),
        ((d == 0) | np.isinf(n), sign * t(np.inf)),
        (np.isinf(d) | (n == 0), np.copysign(t(0), sign)),
    ]
    if q.dtype != np.float16:
        bias, mantissa, _, _ = _LIMITS[q.dtype]
        apart = _exponent(n, bias, mantissa) - _exponent(d, bias, mantissa)
        cases.append((apart < -(bias + mantissa), np.copysign(t(0), sign)))
        cases.append((apart == 2 * bias + 1, sign * t(np.inf)))
    # Between finite numbers the steps give NaN only when they overflow.
    cases.append((np.isnan(q), sign * t(np.inf)))
    return np.select([c for c, _ in cases], [v for _, v in cases], np.where(negative, -np.abs(q), np.abs(q)))


@lru_cache(maxsize=1)
def _two_over_pi_bits() -> int:
    """Return the first 1,201 bits of 2 / pi behind the point; pi by Machin's formula."""
    one = 1 << 1400

    def arctan_of_inverse(x: int) -> int:
        term, total, k = one // x, 0, 0
        while term:
            total += (-1) ** k * (term // (2 * k + 1))
            term, k = term // (x * x), k + 1
        return total

    pi = 4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))
    return (2 * one << 1201) // pi


@lru_cache(maxsize=4096)
def _segment(exponent: int, which: int) -> float:
    shift = 53 * which + max(0, exponent - 1077)
    bits = _two_over_pi_bits() << shift >> 1201 - 53 & (1 << 53) - 1
    return math.ldexp(bits, -53 - shift + (128 if exponent >= 1968 else 0))


def two_over_pi(x: Any, which: Any) -> Any:
    """Return 53 bits of 2 / pi as V_TRIG_PREOP_F64 does, the ``which``-th ones that matter to the argument ``x`` of a
    sine.

    >>> float(two_over_pi(np.float64([1.0]), np.uint32([0]))[0]) - 2 / math.pi < 2**-53
    True
    """
    x, which = np.broadcast_arrays(x, which)
    exponents = np.ascontiguousarray(x).view(np.uint64) >> np.uint64(52) & np.uint64(0x7FF)
    return np.array([_segment(e, n & 31) for e, n in zip(exponents.tolist(), which.tolist(), strict=True)], np.float64)


def _values(exponent_bits: int, mantissa_bits: int) -> Any:
    """Return the 256 values of an FNUZ format."""
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
    """Round float32 to ``fp8`` (e4m3) or ``bf8`` (e5m2), nearest even, as uint32 codes.

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
    """Round as V_CVT_SR does: random bits are added below the last kept bit, then the rest is cut off.

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
    """Convert uint16 bfloat16 to float32, exactly."""
    return (halves.astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_xf32(x: Any) -> Any:
    """Return float32 with the mantissa cut off behind 10 bits, as the xf32 matrix instructions read it.

    Source: MMA-Sim, https://github.com/microsoft/MMA-Sim, which was compared with an MI300X bit by bit.

    >>> to_xf32(np.float32([1 + 2**-10 + 2**-11, -1 - 2**-11, np.inf])).tolist()
    [1.0009765625, -1.0, inf]
    """
    cut = (np.ascontiguousarray(x).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isnan(x), x, cut)  # a NaN stays one, whichever of its bits is set


def saturate(x: Any, dtype: Any) -> Any:
    """Convert a float to an integer type: towards zero, clipped to its range, NaN becomes 0."""
    info = np.iinfo(dtype)
    wide = np.trunc(np.asarray(x, np.float64))
    clipped = np.clip(np.where(np.isnan(wide), 0, wide), info.min, info.max)
    return clipped.astype(np.int64).astype(dtype)
