# SPDX-License-Identifier: MIT
"""Which lane of a wave touched which address: the step from "this kernel faulted" to "this index was wrong".

A memory instruction names registers, the report holds their values; together they give the address of every lane.

Introduced in notebook 24_debugging_faults.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .faults_report import AgentReport, FaultError, Instruction, Wave

__all__ = ["Suspect", "lane_addresses", "suspects"]

PAGE = 4096

_MEMORY = re.compile(r"(global|flat|buffer)_(load|store|atomic)\w*\s+(.*)")
_REGISTERS = re.compile(r"([vsa])(?:(\d{1,3})|\[(\d{1,3}):(\d{1,3})\])$")
_OFFSET = re.compile(r"\boffset:(-?\d{1,6})\b")


def _span(operand: str) -> tuple[str, int, int] | None:
    """("v", first, last) of an operand such as v3 or s[4:5]; None for anything else."""
    found = _REGISTERS.match(operand)
    if not found:
        return None
    first = int(found[2] if found[2] is not None else found[3])
    return found[1], first, first if found[2] is not None else int(found[4])


def _scalar(wave: Wave, first: int, last: int) -> int:
    value = 0
    for i in range(last, first - 1, -1):
        if f"s{i}" not in wave.scalars:
            raise FaultError(f"wave_{wave.number}: s{i} is not in the report; run the agent without filters")
        value = value << 32 | wave.scalars[f"s{i}"] & 0xFFFFFFFF
    return value


def _vector(wave: Wave, first: int, last: int) -> list[int]:
    parts = []
    for i in range(first, last + 1):
        if f"v{i}" not in wave.vectors:
            raise FaultError(f"wave_{wave.number}: v{i} is not in the report; run the agent without filters")
        parts.append(wave.vectors[f"v{i}"])
    width = min(len(p) for p in parts)
    return [sum((parts[k][lane] & 0xFFFFFFFF) << 32 * k for k in range(len(parts))) for lane in range(width)]


def lane_addresses(wave: Wave, instruction: Instruction) -> dict[int, int]:
    """The address that each active lane forms for a load, store or atomic.

    Covers global (64-bit vector address, or scalar base + 32-bit vector offset), flat, and buffer with ``offen``.
    The registers are those at the stop: if code between the access and the stop has overwritten an address register,
    the result is wrong, so look at the instructions in between.

    Returns:
        lane -> byte address; empty when the instruction is no memory access.

    Raises:
        FaultError: a register that the instruction names is missing in the report.

    Source: "MUBUF", "FLAT, GLOBAL and SCRATCH" in the AMD Instinct MI300 ISA reference
    (https://www.amd.com/content/dam/amd/en/documents/instinct-tech-docs/instruction-set-architectures/amd-instinct-mi300-cdna3-instruction-set-architecture.pdf).

    >>> from array import array
    >>> w = Wave(0, 0, scalars={"exec": 0b11, "s2": 0x1000, "s3": 0x7F}, vectors={"v0": array("Q", [0, 8])})
    >>> load = Instruction(0, 0, "global_load_dword v1, v0, s[2:3] offset:4")
    >>> {lane: hex(address) for lane, address in lane_addresses(w, load).items()}
    {0: '0x7f00001004', 1: '0x7f0000100c'}
    """
    found = _MEMORY.match(instruction.text.strip())
    if not found:
        return {}
    kind, action, rest = found.groups()
    offset = _OFFSET.search(rest)
    add = int(offset[1]) if offset else 0
    operands = [o.strip().split(" ")[0] for o in rest.split(",")]
    # A store has its address first, a load its result; an atomic that returns has a result in front too ("sc0").
    returns = action == "load" or (action == "atomic" and re.search(r"\b(glc|sc0)\b", rest))
    if kind == "buffer":
        at, base_at = 1, 2
    else:
        at = 1 if returns else 0
        base_at = at + 1 if action == "load" else at + 2
    if at >= len(operands) or (address := _span(operands[at])) is None or address[0] != "v":
        return {}
    lanes = _vector(wave, address[1], address[2])
    base = 0
    scalar = _span(operands[base_at]) if base_at < len(operands) else None
    if scalar and scalar[0] == "s":
        base = _scalar(wave, scalar[1], min(scalar[2], scalar[1] + 1))
        if kind == "buffer":
            base &= (1 << 48) - 1
            if "offen" not in rest:
                return {}
            extra = operands[base_at + 1] if base_at + 1 < len(operands) else "0"
            span = _span(extra)
            add += _scalar(wave, span[1], span[1]) if span else int(extra) if extra.isdigit() else 0
    mask = (1 << 64) - 1
    return {lane: (lanes[lane] + base + add) & mask for lane in wave.active_lanes if lane < len(lanes)}


def _registers(instruction: Instruction, *, written: bool) -> set[str]:
    """The registers that a memory instruction forms its address from, or that any instruction writes."""
    name, _, rest = instruction.text.strip().partition(" ")
    operands = [o.strip().split(" ")[0] for o in rest.split(",")]
    if written:
        if "store" in name or name.startswith(("s_cmp", "s_waitcnt", "s_branch", "s_cbranch", "s_barrier", "s_nop")):
            return set()
        operands = operands[:1]
    elif "load" in name:
        operands = operands[1:]  # its result is no part of its address
    spans = [span for o in operands if (span := _span(o))]
    return {f"{kind}{i}" for kind, first, last in spans for i in range(first, last + 1)}


@dataclass(frozen=True)
class Suspect:
    """A memory instruction at or before a stopped wave's program counter, and the lanes that touched the page."""

    wave: int
    instruction: Instruction
    lanes: tuple[int, ...]
    first_address: int


def suspects(report: AgentReport, code: dict[int, list[Instruction]] | None = None) -> list[Suspect]:
    """The memory instructions whose lanes touch the faulting page, nearest to the program counter first.

    An access whose address registers were written again before the wave stopped is left out: its addresses are lost.
    "Before" is the order of addresses, which is the order of execution as long as no branch lies in between.

    Args:
        report: with a faulting page.
        code: wave number -> instructions up to its PC, from :func:`~rocm_guide.faults_code.disassemble`; the report's
            own disassembly is used for a wave that is not in it.

    Raises:
        FaultError: the report names no page.
    """
    if report.page is None:
        raise FaultError("the report names no faulting page; it was no memory fault, or its first lines are missing")
    found = []
    for wave in report.faulting:
        later: set[str] = set()
        rows = (code or {}).get(wave.number) or (wave.disassembly.instructions if wave.disassembly else [])
        end = next((i for i, row in enumerate(rows) if row.marked), len(rows))
        # A wave stops behind the access; at it only where the hardware retries faults (XNACK), so that one comes last.
        for row in [*reversed(rows[:end]), *rows[end : end + 1]]:
            overwritten = later & _registers(row, written=False)
            later |= _registers(row, written=True)
            if overwritten:
                continue  # what its address was formed from is gone
            try:
                addresses = lane_addresses(wave, row)
            except FaultError:
                continue  # its registers are not in the report: nothing can be said about this instruction
            hit = tuple(lane for lane, a in addresses.items() if a // PAGE == report.page // PAGE)
            if hit:
                found.append(Suspect(wave.number, row, hit, addresses[hit[0]]))
                break
    return found
