# SPDX-License-Identifier: MIT
"""The peak of a training step: what is in memory at each moment that can be the largest, and which one is."""

from __future__ import annotations

from dataclasses import replace

from rocm_guide.models.families import LIGER
from rocm_guide.models.layer import Layer
from rocm_guide.models.quantized import NF4_BYTES
from rocm_guide.models.sizes import Sizes
from rocm_guide.models.states import training_state_bytes
from rocm_guide.models.work import Workload

__all__ = ["step_moments"]


def fused(sizes: Sizes, work: Workload) -> bool:
    """Return whether Liger's kernels run: asked for, and there for this family."""
    return work.kernels == "liger" and sizes.family in LIGER


def is_casting(sizes: Sizes) -> bool:
    """Return whether the norms are torch's LayerNorm, which autocast computes in fp32 (GPT-2, OPT)."""
    return sizes.family in ("gpt2", "opt")


def rms_norm_bytes(sizes: Sizes, work: Workload, rows: int, width: int, size: int) -> int:
    """Return the bytes that an RMSNorm keeps: its input, one fp32 number a row, and what its weight's gradient needs.

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
    """Return the bytes kept by the MLP of GPT-2 (GELU in single operations) and OPT (ReLU, its result only)."""
    return work.tokens * layer.inner * (14 if sizes.family == "gpt2" else 2)


#: TRL's output layer and loss work on tiles of this many tokens and words, so that the logits never exist as a whole.
LOSS_TOKENS, LOSS_WORDS = 4096, 32768
#: Matrices of a layer that read the same input, by the last part of their names.
_SHARED_INPUT = (
    ("q_proj", "k_proj", "v_proj", "q_a_proj", "kv_a_proj_with_mqa", "qkv_proj", "c_attn"),
    ("q_b_proj",),
    ("kv_b_proj",),
    ("o_proj", "out_proj", "attn.c_proj"),
    ("gate_proj", "up_proj", "gate_up_proj", "c_fc", "fc1"),
    ("down_proj", "mlp.c_proj", "fc2"),
)
_FROM_NORM, _FROM_ATTENTION = (_SHARED_INPUT[0], _SHARED_INPUT[4]), _SHARED_INPUT[3]
_FROM_MLP = _SHARED_INPUT[4] + _SHARED_INPUT[5]


def layer_saved(sizes: Sizes, work: Workload, layer: Layer | None = None) -> dict[str, int]:
    """Return the bytes that a layer, the first if none is given, keeps for its backward pass, by part.

    - norms: each keeps its input. Liger: 2TH. torch: an fp32 copy, 4TH, and, to train the norm's own weight, the
      normalised input, 2TH (Gemma, which multiplies in fp32: 4TH). Under mixed precision the residual stream is fp32:
      4TH, and 4TH more. Norms of queries and keys do the same on Q + K numbers.
    - attention: rotated queries, keys, values and the output, 2T(2Q + 2K), and one fp32 number a head and token.
      FlashAttention never keeps the T x T scores (Dao et al., arXiv:2205.14135).
    - MLP: gate and up, 4TI; with torch's kernels also silu(gate), 2TI. Experts: the same for S rows, and their outputs,
      2SH, which the router's gradient needs; if they are trained also their inputs, 2SH, and the products, 2SI.
    - inputs of trained matrices: 2T x in, once where matrices share the input and the type is already bf16. The cast
      of a float32 tensor is made anew for each matrix: three times for q, k, v. An adapter in fp32 casts its input to
      fp32 and autocast casts it back, so each target keeps a copy of its own. Dropout adds a mask of 1 byte a number.
    - weight casts: autocast's bf16 copies of fp32 weights, 2 bytes each, kept until their backward pass.

    >>> from rocm_guide.models.shapes import SHAPES
    >>> from rocm_guide.models.sizes import sizes_of
    >>> saved = layer_saved(sizes_of(SHAPES["llama-2-7b"]), Workload("full", batch=1, seq=2048))
    >>> round(sum(saved.values()) / 2048 / 4096, 1)  # bytes per token and unit of hidden size
    32.2
    """
    layer = layer or sizes.groups[0][0]
    t, full = work.tokens, work.method == "full"
    parts = {"norms": _norms(sizes, work, layer), "attention": _attention(sizes, work, layer), "MLP": 0}
    if is_casting(sizes):
        parts["MLP"] = layer_norm_mlp(sizes, work, layer)
    elif layer.inner:
        parts["MLP"] = t * layer.inner * (4 if fused(sizes, work) else 6)
    if layer.experts:
        parts["experts"] = _experts(sizes, work, layer)
    inputs = casts = 0
    targets = work.targets or sizes.lora_targets()
    for group in _SHARED_INPUT:
        there = [name for name in layer.matrices if _is_in(name, group)]
        if not there:
            continue
        trained = [name for name in there if full or name.split(".")[-1] in targets]
        wide_input = group in _FROM_NORM and (work.wide or is_casting(sizes))  # the norms' outputs are fp32
        width = layer.matrices[there[0]][0]
        copies = len(trained) if wide_input else min(1, len(trained))
        if not full:
            own_copies = _casts_adapters(work) or work.dropout
            copies = len(trained) if own_copies else copies
            inputs += round(t * width * len(trained)) if work.dropout else 0
            inputs += 2 * t * work.rank * len(trained)
            if _casts_adapters(work):
                casts += sum(2 * work.rank * sum(layer.matrices[name]) for name in trained)
        if sizes.family == "opt" and "fc2" in there and full:
            copies = 0  # the result of ReLU, counted as the MLP's
        if group == _FROM_ATTENTION and (full or not (_casts_adapters(work) or work.dropout)):
            copies = 0  # the attention's own output, counted above
        inputs += 2 * t * width * copies
    if work.wide:
        casts = 2 * (layer.linear + layer.bias)
    return parts | {"inputs of trained matrices": inputs, "weight casts": casts}


def _norms(sizes: Sizes, work: Workload, layer: Layer) -> int:
    t, h = work.tokens, sizes.hidden
    if is_casting(sizes):
        return 2 * layer_norm_bytes(sizes, work)
    rows = 4 if sizes.family in ("gemma2", "gemma3_text") else 2
    size = 4 if work.wide else 2
    kept = rows * rms_norm_bytes(sizes, work, t, h, size)
    if layer.qk_norms:
        kept += rms_norm_bytes(sizes, work, t, layer.qk_norms, 2) + 4 * t * (sizes.heads + sizes.kv_heads - 1)
    if sizes.family == "deepseek_v3":  # norms of the compressed queries, keys and values
        kept += rms_norm_bytes(sizes, work, t, layer.norms - 2 * h, 2) + 4 * t
    return kept


def _attention(sizes: Sizes, work: Workload, layer: Layer) -> int:
    """Return the bytes of queries, keys, values and output, and one fp32 number a head and token."""
    kept = work.tokens * (2 * (layer.q + layer.k + layer.v) + 2 * _output(layer) + 4 * sizes.heads)
    if sizes.family == "phi3":  # values are a part of the fused product, which stays as a whole
        kept += 2 * work.tokens * (layer.q + layer.k)
    if latent := layer.matrices.get("self_attn.kv_b_proj"):  # so are those of multi-head latent attention
        kept += 2 * work.tokens * (latent[1] - layer.v)
    if is_casting(sizes):
        kept += work.tokens * sizes.hidden * 2  # the masks of the two dropouts on the residual stream, a byte each
    return kept


def _is_in(name: str, group: tuple[str, ...]) -> bool:
    return name in group or name.split(".")[-1] in group


def _output(layer: Layer) -> int:
    # As wide as the input of the attention's output projection.
    return next(a for name, (a, _) in layer.matrices.items() if _is_in(name, _FROM_ATTENTION))


def _experts(sizes: Sizes, work: Workload, layer: Layer) -> int:
    """Return the bytes kept by routed experts, computed as one grouped product (transformers, integrations/moe.py)."""
    rows, full = work.tokens * layer.top_k, work.method == "full"
    kept = rows * (6 * layer.expert_inner + 2 * sizes.hidden)
    if full:
        router_input = 2 * work.tokens * sizes.hidden
        kept += rows * (2 * sizes.hidden + 2 * layer.expert_inner) + router_input
    scores = 4 * work.tokens * layer.experts
    return kept + scores + rows * 24  # indices of 8 bytes: the order, its inverse, the choice


def layer_transient(sizes: Sizes, work: Workload, layer: Layer | None = None) -> int:
    """Return the most bytes held for a moment in a layer's backward pass, in the MLP, on top of what it saved.

    The gradient of the residual stream (as wide as the stream) and of the MLP's product, 2TI, are always there. Where
    the product itself was kept (full fine-tuning) it is let go by then. torch's kernels then make the gradients of both
    factors, 4TI; Liger's write them over gate and up. A LoRA target makes the gradient of its input by two ways that
    are summed, and in fp32 adapters through an fp32 copy: 2 and 4 bytes more per input number. A quantised matrix is
    unpacked to bf16 for its product.

    >>> from rocm_guide.models.shapes import SHAPES
    >>> from rocm_guide.models.sizes import sizes_of
    >>> sizes = sizes_of(SHAPES["llama-2-7b"])
    >>> layer_transient(sizes, Workload("full", batch=1, seq=1)) == 2 * 4096 + 2 * 11008
    True
    """
    layer = layer or sizes.groups[0][0]
    t, full = work.tokens, work.method == "full"
    stream = (4 if work.wide else 2) * t * sizes.hidden
    targets = work.targets or sizes.lora_targets()
    wide = t * layer.inner
    held = 2 * wide
    if not fused(sizes, work):
        # GPT-2's GELU, written out, goes back through five fp32 tensors of which two and a half are there at once
        held = max(held, (10 if sizes.family == "gpt2" else 4 if full else 6) * wide)
    if not full and {"down_proj", "fc2"} & set(targets):
        held = max(held, (2 + 2 + 4 if _casts_adapters(work) else 2 + 2 + 2) * wide)
    if layer.experts:
        held = max(held, _experts_transient(sizes, work, layer))
    if work.method == "qlora" or sizes.quantised:
        held += 2 * max(a * b for a, b in layer.matrices.values())
    return stream + held


def _experts_transient(sizes: Sizes, work: Workload, layer: Layer) -> int:
    """Return the bytes of the weighted outputs' gradient in fp32 in two orders, or of the experts' own tensors."""
    rows = work.tokens * layer.top_k
    return max(rows * 8 * sizes.hidden, rows * (4 * layer.expert_inner + 3 * sizes.hidden))


def head_bytes(sizes: Sizes, work: Workload) -> tuple[int, int]:
    """Return (kept, moment): bytes of the last norm and the loss for the backward pass, and of its largest moment.

    Kept: the norm's input and output, and the rows that are scored, 2TH each. In the backward pass: a tile of logits
    (at most 4,096 tokens x 32,768 words in bf16), the gradient of the rows in fp32 and bf16, 6TH, and of the output
    layer's weight if it is trained, 4VH and then also 2VH. Without such tiles the logits alone would be TV numbers,
    in bf16 and as fp32 probabilities. Source: trl 1.16, ``trl/kernels/chunked_logprob.py``.

    >>> from rocm_guide.models.shapes import SHAPES
    >>> from rocm_guide.models.sizes import sizes_of
    >>> tile = head_bytes(sizes_of(SHAPES["llama-2-7b"]), Workload("lora", batch=1, seq=1))[1] - 6 * 4096
    >>> tile == 2 * 32768
    True
    """
    t, size = work.tokens, 4 if work.wide else 2
    stream = t * sizes.hidden
    if is_casting(sizes):
        kept = layer_norm_bytes(sizes, work) + 4 * stream
    else:
        extra = (size if fused(sizes, work) else 4) + (size if work.method == "full" else 0)
        kept = stream * (extra + size)
    weight = sizes.vocab * sizes.hidden if work.method == "full" else 0
    moment = loss_tile(sizes, work) + stream * (4 + (0 if work.wide else 2)) + weight * (4 + (0 if work.wide else 2))
    return kept, moment


def loss_tile(sizes: Sizes, work: Workload) -> int:
    """Return the bytes of one tile of logits and, under mixed precision, of the bf16 casts of its factors.

    >>> from rocm_guide.models.shapes import SHAPES
    >>> from rocm_guide.models.sizes import sizes_of
    >>> loss_tile(sizes_of(SHAPES["llama-2-7b"]), Workload("full", batch=8, seq=2048)) / 2**20
    256.0
    """
    rows = min(work.tokens, LOSS_TOKENS)
    casts = 2 * (min(LOSS_WORDS, sizes.vocab) + rows) * sizes.hidden if work.wide else 0
    return 2 * rows * LOSS_WORDS + casts


def _casts_adapters(work: Workload) -> bool:
    return work.method == "lora" and work.adapter_fp32


#: Tensors that TRL's offloading keeps on the device until their copies have arrived: ``max_fwd_stash_size`` of
#: ``OffloadActivations`` (trl 1.16, ``trl/models/activation_offloading.py``).
IN_FLIGHT = 5


def adapter_parameters_of(sizes: Sizes, work: Workload) -> int:
    """Return how many numbers are in all LoRA matrices of this work; 0 without LoRA."""
    if work.method not in ("lora", "qlora"):
        return 0
    return sizes.lora_parameters(work.targets or sizes.lora_targets(), work.rank)


def frozen_bytes(sizes: Sizes, work: Workload) -> int:
    """Return the bytes of weights that are only read: bf16, the checkpoint's own format, or NF4 for QLoRA.

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
    copy of the weights is temporary, see :func:`~rocm_guide.models.step.layer_saved`). LoRA: a frozen weight as
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
    """Return the bytes by part at each moment of a step that can be its peak, from the second step on.

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
