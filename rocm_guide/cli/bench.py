# SPDX-License-Identifier: MIT
"""`rocm-guide bench URL`: what users of an OpenAI-compatible server get, at several loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from cdna.cli.options import JSON, between, out_file
from rocm_guide.common.base import whole_file

__all__ = ["bench"]


def _numbers(text: str, option: str, least: float, *, whole: bool = False) -> list[float]:
    """Return the numbers of a text with commas between them; an empty text has none."""
    try:
        found = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        found = [-1.0]
    if not all(least <= n <= 100_000 and (n.is_integer() or not whole) for n in found):
        kind = "whole numbers" if whole else "numbers"
        raise typer.BadParameter(f"{option} {text}: give {kind} from {least:g} to 100,000 with commas, as 1,4,16")
    return found


def bench(
    url: Annotated[str, typer.Argument(metavar="URL", help="As http://127.0.0.1:8000.")],
    users: Annotated[str, typer.Option(help="Users at once who wait for their answers, one level for each number.")] = (
        "1,2,4,8,16"
    ),
    rates: Annotated[str, typer.Option(help="Arrivals per second that wait for nobody, after the users.")] = "",
    requests: Annotated[int, typer.Option(help="Requests at each level.", callback=between(1, 100_000))] = 32,
    prompt: Annotated[int, typer.Option(help="Tokens of a prompt.", callback=between(1, 1_000_000))] = 64,
    tokens: Annotated[int, typer.Option(help="Tokens of an answer.", callback=between(1, 1_000_000))] = 64,
    first: Annotated[float, typer.Option(help="Goodput: seconds to the first token.", callback=between(0.0))] = 1.0,
    between_: Annotated[
        float, typer.Option("--between", help="Goodput: seconds between tokens.", callback=between(0.0))
    ] = 0.1,
    warm_up: Annotated[int, typer.Option(help="Requests before, not counted.", callback=between(1, 1000))] = 2,
    seed: Annotated[int, typer.Option(help="Of prompts and arrivals.")] = 0,
    timeout: Annotated[float, typer.Option(help="Seconds without a byte: failed.", callback=between(0.1))] = 120.0,
    deadline: Annotated[
        float, typer.Option(help="Seconds for one whole request: failed.", callback=between(0.1))
    ] = 600.0,
    run_deadline: Annotated[
        float, typer.Option(help="Seconds for all levels; what is not answered then has failed.", callback=between(0.1))
    ] = 3600.0,
    key_over_http: Annotated[
        bool, typer.Option("--key-over-http", help="Send the key without https to other machines too.")
    ] = False,
    model: Annotated[str, typer.Option(help="The model's name; the server's first if left out.")] = "",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", parser=out_file, metavar="FILE", help="Write the results as JSON.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(parser=out_file, metavar="FILE", help="Draw throughput against latency: PNG or SVG.")
    ] = None,
    as_json: JSON = False,
) -> None:
    """Measure time to the first token, between tokens and of whole answers, throughput, goodput, at several loads.

    Exit code 1: every request of some level failed. Percentiles come with a 95 % interval. A server's key is taken
    from ROCM_GUIDE_BENCH_KEY, and sent over https or to this machine alone.
    """
    from rocm_guide.serve.load_test import Limits, Plan, draw_levels, level_table, measure_server, write_results

    levels = [int(n) for n in _numbers(users, "--users", 1, whole=True)]
    arrivals = _numbers(rates, "--rates", 0.001)
    if not levels and not arrivals:
        raise typer.BadParameter("--users '' and no --rates: nothing to measure; as --users 1,4,16")
    if plot is not None and plot.suffix not in (".png", ".svg"):
        raise typer.BadParameter(f"--plot {plot}: name a .png or .svg file")
    plan = Plan(prompt, tokens, requests, warm_up, seed, timeout, deadline, run_deadline)
    results = measure_server(
        url,
        plan,
        users=levels,
        rates=arrivals,
        limits=Limits(first, between_),
        model=model,
        key_over_http=key_over_http,
        progress=lambda line: typer.echo(line, err=True),
    )
    if out is not None:
        write_results(out, results)
    if plot is not None:
        figure = draw_levels(results["levels"], title="Throughput against latency", hardware=results["client_machine"])
        with whole_file(plot) as part:
            figure.savefig(part, dpi=150)
    typer.echo(json.dumps(results, allow_nan=False) if as_json else level_table(results["levels"]))
    if any(level["failed"] == level["requests"] for level in results["levels"]):
        typer.echo("every request of a level failed; the errors stand in the JSON (--out)", err=True)
        raise typer.Exit(1)
