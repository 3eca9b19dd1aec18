# SPDX-License-Identifier: MIT
"""Errors of the compiler in one line that names the reader's own: file or cell, line, and the code there."""

from __future__ import annotations

import ast
import contextlib
import inspect
import itertools
import linecache
import os
import re
import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cdna.kernel_source import names_read

__all__ = ["explain_compile_error", "find_gluon", "foreign_assembly", "hear_compiler", "is_compile_error", "name_line"]

# What an operand of inline assembly may be on AMD: a vector, scalar or accumulation register, a constant, or a tie.
_AMD_CONSTRAINT = re.compile(r"[=+&~*%]*(?:[vsaniIJABC]|D[AB]|\d+|\{[^}]*\})")


def name_line(file: str, line: int, function: str) -> str:
    """Return ``scale, line 7 of the cell (tl.store(y + o, v))``; of a file that exists, its name."""
    code = linecache.getline(file, line).strip()
    place = f"line {line} of {Path(file).name if Path(file).is_file() else 'the cell'}"
    return f"{function}, {place}" + (f" ({code})" if code else "")


def _reachable(fn: Any, seen: dict[int, Any]) -> dict[int, Any]:
    """Return the kernels that ``fn``, a kernel or a function that launches some, names, and those that they name."""
    plain = getattr(fn, "fn", fn)
    while hasattr(plain, "fn"):
        fn, plain = plain, plain.fn
    if not isinstance(plain, types.FunctionType) or id(plain) in seen:
        return seen
    seen[id(plain)] = fn
    for name in names_read(plain.__code__):
        value = plain.__globals__.get(name)
        # Plain functions of other files are not followed: that would lead through all of PyTorch.
        if hasattr(value, "fn") or getattr(value, "__globals__", None) is plain.__globals__:
            _reachable(value, seen)
    for cell in plain.__closure__ or ():
        with contextlib.suppress(ValueError):  # a cell that holds nothing yet
            _reachable(cell.cell_contents, seen)
    return seen


def find_gluon(fn: Any) -> str:
    """Return the name of the first Gluon kernel that ``fn`` is or launches; empty if there is none."""
    kernels = (k for k in _reachable(fn, {}).values() if getattr(k, "is_gluon", bool)())
    return next((str(k.__name__) for k in kernels), "")


def _line_of(fn: Any, line_in_source: int) -> str:
    """Name a line of a kernel, counted from its ``def``."""
    lines, start = inspect.getsourcelines(fn.fn)
    head = next((i for i, text in enumerate(lines) if re.match(r"\s*def\s", text)), 0)
    return name_line(fn.fn.__code__.co_filename, start + head + line_in_source - 1, fn.__name__)


def _name_at(fn: Any, file: str, line: int) -> str:
    """Return the name of the kernel, of those that ``fn`` is or launches, in which a line stands."""
    kernels = [k for k in _reachable(fn, {}).values() if hasattr(k, "fn")]
    codes = [c for k in kernels if (c := k.fn.__code__).co_filename == file and c.co_firstlineno <= line]
    return max(codes, key=lambda c: c.co_firstlineno).co_name if codes else getattr(fn, "__name__", "kernel")


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    now: BaseException | None = error
    while now is not None and now not in seen:
        seen.append(now)
        now = now.__cause__ or now.__context__
    yield from reversed(seen)


@contextlib.contextmanager
def hear_compiler(source: Any) -> Iterator[None]:
    """Add to an error, inside the ``with`` block, what the compiler said about a Gluon kernel on the standard error
    stream: which line's layout is wrong. The exception alone says that something could not be parsed.

    Of a kernel in Triton's language, whose errors come with their line, nothing is held back.
    """
    if not getattr(getattr(source, "fn", None), "is_gluon", bool)():
        yield
        return
    sys.stderr.flush()
    with tempfile.TemporaryFile() as said:
        real = os.dup(2)
        os.dup2(said.fileno(), 2)
        failed = True
        try:
            yield
            failed = False
        except Exception as e:
            said.seek(0)
            if found := _diagnostic(said.read().decode(errors="replace")):
                e.add_note(found)
            else:
                failed = False
            raise
        finally:
            os.dup2(real, 2)
            os.close(real)
            if not failed:  # a dump that was asked for, a warning
                said.seek(0)
                os.write(2, said.read())


def _diagnostic(said: str) -> str:
    """Return the first error in what the compiler printed as ``FILE:LINE: reason``; empty if there is none."""
    lines = said.splitlines()
    for i, line in enumerate(lines):
        if at := re.match(r"(\S.*?):(\d+):\d+: error: (.*)", line):
            reason = [at[3]]
            for text, below in itertools.pairwise([*lines[i + 1 :], ""]):
                if below.strip() == "^" or re.match(r"module|\S+: (?:note|error):", text):  # the source, the program
                    break
                reason.append(text.strip())
            return f"{at[1]}:{at[2]}: {' '.join(reason).replace(': error:', ':')}"
    return ""


def is_compile_error(error: BaseException) -> bool:
    """Return whether an error comes from compiling a kernel, and not from the Python around it.

    >>> is_compile_error(ValueError("7 is odd"))
    False
    """
    from triton.errors import TritonError

    return any(isinstance(e, TritonError) or getattr(e, "__notes__", ()) for e in _chain(error))


def explain_compile_error(fn: Any, error: BaseException) -> str:
    """Explain in one line an error of compiling ``fn`` or a kernel that it launches: the line and the reason."""
    chain = list(_chain(error))
    last = chain[0]
    for note in getattr(last, "__notes__", ()):
        if at := re.fullmatch(r"(.*?):(\d+): (.*)", note, re.DOTALL):
            return f"{name_line(at[1], int(at[2]), _name_at(fn, at[1], int(at[2])))}: {at[3]}"
    said = [line.strip() for line in str(getattr(last, "error_message", None) or last).splitlines() if line.strip()]
    text = said[-1] if said else type(last).__name__
    if type(last).__name__ not in ("CompilationError", "CompileTimeAssertionFailure"):
        text = f"{type(last).__name__}: {text}"
    by_source = {f.src: f for f in _reachable(fn, {}).values() if hasattr(f, "src")}
    for one in chain:
        at = getattr(getattr(one, "node", None), "lineno", None)
        if at and (owner := by_source.get(getattr(one, "src", None))) is not None:
            return f"{_line_of(owner, at)}: {text}"
    return text


def _foreign(constraints: str) -> str:
    """Return the first constraint that AMD's back end does not know; empty if there is none."""
    known = (c.strip() for c in constraints.split(","))
    return next((c for c in known if not _AMD_CONSTRAINT.fullmatch(c)), "")


def _literal_constraints(fn: Any) -> Iterator[tuple[Any, int, str]]:
    """Return the kernel, line in its source and constraints of each piece of inline assembly that names them as a
    literal.
    """
    for owner in _reachable(fn, {}).values():
        for node in ast.walk(ast.parse(getattr(owner, "src", ""))):
            if isinstance(node, ast.Call) and "inline_asm_elementwise" in ast.unparse(node.func):
                named = [k.value for k in node.keywords if k.arg == "constraints"]
                for given in (*node.args[1:2], *named):
                    if isinstance(given, ast.Constant) and isinstance(given.value, str):
                        yield owner, node.lineno, given.value


def foreign_assembly(fn: Any, ttir: str = "") -> str:
    """Explain in one line inline assembly that no AMD GPU has; empty if there is none.

    LLVM reports such a thing on the standard error stream and goes on with code that is wrong; in Triton before 3.9 it
    ends the process. So the source is read before it is compiled, and the compiled program for what is no literal.
    """
    said = "inline assembly for NVIDIA (operand {!r}); AMD's vector registers are 'v'"
    for owner, line, written in _literal_constraints(fn):
        if bad := _foreign(written):
            return f"{_line_of(owner, line)}: {said.format(bad)}"
    for written in re.findall(r'elementwise_inline_asm "(?:[^"\\]|\\.)*" \{[^}]*constraints = "([^"]*)"', ttir):
        if bad := _foreign(written):
            return f"{fn.__name__}: {said.format(bad)}"
    return ""
