# SPDX-License-Identifier: MIT
"""The bandwidth test: right byte counts, right results of the streams, and bad input named."""

from __future__ import annotations

import pytest
import torch

from cdna.predict.specs import GPUS
from rocm_guide.common.base import GuideError
from rocm_guide.common.drawn_gpus import draw_compute_unit, draw_gpu, draw_owners, draw_wave
from rocm_guide.observe.profiling import bandwidth
from rocm_guide.observe.profiling.bandwidth import measure_bandwidth


def test_bytes_and_rates():
    found = measure_bandwidth(1 << 20, runs=5)
    assert {name: b.bytes >> 20 for name, b in found.items()} == {"read": 1, "write": 1, "copy": 2, "triad": 3}
    for b in found.values():
        assert b.gb_s == pytest.approx(b.bytes / b.timing.median / 1e9)
        assert b.spread_gb_s >= 0


def test_streams_compute_what_they_say():
    calls = bandwidth._torch_streams(1024, "cpu")
    assert float(calls["read"]()) == 0
    assert bool((calls["write"]() == 1).all())
    assert bool((calls["copy"]() == 0).all())
    assert bool((calls["triad"]() == 2).all())


@pytest.mark.parametrize(
    "bad",
    [
        lambda: measure_bandwidth(10),
        lambda: measure_bandwidth(1 << 20, engine="triton"),
        lambda: measure_bandwidth(1 << 20, engine="hip"),
    ],
)
def test_bad_input_is_named(bad):
    with pytest.raises(GuideError, match="="):
        bad()


@pytest.mark.gpu
@pytest.mark.skipif(
    not torch.cuda.is_available(),
    reason="needs a CUDA or ROCm GPU; notebook 20 measures the same there",
)
def test_on_a_gpu_both_engines_stay_below_the_specified_bandwidth():
    for engine in ("torch", "triton"):
        found = measure_bandwidth(1 << 28, "cuda", engine=engine)
        assert all(b.gb_s < 8000 for b in found.values())


def test_every_gpu_can_be_drawn():
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    for spec in GPUS.values():
        for draw in (draw_wave, draw_compute_unit, draw_gpu):
            ax = draw(spec)
            assert spec.name in ax.get_title(loc="left")
            plt.close("all")
    assert draw_owners([[0, 1], [2, 3]], title="t", what="wave").get_legend() is not None
    plt.close("all")
