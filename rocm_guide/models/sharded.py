# SPDX-License-Identifier: MIT
"""Training with FSDP: what a shard of everything costs, and what is gathered whole for a moment."""

from __future__ import annotations

from dataclasses import replace

from rocm_guide.models.activations import head_bytes, layer_saved, layer_transient, loss_tile
from rocm_guide.models.sizes import Sizes
from rocm_guide.models.step import work_states
from rocm_guide.models.work import Workload

__all__ = []


def sharded_moments(sizes: Sizes, work: Workload, count: int) -> dict[str, dict[str, int]]:
    """Return the bytes by part at each moment of a step,
    on one of ``count`` GPUs (FSDP2, resharding after the forward pass).

    Parameters, gradients and AdamW states, as :func:`~rocm_guide.models.step.work_states` counts them, divided by
    ``count``. Gathered in bf16: what lies outside the layers from the forward to the backward pass, the layer at work,
    and the next one, which is fetched meanwhile. A layer's gradients exist whole, in bf16, until they are summed over
    the GPUs: two layers' worth, since one is on its way while the next is made. With LoRA only the adapters have
    gradients, and frozen weights are gathered as they are stored. Arithmetic is in the gathered bf16 weights, so there
    are no casts of autocast and the residual stream is bf16.

    Source: Zhao et al., "PyTorch FSDP", arXiv:2304.11277, section 3; PyTorch documentation, ``fully_shard``.

    >>> from rocm_guide.models.shapes import SHAPES
    >>> from rocm_guide.models.sizes import sizes_of
    >>> sizes = sizes_of(SHAPES["llama-2-7b"])
    >>> four = sharded_moments(sizes, Workload("full", batch=1, seq=8, precision="mixed"), 4)["optimizer"]
    >>> four["parameters"] == sizes.parameters
    True
    """
    states = work_states(sizes, work)
    stored = {name: size // count for name, size in states.items() if name != "gradients"}
    share = states.get("gradients", 0) // count
    narrow = replace(work, precision="bf16")
    saved = {id(layer): sum(layer_saved(sizes, narrow, layer).values()) for layer, _ in sizes.groups}
    first, last = sizes.groups[0][0], sizes.groups[-1][0]
    stream = 2 * work.tokens * sizes.hidden
    kept, moment = head_bytes(sizes, narrow)
    everything, again = sum(saved[id(layer)] * n for layer, n in sizes.groups), 0
    if work.checkpointing:
        everything, again = sizes.layers * stream, saved[id(last)]
    # A gathered parameter, and beside it in the backward pass its gradient in bf16 if it is trained.
    full = work.method == "full"
    outside, two = 2 * sizes.outside, 2 * _largest_gathered(sizes, work)
    gradients = two if full else 0
    outside_late = outside + (outside // 2 if full else 0)
    before = share if work.accumulation > 1 else 0

    def at(gradients: int, activations: int, loss: int, gathered: int) -> dict[str, int]:
        parts = {"gradients": gradients, "activations": activations, "loss": loss, "gathered": gathered}
        return {**stored, **parts}

    tile = loss_tile(sizes, narrow)
    held_last, held_first = (layer_transient(sizes, narrow, layer) + stream for layer in (last, first))
    return {
        "forward": at(before, everything, kept + tile, outside + two),
        "loss": at(before, everything, kept + moment, outside + two),
        # the output layer's gradient waits for the embedding's: they are gathered, and summed, together
        "last layer": at(before, everything + again + held_last, 0, outside_late + two + gradients),
        "first layer": at(share, saved[id(first)] + held_first, 0, outside_late + two + gradients),
        "optimizer": at(share, 0, 0, 0),
    }


def _largest_gathered(sizes: Sizes, work: Workload) -> int:
    """Return the bytes of the largest layer while it is gathered: in bf16, or as a frozen checkpoint stores it."""
    if work.method == "full":
        return 2 * sizes.largest_layer
    states = work_states(sizes, work)["parameters"] - 2 * sizes.outside
    return round(sizes.largest_layer * states / max(1, sizes.parameters - sizes.outside))
