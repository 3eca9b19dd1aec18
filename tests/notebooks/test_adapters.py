# SPDX-License-Identifier: MIT
"""Notebook 03 and its script take each kind of LoRA adapter that PEFT saves, with the logits of its own model."""

import runpy
import shutil
import sys
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from peft import LoraConfig, get_peft_model

from rocm_guide.cli.copying import script_of
from rocm_guide.cli.lessons import read_notebook
from rocm_guide.models import load_model
from rocm_guide.models.tiny import tiny_folder
from tests.in_turn import in_shares
from tests.notebooks.cells import code_cells, new_room, run_cell
from tests.own_data import write_layouts

NOTEBOOK = next(Path(__file__).parents[2].glob("notebooks/03_*.ipynb"))
TABLES = ["embed_tokens", "lm_head"]
OURS = "{% for m in messages %}OURS {{ m['content'] }}{% endfor %}"
#: kind -> what its configuration says, and by how many words the vocabulary grows.
KINDS = {
    "plain": ({}, 0),
    "dora": ({"use_dora": True}, 0),
    "rslora": ({"use_rslora": True, "lora_alpha": 16}, 0),
    "ranks": ({"rank_pattern": {"q_proj": 16}, "alpha_pattern": {"q_proj": 40}}, 0),
    "every matrix": ({"target_modules": "all-linear"}, 0),
    "embeddings": ({"target_modules": ["q_proj", "embed_tokens"]}, 0),
    "saved layers": ({"modules_to_save": TABLES}, 0),
    "trained tokens": ({"trainable_token_indices": {"embed_tokens": [5, 9]}}, 0),
    "grown": ({"modules_to_save": TABLES}, 2),
    "grown, padded": ({"modules_to_save": TABLES}, 64),
    "grown, no word for it": ({}, 3),  # PEFT sees a longer table, and saves it
    "pickled": ({}, 0),
    "of the hub": ({"use_dora": True}, 0),
}
IDS = torch.tensor([[1, 5, 9, 13, 600]])


def saved_adapter(kind, folder):
    """Save an adapter of this kind with PEFT; return what names it, and the logits of the model that it came from."""
    options, grown = KINDS[kind]
    torch.manual_seed(0)
    model, tokenizer = load_model("tiny", dtype=torch.float32, device="cpu")
    if grown:
        tokenizer.add_tokens(["<|a|>", "<|b|>"])
        tokenizer.chat_template = OURS
        model.resize_token_embeddings(model.get_input_embeddings().num_embeddings + grown, mean_resizing=False)
    settings = {"r": 4, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM", **options}
    tuned = get_peft_model(model, LoraConfig(**settings)).eval()
    tuned.peft_config["default"].base_model_name_or_path = str(tiny_folder())
    for name, weight in tuned.named_parameters():
        if weight.requires_grad or (grown and name.endswith(("embed_tokens.weight", "lm_head.weight"))):
            weight.data += 0.05 * torch.randn_like(weight)
    tuned.save_pretrained(folder, safe_serialization=kind != "pickled")
    if grown:
        tokenizer.save_pretrained(folder)
    with torch.inference_mode():
        logits = tuned(IDS).logits
        with tuned.disable_adapter():
            assert grown or (tuned(IDS).logits - logits).abs().max() > 0.1
    return logits


@pytest.fixture(params=in_shares(KINDS, 3))
def adapter(request, tmp_path, monkeypatch):
    """What ADAPTER is given, its right logits, and whether it has a tokenizer and a template of its own."""
    kind, folder = request.param, tmp_path / "theirs"
    logits, name = saved_adapter(kind, folder), str(folder)
    if kind == "of the hub":
        name, cache = "somebody/adapter", tmp_path / "hub" / "models--somebody--adapter"
        (cache / "refs").mkdir(parents=True)
        (cache / "refs" / "main").write_text("0" * 40)
        shutil.move(folder, cache / "snapshots" / ("0" * 40))
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return name, logits, bool(KINDS[kind][1])


def right(model, logits):
    with torch.inference_mode():
        found = model(IDS).logits
    assert found.shape == logits.shape
    return torch.allclose(found, logits, atol=1e-4)


def test_the_script_takes_it(adapter, tmp_path, monkeypatch, capsys):
    name, logits, own = adapter
    (tmp_path / "ask.py").write_text(script_of("03"))
    words = ["ask.py", f"--model={tiny_folder()}", f"--adapter={name}", "--question=Which memory?", "--answer=4"]
    monkeypatch.setattr(sys, "argv", words)
    left = runpy.run_path(str(tmp_path / "ask.py"))
    assert right(left["adapted"], logits)
    assert (left["tokenizer"].chat_template == OURS) == own
    assert capsys.readouterr().out.count("sampled:") == 3


def test_the_notebook_takes_it_and_merges_it(adapter, tmp_path, monkeypatch):
    name, logits, _ = adapter
    rows = write_layouts(tmp_path)["messages"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    room = new_room()
    given = {"ADAPTER": name, "DATASET": str(rows), "RUN": "", "PROMPTS": 4, "ANSWER": 4}
    for index, source in code_cells(read_notebook(NOTEBOOK), given):
        if "def step(" in source:  # what follows takes times
            break
        run_cell(room, index, source)
    assert right(room.plain, logits) and right(room.adapted, logits)
