# SPDX-License-Identifier: MIT
"""Which share of the long tests runs today: what costs minutes is dealt out over days, and all of it runs in turn.

`make test` asks `python -m tests.in_turn GROUP ...` which of its groups of packages it installs in this run.
"""

import os
import sys
import zlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


def turn(n: int) -> int:
    """Return whose turn of ``n`` it is, 0 to n - 1: the day (in UTC) decides, or ``ROCM_GUIDE_TURN`` where it is set.

    Days are counted from the year 1, so that the round does not break at New Year. Any whole number is good for the
    variable: CI that runs many times a day gives the number of its run.

    Raises:
        ValueError: fewer than one, or ``ROCM_GUIDE_TURN`` is no whole number.
    """
    if n < 1:
        raise ValueError(f"n must be 1 or more, not {n}")
    asked = os.environ.get("ROCM_GUIDE_TURN", "")
    return (int(asked) if asked else datetime.now(UTC).toordinal()) % n


def everything() -> bool:
    """Return whether ``ROCM_GUIDE_ALL=1`` asks for every share at once."""
    return os.environ.get("ROCM_GUIDE_ALL", "") == "1"


def due(share: int, of: int) -> bool:
    """Return whether this share, 0 to ``of`` - 1, runs now."""
    if not 0 <= share < of:
        raise ValueError(f"share {share} of {of} would never run")
    return everything() or turn(of) == share


def dealt(table: Iterable[T], of: int) -> list[T]:
    """Return the rows of a table that run now, each in every ``of``-th run."""
    return [row for n, row in enumerate(table) if due(n % of, of)]


def in_turn(share: int, of: int) -> pytest.MarkDecorator:
    """Return a mark for tests that run in every ``of``-th run only."""
    reason = f"turn {share} of {of}, now is {turn(of)}; ROCM_GUIDE_TURN={share} or ROCM_GUIDE_ALL=1 runs it"
    return pytest.mark.skipif(not due(share, of), reason=reason)


def in_shares(rows: Iterable[Any], of: int, together: int = 1) -> list[Any]:
    """Return the rows of a table as parameters of a test, each of them in every ``of``-th run, and the others skipped.

    A row that is a tuple holds several arguments.
    ``together``: so many rows one after the other run in the same turn. A random case's number decides its type, its
    layout and more by remainders, and every run is to have all of these.
    """
    values = (row if isinstance(row, tuple) else (row,) for row in rows)
    return [pytest.param(*row, marks=in_turn(n // together % of, of)) for n, row in enumerate(values)]


def deal_out(item: pytest.Item) -> None:
    """Skip a slow test in two of three runs, unless it has its own turns; its name says in which one it runs."""
    own = any(str(mark.kwargs.get("reason", "")).startswith("turn ") for mark in item.iter_markers("skipif"))
    if not own:
        item.add_marker(in_turn(zlib.crc32(item.nodeid.encode()) % 3, 3))


if __name__ == "__main__":
    groups = sys.argv[1:]
    print(*(group for share, group in enumerate(groups) if due(share, len(groups))))
