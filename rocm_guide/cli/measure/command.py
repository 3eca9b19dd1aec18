# SPDX-License-Identifier: MIT
"""`rocm-guide measure`: the course's kernels on this machine's GPU, in one stamped file; files side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cdna.cli.options import JSON, between, out_file

__all__ = ["measure_command"]


def measure_command(
    names: Annotated[list[str] | None, typer.Argument(help="Cases, or how their names begin; all if none.")] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", parser=out_file, metavar="FILE", help="The file to write.")
    ] = Path("measured.json"),
    runs: Annotated[int, typer.Option(help="Timed runs of each case.", callback=between(3, 1000))] = 20,
    merge: Annotated[
        list[Path] | None, typer.Option("--merge", help="A file to put beside others; repeat it, or list more.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(parser=out_file, metavar="FILE", help="With --merge: a picture, .png or .svg.")
    ] = None,
    only_list: Annotated[bool, typer.Option("--list", help="Cases and the times predicted for an MI300X.")] = False,
    as_json: JSON = False,
) -> None:
    """Time the kernels of the course on this GPU and write one stamped file; with --merge, compare such files.

    The file names the GPU, its driver, clocks and versions, and nothing about you. What an MI300X takes at least, and
    what it likely takes, comes with the package, from a model of each kernel; other GPUs are compared with the roofline
    of their data sheet.
    """
    import json
    from dataclasses import asdict

    from cdna.predict.published import caveat
    from rocm_guide.common.base import write_text
    from rocm_guide.observe.measure.compare import likely_time, merged_table
    from rocm_guide.observe.measure.predictions import read_predictions
    from rocm_guide.observe.measure.results import MeasureError, measure, read_result

    if only_list:
        said = {
            n: {"us": p.us, "likely_us": likely_time(n).microseconds, "limit": p.limit, **asdict(p)}
            | {"caveat": caveat(p.left_out)}
            for n, p in read_predictions().items()
        }
        typer.echo(json.dumps(said, indent=1) if as_json else merged_table([]))
        return
    if merge or plot:
        results = [read_result(path) for path in [*(merge or []), *map(Path, names or [])]]
        if not results:
            raise MeasureError("--plot draws the files of --merge: name one or more")
        if plot is not None:
            _draw(results, plot)
        typer.echo(json.dumps(results, indent=1) if as_json else merged_table(results))
        return

    def progress(name: str, found: dict[str, Any]) -> None:
        text = found.get("error") or f"{found['us']:,.1f} us ± {found['spread_us']:,.1f}"
        typer.echo(f"{name:<44} {text}", err=True)

    result = measure(names or (), runs=runs, progress=progress)
    write_text(out, json.dumps(result, indent=1) + "\n")
    typer.echo(json.dumps(result, indent=1) if as_json else f"written: {out}")


def _draw(results: list[dict[str, Any]], path: Path) -> None:
    import io

    import matplotlib as mpl

    from rocm_guide.common.base import write_bytes
    from rocm_guide.observe.measure.compare import draw_merged
    from rocm_guide.observe.measure.results import MeasureError

    kind = path.suffix.removeprefix(".").lower()
    if kind not in ("png", "svg"):
        raise MeasureError(f"--plot {path.name}: a picture ends in .png or .svg")
    with mpl.rc_context({"svg.hashsalt": "rocm-guide"}):
        figure = draw_merged(results).figure
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, metadata={"Date": None} if kind == "svg" else None)
    write_bytes(path, buffer.getvalue())
