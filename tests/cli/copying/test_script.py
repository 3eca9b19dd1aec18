# SPDX-License-Identifier: MIT
"""`rocm-guide script`: the cells to take away are one script, which works where the course cannot be imported."""

import ast
import json
import math
import os
import re
import runpy
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from itertools import groupby
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from huggingface_hub import ModelCard
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

import rocm_guide.cli.lessons
from rocm_guide.cli.copying import script_of
from rocm_guide.cli.main import main
from rocm_guide.common.base import GuideError
from rocm_guide.finetune import adapter_size, whole_job
from rocm_guide.finetune.run_measurements import word_for_word
from rocm_guide.models import answer, chat, load_tokenizer, training_rows
from rocm_guide.models.course_data import question_answer_splits
from rocm_guide.models.sizes import sizes_of
from rocm_guide.models.tiny import tiny_folder
from rocm_guide.observe.doctor.own_folders import OWN_FOLDERS
from rocm_guide.quantize.held_out import completion_loss
from tests.cli.copying import alone
from tests.own_data import RULES, families, layouts, write_layouts
from tests.torchrun import run_in_two

LIBRARIES = ["trl.trainer.sft_trainer", "peft"]
QUANTIZATION = OWN_FOLDERS["quantization"].path
FEW = {"rank": 4, "alpha": 8, "rate": 5e-3, "batch": 4, "length": 64, "steps": 8, "save": 0.25}
MARKED = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}{% generation %} {{ m.content }} </s>"
    "{% endgeneration %}{% else %}[INST] {{ m.content }} [/INST]{% endif %}{% endfor %}"
)


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    """A folder with the script and rows, where importing the course fails."""
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "train.py").write_text(script_of("02"))
    (folder / "evaluate.py").write_text(script_of("08"))
    (folder / "ask.py").write_text(script_of("03"))
    for name in ("rocm_guide", "cdna"):
        (folder / f"{name}.py").write_text("raise ImportError('the course is not here')\n")
    rows = [{"prompt": r["prompt"], "completion": r["completion"]} for r in question_answer_splits()[0][:60]]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    write_layouts(folder)
    return folder


def command(model, data, run, **changes):
    knobs = {"model": model, "dataset": data, "out": run, **FEW, **changes}
    return ["train.py", *(f"--{name}={value}" for name, value in knobs.items())]


def run(folder, *words):
    """The exit code of ``python WORDS``, and what it said; only a module (-m) has a Python of its own."""
    if words[0] != "-m":
        code = alone.start(folder, list(words), LIBRARIES, QUANTIZATION, "out").wait(600)
        return code, (folder / "out").read_text()
    out = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=alone.environment(folder, folder), timeout=300, **out
    )
    return done.returncode, done.stdout


def test_a_script_is_alone_and_ends_as_it_would_for_a_reader(room):
    looks = "import sys\ntry:\n    import rocm_guide.models\nexcept ImportError:\n    sys.exit('no course')\n"
    (room / "looks.py").write_text(looks)
    (room / "breaks.py").write_text("print(1 / 0)\n")
    assert run(room, "looks.py") == (1, "no course\n")
    code, said = run(room, "breaks.py")
    assert code == 1 and said.endswith("ZeroDivisionError: division by zero\n")


def history(folder):
    """The log of the newest checkpoint."""
    states = sorted(folder.glob(".adapter-*/checkpoint-*/trainer_state.json"), key=lambda p: p.stat().st_mtime_ns)
    return json.loads(states[-1].read_text())["log_history"]


def test_the_script_is_plain_and_short():
    text = script_of("02")
    tree = ast.parse(text)
    assert not re.search(r"rocm_guide|cdna", text)
    named = {a.name.partition(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    named |= {n.module.partition(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    named -= sys.stdlib_module_names
    assert named == {"datasets", "peft", "torch", "transformers", "trl"}
    assert sum(bool(line.strip()) for line in text.splitlines()) <= 109
    assert max(map(len, text.splitlines())) <= 120
    # What a 0 stands for in the notebook is the script's own default.
    usual, (rank, alpha) = whole_job("some/hub", "lora"), adapter_size("some/hub")
    for name, value in {
        "rank": rank,
        "alpha": alpha,
        "rate": usual["learning_rate"],
        "batch": usual["per_device_train_batch_size"],
        "length": usual["max_length"],
        "epochs": float(usual["num_train_epochs"]),
    }.items():
        assert f'"--{name}", default={value},' in text, name
    assert '"--model", required=True' in text and "tiny" not in text.partition("args =")[0]


def test_notebook_13_quantises_where_the_course_is_not(room):
    """The script needs torch, transformers and compressed-tensors, which lies in a folder of its own."""
    text = script_of("13")
    assert not re.search(r"rocm_guide|cdna", text)
    (room / "quantise.py").write_text(text)
    code, said = run(room, "quantise.py", f"--model={tiny_folder()}", "--out=small", "--scheme=MXFP4")
    assert not code, said[-2000:]
    config = json.loads((room / "small" / "config.json").read_text())
    (group,) = config["quantization_config"]["config_groups"].values()
    assert group["weights"]["num_bits"] == 4 and group["weights"]["group_size"] == 32
    assert "read back" in said and sizes_of(config).stored_as == "compressed-tensors, 4 bits"


@pytest.mark.slow
def test_notebook_16_compiles_where_the_course_is_not(room):
    """Decoding with a static cache as one graph, and one layer's graph for all layers; both are asserted in it."""
    (room / "compiled.py").write_text(script_of("16"))
    code, said = run(room, "-m", "compiled", f"--model={tiny_folder()}", "--new_tokens=6")
    assert code == 0, said[-2000:]
    assert re.search(r"^first step [\d.]+ s, then 4 steps without compiling$", said, re.M), said[-2000:]
    told = re.finditer(r"^(\w+) .*; (\d+) graphs of (\d+) operations$", said, re.M)
    made = {m[1]: (int(m[2]), int(m[3])) for m in told}
    assert made["eager"] == (0, 0) and made["whole"][0] == made["region"][0] == 1
    assert 0 < made["region"][1] < made["whole"][1]


@pytest.mark.parametrize(
    ("number", "libraries", "most"),
    [
        ("16", {"torch", "transformers"}, 75),
        ("03", {"huggingface_hub", "peft", "transformers"}, 51),
        ("08", {"datasets", "huggingface_hub", "peft", "transformers"}, 141),
    ],
)
def test_the_scripts_that_ask_and_evaluate_are_plain_too(number, libraries, most):
    text = script_of(number)
    assert not re.search(r"rocm_guide|cdna", text)
    names = {n.module.partition(".")[0] for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ImportFrom)}
    assert names - sys.stdlib_module_names == libraries
    assert sum(bool(line.strip()) for line in text.splitlines()) <= most
    assert '"--model", required=True' in text and "tiny" not in text.partition("args =")[0]


def test_notebook_17_tunes_where_the_course_is_not(room):
    text = script_of("17")
    assert not re.search(r"rocm_guide|cdna", text) and '"--model", required=True' in text
    (room / "tune.py").write_text(text)
    code, said = run(room, "tune.py", f"--model={tiny_folder()}", "--results=mine.csv")
    assert not code, said[-2000:]
    assert "prompt padded to" in said and "tokens/second" in said
    assert "needs a GPU" in said and not (room / "mine.csv").exists()


@pytest.mark.parametrize(("kept", "accepted"), [(False, True), (True, True), (True, False)])
def test_notebook_17_on_a_gpu_reads_what_it_saved_and_refuses_what_is_of_another_machine(tmp_path, kept, accepted):
    body = (
        "if torch.cuda.is_available():\n    tunable"
        + script_of("17").partition("if torch.cuda.is_available():\n    tunable")[2]
    )
    called, file, script = [], tmp_path / "results.csv", tmp_path / "tune.py"
    script.write_text(body)
    if kept:
        file.write_text("Validator,PT_VERSION,2.13.0\n")

    class Tunable:
        def __getattr__(self, name):
            return lambda *values: (
                called.append((name, *values)) or {"get_results": (), "read_file": accepted}.get(name)
            )

    cuda = type("Cuda", (), {"is_available": lambda: True})
    names = {"torch": type("Torch", (), {"cuda": cuda}), "tunable": Tunable(), "Path": Path, "RESULTS": str(file)}
    names |= {"tokens_per_second": lambda **how: called.append(("run",)) or 1.0}
    if kept and not accepted:
        with pytest.raises(SystemExit, match="another environment"):
            runpy.run_path(str(script), init_globals=names)
        assert ("run",) not in called
        return
    runpy.run_path(str(script), init_globals=names)
    order = [name for name, *_ in called]
    assert order[:3] == ["enable", "tuning_enable", "set_filename"] and called[-1] == ("enable", False)
    assert ("read_file" in order) == kept and order.index("write_file") > order.index("run")


def test_a_notebook_without_such_cells_says_which_have_them(capsys, monkeypatch, tmp_path):
    has = "these have: 02, 03, 04, 05, 07, 08, 10, 11, 12, 13, 14, 16, 17, 18, 35"
    with pytest.raises(GuideError, match=f"notebook 01: has no cells to take away; {has}"):
        script_of("1")
    with pytest.raises(GuideError, match="notebook 99: there is none with that number"):
        script_of("99")
    monkeypatch.setattr(sys, "argv", ["rocm-guide", "script", "02", "--out", str(tmp_path / "train.py")])
    with pytest.raises(SystemExit) as left:
        main()
    assert not left.value.code and (tmp_path / "train.py").read_text() == script_of("02")
    monkeypatch.setattr(sys, "argv", ["rocm-guide", "script", "01"])
    with pytest.raises(SystemExit) as left:
        main()
    said = capsys.readouterr().err
    assert left.value.code == 2 and said.count("\n") == 1 and has in said


def test_imports_are_joined_and_options_are_read(monkeypatch, tmp_path):
    def cell(source, *tags):
        return {"cell_type": "code", "source": source, "metadata": {"tags": list(tags)}}

    knobs = 'MODEL = "tiny"  # a folder (tiny: ours)\nN = 0  # how many; 0: 3 (tiny: 1)\nFAST = False\nOTHER = 1\n'
    knobs += 'MANY = [1, 4]\nNAMES = ["a"]\n'
    takes = (
        "from os import sep\nprint(MODEL)",
        "from os import curdir\nimport sys\nprint(N, FAST, MANY, NAMES, sep, curdir, sys)",
    )
    cells = [cell(knobs, "parameters"), cell(takes[0], "take"), cell("OTHER", "x"), cell(takes[1], "take")]
    folder = tmp_path / "notebooks"
    folder.mkdir()
    (folder / "07_some.ipynb").write_text(json.dumps({"cells": cells}))
    monkeypatch.setattr(rocm_guide.cli.lessons, "notebooks_folder", lambda: folder)
    lines = script_of("07").splitlines()
    assert [x for x in lines if "import" in x] == ["import argparse", "import sys", "from os import curdir, sep"]
    assert [x for x in lines if "add_argument" in x] == [
        'parser.add_argument("--model", required=True, help="a folder")',
        'parser.add_argument("--n", default=3, type=int, help="how many")',
        'parser.add_argument("--fast", action="store_true")',
        'parser.add_argument("--many", default=[1, 4], nargs="+", type=int)',
        'parser.add_argument("--names", default=["a"], nargs="+")',
    ]
    assert (
        "MODEL, N, FAST, MANY, NAMES = args.model, args.n, args.fast, args.many, args.names" in lines
        and "OTHER" not in "".join(lines)
    )


@pytest.mark.slow
def test_it_trains_and_goes_on_after_a_kill_where_the_course_is_not(room):
    """The losses after the kill are those of a run that nobody killed."""
    words = command(tiny_folder(), "rows.jsonl", "killed")
    process = alone.start(room, words, LIBRARIES, QUANTIZATION)
    while process.poll() is None and not list(room.glob("killed/.*/*/trainer_state.json")):
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it ended before it was killed"
    assert not (room / "killed/adapter").exists()
    (half,) = room.glob("killed/.adapter-*")
    (half / "checkpoint-7").mkdir()  # a machine that goes away while it writes leaves this
    code, said = run(room, *words)
    assert code == 0 and "go on from checkpoint-" in said and "checkpoint-7" not in said, said[-2000:]
    assert "learnt" in said and "given  '<s>[INST]" in said
    code, whole = run(room, *command(tiny_folder(), "rows.jsonl", "whole"))
    assert code == 0 and "begin at step 0" in whole, whole[-2000:]
    kept = {p.name for p in (room / "killed/adapter").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json"} <= kept

    def losses(name, key):
        return {r["step"]: r[key] for r in history(room / name) if key in r}

    for key in ("loss", "eval_loss"):
        assert losses("killed", key) == pytest.approx(losses("whole", key), abs=1e-3)
    assert set(losses("whole", "loss")) == set(range(1, 9)) and set(losses("whole", "eval_loss")) == {2, 4, 6, 8}


@pytest.mark.slow
def test_it_trains_in_two_processes_under_torchrun(room):
    program = command(tiny_folder(), "rows.jsonl", "two", steps=4)
    code, said = run_in_two(program, room, alone.environment(room, room))
    assert code == 0, said[-3000:]
    assert (room / "two/adapter/adapter_model.safetensors").exists()
    done = history(room / "two")
    # Each step takes the rows of both: 4 steps x 2 processes x 4 rows of 54.
    assert max(r["epoch"] for r in done) == pytest.approx(4 * 2 * 4 / 54, abs=0.05)


def cells_to(phrase):
    """The script up to the line before ``phrase``, without its parser."""
    text = script_of("02")
    head, _, body = text.partition("parser = ")
    body = body.partition("\n\n")[2]
    return head + body[: body.index(phrase)]


KNOBS = {"TARGETS": ["q_proj", "v_proj"], "RANK": 4, "ALPHA": 8, "EPOCHS": 1.0, "STEPS": 0, "RATE": 1e-3, "BATCH": 2}
KNOBS |= {"ACCUMULATION": 1, "LENGTH": 256, "PACKING": False, "RECOMPUTE": False, "SAVE": 0.5, "SEED": 0}


def trained_on(model, data, folder):
    """The rows as the script's trainer holds them, with its tokenizer."""
    room = {**KNOBS, "MODEL": str(model), "DATASET": str(data), "RUN": str(folder)}
    exec(compile(cells_to("\nwhole = "), "train.py", "exec"), room)  # noqa: S102 - our own script
    return room["trainer"].train_dataset, room["tokenizer"], room


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return families(tmp_path_factory.mktemp("families"), "qwen2", "chatml", "gemma3")


@pytest.mark.parametrize("layout", ["messages", "system", "prompt_messages", "text"])
@pytest.mark.parametrize("family", ["qwen2", "chatml", "gemma3"])
def test_it_learns_what_the_course_learns(family, layout, models, room, tmp_path):
    """Of the layouts that TRL knows: the same answers, after one first token."""
    rows, words, _ = trained_on(models[family], room / f"{layout}.jsonl", tmp_path)
    ours = training_rows(Dataset.from_list(layouts()[layout]), words)
    learnt = [words.decode([label for label in row["labels"] if label >= 0]) for row in rows]
    if layout == "text":
        assert all(text.count("<s>") == 1 for text in learnt)
        return
    expected = {row["completion"][0]["content"].strip() for row in ours}
    assert {text.replace(words.eos_token, "").strip() for text in learnt} <= expected
    assert len(rows) == {"system": 54}.get(layout, 27)  # each answer is a row, of 9 in 10 conversations
    given = [
        words.decode([t for t, label in zip(row["input_ids"], row["labels"], strict=True) if label < 0]) for row in rows
    ]
    assert all((RULES in text) == (layout == "system") for text in given)
    first = [row["input_ids"].count(words.bos_token_id) for row in rows]
    assert family == "chatml" or set(first) == {1}


def test_marks_in_the_template_keep_conversations_whole(models, room, tmp_path, capsys):
    model = tmp_path / "marked"
    model.mkdir()
    for file in models["qwen2"].iterdir():
        (model / file.name).symlink_to(file)
    words = load_tokenizer(str(models["qwen2"]))
    words.chat_template = MARKED
    (model / "chat_template.jinja").unlink()
    words.save_pretrained(tmp_path / "words")
    (model / "chat_template.jinja").symlink_to(tmp_path / "words/chat_template.jinja")
    rows, words, left = trained_on(model, room / "system.jsonl", tmp_path)
    assert left["settings"].assistant_only_loss and len(rows) == 27
    row = rows[0]
    tokens = zip(row["input_ids"], row["labels"], strict=True)
    parts = [(seen, words.decode([t for t, _ in part])) for seen, part in groupby(tokens, lambda x: x[1] >= 0)]
    assert [seen for seen, _ in parts] == [False, True, False, True]
    turns = left["data"]["train"][0]["messages"]
    assert [p.removesuffix("</s>").strip() for seen, p in parts if seen] == [turns[2]["content"], turns[4]["content"]]
    assert "no {% generation %} marks" not in capsys.readouterr().out


def test_what_cannot_be_trained_is_one_line(models, room, tmp_path, capsys):
    with pytest.raises(SystemExit, match=r"rename \['instruction'.*\] to messages, text, or prompt and completion"):
        trained_on(models["qwen2"], room / "alpaca.jsonl", tmp_path)
    trained_on(models["qwen2"], room / "messages.jsonl", tmp_path)
    assert "no {% generation %} marks in the chat template: each answer" in capsys.readouterr().out
    other = tmp_path / "other"
    other.mkdir()
    for file in models["qwen2"].iterdir():
        if not file.name.startswith(("token", "chat")):
            (other / file.name).symlink_to(file)
    words = load_tokenizer(str(models["qwen2"]))
    words.add_tokens([f"<word{i}>" for i in range(200)])
    words.save_pretrained(other)
    with pytest.raises(SystemExit, match="other: the tokenizer is another model's"):
        trained_on(other, room / "rows.jsonl", Path(tmp_path))


def make_adapter(base, folder, new_words=()):
    """Save an adapter of ``base`` that changes what it says; with new words its tokenizer and their rows."""
    model, words = AutoModelForCausalLM.from_pretrained(base), load_tokenizer(str(base))
    if new_words:
        words.add_tokens(list(new_words))
        words.chat_template = "{% for m in messages %}{{ m.content }} over{% endfor %}"
        model.resize_token_embeddings(len(words), pad_to_multiple_of=64)
        words.save_pretrained(folder)
    torch.manual_seed(0)
    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
    model = get_peft_model(model, lora).eval()
    model.save_pretrained(folder)
    return model, words


@pytest.mark.slow
def test_it_asks_with_an_adapter_and_without_where_the_course_is_not(room):
    """The first line is the greedy answer, streamed; three sampled ones follow, the same for the same seed."""
    base, question = tiny_folder(), "What is the memory type of MI300X?"
    model, words = make_adapter(base, room / "asked")
    (room / "tokenizer_config.json").write_text("{}")  # of whatever lies where the script is started
    lines = [[f"--model={base}", f"--adapter={a}", f"--question={question}", "--answer=8"] for a in ("asked", "")]
    first, again = ([run(room, "ask.py", *line) for line in lines] for _ in range(2))
    for adapter, (code, said), (_, repeated) in zip(("asked", ""), first, again, strict=True):
        with nullcontext() if adapter else model.disable_adapter():
            (right,) = answer(model, words, [chat(question)[0]], new_tokens=8)
        assert code == 0, said[-2000:]
        told = said.partition("sampled:")[0].splitlines()[-1].strip()
        assert told == right.splitlines()[-1].strip() and said.count("\nsampled: ") == 3, said
        assert repeated.splitlines()[-3:] == said.splitlines()[-3:]


@pytest.mark.slow
def test_it_evaluates_and_exports_where_the_course_is_not(room):
    """Its figures are those of the course's own helpers, and the folder holds the merged model and its card."""
    base = tiny_folder()
    model, words = make_adapter(base, room / "lora")
    rows = list(map(json.loads, (room / "rows.jsonl").read_text().splitlines()))
    rows = list(Dataset.from_list(rows).train_test_split(test_size=0.1, seed=0)["test"])
    knobs = {"model": base, "adapter": "lora", "dataset": "rows.jsonl", "out": "made", "new_tokens": 24}
    code, said = run(room, "evaluate.py", *(f"--{name}={value}" for name, value in knobs.items()))
    assert code == 0 and "too coarse" not in said, said[-3000:]
    merged = AutoModelForCausalLM.from_pretrained(room / "made/merged").eval()
    for name, one in (("with the adapter", merged), ("base", AutoModelForCausalLM.from_pretrained(base).eval())):
        loss, exact = completion_loss(one, words, rows), word_for_word(one, words, rows)
        told = re.search(rf"^{name}: loss: ([\d.]+) ± ([\d.]+), choice: ([\d.]+)% .*exact: ([\d.]+)%", said, re.M)
        assert float(told[1]) == pytest.approx(loss, abs=6e-4), said
        assert float(told[4]) == pytest.approx(100 * exact, abs=0.06)
    ids = words(rows[0]["prompt"], return_tensors="pt").input_ids
    with torch.inference_mode():
        assert torch.allclose(merged(ids).logits, model(ids).logits, atol=1e-3)
    files = {p.name for p in (room / "made/merged").iterdir()}
    assert {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "README.md"} <= files
    assert "chat_template.jinja" in files and "adapter_config.json" not in files
    card = ModelCard.load(room / "made/merged/README.md")
    value = {r.metric_type: r.metric_value for r in card.data.eval_results}
    assert value["perplexity"] == pytest.approx(math.exp(completion_loss(merged, words, rows)), rel=1e-3)
    assert card.data.base_model == str(base)


@pytest.mark.slow
def test_an_update_too_small_for_the_weights_is_said_when_it_is_merged(room):
    """In float32 it takes a very small one; in bfloat16, on a GPU, a short training makes it."""
    model, _ = make_adapter(tiny_folder(), room / "faint")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight *= 1e-7
    model.save_pretrained(room / "faint")
    words = ["--adapter=faint", "--dataset=rows.jsonl", "--out=faded", "--rows=4", "--new_tokens=2"]
    code, said = run(room, "evaluate.py", f"--model={tiny_folder()}", *words)
    assert code == 0 and "torch.float32 is too coarse for so small an update" in said, said[-3000:]
    moved, off = map(float, re.search(r"the adapter moves them by (\S+), merging by (\S+)$", said, re.M).groups())
    assert 0 < moved / 4 < off < 1e-4


@pytest.mark.slow
def test_what_the_adapter_brought_along_is_exported(models, room):
    """New words, their rows, and a chat template of its own lie with the adapter, not with the base."""
    model, words = make_adapter(models["qwen2"], room / "grown", [f"<word{i}>" for i in range(80)])
    code, said = run(
        room,
        "evaluate.py",
        f"--model={models['qwen2']}",
        "--adapter=grown",
        "--dataset=rows.jsonl",
        "--out=kept",
        "--rows=4",
    )
    assert code == 0, said[-3000:]
    again = load_tokenizer(str(room / "kept/merged"))
    merged = AutoModelForCausalLM.from_pretrained(room / "kept/merged").eval()
    assert again.chat_template == words.chat_template
    assert merged.config.vocab_size == model.config.vocab_size > len(words) == len(again)
    ids = again("<word0> is <word79>", return_tensors="pt").input_ids
    assert ids.max() == len(words) - 1
    with torch.inference_mode():
        assert torch.allclose(merged.float()(ids).logits, model.float()(ids).logits, atol=1e-3)


def test_what_cannot_be_evaluated_is_said_in_one_line(room):
    (room / "texts.jsonl").write_text("\n".join(json.dumps({"text": f"Text {i}."}) for i in range(20)))
    few = "rows.jsonl: holds 1 held-out rows; an error bar takes two"
    refused = {
        "--dataset=rows.jsonl": "--adapter: name the folder that PEFT saved",
        "--dataset=texts.jsonl --adapter=x": "texts.jsonl: rename ['text'] to prompt and completion",
        "--dataset=rows.jsonl --adapter=x --rows=1": few,
    }
    found = [run(room, "evaluate.py", f"--model={tiny_folder()}", *options.split()) for options in refused]
    for (code, said), reason in zip(found, refused.values(), strict=True):
        assert code == 1 and said.splitlines()[-1] == reason, said[-2000:]
