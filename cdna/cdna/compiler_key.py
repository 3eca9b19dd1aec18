# SPDX-License-Identifier: MIT
"""Triton's cache: where it lies, and a name for Triton's build that is found without reading 400 MB of its library."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

__all__ = ["quick_compiler_key", "writable_compiler_cache"]


def _build() -> str:
    import triton

    folder = Path(triton.__file__).parent
    digest = hashlib.sha256(triton.__version__.encode())
    files = (os.path.join(place, n) for place, _, names in os.walk(folder) for n in names)  # noqa: PTH118 - thousands
    for path in sorted(p for p in files if p.endswith((".py", ".so", ".bc"))):
        found = os.stat(path)  # noqa: PTH116
        digest.update(f"{os.path.relpath(path, folder)} {found.st_size} {found.st_mtime_ns}\n".encode())
    return f"cdna-{digest.hexdigest()}"


@contextmanager
def quick_compiler_key() -> Iterator[None]:
    """Return the cache what Triton compiles inside the ``with`` block under a name that takes milliseconds instead of
    most of a second.

    The digest of Triton's files is a part of every key of its cache, so that another build never gets what this one
    made. Their sizes and times of change tell builds apart as well. For commands that compile a kernel or two; the
    cache can be written there, see :func:`writable_compiler_cache`.

    >>> from triton.runtime import cache
    >>> with quick_compiler_key():
    ...     cache.triton_key().startswith("cdna-")
    True
    """
    from triton.runtime import cache

    with ExitStack() as stack:
        stack.enter_context(writable_compiler_cache())
        if hasattr(cache, "triton_key"):  # in another release of Triton it costs its time
            key = _build()
            stack.enter_context(mock.patch.object(cache, "triton_key", lambda: key))
        yield


@contextmanager
def writable_compiler_cache() -> Iterator[None]:
    """Let Triton compile inside the ``with`` block although its cache folder cannot be written (a read-only home, or
    none at all).

    The cache is then a temporary folder, for child processes too; the variable is as before on exit. Nothing changes
    where the usual folder can be written.
    """
    before = os.environ.get("TRITON_CACHE_DIR")
    try:
        home = Path(os.environ.get("TRITON_HOME") or "~").expanduser()
        usual = Path(before) if before else home / ".triton" / "cache"
        usual.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=usual):
            usable = True
    except (OSError, RuntimeError):  # RuntimeError: no HOME, and no entry in the password file
        usable = False
    if usable:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="cdna-triton-") as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ["TRITON_CACHE_DIR"]
            else:
                os.environ["TRITON_CACHE_DIR"] = before
