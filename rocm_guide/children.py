# SPDX-License-Identifier: MIT
"""Run something in a fresh Python process and get its answer, or one line that says what went wrong there.

What is fixed when a process starts or a module is imported (Triton's interpreter, TunableOp's results file) needs a
process of its own.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rocm_guide.base import GuideError

__all__ = ["ChildError", "call_in_child", "run_child"]

_CALL = """
import importlib, pickle, sys
from pathlib import Path
module, name, options = pickle.loads(Path(sys.argv[1]).read_bytes())
answer = getattr(importlib.import_module(module), name)(**options)
Path(sys.argv[2]).write_bytes(pickle.dumps(answer))
"""


class ChildError(GuideError):
    """The process failed, died, or took too long."""


def run_child(
    code: str, *arguments: str, environment: Mapping[str, str] | None = None, seconds: float | None = None
) -> None:
    """Run Python code in a fresh process that finds the same modules as this one.

    Args:
        code: what the process executes.
        arguments: its ``sys.argv[1:]``.
        environment: variables to set there beside this process's own.
        seconds: when to end it; None waits for as long as it takes.

    Raises:
        ChildError: it failed (with the last line of its error), was ended by a signal, or ran out of time.

    >>> run_child("import sys; sys.exit(sys.argv[1])", "no such file")
    Traceback (most recent call last):
        ...
    rocm_guide.children.ChildError: no such file
    """
    settings = {**os.environ, **(environment or {}), "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-W", "ignore", "-c", code, *arguments]
    try:
        run = subprocess.run(command, env=settings, capture_output=True, text=True, errors="replace", timeout=seconds)
    except subprocess.TimeoutExpired as e:
        raise ChildError(f"the process ran longer than {seconds:g} s") from e
    if run.returncode:
        said = [line.strip() for line in run.stderr.splitlines() if line.strip()]
        raise ChildError(said[-1] if said else f"the process ended with code {run.returncode}")


def call_in_child(function: Callable[..., Any], **options: Any) -> Any:
    """``function(**options)`` in a fresh process; options and answer are what pickle can carry.

    Args:
        function: of an importable module, not of a notebook or script.

    Raises:
        ChildError: see :func:`run_child`.

    >>> import statistics
    >>> call_in_child(statistics.mean, data=[1, 2, 3])
    2
    """
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "call", Path(folder) / "answer"
        source.write_bytes(pickle.dumps((function.__module__, function.__name__, options)))
        try:
            run_child(_CALL, str(source), str(target))
        except ChildError as e:
            raise ChildError(f"{function.__name__}: {e}") from e
        if not target.exists():  # os._exit leaves no message, and even its code may be 0
            raise ChildError(f"{function.__name__}: the process ended without an answer")
        return pickle.loads(target.read_bytes())
