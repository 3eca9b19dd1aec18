# SPDX-License-Identifier: MIT
"""Predictions for an MI300X: the shipped ones belong to today's kernels, stand on a model, and are read quickly."""

import json
import subprocess
import sys
from dataclasses import replace
from functools import partial

import pytest
import torch
import triton
from typer.testing import CliRunner

from cdna.predict.published import _data, attention_time
from cdna.predict.specs import gpu
from course.__main__ import app
from rocm_guide.kernels.attention import Tile, attention_forward
from rocm_guide.observe.measure import predict, predictions
from rocm_guide.observe.measure.cases import CASES, Case, _attention, predicted_us
from rocm_guide.observe.measure.predict import (
    _cycles,
    _executed,
    case_source,
    launches_of,
    predict_case,
    with_memory,
)
from rocm_guide.observe.measure.predictions import (
    PredictionError,
    parse_predictions,
    read_predictions,
    write_predictions,
)

MADE_WITH = parse_predictions((predictions.package_folder() / "data/mi300x_predictions.json").read_text())[0]
same_compiler = pytest.mark.skipif(
    triton.__version__ != MADE_WITH, reason=f"predictions were made with triton {MADE_WITH}; here {triton.__version__}"
)
QUICK = ["rms_norm bf16 32768 x 8192", "skinny fp8 16 x 2304 x 16384", "ladder tiled fp16 4096"]


def test_every_case_has_one_and_none_beats_the_roofline():
    found = read_predictions()
    assert list(found) == list(CASES)
    for name, p in found.items():
        assert p.us >= 0.999 * predicted_us(CASES[name], gpu("MI300X")), name
        assert p.launches and all(x.workgroups > 0 and 0 < x.waves <= 8 and x.cycles > 0 for x in p.launches)
    assert len(found["decode bf16 16 x 32/8 heads x 8192 x 128"].launches) == 2


def test_a_causal_launch_has_the_share_of_the_published_points():
    full, causal = (read_predictions()[f"attention {c}bf16 32 x 4096 x 128"] for c in ("", "causal "))
    counted = [attention_time(1, 32, 4096, 4096, 128, causal=c).parts["compute units"] for c in (False, True)]
    share = causal.parts["compute units"] / full.parts["compute units"]
    assert counted[1] / counted[0] == pytest.approx(share, rel=0.1)


@same_compiler
@pytest.mark.slow
def test_the_published_attention_points_stand_on_the_cycles_of_this_kernel():
    """With 16 x 16 matrix instructions and the compiler's rounding, as in the kernels that were published."""

    def make():
        q = torch.empty(1, 32, 4096, 128, dtype=torch.bfloat16, device="cuda")
        return [partial(attention_forward, q, q, q, tile=Tile(128, 32, 4))]

    p = predict_case(Case("attention", "34", make, 1, 1, "bf16"))
    counted = attention_time(1, 32, 4096, 4096, 128)
    assert counted.parts["compute units"] == pytest.approx(p.parts["compute units"], rel=0.01)


@same_compiler
@pytest.mark.slow
def test_heads_of_64_take_the_cycles_that_were_counted():
    cycles = {}
    for keys in (512, 1024):
        case = Case("attention", "34", partial(_attention, False, 1, keys, 64), 1, 1, "bf16")
        ((compiled, grid, arguments, _),) = launches_of(lambda case=case: case.make()[0]())
        runs = _executed(compiled, grid, {n: with_memory(v) for n, v in arguments.items()}, 0, None)
        cycles[keys] = [_cycles(runs, groups, 0) for groups in (1, 2)]
    for groups, counted in enumerate(("one", "two")):
        start, each = _data()["attention"]["64"][counted]
        assert (cycles[1024][groups] - cycles[512][groups]) / 512 == pytest.approx(each, rel=0.01)
        assert cycles[1024][groups] == pytest.approx(start + 1024 * each, rel=0.02)


def test_a_rung_has_the_model_of_its_notebook_and_no_roofline():
    """One roofline would be 841 us for both: the naive rung issues a load for each product, the tiled one for eight."""
    found = {n: p for n, p in read_predictions().items() if n.startswith("ladder")}
    times = [p.us for p in found.values()]
    assert times[0] > 2 * times[1] > 20 * times[2] and found["ladder naive fp16 4096"].limit == "compute units"


@same_compiler
@pytest.mark.parametrize("name", CASES)
def test_the_shipped_predictions_belong_to_these_kernels(name):
    fix = f"the kernels of {name!r} have changed: python -m course predict {name.split()[0]}"
    assert read_predictions()[name].source == case_source(CASES[name]), fix


def test_a_digest_follows_kernel_options_and_charges(monkeypatch):
    from cdna.examples import gemm_ladder

    case = CASES["ladder tiled fp16 4096"]
    before = case_source(case)
    assert case_source(case) == before
    with monkeypatch.context() as m:
        m.setattr(predict, "L2_BYTES", 1024)
        assert case_source(case) != before
    rungs = list(gemm_ladder.RUNGS)
    for change in ({"constants": {"BM": 32, "BN": 64}}, {"options": {"num_warps": 8}}, {"kernel": rungs[2].kernel}):
        if "kernel" in change:
            change["constants"] = rungs[2].constants
        with monkeypatch.context() as m:
            m.setattr(gemm_ladder, "RUNGS", (rungs[0], replace(rungs[1], **change), *rungs[2:]))
            assert case_source(case) != before, change


@same_compiler
@pytest.mark.parametrize("name", QUICK)
def test_the_model_still_says_what_was_shipped(name):
    now, kept = predict_case(CASES[name]), read_predictions()[name]
    assert now.parts == pytest.approx(kept.parts, rel=1e-3) and now.launches == kept.launches


def test_a_workgroup_of_a_row_kernel_by_hand():
    """Each row of 8,192 bf16 is read and written once, and its weight read: 3 x 128 lines, and one for 1 / rms."""
    p = predict_case(CASES[QUICK[0]])
    (launched,) = p.launches
    lines = launched.workgroups * (3 * 128 + 1)
    assert p.parts["L2"] == pytest.approx(lines * 128 / (2048 * 8 * 2100), rel=1e-3)
    assert launched.workgroups == 32768 and launched.rounds == pytest.approx(
        32768 / (304 * launched.resident), abs=0.01
    )


def test_sums_that_are_extrapolated_go_on_as_they_began(monkeypatch):
    """The loop of a product is executed for two short lengths of K; a longer one gives what these promised."""
    case = CASES["gemm bf16 4096"]
    (launch,) = predict.launches_of(lambda: case.make()[0]())
    arguments = {n: predict.with_memory(v) for n, v in launch[2].items()}
    short = predict._executed(launch[0], launch[1], arguments, 0, (512, 1024))
    long = predict._executed(launch[0], launch[1], arguments, 0, (512, 2048))[1:]
    assert predict._cycles(short, 1, 2048.0) == pytest.approx(predict._cycles(long, 1, 0.0), rel=0.02)
    assert predict._asked(short, 2048.0) == predict._asked(long, 0.0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d.update(format="other"), "another format"),
        (lambda d: d.update(gpu="H200"), "another format or GPU"),
        (lambda d: d["cases"]["gemm bf16 4096"].pop("launches"), "KeyError"),
        (lambda d: d["cases"]["gemm bf16 4096"]["parts"].update(HBM=-1), "no positive time"),
        (lambda d: d.update(cases=[]), "AttributeError"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, change, said):
    path = write_predictions(read_predictions().values(), tmp_path / "p.json")
    assert parse_predictions(path.read_text())[1] == read_predictions()
    data = json.loads(path.read_text())
    change(data)
    with pytest.raises(PredictionError, match=said):
        parse_predictions(json.dumps(data))
    with pytest.raises(PredictionError, match="write them with python -m course predict"):
        parse_predictions(path.read_text()[:200])


def test_the_command_replaces_what_it_is_asked_for(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    monkeypatch.setattr(predictions, "package_folder", lambda: tmp_path)
    done = CliRunner().invoke(app, ["predict", "ladder tiled"])
    assert done.exit_code == 0, done.output
    written = parse_predictions((tmp_path / "data/mi300x_predictions.json").read_text())[1]
    assert list(written) == list(CASES) and "limited by compute units" in done.output
    done = CliRunner().invoke(app, ["predict", "nosuch"])
    assert done.exit_code != 0 and "nosuch" in f"{done.output}{done.exception}"


def test_the_list_compiles_nothing():
    code = (
        "import sys; from typer.testing import CliRunner; from rocm_guide.cli.main import app\n"
        "done = CliRunner().invoke(app, ['measure', '--list', '--json'])\n"
        "assert done.exit_code == 0 and '\"compute units\"' in done.output\n"
        "print(*{'torch', 'triton'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert not done.stdout.split()
