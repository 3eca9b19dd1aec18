# SPDX-License-Identifier: MIT
"""What a load under way does when it completes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cdna.run.wave import ALL_LANES, Wave, lanes_of

__all__ = ["deliver", "narrow"]


def deliver(
    w: Wave, rows: tuple[int, ...], values: Any, lanes: int, finish: Callable[[Any, Any], Any] | None = None
) -> Callable[[], None]:
    """What a load does when it completes: column j of ``values`` (one line per active lane) goes to ``rows[j]``."""

    def done() -> None:
        for j, r in enumerate(rows):
            column = values[:, j]
            if lanes == ALL_LANES:
                w.V[r][:] = finish(column, w.V[r]) if finish else column
            else:
                which = lanes_of(lanes)
                w.V[r][which] = finish(column, w.V[r][which]) if finish else column

    return done


def narrow(name: str, d16: str | None) -> Callable[[Any, Any], Any] | None:
    """How a loaded byte or half becomes a register: sign-extended, or put into one half of it."""
    bits = 8 if name.endswith(("8", "byte")) else 16
    left = np.int32(32 - bits)
    signed = name in ("i8", "i16", "sbyte", "sshort")

    def extend(x: Any, old: Any) -> Any:
        if signed:
            x = (x.view(np.int32) << left >> left).view(np.uint32)
        if d16 is None:
            return x
        if d16.endswith("hi"):
            return old & np.uint32(0xFFFF) | x << np.uint32(16)
        return old & np.uint32(0xFFFF0000) | x & np.uint32(0xFFFF)

    return extend if signed or d16 else None
