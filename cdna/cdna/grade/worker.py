# SPDX-License-Identifier: MIT
"""A judgement in processes of their own, which have Triton ready: one interprets, one compiles and executes the code.

It takes a moment, and a solution that crashes, sleeps or takes all memory takes nothing with it.
"""

from __future__ import annotations

import importlib
import os
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cdna.checks import Check
from cdna.children import ChildError
from cdna.grade.judge import Verdict, judge_packed
from cdna.grade.puzzle import GradeError
from cdna.grade.structure import check_packed
from cdna.interpreter.warm import SilentError, call_warm, prepare_warm

__all__ = ["check_in_worker", "judge_in_worker", "prepare_workers"]

_GRACE = 2.0  # seconds after its own limit of time, at which a solution that caught the error is ended


def judge_file(source: str, target: str, beat: str) -> None:
    """Judge once in another process, from file to file."""
    _answer(judge_packed, source, target, beat)


def check_file(source: str, target: str, beat: str) -> None:
    """Check the code once in the other process, from file to file."""
    _answer(check_packed, source, target, beat)


def _answer(what: Callable[..., Any], source: str, target: str, beat: str) -> None:
    arguments = pickle.loads(Path(source).read_bytes())
    Path(target).write_bytes(pickle.dumps(what(*arguments, beat)))


def read_ahead() -> None:
    """Do once what each judgement in this process would do, up to a second of work: import Triton's Gluon; where
    kernels are compiled, also PyTorch's shapes of tensors without memory, which bring sympy, and compute Triton's
    digest of itself, by which it finds what it has compiled.
    """
    importlib.import_module("triton.experimental.gluon")
    if os.environ.get("TRITON_INTERPRET") == "1":
        return
    importlib.import_module("torch.fx.experimental.symbolic_shapes")
    from triton.runtime import cache

    if hasattr(cache, "triton_key"):  # not so called in every release
        cache.triton_key()


def prepare_workers(executed: bool = False) -> None:
    """Start both processes, if they are not there, and do not wait for them; ``executed`` needs no interpreter."""
    ahead = read_ahead.__module__, read_ahead.__name__
    if not executed:
        prepare_warm(interpret=True, first=ahead)
    prepare_warm(interpret=False, first=ahead)


def _ask(function: Callable[..., None], seconds: float, *arguments: Any, interpret: bool = False) -> tuple[Any, str]:
    """Return the other process's answer, or why there is none.

    Raises:
        GradeError: the process could not be started.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, target, beat = (str(Path(folder) / n) for n in ("call", "answer", "beat"))
        Path(source).write_bytes(pickle.dumps((*arguments, seconds)))
        try:
            code, _ = call_warm(
                function.__module__,
                function.__name__,
                source,
                target,
                beat,
                interpret=interpret,
                beat=beat,
                quiet=seconds + _GRACE,
            )
        except SilentError:
            return None, f"no end after {seconds:g} s, and the solution cannot be interrupted"
        except ChildError as e:
            raise GradeError(f"the judgement has no answer: {e}") from e
        if Path(target).exists():
            return pickle.loads(Path(target).read_bytes()), ""
        return None, f"the solution ended its process (code {code})"


def judge_in_worker(packed: dict[str, Any], place: str, name: str, seconds: float, executed: bool) -> Verdict:
    """Call :func:`~cdna.grade.judge.judge_packed` in a process with the interpreter on, or in the one that compiles.

    Raises:
        GradeError: the process could not be started.
    """
    verdict, why = _ask(judge_file, seconds, packed, place, name, executed, interpret=not executed)
    if why:
        return Verdict(0, why, "is memory used up, or os._exit called?" if "ended" in why else "does a loop end?")
    assert isinstance(verdict, Verdict)
    return verdict


def check_in_worker(packed: dict[str, Any], place: str, name: str, arch: str, seconds: float) -> list[Check]:
    """Call :func:`~cdna.grade.structure.check_packed` in a process that compiles.

    Raises:
        GradeError: the process could not be started.
    """
    checks, why = _ask(check_file, seconds, packed, place, name, arch)
    if why:
        return [Check("FAIL", "compiles", why, "outside of the interpreter it does something else")]
    return list(checks)
