# SPDX-License-Identifier: MIT
"""The memory of a quantised model, computed from its shape: weights, embeddings, KV cache, and a bound on speed.

Everything here is arithmetic; nothing is measured.
"""

from __future__ import annotations

from rocm_guide.models.shapes import SHAPES
from rocm_guide.models.sizes import Sizes, sizes_of
from rocm_guide.quantize.grid import QuantizationError

__all__ = ["decode_bound", "linear_weights", "serving_bytes"]


def linear_weights(shape: str) -> int:
    """Return the number of weights of the decoder's linear layers of a Llama-like ``shape``: what gets quantised.

    Raises:
        QuantizationError: a shape without the seven matrices of a Llama layer.

    >>> linear_weights("llama-2-7b")
    6476005376
    """
    return _sizes(shape).linear


def _sizes(shape: str) -> Sizes:
    if shape not in SHAPES:
        raise QuantizationError(f"{shape!r}: no such shape; choose one of {', '.join(SHAPES)}")
    sizes = sizes_of(SHAPES[shape])
    if sizes.family in ("gpt2", "opt"):
        raise QuantizationError(f"{shape!r}: its layers are not those of a Llama; try 'llama-2-7b' or 'llama-3-70b'")
    return sizes


def serving_bytes(shape: str, bits: float, *, rows: int = 1, length: int = 4096) -> dict[str, float]:
    """Return the bytes in a GPU's memory while a model answers ``rows`` requests of ``length`` tokens, by part.

    Args:
        shape: as in :data:`rocm_guide.models.shapes.SHAPES`.
        bits: stored bits of a weight, its share of scales and zeros included
            (:func:`rocm_guide.quantize.grid.bits_per_weight`, :func:`rocm_guide.quantize.nf4.code_book_bits`).
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
    sizes = _sizes(shape)
    return {
        "linear layers": sizes.linear * bits / 8,
        "embeddings, head": (sizes.embedding + sizes.output) * 2.0,
        "KV cache": float(sizes.kv_cache_bytes(length, batch=rows)),
    }


def decode_bound(shape: str, bits: float, bandwidth_tb_s: float, length: int = 0) -> float:
    """Return the tokens per second that one row cannot exceed: each new token reads all linear layers and the head.

    Args:
        bandwidth_tb_s: of the memory, in 10^12 bytes per second.
        length: tokens of the text so far; their keys and values, in 16 bits, are read for every new token too.

    >>> round(decode_bound("llama-2-7b", 16, 5.3)), round(decode_bound("llama-2-7b", 16, 5.3, length=4096))
    (401, 345)
    """
    sizes = _sizes(shape)
    read = sizes.over_layers(lambda layer: layer.linear + layer.top_k * layer.expert_linear) * bits / 8
    read += sizes.vocab * sizes.hidden * 2
    if length:
        read += sizes.kv_cache_bytes(length, batch=1)
    return bandwidth_tb_s * 1e12 / read
