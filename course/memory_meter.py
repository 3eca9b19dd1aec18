# SPDX-License-Identifier: MIT
"""Peak memory, of the host and of its GPUs, and processor time of the processes that a notebook starts."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from course.cpu_time import CpuTime, cpu_time
from rocm_guide.observe.doctor.software import gpu_nodes

__all__ = []


class MemoryMeter:
    """Peak memory and processor time of every process below this one (kernels and what they start).

    They are looked at ten times a second; memory of a GPU twice a second, where there is one.

    One process counts with its resident memory; several with their proportional share, so that pages which forked
    processes have in common are not counted twice. The kernel goes through all pages of a process for that, ten
    milliseconds for a large one: it is asked where the resident memory has grown, and else once in ten looks.

    >>> import subprocess, sys
    >>> with MemoryMeter(0.01) as meter:
    ...     _ = subprocess.run([sys.executable, "-c", "import time; time.sleep(0.3)"])
    >>> meter.peak > 2**20
    True
    """

    def __init__(self, interval: float = 0.1, *, gpu: Callable[[Collection[int]], int | None] | None = None) -> None:
        self.peak = 0
        #: Bytes on GPUs; None where there is no GPU, or its driver does not tell.
        self.gpu_peak: int | None = None
        self.interval = interval
        self._resident, self._looks = 0, 0  # the most of all processes together, and the looks since their shares
        self._gpu = gpu or (gpu_memory if gpu_nodes() else None)
        self._times: dict[tuple[int, float], CpuTime] = {}
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._watch, daemon=True)]
        if self._gpu is not None:  # apart: a command that takes its time must not hold up the other
            self._threads.append(threading.Thread(target=self._watch_gpu, daemon=True))

    def __enter__(self) -> MemoryMeter:
        """Begin to measure."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop measuring; ``peak`` and ``gpu_peak`` hold bytes."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    @property
    def cpu(self) -> CpuTime:
        """Seconds of all those processes on a core, and waiting for one."""
        return sum(self._times.values(), CpuTime())

    def look(self, *, often: bool = False) -> None:
        """Look once, now: at the end of a cell, say, before its kernel goes away.

        Args:
            often: it is one of many looks, and shares that have hardly changed may be passed over.
        """
        import psutil

        resident = {}
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):  # it ended while we were looking
                self._times[process.pid, process.create_time()] = cpu_time(process.pid)
                resident[process] = process.memory_info().rss
        total = sum(resident.values())
        if len(resident) > 1:
            self._looks += 1
            if often and total <= self._resident and self._looks < 10:
                return
            self._resident, self._looks, total = max(self._resident, total), 0, 0
            for process in resident:
                with suppress(psutil.Error):
                    total += _share(process)
        self.peak = max(self.peak, total)

    def _watch(self) -> None:
        while not self._over.wait(self.interval):
            self.look(often=True)

    def look_at_gpus(self) -> None:
        """Look once at the memory of the GPUs, now."""
        import psutil

        held = self._gpu({p.pid for p in psutil.Process().children(recursive=True)}) if self._gpu else None
        if held is not None:
            self.gpu_peak = max(self.gpu_peak or 0, held)

    def _watch_gpu(self) -> None:
        while not self._over.wait(5 * self.interval):
            self.look_at_gpus()


def _share(process: Any) -> int:
    full = process.memory_full_info()
    return getattr(full, "pss", 0) or full.rss


def gpu_memory(
    pids: Collection[int], *, kfd: Path = Path("/sys/class/kfd/kfd/proc"), smi: str = "nvidia-smi"
) -> int | None:
    """Return the bytes of GPU memory that processes hold now, by the driver's count; None where no driver tells.

    Args:
        pids: the processes.
        kfd: where AMD's driver shows them, a folder for each with a file ``vram_<GPU>`` of bytes.
        smi: NVIDIA's command, asked where there is no such folder.
    """
    if kfd.is_dir():
        return sum(_number(file) for pid in pids for file in (kfd / str(pid)).glob("vram_*"))
    if shutil.which(smi) is None:
        return None
    command = [smi, "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        return None
    rows = [[word.strip() for word in line.split(",")] for line in done.stdout.splitlines()]
    # "[N/A]" where the driver does not say, as in some containers.
    told = [(int(r[0]), int(r[1])) for r in rows if len(r) == 2 and r[0].isdigit() and r[1].isdigit()]
    return sum(mib for pid, mib in told if pid in pids) << 20


def _number(file: Path) -> int:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return 0  # the process has just ended
