# SPDX-License-Identifier: MIT
"""From ``FILE.py[::KERNEL]`` to compiled kernels: by the file's own example, by a call, or by argument types."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from rocm_guide.base import GuideError
from rocm_guide.mi300x.compile import Compiled, compile_kernel, unwrap_kernel
from rocm_guide.mi300x.compile import SignatureError as _SignatureError
from rocm_guide.mi300x.dry_run import dry_run
from rocm_guide.mi300x.inspection import Inspection, inspect_launch
from rocm_guide.mi300x.report import report

__all__ = ["HowTo", "InspectError", "inspect_python"]


class InspectError(GuideError):
    """The file cannot be inspected as asked: no such kernel, no way given to launch it, or its own code failed."""


@dataclass
class HowTo:
    """How the kernel is to be launched: an expression, or types, constants and options as ``NAME=VALUE`` texts."""

    call: str = ""
    arguments: Sequence[str] = ()
    constants: Sequence[str] = ()
    options: dict[str, Any] = field(default_factory=dict)
    meta: bool = False


def _split(text: str, option: str) -> tuple[str, str]:
    name, eq, value = text.partition("=")
    if not eq or not name.strip().isidentifier():
        raise InspectError(f"{option} {text}: write NAME=VALUE, for example {option} n=4096")
    return name.strip(), value.strip()


def literal(text: str) -> Any:
    """A constant: a Python literal, ``tl.float16`` and the like, or the text itself."""
    if text.startswith("tl."):
        import triton.language as tl

        found = getattr(tl, text[3:], None)
        if found is None:
            raise InspectError(f"{text}: triton.language has no such name")
        return found
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


_TENSOR = re.compile(r"(\w+)\[([\d\s,]*)\]")
_DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64", "i8": "int8", "i16": "int16",
           "i32": "int32", "i64": "int64", "u8": "uint8", "i1": "bool", "fp8e4nv": "float8_e4m3fn",
           "fp8e4b8": "float8_e4m3fnuz", "fp8e5": "float8_e5m2", "fp8e5b16": "float8_e5m2fnuz"}  # fmt: skip


def argument(text: str) -> Any:
    """A run-time argument: ``fp16[4096,4096]`` (a tensor), ``4096`` or ``2.0`` (a value), or a type of Triton's."""
    if m := _TENSOR.fullmatch(text):
        import torch

        dtype = getattr(torch, _DTYPES.get(m[1], m[1]), None)
        if not isinstance(dtype, torch.dtype):
            raise InspectError(f"{text}: {m[1]} is no tensor type; write for example fp16[4096,4096]")
        return torch.empty([int(n) for n in m[2].split(",") if n.strip()], dtype=dtype, device="meta")
    value = literal(text)
    return value if isinstance(value, (bool, int, float)) else text


def load_module(path: Path) -> ModuleType:
    """Import a file; a file inside a package is imported by its dotted name so that its relative imports work."""
    path = path.resolve()
    top, parts = path.parent, [path.stem]
    while (top / "__init__.py").exists():
        parts.insert(0, top.name)
        top = top.parent
    sys.path[:0] = [str(top)] if str(top) not in sys.path else []
    # What the file prints while it is imported must not get into --json.
    printed = contextlib.redirect_stdout(sys.stderr)
    try:
        if len(parts) > 1:
            with printed:
                return importlib.import_module(".".join(parts))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise InspectError(f"{path.name}: not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        with printed:
            spec.loader.exec_module(module)
    except GuideError:
        raise
    except (Exception, SystemExit) as e:
        raise InspectError(f"{path.name} cannot be imported: {type(e).__name__}: {_line(e)}") from e
    return module


def _line(e: BaseException) -> str:
    return next((line.strip() for line in reversed(str(e).splitlines()) if line.strip()), "no message")


def kernels_of(module: ModuleType) -> dict[str, Any]:
    """The Triton kernels of a module by name."""
    found = {}
    for name, value in vars(module).items():
        if hasattr(value, "fn") and hasattr(value, "run"):
            with contextlib.suppress(_SignatureError):
                unwrap_kernel(value)
                found[name] = value
    return found


def _hint(path: Path, name: str, kernel: Any) -> str:
    """The command line that would do, with every parameter in it."""
    words = []
    for p in unwrap_kernel(kernel).params:
        words.append(f"--const {p.name}=…" if p.is_constexpr else f"--arg {p.name}=…")
    return (
        f"{path.name}::{name} needs to know how it is launched: give --call 'EXPRESSION', or a function example() in "
        f"the file that launches it, or types: {' '.join(words)} (an --arg is *fp16:16, i32, 4096 or fp16[1024,4096])"
    )


def _compile_typed(kernel: Any, how: HowTo, arch: str) -> Iterator[Compiled]:
    """Compile by types; an autotuned kernel once for each configuration that leaves the given constants as they are."""
    arguments = {k: argument(v) for k, v in (_split(t, "--arg") for t in how.arguments)}
    constants = {k: literal(v) for k, v in (_split(t, "--const") for t in how.constants)}
    missing = [p for p in unwrap_kernel(kernel).params if p.name not in arguments and p.name not in constants]
    configs = getattr(kernel, "configs", None) or []
    tuned = [p.name for p in missing if p.is_constexpr and not p.has_default]
    if configs and tuned:
        for config in configs:
            settings = {**config.all_kwargs(), **how.options}
            own = {p.name for p in unwrap_kernel(kernel).params}
            chosen = {k: v for k, v in settings.items() if k in own and k not in constants}
            options = {k: v for k, v in settings.items() if k not in own and v is not None}
            yield compile_kernel(kernel, arguments, {**constants, **chosen}, arch=arch, **options)
    else:
        yield compile_kernel(kernel, arguments, constants, arch=arch, **how.options)


def _run(module: ModuleType, how: HowTo, path: Path) -> None:
    """Run the launch expression, or the file's example(), inside a dry run."""
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what the code prints must not get into --json
            if how.call:
                import torch
                import triton

                eval(how.call, {"torch": torch, "triton": triton, **vars(module)})
            else:
                module.example()
    except GuideError:
        raise
    except (Exception, SystemExit) as e:
        what = f"--call {how.call!r}" if how.call else f"example() of {path.name}"
        raise InspectError(f"{what} failed: {type(e).__name__}: {_line(e)}") from e


def inspect_python(path: Path, kernel: str, how: HowTo, arch: str) -> list[Inspection]:
    """Compile the kernels of a file for ``arch`` and inspect each different launch once.

    Raises:
        InspectError: no way to launch is given, no such kernel, or the file's own code failed.
        GuideError: Triton is missing or unchecked, or refused the kernel.
    """
    with dry_run(arch, device="meta" if how.meta else "cpu") as run:
        module = load_module(path)
        kernels = kernels_of(module)
        if kernel and kernel not in kernels and not how.call and not hasattr(module, "example"):
            names = ", ".join(kernels) or "none"
            raise InspectError(f"{path.name}::{kernel}: no such @triton.jit function; the file has {names}")
        typed = bool(how.arguments or how.constants)
        if not typed and (how.call or callable(getattr(module, "example", None))):
            _run(module, how, path)
    if not typed and (run.launches or run.failures):
        # An autotuner's trial and the launch that follows are the same code: shown once.
        chosen = {(x.kernel, x.grid, x.compiled.assembly): x for x in run.launches if not kernel or x.kernel == kernel}
        if not chosen:
            seen = ", ".join(run.kernels) or "none that compiled"
            more = f". {_hint(path, kernel, kernels[kernel])}" if kernel in kernels else ""
            raise InspectError(f"{path.name}: {kernel or 'a kernel'} was not launched; launched: {seen}{more}")
        return [inspect_launch(x.report, x.compiled) for x in chosen.values()]
    if not kernels:
        raise InspectError(f"{path.name}: no @triton.jit function in it")
    if not kernel and len(kernels) > 1 and typed:
        raise InspectError(f"{path.name}: which kernel? Add ::NAME with one of {', '.join(kernels)}")
    name = kernel or next(iter(kernels))
    if not typed:
        raise InspectError(_hint(path, name, kernels[name]))
    return [inspect_launch(report(c), c) for c in _compile_typed(kernels[name], how, arch)]
