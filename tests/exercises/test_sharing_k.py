# SPDX-License-Identifier: MIT
"""The checks of notebook 32 accept its solutions and name what is wrong with the usual first attempts."""

from __future__ import annotations

import pytest

from cdna.testing import HEAD
from rocm_guide.exercises import sharing_k
from tests.exercises.written import Exercises

TASKS = Exercises("32", sharing_k, {"split_k": "split_k", "gemv": "skinny_gemv", "one_launch": "one_launch"})
WHOLE, STARTED, judged = TASKS.whole, TASKS.started, TASKS.judged


def function(name):
    """The text of a kernel of the notebook that its solutions call."""
    rest = TASKS.cell(f"\ndef {name}(").split(f"\ndef {name}(")[1]
    return f"@triton.jit\ndef {name}(" + rest.split("\n\n\n")[0] + "\n\n\n"


TASKS.head = HEAD + function("sum_part") + function("wait_for_stores")


@pytest.mark.parametrize("check", WHOLE)
def test_the_solution_passes_and_the_starter_is_not_yet_right(check, capsys):
    assert judged(check, WHOLE[check])
    assert not judged(check, STARTED[check])
    said = capsys.readouterr().out
    assert "no kernel has stored anything yet" in said or "no kernel was launched" in said


@pytest.mark.parametrize(
    ("check", "old", "new", "said"),
    [
        ("split_k", "torch.zeros(M", "torch.empty(M", "the result starts at 0, torch.zeros"),
        ("split_k", "tl.atomic_add(", "tl.store(", "a race: programs 0 and 1 write different values"),
        ("split_k", "last = tl.minimum(first + part, K)", "last = K", "adds its own part of K, none twice"),
        ("gemv", "k[None, :] < K), other", "k[None, :] < K + 1), other", "tl.load outside its tensor"),
        ("gemv", "x + k * sx", "x + k", "use x.stride(0)"),
        ("gemv", "j[:, None].to(tl.int64)", "j[:, None]", "rows 2^30 elements apart"),
        ("gemv", "a.to(tl.float32) * b.to(tl.float32)", "a * b", "accumulate in fp32"),
        ("one_launch", "== parts - 1", "== 0", "race: "),
        ("one_launch", "== parts - 1", ">= 0", "race: "),
        ("one_launch", "n, parts = x.shape, len(w), 16", "n, parts = x.shape, len(w), 1", "has 36 workgroups for 304"),
        ("one_launch", "    wait_for_stores(AMD)\n", "    tl.debug_barrier()\n", "race: reads byte 0 of room_ptr"),
        ("one_launch", "for p in range(parts)", "for p in range(1, parts)", "element ["),
        ("one_launch", "room_ptr + (part * M + i) * N + j, total", "room_ptr + i * N + j, total", "race"),
        ("one_launch", "torch.zeros(tiles", "torch.ones(tiles", "race: "),
        ("one_launch", "return c", "return c.half()[:, :1]", "a tensor of [5, 96] is wanted"),
    ],
)
def test_a_usual_first_attempt_is_named(check, old, new, said, capsys):
    assert not judged(check, WHOLE[check], (old, new))
    assert said in capsys.readouterr().out


def test_atomics_do_not_repeat_and_a_second_kernel_is_a_second_launch(capsys):
    atomic = """
@triton.jit
def part_kernel(x_ptr, w_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    col, part, parts, steps = tl.program_id(0) * BN, tl.program_id(1), tl.num_programs(1), K // BK
    first, last = steps * part // parts, steps * (part + 1) // parts
    total = sum_part(x_ptr, w_ptr, 0, col, first, last, M, N, K, BM, BN, BK)
    i, j = tl.arange(0, BM)[:, None], col + tl.arange(0, BN)[None, :]
    tl.atomic_add(c_ptr + i * N + j, total, mask=(i < M) & (j < N))


@triton.jit
def copy_kernel(x, y, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < size), mask=at < size)


def one_launch(x, w):
    (m, k), n = x.shape, len(w)
    c = torch.zeros(m, n, dtype=torch.float32, device=x.device)
    part_kernel[triton.cdiv(n, 64), 16](x, w, c, m, n, k, BM=16, BN=64, BK=64)
    return c
"""
    assert not judged("one_launch", atomic)
    assert "different results in 5 orders: store each part" in capsys.readouterr().out
    twice = atomic.replace(
        "    return c",
        "    d = torch.empty_like(c)\n    copy_kernel[(triton.cdiv(m * n, 64),)](c, d, m * n, BLOCK=64)\n    return d",
    )
    assert not judged("one_launch", twice)
    assert "right, in 2 launches" in capsys.readouterr().out
