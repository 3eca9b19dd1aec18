# SPDX-License-Identifier: MIT
"""The checks of notebook 31 accept its solutions and name what is wrong with the usual first attempts."""

from __future__ import annotations

import pytest

from rocm_guide.exercises import gemm_kernels
from tests.exercises.written import Exercises

TASKS = Exercises("31", gemm_kernels, {"naive": "naive_matmul", "matmul": "matmul", "epilogue": "gated"})
WHOLE, STARTED, judged = TASKS.whole, TASKS.started, TASKS.judged


@pytest.mark.parametrize("check", WHOLE)
def test_the_solution_passes_and_the_starter_is_not_yet_right(check, capsys):
    assert judged(check, WHOLE[check])
    assert not judged(check, STARTED[check])
    said = capsys.readouterr().out
    assert "no kernel has stored anything yet" in said or "no kernel was launched" in said


@pytest.mark.parametrize(
    ("check", "old", "new", "said"),
    [
        ("naive", "mask=i < M", "mask=i < M + 1", "tl.load outside its tensor"),
        ("naive", "c + i[:, None].to(tl.int64) * N", "c + i[:, None] * N", "an output beyond 2^31 elements"),
        ("naive", "columns + sak", "columns + 1", "use both of its strides"),
        ("matmul", "& (k[None, :] < K)", "", "tl.load outside its tensor"),
        ("matmul", "tl.dot(x, y, total)", "tl.dot(x, y)", "row of a times column of b"),
        ("matmul", "k[None, :] * sak", "k[None, :]", "use both of its strides"),
        ("matmul", "128", "256", "2 are possible: a smaller block, or more warps"),
        ("epilogue", "    total += tl.load(bias", "        total += tl.load(bias", "70 x 90 x 80: element ["),
        ("epilogue", "y, total)\n", "y, total)\n        total *= tl.sigmoid(total)\n", "70 x 90 x 80: element ["),
        ("epilogue", "    total *= tl", "    total = total.to(tl.float16).to(tl.float32)\n    total *= tl", "wrong"),
        ("epilogue", ", mask=j < N, other=0.0)[None", ")[None", "bias"),
        ("epilogue", "& (k[None, :] < K)", "", "70 x 90 x 80: "),
        ("epilogue", "tl.dot(x, y, total)", "tl.dot(x, y)", "70 x 90 x 80: element ["),
        (
            "epilogue",
            "    return c",
            "    gated_kernel[grid](a, b, bias, c, M, N, K, BM=64, BN=64, BK=32)\n    return c",
            "in 2 launches",
        ),
        ("epilogue", "return c", "return c.T", "a tensor of [70, 90] is wanted"),
    ],
)
def test_a_usual_first_attempt_is_named(check, old, new, said, capsys):
    assert not judged(check, WHOLE[check], (old, new))
    assert said in capsys.readouterr().out
