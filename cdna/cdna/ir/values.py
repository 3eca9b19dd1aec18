# SPDX-License-Identifier: MIT
"""Operations, values and the result types that a dump leaves out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cdna.ir.layouts import Layout
from cdna.ir.text import Header, RawOp, TensorType

__all__ = ["Operation"]


@dataclass(frozen=True, slots=True)
class Value:
    """A value: its name (made unique when a dump reuses one), type, layout, and where it lives.

    ``memory`` is registers, LDS, pointer or scalar; ``source`` is ``file.py:line:column``.
    """

    name: str
    type: TensorType
    layout: Layout | None
    memory: str
    line: int
    source: str


@dataclass(slots=True, eq=False)
class Operation:
    """One operation: 1-based line in the dump, name in the current spelling, values in and out, loops around it.

    ``stored`` is the data operand of a store; ``text`` the line as written, without its location.
    """

    line: int
    name: str
    results: tuple[str, ...]
    operands: tuple[str, ...]
    depth: int
    source: str
    text: str
    stored: str = ""


@dataclass(slots=True)
class Draft:
    """A function while it is read."""

    name: str
    stage: str
    header: Header
    layouts: dict[str, Layout]
    operations: list[Operation] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    edges: dict[str, dict[str, None]] = field(default_factory=dict)

    def link(self, source: str, target: str) -> None:
        self.edges.setdefault(source, {})[target] = None

    def frozen_edges(self) -> dict[str, tuple[str, ...]]:
        """Return the edges as tuples."""
        return {name: tuple(targets) for name, targets in self.edges.items()}


@dataclass(slots=True)
class Region:
    """An open brace: the operation that opened it, names defined inside, and the loop's arguments."""

    operation: Operation | None
    names: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    raw: RawOp | None = None


def result_types(raw: RawOp, count: int, type_of: Callable[[str], TensorType]) -> list[TensorType]:
    """Return types of an operation's results, also where MLIR's short form prints only those of the operands.

    >>> from cdna.ir.text import parse_op, parse_type
    >>> raw = parse_op("%c = arith.cmpi slt, %a, %b : tensor<4xi32, #b>")
    >>> result_types(raw, 1, parse_type)[0].element
    'i1'
    """
    if raw.out_types:
        types = [type_of(t) for t in raw.out_types]
    elif raw.in_types:
        kind = type_of(raw.in_types[-1] if raw.name == "arith.select" else raw.in_types[0])
        if raw.name in ("tt.load", "tt.atomic_rmw", "tt.atomic_cas") and "!tt.ptr<" in kind.element:
            kind = kind._replace(element=kind.element.partition("!tt.ptr<")[2].split(",")[0].rstrip("> "))
        elif raw.name == "tt.load" and kind.kind == "ptr":
            kind = TensorType("scalar", (), kind.element.partition("<")[2].split(",")[0].rstrip("> "), "")
        elif raw.name in ("arith.cmpi", "arith.cmpf"):
            kind = kind._replace(element="i1")
        types = [kind]
    else:
        types = []
    types += [types[-1] if types else TensorType("scalar", (), "", "")] * (count - len(types))
    return types[:count]
