# SPDX-License-Identifier: MIT
"""The model's time is the busiest part of the GPU, charged with what was executed."""

import pytest
import torch

from cdna.predict import HardwareError, gpu, likely, model_time
from cdna.run import RunError, executed_on_gfx942
from rocm_guide.kernels.gemm import GemmTile, gemm
from rocm_guide.kernels.softmax import softmax_forward


def executed(call, **options):
    with executed_on_gfx942(**options) as done:
        call()
    return done.launches[0].result


def test_a_matrix_product_is_charged_by_operations_and_lines():
    a, b = torch.ones(64, 256).half(), torch.ones(256, 64).half()
    result = executed(lambda: gemm(a, b, tile=GemmTile(64, 64, 64, 4)))
    model = model_time(result)
    assert model.units == result.machine.total == 1
    # One compute unit does 2,048 operations in a clock of 2,100 MHz.
    assert model.parts["matrix cores"] == pytest.approx(2 * 64 * 64 * 256 / 2048 / 2100)
    lines = (2 * 64 * 256 + 64 * 64) * 2 // 128  # A, B and the fp16 result; arrays start where a line starts, or not
    assert lines <= result.counters.distinct_lines <= lines + 3
    assert model.parts["HBM"] == pytest.approx(result.counters.distinct_lines * 128 / 5.3e6)
    assert model.microseconds == max(model.parts.values()) == model.parts[model.limit]
    assert model.matrix == model.parts["matrix cores"] and likely(model).microseconds > model.microseconds


def test_more_workgroups_share_the_work_and_bytes_are_set_against_a_floor():
    x = torch.randn(8, 1024).half()
    one, eight = executed(lambda: softmax_forward(x[:1])), executed(lambda: softmax_forward(x))
    floor = 2 * 1024 * 2
    assert one.counters.traffic(floor) == eight.counters.traffic(8 * floor) == 1.0
    if eight.machine.total == 8 * one.machine.total:
        assert model_time(eight).parts["vector ALU"] == pytest.approx(model_time(one).parts["vector ALU"])
    assert eight.counters.summary()["loaded"] == 8 * one.counters.summary()["loaded"]


def test_what_the_model_cannot_know_is_refused():
    x = torch.randn(1, 64)
    counted, result = executed(lambda: softmax_forward(x)), executed(lambda: softmax_forward(x), count=False)
    with pytest.raises(HardwareError, match="count=False"):
        model_time(result)
    with pytest.raises(RunError, match="count=False"):
        result.counters.traffic(100)
    with pytest.raises(HardwareError, match=r"H100.*gfx942"):
        model_time(counted, gpu("H100"))
    with pytest.raises(RunError, match="least=0"):
        counted.counters.traffic(0)
