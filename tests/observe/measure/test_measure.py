# SPDX-License-Identifier: MIT
"""Files of `rocm-guide measure`: what is written, read, refused and compared; cases compile for gfx942."""

import json

import pytest
import torch
from typer.testing import CliRunner

from cdna.dry_run import dry_run
from cdna.examples.gemm_ladder import RUNGS
from cdna.predict.published import accuracy
from cdna.predict.specs import gpu
from rocm_guide.cli.main import app
from rocm_guide.observe.measure.cases import _RUNGS, CASES, predicted_us
from rocm_guide.observe.measure.compare import draw_merged, likely_time, merged_table, shares
from rocm_guide.observe.measure.predictions import read_predictions
from rocm_guide.observe.measure.results import FORMAT, MeasureError, check_result, measure, read_result


def result(**cases):
    cases = cases or {"gemm bf16 8192": {"us": 1200.0, "spread_us": 3.0, "runs": 5, "graph": True}}
    return {
        "format": FORMAT,
        "hardware": {"name": "AMD Instinct MI300X", "versions": {"torch": "2.11.0"}},
        "cases": cases,
    }


def test_the_prediction_is_the_roofline_by_hand():
    mi300x = gpu("MI300X")
    assert predicted_us(CASES["stream copy 512 MiB"], mi300x) == pytest.approx(2 * 2**29 / 5.3e6)
    assert predicted_us(CASES["ladder pipelined fp16 4096"], mi300x) == pytest.approx(2 * 4096**3 / 1307.4e6, rel=1e-3)
    assert predicted_us(CASES["ladder naive fp16 4096"], mi300x) == pytest.approx(2 * 4096**3 / 163.4e6, rel=1e-3)
    assert tuple(r.name for r in RUNGS) == _RUNGS


@pytest.mark.parametrize(
    "name",
    [
        "stream triad 512 MiB",
        "skinny fp8 16 x 2304 x 16384",
        "ladder naive fp16 4096",
        "decode bf16 16 x 32/8 heads x 8192 x 128",
    ],
)
def test_a_case_launches_its_kernel(name):
    with dry_run("gfx942", device="meta") as run:
        for call in CASES[name].make()[:1]:
            call()
    assert run.reports and not run.reports[0].resources.vgpr_spills


def legend(ax):
    return {t.get_text() for t in ax.get_legend().get_texts()}


def test_files_side_by_side(tmp_path):
    one, other = result(), result(**{"stream copy 512 MiB": {"error": "RuntimeError: no"}})
    other["hardware"]["name"] = "Some GPU"
    text = merged_table([one, other])
    model = read_predictions()["gemm bf16 8192"].us
    assert f"1,200.0 us ({model / 1200:.0%})" in text and "failed" in text and "841.0 us" in text
    assert shares(one)["gemm bf16 8192"] == pytest.approx(model / 1200) and shares(other) == {}
    path = tmp_path / "a.json"
    path.write_text(json.dumps(one))
    assert read_result(path) == one
    picture = tmp_path / "a.svg"
    done = CliRunner().invoke(app, ["measure", "--merge", str(path), "--plot", str(picture)])
    assert done.exit_code == 0 and "1,200.0 us" in done.output and picture.read_text().startswith("<?xml")


def test_a_prediction_is_compared_with_the_gpu_that_it_is_for():
    """The MI300X's model with an MI300X, a roofline with the GPU of its data sheet, and nothing with an unknown GPU."""
    cases = {"ladder naive fp16 4096": {"us": 20000.0, "spread_us": 9.0}}
    files = {n: result(**cases) for n in ("AMD Instinct MI300X", "NVIDIA H200", "Some GPU")}
    for name, r in files.items():
        r["hardware"]["name"] = name
    mine, roof = read_predictions()["ladder naive fp16 4096"].us, predicted_us(CASES[next(iter(cases))], gpu("H200"))
    assert shares(files["AMD Instinct MI300X"]) == pytest.approx({next(iter(cases)): mine / 20000})
    assert shares(files["NVIDIA H200"]) == pytest.approx({next(iter(cases)): roof / 20000})
    assert shares(files["Some GPU"]) == {}
    text = merged_table(list(files.values()))
    assert "AMD Instinct MI300X: measured; in brackets predicted / measured, predicted by the model" in text
    assert "NVIDIA H200: measured; in brackets predicted / measured, predicted by the roofline of its data" in text
    assert "Some GPU: measured; nothing here predicts this GPU, so nothing is compared" in text
    own = "MI300X: predicted by the model of each kernel; not measured"
    assert own in legend(draw_merged([files["NVIDIA H200"]]))
    both = legend(draw_merged([files["NVIDIA H200"], files["AMD Instinct MI300X"]]))
    assert own not in both and "AMD Instinct MI300X: predicted by the model of each kernel" in both
    assert "NVIDIA H200: predicted by the roofline of its data sheet" in both
    # An unknown GPU has points, and nothing that they are joined to.
    ax = draw_merged([files["Some GPU"]])
    likely = {t for t in legend(ax) if t.startswith("MI300X: likely; median error ")}
    assert len(likely) == 1 and legend(ax) == {"Some GPU: measured, torch 2.11.0", own} | likely
    assert likely < both


def test_the_likely_time_stands_beside_the_bound_with_its_distance_from_what_was_published():
    done = CliRunner().invoke(app, ["measure", "--list"])
    assert done.exit_code == 0 and "MI300X, likely: the same parts at the rates that people measured" in done.output
    assert str(accuracy()) in done.output
    said = json.loads(CliRunner().invoke(app, ["measure", "--list", "--json"]).output)
    assert list(said) == list(CASES)
    for name, found in said.items():
        assert found["likely_us"] == likely_time(name).microseconds > found["us"] == read_predictions()[name].us
        assert f"{found['us']:,.1f} us" in done.output and f"{found['likely_us']:,.1f} us" in done.output
    # Matrix cores slow the clock, vector units do not: AMD's library reached 654 to 708 TFLOPS, the peak is 1,307.
    assert 500 < 2 * 8192**3 / said["gemm bf16 8192"]["likely_us"] / 1e6 < 710
    naive = said["ladder naive fp16 4096"]
    assert naive["likely_us"] == pytest.approx(naive["us"] + 2.1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": "other"}, "no file of rocm-guide measure"),
        ({"hardware": {}}, "does not name its hardware"),
        ({"cases": {}}, "no cases"),
        ({"cases": {"x": {"us": float("nan")}}}, "case x has neither"),
        ({"cases": {"x": {"us": -1}}}, "case x has neither"),
        ({"cases": {"x": 3}}, "case x has neither"),
    ],
)
def test_a_damaged_file_is_named(change, said):
    with pytest.raises(MeasureError, match=said):
        check_result({**result(), **change}, "a.json")


def test_what_is_no_file(tmp_path):
    path = tmp_path / "cut.json"
    path.write_text(json.dumps(result())[:50])
    with pytest.raises(MeasureError, match=r"cut\.json: cannot be read"):
        read_result(path)
    with pytest.raises(MeasureError, match=r"gone\.json"):
        read_result(tmp_path / "gone.json")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU, so there is nothing to refuse")
def test_without_a_gpu_one_line_says_so(tmp_path):
    with pytest.raises(MeasureError, match="no GPU here"):
        measure(["stream copy 512 MiB"])
    with pytest.raises(MeasureError, match="case nothing"):
        measure(["nothing"])


def test_the_shipped_result_can_be_read():
    from pathlib import Path

    shipped = Path(__file__).parents[3] / "benchmarks/results/measure_h200.json"
    found = read_result(shipped)
    assert "H200" in found["hardware"]["name"] and set(found["cases"]) == set(CASES)
    assert "measured; in brackets" in merged_table([found]) and len(draw_merged([found]).get_yticks()) == len(CASES)
