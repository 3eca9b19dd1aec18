# SPDX-License-Identifier: MIT
"""A loop's machine code, line by line, with the user's lines that it came from.

Of each instruction: what it is, which wait it needs, whose data.
Source of the words: "AMD Instinct MI300 Instruction Set Architecture", AMD.
"""

from __future__ import annotations

import html
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cdna.compile import Compiled
from cdna.costs import mfma_cycles, valu_cycles
from cdna.ir.program import Program, parse_ir
from cdna.isa.body import Instruction, Loop
from cdna.isa.kernel import IsaError, Kernel
from cdna.isa.mnemonics import matrix_shape, wait_counts

__all__ = ["Listing", "explain_loop"]

_COLOURS = {
    "mfma": "#0072B2",
    "lds": "#009E73",
    "permute": "#009E73",
    "global": "#D55E00",
    "waitcnt": "#CC79A7",
    "barrier": "#CC79A7",
    "valu": "#444444",
    "salu": "#6B6B6B",
    "branch": "#6B6B6B",
}
_VECTOR = (
    (r"v_exp_", "2 to the power of, for each lane"),
    (r"v_(rcp|rsq|sqrt|log|sin|cos)_", "transcendental function"),
    (r"v_cvt_", "convert the type"),
    (r"v_(bfe|bfi|perm|alignb|and|or|xor|lshl|lshr|ashr|not)", "move bits and bytes"),
    (r"v_pk_", "two numbers of 16 or 32 bits at once"),
    (r"v_cmpx?_", "compare: a mask with a bit for each lane"),
    (r"v_cndmask", "choose by a mask"),
    (r"v_(accvgpr|mov|swap|readlane|readfirstlane|writelane)", "copy a register"),
    (r"v_(fma|fmac|mul|add|sub|max|max3|min|dot\w*|ldexp|mad)_.*(f16|f32|f64|bf16)", "arithmetic in floating point"),
    (r"v_", "arithmetic on whole numbers (addresses)"),
)


@dataclass(frozen=True)
class Line:
    """One instruction of a listing.

    Attributes:
        line, text: where it stands in the assembly, and itself.
        kind: which unit executes it, one of :data:`cdna.isa.mnemonics.KINDS`.
        what: what it does, in words.
        wait: for a load, the line whose wait makes its data usable; for a wait, the lines that it waits for.
        tensor: the kernel's argument that the data belong to, if one can be told.
        source, code: place in the user's file, and the text of that line.
    """

    line: int
    text: str
    kind: str
    what: str
    wait: str
    tensor: str
    source: str
    code: str


@dataclass(frozen=True)
class Listing:
    """A loop, explained: printed as text, shown as a table in a notebook."""

    name: str
    lines: tuple[Line, ...]

    def __str__(self) -> str:
        rows = [f"{self.name}: {len(self.lines)} instructions in the loop"]
        last = ""
        for x in self.lines:
            if x.code and x.code != last:
                rows.append(f"      # {x.code}")
                last = x.code
            note = "; ".join(t for t in (x.what + (f" ({x.tensor})" if x.tensor else ""), x.wait) if t)
            rows.append(f"{x.line:>5} {x.text:<58.58} | {note}")
        return "\n".join(rows)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return a table: the line, what it is, its wait, and the user's code."""
        rows, last = [], ""
        for x in self.lines:
            colour = _COLOURS.get(x.kind, "#6B6B6B")
            code = x.code if x.code != last else ""
            last = x.code
            cells = (str(x.line), x.text, x.what + (f" ({x.tensor})" if x.tensor else ""), x.wait, code)
            styles = (
                "color:#999",
                f"color:{colour};font-family:monospace;white-space:pre",
                "",
                "",
                "color:#666;font-family:monospace",
            )
            row = (
                f'<td style="text-align:left;padding:0 6px;{s}">{html.escape(c)}</td>'
                for s, c in zip(styles, cells, strict=True)
            )
            rows.append(f"<tr>{''.join(row)}</tr>")
        head = "".join(f"<th>{h}</th>" for h in ("line", "instruction", "what it does", "wait", "your code"))
        return f'<b>{html.escape(str(self).splitlines()[0])}</b><table style="font-size:80%"><tr>{head}</tr>' + (
            "".join(rows) + "</table>"
        )


def source_lines(function: Any) -> dict[int, str]:
    """Return the lines of a kernel's source by their number in its file, without the spaces around them.

    >>> source_lines(None)
    {}
    """
    function = getattr(function, "fn", function)
    if function is None:
        return {}
    lines, first = inspect.getsourcelines(function)
    return {first + i: text.strip() for i, text in enumerate(lines)}


def place_of(source: str) -> tuple[str, int]:
    """Return the file and line of ``file.py:line:column``; line 0 if there is none.

    >>> place_of("a.py:12:5"), place_of("")
    (('a.py', 12), ('', 0))
    """
    m = re.match(r"(.*?):(\d{1,9})(?::\d{1,9})?$", source)
    return (m[1], int(m[2])) if m else ("", 0)


def tensors_of(program: Program) -> dict[str, str]:
    """Return, for places in the user's file, the pointer argument that the data come from or go to, where it
    is only one.
    """
    back: dict[str, list[str]] = {}
    for name, targets in program.edges.items():
        for target in targets:
            back.setdefault(target, []).append(name)
    arguments = {n for n, v in program.values.items() if v.type.kind == "ptr" and n not in back}
    found: dict[str, set[str]] = {}
    for op in program.operations:
        if not program.move(op) or not op.source:
            continue
        starts = [o for o in op.operands if o != op.stored]
        if op.name in ("ttg.local_alloc", "ttg.local_store"):
            starts = list(op.operands)
        seen, queue = set(starts), list(starts)
        for name in queue:
            fresh = [n for n in back.get(name, ()) if n not in seen]
            seen.update(fresh)
            queue.extend(fresh)
        if names := seen & arguments:
            found.setdefault(op.source, set()).update(n.lstrip("%") for n in names)
    return {source: next(iter(names)) for source, names in found.items() if len(names) == 1}


def _what(i: Instruction, loop: Loop) -> str:
    """Describe an instruction in words."""
    width = f"{i.pieces} x {i.width}" if i.pieces > 1 else f"{i.bits}"
    if i.kind in ("global", "scratch", "lds") and i.access:
        where = {"global": "global memory", "scratch": "scratch: a spilled register", "lds": "LDS"}[i.kind]
        verb = {"load": "reads", "store": "writes", "atomic": "updates"}[i.access]
        return f"{verb} {width} bits a lane, {where}"
    if i.kind == "mfma" and (shape := matrix_shape(i.op)):
        return f"matrix core: {shape.name}, {mfma_cycles(i.op)} cycles"
    if i.kind == "valu":
        text = next(what for pattern, what in _VECTOR if re.match(pattern, i.op))
        return text + (", quarter rate: 16 cycles" if valu_cycles(i.op) > 4 else "")
    if i.op.startswith("s_setprio"):
        return "first when several waves could issue (ping-pong)" if i.args.strip() != "0" else "ordinary priority"
    fixed = {"permute": "lanes exchange registers", "smem": "scalar load", "salu": "once for the whole wave"}
    if i.kind == "branch":
        return "back to the loop's beginning" if i.line == loop.last_line else "jump"
    if i.kind == "barrier":
        return "waits for the other waves of the workgroup"
    if i.op.startswith("s_nop"):
        return "a pause that the hardware asks for"
    return fixed.get(i.kind, "")


def _pair(body: Sequence[Instruction]) -> tuple[dict[int, int], dict[int, list[int]]]:
    """Find which wait ends each memory operation, and which operations each wait ends, in the loop's steady state."""
    queues: dict[str, list[int]] = {"vmcnt": [], "lgkmcnt": []}
    ended_by: dict[int, int] = {}
    ends: dict[int, list[int]] = {}
    for _ in range(2):  # the second turn finds what the first has left under way
        ends = {}
        for i in body:
            if i.kind in ("global", "scratch") and i.access:
                queues["vmcnt"].append(i.line)
            elif i.kind in ("lds", "permute", "smem"):
                queues["lgkmcnt"].append(i.line)
            elif i.kind == "waitcnt":
                for name, left in wait_counts(i.args).items():
                    queue = queues.get(name, [])
                    gone = queue[: max(0, len(queue) - left)]
                    del queue[: len(gone)]
                    ends.setdefault(i.line, []).extend(gone)
                    ended_by.update(dict.fromkeys(gone, i.line))
    return ended_by, ends


def _ranges(lines: Sequence[int]) -> str:
    """Return line numbers in few words: at most four, then how many more."""
    shown = ", ".join(map(str, lines[:4]))
    return shown + (f" and {len(lines) - 4} more" if len(lines) > 4 else "")


def explain_loop(
    compiled: Compiled | Kernel, function: Any = None, *, loop: Loop | None = None, program: Program | None = None
) -> Listing:
    """Explain a loop of a kernel, the innermost one with most instructions by default.

    Args:
        compiled: from ``compile_kernel``, or a parsed kernel.
        function: the Triton kernel, so that its lines can be shown.
        loop: one of ``kernel.loops``.
        program: the TTGIR, from which tensors get their names; a ``Compiled`` has its own.

    Raises:
        IsaError: the kernel has no loop.
    """
    kernel = compiled if isinstance(compiled, Kernel) else compiled.parsed
    if program is None and isinstance(compiled, Compiled):
        program = parse_ir(compiled.ttgir)[0]
    if loop is None:
        if not kernel.loops:
            raise IsaError(f"{kernel.name} has no loop: what it does is all in one piece; print its assembly")
        loop = max(kernel.loops, key=lambda x: (x.depth, x.instructions))
    body = [i for i in kernel.instructions if loop.first_line <= i.line <= loop.last_line]
    code: Mapping[int, str] = source_lines(function)
    tensors = tensors_of(program) if program is not None else {}
    ended_by, ends = _pair(body)
    found = []
    for i in body:
        wait = ""
        if i.kind == "waitcnt":
            gone = ends.get(i.line, [])
            wait = f"for lines {_ranges(gone)}" if gone else "nothing of this loop is under way"
        elif i.line in ended_by and (i.access != "store" or i.kind == "lds"):
            later = " of the next turn" if ended_by[i.line] < i.line else ""
            wait = f"done after the wait in line {ended_by[i.line]}{later}"
        tensor = tensors.get(i.source, "") if i.kind in ("global", "lds") else ""
        text = f"{i.op} {i.args}".strip()
        what = "waits" if i.kind == "waitcnt" else _what(i, loop)
        found.append(Line(i.line, text, i.kind, what, wait, tensor, i.source, code.get(place_of(i.source)[1], "")))
    return Listing(kernel.name, tuple(found))
