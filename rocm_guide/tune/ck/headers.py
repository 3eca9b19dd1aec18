# SPDX-License-Identifier: MIT
"""CK's headers: the 88 files that this struct needs, shipped with CK's licence, or those that ``ROCM_GUIDE_CK`` names.

The archive ``data/ck_headers.tar.xz`` holds files of Composable Kernel 1.2.0 (November 2025), unchanged, its LICENSE
(MIT, Advanced Micro Devices, Inc.) and ORIGIN. For the headers of an installation, set ``ROCM_GUIDE_CK`` to the folder
that holds ``ck/``: ``/opt/rocm/include``, or ``include`` of a clone. They must have the same template parameters.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import io
import os
import re
import secrets
import shutil
import tarfile
from dataclasses import fields
from importlib.resources import files
from pathlib import Path

from rocm_guide.common.base import GuideError, cache_folder, check_private, own_folder, shown
from rocm_guide.tune.ck.generate import HEADER
from rocm_guide.tune.ck.instance import CkError, GemmInstance

__all__ = ["ck_headers", "template_parameters"]

_ARCHIVE = "ck_headers.tar.xz"


@functools.cache
def archive_bytes() -> bytes:
    """Return the archive as it is shipped.

    Raises:
        CkError: it is not here: a copy of this helper in another project has no archive.
    """
    try:
        return files("rocm_guide").joinpath("data", _ARCHIVE).read_bytes()
    except (ModuleNotFoundError, OSError) as e:
        raise CkError("no archive of CK's headers here: set ROCM_GUIDE_CK to a folder that holds ck/") from e


def template_parameters(include: Path) -> list[str]:
    """Return the names of the template parameters of the struct, as the header below ``include`` declares them.

    Raises:
        CkError: the header is missing, or does not declare the struct.
    """
    path = include / HEADER
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as e:
        fix = "set ROCM_GUIDE_CK to the folder that holds ck/, or unset it for the headers of this package"
        raise CkError(f"{shown(path)}: no header of Composable Kernel ({e.strerror}); {fix}") from e
    found = re.search(r"template\s*<([^{};]*?)>\s*struct\s+DeviceGemmMultipleD_Xdl_CShuffle\b", text)
    if found is None:
        raise CkError(f"{shown(path)}: declares no DeviceGemmMultipleD_Xdl_CShuffle; is it Composable Kernel's?")
    parts = re.sub(r"=\s*[^,<>]*(<[^<>]*>|\(\))?", "", found[1]).split(",")
    return [p.split()[-1] for p in parts if p.strip()]


def _fitting(include: Path) -> Path:
    ours, theirs = [f.name for f in fields(GemmInstance)], template_parameters(include)
    if ours != theirs:
        n = next((k for k, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
        have, here = (x[n] if n < len(x) else "nothing" for x in (theirs, ours))
        raise CkError(
            f"{shown(include)}: Composable Kernel of another version: template parameter {n + 1} is "
            f"{have}, here {here}; unset ROCM_GUIDE_CK to use the headers of this package"
        )
    if "make_descriptor" not in (include / HEADER).read_text(encoding="utf-8", errors="replace"):
        raise CkError(
            f"{shown(include)}: Composable Kernel too old for compiling without HIP (no make_descriptor); "
            "unset ROCM_GUIDE_CK"
        )
    return include


def _unpacked() -> Path:
    """Return the archive, unpacked once into the cache."""
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


def ck_headers() -> Path:
    """Return the folder to give to a compiler with ``-I``: ``ROCM_GUIDE_CK`` if set, else the shipped headers.

    Raises:
        CkError: ``ROCM_GUIDE_CK`` names no headers, or those of another version.
    """
    if named := os.environ.get("ROCM_GUIDE_CK"):
        return _fitting(Path(named).expanduser())
    return _unpacked()


def installed_headers() -> list[Path]:
    """Return folders on this machine that hold CK's headers, for ``ROCM_GUIDE_CK``; nothing is imported."""
    places = [Path(os.environ.get("ROCM_PATH", "/opt/rocm")) / "include"]
    if (found := importlib.util.find_spec("aiter_meta")) and found.submodule_search_locations:
        places += [Path(p) / "3rdparty/composable_kernel/include" for p in found.submodule_search_locations]
    return [p for p in places if (p / HEADER).is_file()]


def headers_key() -> str:
    """Return a name of the headers in use for the key of a cache: a digest of the archive, or of every named header."""
    if not os.environ.get("ROCM_GUIDE_CK"):
        return hashlib.sha256(archive_bytes()).hexdigest()
    digest = hashlib.sha256()
    include = ck_headers()
    for path in sorted((include / "ck").rglob("*.hpp")):
        digest.update(str(path.relative_to(include)).encode() + path.read_bytes())
    return digest.hexdigest()
