# SPDX-License-Identifier: MIT
"""The HIP kernels as torch operators on a machine with ROCm: built by hipcc on first use, or ahead of time.

``build_extension()`` compiles and loads them; ``hip_extension/setup.py`` beside this package makes a package of them.
We had no MI300X: the kernels were compiled for gfx942, read, and run on a CPU, their launchers checked against the
headers of HIP 5.2, the binding against those of torch, torch's build steps with a stand-in for hipcc. The real build,
and every time on a GPU, is yours to see.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from cdna.arch import ARCHS
from cdna.base import cache_folder, own_folder
from cdna.hip.toolchain import HipError, write_sources

__all__ = ["skinny_splits"]

ARCHITECTURES = ("gfx942",)
HIPCC_FLAGS = ["-O3", "-std=c++17", *(f"--offload-arch={a}" for a in ARCHITECTURES)]
COLUMNS, DEPTH = 32, 256  # one workgroup of the skinny GEMM: columns, and the step in depth


def extension_sources(folder: str | os.PathLike[str] | None = None) -> list[Path]:
    """Return what to compile: the binding and the kernels that it binds, written to ``folder``, else to the cache.

    Build tools put an object file where its source lies, below their own folder: a setup.py wants a relative one.

    Raises:
        InputError: the folder cannot be written.
    """
    written = write_sources(folder or own_folder(cache_folder() / "hip" / "sources"))
    return [written[n] for n in ("binding.cpp", "rmsnorm_fp8.hip", "skinny_gemm.hip", "swiglu_fp8.hip")]


def build_extension(verbose: bool = False) -> Any:
    """Compile the kernels with hipcc, load them, and return ``torch.ops.cdna_hip``.

    Its operators: ``rmsnorm_fp8(x, residual, weight, scale, eps, stream)``, ``swiglu_fp8(x, scale, stream)``,
    ``skinny_gemm(a, b, scale, splits, stream)``; a ``scale`` of 0 asks for one for each row, ``stream`` is
    ``torch.cuda.current_stream().cuda_stream``.

    Raises:
        HipError: this torch is not built for ROCm, or hipcc refuses; the cause is chained.
    """
    import torch
    from torch.utils import cpp_extension

    if not torch.version.hip:
        raise HipError(f"torch {torch.__version__} is not built for ROCm: the extension needs a ROCm build and hipcc")
    files = [str(p) for p in extension_sources()]
    # torch keeps the build under this name for good, so it says what the build is for. The host's half is compiled for
    # the oldest processor that its compiler knows, which is what compilers do unless they are told otherwise.
    name = re.sub(r"\W", "_", "_".join(("cdna_hip", *ARCHITECTURES, torch.__version__, torch.version.hip)))
    try:
        cpp_extension.load(name, files, extra_cuda_cflags=HIPCC_FLAGS, is_python_module=False, verbose=verbose)
    except (OSError, RuntimeError) as e:
        raise HipError(f"hipcc: {str(e).splitlines()[0]}; run build_extension(verbose=True) to see all of it") from e
    return torch.ops.cdna_hip


def skinny_splits(columns: int, depth: int, units: int | None = None) -> int:
    """Return in how many parts to cut the depth, so that every compute unit has work: 1.5 workgroups each if possible.

    Two workgroups fit on a compute unit at once, so up to twice as many workgroups as units run together. ``units`` are
    those of an MI300X if left out.

    >>> [skinny_splits(n, k) for n, k in ((2304, 16384), (13312, 16384), (16384, 6656))]
    [8, 2, 1]

    Raises:
        HipError: columns or depth that the kernel does not take.
    """
    if columns < COLUMNS or columns % COLUMNS or depth < DEPTH or depth % DEPTH:
        raise HipError(f"{columns} columns, depth {depth}: give multiples of {COLUMNS} and {DEPTH}")
    units = ARCHS["gfx942"].cus if units is None else units
    stages = depth // DEPTH
    divisors = [s for s in range(1, stages + 1) if stages % s == 0]
    enough = [s for s in divisors if columns // COLUMNS * s >= 1.5 * units]
    return enough[0] if enough else divisors[-1]
