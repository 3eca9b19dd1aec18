# SPDX-License-Identifier: MIT
"""Shapes of well-known models as data: enough to count, to plan, and to run with random weights, with no download."""

from __future__ import annotations

from typing import Any

from rocm_guide.common.base import GuideError

__all__ = ["SHAPES", "config_of"]


def _llama(
    hidden: int, layers: int, heads: int, kv: int, inter: int, vocab: int = 32000, **more: Any
) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "intermediate_size": inter,
        "vocab_size": vocab,
        "max_position_embeddings": 4096,
        **more,
    }


def _opt(hidden: int, layers: int, heads: int) -> dict[str, Any]:
    sizes = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads, "ffn_dim": 4 * hidden}
    return {"model_type": "opt", **sizes, "word_embed_proj_dim": hidden, "vocab_size": 50272}


_LLAMA3: dict[str, Any] = {"vocab": 128256, "rope_theta": 500000.0}

#: name -> the fields of its config.json that fix the shape (source: each model's config.json on the Hugging Face hub).
SHAPES: dict[str, dict[str, Any]] = {
    "tinyllama-1.1b": _llama(2048, 22, 32, 4, 5632),
    "llama-2-7b": _llama(4096, 32, 32, 32, 11008),
    "llama-2-13b": _llama(5120, 40, 40, 40, 13824),
    "llama-2-70b": _llama(8192, 80, 64, 8, 28672),
    "llama-3-8b": _llama(4096, 32, 32, 8, 14336, **_LLAMA3),
    "llama-3-70b": _llama(8192, 80, 64, 8, 28672, **_LLAMA3),
    "llama-3.1-405b": _llama(16384, 126, 128, 8, 53248, **_LLAMA3),
    "mistral-7b": _llama(4096, 32, 32, 8, 14336, model_type="mistral", sliding_window=None),
    "qwen2.5-7b": _llama(3584, 28, 28, 4, 18944, 152064, model_type="qwen2"),
    "gemma-2b": _llama(
        2048,
        18,
        8,
        1,
        16384,
        256000,
        model_type="gemma",
        head_dim=256,
        tie_word_embeddings=True,
        hidden_act="gelu_pytorch_tanh",
    ),
    "qwen3-8b": _llama(4096, 36, 32, 8, 12288, 151936, model_type="qwen3", head_dim=128),
    "qwen3-0.6b": _llama(1024, 28, 16, 8, 3072, 151936, model_type="qwen3", head_dim=128, tie_word_embeddings=True),
    "phi-3-mini": _llama(3072, 32, 32, 32, 8192, 32064, model_type="phi3"),
    "gemma-3-1b": {
        **_llama(1152, 26, 4, 1, 6912, 262144, model_type="gemma3_text", head_dim=256, sliding_window=512),
        "max_position_embeddings": 32768,
    },
    "mixtral-8x7b": _llama(4096, 32, 32, 8, 14336, model_type="mixtral", num_local_experts=8, num_experts_per_tok=2),
    "qwen3-30b-a3b": {
        **_llama(2048, 48, 32, 4, 6144, 151936, model_type="qwen3_moe", head_dim=128, num_experts=128),
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "norm_topk_prob": True,
    },
    "deepseek-v3": {
        **_llama(7168, 61, 128, 128, 18432, 129280, model_type="deepseek_v3", kv_lora_rank=512, q_lora_rank=1536),
        "v_head_dim": 128,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "moe_intermediate_size": 2048,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "first_k_dense_replace": 3,
    },
    "gpt2": {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257},
    "opt-1.3b": _opt(2048, 24, 32),
    "opt-13b": _opt(5120, 40, 40),
}


def config_of(shape: str, **changes: Any) -> Any:
    """Return the transformers configuration of a shape in :data:`SHAPES`; ``changes`` replaces fields.

    Raises:
        GuideError: the shape is not known.

    >>> config_of("llama-2-7b").hidden_size, config_of("llama-2-7b", num_hidden_layers=2).num_hidden_layers
    (4096, 2)
    """
    from transformers import AutoConfig

    if shape not in SHAPES:
        raise GuideError(f"{shape!r}: no such shape; choose one of {', '.join(SHAPES)}")
    fields = {**SHAPES[shape], **changes}
    return AutoConfig.for_model(fields.pop("model_type"), **fields)
