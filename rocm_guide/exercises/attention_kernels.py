# SPDX-License-Identifier: MIT
"""Checks of notebook 34: causal attention as in the dojo, a window over the keys, and the gradient of the queries."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from cdna.run.launches import Executed
from rocm_guide.exercises.common import executed, no, yes
from rocm_guide.exercises.kernel_dojo import judge_of

__all__ = ["check_dq", "check_skipping", "check_window"]


def _windowed(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the output in fp64, and the error that two roundings to fp16 and sums in fp32 allow."""
    q, k, v = (x.double() for x in (q, k, v))
    back = torch.arange(q.shape[1])[:, None] - torch.arange(k.shape[1])[None, :]
    hidden = (back < 0) | (back >= window)
    p = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(hidden, float("-inf")).softmax(-1)
    return p @ v, p @ v.abs() * (2**-10 + k.shape[1] * 2**-23) + 1e-6


def check_window(call: Callable[..., Any]) -> bool:
    """Check exercise 2: ``window(q, k, v, W)``; token i sees keys i - W + 1 to i, and blocks before them are not read.

    >>> check_window(lambda q, k, v, W: torch.zeros_like(q))
    [HINT] 130 tokens, W = 40: no kernel was launched: yours[grid](…) inside the function
    False
    """
    launches: list[Executed] = []
    for heads, tokens, d, window in ((2, 130, 32, 40), (1, 130, 32, 1), (1, 130, 32, 1000), (1, 1024, 16, 32)):
        generator = torch.Generator().manual_seed(tokens)
        q, k, v = (torch.randn(heads, tokens, d, generator=generator).half() for _ in range(3))
        wanted, allowed = _windowed(q, k, v, window)
        got, launches, said = executed(lambda q, k, v, w=window: call(q, k, v, w), (q, k, v), wanted, allowed)
        if got is None:
            if launches and window == 1:
                said += "; with W = 1 a token sees itself alone"
            return no(f"{tokens:,} tokens, W = {window}: {said}")
    # The last one: 1,024 tokens, of which each sees 32.
    read = sum(x.result.counters.loaded for x in launches) / (2 * 1024 * 16)  # multiples of the bytes of q, k or v
    text = f"right, and k and v are read {(read - 1) / 2:.1f} times"
    if read - 1 > 2 * 2.2:
        return no(f"{text}: begin the loop at the block of the first key that the tile's first query sees")
    return yes(text)


def check_dq(call: Callable[..., Any]) -> bool:
    """Check exercise 3: ``query_gradient(q, k, v, do, lse, delta)`` is dQ of causal attention, without stored scores.

    q, k, v and do are fp16 (heads, tokens, D); lse, the natural log-sum-exp of each row, and delta are fp32
    (heads, tokens).

    >>> check_dq(lambda q, k, v, do, lse, delta: torch.zeros_like(q))
    [HINT] 130 tokens: no kernel was launched: yours[grid](…) inside the function
    False
    """
    launches: list[Executed] = []
    for heads, tokens, d in ((2, 130, 32), (1, 80, 64)):
        generator = torch.Generator().manual_seed(tokens)
        q, k, v, do = (torch.randn(heads, tokens, d, generator=generator).half() for _ in range(4))
        exact = [x.double() for x in (q, k, v, do)]
        s = exact[0] @ exact[1].mT / math.sqrt(d)
        s = s.masked_fill(torch.ones(tokens, tokens).triu(1) > 0, float("-inf"))
        lse, p = s.logsumexp(-1), s.softmax(-1)
        dp = exact[3] @ exact[2].mT
        delta = (p * dp).sum(-1)
        ds = p * (dp - delta[..., None])
        wanted = ds @ exact[1] / math.sqrt(d)
        # ds is rounded for the product and dq for the result; the scores are sums of d products in fp32.
        allowed = (ds.abs() @ exact[1].abs() / math.sqrt(d)) * 2**-10 + (p * dp.abs()) @ exact[1].abs() * 2**-16 + 1e-5
        given = [q, k, v, do, lse.float(), delta.float()]
        got, launches, said = executed(call, given, wanted, allowed)
        if got is None:
            return no(f"{tokens:,} tokens: {said}{_dq_fault(call, given, wanted, p * dp, exact[1])}")
    if not any(x.compiled.parsed.matrix_uses() for x in launches):
        return no("right, without a matrix instruction: tl.dot")
    return yes(f"right, in {len(launches)} launch{'es' if len(launches) > 1 else ''}")


def _dq_fault(
    call: Callable[..., Any], given: list[torch.Tensor], wanted: torch.Tensor, without: torch.Tensor, k: torch.Tensor
) -> str:
    """Return which usual fault gives the result of ``call``: no delta, or no scale at the end; empty for another."""
    scale = given[0].shape[-1] ** -0.5
    faults = {
        "; dS is P * (dP - delta): delta is missing": without @ k * scale,
        "; the gradient has the scale once more, after the loop": wanted / scale,
    }
    for said, wrong in faults.items():
        if executed(call, given, wrong, 2e-2 * wrong.abs().max())[0] is not None:
            return said
    return ""


check_skipping = judge_of("causal_attention")
