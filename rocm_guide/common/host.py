# SPDX-License-Identifier: MIT
"""The machine itself, as every stamp and report names it: CPU model, cores, operating system, C library.

A figure that was measured on a CPU means nothing without the CPU's name, and a fault that one instruction set or one
C library has cannot be explained without them. Needs nothing but Python and starts no process.
"""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Any

__all__ = ["cores", "cpu_model", "describe_cpu", "gpu_possible", "host_facts", "memory_available", "os_name"]

# What the course's compiled code and torch's CPU kernels ask a CPU for.
_FEATURES = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "sve", "bf16", "asimd")
_DECORATION = re.compile(r"\((?:R|TM|r|tm)\)|\bCPU\b|\s@.*$|\b\d+-Core\b|\bw/.*$|\bwith Radeon.*$")


def cores() -> int:
    """Return how many CPU cores this process may use: a container or ``taskset`` may leave it fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_available() -> tuple[int, int]:
    """Return bytes of memory (available, total) for this process, container limits included; (0, 0) if unknown."""
    try:
        fields = dict(re.findall(r"^(\w+):\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.M))
        available, total = int(fields["MemAvailable"]) * 1024, int(fields["MemTotal"]) * 1024
    except (OSError, KeyError):
        return 0, 0
    # Control groups: version 2, then version 1.
    files = ("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")
    for limit, used in files:
        try:
            top = int(Path("/sys/fs/cgroup", limit).read_text())
            left = top - int(Path("/sys/fs/cgroup", used).read_text())
        except (OSError, ValueError):
            continue  # no such control group, or "max": no limit
        if top < total:
            available, total = min(available, max(left, 0)), top
    return available, total


def gpu_possible() -> bool:
    """Return whether this machine may have a GPU that torch can use: False only where Linux shows no driver for one.

    It costs a look at three files, where importing torch to ask it takes seconds.
    """
    nodes = ("/dev/kfd", "/dev/nvidiactl", "/dev/dxg")  # AMD, NVIDIA, either of them under Windows' Linux
    return platform.system() != "Linux" or any(Path(n).exists() for n in nodes)


def _cpuinfo() -> dict[str, str]:
    """Return the first processor of ``/proc/cpuinfo``; empty where there is no such file."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.split("\n\n")[0].splitlines())
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def tidy_name(name: str) -> str:
    """Return a CPU's name without trade marks, clock and number of cores.

    >>> tidy_name("Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz"), tidy_name("AMD EPYC 9654 96-Core Processor")
    ('Intel Xeon Platinum 8481C', 'AMD EPYC 9654 Processor')
    """
    return " ".join(_DECORATION.sub(" ", name).split())


def cpu_model() -> str:
    """Return the CPU's product name; where the system hides it (virtual machines, ARM), the numbers it gives too."""
    found = _cpuinfo()
    name = tidy_name(found.get("model name", "") or platform.processor() or "")
    if any(c.isdigit() for c in name.replace(platform.machine(), "")):
        return name
    # "Intel Xeon Processor": the family and model tell what the name does not.
    labels = ("cpu family", "model", "stepping", "cpu implementer", "cpu part")
    numbers = [f"{label.removeprefix('cpu ')} {found[label]}" for label in labels if found.get(label)]
    name = name or platform.machine() or "unknown CPU"
    return f"{name} ({', '.join(numbers)})" if numbers else name


def os_name() -> str:
    """Return the operating system: its distribution and kernel on Linux."""
    try:
        pretty = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        pretty = ""
    kernel = f"{platform.system()} {platform.release()}".strip()
    return f"{pretty}, {kernel}" if pretty else platform.platform() or "unknown"


def _libc() -> str:
    # The C library that runs this process, asked directly: platform.libc_ver reads the whole executable instead.
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):
        return " ".join(filter(None, platform.libc_ver())) or ("musl" if platform.system() == "Linux" else "")


def host_facts() -> dict[str, Any]:
    """Return the machine as plain data: ``cpu``, ``arch``, ``cores``, ``features``, ``os``, ``libc``, ``python``.

    >>> sorted(host_facts())
    ['arch', 'cores', 'cpu', 'features', 'libc', 'os', 'python']
    """
    found = _cpuinfo()
    words = set((found.get("flags", "") or found.get("features", "")).split())
    return {
        "cpu": cpu_model(),
        "arch": platform.machine(),
        "cores": cores(),
        "features": [f for f in _FEATURES if f in words],
        "os": os_name(),
        "libc": _libc() or "none known",
        "python": platform.python_version(),
    }


def describe_cpu() -> str:
    """Return the stamp of a figure measured on the CPU: its model and the cores it may use."""
    count = cores()
    return f"CPU, {cpu_model()}, {count} core{'s' if count > 1 else ''}"
