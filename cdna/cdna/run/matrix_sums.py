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

from cdna.run.arithmetic import fma32, fma64

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
