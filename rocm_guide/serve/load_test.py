# SPDX-License-Identifier: MIT
"""Put load on a server: users who wait for their answer (closed loop) or arrivals that do not (open loop).

Notebook 18. A closed loop measures what N patient users get; it slows down with the server and so hides a queue. Open
arrivals come at their rate whether the server keeps up or not, as the public does.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocm_guide import __version__
from rocm_guide.common.base import write_text
from rocm_guide.serve.client import Answer, Target, ask, in_own_loop, look_at, new_client
from rocm_guide.serve.served_checkpoints import ServingError

if TYPE_CHECKING:
    import httpx
    from matplotlib.figure import Figure

__all__ = [
    "Limits",
    "Plan",
    "Run",
    "draw_levels",
    "find_dialect",
    "level_table",
    "measure_server",
    "percentile",
    "prompts_of",
    "summarize_run",
    "write_results",
]

#: Common words; prompts of them differ from the first word on, so that no server can reuse another prompt's prefix.
_TEXT = (
    "time people way water word line place year work part number sound great name sentence man help big high land "
    "home hand picture air animal house point page letter mother answer study learn plant food sun state thought "
    "city tree farm story night life light paper group music mark book river car mile idea fish mountain base "
    "hear horse"
)
_WORDS = tuple(_TEXT.split(" "))


@dataclass(frozen=True)
class Plan:
    """The requests to send.

    Attributes:
        prompt_tokens: length of a prompt, reached within a word or so.
        tokens: length of an answer; reached exactly where the server can be told to write on.
        requests: measured requests at each level.
        warm_up: requests before the first measured one, not counted.
        seed: of prompts and arrivals.
        timeout: seconds without any byte after which a request has failed.
        deadline: seconds after which a request has failed that is not answered whole.
        run_deadline: seconds after the first request in which all others that are not answered have failed.
    """

    prompt_tokens: int = 64
    tokens: int = 64
    requests: int = 32
    warm_up: int = 2
    seed: int = 0
    timeout: float = 120.0
    deadline: float = 600.0
    run_deadline: float = 3600.0


@dataclass(frozen=True)
class Run:
    """One level of load and its answers.

    Attributes:
        users: of a closed loop; 0 in an open one.
        rate: mean arrivals per second of an open loop; 0 in a closed one.
        seconds: from the first request to the last answer.
        fixed_length: whether every answer had the length that was asked for.
    """

    users: int
    rate: float
    seconds: float
    answers: tuple[Answer, ...]
    fixed_length: bool


def prompt_of(words: int, generator: random.Random) -> str:
    """Return a prompt of random words."""
    return " ".join(generator.choices(_WORDS, k=words))


def prompts_of(plan: Plan, level: float, words: int) -> list[str]:
    """Return the prompts of one level, the same for the same seed; no two levels share one, nor begin alike."""
    generator = random.Random(f"{plan.seed} {level}")
    return [prompt_of(words, generator) for _ in range(plan.requests)]


def find_dialect(target: Target, plan: Plan) -> tuple[int, dict[str, Any]]:
    """Warm the server up; gives words for a prompt of the wanted length, and fields that make it write on to the limit.

    Raises:
        ServingError: the first request fails.
    """

    async def warmed() -> tuple[int, dict[str, Any]]:
        async with new_client(target.url, plan.timeout) as client:
            return await _warm_up(client, target, plan, time.perf_counter() + plan.run_deadline)

    found: tuple[int, dict[str, Any]] = in_own_loop(warmed())
    return found


async def _run(
    target: Target, plan: Plan, users: Sequence[int], rates: Sequence[float], progress: Callable[[Run], None]
) -> list[Run]:
    ends, runs = time.perf_counter() + plan.run_deadline, []
    async with new_client(target.url, plan.timeout) as client:
        words, extra = await _warm_up(client, target, plan, ends)
        for level in [*users, *map(float, rates)]:
            prompts = prompts_of(plan, level, words)
            began = time.perf_counter()

            def one(prompt: str, began: float = began) -> Coroutine[Any, Any, Answer]:
                return ask(client, target, prompt, plan.tokens, extra, began, deadline=plan.deadline, ends=ends)

            closed = not isinstance(level, float)
            loop = _closed(one, prompts, int(level)) if closed else _open(one, prompts, level, plan.seed, ends)
            answers = await loop
            good = [a for a in answers if not a.error]
            seconds = max((a.ended for a in good), default=0.0) - min((a.sent for a in good), default=0.0)
            fixed = bool(good) and all(a.tokens == plan.tokens for a in good)
            run = Run(int(level) if closed else 0, 0.0 if closed else level, seconds, tuple(answers), fixed)
            progress(run)
            runs.append(run)
    return runs


async def _warm_up(client: httpx.AsyncClient, target: Target, plan: Plan, ends: float) -> tuple[int, dict[str, Any]]:
    """Return how many words make a prompt of the wanted length, and the fields that make this server write on."""
    probe, generator, began = 16, random.Random(f"{plan.seed} warm-up"), time.perf_counter()
    until = {"deadline": plan.deadline, "ends": ends}
    counted = {"stream_options": {"include_usage": True}}
    settings = {"eos_token_id": -1, "max_new_tokens": plan.tokens, "do_sample": False}
    # How servers are told to write on behind the end of the text: vLLM's own field, that of transformers serve, none.
    dialects = ({"ignore_eos": True, **counted}, {"generation_config": json.dumps(settings)}, counted)
    extra: dict[str, Any]
    for extra in dialects:
        answer = await ask(client, target, prompt_of(probe, generator), plan.tokens, extra, began, **until)
        if not answer.refused:
            break
    if answer.error:
        raise ServingError(f"{target.url}: the first request fails: {answer.error}")
    # A word is a token or more; with a count below that the prompts would become as long as a server likes.
    each = max(1.0, answer.prompt_tokens / probe) if answer.prompt_tokens else 1.3
    words = max(1, round(plan.prompt_tokens / each))
    for _ in range(max(0, plan.warm_up - 1)):
        again = await ask(client, target, prompt_of(words, generator), plan.tokens, extra, began, **until)
        if again.error:
            raise ServingError(f"{target.url}: a prompt of {plan.prompt_tokens} tokens fails: {again.error}")
    return words, extra


async def _closed(one: Callable[[str], Coroutine[Any, Any, Answer]], prompts: list[str], users: int) -> list[Answer]:
    """Let each user send, wait for the whole answer, and send again, until all prompts are gone."""
    left = list(reversed(prompts))
    answers: list[Answer] = []

    async def user() -> None:
        while left:
            answers.append(await one(left.pop()))

    await asyncio.gather(*(user() for _ in range(users)))
    return answers


async def _open(
    one: Callable[[str], Coroutine[Any, Any, Answer]], prompts: list[str], rate: float, seed: int, ends: float
) -> list[Answer]:
    """Send at the arrivals of a Poisson process: the time to the next one is exponential, whatever the server does."""
    generator = random.Random(f"{seed} arrivals {rate}")
    began, due, tasks = time.perf_counter(), 0.0, []
    for prompt in prompts:
        await asyncio.sleep(max(0.0, min(began + due, ends) - time.perf_counter()))
        tasks.append(asyncio.create_task(one(prompt)))
        due += generator.expovariate(rate)
    return list(await asyncio.gather(*tasks))


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
    for answer in (a for a in run.answers if a.error):
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
        tokens, good = f"{level['output_tokens_per_s']:,.0f}", f"{level['goodput_requests_per_s']:.2f}"
        first, worst = (cell(level, "time_to_first_token_s", p) for p in ("p50", "p99"))
        others = (cell(level, name) for name in ("time_between_tokens_s", "end_to_end_s"))
        rows.append([load, tokens, first, worst.split(" ")[0], *others, good, str(level["failed"])])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def draw_levels(levels: Sequence[dict[str, Any]], *, title: str, hardware: str) -> Figure:
    """Draw throughput against latency: a point for each level, labelled with its load, the bar its 95 % interval."""
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
                    [1e3 * max(0.0, s * (f[end] - f["value"])) for f in found] for s, end in ((-1, "low"), (1, "high"))
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
    """Measure a server at several loads; the result is what :func:`rocm_guide.serve.load_test.write_results` writes.

    Args:
        key_over_http: send the key of ``ROCM_GUIDE_BENCH_KEY`` to another machine without https too.
        progress: is called with a line for each level, and with one where the key is not sent.

    Raises:
        ServingError: no such server, or its first request fails.
    """
    plan, limits = plan or Plan(), limits or Limits()
    seconds = min(10.0, plan.deadline)
    target = look_at(url, model, seconds=seconds, key_over_http=key_over_http, say=progress)
    runs = in_own_loop(_run(target, plan, users, rates, lambda run: progress(_line(summarize_run(run, limits)))))
    return {
        "format": "rocm-guide bench 1",
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "server": {"kind": target.kind, "version": target.version, "model": target.model},
        "client": f"rocm-guide {__version__}",
        # What a GPU server runs on is not visible from here.
        "client_machine": f"client: {platform.machine()}, {os.cpu_count()} CPU cores",
        "plan": asdict(plan),
        "limits": asdict(limits),
        "levels": [summarize_run(run, limits) for run in runs],
    }


def _line(level: dict[str, Any]) -> str:
    load = f"{level['users']} users" if level["users"] else f"{level['arrivals_per_s']:g} arrivals/s"
    return f"{load}: {level['requests'] - level['failed']} of {level['requests']} requests answered"
