# SPDX-License-Identifier: MIT
"""From a function's raw lines to basic blocks, loops and instructions that know how deep they lie.

Loops are found from the control-flow graph alone, not from comments or names of labels.
Source: P. Havlak, "Nesting of Reducible and Irreducible Loops", ACM TOPLAS 19(4), 1997,
https://doi.org/10.1145/262004.262005. On the reducible graphs that compilers emit, its loops are the natural loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cdna.isa.mnemonics import meaning
from cdna.isa.text import Function, Raw

__all__ = ["Instruction", "Loop"]


def _depth_first(successors: Sequence[Sequence[int]]) -> tuple[list[int], list[int], list[int]]:
    """Visit every block once: order of visit, each block's number in it, and the largest number below each block."""
    n = len(successors)
    order: list[int] = []
    number, last = [-1] * n, [-1] * n
    # Blocks that no edge reaches (targets of indirect jumps, padding) start a tree of their own.
    for root in range(n):
        if number[root] >= 0:
            continue
        number[root] = len(order)
        order.append(root)
        stack = [(root, iter(successors[root]))]
        while stack:
            block, edges = stack[-1]
            for target in edges:
                if number[target] < 0:
                    number[target] = len(order)
                    order.append(target)
                    stack.append((target, iter(successors[target])))
                    break
            else:
                last[block] = len(order) - 1
                stack.pop()
    return order, number, last


def loop_headers(successors: Sequence[Sequence[int]]) -> tuple[list[int], set[int]]:
    """Return for each block the header of the innermost loop around it (-1: none), and the set of all loop headers.

    ``successors[b]`` lists the blocks that may run after block ``b``; block 0 is the entry. A header's own entry names
    the header of the loop outside it. Time grows linearly with blocks and edges on reducible graphs.

    >>> # 0 -> 1 -> 2 -> 2 (inner), 2 -> 1 (outer), 1 -> 3
    >>> loop_headers([[1], [2, 3], [2, 1], []])
    ([-1, -1, 1, -1], {1, 2})
    """
    order, number, last = _depth_first(successors)
    n = len(order)
    # From here on a block is its number in the visit, so that "is an ancestor of" is two comparisons.
    end = [last[block] for block in order]
    back: list[list[int]] = [[] for _ in range(n)]
    other: list[list[int]] = [[] for _ in range(n)]
    for block, targets in enumerate(successors):
        v = number[block]
        for target in targets:
            w = number[target]
            (back if w <= v <= end[w] else other)[w].append(v)
    parent = list(range(n))
    header = [-1] * n
    headers: set[int] = set()

    def find(x: int) -> int:
        while parent[x] != x:
            parent[x] = parent[parent[x]]
            x = parent[x]
        return x

    for w in range(n - 1, -1, -1):
        if not back[w]:
            continue
        headers.add(w)
        body = {find(v) for v in back[w] if v != w}
        body.discard(w)
        work = list(body)
        while work:
            for y in other[work.pop()]:
                y = find(y)
                if not w <= y <= end[w]:
                    other[w].append(y)  # a second entry: the loop is irreducible, its header is the first one visited
                elif y != w and y not in body:
                    body.add(y)
                    work.append(y)
        for x in body:
            header[x] = w
            parent[x] = w
    result = [-1] * n
    for v, w in enumerate(header):
        result[order[v]] = order[w] if w >= 0 else -1
    return result, {order[w] for w in headers}


def loop_nesting(successors: Sequence[Sequence[int]]) -> list[int]:
    """Return how many loops each block lies in; a loop's header lies in it.

    >>> loop_nesting([[1], [2, 3], [2, 1], []])
    [0, 1, 2, 0]
    """
    header, headers = loop_headers(successors)
    depth: list[int] = [-1] * len(header)
    for start in range(len(header)):
        chain = []
        block = start
        while block >= 0 and depth[block] < 0:
            chain.append(block)
            block = header[block]
        # Walk back from the outside in: a header adds one level for itself and for all that it heads.
        for inner in reversed(chain):
            outer = header[inner]
            depth[inner] = (depth[outer] if outer >= 0 else 0) + (inner in headers)
    return depth


class Instruction(NamedTuple):
    """One instruction: 1-based line of the text, mnemonic, operands, and what is known about it.

    ``kind`` is one of ``isa_ops.KINDS``; ``access`` is load, store, atomic or empty; ``bits`` is what a memory access
    moves per lane (per wave for smem), in ``pieces`` from separate addresses; ``depth`` counts the loops around it;
    ``source`` is ``file.py:line:column`` in the user's own file, empty without debug lines; ``spill`` marks LLVM's
    register spills and reloads.
    """

    line: int
    op: str
    args: str
    kind: str
    access: str
    bits: int
    depth: int
    source: str
    spill: bool
    pieces: int = 1

    @property
    def width(self) -> int:
        """Bits per lane of one access: 64 for ``ds_read2st64_b64``, which makes two."""
        return self.bits // self.pieces


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop: lines of its first and last instruction in the text, nesting depth from 1, instructions in it."""

    label: str
    first_line: int
    last_line: int
    depth: int
    instructions: int
    source: str


def _blocks(function: Function) -> tuple[list[int], list[list[int]], dict[int, str]]:
    """Return the basic blocks: index of each block's first instruction, successors of each block, labels by block
    start.
    """
    body = function.body
    by_address = {raw.address: i for i, raw in enumerate(body) if raw.address >= 0}

    def resolve(raw: Raw) -> int | None:
        if (found := function.labels.get(raw.target)) is not None:
            return found
        # A disassembly gives the distance in words from the next instruction, as an unsigned 16-bit number.
        if raw.address >= 0 and raw.target.isascii() and raw.target.isdigit() and len(raw.target) < 6:
            distance = int(raw.target) & 0xFFFF
            return by_address.get(raw.address + 4 + 4 * (distance - 0x10000 if distance >= 0x8000 else distance))
        return None

    targets: dict[int, int | None] = {i: resolve(raw) for i, raw in enumerate(body) if raw.target}
    leaders = {0} | {t for t in targets.values() if t is not None} | set(function.labels.values())
    ends = ("s_branch", "s_cbranch", "s_setpc", "s_endpgm")
    leaders |= {i + 1 for i, raw in enumerate(body) if raw.op.startswith(ends)}
    starts = sorted(i for i in leaders if i < len(body))
    number = {start: b for b, start in enumerate(starts)}
    successors: list[list[int]] = []
    for b in range(len(starts)):
        last = (starts[b + 1] if b + 1 < len(starts) else len(body)) - 1
        raw, out = body[last], []
        if (target := targets.get(last)) is not None and target in number:
            out.append(number[target])
        if not raw.op.startswith(("s_branch", "s_setpc", "s_endpgm")) and b + 1 < len(starts):
            out.append(b + 1)
        successors.append(out)
    return starts, successors, {i: name for name, i in function.labels.items()}


def build_body(function: Function) -> tuple[tuple[Instruction, ...], tuple[Loop, ...]]:
    """Return the instructions with their loop depth, and the loops, of one function.

    Args:
        function: as :func:`~cdna.isa.text.scan_text` finds it.

    >>> from cdna.isa.text import scan_text
    >>> text = "f:\\nL1:\\n s_sub_i32 s0, s0, 1\\n s_cbranch_scc1 L1\\n s_endpgm\\n"
    >>> body, loops = build_body(scan_text(text).functions[0])
    >>> [i.depth for i in body], loops[0].first_line, loops[0].last_line
    ([1, 1, 0], 3, 4)
    """
    starts, successors, names = _blocks(function)
    depth = loop_nesting(successors)
    header, headers = loop_headers(successors)
    body = function.body
    ends = [*starts[1:], len(body)]
    instructions: list[Instruction] = []
    reached = {0}.union(*successors)
    for b, start in enumerate(starts):
        block = body[start : ends[b]]
        if b not in reached and all(raw.op == "s_nop" for raw in block):
            continue  # padding between two entry points, which a disassembly shows as instructions
        for raw in block:
            kind, access, bits, pieces = meaning(raw.op) or ("other", "", 0, 1)
            instructions.append(
                Instruction(raw.line, raw.op, raw.args, kind, access, bits, depth[b], raw.source, raw.spill, pieces)
            )
    # First line, last line and size of each loop, summed up from the inside out so that deep nesting stays linear.
    spans: dict[int, list[int]] = {h: [len(body), 0, 0] for h in headers}

    def widen(h: int, first: int, last: int, size: int) -> None:
        span = spans[h]
        span[0], span[1], span[2] = min(span[0], first), max(span[1], last), span[2] + size

    for b, start in enumerate(starts):
        h = b if b in headers else header[b]
        if h >= 0:
            widen(h, start, ends[b] - 1, ends[b] - start)
    for h in sorted(headers, key=lambda h: -depth[h]):
        if header[h] >= 0:
            widen(header[h], *spans[h])
    loops = []
    for h in sorted(headers):
        first, last, size = spans[h]
        source = body[starts[h]].source
        loops.append(Loop(names.get(starts[h], ""), body[first].line, body[last].line, depth[h], size, source))
    return tuple(instructions), tuple(loops)
