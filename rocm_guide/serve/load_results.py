# SPDX-License-Identifier: MIT
"""The results of a server's measurement: percentiles with their spread, throughput, goodput; one JSON, one picture."""

from __future__ import annotations

import json
import platform
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocm_guide import __version__
from rocm_guide.common.base import write_text
from rocm_guide.serve.client import look_at
from rocm_guide.serve.load_test import Plan, Run, run_load

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from rocm_guide.serve.client import Answer

__all__ = ["Limits", "draw_levels", "level_table", "measure_server", "percentile", "summarize_run", "write_results"]

PERCENTILES = (50, 90, 99)
#: What is measured of an answer: name in the results -> how it is read.
MEASURES: dict[str, Callable[[Answer], float]] = {
    "time_to_first_token_s": lambda a: a.first,
    "time_between_tokens_s": lambda a: a.between,
    "end_to_end_s": lambda a: a.whole,
}
_RESAMPLES = 200


@dataclass(frozen=True)
class Limits:
    """The times that a user accepts, in seconds: an answer within both counts as good."""

    first: float = 1.0
    between: float = 0.1

    def met(self, answer: Answer) -> bool:
        """Return whether this answer was good."""
        return not answer.error and answer.first <= self.first and answer.between <= self.between


def percentile(values: Sequence[float], p: float) -> float:
    """Return the p-th percentile with linear interpolation, as numpy's default.

    >>> percentile([4.0, 1.0, 2.0, 3.0], 50), percentile([1.0], 99)
    (2.5, 1.0)
    """
    ordered = sorted(values)
    place = (len(ordered) - 1) * p / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def with_spread(values: Sequence[float], p: float, seed: int = 0) -> dict[str, float]:
    """Return a percentile and its 95 % interval by resampling the requests (bootstrap; Efron, Ann. Statist. 7(1),
    1979).
    """
    generator = random.Random(seed)
    again = [percentile(generator.choices(values, k=len(values)), p) for _ in range(_RESAMPLES)]
    return {"value": percentile(values, p), "low": percentile(again, 2.5), "high": percentile(again, 97.5)}


def summarize_run(run: Run, limits: Limits) -> dict[str, Any]:
    """Return one level in numbers: times in seconds, throughput in tokens and requests per second."""
    good = [a for a in run.answers if not a.error]
    errors: dict[str, int] = {}
    for answer in run.answers:
        if answer.error:
            errors[answer.error] = errors.get(answer.error, 0) + 1
    seconds = run.seconds or float("nan")
    met = sum(limits.met(a) for a in good)
    level: dict[str, Any] = {
        "users": run.users or None,
        "arrivals_per_s": run.rate or None,
        "requests": len(run.answers),
        "failed": len(run.answers) - len(good),
        "errors": errors,
        "seconds": run.seconds,
        "prompt_tokens": sum(a.prompt_tokens for a in good),
        "output_tokens": sum(a.tokens for a in good),
        "fixed_length": run.fixed_length,
        "output_tokens_per_s": sum(a.tokens for a in good) / seconds if good else 0.0,
        "requests_per_s": len(good) / seconds if good else 0.0,
        "goodput_requests_per_s": met / seconds if good else 0.0,
        "good_share": met / len(run.answers) if run.answers else 0.0,
    }
    for name, read in MEASURES.items():
        # A time between tokens needs two of them.
        values = [read(a) for a in good if a.tokens > 1 or "between" not in name]
        level[name] = {f"p{p}": with_spread(values, p) for p in PERCENTILES} if values else None
    return level


def level_table(levels: Sequence[dict[str, Any]]) -> str:
    """Return the levels as a table for people; milliseconds, medians with their 95 % interval."""

    def cell(level: dict[str, Any], name: str, p: str = "p50") -> str:
        found = level[name] and level[name][p]
        return f"{1e3 * found['value']:,.0f} ({1e3 * found['low']:,.0f}-{1e3 * found['high']:,.0f})" if found else "-"

    rows = [["load", "tokens/s", "first token, ms", "p99", "between tokens, ms", "whole, ms", "good/s", "failed"]]
    for level in levels:
        load = f"{level['users']} users" if level["users"] else f"{level['arrivals_per_s']:g}/s"
        rows.append(
            [
                load,
                f"{level['output_tokens_per_s']:,.0f}",
                cell(level, "time_to_first_token_s"),
                cell(level, "time_to_first_token_s", "p99").split(" ")[0],
                cell(level, "time_between_tokens_s"),
                cell(level, "end_to_end_s"),
                f"{level['goodput_requests_per_s']:.2f}",
                str(level["failed"]),
            ]
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def draw_levels(levels: Sequence[dict[str, Any]], *, title: str, hardware: str) -> Figure:
    """Draw throughput against latency: one point for each level, labelled with its load;
    the bar is the 95 % interval.
    """
    import matplotlib.pyplot as plt

    from rocm_guide.common.plots import PALETTE, house_style

    house_style()
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 3.9))
    for ax, name, label in (
        (axes[0], "time_to_first_token_s", "time to first token, ms"),
        (axes[1], "time_between_tokens_s", "time between tokens, ms"),
    ):
        seen = [level for level in levels if level[name]]
        for p, colour in (("p50", PALETTE[0]), ("p99", PALETTE[1])):
            for open_loop, style in ((False, "-"), (True, "--")):
                part = [v for v in seen if bool(v["arrivals_per_s"]) == open_loop]
                if not part:
                    continue
                xs = [v["output_tokens_per_s"] for v in part]
                found = [v[name][p] for v in part]
                ys = [1e3 * f["value"] for f in found]
                bars = [
                    [1e3 * max(0.0, f["value"] - f["low"]) for f in found],
                    [1e3 * max(0.0, f["high"] - f["value"]) for f in found],
                ]
                kind = {"p50": "median", "p99": "99th percentile"}[p] + (", open arrivals" if open_loop else "")
                ax.errorbar(xs, ys, yerr=bars, fmt=f"o{style}", color=colour, capsize=3, markersize=4, label=kind)
        for level in seen:
            users = level["users"]
            load = f"{users} user{'s' * (users > 1)}" if users else f"{level['arrivals_per_s']:g}/s"
            place = (level["output_tokens_per_s"], 1e3 * level[name]["p50"]["value"])
            ax.annotate(load, place, (8, -11), textcoords="offset points", fontsize=8, color="#333333")
        ax.set(xlabel="output tokens per second, all users together", ylabel=label)
        ax.set_ylim(bottom=0)
        ax.margins(x=0.08)
    axes[0].legend(loc="upper left")
    axes[0].set_title(title)
    axes[1].set_title(hardware, loc="right", fontsize=7.5, color="#6B6B6B", fontweight="normal")
    return figure


def write_results(path: str | Path, results: dict[str, Any]) -> Path:
    """Write the JSON file, whole or not at all; and make its folder if it is missing."""
    return write_text(path, json.dumps(results, indent=1, allow_nan=False) + "\n")


def measure_server(
    url: str,
    plan: Plan | None = None,
    *,
    users: Sequence[int] = (1, 2, 4, 8, 16),
    rates: Sequence[float] = (),
    limits: Limits | None = None,
    model: str = "",
    key_over_http: bool = False,
    progress: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Measure a server at several loads; the result is what :func:`rocm_guide.serve.load_results.write_results` writes.

    Args:
        key_over_http: send the key of ``ROCM_GUIDE_BENCH_KEY`` to another machine without https too.
        progress: is called with a line for each level, and with one where the key is not sent.

    Raises:
        ServingError: no such server, or its first request fails.
    """
    plan, limits = plan or Plan(), limits or Limits()
    seconds = min(10.0, plan.deadline)
    target = look_at(url, model, seconds=seconds, key_over_http=key_over_http, say=progress)
    runs = run_load(
        target, plan, users=users, rates=rates, progress=lambda run: progress(_line(summarize_run(run, limits)))
    )
    return {
        "format": "rocm-guide bench 1",
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "server": {"kind": target.kind, "version": target.version, "model": target.model},
        "client": f"rocm-guide {__version__}",
        "client_machine": _machine(),
        "plan": asdict(plan),
        "limits": asdict(limits),
        "levels": [summarize_run(run, limits) for run in runs],
    }


def _machine() -> str:
    """Return the client's machine: what a GPU server runs on is not visible from here."""
    import os

    return f"client: {platform.machine()}, {os.cpu_count()} CPU cores"


def _line(level: dict[str, Any]) -> str:
    load = f"{level['users']} users" if level["users"] else f"{level['arrivals_per_s']:g} arrivals/s"
    return f"{load}: {level['requests'] - level['failed']} of {level['requests']} requests answered"
