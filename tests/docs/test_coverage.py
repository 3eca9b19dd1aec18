# SPDX-License-Identifier: MIT
"""docs/coverage.md and docs/errata.md name what is there: notebooks with those headings, rows, files, and commands that
answer as the row beside them says.
"""

import functools
import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KINDS = ("taught", "corrected", "answered")
#: A notebook, and the headings that follow it in italics; none where the whole notebook is meant.
PLACE = re.compile(r"notebook (\d\d)((?:,? \*[^*]+\*)*)")

#: How each command of the errata ends, and what it prints, by a piece of it that no other has.
SAYS = {
    "int8_rounded": (0, "[0, 16]"),
    "table int8_gemm": (0, "with a matrix D"),
    "operator_table": (0, "W8A8BFP32OFP32Linear"),
    "transformers=4.33.2": (1, "Invalid requirement: 'transformers=4.33.2'"),
    "torch.bmm": (0, "[32, 32]"),
    "i.lds_bytes": (0, "131072 24672"),
    "--set AK1=3": (1, "[FAIL] AK1=3: KPerBlock=32 is no multiple of it"),
    "i.DsDataType": (0, "('Col', ('F16',), 32) ('Row', (), 32) ('Row', (), 16)"),
    "grep CDEElementwiseOperation": (0, "AddRelu,"),
    "13x4096x4096": (0, "[OK]"),
    "256x4096x1020": (1, "[FAIL] K=1020"),
    "--torch-extension": (0, "dim() == 1"),
    "gfx1201": (0, "8 0"),
    "1.07575e9": (0, "119.77598780385777 89.676"),
    "--set NXdlPerWave=4": (1, "[FAIL] NXdlPerWave=4: CK ignores it and takes 2"),
    "matrix_operations": (0, "{'i8'}"),
}


def table(name):
    """Return the rows of all tables of a document, without their heads, as cells with ``|`` for Markdown's ``\\|``."""
    lines = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8").splitlines()
    heads = {i for i, line in enumerate(lines[:-1]) if re.fullmatch(r"\|[-|:]+\|", lines[i + 1])}
    rows = [line for i, line in enumerate(lines) if line.startswith("| ") and i not in heads]
    return [[c.strip().replace(r"\|", "|") for c in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]


COVERAGE, ERRATA = table("coverage"), table("errata")


@functools.cache
def headings(number):
    """Return the headings of a notebook, without the number that stands before them."""
    (path,) = (ROOT / "notebooks").glob(f"{number}_*.ipynb")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    texts = ("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    lines = re.findall(r"^#+ (.+)$", "\n".join(re.sub(r"^```.*?^```", "", t, flags=re.M | re.S) for t in texts), re.M)
    return {re.sub(r"^\d+( ·|\.) ", "", line.strip()) for line in lines}


def wrong_places(cell):
    """Yield what a cell names that is not there, and what of it was not understood."""
    for number, italics in PLACE.findall(cell):
        if not list((ROOT / "notebooks").glob(f"{number}_*.ipynb")):
            yield f"no notebook {number}"
        else:
            yield from (f"{number}: no {h!r}" for h in re.findall(r"\*([^*]+)\*", italics) if h not in headings(number))
    # What is left must hold no number or italics that the pattern has passed over.
    rest = re.sub(r"`[^`]*`|“[^”]*”", "", PLACE.sub("", cell))
    yield from (f"not read: {found}" for found in re.findall(r"notebooks? \d+|\*[^*]+\*|section \d+", rest))
    yield from (f"no file {path}" for path in re.findall(r"(?<!\S)[\w/]+\.py\b", rest) if not (ROOT / path).is_file())


def errata_rows(piece):
    """Return the rows whose first column is this, or else contains it."""
    cells = [row[0].replace("`", "") for row in ERRATA]
    return [c for c in cells if c == piece.strip()] or [c for c in cells if piece.strip() in c]


def commands():
    """Return the commands in the last column of the errata, each once."""
    spans = [span for row in ERRATA for span in re.findall(r"`([^`]+)`", row[2])]
    return list(dict.fromkeys(s for s in spans if s.startswith(("python ", "pip ", "rocm-guide ", "cdna ", "git "))))


@pytest.mark.parametrize("row", COVERAGE + ERRATA, ids=lambda row: row[0][:50])
def test_what_a_row_names_is_there(row):
    assert len(row) == 3 and all(part for i, part in enumerate(row) if i != 1 or row in COVERAGE)
    assert not list(wrong_places(row[2]))


@pytest.mark.parametrize("row", COVERAGE, ids=lambda row: row[0][:50])
def test_an_entry_says_where(row):
    _, kind, where = row
    assert kind in KINDS
    named = re.findall("“([^”]+)”", where)
    assert all(len(errata_rows(piece)) == 1 for piece in named), [(p, errata_rows(p)) for p in named]
    assert PLACE.search(where)
    assert kind != "corrected" or named, "the row of the errata"


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("xFormers in Diffusers and Stable Diffusion", "`pipe.enable_xformers_memory_efficient_attention()`"),
        ("The blog's container, and PDM on the host (listings)", "`docker compose run blog`, and `pdm sync`"),
    ],
)
def test_what_is_no_subject_of_the_course_is_answered_where_a_reader_looks(entry, words):
    ((_, kind, where),) = [row for row in COVERAGE if row[0] == entry]
    number, heading = re.match(r"notebook (\d\d), \*([^*]+)\*", where).groups()
    cells = json.loads(next((ROOT / "notebooks").glob(f"{number}_*.ipynb")).read_text(encoding="utf-8"))["cells"]
    assert kind == "answered" and [
        c for c in cells if words in "".join(c["source"]) and heading in "".join(c["source"])
    ]


def test_the_counts_at_the_top_are_those_of_the_tables():
    top = " ".join((ROOT / "docs/coverage.md").read_text(encoding="utf-8").split("\n\n")[1].split())
    said = re.search(r"(\d+) entries, of which (\d+) are taught, (\d+) corrected and (\d+) answered", top)
    found = Counter(kind for _, kind, _ in COVERAGE)
    assert [int(n) for n in said.groups()] == [len(COVERAGE), *(found[kind] for kind in KINDS)]


def test_nothing_stands_twice():
    for found in (Counter(row[0] for row in ERRATA), Counter(map(tuple, COVERAGE))):
        assert not [entry for entry, n in found.items() if n > 1]


@pytest.mark.parametrize("row", ERRATA, ids=lambda row: row[0][:50])
def test_an_erratum_is_shown(row):
    shown = row[2]
    assert PLACE.search(shown) or "https://" in shown or any(command in shown for command in commands())


def test_a_wrong_name_is_found():
    assert not list(wrong_places('notebook 03, *The pipeline*; notebook 02; `python -c "print(2 * 3, 4 * 5)"`'))
    assert list(wrong_places("notebook 99")) == ["no notebook 99"]
    assert list(wrong_places("notebook 03, *A pipeline*")) == ["03: no 'A pipeline'"]
    assert list(wrong_places("notebooks 03, 04")) == ["not read: notebooks 03"]
    assert list(wrong_places("notebook 03, section 2")) == ["not read: section 2"]
    assert list(wrong_places("benchmarks/none.py")) == ["no file benchmarks/none.py"]


def test_every_command_is_known():
    for command in commands():
        assert len([piece for piece in SAYS if piece in command]) == 1, command
    assert not [piece for piece in SAYS if not any(piece in command for command in commands())]


@pytest.mark.slow
@pytest.mark.parametrize("command", commands())
def test_a_command_answers_as_its_row_says(command, tmp_path):
    ((code, said),) = [end for piece, end in SAYS.items() if piece in command]
    for name, module in (("rocm-guide", "rocm_guide.cli.main"), ("pip", "pip"), ("python", "")):
        start = [sys.executable, "-W", "ignore", *(("-m", module) if module else ())]
        (tmp_path / name).write_text(f'#!/bin/sh\nexec {shlex.join(start)} "$@"\n')
        (tmp_path / name).chmod(0o755)
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": f"{ROOT}:{ROOT}/cdna"}
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert (done.returncode, said in done.stdout + done.stderr) == (code, True), (done.stdout, done.stderr)
