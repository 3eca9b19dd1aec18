# SPDX-License-Identifier: MIT
"""Compile an instance for gfx942 without ROCm, and keep the assembly: CK's headers in their run-time-compilation mode.

CK supports hiprtc, where there are no HIP headers and no C++ library: a clang with AMD's back end (the ``ziglang``
wheel has one), the prelude ``rtc.h`` beside this file, and 88 headers are enough. CK checks instance and problem itself
while it is compiled. The headers are in ``data/ck_headers.tar.xz``: files of Composable Kernel 1.2.0 (November 2025),
unchanged, its LICENSE (MIT, Advanced Micro Devices, Inc.) and ORIGIN. A compilation takes 10 to 30 seconds; assembly
is kept under a digest of source, prelude and headers: that of the presets is shipped in ``data/ck_assembly.zip``
(``python -m rocm_guide.tune.ck.build`` makes it anew).
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import io
import os
import secrets
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from cdna.hip.toolchain import HipError, banner, find_clang, run_clang
from rocm_guide.common.base import (
    GuideError,
    cache_folder,
    check_private,
    own_folder,
    package_folder,
    shown,
    write_bytes,
    write_text,
)
from rocm_guide.tune.ck.generate import HEADER, kernel_source
from rocm_guide.tune.ck.instance import CkError, GemmInstance, Problem
from rocm_guide.tune.ck.presets import PRESETS

__all__ = ["SHIPPED", "assemble", "assemble_source", "ck_headers", "ck_refuses"]

_HEADERS = "ck_headers.tar.xz"
_SHIPPED = "ck_assembly.zip"
_CONFIG = """#pragma once
#define CK_ENABLE_INT8 "ON"
#define CK_ENABLE_FP8 "ON"
#define CK_ENABLE_BF8 "ON"
#define CK_ENABLE_FP16 "ON"
#define CK_ENABLE_BF16 "ON"
#define CK_ENABLE_FP32 "ON"
#define CK_USE_FNUZ_FP8 1
"""
_FLAGS = (
    *("-x", "hip", "--cuda-device-only", "-nogpulib", "-nogpuinc", "-nostdinc", "-nostdinc++", "-std=c++17", "-O3"),
    *("-D__HIPCC_RTC__", "-DCK_CODE_GEN_RTC", "-DCK_USE_XDL", "-Wno-c++20-extensions", "-ferror-limit=1"),
)

#: Options for CK's verdict alone: no code, and nothing after the first refusal.
VERDICT_ONLY = ("-fsyntax-only", "-Wfatal-errors")

#: The problems that the notebook and the tests use, whose assembly is shipped: name -> (instance, problem).
SHIPPED: Mapping[str, tuple[GemmInstance, Problem]] = {
    "one_wave": (PRESETS["one_wave"], Problem(50, 64, 96)),
    "document_prose": (PRESETS["document_prose"], Problem(512, 256, 256)),
    "document_run": (PRESETS["document_run"], Problem(512, 256, 256)),
    "example_today": (PRESETS["example_today"], Problem(512, 256, 256)),
    "int8_small": (PRESETS["int8_small"], Problem(100, 128, 256, StrideDs=(0,))),
    "int8_rounded": (
        PRESETS["int8_small"].but(CDEElementwiseOperation="ScaleScaleAddReluRound"),
        Problem(100, 128, 256, StrideDs=(0,)),
    ),
    "int8_large": (PRESETS["int8_large"], Problem(512, 256, 256)),
}


def _prelude() -> str:
    return files("rocm_guide").joinpath("tune", "ck", "rtc.h").read_text(encoding="utf-8")


@functools.cache
def archive_bytes() -> bytes:
    """Return the archive of headers as it is shipped.

    Raises:
        CkError: it is not here: a copy of this helper in another project has no archive.
    """
    try:
        return files("rocm_guide").joinpath("data", _HEADERS).read_bytes()
    except (ModuleNotFoundError, OSError) as e:
        raise CkError("no archive of CK's headers here: it comes with the package rocm_guide") from e


def ck_headers() -> Path:
    """Return the folder to give to a compiler with ``-I``: the archive, unpacked once into the cache."""
    data = archive_bytes()
    folder = cache_folder() / "ck" / f"headers-{hashlib.sha256(data).hexdigest()[:16]}"
    if not (folder / "include" / HEADER).is_file():
        own_folder(folder.parent)
        part = folder.with_name(f".{folder.name}.{os.getpid()}-{secrets.token_hex(4)}")
        try:
            with tarfile.open(fileobj=io.BytesIO(data), mode="r:xz") as packed:
                # Python 3.11.4 brought the filter (Debian 12 has 3.11.2); the archive is this package's own.
                packed.extraction_filter = getattr(tarfile, "data_filter", None)
                packed.extractall(part)
            part.rename(folder)
        except OSError as e:
            if not (folder / "include" / HEADER).is_file():  # else another process was quicker
                raise GuideError(f"{shown(folder)}: cannot be written ({e.strerror or e}); set ROCM_GUIDE_CACHE") from e
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return check_private(folder) / "include"


def source_key(source: str, arch: str = "gfx942") -> str:
    """Return the name under which assembly is kept: a digest of all that it depends on."""
    parts = (source, _prelude(), _CONFIG, hashlib.sha256(archive_bytes()).hexdigest(), arch, " ".join(_FLAGS))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _builtin_headers(clang: list[str]) -> str:
    """Return where clang keeps stdint.h and the like."""
    if "ziglang" in clang and (found := importlib.util.find_spec("ziglang")) and found.submodule_search_locations:
        return str(Path(next(iter(found.submodule_search_locations))) / "lib" / "include")
    done = subprocess.run([*clang, "-print-resource-dir"], capture_output=True, text=True, timeout=60)
    return str(Path(done.stdout.strip()) / "include")


def compile_command(folder: Path, arch: str) -> list[str]:
    """Return the compiler and its options for a source with CK's headers; what they need is written to ``folder``."""
    clang = find_clang()
    write_text(folder / "shim" / "ck" / "config.h", _CONFIG)
    write_text(folder / "shim" / "cassert", "")
    write_text(folder / "rtc.h", _prelude())
    includes = ["-isystem", _builtin_headers(clang), f"-I{folder / 'shim'}", f"-I{ck_headers()}"]
    return [*clang, *_FLAGS, f"--offload-arch={arch}", *includes]


def _compile(source: str, arch: str, *options: str) -> str:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = compile_command(folder, arch)
        text, out = write_text(folder / "gemm.hip", source), folder / "gemm.s"
        command += ["-include", str(folder / "rtc.h"), *options, str(text), "-o", str(out)]
        run_clang(command, f"Composable Kernel for {arch}")
        return out.read_text() if out.is_file() else ""


@functools.cache
def _shipped() -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(files("rocm_guide").joinpath("data", _SHIPPED).read_bytes())) as packed:
        return {name.removesuffix(".s"): packed.read(name) for name in packed.namelist()}


def assemble_source(source: str, arch: str = "gfx942", *, fresh: bool = False) -> str:
    """Return assembly of a generated source, or one changed by hand: shipped, from the cache, or compiled and kept.

    Args:
        arch: ``gfx942``; others as far as CK and clang know them.
        fresh: compile, whatever is kept.

    Raises:
        CkError: CK or the compiler refuses; the first error.
        HipError: no compiler.
    """
    key = source_key(source, arch)
    if not fresh and (kept := _shipped().get(key)):
        return kept.decode()
    clang = hashlib.sha256(banner(tuple(find_clang())).encode()).hexdigest()[:8]
    path = check_private(cache_folder() / "ck" / f"{key}-{clang}.s")
    if not fresh and path.is_file():
        return path.read_text()
    try:
        text = _compile(source, arch, "-S")
    except HipError as e:
        raise CkError(e) from e
    own_folder(path.parent)
    write_text(path, text)
    return text


def assemble(instance: GemmInstance, problem: Problem, *, fresh: bool = False) -> str:
    """Return gfx942 assembly of ``instance`` for ``problem``, ready for ``cdna``; see :func:`assemble_source`.

    Raises:
        CkError: CK refuses at compile time; HipError: no compiler.
    """
    return assemble_source(kernel_source(instance, problem), fresh=fresh)


def ck_refuses(instance: GemmInstance, problem: Problem) -> str:
    """Return CK's own verdict, from its ``static_assert`` and ``IsValid()`` while it is compiled; "" if it accepts.

    Nothing is generated (``-fsyntax-only``), and the first refusal ends it: a third of the time or less.

    Raises:
        HipError: no compiler.
    """
    find_clang()  # what is missing is not CK's verdict
    try:
        _compile(kernel_source(instance, problem), "gfx942", *VERDICT_ONLY)
    except HipError as e:
        return str(e)
    return ""


def _store() -> None:
    """Compile everything in :data:`SHIPPED` and write the archive."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_LZMA) as z:
        for name, (instance, problem) in SHIPPED.items():
            source = kernel_source(instance, problem)
            text = assemble_source(source)
            print(f"{name}: {len(text):,} bytes", flush=True)
            z.writestr(zipfile.ZipInfo(f"{source_key(source)}.s"), text, zipfile.ZIP_LZMA)
    print(write_bytes(package_folder() / "data" / _SHIPPED, packed.getvalue()))


if __name__ == "__main__":
    _store()
