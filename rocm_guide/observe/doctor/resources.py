# SPDX-License-Identifier: MIT
"""The doctor's checks of the machine itself: memory, disk, cache folder."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path

from cdna.checks import Check
from rocm_guide.common.base import GuideError, check_private, own_folder, shown, write_bytes
from rocm_guide.common.host import host_facts

__all__ = []

GIB = 2**30


def check_memory(available: int, total: int) -> Check:
    """Check that there is memory for the largest notebook:
    4 GiB is the bound that every one of them keeps at tiny scale.

    >>> check_memory(1 * 2**30, 8 * 2**30).status
    'FAIL'
    """
    if not total:
        return Check("OK", "memory", "unknown on this system; 4 GiB are needed")
    text = f"{available / GIB:.1f} GiB free of {total / GIB:.1f}"
    if available >= 4 * GIB:
        return Check("OK", "memory", text)
    fix = "close other programs or kernels; 4 GiB are needed"
    return Check("WARN" if available >= 2 * GIB else "FAIL", "memory", text, fix)


def check_cache(folder: Path) -> Check:
    """Check that we can write to the cache folder, by writing there, since permissions alone do not tell (full disks).

    A folder that is only read (an image, a class's shared disk) will do if it holds the tiny model; one that other
    users can write to will not, whatever it holds.
    """
    name = shown(folder).replace(os.path.expanduser("~"), "~", 1)  # noqa: PTH111 - there may be no home
    try:
        check_private(folder)
    except GuideError as e:
        return Check("FAIL", "cache", str(e).partition(";")[0], "set ROCM_GUIDE_CACHE to a folder of your own")
    try:
        write_bytes(own_folder(folder) / f".probe-{os.getpid()}", b"x" * 4096).unlink()
    except GuideError as e:
        reason = str(e).split("(")[-1].split(")")[0]
        if reason in map(os.strerror, (errno.EROFS, errno.EACCES, errno.EPERM)):
            with suppress(OSError):
                if any(folder.glob("tiny-seed0-*/manifest.json")):
                    return Check("OK", "cache", f"{name} is read-only, and holds the tiny model")
        return Check("FAIL", "cache", f"{name}: {reason}", "set ROCM_GUIDE_CACHE to a folder you can write to")
    return Check("OK", "cache", f"{name} is writable")


def check_disk(folder: Path) -> Check:
    """Check the free space on the disk of ``folder`` (or of its nearest parent that exists).

    >>> check_disk(Path("/")).name
    'disk'
    """
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    text = f"{free / GIB:.1f} GiB free"
    if free >= 5 * GIB:
        return Check("OK", "disk", text)
    fix = "free some space, or set ROCM_GUIDE_CACHE to another disk; 5 GiB are comfortable, 1 GiB is the least"
    return Check("WARN" if free >= GIB else "FAIL", "disk", text, fix)


def check_host() -> list[Check]:
    """Return the CPU with what it can compute, and the operating system with its C library: what a report has to name.

    >>> [check.name for check in check_host()]
    ['cpu', 'system']
    """
    facts = host_facts()
    features = ", ".join(facts["features"]) or "none of those that kernels ask for"
    cpu = f"{facts['cpu']} ({facts['arch']}), {facts['cores']} cores; {features}"
    return [Check("OK", "cpu", cpu), Check("OK", "system", f"{facts['os']}, {facts['libc']}")]
