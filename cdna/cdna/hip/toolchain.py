# SPDX-License-Identifier: MIT
"""Compile the HIP sources of this folder without ROCm: to gfx942 assembly, which is read.

All it takes is a recent clang, because AMD's back end is part of LLVM. The ``ziglang`` wheel carries one (clang 22);
a clang of the system or of ROCm does as well. ``cpu_library.py`` builds them with it for the CPU, where
they run.
Source: "User Guide for AMDGPU Backend", LLVM, https://llvm.org/docs/AMDGPUUsage.html; "HIP Support", Clang,
https://clang.llvm.org/docs/HIPSupport.html.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from cdna.base import InputError, cache_folder, check_private, own_folder, write_text

__all__ = ["HipError", "banner", "clang_version", "compile_hip", "find_clang", "run_clang", "sources"]

_OLDEST = 19  # fences for LDS alone
_CANDIDATES = ("clang", *(f"clang-{n}" for n in range(24, _OLDEST - 1, -1)), "/opt/rocm/llvm/bin/clang")
_FOR_GPU = ("-x", "hip", "--cuda-device-only", "-nogpulib", "-nogpuinc", "-DGUIDE_BARE", "-std=c++17", "-O3", "-S")


class HipError(InputError):
    """No usable compiler, or a source that it refuses."""


def source_texts() -> dict[str, str]:
    return {
        "guide.h": files("cdna").joinpath("hip", "guide.h").read_text(encoding="utf-8"),
        "cpu.h": files("cdna").joinpath("hip", "cpu.h").read_text(encoding="utf-8"),
        "binding.cpp": files("cdna").joinpath("hip", "binding.cpp").read_text(encoding="utf-8"),
        "ladder.hip": files("cdna").joinpath("hip", "ladder.hip").read_text(encoding="utf-8"),
        "rmsnorm_fp8.hip": files("cdna").joinpath("hip", "rmsnorm_fp8.hip").read_text(encoding="utf-8"),
        "skinny_gemm.hip": files("cdna").joinpath("hip", "skinny_gemm.hip").read_text(encoding="utf-8"),
        "swiglu_fp8.hip": files("cdna").joinpath("hip", "swiglu_fp8.hip").read_text(encoding="utf-8"),
    }


def sources() -> dict[str, str]:
    """Return the kernels' sources by name: ``ladder``, ``rmsnorm_fp8``, ``skinny_gemm``, ``swiglu_fp8``.

    >>> sorted(sources())
    ['ladder', 'rmsnorm_fp8', 'skinny_gemm', 'swiglu_fp8']
    """
    return {name.removesuffix(".hip"): text for name, text in source_texts().items() if name.endswith(".hip")}


def write_sources(folder: str | os.PathLike[str]) -> dict[str, Path]:
    """Write the kernels, their headers and the torch binding into ``folder``; returns the paths by file name.

    Raises:
        InputError: the folder cannot be written.
    """
    return {name: write_text(Path(folder) / name, text) for name, text in source_texts().items()}


@functools.lru_cache(maxsize=32)
def banner(command: tuple[str, ...]) -> str:
    """Return the first line that a compiler says about itself; empty where it cannot be run."""
    try:
        text = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return text.partition("\n")[0].strip()


def _version(command: list[str]) -> int:
    found = re.search(r"clang version (\d+)", banner(tuple(command)))
    return int(found[1]) if found else 0


def find_clang() -> list[str]:
    """Return the command of a clang that can compile for AMD GPUs: CDNA_CLANG, the ziglang wheel, or the system's.

    Raises:
        HipError: there is none of version 19 or newer.
    """
    if named := os.environ.get("CDNA_CLANG"):
        commands = [[named]]
    else:
        commands = [[sys.executable, "-m", "ziglang", "clang"]] if importlib.util.find_spec("ziglang") else []
        commands += [[path] for name in _CANDIDATES if (path := shutil.which(name))]
    for command in commands:
        if _version(command) >= _OLDEST:
            return command
    what = f"CDNA_CLANG={named!r} is not" if named else "found no"
    raise HipError(f"{what} clang {_OLDEST} or newer: pip install ziglang, or install clang and lld")


def clang_version() -> str:
    """Return what to write beside figures that come from the assembly, for example ``clang 22``."""
    return f"clang {_version(find_clang())}"


def _zig_cache(spare: str) -> str:
    """Return Zig's folder in the cache, or ``spare`` where that cannot be written: zig writes even when it only
    reads.
    """
    folder = check_private(cache_folder() / "zig")
    try:
        own_folder(folder)
    except InputError:  # it cannot be made
        return spare
    return str(folder) if os.access(folder, os.W_OK | os.X_OK) else spare


def run_clang(command: list[str], what: str) -> None:
    """Run a compiler; ``what`` is being compiled for which target.

    Raises:
        HipError: it refuses; ``what`` and its first error.
    """
    with tempfile.TemporaryDirectory() as spare:
        caches = dict.fromkeys(("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"), _zig_cache(spare))
        run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **caches})
    if run.returncode:
        lines = [x for x in run.stderr.splitlines() if "error" in x] or run.stderr.splitlines() or ["no message"]
        raise HipError(f"{what}: {lines[0].strip()}")


def source_file(name: str | os.PathLike[str], folder: str) -> Path:
    """Return the file to compile; our own sources and headers are written to ``folder``."""
    written = write_sources(folder)
    path = written.get(f"{name}.hip") or Path(name)
    if not path.is_file():
        raise HipError(f"{str(name)!r}: no such source; give a file, or one of {', '.join(sources())}")
    return path


def compile_hip(name: str | os.PathLike[str], arch: str = "gfx942") -> str:
    """Compile a HIP source for an AMD GPU, ready for :func:`cdna.isa.kernel.parse_asm`.

    Args:
        name: a name of :func:`sources`, or a file that includes ``guide.h``.
        arch: ``gfx942`` (MI300X) or ``gfx950`` (MI355X).

    Raises:
        HipError: no compiler, no such source, or an error in it, whose first line is in the message.
    """
    with tempfile.TemporaryDirectory() as folder:
        path, target = source_file(name, folder), Path(folder) / "kernel.s"
        command = [*find_clang(), *_FOR_GPU, f"--offload-arch={arch}", f"-I{folder}", str(path), "-o", str(target)]
        run_clang(command, f"{path.name} for {arch}")
        return target.read_text()
