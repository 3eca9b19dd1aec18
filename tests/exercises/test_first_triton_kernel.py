# SPDX-License-Identifier: MIT
"""The checks of notebook 21 accept its solutions and name what is wrong with the usual first attempts."""

from __future__ import annotations

import pytest

from rocm_guide.exercises import first_triton_kernel
from tests.exercises.written import Exercises

TASKS = Exercises("21", first_triton_kernel, {"add": "add", "row_sum": "row_sum", "softmax": "softmax"})
WHOLE, STARTED, judged = TASKS.whole, TASKS.started, TASKS.judged


@pytest.mark.parametrize("name", WHOLE)
def test_the_solution_passes_and_the_starter_is_not_yet_right(name, capsys):
    assert judged(name, WHOLE[name])
    assert not judged(name, STARTED[name])
    said = capsys.readouterr().out
    assert "no kernel has stored anything yet" in said or "stored nothing: is there a tl.store" in said


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("add", "x + y, mask=i < n", "x + y", "tl.store outside its tensor: element 1000 of out_ptr"),
        ("add", "y_ptr + i, mask=i < n", "y_ptr + i", "tl.load outside its tensor: element 1000 of y_ptr"),
        ("add", "tl.load(y_ptr", "tl.load(x_ptr", "element i of x plus element i of y, each once"),
        ("add", "tl.program_id(0) * BLOCK + ", "", "offsets that begin at tl.program_id(0) * BLOCK"),
        ("add", "1024", "256", "128 bits for each lane"),
        ("add", "    add_kernel[", "    return x + y\n    add_kernel[", "no Triton kernel was launched"),
        ("row_sum", ".to(tl.float32)", "", "a sum or product runs in fp16"),
        ("row_sum", ", other=0.0", "", "a load without other="),
        ("row_sum", "row * stride", "row * cols", "the row stride is taken for the row length"),
        ("row_sum", "triton.next_power_of_2(cols)", "cols", "power of"),
        ("row_sum", "tl.sum(", "tl.max(", "this is the maximum of each row: tl.sum adds"),
        ("softmax", " - tl.max(x, axis=0)", "", "exp overflows: subtract the row's maximum first"),
        ("softmax", 'other=float("-inf")', "other=0.0", "other=-inf for a maximum"),
        ("softmax", "y = e / tl.sum(e, axis=0)", "y = e", "divide by the sum"),
        ("softmax", "    softmax_k", "    return x.softmax(1)\n    softmax_k", "no Triton kernel was launched"),
    ],
)
def test_a_usual_first_attempt_is_named(name, old, new, said, capsys):
    assert not judged(name, WHOLE[name], (old, new))
    assert said in capsys.readouterr().out
