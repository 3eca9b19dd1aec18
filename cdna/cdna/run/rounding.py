# SPDX-License-Identifier: MIT
"""Arithmetic rounded up, down or toward zero, as the rounding bits of MODE ask for it.

MODE has two fields of two bits: one for operations of 32 bits, one for those of 16 and 64 bits, to which conversions
from float64 to float32 and to float16 belong. The exact sum or product is kept (in float64 rounded to odd, or as a
fraction), and is rounded once. Where nothing in print says what a field means, the instruction is refused by name while
a field is not 0:

- Matrix instructions. MMA-Sim (:mod:`cdna.run.matrix_sums`) found their sums on an MI300X with both fields 0. Some of
  their steps cut off, some round down and the last one rounds to nearest even; which obey a field was not tried.
- ``v_dot2_f32_f16`` and its kin: AMD's document has the sum of the products, and not how often it is rounded.
- Conversions to FP8 and BF8: it names no field for 8 bits, and those with ``_sr_`` round by their own random bits.
- Approximations (``v_exp_f32``), whose last bit is not defined, output modifiers and atomics in memory.

Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, "MODE register"; which field a conversion obeys:
FPDPRounding in LLVM's AMDGPU backend; rounding to odd: S. Boldo and G. Melquiond, 2008 (:mod:`cdna.run.arithmetic`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from cdna.run.arithmetic import product_sum, to_odd
from cdna.run.errors import RunError
from cdna.run.state import Run, Wave

__all__ = ["WAYS"]

#: What a field of MODE asks for, by its value.
WAYS = ("to nearest even", "toward +inf", "toward -inf", "toward zero")
_UP, _DOWN, _ZERO = 1, 2, 3


def round_to(x: Any, dtype: Any, way: int) -> Any:
    """Round float64 ``x`` to ``dtype``, by the index of one of ``WAYS``.

    >>> [round_to(np.float64([1 / 3, -1 / 3]), np.float16, way).tolist()[0] < 1 / 3 for way in (1, 2, 3)]
    [False, True, True]
    """
    x = np.asarray(x, np.float64)
    y = x.astype(dtype)
    back = y.astype(np.float64)
    if way == _ZERO:
        return np.where(np.abs(back) > np.abs(x), np.nextafter(y, dtype(0)), y)
    wrong, end = {_UP: (back < x, np.inf), _DOWN: (back > x, -np.inf)}.get(way, (np.False_, 0))
    return np.where(wrong, np.nextafter(y, dtype(end)), y)


def _fraction(exact: Fraction, way: int) -> float:
    """Round a fraction to float64."""
    try:
        y = float(exact)
    except OverflowError:
        y = math.inf if exact > 0 else -math.inf
    too_low, too_high = y < exact, y > exact
    if way == _UP and too_low:
        return math.nextafter(y, math.inf)
    if way == _DOWN and too_high:
        return math.nextafter(y, -math.inf)
    away = too_high if exact > 0 else too_low
    return math.nextafter(y, 0.0) if way == _ZERO and away else y


def _in_double(a: Any, b: Any, c: Any, way: int) -> Any:
    """Return ``a * b + c`` of float64, ``a * b`` where ``c`` is None: by fractions, slow and exact."""
    a, b, z = np.broadcast_arrays(*map(np.atleast_1d, (a, b, np.float64(0) if c is None else c)))
    out = a * b if c is None else a * b + z
    for i in range(out.size):
        values = (float(a.flat[i]), float(b.flat[i]), float(z.flat[i]))
        if all(map(math.isfinite, values)):
            x, y, w = map(Fraction, values)
            if exact := x * y + w:
                out.flat[i] = math.copysign(_fraction(exact, way), 1 if exact > 0 else -1)
    return out


def _add_zeros(p: Any, c: Any, total: Any, way: int) -> Any:
    """Return the sum with the sign of its zeros: of numbers that cancel, -0 where the rounding is down."""
    cancels = (p + c == 0) & (np.signbit(p) != np.signbit(c))
    return np.where(cancels, -np.abs(total), total) if way == _DOWN else total


def fma(a: Any, b: Any, c: Any, way: int) -> Any:
    """Return ``a * b + c`` with one rounding; the type is that of ``a``."""
    dtype = np.asarray(a).dtype.type
    if dtype is np.float64:
        return _add_zeros(a * b, c, _in_double(a, b, c, way), way)
    p, z, s = product_sum(a, b, c)
    return _add_zeros(p, z, round_to(to_odd(p, z, s), dtype, way), way)


def multiply(a: Any, b: Any, way: int) -> Any:
    """Return ``a * b`` with one rounding."""
    dtype = np.asarray(a).dtype.type
    if dtype is np.float64:
        return _in_double(a, b, None, way)
    return round_to(np.multiply(a, b, dtype=np.float64), dtype, way)


def add(a: Any, b: Any, way: int) -> Any:
    """Return ``a + b`` with one rounding."""
    return fma(a, np.asarray(a).dtype.type(1), b, way)


_ROUNDED: dict[str, Callable[..., Any]] = {
    "add": add,
    "sub": lambda a, b, way: add(a, -b, way),
    "subrev": lambda a, b, way: add(b, -a, way),
    "mul": multiply,
    **dict.fromkeys(("fma", "fmac", "fmamk", "fmaak"), fma),
}
_ARITHMETIC = re.compile(r"v_(?:pk_)?(add|sub|subrev|mul|fma|fmac|fmamk|fmaak)_f(16|32|64)")
_CONVERSION = re.compile(r"v_cvt_f(32|16)_(i32|u32|f64|f32|u16|i16)")
# A float's name, but its result is exact, chosen among the sources, or rounded in the way that the name says.
_ANY_WAY = re.compile(
    r"v_(?:pk_)?(min|max|min3|max3|med3|trunc|ceil|floor|rndne|frexp_mant|frexp_exp_i\d+|div_fixup|cmpx?_\w+)_f\d+"
    r"|v_cvt_([iu]\d+|rpi_i32|flr_i32|f64|pkrtz_f16)_\w+|v_cvt_(pk_)?f32_(f16|ubyte\d|fp8|bf8)|v_pack_b32_f16"
    r"|(ds|global|flat|buffer)_atomic_(min|max)_f64|ds_(min|max)(_rtn)?_f\d+"
)
_FLOAT = re.compile(r"_(pk_)?(f|bf|xf)(8|16|32|64)\b|_fp8\b|_f(16|32|64)_|mix(lo|hi)?_f|pknorm")
ANY_ROUNDING = 15


def _convert(dtype: Any, x: Any, way: int) -> Any:
    return round_to(x, dtype, way)


def rounded(base: str, nearest: Callable[..., Any]) -> Callable[[Wave], Callable[..., Any]] | None:
    """Return what gives for a wave the operation as its MODE rounds it; None where ``base`` has only one rounding.

    ``nearest`` is the operation rounded to nearest, which is faster.
    """
    if m := _ARITHMETIC.fullmatch(base):
        f: Callable[..., Any] = _ROUNDED[m[1]]
        shift = 0 if m[2] == "32" else 2
    elif m := _CONVERSION.fullmatch(base):
        dtype = np.float32 if m[1] == "32" else np.float16
        f = partial(_convert, dtype)
        shift = 0 if m[1] == "32" and m[2] != "f64" else 2
    else:
        return None
    ways = [nearest, *((lambda *x, way=way: f(*x, way)) for way in (_UP, _DOWN, _ZERO))]
    return lambda w: ways[w.mode >> shift & 3]


def obeys(base: str) -> bool:
    """Return whether an instruction is right in every rounding: it has all of them, or none matters to it.

    >>> obeys("v_add_f32"), obeys("v_max_f32"), obeys("v_exp_f32"), obeys("v_mfma_f32_32x32x8_f16")
    (True, True, False, False)
    """
    known = _ARITHMETIC.fullmatch(base) or _CONVERSION.fullmatch(base) or _ANY_WAY.fullmatch(base)
    return bool(known) or not _FLOAT.search(base)


def to_nearest_only(base: str, run: Run) -> Run:
    """Return ``run``, refused for a wave whose MODE asks for another rounding than to nearest.

    Raises:
        RunError: when it runs, with the name of the instruction and of the rounding.
    """

    def checked(w: Wave) -> None:
        if ways := w.mode & ANY_ROUNDING:
            asked = " and ".join(f"{WAYS[ways >> s & 3]} for {t}" for s, t in ((0, "f32"), (2, "f16 and f64")))
            raise RunError(f"MODE rounds {asked}, and {base} is modelled to nearest even only", rule="unknown")
        run(w)

    return checked
