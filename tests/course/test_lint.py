# SPDX-License-Identifier: MIT
"""The notebook rules: a notebook that keeps them all passes, and each rule broken alone is found."""

import copy
import json
import subprocess
import sys

import pytest

from course.lint import lint_notebook, main
from rocm_guide.cli.lessons import source_hash

FIRST = """# 07 · Title

Why.

**You will be able to**
- do it

| | |
|---|---|
| **Level** | first |
| **Time and memory** | <!-- measured -->3 s<!-- /measured --> |
| **On an MI300X** | more |
| **Covers** | S0 |
"""


def code(source, count, tags=(), outputs=()):
    cell = {"cell_type": "code", "source": source, "execution_count": count, "outputs": list(outputs), "metadata": {}}
    if tags:
        cell["metadata"]["tags"] = list(tags)
    if "solution" in tags:
        cell["metadata"]["jupyter"] = {"source_hidden": True}
    return cell


def text(source):
    return {"cell_type": "markdown", "source": source, "metadata": {}}


def good():
    """A notebook that keeps every rule."""
    cells = [text(FIRST), code("from rocm_guide.observe.doctor.diagnosis import preflight\npreflight()", 1)]
    cells += [code("SCALE = 'auto'\nRANK = 4", 2, ["parameters"]), code("print(SCALE)\nassert RANK > 0", 3)]
    cells += [text("One idea after another, told in a whole sentence for the reader.") for _ in range(18)]
    cells += [text("## Summary\nDone."), text("## Exercises\nThree of them.")]
    cells += [code(f"assert check_part_{i}(1)", 4 + i, ["solution"]) for i in range(3)]
    cells.append(text("## When it goes wrong\n\n| Symptom | Likely cause | Fix |\n|---|---|---|\n| a | b | c |"))
    nb = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    nb["metadata"]["rocm_guide"] = {"source": source_hash(nb)}
    return nb


def errors(nb, tmp_path, *, stamp=True, name="07_topic", level="error"):
    if stamp:
        nb["metadata"]["rocm_guide"] = {"source": source_hash(nb)}
    path = tmp_path / f"{name}.ipynb"
    path.write_text(json.dumps(nb))
    return [f.message for f in lint_notebook(path) if f.level == level]


def test_a_good_notebook_has_no_findings(tmp_path):
    assert errors(good(), tmp_path) == [] == errors(good(), tmp_path, level="warning")


def replace(index, old, new):
    def change(nb):
        assert old in nb["cells"][index]["source"]
        nb["cells"][index]["source"] = nb["cells"][index]["source"].replace(old, new)

    return change


def append(index, more):
    def change(nb):
        nb["cells"][index]["source"] += more

    return change


def output(item):
    def change(nb):
        nb["cells"][3]["outputs"] = [item]

    return change


def edit(function):
    return lambda nb: function(nb["cells"])


BREAKS = [
    (replace(0, "# 07 · Title", "# Title"), "the first line is not '# 07 · Title'"),
    (replace(0, "**You will be able to**", "You learn"), "no '**You will be able to**'"),
    (replace(0, "| **Covers** | S0 |", ""), "no row 'Covers'"),
    (replace(0, "| **On an MI300X** | more |", ""), "no row 'On an MI300X'"),
    (
        replace(0, "| S0 |", "| S0 |\n| Time to read | 45 minutes |"),
        "says 45 minutes; its words and lines of code take 2",
    ),
    (replace(0, "<!-- measured -->3 s<!-- /measured -->", "3 s"), "no <!-- measured -->"),
    (edit(lambda c: c.__delitem__(slice(4, 12))), "cells; 25 to 50"),
    (edit(lambda c: c.__setitem__(slice(4, 4), [text("more words")] * 30)), "cells; 25 to 50"),
    (append(3, "\npreflight()"), "call preflight() once"),
    (replace(1, "preflight()", "pass"), "call preflight() once"),
    (append(3, "\n" + " ; ".join(f"w{i}" for i in range(400))), "words of text for"),
    (replace(3, "assert RANK > 0", "RANK"), "no assert"),
    (replace(22, "Summary", "End"), "a section Summary"),
    (replace(23, "Exercises", "Tasks"), "a section Exercises"),
    (replace(27, "Symptom", "Sign"), "a table Symptom | Cause | Fix"),
    (replace(26, "check_part_2", "check_part_1"), "2 exercises with a check"),
    (append(5, " **Predict.** How many?"), "1 times **Predict and 0 times 'guess = None'"),
    (append(5, " **Predict.** How many?"), "the last code cell does not show the predictions"),
    (edit(lambda c: c[26]["metadata"].clear()), "2 cells tagged solution"),
    (edit(lambda c: c[26].update(source="check_part_2(1)")), "a wrong one would pass"),
    (edit(lambda c: c[2]["metadata"].clear()), "0 cells tagged parameters"),
    (replace(2, "SCALE", "SIZE"), "the parameters have no SCALE"),
    (append(3, "\nx = 1" * 39), "41 lines; 40 is the limit"),
    (append(3, "\n" * 38 + "\nx = 1"), "41 lines; 40 is the limit"),
    (append(3, "\nx = " + "1 + " * 25 + "1"), "a line of 105 characters"),
    (append(3, "\nfrom cdna.predict import gpu, likely"), "shows likely times; print caveat"),
    (append(3, "\n!pip install x"), "a shell command with !"),
    (append(3, "\n%pip install x"), "installs a package"),
    (append(3, "\nname = input('?')"), "input() blocks"),
    (append(3, "\nnotebook_login()"), "a login"),
    (append(3, "\nx = = 1"), "is not Python"),
    (edit(lambda c: c[3].update(source="%%capture\n" + c[3]["source"])), "%%capture hides"),
    (edit(lambda c: c[24].update(execution_count=9)), "not executed in order"),
    (edit(lambda c: c[24].update(execution_count=None)), "not executed in order"),
    (edit(lambda c: c[24]["metadata"].pop("jupyter")), "a solution that is not collapsed"),
    (output({"output_type": "error", "ename": "ValueError"}), "a stored exception (ValueError)"),
    (output({"output_type": "stream", "name": "stderr", "text": "w"}), "a stored warning"),
    (output({"output_type": "stream", "name": "stdout", "text": "at /tmp/a/b\n"}), "in the output: /tmp/a/b"),
    (output({"output_type": "display_data", "data": {"text/html": ["<p>/home/x/y</p>"]}}), "/home/x/y"),
]


@pytest.mark.parametrize(("change", "message"), BREAKS, ids=[m[:30] for _, m in BREAKS])
def test_each_rule_is_found_when_broken(tmp_path, change, message):
    nb = copy.deepcopy(good())
    change(nb)
    found = errors(nb, tmp_path)
    assert [m for m in found if message in m], found
    assert len(found) <= 2, found


def test_long_cells_are_a_warning(tmp_path):
    nb = good()
    append(3, "\nx = 1" * 20)(nb)
    assert errors(nb, tmp_path, level="warning") == ["22 lines; 20 or fewer are readable"]
    assert errors(nb, tmp_path) == []


def test_a_long_line_of_a_text_stays(tmp_path):
    nb = good()
    nb["cells"][3]["source"] += f'\nlog = """\n{"word " * 30}"""\nlog = f"""{{log}}\n{"word " * 30}"""'
    assert not [e for e in errors(nb, tmp_path) if "characters" in e]


def test_knobs_without_effect_are_a_warning(tmp_path):
    nb = good()
    append(2, "\nUNUSED = 1")(nb)
    assert errors(nb, tmp_path) == []
    assert errors(nb, tmp_path, level="warning")[0].startswith("no later cell reads the parameter UNUSED")


def test_stale_and_missing_stamps(tmp_path):
    nb = good()
    append(4, " More.")(nb)
    assert errors(nb, tmp_path, stamp=False) == ["its outputs are stale; run: python -m course store"]
    nb["metadata"].clear()
    assert errors(nb, tmp_path, stamp=False) == ["was never stored; run: python -m course store"]


def test_file_names(tmp_path):
    assert "the file name is not NN_topic.ipynb" in errors(good(), tmp_path, name="topic")


def test_exit_codes(tmp_path, capsys):
    (tmp_path / "a.ipynb").write_text("{")
    assert main([str(tmp_path / "a.ipynb")]) == 2
    errors(good(), tmp_path)
    assert main([str(tmp_path / "07_topic.ipynb")]) == 0
    errors(good(), tmp_path, name="08_topic")
    assert main([str(tmp_path / "08_topic.ipynb")]) == 1
    assert "08_topic.ipynb, cell 1: error:" in capsys.readouterr().out


def test_as_a_command(tmp_path):
    errors(good(), tmp_path)
    command = [sys.executable, "-m", "course.lint", str(tmp_path / "07_topic.ipynb")]
    assert subprocess.run(command).returncode == 0
