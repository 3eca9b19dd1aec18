# SPDX-License-Identifier: MIT
"""Activation checkpointing by halves of a layer: attention in one piece, the MLP in tiles of tokens.

Checkpointing keeps the input of every layer and computes the rest of a layer again when its backward pass comes. At
that moment one whole layer's intermediate results are there, and those of the MLP are the largest. Here the two halves
of a layer are kept apart and the MLP's backward pass goes over a part of the tokens at a time, which it may, because an
MLP looks at each token alone. Nothing is computed more often than with checkpointing of whole layers; one more tensor
of the hidden size is kept for each layer, and ``activation_offloading`` of TRL's ``SFTConfig`` moves both to the host.

Sources: Chen et al., "Training Deep Nets with Sublinear Memory Cost", arXiv:1604.06174; tiles of tokens: Bekman et al.,
"Arctic Long Sequence Training", arXiv:2506.13996 (its TiledMLP).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from types import MethodType
from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint, get_device_states, set_device_states

from rocm_guide.common.base import GuideError
from rocm_guide.models.families import PLAIN_LAYERS

__all__ = ["recompute_halves"]

PARTS = ("input_layernorm", "self_attn", "post_attention_layernorm", "mlp")


def recompute_halves(model: Any, tiles: int = 4) -> ExitStack:
    """Let each decoder layer of ``model``, while it trains, recompute its attention and its MLP apart.

    Train with ``activation_checkpointing=False`` (this takes its place). Losses and gradients stay the same; weights,
    names and saved files too. Without gradients, and in ``eval()``, nothing is changed.

    Args:
        model: a causal language model of the families llama, mistral, qwen2 or qwen3, in PEFT's wrapper or not.
        tiles: parts of the batch's tokens in which the MLP's backward pass is computed; 1 takes them at once.

    Returns:
        what undoes it, by ``close()`` or at the end of a ``with`` block.

    Raises:
        GuideError: another family, no number of tiles, or layers whose ``forward`` somebody else has replaced.

    Example::

        recompute_halves(model)
        SFTTrainer(model, args=SFTConfig(activation_checkpointing=False, activation_offloading=True, …), …).train()

    >>> from transformers import AutoModelForCausalLM
    >>> from rocm_guide.models.shapes import config_of
    >>> small = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 32, "vocab_size": 64}
    >>> model = AutoModelForCausalLM.from_config(config_of("llama-2-7b", **small), trust_remote_code=False)
    >>> with recompute_halves(model):
    ...     loss = model(input_ids=torch.tensor([[1, 2, 3]]), labels=torch.tensor([[1, 2, 3]])).loss
    """
    if isinstance(tiles, bool) or not isinstance(tiles, int) or tiles < 1:
        raise GuideError(f"tiles={tiles!r}: give a whole number of parts, 1 or more")
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    kind = getattr(getattr(base, "config", None), "model_type", type(base).__name__)
    if kind not in PLAIN_LAYERS:
        fix = f"give one of {', '.join(PLAIN_LAYERS)}, or use checkpointing of whole layers"
        raise GuideError(f"a model of type {kind!r}: {fix}")
    layers = [m for m in base.modules() if all(hasattr(m, part) for part in PARTS)]
    own = [before for layer in layers if (before := vars(layer).get("forward")) is not None]
    if any(getattr(getattr(before, "__func__", None), "func", None) is not _forward for before in own):
        raise GuideError("a layer's forward was replaced (by a device map, say): load the model whole on one device")
    done = ExitStack()
    for layer in layers:
        before = vars(layer).get("forward")
        object.__setattr__(layer, "forward", MethodType(partial(_forward, tiles=tiles), layer))
        done.callback(_put_back, layer, before)
    return done


def _put_back(layer: Any, before: Any) -> None:
    if before is None:
        object.__delattr__(layer, "forward")
    else:
        object.__setattr__(layer, "forward", before)


def _forward(layer: Any, hidden_states: torch.Tensor, *, tiles: int, **options: Any) -> torch.Tensor:
    """Compute what a decoder layer's ``forward`` computes, in tiles where gradients are wanted."""
    if not (layer.training and torch.is_grad_enabled()):
        out: torch.Tensor = type(layer).forward(layer, hidden_states, **options)
        return out
    if options.get("past_key_values") is not None:  # a second pass would write to the cache again
        options |= {"past_key_values": None, "use_cache": False}
    hidden = checkpoint(partial(_attention_half, layer, options), hidden_states, use_reentrant=False)
    weights = [p for half in (layer.post_attention_layernorm, layer.mlp) for p in half.parameters() if p.requires_grad]
    return _InTiles.apply(partial(_mlp_half, layer), tiles, hidden, *weights)


def _attention_half(layer: Any, options: dict[str, Any], hidden: torch.Tensor) -> torch.Tensor:
    return hidden + layer.self_attn(hidden_states=layer.input_layernorm(hidden), **options)[0]


def _mlp_half(layer: Any, hidden: torch.Tensor) -> torch.Tensor:
    return hidden + layer.mlp(layer.post_attention_layernorm(hidden))


class _InTiles(torch.autograd.Function):
    """``half(hidden)`` for a function that looks at each token alone, keeping nothing but ``hidden``.

    Shapes: hidden (batch, tokens, width); ``half`` takes and gives (1, some tokens, width). ``weights`` are the
    parameters of ``half`` that want a gradient.
    """

    @staticmethod
    def forward(
        ctx: Any, half: Callable[[torch.Tensor], torch.Tensor], tiles: int, hidden: torch.Tensor, *weights: torch.Tensor
    ) -> torch.Tensor:
        kind = hidden.device.type
        ctx.half, ctx.tiles, ctx.weights = half, tiles, weights
        ctx.cast = {"device_type": kind, "enabled": torch.is_autocast_enabled(kind)}
        ctx.cast["dtype"] = torch.get_autocast_dtype(kind)
        # Dropout of an adapter has to drop the same numbers the second time.
        ctx.random = torch.get_rng_state(), get_device_states(hidden)
        ctx.save_for_backward(hidden)
        rows = hidden.flatten(0, -2)[None]
        return torch.cat([half(part) for part in rows.chunk(tiles, 1)], 1).view(hidden.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        (hidden,) = ctx.saved_tensors
        rows, grads = (x.flatten(0, -2)[None] for x in (hidden, grad))
        to_hidden = torch.empty_like(rows)
        to_weights: list[torch.Tensor | None] = [None] * len(ctx.weights)
        on_cpu, (devices, states) = ctx.random
        with (
            torch.random.fork_rng(devices, device_type=hidden.device.type if devices else "cuda"),
            saved_tensors_hooks(torch.Tensor.detach, torch.Tensor.detach),  # a tile's results are not offloaded
            torch.enable_grad(),
            torch.autocast(**ctx.cast),
        ):
            torch.set_rng_state(on_cpu)
            set_device_states(devices, states)
            for part, into, from_above in zip(*(x.chunk(ctx.tiles, 1) for x in (rows, to_hidden, grads)), strict=True):
                leaf = part.detach().requires_grad_()
                wanted = (leaf, *ctx.weights)
                found = torch.autograd.grad(ctx.half(leaf), wanted, from_above, allow_unused=True)
                into.copy_(found[0])
                for n, more in enumerate(found[1:]):
                    if more is not None:
                        before = to_weights[n]
                        to_weights[n] = more if before is None else before.add_(more)
        return None, None, to_hidden.view(hidden.shape), *to_weights
