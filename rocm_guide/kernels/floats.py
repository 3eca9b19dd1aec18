# SPDX-License-Identifier: MIT
"""A float that writes down what is asked and computed of it, so that both can be done again with another float."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from typing import Any

__all__ = []

COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
COMPUTE = {"add": "+", "sub": "-", "mul": "*", "truediv": "/"}


class Number:
    """Stands for a float argument while a call is recorded, and for what is computed of it: an expression.

    The answers to comparisons are added to ``asked``, and the number itself where somebody wants that. Whatever else
    is done to it raises TypeError.
    """

    __slots__ = ("asked", "text", "value")
    __class__ = property(lambda self: float)  # for isinstance; type() says the truth

    def __init__(self, text: str, value: float, asked: list[str]) -> None:
        self.text, self.value, self.asked = text, value, asked

    def __float__(self) -> float:
        self.asked.append(f"{self.text} == {self.value!r}")
        return self.value

    def __bool__(self) -> bool:
        return bool(float(self))

    def __repr__(self) -> str:
        return repr(self.value)

    def __abs__(self) -> Number:
        return Number(f"abs({self.text})", abs(self.value), self.asked)


def _operation(name: str, symbol: str, turned: bool) -> Callable[[Number, Any], Any]:
    compute = getattr(operator, name)

    def method(self: Number, other: Any) -> Any:
        if type(other) not in (int, float, Number):
            return NotImplemented
        pair = [(self.value, self.text), (other.value, other.text) if type(other) is Number else (other, repr(other))]
        (a, a_text), (b, b_text) = reversed(pair) if turned else pair
        value, text = compute(a, b), f"({a_text} {symbol} {b_text})"
        if name in COMPUTE:
            return Number(text, value, self.asked)
        self.asked.append(f"{text} is {value}")
        return value

    return method


for _name, _symbol in (COMPARE | COMPUTE).items():
    setattr(Number, f"__{_name}__", _operation(_name, _symbol, turned=False))
    if _name in COMPUTE:
        setattr(Number, f"__r{_name}__", _operation(_name, _symbol, turned=True))


def of_floats(count: int, texts: Iterable[str], asked: Iterable[str]) -> Callable[..., Any]:
    """Return a function of ``count`` floats f0, f1, …: the values of ``texts``, or None if an answer is another now.

    >>> asked = []
    >>> scale = Number("f0", 0.5, asked)
    >>> inverse = 1.0 / scale if scale > 0 else scale
    >>> again = of_floats(1, [inverse.text], asked)
    >>> again(0.25), again(-1.0)
    ((4.0,), None)
    """
    names = ", ".join(f"f{i}" for i in range(count))
    told = " and ".join(dict.fromkeys(asked)) or "True"
    source = f"lambda {names}: ({''.join(f'{text}, ' for text in texts)}) if {told} else None"
    found: Callable[..., Any] = eval(source, {"inf": math.inf, "nan": math.nan})
    return found
