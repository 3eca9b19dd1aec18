# SPDX-License-Identifier: MIT
"""The table of vector instructions: one row each, with the types of its result and sources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["Row", "Rows"]


class Row(NamedTuple):
    """Result type, source types, function; ``merge`` keeps the other half of a 16-bit result (VOP3 with op_sel)."""

    result: str
    sources: tuple[str, ...]
    f: Callable[..., Any]
    merge: bool = False


class Rows(dict[str, Row]):
    """Instructions by name."""

    def add(self, names: str, result: str, sources: str, f: Callable[..., Any], merge: bool = False) -> None:
        """One row for each of the names."""
        for name in names.split():
            self[name] = Row(result, tuple(sources.split()), f, merge)
