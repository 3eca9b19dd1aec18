# SPDX-License-Identifier: MIT
"""Peak memory and processor time of the processes that a notebook starts."""

from __future__ import annotations

import threading
from typing import Any

from rocm_guide.course.cpu_time import CpuTime, cpu_time

__all__ = []


class MemoryMeter:
    """Peak memory and processor time of every process below this one (kernels and what they start).

    They are looked at ten times a second.

    One process counts with its resident memory; several with their proportional share, so that pages which forked
    processes have in common are not counted twice.

    >>> import subprocess, sys
    >>> with MemoryMeter(0.01) as meter:
    ...     _ = subprocess.run([sys.executable, "-c", "import time; time.sleep(0.3)"])
    >>> meter.peak > 2**20
    True
    """

    def __init__(self, interval: float = 0.1) -> None:
        self.peak = 0
        self.interval = interval
        self._times: dict[tuple[int, float], CpuTime] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> MemoryMeter:
        """Begin to measure."""
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop measuring; ``peak`` holds bytes."""
        self._over.set()
        self._thread.join()

    @property
    def cpu(self) -> CpuTime:
        """Seconds of all those processes on a core, and waiting for one."""
        return sum(self._times.values(), CpuTime())

    def look(self) -> None:
        """Look once, now: at the end of a cell, say, before its kernel goes away."""
        import psutil

        below = psutil.Process().children(recursive=True)
        total = 0
        for process in below:
            try:
                self._times[process.pid, process.create_time()] = cpu_time(process.pid)
                total += process.memory_info().rss if len(below) == 1 else _share(process)
            except psutil.Error:
                continue  # it ended while we were looking
        self.peak = max(self.peak, total)

    def _watch(self) -> None:
        while not self._over.wait(self.interval):
            self.look()


def _share(process: Any) -> int:
    full = process.memory_full_info()
    return getattr(full, "pss", 0) or full.rss
