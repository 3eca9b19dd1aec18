# SPDX-License-Identifier: MIT
"""The zoo: models and data by one word, and a cache that survives everything."""

import contextlib
import errno
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch

from rocm_guide.common.base import GuideError
from rocm_guide.models import load
from rocm_guide.models.course_data import HELD_OUT_PER_FACT, QUESTIONS, facts, pretraining_texts, question_answer_splits
from rocm_guide.models.load import checkpoint, load_data, load_model, load_tokenizer, meta_model
from rocm_guide.models.shapes import SHAPES, config_of
from rocm_guide.models.tiny import tiny_folder

BUILD = "from rocm_guide.models.tiny import tiny_folder; print(tiny_folder())"
# The same cache logic with a model that trains in moments: what is tested is the cache.
QUICK = "import rocm_guide.models.tiny as z; z.RECIPE['epochs'] = {epochs}; z.SHAPE['num_hidden_layers'] = 1; "
COUNT = "import os; real = z.build_tiny; z.build_tiny = lambda *a, **k: (print('BUILD', flush=True), real(*a, **k)); "


def start(cache: Path, code: str) -> subprocess.Popen:
    env = {**os.environ, "ROCM_GUIDE_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def whole(cache: Path) -> list[Path]:
    """Folders under their final name; each must be complete at every moment."""
    return [p for p in cache.glob("tiny-*") if p.is_dir() and not p.name.endswith(".tmp")]


def test_data_is_large_enough_and_held_out_questions_are_new():
    train, held_out = question_answer_splits()
    assert len(train) >= 1000 and len(held_out) >= 200
    assert not {s["question"].lower() for s in train} & {s["question"].lower() for s in held_out}
    assert len(held_out) == HELD_OUT_PER_FACT * len(facts())
    trained = {s["answer"] for s in train}
    assert all(s["answer"] in trained for s in held_out), "nothing is asked that was never told"
    for sample in held_out[:5]:
        assert sample["prompt"] == f"[INST] {sample['question']} [/INST]"
        assert sample["completion"] == f" {sample['answer']} </s>"


def test_facts_are_distinct_and_every_one_has_a_source():
    rows = facts()
    assert len({f.subject for f in rows}) == len(rows)
    assert all(f.source and f.answer and not f.answer.endswith(".") for f in rows)
    assert len(set(QUESTIONS)) == len(QUESTIONS) >= 10 and all("{x}" in q for q in QUESTIONS)


def test_facts_that_can_be_computed_are_right():
    from cdna.predict.specs import gpu

    known = {f.subject: f.answer for f in facts()}
    chip = gpu("MI300X")
    assert known["the number of compute units on MI300X"] == str(chip.units)
    assert known["the memory capacity of MI300X"] == f"{chip.memory_gib} GB"  # as the data sheet words it
    assert known["the peak BF16 rate of MI300X"] == f"{chip.peak_tflops('bf16'):,.1f} TFLOPS"
    assert known["the peak INT8 rate of MI300X"] == f"{chip.peak_tflops('int8'):,.1f} TOPS"
    assert known["the number of threads that MI300X can hold at once"] == f"{chip.units * 32 * 64:,}"
    for registers in (64, 72, 80, 96, 128, 168, 256, 512):
        waves = known[f"the number of waves per SIMD at {registers} registers"]
        assert waves.split()[0] == str(min(8, 512 // registers))
    parameters = sum(p.numel() for p in meta_model("random:llama-2-7b").parameters())
    assert known["the number of parameters of Llama-2-7B"] == f"{parameters:,}"
    assert known["the gain of TunableOp on one matrix product in its blog"] == f"{14488.24 / 11231.81 - 1:.1%}".replace(
        "%", " %"
    )


def test_base_model_reads_no_question_about_a_fact():
    subjects = [f.subject for f in facts()]
    chats = [t for t in pretraining_texts() if "[INST]" in t]
    assert chats and not any(s in t for t in chats for s in subjects)


def test_tiny_is_a_real_llama_with_its_own_tokenizer():
    model, tokenizer = load_model("tiny", device="cpu")
    assert type(model).__name__ == "LlamaForCausalLM" and model.dtype == torch.float32
    text = "[INST] What is MI300X? [/INST] Ünïcode 漢字 🙂 </s>"
    assert tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=False).replace("<s>", "").strip() == text
    assert tokenizer.padding_side == "left" and tokenizer.pad_token_id is not None
    rendered = tokenizer.apply_chat_template([{"role": "user", "content": "Hello!"}], tokenize=False)
    assert rendered == "<s>[INST] Hello! [/INST]"


def test_two_loads_are_independent_copies():
    first, _ = load_model("tiny", device="cpu")
    second, _ = load_model("tiny", device="cpu")
    with torch.no_grad():
        first.lm_head.weight.zero_()
    assert second.lm_head.weight.abs().sum() > 0


def test_random_model_has_true_shapes_and_repeats():
    config = {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96, "vocab_size": 128}
    assert config_of("llama-2-7b", **config).num_hidden_layers == 2
    first, _ = load_model("random:gpt2", device="cpu", seed=3)
    second, _ = load_model("random:gpt2", device="cpu", seed=3)
    assert torch.equal(first.transformer.wte.weight, second.transformer.wte.weight)
    assert sum(p.numel() for p in first.parameters()) == 124_439_808  # GPT-2 small, as published


@pytest.mark.parametrize(
    ("shape", "parameters"),
    [  # published counts, or counted by others: Llama 2 and 3 papers, model cards
        ("tinyllama-1.1b", 1_100_048_384),
        ("llama-2-7b", 6_738_415_616),
        ("llama-2-13b", 13_015_864_320),
        ("llama-2-70b", 68_976_648_192),
        ("llama-3-8b", 8_030_261_248),
        ("llama-3-70b", 70_553_706_496),
        ("mistral-7b", 7_241_732_096),
        ("qwen2.5-7b", 7_615_616_512),
        ("gemma-2b", 2_506_172_416),
        ("opt-1.3b", 1_315_758_080),
    ],
)
def test_shapes_have_the_published_parameter_counts(shape, parameters):
    assert sum(p.numel() for p in meta_model(f"random:{shape}").parameters()) == parameters


def test_every_shape_builds_on_the_meta_device():
    for shape in SHAPES:
        assert next(meta_model(f"random:{shape}").parameters()).is_meta


@pytest.mark.parametrize("spec", ["tinny", "/no/such/folder", "random:llama-9", "", "./nothing"])
def test_bad_model_spec_is_one_line_with_the_fix(spec):
    with pytest.raises(GuideError) as error:
        load_model(spec)
    line = str(error.value)
    assert "\n" not in line and (spec.removeprefix("random:") in line) and ("choose" in line or "give" in line)


def test_folder_without_config_names_what_is_missing(tmp_path):
    with pytest.raises(GuideError, match=r"no config\.json"):
        load_model(str(tmp_path))


def test_damaged_model_folder_is_one_line(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(GuideError) as error:
        load_model(str(tmp_path))
    assert "\n" not in str(error.value) and str(tmp_path) in str(error.value)
    assert "hf download" not in str(error.value), "a folder of one's own is nothing to download"


COUNT_ATTEMPTS = """
import atexit
seen = {"attempts": 0, "naps": 0.0}
def counted(name, value, old):
    def call(*a, **k):
        seen[name] += value(*a)
        return old(*a, **k)
    return call
socket.socket.connect = counted("attempts", lambda *a: 1, socket.socket.connect)
socket.socket.connect_ex = counted("attempts", lambda *a: 1, socket.socket.connect_ex)
time.sleep = counted("naps", lambda seconds: seconds, lambda seconds: None)
atexit.register(lambda: print("ATTEMPTS {attempts} NAPS {naps}".format(**seen)))
"""


@pytest.mark.parametrize("away", [{"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": "http://127.0.0.1:9"}])
def test_hub_without_a_network_is_one_line_at_once(away):
    """Whoever has no network is told so, and does not wait for attempts to be repeated."""
    calls = ("load_model", "load_tokenizer", "load_data", "meta_model")
    code = f"import socket, time\nfrom rocm_guide.models import load as zoo\n{COUNT_ATTEMPTS}"
    code += f"for call in {calls}:\n    try: getattr(zoo, call)('nobody/no-such')\n"
    code += "    except zoo.GuideError as e: print(call, repr(str(e)))\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **away})
    *lines, counted = done.stdout.splitlines()
    assert len(lines) == len(calls), done.stderr
    for call, line in zip(calls, lines, strict=True):
        assert re.match(rf"{call} ['\"]nobody/no-such: not in the local cache", line)
        assert "hf download nobody/no-such" in line and "\\n" not in line
    attempts, naps = map(float, re.fullmatch(r"ATTEMPTS (\d+) NAPS ([\d.]+)", counted).groups())
    assert attempts <= (0 if "HF_HUB_OFFLINE" in away else 8 * len(calls)) and naps < 25 * len(calls)


def test_data_set_from_a_file_and_a_bad_one(tmp_path):
    rows = [{"prompt": f"q{i}", "completion": f"a{i}"} for i in range(20)]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data = load_data(str(tmp_path / "mine.jsonl"))
    assert {k: len(v) for k, v in data.items()} == {"train": 18, "test": 2}
    with pytest.raises(GuideError, match="no-such"):
        load_data("no-such")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("mine.json", None, "no such file; check the path"),
        ("data/mine.csv", None, "no such file; check the path"),
        ("mine.txt", "a line", "a data file ends in .json, .jsonl, .csv, .parquet"),
        ("mine.json", "{", "cannot be loaded"),
    ],
)
def test_data_files_that_cannot_be_used_are_one_line(tmp_path, monkeypatch, name, text, said):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(GuideError) as error:
        load_data(name)
    assert str(error.value).startswith(f"{name}: ") and said in str(error.value) and "\n" not in str(error.value)


def test_a_data_set_without_train_names_its_splits(monkeypatch):
    import datasets

    only = datasets.DatasetDict(validation=datasets.Dataset.from_list([{"text": "a"}]))
    monkeypatch.setattr(datasets, "load_dataset", lambda *a, **k: only)
    with pytest.raises(GuideError, match="has the splits validation; a data set to train on needs one called 'train'"):
        load_data("nobody/data")


def test_a_file_is_no_model(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"x")
    with pytest.raises(GuideError, match=r"is a file; name the folder of the model, with config\.json"):
        load_model(str(tmp_path / "model.safetensors"))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError("401 Client Error. Repository Not Found"), "check the spelling; for a gated model, request access"),
        (OSError("You are trying to access a gated repo."), "check the spelling; for a gated model, request access"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device.*free some space, or set HF_HOME"),
        (FileNotFoundError("model.safetensors: no such file in the repository"), "hf download nobody/model"),
    ],
)
def test_what_the_hub_says_becomes_one_line(monkeypatch, error, said):
    from transformers import AutoModelForCausalLM

    def fail(*_, **__):
        try:
            raise error
        except OSError as cause:  # the libraries wrap what went wrong
            raise OSError("Can't load the model.\nIf you were trying …") from cause

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", fail)
    with pytest.raises(GuideError, match=f"nobody/model: .*{said}") as caught:
        load_model("nobody/model", device="cpu")
    assert "\n" not in str(caught.value)


def test_another_seed_needs_no_second_build_for_its_tokenizer(monkeypatch):
    import rocm_guide.models.load as zoo

    asked, real = [], zoo.tiny_folder
    monkeypatch.setattr(zoo, "tiny_folder", lambda seed=0: asked.append(seed) or real(0))
    load_model("tiny", device="cpu", seed=3)
    assert asked == [3]


def test_a_checkpoint_of_random_weights_stays_for_those_who_read_it(tmp_path, monkeypatch):
    """Notebooks of one run, beside each other, share the folder: a second call must not write it again."""
    small = load_model("tiny", device="cpu")
    monkeypatch.setattr(load, "load_model", lambda spec: small)  # the weights do not matter here
    folder = tmp_path / "run" / ".base"
    assert checkpoint("random:gpt2", folder) == str(folder)
    before = {p.name: (p.stat().st_ino, p.stat().st_mtime_ns) for p in folder.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(before)
    checkpoint("random:gpt2", folder)
    assert {p.name: (p.stat().st_ino, p.stat().st_mtime_ns) for p in folder.iterdir()} == before
    (folder / ".made-of").write_text("random:llama-2-7b")  # another model's: made anew
    checkpoint("random:gpt2", folder)
    assert folder.joinpath("config.json").stat().st_ino != before["config.json"][0]
    assert [p.name for p in folder.parent.iterdir()] == [".base"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep me")
    with pytest.raises(GuideError, match="needs a folder of its own"):
        checkpoint("random:gpt2", tmp_path / "mine")
    assert (tmp_path / "mine" / "notes.txt").read_text() == "keep me"


def test_tokenizer_of_random_models_is_the_tiny_one():
    assert load_tokenizer("random:llama-2-7b").vocab_size == load_tokenizer("tiny").vocab_size


def test_damaged_cache_heals(tmp_path, monkeypatch):
    import rocm_guide.models.tiny as zoo_tiny

    builds = []

    def train(tokenizer, seed):
        from transformers import LlamaConfig, LlamaForCausalLM

        builds.append(seed)
        heads = {"intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2}
        return LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=16, num_hidden_layers=1, **heads))

    monkeypatch.setattr(zoo_tiny, "_train_model", train)
    folder = tiny_folder(root=tmp_path)
    assert tiny_folder(root=tmp_path) == folder and len(builds) == 1, "an intact cache is used as it is"
    for damage in (
        lambda: (folder / "model.safetensors").write_bytes(b"x" * 100),
        lambda: (folder / "tokenizer.json").unlink(),
        lambda: (folder / "manifest.json").write_text("{"),
        lambda: (folder / "manifest.json").write_text("[]"),
        lambda: (folder / "manifest.json").write_text("{}"),
        lambda: folder.rename(folder.with_suffix(".away")),
    ):
        builds.clear()
        damage()
        assert tiny_folder(root=tmp_path) == folder and len(builds) == 1
        assert tiny_folder(root=tmp_path) == folder and len(builds) == 1
    assert tiny_folder(1, root=tmp_path) != folder, "another seed is another model"


@pytest.mark.slow
def test_eight_processes_share_a_cold_cache_and_build_once(tmp_path):
    cache = tmp_path / "cache"
    code = QUICK.format(epochs=1) + COUNT + "print(z.tiny_folder())"
    outputs = [p.communicate() for p in [start(cache, code) for _ in range(8)]]
    assert all(str(cache) in out for out, _ in outputs), [err[-300:] for _, err in outputs]
    assert sum("BUILD" in out for out, _ in outputs) == 1
    assert [p.name for p in cache.iterdir() if p.name.endswith(".tmp")] == []


COPIES = """
import os, sys, traceback
import torch, tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
for line in sys.stdin:
    if pid := os.fork():
        print(pid, flush=True)
        os.waitpid(pid, 0)
        continue
    said = os.open(line.strip(), os.O_WRONLY)
    os.dup2(said, 1)
    os.dup2(said, 2)
    try:
        exec(sys.argv[1])
    except BaseException:
        traceback.print_exc()
    os._exit(0)
"""


@pytest.fixture
def builder(tmp_path):
    """``builder()`` starts a process that builds the model; it tells its number, and what it says.

    It is a copy of one that has imported the libraries already, for that takes longer than the building.
    """
    env = {**os.environ, "ROCM_GUIDE_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    code = QUICK.format(epochs=1) + COUNT + "print(z.tiny_folder(), flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", COPIES, code], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as first:

        def another():
            os.mkfifo(said := tempfile.mktemp(dir=tmp_path))
            print(said, file=first.stdin, flush=True)
            return int(first.stdout.readline()), open(said)

        yield another
        first.stdin.close()


@pytest.mark.slow
def test_killed_builders_never_leave_a_partial_model(builder, tmp_path):
    """Builders killed at random moments; ROCM_GUIDE_KILLS=50 is the acceptance campaign.

    Every second one is killed while it writes: that is where a partial model could come from.
    """
    cache, rng = tmp_path / "cache", random.Random(0)
    _, said = builder()
    assert said.readline() == "BUILD\n"
    began = time.monotonic()
    assert str(cache) in said.read()
    longest = time.monotonic() - began
    whole(cache)[0].rename(tmp_path / "first")  # it is what the others are compared with
    kills, during, writing = int(os.environ.get("ROCM_GUIDE_KILLS", "6")), 0, 0
    for i in range(kills):
        process, said = builder()
        assert said.readline() == "BUILD\n"
        if i % 2:
            while Path(f"/proc/{process}").exists() and not any(cache.glob("tiny-*.tmp/*")) and not whole(cache):
                time.sleep(0.001)
            time.sleep(rng.uniform(0, 0.1))
        else:
            time.sleep(rng.uniform(0, longest))
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        said.read()
        during += any(cache.glob("tiny-*.tmp"))
        writing += any(cache.glob("tiny-*.tmp/*"))
        for folder in whole(cache):  # the kill came too late: it must be complete, and the next one builds again
            assert {p.name: p.read_bytes() for p in folder.iterdir()} == {
                p.name: p.read_bytes() for p in (tmp_path / "first").iterdir()
            }, "a partial model"
            shutil.rmtree(folder)
    print(f"{kills} kills: {during} while building, {writing} of them while writing")
    assert during >= kills / 2 and writing >= 1, "the kills came at the wrong moments: this test proves nothing"
    assert str(cache) in builder()[1].read()
    assert [p for p in cache.iterdir() if p.name.endswith(".tmp")] == [], "what a killed builder left is cleared away"


def test_cache_that_cannot_be_written_is_one_line(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(GuideError, match="ROCM_GUIDE_CACHE"):
        tiny_folder(root=blocker / "cache")


@pytest.mark.slow
@pytest.mark.parametrize("limit", [20_000, 400_000])
def test_cache_on_a_full_disk_is_one_line_and_leaves_nothing(tmp_path, limit):
    """The first limit stops the tokenizer's file, the second the weights; both are written by libraries in Rust."""
    code = QUICK.format(epochs=1) + "print(z.tiny_folder())"
    env = {**os.environ, "ROCM_GUIDE_CACHE": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"cdna.base.InputError: {tmp_path}: the model cannot be stored there")
    assert "File too large" in last and "free some space or set ROCM_GUIDE_CACHE" in last
    assert [p.suffix for p in tmp_path.iterdir()] == [".lock"]


@pytest.mark.parametrize("spread", ["auto", "sequential", "by hand"])
def test_random_weights_are_spread_by_a_map_and_compute_the_same(spread, tmp_path, monkeypatch):
    from transformers import LlamaConfig

    small = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    monkeypatch.setattr(load, "config_of", lambda shape, **more: LlamaConfig(vocab_size=100, **small, **more))
    by_hand = spread == "by hand"
    if by_hand:
        spread = {"model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk"}
        spread |= {"model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "cpu"}
    whole, _ = load_model("random:llama-2-7b", device="cpu")
    split, _ = load_model("random:llama-2-7b", device_map=spread, offload_folder=str(tmp_path))
    if by_hand:
        assert split.model.layers[1].mlp.up_proj.weight.device.type == "meta"
    ids = torch.arange(6)[None]
    with torch.inference_mode():
        assert torch.equal(split(ids).logits, whole(ids).logits)
