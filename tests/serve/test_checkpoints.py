# SPDX-License-Identifier: MIT
"""A folder is looked at before a server loads it: what cannot be served is said in one line, at once."""

import json
from pathlib import Path

import pytest

from rocm_guide.common.base import GuideError
from rocm_guide.models.tiny import tiny_folder
from rocm_guide.serve.served_checkpoints import ServingError, read_checkpoint


@pytest.fixture
def model(tmp_path):
    """A folder that looks like a saved model; no server will load it here."""
    folder = tmp_path / "my-model"
    folder.mkdir()
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "max_position_embeddings": 512}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(b"")
    (folder / "tokenizer.json").write_text("{}")
    return folder


@pytest.fixture
def adapter(tmp_path, model):
    folder = tmp_path / "my-adapter"
    folder.mkdir()
    fields = {"peft_type": "LORA", "base_model_name_or_path": str(model), "r": 8}
    (folder / "adapter_config.json").write_text(json.dumps(fields))
    (folder / "adapter_model.safetensors").write_bytes(b"")
    return folder


def change(file, **fields):
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def test_a_model_an_adapter_and_a_quantised_one(model, adapter):
    assert read_checkpoint(tiny_folder()).chat and read_checkpoint(tiny_folder()).length == 256
    found = read_checkpoint(model)
    assert (found.name, found.base, found.quantised, found.length, found.chat) == ("my-model", "", "", 512, False)
    assert (read_checkpoint(adapter).base, read_checkpoint(adapter).rank) == (str(model), 8)
    change(model / "config.json", quantization_config={"quant_method": "gptq", "bits": 4})
    (model / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    assert read_checkpoint(model).quantised == "gptq" and read_checkpoint(model).chat


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda f: (f / "config.json").unlink(), "neither config.json nor adapter_config.json"),
        (lambda f: (f / "config.json").write_text("{"), "not valid JSON"),
        (lambda f: (f / "config.json").write_text("[]"), "no JSON object"),
        (lambda f: (f / "config.json").write_text("[" * 100_000), "not valid JSON"),
        (lambda f: (f / "config.json").write_bytes(b"\xff\xfe"), "not valid JSON"),
        (lambda f: (f / "model.safetensors").unlink(), "no weights"),
        (lambda f: (f / "tokenizer.json").unlink(), "no tokenizer"),
        (lambda f: change(f / "config.json", architectures=["BertModel"]), "BertModel writes no text"),
        (lambda f: change(f / "config.json", architectures="Llama"), "architectures=Llama"),
        (lambda f: change(f / "config.json", max_position_embeddings="many"), "max_position_embeddings=many"),
        (lambda f: change(f / "config.json", quantization_config=4), "quantization_config=4"),
        (lambda f: change(f / "config.json", auto_map={"AutoModel": "theirs.Model"}), "auto_map: theirs.Model"),
    ],
)
def test_a_model_that_cannot_be_served(model, damage, said):
    damage(model)
    with pytest.raises(GuideError, match=said) as e:
        read_checkpoint(model)
    assert "my-model" in str(e.value) and "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"base_model_name_or_path": "/no/such/base"}, "its base /no/such/base is not there"),
        ({"base_model_name_or_path": "gone"}, "its base gone is not there"),
        ({"base_model_name_or_path": None}, "names no base"),
        ({"base_model_name_or_path": 7}, "base_model_name_or_path=7"),
        ({"peft_type": "PREFIX_TUNING"}, "only LoRA adapters"),
        ({"r": "eight"}, "r=eight"),
    ],
)
def test_an_adapter_that_cannot_be_served(adapter, fields, said):
    change(adapter / "adapter_config.json", **fields)
    with pytest.raises(ServingError, match=said):
        read_checkpoint(adapter)


@pytest.mark.parametrize("name", ["", " ", "nowhere", "file.txt"])
def test_no_folder_at_all(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path("file.txt").write_text("")
    with pytest.raises(ServingError, match="no such folder; name the folder"):
        read_checkpoint(name)


def test_of_a_run_of_the_course_the_merged_model_is_taken(tmp_path, model):
    run = tmp_path / "my-run"
    run.mkdir()
    (run / "passport.json").write_text("{}")
    with pytest.raises(ServingError, match="my-run: a run without a merged model; notebook 03 makes it"):
        read_checkpoint(run)
    model.rename(run / "merged")
    assert read_checkpoint(run).folder == run / "merged"
