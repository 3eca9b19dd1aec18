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


def test_what_vllm_refuses_is_merged_and_the_rest_gets_room_for_its_largest_rank(adapter):
    from rocm_guide.serve.server import server_command

    assert read_checkpoint(adapter).merge == ""
    change(adapter / "adapter_config.json", r=24)
    line = " ".join(server_command(read_checkpoint(adapter), "vllm"))
    assert "--max-lora-rank 32" in line and "--tokenizer" not in line
    (adapter / "tokenizer.json").write_text("{}")
    (adapter / "chat_template.jinja").write_text("{{ messages }}")
    line = " ".join(server_command(read_checkpoint(adapter), "vllm"))
    assert f"--tokenizer {adapter}" in line and f"--chat-template {adapter}/chat_template.jinja" in line
    change(adapter / "adapter_config.json", r=4, rank_pattern={"q_proj": 40}, use_dora=True, bias="lora_only")
    found = read_checkpoint(adapter)
    assert found.rank == 40
    assert found.merge == "DoRA, several ranks (rank_pattern), trained biases (bias=lora_only)"
    change(adapter / "adapter_config.json", rank_pattern={"q_proj": "wide"})
    with pytest.raises(ServingError, match="a rank is a whole number"):
        read_checkpoint(adapter)


@pytest.mark.parametrize("kind", ["plain", "dora", "ranks", "grown"])
def test_a_merged_adapter_brings_its_tokenizer_template_and_vocabulary(tmp_path, kind):
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from rocm_guide.models.load import load_model
    from rocm_guide.serve.served_checkpoints import merge_adapter

    torch.manual_seed(0)
    model, tokenizer = load_model("tiny", dtype=torch.float32, device="cpu")
    options = {"dora": {"use_dora": True}, "ranks": {"rank_pattern": {"q_proj": 16}}}.get(kind, {})
    if kind == "grown":
        tokenizer.add_tokens(["<|a|>", "<|b|>"])
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        options = {"modules_to_save": ["embed_tokens", "lm_head"]}
    tuned = get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], **options)).eval()
    tuned.peft_config["default"].base_model_name_or_path = str(tiny_folder())
    for name, weight in tuned.named_parameters():
        if "lora_" in name or "modules_to_save" in name:
            weight.data = 0.1 * torch.randn_like(weight)
    tokenizer.chat_template = "{% for m in messages %}OURS {{ m['content'] }}{% endfor %}"
    ids = torch.tensor([[1, 5, 9, 13]])
    expected = tuned(ids).logits
    tuned.save_pretrained(tmp_path / "mine")
    tokenizer.save_pretrained(tmp_path / "mine")
    merge_adapter(tmp_path / "mine", tmp_path / "merged")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype=torch.float32)
    torch.testing.assert_close(merged(ids).logits, expected, atol=1e-4, rtol=1e-4)
    saved = AutoTokenizer.from_pretrained(tmp_path / "merged")
    assert saved.chat_template == tokenizer.chat_template and len(saved) == len(tokenizer)


def test_a_vocabulary_that_grew_without_its_embeddings_is_named(tmp_path):
    import torch
    from peft import LoraConfig, get_peft_model

    from rocm_guide.models.load import load_model
    from rocm_guide.serve.served_checkpoints import merge_adapter

    model, tokenizer = load_model("tiny", dtype=torch.float32, device="cpu")
    tuned = get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj"]))
    tuned.peft_config["default"].base_model_name_or_path = str(tiny_folder())
    tokenizer.add_tokens([f"<|{i}|>" for i in range(model.get_input_embeddings().weight.shape[0])])
    tuned.save_pretrained(tmp_path / "mine")
    tokenizer.save_pretrained(tmp_path / "mine")
    with pytest.raises(ServingError, match=r"its tokenizer has .* save the embeddings too"):
        merge_adapter(tmp_path / "mine", tmp_path / "merged")
    assert not (tmp_path / "merged").exists()
