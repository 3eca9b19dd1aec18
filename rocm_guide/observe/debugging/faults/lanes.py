# SPDX-License-Identifier: MIT
"""The addresses that each lane of a wave touched: the step from "this kernel faulted" to "this index was wrong".

A memory instruction names registers, the report holds their values; together they give the address of every lane.
"""

from __future__ import annotations

from dataclasses import dataclass

from cdna.isa.operands import address_of, span_of, written_registers
from rocm_guide.observe.debugging.faults.model import AgentReport, CodeLine, FaultError, Wave

__all__ = ["lane_addresses"]

PAGE = 4096


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


def lane_addresses(wave: Wave, text: str) -> dict[int, int]:
    """Return the address that each active lane forms for a load, store or atomic.

    Covers global (64-bit vector address, or scalar base + 32-bit vector offset), flat, and buffer with ``offen``.
    The registers are those at the stop: if code between the access and the stop has overwritten an address register,
    the result is wrong, so look at the instructions in between.

    Args:
        wave: with its registers.
        text: the instruction as a disassembler prints it.

    Returns:
        lane -> byte address; empty when the instruction is no memory access.

    Raises:
        FaultError: a register that the instruction names is missing in the report.

    Source: "MUBUF", "FLAT, GLOBAL and SCRATCH" in the AMD Instinct MI300 ISA reference
    (https://www.amd.com/content/dam/amd/en/documents/instinct-tech-docs/instruction-set-architectures/amd-instinct-mi300-cdna3-instruction-set-architecture.pdf).

    >>> from array import array
    >>> w = Wave(0, 0, scalars={"exec": 0b11, "s2": 0x1000, "s3": 0x7F}, vectors={"v0": array("Q", [0, 8])})
    >>> load = "global_load_dword v1, v0, s[2:3] offset:4"
    >>> {lane: hex(address) for lane, address in lane_addresses(w, load).items()}
    {0: '0x7f00001004', 1: '0x7f0000100c'}
    """
    address = address_of(*_split(text))
    if address is None or (vector := span_of(address.lanes)) is None or vector[0] != "v":
        return {}
    lanes = _vector(wave, vector[1], vector[2])
    base = 0
    scalar = span_of(address.base)
    if scalar and scalar[0] == "s":
        base = _scalar(wave, scalar[1], min(scalar[2], scalar[1] + 1))
        if address.form == "buffer":
            base &= (1 << 48) - 1  # the upper 16 bits of a buffer's descriptor are its stride
    if extra := span_of(address.extra):
        base += _scalar(wave, extra[1], extra[1])
    elif address.extra.isdigit():
        base += int(address.extra)
    mask = (1 << 64) - 1
    return {lane: (lanes[lane] + base + address.offset) & mask for lane in wave.active_lanes if lane < len(lanes)}


def _split(text: str) -> tuple[str, str]:
    """Return mnemonic and operands."""
    op, _, args = text.strip().partition(" ")
    return op, args


@dataclass(frozen=True)
class Suspect:
    """A memory instruction at or before a stopped wave's program counter, and the lanes that touched the page."""

    wave: int
    instruction: CodeLine
    lanes: tuple[int, ...]
    first_address: int


def suspects(report: AgentReport, code: dict[int, list[CodeLine]] | None = None) -> list[Suspect]:
    """Return the memory instructions whose lanes touch the faulting page, nearest to the program counter first.

    An access whose address registers were written again before the wave stopped is left out: its addresses are lost.
    "Before" is the order of addresses, which is the order of execution as long as no branch lies in between.

    Args:
        report: with a faulting page.
        code: wave number -> instructions up to its PC, from
        :func:`~rocm_guide.observe.debugging.faults.code_objects.disassemble`; the report's
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
            op, args = _split(row.text)
            address = address_of(op, args)
            overwritten = address and later & address.registers
            later.update(written_registers(op, args))
            if address is None or overwritten:
                continue  # no access, or what its address was formed from is gone
            try:
                addresses = lane_addresses(wave, row.text)
            except FaultError:
                continue  # its registers are not in the report: nothing can be said about this instruction
            hit = tuple(lane for lane, a in addresses.items() if a // PAGE == report.page // PAGE)
            if hit:
                found.append(Suspect(wave.number, row, hit, addresses[hit[0]]))
                break
    return found
