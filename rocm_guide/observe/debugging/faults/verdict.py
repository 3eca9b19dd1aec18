# SPDX-License-Identifier: MIT
"""The short answer to a long report: which kernel, which instruction, which lanes, which addresses."""

from __future__ import annotations

import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cdna.isa.operands import address_of, span_of, written_registers
from rocm_guide.observe.debugging.faults.agent_log import AgentReport, CodeLine, FaultError, Wave
from rocm_guide.observe.debugging.faults.code_objects import Listing, disassemble, extract_code, printed_listing

__all__ = ["explain_report", "lane_addresses"]

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
        code: wave number -> instructions up to its PC; for a wave that is not in it the report's own disassembly.

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


@dataclass(frozen=True)
class Explanation:
    """The result of :func:`explain_report`.

    Attributes:
        kernel: its name, "" when neither the report nor the code object tells.
        events: what triggered the report; ``page`` the page that was touched, None if it was no memory fault.
        faulting, stopped: how many waves faulted, and how many the report shows.
        uri: the code object of the first faulting wave.
        suspects: memory accesses that hit the page, nearest to the program counter first.
        notes: what could not be found out, and what would help.
    """

    kernel: str
    events: tuple[str, ...]
    page: int | None
    faulting: int
    stopped: int
    reasons: tuple[str, ...]
    uri: str
    suspects: tuple[Suspect, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for ``--json``."""
        return asdict(self)

    def text(self) -> str:
        """Return a few lines for a reader."""
        reasons = ", ".join(self.reasons) or "no reason given"
        lines = [*self.events, f"kernel: {self.kernel or 'not named'}"]
        lines.append(f"waves: {self.faulting} faulted ({reasons}) of {self.stopped}")
        if self.uri:
            lines.append(f"code object: {self.uri}")
        for s in self.suspects[:8]:
            lanes = f"lanes {s.lanes[0]}-{s.lanes[-1]}" if len(s.lanes) > 1 else f"lane {s.lanes[0]}"
            where = f" at +{s.instruction.offset}" if s.instruction.offset is not None else ""
            lines.append(f"wave_{s.wave}: {s.instruction.text}{where}: {lanes}, from {s.first_address:#x}")
        return "\n".join([*lines, *(f"note: {n}" for n in self.notes)])


def explain_report(report: AgentReport, *, folder: str | os.PathLike[str] | None = None) -> Explanation:
    """Go from a report to the memory access behind it.

    Args:
        report: from :func:`~rocm_guide.observe.debugging.faults.agent_log.read_report`.
        folder: where ``--save-code-objects`` wrote, or where the program lies: nothing outside it is opened, whatever
            the report names. Or one file: what ``llvm-objdump --disassemble`` printed of the code object, which is
            enough by itself. With either, the instructions before the program counter
            are known; without ``-ggdb`` the report itself begins at the counter, behind the access.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from rocm_guide.observe.debugging.faults.agent_log import read_report
    >>> from rocm_guide.observe.debugging.examples import fault_sample
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log, code = fault_sample(Path(folder))
    ...     found = explain_report(read_report(log), folder=code)
    >>> found.kernel, hex(found.page), found.faulting, found.stopped
    ('scale_rows', '0x7f1e40019000', 1, 3)
    """
    notes: list[str] = []
    code: dict[int, list[CodeLine]] = {}
    kernel = report.kernel
    listings: dict[tuple[str, int], list[CodeLine]] = {}
    for wave in report.faulting:
        block = wave.disassembly
        if block is None or not block.uri or block.loaded is None:
            continue
        key = block.uri, wave.pc - block.loaded[0]
        try:
            if key not in listings:
                found = _code(block.uri, key[1], folder)
                name = _function(found.functions, found.instructions, found.at)
                if name and re.fullmatch(r"\w+", kernel) and name != kernel:
                    at = f"{key[1]:#x}"
                    raise FaultError(f"the code at {at} is of {name}, the report's of {kernel}; pass its own code")
                listings[key] = list(found.instructions)
                kernel = kernel or name
            code[wave.number] = listings[key]
        except FaultError as e:
            if str(e) not in notes:
                notes.append(str(e))
    hits: list[Suspect] = []
    if report.page is not None:
        hits = suspects(report, code)
        if not hits and report.faulting and not code:
            notes.append("the instructions before the program counter are not known, so no access can be named")
        elif not hits and report.faulting:
            notes.append(
                "no access of a stopped wave hits the page: its address register was overwritten since, or the wave "
                "has ended; run again with ROCM_DEBUG_AGENT_OPTIONS=--precise-memory"
            )
    if not report.faulting:
        notes.append("no wave stopped for a fault; was the report made by SIGQUIT, or for a queue error?")
    reasons = tuple(sorted({r for w in report.faulting for r in w.reasons}))
    uri = next((w.disassembly.uri for w in report.faulting if w.disassembly and w.disassembly.uri), "")
    waves = len(report.faulting), len(report.waves)
    return Explanation(kernel, tuple(report.events), report.page, *waves, reasons, uri, tuple(hits), tuple(notes))


def _code(uri: str, pc: int, folder: str | os.PathLike[str] | None) -> Listing:
    """Return the code behind a URI: of the saved code object, or of what was printed of it, if that is all there is."""
    printed = printed_listing(uri, folder) if folder is not None else None
    try:
        file = extract_code(uri, folder=folder, only_below=True) if folder is None or Path(folder).is_dir() else b""
    except FaultError:
        if printed is None:
            raise
        file = b""
    return disassemble(file, pc=pc, printed=printed)


def _function(names: tuple[str, ...], rows: tuple[CodeLine, ...], at: int | None) -> str:
    """Return the name of the function that holds the marked instruction: one starts wherever an offset is 0."""
    if at is None:
        return ""
    number = sum(1 for row in rows[: at + 1] if row.offset == 0)
    return names[number - 1] if 0 < number <= len(names) else ""
