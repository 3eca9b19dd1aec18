# SPDX-License-Identifier: MIT
"""The checks of notebook 04 accept the solution and say what is wrong with the obvious mistakes."""

from __future__ import annotations

import pytest

from rocm_guide.exercises.device_maps import check_busy, check_map, check_mi300x

ENDS = {"model.embed_tokens": 0, "model.norm": 0, "model.rotary_emb": 0, "lm_head": 0}


def layers(rule) -> dict:
    return {f"model.layers.{i}": rule(i) for i in range(32)}


def test_map_accepts_a_solution(capsys) -> None:
    assert check_map(ENDS | layers(lambda i: int(i < 18)))
    assert "[OK]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (None, "dictionary"),
        ({}, "dictionary"),
        (ENDS | {"model.layers": 1}, "budget"),
        (ENDS | {"lm_head": 1} | layers(lambda i: int(i < 16)), "lm_head"),
        (ENDS | {"model.embed_tokens": 1} | layers(lambda i: int(i < 16)), "embed_tokens"),
        (ENDS | layers(lambda i: i % 2), "crossings"),
        (layers(lambda i: 0), "not in the device map"),
        (ENDS | layers(lambda i: 5 if i < 16 else 0), "would go to 5"),
    ],
)
def test_map_hints(answer, told: str, capsys) -> None:
    assert not check_map(answer)
    out = capsys.readouterr().out
    assert "[HINT]" in out and told in out


def test_busy() -> None:
    assert check_busy(lambda p, m: m / (m + p - 1))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda p, m: 1 / p, "right for one micro-batch"),
        (lambda p, m: m / (m + p), "count the slots"),
        (lambda p, m: 1 / (m - 1), "it fails"),
        (lambda p, m: "x", "it fails"),
    ],
)
def test_busy_hints(answer, told: str, capsys) -> None:
    assert not check_busy(answer)
    assert told in capsys.readouterr().out


def test_mi300x(capsys) -> None:
    good = [n for n in range(2, 20) if check_mi300x(n)]
    assert len(good) == 1
    out = capsys.readouterr().out
    assert "needed on each" in out and "so would" in out
    for wrong in ("7", 7.0, True, 1):
        assert not check_mi300x(wrong)
