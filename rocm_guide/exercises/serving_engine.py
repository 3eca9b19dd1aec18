# SPDX-License-Identifier: MIT
"""Checks of notebook 19 (inside a serving engine)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from rocm_guide.exercises.common import FAULTS, first_line, no, yes

__all__ = ["check_best_guesses", "check_blocks", "check_judge"]


def check_blocks(blocks: int, unused: int) -> bool:
    """Check exercise 1: blocks of 16 that a prompt of 100 tokens and an answer of 45 take in the end; unused places.

    The last token of an answer is never fed back: it needs no place.

    >>> check_blocks(10, 15)
    [HINT] 10 blocks: the last token of an answer is never fed back, so nothing of it is stored
    False
    """
    if blocks == 10:
        return no("10 blocks: the last token of an answer is never fed back, so nothing of it is stored")
    if blocks != 9:
        return no(f"{blocks} blocks: 144 tokens are stored, 16 in a block")
    if unused != 0:
        return no(f"{unused} places: 9 blocks have 144, and 144 are taken")
    return yes("144 tokens fill 9 blocks to the last place; in a row of 8,192 they would leave 8,048 empty")


def check_judge(function: Callable[[list[int], list[int]], Any]) -> bool:
    """Check exercise 2: ``function(guess, said)`` is the tokens that a step with guesses yields.

    >>> check_judge(lambda guess, said: guess + said[-1:])
    [HINT] guess [5, 6, 7], said [5, 9, 7, 8]: the model says 9 where 6 was guessed, so [5, 9] and not [5, 6, 7, 8]
    False
    """
    cases: list[tuple[list[int], list[int], str]] = [
        ([5, 6, 7], [5, 6, 7, 8], "all three are right, and a fourth token comes for nothing"),
        ([5, 6, 7], [5, 9, 7, 8], "the model says 9 where 6 was guessed"),
        ([5, 6, 7], [4, 6, 7, 8], "the first guess is wrong, and a step yields one token at the least"),
        ([], [3], "nothing was guessed: a plain step"),
        ([5, 5], [5, 5, 5], "equal tokens are right, too"),
        ([1, 2, 3, 4], [9, 2, 3, 4, 5], "what agrees behind a wrong guess followed another text"),
    ]
    for guess, said, why in cases:
        # The guesses that agree, and what the model says after the last of them.
        right = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(guess, said, strict=False))
        wanted = said[: len(list(right)) + 1]
        try:
            got = function(list(guess), list(said))
        except FAULTS as e:
            return no(f"it fails for guess {guess}, said {said}: {first_line(e)}")
        if not isinstance(got, list) or got != wanted:
            return no(f"guess {guess}, said {said}: {why}, so {wanted} and not {got}")
    return yes("every token written is one that the model itself would have said")


def _rate(a: float, cost: float, k: int) -> float:
    """Return tokens per time: of one step with ``k`` guesses, each right with probability ``a`` and taking ``cost``."""
    return float(sum(a**i for i in range(k + 1)) / (1 + k * cost))


def check_best_guesses(function: Callable[[float, float], Any]) -> bool:
    """Check exercise 3: ``function(a, cost)`` is the number of guesses, 0 to 16, with the most tokens per time.

    >>> check_best_guesses(lambda a, cost: 4)
    [HINT] guesses that are never right (a = 0): 0 is best and not 4, because each takes time and brings nothing
    False
    """
    cases = [
        (
            0.0,
            0.1,
            "guesses that are never right (a = 0): {best} is best and not {got}, because each takes time and "
            "brings nothing",
        ),
        (0.5, 0.0, "guesses that cost nothing: {best} is best and not {got}"),
        (0.9, 0.05, "a = 0.9, cost 0.05: {best} is best with {most:.2f} tokens per time, and {got} brings {own:.2f}"),
        (0.8, 0.2, "a = 0.8, cost 0.2: {best} is best with {most:.2f} tokens per time, and {got} brings {own:.2f}"),
        (0.6, 0.7, "a = 0.6, cost 0.7: {best} is best with {most:.2f} tokens per time, and {got} brings {own:.2f}"),
        (0.98, 0.01, "a = 0.98, cost 0.01: {best} is best with {most:.2f} tokens per time, and {got} brings {own:.2f}"),
    ]
    for a, cost, hint in cases:
        best = max(range(17), key=lambda k: _rate(a, cost, k))
        try:
            got = function(a, cost)
        except FAULTS as e:
            return no(f"it fails for a = {a}, cost {cost}: {first_line(e)}")
        if isinstance(got, bool) or not isinstance(got, int) or not 0 <= got <= 16:
            return no(f"{got!r}: give a whole number from 0 to 16")
        if _rate(a, cost, got) < _rate(a, cost, best) * (1 - 1e-9):
            return no(hint.format(best=best, got=got, most=_rate(a, cost, best), own=_rate(a, cost, got)))
    return yes("more guesses for a good and cheap draft, none for one that is dear or mostly wrong")
