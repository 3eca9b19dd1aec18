# SPDX-License-Identifier: MIT
"""A process that has torchtune imported, so that a ``tune`` line takes a moment and not the seconds of an import.

It is started with the first line and ends with this process, or with :func:`close_torchtune`. Each line runs in a fork
of it: a process of its own, which finds nothing of the lines before. A fork cannot use a GPU that torchtune has asked
for while it was imported, so on a machine with GPUs every line gets a fresh process.
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
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rocm_guide.doctor.software import gpu_nodes

__all__ = ["close_torchtune"]

_COMMAND = "torchtune._cli.tune"
#: What the command and its recipes import.
_NEEDED = (_COMMAND, "torchtune.training", "torchdata.stateful_dataloader", "rocm_guide.torchtune.tokenizer")
#: The folder of a fork is the first place where it looks for modules, as with ``python -m``; the resident has none.
_START = "import sys; sys.path[:] = [p for p in sys.path if p]; import importlib; "
_START += "getattr(importlib.import_module(sys.argv[1]), sys.argv[2])()"
#: Set by torch itself in the process that first imports its compiler; no reason for another resident.
_SET_BY_TORCH = "TORCHINDUCTOR_CACHE_DIR"
_LOCK = threading.Lock()


def serve() -> None:
    """In the resident process: a fork for each line of the standard input, until that ends.

    A line is an order in JSON. The answers are two lines: the fork's number, and at its end its exit code (negative for
    a signal).
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a notebook reaches its children; it is meant for the fork
    for name in _NEEDED:
        importlib.import_module(name)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _in_the_fork(json.loads(line))
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _in_the_fork(order: Mapping[str, Any]) -> None:
    """Run one ``tune`` line as if it were a program of its own, and end the process."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, path in ((1, order["out"]), (2, order["err"])):
            os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), number)
        os.chdir(order["folder"])
        sys.path.insert(0, order["folder"])
        sys.argv = ["tune", *order["arguments"]]
        importlib.import_module(_COMMAND).main()
        code = 0
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else int(e.code is not None)
    finally:
        if (error := sys.exc_info()[1]) is not None:  # what a program of its own would leave behind
            traceback.print_exception(error)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class _Resident:
    """The resident process, if any, and the variables that it was started with."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.settings: Mapping[str, str] = {}

    def order(self, line: Mapping[str, Any], settings: Mapping[str, str]) -> None:
        """Hand over one order, to a process that has these variables."""
        settings = {name: value for name, value in settings.items() if name != _SET_BY_TORCH}
        if self.process is None or self.process.poll() is not None or self.settings != settings:
            self.end()
            self.settings = settings
            self.process = subprocess.Popen(
                [sys.executable, "-c", _START, serve.__module__, serve.__name__],
                env=self.settings,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,  # what was read ahead would escape select
            )
            atexit.register(self.end)
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has just ended, and its answer says so
            self.process.stdin.write(json.dumps(dict(line)).encode() + b"\n")

    def answer(self, seconds: float | None) -> int | None:
        """The next number that it says, None if there is none within ``seconds``; EOFError when it has ended."""
        assert self.process is not None and self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            return None
        said = self.process.stdout.readline()
        if not said.endswith(b"\n"):
            raise EOFError
        return int(said)

    def end(self) -> None:
        """Close its input, at which it ends."""
        atexit.unregister(self.end)
        process, self.process = self.process, None
        if process is not None and process.stdin is not None and process.stdout is not None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            process.wait()
            process.stdout.close()


_RESIDENT = _Resident()


class Fork:
    """A ``tune`` line that runs in a fork of the resident; as much of ``subprocess.Popen`` as is needed here."""

    def __init__(self, order: Mapping[str, Any], settings: Mapping[str, str]) -> None:
        self.returncode: int | None = None
        self.pid: int | None = None
        _LOCK.acquire()  # one line at a time; released when it has ended
        _RESIDENT.order(order, settings)

    def _ended(self, code: int) -> int:
        self.returncode = code
        _LOCK.release()
        return code

    def poll(self, seconds: float = 0) -> int | None:
        """The exit code if the line ends within ``seconds``."""
        until = time.monotonic() + seconds
        while self.returncode is None:
            try:
                said = _RESIDENT.answer(max(0.0, until - time.monotonic()))
            except EOFError:
                return self._ended(-signal.SIGKILL)
            if said is None:
                return None
            if self.pid is not None:
                return self._ended(said)
            self.pid = said
        return self.returncode

    def wait(self) -> int:
        """Wait for its end; the exit code."""
        while (code := self.poll(60)) is None:
            continue
        return code

    def terminate(self) -> None:
        """Ask it to end."""
        while self.pid is None and self.returncode is None:  # the resident is still importing
            self.poll(0.2)
        if self.returncode is None and self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)


def start_tune(
    arguments: Sequence[str], folder: Path, settings: Mapping[str, str], out: Path, err: Path
) -> subprocess.Popen[bytes] | Fork:
    """Start ``tune ARGUMENTS`` in ``folder``; it writes to the files ``out`` and ``err``, which exist."""
    if not gpu_nodes():
        paths = {"folder": str(folder.resolve()), "out": str(out.resolve()), "err": str(err.resolve())}
        return Fork({"arguments": list(arguments), **paths}, settings)
    to = [os.open(path, os.O_WRONLY | os.O_APPEND) for path in (out, err)]
    try:
        command = [sys.executable, "-m", _COMMAND, *arguments]
        return subprocess.Popen(command, cwd=folder, env=dict(settings), stdout=to[0], stderr=to[1])
    finally:
        for number in to:
            os.close(number)


def close_torchtune() -> None:
    """End the process that keeps torchtune imported, whose memory somebody else may need; the next line starts another.

    >>> close_torchtune()
    """
    with _LOCK:
        _RESIDENT.end()
