# SPDX-License-Identifier: MIT
"""Processes that have large libraries imported, and programs that run in forks of them.

Importing torch, transformers and TRL takes a core for seconds, and every test of a notebook would do it. A fork of a
process that has them imported starts at once, is a process of its own, and finds nothing of the programs before. A fork
cannot use a GPU that a library has asked for while it was imported.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import io
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

#: The folder of a fork is the first place where it looks for modules, as with ``python -m``; the resident has none.
_START = "import sys; sys.path[:] = [p for p in sys.path if p]; import importlib; "
_START += "getattr(importlib.import_module(sys.argv[1]), sys.argv[2])(sys.argv[3:])"
#: Set by torch itself in the process that first imports its compiler; no reason for another resident.
_SET_BY_TORCH = "TORCHINDUCTOR_CACHE_DIR"


def serve(modules: Sequence[str]) -> None:
    """Import ``modules`` in the resident process, then fork for each line of the standard input, until that ends.

    A line is an order in JSON. An answer is a line of two numbers: the order's, and first its process, then at the end
    its exit code (negative for a signal).
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a notebook reaches its children; it is meant for the forks
    for name in modules:
        importlib.import_module(name)
    orders = io.FileIO(0, closefd=False)  # what was read ahead would escape select
    running: dict[int, int] = {}
    more = True
    while more or running:
        if select.select([orders] if more else [], [], [], 0.02 if running else None)[0]:
            line = orders.readline()
            more = bool(line)
            if line:
                order = json.loads(line)
                if (child := os.fork()) == 0:
                    _in_the_fork(order)
                running[child] = order["number"]
                _say(order["number"], child)
        while running and (ended := os.waitpid(-1, os.WNOHANG))[0]:
            _say(running.pop(ended[0]), os.waitstatus_to_exitcode(ended[1]))


def _say(*numbers: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody listens any more; the forks are still waited for
        os.write(1, " ".join(map(str, numbers)).encode() + b"\n")


def _in_the_fork(order: Mapping[str, Any]) -> NoReturn:
    """Run one program as if Python had been started for it, and end the process."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, path in ((1, order["out"]), (2, order["err"])):
            os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), number)
        os.chdir(order["folder"])
        sys.path.insert(0, order["folder"])
        sys.argv = [order["module"], *order["arguments"]]
        program = importlib.import_module(order["module"])
        code = int(program.main() or 0)
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else int(e.code is not None)
        if code and code is not e.code:
            print(e.code, file=sys.stderr)  # as Python does with a text
    finally:
        if (error := sys.exc_info()[1]) is not None:  # what a program of its own would leave behind
            traceback.print_exception(error)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class _Resident:
    """One resident process: what it has imported, the variables it was started with, and what runs in its forks."""

    def __init__(self, modules: Sequence[str], settings: Mapping[str, str]) -> None:
        self.modules, self.settings = tuple(modules), settings
        self.forks: dict[int, Fork] = {}
        self.lock = threading.RLock()
        self.process = subprocess.Popen(
            [sys.executable, "-c", _START, serve.__module__, serve.__name__, *modules],
            env=dict(settings),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,  # what was read ahead would escape select
        )

    def order(self, fork: Fork, line: Mapping[str, Any]) -> None:
        """Hand over one order."""
        assert self.process.stdin is not None
        with self.lock:
            self.forks[fork.number] = fork
            with contextlib.suppress(BrokenPipeError):  # it has just ended, and its answer says so
                self.process.stdin.write(json.dumps({**line, "number": fork.number}).encode() + b"\n")

    def listen(self, seconds: float) -> None:
        """Hand its next answer to the fork that it is about, if there is one within ``seconds``."""
        with self.lock:
            assert self.process.stdout is not None
            if not self.forks or not select.select([self.process.stdout], [], [], seconds)[0]:
                return
            said = self.process.stdout.readline()
            if not said.endswith(b"\n"):
                for fork in self.forks.values():
                    fork.returncode = -signal.SIGKILL
                self.forks.clear()
                return
            number, value = map(int, said.split())
            fork = self.forks[number]
            if fork.known is None:
                fork.known = value
            else:
                fork.returncode = value
                del self.forks[number]

    def end(self) -> None:
        """Close its input, at which it ends when its forks have."""
        with self.lock:
            assert self.process.stdin is not None and self.process.stdout is not None
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
            while self.forks:
                self.listen(1)
            self.process.wait()
            self.process.stdout.close()


_RESIDENTS: list[_Resident] = []
_LOCK = threading.Lock()


class Fork:
    """A program that runs in a fork; as much of ``subprocess.Popen`` as is needed here."""

    _numbers = iter(range(1, sys.maxsize))

    def __init__(self, resident: _Resident, order: Mapping[str, Any]) -> None:
        self.resident, self.number = resident, next(self._numbers)
        self.known: int | None = None
        self.returncode: int | None = None
        resident.order(self, order)

    @property
    def pid(self) -> int:
        """Its process, waited for while the resident still imports; 0 when that has died."""
        while self.known is None and self.returncode is None:
            self.resident.listen(0.2)
        return self.known or 0

    def poll(self, seconds: float = 0) -> int | None:
        """Return the exit code if it ends within ``seconds``."""
        until = time.monotonic() + seconds
        while self.returncode is None:
            left = max(0.0, until - time.monotonic())
            before = self.known
            self.resident.listen(min(left, 0.2))
            if not left and self.known == before:
                break
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; the exit code.

        Raises:
            subprocess.TimeoutExpired: no end after ``timeout`` seconds.
        """
        until = time.monotonic() + timeout if timeout is not None else float("inf")
        while (code := self.poll(min(60.0, max(0.0, until - time.monotonic())))) is None:
            if timeout is not None and time.monotonic() >= until:
                raise subprocess.TimeoutExpired("fork", timeout)
        return code

    def terminate(self) -> None:
        """Ask it to end."""
        if self.pid and self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)


def start_fork(
    modules: Sequence[str],
    module: str,
    arguments: Sequence[str],
    *,
    settings: Mapping[str, str],
    folder: str | Path,
    out: str | Path,
    err: str | Path,
) -> Fork:
    """Run ``module``'s ``main()`` in a fork of a process that has ``modules`` imported; it is started if there is none.

    Args:
        settings: the environment; another one gets another resident.
        folder: where it runs.
        out, err: files that exist, to which it writes.
    """
    settings = {key: value for key, value in settings.items() if key != _SET_BY_TORCH}
    paths = {key: str(Path(path).resolve()) for key, path in (("folder", folder), ("out", out), ("err", err))}
    with _LOCK:
        if not _RESIDENTS:
            atexit.register(_end_all)
        for other in [r for r in _RESIDENTS if r.modules == tuple(modules)]:
            if other.process.poll() is not None or (other.settings != settings and not other.forks):
                other.end()
                _RESIDENTS.remove(other)
        mine = [r for r in _RESIDENTS if r.modules == tuple(modules) and r.settings == settings]
        if not mine:
            mine = [_Resident(modules, settings)]
            _RESIDENTS.extend(mine)
        return Fork(mine[0], {"module": module, "arguments": list(arguments), **paths})


def _end_all() -> None:
    """End all resident processes at the end of this one."""
    for resident in _RESIDENTS:
        for fork in list(resident.forks.values()):
            fork.terminate()
        resident.end()
    _RESIDENTS.clear()
