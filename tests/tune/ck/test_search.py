# SPDX-License-Identifier: MIT
"""Grid, prediction, search, drawings, and the command."""

import json

import pytest

from cdna.predict.published import accuracy
from rocm_guide.tune.ck.grid import estimated_registers, launch, predict
from rocm_guide.tune.ck.instance import CkError, GemmInstance, Problem
from rocm_guide.tune.ck.presets import PRESETS
from rocm_guide.tune.ck.rules import check
from rocm_guide.tune.ck.search import base_for, candidates, search

GUIDE = Problem(3840, 4096, 4096)


def test_no_candidate_needs_more_registers_than_cks_launch_bounds_leave():
    """__launch_bounds__(256, 2) asks for two waves a SIMD: 256 sums would fill a lane's 256 registers."""
    found = list(candidates(PRESETS["document_prose"], GUIDE))
    assert max(i.accumulators for i in found) == 128
    assert all(estimated_registers(i) <= 256 for i in found)
    large = PRESETS["document_prose"].but(NPerBlock=256, NXdlPerWave=4)
    assert large.accumulators == 256 and estimated_registers(large) == 256, "the rest would be spilled"
    assert all((c.instance.MPerBlock, c.instance.NPerBlock) != (256, 256) for c in search(large, GUIDE, 5))


def test_the_grid_of_the_guides_product():
    g = launch(PRESETS["document_prose"], GUIDE)
    assert (g.groups, g.resident, g.most, g.useful) == (480, 2, 2, 1.0) and round(g.busy, 3) == 0.789
    assert launch(PRESETS["document_prose"], Problem(64, 4096, 4096)).useful == 0.25


def test_registers_are_estimated_near_what_the_compiler_took():
    from cdna.inspection import inspect_assembly
    from rocm_guide.tune.ck.build import SHIPPED, assemble

    for instance, problem in SHIPPED.values():
        vgprs = inspect_assembly(assemble(instance, problem))[0].resources.vgprs
        assert abs(estimated_registers(instance) - vgprs) <= 45


def test_a_prediction_is_no_faster_than_any_of_its_parts_and_grows_with_the_problem():
    p = predict(PRESETS["document_prose"], GUIDE)
    assert p.seconds > max(p.matrix, p.lds, p.l1, p.turns, p.memory) and p.limit == "matrix"
    peak = GUIDE.flops / 1307.4e12
    assert p.matrix >= peak / 0.79  # the busiest unit has more than its share
    assert predict(PRESETS["document_prose"], Problem(7680, 4096, 4096)).seconds > p.seconds


@pytest.mark.parametrize(("dtype", "layout"), [("F16", "Col"), ("F16", "Row"), ("I8", "Col"), ("BF16", "Row")])
def test_generated_instances_obey_the_rules_and_keep_types_and_layouts(dtype, layout):
    problem = Problem(1000, 1008, 1024)
    base = base_for(dtype, layout)
    found = list(candidates(base, problem))
    assert len(found) > 100 and len(set(found)) == len(found)
    assert all(not check(i, problem) for i in found[::7])
    assert {(i.ADataType, i.BLayout, i.CDEElementwiseOperation) for i in found} == {
        (dtype, layout, base.CDEElementwiseOperation)
    }
    best = search(base, problem, top=5)
    times = [c.prediction.seconds for c in best]
    assert times == sorted(times) and len(best) == 5
    assert times[0] <= min(predict(i, problem).seconds for i in found)


def test_few_rows_get_small_tiles_and_unknown_types_a_line():
    assert search(base_for("F16"), Problem(16, 4096, 4096), top=1)[0].instance.MPerBlock == 32
    with pytest.raises(CkError, match="dtype='F64': choose from F16, BF16, I8"):
        base_for("F64")


@pytest.mark.parametrize("name", ["document_prose", "document_run", "example_today", "int8_small", "one_wave"])
def test_drawings_show_the_parameters(name):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from rocm_guide.tune.ck.drawings import draw_epilogue, draw_lds, draw_loads, draw_tiles

    i = PRESETS[name]

    def texts(figure):
        out = {t.get_text() for ax in figure.axes for t in [*ax.texts, ax.xaxis.label, ax.yaxis.label]}
        out |= {ax.get_title(loc="left") for ax in figure.axes}
        plt.close(figure)
        return out

    tiles = texts(draw_tiles(i, Problem(4 * i.MPerBlock, 2 * i.NPerBlock, 64)))
    assert {"E: 4 x 2 workgroups", f"one tile: {i.waves} waves", f"MPerBlock = {i.MPerBlock}"} <= tiles
    assert f"w{i.waves - 1}" in tiles
    bits = i.ABlockTransferSrcScalarPerVector * {"F16": 16, "I8": 8}[i.ADataType]
    assert {f"A by rows: {bits} bits a load", "t0", "t1"} <= texts(draw_loads(i))
    assert {"ABlockLdsExtraM = 0", "m0", "m1"} <= texts(draw_lds(i))
    assert "t0" in texts(draw_epilogue(i))


def test_the_command_prints_json_and_says_that_times_are_predicted(capsys):
    from typer.testing import CliRunner

    from rocm_guide.cli.ck import app

    runner = CliRunner()
    done = runner.invoke(app, ["search", "256x256x256", "--top", "2", "--json"])
    rows = json.loads(done.stdout)
    assert len(rows) == 2
    first = {k: tuple(v) if isinstance(v, list) else v for k, v in rows[0]["instance"].items()}
    assert not check(GemmInstance(**first), Problem(256, 256, 256))
    assert (
        rows[0]["bound_seconds"] < rows[0]["likely_seconds"] and rows[0]["bound_seconds"] < rows[0]["predicted_seconds"]
    )
    text = runner.invoke(app, ["search", "256x256x256", "--top", "1"]).stdout
    assert "not measured" in text and str(accuracy()) in text
    assert f"{rows[0]['likely_seconds'] * 1e6:.1f} us" in text and f"{rows[0]['bound_seconds'] * 1e6:.1f} us" in text
    refused = runner.invoke(app, ["check", "document_prose", "256x256x256", "--set", "AK1=3"])
    assert refused.exit_code == 1 and "[FAIL] AK1=3" in refused.stdout
    assert runner.invoke(app, ["check", "document_prose", "256x256x256"]).stdout.startswith("[OK]   24,672 B of LDS")
    source = runner.invoke(app, ["source", "one_wave", "32x32x32", "--set", "DsDataType=F16"]).stdout
    assert "static_assert(desc.IsValid()" in source
