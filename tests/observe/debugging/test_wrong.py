# SPDX-License-Identifier: MIT
"""The bisecting helper finds a planted fault wherever it is put, in three architectures."""

from __future__ import annotations

import copy
import random

import pytest

torch = pytest.importorskip("torch")

from rocm_guide.common.base import GuideError
from rocm_guide.observe.debugging.wrong.compare import capture_calls, first_difference
from rocm_guide.observe.debugging.wrong.nans import nan_origin

PLACEMENTS = 20
FAULTS = ("weight", "dtype", "bias", "nan")


def build(kind: str):
    """A small model of a real architecture, with every parameter random: a norm weight of ones hides faults."""
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, OPTConfig, OPTForCausalLM

    torch.manual_seed(0)
    if kind == "llama":
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=64,
                hidden_size=32,
                intermediate_size=64,
                num_hidden_layers=3,
                num_attention_heads=4,
                num_key_value_heads=2,
                attention_bias=True,
                mlp_bias=True,
            )
        )
    elif kind == "gpt2":
        model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=3, n_head=4))
    else:
        model = OPTForCausalLM(
            OPTConfig(
                vocab_size=64,
                hidden_size=32,
                ffn_dim=64,
                num_hidden_layers=3,
                num_attention_heads=4,
                max_position_embeddings=32,
                word_embed_proj_dim=32,
            )
        )
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape) * 0.2 + (1.0 if p.ndim == 1 else 0.0))
    return model.eval()


@pytest.fixture(scope="module", params=["llama", "gpt2", "opt"])
def right(request):
    return build(request.param)


@pytest.fixture(scope="module")
def inputs():
    return {"input_ids": torch.randint(0, 64, (2, 24), generator=torch.Generator().manual_seed(1))}


def plant(model, fault: str, rng: random.Random) -> str:
    """Break one module; returns its path."""
    owners = [
        (path, m)
        for path, m in model.named_modules()
        if isinstance(getattr(m, "weight", None), torch.nn.Parameter) and path != "lm_head"  # tied to the embedding
    ]
    if fault == "bias":
        owners = [(p, m) for p, m in owners if isinstance(getattr(m, "bias", None), torch.nn.Parameter)]
    embeddings = torch.nn.Embedding
    if fault in ("weight", "nan"):
        # In a table only a row that the input uses can show: those are tested by hand below.
        owners = [(p, m) for p, m in owners if not isinstance(m, embeddings)]
    path, module = rng.choice(owners)
    with torch.no_grad():
        if fault == "weight":
            at = rng.randrange(module.weight.numel())
            module.weight.view(-1)[at] += rng.choice([-1, 1]) * 0.5
        elif fault == "nan":
            module.weight.view(-1)[rng.randrange(module.weight.numel())] = float("nan")
        elif fault == "dtype":
            module.weight.copy_(module.weight.to(torch.bfloat16).float())
        else:
            module.bias.zero_()
    return path


@pytest.mark.parametrize("fault", FAULTS)
def test_finds_the_fault_in_every_placement(right, inputs, fault):
    rng = random.Random(f"{type(right).__name__} {fault}")
    for _ in range(PLACEMENTS):
        wrong = copy.deepcopy(right)
        path = plant(wrong, fault, rng)
        found = first_difference(right, wrong, inputs)
        assert found is not None, path
        assert found.path == path, (fault, path, str(found))
        assert found.kind == ("nan" if fault == "nan" else "value")
        name = "bias" if fault == "bias" else "weight"
        assert name in found.parameters
        if fault == "nan":
            origin = nan_origin(wrong, inputs)
            assert (origin.path, origin.where) == (path, "parameter")


def test_a_module_left_in_another_dtype_is_an_error_at_that_module(right, inputs):
    wrong = copy.deepcopy(right)
    path = next(p for p, m in wrong.named_modules() if p.endswith(("down_proj", "c_fc", "fc2")))
    wrong.get_submodule(path).to(torch.bfloat16)
    found = first_difference(right, wrong, inputs)
    assert (found.path, found.kind) == (path, "error")
    assert "bfloat16" in found.parameters["weight"]


def test_equal_models_have_no_difference(right, inputs):
    assert first_difference(right, copy.deepcopy(right), inputs) is None
    assert nan_origin(right, inputs) is None


def test_embedding_row_that_is_used(right, inputs):
    wrong = copy.deepcopy(right)
    path, table = next((p, m) for p, m in wrong.named_modules() if isinstance(m, torch.nn.Embedding))
    with torch.no_grad():
        table.weight[inputs["input_ids"][0, 3]] += 1
    assert first_difference(right, wrong, inputs).path == path


def test_fault_in_the_code_of_a_parent_names_the_parent_not_a_child(inputs):
    right = build("llama")
    wrong = copy.deepcopy(right)
    attention = wrong.model.layers[1].self_attn
    attention.scaling = attention.scaling * 1.5
    found = first_difference(right, wrong, inputs)
    assert found.path == "model.layers.1.self_attn"
    assert found.parameters == {}


def test_a_wrong_kernel_in_the_place_of_a_module(inputs):
    right = build("llama")
    wrong = copy.deepcopy(right)

    class ForgetsTheMean(torch.nn.Module):
        def __init__(self, norm):
            super().__init__()
            self.weight = norm.weight

        def forward(self, x):
            return self.weight * x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6)

    wrong.model.layers[2].post_attention_layernorm = ForgetsTheMean(wrong.model.layers[2].post_attention_layernorm)
    assert first_difference(right, wrong, inputs).path == "model.layers.2.post_attention_layernorm"


def test_reduced_precision_within_tolerance_passes_and_below_it_fails(right, inputs):
    low = copy.deepcopy(right).to(torch.bfloat16).float()
    assert first_difference(right, low, inputs, tolerance=0.05) is None
    assert first_difference(right, low, inputs).kind == "value"


def test_infinities_that_are_meant_are_compared_too():
    """A mask of -inf: equal infinities are no finding, a hole in the mask is."""

    class Masked(torch.nn.Module):
        def __init__(self, diagonal):
            super().__init__()
            self.diagonal = diagonal

        def forward(self, x):
            return x.masked_fill(torch.ones(4, 4, dtype=torch.bool).triu(self.diagonal), float("-inf"))

    right, same, wrong = (torch.nn.Sequential(Masked(d), torch.nn.Softmax(-1)) for d in (1, 1, 2))
    scores = [torch.arange(16.0).view(4, 4)]
    assert first_difference(right, same, scores) is None
    found = first_difference(right, wrong, scores)
    assert found.path == "0" and found.kind == "value" and "3 of 16 values are not finite" in found.detail


def test_active_dropout_is_refused():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.5))
    with pytest.raises(GuideError, match=r"1: dropout is active.*eval\(\)"):
        first_difference(model, model, [torch.ones(1, 2)])


def test_hooks_are_gone_and_inputs_untouched_after_an_error(right):
    with pytest.raises(Exception):  # noqa: B017 - whatever transformers raises for a bad index
        capture_calls(right, {"input_ids": torch.tensor([[10_000]])})
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in right.modules())


def test_in_place_layers_do_not_spoil_the_copies():
    torch.manual_seed(0)
    right = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(inplace=True), torch.nn.Linear(4, 4))
    wrong = copy.deepcopy(right)
    assert first_difference(right, wrong, [torch.randn(3, 4)]) is None


def test_nan_born_in_the_forward_and_in_the_backward():
    class Root(torch.nn.Module):
        def forward(self, x):
            return x.sqrt()

    net = torch.nn.Sequential(torch.nn.Linear(2, 2), Root())
    with torch.no_grad():
        net[0].weight.fill_(-1.0)
        net[0].bias.fill_(0.0)
    origin = nan_origin(net, [torch.ones(1, 2)])
    assert (origin.path, origin.where) == ("1", "forward")
    with torch.no_grad():
        net[0].weight.fill_(0.0)  # sqrt(0) is fine, its gradient is infinite
    origin = nan_origin(net, [torch.ones(1, 2)], loss=lambda y: y.sum())
    assert (origin.path, origin.where) == ("1", "backward")
    assert net[0].weight.grad is None
    assert nan_origin(net, [torch.tensor([[float("nan"), 1.0]])]).where == "input"


def test_nan_of_the_loss_is_not_blamed_on_a_layer():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 3))
    x = [torch.randn(2, 3)]
    root_at_zero = nan_origin(net, x, loss=lambda y: (y - y).pow(2).sum().sqrt())
    assert (root_at_zero.path, root_at_zero.where) == ("", "loss") and "sends back" in root_at_zero.detail
    no_label = torch.tensor([-100, -100])  # the mean over no label at all
    nothing = nan_origin(net, x, loss=lambda y: torch.nn.functional.cross_entropy(y, no_label))
    assert (nothing.path, nothing.where) == ("", "loss") and "the loss is" in nothing.detail
    assert nan_origin(net, x, loss=lambda y: y.sum()) is None


def test_nan_of_the_gradient_from_the_code_of_a_parent():
    """The layer that receives the NaN in the backward pass has a NaN in its weight's gradient; it is innocent."""

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)

        def forward(self, x):
            x = self.first(x)
            return self.second((x - x.detach()).sqrt())  # zero, with an infinite slope

    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Sequential(Block()), torch.nn.Linear(2, 2))
    origin = nan_origin(net, [torch.randn(3, 2)], loss=lambda y: y.sum())
    assert (origin.path, origin.cls, origin.where) == ("1.0", "Block", "backward")
    assert "1.0.first" in origin.detail


def test_a_replaced_block_does_not_hide_a_fault_behind_it():
    """Modules inside the replaced one are not there to compare; what comes later is."""
    torch.manual_seed(0)
    block = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    right = torch.nn.Sequential(block, torch.nn.Linear(3, 3))

    class Fused(torch.nn.Module):
        def __init__(self, first, second):
            super().__init__()
            self.weight = torch.nn.Parameter(second.weight @ first.weight)
            self.bias = torch.nn.Parameter(second.weight @ first.bias + second.bias)

        def forward(self, x):
            return torch.nn.functional.linear(x, self.weight, self.bias)

    wrong = torch.nn.Sequential(Fused(*copy.deepcopy(block)), copy.deepcopy(right[1]))
    x = [torch.randn(4, 3)]
    assert first_difference(right, wrong, x) is None
    with torch.no_grad():
        wrong[1].bias += 1.0
    assert first_difference(right, wrong, x).path == "1"


def test_nan_from_the_code_of_a_parent_is_not_blamed_on_the_child_behind_it():
    class Parent(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)

        def forward(self, x):
            return self.second(self.first(x) / torch.zeros(2))

    origin = nan_origin(torch.nn.Sequential(Parent()), [torch.ones(1, 2)])
    assert (origin.path, origin.where) == ("0", "forward")
