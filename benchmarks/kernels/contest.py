# SPDX-License-Identifier: MIT
"""A contest of several ways to compute the same: compile every contender first, then time one after the other."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any

import torch

from benchmarks.timing import copy_bandwidth, time_graph

#: What ``thunks(*job, copies)`` gives: make(i) for time_graph.
Thunks = Callable[..., Callable[[int], Callable[[], object]]]


def _compile(thunks: Thunks, job: Sequence[Any]) -> str:
    try:
        thunks(*job, copies=1)(0)()
        torch.cuda.synchronize()
    except Exception as e:  # noqa: BLE001 - one contender that fails must not end the others
        return f"{job}: {type(e).__name__}: {str(e)[:150]}"
    return ""


def prepare(thunks: Thunks, jobs: Sequence[Sequence[Any]]) -> float:
    """Compile every job, and measure the copy of 1 GiB in GB/s.

    Each is compiled in a process of its own, which fills the compilers' caches: the measuring process finds all there.
    """
    began = time.perf_counter()
    with ProcessPoolExecutor(min(14, os.cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        for text in filter(None, pool.map(partial(_compile, thunks), jobs)):
            print(text, flush=True)
    print(f"{len(jobs)} functions compiled in {time.perf_counter() - began:.0f} s", flush=True)
    ceiling = copy_bandwidth()
    print(f"copy of 1 GiB: {ceiling:.0f} GB/s", flush=True)
    return ceiling


def time_ways(
    ways: Iterable[str], make: Callable[[str], Callable[[int], Callable[[], object]]], nbytes: float, replays: int
) -> dict[str, list[float]]:
    """[microseconds, spread] of every way that runs; ``make(way)`` is what time_graph takes."""
    row = {}
    for way in ways:
        try:
            t = time_graph(make(way), nbytes, replays=replays)
            row[way] = [round(t.us, 3), round(t.spread, 3)]
        except Exception as e:  # noqa: BLE001 - one contender that fails must not end the others
            print(f"{way}: {type(e).__name__}: {str(e)[:150]}", flush=True)
            torch.cuda.synchronize()
    return row
