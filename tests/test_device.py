# SPDX-License-Identifier: MIT
"""Device helpers and the house plots, on whatever machine this is."""

import subprocess
import sys

import pytest
import torch

from rocm_guide.common import device, plots
from rocm_guide.common.base import GuideError
from rocm_guide.common.device import Timing, accelerator, clock, peak_memory, pick_dtype, seed_all, time_call


def test_accelerator_describes_this_machine():
    found = accelerator()
    assert found.is_gpu == torch.cuda.is_available() and found.count >= 1 and found.memory_bytes > 2**28
    assert torch.__version__.split("+")[0] in found.label()


def test_time_call_reports_the_median_without_warm_up(monkeypatch):
    """The clock is a list: five runs of 1, 2, 3, 5 and 40 ms; the two calls before them are not looked at."""
    calls, spans = [], [3e-3, 1e-3, 40e-3, 2e-3, 5e-3]
    readings = iter([t for i, span in enumerate(spans) for t in (float(i), i + span)])
    monkeypatch.setattr(device, "clock", lambda name=None: next(readings))
    timing = time_call(lambda: calls.append(1), runs=5, warmup=2, device="cpu")
    assert len(calls) == 7 and timing.runs == 5
    assert timing.median == pytest.approx(3e-3) and timing.spread == pytest.approx((22.5e-3 - 1.5e-3) / 2)
    with pytest.raises(GuideError, match="runs=0"):
        time_call(lambda: None, runs=0)


def test_one_value_has_no_spread_and_three_have_half_their_range():
    assert Timing.of([7.0]) == Timing(7.0, 0.0, 1)
    assert Timing.of([1.0, 5.0, 2.0]) == Timing(2.0, 2.0, 3)


def test_the_clock_waits_for_the_gpu_it_is_asked_about(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    assert clock("cpu") <= clock("cuda:1") <= clock()
    assert waited == ["cuda:1", None]


def test_peak_memory_sees_an_allocation_that_is_gone_again():
    with peak_memory("cpu") as before:
        pass
    with peak_memory("cpu") as peak:
        block = bytearray(b"x" * 200_000_000)
        del block
    assert peak.bytes - before.bytes > 150_000_000 and "resident" in peak.what


def test_seed_all_repeats_and_dtype_follows_the_device():
    seed_all(7)
    first = torch.rand(3)
    seed_all(7)
    assert torch.equal(first, torch.rand(3)) and pick_dtype("cpu") is torch.float32


def test_every_house_plot_has_labels_title_and_hardware():
    import matplotlib.pyplot as plt

    made = [
        plots.lines({"a": ([1, 2], [3, 4]), "b": ([1, 2], [1, 1])}, x="step", y="loss", title="t", hardware="CPU"),
        plots.bars({"a": 2.0, "b": 1.0}, unit="ms", title="t", baseline="b", spread={"a": 0.1}, hardware="CPU"),
        plots.stacked_bars({"a": {"x": 1.0, "y": 2.0}}, unit="GB", title="t", limit=("full", 2.5)),
        plots.staircase([1, 2, 3], [8, 7, 7], x="VGPRs", y="waves", title="t", marks={"ours": (2, 7)}),
        plots.strip({"GPU 0": [("layers", 3.0)], "GPU 1": [("head", 1.0)]}, x="GB", title="t"),
        plots.timeline({"GPU 0": [(0, 1, "busy")], "GPU 1": [(1, 1, "busy"), (0, 1, "idle")]}, x="ms", title="t"),
        plots.roofline(1307.4, 5.3, {"GEMM": (100.0, 300.0)}, title="t", hardware="MI300X"),
    ]
    for ax in made:
        assert ax.get_xlabel() or ax.get_ylabel()
        assert ax.get_title(loc="left") == "t"
        ax.figure.canvas.draw()
    assert any("(2.00x)" in text.get_text() for text in made[1].texts), "the ratio to the baseline"
    assert any("3" in text.get_text() for text in made[2].texts), "the total on the column"
    assert len(made[5].get_legend().get_texts()) == 2
    plt.close("all")


def test_axes_can_be_read():
    import matplotlib.pyplot as plt

    share = plots.bars({"before": 0.0, "after": 97.0}, unit="exact match (%)", title="t")
    share.figure.canvas.draw()
    shown = [t.get_text() for t in share.get_xticklabels()]
    assert shown[-1] == "100", "no share is larger than 100 %"
    assert share.get_xlim()[1] > 105, "and there is room for the figure behind the bar"
    powers = plots.lines({"a": ([1, 8, 64], [900, 4000, 20000])}, x="n", y="1/s", title="t", log_x=True, log_y=True)
    powers.figure.canvas.draw()
    assert {"8", "64"} <= {t.get_text() for t in powers.get_xticklabels()}
    assert "10,000" in {t.get_text() for t in powers.get_yticklabels()}
    points = {"triad": (0.2, 1.0), "norm": (1.0, 5.3), "token": (0.999, 5.295)}
    roof = plots.roofline(1307.4, 5.3, points, lower={"vector": 163.4}, title="t", hardware="MI300X")
    norm, token = (next(m for m in roof.lines if m.get_label() == name) for name in ("norm", "token"))
    assert norm.get_markersize() > token.get_markersize() and norm.get_fillstyle() == "none", "both can be seen"
    assert any(set(m.get_ydata()) == {163.4} for m in roof.lines), "the roof of other units"
    few, many = (plots.bars({str(i): 1.0 for i in range(n)}, unit="ms", title="t") for n in (2, 9))
    assert few.figure.get_figheight() < many.figure.get_figheight()
    plt.close("all")


@pytest.mark.parametrize("columns", [1, 2, 3])
@pytest.mark.parametrize(("title", "hardware"), [("Measured", "CPU x86_64, 2 cores"), ("T" * 24, "CPU " + "x" * 52)])
def test_title_and_hardware_never_lie_upon_each_other(columns, title, hardware):
    import matplotlib.pyplot as plt
    from matplotlib.text import Text

    plots.house_style()
    figure, axes = plt.subplots(1, columns, figsize=(10, 3.8), squeeze=False)
    for ax in axes[0]:
        plots.lines({"a": ([1, 2], [3, 4])}, x="x", y="y", title=title, hardware=hardware, ax=ax)
    figure.canvas.draw()
    for ax in axes[0]:
        texts = {t.get_text(): t.get_window_extent() for t in ax.findobj(Text)}
        left, right = texts[ax.get_title("left")], texts[hardware]
        lowest = left.y1 - left.height / (1 + ax.get_title("left").count("\n"))  # of the line with the title
        assert left.x1 < right.x0 or right.y1 < lowest
    plt.close("all")


def test_bfloat16_is_chosen_where_it_is_fast(monkeypatch):
    """torch says yes to bfloat16 on a GPU that emulates it; there float16 is right."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
    assert pick_dtype("cuda") is torch.float16
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: True)
    assert pick_dtype("cuda:1") is torch.bfloat16


def test_a_cpus_time_is_without_new_pages_for_every_block():
    """In a process of its own, whose allocator has freed nothing large: 300 blocks of 2 MiB are 153,600 pages."""
    code = """if True:
        import resource, torch
        from rocm_guide.common.device import time_call
        kept = torch.randn(256, 2048), torch.ones(2048)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        time_call(lambda: [torch.ones(1 << 19) for _ in range(6)], runs=50, device="cpu")
        print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 20_000
