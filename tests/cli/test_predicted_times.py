# SPDX-License-Identifier: MIT
"""Beside every time that a command predicts stand its bound, its likely time, how far likely times lie from published
ones, and what the bound does not charge."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cdna.predict.published import accuracy, caveat
from cdna.predict.times import LEFT_OUT
from rocm_guide.observe.predict import LEFT_OUT as LAUNCHES
from rocm_guide.tune.ck.grid import LEFT_OUT as CK

ROOT = Path(__file__).parents[2]
INSPECT = ("cdna.cli.main", "inspect", "double.py::double", "--run")
SEARCH = ("rocm_guide.cli.main", "ck", "search", "512x512x512", "--top", "2")
#: Command -> words of its bound and of its likely time, and what its models do not charge.
SHOWN = {
    INSPECT: ("takes at least", "likely ", (LEFT_OUT["launch"],)),
    SEARCH: ("bound", "likely", (CK,)),
    ("cdna.predict.published",): (
        "bound",
        "likely",
        tuple(LEFT_OUT[kind] for kind in ("product", "attention", "bytes")),
    ),
}
#: Whatever computes a time of an MI300X that somebody is shown -> the command that shows it. The models themselves, and
#: what writes the shipped predictions, show nothing.
CALLS = re.compile(r"\blikely\(|\.likely\b|\b(?:model|product|attention|likely)_time\(|\bpredict_product\(")
SHOWS = {
    "cdna/cdna/cli/inspect/text.py": INSPECT,
    "cdna/cdna/predict/published.py": ("cdna.predict.published",),
    "rocm_guide/cli/ck.py": SEARCH,
}
MODELS = {
    "cdna/cdna/predict/achieved.py",
    "cdna/cdna/predict/gemm_prediction.py",
    "cdna/cdna/predict/times.py",
    "rocm_guide/observe/loops.py",
    "rocm_guide/tune/ck/grid.py",
}


DOUBLE = """import torch
import triton
import triton.language as tl


@triton.jit
def double(x, y, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, 2 * tl.load(x + at))


def example():
    double[(1,)](torch.ones(64), torch.empty(64), BLOCK=64)
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "double.py").write_text(DOUBLE)
    return tmp_path


def printed(folder, command, *more):
    done = subprocess.run([sys.executable, "-m", *command, *more], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("command", SHOWN, ids=lambda c: " ".join(Path(word).name for word in c))
def test_a_predicted_time_is_never_alone(command, folder):
    bound, likely, not_charged = SHOWN[command]
    text = printed(folder, command)
    for words in (bound, likely, str(accuracy()), "not charge", *not_charged):
        assert words in text


def test_whatever_predicts_a_time_is_in_these_tables():
    files = [p for folder in ("cdna/cdna", "rocm_guide", "course", "hub") for p in (ROOT / folder).rglob("*.py")]
    callers = {str(p.relative_to(ROOT)) for p in files if CALLS.search(p.read_text("utf-8"))}
    assert callers == {*SHOWS} | MODELS
    assert {*SHOWS.values()} == {*SHOWN}


@pytest.mark.parametrize(
    ("command", "bound", "likely", "not_charged"),
    [
        (INSPECT, "model_us", "likely_us", {LEFT_OUT["launch"]}),
        (SEARCH, "bound_seconds", "likely_seconds", {CK}),
    ],
)
def test_in_json_too(folder, command, bound, likely, not_charged):
    found = json.loads(printed(folder, command, "--json"))
    rows = [row.get("executed", row) for row in (found.values() if isinstance(found, dict) else found)]
    assert rows and all(row[bound] and row[likely] > 0 for row in rows)
    assert {row["caveat"] for row in rows} == {caveat(text) for text in not_charged}


@pytest.mark.parametrize("text", [*LEFT_OUT.values(), CK, LAUNCHES])
def test_what_is_left_out_names_what_every_model_lacks(text):
    # No model fetches a line twice; all but the sum of bytes have a clock, which falls under load.
    assert "lines fetched twice" in text and ("clock below its peak" in text or "everything but" in text)


def test_each_kind_of_prediction_has_words_of_its_own():
    texts = [*LEFT_OUT.values(), CK, LAUNCHES]
    assert len({*texts}) == len(texts)
