# SPDX-License-Identifier: MIT
"""Triton's GPU code (TTGIR) line by line: what each operation moves, in which layout, and which line it came from.

Introduced by notebook 16.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

from cdna.compile import Compiled
from cdna.explain.loop_listing import place_of, source_lines
from cdna.ir.program import Program, parse_ir
from cdna.ir.values import Operation

__all__ = ["IrListing", "explain_ir"]

_WORDS = {
    "tt.dot": "multiplies on the matrix cores",
    "tt.trans": "a new name for the same registers",
    "tt.reduce": "reduces along an axis",
    "tt.reshape": "another shape",
    "ttg.local_alloc": "takes room in LDS",
    "ttg.memdesc_index": "one of the LDS buffers",
    "ttg.memdesc_subview": "one of the LDS buffers",
    "ttg.memdesc_trans": "the same LDS, read the other way round",
    "gpu.barrier": "waits for the other waves",
    "ttg.barrier": "waits for the other waves",
    "ttg.local_barrier": "waits for the other waves",
    "rocdl.s.setprio": "priority of this wave (ping-pong)",
    "amdg.cond_barrier": "holds half of the waves back (ping-pong)",
    "rocdl.sched.barrier": "the scheduler moves nothing across",
    "scf.for": "the loop",
    "scf.yield": "values for the next turn",
}


@dataclass(frozen=True)
class IrLine:
    """One operation: its line in the dump, itself, what it does, what its result looks like, and the user's code."""

    line: int
    operation: str
    what: str
    shape: str
    layout: str
    source: str
    code: str


@dataclass(frozen=True)
class IrListing:
    """A function, explained: printed as text, shown as a table in a notebook."""

    name: str
    lines: tuple[IrLine, ...]

    def __str__(self) -> str:
        rows = [f"{self.name}: {len(self.lines)} operations on tensors"]
        for x in self.lines:
            rows.append(f"{x.line:>4} {x.operation:<24.24} {x.shape:<15.15} {x.what}")
            if x.layout:
                rows.append(f"{'':>45} {x.layout}")
        return "\n".join(rows)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return a table, one row for each operation."""
        head = "".join(f"<th>{h}</th>" for h in ("line", "operation", "shape", "what it does", "layout", "your code"))
        rows = []
        for x in self.lines:
            cells = (str(x.line), x.operation, x.shape, x.what, x.layout, x.code)
            rows.append("".join(f'<td style="text-align:left;padding:0 6px">{html.escape(c)}</td>' for c in cells))
        body = "".join(f"<tr>{r}</tr>" for r in rows)
        title = html.escape(str(self).splitlines()[0])
        return f'<b>{title}</b><table style="font-size:80%"><tr>{head}</tr>{body}</table>'


def _words(op: Operation, program: Program) -> str:
    move = program.move(op)
    words = _WORDS.get(op.name, "")
    if op.name == "ttg.local_alloc" and op.operands:
        words = "writes to LDS"
    return f"{words}: {move}" if words and move else words or move


def explain_ir(compiled: Compiled | str, function: Any = None, *, loop_only: bool = False) -> IrListing:
    """Explain the operations of a TTGIR text that move data, change layouts or use the matrix cores.

    Address arithmetic is left out.

    Args:
        compiled: from ``compile_kernel``, or the text.
        function: the Triton kernel, so that its lines can be shown.
        loop_only: leave out what stands before and after the loops.

    Raises:
        IrError: no function in the text.
    """
    program = parse_ir(compiled if isinstance(compiled, str) else compiled.ttgir)[0]
    code = source_lines(function)
    found = []
    for op in program.operations:
        words = _words(op, program)
        if not words or (loop_only and not op.depth):
            continue
        name = op.results[0] if op.results else op.stored
        value = program.values.get(name) if name else None
        shape = f"{'x'.join(map(str, value.type.shape))} {value.type.element}" if value and value.type.shape else ""
        layout = value.layout.describe() if value and value.layout and value.layout.kind != "unknown" else ""
        found.append(IrLine(op.line, op.name, words, shape, layout, op.source, code.get(place_of(op.source)[1], "")))
    return IrListing(program.name, tuple(found))
