# SPDX-License-Identifier: MIT
"""A process that has Triton's interpreter ready, so that a judgement takes a moment and not the seconds of an import.

It is started with the first judgement and ends with this process. Each judgement runs in a fork of it, so that a
solution that crashes takes nothing with it and the next one finds nothing of it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from rocm_guide.dojo.judge import Verdict, judge_packed
from rocm_guide.dojo.puzzle import DojoError

__all__ = ["judge_in_worker"]

_START = "import importlib, sys; getattr(importlib.import_module(sys.argv[1]), sys.argv[2])()"
_LOCK = threading.Lock()


def _judge(source: str, target: str) -> None:
    """In the fork: one judgement, from file to file."""
    packed, name, path = pickle.loads(Path(source).read_bytes())
    sys.path[:] = path
    Path(target).write_bytes(pickle.dumps(judge_packed(packed, name)))


def serve() -> None:
    """In the worker: a judgement for each line of the standard input, until that ends.

    A line is two paths with a tab between them; the answer is a line with the exit code, negative for a signal.
    """
    import torch
    import triton  # noqa: F401  imported here once, so that the forks have it

    torch.set_num_threads(1)  # a fork has only the thread that forked
    for line in sys.stdin:
        source, target = line.rstrip("\n").split("\t")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.dup2(2, 1)  # what a solution prints is no answer
                _judge(source, target)
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


class _Worker:
    """The running process, if any."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def ask(self, source: Path, target: Path) -> str:
        """One judgement; the answer is an exit code as text, empty if the worker itself has died."""
        if self.process is None or self.process.poll() is not None:
            settings = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", _START, serve.__module__, serve.__name__],
                env=settings,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            atexit.register(self.end)
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(f"{source}\t{target}\n")
            self.process.stdin.flush()
            return self.process.stdout.readline().strip()
        except BrokenPipeError:
            return ""

    def end(self) -> None:
        """Close the worker's input, at which it ends."""
        atexit.unregister(self.end)
        process, self.process = self.process, None
        if process is not None and process.stdin is not None and process.stdout is not None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            process.wait()
            process.stdout.close()


_WORKER = _Worker()


def judge_in_worker(packed: dict[str, Any], name: str) -> Verdict:
    """:func:`~rocm_guide.dojo.judge.judge_packed` in a process with the interpreter on.

    Raises:
        DojoError: the process could not be started, or ended.
    """
    with _LOCK, tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "call", Path(folder) / "verdict"
        source.write_bytes(pickle.dumps((packed, name, [p for p in sys.path if p])))
        code = _WORKER.ask(source, target)
        if target.exists():
            verdict = pickle.loads(target.read_bytes())
            assert isinstance(verdict, Verdict)
            return verdict
        if not code:
            raise DojoError("the process that judges ended: try again; if it ends again, run rocm-guide doctor")
        return Verdict(0, f"the solution ended its process (code {code})", "is memory used up, or os._exit called?")
