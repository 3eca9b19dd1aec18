# SPDX-License-Identifier: MIT
"""Compile the HIP sources of this folder without ROCm: to gfx942 assembly, which is read, and for the CPU, which runs.

All it takes is a recent clang, because AMD's back end is part of LLVM. The ``ziglang`` wheel carries one (clang 22);
a clang of the system or of ROCm does as well. Introduced in notebook 19 (fused_fp8_kernels).
Source: "User Guide for AMDGPU Backend", LLVM, https://llvm.org/docs/AMDGPUUsage.html; "HIP Support", Clang,
https://clang.llvm.org/docs/HIPSupport.html.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib import resources
from pathlib import Path

from rocm_guide.base import GuideError, cache_folder, write_bytes

__all__ = ["HipError", "build_cpu", "clang_version", "compile_hip", "find_clang", "sources"]

_OLDEST = 19  # fences for LDS alone
_CANDIDATES = ("clang", *(f"clang-{n}" for n in range(24, _OLDEST - 1, -1)), "/opt/rocm/llvm/bin/clang")
_FOR_GPU = ("-x", "hip", "--cuda-device-only", "-nogpulib", "-nogpuinc", "-DGUIDE_BARE", "-std=c++17", "-O3", "-S")
_FOR_CPU = ("-x", "c++", "-DGUIDE_CPU", "-std=c++17", "-O1", "-shared", "-fPIC", "-fno-exceptions", "-fno-rtti",
            "-fno-threadsafe-statics", "-nostdlib++")  # fmt: skip


class HipError(GuideError):
    """No usable compiler, or a source that it refuses."""


def sources() -> dict[str, Path]:
    """The kernels' sources by name: ``ladder``, ``rmsnorm_fp8``, ``skinny_gemm``, ``swiglu_fp8``.

    >>> sorted(sources())
    ['ladder', 'rmsnorm_fp8', 'skinny_gemm', 'swiglu_fp8']
    """
    folder = Path(str(resources.files("rocm_guide.hip")))
    return {p.stem: p for p in sorted(folder.glob("*.hip"))}


def _version(command: list[str]) -> int:
    try:
        text = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r"clang version (\d+)", text)
    return int(found[1]) if found else 0


def find_clang() -> list[str]:
    """The command of a clang that can compile for AMD GPUs: ROCM_GUIDE_CLANG, the ziglang wheel, or the system's.

    Raises:
        HipError: there is none of version 19 or newer.
    """
    if named := os.environ.get("ROCM_GUIDE_CLANG"):
        commands = [[named]]
    else:
        commands = [[sys.executable, "-m", "ziglang", "clang"]] if importlib.util.find_spec("ziglang") else []
        commands += [[path] for name in _CANDIDATES if (path := shutil.which(name))]
    for command in commands:
        if _version(command) >= _OLDEST:
            return command
    what = f"ROCM_GUIDE_CLANG={named!r} is not" if named else "found no"
    raise HipError(f"{what} clang {_OLDEST} or newer: pip install ziglang, or install clang and lld")


def clang_version() -> str:
    """What to write beside figures that come from the assembly, for example ``clang 22``."""
    return f"clang {_version(find_clang())}"


def _run(command: list[str], what: str) -> None:
    caches = {name: str(cache_folder() / "zig") for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")}
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **caches})
    if run.returncode:
        lines = [x for x in run.stderr.splitlines() if "error" in x] or run.stderr.splitlines() or ["no message"]
        raise HipError(f"{what}: {lines[0].strip()}")


def _source(name: str | os.PathLike[str]) -> Path:
    path = sources().get(str(name)) or Path(name)
    if not path.is_file():
        raise HipError(f"{str(name)!r}: no such source; give a file, or one of {', '.join(sources())}")
    return path


def compile_hip(name: str | os.PathLike[str], arch: str = "gfx942") -> str:
    """Assembly of a HIP source for an AMD GPU, ready for :func:`rocm_guide.mi300x.isa.parse_asm`.

    Args:
        name: a name of :func:`sources`, or a file that includes ``guide.h``.
        arch: ``gfx942`` (MI300X) or ``gfx950`` (MI355X).

    Raises:
        HipError: no compiler, no such source, or an error in it, whose first line is in the message.

    Introduced in notebook 19.
    """
    path = _source(name)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "kernel.s"
        include = f"-I{sources()['ladder'].parent}"
        command = [*find_clang(), *_FOR_GPU, f"--offload-arch={arch}", include, str(path), "-o", str(target)]
        _run(command, f"{path.name} for {arch}")
        return target.read_text()


def build_cpu(name: str | os.PathLike[str]) -> Path:
    """A shared library that runs the kernels of a HIP source on this CPU, one fiber per thread (see ``cpu.h``).

    Built once and kept in the cache, under the hash of everything that goes into it.

    Raises:
        HipError: as :func:`compile_hip`.
    """
    path = _source(name)
    folder = sources()["ladder"].parent
    clang = find_clang()
    text = b"".join(p.read_bytes() for p in (path, folder / "guide.h", folder / "cpu.h"))
    key = hashlib.sha256(text + repr((clang, _version(clang), _FOR_CPU)).encode()).hexdigest()[:16]
    library = cache_folder() / "hip" / f"{path.stem}-{key}.so"
    if not library.exists():
        # zig cc knows where the C library is; its bare clang does not.
        command = [*clang[:-1], "cc", "-fno-sanitize=undefined"] if "ziglang" in clang else clang
        with tempfile.TemporaryDirectory() as scratch:
            target = Path(scratch) / "kernel.so"
            _run([*command, *_FOR_CPU, f"-I{folder}", str(path), "-lm", "-o", str(target)], f"{path.name} for the CPU")
            write_bytes(library, target.read_bytes())
    return library
