# SPDX-License-Identifier: MIT
"""Notebook 08: its checks accept the solutions and answer likely wrong ones with a hint."""

import json
from math import prod, sqrt
from statistics import mean, pstdev, stdev

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from rocm_guide.exercises.evaluate_and_export import check_header, check_paired, check_wins

WORTH = {"left": 1, "tie": 0.5, "right": 0}


def differences(first, second):
    return [a - b for a, b in zip(first, second, strict=True)]


def both_orders(judge, rows):
    return mean((WORTH[judge(q, a, b)] + 1 - WORTH[judge(q, b, a)]) / 2 for q, a, b in rows)


def agreed_only(judge, rows):
    """Leaves out the rows on which the two verdicts differ, in place of half a win for each."""
    asked = [(WORTH[judge(q, a, b)], 1 - WORTH[judge(q, b, a)]) for q, a, b in rows]
    kept = [first for first, second in asked if first == second]
    return mean(kept) if kept else 0.5


def header(path):
    with path.open("rb") as file:
        return json.loads(file.read(int.from_bytes(file.read(8), "little")))


def shapes(path):
    return [t["shape"] for name, t in header(path).items() if name != "__metadata__"]


def by_bytes(path):
    tensors = [t for name, t in header(path).items() if name != "__metadata__"]
    return sum(t["data_offsets"][1] - t["data_offsets"][0] for t in tensors)


def through_the_library(path):
    with safe_open(path, "pt") as file:
        names = file.keys()
        return sum(torch.tensor(file.get_slice(name).get_shape()).prod().item() for name in names)


@pytest.mark.parametrize(
    "call",
    [
        lambda: check_paired(lambda a, b: (mean(differences(a, b)), stdev(differences(a, b)) / sqrt(len(a)))),
        lambda: check_wins(both_orders),
        lambda: check_header(lambda path: sum(map(prod, shapes(path)))),
    ],
)
def test_right_answers(call, capsys):
    assert call() is True
    assert capsys.readouterr().out.startswith("[OK]")


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: check_paired(lambda a, b: (mean(a), 0.1)), "difference of the means"),
        (lambda: check_paired(lambda a, b: (mean(b) - mean(a), 0.1)), "difference of the means"),
        (
            lambda: check_paired(
                lambda a, b: (mean(a) - mean(b), sqrt((stdev(a) ** 2 + stdev(b) ** 2) / len(a))),
            ),
            "two models on different rows",
        ),
        (lambda: check_paired(lambda a, b: (mean(a) - mean(b), stdev(differences(a, b)))), "spread of single"),
        (
            lambda: check_paired(lambda a, b: (mean(a) - mean(b), stdev(differences(a, b)) / len(a))),
            "root of the number",
        ),
        (
            lambda: check_paired(lambda a, b: (mean(a) - mean(b), pstdev(differences(a, b)) / sqrt(len(a)))),
            "divide by n - 1",
        ),
        (lambda: check_paired(lambda a, b: (mean(a) - mean(b), 7)), "the standard error of"),
        (lambda: check_paired(lambda a, b: None), "it fails"),
        (lambda: check_wins(lambda judge, rows: mean(WORTH[judge(*row)] for row in rows)), 'always says "left"'),
        (lambda: check_wins(lambda judge, rows: mean(judge(*r) == "left" for r in rows) / 2), 'always says "right"'),
        (
            lambda: check_wins(
                lambda judge, rows: (
                    mean((judge(q, a, b) == "left") + (judge(q, b, a) == "right") for q, a, b in rows) / 2
                )
            ),
            "all is a tie",
        ),
        (lambda: check_wins(agreed_only), 'says "left" to the other 4'),
        (lambda: check_wins(lambda judge, rows: judge(rows[0])), "it fails"),
        (lambda: check_header(lambda path: path.stat().st_size // 4), "the header takes bytes too"),
        (lambda: check_header(by_bytes), "bytes of the numbers"),
        (lambda: check_header(lambda path: sum(map(sum, shapes(path)))), "hold 15 numbers; yours: 8"),
        (lambda: check_header(lambda path: sum(t.numel() for t in load_file(path).values())), "header only"),
        (lambda: check_header(through_the_library), "header only"),
        (
            lambda: check_header(lambda path: sum(prod(t["shape"]) for t in header(path).values())),
            "header only: 'shape'",
        ),
    ],
)
def test_wrong_answers_get_a_hint(call, hint, capsys):
    assert call() is False
    said = capsys.readouterr().out
    assert said.startswith("[HINT]") and hint in said and said.count("\n") == 1, said
