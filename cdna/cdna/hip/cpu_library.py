# SPDX-License-Identifier: MIT
"""The HIP sources of this folder as libraries for the CPU: built once, kept in the cache, opened in one place.

A library is built for the oldest processor that torch runs on, not for the one at hand: the nodes of a cluster share a
cache, and an instruction that the next node lacks would kill the process there. Its numbers are the same everywhere,
too: products and sums are not contracted, and 16-bit arithmetic is rounded after every operation, as on the GPU.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cdna.base import cache_folder, check_private, own_folder, write_bytes
from cdna.hip.toolchain import HipError, banner, find_clang, run_clang, source_file, source_texts

__all__ = ["build_cpu", "open_cpu"]

# What torch itself needs: its wheels for Linux ask for glibc 2.28, their MKL for SSE4.2.
_GLIBC = "2.28"
# -z defs: the linker refuses a symbol that neither the library nor the C library or libm defines. Without it, what is
# missing would come to light where the library is opened.
_FLAGS = (
    "-x",
    "c++",
    "-DGUIDE_CPU",
    "-std=c++17",
    "-O1",
    "-shared",
    "-fPIC",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-threadsafe-statics",
    "-nostdlib++",
    "-Wl,-z,defs",
    "-ffp-contract=off",
    "-Xclang",
    "-ffloat16-excess-precision=none",
    "-Xclang",
    "-fbfloat16-excess-precision=none",
)
_DIGEST = hashlib.sha256


@dataclass(frozen=True)
class Baseline:
    """Processor that a library is built for.

    Attributes:
        processor: as file names, zig and the kernel call it: ``x86_64`` or ``aarch64``.
        zig: the oldest processor that is served, as zig's ``-mcpu``.
        clang: the same as clang's ``-march``.
    """

    processor: str
    zig: str
    clang: str


_BASELINES = {
    "x86_64": Baseline("x86_64", "x86_64_v2", "x86-64-v2"),
    "aarch64": Baseline("aarch64", "generic", "armv8-a"),
}


def baseline(machine: str = "") -> Baseline:
    """Return the processor that libraries are built for on ``machine`` (left out: this one).

    >>> baseline("x86_64").clang, baseline("aarch64").zig
    ('x86-64-v2', 'generic')

    Raises:
        HipError: not Linux, or another processor.
    """
    machine = machine or platform.machine()
    if not sys.platform.startswith("linux") or machine not in _BASELINES:
        raise HipError(
            f"{machine} with {sys.platform}: the kernels run on {' and '.join(_BASELINES)} with Linux; "
            "compile_hip still gives their assembly"
        )
    return _BASELINES[machine]


def _compiler(clang: list[str], target: Baseline) -> tuple[list[str], str]:
    """Return the command that compiles and links for ``target``, and the name of target and compiler in the cache."""
    if "ziglang" in clang:
        # zig cc knows where the C library is, and links against any release of it; its bare clang does neither.
        libc, name = _GLIBC, "zig-clang"
        triple = f"{target.processor}-linux-gnu.{_GLIBC}"
        command = [*clang[:-1], "cc", "-fno-sanitize=undefined", "-target", triple, f"-mcpu={target.zig}"]
    else:
        # The library of this system, whose release is therefore part of the name.
        libc, name = platform.libc_ver()[1], "clang"
        command = [*clang, f"-march={target.clang}", "-static-libgcc", "-Wno-unused-command-line-argument"]
    found = re.search(r"clang version ([\w.]+)", banner(tuple(clang)))
    return command, f"{target.clang}-glibc{libc}-{name}{found[1] if found else ''}"


def _is_whole(library: Path) -> bool:
    """Return whether the file ends with the SHA-256 of what stands before: a damaged one could crash the process."""
    try:
        data = library.read_bytes()
    except OSError:
        return False
    size = _DIGEST().digest_size
    return len(data) > size and _DIGEST(data[:-size]).digest() == data[-size:]


def build_cpu(name: str | os.PathLike[str], machine: str = "") -> Path:
    """Build a shared library that runs the kernels of a HIP source on a CPU, one fiber per thread (see ``cpu.h``).

    Built once for the :func:`baseline` and kept in the cache, in a folder that names target and compiler, under the
    hash of everything that goes into it; a damaged file is built again. It needs the C library and libm, nothing else.

    Args:
        name: a name of :func:`cdna.hip.toolchain.sources`, or a file that includes ``guide.h``.
        machine: ``x86_64`` or ``aarch64``; another than this one only zig can build for.

    Raises:
        HipError: no compiler, no such source, an error in it, or a function that nothing defines.
    """
    clang, target = find_clang(), baseline(machine)
    command, where = _compiler(clang, target)
    with tempfile.TemporaryDirectory() as folder:
        path, built = source_file(name, folder), Path(folder) / "kernel.so"
        texts = (path.read_text(), repr(source_texts()), repr((command[len(clang) :], banner(tuple(clang)), _FLAGS)))
        key = _DIGEST("".join(texts).encode()).hexdigest()[:16]
        library = cache_folder() / "hip" / where / f"{path.stem}-{key}.so"
        if not _is_whole(library):
            arguments = [*_FLAGS, f"-I{folder}", str(path), "-lm", "-o", str(built)]
            run_clang([*command, *arguments], f"{path.name} for the CPU ({where})")
            data = built.read_bytes()
            own_folder(library.parent)
            write_bytes(library, data + _DIGEST(data).digest())  # a loader does not look behind the last section
    return library


def open_cpu(name: str | os.PathLike[str]) -> ctypes.CDLL:
    """Load the library of :func:`build_cpu` into this process. Nothing else in the package opens one.

    Raises:
        HipError: as :func:`build_cpu`, or the system refuses to load it.
        InputError: another user could have written it.
    """
    library = check_private(build_cpu(name))
    try:
        return ctypes.CDLL(str(library), mode=os.RTLD_NOW)
    except OSError as e:
        raise HipError(f"{e}; if programs may not run from there, set CDNA_CACHE to another folder") from e
