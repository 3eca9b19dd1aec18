# SPDX-License-Identifier: MIT
"""Is this machine ready for the course? `preflight()` for notebooks, `diagnose()` for `rocm-guide doctor`."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from cdna.checks import Check, Status
from rocm_guide.common.base import GuideError, cache_folder
from rocm_guide.common.host import memory_available
from rocm_guide.observe.doctor.own_folders import OWN_FOLDERS
from rocm_guide.observe.doctor.software import (
    check_accelerator,
    check_cache,
    check_disk,
    check_host,
    check_libraries,
    check_memory,
    check_python,
    check_rocm_tools,
    pins,
)
from rocm_guide.observe.system.audit import check_numa

__all__ = ["PreflightError", "diagnose", "libraries", "preflight"]

# What no notebook can do without; also the whole list when the package's metadata is not there (a copied helper).
_CORE = ("torch", "transformers", "numpy", "matplotlib")


class PreflightError(GuideError):
    """This machine cannot run the notebook; the message carries the fix."""


def libraries() -> list[str]:
    """Return the libraries that the course needs: the ``course`` extra of this package, in its order."""
    try:
        requires = importlib.metadata.requires("rocm-guide") or []
    except importlib.metadata.PackageNotFoundError:
        return list(_CORE)
    wanted = [r for r in requires if re.search(r"extra\s*==\s*['\"]course['\"]", r)]
    names = [re.split(r"[^A-Za-z0-9._-]", r, maxsplit=1)[0].lower() for r in wanted]
    return [n for n in names if n != "rocm-guide"] or list(_CORE)


def diagnose(*, timeout: float = 120) -> list[Check]:
    """Run every check of the doctor, in the order a reader wants them: software, accelerator, machine.

    Works with nothing installed but this package.
    """
    available, total = memory_available()
    with ThreadPoolExecutor(1) as beside:
        # It waits for a process that loads torch's libraries, the longest of all checks.
        accelerator = beside.submit(check_accelerator, timeout=timeout)
        software = [check_python(), *check_host(), *check_libraries(libraries(), pins())]
        software += [folder.check() for folder in OWN_FOLDERS.values()]
    return [
        *software,
        accelerator.result(),
        *check_rocm_tools(),
        check_memory(available, total),
        check_disk(cache_folder()),
        check_cache(cache_folder()),
        check_numa(),
    ]


def _libraries_in_one_line(checks: Sequence[Check], needs: Sequence[str]) -> Check:
    """Return the library checks of a preflight folded together: all as pinned, or those that differ or are missing."""
    missing = [c for c in checks if c.status == "FAIL"]
    odd = [c for c in checks if c.status == "WARN"]
    if missing:
        status: Status = "FAIL" if any(c.name in needs for c in missing) else "WARN"
        return Check(status, "libraries", f"missing: {', '.join(c.name for c in missing)}", missing[0].fix)
    shown = ", ".join(f"{c.name} {re.split('[,;]', c.found)[0]}" for c in (odd or checks[:3]))
    if odd:
        return Check("WARN", "libraries", f"other versions than tested: {shown}", "fine unless something fails")
    more = f" and {len(checks) - 3} more" if len(checks) > 3 else ""
    return Check("OK", "libraries", f"{shown}{more}, as tested")


def preflight(*needs: str, cache: Path | None = None) -> None:
    """Print in a few lines whether this machine is ready, and stop here, with the fix, if it is not.

    The second cell of every notebook. A warning stops nothing: other library versions, a library missing that this
    notebook may not use, a GPU that torch cannot open, little memory.

    Args:
        needs: further libraries that this notebook cannot do without, for example ``"peft"``; "torchtune" and
            "quantization" are looked for in their own folders.
        cache: another cache folder than the usual one.

    Raises:
        PreflightError: a check failed; the message is the failing line.

    >>> preflight()  # doctest: +ELLIPSIS
    [OK]   python ...
    """
    pinned = pins()
    folder = cache or cache_folder()
    available, total = memory_available()
    own = [OWN_FOLDERS[n].check() for n in needs if n in OWN_FOLDERS]
    needs = tuple(n for n in needs if n not in OWN_FOLDERS)
    checks: Iterable[Check] = (
        check_python(),
        _libraries_in_one_line(check_libraries(dict.fromkeys([*libraries(), *needs]), pinned), (*_CORE, *needs)),
        *(replace(c, status="OK" if c.status == "OK" else "FAIL") for c in own),
        # In this process: the notebook is about to import torch anyway.
        check_accelerator(isolated=False),
        check_memory(available, total),
        check_disk(folder),
        check_cache(folder),
    )
    failed = []
    for check in checks:
        print(check, flush=True)
        if check.status == "FAIL":
            failed.append(check)
    if failed:
        raise PreflightError("; ".join(f"{c.name}: {c.found} -> {c.fix}" for c in failed))
