# SPDX-License-Identifier: MIT
"""Run something in a fresh Python process and get its answer, or one line that says what went wrong there.

What is fixed when a process starts or a module is imported (Triton's interpreter, TunableOp's results file) needs a
process of its own. A server needs one that runs beside this one, and never longer than it.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import os
import pickle
import re
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cdna.base import InputError

__all__ = ["ChildError", "Service", "call_in_child", "run_child"]

#: An error as Python prints it, alone or after the name of a process in brackets, as vLLM writes.
_AN_ERROR = re.compile(r"(?:\([^()]*\) *)?((?:\w+\.)*\w*(?:Error|Exception): .*)")

#: The line with which Python ends a traceback: the class, by its dotted name, and what it says.
_RAISED = re.compile(r"(?:\w+\.)*[A-Z]\w*(?:: .*|$)")

_CALL = """
import importlib, pickle, runpy, sys
from pathlib import Path
module, script, text, name, options = pickle.loads(Path(sys.argv[1]).read_bytes())
if script:
    names = runpy.run_path(script, run_name="__child__")
elif text:
    exec(compile(text, name, "exec"), names := {})
else:
    names = vars(importlib.import_module(module))
answer = names[name](**options)
Path(sys.argv[2]).write_bytes(pickle.dumps(answer))
"""

# Stands between a service and the process that wants it. Its standard input is a pipe from there: the end of the pipe
# means "stop", and the system writes that end also when the process is killed. Then the service gets SIGTERM, after a
# while SIGKILL, and with it every process of its group. Should the guard itself be killed, Linux kills the service.
_GUARD = """
import ctypes, os, select, signal, subprocess, sys
parent, grace, command, me = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:], os.getpid()
prctl = getattr(ctypes.CDLL(None), "prctl", None)
def die_with_the_guard():
    if prctl is not None:
        prctl(1, signal.SIGKILL)
        if os.getppid() != me:
            os._exit(1)
try:
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=die_with_the_guard
    )
except OSError as e:
    sys.exit(f"{command[0]}: cannot be started ({e.strerror or e})")
while child.poll() is None:
    if select.select([0], [], [], 0.1)[0] or os.getppid() != parent:
        os.killpg(child.pid, signal.SIGTERM)
        try:
            child.wait(grace)
        except subprocess.TimeoutExpired:
            pass
        break
code = child.poll()
try:
    os.killpg(child.pid, signal.SIGKILL)
except ProcessLookupError:
    pass
child.wait()
sys.exit(code if code is not None and code >= 0 else 1)
"""


class ChildError(InputError):
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
        ChildError: it failed (with the last line of its last error), was ended by a signal, or ran out of time.

    >>> run_child("import sys; sys.exit(sys.argv[1])", "no such file")
    Traceback (most recent call last):
        ...
    cdna.children.ChildError: no such file
    """
    settings = _same_modules(environment)
    command = [sys.executable, "-W", "ignore", "-c", code, *arguments]
    try:
        run = subprocess.run(command, env=settings, capture_output=True, text=True, errors="replace", timeout=seconds)
    except subprocess.TimeoutExpired as e:
        raise ChildError(f"the process ran longer than {seconds:g} s") from e
    if run.returncode:
        raise ChildError(_last_error(run.stderr) or f"the process ended with code {run.returncode}")


def _last_error(printed: str) -> str:
    """Return the line with which the last traceback ends; without a traceback the last line that was printed.

    A library that ends the process from one of its threads (``os._exit``) prints the traceback and stops no other
    thread: progress lines of those may follow.

    >>> _last_error("Traceback (most recent call last):\\n  File x\\nValueError: 576 columns\\nquantising:  3 %\\n")
    'ValueError: 576 columns'
    >>> start = "Traceback (most recent call last):\\n"
    >>> _last_error(f"{start}  File x\\nKeyError: 'q'\\n{start}  ^^^\\n")
    "KeyError: 'q'"
    """
    lines = [line.rsplit("\r", 1)[-1].rstrip() for line in printed.splitlines() if line.strip()]
    starts = [i for i, line in enumerate(lines) if line.lstrip().startswith("Traceback (most recent call last)")]
    # Progress lines of other threads may stand between the frames, and the first of the error's own lines is enough.
    # Where several threads fail, the process ends while the last of them still prints: an earlier one is whole.
    for begin, end in reversed(list(itertools.pairwise([*starts, len(lines)]))):
        if found := next(filter(None, map(_RAISED.match, lines[begin + 1 : end])), None):
            return found[0]
    return lines[-1].strip() if lines else ""


def _same_modules(environment: Mapping[str, str] | None) -> dict[str, str]:
    """Return this process's variables and those given; modules are found where this one finds them, then where told."""
    folders = [*sys.path, (environment or {}).get("PYTHONPATH", "")]
    return {**os.environ, **(environment or {}), "PYTHONPATH": os.pathsep.join(f for f in folders if f)}


def call_in_child(function: Callable[..., Any], **options: Any) -> Any:
    """Call ``function(**options)`` in a fresh process; options and answer are what pickle can carry.

    Args:
        function: of an importable module or a script, or written in a notebook. Of the latter its text alone goes
            over, so it imports and defines inside what it needs.

    Raises:
        ChildError: see :func:`run_child`.

    >>> import statistics
    >>> call_in_child(statistics.mean, data=[1, 2, 3])
    2
    """
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "call", Path(folder) / "answer"
        main = function.__module__ == "__main__"
        script = getattr(sys.modules["__main__"], "__file__", None) if main else None
        text = textwrap.dedent(inspect.getsource(function)) if main and not script else None
        source.write_bytes(pickle.dumps((function.__module__, script, text, function.__name__, options)))
        try:
            run_child(_CALL, str(source), str(target))
        except ChildError as e:
            raise ChildError(f"{function.__name__}: {e}") from e
        if not target.exists():  # os._exit leaves no message, and even its code may be 0
            raise ChildError(f"{function.__name__}: the process ended without an answer")
        return pickle.loads(target.read_bytes())


class Service:
    """A program that runs beside this process until it is stopped, and never longer than this process.

    Leaving the ``with`` block, an error, Ctrl-C, the end of this process in any way (SIGKILL too): each ends it, with
    every process that it has started in its group. What it prints goes to a file without a name, of which the last
    lines can be read.

    Args:
        command: program and arguments.
        environment: variables to set there beside this process's own.
        folder: where it runs; this process's folder when None.
        same_modules: whether a Python program finds this process's modules; not one from another environment, which
            would take them for its own.
        grace: seconds between SIGTERM and SIGKILL.

    >>> with Service([sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(60)"]) as service:
    ...     seconds = service.wait_until(lambda: "ready" in service.last_lines(), 60)
    >>> service.running
    False
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        folder: str | os.PathLike[str] | None = None,
        same_modules: bool = True,
        grace: float = 10.0,
    ) -> None:
        self.command, self.grace = [str(word) for word in command], grace
        # Closed by stop(); a name would stay behind when this process is killed.
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self._guard = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _GUARD, str(os.getpid()), str(grace), *self.command],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            cwd=folder,
            env=_same_modules(environment) if same_modules else {**os.environ, **(environment or {})},
            start_new_session=True,  # Ctrl-C in the terminal is for this process, which then stops the service
        )

    @property
    def running(self) -> bool:
        """Return whether it still runs."""
        return self._guard.poll() is None

    def last_lines(self, count: int = 5) -> str:
        """Return the last lines that it printed, joined by line breaks; empty ones and those of a bar are left out."""
        size, most = os.fstat(self._log.fileno()).st_size, max(20_000, 300 * count)
        tail = os.pread(self._log.fileno(), most, max(0, size - most)).decode(errors="replace")
        lines = (line.rsplit("\r", 1)[-1].strip() for line in tail.splitlines())
        return "\n".join([line for line in lines if line][-count:])

    def what_it_said(self) -> str:
        """Return its last three lines, in one, and before them the first error that it printed, where they do not hold
        it.

        A program of several processes ends with the complaint of the first about the end of another, whose reason
        stands far above.
        """
        last = self.last_lines(3).splitlines()
        errors = [found[1] for line in self.last_lines(200).splitlines() if (found := _AN_ERROR.match(line))]
        first = f"the first error: {errors[0]}; " if errors and not any(errors[0] in line for line in last) else ""
        return f"{first}its last lines: {' | '.join(last) or 'it printed nothing'}"

    def wait_until(self, ready: Callable[[], bool], seconds: float) -> float:
        """Wait until ``ready()`` is true; gives the seconds that it took.

        Raises:
            ChildError: it ended before, or was not ready in time and has been stopped; with its last lines.
        """
        began = time.monotonic()
        while not ready():
            waited = time.monotonic() - began
            if not self.running or waited > seconds:
                why = f"was not ready after {seconds:g} s" if self.running else "ended before it was ready"
                said = self.what_it_said()
                self.stop()
                raise ChildError(f"{Path(self.command[0]).name} {why}; {said}")
            time.sleep(0.05)
        return time.monotonic() - began

    def stop(self) -> None:
        """End it and wait for the end; does nothing when it has ended."""
        if self._guard.stdin is not None and not self._guard.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self._guard.stdin.close()
        self._guard.wait()

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
