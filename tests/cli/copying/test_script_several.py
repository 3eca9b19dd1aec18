# SPDX-License-Identifier: MIT
"""`rocm-guide script 05`: one script, alone and in several processes, where the course cannot be imported."""

import ast
import json
import os
import re
import runpy
import shutil
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM

from rocm_guide.cli.copying import script_of
from rocm_guide.finetune import read_losses, read_processes, read_watched
from rocm_guide.models.course_data import question_answer_splits
from rocm_guide.models.tiny import tiny_folder
from tests.cli.copying import alone as alone_in
from tests.in_turn import in_shares
from tests.own_data import families, layouts, write_layouts
from tests.torchrun import run_in_two

FEW = {"steps": 6, "batch": 5, "at_a_time": 2, "rate": 1e-3, "length": 64, "save": 2, "patience": 60}
KNOBS = {"DATASET": "rows.jsonl", "LENGTH": 64, "BATCH": 4, "SEED": 0, "STRATEGY": "ddp", "PATIENCE": 60}


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    """A folder with the script and rows of each layout, where importing the course fails."""
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "train.py").write_text(script_of("05"))
    for name in ("rocm_guide", "cdna"):
        (folder / f"{name}.py").write_text("raise ImportError('the course is not here')\n")
    rows = [{"prompt": r["prompt"], "completion": r["completion"]} for r in question_answer_splits()[0][:32]]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    write_layouts(folder)
    return folder


def run(folder, *, in_two=False, **changes):
    knobs = {"model": tiny_folder(), "dataset": "rows.jsonl", **FEW, **changes}
    words = ["train.py", *(f"--{name}={value}" for name, value in knobs.items())]
    if not in_two:
        code, out, err = alone_in.run(folder, words, ["datasets", "transformers.models.llama.modeling_llama"])
        return code, out + err
    gone = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    env = {k: v for k, v in os.environ.items() if k not in gone}
    env |= {"PYTHONPATH": str(folder), "HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(folder / "cache")}
    env |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
    return run_in_two(words, folder, env)


@pytest.fixture(scope="module")
def alone(room):
    code, said = run(room, out="alone")
    assert code == 0 and "begin at step 0" in said, said[-3000:]
    return read_losses(room / "alone")


def test_the_script_is_plain_and_short():
    text = script_of("05")
    tree = ast.parse(text)
    assert not re.search(r"rocm_guide|cdna", text)
    named = {a.name.partition(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    named |= {n.module.partition(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert named - sys.stdlib_module_names == {"datasets", "torch", "transformers"}
    assert sum(bool(line.strip()) for line in text.splitlines()) <= 170
    assert max(map(len, text.splitlines())) <= 120
    assert '"--steps", default=100,' in text and "tiny" not in text.partition("args =")[0]


def bound(room, model, **knobs):
    """What the script has bound before it loads the model."""
    text = script_of("05")
    head, _, body = text.partition("parser = ")
    body = body.partition("\n\n")[2]
    names = {**KNOBS, "MODEL": str(model), **knobs}
    names["DATASET"] = str(room / names["DATASET"])
    (room / "head.py").write_text(head + body[: body.index("if STRATEGY not in")])
    return runpy.run_path(str(room / "head.py"), names)


def test_every_epoch_sees_every_row_once(room):
    names = bound(room, tiny_folder(), BATCH=5)
    knobs = names["rows_of"].__globals__
    knobs["encode"] = lambda row: row["prompt"] + row["completion"]
    stream = [row for step in range(13) for row in names["rows_of"](step)]  # 65 rows: two epochs and one
    every = sorted(row["prompt"] + row["completion"] for row in names["data"])
    assert sorted(stream[:32]) == sorted(stream[32:64]) == every and stream[:32] != stream[32:64]
    assert names["rows_of"](7) == stream[35:40]
    knobs["BATCH"] = 40  # more than there are rows
    assert sorted(names["rows_of"](0)[:32]) == every
    knobs["SEED"] = 1
    assert names["rows_of"](0) != stream[:40]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return families(tmp_path_factory.mktemp("families"), "qwen2", "chatml", "gemma3")


@pytest.mark.parametrize("family", ["qwen2", "chatml", "gemma3"])
def test_of_a_conversation_the_last_turn_is_learnt(family, room, models):
    names = bound(room, models[family], DATASET="messages.jsonl", LENGTH=512)
    words = names["tokenizer"]
    for row, shown in zip(names["data"], layouts()["messages"], strict=True):
        ids, labels = names["encode"](row)
        learnt = words.decode([t for t, label in zip(ids, labels, strict=True) if label != -100])
        assert learnt.replace(words.eos_token, "").strip() == shown["messages"][-1]["content"].strip()
        assert family == "chatml" or ids.count(words.bos_token_id) == 1  # there it begins every turn


def test_a_text_is_learnt_whole_and_unknown_columns_are_one_line(room):
    names = bound(room, tiny_folder(), DATASET="text.jsonl", LENGTH=512)
    ids, labels = names["encode"](names["data"][0])
    assert ids == labels and ids.count(names["tokenizer"].bos_token_id) == 1
    with pytest.raises(SystemExit, match=r"alpaca.jsonl: rename \['instruction'.*\] to messages, text, or prompt and"):
        bound(room, tiny_folder(), DATASET="alpaca.jsonl")


@pytest.mark.slow
@pytest.mark.parametrize("strategy", in_shares(["ddp", "zero2", "zero3"], 3))
def test_two_processes_under_torchrun_train_what_one_does(strategy, room, alone):
    """Five rows, two at a time: the second process has a piece fewer rows, and its last piece is empty."""
    code, said = run(room, in_two=True, out=strategy, strategy=strategy)
    assert code == 0, said[-3000:]
    steps, losses = read_losses(room / strategy)
    assert steps == alone[0] and losses == pytest.approx(alone[1], abs=2e-3)
    assert set(read_processes(room / strategy)) == {2}
    one, two = (AutoModelForCausalLM.from_pretrained(room / name / "model") for name in ("alone", strategy))
    pairs = zip(one.parameters(), two.parameters(), strict=True)
    # AdamW moves a weight whose gradient is rounding by the rate, this way or that: six steps of at most 1e-3.
    assert max(float((a - b).detach().abs().max()) for a, b in pairs) < 6e-3
    assert sum(p.numel() for p in two.parameters()) == sum(p.numel() for p in one.parameters())


@pytest.mark.slow
def test_it_goes_on_and_passes_over_what_is_not_whole(room, alone):
    shutil.copytree(room / "alone", room / "again")
    (kept,) = (room / "again").glob(".steps-*")
    assert sorted(p.name for p in kept.iterdir()) == ["2", "4"]
    (kept / "5").mkdir()  # a writer was killed
    shutil.rmtree(room / "again" / "model")
    code, said = run(room, out="again")
    assert code == 0 and "begin at step 4" in said, said[-3000:]
    assert read_losses(room / "again") == alone
    whole = [AutoModelForCausalLM.from_pretrained(room / name / "model").state_dict() for name in ("alone", "again")]
    assert all(torch.equal(whole[0][name], whole[1][name]) for name in whole[0])
    code, said = run(room, out="again", seed=1)  # another run: its own checkpoints
    assert code == 0 and "begin at step 0" in said and read_losses(room / "again") != alone


@pytest.mark.slow
def test_what_cannot_be_is_one_line(room):
    for changes, reason in (
        ({"strategy": "fsdp"}, "STRATEGY=fsdp: choose ddp, zero2 or zero3"),
        ({"length": 3}, "LENGTH=3: nothing is left to learn; the prompts are longer"),
    ):
        code, said = run(room, out="refused", **changes)
        assert code == 1 and said.strip().splitlines()[-1] == reason, said[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", in_shares(["zero3", "ddp"], 3))
def test_the_watch_sees_what_is_kept_and_sent(strategy, room, tmp_path):
    """Bytes by formula; and the script may run as it is in another's process."""
    program = [str(tmp_path), str(room / "train.py"), "--model", str(tiny_folder()), "--out", "seen"]
    program += [
        "--dataset",
        str(room / "rows.jsonl"),
        "--strategy",
        strategy,
        "--steps",
        "3",
        "--batch",
        "4",
        "--length",
        "64",
        "--save",
        "3",
    ]
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    code, said = run_in_two(["-m", "rocm_guide.finetune.watched", *program], tmp_path, env)
    assert code == 0, said[-3000:]
    rows, gradients = read_watched(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tiny_folder())
    size = sum(4 * p.numel() for p in model.parameters())
    layers = sum(4 * p.numel() for p in model.model.layers.parameters())
    assert [row["rank"] for row in rows] == [0, 1]
    assert {n: g.shape for n, g in gradients.items()} == {n: p.shape for n, p in model.named_parameters()}
    share = 1 if strategy == "ddp" else 2
    for row in rows:
        held = {name: row[name] * share for name in ("parameters", "gradients", "states")}
        assert held == {"parameters": size, "gradients": size, "states": 2 * size}
        if strategy == "ddp":
            assert row["sent"]["all-reduce"] == size + 4  # the loss
        else:
            assert row["sent"]["all-gather"] == size + layers and row["sent"]["reduce-scatter"] == size
