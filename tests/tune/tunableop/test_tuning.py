# SPDX-License-Identifier: MIT
"""Offline tuning with resume, the time it takes, the command line."""

import json
import os
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cdna.children import call_in_child, run_child
from rocm_guide.cli.tunable import app
from rocm_guide.common.base import GuideError
from rocm_guide.tune.tunableop.files import read_file, write_file
from rocm_guide.tune.tunableop.gemm import parse_gemm
from rocm_guide.tune.tunableop.tuning import share_out, tune_file, visible_device

SAMPLES = Path(__file__).parents[2] / "samples" / "tunableop"
LINES = [f"GemmTunableOp_Half_TN,tn_{n}_8_64_ld_64_64_{n}" for n in range(8, 120, 8)]


def fake_worker(gpu, untuned, results, budget_ms):
    """Stands for PyTorch's tuner: appends one result line after the other."""
    with open(results, "a") as out:
        out.write("Validator,PT_VERSION,2.11.0\n")
        for gemm in read_file(untuned).gemms.values():
            out.write(f"{gemm.line()},Gemm_Rocblas_{gpu},0.5\n")
            out.flush()


def dying_worker(gpu, untuned, results, budget_ms):
    """Dies after three products, in the middle of the fourth line."""
    with open(results, "a") as out:
        out.write("Validator,PT_VERSION,2.11.0\n")
        for gemm in list(read_file(untuned).gemms.values())[:3]:
            out.write(f"{gemm.line()},Gemm_Hipblaslt_{gpu},0.25\n")
        out.write("GemmTunableOp_Half_TN,tn_8")
    os._exit(9)


@pytest.fixture
def untuned(tmp_path):
    return write_file(tmp_path / "untuned.csv", [parse_gemm(line) for line in LINES])


def test_tuning_goes_on_where_it_died(untuned, tmp_path):
    results = tmp_path / "results.csv"
    with pytest.raises(GuideError, match=r"ended with code 9; 8 products left"):
        tune_file(untuned, results, gpus=2, worker=dying_worker)
    kept = read_file(results)
    assert len(kept.tuned) == 6
    seen = []
    done = tune_file(untuned, results, gpus=3, worker=fake_worker, progress=lambda n, total: seen.append((n, total)))
    assert len(done.tuned) == len(LINES)
    assert done.gemms.items() >= kept.gemms.items()
    assert seen[-1] == (len(LINES), len(LINES))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["results.csv", "untuned.csv"]
    assert done.validators == {"PT_VERSION": "2.11.0"}


def test_what_a_killed_run_left_is_collected_and_cleared(untuned, tmp_path):
    """The parent was killed too: part files of eight GPUs lie there, one with half a line, and now there is one GPU."""
    results = tmp_path / "results.csv"
    head = "Validator,PT_VERSION,2.11.0\n"
    for gpu, line in ((0, LINES[0]), (7, LINES[1])):
        (tmp_path / f"results.gpu{gpu}.csv").write_text(f"{head}{line},Gemm_Rocblas_9,0.125\nGemmTunableOp_Half_T")
        (tmp_path / f"results.gpu{gpu}.untuned.csv").write_text("")
    seen = []
    done = tune_file(untuned, results, gpus=1, worker=fake_worker, progress=lambda *found: seen.append(found))
    assert [done.gemms[parse_gemm(line).key].time_ms for line in LINES[:3]] == [0.125, 0.125, 0.5]
    assert len(done.tuned) == len(LINES)
    assert max(n for n, _ in seen) == len(LINES)
    assert not (tmp_path / "results.gpu7.csv").exists()


def test_results_of_another_environment_are_refused_before_the_work(untuned, tmp_path):
    results = tmp_path / "results.csv"
    results.write_text(f"Validator,PT_VERSION,2.4.0\n{LINES[0]},Default,0.5\n")
    before = results.read_bytes()
    with pytest.raises(GuideError, match=r"PT_VERSION is 2\.4\.0 in the file and 2\.11\.0 here.*name a new file"):
        tune_file(untuned, results, worker=dying_worker, validators={"PT_VERSION": "2.11.0"})
    assert results.read_bytes() == before


def test_each_process_is_shown_the_right_gpu():
    assert [visible_device(i, {}) for i in (0, 3)] == ["0", "3"]
    assert visible_device(1, {"HIP_VISIBLE_DEVICES": "4, 6", "CUDA_VISIBLE_DEVICES": "0,1"}) == "6"
    assert visible_device(0, {"CUDA_VISIBLE_DEVICES": "GPU-9ab"}) == "GPU-9ab"


def test_nothing_left_to_do_starts_no_process(untuned, tmp_path):
    results = tmp_path / "results.csv"
    tune_file(untuned, results, worker=fake_worker)
    before = results.read_bytes()
    tune_file(untuned, results, worker=dying_worker)
    assert results.read_bytes() == before
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    with pytest.raises(GuideError, match="lists no product"):
        tune_file(empty, results, worker=fake_worker)


def test_sharing_is_complete_and_balanced():
    gemms = [parse_gemm(f"GemmTunableOp_Half_TN,tn_{64 * i}_256_4096") for i in range(1, 40)]
    parts = share_out(gemms, 4)
    assert sorted(g.m for part in parts for g in part) == [g.m for g in gemms]
    sums = [sum(g.m for g in part) for part in parts]
    assert max(sums) < 1.1 * min(sums)
    with pytest.raises(GuideError, match="gpus=0"):
        share_out(gemms, 0)


def test_a_process_that_dies_is_reported():
    with pytest.raises(GuideError, match="ended with code 3"):
        call_in_child(os._exit, status=3)
    with pytest.raises(GuideError, match="_exit: the process ended without an answer"):
        call_in_child(os._exit, status=0)
    with pytest.raises(GuideError, match=r"longer than 0\.2 s"):
        run_child("import time; time.sleep(60)", seconds=0.2)


def run(*args):
    return CliRunner().invoke(app, [str(a) for a in args])


def test_plan_command(tmp_path):
    out = tmp_path / "u.csv"
    r = run("plan", "random:gpt2", "--prompt", "5:12", "--new-tokens", 4, "--pad", 8, "--cache", "static", "-o", out)
    assert r.exit_code == 0, r.output
    planned = read_file(out)
    assert f"{len(planned.gemms)} products to tune" in r.output
    assert "transformer.h.*.attn.c_attn" in r.output
    assert "\x1b[" not in r.output
    r = run("plan", "random:gpt2", "--prompt", "5,9", "--new-tokens", 2, "--json")
    data = json.loads(r.stdout)
    assert data["products"] == len(data["gemms"]) and data["tuning_s"][0] < data["tuning_s"][1]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("plan", "random:gpt2", "--prompt", "many"), "--prompt many"),
        (("plan", "random:gpt2", "--dtype", "int8"), "--dtype"),
        (("plan", "random:gpt2", "--attention", "flash"), "--attention flash"),
        (("plan", "random:gpt2", "--cache", "big"), "cache=big"),
        (("plan", "random:gpt2", "--batch", "0"), "--batch"),
        (("plan", "random:gpt2", "--tensor-parallel", "2"), "--tensor-parallel 2, --gpu MI300X: only with --covers"),
        (("plan", "random:gpt2", "--gpu", "MI355X"), "--gpu MI355X: only with --covers"),
        (("plan", "random:gpt2", "--covers", "a.csv", "--out", "b.csv"), "--out b.csv: not with --covers"),
        (("plan", "random:gpt2", "--covers", "absent.csv"), "absent.csv: cannot be read"),
        (("merge", "absent.csv"), "cannot be read"),
    ],
)
def test_command_errors_name_the_value(args, words):
    r = run(*args)
    # Options that the parser checks end there with exit code 2; the rest is for our own error.
    said = str(r.exception) if isinstance(r.exception, GuideError) else r.output
    assert isinstance(r.exception, GuideError) or r.exit_code == 2, r.exception
    assert words in re.sub(r"\s+", " ", said), said


def test_check_explain_and_merge(tmp_path):
    assert run("check", SAMPLES / "results_torch2.6.csv").exit_code == 0
    broken = tmp_path / "broken.csv"
    broken.write_text("GemmTunableOp_Half_TN,tn_8\n")
    r = run("check", broken)
    assert r.exit_code == 1 and "[WARN]" in r.output
    a, b = tmp_path / "a.csv", tmp_path / "b.csv"
    a.write_text("".join(f"{line},Default,0.5\n" for line in LINES[:9]))
    b.write_text("".join(f"{line},Gemm_Rocblas_1,0.25\n" for line in LINES[5:]))
    merged = tmp_path / "m.csv"
    assert run("merge", a, b, "-o", merged).exit_code == 0
    assert len(read_file(merged).tuned) == len(LINES)
    text = run("check", a, "--explain").output
    assert f"{LINES[0]},Default,0.5\nY[8, 8] = X[8, 64] @ W[8, 64].T, in float16" in text
    assert "Y[8, 8]" not in run("check", a).output
    found = json.loads(run("check", a, "--json", "--explain").output)
    assert found["tuned"] == 9 and len(found["explained"]) == 9 and "explained" not in run("check", a, "--json").output


def test_tune_without_a_gpu_says_what_to_do(untuned, tmp_path):
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert "needs a GPU" in str(run("tune", untuned, tmp_path / "r.csv").exception)
