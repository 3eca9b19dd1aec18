# SPDX-License-Identifier: MIT
"""Suggestions for a kernel, each tied to the lines that prompt it: narrow loads, waits, spills, trips through LDS.

A suggestion is a place to look, with its evidence; whether it pays is for a measurement to say.
Source: AMD, "Optimizing Triton kernels", https://rocm.docs.amd.com/en/latest/how-to/rocm-for-ai/inference-optimization/
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cdna.ir.program import GlobalAccess, Program
from cdna.isa.analysis import register_roles, vgprs_of
from cdna.isa.body import Instruction
from cdna.isa.kernel import Kernel
from cdna.occupancy import Occupancy, waves_per_eu_advice

__all__ = ["Suggestion", "suggest"]

SHOWN = 4  # lines of evidence per suggestion; the count is always given in full


@dataclass(frozen=True, slots=True)
class Evidence:
    """A line that supports a suggestion: in which text, where, and what it says; ``source`` is the user's own line."""

    text: str
    line: int
    code: str
    source: str


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A finding (with its numbers), what to try, and the lines; ``weight`` orders them, the heaviest first."""

    rule: str
    found: str
    fix: str
    evidence: tuple[Evidence, ...]
    weight: int


def asm_evidence(items: list[Instruction]) -> tuple[Evidence, ...]:
    """Return the first few instructions as evidence."""
    return tuple(Evidence("assembly", i.line, f"{i.op} {i.args}".strip(), i.source) for i in items[:SHOWN])


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
            if access == "load" and _is_broadcast(program, group):
                continue  # neighbours read the same number: there is nothing beside it to load with it
            if access == "store" and possible and widest >= possible and _from_matrix_core(program, group[0].source):
                continue  # the matrix core's own layout; a wider store would cost a trip through LDS
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
            best = possible if possible and possible > widest else 128
            found = f"{what} {widest} bits per lane, {best} is possible"
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


def _is_broadcast(program: Program | None, group: list[Instruction]) -> bool:
    """Return whether a line's loads move fewer bits than its tensor has in a lane: the compiler uses some twice."""
    held = [g.held_bits for g in _accesses(program, group[0].source, "load")]
    return bool(held) and None not in held and sum(i.bits for i in group) < sum(h or 0 for h in held)


def _from_matrix_core(program: Program | None, source: str) -> bool:
    layouts = [g.value.layout for g in _accesses(program, source, "store") if g.value]
    return any(layout is not None and layout.kind == "mma" for layout in layouts)


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


def exposed_waits(kernel: Kernel, stages: int | None) -> Iterator[Suggestion]:
    """Find waits in loops for every load with next to no work since the last one.
    ``stages``: what it was compiled with, if known."""
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
        more = "more waves per SIMD to hide the latency"
        fix = f"load the next tile before using this one (num_stages=2, where the loop has a tl.dot), or have {more}"
        if stages and stages > 1:
            fix = (
                f"num_stages={stages} is there already, and does not reach this load: {more}, or load it a turn earlier"
            )
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


def _spills(kernel: Kernel, occupancy: Occupancy | None, program: Program | None) -> Iterator[Suggestion]:
    spilled = [i for i in kernel.instructions if i.spill]
    inside = [i for i in spilled if i.depth]
    if spilled:
        found = f"{len(spilled)} instructions spill or reload registers, {len(inside)} of them in loops"
        fix = "a smaller tile, more warps per workgroup, or a lower waves_per_eu: each reload waits on memory"
        yield Suggestion("spills", found, fix, asm_evidence(inside or spilled), 100 if inside else 70)
    elif kernel.resources.scratch:
        scratch = list(kernel.select("scratch"))
        found = f"{kernel.resources.scratch} B of scratch memory per lane, without a register spill"
        fix = "look for an array indexed by a run-time value, or a call that was not inlined"
        yield Suggestion("scratch", found, fix, asm_evidence(scratch), 65)


def _registers(kernel: Kernel, occupancy: Occupancy | None, program: Program | None) -> Iterator[Suggestion]:
    used = kernel.resources.vgprs
    if occupancy is None or not used:
        return
    advice = waves_per_eu_advice(occupancy, used, sgprs_used=kernel.resources.sgprs or 0)
    padded = bool(kernel.resources.vgprs_allocated and kernel.resources.vgprs_allocated > used + 8)
    target = occupancy.next_vgprs
    if target is None and not padded:
        return
    roles = register_roles(kernel)
    parts, lines = [], []
    if roles:
        parts = [f"{roles.accumulators} hold the matrix result", f"{roles.loads} wait for global loads"]
        if roles.idle:
            parts.append(f"{roles.idle} are carried through the loop unused")
            lines = [i for i in kernel.instructions if i.line == roles.first_idle_use]
        last = max(kernel.select("mfma", in_loops=True), key=_highest, default=None) if roles.accumulators else None
        lines += [last] if last else []
    what = f" ({', '.join(parts)})" if parts else ""
    if padded:
        found, weight = advice.reason, 50
        fix = "leave waves_per_eu unset unless the measured time says otherwise"
    else:
        found = f"{used} VGPRs{what}: {used - (target or 0)} fewer would admit another workgroup per CU ({target})"
        fix = (
            advice.reason
            if advice.helps
            else "a smaller tile or more warps; recompute addresses instead of keeping them"
        )
        weight = 45 if advice.helps else 25
    yield Suggestion("registers", found, fix, asm_evidence([i for i in lines if i is not None]), weight)


def _highest(i: Instruction) -> int:
    return max((int(r[1:]) for r in vgprs_of(i.args)), default=0)


def _matrix(kernel: Kernel, occupancy: Occupancy | None, program: Program | None) -> Iterator[Suggestion]:
    uses = kernel.matrix_uses()
    dots = [op for op in program.operations if op.name in ("tt.dot", "tt.dot_scaled")] if program else []
    if dots and not uses:
        evidence = tuple(Evidence("ttgir", op.line, op.text[:110], op.source) for op in dots[:SHOWN])
        fix = "use a tile and type that the matrix cores take: K of 16 or more, fp16, bf16, fp8 or int8"
        yield Suggestion("no-matrix-core", f"{len(dots)} tt.dot but no matrix instruction", fix, evidence, 95)
    large = [u for u in uses if u.shape.m == 32]
    if large and kernel.arch == "gfx942":
        lines = [i for i in kernel.select("mfma") if i.op == large[0].op]
        found = f"{sum(u.count for u in large)} matrix instructions of shape {large[0].shape.name}"
        fix = "AMD's guide finds 16x16 faster on MI300X, for large tiles too: try matrix_instr_nonkdim=16"
        yield Suggestion("mfma-32", found, fix, asm_evidence(lines[:1]), 15)


def _flat(kernel: Kernel, occupancy: Occupancy | None, program: Program | None) -> Iterator[Suggestion]:
    flat = [i for i in kernel.instructions if i.op.startswith("flat_")]
    if flat:
        found = f"{len(flat)} flat accesses: the compiler does not know whether they go to global memory or LDS"
        yield Suggestion(
            "flat", found, "give pointers their address space; flat waits on both counters", asm_evidence(flat), 30
        )
    if kernel.calls:
        calls = [i for i in kernel.instructions if i.op.startswith(("s_swappc", "s_call"))]
        found = f"{kernel.calls} calls were not inlined; their registers and instructions are not in these figures"
        yield Suggestion("calls", found, "inline the function", asm_evidence(calls), 30)


_Rule = Callable[[Kernel, Occupancy | None, Program | None], Iterator[Suggestion]]
_RULES: tuple[_Rule, ...] = (
    _spills,
    _matrix,
    narrow_global,
    _registers,
    lds_trips,
    narrow_lds,
    _flat,
)


def suggest(
    kernel: Kernel, occupancy: Occupancy | None = None, program: Program | None = None, stages: int | None = None
) -> list[Suggestion]:
    """Return suggestions for a kernel, the weightiest first.

    Args:
        kernel: from :func:`~cdna.isa.kernel.parse_asm`.
        occupancy: what the kernel allocates, for the rules about registers.
        program: its TTGIR, for the rules about LDS and layouts.
        stages: the ``num_stages`` that it was compiled with, so that nobody is told to set what is set.

    >>> from cdna.isa.kernel import parse_asm
    >>> text = "f:\\nL1:\\n global_load_ushort v1, v[2:3], off\\n s_waitcnt vmcnt(0)\\n s_cbranch_scc1 L1\\n s_endpgm"
    >>> [s.rule for s in suggest(parse_asm(text)[0])]
    ['narrow-load', 'exposed-wait']
    """
    found = [s for rule in _RULES for s in rule(kernel, occupancy, program)] + [*exposed_waits(kernel, stages)]
    return sorted(found, key=lambda s: -s.weight)
