# SPDX-License-Identifier: MIT
"""Checks of notebook 15 (flash_attention): each answers with a hint, and returns whether the answer holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention.flex_attention import create_mask

from rocm_guide.exercises.common import FAULTS, first_line, no, yes
from rocm_guide.exercises.kernel_dojo import judge_of

__all__ = ["check_causal", "check_join", "check_mask"]


def check_join(join: Callable[..., tuple[torch.Tensor, torch.Tensor]]) -> bool:
    """Check exercise 2: ``join(o1, lse1, o2, lse2)`` makes one result of attention over two halves of the keys.

    ``o1`` and ``o2`` are (rows, d), finished outputs; ``lse1`` and ``lse2`` (rows,) their log-sum-exps.

    >>> def join(o1, lse1, o2, lse2):
    ...     lse = torch.logaddexp(lse1, lse2)
    ...     return o1 * (lse1 - lse).exp()[:, None] + o2 * (lse2 - lse).exp()[:, None], lse
    >>> check_join(join)
    [OK]   two halves make the whole, also when their scores are far apart
    True
    """
    generator = torch.Generator().manual_seed(0)
    s, v = torch.randn(5, 12, generator=generator).double(), torch.randn(12, 3, generator=generator).double()
    s[0] += 900.0  # exp would overflow
    s[1, :6] -= 500.0  # the first half weighs nothing
    parts = [(s[:, a:b].softmax(-1) @ v[a:b], s[:, a:b].logsumexp(-1)) for a, b in ((0, 6), (6, 12))]
    wanted, total = s.softmax(-1) @ v, s.logsumexp(-1)
    try:
        out, lse = join(*parts[0], *parts[1])
    except FAULTS as e:
        return no(f"join fails: {first_line(e)}; return the output, (rows, d), and its log-sum-exp, (rows,)")
    if out.shape != wanted.shape or lse.shape != total.shape:
        return no(f"shapes {tuple(out.shape)} and {tuple(lse.shape)}; wanted are (rows, d) and (rows,)")
    if not (out.isfinite().all() and lse.isfinite().all()):
        return no("exp(lse) overflows; subtract the larger lse first, or use torch.logaddexp")
    if torch.allclose(out, (parts[0][0] + parts[1][0]) / 2):
        return no("the halves do not weigh the same; the weight of each is exp(its lse - the new lse)")
    if not torch.allclose(lse, total):
        return no("the new log-sum-exp is log(exp(lse1) + exp(lse2))")
    if not torch.allclose(out, wanted):
        return no("each output is weighed by exp(its lse - the new lse), row by row")
    return yes("two halves make the whole, also when their scores are far apart")


def check_mask(make: Callable[..., Callable[..., Any]]) -> bool:
    """Check exercise 3: ``make(text, w)`` gives the ``mask_mod`` of packed texts with a window of ``w`` tokens.

    ``text`` (tokens,) holds the number of each token's text. A token sees the last ``w`` tokens, itself among them, of
    its own text.

    >>> check_mask(lambda text, w: lambda b, h, i, j: (j <= i) & (text[i] == text[j]))
    [HINT] token 2 sees token 0 with w = 2: the window is the tokens i - w + 1 to i
    False
    """
    for lengths, w in (((4, 3), 2), ((5, 1, 6), 3), ((9,), 1)):
        text = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
        n = len(text)
        i, j = torch.arange(n)[:, None], torch.arange(n)[None]
        rules = {
            "a token sees no later one: j <= i": j > i,
            "that is another text: compare text[i] with text[j]": text[i] != text[j],
            "the window is the tokens i - w + 1 to i": i - j >= w,
        }
        try:
            seen = create_mask(make(text, w), 1, 1, n, n, device="cpu")[0, 0]
        except FAULTS as e:
            why = f"the mask fails: {first_line(e)}"
            if "data-dependent" in str(e):
                why = "`and` and `if` need one answer, and these are many: combine the conditions with &"
            return no(why)
        for rule, broken in rules.items():
            if (seen & broken).any():
                a, b = (int(x) for x in (seen & broken).nonzero()[0])
                return no(f"token {a} sees token {b} with w = {w}: {rule}")
        hidden = ~seen & ~torch.stack([x.expand(n, n) for x in rules.values()]).any(0)
        if hidden.any():
            a, b = (int(x) for x in hidden.nonzero()[0])
            hint = "the token itself belongs to the window" if a == b else "the window is the tokens i - w + 1 to i"
            return no(f"token {a} does not see token {b} with w = {w}: {hint}")
    return yes("a token sees the window of its own text, and nothing else")


check_causal = judge_of("causal_attention")
