# SPDX-License-Identifier: MIT
"""The tiny models in a learner's cache: copied from the hub's, so that a class does not pretrain them once for each."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

__all__ = ["copy_models"]


def copy_models(shared: Path, own: Path) -> list[str]:
    """Copy the tiny models of ``shared`` that ``own`` lacks, each whole or not at all; gives their names.

    Runs as the learner. What cannot be read, or does not fit on the disk, is left out: the notebook that needs it then
    makes it, and checks a copy against its list of digests before it is used.

    Args:
        shared: a cache folder that learners can read, such as the one of whoever ran ``make course``.
        own: the learner's cache folder; made if it is not there.

    >>> copy_models(Path("/nonexistent"), Path("/nonexistent"))
    []
    """
    copied = []
    try:
        found = sorted(p.parent for p in shared.glob("tiny-seed*/manifest.json"))
    except OSError:  # a folder that only its owner may enter
        return []
    for source in found:
        target = own / source.name
        if os.path.lexists(target):
            continue
        part = own / f"{source.name}.{os.getpid()}.tmp"
        try:
            own.mkdir(parents=True, exist_ok=True, mode=0o700)
            shutil.copytree(source, part, copy_function=shutil.copyfile)
            part.rename(target)
            copied.append(source.name)
        except OSError:
            with contextlib.suppress(OSError):
                shutil.rmtree(part)
    return copied
