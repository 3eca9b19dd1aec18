# SPDX-License-Identifier: MIT
"""The hub's own environment has no torch: its Python kernel is made to be the course's Python."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from rocm_guide.common.base import GuideError, shown, write_text

__all__ = ["write_kernel"]


def write_kernel(prefix: Path, python: Path) -> Path:
    """Write the kernel ``python3`` of the environment in ``prefix`` so that it starts ``python``; gives the file.

    Args:
        prefix: the hub's environment, a folder with ``share/jupyter``.
        python: the Python of the course, which has ipykernel and torch.

    Raises:
        GuideError: ``python`` is no program, or the file cannot be written.

    >>> write_kernel(Path("/nonexistent"), Path("/nonexistent/python"))
    Traceback (most recent call last):
        ...
    cdna.base.InputError: /nonexistent/python: no Python of the course; run make install, or name another
    """
    python = python.absolute()
    if not os.access(python, os.X_OK):
        raise GuideError(f"{shown(python)}: no Python of the course; run make install, or name another")
    words = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    path = os.pathsep.join((str(python.parent), "/opt/rocm/bin", "/usr/local/bin", "/usr/bin", "/bin"))
    spec = {"argv": words, "display_name": "ROCm LLM Guide", "language": "python", "env": {"PATH": path}}
    file, text = prefix / "share/jupyter/kernels/python3/kernel.json", json.dumps(spec, indent=1)
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        write_text(file, text)
    return file


if __name__ == "__main__":
    try:
        print(write_kernel(Path(sys.argv[1]), Path(sys.argv[2])))
    except (GuideError, IndexError) as e:
        sys.exit(f"python -m hub.kernel HUB_ENVIRONMENT COURSE_PYTHON: {e}")
