# SPDX-License-Identifier: MIT
"""Our kernels in transformers models: the same logits, loss and gradients, and everything put back by one call."""

from __future__ import annotations

import pytest
import torch

from rocm_guide.tune.attention.in_models import causal_loss, use_guide_kernels
from rocm_guide.tune.attention.in_transformers import AttentionError


def model_of(family, device):
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48, "vocab_size": 50}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16}
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **sizes, **heads)
    return AutoModelForCausalLM.from_config(config, trust_remote_code=False).to(device)


def run(model, ids, labels):
    model.zero_grad()
    out = model(input_ids=ids, labels=labels)
    out.loss.backward()
    return [out.logits.detach(), out.loss.detach()] + [p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_the_same_numbers_and_everything_put_back(device, family):
    model = model_of(family, device)
    ids = torch.arange(12, device=device).view(2, 6)
    labels = ids.clone()
    labels[0, 3] = -100
    before = {name: dict(vars(m)) for name, m in model.named_modules()}
    attention, plain = model.config._attn_implementation, run(model, ids, labels)
    ours = use_guide_kernels(model)
    assert ours.swapped == {"norms": 9 if family == "qwen3" else 5, "mlp": 2, "attention": 1, "loss": 1}
    for got, expected in zip(run(model, ids, labels), plain, strict=True):
        torch.testing.assert_close(got, expected, atol=2e-5, rtol=2e-4)
    ours.undo()
    ours.undo()
    assert model.config._attn_implementation == attention
    for name, m in model.named_modules():
        assert vars(m).keys() == before[name].keys()
        assert not {"forward", "_loss_function"} & vars(m).keys()
    for got, expected in zip(run(model, ids, labels), plain, strict=True):
        assert torch.equal(got, expected)


def test_the_loss_of_a_part_of_a_batch(device):
    from transformers.loss.loss_utils import ForCausalLMLoss

    logits, labels = torch.randn(2, 5, 7, device=device), torch.randint(7, (2, 5), device=device)
    labels[0, :2] = -100
    for options in ({}, {"num_items_in_batch": 3}, {"num_items_in_batch": torch.tensor(11, device=device)}):
        torch.testing.assert_close(
            causal_loss(logits, labels, 7, **options), ForCausalLMLoss(logits, labels, 7, **options)
        )
    nothing = torch.full_like(labels, -100)
    assert causal_loss(logits, nothing, 7, num_items_in_batch=4) == 0
    shifted = {"shift_labels": labels}
    torch.testing.assert_close(causal_loss(logits, labels, 7, **shifted), ForCausalLMLoss(logits, labels, 7, **shifted))


def test_what_is_refused():
    with pytest.raises(AttentionError, match="type 'gpt2': give one of llama"):
        use_guide_kernels(model_of("gpt2", "cpu"))
    model = model_of("llama", "cpu")
    model.config.hidden_act = "gelu"
    with pytest.raises(AttentionError, match=r"hidden_act='gelu'.*mlp=False"):
        use_guide_kernels(model)
    assert use_guide_kernels(model, mlp=False, loss=False).swapped == {"norms": 5, "attention": 1}
    with pytest.raises(AttentionError, match="'Linear'"):
        use_guide_kernels(torch.nn.Linear(2, 2))
