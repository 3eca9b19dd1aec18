# SPDX-License-Identifier: MIT
"""The judges of notebook 13's exercises: right answers pass, likely wrong ones are told what is missing."""

import pytest
import torch

from rocm_guide.exercises.fp8_and_mx_formats import check_block, check_exponent, check_keep
from rocm_guide.quantize.small_floats import decode_fp4, encode_fp4, shared_exponent


def block_with(rule="floor", shift=0, codes=encode_fp4):
    def encode(block):
        e = int(shared_exponent(block.abs().max(), "e2m1", rule)) + shift
        return e + 127, codes(block / 2.0**e)

    return encode


def test_the_right_block_passes():
    assert check_block(block_with())


@pytest.mark.parametrize(
    ("encode", "told"),
    [
        (block_with("above"), "the scale's byte is"),
        (block_with(shift=2), "the scale's byte is"),
        (block_with(codes=lambda x: encode_fp4(x * 0.999)), "codes are wrong"),
        (block_with(codes=lambda x: encode_fp4(x.abs())), "codes are wrong"),
        (block_with(codes=lambda x: encode_fp4(x)[:16]), "expected 32 codes"),
        (block_with(codes=lambda x: x.round().int()), "expected 32 codes from 0 to 15"),
        (lambda block: None, "it fails"),
        (lambda block: (1 / 0, 0), "it fails"),
    ],
)
def test_wrong_blocks_are_told_why(encode, told, capsys):
    assert not check_block(encode)
    assert told in capsys.readouterr().out


def best(block):
    errors = {e: (decode_fp4(encode_fp4(block / 2.0**e)) * 2.0**e - block).square().sum().item() for e in range(-8, 8)}
    return min(errors, key=errors.get)


def test_the_best_exponent_passes_and_no_rule_does(capsys):
    assert check_exponent(best)
    for rule in ("floor", "nearest", "above"):
        assert not check_exponent(lambda b, rule=rule: int(shared_exponent(b.abs().max(), "e2m1", rule))), rule
    assert not check_exponent(lambda b: 99) and not check_exponent(lambda b: None)
    assert "is far off" in capsys.readouterr().out


def by_ratio(matrices, room):
    chosen = []
    for n in sorted(matrices, key=lambda n: -matrices[n][0] / matrices[n][1]):
        if matrices[n][1] <= room:
            chosen.append(n)
            room -= matrices[n][1]
    return chosen


def by_cost(matrices, room):
    chosen = []
    for n in sorted(matrices, key=lambda n: -matrices[n][0]):
        if matrices[n][1] <= room:
            chosen.append(n)
            room -= matrices[n][1]
    return chosen


@pytest.mark.parametrize(
    ("keep", "told"),
    [
        (lambda matrices, room: [], "is possible in the same room"),
        (lambda matrices, room: list(matrices), "have room"),
        (lambda matrices, room: ["lm_head"], "lm_head is none of"),
        (lambda matrices, room: max(matrices), ""),
        (lambda matrices, room: 1 / 0, "it fails"),
        (lambda matrices, room: ["v"] if "v" in matrices else [], "is possible in the same room"),
    ],
)
def test_wrong_choices_are_told_why(keep, told, capsys):
    assert not check_keep(keep)
    assert told in capsys.readouterr().out


def test_the_right_choice_passes():
    assert check_keep(by_ratio)


def test_the_largest_cost_first_is_not_enough():
    assert not check_keep(by_cost)


def test_answers_may_be_tensors():
    assert check_exponent(lambda block: torch.tensor(best(block)))
