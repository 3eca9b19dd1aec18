# SPDX-License-Identifier: MIT
"""Measure a server from one call, with a well-known client where one is installed: the engine of `rocm-guide bench`."""

from __future__ import annotations

import json
import math
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rocm_guide import __version__
from rocm_guide.base import shown
from rocm_guide.serving.checkpoints import ServingError
from rocm_guide.serving.client import Target, look_at
from rocm_guide.serving.load import Plan, run_load
from rocm_guide.serving.results import MEASURES, PERCENTILES, Limits, summarize_run

__all__ = ["from_vllm", "measure_server", "vllm_bench_command"]

#: vLLM's name of each of our measures.
_VLLM = {"time_to_first_token_s": "ttft", "time_between_tokens_s": "tpot", "end_to_end_s": "e2el"}


def measure_server(
    url: str,
    plan: Plan | None = None,
    *,
    users: Sequence[int] = (1, 2, 4, 8, 16),
    rates: Sequence[float] = (),
    limits: Limits | None = None,
    model: str = "",
    client: str = "auto",
    progress: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Measure a server at several loads; the result is what :func:`rocm_guide.serving.results.write_results` writes.

    Args:
        client: "auto" takes ``vllm bench serve`` where it is installed and the server is vLLM (it sends fields that
            others refuse), else this guide's own; "vllm" or "own" insists.

    Raises:
        ServingError: no such server, or its first request fails.
    """
    plan, limits = plan or Plan(), limits or Limits()
    target = look_at(url, model)
    there = shutil.which("vllm") is not None
    if client == "vllm" and not there:
        raise ServingError("client vllm: the command vllm is not installed here; leave --client out")
    known = client == "vllm" or (client == "auto" and there and target.kind == "vllm")
    if known:
        levels = []
        for level in [*users, *map(float, rates)]:
            levels.append(_run_vllm(target, plan, limits, level))
            progress(_line(levels[-1]))
    else:
        runs = run_load(
            target, plan, users=users, rates=rates, progress=lambda run: progress(_line(summarize_run(run, limits)))
        )
        levels = [summarize_run(run, limits) for run in runs]
    return {
        "format": "rocm-guide bench 1",
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "server": {"kind": target.kind, "version": target.version, "model": target.model},
        "client": f"vllm bench serve {target.version}".strip() if known else f"rocm-guide {__version__}",
        "client_machine": _machine(),
        "plan": asdict(plan),
        "limits": asdict(limits),
        "levels": levels,
    }


def _machine() -> str:
    """The client's machine: what a GPU server runs on is not visible from here."""
    import os

    return f"client: {platform.machine()}, {os.cpu_count()} CPU cores"


def _line(level: dict[str, Any]) -> str:
    load = f"{level['users']} users" if level["users"] else f"{level['arrivals_per_s']:g} arrivals/s"
    return f"{load}: {level['requests'] - level['failed']} of {level['requests']} requests answered"


def vllm_bench_command(target: Target, plan: Plan, limits: Limits, level: float, folder: str) -> list[str]:
    """``vllm bench serve`` for one level. Source: vLLM documentation, "vllm bench serve".

    >>> " ".join(vllm_bench_command(Target("http://h:1", "m"), Plan(), Limits(), 4, "out")[:6])
    'vllm bench serve --backend openai --base-url'
    """
    closed = not isinstance(level, float)
    load = ["--max-concurrency", str(level), "--request-rate", "inf"] if closed else ["--request-rate", f"{level:g}"]
    return [
        *("vllm", "bench", "serve", "--backend", "openai", "--base-url", target.url, "--model", target.model),
        *("--dataset-name", "random", "--random-input-len", str(plan.prompt_tokens)),
        *("--random-output-len", str(plan.tokens), "--ignore-eos", "--num-prompts", str(plan.requests)),
        *("--num-warmups", str(plan.warm_up), "--seed", str(plan.seed), *load),
        *("--percentile-metrics", "ttft,tpot,e2el", "--metric-percentiles", ",".join(map(str, PERCENTILES))),
        *("--goodput", f"ttft:{limits.first * 1e3:g}", f"tpot:{limits.between * 1e3:g}"),
        *("--save-result", "--result-dir", folder, "--result-filename", "result.json"),
    ]


def _run_vllm(target: Target, plan: Plan, limits: Limits, level: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            vllm_bench_command(target, plan, limits, level, folder), capture_output=True, text=True, errors="replace"
        )
        file = Path(folder, "result.json")
        if done.returncode or not file.exists():
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            last = shown(lines[-1] if lines else f"exit code {done.returncode}")
            raise ServingError(f"vllm bench serve failed: {last}; --client own measures without it")
        return read_vllm(file.read_bytes(), plan, level)


def read_vllm(data: bytes, plan: Plan, level: float) -> dict[str, Any]:
    """:func:`from_vllm` of the file that ``--save-result`` writes.

    Raises:
        ServingError: not valid JSON, or a field is missing.
    """
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as e:
        raise ServingError("vllm bench serve: its result is not valid JSON") from e
    return from_vllm(found, plan, level)


def from_vllm(found: dict[str, Any], plan: Plan, level: float) -> dict[str, Any]:
    """A result of ``vllm bench serve`` in the form of :func:`rocm_guide.serving.results.summarize_run`.

    vLLM reports no spread of its percentiles, so each interval is the value alone.

    Raises:
        ServingError: a field is missing.
    """
    try:
        done, seconds = int(found["completed"]), float(found["duration"])
        closed = not isinstance(level, float)
        good = float(found.get("request_goodput") or 0.0)
        result: dict[str, Any] = {
            "users": level if closed else None,
            "arrivals_per_s": None if closed else level,
            "requests": plan.requests,
            "failed": plan.requests - done,
            "errors": {},
            "seconds": seconds,
            "prompt_tokens": int(found["total_input_tokens"]),
            "output_tokens": int(found["total_output_tokens"]),
            "fixed_length": int(found["total_output_tokens"]) == done * plan.tokens,
            "output_tokens_per_s": float(found["output_throughput"]),
            "requests_per_s": float(found["request_throughput"]),
            "goodput_requests_per_s": good,
            "good_share": good * seconds / plan.requests,
        }
        for name in MEASURES:
            values = {p: float(found[f"p{p}_{_VLLM[name]}_ms"]) / 1e3 for p in PERCENTILES}
            result[name] = {f"p{p}": {"value": v, "low": v, "high": v} for p, v in values.items()}
        if not all(math.isfinite(v) for v in result.values() if isinstance(v, float)):
            raise ValueError("a figure is not finite")
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as e:
        raise ServingError(f"vllm bench serve: its result cannot be read ({type(e).__name__}: {e})") from e
    return result
