# SPDX-License-Identifier: MIT
"""`rocm-guide kernels table`: what every kernel of the course takes on MI300X, compiled here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rocm_guide.kernel_table import KernelRow

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, add_completion=False, help="The Triton kernels of the course.")


@app.callback()
def _group() -> None:
    """The Triton kernels of the course."""


@app.command("table")
def table(
    modules: Annotated[list[str] | None, typer.Argument(help="Kernel modules, such as softmax; all if none.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Compare with the committed table.")] = False,
    write: Annotated[bool, typer.Option("--write", help="Replace the committed table's lines.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:  # fmt: skip
    """Compile every kernel for gfx942, on any machine, and show registers, LDS, occupancy and instruction widths."""
    import json
    from dataclasses import asdict

    import triton
    from rich.console import Console

    from rocm_guide.kernel_table import compare_rows, kernel_modules, measure_module, read_rows, write_rows

    names = modules or kernel_modules()
    out = Console(stderr=True)
    rows = []
    with out.status("compiling for gfx942") as status:
        for name in names:
            status.update(f"compiling for gfx942: {name}")
            rows += measure_module(name)
    if as_json:
        typer.echo(json.dumps({"triton": triton.__version__, "kernels": [asdict(r) for r in rows]}, indent=2))
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
            typer.echo(
                f"{len(rows)} launches {agree}; table made with triton {version}, here triton {triton.__version__}"
            )
        if changes:
            raise typer.Exit(1)


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
