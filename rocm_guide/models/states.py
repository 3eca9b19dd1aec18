# SPDX-License-Identifier: MIT
"""Memory arithmetic of training: what has to be stored for every weight, trained or frozen."""

from __future__ import annotations

from rocm_guide.common.base import GuideError

__all__ = ["training_state_bytes"]

_KINDS = ("mixed", "autocast", "bf16")


def training_state_bytes(total: int, trainable: int | None = None, *, kind: str = "mixed") -> dict[str, int]:
    """Return the bytes that weights, gradients and the Adam optimizer take, by part. Activations come on top.

    With mixed precision, a trained weight costs 16 bytes: 2 (bf16 weight) + 2 (bf16 gradient) + 4 (fp32 master copy)
    + 4 + 4 (Adam's two moments in fp32). Under autocast the fp32 weights are the master copy and gradients are fp32
    too: 4 + 4 + 8, the same 16. In pure bf16 it costs 8: 2 + 2 + 2 + 2, and small updates can be rounded
    away. A frozen weight costs its 2 bytes and nothing else. Source: Rajbhandari et al., "ZeRO", arXiv:1910.02054,
    section 3.1.

    Args:
        total: number of parameters, trainable ones included.
        trainable: how many of them are trained; None for all.
        kind: "mixed", "autocast" or "bf16".

    Raises:
        GuideError: a negative number, more trainable parameters than there are, or another kind.

    >>> parts = training_state_bytes(7_000_000_000)
    >>> sum(parts.values()) / 7_000_000_000
    16.0
    """
    trainable = total if trainable is None else trainable
    if not 0 <= trainable <= total:
        raise GuideError(f"trainable={trainable} of total={total}: give 0 <= trainable <= total")
    if kind not in _KINDS:
        raise GuideError(f"kind={kind!r}: choose one of {', '.join(_KINDS)}")
    if kind == "autocast":
        weights = {"weights": 4 * trainable + 2 * (total - trainable), "gradients (fp32)": 4 * trainable}
        return {**weights, "Adam moments (fp32)": 8 * trainable}
    parts = {"weights (bf16)": 2 * total, "gradients (bf16)": 2 * trainable}
    if kind == "mixed":
        return {**parts, "master weights (fp32)": 4 * trainable, "Adam moments (fp32)": 8 * trainable}
    return {**parts, "Adam moments (bf16)": 4 * trainable}
