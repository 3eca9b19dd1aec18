# SPDX-License-Identifier: MIT
"""A run folder is never mixed up, half-written or overwritten; its passport is read and written whole."""

import copy
import errno
import json
import math
import random
import shutil
import subprocess
import sys

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from rocm_guide.common.base import GuideError
from rocm_guide.finetune import (
    adapter_folder,
    add_stage,
    check_adapter,
    check_same,
    merged_model,
    open_run,
    passport_line,
    passport_text,
    read_passport,
    record,
    run_measurements,
)
from rocm_guide.finetune.run_folder import RunError, check_weights
from rocm_guide.models import load_data, load_model, load_tokenizer
from rocm_guide.quantize import held_out
from tests.own_data import families


@pytest.fixture(autouse=True)
def own_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("ROCM_GUIDE_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


@pytest.fixture(scope="module")
def tiny():
    return load_model("tiny", device="cpu")


def test_a_second_run_finds_what_the_first_one_kept(own_runs):
    with open_run("mine").keep("adapter") as part:
        (part / "a.txt").write_text("1")
    again = open_run("mine")
    assert again.has("adapter") and (own_runs / "mine" / "adapter" / "a.txt").read_text() == "1"
    assert again.summary() == "runs/mine: adapter kept by an earlier run"


@pytest.mark.parametrize("family", ["qwen2", "gemma3"])
def test_the_loss_is_the_same_however_few_logits_are_computed_at_once(family, tmp_path, monkeypatch):
    """Against one pass with all logits; the largest tensor of logits that the output layer makes is counted."""
    model, words = load_model(str(families(tmp_path, family)[family]), device="cpu")
    rows = held_out.held_out_rows(load_data("tiny")["test"], words, most=12)
    sizes = []
    model.get_output_embeddings().register_forward_hook(lambda layer, inputs, out: sizes.append(out.numel()))
    whole = held_out.completion_loss(model, words, rows)
    assert len(sizes) == 1
    few = 12 * model.config.vocab_size * 4
    monkeypatch.setattr(held_out, "LOGITS_AT_ONCE", few)
    sizes.clear()
    layers = model.get_decoder()
    passes = layers.layers[0].register_forward_hook(lambda *_: sizes.append(0))
    in_pieces = held_out.completion_loss(model, words, rows)
    assert abs(in_pieces / whole - 1) < 10 * torch.finfo(torch.float32).eps
    assert max(sizes) <= few and len(sizes) > 4 and sizes.count(0) == 1
    passes.remove()
    assert "forward" not in vars(layers)
    sizes.clear()
    run_measurements.speeds(model, prompt=32, new=2, runs=1)
    assert set(sizes) == {model.config.vocab_size}


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        ({"model": "random:llama-2-7b"}, "made with model tiny, not random:llama-2-7b"),
        ({"dataset": "rows.json"}, "made with dataset tiny, not rows.json"),
        ({"seed": 3}, "made with seed 0, not 3"),
    ],
)
def test_a_folder_of_another_model_is_refused_and_left_as_it_was(own_runs, wanted, named):
    open_run("mine")
    before = (own_runs / "mine" / "passport.json").read_bytes()
    with pytest.raises(RunError, match=named) as refusal:
        open_run("mine", **wanted)
    assert "give RUN another name" in str(refusal.value) and "\n" not in str(refusal.value)
    assert (own_runs / "mine" / "passport.json").read_bytes() == before


def test_a_folder_with_other_things_is_refused(own_runs):
    (own_runs / "mine").mkdir(parents=True)
    (own_runs / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(RunError, match=r"holds other files and no passport.json; give RUN the name of a new folder"):
        open_run("mine")


def test_no_name_is_a_folder_that_goes_away():
    run = open_run("")
    folder = run.folder
    assert folder.is_dir()
    del run
    assert not folder.exists()


@pytest.mark.parametrize(
    "failure",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_full_disk_keeps_the_old_stage_and_says_what_to_do(failure):
    run = open_run("mine")
    with run.keep("merged") as part:
        (part / "weights").write_text("old")
    said = r"runs/mine/merged: No space left on device; nothing of it was kept; free some"
    with pytest.raises(RunError, match=said), run.keep("merged") as part:
        (part / "weights").write_text("ne")
        raise failure
    assert (run.path("merged") / "weights").read_text() == "old"
    assert [p.name for p in run.folder.iterdir() if ".tmp" in p.name or ".old" in p.name] == []


def test_an_interrupted_stage_leaves_nothing():
    run = open_run("mine")
    with pytest.raises(KeyboardInterrupt), run.keep("merged") as part:
        (part / "weights").write_text("ha")
        raise KeyboardInterrupt
    assert not run.has("merged") and [p.name for p in run.folder.iterdir() if "merged" in p.name] == []


def test_other_settings_are_refused_before_anything_is_trained():
    run = open_run("mine")
    with run.keep("adapter"):
        pass
    add_stage(run.folder, "adapter", "02", settings={"rank": 16})
    check_same(run, "adapter", {"rank": 16})
    with pytest.raises(RunError, match="runs/mine/adapter: was made with rank 16, not 32"):
        check_same(run, "adapter", {"rank": 32})


@pytest.fixture(scope="module")
def adapter(tiny, tmp_path_factory):
    from peft import LoraConfig, get_peft_model

    model, _ = load_model("tiny", device="cpu")
    config = LoraConfig(r=4, target_modules=["q_proj"], task_type="CAUSAL_LM")
    folder = tmp_path_factory.mktemp("adapter")
    get_peft_model(model, config).save_pretrained(folder)
    return folder


def test_an_adapter_of_another_base_model_is_refused_in_one_line(tiny, adapter):
    assert check_adapter(adapter, tiny[0]) == 4
    other = torch.nn.ModuleDict({"q_proj": torch.nn.Linear(8, 8)})
    with pytest.raises(RunError, match=r"belongs to another base model .*no such layer.*; load the base model"):
        check_adapter(adapter, other, "runs/mine/adapter")


def test_a_run_goes_on_from_its_adapter_and_refuses_a_half_written_one(adapter):
    run = open_run("mine")
    with run.keep("adapter") as part:
        shutil.copytree(adapter, part, dirs_exist_ok=True)
    folder = merged_model(run, say=lambda line: None)
    assert (run.path("merged") / "model.safetensors").exists() and folder == str(run.path("merged"))
    said = []
    assert merged_model(run, say=said.append) == folder and "earlier run kept" in said[0]
    weights = run.path("merged") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(RunError, match=r"runs/mine/merged: model.safetensors is half-written; delete runs/mine/merged"):
        merged_model(run)


def test_another_model_than_the_tiny_one_is_not_trained_behind_the_readers_back():
    said = []
    assert merged_model(open_run("7b", model="random:llama-2-7b"), say=said.append) == "random:llama-2-7b"
    assert "notebook 02 does that" in said[0]


def test_where_nothing_may_be_trained_the_tiny_model_is_taken_as_it_is():
    said, run = [], open_run("fresh")
    assert merged_model(run, train=False, say=said.append) == "tiny"
    assert "notebook 02 does that" in said[0] and not run.has("adapter") and not run.has("merged")


def test_the_figures_of_the_passport_are_those_of_the_model(tiny):
    model, tokenizer = tiny
    run = open_run("mine")
    rows = load_data("tiny")["test"]
    entry = record(run, "base", model, tokenizer, rows, notebook="02", most=12)
    held = entry["held_out"]
    assert held["rows"] == 12 and held["exact_match"] == 0.0
    # The loss again, by the library itself, one row at a time.
    losses, tokens = 0.0, 0
    for row in [rows[i] for i in range(0, len(rows), 18)]:
        prompt = tokenizer(row["prompt"]).input_ids
        ids = prompt + tokenizer(row["completion"], add_special_tokens=False).input_ids
        labels = torch.tensor([[-100] * len(prompt) + ids[len(prompt) :]])
        with torch.no_grad():
            loss = model(torch.tensor([ids]), labels=labels).loss.item()
        losses, tokens = losses + loss * (len(ids) - len(prompt)), tokens + len(ids) - len(prompt)
    assert held["loss"] == pytest.approx(losses / tokens, rel=1e-4)
    assert held["perplexity"] == pytest.approx(2.718281828 ** (losses / tokens), rel=1e-4)
    own = {t.untyped_storage().data_ptr(): 4 * t.numel() for t in (*model.parameters(), *model.buffers())}
    assert entry["size"]["memory_bytes"] == sum(own.values())
    assert all(entry["speed"][k] > 0 for k in ("prefill_tokens_per_s", "decode_tokens_per_s"))
    assert len(entry["generations"]) == 3 and torch.__version__.startswith(entry["versions"]["torch"])
    record(run, "base", model, tokenizer, rows, notebook="02", most=12)
    assert [s["stage"] for s in run.passport()["stages"]] == ["base"]


HEAD = '{"schema": 1, "run": "r", "model": "m", "dataset": "d", "stages": '
STAGE = {
    "held_out": {"rows": 8, "loss": 0.5, "perplexity": 1.65, "exact_match": None},
    "size": {"disk_bytes": 2_500_000_000, "memory_bytes": 13_500_000_000},
    "speed": {"training_tokens_per_s": None, "prefill_tokens_per_s": 9000.0, "decode_tokens_per_s": 52.0},
    "hardware": "a GPU",
}


def passport_with(own_runs, *stages):
    run = open_run("mine")
    for name, text in stages:
        add_stage(run.folder, name, "02", **STAGE, generations=[{"prompt": "Say a\x1b[2J word", "text": text}])
    return run.passport()


def test_the_text_shows_figures_and_what_was_said_before_and_after(own_runs):
    text = passport_text(passport_with(own_runs, ("base", "no"), ("adapter", "maybe"), ("gptq-4bit", "yes")))
    assert "13.5 GB" in text and "2.5 GB" in text and "9,000" in text and "\x1b" not in text
    after = text[text.index("> Say a") :]
    assert "no" in after and "yes" in after and "maybe" not in after


def test_one_line_says_what_got_worse(own_runs):
    """Each figure stands beside that of the stage it was made from; other hardware's speed is compared with nothing."""
    run = open_run("mine")
    held = {"rows": 100, "perplexity": 2.0}
    speed = STAGE["speed"]
    for stage, notebook, loss, exact, size, fast, of in (
        ("base", "02", 2.5, 0.0, None, 50.0, {}),
        ("adapter", "02", 0.5, 0.9, 1000, 48.0, {}),
        ("merged", "03", 0.50000001, 0.9, 2_000_000, 60.0, {}),
        ("gptq-4bit", "10", 0.5001, 0.91, 3_000_000, 53.0, {}),
        ("nf4", "12", 0.4, 0.89, 1_000_000, 55.0, {"of": "base"}),
        ("qlora-adapter", "12", 0.5, 0.9, 1000, 55.0, {}),
    ):
        add_stage(
            run.folder,
            stage,
            notebook,
            settings=of,
            held_out=held | {"loss": loss, "perplexity": math.exp(loss), "exact_match": exact},
            size={"disk_bytes": size},
            speed=speed | {"decode_tokens_per_s": fast},
            hardware="a GPU",
        )
    add_stage(run.folder, "served", "18", speed={"decode_tokens_per_s": 2.0}, hardware="a GPU")
    passport = run.passport()
    lines = {s["stage"]: passport_line(passport, s["stage"]) for s in passport["stages"]}
    end = "; rocm-guide passport mine shows all stages"
    assert lines == {
        "base": "base: loss 2.5000, exact 0.0%, decode/s 50" + end,
        "adapter": "adapter: loss 0.5000 (base 2.5000), exact 90.0% (base 0.0%), on disk 1 kB,"
        " decode/s 48 (base 50)" + end,
        "merged": "merged: loss 0.5000 (adapter 0.5000), exact 90.0% (adapter 90.0%), on disk 2 MB,"
        " decode/s 60 (adapter 48)" + end,
        "gptq-4bit": "gptq-4bit: loss 0.5001 (merged 0.5000, worse), exact 91.0% (merged 90.0%),"
        " on disk 3 MB (merged 2 MB, worse), decode/s 53 (merged 60, worse)" + end,
        "nf4": "nf4: loss 0.4000 (base 2.5000), exact 89.0% (base 0.0%), on disk 1 MB, decode/s 55 (base 50)" + end,
        "qlora-adapter": "qlora-adapter: loss 0.5000 (merged 0.5000), exact 90.0% (merged 90.0%),"
        " on disk 1 kB (merged 2 MB), decode/s 55 (merged 60)" + end,
        "served": "served: decode/s 2" + end,
    }
    passport["stages"][0]["hardware"] = "another"
    assert "decode/s 48;" in passport_line(passport, "adapter")
    with pytest.raises(
        RunError, match="mine: has no stage awq; it has base, adapter, merged, gptq-4bit, nf4, qlora-adapter, served"
    ):
        passport_line(passport, "awq")
    alone = {"run": "r", "stages": [{"stage": "awq-4bit", "size": {"disk_bytes": 2000}}]}
    assert passport_line(alone, "awq-4bit").startswith("awq-4bit: on disk 2 kB;")  # there is nothing to compare with


def test_no_word_of_held_out_rows_where_none_were_judged(own_runs):
    run = open_run("mine")
    add_stage(run.folder, "compiled", "16", speed={"decode_tokens_per_s": 52.0}, hardware="a CPU")
    text = passport_text(run.passport())
    assert "held-out rows" not in text and "decode: tokens per second" in text and "52" in text


def test_stages_stand_in_the_courses_order_whichever_notebook_ran_first(own_runs):
    """The longest notebooks run first in `make course`, and each makes what it needs of the run."""
    run = open_run("r", model="tiny", dataset="tiny")
    for stage, notebook in (("compiled", "16"), ("adapter", "02"), ("awq-4bit", "11"), ("full", "02"), ("base", "02")):
        add_stage(run.folder, stage, notebook)
    add_stage(run.folder, "compiled", "16")
    assert [s["stage"] for s in run.passport()["stages"]] == ["base", "adapter", "full", "awq-4bit", "compiled"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "not valid JSON"),
        ("[]", "is no passport"),
        ('{"schema": 2}', "has schema 2, this version reads 1"),
        (HEAD + '[{"stage": 1}]}', "of another kind"),
        (HEAD + '[{"stage": "a", "size": {"disk_bytes": "x"}}]}', "of another kind"),
    ],
)
def test_a_broken_passport_is_refused_in_one_line(tmp_path, content, reason):
    (tmp_path / "passport.json").write_text(content)
    with pytest.raises(RunError, match=reason) as refusal:
        read_passport(tmp_path)
    assert "\n" not in str(refusal.value)


WHOLE = {
    "schema": 1,
    "run": "r",
    "model": "tiny",
    "dataset": "tiny",
    "seed": 3,
    "stages": [
        {
            "stage": name,
            "notebook": "02",
            "date": "2026-11-27",
            "folder": name,
            "hardware": "a CPU",
            "held_out": {"rows": 8, "loss": loss, "perplexity": math.exp(loss), "exact_match": 0.5},
            "size": {"disk_bytes": 5, "memory_bytes": 6},
            "speed": {"training_tokens_per_s": None, "prefill_tokens_per_s": 9.0, "decode_tokens_per_s": 1.5},
            "generations": [{"prompt": "a", "text": "b"}],
            "settings": {"rank": 16},
            "versions": {"torch": "2.13.0"},
        }
        for name, loss in (("base", 2.5), ("adapter", 0.5))
    ],
}


def places(value, path=()):
    """Every dictionary of a document, and where it stands."""
    if isinstance(value, dict):
        yield path, value
    for key, inside in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield from places(inside, (*path, key))


@pytest.mark.parametrize("seed", range(60))
def test_a_passport_whose_meaning_was_changed_is_named_or_shows_it(tmp_path, seed):
    """A key renamed, dropped or doubled, a stage doubled: an error, or what is read is another document."""
    rng, changed = random.Random(seed), copy.deepcopy(WHOLE)
    free = ("settings", "versions")
    path, at = rng.choice([(p, d) for p, d in places(changed) if not set(p) & set(free) and "prompt" not in d])
    key = rng.choice(sorted(at))
    kind = rng.choice(("rename", "drop", "double", "double a stage"))
    text = json.dumps(changed)
    if kind == "rename":
        at[key + "s"] = at.pop(key)
        text = json.dumps(changed)
    elif kind == "drop":
        del at[key]
        text = json.dumps(changed)
    elif kind == "double":
        whole = json.dumps(at)
        text = text.replace(whole, whole[:-1] + f", {json.dumps(key)}: {json.dumps(at[key])}}}", 1)
    else:
        changed["stages"].append(changed["stages"][0])
        text = json.dumps(changed)
    (tmp_path / "passport.json").write_text(text)
    try:
        found = read_passport(tmp_path)
    except RunError as e:
        assert "\n" not in str(e)
        return
    assert kind == "drop" and key not in ("schema", "run", "model", "dataset", "stages", "stage"), (kind, path, key)
    expected = copy.deepcopy(changed)
    expected.setdefault("seed", 0)
    assert found == expected != WHOLE


@pytest.mark.parametrize(
    ("figure", "value", "said"),
    [
        ("loss", 0.7, "is not exp"),
        ("perplexity", 1.0, "is not exp"),
        ("exact_match", 50, "exact_match=50 cannot be"),
        ("rows", -1, "rows=-1 cannot be"),
        ("loss", float("nan"), "loss=nan cannot be"),
        ("lost", 1, "is no figure of held_out"),
    ],
)
def test_a_figure_that_cannot_be_is_named(tmp_path, figure, value, said):
    changed = copy.deepcopy(WHOLE)
    (tmp_path / "passport.json").write_text(json.dumps(changed))
    assert read_passport(tmp_path) == WHOLE
    changed["stages"][1]["held_out"][figure] = value
    (tmp_path / "passport.json").write_text(json.dumps(changed))
    with pytest.raises(RunError, match=said):
        read_passport(tmp_path)


def test_a_figure_that_is_not_finite_becomes_null(own_runs):
    run = open_run("mine")
    add_stage(run.folder, "base", held_out={"loss": float("nan"), "perplexity": float("inf")})
    assert run.passport()["stages"][0]["held_out"] == {"loss": None, "perplexity": None}
    with pytest.raises(GuideError, match="must be numbers"):
        add_stage(run.folder, "base", held_out={"loss": "low"})


def test_the_command_prints_json(own_runs):
    passport_with(own_runs, ("base", "no"))
    command = [sys.executable, "-m", "rocm_guide.cli.main", "passport", "mine"]
    done = subprocess.run([*command, "--json"], capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["stages"][0]["stage"] == "base"
    command[-1] = "other"
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2 and "other: no passport.json there" in done.stderr and done.stderr.count("\n") == 1


def test_a_rehearsal_adapts_what_a_family_has(tmp_path):
    """GPT-2 has no q_proj: the four steps that stand in for notebook 02 take all of its linear layers."""
    config = GPT2Config(n_embd=64, n_layer=1, n_head=2, vocab_size=1024, bos_token_id=1, eos_token_id=2)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "gpt2")
    load_tokenizer("tiny").save_pretrained(tmp_path / "gpt2")
    run = open_run("", model=str(tmp_path / "gpt2"))
    folder = adapter_folder(run, say=str)
    model, _ = load_model(str(tmp_path / "gpt2"), device="cpu")
    assert check_adapter(folder, model) == 64


def test_a_folder_that_is_not_there_is_no_adapter(tiny, tmp_path):
    with pytest.raises(RunError, match="no such folder; name the one that PEFT's save_pretrained wrote"):
        check_adapter(tmp_path / "nothing", tiny[0])


@pytest.mark.parametrize(
    ("prompt", "completion"), [("[INST] a [/INST]", " b </s>"), ("[INST] a [/IN", "ST] b"), ("", "ab")]
)
def test_what_is_judged_has_the_tokens_that_were_trained(prompt, completion, tiny):
    """TRL encodes prompt and completion together: a token may lie across the place where they meet."""
    words = tiny[1]
    ids, start = held_out._encoded({"prompt": prompt, "completion": completion}, words, 1024)
    assert ids == words(prompt + completion).input_ids
    assert start >= 1 and ids[:start] == words(prompt).input_ids[:start]
    assert words.decode(ids[start:]).endswith(completion)
    cut, later = held_out._encoded({"prompt": prompt, "completion": completion}, words, len(ids) - 1)
    assert cut == ids[1:] and later == max(1, start - 1)


@pytest.mark.parametrize(
    "header",
    ["[1]", "3", '{"a": 1}', '{"a": {"data_offsets": [0, "x"]}}', '{"a": {"data_offsets": [0, 1e400]}}', "[" * 100_000],
)
def test_a_file_whose_header_is_none_is_named(tmp_path, header):
    file = tmp_path / "model.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header.encode())
    with pytest.raises(RunError, match=r"model.safetensors: (cannot be read as weights|half-written)"):
        check_weights(file)
