# SPDX-License-Identifier: MIT
"""Checks of the exercises of notebook 07: each says what is missing, and returns whether the answer holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from rocm_guide.exercises.common import FAULTS, first_line, no, yes

__all__ = ["check_advantages", "check_dpo_loss", "check_reward"]

#: Log-probabilities in nats: chosen, rejected, the reference's of both; and beta.
_PAIRS = ((-12.0, -15.0, -14.0, -13.0, 0.1), (-3.0, -2.0, -3.0, -2.0, 0.5), (-40.0, -9.0, -30.0, -8.0, 0.2))


def check_dpo_loss(loss: Callable[[float, float, float, float, float], Any]) -> bool:
    """Check exercise 1: DPO's loss of one pair, from the log-probabilities of policy and reference, and beta.

    >>> check_dpo_loss(lambda chosen, rejected, ref_chosen, ref_rejected, beta: math.log(2))
    [HINT] the loss is 0.693 whatever the policy: it should depend on its log-probabilities
    False
    """

    def of(margin: float) -> float:
        return math.log1p(math.exp(-margin))

    try:
        found = [float(loss(*pair)) for pair in _PAIRS]
    except FAULTS as e:
        return no(f"it should give a number for five numbers ({first_line(e)})")

    def is_like(expected: Callable[[float, float, float, float, float], float]) -> bool:
        return all(math.isclose(f, expected(*pair), rel_tol=1e-3) for f, pair in zip(found, _PAIRS, strict=True))

    if is_like(lambda c, r, rc, rr, b: of(b * ((c - rc) - (r - rr)))):
        return yes("equal shifts of policy and reference give log 2; a better chosen answer gives less")
    for wrong, hint in (
        (lambda *_: math.log(2), "the loss is 0.693 whatever the policy: it should depend on its log-probabilities"),
        (lambda c, r, rc, rr, b: of(b * (c - r)), "the reference is missing: what counts is the change since then"),
        (lambda c, r, rc, rr, b: of((c - rc) - (r - rr)), "beta is missing: it multiplies the whole margin"),
        (lambda c, r, rc, rr, b: of(-b * ((c - rc) - (r - rr))), "the sign is turned round: this prefers the rejected"),
        (lambda c, r, rc, rr, b: b * ((c - rc) - (r - rr)), "that is the margin; the loss is -log sigmoid of it"),
    ):
        if is_like(wrong):
            return no(hint)
    wanted = [of(b * ((c - rc) - (r - rr))) for c, r, rc, rr, b in _PAIRS]
    return no(f"for {_PAIRS[0]} it should be {wanted[0]:.3f}, yours is {found[0]:.3f}")


def check_advantages(advantages: Callable[[list[float], int], Sequence[float]]) -> bool:
    """Check exercise 2: the advantages of a batch of rewards, in groups of ``size`` answers to the same prompt.

    >>> check_advantages(lambda rewards, size: rewards)
    [HINT] the answers of a prompt should add up to 0: subtract the mean of their own group
    False
    """
    rewards, size = [2.0, 1.0, 1.0, 0.0, 7.0, 9.0, 9.0, 7.0, 3.0, 3.0, 3.0, 3.0], 4
    try:
        found = [float(a) for a in advantages(list(rewards), size)]
    except FAULTS as e:
        return no(f"it should give one number for each reward ({first_line(e)})")
    if len(found) != len(rewards):
        return no(f"{len(found)} advantages for {len(rewards)} rewards; there is one for each")
    groups = [found[i : i + size] for i in range(0, len(found), size)]
    if any(not math.isfinite(a) for a in found):
        return no("a group of equal rewards gives no finite number: add 1e-4 to the standard deviation")
    if any(abs(sum(group)) > 1e-3 for group in groups):
        return no("the answers of a prompt should add up to 0: subtract the mean of their own group")
    if not math.isclose(found[0], 1 / math.sqrt(2 / 3), rel_tol=1e-3):
        # Of a population the deviation of 2, 1, 1, 0 is the root of 1/2; torch and TRL divide by one less.
        hint = "divide by the standard deviation of the group, as torch's std() computes it"
        return no(f"the 2 beside 1, 1 and 0 has {found[0]:.3f}, and 1.225 is right: {hint}")
    if not math.isclose(found[5], math.sqrt(3) / 2, rel_tol=1e-3):
        return no(f"the 9 beside 7, 9 and 7 has {found[5]:.3f}: each group has its own standard deviation")
    return yes("each group adds up to 0, and the group of equal rewards teaches nothing")


def check_reward(reward: Callable[..., Sequence[float]]) -> bool:
    """Check exercise 3: a reward of 1.0 where the right number is the only number of the text, else 0.0.

    >>> check_reward(lambda completions, answer, **columns: [float(a in c) for c, a in zip(completions, answer)])
    [HINT] 'Answer: 304' where 30 is right gets 1.0, and 0.0 is right: compare whole numbers
    False
    """
    cases = (
        ("Answer: 304", "304", 1.0, "the right number alone earns the reward, in any text"),
        ("I think it is 304.", "304", 1.0, "the right number alone earns the reward, in any text"),
        ("Answer: 304", "30", 0.0, "compare whole numbers"),
        ("Answer: 30", "304", 0.0, "compare whole numbers"),
        ("8 64 128 304 1024", "304", 0.0, "a list of all numbers is what the model comes up with"),
        ("304, or perhaps 8", "304", 0.0, "the right number comes first, and another one follows"),
        ("I do not know.", "304", 0.0, "there is no number"),
    )
    try:
        found = [float(r) for r in reward([c[0] for c in cases], answer=[c[1] for c in cases])]
    except FAULTS as e:
        return no(f"it should give a list with one number for each text ({first_line(e)})")
    if len(found) != len(cases):
        return no(f"{len(found)} rewards for {len(cases)} texts; there is one for each")
    for got, (text, answer, wanted, why) in zip(found, cases, strict=True):
        if got != wanted:
            return no(f"'{text}' where {answer} is right gets {got}, and {wanted} is right: {why}")
    return yes("only the right number earns it, and a list of numbers earns nothing")
