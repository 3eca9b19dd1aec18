# SPDX-License-Identifier: MIT
"""Notebook 05: its checks accept the solution and answer wrong ones with a hint."""

import runpy

import pytest

from rocm_guide.cli.lessons import cell_source, notebooks_folder, read_notebook
from rocm_guide.exercises.several_gpus import check_elastic, check_strategy, check_traffic


def needed(n, p):
    return {"ddp": 16 * n, "zero2": 4 * n + 16 * n / p, "zero3": 16 * n / p}


def first(sizes, most=165e9):
    return next((name for name, size in sizes.items() if size <= most), "none")


def ring(ddp=2, zero2=2, zero3=3):
    times = {"ddp": ddp, "zero2": zero2, "zero3": zero3}
    return lambda name, n, p: times[name] * 4 * n * (p - 1) / p


@pytest.mark.parametrize(
    "call",
    [
        lambda: check_strategy(lambda n, p: first(needed(n, p))),
        lambda: check_traffic(ring()),
        lambda: check_elastic("6:8", 25),
        lambda: check_elastic("6:8", 10),
    ],
)
def test_right_answers(call, capsys):
    assert call() is True
    assert capsys.readouterr().out.startswith("[OK]")


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: check_strategy(lambda n, p: first(needed(n, p), 206e9)), "needs 166.4 GB"),
        (lambda: check_strategy(lambda n, p: first({**needed(n, p), "zero2": 16 * n / p})), '"zero2" needs'),
        (lambda: check_strategy(lambda n, p: first({**needed(n, p), "zero2": 8 * n + 8 * n / p})), "stands before it"),
        (lambda: check_strategy(lambda n, p: "zero3"), "stands before it"),
        (lambda: check_strategy(lambda n, p: first({"ddp": 16 * n})), '"zero2" fits'),
        (lambda: check_strategy(lambda n, p: first(needed(n, p)).replace("none", "zero3")), '"zero3" needs'),
        (lambda: check_strategy(lambda n, p: first(needed(n, p)).upper()), "is none of"),
        (lambda: check_strategy(lambda n: "ddp"), "positional argument"),
        (lambda: check_traffic(lambda name, n, p: 8 * n), "do not depend"),
        (lambda: check_traffic(lambda name, n, p: ring()(name, n, p) / p), "share of one process"),
        (lambda: check_traffic(lambda name, n, p: ring()(name, n, p) / 4), "numbers, of 4 bytes"),
        (lambda: check_traffic(ring(ddp=1)), "two messages"),
        (lambda: check_traffic(ring(zero3=2)), "again for the backward pass"),
        (lambda: check_traffic(ring(zero2=5)), "2 messages of"),
        (lambda: check_traffic(lambda name, n, p: None), "float"),
        (lambda: check_elastic("8", 25), "least:most"),
        (lambda: check_elastic("6:8", 26), "all lost"),
        (lambda: check_elastic("6:8", 1), "writing them"),
        (lambda: check_elastic("6:8", 0), "1 or more"),
        (lambda: check_elastic(None, None), "least:most"),
        (lambda: check_elastic("8:6", 25), "least:most"),
    ],
)
def test_wrong_answers_get_a_hint(call, hint, capsys):
    assert call() is False
    said = capsys.readouterr().out
    assert said.startswith("[HINT]") and hint in said and said.count("\n") == 1


def test_every_device_is_named(tmp_path):
    """Two processes on two GPUs are not said to be on the last one."""
    (path,) = notebooks_folder().glob("05_*.ipynb")
    sources = "\n".join(map(cell_source, read_notebook(path)["cells"]))
    (line,) = (line for line in sources.splitlines() if line.startswith("places = "))
    for devices, said in ((("cuda:0", "cuda:1"), "cuda:0, cuda:1"), (("cpu", "cpu"), "cpu")):
        room = {"watched": {"ddp": ([{"device": device} for device in devices], {})}}
        (tmp_path / "line.py").write_text(line)
        assert runpy.run_path(str(tmp_path / "line.py"), room)["places"] == said
    assert "processes on {places}:" in sources
