# SPDX-License-Identifier: MIT
"""The model of a kernel's launches on an MI300X: by hand, and as the published points were counted."""

import pytest
import torch
import triton

from cdna.predict.published import _data, attention_time
from cdna.step.timeline import timeline
from rocm_guide.kernels.attention import Tile, attention_forward
from rocm_guide.kernels.rms_norm import rms_norm_forward
from rocm_guide.observe.predict import executed, launches_of, predict_launches

COUNTED_WITH = "3.9.0"
same_compiler = pytest.mark.skipif(
    triton.__version__ != COUNTED_WITH, reason=f"cycles were counted with triton {COUNTED_WITH}"
)


def on_gpu(*shape):
    return torch.empty(*shape, dtype=torch.bfloat16, device="cuda")


def attention(keys, size, tile=None, heads=32):
    def call():
        q, k = on_gpu(1, heads, keys, size), on_gpu(1, heads, keys, size)
        attention_forward(q, k, k, **({"tile": tile} if tile else {}))

    return call


@same_compiler
@pytest.mark.slow
def test_the_published_attention_points_stand_on_the_cycles_of_this_kernel():
    """With 16 x 16 matrix instructions and the compiler's rounding, as in the kernels that were published."""
    p = predict_launches(attention(4096, 128, Tile(128, 32, 4)), 1)
    counted = attention_time(1, 32, 4096, 4096, 128)
    assert counted.parts["compute units"] == pytest.approx(p.parts["compute units"], rel=0.01)


@same_compiler
@pytest.mark.slow
def test_heads_of_64_take_the_cycles_that_were_counted():
    """With the compiler's rounding, as in the kernels that were published."""
    cycles = {}
    for keys in (512, 1024):
        ((compiled, grid, arguments, _),) = launches_of(attention(keys, 64, Tile(128, 64, 4), heads=1))
        run = executed(compiled, grid, arguments)
        cycles[keys] = [timeline(run, groups=groups).cycles for groups in (1, 2)]
    for groups, counted in enumerate(("one", "two")):
        start, each = _data()["attention"]["64"][counted]
        assert (cycles[1024][groups] - cycles[512][groups]) / 512 == pytest.approx(each, rel=0.01)
        assert cycles[1024][groups] == pytest.approx(start + 1024 * each, rel=0.02)


def test_a_workgroup_of_a_row_kernel_by_hand():
    """Each row of 8,192 bf16 is read and written once, and its weight read: 3 x 128 lines, and one for 1 / rms."""
    p = predict_launches(lambda: rms_norm_forward(on_gpu(32768, 8192), on_gpu(8192)), 4 * 32768 * 8192)
    (launched,) = p.launches
    lines = launched.workgroups * (3 * 128 + 1)
    assert p.parts["L2"] == pytest.approx(lines * 128 / (2048 * 8 * 2100), rel=1e-3)
    assert p.parts["HBM"] == pytest.approx(4 * 32768 * 8192 / 5.3e6) and p.us == max(p.parts.values())
    assert launched.workgroups == 32768
    assert launched.rounds == pytest.approx(32768 / (304 * launched.resident), abs=0.01)
