# SPDX-License-Identifier: MIT
"""`rocm-guide ck search | check | source`: instances of Composable Kernel for a problem, without a GPU."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from cdna.cli.options import JSON, OutFile, Top, choice
from cdna.cli.output import write_or_print

if TYPE_CHECKING:
    from rocm_guide.tune.ck.instance import GemmInstance, Problem

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Instances of Composable Kernel for a problem.")
_PROBLEM = typer.Argument(metavar="MxNxK", help="Sizes of the product: 3840x4096x4096.")
_NAME = typer.Argument(help="A preset: document_prose, document_run, example_today, int8_large, int8_small, one_wave.")
_Set = Annotated[
    list[str], typer.Option("--set", metavar="NAME=VALUE", help="Another template parameter: KPerBlock=64.")
]


def _problem(text: str) -> Problem:
    from rocm_guide.tune.ck.instance import CkError, Problem

    found = re.fullmatch(r"([0-9]{1,10})x([0-9]{1,10})x([0-9]{1,10})", text)
    if not found:
        raise CkError(f"{text!r}: give M, N and K as 3840x4096x4096")
    m, n, k = map(int, found.groups())
    return Problem(m, n, k)


def _instance(name: str, changes: list[str]) -> GemmInstance:
    from rocm_guide.tune.ck.instance import CkError
    from rocm_guide.tune.ck.presets import PRESETS

    if name not in PRESETS:
        raise CkError(f"{name!r}: no such instance; choose from {', '.join(PRESETS)}")
    found = PRESETS[name]
    for change in changes:
        parameter, _, value = change.partition("=")
        if not value:
            raise CkError(f"--set {change!r}: give NAME=VALUE, for example KPerBlock=64")
        if not hasattr(found, parameter):
            found.but(**{parameter: None})  # says that there is no such parameter
        now = getattr(found, parameter)
        try:
            if isinstance(now, tuple):
                words = [w for w in value.strip("()").split(",") if w.strip()]
                given: object = tuple(int(w) if re.fullmatch(r"\s*\d+\s*", w) else w.strip() for w in words)
            else:
                given = int(value) if isinstance(now, int) else value
        except ValueError:
            raise CkError(f"--set {change!r}: {parameter} is an integer") from None
        found = found.but(**{parameter: given})
    return found


@app.command("search")
def search_command(
    problem: Annotated[str, _PROBLEM],
    dtype: Annotated[str, typer.Option(help="F16, BF16 or I8.", callback=choice("F16", "BF16", "I8"))] = "F16",
    b_layout: Annotated[
        str, typer.Option(help="B by columns (Col) or rows (Row).", callback=choice("Col", "Row"))
    ] = "Col",
    top: Top = 10,
    as_json: JSON = False,
) -> None:
    """List generated instances that CK would take for this problem, ranked by a predicted time on an MI300X.

    Nothing is measured or compiled: the model and its assumptions are in rocm_guide.tune.ck.grid.
    """
    from cdna.predict.published import caveat
    from rocm_guide.tune.ck.grid import LEFT_OUT
    from rocm_guide.tune.ck.search import base_for, search

    sizes = _problem(problem)
    found = search(base_for(dtype, "Row" if b_layout == "Row" else "Col"), sizes, top)
    if as_json:
        rows = [
            {
                "instance": asdict(c.instance),
                "launch": asdict(c.launch),
                "predicted": asdict(c.prediction),
                "predicted_seconds": c.prediction.seconds,
                "bound_seconds": c.prediction.likely.bound / 1e6,
                "likely_seconds": c.prediction.likely.microseconds / 1e6,
                "limit": c.prediction.limit,
                "caveat": caveat(LEFT_OUT),
            }
            for c in found
        ]
        typer.echo(json.dumps(rows, indent=1))
        return
    typer.echo(
        f"{'tile M N K':<14}{'XDL':>4}{'per wave':>10}{'threads':>9}{'LDS B':>8}{'groups':>8}{'units used':>12}"
        f"{'bound':>11}{'predicted':>11}{'likely':>11}  limit"
    )
    for c in found:
        i, seconds, likely = c.instance, c.prediction.seconds, c.prediction.likely
        tile, per_wave = f"{i.MPerBlock} {i.NPerBlock} {i.KPerBlock}", f"{i.MXdlPerWave} x {i.NXdlPerWave}"
        typer.echo(
            f"{tile:<14}{i.MPerXDL:>4}{per_wave:>10}{i.BlockSize:>9}{i.lds_bytes:>8,}{c.launch.groups:>8,}"
            f"{c.launch.busy:>12.0%}{likely.bound:>8.1f} us{seconds * 1e6:>8.1f} us{likely.microseconds:>8.1f} us"
            f"  {c.prediction.limit}"
        )
    typer.echo(
        "predicted for an MI300X by a model (rocm_guide.tune.ck.grid), not measured; bound: its parts at their peaks, "
        f"no start; {caveat(LEFT_OUT)}"
    )


@app.command("check")
def check_command(instance: Annotated[str, _NAME], problem: Annotated[str, _PROBLEM], change: _Set = []) -> None:
    """Check whether CK takes this instance and problem; name every broken rule, its file, and a value that would do."""
    from rocm_guide.tune.ck.grid import launch
    from rocm_guide.tune.ck.rules import check

    one, sizes = _instance(instance, change), _problem(problem)
    if refusals := check(one, sizes):
        for refusal in refusals:
            typer.echo(f"[FAIL] {refusal}")
        raise typer.Exit(1)
    typer.echo(f"[OK]   {one.lds_bytes:,} B of LDS, {one.accumulators} accumulators a lane, {launch(one, sizes)}")


@app.command("source")
def source_command(
    instance: Annotated[str, _NAME],
    problem: Annotated[str, _PROBLEM],
    change: _Set = [],
    torch_extension: Annotated[
        bool, typer.Option("--torch-extension", help="A torch operator for hipcc instead; untested on hardware.")
    ] = False,
    out: OutFile = None,
) -> None:
    """Write the C++ of an instance, with a kernel for this problem."""
    from rocm_guide.tune.ck.generate import extension_source, kernel_source
    from rocm_guide.tune.ck.rules import require

    one, sizes = _instance(instance, change), _problem(problem)
    require(one, sizes)
    write_or_print(extension_source(one) if torch_extension else kernel_source(one, sizes), out)
