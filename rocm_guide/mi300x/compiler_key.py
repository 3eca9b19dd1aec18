# SPDX-License-Identifier: MIT
"""Name Triton's build by its files' sizes and times: Triton itself reads 400 MB of its own library to name it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

__all__ = ["quick_compiler_key"]


def _build() -> str:
    import triton

    folder = Path(triton.__file__).parent
    digest = hashlib.sha256(triton.__version__.encode())
    for path in sorted(p for kind in ("*.py", "*.so", "*.bc") for p in folder.rglob(kind)):
        found = path.stat()
        digest.update(f"{path.relative_to(folder)} {found.st_size} {found.st_mtime_ns}\n".encode())
    return f"rocm-guide-{digest.hexdigest()}"


@contextmanager
def quick_compiler_key() -> Iterator[None]:
    """Inside, what Triton compiles is cached under a name that takes milliseconds instead of most of a second.

    The digest of Triton's files is a part of every key of its cache, so that another build never gets what this one
    made. Their sizes and times of change tell builds apart as well. For commands that compile a kernel or two.

    >>> from triton.runtime import cache
    >>> with quick_compiler_key():
    ...     cache.triton_key().startswith("rocm-guide-")
    True
    """
    from triton.runtime import cache

    if not hasattr(cache, "triton_key"):  # another release of Triton: it costs its time there
        yield
        return
    key = _build()
    with mock.patch.object(cache, "triton_key", lambda: key):
        yield
