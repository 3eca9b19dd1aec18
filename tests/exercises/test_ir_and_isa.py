# SPDX-License-Identifier: MIT
"""The barriers of notebook 24: the check accepts what holds and answers the usual wrong kernels with a hint."""

from __future__ import annotations

import pytest

from cdna.examples import int4_scores as examples
from cdna.testing import HEAD, run_cell
from rocm_guide.exercises.ir_and_isa import check_barriers

START = """
@triton.jit
def scores(q_ptr, k_ptr, pair_ptr, out_ptr, n, M: tl.constexpr, BLOCK: tl.constexpr, D: tl.constexpr):
    words: tl.constexpr = D // 8
    tokens = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    rows, part = tl.arange(0, M), tl.arange(0, words)
    live = tokens[None, :] < n
    word = tl.load(k_ptr + tokens[None, :] * words + part[:, None], mask=live, other=0)
    pair = tl.load(pair_ptr + tokens[None, :], mask=live, other=0)
    scale = (pair & 0xFFFF).to(tl.int16).to(tl.float16, bitcast=True)
    shift = (pair >> 16).to(tl.int16).to(tl.float16, bitcast=True)
    total = tl.zeros((M, BLOCK), tl.float32)
"""
END = "    tl.store(out_ptr + rows[:, None] * n + tokens[None, :], total, mask=live)\n"
TWO = """
    for plane in tl.static_range(0, 8, 2):
        q = tl.load(q_ptr + rows[:, None] * D + plane * words + tl.arange(0, 2 * words)[None, :])
        both = tl.join((word >> (plane * 4)) & 0xF, (word >> (plane * 4 + 4)) & 0xF)
        tile = tl.reshape(tl.permute(both, (2, 0, 1)), (2 * words, BLOCK))
        total = tl.dot(q, tile.to(tl.float16) * scale + shift, total)
"""
FOUR = """
    for plane in tl.static_range(0, 8, 4):
        q = tl.load(q_ptr + rows[:, None] * D + plane * words + tl.arange(0, 4 * words)[None, :])
        w = word >> (plane * 4)
        pairs = tl.join(tl.join(w & 0xF, (w >> 4) & 0xF), tl.join((w >> 8) & 0xF, (w >> 12) & 0xF))
        tile = tl.reshape(tl.permute(pairs, (3, 2, 0, 1)), (4 * words, BLOCK))
        total = tl.dot(q, tile.to(tl.float16) * scale + shift, total)
"""
NO_DOT = """
    for plane in tl.static_range(8):
        for w in tl.static_range(16):
            q = tl.load(q_ptr + rows * D + plane * words + w).to(tl.float32)
            one = tl.load(k_ptr + tokens * words + w, mask=tokens < n, other=0)
            key = ((one[None, :] >> (plane * 4)) & 0xF).to(tl.float16) * scale + shift
            total += q[:, None] * key.to(tl.float32)
"""


def kernel(body):
    return run_cell(HEAD + START + body.lstrip("\n") + END)["scores"]


def test_right_answers(capsys):
    assert check_barriers(kernel(TWO)) and check_barriers(kernel(FOUR))
    out = capsys.readouterr().out
    assert out.count("[OK]") == 2 and "7 barriers instead of 15" in out and "3 barriers instead of 15" in out


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: check_barriers(examples.int4_scores_planar), "15 barriers; 7 are possible"),
        (lambda: check_barriers(kernel(TWO.replace("(2, 0, 1)", "(0, 2, 1)"))), "belong to one dimension"),
        (lambda: check_barriers(kernel(TWO.replace("plane * 4 + 4)", "plane * 4)"))), "belong to one dimension"),
        (lambda: check_barriers(kernel(NO_DOT)), "no matrix instruction is left"),
        (lambda: check_barriers(examples.int4_scores_reshaped), "is right: row r"),
        (lambda: check_barriers(examples.stream_copy), "stream_copy"),
        (lambda: check_barriers(kernel(TWO.replace("tl.join(", "tl.jion("))), "tl.jion"),
        (lambda: check_barriers("scores"), "'scores': give the kernel itself"),
    ],
)
def test_wrong_answers_get_a_hint(call, hint, capsys):
    assert not call()
    out = capsys.readouterr().out
    assert out.startswith("[HINT]")
    assert hint in out
