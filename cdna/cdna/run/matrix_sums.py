# SPDX-License-Identifier: MIT
"""How the matrix unit of an MI300X adds up: the order of a sum, and the bits that it drops on the way.

Float32 and float64 are a chain of fused multiply-adds along k. The shorter types are added in groups: the products of a
group are cut off 24 bits behind the largest exponent among them and summed, then this sum and the accumulator are
rounded *down*, 31 and 24 bits behind the larger exponent of the two, and their sum is rounded to float32, nearest even.
Eight-bit inputs have two such sums, of the even and of the odd k, which are brought together first.
AMD does not publish this. Source: P. Xie et al., "MMA-Sim: Bit-Accurate Reference Model of Tensor Cores and Matrix
Cores", 2025, https://arxiv.org/abs/2511.10909, found and compared bit by bit on an MI300X. It leaves the sparse
instructions out, and so does this file.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cdna.run.arithmetic import FLOAT8, f32_to_f8, fma32, fma64, to_xf32

__all__ = []

# input type -> (exponent of its smallest normal number, elements of a group)
_TYPES = {"f16": (-14, 8), "bf16": (-126, 8), "xf32": (-126, 4), "fp8": (-7, 16), "bf8": (-15, 16)}
_NONE = -4096  # the exponent of zero: smaller than any other
_KEPT, _KEPT_SUM = 24, 31


def _exponents(x: Any, smallest: int) -> Any:
    """Return the exponents of float64 values as their type has them: a subnormal number has the smallest."""
    return np.where(x == 0, _NONE, np.maximum(np.frexp(x)[1] - 1, smallest))


def _group(products: Any, exponents: Any) -> tuple[Any, Any]:
    """Return the sum of the last axis in units of ``2 ** (exponent - 24)``, and this exponent."""
    largest = exponents.max(-1)
    return np.trunc(np.ldexp(products, _KEPT - largest[..., None])).sum(-1), largest


def _fused(a: Any, b: Any, c: Any, exponents: Any, eight_bit: bool) -> Any:
    """Return float32 ``c + sum(a * b)`` of one group, ``a`` and ``b`` broadcast to ``[..., k]``."""
    products = a * b
    plain = products.sum(-1) + c
    if eight_bit:
        (even, e0), (odd, e1) = (_group(products[..., i::2], exponents[..., i::2]) for i in (0, 1))
        largest = np.maximum(e0, e1)
        total = np.floor(np.ldexp(even, e0 - largest)) + np.floor(np.ldexp(odd, e1 - largest))
    else:
        total, largest = _group(np.where(np.isfinite(products), products, 0), exponents)
    own = _exponents(c, -126)
    top = np.maximum(largest, own)
    total = np.floor(np.ldexp(total, largest - top + _KEPT_SUM - _KEPT))
    added = np.floor(np.ldexp(np.where(np.isfinite(c), c, 0), _KEPT - top))
    if eight_bit:
        added = np.where(own < top - 25, 0, added)
    result = np.ldexp(total + added * 2.0 ** (_KEPT_SUM - _KEPT), top - _KEPT_SUM)
    up, down = (products >= 2.0**128).any(-1), (products <= -(2.0**128)).any(-1)
    result = np.where(up & down, np.nan, np.where(up, np.inf, np.where(down, -np.inf, result)))
    return np.where(np.isfinite(plain), result, plain).astype(np.float32)


def hardware_product(a: Any, b: Any, c: Any, kinds: tuple[str, str]) -> Any:
    """Return ``c + a @ b`` as the matrix unit adds it up.

    Args:
        a, b: ``[..., m, k]`` and ``[..., n, k]``, float64 that hold values of their types.
        c: ``[..., m, n]``, float64 that hold values of the result's type: float32, or float64 for ``f64``.
        kinds: types of a and b: ``f32``, ``f64``, or one of 16 or 8 bits, or ``xf32``.

    >>> one = np.ones((1, 1))
    >>> hardware_product(one, one, np.float64([[-(2.0**-40)]]), ("f16", "f16")).item() == 1 - 2.0**-24
    True
    """
    a, b = a[..., :, None, :], b[..., None, :, :]
    if kinds[0] in ("f32", "f64"):
        for j in range(a.shape[-1]):
            c = fma64(a[..., j], b[..., j], c) if kinds[0] == "f64" else fma32(a[..., j], b[..., j], c)
        return c
    smallest, size = zip(*(_TYPES[kind] for kind in kinds), strict=True)
    exponents = _exponents(a, smallest[0]) + _exponents(b, smallest[1])
    for j in range(0, a.shape[-1], size[0]):
        part = slice(j, j + size[0])
        c = _fused(a[..., part], b[..., part], np.asarray(c, np.float64), exponents[..., part], size[0] == 16)
    return c


#: Input type -> what makes of float32 the values of this type, as float64.
_VALUES = {
    "f64": lambda x: x.astype(np.float64),
    "f32": lambda x: x.astype(np.float64),
    "xf32": lambda x: to_xf32(x).astype(np.float64),
    "bf16": lambda x: (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64),
    "f16": lambda x: x.astype(np.float16).astype(np.float64),
    "fp8": lambda x: FLOAT8["fp8"][f32_to_f8(x, "fp8")].astype(np.float64),
    "bf8": lambda x: FLOAT8["bf8"][f32_to_f8(x, "bf8")].astype(np.float64),
}


def agreement() -> list[tuple[str, int, float, float, float]]:
    """Return how far a sum that is rounded once lies from :func:`hardware_product`, over 4,096 normal sums a row.

    Returns rows for the instructions of 16 x 16: input type, k, share of equal results, largest distance in units of
    the last place, and that distance as a share of the sum of the terms' sizes, which no cancellation raises.
    """
    rows, rng = [], np.random.default_rng(0)
    for kind, k in {"f64": 4, "f32": 4, "xf32": 8, "bf16": 16, "f16": 16, "fp8": 32, "bf8": 32}.items():
        a, b = (_VALUES[kind](rng.standard_normal((16, 16, k)).astype(np.float32)) for _ in range(2))
        c = rng.standard_normal((16, 16, 16)).astype(np.float32).astype(np.float64)
        dtype = np.float64 if kind == "f64" else np.float32
        once = (a @ b.swapaxes(1, 2) + c).astype(dtype)
        hardware = hardware_product(a, b, c, (kind, kind)).astype(dtype)
        away = np.abs(once.astype(np.longdouble) - hardware)
        size = np.abs(a) @ np.abs(b).swapaxes(1, 2) + np.abs(c)
        ulps = away / np.spacing(np.maximum(np.abs(once), np.finfo(dtype).tiny))
        rows.append((kind, k, float((away == 0).mean()), float(ulps.max()), float((away / size).max())))
    return rows


if __name__ == "__main__":
    print("A product of 16 x 16 rounded once, against the sums of an MI300X as MMA-Sim has them:\n")
    print(f"{'input':<6}{'k':>4}{'equal':>9}{'ulp at most':>14}{'of the terms':>15}")
    for kind, k, equal, ulp, share in agreement():
        print(f"{kind:<6}{k:>4}{equal:>9.1%}{ulp:>14,.0f}{share:>15.1e}")
