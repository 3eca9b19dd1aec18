# SPDX-License-Identifier: MIT
"""The peak of a training step: what is in memory at each moment that can be the largest, and which one is."""

from __future__ import annotations

from .memory_activations import head_bytes, layer_saved, layer_transient, loss_tile
from .memory_shapes import Shape, Work

__all__ = ["NF4_BYTES", "adapter_parameters", "step_moments", "stored_bytes"]

#: Bytes of one NF4 weight with double quantisation: 4 bits, an 8-bit scale for each 64, an fp32 scale for each 256 of
#: those. Source: Dettmers et al., "QLoRA", arXiv:2305.14314, section 3 (0.127 bits for the scales).
NF4_BYTES = 0.5 + 1 / 64 + 4 / (64 * 256)


def adapter_parameters(shape: Shape, work: Work) -> int:
    """Numbers in all LoRA matrices: r (in + out) for each target of each layer; 0 without LoRA."""
    if work.method not in ("lora", "qlora"):
        return 0
    return shape.layers * work.rank * sum(sum(shape.matrices[m]) for m in work.targets)


def stored_bytes(shape: Shape, work: Work) -> dict[str, int]:
    """Bytes of parameters, gradients and AdamW states; gradients as they are when all are there.

    full, bf16: 2 + 2 + (2 + 2) bytes a parameter, because torch keeps AdamW's states in the parameter's type. full,
    mixed: 4 + 4 + (4 + 4) (ZeRO, arXiv:1910.02054, counts the same 16 bytes as 2 + 2 + 12; under autocast the bf16
    copy of the weights is temporary, see :func:`~rocm_guide.memory_activations.layer_saved`). LoRA: 2 for a frozen
    weight, and 16 (fp32) or 8 (bf16) for one of the adapter's. QLoRA: :data:`NF4_BYTES` for a weight of the seven
    matrices and 2 for the others.

    Introduced in notebook 04.

    >>> from rocm_guide.zoo_shapes import config_of
    >>> from rocm_guide.memory_shapes import shape_of
    >>> shape = shape_of(config_of("llama-2-7b"))
    >>> sum(stored_bytes(shape, Work("full")).values()) == 8 * shape.parameters
    True
    """
    if work.method == "full":
        size = 4 if work.wide else 2
        total = size * shape.parameters
        return {"parameters": total, "gradients": total, "optimizer": 2 * total}
    base = 2 * shape.parameters
    if work.method == "qlora":
        base += round(shape.layers * shape.layer_matrices * (NF4_BYTES - 2))
    adapter = adapter_parameters(shape, work) * (4 if work.method == "lora" and work.adapter_fp32 else 2)
    if not adapter:
        return {"parameters": base}
    return {"parameters": base, "adapter": adapter, "gradients": adapter, "optimizer": 2 * adapter}


def step_moments(shape: Shape, work: Work) -> dict[str, dict[str, int]]:
    """Bytes by part at each moment of a step that can be its peak (from the second step on, when states exist).

    Activations shrink while gradients grow, so the two are never at their largest together:

    - forward: its end, with every layer's activations, the loss's tile and all of autocast's casts;
    - loss: the loss's backward pass, no gradient of a layer yet;
    - last layer: every layer's activations, the gradient of the output layer, the first backward of a layer;
    - first layer: one layer's activations, all gradients but the embedding's;
    - optimizer: all gradients, no activations.

    With checkpointing, "every layer's activations" are one stream of 2TH a layer, and one layer's in full while it is
    computed again (Chen et al., arXiv:1604.06174). Gradients stay throughout if they are accumulated.

    Introduced in notebook 04.
    """
    stored = stored_bytes(shape, work)
    gradients = stored.pop("gradients", 0)
    one = layer_saved(shape, work)
    casts, saved = one.pop("weight casts"), sum(one.values())
    kept, moment = head_bytes(shape, work)
    stream = (4 if work.wide else 2) * work.tokens * shape.hidden
    per = gradients // shape.parameters if work.method == "full" else 0
    head = per * shape.vocab * shape.hidden
    late = gradients - (0 if shape.tied else head) - per * shape.layer
    layers = shape.layers
    everything, again, kept_casts = layers * saved, 0, layers * casts
    if work.checkpointing:
        everything, again, kept_casts = layers * stream, saved + casts, 0
    before = gradients if work.accumulation > 1 else 0
    held = layer_transient(shape, work) + stream
    return {
        # autocast keeps every cast that it made until the forward pass, which includes the loss, is over
        "forward": _moment(stored, before, everything, layers * casts, kept + loss_tile(shape, work)),
        "loss": _moment(stored, before, everything, kept_casts, kept + moment),
        "last layer": _moment(stored, max(before, head), everything + again + held, kept_casts, 0),
        "first layer": _moment(stored, max(before, late), saved + held, casts, 0),
        "optimizer": _moment(stored, gradients, 0, 0, 0),
    }


def _moment(stored: dict[str, int], gradients: int, activations: int, casts: int, loss: int) -> dict[str, int]:
    return {**stored, "gradients": gradients, "activations": activations, "weight casts": casts, "loss": loss}
