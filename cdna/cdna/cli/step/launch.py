# SPDX-License-Identifier: MIT
"""The launch to execute: a kernel with its grid and arguments, from a Python file, HIP or assembly."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdna.base import InputError, printable, read_regular
from cdna.cli.inspect.arguments import InspectError, Tensor, argument, split
from cdna.cli.inspect.python_file import (
    HowTo,
    compile_typed,
    has_torch,
    kernels_of,
    load_module,
    run_launches,
)

if TYPE_CHECKING:
    from cdna.compile import Compiled

__all__ = ["Launched", "find_launch", "numbers"]

_MAX_BYTES = 50_000_000
_MAX_VALUES = 1 << 26


@dataclass
class Launched:
    """A kernel (compiled, or assembly text), its grid, and its arguments by name or in order."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: dict[str, Any] | list[Any]
    name: str | None = None
    block: tuple[int, ...] | None = None
    shared: int | None = None


def numbers(text: str, option: str) -> tuple[int, ...]:
    """Read one to three sizes: ``4`` or ``4,2,1``.

    >>> numbers("4,2", "--grid")
    (4, 2)
    """
    parts = [p.strip() for p in text.split(",")]
    if not 1 <= len(parts) <= 3 or not all(p.isascii() and p.isdigit() and len(p) < 10 and int(p) > 0 for p in parts):
        raise InspectError(f"{option} {printable(text, 60)}: one to three whole numbers from 1, as in {option} 4,2")
    return tuple(int(p) for p in parts)


def _value(name: str, text: str) -> Any:
    """Return a run-time argument with data in it: random values, always the same, for a tensor."""
    value = argument(text)
    if isinstance(value, str):
        raise InspectError(
            f"--arg {name}={printable(text, 60)}: to execute, a size is needed, as in fp16[1024,64], or a value"
        )
    if not isinstance(value, Tensor):
        return value
    if math.prod(value.shape) > _MAX_VALUES:
        raise InspectError(f"--arg {name}={printable(text, 60)}: at most 2^26 elements are executed here")
    return value.random()


def _typed(how: HowTo) -> dict[str, Any]:
    return {n: _value(n, t) for n, t in (split(a, "--arg") for a in how.arguments)}


def _no_grid(path: Path) -> InputError:
    return InspectError(f"{path.name}: how many workgroups? Give --grid N (or N,M)")


def _python(path: Path, kernel: str, how: HowTo, grid: tuple[int, ...] | None) -> Launched:
    from cdna.compiler_key import quick_compiler_key
    from cdna.dry_run.driver import dry_run
    from cdna.run import run

    found: list[Launched] = []

    def on_launch(compiled: Compiled, launched: tuple[int, int, int], arguments: dict[str, Any]) -> None:
        """Keep the launch that is asked for; execute those before it, so that it sees their results."""
        if found:
            return
        free = {n: v for n, v in arguments.items() if compiled.signature[n] != "constexpr"}
        if kernel in ("", compiled.name):
            kept = {n: v.clone() if hasattr(v, "clone") else v for n, v in free.items()}
            found.append(Launched(compiled, launched, kept))
        else:
            run(compiled, launched, free)

    with quick_compiler_key(), dry_run("gfx942", on_launch=on_launch) if has_torch() else contextlib.nullcontext():
        module = load_module(path)
        kernels = kernels_of(module)
        if not (how.arguments or how.constants) and (how.call or callable(getattr(module, "example", None))):
            run_launches(module, how, path)
            if not found:
                raise InspectError(f"{path.name}: {kernel or 'a kernel'} was not launched")
            return found[0]
    name = kernel or next(iter(kernels), "")
    if name not in kernels:
        raise InspectError(
            f"{path.name}::{name}: no such kernel (@triton.jit, @gluon.jit); there is {', '.join(kernels) or 'none'}"
        )
    if not how.arguments:
        raise InspectError(
            f"{path.name}::{name} needs to know how it is launched: give --call 'EXPRESSION', or a "
            "function example() in the file, or --arg, --const and --grid"
        )
    if grid is None:
        raise _no_grid(path)
    values = _typed(how)
    with quick_compiler_key():
        compiled = next(iter(compile_typed(kernels[name], how, "gfx942")))
    return Launched(compiled, grid, {n: v for n, v in values.items() if compiled.signature.get(n) != "constexpr"})


def find_launch(path: Path, kernel: str, how: HowTo, grid: str, block: str, lds: int | None) -> Launched:
    """Compile (or read) what the target names and give it arguments.

    Raises:
        InputError: the file cannot be read, no way to launch is given, or the code in it failed.
    """
    places = numbers(grid, "--grid") if grid else None
    try:
        data = read_regular(path, _MAX_BYTES)
    except OSError as e:
        raise InspectError(f"{path}: cannot be read ({e.strerror or e}); give a file with a kernel") from e
    if path.suffix == ".py":
        return _python(path, kernel, how, places)
    if places is None:
        raise _no_grid(path)
    if path.suffix in (".hip", ".cu", ".cpp"):
        from cdna.hip.toolchain import compile_hip

        text = compile_hip(path)
    else:
        text = data.decode("utf-8", "replace")
    values = list(_typed(how).values())
    return Launched(text, places, values, kernel or None, numbers(block, "--block") if block else None, lds)
