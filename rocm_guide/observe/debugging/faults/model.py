# SPDX-License-Identifier: MIT
"""The parts of a fault report: waves, their registers, the code around their program counters."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from rocm_guide.common.base import GuideError

__all__ = ["FaultError"]


class FaultError(GuideError):
    """A report, log or code object that cannot be read.

    >>> raise FaultError("run.log: no wave in it; set HSA_TOOLS_LIB to the debug agent")
    Traceback (most recent call last):
        ...
    rocm_guide.observe.debugging.faults.model.FaultError: run.log: no wave in it; set HSA_TOOLS_LIB to the debug agent
    """


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
    """The result of :func:`~rocm_guide.observe.debugging.faults.agent_log.read_report`: the events that triggered it,
    the page that was touched, the waves.
    """

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
