# SPDX-License-Identifier: MIT
"""Memory arithmetic of training: what has to be stored for every weight, trained or frozen."""

from __future__ import annotations

from .base import GuideError

__all__ = ["training_state_bytes"]


def training_state_bytes(total: int, trainable: int | None = None, *, mixed_precision: bool = True) -> dict[str, int]:
    """Bytes that weights, gradients and the Adam optimizer take, by part. Activations come on top.

    With mixed precision, a trained weight costs 16 bytes: 2 (bf16 weight) + 2 (bf16 gradient) + 4 (fp32 master copy)
    + 4 + 4 (Adam's two moments in fp32). In pure bf16 it costs 8: 2 + 2 + 2 + 2, and small updates can be rounded
    away. A frozen weight costs its 2 bytes and nothing else. Source: Rajbhandari et al., "ZeRO", arXiv:1910.02054,
    section 3.1. Introduced in notebook 01.

    Args:
        total: number of parameters, trainable ones included.
        trainable: how many of them are trained; None for all.
        mixed_precision: keep a master copy and the moments in fp32.

    Raises:
        GuideError: a negative number, or more trainable parameters than there are.

    >>> parts = training_state_bytes(7_000_000_000)
    >>> sum(parts.values()) / 7_000_000_000
    16.0
    """
    trainable = total if trainable is None else trainable
    if not 0 <= trainable <= total:
        raise GuideError(f"trainable={trainable} of total={total}: give 0 <= trainable <= total")
    parts = {"weights (bf16)": 2 * total, "gradients (bf16)": 2 * trainable}
    if mixed_precision:
        return {**parts, "master weights (fp32)": 4 * trainable, "Adam moments (fp32)": 8 * trainable}
    return {**parts, "Adam moments (bf16)": 4 * trainable}
