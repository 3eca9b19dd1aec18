# SPDX-License-Identifier: MIT
"""The peak of a training step: what is in memory at each moment that can be the largest, and which one is."""

from __future__ import annotations

from dataclasses import replace

from rocm_guide.models.activations import head_bytes, layer_saved, layer_transient, loss_tile
from rocm_guide.models.quantized import NF4_BYTES
from rocm_guide.models.sizes import Sizes
from rocm_guide.models.states import training_state_bytes
from rocm_guide.models.work import Workload

__all__ = ["step_moments"]

#: Tensors that TRL's offloading keeps on the device until their copies have arrived: ``max_fwd_stash_size`` of
#: ``OffloadActivations`` (trl 1.16, ``trl/models/activation_offloading.py``).
IN_FLIGHT = 5


def adapter_parameters_of(sizes: Sizes, work: Workload) -> int:
    """Return how many numbers are in all LoRA matrices of this work; 0 without LoRA."""
    if work.method not in ("lora", "qlora"):
        return 0
    return sizes.lora_parameters(work.targets or sizes.lora_targets(), work.rank)


def frozen_bytes(sizes: Sizes, work: Workload) -> int:
    """Return the bytes of all weights that are not trained, or only read:
    bf16, the checkpoint's own format, or NF4 for QLoRA.

    >>> from rocm_guide.models.shapes import SHAPES
    >>> from rocm_guide.models.sizes import sizes_of
    >>> frozen_bytes(sizes_of(SHAPES["llama-2-7b"]), Workload("inference")) / 1e9
    13.476831232
    """
    if work.method != "qlora" or sizes.quantised:
        return sizes.stored_bytes
    linear = sizes.over_layers(lambda layer: layer.linear)  # bitsandbytes replaces linear layers, and no experts
    return 2 * sizes.parameters + round(linear * (NF4_BYTES - 2))


def work_states(sizes: Sizes, work: Workload) -> dict[str, int]:
    """Return the bytes of parameters, gradients and AdamW states; gradients as they are when all are there.

    full, bf16: 2 + 2 + (2 + 2) bytes a parameter, because torch keeps AdamW's states in the parameter's type. full,
    mixed: 4 + 4 + (4 + 4) (ZeRO, arXiv:1910.02054, counts the same 16 bytes as 2 + 2 + 12; under autocast the bf16
    copy of the weights is temporary, see :func:`~rocm_guide.models.activations.layer_saved`). LoRA: a frozen weight as
    it is stored, and 16 (fp32) or 8 (bf16) for one of the adapter's. QLoRA:
    :data:`~rocm_guide.models.quantized.NF4_BYTES` for a weight of the linear layers and 2 for the others.

    >>> from rocm_guide.models.shapes import SHAPES
    >>> from rocm_guide.models.sizes import sizes_of
    >>> sizes = sizes_of(SHAPES["llama-2-7b"])
    >>> sum(work_states(sizes, Workload("full")).values()) == 8 * sizes.parameters
    True
    """
    if work.method == "full":
        kind = "autocast" if work.wide else "bf16"
        weights, gradients, moments = training_state_bytes(sizes.parameters, kind=kind).values()
        return {"parameters": weights, "gradients": gradients, "optimizer": moments}
    base, numbers = frozen_bytes(sizes, work), adapter_parameters_of(sizes, work)
    if not numbers:
        return {"parameters": base}
    kind = "autocast" if work.method == "lora" and work.adapter_fp32 else "bf16"
    adapter, gradients, moments = training_state_bytes(numbers, kind=kind).values()
    return {"parameters": base, "adapter": adapter, "gradients": gradients, "optimizer": moments}


def step_moments(sizes: Sizes, work: Workload) -> dict[str, dict[str, int]]:
    """Return the bytes by part at each moment of a step
    that can be its peak (from the second step on, when states exist).

    Activations shrink while gradients grow, so the two are never at their largest together:

    - forward: its end, with every layer's activations, the loss's tile and all of autocast's casts;
    - loss: the loss's backward pass, no gradient of a layer yet;
    - last layer: every layer's activations, the gradient of the output layer, the first backward of a layer;
    - first layer: one layer's activations, all gradients but the embedding's;
    - optimizer: all gradients, no activations.

    With checkpointing, "every layer's activations" are one stream of 2TH a layer, and one layer's in full while it is
    computed again (Chen et al., arXiv:1604.06174). Gradients stay throughout if they are accumulated.
    """
    stored = work_states(sizes, work)
    gradients = stored.pop("gradients", 0)
    saved, casts = _each(sizes, work)
    first, last = sizes.groups[0][0], sizes.groups[-1][0]
    kept, moment = head_bytes(sizes, work)
    stream = (4 if work.wide else 2) * work.tokens * sizes.hidden
    per = gradients // sizes.parameters if work.method == "full" else 0
    head = per * sizes.vocab * sizes.hidden
    late = gradients - (0 if sizes.tied else head) - per * first.parameters
    everything = sum(saved[layer] * count for layer, count in _counted(sizes))
    all_casts = kept_casts = sum(casts[layer] * count for layer, count in _counted(sizes))
    again = 0
    if work.checkpointing:
        streams = min(IN_FLIGHT, sizes.layers) if work.offloading else sizes.layers
        everything, again, kept_casts = streams * stream, saved[id(last)] + casts[id(last)], 0
    before = gradients if work.accumulation > 1 else 0
    held_last, held_first = (layer_transient(sizes, work, layer) + stream for layer in (last, first))
    return {
        # autocast keeps every cast that it made until the forward pass, which includes the loss, is over
        "forward": _moment(stored, before, everything, all_casts, kept + loss_tile(sizes, work)),
        "loss": _moment(stored, before, everything, kept_casts, kept + moment),
        "last layer": _moment(stored, max(before, head), everything + again + held_last, kept_casts, 0),
        "first layer": _moment(stored, max(before, late), saved[id(first)] + held_first, casts[id(first)], 0),
        "optimizer": _moment(stored, gradients, 0, 0, 0),
    }


def _counted(sizes: Sizes) -> list[tuple[int, int]]:
    return [(id(layer), count) for layer, count in sizes.groups]


def _each(sizes: Sizes, work: Workload) -> tuple[dict[int, int], dict[int, int]]:
    """Return the bytes that each kind of layer keeps, and those of autocast's casts among them."""
    saved, casts = {}, {}
    for layer, _ in sizes.groups:
        one = layer_saved(sizes, work, layer)
        casts[id(layer)] = one.pop("weight casts")
        saved[id(layer)] = sum(one.values())
    return saved, casts


def _moment(stored: dict[str, int], gradients: int, activations: int, casts: int, loss: int) -> dict[str, int]:
    return {**stored, "gradients": gradients, "activations": activations, "weight casts": casts, "loss": loss}


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
