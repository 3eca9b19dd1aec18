# SPDX-License-Identifier: MIT
"""What a quantised model takes on a GPU, computed from its shape: weights, embeddings, KV cache, and a bound on speed.

Everything here is arithmetic; nothing is measured. Introduced in notebook 06.
"""

from __future__ import annotations

from .quantization import QuantizationError
from .zoo_shapes import config_of

__all__ = ["decode_bound", "linear_weights", "serving_bytes"]


def linear_weights(shape: str) -> int:
    """Weights of the decoder's linear layers of a Llama-like ``shape``: the ones that get quantised.

    Raises:
        QuantizationError: a shape without the seven matrices of a Llama layer.

    >>> linear_weights("llama-2-7b")
    6476005376
    """
    config = config_of(shape)
    if not hasattr(config, "num_key_value_heads") or not hasattr(config, "intermediate_size"):
        raise QuantizationError(f"{shape!r}: its layers are not those of a Llama; try 'llama-2-7b' or 'llama-3-70b'")
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    queries, keys = head * config.num_attention_heads, head * config.num_key_value_heads
    attention = config.hidden_size * (2 * queries + 2 * keys)
    return config.num_hidden_layers * (attention + 3 * config.hidden_size * config.intermediate_size)


def serving_bytes(shape: str, bits: float, *, rows: int = 1, length: int = 4096) -> dict[str, float]:
    """Bytes in a GPU's memory while a model answers ``rows`` requests of ``length`` tokens, by part.

    Args:
        shape: as in :data:`rocm_guide.zoo_shapes.SHAPES`.
        bits: stored bits of a weight, its share of scales and zeros included
            (:func:`rocm_guide.quantization.bits_per_weight`, :func:`rocm_guide.quantization_nf4.code_book_bits`).
        rows, length: requests at a time, and tokens of each; keys and values are kept in 16 bits.

    Embeddings and the output head stay in 16 bits, as the libraries leave them.

    Raises:
        QuantizationError: bits, rows or length that are not positive, or a shape that is no Llama.

    >>> parts = serving_bytes("llama-2-7b", 16)
    >>> round(sum(parts.values()) / 1e9, 1), round(parts["KV cache"] / 2**30, 1)
    (15.6, 2.0)
    """
    if bits <= 0 or rows < 1 or length < 1:
        raise QuantizationError(f"bits={bits}, rows={rows}, length={length}: all of them are positive")
    config = config_of(shape)
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    tables = 1 if getattr(config, "tie_word_embeddings", False) else 2
    return {
        "linear layers": linear_weights(shape) * bits / 8,
        "embeddings, head": tables * config.vocab_size * config.hidden_size * 2.0,
        "KV cache": 2.0 * 2 * config.num_hidden_layers * config.num_key_value_heads * head * rows * length,
    }


def decode_bound(shape: str, bits: float, bandwidth_tb_s: float) -> float:
    """Tokens per second that one row cannot exceed: every new token reads all linear layers and the head once.

    Args:
        bandwidth_tb_s: of the memory, in 10^12 bytes per second.

    >>> round(decode_bound("llama-2-7b", 16, 5.3))
    401
    """
    config = config_of(shape)
    read = linear_weights(shape) * bits / 8 + config.vocab_size * config.hidden_size * 2
    return bandwidth_tb_s * 1e12 / read
