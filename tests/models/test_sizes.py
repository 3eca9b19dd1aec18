# SPDX-License-Identifier: MIT
"""The sizes that are read from a configuration against the models that transformers and PEFT build of it."""

from __future__ import annotations

import json

import pytest
from transformers import AutoConfig

from rocm_guide.common.base import GuideError
from rocm_guide.models.families import FAMILIES
from rocm_guide.models.layer import Layer, SizesError
from rocm_guide.models.load import meta_model
from rocm_guide.models.quantized import stored
from rocm_guide.models.shapes import SHAPES, config_of
from rocm_guide.models.sizes import LORA_TARGETS, lora_parameters, sizes_of
from rocm_guide.models.sources import config_fields
from rocm_guide.quantize.grid import bits_per_weight

BASE = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "num_hidden_layers": 6,
    "vocab_size": 128,
}
MLA = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 12,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 40,
    "n_shared_experts": 2,
    "first_k_dense_replace": 2,
    "n_group": 2,
    "topk_group": 1,
}
#: family -> configurations that take every branch of its reader; names that transformers knows.
CASES = [
    ("llama", {"num_key_value_heads": None}),
    ("llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    ("llama", {"head_dim": 20}),
    ("mistral", {"sliding_window": 32}),
    ("qwen2", {"use_sliding_window": True, "max_window_layers": 2, "sliding_window": 16}),
    ("qwen3", {"head_dim": 32, "tie_word_embeddings": True}),
    ("qwen3", {"attention_bias": True}),
    ("phi3", {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}),
    ("gemma", {"head_dim": 24}),
    ("gemma2", {"head_dim": 24, "sliding_window": 16}),
    ("gemma3_text", {"head_dim": 24, "sliding_window": 16}),
    ("mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    ("qwen3_moe", {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 40, "decoder_sparse_step": 2}),
    ("qwen3_moe", {"num_experts": 8, "moe_intermediate_size": 40, "mlp_only_layers": [0, 3], "head_dim": 32}),
    ("deepseek_v3", {**MLA, "q_lora_rank": 48}),
    ("deepseek_v3", {**MLA, "q_lora_rank": None, "attention_bias": True}),
    ("gpt2", {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_inner": 80, "vocab_size": 99}),
    ("opt", {"hidden_size": 64, "ffn_dim": 80, "num_hidden_layers": 2, "vocab_size": 99, "word_embed_proj_dim": 32}),
    ("opt", {"hidden_size": 64, "ffn_dim": 80, "num_hidden_layers": 2, "do_layer_norm_before": False}),
]


def config_for(family: str, changes: dict):
    own = family in ("gpt2", "opt")
    return AutoConfig.for_model(family, **({**BASE, **changes} if not own else {"num_attention_heads": 4, **changes}))


@pytest.mark.parametrize(("family", "changes"), CASES, ids=[f"{i}-{family}" for i, (family, _) in enumerate(CASES)])
def test_parameters_layers_and_cache_are_those_of_the_model(family: str, changes: dict) -> None:
    config = config_for(family, changes)
    model, sizes = meta_model(config), sizes_of(config)
    assert sizes.parameters == sum(p.numel() for p in model.parameters())
    layers = getattr(model.model, "layers", None) if hasattr(model, "model") else model.transformer.h
    layers = model.model.decoder.layers if layers is None else layers
    own = [sum(p.numel() for p in layer.parameters()) for layer in layers]
    assert [layer.parameters for layer, count in sizes.groups for _ in range(count)] == own
    # The fields of config.json, with the defaults left out that save_pretrained leaves out, say the same.
    assert sizes_of(config.to_diff_dict() | {"model_type": family}).parameters == sizes.parameters


def test_every_family_is_covered() -> None:
    assert {family for family, _ in CASES} | {"kimi_k2"} == set(FAMILIES)


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_in_full_size(name: str) -> None:
    model = meta_model(name)
    assert sizes_of(config_fields(name)).parameters == sum(p.numel() for p in model.parameters())


def test_published_numbers() -> None:
    """Mixtral 46.7 and 12.9 billion (arXiv:2401.04088); DeepSeek-V3 671 and 37 (arXiv:2412.19437)."""
    mixtral, deepseek, qwen = (sizes_of(SHAPES[n]) for n in ("mixtral-8x7b", "deepseek-v3", "qwen3-30b-a3b"))
    assert round(mixtral.parameters / 1e9, 1) == 46.7 and round(mixtral.active / 1e9, 1) == 12.9
    assert round(deepseek.parameters / 1e9) == 671 and 36.5 < deepseek.active / 1e9 < 38
    assert round(qwen.parameters / 1e9, 1) == 30.5 and 3.0 < qwen.active / 1e9 < 3.4
    assert deepseek.kv_cache_bytes(1) == 61 * 576 * 2


def test_gemma_with_images() -> None:
    import torch
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration

    vision = {
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "patch_size": 8,
        "image_size": 32,
        "vision_use_head": False,
    }
    config = Gemma3Config(text_config={**BASE, "head_dim": 24}, vision_config=vision, mm_tokens_per_image=4)
    with torch.device("meta"):
        model = Gemma3ForConditionalGeneration(config)
    assert sizes_of(config).parameters == sum(p.numel() for p in model.parameters())


def test_a_window_ends_the_growth_of_the_cache() -> None:
    sizes = sizes_of(SHAPES["gemma-3-1b"])
    assert sizes.kv_cache_bytes(512) == 26 * 512 * 2 * 256 * 2
    # 4 of the 26 layers see everything, the others 512 tokens.
    assert sizes.kv_cache_bytes(10_000) == (4 * 10_000 + 22 * 512) * 2 * 256 * 2


@pytest.mark.parametrize("family", ["qwen3", "phi3", "gpt2", "opt", "mixtral", "deepseek_v3"])
def test_lora_parameters_are_those_of_peft(family: str) -> None:
    from peft import LoraConfig, get_peft_model

    config = config_for(*next(case for case in CASES if case[0] == family))
    targets = list(sizes_of(config).lora_targets())
    options = {"fan_in_fan_out": True} if family == "gpt2" else {}
    model = get_peft_model(meta_model(config), LoraConfig(r=4, target_modules=targets, **options))
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert trained == lora_parameters(config, tuple(targets), 4)


LAYER = Layer({"self_attn.q_proj": (256, 128), "mlp.down_proj": (512, 256)}, 0, 0, 128, 64, 64, 128, 512)
NUMBERS = 256 * 128 + 512 * 256


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, NUMBERS * bits_per_weight(4, 128, 512) / 8),
        (  # as GPTQModel 7.6 writes it
            {"quant_method": "awq", "bits": 4, "group_size": 128, "lm_head": False, "sym": True, "desc_act": False},
            NUMBERS * bits_per_weight(4, 128, 512) / 8,
        ),
        ({"quant_method": "gptq", "bits": 8, "group_size": 64}, NUMBERS * bits_per_weight(8, 64, 512) / 8 + 4 * 768),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, NUMBERS * 0.5625),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, NUMBERS + 4 * (128 + 256)),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, NUMBERS * (1 + 4 / 128**2)),
        ({"quant_method": "fbgemm_fp8"}, NUMBERS + 4 * (128 + 256)),
        ({"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["q_proj"]}, 512 * 256 + 4 * 256 + 2 * 256 * 128),
        (
            {
                "quant_method": "compressed-tensors",
                "ignore": ["re:.*q_proj"],
                "config_groups": {
                    "group_0": {
                        "targets": ["Linear"],
                        "weights": {"num_bits": 4, "strategy": "group", "group_size": 128, "symmetric": True},
                    }
                },
            },
            512 * 256 * (4 + 16 / 128) / 8 + 2 * 256 * 128,
        ),
    ],
    ids=lambda value: value["quant_method"] if isinstance(value, dict) else "",
)
def test_bytes_of_quantised_checkpoints(config: dict, expected: float) -> None:
    assert stored({"quantization_config": config}, [LAYER]).inside == round(expected)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, "model type None: transformers .* knows no such type"),
        ({"model_type": "mamba7"}, "model type 'mamba7'"),
        ({"model_type": "blenderbot"}, "a pass without weights ends with IndexError"),
        ({**SHAPES["llama-2-7b"], "hidden_size": 0}, "hidden_size=0 in its configuration is no size"),
        ({**SHAPES["llama-2-7b"], "num_hidden_layers": "32"}, "num_hidden_layers='32'"),
        ({**SHAPES["llama-2-7b"], "num_key_value_heads": 5}, "do not divide"),
        ({"model_type": "llama", "hidden_size": 64}, "has no num_attention_heads"),
        ({**SHAPES["mixtral-8x7b"], "num_experts_per_tok": 9}, "9 of 8 experts"),
        ({**SHAPES["llama-2-7b"], "quantization_config": {"quant_method": "aqlm"}}, "quantisation 'aqlm'"),
        (
            {
                **SHAPES["llama-2-7b"],
                "quantization_config": {"quant_method": "gptq", "bits": "four", "group_size": 128},
            },
            "bits='four'",
        ),
        (
            {
                **SHAPES["llama-2-7b"],
                "quantization_config": {
                    "quant_method": "compressed-tensors",
                    "config_groups": {"g": {"targets": ["re:("], "weights": {"num_bits": 8}}},
                },
            },
            "no regular expression",
        ),
    ],
)
def test_a_configuration_that_cannot_be_read_takes_one_line(fields: dict, told: str) -> None:
    with pytest.raises(SizesError, match=told.replace("(", r"\(")) as caught:
        sizes_of(fields)
    assert "\n" not in str(caught.value)


def test_targets_that_a_model_does_not_have() -> None:
    assert sizes_of(config_of("llama-2-7b")).lora_targets() == LORA_TARGETS
    with pytest.raises(SizesError, match="choose from qkv_proj, o_proj, gate_up_proj, down_proj"):
        lora_parameters(config_of("phi-3-mini"), ("q_proj",), 8)


@pytest.mark.parametrize("name", ["num_hidden_layers", "n_layer", "num_local_experts", "n_routed_experts", "depth"])
@pytest.mark.parametrize("within", ["", "text_config"])
def test_a_count_without_bound_is_refused_before_anything_is_built(tmp_path, name, within):
    file = tmp_path / "config.json"
    for count, refused in ((2000, False), (2001, True), (1e400, True)):
        fields = {"model_type": "llama", name: count}
        file.write_text(json.dumps({"model_type": "vlm", within: fields} if within else fields))
        if not refused:
            assert config_fields(str(file))
            continue
        with pytest.raises(GuideError, match=f"{name} = .*; no model has more than 2,000; correct it"):
            config_fields(str(file))


def test_a_configuration_that_transformers_refuses_is_named(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**SHAPES["llama-3-70b"], "hidden_size": 8392}))
    with pytest.raises(SizesError, match=r"llama: transformers cannot take its configuration .*hidden size \(8392\)"):
        meta_model(str(file))
