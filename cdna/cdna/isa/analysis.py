# SPDX-License-Identifier: MIT
"""Analyses of a kernel's loop: the roles of its vector registers, and the loads in flight at each instruction.

Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, section "Manually Inserted Wait States" (s_waitcnt).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from cdna.isa.body import Instruction, Loop
from cdna.isa.kernel import Kernel
from cdna.isa.mnemonics import wait_counts
from cdna.isa.operands import registers_of, written_registers

__all__ = ["loads_in_flight", "register_roles", "vgprs_of"]


@dataclass(frozen=True, slots=True)
class RegisterRoles:
    """Registers by role in the loop with the most instructions (``v`` and ``a`` registers count alike).

    ``accumulators`` hold results of matrix instructions; ``loads`` are filled by global loads inside the loop;
    ``idle`` were written before the loop and are read after it but never in it: they only take up room there.
    ``first_idle_use`` is the first line after the loop that reads one of them.
    """

    accumulators: int
    loads: int
    idle: int
    referenced: int
    first_idle_use: int | None


def vgprs_of(text: str) -> list[str]:
    """Return the vector registers named in operands, in order.

    >>> vgprs_of("v[2:3], a0, s[4:7], v9 offset:16")
    ['v2', 'v3', 'a0', 'v9']
    """
    return registers_of(text, "va")


def _written(i: Instruction) -> list[str]:
    return written_registers(i.op, i.args, "va")


def _reads(i: Instruction) -> list[str]:
    return vgprs_of(i.args.partition(",")[2]) if _written(i) else vgprs_of(i.args)


def register_roles(kernel: Kernel) -> RegisterRoles | None:
    """Return the roles of the registers in the kernel's largest loop, or None when it has no loop.

    >>> from cdna.isa.kernel import parse_asm
    >>> text = "f:\\n v_mov_b32 v9, 0\\nL1:\\n global_load_dword v1, v[2:3], off\\n s_cbranch_scc1 L1\\n"
    >>> roles = register_roles(parse_asm(text + " v_add_f32 v4, v9, v1\\n s_endpgm")[0])
    >>> roles.loads, roles.idle
    (1, 1)
    """
    if not kernel.loops:
        return None
    loop = max(kernel.loops, key=lambda x: x.instructions)
    before: set[str] = set()
    inside: set[str] = set()
    accumulators: set[str] = set()
    loads: set[str] = set()
    idle: set[str] = set()
    overwritten: set[str] = set()
    everything: set[str] = set()
    first: int | None = None
    for i in kernel.instructions:
        names = vgprs_of(i.args)
        everything.update(names)
        if i.line < loop.first_line:
            before.update(_written(i))
        elif i.line <= loop.last_line:
            inside.update(names)
            if i.kind == "mfma":
                accumulators.update(_written(i))
            elif i.kind == "global" and i.access == "load":
                loads.update(_written(i))
    for i in kernel.instructions:
        if i.line > loop.last_line:
            fresh = [r for r in _reads(i) if r in before and r not in inside and r not in overwritten]
            if fresh and first is None:
                first = i.line
            idle.update(fresh)
            overwritten.update(_written(i))
    return RegisterRoles(len(accumulators), len(loads), len(idle), len(everything), first)


class InFlight(NamedTuple):
    """At one instruction of a loop: its line, kind, and memory operations issued and not yet waited for."""

    line: int
    kind: str
    vector: int
    lds: int


def loads_in_flight(kernel: Kernel, loop: Loop | None = None) -> list[InFlight]:
    """Return the outstanding operations at each instruction of a loop in its steady state, an upper bound from the
    waits alone.

    ``vector`` counts what ``vmcnt`` counts (global, buffer and scratch accesses), ``lds`` what ``lgkmcnt`` counts
    (LDS and scalar loads). Memory may answer sooner; the code does not rely on it before the wait. The loop is walked
    twice in the order of the text, and the second pass is returned: what the first pass left under way is then there.

    >>> from cdna.isa.kernel import parse_asm
    >>> text = "f:\\nL1:\\n global_load_dword v1, v[2:3], off\\n v_add_f32 v4, v4, v5\\n s_waitcnt vmcnt(0)\\n"
    >>> [x.vector for x in loads_in_flight(parse_asm(text + " s_cbranch_scc1 L1\\n s_endpgm")[0])]
    [1, 1, 0, 0]
    """
    if loop is None:
        if not kernel.loops:
            return []
        loop = max(kernel.loops, key=lambda x: (x.depth, x.instructions))
    body = [i for i in kernel.instructions if loop.first_line <= i.line <= loop.last_line]
    vector = lds = 0
    found: list[InFlight] = []
    for _ in range(2):
        found = []
        for i in body:
            if i.kind in ("global", "scratch") and i.access:
                vector += 1
            elif i.kind in ("lds", "permute", "smem"):
                lds += 1
            elif i.kind == "waitcnt":
                counts = wait_counts(i.args)
                vector = min(vector, counts.get("vmcnt", vector))
                lds = min(lds, counts.get("lgkmcnt", lds))
            found.append(InFlight(i.line, i.kind, vector, lds))
    return found
