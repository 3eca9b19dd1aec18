# SPDX-License-Identifier: MIT
"""Notebook 07: its checks accept the solution and answer wrong ones with a hint."""

import math
import re
import statistics

import pytest

from rocm_guide.exercises.preferences import check_advantages, check_dpo_loss, check_reward


def loss(margin):
    return math.log(1 + math.exp(-margin))


def in_groups(of):
    """The advantages of each group, by a function of the group and of all rewards."""
    return lambda rewards, size: [a for i in range(0, len(rewards), size) for a in of(rewards[i : i + size], rewards)]


def only(pattern):
    return lambda completions, answer, **_: [
        float(re.findall(pattern, c) == [a]) for c, a in zip(completions, answer, strict=True)
    ]


def scaled(deviation, more=1e-4):
    return in_groups(
        lambda group, all_: [(r - statistics.mean(group)) / (deviation(group, all_) + more) for r in group]
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda: check_dpo_loss(lambda c, r, rc, rr, b: loss(b * (c - rc - r + rr))),
        lambda: check_advantages(scaled(lambda group, _: statistics.stdev(group))),
        lambda: check_reward(only(r"\d+")),
    ],
)
def test_right_answers(call, capsys):
    assert call() is True
    assert capsys.readouterr().out.startswith("[OK]")


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: check_dpo_loss(lambda c, r, rc, rr, b: loss(b * (c - r))), "reference is missing"),
        (lambda: check_dpo_loss(lambda c, r, rc, rr, b: loss(c - rc - r + rr)), "beta is missing"),
        (lambda: check_dpo_loss(lambda c, r, rc, rr, b: loss(-b * (c - rc - r + rr))), "sign"),
        (lambda: check_dpo_loss(lambda c, r, rc, rr, b: b * (c - rc - r + rr)), "that is the margin"),
        (lambda: check_dpo_loss(lambda c, r, rc, rr, b: loss(b * (c + rc - r - rr))), "it should be"),
        (lambda: check_dpo_loss(lambda c, r: 0.0), "five numbers"),
        (lambda: check_advantages(lambda rewards, size: rewards[:3]), "3 advantages for 12"),
        (lambda: check_advantages(in_groups(lambda g, all_: [r - statistics.mean(all_) for r in g])), "own group"),
        (lambda: check_advantages(in_groups(lambda g, _: [r - statistics.mean(g) for r in g])), "standard deviation"),
        (lambda: check_advantages(scaled(lambda g, _: statistics.pstdev(g))), "torch's std()"),
        (lambda: check_advantages(scaled(lambda g, all_: statistics.stdev(all_[:4]))), "each group has its own"),
        (lambda: check_advantages(scaled(lambda g, _: statistics.stdev(g), more=0)), "one number for each reward"),
        (lambda: check_advantages(in_groups(lambda g, _: [math.nan for _ in g])), "1e-4"),
        (lambda: check_reward(lambda completions, answer, **_: [1.0]), "1 rewards for 7"),
        (lambda: check_reward(lambda completions, answer, **_: None), "a list with one number"),
        (lambda: check_reward(only(r"^Answer: (\d+)$")), "in any text"),
        (
            lambda: check_reward(
                lambda completions, answer, **_: [
                    float(re.findall(r"\d+", c)[:1] == [a]) for c, a in zip(completions, answer, strict=True)
                ]
            ),
            "another one follows",
        ),
        (
            lambda: check_reward(
                lambda completions, answer, **_: [
                    float(a in re.findall(r"\d+", c)) for c, a in zip(completions, answer, strict=True)
                ]
            ),
            "a list of all numbers",
        ),
    ],
)
def test_wrong_answers(call, hint, capsys):
    assert call() is False
    said = capsys.readouterr().out
    assert said.startswith("[HINT]") and hint in said
