# SPDX-License-Identifier: MIT
"""Read the report of the ROCm debug agent: which kernel faulted, at which instruction, with what in its registers.

The agent prints every register of every stopped wave: hundreds of kilobytes for one fault. What triages a crash is a
handful of lines of it, and :func:`read_report` turns the whole into objects that can be asked for them.
"""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Iterable

from rocm_guide.common.base import read_regular, shown
from rocm_guide.observe.debugging.faults.model import LARGEST_TEXT, AgentReport, CodeLine, Disassembly, FaultError, Wave

__all__ = ["read_report"]


_WAVE = re.compile(r"wave_(\d+): pc=0x([0-9a-f]+)(.*)", re.I)
_ENTRY = re.compile(r"kernel_code_entry=0x([0-9a-f]+)(?: <(.*)>)?(?:, kernargs=0x([0-9a-f]+))?\)", re.I)
_REASON = re.compile(r"\(stopped, reason: ([A-Z0-9_|]+)\)\s*$")
_REGISTER = re.compile(r"\b([a-z][a-z0-9_]{0,63}): ((?:\[\d+\] [0-9a-f]+ ?)+|[0-9a-f]+)(?=\s|$)", re.I)
_LANE = re.compile(r"\[\d+\] ([0-9a-f]{1,16})", re.I)
_MEMORY = re.compile(r"\s*0x[0-9a-f]+:((?: [0-9a-f]{1,16})+)\s*$", re.I)
_CODE = re.compile(r"\s*(?:(=>)\s*)?0x([0-9a-f]+)(?: <([+-]\d+)>)?:\s+(\S.*)", re.I)
_LOADED = re.compile(r"\s*loaded at: \[0x([0-9a-f]+)-0x([0-9a-f]+)\]", re.I)
_SOURCE = re.compile(r"(\d{1,9})(?: {2}|$)")
_PAGE = re.compile(r"Faulting page: 0x([0-9a-f]+)", re.I)
_ACCESS = re.compile(r"Memory access fault by GPU node-\d{1,4} .{0,200}?on address (?:0x([0-9a-f]+)|\(nil\))", re.I)
_WIDEST = 1 << 64


def _hex(text: str, line: int, name: str) -> int:
    value = int(text, 16)
    if value >= _WIDEST:
        raise FaultError(f"{name}, line {line}: 0x{text[:40]} has more than 64 bits; the report is damaged")
    return value


class _Reader:
    """A reader that goes over the lines once; ``part`` says which table the current line can belong to."""

    def __init__(self, name: str) -> None:
        self.name, self.report, self.part = name, AgentReport(), ""
        self.wave: Wave | None = None
        self.file = ""

    def line(self, number: int, text: str) -> None:
        text = text.rstrip("\r\n")
        if not text.isprintable():  # the names in it come from a program that went wrong
            text = shown(text.expandtabs(), len(text) * 8)
        stripped = text.strip()
        if stripped.startswith(("Queue error (", "System event (")):
            self.report.events.append(stripped)
        elif (access := _ACCESS.search(stripped)) and self.wave is None:
            self.report.events.append(stripped)
            self.report.page = _hex(access[1] or "0", number, self.name)
        elif page := _PAGE.match(stripped):
            self.report.page = _hex(page[1], number, self.name)
        elif wave := _WAVE.match(stripped):
            self._wave(number, wave)
        elif self.wave is None:
            return
        elif stripped.endswith(" registers:"):
            self.part = "registers"
        elif stripped.startswith("Local memory content"):
            self.part = "local"
        elif stripped.startswith("Global memory (kernarg segment"):
            self.part = "kernargs"
        elif stripped.startswith("Disassembly"):
            self.part, self.file = "code", ""
            self.wave.disassembly = Disassembly(stripped[11:].removeprefix(" for function ").rstrip(":"))
        elif stripped == "End of disassembly.":
            self.part = ""
        elif self.part == "registers":
            self._registers(number, text)
        elif self.part in ("local", "kernargs"):
            words = _MEMORY.match(text)
            if words:
                into = self.wave.local_memory if self.part == "local" else self.wave.kernargs
                into.extend(int(word, 16) for word in words[1].split())
        elif self.part == "code":
            self._code(number, text, stripped)

    def _wave(self, number: int, found: re.Match[str]) -> None:
        self.wave = Wave(int(found[1][:18]), _hex(found[2], number, self.name))
        reason = _REASON.search(found[3])
        if reason:
            self.wave.reasons = tuple(r for r in reason[1].split("|") if r)
        entry = _ENTRY.search(found[3])
        if entry:
            self.wave.entry, self.wave.kernel = _hex(entry[1], number, self.name), entry[2] or ""
            self.wave.kernargs_at = _hex(entry[3], number, self.name) if entry[3] else None
        self.report.waves.append(self.wave)
        self.part = ""

    def _registers(self, number: int, text: str) -> None:
        wave = self.wave
        assert wave is not None
        for name, value in _REGISTER.findall(text):
            if value.startswith("["):
                wave.vectors[name] = array("Q", [int(lane, 16) for lane in _LANE.findall(value)])
            else:
                wave.scalars[name] = _hex(value, number, self.name) if len(value) <= 16 else int(value[-16:], 16)

    def _code(self, number: int, text: str, stripped: str) -> None:
        wave = self.wave
        assert wave is not None and wave.disassembly is not None
        code = wave.disassembly
        if stripped.startswith("code object: "):
            code.uri = stripped.removeprefix("code object: ")
        elif loaded := _LOADED.match(text):
            code.loaded = _hex(loaded[1], number, self.name), _hex(loaded[2], number, self.name)
        elif found := _CODE.match(text):
            offset = int(found[3][:18]) if found[3] else None
            code.instructions.append(
                CodeLine(_hex(found[2], number, self.name), offset, found[4].rstrip(), found[1] is not None)
            )
        elif stripped.endswith(":") and not stripped[0].isdigit():
            self.file = stripped[:-1]
        elif source := _SOURCE.match(stripped):
            # The number is padded to eight characters, the line keeps its own indentation.
            code.source.append((self.file, int(source[1]), stripped[max(8, len(source[1])) :]))


def parse_report(lines: Iterable[str], name: str = "report") -> AgentReport:
    """Read the debug agent's output, mixed with the program's own or not.

    Args:
        lines: the text, line by line.
        name: what to call it in an error.

    Raises:
        FaultError: no wave and no fault in it, or a damaged number.

    Source: ROCR Debug Agent user guide,
    https://rocm.docs.amd.com/projects/rocr_debug_agent/en/latest/how-to/user-guide.html.

    >>> report = parse_report('''
    ... System event (HSA_AMD_GPU_MEMORY_FAULT_EVENT: page not present or supervisor privilege)
    ... Faulting page: 0x7fbe4cc01000
    ... --------------------------------------------------------
    ... wave_0: pc=0x7fbe4cc0d0b4 (stopped, reason: MEMORY_VIOLATION)
    ... system registers:
    ...         exec: 000000000000000f           vcc: 0000000000000000
    ... '''.splitlines())
    >>> hex(report.page), report.waves[0].reasons, report.waves[0].active_lanes
    ('0x7fbe4cc01000', ('MEMORY_VIOLATION',), [0, 1, 2, 3])
    """
    reader = _Reader(name)
    for number, line in enumerate(lines, 1):
        reader.line(number, line)
    if not reader.report.waves and reader.report.page is None and not reader.report.events:
        raise FaultError(
            f"{name}: neither a wave nor a fault in it; run the program with HSA_TOOLS_LIB set to the debug agent"
        )
    return reader.report


def read_report(path: str | os.PathLike[str]) -> AgentReport:
    """Read a report from a file; see :func:`parse_report`.

    Raises:
        FaultError: missing, or not a report.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from rocm_guide.observe.debugging.examples import fault_sample
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report = read_report(fault_sample(Path(folder))[0])
    >>> report.kernel, report.faulting[0].reasons
    ('scale_rows', ('MEMORY_VIOLATION',))
    """
    try:
        return parse_report(read_regular(path, LARGEST_TEXT).decode("utf-8", "replace").split("\n"), str(path))
    except OSError as e:
        raise FaultError(f"{path}: cannot be read ({e.strerror or e}); check the path") from e
