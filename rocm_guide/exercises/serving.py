# SPDX-License-Identifier: MIT
"""Checks of notebook 18 (serving)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rocm_guide.exercises.common import FAULTS, first_line, no, yes
from rocm_guide.models.shapes import SHAPES
from rocm_guide.serve.sizing import size_server

__all__ = ["check_cards", "check_goodput", "check_shared_blocks"]


def check_goodput(function: Callable[..., Any]) -> bool:
    """Check exercise 1: ``function(answers, seconds, first, between)`` is the answers per second that kept both limits.

    >>> check_goodput(lambda answers, seconds, first, between: len(answers) / seconds)
    [HINT] of 5 answers in 2 s, 2 kept both limits: 1.0 a second and not 2.5
    False
    """
    cases: list[tuple[list[tuple[float, float]], float, str]] = [
        (
            [(0.2, 0.05), (0.2, 0.2), (0.9, 0.05), (0.4, 0.1), (0.1, 0.15)],
            2.0,
            "of 5 answers in 2 s, 2 kept both limits: 1.0 a second",
        ),
        ([(0.5, 0.1)], 4.0, "an answer that is exactly at its limits keeps them: 0.25 a second"),
        ([(0.9, 0.01), (0.1, 0.9)], 1.0, "one limit kept is not enough: 0.0 a second"),
        ([], 5.0, "no answers: 0.0 a second"),
    ]
    for answers, seconds, hint in cases:
        wanted = sum(a <= 0.5 and b <= 0.1 for a, b in answers) / seconds
        try:
            got = float(function(list(answers), seconds, 0.5, 0.1))
        except FAULTS as e:
            return no(f"it fails for {len(answers)} answers: {first_line(e)}")
        if abs(got - wanted) > 1e-9:
            return no(f"{hint} and not {got}")
    return yes("a service is sized by the answers that its users accept")


def check_shared_blocks(function: Callable[[list[list[int]], int], Any]) -> bool:
    """Check exercise 2: ``function(prompts, block)`` counts the blocks of all prompts if common beginnings are shared.

    >>> check_shared_blocks(lambda prompts, block: sum(-(-len(p) // block) for p in prompts))
    [HINT] two prompts with a common first block need 3 blocks, not 4: what is equal from the start is stored once
    False
    """
    a, b, c, d = [1] * 4, [2] * 4, [3] * 4, [4] * 4
    cases: list[tuple[list[list[int]], int, str]] = [
        ([a + b], 4, "one prompt of two full blocks needs 2 blocks, not {got}"),
        (
            [a + b, a + c],
            4,
            "two prompts with a common first block need 3 blocks, not {got}: what is equal from the start is "
            "stored once",
        ),
        (
            [a + b, c + b],
            4,
            "equal tokens behind different beginnings need blocks of their own, so 4 and not {got}: keys and values "
            "depend on all that stands before",
        ),
        (
            [[*a, 9], [*a, 9]],
            4,
            "a block that is not full yet is never shared, so 3 and not {got}: each text will write on in its own",
        ),
        ([a + b + c, a + b + d, a], 4, "three prompts need 4 blocks, not {got}: the third lies within the others"),
        ([], 4, "no prompt needs no block, not {got}"),
        ([list(range(10))] * 3, 5, "blocks of 5: three equal prompts of 10 need 2 blocks, not {got}"),
    ]
    for prompts, block, hint in cases:
        try:
            got = function([list(p) for p in prompts], block)
        except FAULTS as e:
            return no(f"it fails for {len(prompts)} prompts and blocks of {block}: {first_line(e)}")
        # Every full block is stored once for each beginning that leads to it.
        full = {tuple(p[:end]) for p in prompts for end in range(block, len(p) + 1, block)}
        if got != len(full) + sum(len(p) % block > 0 for p in prompts):
            return no(hint.format(got=got))
    return yes("full blocks are found by everything that leads to them; that is prefix caching")


def check_cards(cards: int) -> bool:
    """Check exercise 3: MI300X GPUs that hold 100 texts of 8,192 tokens of Llama-3-70B in bf16 at once.

    >>> check_cards(2)
    [HINT] 2: room for 86 texts of 8,192 tokens; look at the table's row for more GPUs
    False
    """
    if cards not in (1, 2, 4, 8):
        return no(f"{cards}: 1, 2, 4 or 8, so that the 8 KV heads and 64 heads come out even")
    found = {n: size_server(SHAPES["llama-3-70b"], length=8192, count=n).users for n in (1, 2, 4, 8)}
    if found[cards] < 100:
        return no(f"{cards}: room for {found[cards]} texts of 8,192 tokens; look at the table's row for more GPUs")
    if cards > min(n for n, users in found.items() if users >= 100):
        return no(f"{cards}: room for {found[cards]}; fewer GPUs will do")
    return yes(f"room for {found[cards]}; half of the GPUs would hold {found[cards // 2]}")
