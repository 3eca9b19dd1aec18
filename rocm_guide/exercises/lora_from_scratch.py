# SPDX-License-Identifier: MIT
"""Checks of the exercises of notebook 01: each says what is missing, and returns whether the answer holds."""

from __future__ import annotations

from typing import Any

import torch

from cdna.predict.specs import gpu
from rocm_guide.exercises.common import FAULTS, no, yes
from rocm_guide.finetune.lora import LoRALinear
from rocm_guide.models.shapes import config_of
from rocm_guide.models.sizes import LORA_TARGETS, lora_parameters
from rocm_guide.models.states import training_state_bytes

__all__ = ["check_all_linear", "check_largest_rank", "check_merge"]


def check_all_linear(parameters: Any) -> bool:
    """Check exercise 1: trainable parameters of rank-16 LoRA on all seven matrices of Llama-3-8B.

    >>> check_all_linear(6_815_744)
    [HINT] that is q_proj and v_proj only; add the other five matrices of every layer
    False
    """
    config = config_of("llama-3-8b")
    expected = lora_parameters(config, LORA_TARGETS, 16)
    if parameters == lora_parameters(config, ("q_proj", "v_proj"), 16):
        return no("that is q_proj and v_proj only; add the other five matrices of every layer")
    if parameters == config.num_hidden_layers * 16 * (4 * 2 * 4096 + 3 * (4096 + 14336)):
        return no("k_proj and v_proj are smaller: 8 key-value heads of 128 make 1,024 outputs, not 4,096")
    if parameters != expected:
        return no(f"{parameters} is not it; add r (in + out) over the seven matrices, times 32 layers")
    return yes(f"{expected:,} parameters, {expected / 8_030_261_248:.2%} of the model")


def check_merge(merge: Any) -> bool:
    """Check exercise 2: a function that takes a LoRALinear and returns the matrix of the merged layer.

    It is tried on layers of several shapes, ranks and scales.

    >>> check_merge(lambda layer: layer.layer.weight)
    [HINT] the update is missing: W alone is the layer before fine-tuning
    False
    """
    generator = torch.Generator().manual_seed(0)
    for out, inner, r, alpha in ((6, 4, 1, 1.0), (8, 8, 2, 16.0), (5, 12, 3, 0.5)):
        layer = LoRALinear(torch.nn.Linear(inner, out), r=r, alpha=alpha)
        with torch.no_grad():
            layer.B.copy_(torch.randn(layer.B.shape, generator=generator))
        try:
            given = merge(layer)
        except FAULTS as e:
            return no(f"it fails on a layer of shape ({out}, {inner}): {str(e).splitlines()[0]}")
        expected = layer.merged().weight
        if not isinstance(given, torch.Tensor) or given.shape != expected.shape:
            shape = tuple(getattr(given, "shape", ()))
            return no(f"expected a matrix of shape {tuple(expected.shape)}, got {shape}")
        if torch.allclose(given, layer.layer.weight):
            return no("the update is missing: W alone is the layer before fine-tuning")
        if torch.allclose(given, layer.layer.weight + layer.B @ layer.A) and layer.scale != 1:
            return no(f"the scale alpha / r = {layer.scale:g} is missing")
        if not torch.allclose(given, expected, atol=1e-6):
            return no("wrong values; the update is (alpha / r) B A, with B on the left")
    return yes("equal to the merged layer for three shapes, ranks and scales")


def check_largest_rank(rank: Any) -> bool:
    """Check exercise 3: the largest power of two for the rank of LoRA (all seven matrices) with which the weights,
    gradients and optimizer state of Llama-2-70B fit into one MI300X, in mixed precision.

    >>> check_largest_rank(8)
    [HINT] rank 16 fits too: 141.3 GB of 206
    False
    """
    if not isinstance(rank, int) or rank < 1 or rank & (rank - 1):
        return no(f"rank={rank!r}: give a power of two")
    budget = gpu("MI300X").memory_bytes / 1e9

    def gigabytes(r: int) -> float:
        base, extra = 68_976_648_192, lora_parameters(config_of("llama-2-70b"), LORA_TARGETS, r)
        return sum(training_state_bytes(base + extra, extra).values()) / 1e9

    if gigabytes(rank) > budget:
        return no(f"rank {rank} needs {gigabytes(rank):,.1f} GB, more than {budget:.0f}")
    if gigabytes(2 * rank) <= budget:
        return no(f"rank {2 * rank} fits too: {gigabytes(2 * rank):,.1f} GB of {budget:.0f}")
    return yes(f"rank {rank}: {gigabytes(rank):,.1f} GB; rank {2 * rank} would need {gigabytes(2 * rank):,.1f} GB")
