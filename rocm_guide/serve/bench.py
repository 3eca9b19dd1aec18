# SPDX-License-Identifier: MIT
"""Measure a server from one call: the engine of `rocm-guide bench`."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from rocm_guide import __version__
from rocm_guide.serve.client import look_at
from rocm_guide.serve.load_results import Limits, summarize_run
from rocm_guide.serve.load_test import Plan, run_load

__all__ = ["measure_server"]


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
