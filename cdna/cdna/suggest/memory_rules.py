# SPDX-License-Identifier: MIT
"""Rules about memory: narrow accesses, waits without work, trips through LDS."""

from __future__ import annotations

from collections.abc import Iterator

from cdna.ir.program import GlobalAccess, Program
from cdna.isa.body import Instruction
from cdna.isa.kernel import Kernel
from cdna.occupancy import Occupancy
from cdna.suggest.evidence import SHOWN, Evidence, Suggestion, asm_evidence

__all__ = []


def _where(kernel: Kernel) -> tuple[bool | None, str]:
    # Inside loops when the kernel has any: they are what runs many times.
    return (True, " in loops") if kernel.loops else (None, "")


def _by_source(items: list[Instruction]) -> list[list[Instruction]]:
    groups: dict[str, list[Instruction]] = {}
    for i in items:
        groups.setdefault(i.source.rpartition(":")[0] or i.source, []).append(i)
    return list(groups.values())


def narrow_global(kernel: Kernel, occupancy: Occupancy | None, program: Program | None) -> Iterator[Suggestion]:
    """Find global loads in loops, and stores, that move less than 128 bits per lane; one suggestion per source line."""
    inside, where = _where(kernel)
    for access in ("load", "store"):
        # Stores are judged everywhere: the result is usually stored after the loop.
        narrow = [i for i in kernel.select("global", access, inside if access == "load" else None) if i.bits < 128]
        for group in _by_source(narrow):
            if _is_scalar(program, group[0].source, access):
                continue  # one number for the whole workgroup cannot be moved any wider
            widest = max(i.bits for i in group)
            possible = _layout_bits(program, group[0].source, access)
            if possible == widest:
                fix = (
                    f"the layout gives each lane {possible} contiguous bits: more elements per lane (larger block or "
                    "fewer warps), or tell the compiler the alignment (pointers and strides that are multiples of 16, "
                    "tl.multiple_of, tl.max_contiguous)"
                )
            elif possible and possible > widest:
                fix = f"the layout would allow {possible} bits: look at the mask and at the pointer's alignment"
            else:
                fix = "make the fastest dimension contiguous and aligned; a 128-bit access moves 16 bytes per lane"
            loops = where if access == "load" else ""
            what = f"{len(group)} global {access}s{loops} move" if len(group) > 1 else f"a global {access}{loops} moves"
            found = f"{what} {widest} bits per lane, 128 is possible"
            weight = (60 if access == "load" else 20) + (20 if widest < 32 else 0) + (10 if group[0].depth else 0)
            yield Suggestion(f"narrow-{access}", found, fix, asm_evidence(group), weight)


def _accesses(program: Program | None, source: str, access: str) -> list[GlobalAccess]:
    """Return the accesses of the IR on the same line of the user's file."""
    place = source.rpartition(":")[0]
    found = program.global_accesses if program and place else ()
    return [g for g in found if g.access == access and g.operation.source.rpartition(":")[0] == place]


def _is_scalar(program: Program | None, source: str, access: str) -> bool:
    values = [g.value for g in _accesses(program, source, access)]
    return bool(values) and all(v is None or not v.type.shape for v in values)


def _layout_bits(program: Program | None, source: str, access: str) -> int | None:
    return next((g.lane_bits for g in _accesses(program, source, access) if g.lane_bits), None)


def narrow_lds(kernel: Kernel, occupancy: Occupancy | None, program: Program | None) -> Iterator[Suggestion]:
    """Find LDS accesses in loops of less than 64 bits per lane."""
    inside, where = _where(kernel)
    for access in ("load", "store"):
        narrow = [i for i in kernel.select("lds", access, inside) if i.width < 64]
        if len(narrow) > 4:
            found = f"{len(narrow)} LDS {access}s{where} move {max(i.width for i in narrow)} bits per lane or fewer"
            fix = "64 or 128 bits at a time take fewer instructions: try another operand order, kpack=2, or num_warps"
            yield Suggestion(f"narrow-lds-{access}", found, fix, asm_evidence(narrow), 35)


def exposed_waits(kernel: Kernel, occupancy: Occupancy | None, program: Program | None) -> Iterator[Suggestion]:
    """Find waits in loops for every load with next to no work since the last one."""
    exposed: list[Instruction] = []
    since_load: int | None = None
    for i in kernel.instructions:
        if i.depth == 0:
            since_load = None
        elif i.kind == "global" and i.access == "load":
            since_load = 0
        elif i.kind in ("valu", "mfma") and since_load is not None:
            since_load += 8 if i.kind == "mfma" else 1
        elif i.kind == "waitcnt" and "vmcnt(0)" in i.args and since_load is not None:
            if since_load < 16:
                exposed.append(i)
            since_load = None
    if exposed:
        what = f"{len(exposed)} waits in loops want" if len(exposed) > 1 else "a wait in a loop wants"
        found = f"{what} every load back (vmcnt(0)) with almost no work since the last load"
        fix = "load the next tile before using this one: num_stages=2, or more waves per SIMD to hide the latency"
        yield Suggestion("exposed-wait", found, fix, asm_evidence(exposed), 55)


def lds_trips(kernel: Kernel, occupancy: Occupancy | None, program: Program | None) -> Iterator[Suggestion]:
    """Find transposes, layout changes and reductions in loops that go through LDS, from the IR."""
    for use in program.lds_uses if program else ():
        evidence = tuple(
            Evidence("ttgir", op.line, op.text[:110], op.source) for op in dict.fromkeys((*use.stores, *use.loads))
        )[:SHOWN]
        size = f"{use.bytes:,} B"
        if "transpose" in use.reasons:
            found, fix = f"a transpose goes through LDS ({size})", "store the operand the other way round in memory"
        elif use.reasons == ("layout change",):
            found = (
                f"a layout change goes through LDS ({size})" if use.certain else f"a layout change may use LDS ({size})"
            )
            fix = "load it in the layout in which it is used, or do the reshape before the load (on the pointers)"
        elif use.depth and use.reasons[0] in ("reduction", "scan", "gather"):
            found, fix = f"a {use.reasons[0]} across waves in a loop", "fewer warps, or reduce once after the loop"
        else:
            continue
        yield Suggestion("lds-trip", found, fix, evidence, 40 + (15 if use.depth else 0))
