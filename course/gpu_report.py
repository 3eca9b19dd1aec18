# SPDX-License-Identifier: MIT
"""The table of a run on a GPU: `rocm-guide run --gpu-report FILE` writes it, and merges later runs into it.

A course that is stored as it ran on a CPU says nothing about a GPU. This table does: for each notebook the code that
ran, with which parameters, on which machine, and how it ended. :func:`changed_since` names the notebooks whose code
is another one by now.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from course.parameters import parameters_of
from rocm_guide.cli.lessons import Lesson, cell_source, read_notebook
from rocm_guide.common.base import GuideError, read_regular, write_text
from rocm_guide.observe.doctor.own_folders import OWN_FOLDERS

__all__ = ["changed_since", "code_hash", "merge_gpu_report"]

_LIBRARIES = ("torch", "triton", "numpy", "transformers", "trl", "peft", "gptqmodel", "bitsandbytes")
_IMPORTS = re.compile(r"^ *from (?:rocm_guide|cdna)[\w.]* import (?:\([^)]*\)|[^\n]*)(?:\n|$)", re.M)
_LARGEST = 20_000_000  # bytes of a table; a row has about 300
_MEMORY = "largest sum over the notebook's processes, as the driver counts it (AMD: KFD; NVIDIA: nvidia-smi), in MiB"


def code_hash(nb: dict[str, Any]) -> str:
    """Return a digest of a notebook's code: the texts of its code cells in order, and the parameters' defaults.

    Prose, outputs, tags, empty lines and the comments beside parameters do not count, nor where helpers are imported
    from.

    >>> cells = [{"cell_type": "code", "source": "x = 1"}, {"cell_type": "markdown", "source": "Why."}]
    >>> code_hash({"cells": cells}) == code_hash({"cells": cells[:1]})
    True
    """
    parts: list[Any] = []
    for cell in nb["cells"]:
        if cell["cell_type"] != "code":
            continue
        if "parameters" in cell.get("metadata", {}).get("tags", []):
            parts.append([[p.name, repr(p.default)] for p in parameters_of({"cells": [cell]}).values()])
        else:
            lines = _IMPORTS.sub("", cell_source(cell)).splitlines()
            parts.append("\n".join(line for line in lines if line.strip()))
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _driver() -> str:
    """Return the version of the GPU's driver; "unknown" where none says it."""
    try:
        return "amdgpu " + Path("/sys/module/amdgpu/version").read_text().strip()
    except OSError:
        pass  # the driver of the kernel itself, or another vendor's
    if shutil.which("nvidia-smi"):
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode == 0 and done.stdout.strip():
            return "NVIDIA " + done.stdout.splitlines()[0].strip()
    return f"of the kernel, {platform.release()}" if Path("/dev/kfd").exists() else "none"


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        beside = [str(folder.path) for folder in OWN_FOLDERS.values()]
        found = next(iter(importlib.metadata.distributions(name=name, path=beside)), None)
        return found.version if found else "not installed"


def _row(entry: dict[str, Any], lesson: Lesson, hardware: str) -> dict[str, Any]:
    row: dict[str, Any] = {
        "notebook": lesson.number,
        "code": entry["code"],
        "parameters": entry["parameters"],
        "hardware": hardware,
        "status": entry["status"],
        "seconds": entry.get("seconds"),
        "gpu_peak_mib": entry.get("gpu_peak_mib"),
    }
    if failure := entry.get("failure"):
        message = " ".join(failure["message"].split())[:500]
        row |= {"cell": failure.get("cell"), "error": failure["error"], "message": message}
    return row


def read_gpu_report(file: Path) -> dict[str, Any]:
    """Read the table in ``file``; an empty one if there is no such file.

    Raises:
        GuideError: the file is something else.
    """
    if not file.exists():
        return {"machines": {}, "rows": []}
    try:
        found = json.loads(read_regular(file, _LARGEST))
        rows = all(isinstance(r["parameters"], dict) and r["notebook"] and r["hardware"] for r in found["rows"])
        if rows and isinstance(found["machines"], dict):
            return dict(found)
    except (OSError, ValueError, TypeError, KeyError) as e:
        raise GuideError(f"{file}: not a table of --gpu-report ({type(e).__name__}); choose another file") from e
    raise GuideError(f"{file}: not a table of --gpu-report; choose another file")


def merge_gpu_report(file: Path, report: dict[str, Any], lessons: Iterable[Lesson], *, day: str) -> Path:
    """Put the notebooks of a run into the table in ``file``, and write it.

    A row takes the place of the one of the same notebook, parameters and hardware; all others stay.

    Args:
        report: what :func:`course.run.run_course` returned.
        lessons: the notebooks that were asked for; those that did not end are left out.
        day: of the run, as ``2026-11-26``.

    Raises:
        GuideError: ``file`` holds something else, or cannot be written.
    """
    table, hardware = read_gpu_report(file), report["hardware"]
    rows = {_key(r): r for r in table["rows"]}
    for lesson in lessons:
        entry = report["notebooks"][lesson.number]
        if entry["status"] in ("ok", "failed", "refused") and "code" in entry:
            row = _row(entry, lesson, hardware)
            rows[_key(row)] = row
    versions = {"python": platform.python_version(), **{n: _version(n) for n in _LIBRARIES}}
    table["machines"][hardware] = {"day": day, "driver": _driver(), "jobs": report["jobs"], "versions": versions}
    table |= {"gpu_peak_mib": _MEMORY, "rows": [rows[k] for k in sorted(rows)]}
    return write_text(file, json.dumps(table, indent=1, ensure_ascii=False) + "\n")


def _key(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["hardware"], json.dumps(row["parameters"], sort_keys=True), row["notebook"]


def changed_since(table: dict[str, Any], lessons: Iterable[Lesson]) -> list[str]:
    """Return the numbers of the notebooks without a row that ended well with the code they have now.

    Args:
        table: from :func:`read_gpu_report`.
        lessons: the notebooks as they are now.
    """
    good = {(r["notebook"], r["code"]) for r in table["rows"] if r["status"] == "ok" and not r["parameters"]}
    return [x.number for x in lessons if (x.number, code_hash(read_notebook(x.path))) not in good]
