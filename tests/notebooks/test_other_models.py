# SPDX-License-Identifier: MIT
"""Every notebook with a MODEL, with other families, other widths and a reader's own data, cell by cell on a CPU.

Each notebook has six cases: its families in turn, each with another layout of data, so that over the six it sees every
layout and every family. A run takes one case of a sixth of the notebooks, in turn (tests/in_turn.py);
``ROCM_GUIDE_ALL=1`` runs all of them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from course.parameters import parameters_for, parameters_of
from course.pool import child_environment
from rocm_guide.cli.lessons import catalogue, read_notebook
from rocm_guide.common.base import GuideError
from tests.forks import start_fork
from tests.in_turn import everything, turn
from tests.own_data import PREFERENCES, families, write_layouts

ROOT = Path(__file__).parent.parent.parent
SIXTHS = 6
LAYOUTS = ("messages", "system", "prompt_messages", "text", "alpaca", "sharegpt")
#: Notebooks whose rows are of another kind.
OWN_LAYOUTS = {"07": PREFERENCES}
FAMILIES = ("qwen2", "llama576", "gemma3", "chatml")
#: Knobs that make a notebook small; those that a notebook does not have are passed over.
SMALL = {
    "": {"RUN": "mine", "STEPS": "4", "BATCH": "2", "LENGTH": "64", "SCALE": "tiny"},
    "02": {"LENGTH": "128"},
    "03": {"PROMPTS": "8", "NEW_TOKENS": "16"},
    "05": {"LENGTH": "128"},
    "06": {"SCALE": "tiny"},
    "07": {"NEW_TOKENS": "8", "GENERATIONS": "4"},
    "08": {"ROWS": "8"},
    "10": {"SAMPLES": "4"},
    "11": {"SAMPLES": "4"},
    "15": {"LENGTHS": "[64, 1024]", "BATCHES": "[1, 2]"},
    "16": {"NEW_TOKENS": "12"},
    "18": {"USERS": "[1, 2]", "LOAD": "4"},
    "19": {"REQUESTS": "16", "LONGEST": "12"},
}
#: (notebook, family) -> what its check says of a family that its library cannot do, before any work.
REFUSED = {("11", "gemma3"): "AWQ of the family gemma3_text is not possible"} | {
    ("06", family): "torchtune cannot train this one" for family in (*FAMILIES, "smollm2")
}
LESSONS = {
    lesson.number: lesson
    for lesson in catalogue(ROOT / "notebooks")
    if "MODEL" in parameters_of(read_notebook(lesson.path))
}
#: Notebook 05 trains the whole model in twenty processes, and 11 has a library search scales for each layer: of a real
#: one they get so many layers, the first.
FIRST_LAYERS = {"05": 3, "11": 6}
SMOLLM2 = [number for number in LESSONS if "01" <= number <= "19"]


def cases() -> list[list[tuple[str, str, str]]]:
    """The cases (notebook, family, layout) by turns; a notebook without data has one case for each family."""
    turns: list[list[tuple[str, str, str]]] = [[] for _ in LAYOUTS]
    for i, (number, lesson) in enumerate(LESSONS.items()):
        own = ("llama2",) if number == "06" else FAMILIES
        data = "DATASET" in parameters_of(read_notebook(lesson.path))
        layouts = OWN_LAYOUTS.get(number, LAYOUTS)
        for j, chosen in enumerate(turns, start=i):
            layout = layouts[j % len(layouts)]
            chosen.append((number, own[j % len(own)], layout if data else ""))
    return turns


TURNS = cases()
EVERY = sorted({case for chosen in TURNS for case in chosen})
_TURN = turn(SIXTHS * len(TURNS))
TODAY = EVERY if everything() else TURNS[_TURN % len(TURNS)][_TURN // len(TURNS) :: SIXTHS]
SMOLLM2_TODAY = SMOLLM2 if everything() else [SMOLLM2[turn(len(SMOLLM2))]]


def test_the_turns_leave_nothing_out():
    seen = set(EVERY)
    for number in LESSONS:
        own = {"llama2"} if number == "06" else set(FAMILIES)
        assert {family for n, family, _ in seen if n == number} == own
        assert {layout for n, _, layout in seen if n == number} in (set(OWN_LAYOUTS.get(number, LAYOUTS)), {""})
    assert all({number for number, *_ in chosen} == set(LESSONS) for chosen in TURNS)
    assert {"00", "14", "18"} <= set(LESSONS) and "20" not in LESSONS


def test_what_is_left_out_today():
    left = [" ".join(case) for case in EVERY if case not in TODAY]
    left += [f"{number} smollm2" for number in SMOLLM2 if number not in SMOLLM2_TODAY]
    if left:
        pytest.skip(f"left out in this run, ROCM_GUIDE_ALL=1 runs them: {len(left)}: {', '.join(left)}")


@pytest.fixture(scope="session")
def own(tmp_path_factory):
    """The readers' models and data, by name."""
    folder = tmp_path_factory.mktemp("own")
    return families(folder, *FAMILIES, "llama2") | write_layouts(folder)


def execute(number: str, given: dict[str, str], folder: Path, notebook: Path | None = None) -> dict:
    """Run a notebook with these parameters in a fork of a process that has its libraries imported.

    ``notebook`` is run in its place, with its knobs.
    """
    lesson = LESSONS[number]
    names = parameters_of(read_notebook(lesson.path))
    given = {**SMALL[""], **SMALL.get(number, {}), **given}
    taken = parameters_for([lesson], [(name, text) for name, text in given.items() if name in names])[number]
    (folder / "room").mkdir()
    for name in ("out", "err"):
        (folder / name).touch()
    environment = child_environment(folder, "", one_thread=True, models=folder / "runs")
    order = {"notebook": str((notebook or lesson.path).resolve()), "parameters": taken, "environment": environment}
    (folder / "order.json").write_text(json.dumps(order))
    settings = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}:{ROOT}/cdna",
        "MPLBACKEND": "Agg",
        "TOKENIZERS_PARALLELISM": "false",
    }
    settings |= {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
    settings = {k: v for k, v in settings.items() if not k.startswith("PYTEST_")}
    fork = start_fork(
        ["trl.trainer.sft_trainer", "peft", "matplotlib.pyplot", "tests.notebooks.cells"],
        "tests.notebooks.cells",
        [str((folder / "order.json").resolve())],
        settings=settings,
        folder=folder / "room",
        out=folder / "out",
        err=folder / "err",
    )
    code = fork.wait()
    done = folder / "outcome.json"
    log = (folder / "out").read_text(errors="replace")[-2000:] + (folder / "err").read_text(errors="replace")[-3000:]
    assert done.is_file(), f"the process ended with {code}:\n{log}"
    return json.loads(done.read_text()) | {"log": log}


def judge(outcome: dict, number: str, family: str) -> None:
    """A notebook runs to its end, or says in one line at its check what it cannot do with this family."""
    if reason := REFUSED.get((number, family)):
        assert outcome["status"] == "refused" and reason in outcome["message"], outcome
        assert outcome["cell"] <= 8, "said before any work"
        return
    told = f"[{outcome.get('cell')}] {outcome.get('error')}: {outcome.get('message')}\n{outcome.get('traceback')}"
    assert outcome["status"] == "ok", told + outcome["log"]


@pytest.mark.slow
@pytest.mark.notebooks
@pytest.mark.parametrize("case", TODAY, ids="-".join)
def test_a_notebook_with_a_readers_model_and_data(case, own, tmp_path):
    number, family, layout = case
    given = {"MODEL": str(own[family])} | ({"DATASET": str(own[layout])} if layout else {})
    judge(execute(number, given, tmp_path), number, family)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_torchtune_cannot_do_is_said_before_any_work(family, own, tmp_path):
    judge(execute("06", {"MODEL": str(own[family])}, tmp_path), "06", family)


@pytest.mark.slow
@pytest.mark.notebooks
@pytest.mark.parametrize("number", SMOLLM2_TODAY)
def test_a_notebook_with_a_real_model(number, own, tmp_path):
    from rocm_guide.models import load_model

    name = "smollm2"
    try:
        model, tokenizer = load_model(name)  # into the cache: the notebook's process stays off the network
    except GuideError as e:
        pytest.skip(f"smollm2: {e}")
    if layers := FIRST_LAYERS.get(number):
        name, model.config.num_hidden_layers = str(tmp_path / "first-layers"), layers
        del model.model.layers[layers:]
        model.save_pretrained(name)
        tokenizer.save_pretrained(name)
    del model
    layouts = OWN_LAYOUTS.get(number, LAYOUTS)
    layout = layouts[int(number) % len(layouts)]
    judge(execute(number, {"MODEL": name, "DATASET": str(own[layout])}, tmp_path), number, "smollm2")


def test_the_model_is_gone_before_the_server_takes_its_share(own, tmp_path):
    """vLLM does not start where less than its share is free: notebook 18 up to the server, then none is left."""
    nb = read_notebook(LESSONS["18"].path)
    server = next(i for i, cell in enumerate(nb["cells"]) if "start_server(folder" in "".join(cell["source"]))
    look = "import gc, transformers\nkind = transformers.PreTrainedModel\n"
    look += "assert not [x for x in gc.get_objects() if isinstance(x, kind)], 'a model is left'"
    last = {"cell_type": "code", "source": look, "metadata": {}}
    start = tmp_path / "start.ipynb"
    start.write_text(json.dumps({**nb, "cells": [*nb["cells"][:server], last]}))
    judge(execute("18", {"MODEL": str(own["llama2"])}, tmp_path, start), "18", "llama2")


def test_the_cell_that_fails_is_named():
    from tests.notebooks.cells import run

    def cell(source, *tags):
        return {"cell_type": "code", "source": source, "metadata": {"tags": list(tags)}}

    refusal = "from rocm_guide.common.base import GuideError\nraise GuideError('N')"
    knobs = [cell("N = 1", "parameters"), {"cell_type": "markdown", "source": "", "metadata": {}}]
    fine = cell("import inspect\ndef f():\n    return N\ninspect.getsource(f)")
    assert run({"cells": [*knobs, fine]}, {}) == {"status": "ok"}
    found = run({"cells": [*knobs, cell("assert N == 1, N")]}, {"N": 3})
    assert (found["status"], found["cell"], found["message"]) == ("failed", 2, "3")
    assert run({"cells": [cell(refusal)]}, {})["status"] == "refused"
