# SPDX-License-Identifier: MIT
"""From ``FILE.py[::KERNEL]`` to compiled kernels: by the file's own example, by a call, or by argument types."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from cdna.base import InputError, printable
from cdna.cli.inspect.arguments import InspectError, Tensor, argument, literal, split
from cdna.compile import Compiled, compile_kernel, unwrap_kernel
from cdna.compile import SignatureError as _SignatureError
from cdna.dry_run.driver import dry_run
from cdna.inspection import Inspection, inspect_launch
from cdna.report import kernel_report

__all__ = ["HowTo", "compile_typed", "inspect_python"]


@dataclass
class HowTo:
    """Launch of a kernel as asked for: an expression, or types, constants and options as ``NAME=VALUE`` texts."""

    call: str = ""
    arguments: Sequence[str] = ()
    constants: Sequence[str] = ()
    options: dict[str, Any] = field(default_factory=dict)
    meta: bool = False


def load_module(path: Path) -> ModuleType:
    """Import a file; a file inside a package is imported by its dotted name so that its relative imports work."""
    path = path.resolve()
    top, parts = path.parent, [path.stem]
    while (top / "__init__.py").exists():
        parts.insert(0, top.name)
        top = top.parent
    known = importlib.util.find_spec(path.stem.partition(".")[0] or "_")
    taken = path.stem in sys.modules or (known is not None and known.origin != str(path))
    name = f"{path.stem}_inspected" if taken else path.stem
    # A package's own clone goes before an installed copy of it; the neighbours of a single file go last, so that a
    # file called types.py or torch.py stands in for no library.
    if str(top) not in sys.path:
        sys.path.insert(0 if len(parts) > 1 else len(sys.path), str(top))
    # What the file prints while it is imported must not get into --json.
    printed = contextlib.redirect_stdout(sys.stderr)
    try:
        if len(parts) > 1:
            with printed:
                return importlib.import_module(".".join(parts))
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise InspectError(f"{path.name}: not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        with printed:
            spec.loader.exec_module(module)
    except InputError:
        raise
    except (Exception, SystemExit) as e:
        raise InspectError(f"{path.name} cannot be imported: {type(e).__name__}: {_line(e)}") from e
    return module


def _line(e: BaseException) -> str:
    return next((line.strip() for line in reversed(str(e).splitlines()) if line.strip()), "no message")


def kernels_of(module: ModuleType) -> dict[str, Any]:
    """Return the Triton kernels of a module by name."""
    found = {}
    for name, value in vars(module).items():
        if hasattr(value, "fn") and hasattr(value, "run"):
            with contextlib.suppress(_SignatureError):
                unwrap_kernel(value)
                found[name] = value
    return found


def _hint(path: Path, name: str, kernel: Any) -> str:
    """Return the command line that would do, with every parameter in it."""
    words = []
    for p in unwrap_kernel(kernel).params:
        words.append(f"--const {p.name}=…" if p.is_constexpr else f"--arg {p.name}=…")
    return (
        f"{path.name}::{name} needs to know how it is launched: give --call 'EXPRESSION', or a function example() in "
        f"the file that launches it, or types: {' '.join(words)} (an --arg is *fp16:16, i32, 4096 or fp16[1024,4096])"
    )


def compile_typed(kernel: Any, how: HowTo, arch: str) -> Iterator[Compiled]:
    """Compile by types; an autotuned kernel once for each configuration that leaves the given constants as they are."""
    asked = {k: argument(v) for k, v in (split(t, "--arg") for t in how.arguments)}
    arguments = {k: v.signature if isinstance(v, Tensor) else v for k, v in asked.items()}
    constants = {k: literal(v) for k, v in (split(t, "--const") for t in how.constants)}
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


def has_torch() -> bool:
    """Return whether torch is installed: a program that launches kernels needs it, a kernel with types does not."""
    return importlib.util.find_spec("torch") is not None


def run_launches(module: ModuleType, how: HowTo, path: Path) -> None:
    """Run the launch expression, or the file's example(), inside a dry run."""
    what = f"--call {how.call!r}" if how.call else f"example() of {path.name}"
    if not has_torch():
        raise InspectError(f"{what} needs torch, which is not installed: pip install torch, or give --arg and --const")
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what the code prints must not get into --json
            if how.call:
                import torch
                import triton

                eval(how.call, {"torch": torch, "triton": triton, **vars(module)})
            else:
                module.example()
    except InputError:
        raise
    except (Exception, SystemExit) as e:
        raise InspectError(f"{what} failed: {type(e).__name__}: {_line(e)}") from e


@contextlib.contextmanager
def _compiled(report: Callable[[str], None]) -> Iterator[None]:
    """Let ``report`` hear, inside the ``with`` block, of each kernel that Triton has compiled, an autotuner's trials
    included.
    """
    from triton import knobs

    count = itertools.count(1)

    def hook(module: Any, function: Any, name: str, *rest: Any) -> None:
        report(f"{name}, {next(count)} compiled")

    knobs.runtime.kernel_load_start_hook.add(hook)
    try:
        yield
    finally:
        knobs.runtime.kernel_load_start_hook.remove(hook)


def inspect_python(
    path: Path, kernel: str, how: HowTo, arch: str, progress: Callable[[str], None] = lambda step: None
) -> list[Inspection]:
    """Compile the kernels of a file for ``arch`` and inspect each different launch once.

    ``progress`` is called with what was done last, as often as a kernel has been compiled.

    Raises:
        InspectError: no way to launch is given, no such kernel, or the file's own code failed.
        InputError: Triton is missing or unchecked, or refused the kernel.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_compiled(progress))
        # Without torch nothing can be launched here, so that types are the only way.
        run = stack.enter_context(dry_run(arch, device="meta" if how.meta else "cpu")) if has_torch() else None
        module = load_module(path)
        kernels = kernels_of(module)
        if kernel and kernel not in kernels and not how.call and not hasattr(module, "example"):
            names = ", ".join(kernels) or "none"
            raise InspectError(f"{path.name}::{kernel}: no such kernel (@triton.jit, @gluon.jit); the file has {names}")
        typed = bool(how.arguments or how.constants)
        if how.options and not typed and (how.call or callable(getattr(module, "example", None))):
            words = ", ".join(f"{k}={printable(v, 60)}" for k, v in how.options.items())
            where = "--call" if how.call else "example()"
            raise InspectError(
                f"{words}: the launch in {where} sets its own; change it there, or give --arg and --const"
            )
        if not typed and (how.call or callable(getattr(module, "example", None))):
            run_launches(module, how, path)
    if run is not None and not typed and (run.launches or run.failures):
        # An autotuner's trial and the launch that follows are the same code: shown once.
        chosen = {(x.kernel, x.grid, x.compiled.assembly): x for x in run.launches if not kernel or x.kernel == kernel}
        if not chosen:
            seen = ", ".join(run.kernels) or "none that compiled"
            more = f". {_hint(path, kernel, kernels[kernel])}" if kernel in kernels else ""
            raise InspectError(f"{path.name}: {kernel or 'a kernel'} was not launched; launched: {seen}{more}")
        return [inspect_launch(x.report, x.compiled) for x in chosen.values()]
    if not kernels:
        raise InspectError(f"{path.name}: no kernel (@triton.jit, @gluon.jit) in it")
    if not kernel and len(kernels) > 1 and typed:
        raise InspectError(f"{path.name}: which kernel? Add ::NAME with one of {', '.join(kernels)}")
    name = kernel or next(iter(kernels))
    if not typed:
        raise InspectError(_hint(path, name, kernels[name]))
    found = []
    for compiled in compile_typed(kernels[name], how, arch):
        found.append(inspect_launch(kernel_report(compiled), compiled))
        progress(f"{name}, {len(found)} compiled")
    return found
