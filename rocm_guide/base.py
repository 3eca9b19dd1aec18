# SPDX-License-Identifier: MIT
"""The one leaf that every module may import: the error that users see, the cache, files written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

__all__ = ["GuideError", "cache_folder", "write_bytes", "write_text"]


class GuideError(ValueError):
    """Bad input, said in one line that names the value and the fix.

    The command line prints the line and exits with code 2. Modules derive their own named errors from it.

    >>> raise GuideError("rank=0: a LoRA rank is a positive integer, for example 16")
    Traceback (most recent call last):
        ...
    rocm_guide.base.GuideError: rank=0: a LoRA rank is a positive integer, for example 16
    """


def write_bytes(path: str | os.PathLike[str], data: bytes) -> Path:
    """Write ``data`` to ``path`` so that no reader ever sees half of it.

    The bytes go to a temporary file in the same folder, reach the disk, and are renamed over ``path``. A full disk or
    a kill leaves the old file as it was. Missing folders are made. Returns the path written.

    Raises:
        GuideError: the folder cannot be written (no permission, a file in the way, disk full).
    """
    path = Path(path)
    # Opened with the mode that any new file gets (mkstemp would make it private); the name is unique to this call.
    tmp = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tmp.open("xb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        tmp.replace(path)
    except OSError as e:
        raise GuideError(f"{path}: cannot be written ({e.strerror or e}); choose a folder you can write to") from e
    finally:
        with contextlib.suppress(OSError):
            tmp.unlink(missing_ok=True)
    return path


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """:func:`write_bytes` for UTF-8 text.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as d:
    ...     write_text(Path(d) / "new" / "a.txt", "whole").read_text()
    'whole'
    """
    return write_bytes(path, text.encode())


def cache_folder() -> Path:
    """Where the course keeps what it builds: ``ROCM_GUIDE_CACHE``, else ``rocm-guide`` in the user's cache folder."""
    if named := os.environ.get("ROCM_GUIDE_CACHE"):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "rocm-guide"
