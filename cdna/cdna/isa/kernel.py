# SPDX-License-Identifier: MIT
"""Read AMDGCN assembly: Triton's ``.amdgcn``, hipcc's or clang's ``.s``, and what ``llvm-objdump -d`` prints.

:func:`parse_asm` gives one :class:`Kernel` per entry point: its instructions with line, kind, width, loop depth and
source line, its loops, and its :class:`~cdna.resources.Resources`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from cdna.base import InputError
from cdna.isa.body import Instruction, Loop, build_body
from cdna.isa.mnemonics import KINDS, MatrixShape, matrix_shape, wait_counts
from cdna.isa.text import scan_text
from cdna.resources import Resources

__all__ = ["IsaError", "Kernel", "parse_asm"]


class IsaError(InputError):
    """The text holds no AMDGCN kernel."""


@dataclass(frozen=True, slots=True)
class MatrixUse:
    """One kind of matrix instruction in a kernel; counts are instructions, ``in_loops`` those inside any loop."""

    op: str
    shape: MatrixShape
    count: int
    in_loops: int

    @property
    def flops(self) -> int:
        """Operations of one wave if each of these instructions runs once."""
        return self.shape.flops * self.count


@dataclass(frozen=True, slots=True)
class Wait:
    """One ``s_waitcnt``: the line, its loop depth, and how many operations of each counter may stay under way."""

    line: int
    depth: int
    counts: dict[str, int]
    source: str


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of an assembly text.

    ``is_entry`` is False for a device function that was not inlined; ``calls`` counts calls to such functions, whose
    instructions are not in this kernel's own list.
    """

    name: str
    arch: str
    is_entry: bool
    instructions: tuple[Instruction, ...]
    loops: tuple[Loop, ...]
    resources: Resources

    def select(self, kind: str = "", access: str = "", in_loops: bool | None = None) -> Iterator[Instruction]:
        """Return the instructions of a kind and access; ``in_loops`` True or False keeps those inside or outside every
        loop.
        """
        for i in self.instructions:
            wanted = (not kind or i.kind == kind) and (not access or i.access == access)
            if wanted and (in_loops is None or (i.depth > 0) is in_loops):
                yield i

    def mix(self, in_loops: bool | None = None) -> dict[str, int]:
        """Return how many instructions of each kind, in the order of :data:`~cdna.isa.mnemonics.KINDS`."""
        count = Counter(i.kind for i in self.select(in_loops=in_loops))
        return {kind: count[kind] for kind in KINDS if count[kind]}

    def widths(self, kind: str, access: str, in_loops: bool | None = None) -> dict[int, int]:
        """Return bits per lane -> number of accesses, widest first; for example ``widths("global", "load", True)``.

        ``ds_read2_b64`` counts as two accesses of 64 bits, which is what the LDS makes of it.
        """
        count: Counter[int] = Counter()
        for i in self.select(kind, access, in_loops):
            count[i.width] += i.pieces
        return dict(sorted(count.items(), reverse=True))

    def matrix_uses(self) -> list[MatrixUse]:
        """Return the matrix instructions by shape, the most frequent first."""
        total = Counter(i.op for i in self.select("mfma"))
        inside = Counter(i.op for i in self.select("mfma", in_loops=True))
        return [MatrixUse(op, s, n, inside[op]) for op, n in total.most_common() if (s := matrix_shape(op))]

    def waits(self) -> list[Wait]:
        """Return every ``s_waitcnt`` in order."""
        return [Wait(i.line, i.depth, wait_counts(i.args), i.source) for i in self.select("waitcnt")]

    @property
    def mfma_flops(self) -> int:
        """Matrix operations of one wave if every instruction ran once."""
        return sum(use.flops for use in self.matrix_uses())

    @property
    def mfma_flops_per_iteration(self) -> int:
        """Matrix operations of one wave inside loops, each instruction counted once."""
        return sum(use.shape.flops * use.in_loops for use in self.matrix_uses())

    @property
    def barriers(self) -> int:
        """Workgroup barriers."""
        return sum(1 for _ in self.select("barrier"))

    @property
    def calls(self) -> int:
        """Calls to functions that were not inlined."""
        return sum(i.op.startswith(("s_swappc", "s_call")) for i in self.instructions)

    @property
    def spill_instructions(self) -> int:
        """Instructions that LLVM marks as a spill or a reload of a register."""
        return sum(i.spill for i in self.instructions)


def parse_asm(text: str) -> list[Kernel]:
    """Parse an AMDGCN assembly text or disassembly into its kernels, in the order of the text.

    Device functions that were not inlined follow the kernels, with ``is_entry`` False, when the text says which are
    which (a disassembly does not: there every function counts as a kernel).

    Args:
        text: the whole file. Time and memory grow linearly with its length.

    Raises:
        IsaError: there is no instruction of any function in it.

    >>> text = '''
    ... .amdgcn_target "amdgcn-amd-amdhsa--gfx942"
    ... .text
    ... .type add,@function
    ... add:
    ...   global_load_dwordx4 v[0:3], v[4:5], off
    ...   s_waitcnt vmcnt(0)
    ...   s_endpgm
    ... '''
    >>> k = parse_asm(text)[0]
    >>> k.name, k.arch, k.mix(), k.widths("global", "load")
    ('add', 'gfx942', {'global': 1, 'waitcnt': 1, 'branch': 1}, {128: 1})
    """
    scan = scan_text(text)
    kernels = []
    for function in scan.functions:
        instructions, loops = build_body(function)
        entry = not scan.entries or function.name in scan.entries
        resources = scan.resources(function)
        kernels.append(Kernel(function.name, scan.arch, entry, instructions, loops, resources))
    if not kernels:
        raise IsaError(
            "no AMDGCN kernel in this text; give Triton's amdgcn, the .s of hipcc -S, or the output of llvm-objdump -d"
        )
    return sorted(kernels, key=lambda k: not k.is_entry)
