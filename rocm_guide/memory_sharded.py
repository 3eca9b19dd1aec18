# SPDX-License-Identifier: MIT
"""Training with FSDP: what a shard of everything costs, and what is gathered whole for a moment."""

from __future__ import annotations

from dataclasses import replace

from .memory_activations import head_bytes, layer_saved, layer_transient, loss_tile
from .memory_shapes import Shape, Work

__all__ = ["sharded_moments"]


def sharded_moments(shape: Shape, work: Work, count: int) -> dict[str, dict[str, int]]:
    """Bytes by part at each moment of a step, on one of ``count`` GPUs (FSDP2, resharding after the forward pass).

    Parameters, gradients and AdamW states: 16 bytes (mixed) or 8 (bf16) a parameter, divided by ``count``. Gathered in
    bf16: what lies outside the layers from the forward to the backward pass, the layer at work, and the next one, which
    is fetched meanwhile. A layer's gradients exist whole, in bf16, until they are summed over the GPUs: two layers'
    worth, since one is on its way while the next is made. Arithmetic is in the gathered bf16 weights, so there are no
    casts of autocast and the residual stream is bf16.

    Source: Zhao et al., "PyTorch FSDP", arXiv:2304.11277, section 3; PyTorch documentation, ``fully_shard``.
    Introduced in notebook 04.

    >>> from rocm_guide.zoo_shapes import config_of
    >>> from rocm_guide.memory_shapes import shape_of
    >>> shape = shape_of(config_of("llama-2-7b"))
    >>> four = sharded_moments(shape, Work("full", batch=1, seq=8, precision="mixed"), 4)["optimizer"]
    >>> four["parameters"] == shape.parameters
    True
    """
    size = 4 if work.wide else 2
    share = size * shape.parameters // count
    stored = {"parameters": share, "optimizer": 2 * share}
    narrow = replace(work, precision="bf16")
    saved = sum(layer_saved(shape, narrow).values())
    stream = 2 * work.tokens * shape.hidden
    kept, moment = head_bytes(shape, narrow)
    everything, again = (shape.layers * stream, saved) if work.checkpointing else (shape.layers * saved, 0)
    outside, two = 2 * shape.outside, 2 * 2 * shape.layer
    held = layer_transient(shape, narrow) + stream
    before = share if work.accumulation > 1 else 0

    def at(gradients: int, activations: int, loss: int, gathered: int) -> dict[str, int]:
        sizes = {"gradients": gradients, "activations": activations, "loss": loss, "gathered": gathered}
        return {**stored, **sizes}

    tile = loss_tile(shape, narrow)
    return {
        "forward": at(before, everything, kept + tile, outside + two),
        "loss": at(before, everything, kept + moment, outside + two),
        # the output layer's gradient waits for the embedding's: they are gathered, and summed, together
        "last layer": at(before, everything + again + held, 0, outside + outside // 2 + 2 * two),
        "first layer": at(share, saved + held, 0, outside + outside // 2 + 2 * two),
        "optimizer": at(share, 0, 0, 0),
    }
