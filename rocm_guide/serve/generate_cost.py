# SPDX-License-Identifier: MIT
"""The cost of generation by arithmetic: FLOPs of a forward pass, bytes of the KV cache."""

from __future__ import annotations

from typing import Any

from rocm_guide.common.base import GuideError
from rocm_guide.models.sizes import sizes_of

__all__ = ["forward_flops", "kv_cache_bytes"]


def forward_flops(config: Any, new: int, past: int = 0) -> int:
    """Return the FLOPs of one forward pass of a Llama-like model over ``new`` tokens that see ``past`` earlier ones.

    Every weight matrix costs one multiply and one add per token; the output layer runs for the last token only. The
    attention scores and the weighted sum cost 2 x 2 x head size for each pair of a token and one that it sees.
    A causal kernel that skips the masked half is assumed; norms and activations are left out.

    Of a mixture of experts the ``top_k`` experts of a token are counted.

    Raises:
        GuideError: the model has other layers than are counted here.

    >>> from rocm_guide.models.shapes import SHAPES
    >>> forward_flops(SHAPES["llama-2-7b"], new=1) / 1e9
    13.21467904
    """
    sizes = sizes_of(config)
    if any("self_attn.o_proj" not in layer.matrices for layer, _ in sizes.groups):
        fix = "give a Llama, Mistral, Qwen or Gemma"
        raise GuideError(f"{sizes.family}: its layers are not those of a Llama; {fix}")
    weights = sizes.over_layers(lambda layer: layer.linear + layer.router + layer.top_k * layer.expert_linear)
    pairs = new * past + new * (new + 1) // 2
    attention = 2 * sizes.over_layers(lambda layer: layer.q + layer.matrices["self_attn.o_proj"][0]) * pairs
    return 2 * weights * new + attention + 2 * sizes.hidden * sizes.vocab


def kv_cache_bytes(config: Any, tokens: int, *, batch: int = 1, bytes_per_number: int = 2) -> int:
    """Return the bytes of keys and values of ``tokens`` tokens in ``batch`` rows: 2 x layers x KV heads x head size.

    A model without grouped queries (OPT, GPT-2) keeps a key and a value for every head.

    >>> from rocm_guide.models.shapes import SHAPES
    >>> kv_cache_bytes(SHAPES["llama-2-7b"], 4096) / 2**30
    2.0
    """
    return sizes_of(config).kv_cache_bytes(tokens, batch=batch, bytes_per_number=bytes_per_number)
