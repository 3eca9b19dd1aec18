# SPDX-License-Identifier: MIT
"""Make the rows of the gfx942 resource table: compile a module's cases, or only say what would be compiled.

A row of the committed table stands for one text of the kernels, their types and options, and one Triton: a case of
which nothing has changed is read from it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import inspect
import re
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from course.resource_table import KernelRow, TableError, find_module, kernel_modules, read_rows

if TYPE_CHECKING:
    from cdna.dry_run.driver import DryRun

__all__ = ["compiled_sources", "digest_of", "measure_modules"]


def _widths(found: dict[int, int]) -> str:
    return ",".join(f"{bits}x{n}" for bits, n in found.items()) or "-"


def _rows(case: str, run: DryRun) -> Iterator[KernelRow]:
    for launch in run.launches:
        r, isa = launch.report, launch.compiled.parsed
        bad = [f.rule for f in r.findings if f.level in ("error", "warning") and f.rule not in ("grid", "tail")]
        yield KernelRow(
            case=case,
            kernel=r.kernel,
            grid=",".join(map(str, launch.grid)),
            warps=r.occupancy.waves_per_workgroup,
            vgprs=r.resources.vgprs_allocated or 0,
            agprs=r.resources.agprs or 0,
            sgprs=r.resources.sgprs or 0,
            lds=r.lds,
            waves=r.occupancy.waves_per_simd,
            spills=r.resources.vgpr_spills or 0,
            loads=_widths(isa.widths("global", "load")),
            stores=_widths(isa.widths("global", "store")),
            loop_loads=_widths(isa.widths("global", "load", True)),
            loop_stores=_widths(isa.widths("global", "store", True)),
            mfma=",".join(f"{op}x{n}" for op, n in r.isa.mfma.items()) or "-",
            findings=",".join(bad) or "-",
        )


def measure_module(name: str, arch: str = "gfx942", cases: Container[str] | None = None) -> list[KernelRow]:
    """Compile the cases of one kernel module, and say what each launch takes. About a second for each new kernel.

    A case may launch several kernels: it then has a row for each. The tensors have their true sizes and no memory.

    Args:
        name: the module, see :func:`find_module`.
        arch: the architecture that is compiled for.
        cases: only these, as :attr:`KernelRow.case` names them.

    Raises:
        TableError: no such module, or a case that launches nothing.
    """
    from cdna.dry_run.driver import dry_run

    rows = []
    for case, thunk in _cases(find_module(name), arch):
        if cases is not None and case not in cases:
            continue
        with dry_run(arch, device="meta") as run, compiled_sources(skip=False) as seen:
            thunk()
        if not run.launches:
            raise TableError(f"{case!r} launched no kernel")
        rows += [replace(row, source=digest_of(seen)) for row in _rows(case, run)]
    return list(dict.fromkeys(rows))


def _cases(name: str, arch: str) -> list[tuple[str, Callable[[], Any]]]:
    from cdna.dry_run.driver import dry_run

    family, _, stem = f"rocm_guide.kernels.{name}".rpartition(".")
    with dry_run(arch, device="meta"):
        found = list(getattr(importlib.import_module(f"{family}.cases"), f"{stem}_cases")())
    return [(f"{name}: {label}", thunk) for label, thunk in found]


def case_sources(name: str, arch: str = "gfx942") -> dict[str, str]:
    """Return what the compiler would be given for each case of a module, as a digest; nothing is compiled.

    The digest stands for the kernels' source, the types and constants of their arguments and the options. The same
    release of Triton makes the same code of the same digest.

    Raises:
        TableError: no such module.
    """
    from cdna.dry_run.driver import dry_run

    found = {}
    for case, thunk in _cases(find_module(name), arch):
        with dry_run(arch, device="meta"), compiled_sources(skip=True) as seen:
            thunk()
        found[case] = digest_of(seen)
    return found


@contextlib.contextmanager
def compiled_sources(*, skip: bool) -> Iterator[set[str]]:
    """Note what Triton is asked to compile inside the block; with ``skip`` it compiles and launches nothing."""
    from triton import knobs

    seen: set[str] = set()

    def hook(*, key: Any, fn: Any, **_: Any) -> bool:
        # Libraries that are linked are named with their folder, which is another on each machine.
        seen.add(f"{_source_key(fn.jit_function)} {re.sub(r'/[^ ]*/', '', str(key))}")
        return skip

    with knobs.runtime.scope():
        knobs.runtime.jit_cache_hook = hook
        yield seen


def _source_key(kernel: Any) -> str:
    """Stands for the text of a kernel and of all functions that it calls, and for the constants that they read.

    Triton's own key also has the line on which each function begins, so it changes with any line above it.
    """
    from triton.language import constexpr, dtype
    from triton.runtime.jit import JITCallable

    found: dict[int, str] = {}
    waiting = [kernel]
    while waiting:
        one = waiting.pop()
        if id(one) in found:
            continue
        names = inspect.getclosurevars(one.fn)
        read = {**names.globals, **names.nonlocals}
        for module in [m for m in read.values() if isinstance(m, ModuleType)]:
            read |= {f"{module.__name__}.{n}": getattr(module, n) for n in names.unbound if hasattr(module, n)}
        waiting += [v for v in read.values() if isinstance(v, JITCallable)]
        constants = sorted(f"{n}={v!r}" for n, v in read.items() if isinstance(v, constexpr | dtype))
        name = f"{one.__module__}.{one.__qualname__}"
        found[id(one)] = f"{name}: {one.src} {getattr(one, 'noinline', False)} {constants}"
    return hashlib.sha256("\n".join(sorted(found.values())).encode()).hexdigest()


def digest_of(seen: set[str]) -> str:
    """Twelve hexadecimal digits for what :func:`compiled_sources` has seen."""
    return hashlib.sha256("\n".join(sorted(seen)).encode()).hexdigest()[:12]


def measure_modules(
    names: Sequence[str] = (),
    *,
    fresh: bool = False,
    progress: Callable[[str, int, int], Any] = lambda name, done, total: None,
) -> list[KernelRow]:
    """Return the rows of :func:`measure_module` for several modules and gfx942, in their order.

    Args:
        names: modules of ``rocm_guide.kernels``; all that have cases if there are none.
        fresh: compile even what the committed table has from this Triton, with the same digest.
        progress: called with a module that is done, and how many of how many are.

    Raises:
        TableError: no such module, or a case that launches nothing.

    >>> measure_modules(["nosuch"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    course.resource_table.TableError: no kernel module 'nosuch' with cases: there are ...
    """
    import triton

    names = list(dict.fromkeys(find_module(name) for name in names)) or kernel_modules()
    version, committed = read_rows()
    fresh = fresh or version != triton.__version__
    found = []
    for done, name in enumerate(names):
        progress(name, done, len(names))
        sources = case_sources(name)
        kept = [] if fresh else [r for r in committed if r.source == sources.get(r.case)]
        changed = measure_module(name, cases=set(sources) - {r.case for r in kept})
        order = list(sources)
        found += sorted([*kept, *changed], key=lambda r: order.index(r.case))
    progress("", len(names), len(names))
    return found
