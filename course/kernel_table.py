# SPDX-License-Identifier: MIT
"""`python -m course table`: what every kernel of the course takes on MI300X, compiled here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cdna.cli.options import JSON

if TYPE_CHECKING:
    from course.resource_table import KernelRow

__all__ = ["table"]


def table(
    modules: Annotated[
        list[str] | None,
        typer.Argument(help="Kernel modules, such as softmax; all if none."),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Compare with the committed table.")] = False,
    write: Annotated[bool, typer.Option("--write", help="Replace the committed table's lines.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Compile again what has not changed since.")] = False,
    as_json: JSON = False,
) -> None:
    """Compile every kernel for gfx942, on any machine, and show registers, LDS, occupancy and instruction widths.

    A case whose source has not changed since this Triton made the committed table is read from it.
    """
    import json
    from dataclasses import asdict

    import triton

    from course.resource_table import compare_rows, find_module, kernel_modules, read_rows, write_rows

    names = [find_module(name) for name in modules or ()] or kernel_modules()
    here = triton.__version__
    rows = _measure(names, fresh)
    if as_json:
        typer.echo(json.dumps({"triton": here, "kernels": [asdict(r) for r in rows]}, indent=2))
    elif not (check or write):
        _print(rows)
    if check or write:
        version, kept = read_rows()
        mine = [r for r in kept if r.case.split(":")[0] in names]
        changes = compare_rows(mine, rows)
        if write:
            others = [] if not modules else [r for r in kept if r.case.split(":")[0] not in names]
            path = write_rows(sorted([*others, *rows], key=lambda r: r.case.split(":")[0]))
            typer.echo(f"{len(rows)} rows written, {len(changes)} changed: {path.name}")
            return
        for line in changes:
            typer.echo(line, err=as_json)
        if not as_json:
            agree = "agree" if not changes else "checked"
            typer.echo(f"{len(rows)} launches {agree}; table made with triton {version}, here triton {here}")
        if changes:
            raise typer.Exit(1)


def _measure(names: list[str], fresh: bool) -> list[KernelRow]:
    """Measure with a bar on stderr while something has to be compiled;
    a line before and after where there is no terminal.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from cdna.cli.output import announced
    from cdna.compiler_key import writable_compiler_cache
    from course.table_measure import measure_modules

    console = Console(stderr=True)
    columns = (
        TextColumn("compiling for gfx942"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    what = ", ".join(names) if len(names) < 4 else f"{len(names)} modules"
    with announced(f"compiling {what} for gfx942"), bar, writable_compiler_cache():
        task = bar.add_task("", total=None)
        return measure_modules(
            names,
            fresh=fresh,
            progress=lambda name, done, total: bar.update(task, description=name, completed=done, total=total),
        )


def _print(rows: list[KernelRow]) -> None:
    names = ("warps", "VGPR", "AGPR", "LDS", "spills", "waves")
    typer.echo(f"{'case and kernel':<62} " + " ".join(f"{n:>6}" for n in names) + "  loads in loops (or all), matrix")
    for r in rows:
        loads = r.loop_loads if r.loop_loads != "-" else r.loads
        name = f"{r.case} / {r.kernel}"
        typer.echo(
            f"{name:<62} {r.warps:>6} {r.vgprs:>6} {r.agprs:>6} {r.lds:>6} {r.spills:>6} {r.waves:>6g}  {loads}"
            + (f"  {r.mfma}" if r.mfma != "-" else "")
            + (f"  {r.findings}" if r.findings != "-" else "")
        )
