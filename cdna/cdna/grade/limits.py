# SPDX-License-Identifier: MIT
"""Limits for a solution that is being judged: time, memory, no network, no other processes.

They keep a mistake from taking the machine with it, and a message says which limit was met. They are no sandbox: do not
grade files of strangers with them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cdna.grade.puzzle import GradeError
from cdna.interpret import explain_error, on_timer, time_limit
from cdna.interpreter.warm import time_in_the_queue

__all__ = ["MEMORY", "SECONDS", "attempt", "confine", "explain_limits", "limits"]

SECONDS = 10.0  # by the clock, for one case
_PROCESSOR_SECONDS = 8.0  # less, so that a loop is named as one
MEMORY = 4 << 30  # bytes that a solution may take beyond its arguments
_LARGEST_FILE = 1 << 30
_NEW_USER, _NEW_NET = 0x10000000, 0x40000000  # flags of unshare

# Events by which Python announces what a solution has no reason to do.
_NETWORK = ("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo")
_PROCESSES = ("subprocess.Popen", "os.fork", "os.forkpty", "os.system", "os.exec", "os.posix_spawn", "os.spawn")


def _leave_the_network() -> None:
    """Put this process where there is no network, if Linux lets it; sockets of Python are refused all the same."""
    unshare = getattr(ctypes.CDLL(None), "unshare", None)
    if unshare is None or unshare(_NEW_NET) == 0:
        return
    user, group = os.getuid(), os.getgid()
    if unshare(_NEW_USER | _NEW_NET) == 0:  # without privileges; the user's own number is kept
        with contextlib.suppress(OSError):
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
            Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _refuse(event: str, arguments: Any) -> None:
    if event in _NETWORK:
        raise GradeError("it asks for the network, and a solution computes from its arguments alone")
    if event in _PROCESSES:
        raise GradeError("it starts another process, and a solution is judged in its own")


def confine() -> None:
    """Take network and other processes from this process, for the rest of its life, and bound the files it writes."""
    _leave_the_network()
    sys.addaudithook(_refuse)
    for kind, most in ((resource.RLIMIT_FSIZE, _LARGEST_FILE), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


@contextlib.contextmanager
def _memory_limit(bytes_: int) -> Iterator[None]:
    """Let the address space grow by so many bytes inside the ``with`` block."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    most = now + bytes_ if before[1] == resource.RLIM_INFINITY else min(now + bytes_, before[1])
    resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@contextlib.contextmanager
def _clock_limit(seconds: float) -> Iterator[None]:
    """Raise an error at the line that runs after ``seconds`` by the clock; waiting for a processor does not count."""
    began, queued, used = time.monotonic(), time_in_the_queue(), time.process_time()

    def stop(number: int, frame: Any) -> None:
        left = seconds - (time.monotonic() - began) + (time_in_the_queue() - queued)
        if left > 0:
            signal.setitimer(signal.ITIMER_REAL, max(left, 0.01))
            return
        if time.process_time() - used > seconds / 2:  # it was busy, on a machine that others use too
            raise GradeError(f"still running after {seconds:g} s: does this loop end?")
        raise GradeError(f"no end after {seconds:g} s: does it sleep, or wait for something?")

    with on_timer(signal.ITIMER_REAL, signal.SIGALRM, seconds, stop):
        yield


@contextlib.contextmanager
def limits(seconds: float = SECONDS, memory: int = MEMORY) -> Iterator[None]:
    """Limit a reader's code inside the ``with`` block: seconds by the clock, of the processor, bytes of memory.

    Raises:
        GradeError, InputError: a limit of time was met; it names itself. Too much memory is Python's or torch's error.
    """
    with _memory_limit(memory), _clock_limit(seconds), time_limit(min(seconds, _PROCESSOR_SECONDS)):
        yield


def attempt(call: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """Return what a call of a reader's code gives, or the error that it raised, whatever that is.

    >>> attempt(lambda: 1 // 0)
    (None, ZeroDivisionError('integer division or modulo by zero'))
    """
    try:
        return call(), None
    except Exception as e:  # noqa: BLE001  a solution may raise anything
        return None, e


def explain_limits(error: BaseException, files: list[str], memory: int = MEMORY) -> str:
    """Explain an error of a reader's code in one line, as :func:`~cdna.interpret.explain_error` does; want of memory is
    called so.

    >>> explain_limits(MemoryError(), [])
    'it asks for more than 4 GiB of memory beyond its arguments'
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, MemoryError) or "allocate memory" in str(seen):
            said = GradeError(f"it asks for more than {memory >> 30} GiB of memory beyond its arguments")
            return explain_error(said.with_traceback(seen.__traceback__), files)
        seen = seen.__cause__ or seen.__context__
    return explain_error(error, files)
