# SPDX-License-Identifier: MIT
"""Drivers, offline tuning with resume, the search and its log, the command line."""

import json
import os
import random
import re
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cdna.children import call_in_child, run_child
from rocm_guide.cli.tunable.command import app
from rocm_guide.common.base import GuideError
from rocm_guide.tune.tunableop.experiments import apply_mode, compare_matmul, time_matmul, time_model
from rocm_guide.tune.tunableop.files import parse_text, read_file, write_file
from rocm_guide.tune.tunableop.gemm import parse_gemm
from rocm_guide.tune.tunableop.search import find_fastest, parse_log
from rocm_guide.tune.tunableop.tuning import share_out, tune_file, visible_device

SAMPLES = Path(__file__).parents[2] / "samples" / "tunableop"
FUZZ = int(os.environ.get("ROCM_GUIDE_FUZZ", "300"))
LINES = [f"GemmTunableOp_Half_TN,tn_{n}_8_64_ld_64_64_{n}" for n in range(8, 120, 8)]


def fake_worker(gpu, untuned, results, budget_ms, iterations):
    """Stands for PyTorch's tuner: appends one result line after the other."""
    with open(results, "a") as out:
        out.write("Validator,PT_VERSION,2.11.0\n")
        for gemm in read_file(untuned).gemms.values():
            out.write(f"{gemm.line()},Gemm_Rocblas_{gpu},0.5\n")
            out.flush()


def dying_worker(gpu, untuned, results, budget_ms, iterations):
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


def test_modes_and_processes():
    with pytest.raises(GuideError, match="mode=fast"):
        apply_mode("fast")
    with pytest.raises(GuideError, match="needs a GPU"):
        call_in_child(time_matmul, m=8, n=8, k=8, device="cpu", mode="tune", iterations=1)
    row = time_matmul(16, 24, 32, iterations=3, device="cpu")
    assert len(row["per_s"]) == 5 and row["relative_error"] < 1e-5


def test_an_environment_variable_that_would_win_is_named(monkeypatch):
    monkeypatch.setenv("PYTORCH_TUNABLEOP_ENABLED", "1")
    with pytest.raises(GuideError, match=r"PYTORCH_TUNABLEOP_ENABLED=1: the environment wins over mode=off; unset it"):
        apply_mode("off", device="cuda")


def test_a_process_that_dies_is_reported():
    with pytest.raises(GuideError, match="ended with code 3"):
        call_in_child(os._exit, status=3)
    with pytest.raises(GuideError, match="_exit: the process ended without an answer"):
        call_in_child(os._exit, status=0)
    with pytest.raises(GuideError, match=r"longer than 0\.2 s"):
        run_child("import time; time.sleep(60)", seconds=0.2)


def test_matmul_and_model_on_a_cpu(tmp_path):
    row = compare_matmul(16, 16, 16, device="cpu", folder=tmp_path, iterations=5)
    assert set(row) == {"off"}
    r = time_model(hidden_size=64, layers=1, new_tokens=4, runs=2, device="cpu")
    assert len(r["tokens"][0]) == 4 and len(r["per_s"]) == 2
    r = time_model(model="tiny", new_tokens=3, runs=1, device="cpu")
    assert len(r["tokens"][0]) == 3


def test_comparison_on_a_gpu_runs_three_processes_in_order(tmp_path, monkeypatch, capsys):
    """What happens with a GPU, with a stand-in for the processes: which modes, which file, which ratio."""
    from rocm_guide.tune.tunableop import experiments as tunableop_run

    seen = []

    def stand_in(target, **kwargs):
        seen.append((target.__name__, kwargs["mode"], kwargs["device"], kwargs.get("file")))
        if kwargs["mode"] == "tune":
            kwargs["file"].write_text("Validator,PT_VERSION,2.11.0\n")
        return {"per_s": {"off": [1.0, 2.0, 9.0], "tune": [1.0], "tuned": [3.0, 5.0, 4.0]}[kwargs["mode"]]}

    monkeypatch.setattr(tunableop_run, "call_in_child", stand_in)
    row = compare_matmul(4, 5, 6, device="cuda", folder=tmp_path / "new", progress=True)
    file = tmp_path / "new" / "time_matmul_results.csv"
    assert seen == [("time_matmul", mode, "cuda", None if mode == "off" else file) for mode in ("off", "tune", "tuned")]
    assert row["speed_up"] == 2.0
    assert row["results"].startswith("Validator")
    assert "tuned" in capsys.readouterr().err


def test_search_finds_the_fastest_and_skips_the_slow():
    counts = {"slow": 0, "fast": 0}

    def work(name, seconds):
        def run():
            counts[name] = counts.get(name, 0) + 1
            time.sleep(seconds)
            return name

        return run

    def broken():
        raise RuntimeError("not for this shape")

    search = find_fastest(
        {"fast": work("fast", 0.002), "slow": work("slow", 0.02), "broken": broken, "wrong": work("wrong", 0.0)},
        check=lambda r: r != "wrong",
        budget_ms=20,
    )
    assert search.winner == "fast"
    assert {t.name: t.outcome for t in search.trials} == {
        "fast": "best",
        "slow": "skipped",
        "broken": "unsupported",
        "wrong": "wrong",
    }
    assert counts["slow"] == 6  # once, two to warm up, three timed
    assert search.best_so_far[0][0] == 1
    with pytest.raises(GuideError, match="none of 1"):
        find_fastest({"broken": broken})


def test_both_limits_and_the_budget_on_a_clock_of_our_own(monkeypatch):
    """Calls cost what they say, so that the limits 1.5x and 1.15x and the budget can be tested to the call."""
    from rocm_guide.tune.tunableop import search as tunableop_search

    clock, calls = [0.0], {}
    monkeypatch.setattr(tunableop_search.time, "perf_counter", lambda: clock[0])

    def costs(name, ms):
        def run():
            calls[name] = calls.get(name, 0) + 1
            clock[0] += ms / 1e3

        return name, run

    given = [("Default", 1.0), ("1.6x", 1.6), ("1.2x", 1.2), ("1.1x", 1.1), ("fast", 0.5), ("tiny", 0.01)]
    search = find_fastest(dict(costs(*one) for one in given))
    assert [(t.name, t.outcome) for t in search.trials] == [
        ("Default", "best"),
        ("1.6x", "skipped"),
        ("1.2x", "skipped late"),
        ("1.1x", "slower"),
        ("fast", "best"),
        ("tiny", "best"),
    ]
    # One call, then 2 + 3, 2 + 10, and 2 + as many as fit into 30 ms, at most 100 (the clock adds in floating point).
    wanted = {"Default": 50, "1.6x": 6, "1.2x": 18, "1.1x": 47, "fast": 80, "tiny": 120}
    assert all(abs(calls[name] - n) <= 1 for name, n in wanted.items()), calls


LOG = """\
noise before
finding fastest for GemmTunableOp_float_NN(nn_1024_512_2048) out of 1068 candidates
├──tuning using warmup iters 1 [1.01 ms] and tuning iters 29 [29.3 ms] instance id=0, GemmTunableOp_float_NN(x) Default
├──found better instance id=0. 0.280746ms. Default
├──unsupported id=1, GemmTunableOp_float_NN(nn_1024_512_2048) Gemm_Rocblas_1074
├──skip slow instance id=811, GemmTunableOp_float_NN(nn_512_1024_2048) Gemm_Rocblas_4381
├──2nd skip slow instance id=812, GemmTunableOp_float_NN(nn_512_1024_2048) Gemm_Rocblas_4382
├──numerics check failed for id=9, GemmTunableOp_float_NN(nn_512_1024_2048) Gemm_Rocblas_5
├──found better instance id=525. 0.0653662ms. Gemm_Hipblaslt_NN_52565 min 0.06 max 0.07 mean 0.065 std 0.001
├──found slower instance id=526. 0.07ms. Gemm_Hipblaslt_NN_52566 min 0.06 max 0.08 mean 0.07 std 0.001
└──found fastest for GemmTunableOp_float_NN(nn_1024_512_2048) Gemm_Hipblaslt_NN_52565
finding fastest for GemmTunableOp_Half_TN(tn_8_8_8_ld_8_8_8) out of 3 candidates
"""


def test_log_of_old_and_new_releases():
    first, second = parse_log(LOG)
    assert [t.outcome for t in first.trials] == [
        "best",
        "unsupported",
        "skipped",
        "skipped late",
        "wrong",
        "best",
        "slower",
    ]
    assert first.best_so_far == [(1, 0.280746), (6, 0.0653662)]
    assert (first.winner, first.candidates) == ("Gemm_Hipblaslt_NN_52565", 1068)
    assert (second.product, second.trials, second.winner) == ("GemmTunableOp_Half_TN,tn_8_8_8_ld_8_8_8", [], "")


def test_damaged_logs_never_raise():
    rng = random.Random(3)
    for cut in range(len(LOG)):
        parse_log(LOG[:cut])
    for _ in range(FUZZ):
        data = list(LOG)
        for _ in range(rng.randint(1, 30)):
            data[rng.randrange(len(data))] = rng.choice("├─└ .,()=0129e+msnGemm\nid")
        for search in parse_log("".join(data)):
            assert all(t.ms is None or t.ms >= 0 for t in search.trials)


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
    data = json.loads(r.output)
    assert data["products"] == len(data["gemms"]) and data["tuning_s"][0] < data["tuning_s"][1]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("plan", "random:gpt2", "--prompt", "many"), "--prompt many"),
        (("plan", "random:gpt2", "--platform", "tpu"), "--platform tpu"),
        (("plan", "random:gpt2", "--dtype", "int8"), "--dtype"),
        (("plan", "random:gpt2", "--attention", "flash"), "--attention flash"),
        (("plan", "random:gpt2", "--cache", "big"), "cache=big"),
        (("plan", "random:gpt2", "--batch", "0"), "--batch"),
        (("explain", "no such line"), "columns"),
        (("merge", "absent.csv"), "cannot be read"),
    ],
)
def test_command_errors_name_the_value(args, words):
    r = run(*args)
    # Options that the parser checks end there with exit code 2; the rest is for our own error.
    said = str(r.exception) if isinstance(r.exception, GuideError) else r.output
    assert isinstance(r.exception, GuideError) or r.exit_code == 2, r.exception
    assert words in re.sub(r"\s+", " ", said), said


def test_check_merge_missing_compare_and_explain(tmp_path, untuned):
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
    assert parse_text(run("missing", untuned, a).output).gemms.keys() == {parse_gemm(x).key for x in LINES[9:]}
    r = run("compare", a, b)
    assert "4 products in both" in r.output and "2.000x in all" in r.output
    assert json.loads(run("compare", a, b, "--json").output)["speed_up"] == 2.0
    r = run("explain", LINES[0], "--model", "random:gpt2", "--prompt", "8")
    assert "never asks for it" in r.output
    # A line of an old release, in float16: the plan takes both from it.
    old = "GemmTunableOp_Half_TN,tn_50257_1_768"
    assert "lm_head: 1 calls in prefill, 127 in decoding" in run("explain", old, "--model", "random:gpt2").output
    never = "GemmTunableOp_Half_TN,tn_8_8_64"
    a.write_text(f"{old},Default,0.4\n{never},Default,0.4\n")
    b.write_text(f"{old},Gemm_Rocblas_1,0.1\n{never},Default,0.4\n")
    r = run("compare", a, b, "--model", "random:gpt2", "--new-tokens", 4)
    assert "4 calls" in r.output and "0 calls" in r.output
    assert "4.000x in all" in r.output and "weighted by the calls of random:gpt2" in r.output
    assert "nothing to compare" in run("compare", a, b, "--model", "random:llama-2-7b", "--new-tokens", 4).output
    a.write_text("".join(f"{line},Default,0.5\n" for line in LINES[:9]))
    assert json.loads(run("check", a, "--json").output)["tuned"] == 9


def test_tune_without_a_gpu_says_what_to_do(untuned, tmp_path):
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert "needs a GPU" in str(run("tune", untuned, tmp_path / "r.csv").exception)
