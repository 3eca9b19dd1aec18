# SPDX-License-Identifier: MIT
"""Notebooks 00 and 03: their checks accept the solution and answer wrong ones with a hint; samples are labelled."""

from __future__ import annotations

import pytest
import torch

from cdna.predict.specs import gpu
from rocm_guide.common.base import GuideError
from rocm_guide.exercises.inference import check_cache, check_loop, check_padding
from rocm_guide.exercises.start_here import STATEMENTS, WEIGHTS_GB, check_fits, check_kinds, check_prompt
from rocm_guide.models.load import meta_model
from rocm_guide.observe.doctor.first_look import SAMPLES, fields_of, tool_output, torch_checks

KINDS = {"A": "computed", "B": "quoted", "C": "measured", "D": "computed"}


def pad(rows, filler):
    width = max(map(len, rows))
    mask = [[0] * (width - len(r)) + [1] * len(r) for r in rows]
    return [[filler] * (width - len(r)) + r for r in rows], mask


def loop(model, ids, new, *, keep=True, newest=True, more=0, first=False):
    """The solution of exercise 1 of notebook 03, and its usual mistakes."""
    past, text = None, ids
    with torch.inference_mode():
        for _ in range(new + more):
            part = text[:, -1:] if newest and past is not None else text
            out = model(input_ids=part, past_key_values=past, use_cache=keep)
            past = out.past_key_values if keep else None
            text = torch.cat([text, out.logits[:, 0 if first else -1].argmax(-1, keepdim=True)], 1)
    return text[:, : ids.shape[1] + new]


def test_right_answers(capsys):
    assert check_fits(["llama-2-7b", "llama-2-13b", "llama-2-70b"])
    assert check_prompt("[INST] What is LDS? [/INST]")
    assert check_kinds(KINDS)
    assert check_loop(loop)
    assert check_padding(pad)
    assert check_cache(20)
    assert capsys.readouterr().out.count("[OK]") == 6


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: check_fits([]), "llama-2-7b"),
        (lambda: check_fits(["llama-2-7b", "llama-2-13b"]), "138 GB is at most three quarters of 206 GB (192 GiB)"),
        (lambda: check_fits(WEIGHTS_GB), "812 GB"),
        (lambda: check_fits(["gpt-9"]), "gpt-9"),
        (lambda: check_prompt("<s>[INST] What is LDS? [/INST]"), "adds <s> itself"),
        (lambda: check_prompt("[INST]What is LDS?[/INST]"), "count the spaces"),
        (lambda: check_prompt("[INST] What is LDS? [/INST] "), "belongs to the answer"),
        (lambda: check_prompt("[INST] What is LDS? [/INST] Memory. </s>"), "ends an answer"),
        (lambda: check_prompt("What is LDS?"), "between"),
        (lambda: check_kinds({}), "each statement"),
        (lambda: check_kinds({**KINDS, "A": "measured"}), "parameters x 2"),
        (lambda: check_kinds({**KINDS, "B": "measured"}), "data sheet"),
        (lambda: check_kinds({**KINDS, "C": "computed"}), "timed"),
        (lambda: check_kinds({**KINDS, "D": "quoted"}), "division"),
        (lambda: check_loop(lambda *a: loop(*a, keep=False)), "keep the cache"),
        (lambda: check_loop(lambda *a: loop(*a, newest=False)), "other tokens"),
        (lambda: check_loop(lambda *a: loop(*a, first=True)), "other tokens"),
        (lambda: check_loop(lambda *a: loop(*a, more=1)), "7 passes for 6 tokens"),
        (lambda: check_loop(lambda m, ids, new: loop(m, ids, new)[:, ids.shape[1] :]), "yours has (1, 6)"),
        (lambda: check_loop(lambda m, ids, new: None), "shape (1, 14)"),
        (lambda: check_loop(lambda m, ids, new: m(ids).nothing), "it fails"),
        (lambda: check_padding(lambda rows, f: ([r + [f] * (4 - len(r)) for r in rows], [])), "right end"),
        (
            lambda: check_padding(
                lambda rows, f: (pad(rows, f)[0], [[int(t != f) for t in r] for r in pad(rows, f)[0]])
            ),
            "positions, not values",
        ),
        (lambda: check_padding(lambda rows, f: (pad(rows, f)[0], [[1] * 4] * 3)), "0 for padding"),
        (lambda: check_padding(lambda rows, f: (rows, [])), "longest"),
        (lambda: check_padding(lambda rows, f: None), "two lists"),
        (lambda: check_cache(160), "queries"),
        (lambda: check_cache(10), "factor of 2"),
        (lambda: check_cache(1.25), "16"),
        (lambda: check_cache(0.25), "80"),
        (lambda: check_cache(21.47), "GiB"),
        (lambda: check_cache(3), "2 x layers"),
    ],
)
def test_wrong_answers_get_a_hint(call, hint, capsys):
    assert call() is False
    said = capsys.readouterr().out
    assert said.startswith("[HINT]") and hint in said and said.count("\n") == 1


def test_exercise_one_asks_about_true_sizes():
    for name, size in WEIGHTS_GB.items():
        parameters = sum(p.numel() for p in meta_model(f"random:{name}").parameters())
        assert size == pytest.approx(2 * parameters / 1e9, abs=2e-3), name
    assert set(STATEMENTS) == set(KINDS)


def test_samples_hold_the_specification():
    spec = gpu("MI300X")
    info = fields_of(SAMPLES["rocminfo"], agent="gfx")
    assert info["Name"] == spec.arch and spec.name in info["Marketing Name"]
    assert int(info["Compute Unit"]) == spec.units and int(info["SIMDs per CU"]) == spec.simds
    assert info["L2"].startswith(str(int(spec.l2_mib / spec.dies * 1024)))
    assert info["L3"].startswith(str(spec.l3_mib * 1024)) and info["L1"].startswith(str(spec.l1_kib))
    assert info["Wavefront Size"].startswith(str(spec.lanes))
    assert info["Max Waves Per CU"].startswith(str(spec.simds * spec.max_waves))
    smi = fields_of(SAMPLES["amd-smi"])
    assert smi["TARGET_GRAPHICS_VERSION"] == spec.arch and int(smi["NUM_COMPUTE_UNITS"]) == spec.units


def _tool(folder, name, script):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_real_output_is_shown_as_real(tmp_path, monkeypatch):
    _tool(tmp_path, "rocm-smi", "echo all is well")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = tool_output("rocm-smi")
    assert found.real and found.text == "all is well\n" and "printed by this machine" in str(found)


@pytest.mark.parametrize("script", ["exit 1", "echo driver missing; exit 2", "true", "exec sleep 20"])
def test_a_broken_tool_gives_the_labelled_sample(tmp_path, monkeypatch, script):
    _tool(tmp_path, "rocminfo", script)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    found = tool_output("rocminfo", timeout=0.3)
    assert not found.real and found.text == SAMPLES["rocminfo"] and "SAMPLE" in str(found).splitlines()[0]


def test_no_tool_gives_the_labelled_sample(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    for tool in SAMPLES:
        assert "SAMPLE" in str(tool_output(tool)).splitlines()[0]
    with pytest.raises(GuideError, match="nvidia-smi"):
        tool_output("nvidia-smi")


def test_the_gpu_is_read_and_not_the_cpu_before_it():
    cpu = "*******\nAgent 1\n*******\n  Name:   AMD EPYC\n  Compute Unit:   96\n  SIMDs per CU:   0\n"
    assert fields_of(cpu + SAMPLES["rocminfo"].replace("…", "2"), agent="gfx")["Compute Unit"] == "304"
    assert fields_of(cpu + SAMPLES["rocminfo"])["Compute Unit"] == "96"
    with pytest.raises(GuideError, match="gfx"):
        fields_of(cpu, agent="gfx")


def test_torch_is_asked_what_the_guide_asks():
    answers = torch_checks()
    assert answers["torch.cuda.is_available()"] in ("True", "False") and len(answers) >= 5
