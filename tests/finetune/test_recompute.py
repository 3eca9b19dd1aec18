# SPDX-License-Identifier: MIT
"""Recomputing a layer's halves changes when things are computed, and nothing else."""

from types import SimpleNamespace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.autograd.graph import saved_tensors_hooks
from transformers import AutoConfig, AutoModelForCausalLM

from rocm_guide.common.base import GuideError
from rocm_guide.finetune import recompute
from rocm_guide.finetune.recompute import recompute_halves
from rocm_guide.models.families import PLAIN_LAYERS
from rocm_guide.models.live import LiveBytes

IDS = torch.arange(34).reshape(2, 17) * 7 % 128
SIZES = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 160}


def small(family="llama", adapter=None, dropout=0.0):
    """A model that trains; with an adapter whose second matrices are not zero."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **SIZES, num_hidden_layers=3, vocab_size=128, head_dim=16)
    model = AutoModelForCausalLM.from_config(config)
    if adapter:
        model = get_peft_model(model, LoraConfig(r=4, lora_dropout=dropout, target_modules=adapter))
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.1)
    return model.train()


def step(model, cast=False):
    """Loss and gradients, with the same random numbers each time."""
    model.zero_grad()
    torch.manual_seed(5)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=cast):
        loss = model(input_ids=IDS, labels=IDS).loss
    loss.backward()
    return loss.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def assert_same(got, wanted, tolerance=1e-6):
    assert got[1].keys() == wanted[1].keys() and wanted[1]
    torch.testing.assert_close(got[0], wanted[0])  # products of fewer rows may round otherwise
    for name, gradient in wanted[1].items():
        torch.testing.assert_close(got[1][name], gradient, atol=tolerance, rtol=10 * tolerance, msg=name)


@pytest.mark.parametrize("adapter", [None, ["q_proj", "v_proj"], ["o_proj", "gate_proj", "up_proj", "down_proj"]])
@pytest.mark.parametrize("family", PLAIN_LAYERS)
def test_loss_and_gradients_are_the_same(family, adapter):
    model = small(family, adapter)
    wanted = step(model)
    for tiles in (1, 3, 100):  # 34 tokens: three parts of different lengths, and more parts than tokens
        with recompute_halves(model, tiles):
            assert_same(step(model), wanted)
    assert_same(step(model), wanted)


def test_dropout_drops_the_same_numbers_again(monkeypatch):
    model = small(adapter=["q_proj", "up_proj", "down_proj"], dropout=0.4)
    undone = recompute_halves(model, 3)
    got = step(model)
    after = torch.rand(1)
    kept = SimpleNamespace(
        apply=lambda half, tiles, x, *_: torch.cat([half(p) for p in x.view(1, -1, 64).chunk(3, 1)], 1)
    )
    monkeypatch.setattr(recompute, "_InTiles", SimpleNamespace(apply=lambda *a: kept.apply(*a).view(a[2].shape)))
    assert_same(got, step(model))
    assert torch.equal(after, torch.rand(1))  # and what is drawn afterwards does not depend on it
    undone.close()


def test_under_autocast():
    model = small(adapter=["q_proj", "gate_proj", "down_proj"])
    wanted = step(model, cast=True)
    with recompute_halves(model, 2):
        assert_same(step(model, cast=True), wanted, 1e-3)


def test_only_the_streams_are_kept():
    """Two tensors of the hidden size for each layer, and what a tile needs is not handed to who keeps it elsewhere."""
    model, kept = small(adapter=["q_proj", "gate_proj"]), []
    with recompute_halves(model), saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        for layer in model.get_base_model().model.layers:
            layer.register_forward_pre_hook(lambda *_: kept.clear())
            layer.register_forward_hook(lambda *_: sizes.append([x.numel() for x in kept if x.dim() > 2]))
        sizes: list[list[int]] = []
        loss = model(input_ids=IDS, labels=IDS).loss
        assert sizes == 3 * [2 * [IDS.numel() * 64]]
        kept.clear()
        loss.backward()
    assert not kept


def test_less_memory_than_whole_layers():
    peaks = {}
    for way in ("kept", "layers", "halves"):
        model = small()
        if way == "layers":
            model.gradient_checkpointing_enable()
        elif way == "halves":
            recompute_halves(model, 8)
        ids = torch.arange(2048).reshape(2, 1024) % 128
        with LiveBytes() as live:
            model.model(input_ids=ids).last_hidden_state.sum().backward()
        peaks[way] = live.peak
    assert peaks["halves"] < 0.8 * peaks["layers"] < 0.5 * peaks["kept"], peaks


def test_nothing_changes_without_gradients():
    model = small()
    with torch.no_grad():
        wanted = model(input_ids=IDS).logits
        said = model.generate(IDS[:, :5], max_new_tokens=4, do_sample=False, pad_token_id=0)
        recompute_halves(model)
        assert torch.equal(model(input_ids=IDS).logits, wanted)
        assert torch.equal(model.eval().generate(IDS[:, :5], max_new_tokens=4, do_sample=False, pad_token_id=0), said)


def test_it_is_undone_and_can_lie_upon_itself():
    model = small()
    with recompute_halves(model, 2), recompute_halves(model, 3):
        assert all("forward" in vars(layer) for layer in model.model.layers)
    assert not any("forward" in vars(layer) for layer in model.model.layers)


def test_refusals():
    for tiles in (0, -1, 1.5, True, "4"):
        with pytest.raises(GuideError, match=f"tiles={tiles!r}: give a whole number"):
            recompute_halves(small(), tiles)
    other = AutoModelForCausalLM.from_config(
        AutoConfig.for_model("gpt2", n_layer=1, n_embd=32, n_head=2, vocab_size=64)
    )
    with pytest.raises(GuideError, match="type 'gpt2': give one of llama") as refused:
        recompute_halves(other)
    assert "\n" not in str(refused.value)
    spread = small()
    layer = spread.model.layers[-1]
    layer.forward = lambda *a, **k: type(layer).forward(layer, *a, **k)  # as accelerate does it for a device map
    with pytest.raises(GuideError, match="load the model whole on one device"):
        recompute_halves(spread)
    assert "forward" not in vars(spread.model.layers[0])
