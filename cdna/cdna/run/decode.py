# SPDX-License-Identifier: MIT
"""From an instruction's text to an :class:`DecodedInstruction`: a function that executes it, and what it touches."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

from cdna.isa.mnemonics import matrix_shape, meaning, wait_counts
from cdna.isa.text import Raw
from cdna.run.access import Access
from cdna.run.errors import RunError
from cdna.run.global_memory import decode_global
from cdna.run.in_flight import wait
from cdna.run.indexed import decode_index_on, decode_indexed_move, index_flags
from cdna.run.lds_ops import decode_lds
from cdna.run.matrix import decode_matrix
from cdna.run.packed import decode_packed
from cdna.run.program import resolve
from cdna.run.rounding import obeys, to_nearest_only
from cdna.run.scalar import decode_scalar, decode_scalar_memory
from cdna.run.state import DecodedInstruction, Program, Run, StraightLine, Wave
from cdna.run.vector import decode_vector

__all__ = []


class Stop(Exception):
    """The wave cannot go on by itself."""


_NOTHING = ("s_nop", "s_sleep", "s_setprio", "s_sethalt", "s_icache_inv", "s_incperflevel", "s_decperflevel",
            "s_ttracedata", "s_sendmsg", "s_code_end", "s_set_gpr_idx_off", "s_inst_prefetch")  # fmt: skip
_CONDITIONS: dict[str, Callable[[Wave], bool]] = {
    "s_cbranch_scc0": lambda w: not w.scc,
    "s_cbranch_scc1": lambda w: bool(w.scc),
    "s_cbranch_vccz": lambda w: not (w.s[106] | w.s[107]),
    "s_cbranch_vccnz": lambda w: bool(w.s[106] | w.s[107]),
    "s_cbranch_execz": lambda w: not w.exec,
    "s_cbranch_execnz": lambda w: bool(w.exec),
}


def _nothing(w: Wave) -> None:
    """Change nothing that this interpreter models."""


def _end(w: Wave) -> None:
    w.status = "ending"
    raise Stop


def _barrier(w: Wave) -> None:
    w.status = "barrier"
    raise Stop


def _control(p: Program, i: int, a: Access) -> Run | None:
    """Decode branches, waits, barriers, the end."""
    name = a.base
    if name in _NOTHING:
        a.used |= set(a.mods)
        return _nothing
    if name == "s_endpgm":
        return _end
    if name == "s_set_gpr_idx_on":
        return decode_index_on(p, i, a)
    if name == "s_barrier":
        return _barrier
    if name == "s_waitcnt":
        counts = wait_counts(p.body[i].args)
        if not counts and not re.fullmatch(
            r"\s*(0[xX][0-9a-fA-F]+|\d+|(expcnt|vmcnt|lgkmcnt)\(\d+\))\s*", p.body[i].args
        ):
            raise a.fail("waits for nothing that gfx942 counts")
        return lambda w: wait(w, counts)
    if name == "s_branch":
        there = resolve(p, i)

        def jump(w: Wave) -> None:
            w.pc = there

        return jump
    if name in _CONDITIONS:
        condition, target = _CONDITIONS[name], resolve(p, i)
        if "vcc" in name:
            a.sreads += [106, 107]

        def branch(w: Wave) -> None:
            if condition(w):
                w.pc = target

        return branch
    if name in ("s_getpc_b64", "s_setpc_b64", "s_swappc_b64"):
        return _far(p, i, a)
    return None


def _far(p: Program, i: int, a: Access) -> Run:
    following = p.addresses[i + 1] if i + 1 < len(p.addresses) else p.addresses[i] + 8
    put = a.sdst64(0) if a.base != "s_setpc_b64" else None
    get = None if a.base == "s_getpc_b64" else a.s64(0 if put is None else 1)
    where = p.by_address

    def run(w: Wave) -> None:
        target = get(w) if get else 0
        if put:
            put(w, following)
        if get:
            if target not in where:
                raise RunError(f"jumps to 0x{target:x}, where there is no instruction", rule="text")
            w.pc = where[target]

    return run


_SYMBOL = re.compile(r"(?P<s>[\w.$]+)@rel32@(?P<h>lo|hi)\+(?P<n>\d+)$")
_DISTANCE = re.compile(r"\((?P<a>[\w.$]+)-(?P<b>[\w.$]+)\)(?P<op>&4294967295|>>32)$")


def _literals(p: Program, i: int, args: str) -> str:
    """Replace distances between labels by numbers (long jumps and calls)."""
    head, _, last = args.rpartition(",")
    last = last.strip()
    if m := _SYMBOL.match(last):
        if m["s"] not in p.labels:
            raise RunError(f"line {p.body[i].line}: {m['s']} is not in this text", p.body[i].line)
        value = p.addresses[p.labels[m["s"]]] + int(m["n"]) - (p.addresses[i] + 4)
    elif m := _DISTANCE.match(last):
        if m["a"] not in p.labels or m["b"] not in p.labels or max(p.labels[m["a"]], p.labels[m["b"]]) >= len(p.body):
            raise RunError(f"line {p.body[i].line}: {last[:60]} names no label", p.body[i].line)
        value = p.addresses[p.labels[m["a"]]] - p.addresses[p.labels[m["b"]]]
    else:
        return args
    high = m.groupdict().get("h") == "hi" or m.groupdict().get("op") == ">>32"
    return f"{head}, {(value >> 32 if high else value) & 0xFFFFFFFF}"


def _family(p: Program, i: int, a: Access, kind: str) -> Run | None:
    line = p.body[i].line
    if kind in ("lds", "permute"):
        return decode_lds(a, line)
    if kind in ("global", "scratch") or a.base.startswith("buffer_"):
        return decode_global(a, line)
    if kind == "mfma":
        return decode_matrix(a, p.hardware_sums)
    if kind == "smem":
        return decode_scalar_memory(a, line)
    if a.base == "v_mov_b32" and (flags := index_flags(p, i)):
        return decode_indexed_move(a, flags, p.settings.vgprs)
    if kind == "valu":
        return decode_vector(a) or decode_packed(a)
    return _control(p, i, a) or decode_scalar(a)


def _decode_one(p: Program, i: int) -> DecodedInstruction:
    """Decode instruction ``i``.

    Raises:
        RunError: gfx942 has no such instruction, this interpreter does not know it, or its operands make no sense.
    """
    raw: Raw = p.body[i]
    kind = (meaning(raw.op) or ("other", "", 0))[0]
    try:
        args = _literals(p, i, raw.args) if raw.op.startswith("s_add") else raw.args
        if raw.op in ("s_waitcnt", *_CONDITIONS, "s_branch", *_NOTHING):
            args = ""
        a = Access(raw.op, args, p.flushes, p.rounds)
        run = _family(p, i, a, kind)
        if run is None:
            raise RunError(f"{raw.op} is not an instruction that this interpreter knows", rule="unknown")
        if p.rounds and not (obeys(a.base) and ("mul" not in a.mods and "div" not in a.mods)):
            run = to_nearest_only(a.base, run)
        a.leftovers()
        if kind == "valu":
            a.check_constant_bus()
    except RunError as e:
        why = str(e).removeprefix(f"line {raw.line}: ")
        why = why if raw.op in why else f"{raw.op} {raw.args}: {why}"
        raise RunError(f"line {raw.line}: {why[:300]}", raw.line, e.rule) from None
    writes = list(a.writes)
    if a.dpp is not None:
        run, writes = a.dpp.around(run, writes), []
        a.private = a.lanewise = False
    for r in (*a.reads, *a.writes, *a.lane_reads):
        if r >= (p.settings.vgprs if r < 256 else 256 + p.settings.agprs):
            raise RunError(f"line {raw.line}: {raw.op} {raw.args}: the kernel has v0 to v{p.settings.vgprs - 1}"
                           f" and {p.settings.agprs} accumulation registers", raw.line)  # fmt: skip
    shape = matrix_shape(raw.op) if kind == "mfma" else None
    private = a.private and (kind == "mfma" or (kind in ("valu", "salu") and not raw.op.startswith("s_set")))
    weak, lane_reads, uniform = tuple(a.weak), tuple(a.lane_reads), tuple({*a.sreads} - {*a.own})
    return DecodedInstruction(
        i, raw.line, raw.op, raw.args, raw.source, kind, run, tuple(dict.fromkeys(a.reads)), tuple(writes),
        tuple(dict.fromkeys(a.sreads)), tuple(a.swrites), a.all_lanes, a.copies, lane_reads,
        shape.flops if shape else 0, weak, private, a.lanewise, uniform, (*writes, *lane_reads, *weak)
    )  # fmt: skip


def decode_program(p: Program) -> list[DecodedInstruction]:
    """Decode all instructions, once for all launches of a program: what they act on, they find through the wave."""
    if p.decoded is None:
        code = [_decode_one(p, i) for i in range(len(p.body))]
        branches = (i for i, o in enumerate(code) if o.op == "s_branch" or o.op in _CONDITIONS)
        targets = {*p.labels.values(), *(resolve(p, i) for i in branches), p.entry}
        cuts = [i for i, o in enumerate(code) if not o.private or i in targets]
        for low, high in pairwise([-1, *cuts, len(code)]):
            first = low if low >= 0 and code[low].private else low + 1
            if high - first >= 2:  # of one instruction the check takes as long as it saves
                code[first].straight = StraightLine(code[first:high])
        p.decoded = code
    return p.decoded
