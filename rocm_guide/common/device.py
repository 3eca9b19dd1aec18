# SPDX-License-Identifier: MIT
"""The accelerator of this machine: its time, memory and seed. The same calls work on CPU, CUDA, ROCm."""

from __future__ import annotations

import os
import platform
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

from rocm_guide.common.base import GuideError
from rocm_guide.common.host import cores, cpu_model, memory_available

__all__ = [
    "Accelerator",
    "PeakMemory",
    "Timing",
    "accelerator",
    "clock",
    "free_memory",
    "peak_memory",
    "pick_dtype",
    "seed_all",
    "time_call",
]


@dataclass(frozen=True)
class Accelerator:
    """The device that the cells of a notebook run on.

    Attributes:
        kind: "cpu", "cuda" (NVIDIA) or "rocm" (AMD; torch still calls its devices "cuda").
        device: the torch device string, "cpu" or "cuda".
        name: the product's name, as the driver gives it; the CPU's model.
        arch: "gfx942", "sm_90", … ; the processor architecture on a CPU.
        count: how many such devices torch sees.
        memory_bytes: memory of one device (of the machine on a CPU).
    """

    kind: Literal["cpu", "cuda", "rocm"]
    device: str
    name: str
    arch: str
    count: int
    memory_bytes: int

    @property
    def is_gpu(self) -> bool:
        """Return whether this is a GPU."""
        return self.kind != "cpu"

    def label(self) -> str:
        """Return one line for plots and reports, for example ``CPU AMD EPYC 9654 Processor, 2 cores, torch 2.13.0``."""
        import torch

        version = torch.__version__.split("+")[0]
        if not self.is_gpu:
            return f"CPU {self.name}, {self.count} core{'s' if self.count > 1 else ''}, torch {version}"
        many = f"{self.count} x " if self.count > 1 else ""
        return f"{many}{self.name} ({self.arch}), torch {version}"


def accelerator() -> Accelerator:
    """Return the best device of this machine: a ROCm or CUDA GPU if torch sees one, else the CPU.

    >>> accelerator().kind in {"cpu", "cuda", "rocm"}
    True
    """
    import torch

    if torch.cuda.is_available():
        props = torch.cuda.get_device_properties(0)
        rocm = torch.version.hip is not None
        arch = props.gcnArchName.split(":")[0] if rocm else "sm_{}{}".format(*torch.cuda.get_device_capability(0))
        kind: Literal["cuda", "rocm"] = "rocm" if rocm else "cuda"
        return Accelerator(kind, "cuda", props.name, arch, torch.cuda.device_count(), props.total_memory)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
    return Accelerator("cpu", "cpu", cpu_model(), platform.machine(), cores(), memory)


def free_memory(device: str | None = None) -> int:
    """Return the bytes that a new tensor could take on a device; of the host on a CPU, container limits included.

    On a GPU what torch holds back for tensors to come counts as free.

    >>> free_memory("cpu") > 0
    True
    """
    import torch

    if not (device or accelerator().device).startswith("cuda"):
        return memory_available()[0]
    held_back = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0] + held_back)


def pick_dtype(device: str | None = None) -> torch.dtype:
    """Return bfloat16 where the device computes it fast, else float16 on older GPUs and float32 on a CPU.

    bfloat16 keeps float32's range, so training needs no loss scaling. On a CPU without matrix units for it, bfloat16
    is several times slower than float32.

    >>> pick_dtype("cpu")
    torch.float32
    """
    import torch

    if (device or accelerator().device).startswith("cpu"):
        return torch.float32
    # Without the argument torch also says yes where it emulates bfloat16, slowly (NVIDIA GPUs before Ampere).
    return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16


def seed_all(seed: int) -> None:
    """Seed Python, NumPy and torch (all devices), so that a run can be repeated."""
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


@dataclass(frozen=True)
class Timing:
    """Seconds of repeated calls: the median, and half the distance between the quartiles as the spread."""

    median: float
    spread: float
    runs: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Timing:
        """Return the median and spread of measured values, seconds or a rate; one value has no spread.

        >>> Timing.of([3.0, 1.0, 2.0, 5.0, 4.0])
        Timing(median=3.0, spread=1.5, runs=5)
        """
        quartiles = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
        return cls(statistics.median(values), (quartiles[2] - quartiles[0]) / 2, len(values))

    def __str__(self) -> str:
        return f"{self.median * 1e3:.3f} ms ± {self.spread * 1e3:.3f} (median of {self.runs})"


def clock(device: str | None = None) -> float:
    """Return the seconds of a clock that never goes back, read when all work queued on the device is done.

    A GPU answers before it has computed; a clock read without waiting measures how fast Python asks.

    Args:
        device: "cpu", "cuda" or "cuda:1"; None waits for the GPU if there is one.

    >>> began = clock("cpu")
    >>> clock("cpu") >= began
    True
    """
    if device is None or not device.startswith("cpu"):
        import torch

        if torch.cuda.is_available():
            torch.cuda.synchronize(device)
    return time.perf_counter()


def time_call(
    fn: Callable[[], object],
    *,
    runs: int = 20,
    warmup: int = 3,
    device: str | None = None,
    before: Callable[[], object] = lambda: None,
) -> Timing:
    """Time ``fn()``: ``warmup`` calls thrown away, then ``runs`` calls, each waited for. ``before()`` is called before
    each, and its time is left out.

    On a GPU, work is queued and the Python call returns at once, so each run is bracketed by device events.

    Raises:
        GuideError: runs is not positive or warmup is negative.

    >>> time_call(lambda: sum(range(1000)), runs=5, device="cpu").median > 0
    True
    """
    import torch

    if runs < 1 or warmup < 0:
        raise GuideError(f"runs={runs}, warmup={warmup}: give at least one run and no negative warm-up")
    gpu = (device or accelerator().device).startswith("cuda")
    if not gpu:
        # Freed at once: from now on glibc keeps what is freed, up to twice this, and no call pays for new pages.
        torch.empty(16 << 20, dtype=torch.uint8)
    for _ in range(warmup):
        before()
        fn()
    seconds = []
    for _ in range(runs):
        before()
        if gpu:
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda.synchronize()
            start.record()
            fn()
            end.record()
            end.synchronize()
            seconds.append(start.elapsed_time(end) / 1e3)
        else:
            began = clock("cpu")
            fn()
            seconds.append(clock("cpu") - began)
    return Timing.of(seconds)


@dataclass
class PeakMemory:
    """The highest memory use inside a :func:`peak_memory` block, filled in at its end, and what it is a measure of."""

    bytes: int = 0
    what: str = ""


@contextmanager
def peak_memory(device: str | None = None) -> Iterator[PeakMemory]:
    """Measure the peak memory of a block: device memory that torch allocated on a GPU, else this process's own.

    On a CPU the kernel's high-water mark is reset first where Linux allows it; where it does not (some containers)
    the figure is the peak since the process began and ``what`` says so.

    >>> with peak_memory("cpu") as peak:
    ...     _ = bytearray(10_000_000)
    >>> peak.bytes > 10_000_000
    True
    """
    import torch

    peak = PeakMemory()
    if (device or accelerator().device).startswith("cuda"):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        try:
            yield peak
        finally:
            torch.cuda.synchronize()
            peak.bytes, peak.what = torch.cuda.max_memory_allocated(), "device memory allocated by torch"
        return
    peak.what = "resident memory of this process"
    try:
        with open("/proc/self/clear_refs", "w") as f:
            f.write("5")
    except OSError:
        peak.what += ", since it began"
    try:
        yield peak
    finally:
        peak.bytes = _resident_peak()


def _resident_peak() -> int:
    """Return the peak resident bytes of this process: VmHWM on Linux, getrusage elsewhere."""
    try:
        with open("/proc/self/status") as f:
            for line in f:
                if line.startswith("VmHWM"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass  # not Linux: getrusage below
    import resource

    scale = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
