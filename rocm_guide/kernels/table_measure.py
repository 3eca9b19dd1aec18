# SPDX-License-Identifier: MIT
"""Make the rows of the gfx942 resource table: compile a module's cases, or only say what would be compiled.

Many modules at once are compiled by all cores, and what was compiled before is read from the cache. A cached row stands
for one text of the kernels, one Triton and one set of compiler switches; anything else is compiled again.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import json
import math
import multiprocessing
import os
import re
import signal
import sys
from collections.abc import Callable, Container, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, fields, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rocm_guide.common.base import GuideError, cache_folder, check_private, own_folder, package_folder, write_text
from rocm_guide.common.host import cores, memory_available
from rocm_guide.kernels.resource_table import KernelRow, TableError, find_module, kernel_modules, read_rows

if TYPE_CHECKING:
    from cdna.dry_run.driver import DryRun

__all__ = ["compiled_sources", "digest_of", "measure_modules", "triton_version"]

# Launches that one task compiles: small enough to keep all cores busy to the end, large against its own start.
_LAUNCHES = 6
# torch and Triton take about 0.6 GB in each process.
_BYTES_EACH = 10**9
# Switches that change what Triton compiles; its folders do not.
_SWITCHES = ("TRITON_", "AMDGCN_", "MLIR_", "LLVM_", "DISABLE_LLVM")
_FOLDERS = ("TRITON_CACHE_DIR", "TRITON_HOME", "TRITON_DUMP_DIR", "TRITON_OVERRIDE_DIR")


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
    name = find_module(name)
    return list(dict.fromkeys(row for rows in measure_cases(name, arch, cases=cases).values() for row in rows))


def measure_cases(
    name: str, arch: str = "gfx942", part: int = 0, parts: int = 1, cases: Container[str] | None = None
) -> dict[int, list[KernelRow]]:
    """Return the rows of every ``parts``-th case of a module, beginning with case ``part``, by the case's place.

    Raises:
        TableError: a case that launches nothing.
    """
    from cdna.dry_run.driver import dry_run

    rows: dict[int, list[KernelRow]] = {}
    for i, (case, thunk) in list(enumerate(_cases(name, arch)))[part::parts]:
        if cases is not None and case not in cases:
            continue
        with dry_run(arch, device="meta") as run, compiled_sources(skip=False) as seen:
            thunk()
        if not run.launches:
            raise TableError(f"{case!r} launched no kernel")
        rows[i] = [replace(row, source=digest_of(seen)) for row in _rows(case, run)]
    return rows


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


def triton_version() -> str:
    """Return the installed Triton's version, read from its source: importing it takes half a second.

    Raises:
        TableError: it is not installed, or says its version in another way.
    """
    spec = importlib.util.find_spec("triton")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'triton'", name="triton")
    found = re.search(r"^__version__ = ['\"]([^'\"]+)", Path(spec.origin).read_text(encoding="utf-8"), re.M)
    if found is None:
        import triton

        return str(triton.__version__)
    return found[1]


@cache
def _compiled_from() -> str:
    """Return a digest of all that decides about a row: kernels and toolkit as text, Triton, Python, switches."""
    import cdna

    digest = hashlib.sha256()
    for root in (Path(cdna.__file__).resolve().parent, package_folder() / "kernels"):
        for path in sorted(root.glob("**/*.py")):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    chosen = {k: v for k, v in os.environ.items() if k.startswith(_SWITCHES) and k not in _FOLDERS}
    digest.update(json.dumps([triton_version(), sys.version_info[:2], sorted(chosen.items())]).encode())
    return digest.hexdigest()


def _file(name: str, arch: str) -> Path:
    return cache_folder() / "kernel_table" / f"{arch}-{name}-{_compiled_from()[:24]}.json"


def _cached(name: str, arch: str) -> list[KernelRow] | None:
    """Return the rows of a module as an earlier call kept them; None if there are none, or the file is damaged.

    Raises:
        GuideError: another user could have written them.
    """
    file = check_private(_file(name, arch))
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))
        kinds: dict[str, Any] = {"int": int, "float": (int, float), "str": str}
        found = [KernelRow(**row) for row in rows]
        whole = all(isinstance(getattr(r, f.name), kinds[str(f.type)]) for r in found for f in fields(KernelRow))
        return found if found and whole else None
    except (OSError, ValueError, TypeError):
        return None


def _keep(name: str, arch: str, rows: Sequence[KernelRow]) -> None:
    text = json.dumps([asdict(r) for r in rows])
    try:
        own_folder(_file(name, arch).parent)
        write_text(_file(name, arch), text)
    except GuideError:
        return  # a cache that cannot be written costs the next call its time, and this one nothing


def _quiet_worker() -> None:
    # Ctrl-C reaches every process of the terminal; the first one ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _tasks(names: Sequence[str]) -> dict[str, int]:
    """Return into how many tasks each module is cut, by the number of its launches in the committed table."""
    kept = [r.case.split(":")[0] for r in read_rows()[1]]
    return {name: max(1, math.ceil(kept.count(name) / _LAUNCHES)) for name in names}


def _workers(tasks: int, jobs: int | None) -> int:
    available, _ = memory_available()
    room = available // _BYTES_EACH if available else tasks
    return max(1, min(tasks, jobs or min(cores(), room)))


def measure_modules(
    names: Sequence[str] = (),
    *,
    arch: str = "gfx942",
    jobs: int | None = None,
    fresh: bool = False,
    progress: Callable[[str, int, int], Any] = lambda name, done, total: None,
) -> list[KernelRow]:
    """Return the rows of :func:`measure_module` for several modules, in their order.

    Args:
        names: modules of ``rocm_guide.kernels``; all that have cases if there are none.
        arch: the architecture that is compiled for.
        jobs: processes; as many as there are cores and gigabytes of free memory if left out.
        fresh: compile even what is in the cache.
        progress: called with the module that was worked on last, and how many tasks of how many are done.

    Raises:
        TableError: no such module, a case that launches nothing, or a process that was killed.

    >>> measure_modules(["nosuch"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    rocm_guide.kernels.resource_table.TableError: no kernel module 'nosuch' with cases: there are ...
    """
    names = list(dict.fromkeys(find_module(name) for name in names)) or kernel_modules()
    found = {} if fresh else {name: rows for name in names if (rows := _cached(name, arch))}
    tasks = _tasks([name for name in names if name not in found])
    total = sum(tasks.values())
    progress("", 0, total)
    if total and _workers(total, jobs) == 1:
        for done, name in enumerate(tasks, 1):
            found[name] = measure_module(name, arch)
            _keep(name, arch, found[name])
            progress(name, sum(list(tasks.values())[:done]), total)
    elif total:
        _in_processes(tasks, _workers(total, jobs), arch, progress, found)
    return [row for name in names for row in found[name]]


def _in_processes(
    tasks: dict[str, int],
    workers: int,
    arch: str,
    progress: Callable[[str, int, int], Any],
    found: dict[str, list[KernelRow]],
) -> None:
    parts: dict[str, dict[int, list[KernelRow]]] = {name: {} for name in tasks}
    earlier = set(multiprocessing.active_children())
    # Started anew, not forked: torch's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_quiet_worker)
    try:
        futures = {
            pool.submit(measure_cases, name, arch, part, count): name
            for name, count in sorted(tasks.items(), key=lambda item: -item[1])
            for part in range(count)
        }
        for done, future in enumerate(as_completed(futures), 1):
            name = futures[future]
            parts[name].update(future.result())
            if not any(not f.done() for f, n in futures.items() if n == name):
                rows = [row for case in sorted(parts[name]) for row in parts[name][case]]
                found[name] = list(dict.fromkeys(rows))
                _keep(name, arch, found[name])
            progress(name, done, len(futures))
    except BrokenProcessPool as e:
        fix = "if memory ran out, compile with fewer processes: --jobs 1"
        raise TableError(f"a process that compiled for {arch} was killed; {fix}") from e
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - earlier:
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
