# SPDX-License-Identifier: MIT
"""Every causal type of the installed transformers is described right, or refused by name with the reason."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from rocm_guide.common.base import GuideError
from rocm_guide.models.described import describe
from rocm_guide.models.families import has_formula, read
from rocm_guide.models.layer import SizesError
from rocm_guide.models.quantized import METHODS
from rocm_guide.models.shapes import SHAPES
from rocm_guide.models.sizes import sizes_of
from rocm_guide.models.sources import config_fields
from tests.in_turn import dealt
from tests.models.every_type import KINDS, verdict

#: What cannot be described or planned, and the reason that is given.
_BOTH = {
    "blt": "no attribute 'num_hidden_layers'",
    "cohere_compass_text": "KeyError: '",  # of one of two kinds of attention, whichever its set gives first
    "dbrx": "no attribute 'rope_theta'",
    "dots1": "must be int, not NoneType",
    "gemma3n": "requires the timm library",
    "gemma4_assistant": "no configuration",
    "gemma4_unified_assistant": "layer types producing a cache",
    "jetmoe": "split_with_sizes",
    "musicgen": "no attribute 'dropout'",
    "musicgen_melody": "no attribute 'dropout'",
    "qwen4_exp": "unsupported operand",
    "qwen4_exp_text": "unsupported operand",
    "xlnet": "expected scalar type",
    "xmod": "Input language unknown",
}
FIT_REFUSES = _BOTH | {"deepseek_v4": "does not grow by the token", "recurrent_gemma": "keeps its state in its modules"}
_DECIDES = ("bart", "biogpt", "blenderbot", "blenderbot-small", "marian", "mbart", "pegasus", "plbart")
PLAN_REFUSES = _BOTH | dict.fromkeys(_DECIDES, "it decides on a value that only real weights give")
TURNS = 12


@pytest.mark.parametrize("kind", dealt(KINDS, TURNS))
def test_described_or_refused(kind: str) -> None:
    for said, refused in zip(verdict(kind), (FIT_REFUSES, PLAN_REFUSES), strict=True):
        assert said.startswith("refused: ") if kind in refused else said.startswith("right"), said
        assert refused.get(kind, "") in said and "\n" not in said


@pytest.mark.parametrize("name", dealt(SHAPES, 4))
def test_a_formula_says_what_transformers_builds(name: str) -> None:
    """The formulae are the fast path of the description: they say the same of every layer."""
    (_, sizes, layers, outside), (_, built, others, beside) = read(SHAPES[name]), describe(SHAPES[name])
    assert outside == beside and {**sizes, "positions": None} == {**built, "positions": None}
    for formula, module in zip(layers, others, strict=True):
        for field in [
            "matrices",
            "parameters",
            "active",
            "cached",
            "window",
            "experts",
            "top_k",
            "expert",
            "inner",
            "router",
            "state",
            "rest",
        ]:
            assert getattr(formula, field) == getattr(module, field), field


#: The fields of one family that its formulae know; the rest of transformers' configuration must change nothing.
FAST = ("llama", "mistral", "qwen2", "qwen3", "phi3", "gemma2", "gemma3_text", "mixtral", "qwen3_moe", "deepseek_v3")


@pytest.mark.parametrize("kind", dealt(FAST, 5))
def test_no_field_of_a_fast_family_is_passed_over(kind: str) -> None:
    """Each number and flag of the configuration is changed in turn: formula and model stay equal, or it is refused."""
    from tests.models.every_type import configuration

    fields = configuration(kind)[0].to_dict() | {"model_type": kind}
    compared = 0
    for key, value in fields.items():
        if type(value) not in (int, bool) or key.startswith(("bos", "eos", "pad", "transformers")):
            continue
        changed = {**fields, key: (not value) if isinstance(value, bool) else 2 * value}
        if not has_formula(changed):
            continue
        try:
            built = describe(changed)
        except SizesError:
            continue  # transformers cannot build it
        try:
            quick = read(changed)
        except SizesError:
            continue
        compared += 1
        assert [(x.parameters, x.cached, x.window) for x in quick[2]] == [
            (x.parameters, x.cached, x.window) for x in built[2]
        ], key
    assert compared > 8


GOOD: dict[str, dict[str, Any]] = {
    "gptq": {"bits": 4, "group_size": 128, "desc_act": False, "sym": True, "dynamic": {"-:.*down_proj": {}}},
    "awq": {
        "bits": 4,
        "group_size": 128,
        "zero_point": True,
        "version": "gemm",
        "modules_to_not_convert": ["gate_proj"],
    },
    "bitsandbytes": {
        "load_in_4bit": True,
        "bnb_4bit_quant_type": "nf4",
        "llm_int8_skip_modules": ["lm_head", "o_proj"],
    },
    "compressed-tensors": {
        "format": "pack-quantized",
        "ignore": ["lm_head", "re:.*k_proj"],
        "config_groups": {
            "a": {
                "targets": ["Linear"],
                "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True},
            }
        },
    },
    "fp8": {"weight_block_size": [128, 128], "activation_scheme": "dynamic", "modules_to_not_convert": ["up_proj"]},
    "fbgemm_fp8": {"activation_scale_ub": 1200.0, "modules_to_not_convert": ["v_proj"]},
    "quark": {
        "global_quant_config": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}},
        "exclude": ["lm_head"],
    },
    "torchao": {"quant_type": {"default": {"_type": "Int4WeightOnlyConfig", "_data": {"group_size": 64}}}},
}
#: Keys that other quantisers write, with a value that matters.
STRANGE = {"bits": 3, "group_size": 32, "ignore": ["re:.*"], "exclude": ["*"], "modules_to_not_convert": ["mlp"]}
STRANGE |= {
    "sparsity_config": {"format": "sparse-24-bitmask"},
    "rotation": "hadamard",
    "extra_config": {"mlp": {"bits": 8}},
}
STRANGE |= {
    "lm_head": True,
    "dynamic": {"-:.*": {}},
    "super_bits": 6,
    "load_in_8bit": True,
    "quantize_embeddings": True,
}


def bytes_of(method: str, config: dict[str, Any]) -> int | str:
    try:
        return sizes_of(
            {**SHAPES["llama-2-7b"], "quantization_config": {"quant_method": method, **config}}
        ).stored_bytes
    except SizesError as e:
        return str(e)


@pytest.mark.parametrize("method", GOOD)
def test_a_key_is_counted_or_named(method: str) -> None:
    good = bytes_of(method, GOOD[method])
    assert isinstance(good, int) and good < 2 * 6.74e9
    for key, value in STRANGE.items():
        if key not in GOOD[method]:
            found = bytes_of(method, {**GOOD[method], key: value})
            assert found != good, f"{key} of {method} was passed over"
            assert isinstance(found, int) or key in found or "load_in_8bit" in found
    numbers = random.Random(0)
    for _ in range(20):  # a key left out changes the bytes, falls back to the quantiser's default, or is missed by name
        left = {k: v for k, v in GOOD[method].items() if numbers.random() < 0.6}
        found = bytes_of(method, left)
        assert isinstance(found, int) or any(key in found for key in (*GOOD[method], "quant", "load_in"))
    unknown = bytes_of(method, {**GOOD[method], "flux_capacitor": 7})
    assert isinstance(unknown, str) and "flux_capacitor=7" in unknown


@pytest.mark.parametrize("method", GOOD)
def test_an_unknown_key_that_is_off_is_named_where_it_could_matter(method: str) -> None:
    good = bytes_of(method, GOOD[method])
    for key, value in {"pack_twice": False, "scale_shift": 0, "flux": 0, "skipped_layers": [], "zero_type": ""}.items():
        found = bytes_of(method, {**GOOD[method], key: value})
        assert isinstance(found, str) and f"{key}={value!r}" in found
    for value in (False, [], {}, ""):
        config = {**GOOD[method], "verbose": value}
        assert bytes_of(method, config) == good
        said = sizes_of({**SHAPES["llama-2-7b"], "quantization_config": {"quant_method": method, **config}}).stored_as
        assert said.endswith(f" (unknown and off: verbose={value!r})")


def test_inside_a_key_every_unknown_one_is_named() -> None:
    config = {"bits": 4, "group_size": 128, "dynamic": {"+:.*down_proj": {"bits": 8, "verbose": False}}}
    assert "verbose=False: this key of GPTQ's dynamic is not counted here" in str(bytes_of("gptq", config))


LLAMA = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj", "o_proj"), (4096, 4096)),
    **dict.fromkeys(("gate_proj", "up_proj"), (4096, 11008)),
    "down_proj": (11008, 4096),
}


def random_recipe(rng: random.Random) -> tuple[dict[str, Any], float, set[str]]:
    """A configuration, the bytes of Llama-2-7B's matrices under it by formulas written out here, and its free keys."""
    bits, group, skipped = rng.choice((2, 4, 8)), rng.choice((32, 64, 128)), rng.sample(sorted(LLAMA), 2)
    method = rng.choice(("gptq", "awq", "fp8", "compressed-tensors"))
    kept = {"modules_to_not_convert": skipped}
    if method in ("gptq", "awq"):
        config = {"quant_method": method, "bits": bits, "group_size": group, **kept}
        each = {
            n: a * b * bits / 8 + a // group * b * (2 + bits / 8) + 4 * a * (method == "gptq")
            for n, (a, b) in LLAMA.items()
        }
        free = {"modules_to_not_convert"}
    elif method == "fp8":
        config = {"quant_method": method, "weight_block_size": [128, 128], **kept}
        each, free = {n: a * b + 4 * a * b / 128**2 for n, (a, b) in LLAMA.items()}, set(config) - {"quant_method"}
    else:
        weights = {"num_bits": bits, "type": "int", "strategy": "group", "group_size": group, "symmetric": True}
        groups = {"a": {"targets": ["Linear"], "weights": weights}}
        config = {"quant_method": method, "format": "pack-quantized", "ignore": ["lm_head"], "config_groups": groups}
        config["ignore"] += [f"re:.*{name}" for name in skipped]
        each = {n: a * b * bits / 8 + 2 * a * b / group for n, (a, b) in LLAMA.items()}
        free = {"format", "ignore"}
    plain = {n: 2.0 * a * b for n, (a, b) in LLAMA.items()}
    return config, 32 * sum((plain if n in skipped else each)[n] for n in LLAMA), free


@pytest.mark.parametrize("seed", range(100))
def test_a_changed_recipe_is_named_or_counted_as_it_stands(seed: int, tmp_path: Path) -> None:
    """A key dropped, doubled, misspelt, or all of them in another order, in the file itself."""
    rng = random.Random(seed)
    config, expected, free = random_recipe(rng)
    kind, key = rng.choice(("drop", "double", "rename", "order")), rng.choice(sorted(set(config) - {"quant_method"}))
    pairs = list(config.items())
    if kind == "drop":
        pairs = [(k, v) for k, v in pairs if k != key]
    elif kind == "double":
        pairs.append((key, config[key]))
    elif kind == "rename":
        pairs = [(k + "s" if k == key else k, v) for k, v in pairs]
    else:
        rng.shuffle(pairs)
    text = ", ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in pairs)
    file = tmp_path / "config.json"
    shape = json.dumps(SHAPES["llama-2-7b"])
    file.write_text(f'{shape[:-1]}, "quantization_config": {{{text}}}}}')
    try:
        sizes = sizes_of(config_fields(str(file)))
    except GuideError as e:
        assert kind in ("double", "rename") or (kind == "drop" and key not in free), e
        assert (key in str(e) or (kind == "drop" and "is missing" in str(e))) and "\n" not in str(e)
        return
    assert kind not in ("double", "rename")
    assert kind == "order" or key in free, f"without {key} of {config}"
    if kind == "order":
        assert sizes.linear_bytes == pytest.approx(expected)
    elif key == "format":
        assert sizes.linear_bytes == pytest.approx(expected)  # it tells how codes are packed, not how many there are
    else:  # nothing is skipped any more, or the blocks of fp8 have become whole matrices
        assert sizes.linear_bytes < expected


def test_every_method_is_tried() -> None:
    assert {*GOOD, "mxfp4"} == set(METHODS)


LINEAR, REST = 6_476_005_376, 2 * (6_738_415_616 - 6_476_005_376)
DOWN = 32 * 11008 * 4096  # elements of all down projections of Llama-2-7B


@pytest.mark.parametrize(
    ("method", "config", "expected"),
    [
        ("gptq", GOOD["gptq"], (LINEAR - DOWN) * 0.51953 + 2 * DOWN),
        (
            "gptq",
            {"bits": 4, "group_size": 128, "dynamic": {"+:.*down_proj": {"bits": 8}}},
            LINEAR * 0.51953 + DOWN * 0.50391,
        ),
        (
            "bitsandbytes",
            {"load_in_4bit": True, "llm_int8_skip_modules": ["lm_head", "language_model.model.layers.0"]},
            (31 * 0.5625 + 2) / 32 * LINEAR,
        ),
        ("compressed-tensors", {**GOOD["compressed-tensors"], "ignore": ["lm_head"]}, LINEAR * 0.515625),
        (
            "quark",
            {
                "global_quant_config": {
                    "weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0"}
                },
                "exclude": ["lm_head", "*down_proj"],
            },
            (LINEAR - DOWN) * 0.53125 + 2 * DOWN,
        ),
        ("torchao", GOOD["torchao"], LINEAR * 0.5625),
    ],
)
def test_bytes_of_whole_checkpoints(method: str, config: dict[str, Any], expected: float) -> None:
    # Within 0.2 %: GPTQ's order of the inputs is beside the expected figure.
    assert bytes_of(method, config) == pytest.approx(expected + REST, rel=2e-3)


@pytest.mark.parametrize(
    ("recipe", "expected", "cache"),
    [
        ({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "group": 16}, 6.03e9, 2),
        ({"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized", "group": 32}, 5.81e9, 2),
        (
            {
                "quant_method": "quark",
                "global_quant_config": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}},
                "exclude": ["lm_head"],
                "kv_cache_quant_config": {"*k_proj": {"output_tensors": {"dtype": "fp8_e4m3"}}},
            },
            9.08e9,
            1,
        ),
    ],
)
def test_published_formats_of_four_and_eight_bits(recipe: dict[str, Any], expected: float, cache: int) -> None:
    """6.979e9 weights at 0.5625, 0.53125 and 1 byte, the rest at 2: Llama-3-8B."""
    if group := recipe.pop("group", None):
        weights = {"num_bits": 4, "type": "float", "strategy": "group", "group_size": group, "symmetric": True}
        recipe |= {"ignore": ["lm_head"], "config_groups": {"g": {"targets": ["Linear"], "weights": weights}}}
    sizes = sizes_of({**SHAPES["llama-3-8b"], "quantization_config": recipe})
    assert sizes.stored_bytes == pytest.approx(expected, rel=1e-3) and sizes.kv_bytes == cache


#: Keys that Quark 0.13 writes for each tensor; a checkpoint of it was refused for the last two.
_QUARK_013 = {"observer_cls": "PerTensorMinMaxObserver", "is_dynamic": False, "symmetric": True, "group_size": None}
_QUARK_013 |= {"enable_buffer_reuse": False, "max_input_numel": 4194304}


def test_scales_beside_the_weights_are_counted_to_the_byte() -> None:
    """NVFP4's scales for the whole matrix and for its inputs, and that of the inputs in Quark's FP8: 4 bytes each."""
    shape, matrices = SHAPES["llama-3-8b"], 7 * 32

    def stored(recipe: dict[str, Any]) -> float:
        return sizes_of({**shape, "quantization_config": recipe}).stored_bytes

    def packed(strategy: str) -> dict[str, Any]:
        weights = {"num_bits": 4, "type": "float", "strategy": strategy, "group_size": 16, "symmetric": True}
        groups = {"g": {"targets": ["Linear"], "weights": weights}}
        return {"quant_method": "compressed-tensors", "ignore": ["lm_head"], "config_groups": groups}

    assert stored(packed("tensor_group")) - stored(packed("group")) == 4 * matrices
    inputs_too = packed("tensor_group")
    inputs_too["config_groups"]["g"]["input_activations"] = {"num_bits": 4, "strategy": "tensor_group"}
    assert stored(inputs_too) - stored(packed("tensor_group")) == 4 * matrices
    fixed = {"dtype": "fp8_e4m3", "qscheme": "per_tensor", **_QUARK_013}
    told: dict[str, Any] = {"quant_method": "quark", "exclude": ["lm_head"], "global_quant_config": {"weight": fixed}}
    alone = stored(told)
    told["global_quant_config"]["input_tensors"] = fixed
    assert stored(told) - alone == 4 * matrices
    told["global_quant_config"]["input_tensors"] = fixed | {"is_dynamic": True}
    assert stored(told) == alone
