# SPDX-License-Identifier: MIT
"""Activations that norms keep for the backward pass; and GPT-2 and OPT, whose LayerNorm autocast computes in fp32."""

from __future__ import annotations

from rocm_guide.models.families import LIGER
from rocm_guide.models.layer import Layer
from rocm_guide.models.sizes import Sizes
from rocm_guide.models.work import Workload

__all__ = []


def fused(sizes: Sizes, work: Workload) -> bool:
    """Return whether Liger's kernels run: asked for, and there for this family."""
    return work.kernels == "liger" and sizes.family in LIGER


def is_casting(sizes: Sizes) -> bool:
    """Return whether the norms are torch's LayerNorm, which autocast computes in fp32 (GPT-2, OPT)."""
    return sizes.family in ("gpt2", "opt")


def rms_norm_bytes(sizes: Sizes, work: Workload, rows: int, width: int, size: int) -> int:
    """Return the bytes that an RMSNorm keeps: its input, one fp32 number a row,
    and what the gradient of its weight needs.

    >>> from rocm_guide.models.sizes import sizes_of
    >>> from rocm_guide.models.shapes import SHAPES
    >>> rms_norm_bytes(sizes_of(SHAPES["llama-2-7b"]), Workload("lora"), 1, 4096, 2)
    8196
    """
    if fused(sizes, work):
        return rows * (size * width + 4)
    gemma = sizes.family.startswith("gemma")
    normalised = (4 if gemma else size) if work.method == "full" else 0
    return rows * ((4 + normalised) * width + 4)


def layer_norm_bytes(sizes: Sizes, work: Workload) -> int:
    """Return the bytes that a LayerNorm keeps under autocast: its input in fp32, a mean and a deviation a row."""
    return work.tokens * (4 * sizes.hidden + 8)


def layer_norm_mlp(sizes: Sizes, work: Workload, layer: Layer) -> int:
    """Return the bytes kept by the MLP of GPT-2 (GELU written out in single operations)
    and OPT (ReLU, its result only).
    """
    return work.tokens * layer.inner * (14 if sizes.family == "gpt2" else 2)
