# SPDX-License-Identifier: MIT
"""CPU time, and the time that processes waited for it: on a busy machine everything takes longer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = []

#: Below this share of what was asked for, a run is told to have been starved. Two notebooks on two quiet cores get over
#: 0.8, since one of them starts processes of its own.
STARVED = 0.6


@dataclass(frozen=True)
class CpuTime:
    """Seconds for which a process ran on a core, and seconds for which it was ready to run and had none.

    >>> (CpuTime(3.0, 1.0) + CpuTime(1.0, 3.0)).share
    0.5
    """

    ran: float = 0.0
    waited: float = 0.0

    def __add__(self, other: CpuTime) -> CpuTime:
        return CpuTime(self.ran + other.ran, self.waited + other.waited)

    @property
    def share(self) -> float:
        """Return the part that it got of the processor time that it asked for; 1 where nothing is known."""
        return self.ran / (self.ran + self.waited) if self.ran else 1.0


def cpu_time(pid: int | str = "self", root: Path = Path("/proc")) -> CpuTime:
    """Return the time of a process's main thread, in which notebooks and tests do their work;
    zeros where Linux does not say.

    Source: Documentation/scheduler/sched-stats.rst of Linux: ``/proc/<pid>/schedstat`` holds nanoseconds on the CPU,
    nanoseconds in the queue of those that are ready to run, and time slices.

    >>> cpu_time().waited >= 0
    True
    """
    try:
        words = (root / str(pid) / "schedstat").read_text().split()
        return CpuTime(int(words[0]) / 1e9, int(words[1]) / 1e9)
    except (OSError, ValueError, IndexError):
        return CpuTime()


def busy_note(total: CpuTime, what: str = "notebooks") -> str:
    """Return one line when ``what`` was starved of processor time; otherwise nothing.

    >>> busy_note(CpuTime(60, 140))
    'the machine was busy: the notebooks got 30 % of the processor time that they asked for; they were slowed down'
    >>> busy_note(CpuTime(60, 20))
    ''
    """
    if total.share >= STARVED:
        return ""
    return (
        f"the machine was busy: the {what} got {100 * total.share:.0f} % of the processor time that they asked for; "
        "they were slowed down"
    )
