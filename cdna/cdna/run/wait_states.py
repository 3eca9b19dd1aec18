# SPDX-License-Identifier: MIT
"""Wait states: results that the hardware hands on late without stopping whoever reads them too early.

CDNA3 resolves most dependencies itself. For those below, other instructions or ``s_nop`` must stand between the two,
and compilers put them there. Each instruction between counts for one state, ``s_nop N`` for N + 1, a branch that is
taken for two: LLVM's SISchedule.td has 8 cycles for it, and four are a state. (With one, code of Triton 3.6 would be
refused. At the end of a loop, ``s_cbranch L; s_branch M``, LLVM counts both on the way to L.) The check follows the
code on every path, executed or not. It does not know every rule of the manual: accumulators that overlap in part, dot
products, ``s_setreg`` and M0 are left out.
Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, "Manually Inserted Wait States (NOPs)"; the numbers as
LLVM's GCNHazardRecognizer.cpp keeps them for gfx940 and later (checkVMEMHazards, checkDPPHazards, checkDivFMasHazards,
checkRWLaneHazards, checkVALUHazards, checkMAIVALUHazards); a vector result read by a matrix instruction: rocRoller,
"VALU Write followed by an MFMA Read".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from cdna.costs import mfma_cycles
from cdna.isa.mnemonics import matrix_shape
from cdna.run.errors import RunError
from cdna.run.operands import parse_operand, split_operands
from cdna.run.program import resolve
from cdna.run.state import DecodedInstruction, Program

__all__ = []

_TRANSCENDENTAL = ("v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_")
_LANES = ("v_readlane", "v_readfirstlane", "v_writelane")


class _Seen(NamedTuple):
    """Registers that one instruction reads and writes: vector ones, and scalar ones (106 and 107 are VCC)."""

    o: DecodedInstruction
    reads: frozenset[int]
    writes: frozenset[int]
    scalar_reads: frozenset[int]
    scalar_writes: frozenset[int]

    @property
    def memory(self) -> bool:
        return self.o.kind in ("global", "scratch", "lds", "permute")

    @property
    def dpp(self) -> bool:
        return self.o.op.endswith("_dpp")


class _Rule(NamedTuple):
    """So many states, before a later instruction that ``concerns`` this one, and why."""

    states: int
    concerns: Callable[[_Seen], bool]
    why: str


def _seen(o: DecodedInstruction) -> _Seen:
    reads, writes = {*o.reads, *o.lane_reads, *o.weak}, {*o.writes}
    if o.op.endswith("_dpp"):  # which lanes count is known only when it runs, so decoding notes neither
        registers = [parse_operand(text) for text in split_operands(o.args)[0]]
        rows = [range(r.index, r.index + r.count) if r.kind == "v" else () for r in registers]
        writes |= {*rows[0]}
        reads |= {r for row in rows[1:] for r in row}
    return _Seen(o, frozenset(reads), frozenset(writes), frozenset(o.sreads), frozenset(o.swrites))


def _matrix_rules(x: _Seen) -> Iterator[_Rule]:
    shape = matrix_shape(x.o.op)
    if shape is None:
        return
    passes = mfma_cycles(x.o.op) // 4
    if shape.in_type == "f64":
        memory, vector = (9, 6) if passes == 4 else (18, 11)
    else:
        memory = vector = passes + (2 if shape.in_type == "f32" else 3)
    why = f"the matrix result, which takes {passes} passes"
    yield _Rule(memory, lambda y: y.memory and bool(y.reads & x.writes), why)
    yield _Rule(vector, lambda y: y.o.kind == "valu" and bool((y.reads | y.writes) & x.writes), why)
    if shape.in_type != "f64":
        yield _Rule(vector, lambda y: y.o.kind == "mfma" and bool(_factors(y) & x.writes), f"{why} (as A or B)")


def _factors(y: _Seen) -> set[int]:
    found = [parse_operand(text) for text in split_operands(y.o.args)[0][1:3]]
    return {r for o in found if o.kind == "v" for r in range(o.index, o.index + o.count)}


def _vector_rules(x: _Seen) -> Iterator[_Rule]:
    op, mods = x.o.op, split_operands(x.o.args)[1]
    if x.scalar_writes:
        mask = x.scalar_writes
        yield _Rule(
            5,
            lambda y: y.o.kind in ("global", "scratch") and bool(y.scalar_reads & mask),
            "a scalar register that the vector ALU wrote, in a memory instruction",
        )
        yield _Rule(
            2,
            lambda y: y.o.kind == "valu" and bool(y.scalar_reads & mask),
            "a scalar register that the vector ALU wrote",
        )
        yield _Rule(
            4, lambda y: y.o.op.startswith("v_div_fmas") and bool(mask & {106, 107}), "VCC that the vector ALU wrote"
        )
        yield _Rule(
            4,
            lambda y: y.o.op.startswith(("v_readlane", "v_writelane")) and bool(y.scalar_reads & mask),
            "the number of a lane that the vector ALU wrote",
        )
    if op.startswith("v_cmpx"):
        yield _Rule(5, lambda y: y.dpp, "EXEC that the vector ALU wrote, in a DPP instruction")
        yield _Rule(4, lambda y: y.o.op.startswith(_LANES), "EXEC that the vector ALU wrote")
    if not x.writes:
        return
    yield _Rule(2, lambda y: y.dpp and bool(y.reads & x.writes), "a vector register in a DPP instruction")
    yield _Rule(
        1,
        lambda y: y.o.op.startswith(_LANES[:2]) and bool(y.reads & x.writes),
        "a vector register, of which a lane is taken,",
    )
    yield _Rule(
        2, lambda y: y.o.kind == "mfma" and bool(y.reads & x.writes), "a vector register in a matrix instruction"
    )
    if op.startswith(_TRANSCENDENTAL):
        yield _Rule(
            1,
            lambda y: y.o.kind == "valu" and not y.o.op.startswith(_TRANSCENDENTAL) and bool(y.reads & x.writes),
            "a transcendental result",
        )
    if mods.get("dst_sel", "DWORD") != "DWORD" or (mods.get("op_sel", "").endswith(",1]") and "_pk_" not in op):
        yield _Rule(1, lambda y: y.o.kind == "valu" and bool(y.reads & x.writes), "a result in part of a register")


def _states(o: DecodedInstruction) -> int:
    if o.op != "s_nop":
        return 1
    count = parse_operand(o.args.strip())
    if count.kind != "int" or not 0 <= count.value <= 15:
        raise RunError(f"line {o.line}: {o.text[:60]}: s_nop takes a number from 0 to 15", o.line, "text")
    return int(count.value) + 1


def _following(program: Program, o: DecodedInstruction, last: int) -> list[tuple[int, int]]:
    """Return what may come next, and the states that it takes to get there."""
    after = [(o.index + 1, _states(o))] if o.index < last else []
    if o.op == "s_branch":
        return [(resolve(program, o.index), 2)]
    if o.op.startswith("s_cbranch"):
        return [*after, (resolve(program, o.index), 2)]
    return [] if o.op.startswith(("s_endpgm", "s_setpc", "s_swappc")) else after


def check_wait_states(program: Program, code: Sequence[DecodedInstruction]) -> None:
    """Refuse a program in which a result is read before its wait states are over.

    Raises:
        RunError: ``rule`` is ``wait states``; both instructions are named, and how many states are missing.
    """
    seen = [_seen(o) for o in code]
    last = len(code) - 1
    for x in seen:
        rules = list(_matrix_rules(x) if x.o.kind == "mfma" else _vector_rules(x) if x.o.kind == "valu" else ())
        if not rules:
            continue
        most = max(rule.states for rule in rules)
        best: dict[int, int] = {}
        todo = [(i, 0) for i, _ in _following(program, x.o, last)]
        while todo:
            i, states = todo.pop()
            if states >= most or best.get(i, most) <= states:
                continue
            best[i] = states
            y = seen[i]
            for rule in rules:
                if states < rule.states and rule.concerns(y):
                    raise RunError(
                        f"line {y.o.line}: {y.o.text} uses {rule.why} of line {x.o.line} ({x.o.op}) after {states} "
                        f"wait states and takes {rule.states}: s_nop {rule.states - states - 1} is missing before it",
                        y.o.line,
                        "wait states",
                    )
            todo += [(j, states + more) for j, more in _following(program, y.o, last)]
