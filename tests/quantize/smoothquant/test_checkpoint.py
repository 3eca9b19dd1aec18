# SPDX-License-Identifier: MIT
"""A W8A8 model as a compressed-tensors folder: what is written, what the library makes of it, and equal codes."""

import copy
import json

import pytest
import torch
from safetensors.torch import load_file

from rocm_guide.models.load import load_model
from rocm_guide.models.sizes import sizes_of
from rocm_guide.quantize.grid import QuantizationError
from rocm_guide.quantize.int8 import smoothing_scales
from rocm_guide.quantize.libraries import add_libraries, quiet
from rocm_guide.quantize.smoothquant.folding import input_ranges, smooth_model
from rocm_guide.quantize.smoothquant.linear import (
    SCHEMES,
    W8A8Linear,
    load_compressed,
    quantization_config,
    quantize_model,
    quantize_weight,
    save_compressed,
)

SAMPLES = [{"input_ids": [5, 17, 3, 40, 8, 21, 33, 2]}, {"input_ids": [9, 50, 11]}]
IDS = torch.tensor([[5, 17, 3, 40, 8, 21]])


@pytest.fixture(scope="module")
def smoothed():
    torch.set_num_threads(1)
    model, tokenizer = load_model("tiny", device="cpu", dtype=torch.float32)
    return model, tokenizer, smooth_model(model, input_ranges(model, SAMPLES))


def test_what_is_written(smoothed, tmp_path):
    model, tokenizer, ranges = smoothed
    quantized = quantize_model(copy.deepcopy(model), SCHEMES["per channel, static"], ranges)
    files = save_compressed(quantized, tokenizer, tmp_path / "w8a8")
    assert {"config.json", "model.safetensors", "tokenizer.json", "generation_config.json"} <= set(files)
    stored = load_file(tmp_path / "w8a8/model.safetensors")
    layer, name = quantized.model.layers[0].mlp.down_proj, "model.layers.0.mlp.down_proj"
    assert torch.equal(stored[f"{name}.weight"], layer.weight) and stored[f"{name}.weight"].dtype == torch.int8
    assert stored[f"{name}.weight_scale"].shape == (layer.out_features, 1)
    assert stored[f"{name}.input_scale"].shape == (1,)
    config = json.loads((tmp_path / "w8a8/config.json").read_text())
    assert config["quantization_config"]["ignore"] == ["lm_head"] and config["architectures"] == ["LlamaForCausalLM"]
    # The course's own reader of sizes understands it: codes, and two bytes for the scale of a channel.
    sizes = sizes_of(config)
    assert sizes.stored_as == "compressed-tensors, 8 bits" and sizes.linear < sizes.linear_bytes < 1.02 * sizes.linear
    assert files["model.safetensors"] < 0.5 * sum(p.numel() * p.element_size() for p in model.parameters())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["per channel, static", "per tensor, static", "per token, per channel"])
def test_transformers_loads_it_and_says_the_same(smoothed, tmp_path, name):
    model, tokenizer, ranges = smoothed
    quantized = quantize_model(copy.deepcopy(model), SCHEMES[name], ranges)
    save_compressed(quantized, tokenizer, tmp_path / "w8a8")
    loaded = load_compressed(tmp_path / "w8a8")
    with torch.inference_mode():
        want, got, float32 = (m(IDS).logits for m in (quantized, loaded, model))
    # A token's own scale is absmax / 127.5 there and absmax / 127 here; static scales are the stored ones. A sum that
    # is rounded in another order may still move a code by one, which is a part of what quantisation costs anyway.
    cost = (want - float32).norm()
    assert cost > 0 and (got - want).norm() < (0.1 if "static" in name else 1.5) * cost
    assert not any(isinstance(m, W8A8Linear) for m in loaded.modules())


@pytest.mark.slow
def test_codes_equal_the_libraries():
    add_libraries("torchao", "compressed_tensors")
    with quiet():
        from compressed_tensors.quantization import QuantizationArgs
        from compressed_tensors.quantization.lifecycle.forward import quantize
        from compressed_tensors.quantization.utils import calculate_qparams
        from torchao.prototype.smoothquant import SmoothQuantObserver
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_
    g = torch.Generator().manual_seed(0)
    w, x = torch.randn(64, 96, generator=g), torch.randn(50, 96, generator=g)
    for strategy, low, high in (("channel", w.amin(1, True), w.amax(1, True)), ("tensor", w.amin(), w.amax())):
        args = QuantizationArgs(num_bits=8, type="int", symmetric=True, strategy=strategy)
        scale, zero = calculate_qparams(low, high, args)
        ours, own = quantize_weight(w, strategy, steps=127.5)
        assert torch.equal(scale, own) and torch.equal(quantize(w, scale, zero, args, dtype=torch.int8), ours)
        ours, own = quantize_weight(w, strategy)
        assert torch.equal(quantize(w, own, torch.zeros_like(own), args, dtype=torch.int8), ours)
    linear = torch.nn.Linear(96, 64, bias=False)
    linear.weight.data = w.clone()
    with quiet():
        quantize_(linear, Int8DynamicActivationInt8WeightConfig())
    codes, scale = quantize_weight(w, steps=127.5)
    assert torch.equal(linear.weight.scale, scale)
    # torchao multiplies by 1 / scale, which rounds once more: where a weight lies between two codes, either is taken.
    assert torch.equal(linear.weight.qdata, (w * (1 / scale)).round().clamp(-128, 127).to(torch.int8))
    assert int((linear.weight.qdata.int() - codes).abs().max()) <= 1
    observer = SmoothQuantObserver(w, 0.5)
    observer(x)
    assert torch.allclose(
        observer.calculate_qparams()[0], smoothing_scales(x.abs().amax(0), w.abs().amax(0)), rtol=1e-5
    )


def test_refusals(smoothed, tmp_path, monkeypatch):
    model, tokenizer, ranges = smoothed
    mixed = quantize_model(copy.deepcopy(model), SCHEMES["per channel, static"], ranges)
    mixed.model.layers[0].mlp.up_proj.scheme = SCHEMES["per token, per channel"]
    dynamic = quantize_model(copy.deepcopy(model), SCHEMES["per tensor, dynamic"])
    good = quantize_model(copy.deepcopy(model), SCHEMES["per channel, static"], ranges)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/config.json").write_text("{}")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/config.json").write_text('{"quantization_config": {"quant_method": "gptq"}}')
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged/config.json").write_text("{")
    lines = {
        "has no W8A8 layers; quantise it": lambda: save_compressed(model, tokenizer, tmp_path / "x"),
        "has layers of 2 schemes": lambda: save_compressed(mixed, tokenizer, tmp_path / "x"),
        "vLLM takes one static scale": lambda: save_compressed(dynamic, tokenizer, tmp_path / "x"),
        "full: is there and not empty; name a new folder": lambda: save_compressed(good, tokenizer, tmp_path / "full"),
        "no compressed-tensors model": lambda: load_compressed(tmp_path / "other"),
        "cannot be read; name the folder": lambda: load_compressed(tmp_path / "damaged"),
        "config.json: cannot be read": lambda: load_compressed(tmp_path / "nowhere"),
    }
    for line, attempt in lines.items():
        with pytest.raises(QuantizationError) as caught:
            attempt()
        assert line in str(caught.value) and "\n" not in str(caught.value), str(caught.value)
    assert not (tmp_path / "x").exists(), "a refused call left something behind"


def test_a_library_that_is_not_there_is_named_with_the_fix(smoothed, tmp_path, monkeypatch):
    model, tokenizer, ranges = smoothed
    save_compressed(
        quantize_model(copy.deepcopy(model), SCHEMES["per channel, static"], ranges), tokenizer, tmp_path / "y"
    )
    monkeypatch.setattr("rocm_guide.quantize.libraries.find_spec", lambda name: None)
    with pytest.raises(QuantizationError, match=r"^compressed_tensors is not installed; run make course"):
        load_compressed(tmp_path / "y")


def test_libraries_are_looked_for_if_any_is_missing(monkeypatch):
    """One may lie in the environment and the other in the folder of its own."""
    looked = []
    monkeypatch.setattr("rocm_guide.quantize.libraries.importlib.invalidate_caches", lambda: looked.append(1))
    with pytest.raises(QuantizationError, match="nowhere is not installed"):
        add_libraries("torch", "nowhere")
    assert looked


@pytest.mark.slow
@pytest.mark.parametrize("name", ["per channel, static", "per tensor, static", "per token, per channel"])
def test_the_library_reads_every_key_as_it_was_meant(name):
    """compressed-tensors is what llm-compressor writes with, and what vLLM's loader reads config.json with."""
    add_libraries("compressed_tensors")
    with quiet():
        from compressed_tensors.quantization import QuantizationConfig
    ours = quantization_config(SCHEMES[name])
    read = json.loads(QuantizationConfig.model_validate(ours).model_dump_json())

    def same(mine, theirs):
        if isinstance(mine, dict):
            # A key without a value may be left out: dynamic scales have no observer.
            return all(same(value, theirs.get(key)) for key, value in mine.items())
        return mine == theirs

    unknown = set(ours) - set(read)
    assert unknown == {"version"}, "a key that the library does not know"  # its writer adds the version itself
    assert same({key: ours[key] for key in read if key in ours}, read), (ours, read)
    group = ours["config_groups"]["group_0"]
    weights, inputs = group["weights"], group["input_activations"]
    # What vLLM's loader asks of W8A8 in int8.
    assert weights["symmetric"] and not weights["dynamic"] and weights["strategy"] in ("tensor", "channel")
    assert inputs["strategy"] == ("token" if inputs["dynamic"] else "tensor")
