# SPDX-License-Identifier: MIT
"""Roles of a kernel's vector registers: accumulators, tiles in flight, values carried through a loop untouched."""

from __future__ import annotations

from dataclasses import dataclass

from cdna.isa.body import Instruction
from cdna.isa.kernel import Kernel
from cdna.isa.operands import registers_of, written_registers

__all__ = ["register_roles", "vgprs_of"]


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
