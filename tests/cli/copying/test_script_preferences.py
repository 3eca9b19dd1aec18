# SPDX-License-Identifier: MIT
"""`rocm-guide script 07`: DPO and GRPO on a reader's rows, where the course cannot be imported."""

import ast
import re
import runpy
import sys

import pytest

from rocm_guide.cli.copying import script_of
from rocm_guide.models.tiny import tiny_folder
from tests.cli.copying import alone
from tests.own_data import ROWS, preferences, write_layouts

FEW = {"steps": 6, "rate": 2e-3, "batch": 2, "generations": 4, "length": 96, "new_tokens": 6, "rank": 4, "kl": 0.1}


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    """A folder with the script and rows of each layout, where importing the course fails."""
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "prefer.py").write_text(script_of("07"))
    for name in ("rocm_guide", "cdna"):
        (folder / f"{name}.py").write_text("raise ImportError('the course is not here')\n")
    write_layouts(folder)
    (folder / "unknown.jsonl").write_text('{"question": "Hi", "better": "Hello", "worse": "Go"}\n' * 4)
    return folder


def run(folder, data, **changes):
    knobs = {"model": tiny_folder(), "dataset": data, "out": f"{data}-out", **FEW, **changes}
    words = ["prefer.py", *(f"--{name}={value}" for name, value in knobs.items())]
    code, out, err = alone.run(folder, words, ["trl.trainer.dpo_trainer", "trl.trainer.grpo_trainer"])
    return code, out + err


def test_the_script_is_plain_and_short():
    text = script_of("07")
    tree = ast.parse(text)
    assert not re.search(r"rocm_guide|cdna", text)
    named = {a.name.partition(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    named |= {n.module.partition(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert named - sys.stdlib_module_names == {"datasets", "peft", "torch", "transformers", "trl"}
    assert sum(bool(line.strip()) for line in text.splitlines()) <= 100
    assert max(map(len, text.splitlines())) <= 120
    assert '"--steps", default=100,' in text and "tiny" not in text.partition("args =")[0]


def read(file, room):
    """What the script has bound after it has read the rows."""
    head, _, body = script_of("07").partition("parser = ")
    body = body.partition("\n\n")[2]
    (room / "head.py").write_text(head + body[: body.index("gpu = ")])
    return runpy.run_path(str(room / "head.py"), {"MODEL": str(tiny_folder()), "DATASET": str(room / file)})


@pytest.mark.parametrize("layout", ["turns", "whole", "prompt_whole"])
def test_every_layout_of_turns_becomes_the_same_rows(layout, room):
    data = read(f"{layout}.jsonl", room)["data"]
    seen = [row for split in data.values() for row in split]
    assert len(seen) == ROWS and ("answer" in seen[0]) == (layout != "whole")
    names = ("prompt", "chosen", "rejected")
    told = {r["prompt"][0]["content"]: {name: r[name] for name in names} for r in preferences()["turns"]}
    assert all({name: row[name] for name in names} == told[row["prompt"][0]["content"]] for row in seen)


def test_a_second_first_token_is_taken_off(room):
    data = read("texts.jsonl", room)["data"]
    assert all(row["prompt"].startswith("[INST] ") for row in data["train"])


def test_rewards_look_at_texts_and_turns(tmp_path):
    body = script_of("07")
    (tmp_path / "rewards.py").write_text(body[body.index("def words_of") : body.index("grpo = None")])
    bound = runpy.run_path(str(tmp_path / "rewards.py"), {"FORMAT": "Answer: (.+)", "re": re})
    said = ["Answer: 304", " Answer: 8 \n", "It is 304.", "Answer: 304 or 8", ""]
    for completions in (said, [[{"role": "assistant", "content": text}] for text in said]):
        assert bound["formatted"](completions) == [1.0, 1.0, 0.0, 1.0, 0.0]
        assert bound["exact"](completions, answer=["304", 8, "304", "304", ""]) == [1.0, 1.0, 0.0, 0.0, 0.0]


def logged(said, key):
    return [float(value) for value in re.findall(rf"'{key}': '?([-\d.e]+)", said)]


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["texts", "prompt_whole"])
def test_it_trains_by_both_methods_where_the_course_is_not(layout, room):
    code, said = run(room, f"{layout}.jsonl")
    assert code == 0, said[-3000:]
    for method in ("dpo", "grpo"):
        kept = {p.name for p in (room / f"{layout}.jsonl-out" / method).iterdir()}
        assert {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json"} <= kept
    margins = logged(said, "rewards/margins")
    assert len(margins) == FEW["steps"] and margins[0] == 0 and margins[-1] > 0.1, margins
    assert logged(said, "loss")[0] == pytest.approx(0.6931, abs=1e-3)
    assert len(logged(said, "kl")) == FEW["steps"] and logged(said, "completions/max_length")[0] <= FEW["new_tokens"]


@pytest.mark.slow
def test_without_answers_it_is_dpo_alone_and_what_it_cannot_do_is_one_line(room):
    code, said = run(room, "whole.jsonl", steps=1)
    assert code == 0 and "no column answer" in said, said[-2000:]
    assert (room / "whole.jsonl-out/dpo").exists() and not (room / "whole.jsonl-out/grpo").exists()
    code, said = run(room, "unknown.jsonl")
    last = said.strip().splitlines()[-1]
    assert code == 1 and last.startswith("unknown.jsonl: rename ['question', 'better', 'worse'] to prompt"), said[-900:]
    code, said = run(room, "texts.jsonl", steps=1, format="Answer: .+", out="no-group")
    assert code == 1 and said.strip().splitlines()[-1].startswith("FORMAT=Answer: .+: give a regular"), said[-900:]
