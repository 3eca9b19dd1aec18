# SPDX-License-Identifier: MIT
"""What generation costs by arithmetic: FLOPs of a forward pass, bytes of the KV cache. Introduced in notebook 03."""

from __future__ import annotations

from typing import Any

from .base import GuideError

__all__ = ["forward_flops", "kv_cache_bytes"]


def forward_flops(config: Any, new: int, past: int = 0) -> int:
    """FLOPs of one forward pass of a Llama-like model over ``new`` tokens that see ``past`` earlier ones.

    Every weight matrix costs one multiply and one add per token; the output layer runs for the last token only. The
    attention scores and the weighted sum cost 2 x 2 x head size for each pair of a token and one that it sees.
    A causal kernel that skips the masked half is assumed; norms and activations are left out.
    Introduced in notebook 03.

    Raises:
        GuideError: the configuration lacks one of Llama's fields, so the model has other layers than are counted here.

    >>> from rocm_guide.zoo_shapes import config_of
    >>> forward_flops(config_of("llama-2-7b"), new=1) / 1e9
    13.21467904
    """
    wanted = ("num_key_value_heads", "intermediate_size", "hidden_size", "vocab_size", "num_hidden_layers")
    if missing := [name for name in wanted if not hasattr(config, name)]:
        model = getattr(config, "model_type", type(config).__name__)
        raise GuideError(f"{model}: its configuration has no {missing[0]}; give a Llama, Mistral, Qwen or Gemma")
    head = _head_size(config)
    q, kv = config.num_attention_heads * head, config.num_key_value_heads * head
    hidden = config.hidden_size
    layer = hidden * (q + 2 * kv) + q * hidden + 3 * hidden * config.intermediate_size
    pairs = new * past + new * (new + 1) // 2
    attention = 4 * q * pairs
    return config.num_hidden_layers * (2 * layer * new + attention) + 2 * hidden * config.vocab_size


def kv_cache_bytes(config: Any, tokens: int, *, batch: int = 1, bytes_per_number: int = 2) -> int:
    """Bytes of the keys and values of ``tokens`` tokens in each of ``batch`` rows: 2 x layers x KV heads x head size.

    A model without grouped queries (OPT, GPT-2) keeps a key and a value for every head. Introduced in notebook 03.

    >>> from rocm_guide.zoo_shapes import config_of
    >>> kv_cache_bytes(config_of("llama-2-7b"), 4096) / 2**30
    2.0
    """
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    return 2 * config.num_hidden_layers * heads * _head_size(config) * tokens * batch * bytes_per_number


def _head_size(config: Any) -> int:
    # Some models (Gemma) name a head size that is not hidden size / heads.
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
