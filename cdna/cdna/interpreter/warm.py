# SPDX-License-Identifier: MIT
"""A process that has Triton ready, so that a kernel runs in a moment and not after seconds of imports.

It is started with the first call and ends with this process. Each call runs in a fork of it, so that a kernel that
crashes takes nothing with it, and the next one finds nothing of it. Whatever a fork has started ends with it. Whether
Triton interprets or compiles is decided when it is imported, so there is one process for each.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

from cdna.children import ChildError

__all__ = ["SilentError", "call_warm", "prepare_warm", "run_warm", "time_in_the_queue"]

_START = "import importlib, sys; getattr(importlib.import_module(sys.argv[1]), sys.argv[2])()"
_PATIENCE = 0.01  # seconds between two looks at a fork
_SUBREAPER = 36  # prctl: orphans of this process's forks become its own children


class SilentError(ChildError):
    """A call that gave no sign of life for too long, and was ended."""


def _settings(interpret: bool) -> dict[str, str]:
    """Return this process's variables, with those of Triton's interpreter or without."""
    plain = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    return plain | {"TRITON_INTERPRET": "1"} if interpret else plain


def time_in_the_queue(process: int | str = "self") -> float:
    """Return the seconds that a process was ready to run and other programs had the processors; 0 where Linux does not
    say.

    Time by the clock less this is the time that a process took by itself, asleep or not, however busy the machine is.
    """
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def _in_the_fork(request: dict[str, Any]) -> NoReturn:
    """Do one call with the variables, folders and modules of the process that asks, and end."""
    code = 1
    os.setsid()  # a group of its own, which is ended as a whole
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


def _end_what_is_left(child: int) -> None:
    """Kill a fork's group, and what it has started in groups of its own: Linux gives that to this process."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    me = os.getpid()
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        try:
            left = Path(f"/proc/{me}/task/{me}/children").read_text().split()
        except OSError:  # Linux without this list, or another system: the group it is
            return
        if not left:
            return
        for one in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(one), signal.SIGKILL)
        time.sleep(_PATIENCE)


class _Pulse:
    """How long a fork has given no sign of life: the file that it touches is as it was."""

    def __init__(self, child: int, beat: str) -> None:
        self.child, self.beat, self.last = child, beat, 0
        self.began = self.queued = 0.0

    def silence(self) -> float:
        """Return the seconds since the last sign, less those in which other programs had the processors."""
        now = Path(self.beat).stat().st_mtime_ns if Path(self.beat).exists() else 1
        if now != self.last:
            self.last, self.began, self.queued = now, time.monotonic(), time_in_the_queue(self.child)
        return time.monotonic() - self.began - (time_in_the_queue(self.child) - self.queued)


def _wait_for(child: int, beat: str, quiet: float | None) -> int | None:
    """Return the exit code of a fork, negative for a signal, None if it was silent for too long and has been killed;
    kill it if the process that asks ends before.
    """
    pulse = _Pulse(child, beat)
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            _end_what_is_left(child)
            return os.waitstatus_to_exitcode(status)
        if quiet is not None and pulse.silence() > quiet:
            _end_what_is_left(child)
            return None
        if select.select([0], [], [], _PATIENCE)[0]:  # nobody asks before there is an answer: this is the end
            _end_what_is_left(child)
            os._exit(0)


def serve() -> None:
    """Do, in the process that waits, a call for each line of the standard input, until that ends.

    A line is a request in JSON; its answer is a line with the exit code, negative for a signal. A request with
    ``prepare`` alone is done here, so that later forks have what it imports, and has no answer.
    """
    for module in ("torch", "triton.language"):
        importlib.import_module(module)  # here once, so that the forks have it
    import torch

    torch.set_num_threads(1)  # a fork has only the thread that forked
    if hasattr(prctl := ctypes.CDLL(None), "prctl"):
        prctl.prctl(_SUBREAPER, 1)
    for line in iter(sys.stdin.readline, ""):
        request = json.loads(line)
        if "prepare" in request:
            module, name = request["prepare"]
            getattr(importlib.import_module(module), name)()
            continue
        child = os.fork()
        if child == 0:
            _in_the_fork(request)
        code = _wait_for(child, request["beat"], request["quiet"])
        print("silent" if code is None else code, flush=True)


class _Warm:
    """The process that waits, if there is any."""

    def __init__(self, interpret: bool) -> None:
        self.interpret = interpret
        self.process: subprocess.Popen[str] | None = None
        self.owner = 0
        self.prepared: set[tuple[str, str]] = set()

    def ask(self, request: str, seconds: float | None) -> str:
        """Ask for one call; the answer is an exit code as text, empty if the process has died.

        Raises:
            ChildError: no answer within that time; the process has been ended.
        """
        self.ready()
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

    def ready(self) -> None:
        """Start it if it is not there; Ctrl-C in a terminal or notebook is not for it."""
        if self.owner != os.getpid():  # a fork of the process that started it: the pipes belong to the other one
            self.process, self.owner = None, os.getpid()
        if self.process is not None and self.process.poll() is None:
            return
        self.end()
        self.prepared = set()
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _START, serve.__module__, serve.__name__],
            env={**_settings(self.interpret), "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        atexit.register(self.end)

    def prepare(self, what: tuple[str, str]) -> None:
        """Let it call a function of a module once, before the calls that follow; do not wait for it."""
        self.ready()
        if what not in self.prepared:
            assert self.process is not None and self.process.stdin is not None
            self.process.stdin.write(json.dumps({"prepare": what}) + "\n")
            self.process.stdin.flush()
            self.prepared.add(what)

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


_IDLE: dict[bool, list[_Warm]] = {True: [], False: []}  # by whether they interpret


def _take(interpret: bool) -> _Warm:
    try:
        return _IDLE[interpret].pop()
    except IndexError:
        return _Warm(interpret)


def prepare_warm(*, interpret: bool = True, first: tuple[str, str] | None = None) -> None:
    """Start the process that the next call would start, and do not wait for it.

    Args:
        interpret: whether Triton interprets kernels in it, or compiles them.
        first: a function, as its module and its name, that the process itself calls once: what this imports and
            remembers, all forks have from then on. One that fails ends the process.
    """
    warm = _take(interpret)
    warm.ready()
    if first is not None:
        warm.prepare(first)
    _IDLE[interpret].append(warm)


def call_warm(
    module: str,
    name: str,
    *arguments: str,
    seconds: float | None = None,
    interpret: bool = True,
    beat: str = "",
    quiet: float | None = None,
) -> tuple[int, str]:
    """Call a function of a module, with texts as its arguments, in a fork of a process that has Triton.

    The fork has this process's variables, folder and ``sys.path`` of now. Threads do not wait for each other: a call
    that finds no idle process starts one. What the fork has started ends with it.

    Args:
        seconds: when to end it, and the process that forks.
        interpret: whether Triton interprets kernels in it, or compiles them.
        beat: a file that the call touches to show that it goes on.
        quiet: seconds without such a sign after which it is ended; None waits.

    Returns:
        The exit code, negative for a signal, and the last line that it printed.

    Raises:
        SilentError: it gave no sign for too long.
        ChildError: it ran out of time, or the process that forks has ended.
    """
    warm = _take(interpret)
    try:
        with tempfile.NamedTemporaryFile() as said:
            request = {
                "module": module,
                "name": name,
                "arguments": arguments,
                "environment": _settings(interpret),
                "folder": str(Path.cwd()),
                "path": ["", *filter(None, sys.path)],
                "said": said.name,
                "beat": beat,
                "quiet": quiet,
            }
            code = warm.ask(json.dumps(request), seconds)
            lines = [line.strip() for line in Path(said.name).read_text(errors="replace").splitlines()]
    finally:
        _IDLE[interpret].append(warm)
    if not code:
        raise ChildError("the process that has the interpreter has ended: try again")
    if code == "silent":
        raise SilentError(f"no sign of life for {quiet:g} s")
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
