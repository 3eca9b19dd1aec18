# SPDX-License-Identifier: MIT
"""What the cases of test_on_gfx942.py share: a case, seeded numbers, and how close is close."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

__all__ = ["Case", "near", "normal"]


class Case(NamedTuple):
    """A call of a wrapper: ``run()`` inside the executing block returns the comparison to make outside of it.

    ``copies``: by which part copies of a sum may differ that two waves store to one place of LDS; both are right.
    """

    kernels: tuple[str, ...]
    run: Callable[[], Callable[[], None]]
    copies: float = 0.0


def normal(*shape, dtype=torch.float32, size=1.0, seed=0):
    """Seeded normal numbers."""
    g = torch.Generator().manual_seed(seed + sum(shape))
    return (torch.randn(*shape, generator=g) * size).to(dtype)


def near(got, want, magnitude=None, part=2.0**-19):
    """``got`` is ``want`` (float64), rounded once to its type, give or take ``part`` of ``magnitude``."""
    assert got.shape == want.shape and want.dtype == torch.float64
    info = torch.finfo(got.dtype)
    size = want.abs() if magnitude is None else magnitude
    allowed = 0.501 * info.eps * want.abs() + info.smallest_normal * info.eps + part * size
    error = (got.double() - want).abs()
    assert bool((error <= allowed).all()), f"{(error / allowed).max():.3g} times the allowed error; NaN if undefined"
