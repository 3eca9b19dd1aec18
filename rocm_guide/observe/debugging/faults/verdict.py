# SPDX-License-Identifier: MIT
"""The short answer to a long report: which kernel, which instruction, which lanes, which addresses."""

from __future__ import annotations

import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rocm_guide.observe.debugging.faults.code_objects import (
    Listing,
    disassemble,
    extract_code,
    printed_listing,
)
from rocm_guide.observe.debugging.faults.lanes import Suspect, suspects
from rocm_guide.observe.debugging.faults.model import AgentReport, CodeLine, FaultError

__all__ = ["explain_report"]


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
        lines = [*self.events]
        lines.append(f"kernel: {self.kernel or 'not named'}")
        lines.append(
            f"waves: {self.faulting} faulted ({', '.join(self.reasons) or 'no reason given'}) of {self.stopped}"
        )
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
                    raise FaultError(
                        f"the code at {key[1]:#x} is of {name}, the report's of {kernel}; pass its own code"
                    )
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
    first = next((w.disassembly.uri for w in report.faulting if w.disassembly and w.disassembly.uri), "")
    return Explanation(
        kernel=kernel,
        events=tuple(report.events),
        page=report.page,
        faulting=len(report.faulting),
        stopped=len(report.waves),
        reasons=reasons,
        uri=first,
        suspects=tuple(hits),
        notes=tuple(notes),
    )


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
