# SPDX-License-Identifier: MIT
"""LoRA by hand: equal to PEFT, exact when merged, and the arithmetic of counts and memory."""

import pytest
import torch

from rocm_guide.common.base import GuideError
from rocm_guide.finetune.lora import LoRALinear, add_lora, low_rank, rank_for_energy, weight_updates
from rocm_guide.finetune.sft import trainable_parameters
from rocm_guide.models.load import load_model, meta_model
from rocm_guide.models.shapes import config_of
from rocm_guide.models.sizes import LORA_TARGETS, lora_parameters
from rocm_guide.models.states import training_state_bytes


@pytest.mark.parametrize(
    ("targets", "r", "alpha"), [(("q_proj", "v_proj"), 4, 16), (LORA_TARGETS, 3, 5), (("down_proj",), 1, 2)]
)
def test_equals_peft(targets, r, alpha):
    from peft import LoraConfig, get_peft_model

    theirs = load_model("tiny", device="cpu")[0]
    config = LoraConfig(r=r, lora_alpha=alpha, target_modules=list(targets), task_type="CAUSAL_LM")
    theirs = get_peft_model(theirs, config).eval()
    ours = load_model("tiny", device="cpu")[0]
    torch.manual_seed(0)
    for name in add_lora(ours, targets, r=r, alpha=alpha):
        mine, other = ours.get_submodule(name), theirs.base_model.model.get_submodule(name)
        torch.nn.init.normal_(mine.B, std=0.1)
        other.lora_A["default"].weight.data.copy_(mine.A)
        other.lora_B["default"].weight.data.copy_(mine.B)
    ids = torch.randint(3, 1000, (3, 17))
    with torch.inference_mode():
        difference = (ours(ids).logits - theirs(ids).logits).abs().max()
        change = (ours(ids).logits - load_model("tiny", device="cpu")[0](ids).logits).abs().max()
    assert difference <= 1e-6 * max(1.0, float(change)) and change > 0.1
    assert trainable_parameters(ours) == trainable_parameters(theirs)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("r", "alpha"), [(1, 1), (3, 16), (8, 0.5)])
def test_merged_layer_is_equal(bias, r, alpha):
    torch.manual_seed(0)
    layer = LoRALinear(torch.nn.Linear(7, 5, bias=bias).double(), r=r, alpha=alpha)
    torch.nn.init.normal_(layer.B)
    x = torch.randn(2, 3, 7, dtype=torch.float64)
    assert torch.allclose(layer.merged()(x), layer(x), atol=1e-12)
    assert isinstance(layer.merged(), torch.nn.Linear) and (layer.merged().bias is not None) == bias


def test_starts_as_the_layer_itself_and_only_a_and_b_learn():
    layer = LoRALinear(torch.nn.Linear(6, 4), r=2)
    x = torch.randn(3, 6)
    assert torch.equal(layer(x), layer.layer(x))
    layer(x).square().sum().backward()
    assert layer.layer.weight.grad is None and layer.B.grad.abs().sum() > 0
    assert layer.A.grad.abs().sum() == 0, "while B is zero nothing reaches A"


@pytest.mark.parametrize(
    ("shape", "targets", "r"),
    [("llama-2-7b", ("q_proj", "v_proj"), 8), ("llama-3-8b", LORA_TARGETS, 16), ("gemma-2b", LORA_TARGETS, 4)],
)
def test_counts_equal_peft_on_the_meta_device(shape, targets, r):
    from peft import LoraConfig, get_peft_model

    model = meta_model(f"random:{shape}")
    wrapped = get_peft_model(model, LoraConfig(r=r, target_modules=list(targets), task_type="CAUSAL_LM"))
    assert trainable_parameters(wrapped)[0] == lora_parameters(config_of(shape), targets, r)


def test_low_rank_is_the_best_approximation():
    torch.manual_seed(0)
    matrix = torch.randn(12, 9)
    values = torch.linalg.svdvals(matrix)
    for r in range(10):
        cut = low_rank(matrix, r)
        assert torch.linalg.matrix_rank(cut) == r
        assert torch.allclose((matrix - cut).norm() ** 2, values[r:].square().sum(), atol=1e-4)


def test_rank_for_energy_counts_directions():
    matrix = torch.diag(torch.tensor([3.0, 2.0, 1.0]))  # energies 9, 4, 1 of 14
    assert [rank_for_energy(matrix, s) for s in (0.5, 9 / 14, 0.7, 13 / 14, 0.95, 1.0)] == [1, 1, 2, 2, 3, 3]


def test_updates_take_shared_matrices_only():
    before = {"a": torch.ones(2, 2), "b": torch.ones(3), "c": torch.ones(2, 2)}
    updates = weight_updates(before, {"a": torch.full((2, 2), 3.0).bfloat16(), "b": torch.ones(3)})
    assert list(updates) == ["a"] and torch.equal(updates["a"], torch.full((2, 2), 2.0))


def test_training_state_arithmetic():
    assert training_state_bytes(10) == {
        "weights (bf16)": 20,
        "gradients (bf16)": 20,
        "master weights (fp32)": 40,
        "Adam moments (fp32)": 80,
    }
    assert sum(training_state_bytes(10, 0).values()) == 20
    assert sum(training_state_bytes(10, kind="bf16").values()) == 80


def test_bad_input_is_one_clear_line():
    with pytest.raises(GuideError, match="r=0"):
        LoRALinear(torch.nn.Linear(2, 2), r=0)
    with pytest.raises(GuideError, match="no linear layer"):
        add_lora(torch.nn.Sequential(torch.nn.Linear(2, 2)), ("q_proj",))
    with pytest.raises(GuideError, match="q_prj"):
        lora_parameters(config_of("llama-2-7b"), ("q_prj",), 8)
    with pytest.raises(GuideError, match="share=0"):
        rank_for_energy(torch.eye(2), 0)
    with pytest.raises(GuideError, match="r=-1"):
        low_rank(torch.eye(2), -1)
    with pytest.raises(GuideError, match="trainable=3 of total=2"):
        training_state_bytes(2, 3)
