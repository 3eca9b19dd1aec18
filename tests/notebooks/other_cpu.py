# SPDX-License-Identifier: MIT
"""The narrowest code paths that can be forced on this CPU, and whether they were: for tests that must hold on others.

Imported by processes of tests; as a program it prints what is in force and ends with 1 if PyTorch does not obey.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
#: MKL keeps to a branch of its own choice on processors of other vendors, unless it is told to take the narrowest.
_INTEL = _CPUINFO.exists() and "GenuineIntel" in _CPUINFO.read_text()
_HIDDEN = "AVX512F AVX512VL AVX512BW AVX512DQ AVX512CD AVX2 AVX FMA FMA4 F16C BMI1 BMI2 LZCNT MOVBE"
#: For each kind of CPU: what PyTorch, oneDNN, MKL and the C library are told.
CPUS = {
    # Sums in another order, no fused multiply-add, no 16-bit arithmetic: about a CPU of 2009.
    "default": {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "MKL_CBWR": "COMPATIBLE",
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=" + ",".join(f"-{x}" for x in _HIDDEN.split()),
    },
    # Most laptops.
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "MKL_CBWR": "AVX2" if _INTEL else "COMPATIBLE",
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=" + ",".join(f"-{x}" for x in _HIDDEN.split() if "512" in x),
    },
}
if platform.machine() != "x86_64":  # elsewhere only PyTorch's own kernels can be chosen
    CPUS = {"default": {"ATEN_CPU_CAPABILITY": "default"}}


def environment(cpu: str) -> dict[str, str]:
    """The environment of a process that is to behave as on ``cpu``, with one thread."""
    told = {**os.environ, **CPUS[cpu], "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    if kept := told.get("TORCHINDUCTOR_CACHE_DIR"):  # torch does not see that its results are for other vectors
        told["TORCHINDUCTOR_CACHE_DIR"] = f"{kept}-{cpu}"
    return told


def in_force() -> dict[str, str]:
    """What this process really uses, by asking each library; empty where a library does not say."""
    import torch

    found = {"PyTorch": torch.backends.cpu.get_cpu_capability().lower()}
    loader = "/lib64/ld-linux-x86-64.so.2"
    if Path(loader).exists():
        text = subprocess.run([loader, "--help"], capture_output=True, text=True).stdout
        levels = [x.split()[0] for x in text.splitlines() if x.strip().startswith("x86-64-v") and "supported" in x]
        found["C library"] = levels[0] if levels else ""
    return found


if __name__ == "__main__":
    wanted = os.environ["ATEN_CPU_CAPABILITY"]
    found = in_force()
    print("\n".join(f"{name}: {value}" for name, value in found.items()), flush=True)
    import torch

    with torch.backends.mkl.verbose(torch.backends.mkl.VERBOSE_ON):  # MKL names the instructions it uses itself
        torch.mm(torch.ones(8, 8), torch.ones(8, 8))
    sys.exit(found["PyTorch"] != wanted)
