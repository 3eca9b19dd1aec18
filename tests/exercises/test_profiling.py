# SPDX-License-Identifier: MIT
"""The exercises of notebooks 40, 41 and 42 accept the solution and refuse the obvious wrong answers."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from rocm_guide.exercises import debugging_faults, profiling, system_tuning
from rocm_guide.observe.profiling.amd.reader import read_profile, roofline_rows
from rocm_guide.observe.profiling.torch_trace.summary import summarize
from rocm_guide.observe.system.apply import apply_settings
from rocm_guide.observe.system.machine import wanted_settings
from rocm_guide.observe.system.pretend import pretend_machine

SAMPLES = Path(__file__).parents[2] / "notebooks" / "recorded"


def hinted(capsys, hint: str, verdict: bool) -> None:
    """The answer was refused, with this hint."""
    assert verdict is False
    assert hint in capsys.readouterr().out.splitlines()[-1]


def test_culprit(capsys):
    summary = summarize(SAMPLES / "decode_b32.json.gz")
    assert profiling.check_culprit("CatArrayBatchedCopy", summary)
    assert "[OK]" in capsys.readouterr().out
    for wrong, hint in (
        ("flash", "another kernel"),
        ("gemm_nothing", "in no kernel"),
        ("", "telling"),
        ("n", "telling"),
    ):
        hinted(capsys, hint, profiling.check_culprit(wrong, summary))


def test_idle_share(capsys):
    def right(spans):
        spans, until, busy = sorted(spans), min(s for s, _ in spans), 0.0
        first = until
        for start, took in spans:
            busy += max(0.0, start + took - max(start, until))
            until = max(until, start + took)
        return 1 - busy / (until - first)

    assert profiling.check_idle_share(right)

    def naive(spans):
        return 1 - sum((d for _, d in spans)) / (spans[-1][0] + spans[-1][1] - spans[0][0])

    hinted(capsys, "stream", profiling.check_idle_share(naive))


def test_bound(capsys):
    points = roofline_rows(read_profile(SAMPLES / "rocprofv3_counter_collection.csv"))
    good = {"Cijk": "compute", "fmha": "compute", "rms_norm": "memory", "act_and_mul": "memory"}
    assert profiling.check_bound(good, points)
    hinted(capsys, "ridge", profiling.check_bound(good | {"fmha": "memory"}, points))
    hinted(capsys, "no answer", profiling.check_bound({"Cijk": "compute"}, points))


def test_address(capsys):
    assert debugging_faults.check_address(0x1000 + 4 * 405, 2, 5, base=0x1000, columns=200)
    hinted(capsys, "bytes", debugging_faults.check_address(0x1000 + 405, 2, 5, base=0x1000, columns=200))
    hinted(capsys, "base", debugging_faults.check_address(7, 2, 5, base=0x1000, columns=200))
    hinted(capsys, "whole number", debugging_faults.check_address(None, 2, 5, base=0x1000, columns=200))


def test_environment(capsys):
    from rocm_guide.observe.debugging.faults.hunting_env import hunt_environment

    assert debugging_faults.check_environment(hunt_environment(agent="lib", save_code="co", precise=True))
    for wrong, hint in (
        ({}, "HSA_TOOLS_LIB"),
        ({"HSA_TOOLS_LIB": "lib"}, "cache"),
        (hunt_environment(agent="lib", save_code="co"), "precise"),
        (hunt_environment(agent="lib", precise=True), "save-code"),
    ):
        hinted(capsys, hint, debugging_faults.check_environment(wrong))


def test_path(capsys):
    torch = pytest.importorskip("torch")
    from rocm_guide.observe.debugging.examples import plant_wrong_weight

    torch.manual_seed(0)
    model = torch.nn.ModuleDict({"a": torch.nn.Linear(4, 4), "b": torch.nn.Sequential(torch.nn.Linear(4, 4))})
    for seed in range(6):
        wrong = plant_wrong_weight(model, seed)
        changed = [n for n, p in model.named_parameters() if bool((p != dict(wrong.named_parameters())[n]).any())]
        assert len(changed) == 1
        assert debugging_faults.check_path(changed[0].rpartition(".")[0], model, wrong)
        hinted(capsys, "", debugging_faults.check_path("elsewhere", model, wrong))
    changed = copy.deepcopy(model)
    with torch.no_grad():
        changed["b"][0].weight[0, 0] += 1
    hinted(capsys, "innermost", debugging_faults.check_path("b", model, changed))
    hinted(capsys, "equal", debugging_faults.check_path("b", model, model))


def test_machine(capsys, tmp_path):
    machine = pretend_machine(tmp_path, levels=("high", "auto"))
    hinted(capsys, "left, the first", system_tuning.check_machine(machine))
    apply_settings(wanted_settings(machine, clock=1500), machine, tmp_path / "s.json")
    hinted(capsys, "1900", system_tuning.check_machine(machine))
    apply_settings(wanted_settings(machine, clock=1900), machine, tmp_path / "s.json")
    assert system_tuning.check_machine(machine)


def test_saving_and_partition(capsys):
    assert system_tuning.check_saving(2, 1333, 30, 2e-3 * 1333 / 30)
    hinted(capsys, "not per cent", system_tuning.check_saving(2, 1333, 30, 8.887))
    hinted(capsys, "microseconds", system_tuning.check_saving(2, 1333, 30, 0.5))
    assert system_tuning.check_partition((8, 38, 24), dies=8, units=304, memory_gib=192)
    hinted(capsys, "three numbers", system_tuning.check_partition((8, 38), dies=8, units=304, memory_gib=192))
    for wrong in ((4, 76, 48), (8, 304, 24), (8, 38, 192)):
        hinted(capsys, "not it", system_tuning.check_partition(wrong, dies=8, units=304, memory_gib=192))
