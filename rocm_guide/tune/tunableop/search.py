# SPDX-License-Identifier: MIT
"""TunableOp's search in slow motion: the same steps in Python, and a reader of the log that the real one writes.

Source: PyTorch, aten/src/ATen/cuda/tunable/TunableOp.h, FindFastest (https://github.com/pytorch/pytorch).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rocm_guide.common.base import GuideError

__all__ = ["find_fastest", "parse_log"]


@dataclass(frozen=True, slots=True)
class Trial:
    """One candidate and its ``outcome``: best, slower, skipped, skipped late, unsupported, or wrong.

    ``ms`` is the mean time per call where one is known, ``at_s`` the seconds since the search began.
    """

    name: str
    outcome: str
    ms: float | None = None
    at_s: float = 0.0


@dataclass(slots=True)
class Search:
    """A whole search: the product, how many candidates, what became of them, and the winner."""

    product: str
    candidates: int = 0
    trials: list[Trial] = field(default_factory=list)
    winner: str = ""

    @property
    def best_so_far(self) -> list[tuple[int, float]]:
        """(candidates looked at, best ms) at each improvement: the staircase of a search."""
        return [(i + 1, t.ms) for i, t in enumerate(self.trials) if t.outcome == "best" and t.ms is not None]


def find_fastest(
    candidates: Mapping[str, Callable[[], Any]],
    *,
    check: Callable[[Any], bool] | None = None,
    budget_ms: float = 30.0,
    iterations: int = 100,
    wait: Callable[[], Any] = lambda: None,
    product: str = "",
) -> Search:
    """Find the fastest candidate as TunableOp does; the first is the default that the others must beat.

    Each candidate is called once (an exception: unsupported), then 3 times; if 1.5x slower than the best so far it is
    skipped. Then 10 times; if 1.15x slower it is skipped. ``check(result)`` may reject its result. What remains is
    timed over ``iterations`` calls or ``budget_ms``, whichever is less. ``wait`` waits for a GPU.

    Raises:
        GuideError: no candidate works.

    >>> search = find_fastest({"sleep": lambda: time.sleep(0.002), "pass": lambda: None}, budget_ms=5)
    >>> search.winner, [t.outcome for t in search.trials]
    ('pass', ['best', 'best'])
    """
    started = time.perf_counter()
    search = Search(product, len(candidates))
    best = float("inf")

    def mean_ms(fn: Callable[[], Any], count: int) -> float:
        # Two calls that are not counted, as TunableOp's own profile has them.
        for _ in range(2):
            fn()
        wait()
        begin = time.perf_counter()
        for _ in range(count):
            fn()
        wait()
        return (time.perf_counter() - begin) / count * 1e3

    for name, fn in candidates.items():

        def note(outcome: str, ms: float | None = None, name: str = name) -> None:
            search.trials.append(Trial(name, outcome, ms, time.perf_counter() - started))

        try:
            result = fn()
        except (RuntimeError, ValueError, NotImplementedError):
            note("unsupported")
            continue
        ms = mean_ms(fn, 3)
        if ms > 1.5 * best:
            note("skipped", ms)
            continue
        ms = mean_ms(fn, 10)
        if ms > 1.15 * best:
            note("skipped late", ms)
            continue
        if check is not None and not check(result):
            note("wrong")
            continue
        ms = mean_ms(fn, max(1, min(iterations, int(budget_ms / max(ms, 1e-9)))))
        if ms < best:
            best, search.winner = ms, name
            note("best", ms)
        else:
            note("slower", ms)
    if not search.winner:
        raise GuideError(f"{product or 'search'}: none of {len(candidates)} candidates works")
    return search


_FINDING = re.compile(r"finding fastest for (\S+?)\((\S+?)\) out of ([0-9]{1,9}) candidates")
_TRIAL = re.compile(
    r"├──(unsupported|skip slow instance|2nd skip slow instance|numerics check failed for|found better instance|"
    r"found slower instance) id=[0-9]+[,.] (?:(?:([0-9][0-9.e+-]*)ms\. )([^ \n]+)|\S+?\(\S+?\) ([^ \n]+))"
)
_WINNER = re.compile(r"└──found fastest for \S+?\(\S+?\) ([^ \n]+)")
_OUTCOMES = {
    "unsupported": "unsupported",
    "skip slow instance": "skipped",
    "2nd skip slow instance": "skipped late",
    "numerics check failed for": "wrong",
    "found better instance": "best",
    "found slower instance": "slower",
}


def parse_log(text: str) -> list[Search]:
    """Read the searches in a log written under ``PYTORCH_TUNABLEOP_VERBOSE`` (3 for every candidate in newer releases).

    Lines that say nothing about a candidate are passed over, so a log with other output in between is fine.

    >>> log = '''finding fastest for GemmTunableOp_float_NN(nn_1024_512_2048) out of 1068 candidates
    ... ├──found better instance id=0. 0.280746ms. Default
    ... ├──unsupported id=1, GemmTunableOp_float_NN(nn_1024_512_2048) Gemm_Rocblas_1074
    ... └──found fastest for GemmTunableOp_float_NN(nn_1024_512_2048) Gemm_Rocblas_4365'''
    >>> s = parse_log(log)[0]
    >>> s.candidates, s.winner, [(t.name, t.outcome, t.ms) for t in s.trials]
    (1068, 'Gemm_Rocblas_4365', [('Default', 'best', 0.280746), ('Gemm_Rocblas_1074', 'unsupported', None)])
    """
    searches: list[Search] = []
    for line in text.splitlines():
        if found := _FINDING.search(line):
            searches.append(Search(f"{found[1]},{found[2]}", int(found[3])))
        elif searches and (trial := _TRIAL.search(line)):
            try:
                ms = float(trial[2]) if trial[2] else None
            except ValueError:
                continue
            searches[-1].trials.append(Trial(trial[3] or trial[4], _OUTCOMES[trial[1]], ms))
        elif searches and (winner := _WINNER.search(line)):
            searches[-1].winner = winner[1]
    return searches
