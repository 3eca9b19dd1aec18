# SPDX-License-Identifier: MIT
"""A judgement in a process of its own, which has Triton's interpreter ready: it takes a moment, and a solution that
crashes takes nothing with it.
"""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path
from typing import Any

from cdna.children import ChildError
from cdna.interpreter.warm import call_warm
from rocm_guide.dojo.judge import Verdict, judge_packed
from rocm_guide.dojo.puzzle import DojoError

__all__ = ["judge_in_worker"]


def judge_file(source: str, target: str) -> None:
    """Judge once in the other process, from file to file."""
    packed, name = pickle.loads(Path(source).read_bytes())
    Path(target).write_bytes(pickle.dumps(judge_packed(packed, name)))


def judge_in_worker(packed: dict[str, Any], name: str) -> Verdict:
    """Call :func:`~rocm_guide.dojo.judge.judge_packed` in a process with the interpreter on.

    Raises:
        DojoError: the process could not be started, or ended.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "call", Path(folder) / "verdict"
        source.write_bytes(pickle.dumps((packed, name)))
        try:
            code, _ = call_warm(judge_file.__module__, judge_file.__name__, str(source), str(target))
        except ChildError as e:
            raise DojoError(f"the judgement has no answer: {e}") from e
        if target.exists():
            verdict = pickle.loads(target.read_bytes())
            assert isinstance(verdict, Verdict)
            return verdict
        return Verdict(0, f"the solution ended its process (code {code})", "is memory used up, or os._exit called?")
