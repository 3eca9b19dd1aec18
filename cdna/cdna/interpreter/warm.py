# SPDX-License-Identifier: MIT
"""A process that has Triton's interpreter ready, so that a kernel runs in a moment and not after seconds of imports.

It is started with the first call and ends with this process. Each call runs in a fork of it, so that a kernel that
crashes takes nothing with it, and the next one finds nothing of it.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any, NoReturn

from cdna.children import ChildError

__all__ = ["call_warm", "run_warm"]

_START = "import importlib, sys; getattr(importlib.import_module(sys.argv[1]), sys.argv[2])()"
_INTERPRET = {"TRITON_INTERPRET": "1"}
_PATIENCE = 0.01  # seconds between two looks at a fork


def _in_the_fork(request: dict[str, Any]) -> NoReturn:
    """Do one call with the variables, folders and modules of the process that asks, and end."""
    code = 1
    try:
        said = os.open(request["said"], os.O_WRONLY)
        for descriptor in (1, 2):  # what a kernel prints is no answer
            os.dup2(said, descriptor)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        sys.path[:] = request["path"]
        getattr(importlib.import_module(request["module"]), request["name"])(*request["arguments"])
        code = 0
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else 0 if e.code is None else 1
        if isinstance(e.code, str):
            print(e.code, file=sys.stderr)
    finally:
        if sys.exc_info()[0] is not None:
            traceback.print_exc()  # the last line of it is what the other process shows
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait_for(child: int) -> int:
    """Return the exit code of a fork, negative for a signal; kill it if the process that asks ends before."""
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if select.select([0], [], [], _PATIENCE)[0]:  # nobody asks before there is an answer: this is the end
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os._exit(0)


def serve() -> None:
    """Do, in the process that waits, a call for each line of the standard input, until that ends.

    A line is a request in JSON; its answer is a line with the exit code, negative for a signal.
    """
    for module in ("torch", "triton.language"):
        importlib.import_module(module)  # here once, so that the forks have it
    import torch

    torch.set_num_threads(1)  # a fork has only the thread that forked
    for line in iter(sys.stdin.readline, ""):
        child = os.fork()
        if child == 0:
            _in_the_fork(json.loads(line))
        print(_wait_for(child), flush=True)


class _Warm:
    """The process that waits, if there is any."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None
        self.owner = 0

    def ask(self, request: str, seconds: float | None) -> str:
        """Ask for one call; the answer is an exit code as text, empty if the process has died.

        Raises:
            ChildError: no answer within that time; the process has been ended.
        """
        if self.owner != os.getpid():  # a fork of the process that started it: the pipes belong to the other one
            self.process, self.owner = None, os.getpid()
        if self.process is None or self.process.poll() is not None:
            self.end()
            self.start()
        process, answered = self.process, False
        assert process is not None and process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(request + "\n")
            process.stdin.flush()
            if not select.select([process.stdout], [], [], seconds)[0]:
                raise ChildError(f"the process ran longer than {seconds:g} s")
            answer = process.stdout.readline().strip()
            answered = bool(answer)
            return answer
        except BrokenPipeError:
            return ""
        finally:
            if not answered:  # also after Ctrl-C: nobody will fetch this answer
                self.end()

    def start(self) -> None:
        """Start it; Ctrl-C in a terminal or notebook is not for it."""
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _START, serve.__module__, serve.__name__],
            env={**os.environ, **_INTERPRET, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        atexit.register(self.end)

    def end(self) -> None:
        """Close its input, at which it ends, with what it is doing."""
        process, self.process = self.process, None
        if process is None or self.owner != os.getpid():
            return
        atexit.unregister(self.end)
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()
        process.stdout.close()


_IDLE: list[_Warm] = []


def call_warm(module: str, name: str, *arguments: str, seconds: float | None = None) -> tuple[int, str]:
    """Call a function of a module, with texts as its arguments, in a fork of a process that has the interpreter.

    The fork has this process's variables, folder and ``sys.path`` of now. Threads do not wait for each other: a call
    that finds no idle process starts one.

    Returns:
        The exit code, negative for a signal, and the last line that it printed.

    Raises:
        ChildError: it ran out of time, or the process that forks has ended.
    """
    try:
        warm = _IDLE.pop()
    except IndexError:
        warm = _Warm()
    try:
        with tempfile.NamedTemporaryFile() as said:
            request = {
                "module": module,
                "name": name,
                "arguments": arguments,
                "environment": {**os.environ, **_INTERPRET},
                "folder": str(Path.cwd()),
                "path": ["", *filter(None, sys.path)],
                "said": said.name,
            }
            code = warm.ask(json.dumps(request), seconds)
            lines = [line.strip() for line in Path(said.name).read_text(errors="replace").splitlines()]
    finally:
        _IDLE.append(warm)
    if not code:
        raise ChildError("the process that has the interpreter has ended: try again")
    return int(code), next((line for line in reversed(lines) if line), "")


def run_warm(module: str, name: str, *arguments: str, seconds: float | None = None) -> None:
    """Call as :func:`call_warm` does, where only success is an answer.

    Raises:
        ChildError: it failed (with the last line of its error), was ended by a signal, or ran out of time.

    >>> run_warm("os", "chdir", "/no/such/folder")
    Traceback (most recent call last):
        ...
    cdna.children.ChildError: FileNotFoundError: [Errno 2] No such file or directory: '/no/such/folder'
    """
    code, said = call_warm(module, name, *arguments, seconds=seconds)
    if code:
        raise ChildError(said or f"the process ended with code {code}")
