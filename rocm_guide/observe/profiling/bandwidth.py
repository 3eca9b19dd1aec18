# SPDX-License-Identifier: MIT
"""Memory bandwidth of the machine at hand: read, write, copy and triad, on a CPU or a GPU.

The four streams bound every kernel that computes little.
Source of the streams: J. McCalpin, "STREAM: Sustainable Memory Bandwidth", https://www.cs.virginia.edu/stream/.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from rocm_guide.common.base import GuideError
from rocm_guide.common.device import Timing, time_call

__all__ = ["measure_bandwidth"]

#: Stream -> arrays that it reads, arrays that it writes.
STREAMS = {"read": (1, 0), "write": (0, 1), "copy": (1, 1), "triad": (2, 1)}


@dataclass(frozen=True)
class Bandwidth:
    """One stream's result. ``bytes`` is what the algorithm must move; a cache may move more (a CPU's write does)."""

    stream: str
    array_bytes: int
    bytes: int
    timing: Timing

    @property
    def gb_s(self) -> float:
        """Gigabytes (10^9) per second at the median time."""
        return self.bytes / self.timing.median / 1e9

    @property
    def spread_gb_s(self) -> float:
        """Half the interquartile range in the same unit."""
        return self.gb_s * self.timing.spread / self.timing.median


def _torch_streams(n: int, device: str) -> dict[str, Callable[[], object]]:
    a, b, c = (torch.full((n,), float(i), dtype=torch.float32, device=device) for i in range(3))
    return {
        "read": lambda: a.sum(),
        "write": lambda: c.fill_(1.0),
        "copy": lambda: c.copy_(a),
        "triad": lambda: torch.add(a, b, alpha=2.0, out=c),
    }


def _triton_streams(n: int, device: str) -> dict[str, Callable[[], object]]:
    from rocm_guide.kernels.bandwidth import stream

    a, b, c = (torch.full((n,), float(i), dtype=torch.float32, device=device) for i in range(3))
    return {
        "read": lambda: stream("read", None, a),
        "write": lambda: stream("write", c, value=1.0),
        "copy": lambda: stream("copy", c, a),
        "triad": lambda: stream("triad", c, a, b, factor=2.0),
    }


def measure_bandwidth(
    array_bytes: int, device: str = "cpu", *, engine: str = "torch", runs: int = 10
) -> dict[str, Bandwidth]:
    """Measure the four streams on fp32 arrays of ``array_bytes`` each.

    Choose arrays several times larger than the last cache, or it is the cache that is measured. Warmed up; the median
    of ``runs`` timings.

    Args:
        array_bytes: size of one array in bytes; three are allocated.
        device: ``"cpu"`` or ``"cuda"`` (ROCm GPUs too).
        engine: ``"torch"`` operators, or ``"triton"`` kernels of our own (GPU only).
        runs: timings per stream.

    Raises:
        GuideError: the size is too small to time, or the engine does not run on the device.

    >>> result = measure_bandwidth(1 << 20, runs=3)
    >>> sorted(result), result["triad"].bytes == 3 * (1 << 20)
    (['copy', 'read', 'triad', 'write'], True)
    """
    if array_bytes < 4096:
        why = "smaller arrays measure the call, not memory"
        raise GuideError(f"array_bytes={array_bytes}: give 4096 or more; {why}")
    if engine not in ("torch", "triton") or (engine == "triton" and device == "cpu"):
        raise GuideError(f"engine={engine} on {device}: use torch anywhere, or triton on a GPU")
    n = array_bytes // 4
    calls = (_torch_streams if engine == "torch" else _triton_streams)(n, device)
    found = {}
    for stream, (reads, writes) in STREAMS.items():
        timing = time_call(calls[stream], device=device, runs=runs)
        found[stream] = Bandwidth(stream, 4 * n, 4 * n * (reads + writes), timing)
    return found
