# SPDX-License-Identifier: MIT
"""Notebook 18: its checks accept the solution and answer wrong ones with a hint."""

import pytest

from rocm_guide.exercises.serving import check_cards, check_goodput, check_shared_blocks


def both(answers, seconds, first, between):
    return sum(a <= first and b <= between for a, b in answers) / seconds


def by_beginning(prompts, block):
    full = {tuple(p[:end]) for p in prompts for end in range(block, len(p) + 1, block)}
    return len(full) + sum(1 for p in prompts if len(p) % block)


def by_content(prompts, block):
    full = {tuple(p[i : i + block]) for p in prompts for i in range(0, len(p) - block + 1, block)}
    return len(full) + sum(1 for p in prompts if len(p) % block)


def with_the_last(prompts, block):
    return len({tuple(p[: i + block]) for p in prompts for i in range(0, len(p), block)})


def test_right_answers(capsys):
    assert check_goodput(both) and check_shared_blocks(by_beginning) and check_cards(4)
    assert capsys.readouterr().out.count("[OK]") == 3


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: check_goodput(lambda a, s, f, b: len(a) / s), "2 kept both limits"),
        (lambda: check_goodput(lambda a, s, f, b: sum(x < f and y < b for x, y in a) / s), "2 kept both limits"),
        (lambda: check_goodput(lambda a, s, f, b: sum(x <= f and y < 2 * b for x, y in a) / s), "2 kept both limits"),
        (lambda: check_goodput(lambda a, s, f, b: sum(x <= f and y <= b for x, y in a)), "2 kept both limits"),
        (lambda: check_goodput(lambda a, s, f, b: 1 / len(a) * sum(x <= f and y <= b for x, y in a)), "2 kept"),
        (lambda: check_goodput(lambda a, s, f, b: a[0][0]), "2 kept both limits"),
        (lambda: check_shared_blocks(lambda p, b: sum(-(-len(x) // b) for x in p)), "common first block"),
        (lambda: check_shared_blocks(by_content), "depend on all that stands before"),
        (lambda: check_shared_blocks(with_the_last), "not full yet is never shared"),
        (lambda: check_shared_blocks(lambda p, b: p[99]), "it fails for 1 prompts"),
        (lambda: check_shared_blocks(lambda p, b: None), "not None"),
        (lambda: check_cards(2), "more GPUs"),
        (lambda: check_cards(8), "fewer GPUs"),
        (lambda: check_cards(3), "come out even"),
    ],
)
def test_wrong_answers(call, hint, capsys):
    assert call() is False
    out = capsys.readouterr().out
    assert out.startswith("[HINT]") and hint in out
