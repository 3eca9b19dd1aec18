# SPDX-License-Identifier: MIT
"""Outliers, smoothing, W8A8 layers and whole models: the function is kept, the error falls, bad input gets one line."""

import copy

import pytest
import torch
from transformers import GemmaConfig, GemmaForCausalLM, GPT2Config, GPT2LMHeadModel, OPTConfig, OPTForCausalLM

from rocm_guide.models.course_data import question_answer_splits
from rocm_guide.models.load import load_model
from rocm_guide.quantize.grid import QuantizationError
from rocm_guide.quantize.held_out import divergence
from rocm_guide.quantize.smoothquant.folding import add_outliers, fold, input_ranges, norm_groups, smooth_model
from rocm_guide.quantize.smoothquant.linear import (
    SCHEMES,
    Scheme,
    W8A8Linear,
    alpha_errors,
    quantize_model,
    quantize_weight,
)

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64}


def opt(**changes):
    torch.manual_seed(0)
    fields = {**SMALL, "ffn_dim": 64, "word_embed_proj_dim": 32, "max_position_embeddings": 40, **changes}
    model = OPTForCausalLM(OPTConfig(**fields)).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                p.normal_(1.0 if name.endswith("norm.weight") else 0.0, 0.1)
    return model


@pytest.fixture(scope="module")
def tiny():
    """(model, tokenizer, calibration samples, held-out rows)."""
    torch.set_num_threads(1)
    model, tokenizer = load_model("tiny", device="cpu", dtype=torch.float32)
    train, test = question_answer_splits()
    texts = [r["prompt"] + r["completion"] for r in train[::54]]
    return model, tokenizer, [{"input_ids": tokenizer(t).input_ids} for t in texts], test[::12]


@pytest.fixture(scope="module")
def spiked(tiny):
    """The same function with outliers of 300, and its ranges."""
    model = copy.deepcopy(tiny[0])
    add_outliers(model, 300)
    return model, input_ranges(model, tiny[2])


IDS = torch.tensor([[5, 17, 3, 40, 8, 21, 33, 2]])


@pytest.mark.parametrize("family", ["llama", "opt"])
def test_outliers_and_smoothing_leave_the_logits_alone(tiny, family):
    plain = opt() if family == "opt" else tiny[0]
    samples = [{"input_ids": row} for row in (IDS[0], IDS[0].flip(0))]
    with torch.inference_mode():
        want = plain(IDS).logits
        model = copy.deepcopy(plain)
        chosen = add_outliers(model, 100, channels=3, seed=1)
        assert all(len(set(channels)) == 3 for channels in chosen.values())
        assert torch.allclose(model(IDS).logits, want, atol=2e-5 * float(want.abs().max()))
        ranges = input_ranges(model, samples)
        norm, channels = next(iter(chosen.items()))
        first = norm_groups(model)[norm][0]
        rest = [i for i in range(len(ranges[first])) if i not in channels]
        assert ranges[first][channels].min() > 5 * ranges[first][rest].median()
        after = smooth_model(model, ranges, 0.5)
        assert torch.allclose(model(IDS).logits, want, atol=2e-5 * float(want.abs().max()))
        # What smooth_model says of the new ranges is what is seen.
        seen = input_ranges(model, samples)
        assert all(torch.allclose(after[n], seen[n], rtol=1e-3, atol=1e-5) for n in seen)
        assert after[first].max() < 0.2 * ranges[first].max()


def test_smoothing_divides_by_the_formula(tiny):
    model, _, samples, _ = tiny
    ranges, smoothed = input_ranges(model, samples), copy.deepcopy(model)
    smooth_model(smoothed, ranges, 0.3)
    layer, after = model.model.layers[1], smoothed.model.layers[1]
    parts = [layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj]
    weight = torch.cat([p.weight for p in parts]).abs().amax(0)
    s = ranges["model.layers.1.self_attn.q_proj"] ** 0.3 / weight**0.7
    assert torch.allclose(after.input_layernorm.weight, layer.input_layernorm.weight / s, rtol=1e-5)
    assert torch.allclose(after.self_attn.k_proj.weight, layer.self_attn.k_proj.weight * s, rtol=1e-5)
    assert torch.equal(after.self_attn.o_proj.weight, layer.self_attn.o_proj.weight), "no norm stands before it"


def test_naive_w8a8_fails_where_smoothed_does_not(tiny, spiked):
    base, tokenizer, _, rows = tiny
    model, ranges = spiked
    smoothed = copy.deepcopy(model)
    after = smooth_model(smoothed, ranges)
    drift = {}
    for label, source, known in (("naive", model, ranges), ("smooth", smoothed, after)):
        for name in ("per tensor, static", "per tensor, dynamic", "per token, per channel"):
            quantized = quantize_model(copy.deepcopy(source), SCHEMES[name], known)
            drift[label, name] = divergence(quantized, base, tokenizer, rows)
    for name in ("per tensor, static", "per tensor, dynamic"):
        assert drift["naive", name] > 0.5 and drift["smooth", name] < 0.02
    assert drift["smooth", "per token, per channel"] < 0.2 * drift["naive", "per token, per channel"]
    assert drift["naive", "per token, per channel"] < 0.5 * drift["naive", "per tensor, dynamic"]


def test_the_alpha_curve_is_a_valley():
    g = torch.Generator().manual_seed(0)
    x, w = torch.randn(200, 96, generator=g), 0.1 * torch.randn(64, 96, generator=g)
    x[:, [3, 50, 90]] *= 100
    naive, curve = alpha_errors(x, w, (0.0, 0.25, 0.5, 0.75, 1.0))
    assert curve[0.5] < 0.4 * naive and curve[0.5] < min(curve[0.0], curve[1.0]) / 2
    assert curve[0.0] > curve[0.25] > curve[0.5] < curve[0.75] < curve[1.0]


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_computes_what_its_codes_say(name, bias):
    torch.manual_seed(1)
    linear, x = torch.nn.Linear(40, 24, bias=bias), torch.randn(2, 5, 40)
    layer = W8A8Linear(linear, SCHEMES[name], x.abs().flatten(0, 1).amax(0))
    codes, scale = layer.quantize_inputs(x.flatten(0, 1))
    assert codes.dtype == torch.int8 and int(codes.abs().max()) == 127
    assert scale.shape == ((10,) if "token" in name else (1,))
    weight, sizes = layer.weight.double() * layer.weight_scale.double(), scale.double()[:, None]
    want = (codes.double() * sizes) @ weight.T + (linear.bias.double() if bias else 0)
    assert torch.allclose(layer(x).flatten(0, 1).double(), want, rtol=1e-5, atol=1e-6)
    # Rounding costs at most half a step on each side.
    assert bool(((weight - linear.weight).abs() <= 0.5001 * layer.weight_scale).all())
    assert bool(((codes * sizes - x.flatten(0, 1)).abs() <= 0.5001 * sizes).all())
    error = (layer(x) - linear(x)).norm() / linear(x).norm()
    assert error < 0.02


def test_zero_weights_and_inputs():
    linear = torch.nn.Linear(8, 4)
    torch.nn.init.zeros_(linear.weight)
    layer = W8A8Linear(linear, SCHEMES["per token, per channel"])
    assert torch.allclose(layer(torch.zeros(3, 8)), linear.bias.expand(3, 4))


def test_types_survive_a_change_of_the_models_type():
    linear = torch.nn.Linear(8, 4)
    layer = W8A8Linear(linear, SCHEMES["per channel, static"], torch.ones(8)).to(torch.bfloat16)
    kinds = {name: b.dtype for name, b in layer.named_buffers()}
    assert kinds == {
        "weight": torch.int8,
        "weight_scale": torch.float32,
        "input_scale": torch.float32,
        "bias": torch.bfloat16,
    }
    assert layer(torch.ones(2, 8, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_refusals(tiny, spiked):
    model, _, samples, _ = tiny
    ranges, static, dynamic = spiked[1], SCHEMES["per tensor, static"], SCHEMES["per tensor, dynamic"]
    done = quantize_model(copy.deepcopy(model), Scheme("channel", "token", False))
    partial = {k: v for k, v in ranges.items() if "layers.2.mlp.down" not in k}
    gpt2 = GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=32))
    gemma = GemmaForCausalLM(GemmaConfig(**SMALL, intermediate_size=64, head_dim=8, num_key_value_heads=2))
    broken = copy.deepcopy(model)
    broken.model.layers[0].input_layernorm.weight.data[0] = float("inf")
    lines = {
        "alpha=1.5: give a number from 0 to 1": lambda: smooth_model(copy.deepcopy(model), ranges, 1.5),
        "q_proj: not calibrated; give what input_ranges": lambda: smooth_model(copy.deepcopy(model), {}),
        "down_proj: not calibrated, and the scheme is": lambda: quantize_model(model, static, partial),
        "no linear layer to quantise; load the unquantised": lambda: quantize_model(done, dynamic),
        "GPT2LMHeadModel: no norm is known": lambda: norm_groups(gpt2),
        "GemmaForCausalLM: its norms multiply by 1": lambda: norm_groups(gemma),
        "its norms come after the layers": lambda: norm_groups(opt(do_layer_norm_before=False)),
        "size=0, channels=4: give a positive size": lambda: add_outliers(copy.deepcopy(model), 0),
        "channels=999": lambda: add_outliers(copy.deepcopy(model), 10, channels=999),
        "calibration set is empty": lambda: input_ranges(model, []),
        "its inputs are not finite": lambda: input_ranges(broken, samples[:1]),
        "one positive number for each of the 4 channels": lambda: fold(torch.nn.LayerNorm(4), [], -torch.ones(4)),
        "weights='row'": lambda: Scheme("row"),
        "inputs='token' with static=True": lambda: Scheme("channel", "token", True),
        "needs calibration": lambda: W8A8Linear(torch.nn.Linear(2, 2), Scheme()),
    }
    before = {n: p.clone() for n, p in model.named_parameters()}
    for line, attempt in lines.items():
        with pytest.raises(QuantizationError) as caught:
            attempt()
        assert line in str(caught.value) and "\n" not in str(caught.value), str(caught.value)
    assert all(torch.equal(p, before[n]) for n, p in model.named_parameters()), "a refused call changed the model"
    assert not any(isinstance(m, W8A8Linear) for m in model.modules())


def test_both_sets_of_steps():
    w = torch.tensor([[127.5, -126.0, 63.75]])
    assert quantize_weight(w)[0].tolist() == [[127, -126, 64]]
    for sign, want in ((1, [127, -126, 64]), (-1, [-128, 126, -64])):  # the positive end is cut by half a step
        codes, scale = quantize_weight(sign * w, steps=127.5)
        assert codes.tolist() == [want] and scale.item() == 1.0
    assert quantize_weight(torch.eye(2) * 3, "tensor")[1].tolist() == [pytest.approx(3 / 127)]
