# SPDX-License-Identifier: MIT
"""Checks of notebook 15 (flash_attention): each answers with a hint, and returns whether the answer holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rocm_guide.exercises.common import first_line, say
from rocm_guide.tune.attention.cost import visible_tiles

if TYPE_CHECKING:
    import torch

__all__ = ["check_join", "check_scores_memory", "check_tiles"]


def check_join(join: Callable[..., tuple[torch.Tensor, torch.Tensor]]) -> bool:
    """Check exercise 1: ``join(o1, lse1, o2, lse2)`` makes one result of attention over two halves of the keys.

    ``o1`` and ``o2`` are (rows, d), finished outputs; ``lse1`` and ``lse2`` (rows,) their log-sum-exps.

    >>> import torch
    >>> def join(o1, lse1, o2, lse2):
    ...     lse = torch.logaddexp(lse1, lse2)
    ...     return o1 * (lse1 - lse).exp()[:, None] + o2 * (lse2 - lse).exp()[:, None], lse
    >>> check_join(join)
    [OK]   two halves make the whole, also when their scores are far apart
    True
    """
    import torch

    generator = torch.Generator().manual_seed(0)
    s, v = torch.randn(5, 12, generator=generator).double(), torch.randn(12, 3, generator=generator).double()
    s[0] += 900.0  # exp would overflow
    s[1, :6] -= 500.0  # the first half weighs nothing
    parts = [(s[:, a:b].softmax(-1) @ v[a:b], s[:, a:b].logsumexp(-1)) for a, b in ((0, 6), (6, 12))]
    wanted, total = s.softmax(-1) @ v, s.logsumexp(-1)
    try:
        out, lse = join(*parts[0], *parts[1])
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError, ZeroDivisionError) as e:
        return say(False, f"join fails: {first_line(e)}; return the output, (rows, d), and its log-sum-exp, (rows,)")
    if out.shape != wanted.shape or lse.shape != total.shape:
        return say(False, f"shapes {tuple(out.shape)} and {tuple(lse.shape)}; wanted are (rows, d) and (rows,)")
    if not (out.isfinite().all() and lse.isfinite().all()):
        return say(False, "exp(lse) overflows; subtract the larger lse first, or use torch.logaddexp")
    if torch.allclose(out, (parts[0][0] + parts[1][0]) / 2):
        return say(False, "the halves do not weigh the same; the weight of each is exp(its lse - the new lse)")
    if not torch.allclose(lse, total):
        return say(False, "the new log-sum-exp is log(exp(lse1) + exp(lse2))")
    if not torch.allclose(out, wanted):
        return say(False, "each output is weighed by exp(its lse - the new lse), row by row")
    return say(True, "two halves make the whole, also when their scores are far apart")


def check_scores_memory(gib: float) -> bool:
    """Check exercise 2: GiB of one layer's scores, 32 heads, 32,768 tokens, 2 bytes each.

    >>> check_scores_memory(32 * 32768**2 * 2 / 2**30)
    [OK]   64 GiB for one layer of one sequence: a third of an MI300X
    True
    """
    right = 32 * 32768**2 * 2 / 2**30
    if abs(gib - right) < 0.01 * right:
        return say(True, "64 GiB for one layer of one sequence: a third of an MI300X")
    hint = "heads x tokens x tokens x bytes, divided by 2**30"
    if abs(gib - right / 32) < 0.01 * right:
        hint = "every head has a matrix of its own"
    elif abs(gib - right / 2) < 0.01 * right:
        hint = "2 bytes each; and a masked score takes its place all the same"
    elif abs(gib - right * 1.0737) < 0.01 * right:
        hint = "that is GB (10**9); a GiB is 2**30 bytes"
    return say(False, f"{gib}: {hint}")


def check_tiles(count: Callable[[int, int, int], int]) -> bool:
    """Check exercise 3: ``count(n, block_m, block_n)``: tiles that a causal kernel visits for n queries and n keys.

    >>> def count(n, block_m, block_n):
    ...     return sum(-(-min(first + block_m, n) // block_n) for first in range(0, n, block_m))
    >>> check_tiles(count)
    [OK]   visited tiles: right for every size tried
    True
    """
    for n, block_m, block_n in ((8, 2, 2), (1024, 128, 64), (1024, 64, 128), (1000, 128, 16), (5, 8, 8)):
        try:
            given, right = count(n, block_m, block_n), visible_tiles(n, n, block_m, block_n)
        except (RuntimeError, TypeError, ValueError, AttributeError, IndexError, ZeroDivisionError) as e:
            return say(False, f"count({n}, {block_m}, {block_n}) fails: {first_line(e)}")
        if given == right:
            continue
        hint = "a tile of queries visits the keys up to its last query, rounded up to whole tiles"
        if given == -(-n // block_m) * -(-n // block_n):
            hint = "that is all tiles; those right of the diagonal are skipped"
        elif given * 2 == -(-n // block_m) * -(-n // block_n):
            hint = "not exactly half: the tiles on the diagonal are needed too"
        elif n % block_m:
            hint = "the last tile of queries may be shorter: min(first + block_m, n)"
        return say(False, f"count({n}, {block_m}, {block_n}) = {given}, but {right} are needed: {hint}")
    return say(True, "visited tiles: right for every size tried")
