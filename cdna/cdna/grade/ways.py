# SPDX-License-Identifier: MIT
"""Two ways to run a puzzle's cases: in Triton's interpreter, or as gfx942 machine code in our own executor.

The interpreter knows no layouts, so what a Gluon kernel computes is what its machine code computes.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import re
from collections.abc import Iterator
from typing import Any, Protocol

from cdna.compile_errors import explain_compile_error, is_compile_error, name_line
from cdna.dry_run.driver import dry_run
from cdna.grade.cheats import no_kernels, only_the_last_program
from cdna.grade.limits import explain_limits
from cdna.guard import watch_memory
from cdna.interpreter.patches import exact_conversions
from cdna.run.errors import RunError
from cdna.run.launches import Executions, executed_on_gfx942, poison_mode

__all__ = ["FLAWS", "Executed", "Interpreted", "Seen", "Way", "gluon_words", "missing_gluon"]

#: What the hardware does not allow, by the rule of a :class:`~cdna.run.errors.RunError`, and how to mend it.
FLAWS = {
    "bounds": "an offset and the size of its tensor belong together",
    "race": "programs run in no fixed order: give each element one writer, or use tl.atomic_add or a second launch",
    "undefined": "tl.debug_barrier() orders nothing between programs",
    "limit": "a loop that does not end on the GPU",
    "deadlock": "programs that wait for others may never be resident together",
}
_IN_LDS = {
    "race": "waves share LDS and run in no fixed order: wait for a direct load before you read its block, and write "
    "the block that nobody reads",
    "wait": "a direct load to LDS is waited for by async_copy.wait_group(n), n the groups that may still be under way",
    "undefined": "store the block, or wait for the load that fills it, before you load from it",
    "bounds": "the block in LDS has other sizes than the tile",
}


class Seen(Protocol):
    """What was seen of launches: :class:`~cdna.guard.Watch`, or its equal for executed ones."""

    launches: int
    programs: int
    loaded: int
    stored: int
    atomics: int
    undefined: bool
    read: set[int]


class Way(Protocol):
    """How cases are run.

    Attributes:
        launch: the class and the method through which each launch goes.
    """

    @property
    def launch(self) -> tuple[Any, str]: ...

    def watched(self, *, undefined: bool = True, byte: int = 0xFF) -> contextlib.AbstractContextManager[Any]:
        """Run launches inside the ``with`` block, watched; new memory holds ``byte``, and so do masked lanes of loads
        without ``other`` unless ``undefined`` is False.
        """

    def alone(self, back: int, *, poison: bool) -> contextlib.AbstractContextManager[Any]:
        """Run the last program of each launch alone, or the one so many before it."""

    def nothing(self) -> contextlib.AbstractContextManager[Any]:
        """Let launches do nothing."""

    def explain(self, call: Any, error: Exception, files: list[str], memory: int) -> tuple[str, str, str]:
        """Return an error of a solution in one line, the probable mistake, and the name of the check that it fails."""

    def words(self, text: str) -> str:
        """Return a hint in the words of the language that the kernel is written in."""


class Interpreted:
    """In Triton's interpreter; needs ``TRITON_INTERPRET=1``."""

    @property
    def launch(self) -> tuple[Any, str]:
        """Return what launches an interpreted kernel."""
        from triton.runtime import interpreter

        return interpreter.GridExecutor, "__call__"

    @contextlib.contextmanager
    def watched(self, *, undefined: bool = True, byte: int = 0xFF) -> Iterator[Seen]:
        """See :meth:`Way.watched`."""
        with exact_conversions(), watch_memory(strict=True, undefined=undefined) as watch, poison_mode(byte):
            yield watch

    @contextlib.contextmanager
    def alone(self, back: int, *, poison: bool) -> Iterator[Seen]:
        """See :meth:`Way.alone`."""
        clean = poison_mode() if poison else contextlib.nullcontext()
        with exact_conversions(), watch_memory() as watch, only_the_last_program(back), clean:
            yield watch

    @contextlib.contextmanager
    def nothing(self) -> Iterator[None]:
        """See :meth:`Way.nothing`."""
        with no_kernels(), poison_mode():
            yield

    def explain(self, call: Any, error: Exception, files: list[str], memory: int) -> tuple[str, str, str]:
        """See :meth:`Way.explain`."""
        return explain_limits(error, files, memory), "", "result"

    def words(self, text: str) -> str:
        """Return the text as it is."""
        return text


class _Seen:
    """What executed launches did, in the words of :class:`~cdna.guard.Watch`."""

    undefined = False  # machine code that reads what nobody wrote is refused

    def __init__(self, done: Executions) -> None:
        self._done = done

    def _total(self, name: str) -> int:
        return sum(getattr(launch.result.counters, name) for launch in self._done.launches)

    @property
    def launches(self) -> int:
        return len(self._done.launches)

    @property
    def programs(self) -> int:
        return sum(math.prod(launch.grid) for launch in self._done.launches)

    @property
    def loaded(self) -> int:
        return self._total("loaded")

    @property
    def stored(self) -> int:
        return self._total("stored")

    @property
    def atomics(self) -> int:
        machines = [launch.result.machine for launch in self._done.launches]
        return sum(n for m in machines for o, n in zip(m.code, m.counts, strict=True) if "atomic" in o.op)

    @property
    def read(self) -> set[int]:
        return {storage for launch in self._done.launches for storage in launch.read}

    @property
    def foreign(self) -> str:
        """Return the name of a launched kernel that is not in Gluon; empty if there is none."""
        return next((x.kernel for x in self._done.launches if x.compiled.ttir), "")


class Executed:
    """As gfx942 machine code."""

    @property
    def launch(self) -> tuple[Any, str]:
        """Return what launches a compiled kernel."""
        from triton.runtime.jit import JITFunction

        return JITFunction, "run"

    @contextlib.contextmanager
    def watched(self, *, undefined: bool = True, byte: int = 0xFF) -> Iterator[_Seen]:
        """See :meth:`Way.watched`."""
        with executed_on_gfx942(poison=byte) as done:
            yield _Seen(done)

    @contextlib.contextmanager
    def alone(self, back: int, *, poison: bool) -> Iterator[_Seen]:
        """See :meth:`Way.alone`."""
        with executed_on_gfx942(back=back, poison=0xFF if poison else None) as done:
            yield _Seen(done)

    @contextlib.contextmanager
    def nothing(self) -> Iterator[None]:
        """See :meth:`Way.nothing`."""
        with dry_run("gfx942"), poison_mode():
            yield

    def explain(self, call: Any, error: Exception, files: list[str], memory: int) -> tuple[str, str, str]:
        """See :meth:`Way.explain`."""
        if isinstance(error, RunError):
            hints = _IN_LDS if "LDS" in str(error) else FLAWS
            return _explain_run_error(error), hints.get(error.rule, ""), "result"
        if is_compile_error(error):
            return explain_compile_error(call, error), "", "compiles"
        return explain_limits(error, files, memory), "", "result"

    def words(self, text: str) -> str:
        """Return the text with Gluon's names."""
        return gluon_words(text)


def gluon_words(text: str) -> str:
    """Return a hint with Gluon's names in place of Triton's; they are the same behind the point.

    >>> gluon_words("tl.program_id(0) counts from 0")
    'gl.program_id(0) counts from 0'
    """
    return re.sub(r"\btl\.", "gl.", text)


def _explain_run_error(error: RunError) -> str:
    """Return what machine code did that it must not, after the kernel's own line where that is known."""
    kernel, said = (
        re.split(r", launch \d+: ", str(error), maxsplit=1) if ", launch " in str(error) else ("", str(error))
    )
    if at := re.match(r"line \d+: (\S+).*? \((workgroup .*?, wave \d+)\): (.*)", said, re.DOTALL):
        said = re.sub(r"^race: ", "a race: ", f"{at[3]} ({at[1]}, {at[2]})")
    if error.rule == "bounds" and "of LDS" not in said:
        near = re.search(r" at 0x[0-9a-f]+: that is byte (-?\d+) of", said)
        if near and abs(int(near[1])) < 1 << 30:
            said = f"outside its tensor: {said[: near.start()]} at{said[near.start(1) - 6 :]}"
        else:
            said = re.sub(r" at 0x[0-9a-f]+: [^(]*", " far away from every tensor ", said)
            said = f"outside its tensor: {said}; was the offset computed in 32 bits?"
    file, line = (
        (error.source.split(":")[:-2], error.source.split(":")[-2]) if error.source.count(":") > 1 else ([], "")
    )
    if file and line.isdigit():
        return f"{name_line(':'.join(file), int(line), kernel)}: {said}"
    return f"{kernel}: {said}" if kernel else said


def missing_gluon() -> str:
    """Return why Gluon kernels for gfx942 cannot be compiled with this Triton, in one line; empty if they can be."""
    import triton

    try:
        amd = importlib.import_module("triton.experimental.gluon.language.amd")
        cdna3 = importlib.import_module("triton.experimental.gluon.language.amd.cdna3")
    except ImportError as e:
        return f"Triton {triton.__version__} has no Gluon for gfx942 ({e})"
    lacking = [
        n for n, home in (("AMDMFMALayout", amd), ("mfma", cdna3), ("buffer_load", cdna3)) if not hasattr(home, n)
    ]
    return f"Triton {triton.__version__} has Gluon for gfx942 without {', '.join(lacking)}" if lacking else ""
