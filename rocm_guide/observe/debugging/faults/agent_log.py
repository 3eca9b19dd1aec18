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
from dataclasses import dataclass, field

from rocm_guide.common.base import GuideError, read_regular, shown

__all__ = ["FaultError", "read_report"]


class FaultError(GuideError):
    """A report, log or code object that cannot be read."""


#: Bytes of a report or log that are read. A fault makes hundreds of kilobytes, a day of a busy kernel log some MB.
LARGEST_TEXT = 256_000_000


@dataclass(frozen=True)
class CodeLine:
    """One line of disassembly. ``offset`` counts bytes from the start of the function; ``marked`` is the wave's PC."""

    address: int
    offset: int | None
    text: str
    marked: bool = False


@dataclass
class Disassembly:
    """The code around a wave's program counter.

    ``uri`` names the code object; ``loaded`` is the address range it occupies, so that ``pc - loaded[0]`` is the
    address inside the file. ``source`` holds (file, line number, text) where the kernel was built with ``-ggdb``.
    """

    function: str = ""
    uri: str = ""
    loaded: tuple[int, int] | None = None
    instructions: list[CodeLine] = field(default_factory=list)
    source: list[tuple[str, int, str]] = field(default_factory=list)


@dataclass
class Wave:
    """One wavefront as the agent saw it.

    Attributes:
        number: the agent's number of the wave.
        pc: program counter. Memory faults arrive late: the instruction that faulted lies before it, immediately before
            it if the agent ran with ``--precise-memory``.
        reasons: why it stopped, for example ("MEMORY_VIOLATION",); empty when it was running.
        kernel: the kernel's name, "" when the report does not give it.
        scalars: s0, exec, vcc, … -> value.
        vectors: v0, a0, … -> one value per lane.
        local_memory: LDS in 32-bit words; ``kernargs``: the kernel's arguments in 32-bit words.
    """

    number: int
    pc: int
    reasons: tuple[str, ...] = ()
    kernel: str = ""
    entry: int | None = None
    kernargs_at: int | None = None
    scalars: dict[str, int] = field(default_factory=dict)
    vectors: dict[str, array[int]] = field(default_factory=dict)
    local_memory: array[int] = field(default_factory=lambda: array("Q"))
    kernargs: array[int] = field(default_factory=lambda: array("Q"))
    disassembly: Disassembly | None = None

    @property
    def active_lanes(self) -> list[int]:
        """The lanes that the execution mask switches on."""
        mask = self.scalars.get("exec", 0)
        return [lane for lane in range(64) if mask >> lane & 1]

    @property
    def instruction(self) -> CodeLine | None:
        """The instruction at the program counter, when the report shows it."""
        found = self.disassembly.instructions if self.disassembly else []
        return next((i for i in found if i.marked), None)


@dataclass
class AgentReport:
    """The result of :func:`read_report`: the events that triggered it, the page that was touched, the waves."""

    events: list[str] = field(default_factory=list)
    page: int | None = None
    waves: list[Wave] = field(default_factory=list)

    @property
    def faulting(self) -> list[Wave]:
        """The waves that stopped for a fault, not merely because the agent stopped everything."""
        return [w for w in self.waves if set(w.reasons) - {"NONE", "DEBUG_TRAP", "BREAKPOINT", "SINGLE_STEP"}]

    @property
    def kernel(self) -> str:
        """The name of the faulting kernel, "" when the report does not give one."""
        for wave in self.faulting or self.waves:
            if name := wave.kernel or (wave.disassembly.function if wave.disassembly else ""):
                return name
        return ""


_WAVE = re.compile(r"wave_(\d+): pc=0x([0-9a-f]+)(.*)", re.I)
_ENTRY = re.compile(r"kernel_code_entry=0x([0-9a-f]+)(?: <(.*)>)?(?:, kernargs=0x([0-9a-f]+))?\)", re.I)
_REASON = re.compile(r"\(stopped, reason: ([A-Z0-9_|]+)\)\s*$")
_REGISTER = re.compile(r"\b([a-z][a-z0-9_]{0,63}): ((?:\[\d+\] [0-9a-f]+ ?)+|[0-9a-f]+)(?=\s|$)", re.I)
_LANE = re.compile(r"\[(\d{1,9})\] ([0-9a-f]{1,16})", re.I)
_MEMORY = re.compile(r"\s*0x([0-9a-f]{1,16}):((?: [0-9a-f]{1,16})+)\s*$", re.I)
_BYTES = re.compile(r"(\d{1,9}) bytes\)")
_CODE = re.compile(r"\s*(?:(=>)\s*)?0x([0-9a-f]+)(?: <([+-]\d+)>)?:\s+(\S.*)", re.I)
#: Rows that nothing but the agent prints, and the tables that they stand in.
_ROWS = (
    (re.compile(r"\s*[a-z]\w*: \[0\] [0-9a-f]", re.I), ("registers",)),
    (_MEMORY, ("local", "kernargs")),
    (re.compile(r"\s*(?:=>\s*)?0x[0-9a-f]+ <[+-]\d+>:\s", re.I), ("code",)),
)
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
        # Of a table of memory: the address at which its next row begins, if that is known, and the one where it ends.
        self.next: int | None = None
        self.end: int | None = None

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
            if stripped in ("system registers:", "scalar registers:", "vector registers:"):
                raise self._damaged(number, f"{stripped[:-1]} before the first line of a wave")
        elif any(row.match(text) and self.part not in tables for row, tables in _ROWS):
            raise self._damaged(number, f"{stripped[:40]!r} outside its table")
        elif stripped.endswith(" registers:"):
            self._begin(number, "registers")
        elif stripped.startswith("Local memory content"):
            self._begin(number, "local", 0, stripped)
        elif stripped.startswith("Global memory (kernarg segment"):
            self._begin(number, "kernargs", self.wave.kernargs_at, stripped)
        elif stripped.startswith("Disassembly"):
            self._begin(number, "code")
            self.file = ""
            self.wave.disassembly = Disassembly(stripped[11:].removeprefix(" for function ").rstrip(":"))
        elif stripped == "End of disassembly.":
            self.part = ""
        elif self.part == "registers":
            self._registers(number, text)
        elif self.part in ("local", "kernargs"):
            if row := _MEMORY.match(text):
                self._memory(number, int(row[1], 16), row[2].split())
        elif self.part == "code":
            self._code(number, text, stripped)

    def _damaged(self, number: int, what: str) -> FaultError:
        fix = "lines are missing, doubled or out of order: take the report as the agent wrote it"
        return FaultError(f"{self.name}, line {number}: {what}; {fix}")

    def _begin(self, number: int, part: str, start: int | None = None, head: str = "") -> None:
        """Begin a table; one of memory before it has to be whole."""
        if self.next is not None and self.end is not None and self.next != self.end:
            raise self._damaged(number, f"memory ends at 0x{self.next:x}, its first line said 0x{self.end:x}")
        size = _BYTES.search(head)
        self.part, self.next = part, start
        self.end = start + int(size[1]) if start is not None and size else None

    def _memory(self, number: int, at: int, words: list[str]) -> None:
        assert self.wave is not None
        into = self.wave.local_memory if self.part == "local" else self.wave.kernargs
        if at != (self.next if self.next is not None else at) or (self.next is None and into):
            raise self._damaged(number, f"memory at 0x{at:x}, where another row was due")
        into.extend(int(word, 16) for word in words)
        self.next = at + sum(len(word) // 2 for word in words)

    def _wave(self, number: int, found: re.Match[str]) -> None:
        self._begin(number, "")
        self.wave = Wave(int(found[1][:18]), _hex(found[2], number, self.name))
        if any((w.number, w.pc) == (self.wave.number, self.wave.pc) for w in self.report.waves):
            raise self._damaged(number, f"wave_{self.wave.number} at 0x{self.wave.pc:x} once more")
        reason = _REASON.search(found[3])
        if reason:
            self.wave.reasons = tuple(r for r in reason[1].split("|") if r)
        entry = _ENTRY.search(found[3])
        if entry:
            self.wave.entry, self.wave.kernel = _hex(entry[1], number, self.name), entry[2] or ""
            self.wave.kernargs_at = _hex(entry[3], number, self.name) if entry[3] else None
        self.report.waves.append(self.wave)

    def _registers(self, number: int, text: str) -> None:
        wave = self.wave
        assert wave is not None
        for name, value in _REGISTER.findall(text):
            if value.startswith("["):
                lanes = _LANE.findall(value)
                if [int(lane) for lane, _ in lanes] != [*range(len(lanes))]:
                    raise self._damaged(number, f"{name} does not have its lanes in their order")
                found = array("Q", [int(bits, 16) for _, bits in lanes])
                if wave.vectors.setdefault(name, found) != found:
                    raise self._damaged(number, f"{name} of wave_{wave.number} once more, with other values")
            else:
                one = _hex(value, number, self.name) if len(value) <= 16 else int(value[-16:], 16)
                if wave.scalars.setdefault(name, one) != one:
                    raise self._damaged(number, f"{name} of wave_{wave.number} once more, with another value")

    def _code(self, number: int, text: str, stripped: str) -> None:
        wave = self.wave
        assert wave is not None and wave.disassembly is not None
        code = wave.disassembly
        if stripped.startswith("code object: "):
            code.uri = stripped.removeprefix("code object: ")
        elif loaded := _LOADED.match(text):
            code.loaded = _hex(loaded[1], number, self.name), _hex(loaded[2], number, self.name)
        elif found := _CODE.match(text):
            offset, at = int(found[3][:18]) if found[3] else None, _hex(found[2], number, self.name)
            if code.instructions and at <= (last := code.instructions[-1].address):
                raise self._damaged(number, f"the instruction at 0x{at:x} after that at 0x{last:x}")
            code.instructions.append(CodeLine(at, offset, found[4].rstrip(), found[1] is not None))
        elif stripped.endswith(":") and not stripped[0].isdigit():
            self.file = stripped[:-1]
        elif source := _SOURCE.match(stripped):
            # The number is padded to eight characters, the line keeps its own indentation.
            code.source.append((self.file, int(source[1]), stripped[max(8, len(source[1])) :]))


def parse_report(lines: Iterable[str], name: str = "report") -> AgentReport:
    """Read the lines of the debug agent's output, mixed with the program's own or not; ``name`` is for errors.

    Raises:
        FaultError: no wave and no fault in it, a damaged number, or lines that contradict others: missing, doubled or
            out of order.

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
        fix = "run the program with HSA_TOOLS_LIB set to the debug agent"
        raise FaultError(f"{name}: neither a wave nor a fault in it; {fix}")
    return reader.report


def read_report(path: str | os.PathLike[str]) -> AgentReport:
    """Read a report from a file; see :func:`parse_report`.

    Raises:
        FaultError: missing, or not a report.
    """
    return parse_report(read_lines(path), str(path))


def read_lines(path: str | os.PathLike[str]) -> list[str]:
    """Return the lines of a report or a log.

    Raises:
        FaultError: it cannot be read.
    """
    try:
        return read_regular(path, LARGEST_TEXT).decode("utf-8", "replace").split("\n")
    except OSError as e:
        fix = "check the path; a kernel log is to be had by sudo dmesg > dmesg.txt"
        raise FaultError(f"{path}: cannot be read ({e.strerror or e}); {fix}") from e
