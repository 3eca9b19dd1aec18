# SPDX-License-Identifier: MIT
"""Suggestions for a kernel, each tied to the lines that prompt it: narrow loads, waits, spills, trips through LDS.

A suggestion is a place to look, with its evidence; whether it pays is for a measurement to say.
Source: AMD, "Optimizing Triton kernels", https://rocm.docs.amd.com/en/latest/how-to/rocm-for-ai/inference-optimization/
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cdna.ir.program import Program
from cdna.isa.body import Instruction
from cdna.isa.kernel import Kernel
from cdna.isa.registers import register_roles, vgprs_of
from cdna.occupancy import Occupancy, waves_per_eu_advice
from cdna.suggest.evidence import SHOWN, Evidence, Suggestion, asm_evidence
from cdna.suggest.memory_rules import exposed_waits, lds_trips, narrow_global, narrow_lds

__all__ = ["suggest"]


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
    exposed_waits,
    _registers,
    lds_trips,
    narrow_lds,
    _flat,
)


def suggest(kernel: Kernel, occupancy: Occupancy | None = None, program: Program | None = None) -> list[Suggestion]:
    """Return suggestions for a kernel, the weightiest first.

    Args:
        kernel: from :func:`~cdna.isa.kernel.parse_asm`.
        occupancy: what the kernel allocates, for the rules about registers.
        program: its TTGIR, for the rules about LDS and layouts.

    >>> from cdna.isa.kernel import parse_asm
    >>> text = "f:\\nL1:\\n global_load_ushort v1, v[2:3], off\\n s_waitcnt vmcnt(0)\\n s_cbranch_scc1 L1\\n s_endpgm"
    >>> [s.rule for s in suggest(parse_asm(text)[0])]
    ['narrow-load', 'exposed-wait']
    """
    found = [s for rule in _RULES for s in rule(kernel, occupancy, program)]
    return sorted(found, key=lambda s: -s.weight)
