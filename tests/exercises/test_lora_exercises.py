# SPDX-License-Identifier: MIT
"""Notebooks 01 and 02: their checks accept the solution and answer wrong ones with a hint."""

from types import SimpleNamespace

import pytest
import torch

from rocm_guide.exercises.lora_fine_tuning import check_masked, check_settings, check_split
from rocm_guide.exercises.lora_from_scratch import check_all_linear, check_largest_rank, check_merge


def cut(text):
    before, mark, after = text.removeprefix("<s>").rpartition("[/INST]")
    return before + mark, after


def settings(rows, steps):
    return SimpleNamespace(per_device_train_batch_size=rows, gradient_accumulation_steps=steps)


@pytest.mark.parametrize(
    "call",
    [
        lambda: check_all_linear(41_943_040),
        lambda: check_merge(lambda layer: layer.layer.weight + layer.scale * layer.B @ layer.A),
        lambda: check_largest_rank(256),
        lambda: check_settings(settings(8, 8)),
        lambda: check_masked(torch.tensor([-100, -100, 7, 2]), [5, 6, 7, 2], 2),
        lambda: check_split(cut),
    ],
)
def test_right_answers(call, capsys):
    assert call() is True
    assert capsys.readouterr().out.startswith("[OK]")


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: check_all_linear(6_815_744), "other five"),
        (lambda: check_all_linear(32 * 16 * (4 * 2 * 4096 + 3 * (4096 + 14336))), "smaller"),
        (lambda: check_all_linear(1), "1 is not it"),
        (lambda: check_all_linear("many"), "many is not it"),
        (lambda: check_merge(lambda layer: layer.layer.weight), "update is missing"),
        (lambda: check_merge(lambda layer: layer.layer.weight + layer.B @ layer.A), "alpha / r"),
        (
            lambda: check_merge(lambda layer: layer.layer.weight + layer.scale * (layer.A.T @ layer.B.T).T * 1.01),
            "wrong",
        ),
        (lambda: check_merge(lambda layer: layer.layer.weight + layer.scale * layer.A @ layer.B), "fails on a layer"),
        (lambda: check_merge(lambda layer: None), "expected a matrix"),
        (lambda: check_largest_rank(8), "rank 16 fits too"),
        (lambda: check_largest_rank(512), "more than 206"),
        (lambda: check_largest_rank(100), "power of two"),
        (lambda: check_largest_rank("8"), "power of two"),
        (lambda: check_settings(settings(8, 1)), "64 are wanted"),
        (lambda: check_settings(settings(64, 1)), "the exercise allows 8"),
        (lambda: check_settings({}), "is no SFTConfig"),
        (lambda: check_masked([5, 6, 7, 2], [5, 6, 7, 2], 2), "prompt is learnt too"),
        (lambda: check_masked([-100] * 4, [5, 6, 7, 2], 2), "the token itself"),
        (lambda: check_masked([-100, -100, 2, -100], [5, 6, 7, 2], 2), "the token itself"),
        (lambda: check_masked([-100], [5, 6, 7, 2], 2), "one for each"),
        (lambda: check_split(lambda text: ("", text)), "prompt is empty"),
        (lambda: check_split(lambda text: tuple(text.split("[/INST]", 1))), "no character may be lost"),
        (lambda: check_split(lambda text: (text[:20], text[20:])), "the completion should be"),
        (lambda: check_split(lambda text: (text[: text.rindex("[/INST]") + 7], text.rpartition("[/INST]")[2])), "<s>"),
        (lambda: check_split(lambda text: None), "two texts"),
    ],
)
def test_wrong_answers_get_a_hint(call, hint, capsys):
    assert call() is False
    said = capsys.readouterr().out
    assert said.startswith("[HINT]") and hint in said and said.count("\n") == 1
