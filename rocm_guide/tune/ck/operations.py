# SPDX-License-Identifier: MIT
"""Elementwise operations that an instance can be given: their C++, the scalars they carry, and what they compute.

``PassThrough`` is CK's own; the others are structs that one writes beside the instance, as AMD's documents do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from string import Template
from types import MappingProxyType
from typing import Any

import numpy as np

from rocm_guide.tune.ck.instance import CkError

__all__ = ["OPERATIONS", "Operation", "operation"]


@dataclass(frozen=True)
class Operation:
    """``E = operation(C, D0, …)`` for each element.

    Attributes:
        ds: how many D matrices it takes.
        scalars: names of the floats that are set at launch.
        code: the C++ struct, with ``$name``, and ``$E``, ``$C`` and ``$D`` for the types; empty for one of CK's own.
        compute: the same on numpy arrays of any shape: C, then each D as they are stored, then the scalars.
        types: types of C and of D that the struct is written for; empty for any.
    """

    ds: int
    compute: Callable[..., Any]
    code: str = ""
    scalars: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


_ADD = """struct $name
{
    __host__ __device__ constexpr void operator()($E& e, const $C& c, const $D& d) const
    {
        const $C x = c + d;
        e = $result;
    }
};
"""

_SCALED = """struct $name
{
    __host__ __device__ ${how}void operator()($E& e, const $C& c, const $D& d) const
    {
        float x = ck::type_convert<float>(c) * alpha + ck::type_convert<float>(d) * beta;
${relu}        x = x > 127 ? 127 : x;
        x = x < -128 ? -128 : x;
        e = ck::type_convert<$E>($round);
    }

    float alpha = 1;
    float beta  = 1;
};
"""
_RELU = "        x = x > 0 ? x : 0;\n"


def _template(text: str, **parts: str) -> str:
    return Template(text).safe_substitute(parts)


def _scaled(*, relu: bool, rounded: bool) -> Operation:
    def compute(c: Any, d: Any, alpha: float, beta: float) -> Any:
        # clang fuses the first product with the sum: one rounding (of a sum that float64 holds) where numpy has two.
        product = c.astype(np.float64) * np.float64(np.float32(alpha))
        x = (product + d.astype(np.float32) * np.float32(beta)).astype(np.float32)
        x = np.clip(np.maximum(x, 0) if relu else x, -128, 127)
        return (np.rint(x) if rounded else np.trunc(x)).astype(np.int8)

    how, to_nearest = ("", "__builtin_rintf(x)") if rounded else ("constexpr ", "x")
    code = _template(_SCALED, how=how, relu=_RELU if relu else "", round=to_nearest)
    return Operation(1, compute, code, ("alpha", "beta"), ("I32", "I8"))


#: name -> operation. ``ScaleScaleAddRelu`` truncates, as AMD's does; ``…Round`` rounds to the nearest number.
OPERATIONS: Mapping[str, Operation] = MappingProxyType(
    {
        "PassThrough": Operation(0, lambda c: c),
        "Add": Operation(1, lambda c, d: c + d, _template(_ADD, result="x")),
        "AddRelu": Operation(1, lambda c, d: np.maximum(c + d, 0), _template(_ADD, result="x > 0 ? x : 0")),
        "ScaleScaleAdd": _scaled(relu=False, rounded=False),
        "ScaleScaleAddRelu": _scaled(relu=True, rounded=False),
        "ScaleScaleAddReluRound": _scaled(relu=True, rounded=True),
    }
)


def operation(name: str) -> Operation:
    """Return the operation of that name.

    Raises:
        CkError: there is none.

    >>> operation("ScaleScaleAddRelu").scalars
    ('alpha', 'beta')
    """
    if name not in OPERATIONS:
        raise CkError(f"CDEElementwiseOperation={name!r}: known here are {', '.join(OPERATIONS)}")
    return OPERATIONS[name]
